//! Replacements and machines of static pools for which a quota of the account has no room, by the rule of the plans for pods (ADR 0024). A
//! node would be closed for a machine that EC2 refuses, again and again. Pure.

use whittle_claims::DecisionKind;
use whittle_disruption::StaticChange;
use whittle_model::disruption::{Command, Method, Reason};
use whittle_ports::Report;
use whittle_snapshot::{QuotaFit, QuotaRoom, Snapshot, hold_to};

/// The command, if quotas have room for all of its replacements; `room` is reduced by them. `None`, and a record in `report`, if they have
/// not. A drifted node may be replaced by a machine of another capacity type if its pool allows that. A node that is replaced to save money
/// may not: the other type might cost more than the node does.
pub(crate) fn within_quotas(command: &Command, snapshot: &Snapshot, room: &mut QuotaRoom, report: &mut Report) -> Option<Command> {
    let (mut left, mut fitting) = (room.clone(), command.clone());
    for new in &mut fitting.replacements {
        match left.take(new, snapshot) {
            QuotaFit::AsPlanned => {}
            QuotaFit::As(capacity_type) if command.method.reason() == Reason::Drifted => {
                report.count("beside_quota");
                hold_to(new, capacity_type, snapshot);
            }
            QuotaFit::As(_) | QuotaFit::Over(_) => {
                report.count("over_quota");
                let nodes: Vec<&str> = command.removals.iter().map(|removal| removal.node.as_str()).collect();
                let message = format!(
                    "{} is not executed: EC2 has just refused a machine for a quota of vCPUs of the account, which has no room for the \
                     replacement; request an increase in Service Quotas",
                    command.method.reason()
                );
                report.decide(snapshot.now, DecisionKind::Kept, format!("command/{}", nodes.join(",")), message);
                return None;
            }
        }
    }
    *room = left;
    Some(fitting)
}

/// Whether all that was found are drifted nodes of static pools for whose replacements quotas have no room. Then each is recorded.
pub(crate) fn holds_static_drift(commands: &[Command], snapshot: &Snapshot, report: &mut Report) -> bool {
    let (room, mut noted) = (QuotaRoom::of(snapshot), Report::default());
    let is_held = |command: &Command| {
        command.method == Method::StaticDrift && within_quotas(command, snapshot, &mut room.clone(), &mut noted).is_none()
    };
    let are_held = !commands.is_empty() && commands.iter().all(is_held);
    if are_held {
        report.absorb(noted);
    }
    are_held
}

/// The missing machines of a static pool that can be launched, and how many of the others quotas have no room for.
pub(crate) fn launches_within_quotas(
    change: &StaticChange,
    snapshot: &Snapshot,
    room: &mut QuotaRoom,
    report: &mut Report,
) -> (StaticChange, usize) {
    let mut fitting = change.clone();
    fitting.launch.retain_mut(|new| match room.take(new, snapshot) {
        QuotaFit::AsPlanned => true,
        QuotaFit::As(capacity_type) => {
            report.count("beside_quota");
            hold_to(new, capacity_type, snapshot);
            true
        }
        QuotaFit::Over(_) => {
            report.count("over_quota");
            false
        }
    });
    let left_out = change.launch.len() - fitting.launch.len();
    (fitting, left_out)
}

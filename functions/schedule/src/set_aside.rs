//! Machines of a plan that are launched in another way, or not at all. Pure.

use whittle_model::scheduling::{LeftOut, NewClaim, Plan, Reason};
use whittle_ports::Report;
use whittle_snapshot::{QuotaFit, QuotaRoom, Snapshot, hold_to};

/// Takes the machines out of a plan for which there is a reason. Their pods are left out.
pub(crate) fn set_aside(plan: &mut Plan, mut why: impl FnMut(&mut NewClaim) -> Option<Reason>) {
    let mut left_out = Vec::new();
    plan.claims.retain_mut(|new| {
        let Some(reason) = why(new) else { return true };
        left_out.extend(new.pods.iter().map(|pod| LeftOut { pod: pod.clone(), reason: reason.clone() }));
        false
    });
    if !left_out.is_empty() {
        plan.left_out.append(&mut left_out);
        plan.left_out.sort_by(|a, b| a.pod.cmp(&b.pod));
    }
}

/// Takes the machines out that are more than what a quota of the account may have left. After EC2 has refused a large machine smaller ones
/// are planned for all of its pods, where hardly one can start. Those that may be launched with another capacity type are: their pods need
/// not wait until the quota has refused the smallest.
pub(crate) fn over_quota(plan: &mut Plan, snapshot: &Snapshot, report: &mut Report) {
    let mut room = QuotaRoom::of(snapshot);
    set_aside(plan, |new| match room.take(new, snapshot) {
        QuotaFit::AsPlanned => None,
        QuotaFit::As(capacity_type) => {
            report.count("beside_quota");
            hold_to(new, capacity_type, snapshot);
            None
        }
        QuotaFit::Over(capacity_type) => {
            report.count("over_quota");
            Some(Reason::OverQuota { capacity_type: capacity_type.to_owned() })
        }
    });
}

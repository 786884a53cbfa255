//! Machines of a plan that are launched in another way, or not at all. Pure.

use std::collections::BTreeSet;
use whittle_model::scheduling::{LeftOut, NewClaim, Plan, PodRef, Reason};
use whittle_ports::Report;
use whittle_snapshot::{QuotaFit, QuotaRoom, Snapshot, hold_to};

/// How often other machines are tried in place of those whose pods could not be bound. A try is a look at the whole plan.
const TRIES_MAX: usize = 8;

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
///
/// Pods that could not be bound without those that are left out are left out too: no machine is launched for them alone, and what it would
/// take of the quota is left to the next.
pub(crate) fn over_quota(plan: &mut Plan, snapshot: &Snapshot, report: &mut Report) {
    let room = QuotaRoom::of(snapshot);
    if room.is_ample() {
        return;
    }
    let (input, whole) = (snapshot.input(), plan.clone());
    let mut waiting = BTreeSet::new();
    let (mut rest, mut counts) = within(&whole, &waiting, room.clone(), snapshot);
    let mut tries = 0;
    while rest.claims.len() < whole.claims.len() {
        let stranded = whittle_checker::stranded(&input, &whole, &rest);
        if stranded.is_empty() {
            break;
        }
        tries += 1;
        if tries < TRIES_MAX {
            waiting.extend(stranded);
            (rest, counts) = within(&whole, &waiting, room.clone(), snapshot);
        } else {
            leave_waiting(&mut rest, &stranded, &Reason::AwaitsOverQuota);
        }
    }
    *plan = rest;
    report.absorb(counts);
}

/// The plan without these pods, and without machines for which there is no room then.
fn within(whole: &Plan, waiting: &BTreeSet<String>, mut room: QuotaRoom, snapshot: &Snapshot) -> (Plan, Report) {
    let (mut rest, mut counts) = (whole.clone(), Report::default());
    leave_waiting(&mut rest, waiting, &Reason::AwaitsOverQuota);
    set_aside(&mut rest, |new| match room.take(new, snapshot) {
        QuotaFit::AsPlanned => None,
        QuotaFit::As(capacity_type) => {
            counts.count("beside_quota");
            hold_to(new, capacity_type, snapshot);
            None
        }
        QuotaFit::Over(capacity_type) => {
            counts.count("over_quota");
            Some(Reason::OverQuota { capacity_type: capacity_type.to_owned() })
        }
    });
    (rest, counts)
}

/// Leaves these pods out, by key, and machines that would have no others. A machine that has stays as large as it was planned.
pub(crate) fn leave_waiting(plan: &mut Plan, waiting: &BTreeSet<String>, reason: &Reason) {
    let mut left_out = Vec::new();
    let mut leave = |pods: &mut Vec<PodRef>| {
        let is_left = |pod: &mut PodRef| waiting.contains(&pod.key());
        left_out.extend(pods.extract_if(.., is_left).map(|pod| LeftOut { pod, reason: reason.clone() }));
        !pods.is_empty()
    };
    plan.claims.retain_mut(|new| leave(&mut new.pods));
    plan.placements.retain_mut(|placement| leave(&mut placement.pods));
    if !left_out.is_empty() {
        plan.left_out.append(&mut left_out);
        plan.left_out.sort_by(|a, b| a.pod.cmp(&b.pod));
    }
}

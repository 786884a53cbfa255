//! Machines of a plan that are not launched. Pure.

use whittle_model::scheduling::{LeftOut, NewClaim, Plan, Reason};
use whittle_ports::Report;
use whittle_snapshot::{QuotaRoom, Snapshot};

/// Takes the machines out of a plan for which there is a reason. Their pods are left out.
pub(crate) fn set_aside(plan: &mut Plan, mut why: impl FnMut(&NewClaim) -> Option<Reason>) {
    let mut left_out = Vec::new();
    plan.claims.retain(|new| {
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
/// are planned for all of its pods, where hardly one can start.
pub(crate) fn over_quota(plan: &mut Plan, snapshot: &Snapshot, report: &mut Report) {
    let mut room = QuotaRoom::of(snapshot);
    set_aside(plan, |new| {
        let capacity_type = room.take(new, snapshot).err()?;
        report.count("over_quota");
        Some(Reason::OverQuota { capacity_type })
    });
}

//! How long pods stay on a machine that is being terminated (ADR 0011): on an interrupted spot instance until their replacement
//! is ready, if in time; on a machine that is deleted without a command until they are all scheduled together. Pure.

use crate::drain::is_drainable;
use whittle_api::k8s::Pod;
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::{Claim, Deletion, DeletionReason, Phase};
use whittle_model::pods::is_reschedulable;
use whittle_units::{SignedDuration, Timestamp};

/// Time from when a deletion is stored until replacements have been planned; if there is no plan by then, the pods fit elsewhere. Pods that
/// leave earlier would be scheduled one by one, as their successors are created, and get machines that are too small.
const PLANNING_TIME: SignedDuration = SignedDuration::from_secs(8);
/// Time reserved for evictions, besides the longest grace period.
const EVICTION_RESERVE: SignedDuration = SignedDuration::from_secs(25);
/// Kubernetes' default termination grace period.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// Poll interval while a replacement is awaited.
const POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(2);

/// What the pods of a machine wait for, with the delay until the next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing (any more): they are drained.
    Drain,
    /// Their replacement may not have been planned yet.
    AwaitingSpotPlan(SignedDuration),
    /// Their replacement may not have been planned yet, unless there is a machine that was [`last_planned`] since the notice.
    AwaitingPlan(SignedDuration),
    /// A machine that was [`last_planned`] since the notice, or [`awaited_since`] before it, if there is one.
    AwaitingMachine(SignedDuration),
}

/// When the deletion of a claim was stored. That a user has deleted its NodeClaim counts from then on, and a notice from when AWS has sent
/// it, which may be a minute earlier: nothing has been planned for the pods until somebody has heard of it.
pub(crate) fn stored_at(claim: &Claim, deletion: &Deletion) -> Timestamp {
    if let Phase::Draining { since, .. } = &claim.phase { *since } else { deletion.at }
}

/// The stage at `now` of a deletion that was [`stored_at`] this time, by the pods on `node`.
pub(crate) fn stage(deletion: &Deletion, stored_at: Timestamp, pods: &[Pod], node: &str, now: Timestamp) -> Stage {
    let planned_by = stored_at.checked_add(PLANNING_TIME).unwrap_or(stored_at);
    let last = latest_start(deletion, planned_by, pods, node, now);
    let Some(last) = last.filter(|last| now < *last) else { return Stage::Drain };
    let delay = last.duration_since(now).min(POLL_INTERVAL);
    match (deletion.reason, now < planned_by) {
        (DeletionReason::SpotInterruption, true) => Stage::AwaitingSpotPlan(delay),
        (DeletionReason::SpotInterruption, false) => Stage::AwaitingMachine(delay),
        (_, true) => Stage::AwaitingPlan(delay),
        (_, false) => Stage::Drain,
    }
}

/// Reasons for which a running machine is deleted without a command that has placed its pods: they are scheduled from then on.
const fn reschedules_pods(reason: DeletionReason) -> bool {
    use DeletionReason::{Expired, NodePoolDeleted, Rebalance, Requested, ScaledDown, ScheduledChange, SpotInterruption};
    matches!(reason, Expired | NodePoolDeleted | Rebalance | Requested | ScaledDown | ScheduledChange | SpotInterruption)
}

/// The latest start of the drain: each pod keeps its whole grace period before the deadline. `None` if no pod has to move.
fn latest_start(deletion: &Deletion, planned_by: Timestamp, pods: &[Pod], node: &str, now: Timestamp) -> Option<Timestamp> {
    if !reschedules_pods(deletion.reason) {
        return None;
    }
    let moving = pods.iter().filter(|pod| pod.spec.node_name == node && is_drainable(pod, now) && is_reschedulable(pod));
    let grace = moving.map(|pod| pod.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS)).max()?;
    let Some(deadline) = deletion.deadline else {
        let no_notice = deletion.reason == DeletionReason::SpotInterruption;
        return if no_notice { None } else { Some(planned_by) };
    };
    let last = deadline.checked_sub(SignedDuration::from_secs(grace)).ok()?;
    last.checked_sub(EVICTION_RESERVE).ok()
}

/// Since when a machine may have been planned that the pods of an interrupted one wait for: since the notice, or since a command of
/// `consolidate` began to replace it. What that launches is for the same pods, so that the notice lets nothing be planned for them.
pub(crate) fn awaited_since(claim: &Claim, deletion: &Deletion) -> Timestamp {
    let replaced = conditions::find(&claim.conditions, conditions::DISRUPTION_REASON);
    let replaced = replaced.filter(|reason| reason.status == ConditionStatus::True);
    replaced.and_then(|reason| reason.last_transition_time).map_or(deletion.at, |begun| begun.min(deletion.at))
}

/// When the last of these claims was planned that are not ready for pods yet. `None` if there are none.
pub(crate) fn last_planned<'c>(claims: impl IntoIterator<Item = &'c Claim>) -> Option<Timestamp> {
    claims.into_iter().filter(|claim| is_starting(claim)).map(|claim| claim.created_at).max()
}

const fn is_starting(claim: &Claim) -> bool {
    let starting = matches!(claim.phase, Phase::Planned | Phase::Launching { .. } | Phase::Launched { .. } | Phase::Registered { .. });
    starting && claim.deletion.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{NODE, grace, owned_by, planned, pod, terminating, tolerating};
    use whittle_claims::{Event, step};
    use whittle_testkit::at;

    fn warned(deadline: i64) -> Deletion {
        Deletion { deadline: Some(at(deadline)), ..Deletion::without_deadline(DeletionReason::SpotInterruption, at(0), "") }
    }

    #[track_caller]
    fn check(deletion: &Deletion, pods: &[Pod], seconds: i64, expected: Stage) {
        assert_eq!(stage(deletion, deletion.at, pods, NODE, at(seconds)), expected, "at {seconds}");
    }

    #[test]
    fn pods_wait_for_the_plan_then_its_machine_while_time_remains() {
        let pods = [pod("a")];
        check(&warned(120), &pods, 0, Stage::AwaitingSpotPlan(POLL_INTERVAL));
        check(&warned(120), &pods, 7, Stage::AwaitingSpotPlan(POLL_INTERVAL));
        check(&warned(120), &pods, 8, Stage::AwaitingMachine(POLL_INTERVAL));
        check(&warned(120), &pods, 64, Stage::AwaitingMachine(SignedDuration::from_secs(1)));
        check(&warned(120), &pods, 65, Stage::Drain);
        check(&warned(120), &[grace(pod("a"), 5), pod("b")], 65, Stage::Drain);
        check(&warned(120), &[grace(pod("a"), 5)], 65, Stage::AwaitingMachine(POLL_INTERVAL));
    }

    #[test]
    fn pods_that_need_the_time_and_other_reasons_are_not_held() {
        check(&warned(120), &[grace(pod("a"), 95)], 0, Stage::Drain);
        check(&warned(40), &[pod("a")], 0, Stage::Drain);
        let pods = [pod("a")];
        check(&Deletion { reason: DeletionReason::Underutilized, ..warned(120) }, &pods, 0, Stage::Drain);
        check(&Deletion { reason: DeletionReason::InstanceStopped, ..warned(120) }, &pods, 0, Stage::Drain);
        check(&Deletion { deadline: None, ..warned(120) }, &pods, 0, Stage::Drain);
    }

    #[test]
    fn pods_of_a_machine_deleted_without_a_command_wait_for_a_plan() {
        let ended = |reason, deadline: Option<i64>| Deletion { reason, deadline: deadline.map(at), ..warned(0) };
        let pods = [pod("a")];
        use DeletionReason::{Expired, NodePoolDeleted, Rebalance, Requested, ScaledDown, ScheduledChange};
        for reason in [Expired, Requested, NodePoolDeleted, Rebalance, ScheduledChange, ScaledDown] {
            check(&ended(reason, None), &pods, 0, Stage::AwaitingPlan(POLL_INTERVAL));
            check(&ended(reason, None), &pods, 7, Stage::AwaitingPlan(SignedDuration::from_secs(1)));
            check(&ended(reason, None), &pods, 8, Stage::Drain);
            check(&ended(reason, Some(300)), &pods, 7, Stage::AwaitingPlan(POLL_INTERVAL));
            check(&ended(reason, Some(300)), &pods, 8, Stage::Drain);
            check(&ended(reason, Some(60)), &pods, 4, Stage::AwaitingPlan(SignedDuration::from_secs(1)));
            check(&ended(reason, Some(60)), &pods, 5, Stage::Drain); // its grace period and the time to evict it
            check(&ended(reason, None), &[], 0, Stage::Drain);
        }
        for reason in [DeletionReason::Empty, DeletionReason::Drifted, DeletionReason::Unhealthy, DeletionReason::InstanceStopped] {
            check(&ended(reason, None), &pods, 0, Stage::Drain);
        }
    }

    /// As where nothing rings for it, and the tick finds it.
    #[test]
    fn the_time_for_a_plan_begins_when_the_deletion_was_stored_and_ends_in_time_for_a_deadline() {
        let stage = |reason, deadline: Option<i64>, seconds| {
            let asked = Deletion { reason, deadline: deadline.map(at), ..warned(0) };
            stage(&asked, at(50), &[pod("a")], NODE, at(seconds))
        };
        use DeletionReason::{Expired, Requested, SpotInterruption};
        assert_eq!(stage(Requested, None, 51), Stage::AwaitingPlan(POLL_INTERVAL));
        assert_eq!(stage(Requested, None, 57), Stage::AwaitingPlan(SignedDuration::from_secs(1)));
        assert_eq!(stage(Requested, None, 58), Stage::Drain);
        assert_eq!(stage(Expired, Some(300), 57), Stage::AwaitingPlan(POLL_INTERVAL));
        assert_eq!(stage(Expired, Some(300), 58), Stage::Drain);
        assert_eq!(stage(Expired, Some(110), 55), Stage::Drain);
        assert_eq!(stage(SpotInterruption, Some(120), 57), Stage::AwaitingSpotPlan(POLL_INTERVAL));
        assert_eq!(stage(SpotInterruption, Some(120), 58), Stage::AwaitingMachine(POLL_INTERVAL));
        assert_eq!(stage(SpotInterruption, Some(120), 65), Stage::Drain);
    }

    #[test]
    fn a_deletion_is_stored_when_the_claim_begins_to_drain() {
        let asked = Deletion { reason: DeletionReason::Requested, ..warned(0) };
        let draining = step(&crate::tests::serving(), &Event::DeletionRequested(asked.clone()), at(50)).unwrap();
        assert_eq!(stored_at(&draining, &asked), at(50));
        let ended = step(&draining, &Event::TerminationSent, at(70)).unwrap();
        assert_eq!(stored_at(&ended, &asked), at(0), "nothing waits any more");
    }

    #[test]
    fn pods_that_need_no_machine_hold_nothing() {
        check(&warned(120), &[], 0, Stage::Drain);
        check(&warned(120), &[owned_by(pod("a"), "DaemonSet", "apps/v1")], 0, Stage::Drain);
        check(&warned(120), &[tolerating(pod("a"), "", "Exists")], 0, Stage::Drain);
        check(&warned(120), &[terminating(pod("a"), 30)], 0, Stage::Drain);
        check(&warned(120), &[Pod { spec: whittle_api::k8s::PodSpec::default(), ..pod("elsewhere") }], 0, Stage::Drain);
    }

    #[test]
    fn only_launching_machines_are_awaited() {
        let launching = Claim { created_at: at(2), ..planned() };
        let earlier = Claim { created_at: at(1), ..planned() };
        assert_eq!(last_planned([&launching, &earlier]), Some(at(2)));
        assert_eq!(last_planned([]), None);
        let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: String::new() };
        assert_eq!(last_planned([&step(&launching, &failed, at(4)).unwrap()]), None);
        let given_up = step(&launching, &Event::DeletionRequested(Deletion { reason: DeletionReason::Empty, ..warned(9) }), at(4)).unwrap();
        assert_eq!(last_planned([&given_up, &earlier]), Some(at(1)));
    }
}

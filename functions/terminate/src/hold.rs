//! How long the pods of a machine that ends stay where they are (ADR 0011): those of a spot machine that EC2 takes back
//! until their next machine is ready, if it is in time; those of a machine that ends without a command until they are
//! planned for, all together. Pure.

use crate::drain::is_drainable;
use whittle_api::k8s::Pod;
use whittle_claims::{Claim, Deletion, DeletionReason, Phase};
use whittle_core::pods::is_reschedulable;
use whittle_units::{SignedDuration, Timestamp};

/// From the notice until whatever its pods need has been planned; later, no plan means that they have room elsewhere.
/// Pods that leave before would be planned for one by one, as their successors come, and get machines that are too small.
const PLANNED_WITHIN: SignedDuration = SignedDuration::from_secs(8);
/// What evictions are left at least, beside the longest grace of a pod.
const TO_EVICT: SignedDuration = SignedDuration::from_secs(25);
/// What Kubernetes gives a pod that says nothing.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// While a machine is awaited.
const LOOK: SignedDuration = SignedDuration::from_secs(2);

/// What the pods of a machine wait for, with the time until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing, or no longer: they move.
    Move,
    /// What they need may not have been planned yet.
    Planning(SignedDuration),
    /// What they need may not have been planned yet, unless there is a machine that [`is_awaited`].
    Asking(SignedDuration),
    /// A machine that [`is_awaited`], if there is one.
    Launching(SignedDuration),
}

/// Where the end of a machine stands at `now`, by the pods that are on `node`.
pub(crate) fn stage(deletion: &Deletion, pods: &[Pod], node: &str, now: Timestamp) -> Stage {
    let Some(last) = held_until(deletion, pods, node, now).filter(|last| now < *last) else { return Stage::Move };
    let delay = last.duration_since(now).min(LOOK);
    match (deletion.reason, now.duration_since(deletion.at) < PLANNED_WITHIN) {
        (DeletionReason::SpotInterruption, true) => Stage::Planning(delay),
        (DeletionReason::SpotInterruption, false) => Stage::Launching(delay),
        (_, true) => Stage::Asking(delay),
        (_, false) => Stage::Move,
    }
}

/// Ends of machines that still run and that no command has found a place for: their pods are planned for from then on.
const fn asks_for_a_plan(reason: DeletionReason) -> bool {
    use DeletionReason::{Expired, NodePoolDeleted, Rebalance, Requested, ScheduledChange, SpotInterruption};
    matches!(reason, Expired | NodePoolDeleted | Rebalance | Requested | ScheduledChange | SpotInterruption)
}

/// The last moment to begin with: each pod keeps its whole grace before a deadline. None if nothing has to move.
fn held_until(deletion: &Deletion, pods: &[Pod], node: &str, now: Timestamp) -> Option<Timestamp> {
    if !asks_for_a_plan(deletion.reason) {
        return None;
    }
    let moving = pods.iter().filter(|pod| pod.spec.node_name == node && is_drainable(pod, now) && is_reschedulable(pod));
    let grace = moving.map(|pod| pod.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS)).max()?;
    let Some(deadline) = deletion.deadline else {
        let no_notice = deletion.reason == DeletionReason::SpotInterruption;
        return if no_notice { None } else { deletion.at.checked_add(PLANNED_WITHIN).ok() };
    };
    let last = deadline.checked_sub(SignedDuration::from_secs(grace)).ok()?;
    last.checked_sub(TO_EVICT).ok()
}

/// Planned since the notice and not ready for pods yet.
pub(crate) fn is_awaited(claim: &Claim, since: Timestamp) -> bool {
    let coming = matches!(claim.phase, Phase::Planned | Phase::Launching { .. } | Phase::Launched { .. } | Phase::Registered { .. });
    coming && claim.deletion.is_none() && claim.created_at >= since
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{NODE, at, grace, leaving, owned_by, planned, pod, tolerating};
    use whittle_claims::{Event, step};

    fn warned(deadline: i64) -> Deletion {
        Deletion { reason: DeletionReason::SpotInterruption, at: at(0), deadline: Some(at(deadline)), message: String::new() }
    }

    #[track_caller]
    fn check(deletion: &Deletion, pods: &[Pod], seconds: i64, expected: Stage) {
        assert_eq!(stage(deletion, pods, NODE, at(seconds)), expected, "at {seconds}");
    }

    #[test]
    fn pods_stay_for_the_plan_then_for_its_machine_while_time_is_left_to_evict_them() {
        let pods = [pod("a")];
        check(&warned(120), &pods, 0, Stage::Planning(LOOK));
        check(&warned(120), &pods, 7, Stage::Planning(LOOK));
        check(&warned(120), &pods, 8, Stage::Launching(LOOK));
        check(&warned(120), &pods, 64, Stage::Launching(SignedDuration::from_secs(1)));
        check(&warned(120), &pods, 65, Stage::Move);
        check(&warned(120), &[grace(pod("a"), 5), pod("b")], 65, Stage::Move);
        check(&warned(120), &[grace(pod("a"), 5)], 65, Stage::Launching(LOOK));
    }

    #[test]
    fn no_pod_is_held_that_needs_the_time_to_end_or_whose_loss_is_no_spot_interruption() {
        check(&warned(120), &[grace(pod("a"), 95)], 0, Stage::Move);
        check(&warned(40), &[pod("a")], 0, Stage::Move);
        let pods = [pod("a")];
        check(&Deletion { reason: DeletionReason::Underutilized, ..warned(120) }, &pods, 0, Stage::Move);
        check(&Deletion { reason: DeletionReason::InstanceStopped, ..warned(120) }, &pods, 0, Stage::Move);
        check(&Deletion { deadline: None, ..warned(120) }, &pods, 0, Stage::Move);
    }

    #[test]
    fn pods_of_a_machine_that_ends_without_a_command_stay_until_a_plan_would_have_been_made() {
        let ended = |reason, deadline: Option<i64>| Deletion { reason, deadline: deadline.map(at), ..warned(0) };
        let pods = [pod("a")];
        for reason in [DeletionReason::Expired, DeletionReason::Requested, DeletionReason::NodePoolDeleted, DeletionReason::Rebalance] {
            check(&ended(reason, None), &pods, 0, Stage::Asking(LOOK));
            check(&ended(reason, None), &pods, 7, Stage::Asking(SignedDuration::from_secs(1)));
            check(&ended(reason, None), &pods, 8, Stage::Move);
            check(&ended(reason, Some(300)), &pods, 7, Stage::Asking(LOOK));
            check(&ended(reason, Some(300)), &pods, 8, Stage::Move);
            check(&ended(reason, Some(60)), &pods, 4, Stage::Asking(SignedDuration::from_secs(1)));
            check(&ended(reason, Some(60)), &pods, 5, Stage::Move); // its grace, and the time to evict it
            check(&ended(reason, None), &[], 0, Stage::Move);
        }
        for reason in [DeletionReason::Empty, DeletionReason::Drifted, DeletionReason::Unhealthy, DeletionReason::InstanceStopped] {
            check(&ended(reason, None), &pods, 0, Stage::Move);
        }
    }

    #[test]
    fn what_needs_no_other_machine_holds_nothing() {
        check(&warned(120), &[], 0, Stage::Move);
        check(&warned(120), &[owned_by(pod("a"), "DaemonSet", "apps/v1")], 0, Stage::Move);
        check(&warned(120), &[tolerating(pod("a"), "", "Exists")], 0, Stage::Move);
        check(&warned(120), &[leaving(pod("a"), 30)], 0, Stage::Move);
        check(&warned(120), &[Pod { spec: whittle_api::k8s::PodSpec::default(), ..pod("elsewhere") }], 0, Stage::Move);
    }

    #[test]
    fn only_machines_that_are_new_and_coming_are_awaited() {
        let coming = Claim { created_at: at(2), ..planned() };
        assert!(is_awaited(&coming, at(0)));
        assert!(!is_awaited(&coming, at(3)), "older than the notice");
        let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: String::new() };
        assert!(!is_awaited(&step(&coming, &failed, at(4)).unwrap(), at(0)));
        let given_up = step(&coming, &Event::DeletionAsked(Deletion { reason: DeletionReason::Empty, ..warned(9) }), at(4)).unwrap();
        assert!(!is_awaited(&given_up, at(0)));
    }
}

//! When a drain is looked at again. Pure.

use crate::drain::{Drain, Leaving};
use crate::{POLL_DELAY, SHORT_DELAY};
use whittle_api::conditions::{DRAINED, VOLUMES_DETACHED, find};
use whittle_claims::Claim;
use whittle_units::{SignedDuration, Timestamp};

/// A drain that no pod has left for this long is blocked, and so is one whose volumes have not been detached for as long: what blocks it
/// is mostly a person's to change.
const BLOCKED_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// Requeue delay of a blocked drain, unless a pod has to be deleted sooner, or its deadline passes; the longest while pods have long left.
const BLOCKED_DELAY: SignedDuration = SignedDuration::from_secs(30);
/// Pods that are leaving are looked at again after one of so many parts of the time that they have taken: those that end within half a
/// minute, as most do, each second.
const LEAVING_SHARE: i64 = 20;
/// The same of the time that is left to the last of them, where that is long: each half minute for hours, and every five seconds in the
/// last ten minutes.
const LEFT_SHARE: i64 = 120;

/// What a run did for the pods of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    /// Whether a pod was evicted or deleted.
    pub(crate) any: bool,
    /// Whether the rate limit left out pods that may be evicted as soon as it allows.
    pub(crate) are_more_allowed_soon: bool,
}

/// Since when the drain of a claim goes on; `None` before its first run.
pub(crate) fn draining_since(claim: &Claim) -> Option<Timestamp> {
    find(&claim.conditions, DRAINED)?.last_transition_time
}

/// When pods last left the node of a claim, as far as it is stored. A drain that began later has not been blocked for longer than it lasts.
pub(crate) fn last_moved_at(claim: &Claim, now: Timestamp) -> Timestamp {
    draining_since(claim).max(claim.drain_moved_at).unwrap_or(now)
}

/// One second while pods move; longer while they take long to end, or all remaining ones are blocked, and much longer once these have been
/// so for a while, but never past the time to delete one. One whose time has come and that is still there has lost of its grace period
/// already: its deletion failed.
pub(crate) fn next_delay(plan: &Drain, moved: Moved, still_for: SignedDuration, now: Timestamp) -> SignedDuration {
    let is_blocked = still_for >= BLOCKED_AFTER && plan.force.is_empty();
    let delay = match (plan.leaving, moved.are_more_allowed_soon) {
        (Some(leaving), false) if !moved.any && plan.force.is_empty() => leaving_delay(leaving, now),
        _ if moved.any || plan.leaving.is_some() => SHORT_DELAY,
        (_, true) if !is_blocked => SHORT_DELAY,
        // Evictions that a budget refuses count as well: a thousand such pods would otherwise keep the limit used up.
        (_, false) if is_blocked => BLOCKED_DELAY,
        _ => POLL_DELAY,
    };
    let to_force = plan.next_force_at.map(|at| (at.duration_since(now) + SHORT_DELAY).max(SHORT_DELAY));
    to_force.map_or(delay, |at| at.min(delay))
}

/// One second while volumes are being detached; much longer once one has not been for a while, as where nobody detaches it any more, but
/// never past the deadline up to which it is waited for. Those of a pod that came later are detached after it has left.
pub(crate) fn detachment_delay(claim: &Claim, now: Timestamp) -> SignedDuration {
    let waits_since = find(&claim.conditions, VOLUMES_DETACHED).and_then(|waits| waits.last_transition_time);
    let since = waits_since.max(claim.drain_moved_at).unwrap_or(now);
    let delay = if now.duration_since(since) >= BLOCKED_AFTER { BLOCKED_DELAY } else { SHORT_DELAY };
    let deadline = claim.deletion.as_ref().and_then(|deletion| deletion.deadline);
    let to_deadline = deadline.map(|at| (at.duration_since(now) + SHORT_DELAY).max(SHORT_DELAY));
    to_deadline.map_or(delay, |left| left.min(delay))
}

/// When to look again at pods that end by themselves: as often as they have shown to take their time, and once the kubelet has killed them.
/// Those that were given longer than the deadline are told again by then. Nothing tells of their end, which is seen the later the longer it
/// took, by a twentieth at most.
fn leaving_delay(leaving: Leaving, now: Timestamp) -> SignedDuration {
    let share = |time: SignedDuration, parts: i64| SignedDuration::from_secs(time.as_secs() / parts);
    let left = leaving.killed_by.duration_since(now);
    let longest = share(left, LEFT_SHARE).clamp(POLL_DELAY, BLOCKED_DELAY);
    share(now.duration_since(leaving.told_at), LEAVING_SHARE).min(left + SHORT_DELAY).clamp(SHORT_DELAY, longest)
}

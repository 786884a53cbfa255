//! Transitions of a claim that depend on time alone: liveness, expiry, deadlines.

use crate::claim::{Claim, Deletion, DeletionReason};
use crate::phase::Phase;
use whittle_api::conditions::{self, LAUNCHED, REGISTERED};
use whittle_units::{SignedDuration, Timestamp};

/// A claim without a machine is given up after this long (lifecycle 1).
pub const LAUNCH_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// A claim whose node has not joined is given up after this long.
pub const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);
/// A claim that is overdue and still exists after this long is stuck: several ticks have handled it.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// A drain without a deadline is reported after this long: by then a PodDisruptionBudget holds it up, or `do-not-disrupt` on a pod.
const DRAIN_STUCK_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// How long EC2 takes at most to terminate an instance; bare metal takes a quarter of an hour.
const TERMINATION_STUCK_AFTER: SignedDuration = SignedDuration::from_mins(30);
/// The time between a spot interruption warning and the loss of the instance.
const SPOT_NOTICE: SignedDuration = SignedDuration::from_mins(2);
/// A launch that was due for this long, while `sweep` rings for it at each tick, is not being worked on.
const LAUNCH_STALLED_AFTER: SignedDuration = SignedDuration::from_mins(2);
/// The same for a termination. Its doorbells wait behind those of all other machines that are terminated at the same time.
const TERMINATION_STALLED_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// How long an ended claim is kept: late responses of EC2 and `whittle explain` still find it.
const RETENTION_AFTER_END: SignedDuration = SignedDuration::from_hours(24);

/// The liveness of a claim that is not registered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Registered, or being deleted: no timeout applies.
    Settled,
    /// In time; check again after the span.
    Waiting(SignedDuration),
    /// Overdue: to be deleted for this reason.
    Overdue(DeletionReason),
}

impl Claim {
    /// Whether a launch or registration took too long. Both clocks start when their condition last changed its status,
    /// which for a new claim is its creation; exactly at the limit counts.
    pub fn liveness(&self, now: Timestamp) -> Liveness {
        if self.is_ending() || matches!(self.phase, Phase::Registered { .. } | Phase::Initialized { .. }) {
            return Liveness::Settled;
        }
        let since = |type_| conditions::find(&self.conditions, type_).and_then(|c| c.last_transition_time).unwrap_or(self.created_at);
        let (start, limit, reason) = match self.phase {
            Phase::Launched { .. } => (since(REGISTERED), REGISTRATION_TIMEOUT, DeletionReason::RegistrationTimeout),
            _ => (since(LAUNCHED), LAUNCH_TIMEOUT, DeletionReason::LaunchTimeout),
        };
        let elapsed = now.duration_since(start);
        if elapsed >= limit { Liveness::Overdue(reason) } else { Liveness::Waiting(limit - elapsed) }
    }

    /// Whether the claim has been in its phase for longer than normal. Nothing is decided by it; it is only reported.
    pub fn is_stuck(&self, now: Timestamp) -> bool {
        let longer = |since: Timestamp, span: SignedDuration| now.duration_since(since) >= span;
        match &self.phase {
            Phase::Planned | Phase::Launching { .. } | Phase::Launched { .. } => match &self.deletion {
                Some(deletion) => longer(deletion.at, STUCK_AFTER),
                None => now.checked_sub(STUCK_AFTER).is_ok_and(|before| matches!(self.liveness(before), Liveness::Overdue(_))),
            },
            // The node joined, but never became ready for pods.
            Phase::Registered { since, .. } => longer(*since, REGISTRATION_TIMEOUT + STUCK_AFTER),
            Phase::Draining { since, .. } => match self.deletion.as_ref().and_then(|deletion| deletion.deadline) {
                Some(deadline) => longer(deadline.max(*since), STUCK_AFTER),
                None => longer(*since, DRAIN_STUCK_AFTER),
            },
            Phase::Terminating { since, .. } => longer(*since, TERMINATION_STUCK_AFTER),
            Phase::Initialized { .. } | Phase::Failed { .. } | Phase::Gone { .. } => false,
        }
    }

    /// Whether `launch` is long overdue for the claim: it does not run, or makes no progress. Only reported.
    pub fn is_launch_stalled(&self, now: Timestamp) -> bool {
        let due = match (&self.phase, &self.deletion) {
            (Phase::Planned, None) => self.created_at,
            (Phase::Launching { since, .. }, None) => *since,
            _ => return false,
        };
        self.is_overdue_since(due, LAUNCH_STALLED_AFTER, now)
    }

    /// The same for `terminate`. A phase may have taken hours, so the time counts from the beginning of the current one.
    pub fn is_termination_stalled(&self, now: Timestamp) -> bool {
        let Some(deletion) = &self.deletion else { return false };
        let due = match &self.phase {
            Phase::Failed { .. } | Phase::Gone { .. } => return false,
            Phase::Launching { since, .. } | Phase::Draining { since, .. } | Phase::Terminating { since, .. } => deletion.at.max(*since),
            Phase::Planned | Phase::Launched { .. } | Phase::Registered { .. } | Phase::Initialized { .. } => deletion.at,
        };
        self.is_overdue_since(due, TERMINATION_STALLED_AFTER, now)
    }

    /// Whether work that was due at `due`, or later because its function said that it would look again then, is late by a span.
    fn is_overdue_since(&self, due: Timestamp, span: SignedDuration, now: Timestamp) -> bool {
        let due = self.look_again_at.map_or(due, |again| again.max(due));
        now.duration_since(due) >= span
    }

    /// When the table may delete the claim; `None` while it is live.
    pub fn deletable_at(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Failed { since, .. } | Phase::Gone { since, .. } => since.checked_add(RETENTION_AFTER_END).ok(),
            Phase::Planned
            | Phase::Launching { .. }
            | Phase::Launched { .. }
            | Phase::Registered { .. }
            | Phase::Initialized { .. }
            | Phase::Draining { .. }
            | Phase::Terminating { .. } => None,
        }
    }

    /// When the claim expires because of its age; `None` for never.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.created_at.checked_add(self.spec.expire_after.span()?).ok()
    }

    /// The `termination_mode` of metrics: how far draining may be forced (disruption 14).
    pub fn termination_mode(&self) -> &'static str {
        match &self.spec.termination_grace_period {
            None => "graceful",
            Some(grace) if grace.span() > SignedDuration::ZERO => "eventual",
            Some(_) => "forceful",
        }
    }

    /// The deletion of the claim at `now`, with the deadline that follows from its `terminationGracePeriod`.
    #[must_use]
    pub fn deletion_for(&self, reason: DeletionReason, message: impl Into<String>, now: Timestamp) -> Deletion {
        let own = self.spec.termination_grace_period.as_ref().and_then(|grace| now.checked_add(grace.span()).ok());
        // EC2 reclaims a spot instance two minutes after its warning: pods that have not moved by then are lost anyway.
        let forced = match reason {
            DeletionReason::SpotInterruption => now.checked_add(SPOT_NOTICE).ok(),
            DeletionReason::Unhealthy => Some(now),
            _ => None,
        };
        let deadline = own.into_iter().chain(forced).min();
        let deadline_is_notice = reason == DeletionReason::SpotInterruption && deadline.is_some() && deadline == forced;
        Deletion { reason, at: now, deadline, deadline_is_notice, message: message.into() }
    }
}

impl Deletion {
    /// The same with the deadline that the NodeClaim stated before it, if it did, be that later than its own (lifecycle 16).
    #[must_use]
    pub fn with_stated_deadline(self, stated: Option<Timestamp>) -> Self {
        Self { deadline: stated.or(self.deadline), ..self }
    }

    /// Whether its deadline is that of a notice of EC2. Earlier releases did not store that, and their notices are known by their reason.
    #[must_use]
    pub fn is_due_by_notice(&self) -> bool {
        let of_earlier_release = || {
            let noticed = self.at.checked_add(SPOT_NOTICE).ok();
            self.reason == DeletionReason::SpotInterruption && noticed.is_some() && noticed == self.deadline
        };
        self.deadline_is_notice || of_earlier_release()
    }
}

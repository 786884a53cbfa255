//! Why a handler failed, and what its caller does about it.

use crate::{CloudError, CloudErrorKind, ClusterError, QueueError, StoreError};
use whittle_claims::IllegalStep;

/// What the caller of a handler does about a failure. The name is the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disposition {
    /// Retry the same message later: a race was lost, or a call was slow.
    RetryLater,
    /// The decision is outdated; the next doorbell decides again.
    Replan,
    /// The message can never be handled.
    Drop,
    /// It needs user action; retries alone will not help.
    Fail,
}

impl Disposition {
    /// The name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryLater => "retry_later",
            Self::Replan => "replan",
            Self::Drop => "drop",
            Self::Fail => "fail",
        }
    }
}

/// Why a handler stopped early. What it has written stays; the next run continues from there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    #[error("the store stopped the work")]
    Store(#[from] StoreError),
    #[error("the cluster stopped the work")]
    Cluster(#[from] ClusterError),
    #[error("AWS stopped the work")]
    Cloud(#[from] CloudError),
    #[error("a queue stopped the work")]
    Queue(#[from] QueueError),
    #[error("{what} cannot be read: {reason}")]
    Unreadable { what: String, reason: String },
    /// What was read contradicts what was to be written; the next run reads the state again.
    #[error("the claim stopped the work")]
    Illegal(#[from] IllegalStep),
    /// Every attempt to write lost a race. The message contains what no later read would: it has to be redelivered.
    #[error("{what} was changed concurrently at each of {tries} attempts")]
    Contended { what: String, tries: u32 },
    /// The object of the message may be known in a moment. The message contains what no later read would: it has to be
    /// redelivered.
    #[error("{what} is not known yet")]
    NotYet { what: String },
    /// The checker rejected the plan: nothing of it was done.
    #[error("the checker rejected the plan for cluster {cluster}: {reason}")]
    PlanRefused { cluster: String, reason: String },
}

impl HandleError {
    /// What to do about it.
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. }) | Self::Illegal(_) => Disposition::Replan,
            Self::Store(StoreError::Held { .. } | StoreError::Throttled { .. } | StoreError::Unavailable { .. })
            | Self::Queue(_)
            | Self::Contended { .. }
            | Self::NotYet { .. } => Disposition::RetryLater,
            Self::Store(StoreError::Unreadable { .. }) | Self::PlanRefused { .. } => Disposition::Fail,
            Self::Cluster(ClusterError::Invalid { .. } | ClusterError::NoAccess { .. }) => Disposition::Fail,
            Self::Cluster(_) => Disposition::RetryLater,
            Self::Cloud(error) => match error.kind {
                CloudErrorKind::Unauthorized | CloudErrorKind::Invalid => Disposition::Fail,
                _ => Disposition::RetryLater,
            },
            Self::Unreadable { .. } => Disposition::Drop,
        }
    }
}

/// An error with all its causes, outermost first. A cause that its effect's text already ends with is not repeated.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text += ": ";
            text += &cause_text;
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_claims::ClaimKey;
    use whittle_units::Timestamp;

    #[track_caller]
    fn check(error: impl Into<HandleError>, expected: Disposition) {
        let error = error.into();
        assert_eq!(error.disposition(), expected, "{error:?}");
    }

    fn what() -> String {
        "claim a".to_owned()
    }

    #[test]
    fn what_has_changed_is_decided_again() {
        check(StoreError::Conflict { what: what() }, Disposition::Replan);
        check(StoreError::Fenced { cluster: "c".into() }, Disposition::Replan);
        let key = ClaimKey { cluster: "c".into(), name: "a".into() };
        check(IllegalStep { claim: key, phase: "Gone", event: "LaunchBegun", why: "it has ended" }, Disposition::Replan);
    }

    #[test]
    fn a_message_is_kept_while_its_failure_may_pass() {
        check(StoreError::Held { cluster: "c".into(), until: Timestamp::UNIX_EPOCH }, Disposition::RetryLater);
        check(StoreError::Throttled { what: what() }, Disposition::RetryLater);
        check(StoreError::Unavailable { what: what(), reason: String::new() }, Disposition::RetryLater);
        check(QueueError { cluster: "c".to_owned(), reason: String::new() }, Disposition::RetryLater);
        check(HandleError::Contended { what: what(), tries: 5 }, Disposition::RetryLater);
        check(HandleError::NotYet { what: what() }, Disposition::RetryLater);
    }

    #[test]
    fn only_a_message_that_nobody_can_read_is_dropped() {
        check(HandleError::Unreadable { what: what(), reason: String::new() }, Disposition::Drop);
        check(StoreError::Unreadable { what: what(), reason: String::new() }, Disposition::Fail);
        check(HandleError::PlanRefused { cluster: "c".to_owned(), reason: String::new() }, Disposition::Fail);
    }

    #[test]
    fn of_aws_errors_only_refusals_last_until_somebody_acts() {
        for (kind, expected) in [
            (CloudErrorKind::Unauthorized, Disposition::Fail),
            (CloudErrorKind::Invalid, Disposition::Fail),
            (CloudErrorKind::NotFound, Disposition::RetryLater),
            (CloudErrorKind::AlreadyExists, Disposition::RetryLater),
            (CloudErrorKind::Throttled, Disposition::RetryLater),
            (CloudErrorKind::InsufficientCapacity, Disposition::RetryLater),
            (CloudErrorKind::IdempotencyMismatch, Disposition::RetryLater),
            (CloudErrorKind::Unknown, Disposition::RetryLater),
        ] {
            check(CloudError { kind, call: "CreateFleet", code: String::new(), message: String::new() }, expected);
        }
    }
}

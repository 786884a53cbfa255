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

//! Doorbells on their way.

use crate::Answer;
use jiff::SignedDuration;
use whittle_claims::Doorbell;

/// A message could not be sent. Nothing is lost: the tick comes anyway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the doorbell for {cluster} could not be rung: {reason}")]
pub struct QueueError {
    pub cluster: String,
    pub reason: String,
}

/// Sends doorbells to the queue of their kind.
pub trait Queues: Sync {
    /// Rings after `delay` (up to 15 minutes; zero for at once). Schedule and Consolidate bells of one cluster that
    /// come within a second, and before the first of them can have been read, are one.
    fn ring(&self, bell: Doorbell, delay: SignedDuration) -> impl Answer<(), QueueError>;
}

//! Queues of doorbells.

use crate::Answer;
use jiff::SignedDuration;
use whittle_claims::Doorbell;

/// A message could not be sent. Nothing is lost: the next tick does the work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the doorbell for {cluster} could not be sent: {reason}")]
pub struct QueueError {
    pub cluster: String,
    pub reason: String,
}

/// Sends doorbells to the queue of their kind.
pub trait Queues: Sync {
    /// Sends a doorbell that is delivered after `delay` (up to 15 minutes; zero for at once). Schedule and Consolidate doorbells
    /// of one cluster within a second, before the first of them can have been received, are deduplicated.
    fn send(&self, doorbell: Doorbell, delay: SignedDuration) -> impl Answer<(), QueueError>;
    /// Sends a doorbell at once that tells of everything up to `seen`, a version of the cluster's objects. A repetition of what another
    /// has told may be dropped, also by a queue that deduplicates no others.
    fn send_seen(&self, doorbell: Doorbell, seen: &str) -> impl Answer<(), QueueError> {
        let _ = seen;
        self.send_now(doorbell)
    }
    /// Sends a doorbell that is delivered at once.
    fn send_now(&self, doorbell: Doorbell) -> impl Answer<(), QueueError> {
        self.send(doorbell, SignedDuration::ZERO)
    }
}

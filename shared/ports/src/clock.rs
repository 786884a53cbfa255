//! Time as an input.

use jiff::SignedDuration;
use whittle_units::Timestamp;

/// Tells the time. The shell asks once per step and hands `now` to the core.
pub trait Clock: Sync {
    fn now(&self) -> Timestamp;
    /// The moment by which the invocation must be over, reserve already taken off.
    fn deadline(&self) -> Deadline;
    /// A new name that nobody else has (claim suffixes, lease owners).
    fn unique(&self) -> String;
}

/// When work has to be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Timestamp);

impl Deadline {
    /// What is left at `now`; zero when it has passed.
    pub fn left(self, now: Timestamp) -> SignedDuration {
        self.0.duration_since(now).max(SignedDuration::ZERO)
    }
    /// Whether work that takes `span` can still be started.
    pub fn has(self, now: Timestamp, span: SignedDuration) -> bool {
        self.left(now) >= span
    }
}

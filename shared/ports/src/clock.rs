//! Time as an input.

use jiff::SignedDuration;
use whittle_units::Timestamp;

/// The time. Handlers read it once per step and pass `now` to what decides.
pub trait Clock: Sync {
    fn now(&self) -> Timestamp;
    /// The time by which the invocation must be over, less the reserve.
    fn deadline(&self) -> Deadline;
    /// A unique name (claim suffixes, lease owners).
    fn unique(&self) -> String;
    /// The remaining time of the invocation, less the reserve.
    fn time_left(&self) -> SignedDuration {
        self.deadline().left(self.now())
    }
    /// Whether work that takes `span` can still be started.
    fn has_time_for(&self, span: SignedDuration) -> bool {
        self.time_left() >= span
    }
}

/// When work has to be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Timestamp);

impl Deadline {
    /// The remaining time at `now`; zero when the deadline has passed.
    pub fn left(self, now: Timestamp) -> SignedDuration {
        self.0.duration_since(now).max(SignedDuration::ZERO)
    }
}

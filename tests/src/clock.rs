//! A fixed clock, for adapters whose other side runs in real time.

use std::sync::atomic::{AtomicU64, Ordering};
use whittle_ports::{Clock, Deadline};
use whittle_units::{SignedDuration, Timestamp};

/// Always `now`, with a deadline far away; names are unique in the process.
#[derive(Clone, Copy, Debug)]
pub struct StandingClock {
    pub now: Timestamp,
    pub left: SignedDuration,
}

impl StandingClock {
    /// 2027-01-15T08:00:00Z, with five minutes left.
    #[must_use]
    pub fn new() -> Self {
        let now = Timestamp::from_second(1_800_000_000).expect("a moment of this century");
        Self { now, left: SignedDuration::from_mins(5) }
    }
}

impl Default for StandingClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn deadline(&self) -> Deadline {
        Deadline(self.now.checked_add(self.left).unwrap_or(Timestamp::MAX))
    }

    fn unique(&self) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        format!("u{:08}", COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

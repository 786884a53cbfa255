//! A fixed clock, for adapters whose backend runs in real time.

use std::sync::atomic::{AtomicU64, Ordering};
use whittle_ports::{Clock, Deadline};
use whittle_units::{SignedDuration, Timestamp};

/// Always `now`, with `left` until the deadline; `unique` is unique in the process.
#[derive(Clone, Copy, Debug)]
pub struct FixedClock {
    pub now: Timestamp,
    pub left: SignedDuration,
}

impl FixedClock {
    /// 2027-01-15T08:00:00Z, with five minutes left.
    #[must_use]
    pub fn new() -> Self {
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        Self { now, left: SignedDuration::from_mins(5) }
    }
}

impl Default for FixedClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FixedClock {
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

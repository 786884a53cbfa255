//! Token buckets: how often an API that EC2 throttles may be called, shared by all invocations.

use serde::{Deserialize, Serialize};
use whittle_units::Timestamp;

/// A throttled API of an account and region, such as `CreateFleet`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BucketName(pub String);

/// Tokens at a moment. Fractions are kept as thousandths, so that frequent small refills are not lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    pub millitokens: u64,
    pub capacity: u32,
    pub refill_per_second: u32,
    pub refilled_at: Timestamp,
    /// Tokens that a caller leaves for others. Each caller sets its own; it is not stored.
    #[serde(skip)]
    pub reserve: u32,
}

impl Bucket {
    /// A full bucket.
    pub fn full(capacity: u32, refill_per_second: u32, now: Timestamp) -> Self {
        Self { millitokens: u64::from(capacity) * 1000, capacity, refill_per_second, refilled_at: now, reserve: 0 }
    }

    /// The same bucket for a taker that leaves at least this many tokens to others.
    #[must_use]
    pub fn leaving(self, reserve: u32) -> Self {
        Self { reserve, ..self }
    }

    /// The bucket after taking `count` tokens at `now`, or `None` when it holds fewer, or would hold fewer than are to be left. A clock
    /// that runs backwards refills nothing.
    #[must_use]
    pub fn take(&self, count: u32, now: Timestamp) -> Option<Self> {
        let elapsed_ms = u64::try_from(now.duration_since(self.refilled_at).as_millis()).unwrap_or(0);
        let refilled = self.millitokens.saturating_add(elapsed_ms.saturating_mul(u64::from(self.refill_per_second)));
        let millitokens = refilled.min(u64::from(self.capacity) * 1000).checked_sub(u64::from(count) * 1000)?;
        if millitokens < u64::from(self.reserve) * 1000 {
            return None;
        }
        Some(Self { millitokens, refilled_at: now.max(self.refilled_at), ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taker_that_leaves_some_tokens_waits_for_more() {
        let at = |ms: i64| Timestamp::from_millisecond(1_800_000_000_000 + ms).expect("in range");
        let bucket = Bucket::full(5, 2, at(0)).leaving(1);
        assert_eq!(bucket.take(5, at(0)), None);
        let bucket = bucket.take(4, at(0)).expect("one is left");
        assert_eq!(bucket.take(1, at(499)), None);
        assert!(bucket.clone().leaving(0).take(1, at(0)).is_some(), "which is there for others");
        let bucket = bucket.take(1, at(500)).expect("one has come since");
        assert_eq!(bucket.millitokens, 1000);
        let text = serde_json::to_string(&bucket).expect("plain data");
        assert!(!text.contains("reserve"), "it is nobody else's: {text}");
        assert_eq!(serde_json::from_str::<Bucket>(&text).expect("what was written is read"), bucket.leaving(0));
    }
    #[test]
    fn a_bucket_gains_what_the_time_since_brings_up_to_its_size_and_nothing_twice() {
        let at = |ms: i64| Timestamp::from_millisecond(1_800_000_000_000 + ms).expect("in range");
        let empty = Bucket::full(5, 2, at(0)).take(5, at(0)).expect("it is full");
        assert_eq!((empty.take(1, at(0)), empty.take(1, at(499))), (None, None));
        assert!(empty.take(1, at(500)).is_some());
        assert!(empty.take(5, at(2_500)).is_some() && empty.take(5, at(2_499)).is_none());
        assert!(empty.take(5, at(3_600_000)).is_some() && empty.take(6, at(3_600_000)).is_none(), "it holds no more");
        // Somebody whose clock is behind takes one: the minute until the others' time has brought its tokens already.
        assert_eq!(empty.take(1, at(-60_000)), None);
        let taken = Bucket::full(5, 2, at(0)).take(5, at(-60_000)).expect("it is full");
        assert_eq!((taken.refilled_at, taken.take(1, at(499))), (at(0), None));
    }
}

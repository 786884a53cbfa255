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
}

impl Bucket {
    /// A full bucket.
    pub fn full(capacity: u32, refill_per_second: u32, now: Timestamp) -> Self {
        Self { millitokens: u64::from(capacity) * 1000, capacity, refill_per_second, refilled_at: now }
    }

    /// The bucket after taking `count` tokens at `now`, or `None` when it holds fewer. A clock that runs backwards
    /// refills nothing.
    #[must_use]
    pub fn take(&self, count: u32, now: Timestamp) -> Option<Self> {
        let elapsed_ms = u64::try_from(now.duration_since(self.refilled_at).as_millis()).unwrap_or(0);
        let refilled = self.millitokens.saturating_add(elapsed_ms.saturating_mul(u64::from(self.refill_per_second)));
        let millitokens = refilled.min(u64::from(self.capacity) * 1000).checked_sub(u64::from(count) * 1000)?;
        Some(Self { millitokens, refilled_at: now.max(self.refilled_at), ..self.clone() })
    }
}

//! Memory of offerings that EC2 could not deliver, shared by the clusters of a region.

use serde::{Deserialize, Serialize};
use std::fmt;
use whittle_units::{SignedDuration, Timestamp};

/// A type in a zone with a capacity type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OfferingKey {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
}

impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in {}", self.capacity_type, self.instance_type, self.zone)
    }
}

/// An offering to leave alone until a moment; each further strike waits longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockOut {
    pub offering: OfferingKey,
    /// EC2's code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    pub until: Timestamp,
    pub strikes: u32,
}

/// The first stay away, as the reference's cache has it.
const FIRST_STAY: SignedDuration = SignedDuration::from_mins(3);
/// No offering is given up for longer than this.
const LONGEST_STAY: SignedDuration = SignedDuration::from_mins(30);

impl StockOut {
    /// The memory after one more failure at `now`: 3 minutes, doubling to 30. A failure while the offering is already
    /// left alone (a late answer) is the same strike.
    #[must_use]
    pub fn struck(old: Option<&Self>, offering: OfferingKey, code: &str, now: Timestamp) -> Self {
        let strikes = match old {
            Some(old) if old.until > now => old.strikes,
            Some(old) if now.duration_since(old.until) < LONGEST_STAY => old.strikes.saturating_add(1),
            _ => 1,
        };
        let stay = FIRST_STAY.checked_mul(1 << strikes.saturating_sub(1).min(8)).unwrap_or(LONGEST_STAY).min(LONGEST_STAY);
        let until = now.checked_add(stay).unwrap_or(Timestamp::MAX);
        Self { offering, code: code.to_owned(), until, strikes }
    }
    /// Whether the offering is to be left alone at `now`.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until > now
    }
}

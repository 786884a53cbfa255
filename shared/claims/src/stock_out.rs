//! Memory of offerings that EC2 could not deliver, shared by the clusters of a region.

use serde::{Deserialize, Serialize};
use std::fmt;
use whittle_api::labels;
use whittle_units::{SignedDuration, Timestamp};

/// A type in a zone with a capacity type; or a capacity reservation, by its id in the place of the type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OfferingKey {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
}

impl OfferingKey {
    /// What is remembered of a capacity reservation that is used up. Its id says type and zone.
    #[must_use]
    pub fn of_reservation(id: &str) -> Self {
        Self { instance_type: id.to_owned(), zone: "*".to_owned(), capacity_type: labels::CAPACITY_RESERVED.to_owned() }
    }
    /// The id of the reservation that it stands for, if it does.
    #[must_use]
    pub fn reservation(&self) -> Option<&str> {
        (self.capacity_type == labels::CAPACITY_RESERVED).then_some(self.instance_type.as_str())
    }
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
/// A strike within this after the end of the one before it is a further one.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);

impl StockOut {
    /// The memory after one more failure at `now`: 3 minutes, doubling to 30. A failure while the offering is already
    /// left alone (a late answer) is the same strike.
    #[must_use]
    pub fn struck(old: Option<&Self>, offering: OfferingKey, code: &str, now: Timestamp) -> Self {
        let strikes = match old {
            Some(old) if old.until > now => old.strikes,
            Some(old) if old.is_remembered(now) => old.strikes.saturating_add(1),
            _ => 1,
        };
        let stay = FIRST_STAY.checked_mul(1 << strikes.saturating_sub(1).min(8)).unwrap_or(LONGEST_STAY).min(LONGEST_STAY);
        let until = now.checked_add(stay).unwrap_or(Timestamp::MAX);
        Self { offering, code: code.to_owned(), until, strikes }
    }
    /// Whether a strike at `now` would be a further one: until then the memory has to be kept.
    pub fn is_remembered(&self, now: Timestamp) -> bool {
        now.duration_since(self.until) < REMEMBERED
    }
    /// Whether the offering is to be left alone at `now`.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + 60 * minutes).unwrap()
    }

    fn offering() -> OfferingKey {
        OfferingKey { instance_type: "m5.large".into(), zone: "us-west-2a".into(), capacity_type: "spot".into() }
    }

    /// Fails at these minutes, then stays away for so many.
    #[track_caller]
    fn check(failures: &[i64], expected: i64) {
        let mut known: Option<StockOut> = None;
        for minute in failures {
            known = Some(StockOut::struck(known.as_ref(), offering(), "ICE", at(*minute)));
        }
        let (last, known) = (*failures.last().unwrap(), known.unwrap());
        assert_eq!(known.until, at(last + expected), "{failures:?}");
        assert!(known.holds(at(last + expected - 1)) && !known.holds(known.until));
    }

    #[test]
    fn each_further_failure_within_the_hour_waits_twice_as_long_up_to_half_an_hour() {
        check(&[0], 3);
        check(&[0, 3], 6);
        check(&[0, 62], 6);
        check(&[0, 3, 9], 12);
        check(&[0, 3, 9, 21], 24);
        check(&[0, 3, 9, 21, 45], 30);
        check(&[0, 3, 9, 21, 45, 75, 105, 135, 165, 195, 225, 255], 30);
    }

    #[test]
    fn an_offering_that_did_well_for_an_hour_begins_anew() {
        check(&[0, 3, 69], 3);
        check(&[0, 63], 3);
    }

    #[test]
    fn a_late_answer_is_the_same_strike() {
        check(&[0, 2], 3);
    }
}

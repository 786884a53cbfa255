//! Memory of offerings that EC2 could not deliver, shared by the clusters of a region.

use serde::{Deserialize, Serialize};
use std::fmt;
use whittle_api::labels;
use whittle_units::{SignedDuration, Timestamp};

/// A type in a zone with a capacity type; or, in the place of the type, what else can be used up: a capacity reservation or a
/// subnet by its id, a quota of the account by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OfferingKey {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
}

/// In the place of the capacity type.
const OF_SUBNET: &str = "subnet";
/// Stands before the name of a quota; no instance type begins so.
const OF_QUOTA: &str = "quota:";

impl OfferingKey {
    /// What is remembered of a capacity reservation that is used up. Its id says type and zone.
    #[must_use]
    pub fn of_reservation(id: &str) -> Self {
        Self { instance_type: id.to_owned(), zone: "*".to_owned(), capacity_type: labels::CAPACITY_RESERVED.to_owned() }
    }
    /// What is remembered of a subnet without free addresses. Whoever has no use for the subnet is not concerned.
    #[must_use]
    pub fn of_subnet(id: &str) -> Self {
        Self { instance_type: id.to_owned(), zone: "*".to_owned(), capacity_type: OF_SUBNET.to_owned() }
    }
    /// The id of the subnet that it stands for, if it does.
    #[must_use]
    pub fn subnet(&self) -> Option<&str> {
        (self.capacity_type == OF_SUBNET).then_some(self.instance_type.as_str())
    }
    /// What is remembered of a quota of the account: no type that counts against it can be had with this capacity type.
    #[must_use]
    pub fn of_quota(quota: &str, capacity_type: &str) -> Self {
        Self { instance_type: format!("{OF_QUOTA}{quota}"), zone: "*".to_owned(), capacity_type: capacity_type.to_owned() }
    }
    /// The name of the quota that it stands for, if it does.
    #[must_use]
    pub fn quota(&self) -> Option<&str> {
        self.instance_type.strip_prefix(OF_QUOTA)
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
/// A quota has room again as soon as any machine that counts against it ends.
const QUOTA_STAY: SignedDuration = SignedDuration::from_mins(1);
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
    /// The memory of what comes and goes with other machines of the account, such as addresses and quotas: for as long after
    /// every failure, however many came before.
    #[must_use]
    pub fn for_now(offering: OfferingKey, code: &str, now: Timestamp) -> Self {
        let stay = if offering.quota().is_some() { QUOTA_STAY } else { FIRST_STAY };
        let until = now.checked_add(stay).unwrap_or(Timestamp::MAX);
        Self { offering, code: code.to_owned(), until, strikes: 1 }
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
    fn a_quota_and_a_subnet_are_never_left_alone_for_longer_than_at_first() {
        for (key, minutes) in [(OfferingKey::of_quota("standard", "spot"), 1), (OfferingKey::of_subnet("subnet-1"), 3)] {
            for minute in [0, 1, 2, 3, 5, 8] {
                let out = StockOut::for_now(key.clone(), "code", at(minute));
                assert_eq!((out.until, out.strikes), (at(minute + minutes), 1), "{key}");
            }
        }
    }

    #[test]
    fn what_stands_for_a_subnet_a_quota_or_a_reservation_stands_for_nothing_else() {
        let (subnet, quota) = (OfferingKey::of_subnet("subnet-1"), OfferingKey::of_quota("standard", "on-demand"));
        let reservation = OfferingKey::of_reservation("cr-1");
        assert_eq!((subnet.subnet(), subnet.quota(), subnet.reservation()), (Some("subnet-1"), None, None));
        assert_eq!((quota.subnet(), quota.quota(), quota.reservation()), (None, Some("standard"), None));
        assert_eq!((reservation.subnet(), reservation.quota(), reservation.reservation()), (None, None, Some("cr-1")));
        let plain = offering();
        assert_eq!((plain.subnet(), plain.quota(), plain.reservation()), (None, None, None));
    }

    #[test]
    fn a_late_answer_is_the_same_strike() {
        check(&[0, 2], 3);
    }
}

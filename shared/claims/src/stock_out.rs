//! Offerings that EC2 could not deliver, shared by the clusters of a region.

use serde::{Deserialize, Serialize};
use std::fmt;
use whittle_api::labels;
use whittle_units::{SignedDuration, Timestamp};

/// An instance type in a zone with a capacity type; or, instead of the type, another resource that can be used up: a capacity
/// reservation or a subnet by its id, a quota of the account by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OfferingKey {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    /// Set if it concerns only machines of this placement group, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<String>,
    /// Set if it concerns only this partition of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Set if it concerns only machines of this node class, by its uid, which no class of any cluster shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class: Option<String>,
    /// Of a quota: what is refused has this many vCPUs or more. Less may be left of the quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
}

/// Used instead of the capacity type.
const SUBNET_MARKER: &str = "subnet";
/// The same of a subnet, for machines whose network interfaces get prefixes.
const PREFIXES_MARKER: &str = "subnet-prefixes";
/// Used instead of instance type and capacity type, for all machines of a placement group in a zone.
const GROUP_MARKER: &str = "placement-group";
/// Prefix of a quota's name; no instance type begins so.
const QUOTA_PREFIX: &str = "quota:";

impl OfferingKey {
    /// The key of a capacity reservation that is used up. Its id implies type and zone.
    #[must_use]
    pub fn of_reservation(id: &str) -> Self {
        Self { instance_type: id.to_owned(), zone: "*".to_owned(), capacity_type: labels::CAPACITY_RESERVED.to_owned(), ..Self::default() }
    }
    /// The key of a subnet without free addresses. Launches into other subnets are not affected.
    #[must_use]
    pub fn of_subnet(id: &str) -> Self {
        Self { instance_type: id.to_owned(), zone: "*".to_owned(), capacity_type: SUBNET_MARKER.to_owned(), ..Self::default() }
    }
    /// The id of the subnet, if it is the key of one.
    #[must_use]
    pub fn subnet(&self) -> Option<&str> {
        (self.capacity_type == SUBNET_MARKER).then_some(self.instance_type.as_str())
    }
    /// The key of a subnet that refused an address with prefixes (`spec.ipPrefixCount`), each of which takes 16 addresses in a row.
    /// Launches without prefixes are not affected: single addresses may be left.
    #[must_use]
    pub fn of_subnet_prefixes(id: &str) -> Self {
        Self { instance_type: id.to_owned(), zone: "*".to_owned(), capacity_type: PREFIXES_MARKER.to_owned(), ..Self::default() }
    }
    /// The id of the subnet, if it is the key of one for launches with prefixes alone.
    #[must_use]
    pub fn subnet_prefixes(&self) -> Option<&str> {
        (self.capacity_type == PREFIXES_MARKER).then_some(self.instance_type.as_str())
    }
    /// Whether it is of a type in a zone with a capacity type, and of no other resource.
    #[must_use]
    pub fn is_pool(&self) -> bool {
        let of_subnet = self.subnet().or(self.subnet_prefixes());
        of_subnet.or(self.reservation()).or(self.quota()).or(self.full_group()).is_none()
    }
    /// The key of an account quota that has no room for a machine with `vcpus` vCPUs: no type that counts against it and has at least as
    /// many can be launched with this capacity type.
    #[must_use]
    pub fn of_quota(quota: &str, capacity_type: &str, vcpus: u32) -> Self {
        Self {
            instance_type: format!("{QUOTA_PREFIX}{quota}"),
            zone: "*".to_owned(),
            capacity_type: capacity_type.to_owned(),
            vcpus: Some(vcpus),
            ..Self::default()
        }
    }
    /// The key of a spread placement group that holds as many machines in a zone as EC2 allows. Other groups, and machines outside
    /// of one, are not affected.
    #[must_use]
    pub fn of_full_group(group: &str, zone: &str) -> Self {
        Self {
            instance_type: GROUP_MARKER.to_owned(),
            zone: zone.to_owned(),
            capacity_type: GROUP_MARKER.to_owned(),
            placement_group: Some(group.to_owned()),
            ..Self::default()
        }
    }
    /// The id of the spread placement group, if it is the key of a full one; `zone` says where it is full.
    #[must_use]
    pub fn full_group(&self) -> Option<&str> {
        if self.capacity_type == GROUP_MARKER { self.placement_group.as_deref() } else { None }
    }
    /// The name of the quota, if it is the key of one.
    #[must_use]
    pub fn quota(&self) -> Option<&str> {
        self.instance_type.strip_prefix(QUOTA_PREFIX)
    }
    /// The id of the reservation, if it is the key of one.
    #[must_use]
    pub fn reservation(&self) -> Option<&str> {
        (self.capacity_type == labels::CAPACITY_RESERVED).then_some(self.instance_type.as_str())
    }
}

impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in {}", self.capacity_type, self.instance_type, self.zone)?;
        match (&self.placement_group, self.partition) {
            (Some(group), Some(partition)) => write!(f, ", placement group {group}, partition {partition}")?,
            (Some(group), None) => write!(f, ", placement group {group}")?,
            (None, _) => {}
        }
        self.vcpus.iter().try_for_each(|vcpus| write!(f, ", of {vcpus} vCPUs or more"))?;
        self.node_class.iter().try_for_each(|uid| write!(f, ", node class {uid}"))
    }
}

/// An offering that is unavailable until some time; each further failure extends the wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockOut {
    pub offering: OfferingKey,
    /// EC2's code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    pub until: Timestamp,
    pub strikes: u32,
}

/// The first wait, as in Karpenter's cache of unavailable offerings.
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(3);
/// A quota is free again as soon as any machine that counts against it ends.
const SHARED_WAIT: SignedDuration = SignedDuration::from_mins(1);
/// No offering is unavailable for longer than this.
const WAIT_MAX: SignedDuration = SignedDuration::from_mins(30);
/// A failure within this time after the end of the previous wait is a further one.
const REPEAT_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// The wait after `strikes` failures.
fn wait_after(strikes: u32) -> SignedDuration {
    FIRST_WAIT.checked_mul(1 << strikes.saturating_sub(1).min(8)).unwrap_or(WAIT_MAX).min(WAIT_MAX)
}

impl StockOut {
    /// The stock-out after one more failure at `now`: 3 minutes, doubling to 30. A failure while the offering is
    /// unavailable to pods already (a late response) counts as the same one.
    #[must_use]
    pub fn after_failure(old: Option<&Self>, offering: OfferingKey, code: &str, now: Timestamp) -> Self {
        let strikes = match old {
            Some(old) if old.for_pods().holds(now) => old.strikes,
            Some(old) if old.is_remembered(now) => old.strikes.saturating_add(1),
            _ => 1,
        };
        let until = now.checked_add(wait_after(strikes)).unwrap_or(Timestamp::MAX);
        Self { offering, code: code.to_owned(), until, strikes }
    }
    /// The same for pods that wait for a machine: as long as after a first failure, however many there were (ADR 0073). Not to be stored.
    #[must_use]
    pub fn for_pods(&self) -> Self {
        let longer = wait_after(self.strikes) - FIRST_WAIT;
        Self { until: self.until.checked_sub(longer).unwrap_or(self.until), ..self.clone() }
    }
    /// The stock-out of a resource that other machines of the account free again, such as addresses and quotas: the wait is the
    /// same after every failure.
    #[must_use]
    pub fn with_fixed_wait(offering: OfferingKey, code: &str, now: Timestamp) -> Self {
        let stay = if offering.quota().is_some() { SHARED_WAIT } else { FIRST_WAIT };
        let until = now.checked_add(stay).unwrap_or(Timestamp::MAX);
        Self { offering, code: code.to_owned(), until, strikes: 1 }
    }
    /// Whether a failure at `now` would be a further one: until then the stock-out has to be kept.
    pub fn is_remembered(&self, now: Timestamp) -> bool {
        now.duration_since(self.until) < REPEAT_WINDOW
    }
    /// Whether the offering is unavailable at `now`.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    fn minute(number: i64) -> Timestamp {
        at(60 * number)
    }

    fn offering() -> OfferingKey {
        OfferingKey { instance_type: "m5.large".into(), zone: "us-west-2a".into(), capacity_type: "spot".into(), ..OfferingKey::default() }
    }

    /// After failures at these minutes, the offering is unavailable for `expected` minutes.
    #[track_caller]
    fn check(failures: &[i64], expected: i64) {
        let mut known: Option<StockOut> = None;
        for failure in failures {
            known = Some(StockOut::after_failure(known.as_ref(), offering(), "ICE", minute(*failure)));
        }
        let (last, known) = (*failures.last().unwrap(), known.unwrap());
        assert_eq!(known.until, minute(last + expected), "{failures:?}");
        assert!(known.holds(minute(last + expected - 1)) && !known.holds(known.until));
    }

    #[test]
    fn each_further_failure_within_an_hour_doubles_the_wait_up_to_half_an_hour() {
        check(&[0], 3);
        check(&[0, 3], 6);
        check(&[0, 62], 6);
        check(&[0, 3, 9], 12);
        check(&[0, 3, 9, 21], 24);
        check(&[0, 3, 9, 21, 45], 30);
        check(&[0, 3, 9, 21, 45, 75, 105, 135, 165, 195, 225, 255], 30);
    }

    #[test]
    fn an_hour_without_failures_resets_the_wait() {
        check(&[0, 3, 69], 3);
        check(&[0, 63], 3);
    }

    #[test]
    fn quotas_and_subnets_have_a_fixed_wait() {
        let group = OfferingKey::of_full_group("pg-1", "us-west-2a");
        let subnets = [OfferingKey::of_subnet("subnet-1"), OfferingKey::of_subnet_prefixes("subnet-1")].map(|key| (key, 3));
        for (key, minutes) in [(OfferingKey::of_quota("standard", "spot", 16), 1), (group, 3)].into_iter().chain(subnets) {
            for number in [0, 1, 2, 3, 5, 8] {
                let out = StockOut::with_fixed_wait(key.clone(), "code", minute(number));
                assert_eq!((out.until, out.strikes), (minute(number + minutes), 1), "{key}");
            }
        }
    }

    #[test]
    fn keys_of_subnets_quotas_and_reservations_are_distinct() {
        let (subnet, quota) = (OfferingKey::of_subnet("subnet-1"), OfferingKey::of_quota("standard", "on-demand", 16));
        let reservation = OfferingKey::of_reservation("cr-1");
        assert_eq!((subnet.subnet(), subnet.quota(), subnet.reservation()), (Some("subnet-1"), None, None));
        assert_eq!((quota.subnet(), quota.quota(), quota.reservation()), (None, Some("standard"), None));
        assert_eq!((reservation.subnet(), reservation.quota(), reservation.reservation()), (None, None, Some("cr-1")));
        let plain = offering();
        assert_eq!((plain.subnet(), plain.quota(), plain.reservation()), (None, None, None));
        let group = OfferingKey::of_full_group("pg-1", "us-west-2a");
        assert_eq!((group.full_group(), group.subnet(), group.quota(), group.reservation()), (Some("pg-1"), None, None, None));
        let in_group = OfferingKey { placement_group: Some("pg-1".into()), partition: Some(2), ..offering() };
        assert!([&plain, &subnet, &quota, &reservation, &in_group].into_iter().all(|key| key.full_group().is_none()));
        let prefixes = OfferingKey::of_subnet_prefixes("subnet-1");
        assert_eq!((prefixes.subnet_prefixes(), prefixes.subnet(), subnet.subnet_prefixes()), (Some("subnet-1"), None, None));
        assert_eq!((prefixes.quota(), prefixes.reservation(), prefixes.full_group()), (None, None, None));
        assert!(plain.is_pool() && in_group.is_pool());
        assert!([&subnet, &prefixes, &quota, &reservation, &group].into_iter().all(|key| !key.is_pool()));
    }

    #[test]
    fn a_stock_out_of_an_older_release_has_no_placement_group_and_no_class_and_round_trips() {
        let stored = r#"{"instance_type":"m5.large","zone":"us-west-2a","capacity_type":"spot"}"#;
        assert_eq!(serde_json::from_str::<OfferingKey>(stored).unwrap(), offering());
        assert_eq!(serde_json::to_string(&offering()).unwrap(), stored);
        let in_group = OfferingKey { placement_group: Some("pg-1".into()), partition: Some(2), ..offering() };
        assert_eq!(in_group.to_string(), "spot m5.large in us-west-2a, placement group pg-1, partition 2");
        let of_class = OfferingKey { node_class: Some("u-1".into()), ..offering() };
        assert_eq!(of_class.to_string(), "spot m5.large in us-west-2a, node class u-1");
        let of_quota = OfferingKey::of_quota("standard", "on-demand", 16);
        assert_eq!(of_quota.to_string(), "on-demand quota:standard in *, of 16 vCPUs or more");
        for key in [in_group, of_class, of_quota] {
            assert_eq!(serde_json::from_str::<OfferingKey>(&serde_json::to_string(&key).unwrap()).unwrap(), key);
        }
    }

    #[test]
    fn a_late_response_is_the_same_failure() {
        check(&[0, 2], 3);
        check(&[0, 3, 5], 6);
    }

    /// Pods that failed at these minutes try the offering again three minutes after the last failure, and not before.
    #[track_caller]
    fn check_pods(failures: &[i64]) {
        let mut known: Option<StockOut> = None;
        for failure in failures {
            known = Some(StockOut::after_failure(known.as_ref(), offering(), "ICE", minute(*failure)));
        }
        let (last, of_pods) = (*failures.last().unwrap(), known.unwrap().for_pods());
        assert_eq!(of_pods.until, minute(last + 3), "{failures:?}");
        assert!(of_pods.holds(minute(last + 2)) && !of_pods.holds(of_pods.until), "{failures:?}");
    }

    #[test]
    fn pods_wait_three_minutes_after_each_failure() {
        check_pods(&[0]);
        check_pods(&[0, 3]);
        check_pods(&[0, 3, 6, 9, 12, 15, 18, 21]);
        check_pods(&[0, 3, 9, 21, 45]);
    }

    #[test]
    fn failures_of_pods_count_while_others_wait_for_longer() {
        check(&[0, 3, 6], 12);
        check(&[0, 3, 6, 9, 12], 30);
    }

    #[test]
    fn fixed_waits_are_the_same_for_pods() {
        for key in [OfferingKey::of_quota("standard", "spot", 16), OfferingKey::of_subnet("subnet-1")] {
            let out = StockOut::with_fixed_wait(key, "code", minute(0));
            assert_eq!(out.for_pods(), out);
        }
    }
}

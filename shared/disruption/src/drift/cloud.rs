//! Drift that only the cloud can see (disruption 13.5): the node class or the instance has changed.

use std::collections::BTreeSet;
use whittle_api::karpenter::NodeClaim;
use whittle_api::labels::{NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION, PLACEMENT_GROUP_ID};
use whittle_model::disruption::CloudDrift;

/// What the node class resolves to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeClassFacts {
    pub hash: String,
    pub hash_version: String,
    /// Images that the class maps to the machine's instance type: an empty set if it has images and none is for that type. `None` while
    /// that is not known.
    pub images: Option<BTreeSet<String>>,
    pub security_groups: BTreeSet<String>,
    pub subnets: BTreeSet<String>,
    pub capacity_reservations: BTreeSet<String>,
    /// Empty: none.
    pub placement_group: String,
}

/// What EC2 reports of the instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    pub security_groups: BTreeSet<String>,
    pub subnet: String,
    /// The reservation that it runs in; empty for none.
    pub capacity_reservation: String,
}

/// Compares the two sides and returns the first difference in Karpenter's order. `None` while a side is not resolved
/// (no security groups or subnets, images unknown): the comparison is repeated later.
#[must_use]
pub fn cloud_drift(claim: &NodeClaim, class: &NodeClassFacts, machine: &MachineFacts) -> Option<CloudDrift> {
    let annotation = |key| claim.metadata.annotation(key).unwrap_or_default();
    let (hash, version) = (annotation(NODE_CLASS_HASH), annotation(NODE_CLASS_HASH_VERSION));
    let all_hashes_known = ![hash, version, class.hash.as_str(), class.hash_version.as_str()].contains(&"");
    if all_hashes_known && version == class.hash_version && hash != class.hash {
        return Some(CloudDrift::NodeClass);
    }
    let images = class.images.as_ref()?;
    let unresolved = class.security_groups.is_empty() || class.subnets.is_empty();
    if unresolved || claim.status.image_id.is_empty() || claim.status.provider_id.is_empty() {
        return None;
    }
    let group = claim.metadata.label(PLACEMENT_GROUP_ID).unwrap_or_default();
    let reservation = &machine.capacity_reservation;
    let found = if !images.contains(&claim.status.image_id) {
        CloudDrift::Ami
    } else if machine.security_groups != class.security_groups {
        CloudDrift::SecurityGroup
    } else if !class.subnets.contains(&machine.subnet) {
        CloudDrift::Subnet
    } else if !reservation.is_empty() && !class.capacity_reservations.contains(reservation) {
        CloudDrift::CapacityReservation
    } else if group != class.placement_group {
        CloudDrift::PlacementGroup
    } else {
        CloudDrift::No
    };
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(items: &[&str]) -> BTreeSet<String> {
        items.iter().map(|&item| item.to_owned()).collect()
    }

    fn fitting() -> (NodeClaim, NodeClassFacts, MachineFacts) {
        let mut claim = NodeClaim::default();
        claim.status.image_id = "ami-1".to_owned();
        claim.status.provider_id = "aws:///a/i-1".to_owned();
        for (key, value) in [(NODE_CLASS_HASH, "7"), (NODE_CLASS_HASH_VERSION, "v6")] {
            claim.metadata.annotations.insert(key.to_owned(), value.to_owned());
        }
        let class = NodeClassFacts {
            hash: "7".to_owned(),
            hash_version: "v6".to_owned(),
            images: Some(set(&["ami-1"])),
            security_groups: set(&["sg-1", "sg-2"]),
            subnets: set(&["subnet-1"]),
            ..NodeClassFacts::default()
        };
        let machine =
            MachineFacts { security_groups: set(&["sg-2", "sg-1"]), subnet: "subnet-1".to_owned(), capacity_reservation: String::new() };
        (claim, class, machine)
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut NodeClaim, &mut NodeClassFacts, &mut MachineFacts), want: Option<CloudDrift>) {
        let (mut claim, mut class, mut machine) = fitting();
        change(&mut claim, &mut class, &mut machine);
        assert_eq!(cloud_drift(&claim, &class, &machine), want);
    }

    #[test]
    fn every_difference_has_its_reason() {
        check(|_, _, _| (), Some(CloudDrift::No));
        check(|_, class, _| class.hash = "8".to_owned(), Some(CloudDrift::NodeClass));
        check(|_, class, _| class.images = Some(set(&["ami-2"])), Some(CloudDrift::Ami));
        check(|_, class, _| class.images = Some(set(&[])), Some(CloudDrift::Ami));
        check(|_, _, machine| machine.security_groups = set(&["sg-1"]), Some(CloudDrift::SecurityGroup));
        check(|_, class, _| class.security_groups = set(&["sg-1"]), Some(CloudDrift::SecurityGroup));
        check(|_, class, _| class.subnets = set(&["subnet-2"]), Some(CloudDrift::Subnet));
        check(|_, _, machine| machine.capacity_reservation = "cr-1".to_owned(), Some(CloudDrift::CapacityReservation));
        check(|_, class, _| class.placement_group = "pg-1".to_owned(), Some(CloudDrift::PlacementGroup));
    }

    #[test]
    fn the_first_reason_in_order_counts() {
        check(
            |_, class, machine| {
                class.images = Some(set(&["ami-2"]));
                machine.subnet = "subnet-9".to_owned();
                machine.security_groups = set(&[]);
            },
            Some(CloudDrift::Ami),
        );
    }

    #[test]
    fn hashes_of_different_versions_are_not_compared() {
        check(
            |_, class, _| {
                class.hash = "8".to_owned();
                class.hash_version = "v7".to_owned();
            },
            Some(CloudDrift::No),
        );
    }

    /// As of a machine that was adopted.
    #[test]
    fn a_hash_or_version_that_one_side_lacks_is_not_compared() {
        check(|claim, _, _| drop(claim.metadata.annotations.remove(NODE_CLASS_HASH)), Some(CloudDrift::No));
        check(|claim, _, _| drop(claim.metadata.annotations.remove(NODE_CLASS_HASH_VERSION)), Some(CloudDrift::No));
        check(|_, class, _| class.hash.clear(), Some(CloudDrift::No));
        check(
            |claim, class, _| {
                claim.metadata.annotations.remove(NODE_CLASS_HASH_VERSION);
                class.hash_version.clear();
                class.hash = "8".to_owned();
            },
            Some(CloudDrift::No),
        );
    }

    #[test]
    fn what_the_class_still_has_among_others_is_no_drift() {
        let group = |claim: &mut NodeClaim| drop(claim.metadata.labels.insert(PLACEMENT_GROUP_ID.to_owned(), "pg-1".to_owned()));
        check(|_, class, _| class.images = Some(set(&["ami-0", "ami-1"])), Some(CloudDrift::No));
        check(|_, class, _| class.subnets = set(&["subnet-0", "subnet-1"]), Some(CloudDrift::No));
        check(|_, class, _| class.capacity_reservations = set(&["cr-1"]), Some(CloudDrift::No));
        check(
            |_, class, machine| {
                class.capacity_reservations = set(&["cr-0", "cr-1"]);
                machine.capacity_reservation = "cr-1".to_owned();
            },
            Some(CloudDrift::No),
        );
        check(
            |claim, class, _| {
                group(claim);
                class.placement_group = "pg-1".to_owned();
            },
            Some(CloudDrift::No),
        );
        check(|claim, _, _| group(claim), Some(CloudDrift::PlacementGroup));
    }

    #[test]
    fn unresolved_classes_decide_nothing() {
        check(|claim, _, _| claim.status.image_id.clear(), None);
        check(|claim, _, _| claim.status.provider_id.clear(), None);
        check(|_, class, _| class.subnets.clear(), None);
        check(|_, class, _| class.security_groups.clear(), None);
        check(|_, class, _| class.images = None, None);
    }
}

//! The keys of all items. The first part of the partition key distinguishes the kinds of items.
//!
//! | item | `pk` | `sk` |
//! |---|---|---|
//! | claim | `CLAIM#<cluster>#<shard>` | name |
//! | instance pointer | `INSTANCE#<instance id>` | `CLAIM` |
//! | lease | `LEASE#<cluster>` | `LEASE` |
//! | record | `RECORD#<cluster>#<kind>` | name |
//! | stock-out | `OFFERING` | `<type>#<zone>#<capacity type>`, in a group `…#<group>#<partition, or *>`, of a node class `…#class#<uid>` |
//! | token bucket | `BUCKET#<name>` | `BUCKET` |
//! | catalog | `CATALOG` | `PARTS`, `PART#<write>#<number>`, `READS`; of earlier releases `HEAD` instead of `PARTS` |
//! | decision | `DECISION#<cluster>#<shard>` | `<microseconds>#<writer>#<number>` |

use whittle_claims::{BucketName, ClaimKey, OfferingKey, shard_of};
use whittle_units::{ClusterName, InstanceId, Timestamp};

/// Partition and sort key of one item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pk: String,
    pub(crate) sk: String,
}

fn key(pk: impl Into<String>, sk: impl Into<String>) -> Key {
    Key { pk: pk.into(), sk: sk.into() }
}

pub(crate) fn claim(claim: &ClaimKey) -> Key {
    key(claim_shard(&claim.cluster, shard_of(claim.name.as_str())), claim.name.as_str())
}

pub(crate) fn claim_shard(cluster: &ClusterName, shard: u32) -> String {
    format!("CLAIM#{cluster}#{shard}")
}

pub(crate) fn instance(id: &InstanceId) -> Key {
    key(format!("INSTANCE#{id}"), "CLAIM")
}

pub(crate) fn lease(cluster: &ClusterName) -> Key {
    key(format!("LEASE#{cluster}"), "LEASE")
}

pub(crate) fn record(cluster: &ClusterName, kind: &str, name: &str) -> Key {
    key(records(cluster, kind), name)
}

pub(crate) fn records(cluster: &ClusterName, kind: &str) -> String {
    format!("RECORD#{cluster}#{kind}")
}

/// Partition of all stock-outs of the region.
pub(crate) const OFFERINGS: &str = "OFFERING";

pub(crate) fn offering(offering: &OfferingKey) -> Key {
    let anywhere = format!("{}#{}#{}", offering.instance_type, offering.zone, offering.capacity_type);
    let partition = || offering.partition.map_or_else(|| "*".to_owned(), |number| number.to_string());
    let placed = match (&offering.placement_group, offering.vcpus) {
        (Some(group), _) => format!("{anywhere}#{group}#{}", partition()),
        (None, Some(vcpus)) => format!("{anywhere}#vcpus#{vcpus}"),
        (None, None) => anywhere,
    };
    match &offering.node_class {
        Some(uid) => key(OFFERINGS, format!("{placed}#class#{uid}")),
        None => key(OFFERINGS, placed),
    }
}

pub(crate) fn bucket(name: &BucketName) -> Key {
    key(format!("BUCKET#{}", name.0), "BUCKET")
}

/// Names the parts of the catalog.
pub(crate) fn catalog_head() -> Key {
    key("CATALOG", "PARTS")
}

/// The same as earlier releases write it, whose parts all have the id of its write.
pub(crate) fn old_catalog_head() -> Key {
    key("CATALOG", "HEAD")
}

/// The part that a head names.
pub(crate) fn named_catalog_part(sk: &str) -> Key {
    key("CATALOG", sk)
}

/// When the catalog was last read from EC2.
pub(crate) fn catalog_reads() -> Key {
    key("CATALOG", "READS")
}

pub(crate) fn catalog_part(write: &str, number: usize) -> Key {
    key("CATALOG", format!("PART#{write}#{number:04}"))
}

pub(crate) fn decision_shard(cluster: &ClusterName, shard: u32) -> String {
    format!("DECISION#{cluster}#{shard}")
}

/// Decisions about one subject share a partition, ordered by time and, within one call, by position.
pub(crate) fn decision(cluster: &ClusterName, subject: &str, at: Timestamp, writer: &str, number: usize) -> Key {
    // 20 digits sort as text in the order of the numbers; no decision is older than 1970.
    let sk = format!("{:020}#{writer}#{number:05}", at.as_microsecond().max(0));
    key(decision_shard(cluster, shard_of(subject)), sk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_out_of_a_placement_group_or_node_class_is_an_item_of_its_own() {
        let anywhere = OfferingKey {
            instance_type: "m5.large".to_owned(),
            zone: "z".to_owned(),
            capacity_type: "spot".to_owned(),
            ..OfferingKey::default()
        };
        let in_group = OfferingKey { placement_group: Some("pg-1".to_owned()), ..anywhere.clone() };
        let in_partition = OfferingKey { partition: Some(2), ..in_group.clone() };
        let [of_class, both] = [&anywhere, &in_group].map(|one| OfferingKey { node_class: Some("u-1".to_owned()), ..one.clone() });
        let keys = [&anywhere, &in_group, &in_partition, &of_class, &both].map(|one| offering(one).sk);
        let expected = ["", "#pg-1#*", "#pg-1#2", "#class#u-1", "#pg-1#*#class#u-1"].map(|rest| format!("m5.large#z#spot{rest}"));
        assert_eq!(keys, expected);
        let quotas = [8, 16].map(|vcpus| offering(&OfferingKey::of_quota("standard", "spot", vcpus)).sk);
        assert_eq!(quotas, ["quota:standard#*#spot#vcpus#8", "quota:standard#*#spot#vcpus#16"], "each size is refused by itself");
    }

    #[test]
    fn decisions_sort_by_time_then_by_number() {
        let cluster = ClusterName::new("c");
        let at = |seconds| Timestamp::from_second(seconds).expect("in range");
        let early = decision(&cluster, "pod/a/b", at(999), "w", 10);
        let later = decision(&cluster, "pod/a/b", at(1000), "w", 2);
        assert!(early < later);
        assert!(later < decision(&cluster, "pod/a/b", at(1000), "w", 10));
    }
}

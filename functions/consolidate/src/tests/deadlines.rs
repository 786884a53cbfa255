//! The deadline that a NodeClaim states before `consolidate` deletes it.

use super::{claim, leaving, running};
use std::collections::BTreeMap;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, GoDuration, ObjectMeta, Unreadable, labels};
use whittle_claims::DeletionReason;
use whittle_snapshot::Snapshot;
use whittle_testkit::{at, key, stored};
use whittle_units::Timestamp;

/// A NodeClaim that states this deadline.
fn stating(name: &str, deadline: &str) -> NodeClaim {
    let mut object = NodeClaim { metadata: ObjectMeta::named(name), ..NodeClaim::default() };
    object.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_owned());
    object
}

/// The deadlines of a node that a command replaces and of one that is surplus, whose NodeClaims state this one.
fn deadlines(stated: Option<&str>) -> [Option<Timestamp>; 2] {
    let world = leaving::world(None);
    let names = ["old", "more"];
    names.iter().filter_map(|name| stated.map(|stated| stating(name, stated))).for_each(|object| world.create(object));
    leaving::pass(&world, running(vec![claim("new")]));
    names.map(|name| world.claim(&key(name)).deletion.expect("it is deleted").deadline)
}

#[test]
fn commands_and_scale_down_keep_the_deadline_that_a_nodeclaim_states() {
    assert_eq!(deadlines(Some(&at(500).to_string())), [Some(at(500)); 2]);
    assert_eq!(deadlines(Some("soon")), [None; 2], "that is no time");
    assert_eq!(deadlines(None), [None; 2]);
}

#[test]
fn a_stated_deadline_counts_before_that_of_the_grace_period_and_only_that_of_the_claims_own_object() {
    let mut old = claim("old");
    old.spec.termination_grace_period = Some(GoDuration::from_secs(60));
    let due_of = |read: ClusterObjects| {
        let snapshot = Snapshot::of(at(100), read, stored(vec![old.clone()]), Vec::new(), BTreeMap::new());
        crate::progress::deletion_of(&snapshot, &old, DeletionReason::Drifted, String::new(), at(100)).deadline
    };
    for readable in [true, false] {
        let due = |name: &str, second: i64| {
            let object = stating(name, &at(second).to_string());
            due_of(if readable {
                ClusterObjects { node_claims: vec![object], ..ClusterObjects::default() }
            } else {
                let odd = Unreadable { kind: "NodeClaim".to_owned(), metadata: object.metadata, ..Unreadable::default() };
                ClusterObjects { unreadable: vec![odd], ..ClusterObjects::default() }
            })
        };
        assert_eq!([due("old", 50), due("old", 130), due("old", 900)], [50, 130, 900].map(|second| Some(at(second))), "{readable}");
        assert_eq!(due("another", 900), Some(at(160)), "{readable}");
    }
}

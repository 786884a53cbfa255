use crate::catalog::of_pools;
use crate::{Reserved, TypeInputs, unavailable};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::karpenter::{NodePool, Requirement, ResolvedCapacityReservation, ResolvedPlacementGroup};
use whittle_api::{ObjectMeta, labels};
use whittle_claims::{MeasuredMemory, NodeClassRecord, OfferingKey, ShiftedZones, SmallNode, StockOut};
use whittle_ec2::facts::offline;
use whittle_ec2::instance_types::Settings;
use whittle_model::scheduling::InstanceTypes;
use whittle_testkit::{at, node_class_reference};
use whittle_units::Quantity;

#[test]
fn an_ended_stock_out_makes_nothing_unavailable() {
    let out = |instance_type: &str, until| StockOut {
        offering: OfferingKey {
            instance_type: instance_type.into(),
            zone: "z".into(),
            capacity_type: "spot".into(),
            ..OfferingKey::default()
        },
        code: "ICE".into(),
        until: at(until),
        strikes: 1,
    };
    let outs = [out("a", 10), out("b", 20), out("*", 10)];
    let now = |second| unavailable(&outs, at(second));
    assert_eq!((now(9).pools.len(), now(9).capacity_types.len()), (2, 1));
    assert_eq!((now(10).pools.len(), now(10).capacity_types.len()), (1, 0));
    assert_eq!(now(20).pools.len(), 0);
}

#[test]
fn full_subnets_and_exhausted_quotas_are_distinguished_from_offerings() {
    let now = at(0);
    let keys = [
        OfferingKey::of_subnet("subnet-1"),
        OfferingKey::of_subnet_prefixes("subnet-2"),
        OfferingKey::of_quota("standard", "on-demand", 8),
        OfferingKey::of_reservation("cr-1"),
    ];
    let outs = keys.map(|key| StockOut::with_fixed_wait(key, "code", now));
    let closed = unavailable(&outs, now);
    assert!(closed.pools.is_empty() && closed.capacity_types.is_empty(), "{closed:?}");
    assert_eq!(closed.subnets, ["subnet-1".to_owned()].into());
    assert_eq!(closed.subnets_without_prefixes, ["subnet-2".to_owned()].into());
    assert_eq!(closed.quotas, [(("standard".to_owned(), "on-demand".to_owned()), 8)].into());
    assert_eq!(unavailable(&outs, now + whittle_units::SignedDuration::from_mins(4)), whittle_ec2::instance_types::Unavailable::default());
}

#[test]
fn the_smallest_machine_that_a_quota_was_too_small_for_counts_and_smaller_ones_stay_available() {
    let refused = |vcpus| StockOut::with_fixed_wait(OfferingKey::of_quota("standard", "on-demand", vcpus), "VcpuLimitExceeded", at(0));
    let outs = [refused(16), refused(4), refused(8)];
    let available = |outs: &[StockOut], name: &str| {
        let [types, _] = of_two_classes(outs, |_| {});
        let known = types.iter().find(|known| known.name == name).unwrap();
        known.offerings.iter().filter(|offering| offering.available).map(|offering| offering.capacity_type().to_owned()).collect::<Vec<_>>()
    };
    for (name, has_on_demand) in [("m5.large", true), ("m5.xlarge", false), ("m5.4xlarge", false)] {
        let kinds = available(&outs, name);
        assert_eq!(kinds.iter().any(|kind| kind == "on-demand"), has_on_demand, "{name}");
        assert!(kinds.iter().any(|kind| kind == "spot"), "{name}: another quota");
    }
    // An earlier release wrote no size.
    let mut of_any = refused(16);
    of_any.offering.vcpus = None;
    assert!(!available(&[of_any], "m5.large").iter().any(|kind| kind == "on-demand"));
}

#[test]
fn a_subnet_without_prefixes_is_unavailable_to_classes_that_take_some_only() {
    let out = StockOut::with_fixed_wait(OfferingKey::of_subnet_prefixes("subnet-a"), "InsufficientCidrBlocks", at(0));
    let [without, with] = of_two_classes(&[out], |record| record.class.spec.ip_prefix_count = Some(2));
    let is_offered = |types: &InstanceTypes| types.iter().any(|known| known.offerings.iter().any(|offering| offering.available));
    assert!(is_offered(&without) && !is_offered(&with));
}

/// Types of classes that differ in nothing else are not shared, nor kept from before the tenancy was known.
#[test]
fn a_reservation_is_offered_to_machines_of_the_tenancy_that_the_record_says() {
    for told in [None, Some("default"), Some("dedicated")] {
        let [_, types] = of_two_classes(&[], |record| {
            record.class.status.capacity_reservations = vec![ResolvedCapacityReservation {
                id: "cr-1".into(),
                availability_zone: "us-east-1a".into(),
                instance_type: "m5.large".into(),
                reservation_type: "default".into(),
                state: "active".into(),
                ..ResolvedCapacityReservation::default()
            }];
            record.reservation_tenancies = told.map(|tenancy| ("cr-1".to_owned(), tenancy.to_owned())).into_iter().collect();
        });
        let known = types.iter().find(|known| known.name == "m5.large").unwrap();
        let reserved = known.offerings.iter().find(|offering| offering.label(labels::RESERVATION_ID) == Some("cr-1")).unwrap();
        assert_eq!(reserved.label(labels::INSTANCE_TENANCY), told);
    }
}

#[test]
fn what_ec2_refuses_to_one_class_is_unavailable_to_that_class_only() {
    let place = OfferingKey { instance_type: "a".into(), zone: "z".into(), capacity_type: "spot".into(), ..OfferingKey::default() };
    let of_class = OfferingKey { node_class: Some("u-1".into()), ..place };
    let closed = unavailable(&[StockOut::after_failure(None, of_class, "Unsupported", at(0))], at(0));
    assert!(closed.pools.is_empty(), "{closed:?}");
    let refused: Vec<_> = closed.refused.iter().map(|(class, pools)| (class.as_str(), pools.len())).collect();
    assert_eq!(refused, [("u-1", 1)]);
}

/// The types of two pools with classes of their own, the second of which is changed.
fn of_two_classes(stock_outs: &[StockOut], change: impl FnOnce(&mut NodeClassRecord)) -> [Arc<InstanceTypes>; 2] {
    of_measured_classes(stock_outs, Vec::new(), change)
}

/// The same after nodes have reported this.
fn of_measured_classes(
    stock_outs: &[StockOut],
    measured: Vec<MeasuredMemory>,
    change: impl FnOnce(&mut NodeClassRecord),
) -> [Arc<InstanceTypes>; 2] {
    let record = |name: &str| -> NodeClassRecord {
        serde_json::from_value(json!({
            "class": {"metadata": {"name": name, "uid": name}, "spec": {"amiFamily": "AL2023"}},
            "subnets": [{"id": "subnet-a", "zone": "us-east-1a", "zoneID": "use1-az1"}], "security_groups": [],
            "amis": [{"id": "ami-1", "name": "image", "requirements": []}], "instance_profile": "p", "hash": "1", "problems": [],
            "resolved_at": "2026-01-05T09:00:00Z",
        }))
        .unwrap()
    };
    let mut records = [record("a"), record("b")];
    change(&mut records[1]);
    let pools = ["a", "b"].map(|name| {
        let mut pool = NodePool { metadata: ObjectMeta::named(name), ..NodePool::default() };
        pool.spec.template.spec.node_class_ref = node_class_reference(name);
        pool
    });
    let inputs = TypeInputs {
        settings: Settings::standard(),
        reserved: Reserved::default(),
        measured,
        now: at(0),
        shifted: ShiftedZones::default(),
        prices: BTreeMap::new(),
    };
    let blob = offline::catalog("us-east-1").unwrap().encode();
    let found = of_pools(&pools, &records, stock_outs, &inputs, Some(&blob), at(0)).unwrap();
    ["a", "b"].map(|name| Arc::clone(&found[name]))
}

#[test]
fn classes_that_differ_in_nothing_relevant_share_their_types() {
    let [a, b] = of_two_classes(&[], |record| {
        record.class.spec.role = Some("another".into());
        record.class.spec.user_data = Some("#!/bin/sh".into());
        record.instance_profile = "another".into();
        record.hash = "2".into();
        record.free_addresses = [("subnet-a".to_owned(), 7)].into();
    });
    assert!(Arc::ptr_eq(&a, &b) && a.iter().next().is_some());
}

#[test]
fn whatever_changes_the_types_of_a_class_keeps_them_its_own() {
    let changes: [fn(&mut NodeClassRecord); 5] = [
        |record| record.class.spec.kubelet = Some(json!({"maxPods": 20})),
        |record| record.subnets[0].zone = "us-east-1b".into(),
        |record| record.amis[0].requirements = vec![Requirement::is_in(labels::ARCH, ["arm64"])],
        |record| record.ipv6 = true,
        |record| {
            let strategy = "partition".to_owned();
            record.placement_group = Some(ResolvedPlacementGroup { id: "pg-1".into(), name: "web".into(), strategy, partition_count: 2 });
        },
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let [a, b] = of_two_classes(&[], change);
        assert!(!Arc::ptr_eq(&a, &b) && a.iter().ne(b.iter()), "{at}");
    }
}

#[test]
fn what_ec2_refuses_to_one_class_stays_available_to_one_that_is_otherwise_equal() {
    let key = OfferingKey {
        instance_type: "m5.large".into(),
        zone: "us-east-1a".into(),
        capacity_type: "on-demand".into(),
        node_class: Some("b".into()),
        ..OfferingKey::default()
    };
    let types = of_two_classes(&[StockOut::after_failure(None, key, "Unsupported", at(0))], |_| {});
    let available = types.map(|types| {
        let large = types.iter().find(|one| one.name == "m5.large").unwrap();
        large.offerings.iter().any(|offering| offering.available && offering.capacity_type() == "on-demand")
    });
    assert_eq!(available, [true, false]);
}

#[test]
fn what_nodes_had_too_little_of_counts_for_their_image_and_the_settings_of_their_class_alone() {
    let measured = |image_id: &str, hash: &str| {
        let node = |instance: &str| SmallNode { instance: instance.into(), amount: Quantity::from_milli(1_000), at: at(-10) };
        let by_resource = BTreeMap::from([("cpu".to_owned(), ["i-1", "i-2"].map(node).to_vec())]);
        let by_type = BTreeMap::from([("m5.large".to_owned(), by_resource)]);
        let small_nodes = [(hash.to_owned(), by_type)].into();
        let (by_type, small_memory) = (BTreeMap::new(), BTreeMap::new());
        MeasuredMemory { image_id: image_id.to_owned(), by_type, small_memory, small_nodes, updated_at: at(0) }
    };
    let mut of_one = measured("ami-1", "1");
    of_one.small_nodes.values_mut().flat_map(BTreeMap::values_mut).flat_map(BTreeMap::values_mut).for_each(|nodes| nodes.truncate(1));
    let mut of_old = measured("ami-1", "1");
    let old = of_old.small_nodes.values_mut().flat_map(BTreeMap::values_mut).flat_map(BTreeMap::values_mut).flatten();
    old.for_each(|node| node.at = at(-24 * 3_600));
    let cpu = |measured: MeasuredMemory| {
        let types = of_measured_classes(&[], vec![measured], |record| record.hash = "2".into());
        types.map(|types| types.iter().find(|one| one.name == "m5.large").unwrap().allocatable_of("cpu").milli())
    };
    let [whole, other] = cpu(measured("ami-2", "1"));
    assert!(whole == other && whole > 1_000, "{whole}, {other}");
    assert_eq!(cpu(measured("ami-1", "1")), [1_000, whole]);
    assert_eq!(cpu(measured("ami-1", "2")), [whole, 1_000]);
    assert_eq!((cpu(of_one), cpu(of_old)), ([whole, whole], [whole, whole]), "one node, and two of a day ago");
}

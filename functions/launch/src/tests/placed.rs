//! Launches into placement groups.

use super::over_sim::{class_in, keep_as, know, run_over};
use super::repeated::with_class;
use futures::executor::block_on;
use whittle_api::karpenter::{PlacementGroupSelector, Requirement, ResolvedPlacementGroup};
use whittle_api::labels;
use whittle_claims::{Claim, DeletionReason, NodeClassRecord, OfferingKey, Phase, StockOut};
use whittle_ec2::network::PlacementGroup;
use whittle_ports::RegionStore;
use whittle_snapshot::unavailable;
use whittle_testkit::TestWorld;

const ZONE: &str = "us-west-2a";

/// A world with the class `gone`, which has no group, and `placed`, which is in one.
fn with_group(strategy: &str, partition_count: u32) -> TestWorld {
    let simulation = with_class();
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let (id, name, strategy) = ("pg-1".to_owned(), "web".to_owned(), strategy.to_owned());
    let mut class = NodeClassRecord {
        placement_group: Some(ResolvedPlacementGroup { id: id.clone(), name: name.clone(), strategy: strategy.clone(), partition_count }),
        ..class_in(&catalog)
    };
    class.class.metadata.name = "placed".into();
    class.class.spec.placement_group_selector = Some(PlacementGroupSelector { name: Some(name.clone()), id: None });
    know(&simulation, class);
    simulation.world().region.place(PlacementGroup { id, name, strategy, partition_count, state: "available".into() });
    simulation
}

fn of_type(claim: &mut Claim) {
    claim.spec.requirements = vec![
        Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large", "c5.large"]),
        Requirement::is_in(labels::ZONE, [ZONE]),
        Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]),
    ];
}

fn in_group(simulation: &TestWorld, number: usize) -> Claim {
    keep_as(simulation, number, |claim| {
        claim.spec.node_class.name = "placed".into();
        of_type(claim);
    })
}

fn known(simulation: &TestWorld) -> Vec<StockOut> {
    let now = simulation.world().now();
    block_on(simulation.ports().stock_outs(now)).unwrap()
}

/// The placement group of each machine.
fn groups(simulation: &TestWorld) -> Vec<Option<String>> {
    simulation.world().region.machines.values().map(|machine| machine.instance.placement_group.clone()).collect()
}

#[test]
fn instances_start_in_the_placement_group_of_their_class() {
    let simulation = with_group("cluster", 0);
    let claim = in_group(&simulation, 1);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    assert_eq!(groups(&simulation), [Some("pg-1".to_owned())]);
    let machine = simulation.claim(&claim.key).machine().unwrap().clone();
    assert_eq!(machine.labels[labels::PLACEMENT_GROUP_ID], "pg-1");
    assert_eq!(machine.labels.get(labels::PLACEMENT_GROUP_PARTITION), None, "it has no partitions");
}

#[test]
fn a_requested_partition_is_set_and_otherwise_it_is_learned_later() {
    let simulation = with_group("partition", 3);
    let asking = keep_as(&simulation, 1, |claim| {
        claim.spec.node_class.name = "placed".into();
        of_type(claim);
        claim.spec.requirements.push(Requirement::is_in(labels::PLACEMENT_GROUP_PARTITION, ["3", "2"]));
    });
    let free = in_group(&simulation, 2);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 2);
    let claims = [asking, free].map(|claim| simulation.claim(&claim.key));
    let labelled = claims.each_ref().map(|claim| claim.machine().unwrap().labels[labels::PLACEMENT_GROUP_PARTITION].as_str());
    assert_eq!(labelled, ["2", ""]);
    assert_eq!(claims.each_ref().map(Claim::awaits_partition), [false, true]);
    let started = simulation.world().region.machines[&claims[0].machine().unwrap().instance_id].instance.partition;
    assert_eq!(started, Some(2));
}

#[test]
fn a_class_whose_placement_group_is_unknown_never_launches() {
    let simulation = with_class();
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let mut class = class_in(&catalog);
    class.class.metadata.name = "placed".into();
    class.class.spec.placement_group_selector = Some(PlacementGroupSelector { name: Some("web".into()), id: None });
    assert!(class.is_ready(), "although the record is ready");
    know(&simulation, class);
    let claim = in_group(&simulation, 1);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 0);
    assert_eq!(groups(&simulation), [None; 0]);
    let after = simulation.claim(&claim.key);
    assert_eq!(after.deletion.map(|deletion| deletion.reason), Some(DeletionReason::NodeClassNotReady));
}

#[test]
fn a_full_spread_group_blocks_its_zone_for_its_own_instances_only() {
    let simulation = with_group("spread", 0);
    for number in 0..7 {
        in_group(&simulation, number);
    }
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 7, "EC2 allows seven per zone");
    let eighth = in_group(&simulation, 8);
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("launched"), report.counted("failed")), (0, 1));
    assert!(matches!(simulation.claim(&eighth.key).phase, Phase::Failed { .. }), "its pods are replanned, elsewhere");
    let outs = known(&simulation);
    assert_eq!(outs.iter().map(|out| &out.offering).collect::<Vec<_>>(), [&OfferingKey::of_full_group("pg-1", ZONE)]);
    let closed = unavailable(&outs, simulation.world().now());
    assert!(closed.pools.is_empty() && closed.capacity_types.is_empty() && closed.quotas.is_empty() && closed.subnets.is_empty());
    assert_eq!(closed.full_groups, [("pg-1".to_owned(), ZONE.to_owned())].into());
    let ninth = in_group(&simulation, 9);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 1, "no call is made for it");
    assert_eq!(simulation.world().region.started(), 7);
    assert!(simulation.claim(&ninth.key).machine().is_none());
    // The same types in the same zone, without the group; and the group in another zone.
    keep_as(&simulation, 10, of_type);
    keep_as(&simulation, 11, |claim| {
        claim.spec.node_class.name = "placed".into();
        of_type(claim);
        claim.spec.requirements[1] = Requirement::is_in(labels::ZONE, ["us-west-2b"]);
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 2);
}

#[test]
fn a_stock_out_within_a_placement_group_applies_to_that_group_only() {
    let simulation = with_group("partition", 2);
    let lacking = ["m5.large", "c5.large"].map(|name| (name.to_owned(), ZONE.to_owned(), "on-demand".to_owned()));
    simulation.world().region.out_of_stock.extend(lacking.clone());
    let first = keep_as(&simulation, 1, |claim| {
        claim.spec.node_class.name = "placed".into();
        of_type(claim);
        claim.spec.requirements.push(Requirement::is_in(labels::PLACEMENT_GROUP_PARTITION, ["1"]));
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 1);
    assert!(simulation.claim(&first.key).machine().is_none());
    let outs = known(&simulation);
    assert_eq!(outs.len(), 2);
    assert!(outs.iter().all(|out| out.offering.placement_group.as_deref() == Some("pg-1") && out.offering.partition == Some(1)));
    lacking.iter().for_each(|pool| {
        simulation.world().region.out_of_stock.remove(pool);
    });
    // Another class buys the same types at once, and so does another partition; this partition waits.
    keep_as(&simulation, 2, of_type);
    keep_as(&simulation, 3, |claim| {
        claim.spec.node_class.name = "placed".into();
        of_type(claim);
        claim.spec.requirements.push(Requirement::is_in(labels::PLACEMENT_GROUP_PARTITION, ["1", "2"]));
    });
    let waiting = keep_as(&simulation, 4, |claim| {
        claim.spec.node_class.name = "placed".into();
        of_type(claim);
        claim.spec.requirements.push(Requirement::is_in(labels::PLACEMENT_GROUP_PARTITION, ["1"]));
    });
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 2);
    assert!(simulation.claim(&waiting.key).machine().is_none());
    let mut partitions: Vec<_> = simulation.world().region.machines.values().map(|machine| machine.instance.partition).collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [None, Some(2)]);
}

//! Placement groups that classes select.

use super::{Counting, cluster, fenced, run, run_under, with_role};
use futures::executor::block_on;
use whittle_api::karpenter::{Ec2NodeClass, PlacementGroupSelector};
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::NodeClassRecord;
use whittle_ec2::network::PlacementGroup;
use whittle_ports::{Adapters, RecordReader, Settings};
use whittle_sim::World;
use whittle_testkit::TestWorld;

pub(super) fn group(id: &str, state: &str) -> PlacementGroup {
    PlacementGroup { id: id.into(), name: "web".into(), strategy: "partition".into(), partition_count: 3, state: state.into() }
}

/// A world whose class selects the placement group `web` and is otherwise ready.
fn selecting(groups: Vec<PlacementGroup>) -> (TestWorld, Settings) {
    fenced(move |world: &mut World| {
        with_role("KarpenterNodeRole-c")(world);
        select(world, Some("web"));
        groups.into_iter().for_each(|group| world.region.place(group));
    })
}

pub(super) fn select(world: &mut World, name: Option<&str>) {
    world.cluster.objects.change::<Ec2NodeClass>("default", |class| {
        class.spec.placement_group_selector = name.map(|name| PlacementGroupSelector { name: Some(name.into()), id: None });
    });
}

/// Status, reason and message of the condition.
fn condition(class: &Ec2NodeClass) -> (ConditionStatus, String, String) {
    let found = conditions::find(&class.status.conditions, conditions::PLACEMENT_GROUP_READY).unwrap();
    (found.status, found.reason.clone(), found.message.clone())
}

fn events_of(simulation: &TestWorld, reason: &str) -> Vec<String> {
    let world = simulation.world();
    let own = world.cluster.events.iter().filter(|kept| kept.event.reason == reason && kept.event.kind == "EC2NodeClass");
    own.map(|kept| kept.event.message.clone()).collect()
}

#[test]
fn a_class_in_a_placement_group_is_ready_and_its_group_is_recorded() {
    let (simulation, settings) = selecting(vec![group("pg-1", "available")]);
    let (class, record) = run_under(&simulation, &settings);
    assert_eq!(condition(&class).0, ConditionStatus::True);
    assert!(record.is_ready() && !record.lacks_placement_group(), "{:?}", record.problems);
    let kept = record.placement_group.unwrap();
    assert_eq!((kept.id.as_str(), kept.strategy.as_str(), kept.partitions()), ("pg-1", "partition", 3));
    select(&mut simulation.world(), None);
    let (class, record) = run_under(&simulation, &settings);
    assert_eq!((condition(&class).0, record.placement_group), (ConditionStatus::True, None), "it no longer selects one");
}

#[test]
fn a_class_with_an_unusable_group_is_not_ready_with_a_reason() {
    for (groups, reason, words) in [
        (vec![], "PlacementGroupNotFound", "create it in this region"),
        (vec![group("pg-1", "deleting")], "PlacementGroupNotFound", "is deleting"),
        (vec![group("pg-1", "available"), group("pg-2", "available")], "PlacementGroupResolutionFailed", "by its id"),
    ] {
        let (simulation, settings) = selecting(groups);
        {
            let mut world = simulation.world();
            let mut other = world.cluster.objects.get::<Ec2NodeClass>("default").unwrap().clone();
            other.metadata = whittle_api::ObjectMeta::named("other");
            other.spec.placement_group_selector = None;
            let now = world.now();
            world.cluster.objects.create(other, now);
        }
        let (class, record) = run_under(&simulation, &settings);
        let (status, known, message) = condition(&class);
        assert_eq!((status, known.as_str()), (ConditionStatus::False, reason));
        assert!(message.contains(words), "{message}");
        assert!(!conditions::is_true(&class.status.conditions, conditions::READY));
        assert!(!record.is_ready() && record.lacks_placement_group());
        assert!(record.problems.iter().any(|problem| problem.contains(words)), "launches with it are refused: {:?}", record.problems);
        assert_eq!(events_of(&simulation, reason), [message]);
        run_under(&simulation, &settings);
        assert_eq!(events_of(&simulation, reason).len(), 1, "one Event");
        let other = block_on(simulation.ports().read::<NodeClassRecord>(&cluster(), "other")).unwrap().unwrap().value;
        assert!(other.is_ready(), "{:?}", other.problems);
    }
}

/// Otherwise every machine of the group would drift.
#[test]
fn a_refused_lookup_keeps_the_group_and_blocks_launches() {
    let (simulation, settings) = selecting(vec![group("pg-1", "available")]);
    let (_, known) = run_under(&simulation, &settings);
    let ports = simulation.ports();
    let ec2 = Counting { refuses_groups: true, ..Counting::over(&ports) };
    let adapters = Adapters { store: &ports, cloud: &ec2, cluster: &ports, queues: &ports, clock: &ports };
    block_on(crate::handle(adapters, &settings, &cluster())).unwrap();
    let record = super::record(&simulation).unwrap();
    assert!(!record.is_ready(), "it is unknown whether the group still exists");
    assert_eq!(record.placement_group, known.placement_group);
    let (_, reason, message) = condition(&super::class(&simulation).unwrap());
    assert_eq!(reason, "PlacementGroupResolutionFailed");
    assert!(message.contains("UnauthorizedOperation"), "{message}");
    // A group that the class did not select before is not the known one.
    select(&mut simulation.world(), Some("other"));
    block_on(crate::handle(adapters, &settings, &cluster())).unwrap();
    assert_eq!(super::record(&simulation).unwrap().placement_group, None);
    select(&mut simulation.world(), Some("web"));
    run(&simulation);
    assert_eq!(super::record(&simulation).unwrap().placement_group, known.placement_group);
}

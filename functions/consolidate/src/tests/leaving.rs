//! Commands of a cluster from which Whittle is being uninstalled.

use super::{after, claim, joined, running};
use crate::state::{Disruptions, NAME, Running, SurplusClaim};
use futures::executor::block_on;
use whittle_api::k8s::{Node, Taint};
use whittle_api::{ConditionStatus, ObjectMeta, conditions};
use whittle_claims::{Claim, Event, Function, LeftNodes, Revision, Uninstall};
use whittle_ports::{Adapters, ClaimStore, RecordReader, Records, Report, Settings};
use whittle_sim::SimPorts;
use whittle_testkit::{TestWorld, at, begun, key, machine};
use whittle_units::SignedDuration;

/// A claim whose machine serves as this Node.
fn serving(name: &str, instance: &str, node: &str) -> Claim {
    after(&claim(name), &[begun(name), Event::FleetAnswered(machine(instance)), whittle_testkit::joined(node), Event::NodeReady])
}

/// A world in which `old` is tainted and `more` is too many, where `new` serves. `left` is the uninstallation, if any.
pub(super) fn world(left: Option<LeftNodes>) -> TestWorld {
    let world = TestWorld::still(at(0));
    let mut old = serving("old", "i-0", "node-old");
    conditions::set(&mut old.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, "Underutilized", "", at(1));
    let mut node = Node { metadata: ObjectMeta::named("node-old"), ..Node::default() };
    node.spec.taints.push(Taint::disrupted());
    world.create(node);
    world.store(&old);
    world.store(&after(&claim("new"), &[joined(), vec![Event::NodeReady]].concat()));
    world.store(&serving("more", "i-2", "node-more"));
    if let Some(nodes) = left {
        let record = Uninstall { asked_at: at(0), nodes };
        block_on(world.ports().write(&key("old").cluster, &record, Revision::ABSENT)).unwrap();
    }
    world
}

/// A pass that finds this command running and `more` chosen as surplus.
pub(super) fn pass(world: &TestWorld, command: Running) -> Report {
    pass_over(&world.ports(), command)
}

pub(super) fn pass_over(ports: &SimPorts, command: Running) -> Report {
    let surplus = SurplusClaim { claim: "more".into(), node_pool: "fixed".to_owned(), message: String::new() };
    let record = Disruptions { running: vec![command], surplus: vec![surplus], ..Disruptions::default() };
    block_on(ports.write(&key("old").cluster, &record, Revision::ABSENT)).unwrap();
    handle_over(ports)
}

pub(super) fn handle(world: &TestWorld) -> Report {
    handle_over(&world.ports())
}

fn handle_over(ports: &SimPorts) -> Report {
    block_on(crate::handle(Adapters::all(ports), &Settings::default(), &key("old").cluster)).unwrap()
}

/// The ports of a run that has only the time left to hand over.
pub(super) fn without_time(world: &TestWorld) -> SimPorts {
    world.ports().with_time_left(SignedDuration::ZERO, crate::HANDOVER_RESERVE)
}

fn record(world: &TestWorld) -> Option<Disruptions> {
    block_on(world.ports().read::<Disruptions>(&key("old").cluster, NAME)).unwrap().map(|stored| stored.value)
}

fn are_deleted(world: &TestWorld) -> [bool; 3] {
    ["old", "more", "new"].map(|name| world.claim(&key(name)).deletion.is_some())
}

#[test]
fn commands_go_on_unless_nodes_are_left_running() {
    for left in [None, Some(LeftNodes::Drain)] {
        let world = world(left);
        pass(&world, running(vec![claim("new")]));
        assert_eq!(are_deleted(&world), [true, true, false], "{left:?}");
        assert!(world.doorbells().contains(&Function::Terminate));
    }
}

#[test]
fn commands_are_rolled_back_and_delete_nothing_once_nodes_are_left_running() {
    for left in [LeftNodes::Keep, LeftNodes::HandOver] {
        let world = world(Some(left));
        let report = pass(&world, running(vec![claim("new")]));
        assert_eq!(are_deleted(&world), [false; 3], "{left:?}");
        assert_eq!(report.counted("rolled_back"), 1);
        assert!(world.get::<Node>("node-old").unwrap().spec.taints.is_empty(), "it takes pods again");
        assert!(conditions::find(&world.claim(&key("old")).conditions, conditions::DISRUPTION_REASON).is_none());
        assert_eq!(record(&world), Some(Disruptions::default()), "nothing goes on later");
        handle(&world);
        assert_eq!(are_deleted(&world), [false; 3], "{left:?}");
        assert!(!world.doorbells().contains(&Function::Terminate));
    }
}

#[test]
fn a_replacement_that_is_not_stored_is_never_launched_once_nodes_are_left_running() {
    let world = world(Some(LeftNodes::Keep));
    pass(&world, Running { stored: false, ..running(vec![claim("next")]) });
    assert_eq!(block_on(world.ports().get(&key("next"))).unwrap(), None);
    assert!(!world.doorbells().contains(&Function::Launch));
    assert!(world.get::<Node>("node-old").unwrap().spec.taints.is_empty());
}

/// The run that began the command died before it stored them. They would be launched to be drained.
#[test]
fn a_replacement_that_is_not_stored_is_never_launched_once_nodes_are_drained() {
    for (left, launches) in [(None, true), (Some(LeftNodes::Drain), false)] {
        let world = world(left);
        let report = pass(&world, Running { stored: false, ..running(vec![claim("next")]) });
        assert_eq!(block_on(world.ports().get(&key("next"))).unwrap().is_some(), launches, "{left:?}");
        assert_eq!(world.doorbells().contains(&Function::Launch), launches, "{left:?}");
        assert_eq!(report.counted("rolled_back"), u64::from(!launches), "{left:?}");
        assert!(world.claim(&key("old")).deletion.is_none(), "{left:?}");
    }
    let world = world(Some(LeftNodes::Drain));
    pass(&world, Running { stored: false, ..running(Vec::new()) });
    assert!(world.claim(&key("old")).deletion.is_some(), "it needs none");
}

/// The records of the cluster are deleted when nothing is left.
#[test]
fn no_record_is_made_for_a_cluster_that_is_left() {
    let world = world(Some(LeftNodes::Keep));
    handle(&world);
    assert_eq!(record(&world), None);
    assert!(world.get::<Node>("node-old").unwrap().spec.taints.is_empty(), "the taint of a run that died");
}

/// Without a record of it the next pass would take the cluster for quiet.
#[test]
fn a_taint_for_which_there_was_no_time_is_removed_by_the_next_pass() {
    let world = world(Some(LeftNodes::Keep));
    let is_tainted = || !world.get::<Node>("node-old").unwrap().spec.taints.is_empty();
    let report = handle_over(&without_time(&world));
    assert_eq!((is_tainted(), report.counted("handed_over")), (true, 1));
    assert_eq!(record(&world).and_then(|record| record.next_look_at), Some(at(0)));
    handle(&world);
    assert_eq!((is_tainted(), record(&world)), (false, Some(Disruptions::default())));
}

//! Nodes that are tainted although they belong to no command.

use super::{after, claim, joined, leaving, running};
use crate::HANDOVER_RESERVE;
use crate::observe::Step;
use crate::state::{Disruptions, Running};
use crate::strays::untaint_strays;
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Taint};
use whittle_api::{ClusterObjects, ConditionStatus, ObjectMeta, conditions};
use whittle_claims::{Claim, DeletionReason, Event, Revision, step};
use whittle_ports::{Adapters, ClaimStore, Records, Report};
use whittle_sim::{SimPorts, Simulation};
use whittle_snapshot::Snapshot;
use whittle_testkit::{TestWorld, at, begun, deletion, key, machine};
use whittle_units::SignedDuration;

/// Whether a tainted Node is still tainted after a check for strays that had read it before `meanwhile`.
fn is_tainted(meanwhile: impl FnOnce(&Simulation, &Claim)) -> (bool, Report) {
    let serving = after(&claim("a"), &[joined(), vec![Event::NodeReady]].concat());
    let cluster = serving.key.cluster.clone();
    let simulation = TestWorld::still(at(0));
    simulation.store(&serving);
    let ports = simulation.ports();
    let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    node.spec.taints.push(Taint::disrupted());
    simulation.create(node);
    let stored = block_on(ports.list(&cluster)).unwrap();
    let nodes = vec![simulation.get::<Node>("n").unwrap()];
    let snapshot = Snapshot::of(at(1), ClusterObjects { nodes, ..ClusterObjects::default() }, stored, Vec::new(), BTreeMap::new());
    meanwhile(&simulation, &serving);
    let adapters = Adapters::all(&ports);
    let mut report = Report::default();
    assert_eq!(block_on(untaint_strays(adapters, &snapshot, &Disruptions::default(), &mut report)), Ok(Step::Done));
    let closed = simulation.get::<Node>("n").unwrap().spec.taints.iter().any(|taint| taint.same(&Taint::disrupted()));
    (closed, report)
}

#[test]
fn a_node_of_no_command_is_untainted() {
    let (closed, report) = is_tainted(|_, _| {});
    assert_eq!((closed, report.counted("unmarked")), (false, 1));
}

#[test]
fn a_node_that_is_being_drained_by_now_is_never_untainted() {
    let (closed, report) = is_tainted(|simulation, claim| {
        let deletion = deletion(DeletionReason::SpotInterruption, at(1));
        let ports = simulation.ports();
        let read = block_on(ports.get(&claim.key)).unwrap().unwrap();
        block_on(ports.update(&step(&read.value, &Event::DeletionRequested(deletion), at(1)).unwrap(), read.revision)).unwrap();
    });
    assert_eq!((closed, report.counted("unmarked")), (true, 0));
}

#[test]
fn a_node_changed_since_it_was_read_waits_for_the_next_pass() {
    let (closed, report) = is_tainted(|simulation, _| {
        simulation.world().cluster.objects.change::<Node>("n", |node| {
            node.metadata.labels.insert("changed".into(), "since".into());
        });
    });
    assert_eq!((closed, report.counted("left_for_later")), (true, 1));
}

#[test]
fn a_node_whose_claim_is_unreadable_by_now_is_never_untainted() {
    let (closed, report) = is_tainted(|simulation, claim| simulation.world().store.spoil_claim(&claim.key));
    assert_eq!((closed, report.counted("unmarked")), (true, 0));
}

/// The names of many claims whose Nodes have their names.
fn many() -> impl Iterator<Item = String> {
    (0..20).map(|number| format!("stray-{number:02}"))
}

/// A world of many serving claims, all with a disruption reason and a Node with these taints.
fn world_of_many(taints: &[Taint]) -> TestWorld {
    let world = TestWorld::still(at(0));
    for name in many() {
        let joined = whittle_testkit::joined(&name);
        let mut one = after(&claim(&name), &[begun(&name), Event::FleetAnswered(machine(&format!("i-{name}"))), joined, Event::NodeReady]);
        conditions::set(&mut one.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, "Empty", "", at(1));
        world.store(&one);
        let mut node = Node { metadata: ObjectMeta::named(&name), ..Node::default() };
        node.spec.taints = taints.to_vec();
        world.create(node);
    }
    world
}

/// A check for strays of a cluster as it is now.
fn check_many(world: &TestWorld, ports: &SimPorts) -> (Step, Report) {
    let nodes = many().map(|name| world.get::<Node>(&name).unwrap()).collect();
    let stored = block_on(world.ports().list(&key("a").cluster)).unwrap();
    let snapshot = Snapshot::of(at(1), ClusterObjects { nodes, ..ClusterObjects::default() }, stored, Vec::new(), BTreeMap::new());
    let mut report = Report::default();
    let step = block_on(untaint_strays(Adapters::all(ports), &snapshot, &Disruptions::default(), &mut report)).unwrap();
    (step, report)
}

/// How many Nodes are tainted, and how many claims have a reason.
fn left(world: &TestWorld) -> (usize, usize) {
    let tainted = many().filter(|name| !world.get::<Node>(name).unwrap().spec.taints.is_empty()).count();
    let has_reason = |name: &String| conditions::find(&world.claim(&key(name)).conditions, conditions::DISRUPTION_REASON).is_some();
    (tainted, many().filter(has_reason).count())
}

#[test]
fn many_nodes_of_no_command_are_untainted_in_one_pass() {
    let world = world_of_many(&[Taint::disrupted()]);
    let (step, report) = check_many(&world, &world.ports());
    assert_eq!((step, report.counted("unmarked"), left(&world)), (Step::Done, 20, (0, 0)));
}

#[test]
fn a_reason_goes_without_a_taint_and_a_node_without_one_is_left_alone() {
    let world = world_of_many(&[]);
    let version = |world: &TestWorld| world.get::<Node>("stray-00").unwrap().metadata.resource_version;
    let before = version(&world);
    let (step, report) = check_many(&world, &world.ports());
    assert_eq!((step, report.counted("unmarked"), left(&world)), (Step::Done, 0, (0, 0)));
    assert_eq!(version(&world), before);
}

#[test]
fn nodes_for_which_there_is_no_time_are_left_to_the_next_pass() {
    let world = world_of_many(&[Taint::disrupted()]);
    let none = world.ports().with_time_left(SignedDuration::ZERO, HANDOVER_RESERVE);
    let (step, report) = check_many(&world, &none);
    assert_eq!((step, report.counted("handed_over"), left(&world)), (Step::HandedOver, 1, (20, 20)));
    let little = world.ports().with_time_left(SignedDuration::from_millis(100), HANDOVER_RESERVE + SignedDuration::from_secs(1));
    assert_eq!(check_many(&world, &little).0, Step::HandedOver);
    assert_eq!(left(&world), (4, 4), "sixteen are handled at once");
    assert_eq!(check_many(&world, &world.ports()).0, Step::Done);
    assert_eq!(left(&world), (0, 0));
}

/// As while a whole fleet drifts: some command ends in each pass. The node of one that has just ended is drained, and stays closed.
#[test]
fn a_node_of_no_command_is_untainted_in_a_pass_in_which_a_command_ends() {
    for (replacement, rolled_back) in [("gone", true), ("new", false)] {
        let world = leaving::world(None);
        let mut node = Node { metadata: ObjectMeta::named("node-more"), ..Node::default() };
        node.spec.taints.push(Taint::disrupted());
        world.create(node);
        let command = Running { started_at: at(-5), ..running(vec![claim(replacement)]) };
        let record = Disruptions { running: vec![command], ..Disruptions::default() };
        block_on(world.ports().write(&key("old").cluster, &record, Revision::ABSENT)).unwrap();
        let report = leaving::handle(&world);
        let is_open = |name: &str| world.get::<Node>(name).unwrap().spec.taints.is_empty();
        assert_eq!((is_open("node-old"), is_open("node-more")), (rolled_back, true), "{replacement}");
        assert_eq!((report.counted("rolled_back"), report.counted("unmarked")), (u64::from(rolled_back), 1), "{replacement}");
    }
}

/// As when its machine is interrupted while its replacement starts: pods that came back would only move again.
#[test]
fn a_node_that_is_being_drained_stays_closed_when_its_command_is_rolled_back() {
    for (is_drained, reason) in [(false, None), (true, Some("Underutilized"))] {
        let world = leaving::world(None);
        let ports = world.ports();
        if is_drained {
            let interrupted = Event::DeletionRequested(deletion(DeletionReason::SpotInterruption, at(0)));
            let read = block_on(ports.get(&key("old"))).unwrap().unwrap();
            block_on(ports.update(&step(&read.value, &interrupted, at(0)).unwrap(), read.revision)).unwrap();
        }
        let report = leaving::pass(&world, Running { started_at: at(-5), ..running(vec![claim("gone")]) });
        let is_closed = !world.get::<Node>("node-old").unwrap().spec.taints.is_empty();
        let told = report.decisions.iter().any(|one| one.subject == "node/node-old" && one.message.starts_with("Kept after all"));
        assert_eq!((report.counted("rolled_back"), is_closed, told), (1, is_drained, !is_drained));
        let shown = world.claim(&key("old")).conditions;
        let shown = conditions::find(&shown, conditions::DISRUPTION_REASON).map(|shown| shown.reason.as_str());
        assert_eq!(shown, reason);
    }
}

//! Commands whose run died after it had stored them, and that a later run goes on with.

use super::{after, claim, command, displaced, leaving, ledger, running, snapshot_of};
use crate::Run;
use crate::state::{DeletingMachine, Disruptions, NAME, Running};
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Taint};
use whittle_api::{ConditionStatus, ObjectMeta, OwnerReference, conditions};
use whittle_claims::{Claim, Event, Function, Revision, Stored};
use whittle_disruption::LedgerEntry;
use whittle_model::disruption::{Command, Memory, Method, Move, Removal, RemovedNode};
use whittle_model::scheduling::NewClaim;
use whittle_ports::{Adapters, ClaimStore, Leases, RecordReader, Records, Report, Settings};
use whittle_testkit::{TestWorld, at, begun, key, machine};
use whittle_units::{Price, SignedDuration};

/// The world after a pass at 0 that goes on with a command that began at `started`.
fn resumed(started: i64, replacements: Vec<Claim>) -> (TestWorld, Report) {
    let world = leaving::world(None);
    let report = leaving::pass(&world, Running { stored: false, started_at: at(started), ..running(replacements) });
    (world, report)
}

fn is_open(world: &TestWorld) -> bool {
    world.get::<Node>("node-old").unwrap().spec.taints.is_empty()
}

#[test]
fn a_command_that_nobody_went_on_with_in_time_launches_nothing() {
    let is_stored = |world: &TestWorld| block_on(world.ports().get(&key("next"))).unwrap().is_some();
    let (world, report) = resumed(-600, vec![claim("next")]);
    assert_eq!((is_stored(&world), is_open(&world), report.counted("rolled_back")), (true, false, 0));
    let (world, report) = resumed(-601, vec![claim("next")]);
    assert_eq!((is_stored(&world), is_open(&world), report.counted("rolled_back")), (false, true, 1));
    assert!(!world.doorbells().contains(&Function::Launch));
    let told = "Kept after all: nobody went on with the command in time";
    assert!(report.decisions.iter().any(|one| one.subject == "node/node-old" && one.message == told));
}

/// Its nodes were looked at before that run died, and somebody may have opened them since.
#[test]
fn a_command_that_nobody_went_on_with_in_time_deletes_nothing() {
    let is_deleted = |world: &TestWorld| world.claim(&key("old")).deletion.is_some();
    let (world, _) = resumed(-600, Vec::new());
    assert!(is_deleted(&world));
    let (world, _) = resumed(-601, Vec::new());
    assert_eq!((is_deleted(&world), is_open(&world)), (false, true));
}

/// The pod on the node is a workload's, or a DaemonSet's.
fn empty_node_with(is_daemon: bool) -> (bool, bool, Report) {
    let world = leaving::world(None);
    let mut arrived = displaced::pod("web", "node-old", 1);
    if is_daemon {
        let owner = OwnerReference { kind: "DaemonSet".to_owned(), controller: Some(true), ..OwnerReference::default() };
        arrived.metadata.owner_references = vec![owner].into();
    }
    world.create(arrived);
    let begun = Running { stored: false, method: Method::Emptiness, started_at: at(-90), ..running(Vec::new()) };
    let report = leaving::pass(&world, begun);
    (world.claim(&key("old")).deletion.is_some(), is_open(&world), report)
}

/// The run that began it may have read a list that did not have the pod yet, or somebody has opened the node since.
#[test]
fn an_empty_node_is_never_deleted_by_a_later_run_once_it_has_a_pod() {
    let (is_deleted, is_open, report) = empty_node_with(false);
    assert_eq!((is_deleted, is_open, report.counted("rolled_back")), (false, true, 1));
    let told = "Kept after all: pod default/web was bound since";
    assert!(report.decisions.iter().any(|one| one.subject == "node/node-old" && one.message == told), "{:?}", report.decisions);
}

#[test]
fn an_empty_node_is_deleted_by_a_later_run_while_it_is_empty() {
    let (is_deleted, is_open, report) = empty_node_with(true);
    assert_eq!((is_deleted, is_open, report.counted("rolled_back")), (true, false, 0));
}

/// Two empty nodes that a command is to remove, with a pod on each of these by now.
fn two_nodes(occupied: &[&str]) -> TestWorld {
    let world = leaving::world(None);
    let serves = [begun("b"), Event::FleetAnswered(machine("i-3")), whittle_testkit::joined("node-b"), Event::NodeReady];
    world.store(&after(&claim("b"), &serves));
    let mut node = Node { metadata: ObjectMeta::named("node-b"), ..Node::default() };
    node.spec.taints.push(Taint::disrupted());
    world.create(node);
    for node in occupied {
        world.create(displaced::pod(&format!("on-{node}"), node, 1));
    }
    world
}

/// The command that removes both, of a run that died before its claims were marked, or one that waited after that.
fn of_both(stored: bool) -> Running {
    let removals = ["old", "b"].map(|name| DeletingMachine { claim: name.into(), node: format!("node-{name}") }).to_vec();
    let ledger = LedgerEntry {
        nodes: removals.iter().map(|machine| machine.node.clone()).collect(),
        node_pools: vec!["default".to_owned(), "other".to_owned()],
        after_nanos: Price::ZERO,
        ..ledger()
    };
    Running { method: Method::Emptiness, removals, ledger, started_at: at(-90), stored, waited: stored, ..running(Vec::new()) }
}

/// What was remembered of it when it began.
fn memory_of_both() -> Memory {
    let removed = |pool: &str, price: u64| RemovedNode {
        node_pool: pool.to_owned(),
        instance_type: "m5.large".to_owned(),
        capacity_type: "on-demand".to_owned(),
        zone: "us-east-1a".to_owned(),
        price: Price::from_nanos(price),
    };
    let begun = Move {
        at: at(-90),
        removed: vec![removed("default", 300), removed("other", 200)],
        nodes: vec!["node-old".to_owned(), "node-b".to_owned()],
        undrained_at: None,
        drained_at: None,
        launched: Vec::new(),
        workloads: BTreeMap::new(),
        move_counts: BTreeMap::new(),
    };
    Memory { moves: vec![begun], ..Memory::default() }
}

/// A pass that finds this command, whatever an earlier one has stored.
fn go_on(world: &TestWorld, command: Running) -> Report {
    let record = Disruptions { running: vec![command], memory: memory_of_both(), ..Disruptions::default() };
    let (ports, cluster) = (world.ports(), key("old").cluster);
    let known = block_on(ports.read::<Disruptions>(&cluster, NAME)).unwrap();
    block_on(ports.write(&cluster, &record, known.map_or(Revision::ABSENT, |known| known.revision))).unwrap();
    leaving::handle(world)
}

fn recorded(world: &TestWorld) -> Disruptions {
    block_on(world.ports().read::<Disruptions>(&key("old").cluster, NAME)).unwrap().unwrap().value
}

/// Which of both nodes are deleted, and which are open to pods.
fn both(world: &TestWorld) -> ([bool; 2], [bool; 2]) {
    let is_deleted = |name: &str| world.claim(&key(name)).deletion.is_some();
    let is_open = |name: &str| world.get::<Node>(name).unwrap().spec.taints.is_empty();
    (["old", "b"].map(is_deleted), ["node-old", "node-b"].map(is_open))
}

/// Nodes that a pass has told it keeps.
fn kept(report: &Report) -> Vec<(&str, &str)> {
    let decisions = report.decisions.iter().filter(|one| one.message.starts_with("Kept after all"));
    decisions.map(|one| (one.subject.as_str(), one.message.as_str())).collect()
}

#[test]
fn of_empty_nodes_only_one_that_has_a_pod_leaves_the_command() {
    for stored in [false, true] {
        let world = two_nodes(&["node-old"]);
        let report = go_on(&world, of_both(stored));
        assert_eq!(both(&world), ([false, true], [true, false]), "{stored}");
        assert_eq!((report.counted("disrupted"), report.counted("rolled_back")), (1, 0), "{stored}");
        assert_eq!(kept(&report), [("node/node-old", "Kept after all: pod default/on-node-old was bound since")], "{stored}");
        let mark = |name: &str| conditions::find(&world.claim(&key(name)).conditions, conditions::DISRUPTION_REASON).is_some();
        assert!(!mark("old"), "{stored}");
        let record = recorded(&world);
        assert!(record.running.is_empty(), "{stored}");
        let remembered: Vec<&[String]> = record.memory.moves.iter().map(|one| one.nodes.as_slice()).collect();
        assert_eq!(remembered, [["node-b".to_owned()].as_slice()], "{stored}: a node that stays is never drained");
    }
}

#[test]
fn a_later_run_never_deletes_an_empty_node_that_has_a_pod_whatever_becomes_of_the_others() {
    for stored in [false, true] {
        let world = two_nodes(&["node-old", "node-b"]);
        let report = go_on(&world, of_both(stored));
        assert_eq!(both(&world), ([false, false], [true, true]), "{stored}");
        assert_eq!((report.counted("disrupted"), report.counted("rolled_back")), (0, 1), "{stored}");
        let told =
            ["node-old", "node-b"].map(|name| (format!("node/{name}"), format!("Kept after all: pod default/on-{name} was bound since")));
        let told: Vec<(&str, &str)> = told.iter().map(|(node, why)| (node.as_str(), why.as_str())).collect();
        assert_eq!(kept(&report), told, "each for its own pod");
        let record = recorded(&world);
        assert!(record.running.is_empty() && record.memory.moves.is_empty(), "{stored}");
    }
}

/// A run dies before it has stored what became of the command, and one more begins where that one began.
#[test]
fn an_empty_node_that_was_kept_stays_when_another_run_goes_on_with_its_command_again() {
    let world = two_nodes(&["node-old"]);
    go_on(&world, of_both(false));
    // What tolerates the taint may be bound to a node that is being drained, and keeps no other.
    world.create(displaced::pod("late", "node-b", 1));
    let report = go_on(&world, of_both(false));
    assert_eq!(both(&world), ([false, true], [true, false]));
    assert_eq!((report.counted("disrupted"), report.counted("rolled_back")), (0, 0));
    assert_eq!(kept(&report).iter().map(|(node, _)| *node).collect::<Vec<_>>(), ["node/node-old"]);
}

#[test]
fn the_ledger_counts_only_nodes_that_leave() {
    let mut command = of_both(false);
    command.leave_out(&["node-old"], &memory_of_both());
    assert_eq!((command.removals.len(), command.removals[0].node.as_str()), (1, "node-b"));
    assert_eq!((command.ledger.nodes, command.ledger.node_pools), (vec!["node-b".to_owned()], vec!["other".to_owned()]));
    assert_eq!((command.ledger.before_nanos, command.ledger.after_nanos), (Price::from_nanos(200), Price::ZERO));
    let mut command = of_both(false);
    command.leave_out(&["node-old"], &Memory::default());
    assert_eq!((command.removals.len(), command.ledger.nodes), (1, vec!["node-b".to_owned()]), "its prices are not remembered any more");
}

/// The run that began it placed them, and has not recorded where.
#[test]
fn a_later_run_deletes_nodes_only_while_their_pods_have_places() {
    for (taken, deletes) in [(1, true), (3, false)] {
        let world = displaced::world(taken, ConditionStatus::True);
        let report = leaving::pass(&world, Running { stored: false, started_at: at(-90), ..running(Vec::new()) });
        assert_eq!(world.claim(&key("old")).deletion.is_some(), deletes, "{taken}");
        assert_eq!(report.counted("displaced"), u64::from(!deletes), "{taken}");
    }
}

/// The mark that another command had left on it is of another time, by which plans would take its pods for pods that stay.
#[test]
fn a_command_marks_its_nodes_with_the_time_at_which_its_replacements_were_made() {
    let (world, _) = resumed(-5, vec![claim("next")]);
    let old = world.claim(&key("old"));
    let mark = conditions::find(&old.conditions, conditions::DISRUPTION_REASON).unwrap();
    assert_eq!((mark.reason.as_str(), mark.last_transition_time), ("Underutilized", Some(at(-5))));
}

#[test]
fn a_command_begins_when_its_replacements_are_made() {
    let world = leaving::world(None);
    let ports = world.ports();
    let lease = block_on(ports.acquire(&key("old").cluster, "run", at(0), SignedDuration::from_mins(1))).unwrap();
    let (settings, report) = (Settings::default(), Report::default());
    let mut run = Run { ports: Adapters::all(&ports), settings: &settings, lease: &lease, report, notes: Vec::new(), handed_over: false };
    let removal = Removal { node: "node-old".to_owned(), node_claim: "old".to_owned(), ..Removal::default() };
    let replacement = NewClaim { node_pool: "default".to_owned(), ..NewClaim::default() };
    let command = Command { replacements: vec![replacement], ..command(Method::Drift, vec![removal]) };
    let mut record = Stored { value: Disruptions::default(), revision: Revision::ABSENT };
    block_on(run.start(&snapshot_of(vec![world.claim(&key("old"))], at(7)), &command, &mut record)).unwrap();
    let [begun] = record.value.running.as_slice() else { panic!("one command: {:?}", record.value.running) };
    assert_eq!((begun.started_at, begun.replacements[0].created_at), (at(7), at(7)));
    let old = world.claim(&key("old"));
    let mark = conditions::find(&old.conditions, conditions::DISRUPTION_REASON).unwrap();
    assert_eq!(mark.last_transition_time, Some(at(7)));
}

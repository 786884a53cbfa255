//! What is remembered of the pods that commands were to move.

use super::{after, claim, displaced, leaving, running};
use crate::state::{DeletingMachine, Disruptions, NAME, Running};
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::ConditionStatus;
use whittle_claims::{Deletion, DeletionReason, Event, Revision};
use whittle_model::disruption::{Memory, Method, Move};
use whittle_ports::{RecordReader, Records};
use whittle_testkit::{TestWorld, at, begun, key, machine};

/// The move of one pod from a node, by a command that launched nothing.
fn moved(second: i64, node: &str) -> Move {
    Move {
        at: at(second),
        removed: Vec::new(),
        nodes: vec![node.to_owned()],
        undrained_at: None,
        drained_at: None,
        launched: Vec::new(),
        workloads: [("default/ReplicaSet/web".to_owned(), 1)].into(),
        move_counts: BTreeMap::from([("default/ReplicaSet/web".to_owned(), 1)]),
    }
}

/// The moves that are remembered after a pass which found this command, and whether its node `node-old` goes.
fn remembered(world: &TestWorld, command: Running) -> (Vec<(i64, String)>, bool) {
    let moves = vec![moved(-600, "node-old"), moved(-90, "node-old"), moved(-90, "node-other")];
    let record = Disruptions { running: vec![command], memory: Memory { moves, ..Memory::default() }, ..Disruptions::default() };
    let cluster = key("old").cluster;
    block_on(world.ports().write(&cluster, &record, Revision::ABSENT)).unwrap();
    leaving::handle(world);
    let left = block_on(world.ports().read::<Disruptions>(&cluster, NAME)).unwrap().unwrap().value.memory.moves;
    let second = |one: &Move| one.at.duration_since(at(0)).as_secs();
    let left = left.iter().map(|one| (second(one), one.nodes[0].clone())).collect();
    (left, world.claim(&key("old")).deletion.is_some())
}

fn names(moves: &[(i64, &str)]) -> Vec<(i64, String)> {
    moves.iter().map(|(second, node)| (*second, (*node).to_owned())).collect()
}

/// Its pods would have counted as moved for an hour, and be moved only once more.
#[test]
fn a_command_without_replacements_that_is_rolled_back_has_moved_no_pod() {
    let world = displaced::world(3, ConditionStatus::True);
    let (left, goes) = remembered(&world, Running { stored: false, started_at: at(-90), ..running(Vec::new()) });
    assert_eq!((left, goes), (names(&[(-600, "node-old"), (-90, "node-other")]), false));
}

#[test]
fn a_command_that_goes_on_has_moved_its_pods() {
    let world = displaced::world(1, ConditionStatus::True);
    let (left, goes) = remembered(&world, Running { stored: false, started_at: at(-90), ..running(Vec::new()) });
    assert_eq!((left, goes), (names(&[(-600, "node-old"), (-90, "node-old"), (-90, "node-other")]), true));
}

/// It was deleted before the other had to be kept.
#[test]
fn the_move_of_a_command_that_is_rolled_back_stays_while_one_of_its_nodes_goes() {
    let world = displaced::world(3, ConditionStatus::True);
    let deletion = Deletion::without_deadline(DeletionReason::Underutilized, at(-60), "part of command c1");
    let joined = whittle_testkit::joined("node-b");
    let ended = [begun("b"), Event::FleetAnswered(machine("i-3")), joined, Event::NodeReady, Event::DeletionRequested(deletion)];
    world.store(&after(&claim("b"), &ended));
    let removals = ["old", "b"].map(|name| DeletingMachine { claim: name.into(), node: format!("node-{name}") }).to_vec();
    let command = Running { method: Method::MultiNode, removals, waited: true, started_at: at(-90), ..running(Vec::new()) };
    let (left, goes) = remembered(&world, command);
    assert_eq!((left, goes), (names(&[(-600, "node-old"), (-90, "node-old"), (-90, "node-other")]), false));
}

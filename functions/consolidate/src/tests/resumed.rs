//! Commands whose run died after it had stored them, and that a later run goes on with.

use super::{claim, command, displaced, leaving, running, snapshot_of};
use crate::Run;
use crate::state::{Disruptions, Running};
use futures::executor::block_on;
use whittle_api::k8s::Node;
use whittle_api::{ConditionStatus, OwnerReference, conditions};
use whittle_claims::{Claim, Function, Revision, Stored};
use whittle_model::disruption::{Command, Method, Removal};
use whittle_model::scheduling::NewClaim;
use whittle_ports::{Adapters, ClaimStore, Leases, Report, Settings};
use whittle_testkit::{TestWorld, at, key};
use whittle_units::SignedDuration;

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

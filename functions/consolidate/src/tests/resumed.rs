//! Commands whose run died after it had stored them, and that a later run goes on with.

use super::{claim, leaving, running};
use crate::state::Running;
use futures::executor::block_on;
use whittle_api::k8s::Node;
use whittle_claims::{Claim, Function};
use whittle_ports::{ClaimStore, Report};
use whittle_testkit::{TestWorld, at, key};

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

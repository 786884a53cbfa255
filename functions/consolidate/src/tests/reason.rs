//! The disruption reason, which a NodeClaim shows as soon as its claim has it, and no longer than that.

use super::leaving::{pass, pass_over, without_time, world};
use super::{claim, running};
use crate::state::Running;
use futures::executor::block_on;
use whittle_api::conditions;
use whittle_api::karpenter::NodeClaim;
use whittle_claims::{Function, mirror};
use whittle_ports::ClaimStore;
use whittle_testkit::{TestWorld, at, key};

/// The reason that the NodeClaim shows; `None` if it shows none.
fn shown(world: &TestWorld) -> Option<String> {
    let object = world.get::<NodeClaim>("old")?;
    conditions::find(&object.status.conditions, conditions::DISRUPTION_REASON).map(|condition| condition.reason.clone())
}

fn has_reason(world: &TestWorld) -> bool {
    conditions::find(&world.claim(&key("old")).conditions, conditions::DISRUPTION_REASON).is_some()
}

/// Without the condition.
fn show_plain(world: &TestWorld) {
    let mut object = mirror(&world.claim(&key("old")));
    conditions::clear(&mut object.status.conditions, conditions::DISRUPTION_REASON);
    world.create(object);
}

/// A command whose replacement has still to be launched.
fn to_launch() -> Running {
    Running { stored: false, ..running(vec![claim("next")]) }
}

/// A command whose replacement was deleted.
fn lost() -> Running {
    Running { started_at: at(-5), ..running(vec![claim("gone")]) }
}

#[test]
fn a_node_that_is_being_replaced_shows_why_at_once() {
    let world = world(None);
    show_plain(&world);
    let report = pass(&world, to_launch());
    assert_eq!((shown(&world).as_deref(), report.counted("mirrors_failed")), (Some("Underutilized"), 0));
    assert!(world.claim(&key("old")).deletion.is_none(), "its replacement is not ready");
}

#[test]
fn the_nodeclaim_of_a_node_without_a_replacement_is_left_to_its_termination() {
    let world = world(None);
    show_plain(&world);
    pass(&world, Running { stored: false, ..running(Vec::new()) });
    assert!(world.claim(&key("old")).deletion.is_some());
    assert_eq!(shown(&world), None, "which writes it a moment later: one request is saved");
}

#[test]
fn a_nodeclaim_for_which_there_is_no_time_is_left_to_sweep_and_its_replacement_is_launched() {
    let world = world(None);
    show_plain(&world);
    pass_over(&without_time(&world), to_launch());
    assert_eq!((shown(&world), has_reason(&world)), (None, true));
    assert!(world.doorbells().contains(&Function::Launch));
}

#[test]
fn a_nodeclaim_that_cannot_be_written_fails_no_command() {
    let world = world(None);
    // A NodeClaim of this uid does not exist.
    let ports = world.ports();
    let read = block_on(ports.get(&key("old"))).unwrap().unwrap();
    let mut standalone = read.value.clone();
    standalone.spec.standalone_uid = Some("another".to_owned());
    block_on(ports.update(&standalone, read.revision)).unwrap();
    let report = pass(&world, to_launch());
    assert_eq!((report.counted("mirrors_failed"), report.counted("rolled_back")), (1, 0));
    assert!(world.doorbells().contains(&Function::Launch));
    assert!(block_on(ports.get(&key("next"))).unwrap().is_some());
}

#[test]
fn a_node_that_is_kept_after_all_shows_no_reason_any_more() {
    let world = world(None);
    world.create(mirror(&world.claim(&key("old"))));
    assert_eq!(shown(&world).as_deref(), Some("Underutilized"));
    let report = pass(&world, lost());
    assert_eq!((report.counted("rolled_back"), shown(&world)), (1, None));
}

#[test]
fn a_node_is_kept_after_all_without_the_time_to_show_it() {
    let world = world(None);
    world.create(mirror(&world.claim(&key("old"))));
    let report = pass_over(&without_time(&world), lost());
    assert_eq!((report.counted("rolled_back"), has_reason(&world)), (1, false));
    assert_eq!(shown(&world).as_deref(), Some("Underutilized"), "sweep writes it");
}

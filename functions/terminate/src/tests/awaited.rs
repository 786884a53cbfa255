//! What the claims that an execution environment terminates know together: which machines of a cluster are starting.

use super::over_sim::{Scene, expired, planned, running, serving, spot_loss};
use crate::LastPlanned;
use futures::executor::block_on;
use futures::future::ready;
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::{Claim, DeletionReason, Event, step};
use whittle_ports::{Adapters, Clock, Settings, StoreError};
use whittle_testkit::at;
use whittle_units::Timestamp;

/// The pods that a run evicts at a second.
fn evicted(scene: &mut Scene, seconds: i64, last_planned: &LastPlanned) -> u64 {
    scene.set_time(seconds);
    let ports = scene.ports();
    let report = block_on(crate::handle(Adapters::all(&ports), &Settings::default(), last_planned, &planned().key)).unwrap();
    report.counted("evicted")
}

/// What an earlier run for another claim read at the scene's time.
fn read_earlier(scene: &Scene, found: Option<Timestamp>) -> LastPlanned {
    let (last_planned, now) = (LastPlanned::default(), scene.ports().now());
    let read = ready(Ok::<_, StoreError>(found));
    block_on(last_planned.get_or_read(&planned().key.cluster, now, &scene.ports(), read)).unwrap();
    last_planned
}

#[test]
fn a_machine_that_another_claim_saw_starting_a_moment_ago_is_awaited_without_another_look() {
    let mut scene = Scene::of(&spot_loss());
    scene.create(running("a"));
    scene.set_time(10);
    // The table has no such machine: a look would find none.
    let last_planned = read_earlier(&scene, Some(at(3)));
    assert_eq!(evicted(&mut scene, 11, &last_planned), 0);
    assert_eq!(evicted(&mut scene, 13, &last_planned), 1, "what is older is looked for again");
}

#[test]
fn pods_never_stop_waiting_by_what_was_read_before_their_machine_was_planned() {
    let mut scene = Scene::of(&spot_loss());
    scene.create(running("a"));
    scene.set_time(10);
    let last_planned = read_earlier(&scene, None);
    let next = scene.plan_another(10);
    assert_eq!(evicted(&mut scene, 11, &last_planned), 0, "planned a moment after it was looked for");
    assert_eq!(evicted(&mut scene, 13, &last_planned), 0);
    scene.mark_ready(&next, 14);
    assert_eq!(evicted(&mut scene, 15, &last_planned), 1);
}

#[test]
fn a_plan_is_found_a_second_after_another_claim_has_looked_for_it_in_vain() {
    let mut scene = Scene::of(&expired());
    scene.create(running("a"));
    scene.set_time(2);
    let last_planned = read_earlier(&scene, None);
    scene.plan_another(2);
    assert_eq!(evicted(&mut scene, 3, &last_planned), 0);
    assert_eq!(evicted(&mut scene, 5, &last_planned), 1);
}

/// The claim of a machine that a command began to replace at second -20, and that is deleted at second 0.
fn replaced(reason: DeletionReason) -> Claim {
    let mut claim = serving();
    conditions::set(&mut claim.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, "Drifted", "", at(-20));
    let deletion = claim.deletion_for(reason, "", at(0));
    step(&claim, &Event::DeletionRequested(deletion), at(0)).unwrap()
}

/// Nothing is planned for them after the notice: the replacement has room for them.
#[test]
fn pods_of_a_spot_machine_wait_for_the_replacement_that_a_command_launched_before_the_notice() {
    let mut scene = Scene::of(&replaced(DeletionReason::SpotInterruption));
    scene.create(running("a"));
    let next = scene.plan_another(-20);
    assert_eq!(evicted(&mut scene, 9, &LastPlanned::default()), 0);
    assert_eq!(evicted(&mut scene, 40, &LastPlanned::default()), 0);
    scene.mark_ready(&next, 41);
    assert_eq!(evicted(&mut scene, 42, &LastPlanned::default()), 1);
}

#[test]
fn pods_of_a_replaced_machine_never_wait_for_what_was_launched_before_its_command_nor_for_a_late_machine() {
    let mut scene = Scene::of(&replaced(DeletionReason::SpotInterruption));
    scene.create(running("a"));
    scene.plan_another(-21);
    assert_eq!(evicted(&mut scene, 9, &LastPlanned::default()), 1, "it was there when the command began");
    let mut scene = Scene::of(&replaced(DeletionReason::SpotInterruption));
    scene.create(running("a"));
    scene.plan_another(-20);
    assert_eq!(evicted(&mut scene, 64, &LastPlanned::default()), 0);
    assert_eq!(evicted(&mut scene, 65, &LastPlanned::default()), 1, "its grace period of 30 s and time to evict remain");
}

/// Another machine may have been planned since the command began, and says nothing of a plan for these pods.
#[test]
fn the_plan_for_pods_of_an_expired_machine_is_one_since_it_expired() {
    let mut scene = Scene::of(&replaced(DeletionReason::Expired));
    scene.create(running("a"));
    scene.plan_another(-20);
    assert_eq!(evicted(&mut scene, 7, &LastPlanned::default()), 0);
    assert_eq!(evicted(&mut scene, 8, &LastPlanned::default()), 1);
}

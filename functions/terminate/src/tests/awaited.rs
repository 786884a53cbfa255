//! What the claims that an execution environment terminates know together: which machines of a cluster are starting.

use super::over_sim::{Scene, expired, planned, running, spot_loss};
use crate::LastPlanned;
use futures::executor::block_on;
use futures::future::ready;
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

//! Pods that are deleted because a deadline leaves no more time.

use super::over_sim::{Scene, ending, planned, running, serving};
use super::{grace, owned_by, pod};
use crate::LastPlanned;
use futures::executor::block_on;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex};
use whittle_api::ObjectMeta;
use whittle_api::k8s::{DaemonSet, Pod};
use whittle_claims::{Deletion, DeletionReason, Doorbell, Event, step};
use whittle_ports::{Adapters, Clock, Queues, Settings};
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts};
use whittle_testkit::{TestWorld, at, deletion};
use whittle_units::SignedDuration;

/// Terminates. How long the first run took.
struct Terminates(Arc<Mutex<Option<SignedDuration>>>);

impl Functions for Terminates {
    fn call(&self, function: Function, ports: SimPorts, _: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        let first = Arc::clone(&self.0);
        Box::pin(async move {
            if function != Function::Terminate {
                return Ok(());
            }
            let begun = ports.now();
            let done = crate::handle(Adapters::all(&ports), &Settings::default(), &LastPlanned::default(), &planned().key).await;
            first.lock().unwrap().get_or_insert(ports.now().duration_since(begun));
            done.map(|_| ()).map_err(RunFailure::passing)
        })
    }
}

#[test]
fn pods_are_deleted_many_at_once_since_each_loses_what_it_waits_for_others() {
    const PODS: usize = 160;
    let first = Arc::default();
    let world = TestWorld::with_functions("c", at(0), Arc::new(Terminates(Arc::clone(&first))));
    let mut scene = Scene::in_world(world, &ending(Some(at(60))));
    (0..PODS).for_each(|number| scene.create(grace(pod(&format!("p-{number}")), 300)));
    let key = planned().key;
    block_on(scene.ports().send_now(Doorbell::Terminate { cluster: key.cluster, claim: key.name })).unwrap();
    scene.simulation.run_for(SignedDuration::from_secs(4));
    assert_eq!(scene.events("Disrupted").len(), PODS);
    let took = first.lock().unwrap().expect("the first run has ended");
    // A request to the API server takes five milliseconds at least, and mostly twice as much.
    assert!(took < SignedDuration::from_millis(1_500), "{took:?}");
}

/// As that of a DaemonSet, which needs no place elsewhere, while the others wait for a plan.
#[test]
fn a_pod_that_needs_all_of_its_time_is_deleted_though_others_still_wait_for_a_plan() {
    let expired = Deletion { deadline: Some(at(100)), ..deletion(DeletionReason::Expired, at(0)) };
    let mut scene = Scene::of(&step(&serving(), &Event::DeletionRequested(expired), at(0)).unwrap());
    // Without it the garbage collector deletes its pod.
    scene.create(DaemonSet { metadata: ObjectMeta::namespaced("default", "owner"), ..DaemonSet::default() });
    scene.create(grace(owned_by(pod("agent"), "DaemonSet", "apps/v1"), 98));
    scene.create(running("web-0"));
    let done = |scene: &mut Scene, second: i64| {
        scene.set_time(second);
        let report = scene.run();
        ["held_for_replacement", "forced", "evicted"].map(|name| report.counted(name))
    };
    assert_eq!(done(&mut scene, 1), [1, 0, 0]);
    assert_eq!(done(&mut scene, 3), [1, 1, 0]);
    assert_eq!(scene.get::<Pod>("default/agent").unwrap().metadata.deletion_timestamp, Some(at(100)));
    assert!(!scene.get::<Pod>("default/web-0").unwrap().metadata.is_deleting());
    assert_eq!(done(&mut scene, 8), [0, 0, 1]);
}

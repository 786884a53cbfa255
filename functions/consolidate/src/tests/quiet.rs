//! When passes ring for the next one, and when they leave that to the tick.

use super::{after, claim, decision, joined, snapshot_of};
use crate::quiet::{is_look_near, is_quiet};
use crate::state::Disruptions;
use futures::executor::block_on;
use whittle_api::k8s::{Node, Pod};
use whittle_api::{Condition, ConditionStatus, ObjectMeta, conditions, labels};
use whittle_claims::{Claim, DeletionReason, Event, Function, mirror, step};
use whittle_disruption::KeepReason;
use whittle_ports::{Adapters, ClaimStore, Settings};
use whittle_testkit::{TestWorld, at, deletion, pool_named};
use whittle_units::SignedDuration;

/// A world with one machine that serves, and no pod.
pub(super) struct Scene {
    pub(super) world: TestWorld,
    pub(super) claim: Claim,
}

impl Scene {
    pub(super) fn new() -> Self {
        let mut claim = after(&claim("default-a"), &[joined(), vec![Event::NodeReady]].concat());
        claim.spec.node_pool = "default".to_owned();
        let world = TestWorld::still(at(0));
        let mut pool = pool_named("default");
        pool.spec.disruption.consolidate_after = serde_json::from_value("Never".into()).unwrap();
        world.create(pool);
        world.store(&claim);
        world.create(mirror(&claim));
        let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
        node.metadata.labels =
            [(labels::NODE_POOL.to_owned(), "default".to_owned())].into_iter().collect::<std::collections::BTreeMap<_, _>>().into();
        node.spec.provider_id = claim.machine().unwrap().provider_id.as_str().into();
        node.status.conditions = vec![Condition { type_: conditions::READY.into(), status: ConditionStatus::True, ..Condition::default() }];
        world.create(node);
        Self { world, claim }
    }

    /// Whether a pass rings for one that follows, before the next tick.
    pub(super) fn rings(&mut self) -> bool {
        self.world.run_for(SignedDuration::from_secs(20));
        assert!(self.world.doorbells().is_empty());
        let ports = self.world.ports();
        block_on(crate::handle(Adapters::all(&ports), &Settings::default(), &self.claim.key.cluster)).unwrap();
        self.world.doorbells().contains(&Function::Consolidate)
    }

    /// Passes until nothing is new.
    pub(super) fn settle(&mut self) {
        assert!((0..4).any(|_| !self.rings()), "it never becomes quiet");
    }
}

#[test]
fn a_cluster_in_which_nothing_changes_is_left_to_the_tick() {
    let mut scene = Scene::new();
    assert!(scene.rings(), "the first pass has seen nothing before");
    scene.settle();
    for pass in 0..40 {
        assert!(!scene.rings(), "pass {pass} of a quarter of an hour");
    }
}

#[test]
fn a_pass_that_sees_a_change_rings() {
    let bound = || {
        let mut pod = Pod { metadata: ObjectMeta { uid: "p".into(), ..ObjectMeta::namespaced("default", "p") }, ..Pod::default() };
        pod.spec.node_name = "n".into();
        pod.status.phase = "Running".into();
        pod
    };
    let mut scene = Scene::new();
    scene.settle();
    scene.world.create(bound());
    assert!(scene.rings(), "a pod came");
    scene.settle();
    scene.world.world().cluster.objects.delete::<Pod>("default/p", at(0));
    assert!(scene.rings(), "a pod left");
    scene.settle();
    let deletion = deletion(DeletionReason::SpotInterruption, at(0));
    let ports = scene.world.ports();
    let stored = block_on(ports.get(&scene.claim.key)).unwrap().unwrap();
    let ending = step(&stored.value, &Event::DeletionRequested(deletion), at(0)).unwrap();
    block_on(ports.update(&ending, stored.revision)).unwrap();
    for _ in 0..4 {
        assert!(scene.rings(), "a machine is on its way out");
    }
}

#[test]
fn a_tick_shortly_before_a_look_does_not_look_too() {
    let mut scene = Scene::new();
    assert!(scene.rings());
    let mut runs_after = |seconds: i64| {
        scene.world.run_for(SignedDuration::from_secs(seconds));
        let ports = scene.world.ports();
        let report = block_on(crate::handle(Adapters::all(&ports), &Settings::default(), &scene.claim.key.cluster)).unwrap();
        report.counted("look_is_near") == 0
    };
    assert!(!runs_after(2), "eight seconds before it");
    assert!(!runs_after(4), "four seconds before it");
    assert!(runs_after(2), "two seconds before it: it may be the look itself");
    let due = |second: i64| is_look_near(Some(at(second)), at(0));
    assert!(!due(-5) && !due(0) && !due(3) && due(4) && due(10) && !due(11) && !is_look_near(None, at(0)), "a lost doorbell stops nothing");
}

#[test]
fn what_is_due_before_the_next_tick_is_waited_for() {
    let snapshot = snapshot_of(Vec::new(), at(0));
    let idle = Disruptions::default();
    let kept = |reason: KeepReason| is_quiet(&snapshot, &idle, &idle, &decision(reason, &[]));
    let until = |second: i64| kept(KeepReason::ConsolidateAfter { until: Some(at(second)), empty_for: None });
    assert!(!until(1) && !until(59), "a node's consolidateAfter ends within a minute");
    assert!(until(60), "the tick comes first");
    assert!(until(-5) && kept(KeepReason::ConsolidateAfter { until: None, empty_for: None }) && kept(KeepReason::NothingCheaper));
}

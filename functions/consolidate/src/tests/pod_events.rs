//! What a pass makes of pods that came and went since the last one.

use super::quiet::Scene;
use super::{after, claim, joined, pod};
use crate::observe::{changed_pods, later_pod_event, pods_fingerprint};
use crate::state::{self, Disruptions};
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Pod, PodCondition};
use whittle_claims::{Claim, Event};
use whittle_model::disruption::{Method, Proposal};
use whittle_ports::{Adapters, RecordReader, Records, Settings};
use whittle_snapshot::Snapshot;
use whittle_testkit::{at, stored};
use whittle_units::{SignedDuration, Timestamp};

fn note(pod: &mut Pod, type_: &str, status: &str, since: Timestamp) {
    let (type_, status) = (type_.to_owned(), status.to_owned());
    pod.status.conditions.push(PodCondition { type_, status, last_transition_time: Some(since), ..PodCondition::default() });
}

/// A pod that runs on the node.
fn bound(name: &str, owner: &str, since: Timestamp) -> Pod {
    let mut pod = pod(name, owner);
    pod.metadata.name = name.to_owned();
    pod.metadata.namespace = "default".to_owned();
    pod.spec.node_name = "n".to_owned();
    pod.status.phase = "Running".to_owned();
    note(&mut pod, "PodScheduled", "True", since);
    pod
}

/// A pod that has ended, and is still listed.
fn finished(name: &str, owner: &str, since: Timestamp, end: Timestamp) -> Pod {
    let mut pod = bound(name, owner, since);
    pod.status.phase = "Succeeded".to_owned();
    note(&mut pod, "Ready", "False", end);
    pod
}

/// The last pod event of a machine that serves since the first second and had no pod at the last pass, as a pass in the 300th finds it;
/// `None` if that is nothing new.
fn found(last: Option<i64>, pods: Vec<Pod>, departed: Option<i64>) -> Option<Timestamp> {
    let ready = after(&claim("a"), &[joined(), vec![Event::NodeReady]].concat());
    let pods_fingerprint = Some(pods_fingerprint(std::iter::empty()));
    let claim = Claim { pods_fingerprint, last_pod_event_at: last.map(at), ..ready };
    let read = ClusterObjects { pods: pods.into(), ..ClusterObjects::default() };
    let snapshot = Snapshot::of(at(300), read, stored(vec![claim]), Vec::new(), BTreeMap::new());
    let departures: BTreeMap<String, Timestamp> = departed.map(|second| ("n".to_owned(), at(second))).into_iter().collect();
    changed_pods(&snapshot, &departures).first().and_then(|news| news.last_pod_event_at)
}

#[test]
fn pods_that_came_and_went_since_the_last_pass_are_pod_events_of_when_they_did() {
    let done = |name: &str, since: i64, end: i64| finished(name, "Job", at(since), at(end));
    assert_eq!(found(Some(10), vec![done("a", 100, 130)], None), Some(at(130)));
    assert_eq!(found(None, vec![done("a", 100, 130)], None), Some(at(130)), "the first one");
    assert_eq!(found(Some(10), vec![done("a", 100, 130), done("b", 140, 150)], None), Some(at(150)), "the last of them");
    let mut hasty = bound("hasty", "Job", at(100));
    hasty.status.phase = "Failed".to_owned();
    assert_eq!(found(Some(10), vec![hasty], None), Some(at(100)), "it was never ready");
    let mut leaving = bound("leaving", "ReplicaSet", at(100));
    leaving.metadata.deletion_timestamp = Some(at(160));
    leaving.metadata.deletion_grace_period_seconds = Some(30);
    assert_eq!(found(Some(10), vec![leaving], None), Some(at(130)), "when its deletion began");
    assert_eq!(found(Some(10), Vec::new(), Some(130)), Some(at(130)), "it is gone by now");
    assert_eq!(found(Some(10), vec![done("a", 100, 130)], Some(140)), Some(at(140)));
    assert_eq!(found(Some(10), vec![bound("runs", "ReplicaSet", at(100))], None), Some(at(300)), "one that is new is seen now");
}

#[test]
fn neither_daemons_nor_what_happened_before_delay_consolidation() {
    let done = |owner: &str, since: i64, end: i64| vec![finished("a", owner, at(since), at(end))];
    for owner in ["DaemonSet", "Node"] {
        assert_eq!(found(Some(10), done(owner, 100, 130), None), None, "{owner}");
    }
    assert_eq!(found(Some(130), done("Job", 100, 130), None), None, "it is known");
    assert_eq!(found(Some(125), done("Job", 100, 130), Some(134)), None, "within ten seconds it is the same event");
    assert_eq!(found(Some(200), done("Job", 100, 130), Some(150)), None, "there was a later one");
    assert_eq!(found(None, done("Job", 0, 1), Some(1)), None, "the node was not initialized");
    assert_eq!(found(Some(10), done("Job", 100, 301), None), None, "a kubelet's clock is ahead");
    let mut unready = bound("a", "ReplicaSet", at(100));
    note(&mut unready, "Ready", "False", at(200));
    assert_eq!(unready.last_event(), Some(at(100)), "readiness is no pod event");
    assert_eq!(Pod { spec: Default::default(), ..unready }.last_event(), None, "it is bound to no node");
}

#[test]
fn pods_only_tell_of_later_pod_events() {
    let check = |last: Option<i64>, told: Option<i64>, want: Option<i64>| {
        assert_eq!(later_pod_event(last.map(at), told.map(at)), want.map(at), "{last:?}, and {told:?} is told");
    };
    check(None, None, None);
    check(None, Some(3), Some(3));
    check(Some(5), None, Some(5));
    check(Some(5), Some(2), Some(5));
    check(Some(5), Some(14), Some(5));
    check(Some(5), Some(15), Some(15));
}

#[test]
fn a_finished_pod_is_a_pod_event_once() {
    let mut scene = Scene::new();
    scene.settle();
    let end = scene.world.world().now();
    scene.world.create(finished("job", "Job", end, end));
    assert!(scene.rings(), "it came and went");
    let recorded = |scene: &Scene| scene.world.claim(&scene.claim.key).last_pod_event_at;
    assert_eq!(recorded(&scene), Some(end));
    scene.settle();
    scene.world.world().cluster.delete_pod("default/job", None, end);
    let _ = scene.rings();
    assert_eq!(recorded(&scene), Some(end), "that it is removed is none");
}

/// The node would look quiet.
#[test]
fn a_pass_without_time_to_record_pod_events_does_nothing_new() {
    let rests_after = |left: SignedDuration| {
        let mut scene = Scene::new();
        scene.settle();
        let now = scene.world.world().now();
        scene.world.create(finished("job", "Job", now, now));
        let (ports, cluster) = (scene.world.ports(), scene.claim.key.cluster.clone());
        let read = || block_on(ports.read::<Disruptions>(&cluster, state::NAME)).unwrap().unwrap();
        let mut known = read();
        known.value.resting = Some(Proposal {
            method: Method::Emptiness,
            decided_at: now,
            execute_after: now,
            nodes: vec!["n".to_owned()],
            replacements: Vec::new(),
            savings_nanos: 0,
        });
        block_on(ports.write(&cluster, &known.value, known.revision)).unwrap();
        let limited = ports.with_time_left(SignedDuration::ZERO, left);
        let report = block_on(crate::handle(Adapters::all(&limited), &Settings::default(), &cluster)).unwrap();
        (read().value.resting.is_some(), report.counted("pod_events"))
    };
    assert_eq!(rests_after(SignedDuration::from_secs(15)), (true, 0), "the proposal waits for the next pass");
    assert_eq!(rests_after(SignedDuration::from_mins(5)), (false, 1), "it is validated, and dropped");
}

use crate::inflight::as_decided;
use std::collections::BTreeMap;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{Container, Pod, ResourceRequirements};
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_claims::{Claim, ClaimKey, ClaimSpec, Deletion, DeletionReason, Event, PodKey, Revision, Stored, step};
use whittle_units::{Quantity, Resources, Timestamp};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn cpu(units: i64) -> Resources {
    Resources::from([("cpu", Quantity::from_units(units))])
}

fn pod(uid: &str) -> Pod {
    let resources = ResourceRequirements { requests: cpu(1), ..ResourceRequirements::default() };
    let mut pod = Pod { metadata: ObjectMeta { uid: uid.into(), ..ObjectMeta::namespaced("default", uid) }, ..Pod::default() };
    pod.spec.containers = vec![Container { name: "c".into(), resources: Some(resources), ..Container::default() }];
    pod
}

/// A claim that was planned for two pods and a daemon of one CPU.
fn planned() -> Claim {
    let key = |uid: &str| PodKey { namespace: "default".into(), name: uid.into(), uid: uid.into() };
    let spec = ClaimSpec {
        node_pool: "default".into(),
        requests: cpu(3),
        instance_types: vec!["small".into(), "large".into()],
        pods: vec![key("a"), key("b")],
        ..ClaimSpec::default()
    };
    Claim::planned(ClaimKey { cluster: "c".into(), name: "default-1".into() }, "uid".into(), spec, now())
}

/// Names of the pods that a decision sees, and the CPUs free on the claim; `None` when it does not count.
#[track_caller]
fn check(claim: &Claim, pods: &[Pod], seen: &[&str], free: Option<i64>) {
    let objects = ClusterObjects { pods: pods.to_vec(), ..ClusterObjects::default() };
    let size = |name: &str, units| InstanceType { name: name.into(), capacity: cpu(units), ..InstanceType::default() };
    let (small, large) = (size("small", 4), size("large", 64));
    let types = BTreeMap::from([("small", &small), ("large", &large)]);
    let decided = as_decided(&objects, &[Stored { value: claim.clone(), revision: Revision(1) }], &types);
    assert_eq!(decided.pods.iter().map(|pod| pod.metadata.uid.as_str()).collect::<Vec<_>>(), seen);
    let mirror = decided.node_claims.first();
    assert_eq!(mirror.map(|mirror| mirror.status.allocatable.get("cpu")), free.map(Quantity::from_units));
    if let Some(mirror) = mirror {
        assert_eq!(mirror.status.capacity.get("cpu"), Quantity::from_units(64), "limits count the largest machine that may come");
    }
}

#[test]
fn pods_that_a_claim_is_on_its_way_for_are_not_planned_twice() {
    check(&planned(), &[pod("a"), pod("b"), pod("c")], &["c"], Some(1));
}

#[test]
fn the_places_of_pods_that_are_gone_are_free_for_their_successors() {
    check(&planned(), &[pod("b"), pod("a-again")], &["a-again"], Some(2));
}

#[test]
fn a_pod_that_runs_elsewhere_by_now_is_seen_there() {
    let mut bound = pod("a");
    bound.spec.node_name = "other".into();
    check(&planned(), &[bound, pod("b")], &["a"], Some(1));
}

#[test]
fn a_claim_that_failed_or_is_to_end_promises_nothing() {
    let failed = Event::LaunchFailed { reason: DeletionReason::InsufficientCapacity, message: String::new() };
    check(&step(&planned(), &failed, now()).unwrap(), &[pod("a")], &["a"], None);
    let begun = step(&planned(), &Event::LaunchBegun { client_token: "t".into() }, now()).unwrap();
    let deletion = Deletion { reason: DeletionReason::Requested, at: now(), deadline: None, message: String::new() };
    let ending = step(&begun, &Event::DeletionAsked(deletion), now()).unwrap();
    check(&ending, &[pod("a")], &["a"], None);
}

use crate::{Snapshot, machine_key};
use serde_json::json;
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Pod, PodSource};
use whittle_api::karpenter::CapacityBuffer;
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_claims::{Claim, ClaimKey, ClaimSpec, Deletion, DeletionReason, Event, Expectation, PodKey, Revision, Stored, step};
use whittle_solver::buffers::{Buffer, resolve};
use whittle_units::{Quantity, Resources, SignedDuration, Timestamp};

fn now() -> Timestamp {
    whittle_testkit::at(0)
}

/// A buffer of `replicas` pods of one CPU.
fn buffer(replicas: i32) -> Buffer {
    named_buffer("spare", "u", replicas)
}

fn named_buffer(name: &str, uid: &str, replicas: i32) -> Buffer {
    let spec = json!({"podTemplateRef": {"name": "t"}, "replicas": replicas});
    let object = json!({"metadata": {"name": name, "namespace": "shop", "uid": uid}, "spec": spec});
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let source = PodSource { template: serde_json::from_value(template).unwrap(), replicas: 1, generation: None };
    resolve(&serde_json::from_value::<CapacityBuffer>(object).unwrap(), Ok(&source), now())
}

/// A claim of four CPUs that was planned for these pods of the buffer.
fn claim(pods: &[usize]) -> Claim {
    let key = |n: &usize| PodKey { namespace: "shop".into(), name: format!("capacity-buffer-spare-{n}"), uid: format!("u-{n}") };
    let spec = ClaimSpec {
        node_pool: "default".into(),
        requests: Resources::from([("cpu", Quantity::from_units(4))]),
        pods: pods.iter().map(key).collect(),
        ..ClaimSpec::default()
    };
    Claim::planned(ClaimKey { cluster: "c".into(), name: "default-1".into() }, "uid".into(), spec, now())
}

fn snapshot_of(read: ClusterObjects, claims: &[Claim]) -> Snapshot {
    let claims = claims.iter().map(|claim| Stored { value: claim.clone(), revision: Revision(1) }).collect();
    Snapshot::of(now(), read, claims, Vec::new(), BTreeMap::new())
}

fn uids(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(|pod| pod.metadata.uid.as_str()).collect()
}

#[test]
fn buffer_pods_with_an_unlaunched_claim_are_not_planned_again_and_keep_its_capacity() {
    let snapshot = snapshot_of(ClusterObjects::default(), &[claim(&[1, 2])]).with_buffers(vec![buffer(3)]);
    assert_eq!(uids(snapshot.input().virtual_pods), ["u-3"]);
    assert_eq!(snapshot.buffers.on_the_way.iter().map(|pod| pod.uid.as_str()).collect::<Vec<_>>(), ["u-1", "u-2"]);
    assert_eq!(snapshot.nodes[0].allocatable().get("cpu"), Quantity::from_units(2), "two CPUs are left beside the two pods");
    // Without the buffer any pod may use the capacity.
    let snapshot = snapshot_of(ClusterObjects::default(), &[claim(&[1, 2])]).with_buffers(Vec::new());
    assert_eq!(snapshot.nodes[0].allocatable().get("cpu"), Quantity::from_units(4));
}

#[test]
fn a_claim_being_deleted_has_no_buffer_pods() {
    let deletion = Deletion::without_deadline(DeletionReason::Empty, now(), "");
    let deleted = step(&claim(&[1]), &Event::DeletionRequested(deletion), now()).unwrap();
    let snapshot = snapshot_of(ClusterObjects::default(), &[deleted]).with_buffers(vec![buffer(1)]);
    assert_eq!(uids(snapshot.input().virtual_pods), ["u-1"]);
}

#[test]
fn a_virtual_pod_with_the_name_of_a_real_one_is_omitted() {
    let named =
        Pod { metadata: ObjectMeta { uid: "real".into(), ..ObjectMeta::namespaced("shop", "capacity-buffer-spare-1") }, ..Pod::default() };
    let read = ClusterObjects { pods: vec![named].into(), ..ClusterObjects::default() };
    let snapshot = snapshot_of(read, &[]).with_buffers(vec![buffer(2)]);
    assert_eq!(uids(snapshot.input().virtual_pods), ["u-2"]);
    let shortfall = &snapshot.buffers.list[0].shortfall;
    assert!(shortfall.starts_with("1 of its 2 pods are kept free: there are pods with the names of the others"), "{shortfall}");
}

#[test]
fn pods_of_buffers_beyond_the_limit_are_not_planned_and_the_buffer_says_so() {
    let buffers = vec![named_buffer("c", "uid-c", 2), named_buffer("b", "uid-b", 4999), named_buffer("a", "uid-a", 5000)];
    let snapshot = snapshot_of(ClusterObjects::default(), &[]).with_buffers(buffers);
    assert_eq!(snapshot.input().virtual_pods.len(), 10_000);
    let list = &snapshot.buffers.list;
    assert_eq!(list.iter().map(|buffer| buffer.pods.len()).collect::<Vec<_>>(), [4999, 4999, 2]);
    assert!(list[1].shortfall.is_empty() && list[2].shortfall.is_empty(), "{:?}", list[1].shortfall);
    assert!(
        list[0].shortfall.starts_with("4999 of its 5000 pods are kept free: all buffers of a cluster together"),
        "{}",
        list[0].shortfall
    );
    assert_eq!(list[0].object.status.replicas, Some(4999));
}

#[test]
fn a_nomination_remains_when_the_node_joins() {
    let mut node = Node { metadata: ObjectMeta::named("ip-10-0-0-1"), ..Node::default() };
    node.metadata.labels.insert(labels::REGISTERED.into(), "true".into());
    node.metadata.labels.insert(labels::INSTANCE_TYPE.into(), "m5.large".into());
    let foreign = Node { metadata: ObjectMeta::named("foreign"), ..Node::default() };
    let claim = claim(&[]);
    node.spec.provider_id = "planned:///default-1".into();
    let until = now() + SignedDuration::from_secs(20);
    let expected = Expectation { nominated_until: Some(until), buffer_pods: 0 };
    let expected = BTreeMap::from([("default-1".to_owned(), expected), ("foreign".to_owned(), expected)]);
    let read = ClusterObjects { nodes: vec![node, foreign], ..ClusterObjects::default() };
    let mut snapshot = snapshot_of(read, std::slice::from_ref(&claim)).expecting(expected);
    let nominated = |snapshot: &Snapshot| -> Vec<(String, String, bool)> {
        snapshot.nodes.iter().map(|n| (n.name().to_owned(), machine_key(n).to_owned(), n.nominated_until == Some(until))).collect()
    };
    let both = [("foreign".to_owned(), "foreign".to_owned(), true), ("ip-10-0-0-1".to_owned(), "default-1".to_owned(), true)];
    let sorted = |mut list: Vec<_>| {
        list.sort();
        list
    };
    assert_eq!(sorted(nominated(&snapshot)), both);
    snapshot.show([&claim]);
    assert!(snapshot.nodes.iter().filter(|n| n.name() == "foreign").all(|n| n.nominated_until == Some(until)), "it remains after a change");
}

//! Claims that cannot be read: their mirrors represent them, and their machines are not changed.

use crate::Snapshot;
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_model::state::StateNode;
use whittle_units::{Quantity, Resources};

const ID: &str = "aws:///z/i-1";

fn serving() -> (NodeClaim, Node) {
    let mut mirror = NodeClaim { metadata: ObjectMeta::named("default-1"), ..NodeClaim::default() };
    mirror.status.provider_id = ID.into();
    mirror.status.allocatable = Resources::from([("cpu", Quantity::from_units(4))]);
    let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    node.spec.provider_id = ID.into();
    node.metadata.labels.insert(labels::REGISTERED.into(), "true".into());
    node.metadata.labels.insert(labels::INITIALIZED.into(), "true".into());
    (mirror, node)
}

fn snapshot_hiding(mirror: NodeClaim, nodes: Vec<Node>, hidden: &[&str]) -> Snapshot {
    let read = ClusterObjects { node_claims: vec![mirror], nodes, ..ClusterObjects::default() };
    let now = whittle_testkit::at(0);
    Snapshot::of(now, read, Vec::new(), Vec::new(), BTreeMap::new()).hiding(hidden.iter().map(ToString::to_string).collect())
}

fn only(snapshot: &Snapshot) -> &StateNode {
    let [node] = snapshot.nodes.as_slice() else { panic!("one machine: {:?}", snapshot.nodes) };
    node
}

#[test]
fn the_machine_of_an_unreadable_claim_accepts_pods_and_is_not_disrupted() {
    let (mirror, node) = serving();
    let snapshot = snapshot_hiding(mirror, vec![node], &["default-1"]);
    let machine = only(&snapshot);
    assert!(machine.managed() && machine.unreadable.as_deref() == Some("the claim default-1"), "{machine:?}");
    assert!(!machine.marked_for_deletion, "its pods are not rescheduled");
    assert!(snapshot.is_hidden(&"default-1".into()) && !snapshot.is_hidden(&"default-2".into()));
}

#[test]
fn a_tainted_node_of_an_unreadable_claim_counts_as_deleting() {
    let (mirror, mut node) = serving();
    node.spec.taints.push(Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule));
    assert!(
        only(&snapshot_hiding(mirror, vec![node], &["default-1"])).marked_for_deletion,
        "its pods are rescheduled, and it accepts no others"
    );
}

#[test]
fn an_unreadable_claim_without_a_machine_has_no_capacity() {
    let (mut mirror, _) = serving();
    mirror.status.provider_id.clear();
    let snapshot = snapshot_hiding(mirror, Vec::new(), &["default-1"]);
    let room = only(&snapshot).claim.as_ref().map(|claim| claim.status.allocatable.get("cpu"));
    assert_eq!(room, Some(Quantity::ZERO));
}

#[test]
fn a_mirror_without_a_claim_is_ignored() {
    let (mirror, node) = serving();
    let snapshot = snapshot_hiding(mirror, vec![node], &["default-2"]);
    assert!(snapshot.objects.node_claims.is_empty());
}

//! The contract of [`Nodes`].

use super::{ClusterPlace, launched_claim, no_change, node, owner, read, until};
use crate::{ClusterError, ClusterReader, Mirrors, NodePatch, Nodes, Scope};
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::labels;
use whittle_claims::mirror;

/// Changes of Nodes, as a function with this port makes them.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn nodes(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Mirrors + Nodes), tag: &str) {
    a_patch_changes_what_it_names(place, cluster, &format!("patched-{tag}")).await;
    a_patch_needs_the_resource_version_that_was_read(place, cluster, &format!("stale-{tag}")).await;
    a_patch_of_a_uid_changes_no_other_node(place, cluster, &format!("uid-{tag}")).await;
    a_deletion_of_a_uid_deletes_no_other_node(place, cluster, &format!("deleted-{tag}")).await;
    an_owner_is_the_stored_object(place, cluster, &format!("owned-{tag}")).await;
    a_finalizer_holds_a_node_until_it_is_removed(place, cluster, &format!("held-{tag}")).await;
}

async fn found(place: &impl ClusterPlace, reader: &impl ClusterReader, name: &str) -> Option<Node> {
    read(place, reader, Scope::Nodes).await.nodes.into_iter().find(|node| node.metadata.name == name)
}

/// Without the taints that controllers put on and take off.
fn taints(node: &Node) -> Vec<(&str, TaintEffect)> {
    let ours = node.spec.taints.iter().filter(|taint| !taint.key.starts_with("node."));
    ours.map(|taint| (taint.key.as_str(), taint.effect)).collect()
}

async fn patched(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Nodes), name: &str, patch: &NodePatch) -> Node {
    cluster.patch_node(place.cluster(), name, "", patch).await.expect("without a resource version a Node is patched as it is");
    found(place, cluster, name).await.expect("it is there")
}

async fn a_patch_changes_what_it_names(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Nodes), name: &str) {
    let labelled = NodePatch { labels: [("a".to_owned(), "1".to_owned())].into(), ..no_change() };
    let missing = cluster.patch_node(place.cluster(), name, "", &labelled).await;
    assert!(matches!(missing, Err(ClusterError::NotFound { .. })), "{missing:?}");
    let missing = cluster.patch_node(place.cluster(), name, "", &NodePatch { disown: true, ..no_change() }).await;
    assert!(matches!(missing, Err(ClusterError::NotFound { .. })), "{missing:?}");
    place.create(node(name)).await;
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let full = NodePatch {
        labels: [pair(labels::REGISTERED, "true"), pair("a", "1")].into(),
        annotations: [pair("a", "1"), pair("b", "ünïcode \"quoted\"\n")].into(),
        add_taints: vec![Taint::new("startup", TaintEffect::NoSchedule), Taint::new("startup", TaintEffect::NoExecute)],
        add_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()),
        ..no_change()
    };
    let node = patched(place, cluster, name, &full).await;
    assert_eq!((node.metadata.label(labels::REGISTERED), node.metadata.label("for")), (Some("true"), Some(name)));
    assert_eq!((node.metadata.annotation("a"), node.metadata.annotation("b")), (Some("1"), Some("ünïcode \"quoted\"\n")));
    assert_eq!(taints(&node), [("startup", TaintEffect::NoSchedule), ("startup", TaintEffect::NoExecute)]);
    assert_eq!(node.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    assert_eq!(node.status.allocatable.get("cpu").to_string(), "4");

    let again = patched(place, cluster, name, &full).await;
    assert_eq!((taints(&again), again.metadata.finalizers.len()), (taints(&node), 1), "what is there already is not added again");
    let other_value = Taint { value: "x".to_owned(), ..Taint::new("startup", TaintEffect::NoSchedule) };
    let undo = NodePatch {
        labels: [pair("a", "2")].into(),
        remove_labels: vec!["for".to_owned(), "never-there".to_owned()],
        remove_annotations: vec!["a".to_owned()],
        remove_taints: vec![other_value],
        remove_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()),
        ..no_change()
    };
    let node = patched(place, cluster, name, &undo).await;
    assert_eq!((node.metadata.label("a"), node.metadata.label("for")), (Some("2"), None));
    assert_eq!((node.metadata.annotation("a"), node.metadata.annotation("b").is_some()), (None, true));
    assert_eq!(taints(&node), [("startup", TaintEffect::NoExecute)], "by key and effect");
    assert_eq!(node.metadata.finalizers, [""; 0]);
    cluster.delete_node(place.cluster(), name, "").await.expect("a Node can be deleted");
    assert_eq!(found(place, cluster, name).await, None);
}

async fn a_patch_needs_the_resource_version_that_was_read(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Nodes), name: &str) {
    place.create(node(name)).await;
    let patch = NodePatch { labels: [("a".to_owned(), "1".to_owned())].into(), ..no_change() };
    let stale = cluster.patch_node(place.cluster(), name, "999999999", &patch).await;
    assert!(matches!(stale, Err(ClusterError::Conflict { .. })), "{stale:?}");
    assert_eq!(found(place, cluster, name).await.expect("it is there").metadata.label("a"), None);
    // The control plane changes its taints now and then.
    until(place, "a patch of what was read", async || {
        let version = found(place, cluster, name).await.expect("it is there").metadata.resource_version;
        match cluster.patch_node(place.cluster(), name, &version, &patch).await {
            Err(ClusterError::Conflict { .. }) => None,
            answer => {
                answer.expect("the patch is accepted");
                Some(())
            }
        }
    })
    .await;
    assert_eq!(found(place, cluster, name).await.expect("it is there").metadata.label("a"), Some("1"));
    cluster.delete_node(place.cluster(), name, "").await.expect("a Node can be deleted");
}

async fn a_patch_of_a_uid_changes_no_other_node(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Nodes), name: &str) {
    place.create(node(name)).await;
    let uid = found(place, cluster, name).await.expect("it is there").metadata.uid;
    let patch = |uid: &str| NodePatch {
        uid: uid.to_owned(),
        labels: [("a".to_owned(), "1".to_owned())].into(),
        add_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()),
        ..no_change()
    };
    let another = cluster.patch_node(place.cluster(), name, "", &patch("another-uid")).await;
    assert!(matches!(another, Err(ClusterError::Conflict { .. })), "{another:?}");
    // Of labels alone, for which the Node need not be looked at.
    let entry = |uid: &str| NodePatch { uid: uid.to_owned(), labels: [("b".to_owned(), "1".to_owned())].into(), ..no_change() };
    let another = cluster.patch_node(place.cluster(), name, "", &entry("another-uid")).await;
    assert!(matches!(another, Err(ClusterError::Conflict { .. })), "{another:?}");
    let as_before = found(place, cluster, name).await.expect("it is there").metadata;
    assert_eq!((as_before.label("a"), as_before.label("b")), (None, None));
    let missing = cluster.patch_node(place.cluster(), &format!("no-{name}"), "", &entry(&uid)).await;
    assert!(matches!(missing, Err(ClusterError::NotFound { .. })), "{missing:?}");
    let meta = patched(place, cluster, name, &patch(&uid)).await.metadata;
    assert_eq!((meta.label("a"), &meta.finalizers[..]), (Some("1"), &[labels::TERMINATION_FINALIZER.to_owned()][..]));
    assert_eq!(patched(place, cluster, name, &entry(&uid)).await.metadata.label("b"), Some("1"));
    patched(place, cluster, name, &NodePatch { remove_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()), ..no_change() }).await;
    cluster.delete_node(place.cluster(), name, "").await.expect("a Node can be deleted");
}

async fn a_deletion_of_a_uid_deletes_no_other_node(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Nodes), name: &str) {
    place.create(node(name)).await;
    let uid = found(place, cluster, name).await.expect("it is there").metadata.uid;
    cluster.delete_node(place.cluster(), name, "another-uid").await.expect("the Node of that uid is gone");
    let kept = found(place, cluster, name).await.expect("another one's deletion is not its own");
    assert!(!kept.metadata.is_deleting());
    cluster.delete_node(place.cluster(), name, &uid).await.expect("a Node can be deleted");
    assert_eq!(found(place, cluster, name).await, None);
    cluster.delete_node(place.cluster(), name, &uid).await.expect("a second deletion changes nothing");
}

async fn an_owner_is_the_stored_object(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Mirrors + Nodes), name: &str) {
    let claim = launched_claim(place, name);
    cluster.apply_mirror(place.cluster(), &mirror(&claim)).await.expect("a mirror can be written");
    let stored = super::claim_object(place, cluster, name).await.expect("it was written");
    place.create(node(name)).await;
    let by = |owner| NodePatch { owner: Some(owner), ..no_change() };
    // A claim's uid is its own, not that of the object that shows it.
    let node = patched(place, cluster, name, &by(owner("NodeClaim", name, &claim.uid))).await;
    let uids = |node: &Node| node.metadata.owner_references.iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>();
    assert_eq!(uids(&node), [stored.metadata.uid.as_str()]);
    let again = patched(place, cluster, name, &by(owner("NodeClaim", name, &claim.uid))).await;
    assert_eq!(uids(&again), uids(&node));
    let absent = patched(place, cluster, name, &by(owner("NodeClaim", "never-made", "some-uid"))).await;
    assert_eq!(uids(&absent), uids(&node), "the garbage collector would delete a Node whose owner does not exist");
    let disowned = patched(place, cluster, name, &NodePatch { disown: true, ..no_change() }).await;
    assert_eq!(uids(&disowned), [""; 0]);
    cluster.delete_node(place.cluster(), name, "").await.expect("a Node can be deleted");
    cluster.delete_mirror(place.cluster(), name, "").await.expect("a mirror can be deleted");
    cluster.release_mirror(place.cluster(), name, "").await.expect("a mirror can be released");
}

async fn a_finalizer_holds_a_node_until_it_is_removed(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Nodes), name: &str) {
    place.create(node(name)).await;
    let held = NodePatch { unless_deleting: true, add_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()), ..no_change() };
    patched(place, cluster, name, &held).await;
    cluster.delete_node(place.cluster(), name, "").await.expect("a Node can be deleted");
    let marked = found(place, cluster, name).await.expect("the finalizer holds it");
    assert!(marked.metadata.is_deleting());
    cluster.delete_node(place.cluster(), name, "").await.expect("a second deletion changes nothing");
    let other = NodePatch { add_finalizer: Some("example.com/late".to_owned()), ..no_change() };
    let late = patched(place, cluster, name, &other).await;
    assert_eq!(late.metadata.finalizers, [labels::TERMINATION_FINALIZER], "nothing is added to what is being deleted");
    let released = NodePatch { remove_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()), ..no_change() };
    let kept = cluster.patch_node(place.cluster(), name, "", &NodePatch { unless_deleting: true, ..released.clone() }).await;
    assert!(matches!(kept, Err(ClusterError::Conflict { .. })), "{kept:?}");
    let as_before = found(place, cluster, name).await.expect("the finalizer still holds it");
    assert_eq!(as_before.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    cluster.patch_node(place.cluster(), name, "", &released).await.expect("a finalizer can be removed");
    assert_eq!(found(place, cluster, name).await, None);
    cluster.delete_node(place.cluster(), name, "").await.expect("what is gone is deleted");
}

//! The contracts of [`StatusWriter`].

use super::read::{buffer, overlay};
use super::{ClusterPlace, node, read};
use crate::{ClusterEvent, ClusterReader, Involved, Scope, StatusWriter};
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeOverlay, NodePool};
use whittle_api::{Condition, ConditionStatus, ObjectMeta, conditions, labels};

/// Events, as every function publishes them.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn events(place: &impl ClusterPlace, cluster: &(impl ClusterReader + StatusWriter), tag: &str) {
    let name = format!("told-{tag}");
    place.create(node(&name)).await;
    let reason = format!("Told{}", tag.replace('-', ""));
    let event = ClusterEvent { warning: true, ..ClusterEvent::normal(Involved::node(&name), &reason, "a budget forbids it".to_owned()) };
    for _ in 0..2 {
        cluster.publish(place.cluster(), &event).await.expect("an event can be published");
    }
    let shown = place.events(&reason).await;
    let [shown] = &shown[..] else { panic!("the same within two minutes is one: {shown:?}") };
    assert_eq!(
        (shown.warning, shown.kind.as_str(), shown.name.as_str(), shown.message.as_str()),
        (true, "Node", name.as_str(), "a budget forbids it")
    );
    let nodes = read(place, cluster, Scope::Nodes).await.nodes;
    let node = nodes.iter().find(|node| node.metadata.name == name).expect("it was created");
    assert_eq!(shown.uid, node.metadata.uid, "`kubectl describe` finds events by uid");
    let reason = format!("{reason}Pool");
    let about =
        Involved::object(&NodePool { metadata: ObjectMeta { uid: "u".to_owned(), ..ObjectMeta::named("gone") }, ..NodePool::default() });
    let long = ClusterEvent::normal(about, &reason, "é".repeat(600));
    cluster.publish(place.cluster(), &long).await.expect("an event about what is gone, and longer than allowed, can be published");
    let shown = place.events(&reason).await;
    assert_eq!(shown.len(), 1);
    assert!(!shown[0].warning && shown[0].message.starts_with('é') && shown[0].message.len() <= 1024, "{}", shown[0].message.len());
    place.delete("Node", "", &name).await;
}

fn ready(place: &impl ClusterPlace, reason: &str) -> Vec<Condition> {
    let mut all = Vec::new();
    conditions::set(&mut all, conditions::READY, ConditionStatus::True, reason, "", place.now());
    all
}

fn reason_of(conditions: &[Condition]) -> Option<&str> {
    conditions::find(conditions, conditions::READY).map(|ready| ready.reason.as_str())
}

/// The status of NodePools.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn pool_status(place: &impl ClusterPlace, cluster: &(impl ClusterReader + StatusWriter), tag: &str) {
    let reason = format!("By{}", tag.replace('-', ""));
    let find = async || {
        let pools = read(place, cluster, Scope::Nodes).await.node_pools;
        pools.into_iter().find(|pool| pool.metadata.name == "default").expect("the place has it")
    };
    let before = find().await;
    let mut pool = before.clone();
    pool.status.conditions = ready(place, &reason);
    pool.spec.weight = Some(99);
    pool.metadata.labels.insert("of".to_owned(), "ours".to_owned());
    cluster.write_node_pool_status(place.cluster(), &pool).await.expect("a status can be written");
    let after = find().await;
    assert_eq!(reason_of(&after.status.conditions), Some(reason.as_str()));
    assert_eq!((&after.spec, after.metadata.label("of")), (&before.spec, None), "a status is all that is written");
    assert_eq!(after.metadata.generation, before.metadata.generation);
    let theirs = serde_json::json!({"resources": {"hugepages-2Mi": "0", "example.com/theirs": "1"}});
    place.change_status(NodePool::KIND, "default", theirs).await;
    assert_ne!(find().await.status.resources, pool.status.resources);
    cluster.write_node_pool_status(place.cluster(), &pool).await.expect("a status can be written");
    assert_eq!(find().await.status.resources, pool.status.resources, "resources that another controller left are removed");
    let mut converted = pool.clone();
    converted.metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), "Provisioner".to_owned());
    converted.status.conditions = ready(place, "Converted");
    cluster.write_node_pool_status(place.cluster(), &converted).await.expect("a Provisioner gets no status");
    assert_eq!(reason_of(&find().await.status.conditions), Some(reason.as_str()), "nor does the NodePool of its name");
    let gone = NodePool { metadata: ObjectMeta::named("gone"), ..pool };
    cluster.write_node_pool_status(place.cluster(), &gone).await.expect("the status of what is gone is written");
    assert!(read(place, cluster, Scope::Nodes).await.node_pools.iter().all(|pool| pool.metadata.name != "gone"));
}

/// The status of EC2NodeClasses, with our hash annotations and finalizer.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn class_status(place: &impl ClusterPlace, cluster: &(impl ClusterReader + StatusWriter)) {
    let name = "with-status";
    place
        .create(serde_json::json!({
            "apiVersion": "karpenter.k8s.aws/v1",
            "kind": "EC2NodeClass",
            "metadata": {"name": name, "finalizers": ["example.com/backup"], "annotations": {"note": "keep"}},
            "spec": {"role": "node-role", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                     "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}]},
        }))
        .await;
    let find = async || read(place, cluster, Scope::Nodes).await.node_classes.into_iter().find(|class| class.metadata.name == name);
    let before = find().await.expect("it was created");
    let mut class = before.clone();
    class.status.conditions = ready(place, "Ready");
    class.metadata.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), "123".to_owned());
    class.metadata.annotations.insert("not-ours".to_owned(), "1".to_owned());
    class.metadata.finalizers = vec![labels::NODE_CLASS_FINALIZER.to_owned()];
    cluster.write_node_class_status(place.cluster(), &class).await.expect("a status can be written");
    let after = find().await.expect("it is there");
    assert_eq!(reason_of(&after.status.conditions), Some("Ready"));
    assert_eq!((after.metadata.annotation(labels::NODE_CLASS_HASH), after.metadata.annotation("note")), (Some("123"), Some("keep")));
    assert_eq!(after.metadata.annotation("not-ours"), None, "of annotations only the hashes are written");
    assert_eq!(after.metadata.finalizers, ["example.com/backup", labels::NODE_CLASS_FINALIZER], "that of another stays");
    assert_eq!(after.spec, before.spec);

    place.delete("EC2NodeClass", "", name).await;
    let mut released = find().await.expect("its finalizers hold it");
    assert!(released.metadata.is_deleting());
    released.metadata.finalizers.clear();
    cluster.write_node_class_status(place.cluster(), &released).await.expect("our finalizer can be removed");
    assert_eq!(find().await.expect("the other one holds it").metadata.finalizers, ["example.com/backup"]);
    let gone = Ec2NodeClass { metadata: ObjectMeta::named("gone"), ..class };
    cluster.write_node_class_status(place.cluster(), &gone).await.expect("the status of what is gone is written");
}

/// The status of NodeOverlays and CapacityBuffers.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn plan_status(place: &impl ClusterPlace, cluster: &(impl ClusterReader + StatusWriter), tag: &str) {
    let name = format!("planned-{tag}");
    place.create(overlay(&name)).await;
    place.create(buffer(&name)).await;
    let find = async || {
        let all = read(place, cluster, Scope::All).await;
        let overlay = all.node_overlays.into_iter().find(|overlay| overlay.metadata.name == name).expect("it was created");
        (overlay, all.capacity_buffers.into_iter().find(|buffer| buffer.metadata.name == name).expect("it was created"))
    };
    let (mut overlay, mut buffer): (NodeOverlay, CapacityBuffer) = find().await;
    overlay.status.conditions = ready(place, "Applied");
    buffer.status.conditions = ready(place, "Ready");
    buffer.status.replicas = Some(3);
    cluster.write_node_overlay_status(place.cluster(), &overlay).await.expect("a status can be written");
    cluster.write_capacity_buffer_status(place.cluster(), &buffer).await.expect("a status can be written");
    let after = find().await;
    assert_eq!(reason_of(&after.0.status.conditions), Some("Applied"));
    assert_eq!((reason_of(&after.1.status.conditions), after.1.status.replicas), (Some("Ready"), Some(3)));
    buffer.status.replicas = None;
    cluster.write_capacity_buffer_status(place.cluster(), &buffer).await.expect("a status can be written");
    assert_eq!(find().await.1.status.replicas, None, "what the status lacks is removed");
    place.delete("NodeOverlay", "", &name).await;
    place.delete("CapacityBuffer", "default", &name).await;
    cluster.write_node_overlay_status(place.cluster(), &overlay).await.expect("the status of what is gone is written");
    cluster.write_capacity_buffer_status(place.cluster(), &buffer).await.expect("the status of what is gone is written");
}

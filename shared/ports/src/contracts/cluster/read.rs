//! The contracts of [`ClusterReader`] and [`WorkloadReader`].

use super::{ClusterPlace, node, read};
use crate::{ClusterReader, ObjectKind, Presence, Scope, WorkloadReader};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_api::ClusterObjects;
use whittle_api::k8s::PodSourceKind;

/// Reads, as a function with this port makes them.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn cluster_reader(place: &impl ClusterPlace, reader: &impl ClusterReader, tag: &str) {
    let name = format!("read-{tag}");
    for object in objects(&name) {
        place.create(object).await;
    }
    everything_is_read(place, reader, &name).await;
    what_decides_about_nodes_has_no_pods(place, reader, &name).await;
    an_object_is_looked_up_by_name(place, reader, &name).await;
    a_karpenter_is_seen_while_it_runs(place, reader).await;
    place.delete("Pod", "default", &name).await;
    for (kind, namespace) in [("Node", ""), ("NodeOverlay", ""), ("CapacityBuffer", "default"), ("DaemonSet", "default")] {
        place.delete(kind, namespace, &name).await;
    }
}

fn objects(name: &str) -> Vec<Value> {
    let template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"nodeSelector": {"for": "nobody"}, "containers": [{"name": "c", "image": "fake"}]},
    });
    vec![
        node(name),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
               "spec": template["spec"]}),
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "default"},
               "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}),
        overlay(name),
        buffer(name),
    ]
}

pub(super) fn overlay(name: &str) -> Value {
    json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": {
        "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}], "priceAdjustment": "+10%"}})
}

pub(super) fn buffer(name: &str) -> Value {
    json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": name, "namespace": "default"},
           "spec": {"podTemplateRef": {"name": "absent"}, "replicas": 1}})
}

async fn everything_is_read(place: &impl ClusterPlace, reader: &impl ClusterReader, name: &str) {
    let all = read(place, reader, Scope::All).await;
    let pod = all.pods.iter().find(|pod| pod.metadata.name == name).expect("a pod without a node");
    assert!(!pod.is_bound() && !pod.metadata.uid.is_empty() && pod.metadata.creation_timestamp.is_some());
    let node = all.nodes.iter().find(|node| node.metadata.name == name).expect("a Node");
    assert_eq!(
        (node.spec.provider_id.as_str(), node.status.capacity.get("pods").to_string().as_str()),
        (format!("aws:///us-west-2a/i-0{name}").as_str(), "20")
    );
    assert!(all.node_pools.iter().any(|pool| pool.metadata.name == "default"));
    assert!(all.node_classes.iter().any(|class| class.metadata.name == "default"));
    assert!(all.namespaces.iter().any(|namespace| namespace.metadata.name == "kube-system"));
    let overlay = all.node_overlays.iter().find(|overlay| overlay.metadata.name == name).expect("a NodeOverlay");
    assert_eq!(overlay.spec.price_adjustment.as_deref(), Some("+10%"));
    assert!(all.capacity_buffers.iter().any(|buffer| buffer.metadata.key() == format!("default/{name}")));
    assert!(all.daemon_sets.iter().any(|set| set.metadata.name == name));
    assert_eq!((all.unreadable.len(), all.absent_kinds.len()), (0, 0), "{:?} {:?}", all.unreadable, all.absent_kinds);
}

async fn what_decides_about_nodes_has_no_pods(place: &impl ClusterPlace, reader: &impl ClusterReader, name: &str) {
    let seen = read(place, reader, Scope::Nodes).await;
    assert!(seen.nodes.iter().any(|node| node.metadata.name == name) && !seen.node_pools.is_empty() && !seen.node_classes.is_empty());
    assert_eq!((seen.pods.len(), seen.daemon_sets.len(), seen.node_overlays.len()), (0, 0, 0));
    let joining = read(place, reader, Scope::NodesAndClaims).await;
    let names = |objects: &ClusterObjects| objects.nodes.iter().map(|node| node.metadata.name.clone()).collect::<BTreeSet<_>>();
    assert_eq!((names(&joining), &joining.node_claims), (names(&seen), &seen.node_claims));
    assert_eq!((joining.node_pools.len(), joining.node_classes.len(), joining.unreadable.len()), (0, 0, 0));
}

async fn an_object_is_looked_up_by_name(place: &impl ClusterPlace, reader: &impl ClusterReader, name: &str) {
    let look_up = async |kind, name: &str| reader.look_up(place.cluster(), kind, name).await.expect("the API server answers");
    let seen = read(place, reader, Scope::Nodes).await;
    let pool = seen.node_pools.iter().find(|pool| pool.metadata.name == "default").expect("the place has it");
    let class = seen.node_classes.iter().find(|class| class.metadata.name == "default").expect("the place has it");
    for (kind, metadata) in [(ObjectKind::NodePool, &pool.metadata), (ObjectKind::NodeClass, &class.metadata)] {
        let expected = Presence::Exists { uid: metadata.uid.clone(), generation: metadata.generation, provider_id: String::new() };
        assert_eq!(look_up(kind, "default").await, expected);
    }
    let Presence::Exists { uid, provider_id, .. } = look_up(ObjectKind::Node, name).await else { panic!("the Node exists") };
    let node = seen.nodes.iter().find(|node| node.metadata.name == name).expect("it was read");
    assert_eq!((&uid, &provider_id), (&node.metadata.uid, &node.spec.provider_id));
    for kind in [ObjectKind::NodePool, ObjectKind::NodeClaim, ObjectKind::NodeClass, ObjectKind::Node] {
        assert_eq!(look_up(kind, "absent").await, Presence::NotFound, "{kind:?}");
    }
    for kind in [ObjectKind::Provisioner, ObjectKind::NodeTemplate] {
        assert_eq!(look_up(kind, "default").await, Presence::NotFound, "{kind:?} has a name space of its own");
    }
}

async fn a_karpenter_is_seen_while_it_runs(place: &impl ClusterPlace, reader: &impl ClusterReader) {
    for scope in [Scope::Nodes, Scope::All] {
        assert_eq!(read(place, reader, scope).await.karpenter, []);
        place.run_karpenter(true).await;
        let signs = read(place, reader, scope).await.karpenter;
        assert!(
            signs.iter().any(|sign| sign.object.starts_with("lease/karpenter-leader-election") && sign.renewed_at.is_some()),
            "{signs:?}"
        );
        place.run_karpenter(false).await;
    }
    assert_eq!(read(place, reader, Scope::All).await.karpenter, []);
}

/// Reads of workloads, as a function with this port makes them.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn workload_reader(place: &impl ClusterPlace, reader: &(impl ClusterReader + WorkloadReader), tag: &str) {
    let name = format!("work-{tag}");
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": name, "image": "fake"}]}});
    let metadata = json!({"name": name, "namespace": "default"});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": template});
    let mut stateful = spec.clone();
    stateful["serviceName"] = json!(name);
    for object in [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": labels, "ports": [{"port": 80}]}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("{name}-open"), "namespace": "default"},
               "spec": {"ports": [{"port": 80}]}}),
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": stateful}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}),
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template}),
    ] {
        place.create(object).await;
    }
    let selectors = reader.selectors(place.cluster()).await.expect("the API server answers");
    let services: Vec<_> = selectors.services.iter().filter(|(_, service, _)| service.starts_with(&name)).collect();
    assert_eq!(services.len(), 1, "a Service without selector selects nothing: {services:?}");
    assert_eq!(services[0].2["app"], name);
    let owned = selectors.owners.values().filter(|selector| selector.match_labels.get("app") == Some(&name)).count();
    assert!(owned >= 2, "the ReplicaSet and the StatefulSet: {:?}", selectors.owners);
    for kind in [PodSourceKind::PodTemplate, PodSourceKind::Deployment, PodSourceKind::ReplicaSet, PodSourceKind::StatefulSet] {
        let found = async |namespace, name: &str| reader.pod_source(place.cluster(), kind, namespace, name).await.expect("it answers");
        let source = found("default", &name).await.unwrap_or_else(|| panic!("{kind:?} exists")).expect("it can be read");
        assert_eq!(source.template.spec.containers[0].name, name, "{kind:?}");
        assert!(found("default", "absent").await.is_none() && found("absent", &name).await.is_none(), "{kind:?}");
        for text in ["not a name", "../default", "a?b"] {
            assert!(found("default", text).await.is_none(), "{kind:?} {text:?}");
        }
    }
    for kind in ["ReplicaSet", "StatefulSet", "Deployment", "PodTemplate", "Service"] {
        place.delete(kind, "default", &name).await;
    }
    place.delete("Service", "default", &format!("{name}-open")).await;
}

//! What a function has no port for, its token may not do either, as far as the roles of `infra/cluster/rbac.yaml` tell functions apart:
//! reads, workloads included, and events are one role's, which all have.

use crate::cluster_api::Stage;
use crate::cluster_place::Place;
use crate::functions_in_a_cluster::{clusters_of, groups, ports};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_api::karpenter::{CapacityBuffer, NodeOverlay};
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{Claim, Function, PodKey, mirror};
use whittle_cluster::Clusters;
use whittle_ports::contracts::ClusterPlace;
use whittle_ports::{ClusterError, ClusterReader, Evictions, Mirrors, NodePatch, Nodes, Scope, StatusWriter, contracts};
use whittle_tests::clock::FixedClock;
use whittle_tests::kubernetes::{TestAccess, client};

const NAME: &str = "forbidden";

/// A mirror, a Node, a pod without a node, an overlay and a buffer.
async fn objects(stage: &Stage, place: &Place) -> (Claim, PodKey) {
    let mut claim = contracts::planned_claim(&stage.name, NAME, FixedClock::new().now);
    claim.spec.node_class.kind = "EC2NodeClass".to_owned();
    claim.spec.node_class.group = "karpenter.k8s.aws".to_owned();
    claim.spec.node_class.name = "default".to_owned();
    stage.clusters.apply_mirror(&stage.name, &mirror(&claim)).await.expect("a mirror can be created");
    place.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME, "finalizers": ["example.com/backup"]}})).await;
    let containers = json!([{"name": "c", "image": "fake"}]);
    let spec = json!({"schedulingGates": [{"name": "a.example/b"}], "containers": containers});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME, "namespace": "default"}, "spec": spec});
    let pod = place.ask("POST", "/api/v1/namespaces/default/pods", Some(&pod)).await;
    place
        .create(json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": NAME}, "spec": {
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}], "priceAdjustment": "+10%"}}))
        .await;
    place
        .create(json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
            "metadata": {"name": NAME, "namespace": "default"}, "spec": {"podTemplateRef": {"name": "absent"}, "replicas": 1}}))
        .await;
    let uid = pod["metadata"]["uid"].as_str().expect("it was created").to_owned();
    (claim, PodKey { namespace: "default".to_owned(), name: NAME.to_owned(), uid })
}

/// What those objects are, but for what the control plane itself writes to a Node.
async fn seen(stage: &Stage) -> ClusterObjects {
    let mut seen = stage.clusters.read(&stage.name, Scope::All, None).await.expect("the API server answers");
    seen.node_claims.retain(|claim| claim.metadata.name == NAME);
    seen.pods.retain(|pod| pod.metadata.name == NAME);
    seen.node_overlays.retain(|overlay| overlay.metadata.name == NAME);
    seen.nodes.retain(|node| node.metadata.name == NAME);
    for node in &mut seen.nodes {
        node.metadata.resource_version.clear();
        node.metadata.annotations.clear();
        node.status = whittle_api::k8s::NodeStatus::default();
        node.spec.taints.retain(|taint| !taint.key.starts_with("node.kubernetes.io/"));
    }
    let ClusterObjects { node_pools, node_classes, node_claims, node_overlays, capacity_buffers, nodes, pods, .. } = seen;
    ClusterObjects { node_pools, node_classes, node_claims, node_overlays, capacity_buffers, nodes, pods, ..ClusterObjects::default() }
}

type Answers = Vec<(&'static str, Result<(), ClusterError>)>;

async fn mirror_calls(cluster: &Clusters<TestAccess>, stage: &Stage, claim: &Claim) -> Answers {
    let mut fresh = mirror(claim);
    fresh.metadata.name = format!("{NAME}-new");
    let mut changed = mirror(claim);
    changed.metadata.labels.insert("changed".to_owned(), "yes".to_owned());
    vec![
        ("create a mirror", cluster.apply_mirror(&stage.name, &fresh).await),
        ("update a mirror", cluster.apply_mirror(&stage.name, &changed).await),
        ("delete a mirror", cluster.delete_mirror(&stage.name, NAME, "").await),
        ("release a mirror", cluster.release_mirror(&stage.name, NAME, "").await),
        ("hand over a mirror", cluster.hand_over_mirror(&stage.name, NAME).await),
    ]
}

async fn node_calls(cluster: &Clusters<TestAccess>, stage: &Stage) -> Answers {
    let labelled = NodePatch { labels: [(labels::REGISTERED.to_owned(), "true".to_owned())].into(), ..NodePatch::default() };
    let released = NodePatch { remove_finalizer: Some("example.com/backup".to_owned()), ..NodePatch::default() };
    vec![
        ("label a Node", cluster.patch_node(&stage.name, NAME, "", &labelled).await),
        ("release a Node", cluster.patch_node(&stage.name, NAME, "", &released).await),
        ("delete a Node", cluster.delete_node(&stage.name, NAME, "").await),
    ]
}

async fn eviction_calls(cluster: &Clusters<TestAccess>, stage: &Stage, pod: &PodKey) -> Answers {
    vec![
        ("evict a pod", cluster.evict(&stage.name, pod).await),
        ("delete a pod", cluster.delete_pod(&stage.name, pod, 0).await),
        (
            "delete a pod that does not exist",
            cluster.delete_pod(&stage.name, &PodKey { name: "absent".to_owned(), ..pod.clone() }, 0).await,
        ),
    ]
}

async fn class_calls(cluster: &Clusters<TestAccess>, stage: &Stage, before: &ClusterObjects) -> Answers {
    let class = before.node_classes.iter().find(|class| class.metadata.name == "default").expect("it was applied");
    let mut hashed = class.clone();
    hashed.metadata.annotations.insert(labels::NODE_CLASS_HASH.to_owned(), "1".to_owned());
    vec![
        ("write a class's hash", cluster.write_node_class_status(&stage.name, &hashed).await),
        ("write a class's status", cluster.write_node_class_status(&stage.name, class).await),
    ]
}

async fn plan_calls(cluster: &Clusters<TestAccess>, stage: &Stage, before: &ClusterObjects) -> Answers {
    let overlay: &NodeOverlay = before.node_overlays.first().expect("it was created");
    let buffer: &CapacityBuffer = before.capacity_buffers.iter().find(|buffer| buffer.metadata.name == NAME).expect("it was created");
    vec![
        ("write an overlay's status", cluster.write_node_overlay_status(&stage.name, overlay).await),
        ("write a buffer's status", cluster.write_capacity_buffer_status(&stage.name, buffer).await),
    ]
}

/// The calls of each port that a function lacks, and those parts of `StatusWriter` that have a role of their own.
pub(crate) async fn no_function_does_what_it_has_no_port_for(stage: &Stage) {
    let place = Place::new(&stage.plane, stage.name.clone()).await;
    let (claim, pod) = objects(stage, &place).await;
    let before = seen(stage).await;
    let mut refused = 0;
    for (function, groups) in groups() {
        let (cluster, has) = (clusters_of(&stage.plane, function), ports(function));
        let mut answers = Answers::new();
        if !has.contains("Mirrors") {
            answers.extend(mirror_calls(&cluster, stage, &claim).await);
        }
        if !has.contains("Nodes") {
            answers.extend(node_calls(&cluster, stage).await);
        }
        if !has.contains("Evictions") {
            answers.extend(eviction_calls(&cluster, stage, &pod).await);
        }
        if function != Function::Refresh {
            answers.extend(class_calls(&cluster, stage, &before).await);
        }
        if !groups.contains("whittle:plan") {
            answers.extend(plan_calls(&cluster, stage, &before).await);
        }
        for (call, answer) in answers {
            let Err(ClusterError::Invalid { message, .. }) = &answer else { panic!("{function} may {call}: {answer:?}") };
            assert!(message.contains(&format!("is forbidden: User \"{function}\" cannot")), "{function}: {call}: {message}");
            assert!(message.contains("infra/cluster/rbac.yaml"), "the remedy is named: {message}");
            refused += 1;
        }
        assert_eq!(seen(stage).await, before, "{function} changed something");
    }
    println!("{refused} calls of {} functions were refused", groups().len());
    // One that has no access entry at all.
    let relay = clusters_of(&stage.plane, Function::Relay).read(&stage.name, Scope::Nodes, None).await;
    assert!(matches!(relay, Err(ClusterError::NoAccess { .. })), "{relay:?}");
    stage.clusters.release_mirror(&stage.name, NAME, "").await.expect("a mirror can be released");
    stage.clusters.delete_mirror(&stage.name, NAME, "").await.expect("a mirror can be deleted");
    for (kind, namespace) in [("Pod", "default"), ("NodeOverlay", ""), ("CapacityBuffer", "default"), ("Node", "")] {
        place.delete(kind, namespace, NAME).await;
    }
    place.ask("PATCH", &format!("/api/v1/nodes/{NAME}"), Some(&json!({"metadata": {"finalizers": null}}))).await;
}

/// What no port of any function does: (verb, group, resource).
const NOBODY: &[(&str, &str, &str)] = &[
    ("get", "", "secrets"),
    ("list", "", "secrets"),
    ("create", "", "serviceaccounts/token"),
    ("create", "", "pods"),
    ("patch", "", "pods"),
    ("patch", "", "pods/status"),
    ("create", "", "pods/exec"),
    ("create", "", "pods/binding"),
    ("get", "", "pods/log"),
    ("patch", "", "events"),
    ("delete", "", "events"),
    ("create", "events.k8s.io", "events"),
    ("create", "", "nodes"),
    ("get", "", "nodes/proxy"),
    ("patch", "", "nodes/status"),
    ("deletecollection", "", "pods"),
    ("deletecollection", "", "nodes"),
    ("deletecollection", "karpenter.sh", "nodeclaims"),
    ("delete", "", "namespaces"),
    ("patch", "", "persistentvolumes"),
    ("delete", "storage.k8s.io", "volumeattachments"),
    ("patch", "apps", "deployments"),
    ("patch", "policy", "poddisruptionbudgets"),
    ("update", "coordination.k8s.io", "leases"),
    ("update", "", "nodes"),
    ("update", "karpenter.sh", "nodeclaims"),
    ("update", "karpenter.sh", "nodeclaims/status"),
    ("update", "karpenter.sh", "nodepools/status"),
    ("update", "karpenter.k8s.aws", "ec2nodeclasses"),
    ("update", "karpenter.k8s.aws", "ec2nodeclasses/status"),
    ("watch", "", "namespaces"),
    ("watch", "apps", "replicasets"),
    ("create", "karpenter.sh", "nodepools"),
    ("patch", "karpenter.sh", "nodepools"),
    ("delete", "karpenter.sh", "nodepools"),
    ("patch", "karpenter.sh", "nodeoverlays"),
    ("patch", "autoscaling.x-k8s.io", "capacitybuffers"),
    ("delete", "karpenter.k8s.aws", "ec2nodeclasses"),
    ("create", "karpenter.k8s.aws", "ec2nodeclasses"),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("impersonate", "", "users"),
    ("impersonate", "", "groups"),
    ("approve", "certificates.k8s.io", "signers"),
];

/// Asks the API server's authorizer with each function's own token.
pub(crate) async fn no_function_has_rights_that_no_port_needs(stage: &Stage) {
    for function in groups().into_keys() {
        let client = client(&stage.plane, &stage.plane.token_of(function.name())).await;
        let may = async |verb: &str, group: &str, resource: &str| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let attributes = json!({"verb": verb, "group": group, "resource": resource, "subresource": subresource});
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                                "spec": {"resourceAttributes": attributes}});
            let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
            let request = request.header("content-type", "application/json").body(review.to_string().into_bytes());
            let answer: Value = client.request(request.expect("it is a request")).await.expect("the API server answers");
            answer["status"]["allowed"] == true
        };
        let mut found = BTreeSet::new();
        for (verb, group, resource) in NOBODY {
            if may(verb, group, resource).await {
                found.insert((verb, group, resource));
            }
        }
        assert!(found.is_empty(), "{function} may {found:?}");
        assert!(may("list", "", "pods").await, "{function} is known to the server");
    }
}

//! Pods, nodes, NodeClaims, NodePools and node classes, slim: the fields that decide whether a change rings. An object that lacks or
//! distorts any of them is still read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Object, PartialObjectMeta};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Set by Whittle and by Karpenter once a node takes pods.
const INITIALIZED: &str = "karpenter.sh/initialized";
/// A taint that Whittle itself removes.
const UNREGISTERED: &str = "karpenter.sh/unregistered";

/// A pod without a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// Grows when its spec changes; 0 on clusters that do not count.
    pub generation: i64,
    pub is_deleting: bool,
    pub conditions: Vec<Condition>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub uid: String,
    pub is_deleting: bool,
    pub is_initialized: bool,
    /// Keys and effects.
    pub taints: Vec<(String, String)>,
    /// Names of its resources.
    pub resources: Vec<String>,
    pub conditions: Vec<Condition>,
}

/// A NodeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeClaim {
    pub uid: String,
    pub is_deleting: bool,
}

/// A NodePool or a node class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    pub uid: String,
    /// Grows when its spec changes, and when it is deleted.
    pub generation: i64,
}

/// A condition of a pod or a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// What is remembered of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodState {
    pub is_unschedulable: bool,
    generation: i64,
    /// Differs when the scheduler says something else of why it has no node.
    said: u64,
}

/// What is remembered of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    pub is_deleting: bool,
    pub is_initialized: bool,
    /// Differs when it is nearer to taking pods, or further from it: readiness, others' taints, the resources that it has.
    pub progress: u64,
}

impl Pod {
    pub fn state(&self) -> PodState {
        let unschedulable = |condition: &Condition| {
            condition.type_ == "PodScheduled" && condition.status == "False" && condition.reason.as_deref() == Some("Unschedulable")
        };
        let found = self.conditions.iter().find(|condition| unschedulable(condition)).filter(|_| !self.is_deleting);
        let mut hasher = DefaultHasher::new();
        found.and_then(|condition| condition.message.as_deref()).hash(&mut hasher);
        PodState { is_unschedulable: found.is_some(), generation: self.generation, said: hasher.finish() }
    }
}

impl Node {
    pub fn state(&self) -> NodeState {
        let mut hasher = DefaultHasher::new();
        let ready = self.conditions.iter().find(|condition| condition.type_ == "Ready");
        ready.is_some_and(|condition| condition.status == "True").hash(&mut hasher);
        sorted(self.taints.iter().filter(|(key, _)| key != UNREGISTERED)).hash(&mut hasher);
        sorted(self.resources.iter()).hash(&mut hasher);
        NodeState { is_deleting: self.is_deleting, is_initialized: self.is_initialized, progress: hasher.finish() }
    }
}

fn sorted<'a, T: Ord + 'a>(items: impl Iterator<Item = &'a T>) -> Vec<&'a T> {
    let mut sorted: Vec<&T> = items.collect();
    sorted.sort_unstable();
    sorted
}

/// A pod on the wire. Nothing of its spec is read.
pub type WirePod = Object<Ignored, WirePodStatus>;
/// A node on the wire.
pub type WireNode = Object<WireNodeSpec, WireNodeStatus>;

/// A NodeClaim, a NodePool or a node class on the wire: its metadata alone.
pub type WireMetadata = PartialObjectMeta<DynamicObject>;

/// Any value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ignored {}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WirePodStatus {
    conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WireNodeSpec {
    taints: Option<Vec<WireTaint>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct WireTaint {
    key: String,
    effect: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WireNodeStatus {
    conditions: Option<Vec<Condition>>,
    allocatable: Option<std::collections::BTreeMap<String, serde_json::Value>>,
}

/// Pods as a resource of the API.
pub fn pods() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods")
}

/// Nodes as a resource of the API.
pub fn nodes() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Node"), "nodes")
}

/// NodeClaims as a resource of the API.
pub fn node_claims() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim"), "nodeclaims")
}

/// NodePools as a resource of the API.
pub fn node_pools() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool"), "nodepools")
}

/// Node classes as a resource of the API.
pub fn node_classes() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("karpenter.k8s.aws", "v1", "EC2NodeClass"), "ec2nodeclasses")
}

fn uid(metadata: &ObjectMeta) -> String {
    metadata.uid.clone().unwrap_or_default()
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        Self {
            uid: uid(&wire.metadata),
            version: wire.metadata.resource_version.clone().unwrap_or_default(),
            generation: wire.metadata.generation.unwrap_or_default(),
            is_deleting: wire.metadata.deletion_timestamp.is_some(),
            conditions: wire.status.and_then(|status| status.conditions).unwrap_or_default(),
        }
    }
}

impl From<WireNode> for Node {
    fn from(wire: WireNode) -> Self {
        let status = wire.status.unwrap_or_default();
        let labels = wire.metadata.labels.as_ref();
        Self {
            uid: uid(&wire.metadata),
            is_deleting: wire.metadata.deletion_timestamp.is_some(),
            is_initialized: labels.and_then(|labels| labels.get(INITIALIZED)).is_some_and(|value| value == "true"),
            taints: wire.spec.taints.unwrap_or_default().into_iter().map(|taint| (taint.key, taint.effect)).collect(),
            resources: status.allocatable.unwrap_or_default().into_keys().collect(),
            conditions: status.conditions.unwrap_or_default(),
        }
    }
}

impl From<WireMetadata> for Definition {
    fn from(wire: WireMetadata) -> Self {
        Self { uid: uid(&wire.metadata), generation: wire.metadata.generation.unwrap_or_default() }
    }
}

impl From<WireMetadata> for NodeClaim {
    fn from(wire: WireMetadata) -> Self {
        Self { uid: uid(&wire.metadata), is_deleting: wire.metadata.deletion_timestamp.is_some() }
    }
}

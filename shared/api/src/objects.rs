//! The objects of a cluster that decisions use.

use crate::ObjectMeta;
use crate::k8s::{
    ConfigMap, CsiNode, DaemonSet, Kind, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, PriorityClass,
    StorageClass, VolumeAttachment,
};
use crate::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use crate::shared::Shared;
use crate::unreadable::Unreadable;
use serde::{Deserialize, Serialize};
use whittle_units::{SignedDuration, Timestamp};

/// A snapshot of a cluster. Lists are unordered; decisions sort what they need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterObjects {
    pub node_pools: Vec<NodePool>,
    pub node_classes: Vec<Ec2NodeClass>,
    /// Mirrors. The claim store is authoritative.
    pub node_claims: Vec<NodeClaim>,
    pub node_overlays: Vec<NodeOverlay>,
    pub capacity_buffers: Vec<CapacityBuffer>,
    pub nodes: Vec<Node>,
    /// Shared by all that one look gives rise to: there can be 100,000.
    #[serde(deserialize_with = "crate::shared::unpooled")]
    pub pods: Shared<Vec<Pod>>,
    pub daemon_sets: Vec<DaemonSet>,
    pub disruption_budgets: Vec<PodDisruptionBudget>,
    pub namespaces: Vec<Namespace>,
    pub priority_classes: Vec<PriorityClass>,
    /// Shared like pods: a cluster may have tens of thousands.
    #[serde(deserialize_with = "crate::shared::unpooled")]
    pub volume_claims: Shared<Vec<PersistentVolumeClaim>>,
    #[serde(deserialize_with = "crate::shared::unpooled")]
    pub volumes: Shared<Vec<PersistentVolume>>,
    pub storage_classes: Vec<StorageClass>,
    pub csi_nodes: Vec<CsiNode>,
    pub volume_attachments: Vec<VolumeAttachment>,
    pub config_maps: Vec<ConfigMap>,
    /// Unreadable objects of all kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Kinds that were requested and that the API server does not serve: their objects are not known to be absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent_kinds: Vec<String>,
    /// Signs of a Karpenter installation in the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub karpenter: Vec<KarpenterSign>,
}

/// An object that shows that Karpenter runs in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KarpenterSign {
    /// The object, in `kubectl`'s notation.
    pub object: String,
    /// When the lease was last renewed; `None` for a Deployment with ready pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_at: Option<Timestamp>,
}

/// How long a lease counts as held after its renewal. Karpenter renews it every few seconds, and it expires after fifteen; clocks differ.
const LEASE_FRESH: SignedDuration = SignedDuration::from_mins(2);

impl ClusterObjects {
    /// The unreadable objects of a kind.
    pub fn unreadable_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Unreadable> {
        self.unreadable.iter().filter(move |object| object.kind == kind)
    }

    /// Whether an object of this kind and name exists and is unreadable. An unreadable object without a name may be any.
    pub fn is_unreadable(&self, kind: &str, name: &str) -> bool {
        self.unreadable_of(kind).any(|object| object.metadata.name == name || object.metadata.name.is_empty())
    }

    /// Whether the API server does not serve a kind at all.
    pub fn lacks_kind(&self, kind: &str) -> bool {
        self.absent_kinds.iter().any(|absent| absent == kind)
    }

    /// Unreadable pods, with the fields that draining needs.
    pub fn unreadable_pods(&self) -> impl Iterator<Item = &Pod> {
        self.unreadable.iter().filter_map(|object| object.pod.as_deref())
    }

    /// An object that shows that Karpenter runs in the cluster; `None` if it does not.
    pub fn running_karpenter(&self, now: Timestamp) -> Option<&str> {
        let runs = |sign: &&KarpenterSign| sign.renewed_at.is_none_or(|at| now.duration_since(at) < LEASE_FRESH);
        self.karpenter.iter().find(runs).map(|sign| sign.object.as_str())
    }

    /// Sorts all lists by namespace and name, so that no message depends on the order in
    /// which objects were read.
    pub fn sort(&mut self) {
        // Objects are large: each is moved once rather than at each step of the sort, or not at all if the API server has sorted them.
        fn by_key<T: Kind>(objects: &mut [T]) {
            fn key(meta: &ObjectMeta) -> (&str, &str) {
                (&meta.namespace, &meta.name)
            }
            if !objects.is_sorted_by(|a, b| key(a.meta()) <= key(b.meta())) {
                objects.sort_by_cached_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
            }
        }
        by_key(&mut self.node_pools);
        by_key(&mut self.node_classes);
        by_key(&mut self.node_claims);
        by_key(&mut self.node_overlays);
        by_key(&mut self.capacity_buffers);
        by_key(&mut self.nodes);
        by_key(&mut self.pods);
        by_key(&mut self.daemon_sets);
        by_key(&mut self.disruption_budgets);
        by_key(&mut self.namespaces);
        by_key(&mut self.priority_classes);
        by_key(&mut self.volume_claims);
        by_key(&mut self.volumes);
        by_key(&mut self.storage_classes);
        by_key(&mut self.csi_nodes);
        by_key(&mut self.volume_attachments);
        by_key(&mut self.config_maps);
        let key = |object: &Unreadable| (object.kind.clone(), object.metadata.namespace.clone(), object.metadata.name.clone());
        self.unreadable.sort_by_cached_key(key);
        self.absent_kinds.sort_unstable();
    }
}

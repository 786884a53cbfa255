//! All objects of a cluster that one decision looks at.

use crate::k8s::{
    ConfigMap, CsiNode, DaemonSet, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, PriorityClass,
    StorageClass, VolumeAttachment,
};
use crate::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use serde::{Deserialize, Serialize};

/// What a snapshot of a cluster holds. Lists are in no particular order; decisions sort what they need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterObjects {
    pub node_pools: Vec<NodePool>,
    pub node_classes: Vec<Ec2NodeClass>,
    /// Mirrors. The truth about claims is in the claim store.
    pub node_claims: Vec<NodeClaim>,
    pub node_overlays: Vec<NodeOverlay>,
    pub capacity_buffers: Vec<CapacityBuffer>,
    pub nodes: Vec<Node>,
    pub pods: Vec<Pod>,
    pub daemon_sets: Vec<DaemonSet>,
    pub disruption_budgets: Vec<PodDisruptionBudget>,
    pub namespaces: Vec<Namespace>,
    pub priority_classes: Vec<PriorityClass>,
    pub volume_claims: Vec<PersistentVolumeClaim>,
    pub volumes: Vec<PersistentVolume>,
    pub storage_classes: Vec<StorageClass>,
    pub csi_nodes: Vec<CsiNode>,
    pub volume_attachments: Vec<VolumeAttachment>,
    pub config_maps: Vec<ConfigMap>,
}

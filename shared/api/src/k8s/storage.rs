//! Volumes, their claims and classes, and the attach limits of nodes.

use crate::k8s::NodeSelector;
use crate::meta::{LabelSelector, ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use whittle_units::Resources;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    pub metadata: ObjectMeta,
    pub spec: PersistentVolumeClaimSpec,
    pub status: serde_json::Value,
}
super::kind!(PersistentVolumeClaim, "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// Empty while unbound.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub volume_name: String,
    /// Absent: the default class. Empty text: no class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub access_modes: Vec<String>,
    #[serde(skip_serializing_if = "VolumeResources::is_empty", deserialize_with = "null_as_default")]
    pub resources: VolumeResources,
    /// The labels of volumes that will do; absent: any labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Filesystem when absent, or Block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
}

/// How large a volume has to be: its request of `storage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeResources {
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub requests: Resources,
}

impl VolumeResources {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    pub metadata: ObjectMeta,
    pub spec: PersistentVolumeSpec,
    #[serde(skip_serializing_if = "PersistentVolumeStatus::is_empty", deserialize_with = "null_as_default")]
    pub status: PersistentVolumeStatus,
}
super::kind!(PersistentVolume, "v1", "PersistentVolume", "persistentvolumes", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<VolumeNodeAffinity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiSource>,
    /// Only its presence matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_elastic_block_store: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub storage_class_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub access_modes: Vec<String>,
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub capacity: Resources,
    /// The claim that it is bound to, was bound to, or is kept for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimReference>,
    /// Filesystem when absent, or Block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
}

/// A claim that a volume names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    #[serde(deserialize_with = "null_as_default")]
    pub namespace: String,
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Empty: whichever claim has the name.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub uid: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeStatus {
    /// Pending, Available, Bound, Released or Failed; empty in manifests.
    #[serde(deserialize_with = "null_as_default")]
    pub phase: String,
}

impl PersistentVolumeStatus {
    fn is_empty(&self) -> bool {
        self.phase.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    pub required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    pub driver: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub volume_handle: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    pub metadata: ObjectMeta,
    pub provisioner: String,
    /// Immediate when empty, or WaitForFirstConsumer.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_binding_mode: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}
super::kind!(StorageClass, "storage.k8s.io/v1", "StorageClass", "storageclasses", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    #[serde(deserialize_with = "null_as_default")]
    pub match_label_expressions: Vec<TopologySelectorRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologySelectorRequirement {
    pub key: String,
    #[serde(deserialize_with = "null_as_default")]
    pub values: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    pub metadata: ObjectMeta,
    pub spec: CsiNodeSpec,
}
super::kind!(CsiNode, "storage.k8s.io/v1", "CSINode", "csinodes", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub drivers: Vec<CsiNodeDriver>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<CsiAllocatable>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiAllocatable {
    /// How many volumes of the driver the node can attach; absent: no limit.
    pub count: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    pub metadata: ObjectMeta,
    pub spec: VolumeAttachmentSpec,
}
super::kind!(VolumeAttachment, "storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    pub attacher: String,
    pub node_name: String,
    pub source: VolumeAttachmentSource,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    #[serde(deserialize_with = "null_as_default")]
    pub persistent_volume_name: String,
}

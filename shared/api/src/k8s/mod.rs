//! Built-in Kubernetes kinds, slim: only the fields that decisions use.

mod node;
mod pod;
mod policy;
mod runtime_class;
mod storage;
mod workload;

pub use node::{Node, NodeMetadata, NodeSpec, NodeStatus, NodeSystemInfo, Taint, TaintEffect};
pub use pod::{
    Affinity, ClaimSource, Container, ContainerPort, ContainerStatus, EphemeralSource, EphemeralTemplate, ExtendedResourceClaimStatus,
    ExtendedResourceRequest, NodeAffinity, NodeSelector, NodeSelectorTerm, Pod, PodAffinity, PodAffinityTerm, PodCondition, PodSpec,
    PodStatus, PreferredSchedulingTerm, ResourceRequirements, Toleration, TopologySpreadConstraint, Volume, WeightedPodAffinityTerm,
};
pub use policy::{IntOrString, PdbSpec, PdbStatus, PodDisruptionBudget, PriorityClass};
pub use runtime_class::{RuntimeClass, RuntimeOverhead, RuntimeScheduling};
pub use storage::{
    ClaimReference, CsiAllocatable, CsiNode, CsiNodeDriver, CsiNodeSpec, CsiSource, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeSpec, PersistentVolumeStatus, StorageClass, TopologySelectorRequirement,
    TopologySelectorTerm, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeNodeAffinity, VolumeResources,
};
pub use workload::{
    ConfigMap, ControllerSpec, DaemonSet, DaemonSetSpec, Deployment, DeploymentSpec, Job, JobSpec, JobStatus, Namespace, PodSource,
    PodSourceKind, PodTemplate, ReplicaSet, ReplicationController, Service, ServiceSpec, StatefulSet, StoredPodTemplate, Workloads,
};

/// `apiVersion` and `kind` of a Rust type.
pub trait Kind {
    const API_VERSION: &'static str;
    const KIND: &'static str;
    /// The REST resource, such as `nodepools`.
    const PLURAL: &'static str;
    const NAMESPACED: bool;
    /// How the kind is encoded in protobuf, if it is read so: it must have many objects to be worth it.
    const PROTOBUF: Option<&'static crate::protobuf::Message> = None;
    fn meta(&self) -> &crate::ObjectMeta;
    fn meta_mut(&mut self) -> &mut crate::ObjectMeta;
}

macro_rules! kind {
    ($type:ty, $api_version:literal, $kind:literal, $plural:literal, $namespaced:literal $(, $protobuf:expr)?) => {
        impl crate::k8s::Kind for $type {
            const API_VERSION: &'static str = $api_version;
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;
            const NAMESPACED: bool = $namespaced;
            $(const PROTOBUF: Option<&'static crate::protobuf::Message> = Some(&$protobuf);)?
            fn meta(&self) -> &crate::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut crate::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use kind;

//! The objects that a manifest can contain.

use crate::k8s::{
    ConfigMap, CsiNode, DaemonSet, Deployment, Job, Kind, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    PodDisruptionBudget, PriorityClass, ReplicaSet, ReplicationController, Service, StatefulSet, StorageClass, StoredPodTemplate,
    VolumeAttachment,
};
use crate::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use crate::legacy::LegacyObject;
use crate::manifest::ClusterConfig;
use crate::objects::ClusterObjects;
use serde::Serialize;
use serde_json::Value;

macro_rules! objects {
    ($($variant:ident($type:ty)),* $(,)?) => {
        /// An object of a manifest. Unknown kinds are named, so that callers can report what they skip.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $($variant(Box<$type>),)*
            /// Of a version before v1: to be converted by `legacy::convert`.
            Legacy(LegacyObject),
            /// eksctl's description of a cluster.
            ClusterConfig(Box<ClusterConfig>),
            Unknown { api_version: String, kind: String, namespace: String, name: String },
        }

        impl Object {
            /// `apiVersion`, `kind`.
            pub fn type_meta(&self) -> (&str, &str) {
                match self {
                    $(Self::$variant(_) => (<$type as Kind>::API_VERSION, <$type as Kind>::KIND),)*
                    Self::Legacy(object) => object.type_meta(),
                    Self::ClusterConfig(_) => (ClusterConfig::API_VERSION, ClusterConfig::KIND),
                    Self::Unknown { api_version, kind, .. } => (api_version, kind),
                }
            }
            /// Name, or `namespace/name`.
            pub fn key(&self) -> String {
                match self {
                    $(Self::$variant(object) => object.metadata.key(),)*
                    Self::Legacy(object) => object.meta().key(),
                    Self::ClusterConfig(config) => config.metadata.name.clone(),
                    Self::Unknown { namespace, name, .. } if namespace.is_empty() => name.clone(),
                    Self::Unknown { namespace, name, .. } => format!("{namespace}/{name}"),
                }
            }
            /// The object as JSON with `apiVersion` and `kind`; `None` for kinds that we only read.
            pub fn to_json(&self) -> Option<Value> {
                match self {
                    $(Self::$variant(object) => tagged(<$type as Kind>::API_VERSION, <$type as Kind>::KIND, object.as_ref()),)*
                    Self::Legacy(_) | Self::ClusterConfig(_) | Self::Unknown { .. } => None,
                }
            }
        }

        /// The reader of a known kind, by version and kind.
        pub(super) fn reader(api_version: &str, kind: &str) -> Option<super::Reader> {
            $(if api_version == <$type as Kind>::API_VERSION && kind == <$type as Kind>::KIND {
                return Some(|value| Ok(Object::$variant(Box::new(super::typed(value)?))));
            })*
            None
        }

        /// Whether objects of a kind that is read are in no namespace.
        pub(super) fn is_in_no_namespace(api_version: &str, kind: &str) -> bool {
            $(if api_version == <$type as Kind>::API_VERSION && kind == <$type as Kind>::KIND {
                return !<$type as Kind>::NAMESPACED;
            })*
            false
        }
    };
}

objects! {
    NodePool(NodePool),
    NodeClaim(NodeClaim),
    NodeOverlay(NodeOverlay),
    NodeClass(Ec2NodeClass),
    CapacityBuffer(CapacityBuffer),
    Node(Node),
    Pod(Pod),
    Deployment(Deployment),
    ReplicaSet(ReplicaSet),
    StatefulSet(StatefulSet),
    DaemonSet(DaemonSet),
    ReplicationController(ReplicationController),
    Job(Job),
    Service(Service),
    PodTemplate(StoredPodTemplate),
    ConfigMap(ConfigMap),
    Namespace(Namespace),
    PodDisruptionBudget(PodDisruptionBudget),
    PriorityClass(PriorityClass),
    PersistentVolumeClaim(PersistentVolumeClaim),
    PersistentVolume(PersistentVolume),
    StorageClass(StorageClass),
    CsiNode(CsiNode),
    VolumeAttachment(VolumeAttachment),
}

fn tagged<T: Serialize>(api_version: &str, kind: &str, object: &T) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    let map = value.as_object_mut()?;
    map.insert("apiVersion".to_owned(), Value::from(api_version));
    map.insert("kind".to_owned(), Value::from(kind));
    Some(value)
}

impl ClusterObjects {
    /// Adds an object to its list; returns one without a list (workloads, old versions, cluster descriptions, unknown
    /// kinds).
    pub fn insert(&mut self, object: Object) -> Option<Object> {
        match object {
            Object::NodePool(object) => self.node_pools.push(*object),
            Object::NodeClaim(object) => self.node_claims.push(*object),
            Object::NodeOverlay(object) => self.node_overlays.push(*object),
            Object::NodeClass(object) => self.node_classes.push(*object),
            Object::CapacityBuffer(object) => self.capacity_buffers.push(*object),
            Object::Node(object) => self.nodes.push(*object),
            Object::Pod(object) => self.pods.push(*object),
            Object::DaemonSet(object) => self.daemon_sets.push(*object),
            Object::ConfigMap(object) => self.config_maps.push(*object),
            Object::Namespace(object) => self.namespaces.push(*object),
            Object::PodDisruptionBudget(object) => self.disruption_budgets.push(*object),
            Object::PriorityClass(object) => self.priority_classes.push(*object),
            Object::PersistentVolumeClaim(object) => self.volume_claims.push(*object),
            Object::PersistentVolume(object) => self.volumes.push(*object),
            Object::StorageClass(object) => self.storage_classes.push(*object),
            Object::CsiNode(object) => self.csi_nodes.push(*object),
            Object::VolumeAttachment(object) => self.volume_attachments.push(*object),
            other => return Some(other),
        }
        None
    }
}

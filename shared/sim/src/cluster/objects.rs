//! The objects of a cluster, with the API server's rules for versions, finalizers and deletion.

use jiff::Timestamp;
use std::collections::BTreeMap;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{
    ConfigMap, CsiNode, DaemonSet, Deployment, Kind, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget,
    PriorityClass, ReplicaSet, Service, StatefulSet, StorageClass, StoredPodTemplate, VolumeAttachment,
};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};

/// Objects of one kind by `namespace/name`, or by name.
pub type Table<T> = BTreeMap<String, T>;

macro_rules! objects {
    ($($(#[$doc:meta])* $field:ident: $type:ty),* $(,)?) => {
        #[derive(Clone, Debug, Default)]
        pub struct Objects {
            $($(#[$doc])* pub $field: Table<$type>,)*
            /// Counts the writes of all objects.
            version: u64,
            /// Counts the writes of pods, workloads and Nodes.
            workloads: u64,
        }
        $(impl Tabled for $type {
            fn table(objects: &Objects) -> &Table<Self> {
                &objects.$field
            }
            fn table_mut(objects: &mut Objects) -> &mut Table<Self> {
                &mut objects.$field
            }
        })*
    };
}

/// A kind that the cluster stores.
pub trait Tabled: Kind + Clone + PartialEq {
    fn table(objects: &Objects) -> &Table<Self>;
    /// The table of its objects, mutable.
    fn table_mut(objects: &mut Objects) -> &mut Table<Self>;
}

objects! {
    node_pools: NodePool,
    node_classes: Ec2NodeClass,
    node_claims: NodeClaim,
    node_overlays: NodeOverlay,
    capacity_buffers: CapacityBuffer,
    nodes: Node,
    pods: Pod,
    deployments: Deployment,
    replica_sets: ReplicaSet,
    stateful_sets: StatefulSet,
    daemon_sets: DaemonSet,
    services: Service,
    pod_templates: StoredPodTemplate,
    budgets: PodDisruptionBudget,
    namespaces: Namespace,
    priority_classes: PriorityClass,
    volume_claims: PersistentVolumeClaim,
    volumes: PersistentVolume,
    storage_classes: StorageClass,
    csi_nodes: CsiNode,
    volume_attachments: VolumeAttachment,
    config_maps: ConfigMap,
}

/// The key of an object in its table. Pools and classes of old kinds may share their name with a current one, as they
/// may in a real cluster, so their kind is prefixed.
pub fn key_of<T: Kind>(object: &T) -> String {
    match object.meta().annotation(whittle_api::labels::CONVERTED_FROM) {
        Some(origin @ ("Provisioner" | "AWSNodeTemplate")) => format!("{origin}/{}", object.meta().key()),
        _ => object.meta().key(),
    }
}

impl Objects {
    fn next_version<T: Kind>(&mut self) -> String {
        self.version += 1;
        if [Pod::KIND, Deployment::KIND, ReplicaSet::KIND, StatefulSet::KIND, DaemonSet::KIND, Node::KIND].contains(&T::KIND) {
            self.workloads += 1;
        }
        self.version.to_string()
    }

    /// A counter of the writes of pods, workloads and Nodes.
    pub fn workloads(&self) -> u64 {
        self.workloads
    }

    /// Removes a pod immediately.
    pub(super) fn forget_pod(&mut self, key: &str) {
        self.pods.remove(key);
        self.next_version::<Pod>();
    }

    pub fn get<T: Tabled>(&self, key: &str) -> Option<&T> {
        T::table(self).get(key)
    }

    /// Creates an object as the API server does: uid, version, generation, creation time. An existing object stays,
    /// and the result is false.
    pub fn create<T: Tabled>(&mut self, mut object: T, now: Timestamp) -> bool {
        let key = key_of(&object);
        if T::table(self).contains_key(&key) {
            return false;
        }
        let version = self.next_version::<T>();
        let meta = object.meta_mut();
        if meta.uid.is_empty() {
            meta.uid = format!("{:08x}-0000-4000-8000-{:012x}", self.version, self.version);
        }
        meta.resource_version = version;
        meta.generation.get_or_insert(1);
        meta.creation_timestamp.get_or_insert(now);
        T::table_mut(self).insert(key, object);
        true
    }

    /// Changes an object in place. Its version grows only if something changed; one whose last finalizer was removed
    /// is deleted. False if there is no such object.
    pub fn change<T: Tabled>(&mut self, key: &str, change: impl FnOnce(&mut T)) -> bool {
        let Some(old) = T::table(self).get(key) else { return false };
        let mut new = old.clone();
        change(&mut new);
        if new == *old {
            return true;
        }
        new.meta_mut().resource_version = self.next_version::<T>();
        if new.meta().is_deleting() && new.meta().finalizers.is_empty() && T::KIND != Pod::KIND {
            T::table_mut(self).remove(key);
        } else {
            T::table_mut(self).insert(key.to_owned(), new);
        }
        true
    }

    /// Applies a manifest: creates the object, or replaces what the user writes and keeps what the server and
    /// controllers wrote. Returns whether anything changed.
    pub fn apply<T: Tabled>(&mut self, mut object: T, keep: impl FnOnce(&T, &mut T), now: Timestamp) -> bool {
        let key = key_of(&object);
        let Some(old) = T::table(self).get(&key).cloned() else { return self.create(object, now) };
        keep(&old, &mut object);
        let (was, meta) = (old.meta(), object.meta_mut());
        meta.uid.clone_from(&was.uid);
        meta.resource_version.clone_from(&was.resource_version);
        meta.creation_timestamp = was.creation_timestamp;
        meta.deletion_timestamp = was.deletion_timestamp;
        meta.finalizers.clone_from(&was.finalizers);
        meta.generation = was.generation;
        for (name, value) in &was.annotations {
            meta.annotations.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if object == old {
            return false;
        }
        let version = self.next_version::<T>();
        let meta = object.meta_mut();
        meta.resource_version = version;
        meta.generation = was.generation.map(|generation| generation + 1);
        T::table_mut(self).insert(key, object);
        true
    }

    /// Deletes an object: with finalizers it is only marked, which increments its generation. False when there is no such object.
    pub fn delete<T: Tabled>(&mut self, key: &str, now: Timestamp) -> bool {
        let Some(object) = T::table(self).get(key) else { return false };
        if object.meta().finalizers.is_empty() {
            self.next_version::<T>();
            T::table_mut(self).remove(key);
        } else if !object.meta().is_deleting() {
            self.change::<T>(key, |object| {
                let meta = object.meta_mut();
                meta.deletion_timestamp = Some(now);
                meta.generation = meta.generation.map(|generation| generation + 1);
            });
        }
        true
    }

    /// All objects, as a reader gets them.
    pub fn snapshot(&self) -> ClusterObjects {
        fn all<T: Clone>(table: &Table<T>) -> Vec<T> {
            table.values().cloned().collect()
        }
        ClusterObjects {
            node_pools: all(&self.node_pools),
            node_classes: all(&self.node_classes),
            node_claims: all(&self.node_claims),
            node_overlays: all(&self.node_overlays),
            capacity_buffers: all(&self.capacity_buffers),
            nodes: all(&self.nodes),
            pods: all(&self.pods).into(),
            daemon_sets: all(&self.daemon_sets),
            disruption_budgets: all(&self.budgets),
            namespaces: all(&self.namespaces),
            priority_classes: all(&self.priority_classes),
            volume_claims: all(&self.volume_claims).into(),
            volumes: all(&self.volumes).into(),
            storage_classes: all(&self.storage_classes),
            csi_nodes: all(&self.csi_nodes),
            volume_attachments: all(&self.volume_attachments),
            config_maps: all(&self.config_maps),
            unreadable: Vec::new(),
            absent_kinds: Vec::new(),
            karpenter: Vec::new(),
        }
    }

    /// Pods on a node, by name.
    pub fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |pod| pod.spec.node_name == node)
    }
}

//! User actions with `kubectl`: apply, scale, delete.

use super::objects::Tabled;
use super::{Cluster, NodeGroup};
use jiff::Timestamp;
use whittle_api::k8s::{ConfigMap, Deployment, Node, Pod, PodDisruptionBudget};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_api::manifest::{ClusterConfig, Object};

/// The result of applying one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    Created,
    Configured,
    Unchanged,
    /// A kind that the simulation ignores.
    Ignored,
}

/// How many pods there are, by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    pub running: usize,
    /// On a node, and not running yet.
    pub starting: usize,
    /// Without a node.
    pub pending: usize,
}

impl PodCounts {
    /// So many pods that run, and no others.
    pub fn all_running(running: usize) -> Self {
        Self { running, ..Self::default() }
    }
}

impl Applied {
    /// kubectl's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Ignored => "ignored (not simulated)",
        }
    }
}

/// A command names an object that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {kind} {name:?}; there are: {known}")]
pub struct NoSuchObject {
    pub kind: &'static str,
    pub name: String,
    pub known: String,
}

impl Cluster {
    fn put<T: Tabled>(&mut self, mut object: T, keep: impl FnOnce(&T, &mut T), now: Timestamp) -> Applied {
        if T::NAMESPACED && object.meta().namespace.is_empty() {
            "default".clone_into(&mut object.meta_mut().namespace);
        }
        let namespace = object.meta().namespace.clone();
        if !namespace.is_empty() {
            self.ensure_namespace(&namespace, now);
        }
        let known = T::table(&self.objects).contains_key(&super::objects::key_of(&object));
        match (known, self.objects.apply(object, keep, now)) {
            (false, _) => Applied::Created,
            (true, true) => Applied::Configured,
            (true, false) => Applied::Unchanged,
        }
    }

    /// Applies one object. Old kinds have to be converted before.
    pub fn apply(&mut self, object: Object, now: Timestamp) -> Applied {
        match object {
            Object::NodePool(object) => self.put(*object, |old: &NodePool, new| new.status = old.status.clone(), now),
            Object::NodeClass(object) => self.put(*object, |old: &Ec2NodeClass, new| new.status = old.status.clone(), now),
            Object::NodeClaim(object) => self.put(*object, |old: &NodeClaim, new| new.status = old.status.clone(), now),
            Object::NodeOverlay(object) => self.put(*object, |old: &NodeOverlay, new| new.status = old.status.clone(), now),
            Object::CapacityBuffer(object) => self.put(*object, |old: &CapacityBuffer, new| new.status = old.status.clone(), now),
            Object::Node(object) => self.put(*object, |_: &Node, _| {}, now),
            Object::Pod(object) => {
                let key = self.objects.pods.contains_key(&object.metadata.key());
                if key || !self.create_pod(*object, now) { Applied::Unchanged } else { Applied::Created }
            }
            Object::Deployment(object) => self.put(*object, |_, _| {}, now),
            // Their pods are not created, but buffers may copy them.
            Object::ReplicaSet(object) => self.put(*object, |_, _| {}, now),
            Object::StatefulSet(object) => self.put(*object, |_, _| {}, now),
            Object::Service(object) => self.put(*object, |_, _| {}, now),
            Object::PodTemplate(object) => self.put(*object, |_, _| {}, now),
            Object::DaemonSet(object) => self.put(*object, |_, _| {}, now),
            Object::ConfigMap(object) => self.put(*object, |_: &ConfigMap, _| {}, now),
            Object::Namespace(object) => {
                let name = object.metadata.name.clone();
                let known = self.objects.namespaces.contains_key(&name);
                self.ensure_namespace(&name, now);
                if known { Applied::Unchanged } else { Applied::Created }
            }
            Object::PodDisruptionBudget(object) => self.apply_budget(*object, now),
            Object::PriorityClass(object) => self.put(*object, |_, _| {}, now),
            Object::PersistentVolumeClaim(object) => self.put(*object, |_, _| {}, now),
            Object::PersistentVolume(object) => self.put(*object, |_, _| {}, now),
            Object::StorageClass(object) => self.put(*object, |_, _| {}, now),
            Object::CsiNode(object) => self.put(*object, |_, _| {}, now),
            Object::VolumeAttachment(object) => self.put(*object, |_, _| {}, now),
            Object::ClusterConfig(config) => self.apply_groups(&config),
            // Their pods are not created.
            Object::ReplicationController(_) | Object::Job(_) | Object::Legacy(_) | Object::Unknown { .. } => Applied::Ignored,
        }
    }

    /// Its status is there at once, as good as it is with a cluster's controller.
    fn apply_budget(&mut self, budget: PodDisruptionBudget, now: Timestamp) -> Applied {
        let applied = self.put(budget, |old: &PodDisruptionBudget, new| new.status = old.status.clone(), now);
        self.update_budgets();
        applied
    }

    fn apply_groups(&mut self, config: &ClusterConfig) -> Applied {
        let count = |number: u32| usize::try_from(number).unwrap_or(0);
        let known = config.managed_node_groups.iter().any(|group| self.groups.contains_key(&group.name));
        let mut changed = false;
        for group in &config.managed_node_groups {
            let desired = group.initial_size();
            let wanted = NodeGroup {
                instance_type: if group.instance_type.is_empty() { "m5.large".to_owned() } else { group.instance_type.clone() },
                min: count(group.min_size.unwrap_or(desired)),
                max: count(group.max_size.unwrap_or(desired)),
                desired: count(desired),
            };
            changed |= self.groups.insert(group.name.clone(), wanted.clone()) != Some(wanted);
        }
        match (changed, known) {
            (false, _) => Applied::Unchanged,
            (true, true) => Applied::Configured,
            (true, false) => Applied::Created,
        }
    }

    /// Whether an object is there.
    pub fn known<T: Tabled>(&self, key: &str) -> Result<(), NoSuchObject> {
        if T::table(&self.objects).contains_key(key) {
            return Ok(());
        }
        let known: Vec<&str> = T::table(&self.objects).keys().take(8).map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(NoSuchObject { kind: T::KIND, name: key.to_owned(), known })
    }

    /// Changes the number of replicas of a Deployment, named `namespace/name`.
    pub fn scale(&mut self, key: &str, replicas: i32) -> Result<(), NoSuchObject> {
        self.known::<Deployment>(key)?;
        self.objects.change::<Deployment>(key, |deployment| deployment.spec.replicas = Some(replicas));
        Ok(())
    }

    /// Deletes an object as `kubectl delete` does, and with a workload its pods: one of the same name that is applied at the same moment
    /// is another object, which does not adopt them.
    pub fn remove<T: Tabled>(&mut self, key: &str, now: Timestamp) -> Result<(), NoSuchObject> {
        self.known::<T>(key)?;
        if T::KIND == "Pod" {
            self.delete_pod(key, None, now);
            return Ok(());
        }
        let pods = self.pods_of(T::KIND, key);
        self.objects.delete::<T>(key, now);
        for pod in pods {
            self.delete_pod(&pod, None, now);
        }
        Ok(())
    }

    /// Changes the size of a managed node group.
    pub fn resize(&mut self, name: &str, min: usize, max: usize, desired: usize) -> Result<(), NoSuchObject> {
        let known = self.groups.keys().cloned().collect::<Vec<_>>().join(", ");
        let group = self.groups.get_mut(name).ok_or(NoSuchObject { kind: "node group", name: name.to_owned(), known })?;
        (group.min, group.max, group.desired) = (min, max, desired);
        Ok(())
    }

    /// Pods of the user (no daemons) by phase.
    pub fn pod_counts(&self, mut of_interest: impl FnMut(&Pod) -> bool) -> PodCounts {
        let mut counts = PodCounts::default();
        for pod in self.objects.pods.values().filter(|pod| !pod.is_daemon() && !pod.metadata.is_deleting()) {
            if of_interest(pod) {
                match (pod.status.phase.as_str(), pod.is_bound()) {
                    ("Running", _) => counts.running += 1,
                    (_, true) => counts.starting += 1,
                    (_, false) => counts.pending += 1,
                }
            }
        }
        counts
    }
}

//! The API server of a simulated world, with a test in front of it.

use std::collections::BTreeMap;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{PodSource, PodSourceKind, Workloads};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_claims::PodKey;
use whittle_ports::{
    Adapters, Answer, ClusterError, ClusterEvent, ClusterReader, Evictions, Mirrors, NodePatch, Nodes, ObjectKind, Presence, Scope,
    StatusWriter, WorkloadReader,
};
use whittle_sim::SimPorts;
use whittle_units::{ClusterName, Timestamp};

/// What a test does before a call reaches the API server. A call that it answers with an error does not reach it.
pub trait Interceptor: Sync {
    /// Before objects are read.
    fn read(&self, cluster: &ClusterName, scope: Scope) -> impl Answer<(), ClusterError> {
        let _ = (cluster, scope);
        std::future::ready(Ok(()))
    }
    /// Before the object that defines the pods of a capacity buffer is read.
    ///
    /// # Errors
    ///
    /// What the API server is to answer.
    fn pod_source(&self, kind: PodSourceKind, namespace: &str, name: &str) -> Result<(), ClusterError> {
        let _ = (kind, namespace, name);
        Ok(())
    }
    /// Before a Node is changed.
    ///
    /// # Errors
    ///
    /// What the API server is to answer.
    fn patch_node(&self, name: &str, resource_version: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        let _ = (name, resource_version, patch);
        Ok(())
    }
    /// Before a Node is deleted.
    ///
    /// # Errors
    ///
    /// What the API server is to answer.
    fn delete_node(&self, name: &str, uid: &str) -> Result<(), ClusterError> {
        let _ = (name, uid);
        Ok(())
    }
    /// Before the finalizer of a NodeClaim is removed.
    ///
    /// # Errors
    ///
    /// What the API server is to answer.
    fn release_mirror(&self, name: &str) -> Result<(), ClusterError> {
        let _ = name;
        Ok(())
    }
    /// Before a pod is evicted.
    ///
    /// # Errors
    ///
    /// What the API server is to answer.
    fn evict(&self, pod: &PodKey) -> Result<(), ClusterError> {
        let _ = pod;
        Ok(())
    }
    /// Before a pod is deleted.
    ///
    /// # Errors
    ///
    /// What the API server is to answer.
    fn delete_pod(&self, pod: &PodKey) -> Result<(), ClusterError> {
        let _ = pod;
        Ok(())
    }
}

/// A policy that refuses every change of a Node.
pub struct NodePolicy;

impl Interceptor for NodePolicy {
    fn patch_node(&self, name: &str, _: &str, _: &NodePatch) -> Result<(), ClusterError> {
        Err(Self::refusal(name))
    }
}

impl NodePolicy {
    /// What the API server answers to a change of the Node of this name.
    #[must_use]
    pub fn refusal(name: &str) -> ClusterError {
        let message = "admission webhook \"policy.example.com\" denied the request".to_owned();
        ClusterError::Invalid { what: format!("Node {name}"), message }
    }
}

/// The API server behind an [`Interceptor`]; everything else is as the simulator has it.
pub struct InterceptedApiServer<'a, I> {
    pub ports: &'a SimPorts,
    pub interceptor: I,
}

impl<I> InterceptedApiServer<'_, I> {
    /// The ports of a handler whose API server this is.
    #[must_use]
    pub fn adapters(&self) -> Adapters<'_, SimPorts, SimPorts, Self, SimPorts, SimPorts> {
        Adapters { store: self.ports, cloud: self.ports, cluster: self, queues: self.ports, clock: self.ports }
    }
}

impl<I: Interceptor> ClusterReader for InterceptedApiServer<'_, I> {
    async fn read(&self, cluster: &ClusterName, scope: Scope, node: Option<&str>) -> Result<ClusterObjects, ClusterError> {
        self.interceptor.read(cluster, scope).await?;
        ClusterReader::read(self.ports, cluster, scope, node).await
    }
    async fn departures(&self, cluster: &ClusterName) -> BTreeMap<String, Timestamp> {
        self.ports.departures(cluster).await
    }
    async fn look_up(&self, cluster: &ClusterName, kind: ObjectKind, name: &str) -> Result<Presence, ClusterError> {
        self.ports.look_up(cluster, kind, name).await
    }
}

impl<I: Interceptor> WorkloadReader for InterceptedApiServer<'_, I> {
    async fn selectors(&self, cluster: &ClusterName) -> Result<Workloads, ClusterError> {
        self.ports.selectors(cluster).await
    }
    async fn pod_source(
        &self,
        cluster: &ClusterName,
        kind: PodSourceKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Result<PodSource, String>>, ClusterError> {
        self.interceptor.pod_source(kind, namespace, name)?;
        self.ports.pod_source(cluster, kind, namespace, name).await
    }
}

impl<I: Interceptor> Nodes for InterceptedApiServer<'_, I> {
    async fn patch_node(&self, cluster: &ClusterName, name: &str, resource_version: &str, patch: &NodePatch) -> Result<(), ClusterError> {
        self.interceptor.patch_node(name, resource_version, patch)?;
        self.ports.patch_node(cluster, name, resource_version, patch).await
    }
    async fn delete_node(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.interceptor.delete_node(name, uid)?;
        self.ports.delete_node(cluster, name, uid).await
    }
}

impl<I: Interceptor> Evictions for InterceptedApiServer<'_, I> {
    async fn evict(&self, cluster: &ClusterName, pod: &PodKey) -> Result<(), ClusterError> {
        self.interceptor.evict(pod)?;
        self.ports.evict(cluster, pod).await
    }
    async fn delete_pod(&self, cluster: &ClusterName, pod: &PodKey, grace_seconds: i64) -> Result<(), ClusterError> {
        self.interceptor.delete_pod(pod)?;
        self.ports.delete_pod(cluster, pod, grace_seconds).await
    }
}

impl<I: Interceptor> Mirrors for InterceptedApiServer<'_, I> {
    async fn apply_mirror(&self, cluster: &ClusterName, mirror: &NodeClaim) -> Result<(), ClusterError> {
        self.ports.apply_mirror(cluster, mirror).await
    }
    async fn delete_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.ports.delete_mirror(cluster, name, uid).await
    }
    async fn release_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.interceptor.release_mirror(name)?;
        self.ports.release_mirror(cluster, name, uid).await
    }
    async fn hand_over_mirror(&self, cluster: &ClusterName, name: &str) -> Result<(), ClusterError> {
        self.ports.hand_over_mirror(cluster, name).await
    }
}

impl<I: Interceptor> StatusWriter for InterceptedApiServer<'_, I> {
    async fn publish(&self, cluster: &ClusterName, event: &ClusterEvent) -> Result<(), ClusterError> {
        self.ports.publish(cluster, event).await
    }
    async fn write_node_pool_status(&self, cluster: &ClusterName, pool: &NodePool) -> Result<(), ClusterError> {
        self.ports.write_node_pool_status(cluster, pool).await
    }
    async fn write_node_class_status(&self, cluster: &ClusterName, class: &Ec2NodeClass) -> Result<(), ClusterError> {
        self.ports.write_node_class_status(cluster, class).await
    }
    async fn write_node_overlay_status(&self, cluster: &ClusterName, overlay: &NodeOverlay) -> Result<(), ClusterError> {
        self.ports.write_node_overlay_status(cluster, overlay).await
    }
    async fn write_capacity_buffer_status(&self, cluster: &ClusterName, buffer: &CapacityBuffer) -> Result<(), ClusterError> {
        self.ports.write_capacity_buffer_status(cluster, buffer).await
    }
}

//! The Kubernetes API.

use super::{API_SERVER, SimPorts};
use crate::cluster::{Cluster, Eviction};
use crate::world::World;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Node, PodDisruptionBudget};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::labels::TERMINATION_FINALIZER;
use whittle_claims::PodKey;
use whittle_ports::{ClusterError, ClusterEvent, ClusterReader, Evictions, Mirrors, NodePatch, Nodes, Scope, StatusWriter};
use whittle_units::ClusterName;

impl SimPorts {
    /// A call to the API server of a cluster that exists.
    async fn ask<R>(
        &self,
        cluster: &ClusterName,
        what: &str,
        effect: impl FnOnce(&mut World) -> Result<R, ClusterError>,
    ) -> Result<R, ClusterError> {
        let there = cluster.clone();
        self.call(API_SERVER, what, move |world| {
            if world.cluster.name != there {
                return Err(ClusterError::NotFound { what: format!("cluster {there}") });
            }
            effect(world)
        })
        .await
    }

    /// A call that changes something: the controllers notice.
    async fn change<R>(
        &self,
        cluster: &ClusterName,
        what: &str,
        effect: impl FnOnce(&mut World) -> Result<R, ClusterError>,
    ) -> Result<R, ClusterError> {
        let effect = |world: &mut World| {
            world.touch_cluster();
            effect(world)
        };
        self.ask(cluster, what, effect).await
    }
}

/// What a reader of a scope gets.
fn read(cluster: &Cluster, scope: Scope, node: Option<&str>) -> ClusterObjects {
    let all = cluster.objects.snapshot();
    match scope {
        Scope::All => all,
        Scope::Nodes => ClusterObjects {
            nodes: all.nodes,
            node_claims: all.node_claims,
            node_pools: all.node_pools,
            node_classes: all.node_classes,
            ..ClusterObjects::default()
        },
        Scope::Drain => {
            let wanted = node.unwrap_or_default();
            let pods: Vec<_> = all.pods.into_iter().filter(|pod| pod.spec.node_name == wanted).collect();
            let near = |budget: &PodDisruptionBudget| pods.iter().any(|pod| pod.metadata.namespace == budget.metadata.namespace);
            ClusterObjects {
                nodes: all.nodes.into_iter().filter(|node| node.metadata.name == wanted).collect(),
                disruption_budgets: all.disruption_budgets.into_iter().filter(near).collect(),
                volume_attachments: all.volume_attachments.into_iter().filter(|one| one.spec.node_name == wanted).collect(),
                volumes: all.volumes,
                volume_claims: all.volume_claims,
                pods,
                ..ClusterObjects::default()
            }
        }
    }
}

impl ClusterReader for SimPorts {
    async fn read(&self, cluster: &ClusterName, scope: Scope, node: Option<&str>) -> Result<ClusterObjects, ClusterError> {
        self.ask(cluster, "a snapshot", |world| Ok(read(&world.cluster, scope, node))).await
    }
}

impl Mirrors for SimPorts {
    async fn apply_mirror(&self, cluster: &ClusterName, mirror: &NodeClaim) -> Result<(), ClusterError> {
        self.change(cluster, "a NodeClaim", |world| {
            let now = world.now();
            let objects = &mut world.cluster.objects;
            let key = mirror.metadata.key();
            if objects.get::<NodeClaim>(&key).is_none() {
                let mut fresh = mirror.clone();
                fresh.metadata.deletion_timestamp = None;
                objects.create(fresh, now);
                return Ok(());
            }
            objects.change::<NodeClaim>(&key, |known| {
                known.metadata.labels.clone_from(&mirror.metadata.labels);
                known.metadata.annotations.clone_from(&mirror.metadata.annotations);
                if !known.metadata.is_deleting() {
                    known.metadata.finalizers.clone_from(&mirror.metadata.finalizers);
                }
                known.metadata.owner_references.clone_from(&mirror.metadata.owner_references);
                known.status = mirror.status.clone();
            });
            Ok(())
        })
        .await
    }
    async fn delete_mirror(&self, cluster: &ClusterName, name: &str) -> Result<(), ClusterError> {
        self.change(cluster, "a NodeClaim", |world| {
            let now = world.now();
            world.cluster.objects.delete::<NodeClaim>(name, now);
            Ok(())
        })
        .await
    }
    async fn release_mirror(&self, cluster: &ClusterName, name: &str) -> Result<(), ClusterError> {
        self.change(cluster, "a NodeClaim", |world| {
            world.cluster.objects.change::<NodeClaim>(name, |mirror| mirror.metadata.finalizers.retain(|one| one != TERMINATION_FINALIZER));
            Ok(())
        })
        .await
    }
}

fn patch(node: &mut Node, patch: &NodePatch) {
    let meta = &mut node.metadata;
    meta.labels.extend(patch.labels.clone());
    meta.annotations.extend(patch.annotations.clone());
    meta.annotations.retain(|key, _| !patch.remove_annotations.contains(key));
    for taint in &patch.add_taints {
        if !node.spec.taints.iter().any(|known| known.same(taint)) {
            node.spec.taints.push(taint.clone());
        }
    }
    node.spec.taints.retain(|taint| !patch.remove_taints.iter().any(|gone| gone.same(taint)));
    if let Some(finalizer) = &patch.add_finalizer
        && !meta.finalizers.contains(finalizer)
        && !meta.is_deleting()
    {
        meta.finalizers.push(finalizer.clone());
    }
    if let Some(finalizer) = &patch.remove_finalizer {
        meta.finalizers.retain(|known| known != finalizer);
    }
    if let Some(owner) = &patch.owner
        && !meta.owner_references.iter().any(|known| known.uid == owner.uid)
    {
        meta.owner_references.push(owner.clone());
    }
}

impl Nodes for SimPorts {
    async fn patch_node(&self, cluster: &ClusterName, name: &str, resource_version: &str, change: &NodePatch) -> Result<(), ClusterError> {
        self.change(cluster, "a Node", |world| {
            let what = || format!("node {name}");
            let known = world.cluster.objects.get::<Node>(name).ok_or_else(|| ClusterError::NotFound { what: what() })?;
            if !resource_version.is_empty() && known.metadata.resource_version != resource_version {
                return Err(ClusterError::Conflict { what: what() });
            }
            world.cluster.objects.change::<Node>(name, |node| patch(node, change));
            Ok(())
        })
        .await
    }
    async fn delete_node(&self, cluster: &ClusterName, name: &str) -> Result<(), ClusterError> {
        self.change(cluster, "a Node", |world| {
            let now = world.now();
            world.cluster.objects.delete::<Node>(name, now);
            Ok(())
        })
        .await
    }
}

impl Evictions for SimPorts {
    async fn evict(&self, cluster: &ClusterName, pod: &PodKey) -> Result<(), ClusterError> {
        self.change(cluster, "a pod", |world| {
            let now = world.now();
            let key = format!("{}/{}", pod.namespace, pod.name);
            match world.evict(&key, &pod.uid, now) {
                Eviction::Granted => Ok(()),
                Eviction::Refused(message) | Eviction::Confused(message) => {
                    Err(ClusterError::EvictionForbidden { what: format!("pod {key}"), message })
                }
            }
        })
        .await
    }
    async fn delete_pod(&self, cluster: &ClusterName, pod: &PodKey, grace_seconds: i64) -> Result<(), ClusterError> {
        self.change(cluster, "a pod", |world| {
            let now = world.now();
            let key = format!("{}/{}", pod.namespace, pod.name);
            if world.cluster.objects.pods.get(&key).is_some_and(|known| pod.uid.is_empty() || known.metadata.uid == pod.uid) {
                world.force(&key, grace_seconds, now);
            }
            Ok(())
        })
        .await
    }
}

impl StatusWriter for SimPorts {
    async fn publish(&self, cluster: &ClusterName, event: &ClusterEvent) -> Result<(), ClusterError> {
        self.ask(cluster, "an event", |world| {
            world.publish(event);
            Ok(())
        })
        .await
    }
    async fn write_node_pool_status(&self, cluster: &ClusterName, pool: &NodePool) -> Result<(), ClusterError> {
        self.change(cluster, "a NodePool", |world| {
            let key = crate::cluster::objects::key_of(pool);
            let there = world.cluster.objects.change::<NodePool>(&key, |known| known.status = pool.status.clone());
            if there { Ok(()) } else { Err(ClusterError::NotFound { what: format!("NodePool {key}") }) }
        })
        .await
    }
    async fn write_node_class_status(&self, cluster: &ClusterName, class: &Ec2NodeClass) -> Result<(), ClusterError> {
        self.change(cluster, "an EC2NodeClass", |world| {
            let key = crate::cluster::objects::key_of(class);
            let there = world.cluster.objects.change::<Ec2NodeClass>(&key, |known| {
                known.status = class.status.clone();
                known.metadata.annotations.extend(class.metadata.annotations.clone());
                if !known.metadata.is_deleting() || class.metadata.finalizers.is_empty() {
                    known.metadata.finalizers.clone_from(&class.metadata.finalizers);
                }
            });
            if there { Ok(()) } else { Err(ClusterError::NotFound { what: format!("EC2NodeClass {key}") }) }
        })
        .await
    }
}

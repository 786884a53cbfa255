//! The Kubernetes API.

use super::{API_SERVER, SimPorts};
use crate::Function;
use crate::cluster::objects::key_of;
use crate::cluster::{Eviction, Objects, Table, Tabled};
use crate::exec::lock;
use crate::mutants::Mutant;
use crate::world::World;
use std::collections::BTreeMap;
use whittle_api::k8s::{Kind, Node, PodSource, PodSourceKind, Workloads};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_api::labels::TERMINATION_FINALIZER;
use whittle_api::{ClusterObjects, OwnerReference, labels};
use whittle_claims::PodKey;
use whittle_ports::{
    ClusterError, ClusterEvent, ClusterReader, Evictions, Mirrors, NodePatch, Nodes, ObjectKind, Presence, Scope, StatusWriter,
    WorkloadReader,
};
use whittle_units::{ClusterName, InstanceId, ProviderId, Timestamp};

/// The API server's limit of an event's message, in bytes.
const MESSAGE_MAX: usize = 1024;

impl SimPorts {
    /// A call to the API server of an existing cluster.
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

    /// A call with a side effect, to which the controllers react.
    async fn change<R>(
        &self,
        cluster: &ClusterName,
        what: &str,
        effect: impl FnOnce(&mut World) -> Result<R, ClusterError>,
    ) -> Result<R, ClusterError> {
        let effect = |world: &mut World| {
            self.reviewed(world, what)?;
            world.touch_cluster();
            effect(world)
        };
        self.ask(cluster, what, effect).await
    }

    /// A change that may conflict with another writer.
    async fn contend<R>(
        &self,
        cluster: &ClusterName,
        what: &str,
        effect: impl FnOnce(&mut World) -> Result<R, ClusterError>,
    ) -> Result<R, ClusterError> {
        let there = cluster.clone();
        self.race(API_SERVER, what, move |world| {
            if world.cluster.name != there {
                return Err(ClusterError::NotFound { what: format!("cluster {there}") });
            }
            self.reviewed(world, what)?;
            world.touch_cluster();
            effect(world)
        })
        .await
    }

    /// A foreign webhook may deny writes of functions to Nodes and NodeClaims.
    fn reviewed(&self, world: &mut World, what: &str) -> Result<(), ClusterError> {
        let asked = self.caller(world).is_some() && matches!(what, "a Node" | "a NodeClaim");
        let of_claims = what == "a NodeClaim" && world.fault_occurs(world.faults.claim_refusals);
        if asked && (of_claims || world.fault_occurs(world.faults.webhook_refusals)) {
            let message = "admission webhook \"policy.example.com\" denied the request".to_owned();
            return Err(ClusterError::Invalid { what: what.to_owned(), message });
        }
        Ok(())
    }
}

/// The objects of a scope. Only these are copied.
fn read(objects: &Objects, scope: Scope, node: Option<&str>) -> ClusterObjects {
    fn all<T: Clone>(table: &Table<T>) -> Vec<T> {
        table.values().cloned().collect()
    }
    match scope {
        Scope::All => ClusterObjects { volume_attachments: Vec::new(), ..objects.snapshot() },
        Scope::Nodes => ClusterObjects {
            nodes: all(&objects.nodes),
            node_claims: all(&objects.node_claims),
            node_pools: all(&objects.node_pools),
            node_classes: all(&objects.node_classes),
            ..ClusterObjects::default()
        },
        Scope::Karpenter => ClusterObjects {
            node_claims: all(&objects.node_claims),
            node_pools: all(&objects.node_pools),
            node_classes: all(&objects.node_classes),
            ..ClusterObjects::default()
        },
        Scope::NodesAndClaims => {
            ClusterObjects { nodes: all(&objects.nodes), node_claims: all(&objects.node_claims), ..ClusterObjects::default() }
        }
        Scope::Pods => {
            let pods = node.into_iter().flat_map(|node| objects.pods_on(node)).cloned().collect();
            ClusterObjects { pods, ..ClusterObjects::default() }
        }
        Scope::Unbound => ClusterObjects {
            pods: objects.pods.values().filter(|pod| !pod.is_bound()).cloned().collect(),
            capacity_buffers: all(&objects.capacity_buffers),
            node_overlays: all(&objects.node_overlays),
            ..ClusterObjects::default()
        },
        Scope::Drain => {
            let Some(wanted) = node else { return ClusterObjects::default() };
            ClusterObjects {
                nodes: objects.nodes.get(wanted).cloned().into_iter().collect(),
                pods: objects.pods_on(wanted).cloned().collect(),
                ..ClusterObjects::default()
            }
        }
        Scope::Volumes => {
            let attached = objects.volume_attachments.values().filter(|one| Some(one.spec.node_name.as_str()) == node);
            let volume_attachments: Vec<_> = attached.cloned().collect();
            let volume_claims = if volume_attachments.is_empty() { Vec::new() } else { all(&objects.volume_claims) };
            ClusterObjects { volume_attachments, volume_claims: volume_claims.into(), ..ClusterObjects::default() }
        }
    }
}

/// What the API server shows now.
fn seen(world: &mut World, scope: Scope, node: Option<&str>) -> ClusterObjects {
    let mut seen = world.with_objects(|objects| read(objects, scope, node));
    if matches!(scope, Scope::All | Scope::Nodes | Scope::Karpenter) {
        seen.karpenter.clone_from(&world.cluster.karpenter);
    }
    world.hide(&mut seen);
    seen
}

impl ClusterReader for SimPorts {
    async fn read(&self, cluster: &ClusterName, scope: Scope, node: Option<&str>) -> Result<ClusterObjects, ClusterError> {
        self.ask(cluster, "a snapshot", |world| {
            let mut seen = seen(world, scope, node);
            let caller = self.caller(world);
            world.keep_look(caller, scope, &seen);
            if caller == Some(Function::Consolidate) && scope == Scope::All {
                world.observe_cluster_listing(&seen);
            }
            if caller == Some(Function::Sweep) {
                world.observe_standalone_listed(&seen);
            }
            if world.is(Mutant::PoolBudgetsIgnored) {
                seen.node_pools.iter_mut().for_each(|pool| pool.spec.disruption.budgets.clear());
            }
            if world.is(Mutant::ReplacementPlannedLate) && caller == Some(Function::Schedule) {
                seen.nodes.retain(|node| !node.metadata.is_deleting());
            }
            Ok(seen)
        })
        .await
    }
    async fn read_kept(&self, cluster: &ClusterName, scope: Scope) -> Result<Option<ClusterObjects>, ClusterError> {
        let keeps_none = {
            let world = lock(&self.world);
            !world.keeps_look(self.caller(&world), scope)
        };
        if keeps_none {
            return Ok(None);
        }
        self.ask(cluster, "a quiet look", |world| {
            let seen = seen(world, scope, None);
            let caller = self.caller(world);
            let kept = world.with_kept_look(caller, scope, seen);
            if let Some(seen) = kept.as_ref().filter(|_| caller == Some(Function::Sweep)) {
                world.observe_standalone_listed(seen);
            }
            Ok(kept)
        })
        .await
    }
    /// As the execution environment of a function that was never idle for long.
    async fn departures(&self, _: &ClusterName) -> BTreeMap<String, Timestamp> {
        lock(&self.world).cluster.departures.clone()
    }
    async fn look_up(&self, cluster: &ClusterName, kind: ObjectKind, name: &str) -> Result<Presence, ClusterError> {
        self.ask(cluster, "one object", |world| Ok(world.presence(kind, name))).await
    }
}

impl WorkloadReader for SimPorts {
    async fn selectors(&self, cluster: &ClusterName) -> Result<Workloads, ClusterError> {
        self.ask(cluster, "selectors", |world| Ok(world.cluster.selectors())).await
    }
    async fn pod_source(
        &self,
        cluster: &ClusterName,
        kind: PodSourceKind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Result<PodSource, String>>, ClusterError> {
        self.ask(cluster, "a pod template", |world| Ok(world.cluster.pod_source(kind, &format!("{namespace}/{name}")).map(Ok))).await
    }
}

impl World {
    /// A read of one object, which is never stale.
    fn presence(&self, kind: ObjectKind, name: &str) -> Presence {
        if self.is(Mutant::AbsenceUnverified) || self.is(Mutant::SingleReadTrusted) {
            return Presence::NotFound;
        }
        let objects = &self.cluster.objects;
        let found = match kind {
            ObjectKind::NodePool => objects.get::<NodePool>(name).map(|pool| &pool.metadata),
            ObjectKind::Provisioner => objects.get::<NodePool>(&format!("Provisioner/{name}")).map(|pool| &pool.metadata),
            ObjectKind::NodeClaim => objects.get::<NodeClaim>(name).map(|claim| &claim.metadata),
            ObjectKind::NodeClass => objects.get::<Ec2NodeClass>(name).map(|class| &class.metadata),
            ObjectKind::NodeTemplate => objects.get::<Ec2NodeClass>(&format!("AWSNodeTemplate/{name}")).map(|class| &class.metadata),
            ObjectKind::Node => objects.get::<Node>(name).map(|node| &node.metadata),
        };
        let claim = objects.get::<NodeClaim>(name).filter(|_| kind == ObjectKind::NodeClaim);
        let node = objects.get::<Node>(name).filter(|_| kind == ObjectKind::Node);
        let machine = claim.map(|claim| &claim.status.provider_id).or(node.map(|node| &node.spec.provider_id));
        let provider_id = machine.cloned().unwrap_or_default();
        found.map_or(Presence::NotFound, |meta| Presence::Exists { uid: meta.uid.clone(), generation: meta.generation, provider_id })
    }

    /// The uid of the object that an event is about, of the kinds that have events without one.
    fn uid_of(&self, kind: &str, name: &str) -> String {
        let objects = &self.cluster.objects;
        let found = match kind {
            NodeClaim::KIND => objects.get::<NodeClaim>(name).map(|claim| &claim.metadata),
            Node::KIND => objects.get::<Node>(name).map(|node| &node.metadata),
            NodePool::KIND => objects.get::<NodePool>(name).map(|pool| &pool.metadata),
            _ => None,
        };
        found.map(|metadata| metadata.uid.clone()).unwrap_or_default()
    }

    /// The mutant that removes finalizers before the machine has ended.
    pub(crate) fn remove_finalizers(&mut self, id: &InstanceId) {
        let provider = self.region.machines.get(id).map(|machine| machine.instance.provider_id());
        let Some(provider) = provider else { return };
        let of_machine = |node: &&Node| node.spec.provider_id == provider.as_str();
        let name = self.cluster.objects.nodes.values().find(of_machine).map(|node| node.metadata.name.clone());
        if let Some(name) = name {
            self.take_finalizer::<Node>(&name, &provider);
        }
    }

    /// Whether the NodeClaim of a name has the expected uid.
    fn is_mirror(&self, name: &str, uid: &str) -> bool {
        uid.is_empty() || self.cluster.objects.get::<NodeClaim>(name).is_some_and(|known| known.metadata.uid == uid)
    }

    /// A NodeClaim is Karpenter's from now on, and so is its machine.
    fn hand_over(&mut self, name: &str) {
        let machine = self.cluster.objects.get::<NodeClaim>(name).and_then(|object| self.machine_of_provider(&object.status.provider_id));
        if let Some(id) = machine {
            self.observe_karpenter(id);
        }
        self.cluster.objects.change::<NodeClaim>(name, |object| {
            object.metadata.annotations.remove(labels::MANAGED);
        });
    }

    /// Removes our finalizer from the object of a machine.
    fn take_finalizer<T: Tabled>(&mut self, name: &str, provider: &ProviderId) {
        let held = self
            .cluster
            .objects
            .get::<T>(name)
            .is_some_and(|object| object.meta().finalizers.iter().any(|one| one == TERMINATION_FINALIZER));
        if held {
            self.observe_finalizer_removed(&format!("{} {name}", T::KIND), provider);
        }
        self.cluster.objects.change::<T>(name, |object| object.meta_mut().finalizers.retain(|one| one != TERMINATION_FINALIZER));
    }
}

impl Mirrors for SimPorts {
    async fn apply_mirror(&self, cluster: &ClusterName, mirror: &NodeClaim) -> Result<(), ClusterError> {
        self.change(cluster, "a NodeClaim", |world| {
            let now = world.now();
            let key = mirror.metadata.key();
            let wanted = mirror.metadata.uid.as_str();
            let there = world.cluster.objects.get::<NodeClaim>(&key);
            if !wanted.is_empty() && there.is_none_or(|known| known.metadata.uid != wanted) {
                return Err(ClusterError::NotFound { what: format!("NodeClaim {key} of uid {wanted}") });
            }
            world.cluster.apply_mirror(mirror, now);
            Ok(())
        })
        .await
    }
    async fn delete_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.change(cluster, "a NodeClaim", |world| {
            let now = world.now();
            if world.is_mirror(name, uid) {
                world.observe_node_claim_deleted(name);
                world.cluster.objects.delete::<NodeClaim>(name, now);
            }
            Ok(())
        })
        .await
    }
    async fn release_mirror(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.change(cluster, "a NodeClaim", |world| {
            if !world.is_mirror(name, uid) {
                return Ok(());
            }
            let provider = world.cluster.objects.get::<NodeClaim>(name).map(|mirror| ProviderId::new(mirror.status.provider_id.clone()));
            world.take_finalizer::<NodeClaim>(name, &provider.unwrap_or_default());
            Ok(())
        })
        .await
    }
    async fn hand_over_mirror(&self, cluster: &ClusterName, name: &str) -> Result<(), ClusterError> {
        self.change(cluster, "a NodeClaim", |world| {
            world.hand_over(name);
            Ok(())
        })
        .await
    }
}

fn patch(node: &mut Node, patch: &NodePatch) {
    let meta = &mut node.metadata;
    meta.labels.extend(patch.labels.clone());
    meta.annotations.extend(patch.annotations.clone());
    meta.labels.retain(|key, _| !patch.remove_labels.contains(key));
    meta.annotations.retain(|key, _| !patch.remove_annotations.contains(key));
    node.spec.taints.retain(|taint| !patch.remove_taints.iter().any(|gone| gone.same(taint)));
    for taint in &patch.add_taints {
        if !node.spec.taints.iter().any(|known| known.same(taint)) {
            node.spec.taints.push(taint.clone());
        }
    }
    if let Some(finalizer) = &patch.add_finalizer
        && !meta.finalizers.contains(finalizer)
        && !meta.is_deleting()
    {
        meta.finalizers.push(finalizer.clone());
    }
    if let Some(finalizer) = &patch.remove_finalizer {
        meta.finalizers.retain(|known| known != finalizer);
    }
    if patch.disown {
        meta.owner_references.retain(|owner| owner.kind != "NodeClaim");
    }
    if let Some(owner) = &patch.owner
        && !meta.owner_references.iter().any(|known| known.uid == owner.uid)
    {
        meta.owner_references.push(owner.clone());
    }
}

impl Nodes for SimPorts {
    async fn patch_node(&self, cluster: &ClusterName, name: &str, resource_version: &str, change: &NodePatch) -> Result<(), ClusterError> {
        self.contend(cluster, "a Node", |world| {
            let what = || format!("node {name}");
            let known = world.cluster.objects.get::<Node>(name).ok_or_else(|| ClusterError::NotFound { what: what() })?;
            let is_another = !change.uid.is_empty() && known.metadata.uid != change.uid;
            let is_left = change.unless_deleting && known.metadata.is_deleting();
            if is_another || is_left || !resource_version.is_empty() && known.metadata.resource_version != resource_version {
                return Err(ClusterError::Conflict { what: what() });
            }
            if change.remove_finalizer.as_deref() == Some(TERMINATION_FINALIZER) {
                let provider = ProviderId::new(known.spec.provider_id.clone());
                world.observe_finalizer_removed(&format!("Node {name}"), &provider);
            }
            // The owner has the uid that the API server gave it, and one that does not exist is left out.
            let mut change = change.clone();
            if let Some(owner) = change.owner.take_if(|owner| owner.kind == NodeClaim::KIND) {
                let stored = world.cluster.objects.get::<NodeClaim>(&owner.name);
                change.owner = stored.map(|claim| OwnerReference { uid: claim.metadata.uid.clone(), ..owner });
            }
            world.cluster.objects.change::<Node>(name, |node| patch(node, &change));
            world.observe_nodes();
            Ok(())
        })
        .await
    }
    async fn delete_node(&self, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.change(cluster, "a Node", |world| {
            let now = world.now();
            let known = world.cluster.objects.get::<Node>(name);
            if known.is_some_and(|known| uid.is_empty() || known.metadata.uid == uid) {
                world.cluster.objects.delete::<Node>(name, now);
            }
            Ok(())
        })
        .await
    }
}

/// The API server's 403: nothing is created in a namespace that is being deleted.
fn terminating(namespace: &str, name: &str) -> ClusterError {
    let message = format!("unable to create new content in namespace {namespace} because it is being terminated");
    ClusterError::Invalid { what: name.to_owned(), message }
}

/// Whether there is this pod, and not another one of its name.
fn is_there(world: &World, pod: &PodKey) -> bool {
    let known = world.cluster.objects.pods.get(&format!("{}/{}", pod.namespace, pod.name));
    known.is_some_and(|known| pod.uid.is_empty() || known.metadata.uid == pod.uid)
}

fn gone(pod: &PodKey) -> ClusterError {
    ClusterError::NotFound { what: format!("pod {}/{}", pod.namespace, pod.name) }
}

impl Evictions for SimPorts {
    async fn evict(&self, cluster: &ClusterName, pod: &PodKey) -> Result<(), ClusterError> {
        self.change(cluster, "a pod", |world| {
            let now = world.now();
            let key = format!("{}/{}", pod.namespace, pod.name);
            world.observe_eviction_rate();
            world.maybe_delete_namespace(&pod.namespace);
            if world.cluster.is_terminating(&pod.namespace) {
                return Err(terminating(&pod.namespace, &key));
            }
            if !is_there(world, pod) {
                return Err(gone(pod));
            }
            match world.evict(&key, &pod.uid, now) {
                Eviction::Granted => Ok(()),
                Eviction::Refused(_) if world.is(Mutant::RefusedPodsDeleted) => {
                    world.force(&key, 30, now);
                    Ok(())
                }
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
            if !is_there(world, pod) {
                return Err(gone(pod));
            }
            world.force(&key, grace_seconds, now);
            Ok(())
        })
        .await
    }
}

impl StatusWriter for SimPorts {
    async fn publish(&self, cluster: &ClusterName, event: &ClusterEvent) -> Result<(), ClusterError> {
        self.ask(cluster, "an event", |world| {
            // The API server refuses it, which is a success: what the event is about goes as well.
            if world.cluster.is_terminating(&event.namespace) {
                return Ok(());
            }
            let mut event = event.clone();
            if event.uid.is_empty() {
                event.uid = world.uid_of(&event.kind, &event.name);
            }
            event.message.truncate(event.message.floor_char_boundary(MESSAGE_MAX));
            world.publish(&event);
            Ok(())
        })
        .await
    }
    async fn write_node_pool_status(&self, cluster: &ClusterName, pool: &NodePool) -> Result<(), ClusterError> {
        self.change(cluster, "a NodePool", |world| {
            // What stands for a Provisioner shows a status, for people at the prompt: on an API server it has none.
            world.cluster.objects.change::<NodePool>(&key_of(pool), |known| known.status = pool.status.clone());
            Ok(())
        })
        .await
    }
    async fn write_node_class_status(&self, cluster: &ClusterName, class: &Ec2NodeClass) -> Result<(), ClusterError> {
        self.change(cluster, "an EC2NodeClass", |world| {
            let key = key_of(class);
            let is_ours = |finalizer: &&String| *finalizer == labels::NODE_CLASS_FINALIZER;
            let wanted = class.metadata.finalizers.iter().find(is_ours);
            let holds = |known: &Ec2NodeClass| known.metadata.finalizers.iter().any(|held| is_ours(&held));
            if wanted.is_none() && world.cluster.objects.get::<Ec2NodeClass>(&key).is_some_and(holds) {
                world.observe_class_finalizer_removed(&class.metadata.name);
            }
            world.cluster.objects.change::<Ec2NodeClass>(&key, |known| {
                known.status = class.status.clone();
                for key in [labels::NODE_CLASS_HASH, labels::NODE_CLASS_HASH_VERSION] {
                    let hash = class.metadata.annotation(key).map(|hash| (key.to_owned(), hash.to_owned()));
                    known.metadata.annotations.extend(hash);
                }
                let adds = wanted.filter(|_| !holds(known) && !known.metadata.is_deleting());
                known.metadata.finalizers.retain(|held| wanted.is_some() || !is_ours(&held));
                known.metadata.finalizers.extend(adds.cloned());
            });
            Ok(())
        })
        .await
    }
    async fn write_node_overlay_status(&self, cluster: &ClusterName, overlay: &NodeOverlay) -> Result<(), ClusterError> {
        self.change(cluster, "a NodeOverlay", |world| {
            let key = overlay.metadata.key();
            world.cluster.objects.change::<NodeOverlay>(&key, |known| known.status = overlay.status.clone());
            Ok(())
        })
        .await
    }
    async fn write_capacity_buffer_status(&self, cluster: &ClusterName, buffer: &CapacityBuffer) -> Result<(), ClusterError> {
        self.change(cluster, "a CapacityBuffer", |world| {
            let key = buffer.metadata.key();
            world.cluster.objects.change::<CapacityBuffer>(&key, |known| known.status = buffer.status.clone());
            Ok(())
        })
        .await
    }
}

//! The invariants of the design, checked from outside: what must hold in every quiescent world, and what must never have
//! happened before.

use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Node;
use whittle_api::karpenter::{NodeClaim, NodeClaimStatus, NodePool};
use whittle_api::labels;
use whittle_claims::Claim;
use whittle_model::pods::is_provisionable;
use whittle_units::{InstanceId, Resources};

/// A foreign Node as it was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    labels: BTreeMap<String, String>,
    taints: Vec<String>,
}

impl Foreign {
    fn of(node: &Node) -> Self {
        let ours = |taint: &&whittle_api::k8s::Taint| !taint.key.starts_with("node.kubernetes.io/");
        let taints = node.spec.taints.iter().filter(ours).map(ToString::to_string).collect();
        Self { labels: node.metadata.labels.clone().into_inner(), taints }
    }
}

/// Whether Whittle manages a Node.
fn is_ours(node: &Node) -> bool {
    let labelled = [labels::NODE_POOL, labels::EC2_NODE_CLASS].iter().any(|key| node.metadata.labels.contains_key(*key));
    labelled || node.spec.taints.iter().any(|taint| taint.key == labels::UNREGISTERED_TAINT)
}

/// Whether a NodeClaim is standalone: our own ones have a pool or our finalizer.
pub(crate) fn is_standalone(object: &NodeClaim) -> bool {
    object.node_pool().is_none() && !object.metadata.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER)
}

/// Whether another controller manages a NodeClaim: the finalizers of others say nothing about machines.
pub(crate) fn is_managed_elsewhere(object: &NodeClaim) -> bool {
    object.status != NodeClaimStatus::default()
}

impl World {
    /// Nodes that Whittle does not manage must stay as they were.
    pub(crate) fn observe_foreign_nodes(&mut self) {
        let mut broken = Vec::new();
        for (name, node) in self.cluster.objects.nodes.iter().filter(|(_, node)| !is_ours(node)) {
            let now = Foreign::of(node);
            let known = self.foreign.entry(name.clone()).or_insert_with(|| now.clone());
            if *known != now {
                *known = now;
                broken.push(format!("node {name} is not Whittle's and was changed"));
            }
        }
        self.violations.extend(broken);
    }

    /// Checks the resources of a pool's live claims against its limits, whenever a claim is written.
    pub(crate) fn observe_limits(&mut self) {
        let cluster = self.name();
        let mut used: BTreeMap<String, Resources> = BTreeMap::new();
        for claim in self.store.claims(&cluster).map(|stored| &stored.value).filter(|claim| claim.is_live()) {
            if let Some(machine) = claim.machine() {
                used.entry(claim.spec.node_pool.clone()).or_default().add(&machine.capacity);
            }
        }
        let over = |pool: &&NodePool| {
            let Some(used) = used.get(&pool.metadata.name) else { return false };
            pool.spec.limits.iter().any(|(name, limit)| name != "nodes" && used.get(name) > limit)
        };
        let broken: Vec<String> = self
            .cluster
            .objects
            .node_pools
            .values()
            .filter(over)
            .map(|pool| format!("pool {} is over its limits", pool.metadata.name))
            .collect();
        for text in broken {
            if !self.violations.contains(&text) {
                self.violations.push(text);
            }
        }
    }

    /// Everything that is wrong with a quiescent world, and what went wrong before.
    pub fn verdict(&self) -> Vec<String> {
        let mut broken = self.violations.clone();
        let cluster = self.name();
        let claims: Vec<&Claim> = self.store.claims(&cluster).map(|stored| &stored.value).collect();
        self.check_machines(&claims, &mut broken);
        self.check_cluster(&claims, &mut broken);
        broken.extend(self.needlessly_tainted());
        broken.extend(self.left_tainted());
        let reported = |kept: &crate::cluster::KeptEvent| kept.event.reason == "FailedTermination";
        // Also if the refused run is killed before it reports this: the next one is refused as well.
        if self.lag.refused > 0 && !self.cluster.events.iter().any(reported) {
            broken.push("EC2 refused to terminate a machine and no Event reported it".to_owned());
        }
        broken
    }

    fn check_machines(&self, claims: &[&Claim], broken: &mut Vec<String>) {
        let mut named: BTreeMap<&InstanceId, Vec<&str>> = BTreeMap::new();
        for claim in claims.iter().filter(|claim| claim.is_live()) {
            match claim.machine() {
                Some(machine) => named.entry(&machine.instance_id).or_default().push(claim.key.name.as_str()),
                None => broken.push(format!("claim {} has no machine ({})", claim.key.name, claim.phase.name())),
            }
        }
        for (id, claims) in named.iter().filter(|(_, claims)| claims.len() > 1) {
            broken.push(format!("machine {id} belongs to several claims: {}", claims.join(", ")));
        }
        for (id, machine) in self.region.machines.iter().filter(|(_, machine)| machine.instance.is_alive()) {
            if !named.contains_key(id) && !self.is_karpenter_machine(id.as_str()) && !self.was_released(id) {
                let tag = machine.instance.tags.get(labels::TAG_NODE_CLAIM).map_or("none", String::as_str);
                broken.push(format!("machine {id} runs and belongs to no claim (tag {tag})"));
            }
        }
        for (id, claims) in &named {
            if !self.region.machines.get(*id).is_some_and(|machine| machine.instance.is_alive()) {
                broken.push(format!("claim {} names machine {id}, which does not exist", claims.join(", ")));
            }
        }
    }

    fn check_cluster(&self, claims: &[&Claim], broken: &mut Vec<String>) {
        let live: BTreeSet<&str> = claims.iter().filter(|claim| claim.is_live()).map(|claim| claim.key.name.as_str()).collect();
        for (name, object) in self.cluster.objects.node_claims.iter().filter(|(name, _)| !live.contains(name.as_str())) {
            if self.is_karpenter_machine(&object.status.provider_id) {
                if object.metadata.annotation(labels::MANAGED).is_some() {
                    broken.push(format!("NodeClaim {name} is Karpenter's and still marked as Whittle's"));
                }
                continue;
            }
            if !is_standalone(object) {
                broken.push(format!("NodeClaim {name} remains in the cluster without a claim"));
            } else if self.is_on()
                && object.spec.node_class_ref.group == labels::AWS_DOMAIN
                && !is_managed_elsewhere(object)
                && !object.metadata.is_deleting()
            {
                broken.push(format!("NodeClaim {name} is standalone and was not adopted"));
            }
        }
        let nodes: BTreeSet<&str> = claims.iter().filter(|claim| claim.is_live()).filter_map(|claim| claim.node_name()).collect();
        for node in self.cluster.objects.nodes.values().filter(|node| is_ours(node)) {
            let is_released = || self.machine_of_provider(&node.spec.provider_id).is_some_and(|id| self.was_released(&id));
            if !nodes.contains(node.metadata.name.as_str()) && !self.is_karpenter_machine(&node.spec.provider_id) && !is_released() {
                broken.push(format!("node {} belongs to no claim", node.metadata.name));
            }
        }
        let decisions = self.store.decisions(&self.cluster.name);
        for pod in self.cluster.objects.pods.values().filter(|pod| is_provisionable(pod) && !pod.metadata.is_deleting()) {
            let key = pod.metadata.key();
            let explained = decisions.iter().any(|decision| decision.subject == format!("pod/{key}"))
                || self.cluster.events.iter().any(|kept| kept.event.uid == pod.metadata.uid && kept.event.reason != "FailedScheduling")
                || claims.iter().any(|claim| claim.is_live() && claim.spec.pods.iter().any(|planned| planned.uid == pod.metadata.uid));
            if self.is_on() && !explained && !self.is_uninstalling() {
                broken.push(format!("pod {key} is pending, not planned, and has no reason"));
            }
        }
    }
}

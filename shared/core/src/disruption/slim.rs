//! A smaller cluster that answers a simulation just as the whole one would.
//!
//! A pass asks the same question for every node, and most of the cluster is the same each time. Pods that stay and that
//! nothing counts are taken off their nodes together with the room they use; nodes on which no pod of the question fits
//! are left out. Whenever a pod of the question looks at other pods (spread, affinity), the whole cluster is asked.

use super::candidates::Candidate;
use super::state::World;
use crate::pods::{effective_requests, host_ports, is_daemon_owned, is_provisionable};
use crate::state::StateNode;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::k8s::Pod;
use whittle_units::Resources;

pub(super) struct Slim<'w> {
    world: &'w World<'w>,
    at: BTreeMap<&'w str, usize>,
    nodes: Vec<SlimNode>,
    /// What the pods need that are to be placed in every question.
    always: Vec<Resources>,
}

struct SlimNode {
    state: StateNode,
    /// What is left for pods that move; `None` where the node has to stay in the picture.
    room: Option<Resources>,
}

impl<'w> Slim<'w> {
    /// `None` when pods that are to be placed anyway look at others.
    pub(super) fn new(world: &'w World<'w>) -> Option<Self> {
        let cluster = &world.input.cluster;
        if !world.input.settings.solve.default_spread.is_empty() || !cluster.virtual_pods.is_empty() {
            return None;
        }
        let pods = &cluster.objects.pods;
        let going =
            cluster.nodes.iter().filter(|node| node.marked_for_deletion).flat_map(|node| node.pods.iter().filter_map(|at| pods.get(*at)));
        let always: Vec<&Pod> = pods.iter().filter(|pod| is_provisionable(pod)).chain(going).collect();
        if always.iter().any(|pod| looks_at_others(pod)) {
            return None;
        }
        let limited = |node: &StateNode| {
            let pool = node.node_pool().and_then(|name| cluster.objects.node_pools.iter().find(|pool| pool.metadata.name == name));
            pool.is_some_and(|pool| !pool.spec.limits.is_empty())
        };
        Some(Self {
            world,
            at: cluster.nodes.iter().enumerate().map(|(at, node)| (node.name(), at)).collect(),
            nodes: cluster.nodes.iter().map(|node| slim(node, pods, limited(node))).collect(),
            always: always.into_iter().map(effective_requests).collect(),
        })
    }

    /// The nodes that matter for removing these candidates; `None` when their pods look at others.
    pub(super) fn nodes(&self, candidates: &[&Candidate<'_>]) -> Option<Vec<StateNode>> {
        let moving: Vec<&Pod> = candidates.iter().flat_map(|candidate| candidate.machine.pods.iter().copied()).collect();
        if moving.iter().any(|pod| looks_at_others(pod)) {
            return None;
        }
        let mut needs: Vec<Resources> = moving.into_iter().map(effective_requests).collect();
        needs.sort();
        needs.dedup();
        let leaving: Vec<usize> = candidates.iter().filter_map(|candidate| self.at.get(candidate.name()).copied()).collect();
        let mut kept = Vec::new();
        for (at, (whole, slim)) in self.world.input.cluster.nodes.iter().zip(&self.nodes).enumerate() {
            if leaving.contains(&at) {
                kept.push(whole.clone());
            } else if slim.room.as_ref().is_none_or(|room| needs.iter().chain(&self.always).any(|need| need.fits(room))) {
                kept.push(slim.state.clone());
            }
        }
        Some(kept)
    }
}

/// Takes off what only uses room.
fn slim(node: &StateNode, pods: &[Pod], limited: bool) -> SlimNode {
    let Some(of_node) = node.node.as_ref().filter(|_| node.initialized() && !node.marked_for_deletion) else {
        return SlimNode { state: node.clone(), room: None };
    };
    let mut allocatable = node.allocatable();
    let (mut room, mut staying, mut repels) = (allocatable.clone(), Vec::new(), false);
    for (at, pod) in node.pods.iter().filter_map(|at| Some((*at, pods.get(*at)?))) {
        let needs = effective_requests(pod);
        room.subtract(&needs);
        repels |= pod.spec.affinity.as_ref().is_some_and(|affinity| affinity.pod_anti_affinity.is_some());
        if is_plain(pod) { allocatable.subtract(&needs) } else { staying.push(at) }
    }
    let mut slim_node = whittle_api::k8s::Node::clone(of_node);
    slim_node.status.allocatable = allocatable;
    let state = StateNode { node: Some(Arc::new(slim_node)), pods: staying, ..node.clone() };
    SlimNode { state, room: (!limited && !repels).then_some(room) }
}

/// Counts for nothing but the room it takes.
fn is_plain(pod: &Pod) -> bool {
    !looks_at_others(pod) && !is_daemon_owned(pod) && pod.spec.volumes.is_empty() && host_ports(pod).is_empty()
}

/// Where it may go depends on where other pods are.
fn looks_at_others(pod: &Pod) -> bool {
    let affinity = pod.spec.affinity.as_ref();
    !pod.spec.topology_spread_constraints.is_empty()
        || affinity.is_some_and(|affinity| affinity.pod_affinity.is_some() || affinity.pod_anti_affinity.is_some())
}

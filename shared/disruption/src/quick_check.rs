//! Rules out single-node consolidation of a node without a simulation.
//!
//! Most nodes of a well packed cluster cannot be consolidated for a simple reason: some of their pods fit on no other
//! node, and no cheaper instance type is large enough for those. Every command for one node needs one of the two, so a
//! node that fails this check is kept without running the solver.

use super::candidates::Candidate;
use super::cluster_view::{ClusterView, Machine};
use super::verdict::KeepReason;
use jiff::SignedDuration;
use std::collections::BTreeMap;
use whittle_model::pods::effective_requests;
use whittle_units::{Price, Resources};

/// Amounts in thousandths, by position of the resource in [`QuickCheck::names`].
type Vector = Vec<i64>;

/// Free resources of the nodes, and the instance types of all pools, as vectors.
pub(super) struct QuickCheck<'w> {
    names: Vec<&'w str>,
    /// Nodes that accept moved pods, sorted by the first resource, largest first.
    rooms: Vec<Room<'w>>,
    /// Allocatable resources of every type of any pool with its cheapest available offering, sorted by price: of those that cost less
    /// than the most expensive node.
    types: Vec<(Price, Vector)>,
}

/// What is left on a node.
struct Room<'w> {
    /// The name of its machine.
    name: &'w str,
    /// Its pods have changed lately: of pods that are moved it accepts those alone that do not run yet.
    is_recent: bool,
    free: Vector,
}

impl<'w> QuickCheck<'w> {
    /// For nodes of at most this price.
    pub(super) fn new(view: &'w ClusterView<'w>, dearest: Price) -> Self {
        let names = resource_names(view);
        let mut quick_check = Self { names, rooms: Vec::new(), types: Vec::new() };
        for machine in view.machines.iter().filter(|machine| has_initialized(machine)) {
            let mut free = quick_check.vector(&machine.state.allocatable());
            for pod in &machine.pods {
                subtract(&mut free, &quick_check.vector(&effective_requests(pod)));
            }
            quick_check.rooms.push(Room { name: machine.name(), is_recent: is_recent(view, machine), free });
        }
        quick_check.rooms.sort_by(|a, b| (b.free.first(), a.name).cmp(&(a.free.first(), b.name)));
        // Pools often share a type: it is listed once, at its lowest price.
        let mut seen: BTreeMap<Vector, Price> = BTreeMap::new();
        for instance_type in view.input.cluster.catalog.values().flat_map(|types| types.iter()) {
            let available = instance_type.offerings.iter().filter(|offering| offering.available);
            let Some(price) = available.map(|offering| offering.price).min().filter(|price| *price < dearest) else { continue };
            let allocatable = quick_check.names.iter().map(|name| instance_type.allocatable_of(name).milli()).collect();
            let known = seen.entry(allocatable).or_insert(price);
            *known = price.min(*known);
        }
        quick_check.types = seen.into_iter().map(|(vector, price)| (price, vector)).collect();
        quick_check.types.sort();
        quick_check
    }

    /// A reason to keep the node that no simulation could refute.
    pub(super) fn rules_out(&self, node: &Candidate<'_>) -> Option<KeepReason> {
        let mut unplaced = vec![0; self.names.len()];
        let mut any = false;
        for pod in &node.pods {
            let requests = self.vector(&effective_requests(pod));
            // Sorted by the first resource: none after the first that is too small can fit.
            let mut rooms = self.rooms.iter().take_while(|room| room.free.first() >= requests.first());
            let runs = pod.status.phase != "Pending";
            if !rooms.any(|room| room.name != node.name() && !(runs && room.is_recent) && fits(&requests, &room.free)) {
                any = true;
                add(&mut unplaced, &requests);
            }
        }
        if !any {
            return None;
        }
        let cheaper = self.types.iter().take_while(|(price, _)| *price < node.price);
        let possible = cheaper.into_iter().any(|(_, allocatable)| fits(&unplaced, allocatable));
        (!possible).then_some(KeepReason::NothingCheaper)
    }

    fn vector(&self, resources: &Resources) -> Vector {
        vector(&self.names, resources)
    }
}

/// All resources that pods in the cluster request.
pub(super) fn resource_names<'w>(view: &ClusterView<'w>) -> Vec<&'w str> {
    let mut names: Vec<&str> = vec!["cpu", "memory", "pods"];
    let pods = view.machines.iter().flat_map(|machine| machine.pods.iter().copied());
    for container in pods.flat_map(|pod| &pod.spec.containers) {
        for (name, _) in container.resources.iter().flat_map(|resources| resources.requests.iter()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Amounts in the order of the names.
pub(super) fn vector(names: &[&str], resources: &Resources) -> Vector {
    names.iter().map(|name| resources.get(name).milli()).collect()
}

/// Whether pods of a removed node may be placed on the machine: it is not being deleted, is initialized, and its own
/// pods have not changed within its pool's `consolidateAfter`.
pub(super) fn accepts_moved_pods(view: &ClusterView<'_>, machine: &Machine<'_>) -> bool {
    has_initialized(machine) && !is_recent(view, machine)
}

fn has_initialized(machine: &Machine<'_>) -> bool {
    !machine.is_deleting() && machine.state.initialized()
}

/// Whether the pods of the machine have changed within its pool's `consolidateAfter`, which counts where the pool gets nodes for pods: not
/// in a static one, nor in one that is not ready.
fn is_recent(view: &ClusterView<'_>, machine: &Machine<'_>) -> bool {
    let pool = machine.pool().and_then(|pool| view.pool(pool)).filter(|pool| pool.serves_pods());
    let Some((pool, claim)) = pool.zip(machine.claim()) else { return false };
    let wait = pool.spec.disruption.consolidate_after.span().unwrap_or(SignedDuration::ZERO);
    wait.is_positive() && super::conditions::last_pod_activity(claim).is_some_and(|since| view.now().duration_since(since) < wait)
}

fn fits(requests: &[i64], room: &[i64]) -> bool {
    requests.iter().zip(room).all(|(needed, there)| *needed == 0 || needed <= there)
}
/// Adds amounts to a sum, each to that of the same resource.
pub(super) fn add(sum: &mut [i64], more: &[i64]) {
    for (total, amount) in sum.iter_mut().zip(more) {
        *total = total.saturating_add(*amount);
    }
}
fn subtract(room: &mut [i64], less: &[i64]) {
    for (left, amount) in room.iter_mut().zip(less) {
        *left = left.saturating_sub(*amount);
    }
}

//! What can be said about a node without a simulation.
//!
//! Most nodes of a well packed cluster cannot go for a simple reason: some of their pods fit on no other node, and no
//! cheaper machine is large enough for those. That is a necessary condition of every command for one node, so a node that
//! fails it is kept without asking the solver.

use super::candidates::Candidate;
use super::cluster_view::{ClusterView, Machine};
use super::verdict::Keep;
use crate::pods::effective_requests;
use jiff::SignedDuration;
use std::collections::BTreeMap;
use whittle_units::{Price, Resources};

/// Amounts by position of the resource in [`QuickCheck::names`], in thousandths.
type Vector = Vec<i64>;

/// Room on existing nodes and what the pools can buy, as plain numbers.
pub(super) struct QuickCheck<'w> {
    names: Vec<&'w str>,
    /// By machine name: room on nodes that take moving pods; by falling room of the first resource.
    rooms: Vec<(&'w str, Vector)>,
    /// Cheapest available offering and allocatable of every type of any pool, by price.
    types: Vec<(Price, Vector)>,
}

impl<'w> QuickCheck<'w> {
    pub(super) fn new(view: &'w ClusterView<'w>) -> Self {
        let names = resource_names(view);
        let mut quick_check = Self { names, rooms: Vec::new(), types: Vec::new() };
        for machine in view.machines.iter().filter(|machine| accepts_moved_pods(view, machine)) {
            let mut room = quick_check.vector(&machine.state.allocatable());
            for pod in &machine.pods {
                subtract(&mut room, &quick_check.vector(&effective_requests(pod)));
            }
            quick_check.rooms.push((machine.name(), room));
        }
        quick_check.rooms.sort_by(|a, b| (b.1.first(), a.0).cmp(&(a.1.first(), b.0)));
        // Pools often share a type: once is enough, at its lowest price.
        let mut seen: BTreeMap<Vector, Price> = BTreeMap::new();
        for instance_type in view.input.cluster.catalog.values().flat_map(|types| types.iter()) {
            let available = instance_type.offerings.iter().filter(|offering| offering.available);
            let Some(price) = available.map(|offering| offering.price).min() else { continue };
            let known = seen.entry(quick_check.vector(&instance_type.allocatable())).or_insert(price);
            *known = price.min(*known);
        }
        quick_check.types = seen.into_iter().map(|(vector, price)| (price, vector)).collect();
        quick_check.types.sort();
        quick_check
    }

    /// A reason to keep the node that holds whatever the solver would find.
    pub(super) fn rules_out(&self, node: &Candidate<'_>) -> Option<Keep> {
        let mut unplaced = vec![0; self.names.len()];
        let mut any = false;
        for pod in &node.pods {
            let needs = self.vector(&effective_requests(pod));
            // Rooms fall by their first resource: behind the first that is too small all are.
            let candidates = self.rooms.iter().take_while(|(_, room)| room.first() >= needs.first());
            if !candidates.into_iter().any(|(name, room)| *name != node.name() && fits(&needs, room)) {
                any = true;
                add(&mut unplaced, &needs);
            }
        }
        if !any {
            return None;
        }
        let cheaper = self.types.iter().take_while(|(price, _)| *price < node.price);
        let possible = cheaper.into_iter().any(|(_, allocatable)| fits(&unplaced, allocatable));
        (!possible).then_some(Keep::NothingCheaper)
    }

    fn vector(&self, resources: &Resources) -> Vector {
        vector(&self.names, resources)
    }
}

/// The resources that any pod on a machine asks for.
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

/// Whether pods of a removed node may land there: not on nodes that go, that are not ready for pods yet, or whose own
/// pods came or went lately.
pub(super) fn accepts_moved_pods(view: &ClusterView<'_>, machine: &Machine<'_>) -> bool {
    if machine.is_deleting() || !machine.state.initialized() {
        return false;
    }
    let Some((pool, claim)) = machine.pool().and_then(|pool| view.pool(pool)).zip(machine.claim()) else { return true };
    let wait = pool.spec.disruption.consolidate_after.span().unwrap_or(SignedDuration::ZERO);
    !wait.is_positive() || super::conditions::last_pod_activity(claim).is_none_or(|since| view.now().duration_since(since) >= wait)
}

fn fits(needs: &[i64], room: &[i64]) -> bool {
    needs.iter().zip(room).all(|(needed, there)| *needed == 0 || needed <= there)
}
fn add(sum: &mut [i64], more: &[i64]) {
    for (total, amount) in sum.iter_mut().zip(more) {
        *total = total.saturating_add(*amount);
    }
}
fn subtract(room: &mut [i64], less: &[i64]) {
    for (left, amount) in room.iter_mut().zip(less) {
        *left = left.saturating_sub(*amount);
    }
}

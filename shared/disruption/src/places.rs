//! Whether the pods of nodes that are about to go still have places on the machines that are there (disruption 11.2).

use super::cluster_view::ClusterView;
use std::collections::BTreeSet;
use whittle_model::disruption::Input;
use whittle_model::scheduling::{self, Options, Packing, PodRef, Simulation};
use whittle_model::state::StateNode;
use whittle_solver::solve;

/// Pods of `nodes` that no machine which serves has room for, as `namespace/name`, sorted: a pod that would need another machine has no
/// place. `going` are all nodes that may go by now, whose pods move as well and which take none. Pods of `staying` run where they are for
/// as long as the machines that are to replace theirs are starting: they take no room, though their nodes are marked for deletion already.
///
/// Pods that are pending come before them, if a plan has it so: kube-scheduler binds those at once. Where the reference packing finds no
/// place, the one that decisions are made with is tried, since no packing is kube-scheduler's own.
#[must_use]
pub fn without_place(input: Input<'_>, nodes: &BTreeSet<&str>, going: &BTreeSet<&str>, staying: &BTreeSet<&str>) -> Vec<String> {
    let mut states: Vec<StateNode> = input.cluster.nodes.to_vec();
    // Those that stay are tainted, so that they take no pods either. Pods of a node that is marked may wait for machines that are starting:
    // these are not there yet, and those of a command that was begun in the same moment mark the nodes of both.
    for state in states.iter_mut().filter(|state| staying.contains(state.name()) || nodes.contains(state.name())) {
        state.marked_for_deletion = false;
    }
    // The placeholder pods of buffers are bound nowhere: they take no room from a pod, and what they lose is launched for them.
    let cluster = scheduling::Input { nodes: &states, virtual_pods: &[], ..input.cluster };
    let view = ClusterView::new(Input { cluster, ..input });
    let machines = view.machines.iter().filter(|machine| nodes.contains(machine.name()));
    let moving: BTreeSet<String> = machines.flat_map(|machine| &machine.pods).map(|pod| pod.metadata.key()).collect();
    if moving.is_empty() {
        return Vec::new();
    }
    let first = without_place_in(&view, &moving, going, Packing::Reference);
    let packing = view.input.settings.solve.packing;
    if first.is_empty() || packing == Packing::Reference {
        return first;
    }
    let second = without_place_in(&view, &moving, going, packing);
    if second.is_empty() { second } else { first }
}

/// The same of these pods, with one packing.
fn without_place_in(view: &ClusterView<'_>, moving: &BTreeSet<String>, going: &BTreeSet<&str>, packing: Packing) -> Vec<String> {
    let candidates = going.iter().map(|name| (*name).to_owned()).collect();
    // A node that is just starting may never be ready.
    let simulation = Simulation { candidates, spare_recent: false, spare_young: true };
    let plan = solve(&view.input.cluster, &Options { packing, simulation: Some(simulation), ..view.simulation_options.clone() });
    let on_new = plan.claims.iter().flat_map(|claim| &claim.pods);
    let nowhere = plan.left_out.iter().map(|left| &left.pod).chain(&plan.apart);
    let found: BTreeSet<String> = on_new.chain(nowhere).map(PodRef::key).filter(|pod| moving.contains(pod)).collect();
    found.into_iter().collect()
}

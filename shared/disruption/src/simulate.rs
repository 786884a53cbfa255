//! Simulates the cluster without some nodes (disruption 7), with the provisioning solver.

use super::candidates::Candidate;
use super::cluster_view::{ClusterView, Machine};
use super::verdict::KeepReason;
use std::collections::BTreeSet;
use whittle_api::k8s::Pod;
use whittle_model::pods::{is_provisionable, is_reschedulable};
use whittle_model::scheduling::{NewClaim, Options, Packing, Placement, Plan, PodRef, Simulation};
use whittle_solver::{Prepared, RecentNodes, solve};

/// How many pods a message lists with their reasons.
const LISTED_MAX: usize = 5;

/// Which existing nodes may receive the moved pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Targets {
    /// All nodes.
    All,
    /// Not nodes whose pods changed within their pool's `consolidateAfter`.
    Stable,
    /// Not nodes that are just starting. One that has not initialized for minutes counts as in [`Targets::All`].
    Initialized,
}

/// Where the pods of the removed nodes would be scheduled.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulationResult {
    /// Machines to launch.
    pub(super) claims: Vec<NewClaim>,
    /// Existing nodes that receive moved pods, sorted.
    pub(super) destinations: Vec<String>,
    /// All pods that existing nodes receive, pending ones included.
    pub(super) placements: Vec<Placement>,
}

/// Runs a limited number of simulations.
pub(super) struct Simulator<'w> {
    view: &'w ClusterView<'w>,
    /// Keys of pending pods, virtual pods of buffers included: these may stay unscheduled.
    pending: BTreeSet<String>,
    /// The cluster prepared for many simulations; `Some(None)` when each must be solved from scratch.
    prepared: Option<Option<Prepared<'w>>>,
    remaining: u32,
}

impl<'w> Simulator<'w> {
    /// For the methods of a pass, which share the preparation; [`Simulator::into_prepared`] returns it.
    pub(super) fn with_prepared(view: &'w ClusterView<'w>, prepared: Option<Option<Prepared<'w>>>) -> Self {
        Self { prepared, ..Self::new(view, view.input.settings.simulations_max) }
    }
    /// A single simulation is solved from scratch, since preparing costs as much.
    pub(super) fn new(view: &'w ClusterView<'w>, simulations: u32) -> Self {
        let cluster = &view.input.cluster;
        let real = cluster.objects.pods.iter().filter(|pod| is_provisionable(pod));
        let pending: BTreeSet<String> = real.chain(cluster.virtual_pods).map(|pod| pod.metadata.key()).collect();
        Self { view, pending, prepared: (simulations <= 1).then_some(None), remaining: simulations }
    }
    pub(super) fn into_prepared(self) -> Option<Option<Prepared<'w>>> {
        self.prepared
    }

    /// Whether the pass has used up its simulations.
    pub(super) fn is_exhausted(&self) -> bool {
        self.remaining == 0
    }

    /// Removes the candidates. Fails if a pod that is running now would not be scheduled.
    pub(super) fn without(
        &mut self,
        candidates: &[&Candidate<'_>],
        targets: Targets,
        packing: Packing,
    ) -> Result<SimulationResult, KeepReason> {
        self.remaining = self.remaining.saturating_sub(1);
        let plan = self.solve(candidates, targets, packing);
        self.all_placed(&plan)?;
        let moved: BTreeSet<(&str, &str)> =
            candidates.iter().flat_map(|candidate| candidate.pods.iter().map(|pod| namespaced_name(pod))).collect();
        let receives_moved = |pods: &[PodRef]| pods.iter().any(|pod| moved.contains(&(&*pod.namespace, &*pod.name)));
        let destinations = plan.placements.iter().filter(|placement| receives_moved(&placement.pods));
        let destinations = destinations.map(|placement| placement.node.clone()).collect();
        Ok(SimulationResult { destinations, claims: plan.claims, placements: plan.placements })
    }

    /// Whether any pod is pending, or has to leave a machine that goes.
    pub(super) fn has_waiting_pods(&self) -> bool {
        let is_left = |machine: &Machine<'_>| machine.state.marked_for_deletion && machine.pods.iter().any(|pod| is_reschedulable(pod));
        !self.pending.is_empty() || self.view.machines.iter().any(is_left)
    }
    /// What existing nodes receive without the candidates, even if some pods stay unscheduled.
    pub(super) fn placements(&mut self, candidates: &[&Candidate<'_>]) -> Vec<Placement> {
        self.remaining = self.remaining.saturating_sub(1);
        self.solve(candidates, Targets::All, Packing::Reference).placements
    }

    fn solve(&mut self, candidates: &[&Candidate<'_>], targets: Targets, packing: Packing) -> Plan {
        let names: BTreeSet<String> = candidates.iter().map(|candidate| candidate.name().to_owned()).collect();
        let view = self.view;
        if packing == Packing::Reference && targets != Targets::Initialized {
            let prepared = self.prepared.get_or_insert_with(|| Prepared::new(&view.input.cluster, &view.simulation_options));
            if let Some(prepared) = prepared.as_mut().filter(|prepared| prepared.can_answer(&names)) {
                let recent = if targets == Targets::Stable { RecentNodes::Spare } else { RecentNodes::Accept };
                return prepared.without(&names, recent);
            }
        }
        let (spare_recent, spare_young) = (targets == Targets::Stable, targets == Targets::Initialized);
        let simulation = Simulation { candidates: names, spare_recent, spare_young };
        solve(&view.input.cluster, &Options { packing, simulation: Some(simulation), ..view.simulation_options.clone() })
    }

    fn all_placed(&self, plan: &Plan) -> Result<(), KeepReason> {
        let unplaced = plan.left_out.iter().filter(|left| !self.pending.contains(&left.pod.key()));
        let unplaced = unplaced.map(|left| (left.pod.key(), left.reason.to_string()));
        // The kube-scheduler may bind pods in another order, and these would then stay pending.
        let misplaced = plan.apart.iter().map(PodRef::key).filter(|pod| !self.pending.contains(pod));
        let misplaced = misplaced.map(|pod| (pod, "it would start apart from the pods that it must be near".to_owned()));
        let mut listed: Vec<(String, String)> = unplaced.chain(misplaced).collect();
        if listed.is_empty() {
            return Ok(());
        }
        listed.sort();
        let others = listed.len().saturating_sub(LISTED_MAX);
        listed.truncate(LISTED_MAX);
        Err(KeepReason::PodsWouldNotSchedule { listed, others })
    }
}

fn namespaced_name(pod: &Pod) -> (&str, &str) {
    (&pod.metadata.namespace, &pod.metadata.name)
}

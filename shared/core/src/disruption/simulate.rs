//! What the cluster would look like without some nodes (disruption 7): the solver's own answer.

use super::candidates::Candidate;
use super::slim::Slim;
use super::state::World;
use super::verdict::Keep;
use crate::pods::is_provisionable;
use crate::schedule::{self, NewClaim, Options, Packing, Plan, ReservedMode, Simulation, solve};
use std::collections::BTreeSet;
use whittle_api::k8s::Pod;

/// Reasons of pods that are listed in a message.
const LISTED_MAX: usize = 5;

/// Which nodes take the pods that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Targets {
    /// All of them.
    All,
    /// Not those whose own pods came or went lately.
    Quiet,
}

/// Where the pods of removed nodes would go.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Machines that would have to be launched.
    pub(super) claims: Vec<NewClaim>,
    /// Existing nodes that would take moving pods, sorted.
    pub(super) destinations: Vec<String>,
}

/// Runs simulations, and counts them.
pub(super) struct Simulator<'w> {
    world: &'w World<'w>,
    /// Pods that wait already, by key: they may stay without a place.
    waiting: BTreeSet<String>,
    /// The same cluster with less to look at.
    slim: Option<Slim<'w>>,
    left: u32,
}

impl<'w> Simulator<'w> {
    pub(super) fn new(world: &'w World<'w>, simulations: u32) -> Self {
        let pods = world.input.cluster.objects.pods.iter();
        let waiting = pods.filter(|pod| is_provisionable(pod)).map(|pod| pod.metadata.key()).collect();
        // A single question is asked of the whole cluster: making it smaller costs as much.
        let slim = if simulations > 1 && world.input.settings.solve.packing == Packing::Best { Slim::new(world) } else { None };
        Self { world, waiting, slim, left: simulations }
    }

    /// No more simulations in this pass.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Imagines the candidates gone. Fails when a pod that runs now would have no place.
    pub(super) fn without(&mut self, candidates: &[&Candidate<'_>], targets: Targets, packing: Packing) -> Result<Outcome, Keep> {
        self.left = self.left.saturating_sub(1);
        let options = self.options(candidates, targets, packing);
        let plan = match self.slim.as_ref().and_then(|slim| slim.nodes(candidates)) {
            Some(nodes) => solve(&schedule::Input { nodes: &nodes, ..self.world.input.cluster }, &options),
            None => solve(&self.world.input.cluster, &options),
        };
        self.all_placed(&plan)?;
        let moving: BTreeSet<String> =
            candidates.iter().flat_map(|candidate| candidate.pods.iter().map(|pod| pod.metadata.key())).collect();
        let takes_moving = |pods: &[crate::schedule::PodRef]| pods.iter().any(|pod| moving.contains(&pod.key()));
        let destinations = plan.placements.iter().filter(|placement| takes_moving(&placement.pods));
        Ok(Outcome { destinations: destinations.map(|placement| placement.node.clone()).collect(), claims: plan.claims })
    }

    fn options(&self, candidates: &[&Candidate<'_>], targets: Targets, packing: Packing) -> Options {
        let names = candidates.iter().map(|candidate| candidate.name().to_owned()).collect();
        let simulation = Simulation { candidates: names, spare_recent: targets == Targets::Quiet };
        let base = self.world.input.settings.solve.clone();
        Options { packing, reserved: ReservedMode::Fallback, work_budget: None, simulation: Some(simulation), ..base }
    }

    fn all_placed(&self, plan: &Plan) -> Result<(), Keep> {
        let stranded = plan.left_out.iter().filter(|left| !self.waiting.contains(&left.pod.key()));
        let mut listed: Vec<(String, String)> = stranded.map(|left| (left.pod.key(), left.reason.to_string())).collect();
        if listed.is_empty() {
            return Ok(());
        }
        listed.sort();
        let others = listed.len().saturating_sub(LISTED_MAX);
        listed.truncate(LISTED_MAX);
        Err(Keep::PodsStay { listed, others })
    }
}

/// The workload that a pod belongs to, `namespace/kind/name`; the pod itself when nothing owns it.
pub(super) fn workload_of(pod: &Pod) -> String {
    match pod.metadata.owner_references.first() {
        Some(owner) => format!("{}/{}/{}", pod.metadata.namespace, owner.kind, owner.name),
        None => format!("{}/Pod/{}", pod.metadata.namespace, pod.metadata.name),
    }
}

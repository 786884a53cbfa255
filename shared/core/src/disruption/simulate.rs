//! What the cluster would look like without some nodes (disruption 7): the solver's own answer.

use super::candidates::Candidate;
use super::pass::Pass;
use super::state::World;
use super::verdict::Keep;
use crate::pods::is_provisionable;
use crate::schedule::{NewClaim, Options, Packing, Placement, Plan, PodRef, Prepared, Simulation, solve};
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
    /// Not those that have not initialized yet.
    Initialized,
}

/// Where the pods of removed nodes would go.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Machines that would have to be launched.
    pub(super) claims: Vec<NewClaim>,
    /// Existing nodes that would take moving pods, sorted.
    pub(super) destinations: Vec<String>,
    /// What existing nodes would take in all.
    pub(super) placements: Vec<Placement>,
}

/// Runs simulations, and counts them.
pub(super) struct Simulator<'w> {
    world: &'w World<'w>,
    /// Pods that wait already, those of buffers included, by key: they may stay without a place.
    waiting: BTreeSet<String>,
    /// The cluster made ready for many questions; `Some(None)` where only a solve from scratch is right.
    prepared: Option<Option<Prepared<'w>>>,
    left: u32,
}

impl<'w> Simulator<'w> {
    /// For the methods of a pass, which share what is prepared: [`Simulator::put_away`] gives it back.
    pub(super) fn of_pass(pass: &mut Pass<'w>) -> Self {
        let prepared = pass.prepared.take();
        Self { prepared, ..Self::new(pass.world, pass.world.input.settings.simulations_max) }
    }
    /// A single question is asked of the cluster as it is: preparing costs as much.
    pub(super) fn new(world: &'w World<'w>, simulations: u32) -> Self {
        let cluster = &world.input.cluster;
        let real = cluster.objects.pods.iter().filter(|pod| is_provisionable(pod));
        let waiting: BTreeSet<String> = real.chain(cluster.virtual_pods).map(|pod| pod.metadata.key()).collect();
        Self { world, waiting, prepared: (simulations <= 1).then_some(None), left: simulations }
    }
    pub(super) fn put_away(self, pass: &mut Pass<'w>) {
        pass.prepared = self.prepared;
    }

    /// No more simulations in this pass.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Imagines the candidates gone. Fails when a pod that runs now would have no place.
    pub(super) fn without(&mut self, candidates: &[&Candidate<'_>], targets: Targets, packing: Packing) -> Result<Outcome, Keep> {
        self.left = self.left.saturating_sub(1);
        let plan = self.solve(candidates, targets, packing);
        self.all_placed(&plan)?;
        let moving: BTreeSet<(&str, &str)> =
            candidates.iter().flat_map(|candidate| candidate.pods.iter().map(|pod| name_of(pod))).collect();
        let takes_moving = |pods: &[PodRef]| pods.iter().any(|pod| moving.contains(&(&*pod.namespace, &*pod.name)));
        let destinations = plan.placements.iter().filter(|placement| takes_moving(&placement.pods));
        let destinations = destinations.map(|placement| placement.node.clone()).collect();
        Ok(Outcome { destinations, claims: plan.claims, placements: plan.placements })
    }

    /// Whether pods wait for a place at all.
    pub(super) fn any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
    /// What existing nodes would take without the candidates, whoever is left out.
    pub(super) fn placements(&mut self, candidates: &[&Candidate<'_>]) -> Vec<Placement> {
        self.left = self.left.saturating_sub(1);
        self.solve(candidates, Targets::All, Packing::Reference).placements
    }

    fn solve(&mut self, candidates: &[&Candidate<'_>], targets: Targets, packing: Packing) -> Plan {
        let names: BTreeSet<String> = candidates.iter().map(|candidate| candidate.name().to_owned()).collect();
        let world = self.world;
        if packing == Packing::Reference && targets != Targets::Initialized {
            let prepared = self.prepared.get_or_insert_with(|| Prepared::new(&world.input.cluster, &world.questions));
            if let Some(prepared) = prepared.as_mut().filter(|prepared| prepared.can_answer(&names)) {
                return prepared.without(&names, targets == Targets::Quiet);
            }
        }
        let (spare_recent, spare_young) = (targets == Targets::Quiet, targets == Targets::Initialized);
        let simulation = Simulation { candidates: names, spare_recent, spare_young };
        solve(&world.input.cluster, &Options { packing, simulation: Some(simulation), ..world.questions.clone() })
    }

    fn all_placed(&self, plan: &Plan) -> Result<(), Keep> {
        let stranded = plan.left_out.iter().filter(|left| !self.waiting.contains(&left.pod.key()));
        let stranded = stranded.map(|left| (left.pod.key(), left.reason.to_string()));
        // Whoever binds them may take them in another order, and then they wait for good.
        let apart = plan.apart.iter().map(PodRef::key).filter(|pod| !self.waiting.contains(pod));
        let apart = apart.map(|pod| (pod, "it would start apart from the pods that it must be near".to_owned()));
        let mut listed: Vec<(String, String)> = stranded.chain(apart).collect();
        if listed.is_empty() {
            return Ok(());
        }
        listed.sort();
        let others = listed.len().saturating_sub(LISTED_MAX);
        listed.truncate(LISTED_MAX);
        Err(Keep::PodsStay { listed, others })
    }
}

/// Namespace and name.
fn name_of(pod: &Pod) -> (&str, &str) {
    (&pod.metadata.namespace, &pod.metadata.name)
}

/// The workload that a pod belongs to, `namespace/kind/name`; the pod itself when nothing owns it.
pub(super) fn workload_of(pod: &Pod) -> String {
    match pod.metadata.owner_references.first() {
        Some(owner) => format!("{}/{}/{}", pod.metadata.namespace, owner.kind, owner.name),
        None => format!("{}/Pod/{}", pod.metadata.namespace, pod.metadata.name),
    }
}

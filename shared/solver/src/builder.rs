//! What is collected while a problem is assembled.

use super::catalog_index::index_of;
use super::groups::Groups;
use super::ids::SetId;
use super::intern::{Names, Sets, Vals};
use super::relaxation::SoftTaints;
use super::taints::TaintTable;
use std::collections::BTreeSet;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::pods::Volumes;
use whittle_model::requirements::Requirements;
use whittle_model::scheduling::{Input, Options};
use whittle_model::state::StateNode;

/// What a problem is assembled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Questions {
    One,
    /// Which machines a simulation removes is not decided yet: it may be any of them.
    Many,
}

/// The tables that are filled before the pods' classes are known.
pub(crate) struct ProblemBuilder<'a> {
    pub(crate) input: &'a Input<'a>,
    pub(crate) options: &'a Options,
    pub(crate) names: Names,
    pub(crate) sets: Sets,
    pub(crate) taint_table: TaintTable,
    pub(crate) groups: Groups,
    pub(crate) well_known: BTreeSet<String>,
    pub(crate) volumes: Volumes<'a>,
    /// Of NodePools.
    pub(crate) soft_taints: SoftTaints,
    /// Some NodePool has taints at all.
    pub(crate) pool_taints: bool,
    pub(crate) questions: Questions,
    /// Those that may create nodes, in trial order.
    pub(crate) node_pools: Vec<&'a NodePool>,
}

impl<'a> ProblemBuilder<'a> {
    pub(crate) fn new(input: &'a Input<'a>, options: &'a Options, questions: Questions) -> Self {
        let pools = ordered(&input.objects.node_pools);
        let is_soft = |taint: &Taint| taint.effect == TaintEffect::PreferNoSchedule;
        let base = pools.iter().find_map(|pool| input.catalog.get(&pool.metadata.name).filter(|types| !types.is_empty()));
        Self {
            input,
            options,
            // The first list of types is shared with its numbers.
            names: base.map_or_else(Names::default, |types| Names::based_on(&index_of(types).name_table)),
            sets: Sets::default(),
            taint_table: TaintTable::default(),
            groups: Groups::default(),
            well_known: well_known(input),
            volumes: Volumes::of(input.objects),
            soft_taints: if pools.iter().flat_map(|pool| &pool.spec.template.spec.taints).any(is_soft) {
                SoftTaints::Some
            } else {
                SoftTaints::None
            },
            pool_taints: pools.iter().any(|p| !p.spec.template.spec.taints.is_empty()),
            questions,
            node_pools: pools,
        }
    }

    /// Separates the hostname requirement and interns the rest.
    pub(crate) fn split(&mut self, reqs: &Requirements) -> (SetId, Option<Vals>) {
        let mut rest = reqs.clone();
        let host = rest.remove(labels::HOSTNAME).map(|h| self.names.vals(&h));
        let set = self.names.set(&rest);
        (self.sets.id(set), host)
    }

    /// Whether the pass may place pods on the machine.
    pub(crate) fn is_offered(&self, node: &StateNode) -> bool {
        let is_candidate = || self.options.simulation.as_ref().is_some_and(|s| s.candidates.contains(node.name()));
        !node.marked_for_deletion && (self.questions == Questions::Many || !is_candidate())
    }

    pub(crate) fn well_known(&self, key: &str) -> bool {
        self.well_known.contains(key)
    }
}

/// NodePools that may create nodes, by descending weight, then descending name.
fn ordered(pools: &[NodePool]) -> Vec<&NodePool> {
    let mut out: Vec<&NodePool> = pools.iter().filter(|p| p.serves_pods()).collect();
    out.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| b.metadata.name.cmp(&a.metadata.name)));
    out
}

/// The label keys that instance types define.
fn well_known(input: &Input<'_>) -> BTreeSet<String> {
    let mut out: BTreeSet<String> = labels::WELL_KNOWN.iter().map(|k| (*k).to_owned()).collect();
    for types in input.catalog.values() {
        for key in &index_of(types).label_keys {
            if !out.contains(key) {
                out.insert(key.clone());
            }
        }
    }
    out
}

//! Where pending pods go: onto what exists, onto machines to ask for, or nowhere, with reasons.

mod affinity_check;
mod aim;
mod bits;
mod bound;
mod catalog;
mod catalog_index;
mod cheapest_fit;
mod defaults;
mod explain;
mod finish;
mod first_fit;
mod fit;
mod groups;
mod hash;
mod instance_types;
mod intern;
mod limits;
mod machines;
mod memory;
mod meter;
mod objective;
mod order;
mod packing;
mod plan;
mod pod;
mod pod_classes;
mod pools;
mod preferences;
mod prepared;
mod price_index;
mod problem;
mod reason;
mod refill;
mod relaxation;
mod repack;
mod selectors;
mod state;
mod tally;
#[cfg(test)]
mod tests;
mod topology;

pub(crate) use order::with_ties;
pub(crate) use prepared::Prepared;

pub use instance_types::Assortment;
pub use memory::{Memory, Settled};
pub use objective::machine_cost_fault;
pub use plan::{Besides, Cursor, LeftOut, NewClaim, Placement, Plan, PodRef, TypeNames};
pub use preferences::{WishCost, price_of_wishes};
pub use reason::{Cause, ClaimWhy, Finding, LimitLeft, NearestMiss, Offer, PoolSays, PortTaken, Reason, RuledOut};
pub use whittle_api::k8s::Workloads;
pub use whittle_api::objective::{MACHINE_COST, Objective};

use crate::state::StateNode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Pod, TopologySpreadConstraint};
use whittle_units::{Price, Timestamp};

/// All that one decision sees. Borrowed: a consolidation pass asks many questions of one snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub now: Timestamp,
    /// NodePools, pods, daemon sets, volumes and the rest, in any order.
    pub objects: &'a ClusterObjects,
    /// All machines, as [`crate::state::ClusterState::of`] joins them; their pods are positions in `objects.pods`.
    pub nodes: &'a [StateNode],
    /// What each NodePool can buy; a NodePool that is missing or has nothing is skipped.
    pub catalog: &'a BTreeMap<String, Arc<Assortment>>,
    /// Pretend pods of capacity buffers; see [`crate::pods::virtual_pods`].
    pub virtual_pods: &'a [Pod],
    /// Services and workload selectors, for cluster-default spread; may stay empty when there are no defaults.
    pub workloads: &'a Workloads,
}

/// Whether soft wishes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferencePolicy {
    /// Treated as requirements until they cannot be met.
    Respect,
    Ignore,
}

/// What happens when `minValues` cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinValuesPolicy {
    Strict,
    /// Lowered to what there is.
    BestEffort,
}

/// Which packings compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// The cheapest valid plan of several ways of packing.
    Best,
    /// The reference's first fit decreasing alone.
    Reference,
}

/// What a claim does when reserved capacity fits but cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedMode {
    /// The pod waits for the next pass.
    Strict,
    /// The claim goes on with what is not reserved.
    Fallback,
}

/// Settings of one solve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub packing: Packing,
    /// Which plan is the best of those that place as many pods; of no effect on the reference's packing.
    pub objective: Objective,
    /// What a machine costs besides its price and its volumes, per hour, for [`Objective::Balanced`]; a NodePool may say otherwise
    /// with the annotation `whittle.dev/machine-cost`.
    pub machine_cost: Price,
    pub preferences: PreferencePolicy,
    pub min_values: MinValuesPolicy,
    pub reserved: ReservedMode,
    /// Feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// Cluster-default spread constraints.
    pub default_spread: Vec<TopologySpreadConstraint>,
    /// How much work may be spent on a better packing once every pod has its place, in multiples of the work that took;
    /// 0: none.
    pub effort: u32,
    /// Work units after which the solve stops with a cursor; `None`: to the end.
    pub work_budget: Option<u64>,
    /// Where the previous solve stopped.
    pub cursor: Cursor,
    /// By uid: pods that an earlier pass left without a place and that nothing since could have helped, from
    /// [`Memory::settled`]. They are left out again without a look.
    pub settled: BTreeMap<String, Settled>,
    /// By uid: pods that wait for a machine on its way, and the name of its NodeClaim. They are placed there first, as far as they
    /// fit: to pack them anew may take more machines than they were promised.
    pub promised: BTreeMap<String, String>,
    /// What the disruption loop asks: would the pods of some nodes find room elsewhere?
    pub simulation: Option<Simulation>,
}

impl Options {
    /// What a provisioning pass uses unless told otherwise.
    #[must_use]
    pub fn provisioning() -> Self {
        Self {
            packing: Packing::Best,
            objective: Objective::Balanced,
            machine_cost: MACHINE_COST,
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
            reserved: ReservedMode::Strict,
            reserved_capacity: true,
            default_spread: Vec::new(),
            effort: 1,
            work_budget: None,
            cursor: Cursor::default(),
            settled: BTreeMap::new(),
            promised: BTreeMap::new(),
            simulation: None,
        }
    }

    /// What a disruption simulation without `candidates` uses.
    #[must_use]
    pub fn simulating(candidates: BTreeSet<String>) -> Self {
        Self {
            reserved: ReservedMode::Fallback,
            simulation: Some(Simulation { candidates, ..Simulation::default() }),
            ..Self::provisioning()
        }
    }
}

/// A simulation of the cluster without some nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simulation {
    /// Names of state nodes ([`StateNode::name`]) that are imagined gone; their reschedulable pods must find room.
    pub candidates: BTreeSet<String>,
    /// Nodes whose `consolidateAfter` has not passed since their last pod event take only pods that are pending anyway.
    pub spare_recent: bool,
    /// So do nodes that have not initialized yet: what would move onto them has to find room elsewhere.
    pub spare_young: bool,
}

/// Decides where the pods of `input` go. Pure and deterministic: the same input gives the same plan, whatever the order
/// of its objects.
#[must_use]
pub fn solve(input: &Input<'_>, options: &Options) -> Plan {
    let mut problem = problem::build(input, options);
    if !problem.any_pool {
        // Without NodePools nothing is decided, as the reference has it: every pod is told so.
        return plan_without_pools(&problem);
    }
    packing::best(&mut problem, options)
}

fn plan_without_pools(problem: &problem::Problem<'_>) -> Plan {
    let mut left_out = problem.refused.clone();
    let pods = problem.queue.iter().map(|entry| problem.pods[entry.pod]);
    left_out.extend(pods.map(|p| LeftOut { pod: PodRef::of(p), reason: Reason::NoNodePools }));
    left_out.sort_by(|a, b| a.pod.cmp(&b.pod));
    Plan { pods: left_out.len(), left_out, ..Plan::default() }
}

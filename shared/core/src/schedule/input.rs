//! What a solve is given: the snapshot of the cluster, and the settings.

use super::instance_types::Assortment;
use super::plan::Cursor;
use crate::state::StateNode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Pod, TopologySpreadConstraint, Workloads};
use whittle_api::objective::{MACHINE_COST, Objective};
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
    /// [`super::Memory::settled`]. They are left out again without a look.
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

/// A pod that had no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// As of [`Reason::category`].
    pub category: String,
    /// The reason's text.
    pub message: String,
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

//! The input of a solve: the snapshot of the cluster, and the settings.

use super::instance_types::InstanceTypes;
use super::plan::Cursor;
use crate::state::StateNode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::k8s::{Pod, TopologySpreadConstraint, Workloads};
use whittle_api::objective::{MACHINE_COST, Objective};
use whittle_api::{ClusterObjects, labels};
use whittle_units::{Price, Timestamp};

/// Everything that one decision sees. Borrowed, since a consolidation pass solves many times over one snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub now: Timestamp,
    /// NodePools, pods, daemon sets, volumes and the rest, in any order.
    pub objects: &'a ClusterObjects,
    /// All nodes, as [`crate::state::ClusterState::of`] joins them; their pods are positions in `objects.pods`.
    pub nodes: &'a [StateNode],
    /// The instance types that each NodePool can buy; a NodePool that is missing or has none is skipped.
    pub catalog: &'a BTreeMap<String, Arc<InstanceTypes>>,
    /// Placeholder pods of capacity buffers; see [`crate::pods::virtual_pods`].
    pub virtual_pods: &'a [Pod],
    /// Services and workload selectors, for cluster-default spread; may stay empty when there are no defaults.
    pub workloads: &'a Workloads,
}

impl Input<'_> {
    /// How many EBS volumes a node of a NodePool is expected to attach, by its instance type; `None` if nothing is known of it.
    #[must_use]
    pub fn expected_attachments(&self, node: &StateNode) -> Option<usize> {
        let instance_type = node.labels().get(labels::INSTANCE_TYPE)?;
        let most = self.catalog.get(node.node_pool()?)?.find(instance_type)?.ebs_attachments?;
        usize::try_from(most).ok()
    }
}

/// Whether preferences count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferencePolicy {
    /// Preferences are requirements until they cannot be met.
    Respect,
    Ignore,
}

/// What happens when `minValues` cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinValuesPolicy {
    Strict,
    /// `minValues` is lowered to the number of values available.
    BestEffort,
}

/// Which packings compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// The cheapest valid plan of several packings.
    Best,
    /// Karpenter's first fit decreasing alone.
    Reference,
}

/// What a claim does when a reserved offering fits but all of the reservation is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedMode {
    /// The pod waits for the next pass.
    Strict,
    /// The claim uses offerings that are not reserved.
    Fallback,
}

/// Settings of one solve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub packing: Packing,
    /// Which plan is the best among those that place equally many pods; without effect on Karpenter's packing.
    pub objective: Objective,
    /// The hourly cost of a machine on top of its price and its volumes, for [`Objective::Balanced`]; a NodePool can override
    /// it with the annotation `whittle.dev/machine-cost`.
    pub machine_cost: Price,
    pub preferences: PreferencePolicy,
    pub min_values: MinValuesPolicy,
    pub reserved: ReservedMode,
    /// Feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    pub default_spread: Vec<TopologySpreadConstraint>,
    /// How much work may be spent on improving the packing once every pod is placed, in multiples of the work that placing
    /// took; 0 disables it.
    pub effort: u32,
    /// Work units after which the solve stops with a cursor; `None`: no limit.
    pub work_budget: Option<u64>,
    /// Where the previous solve stopped.
    pub cursor: Cursor,
    /// By uid: pods that an earlier pass could not place and that no change since could have helped, from
    /// [`super::Memory::settled`]. They are left out again without being evaluated.
    pub settled: BTreeMap<String, Settled>,
    /// By uid: pods that wait for a machine that is starting, with the name of its NodeClaim. They are placed there first, as
    /// far as they fit: packing them again could need more machines than were launched for them.
    pub promised: BTreeMap<String, String>,
    /// Set by the disruption loop, which checks whether the pods of some nodes would fit elsewhere.
    pub simulation: Option<Simulation>,
}

impl Options {
    /// The defaults of a provisioning pass.
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

    /// The defaults of a disruption simulation without `candidates`.
    #[must_use]
    pub fn simulating(candidates: BTreeSet<String>) -> Self {
        Self {
            reserved: ReservedMode::Fallback,
            simulation: Some(Simulation { candidates, ..Simulation::default() }),
            ..Self::provisioning()
        }
    }
}

/// A pod that an earlier pass could not place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// As of [`super::Reason::category`].
    pub category: String,
    /// The reason's text.
    pub message: String,
    /// Whether the reason depends on other pods, or on what they leave of a limit.
    pub depends_on_others: bool,
}

/// A simulation of the cluster without some nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simulation {
    /// Names of state nodes ([`StateNode::name`]) that the simulation removes; their reschedulable pods must fit elsewhere.
    pub candidates: BTreeSet<String>,
    /// Nodes whose `consolidateAfter` has not passed since their last pod event accept only pods that are pending anyway.
    pub spare_recent: bool,
    /// The same for nodes that have not initialized yet but are young enough to be expected to: pods that would move onto them must fit
    /// elsewhere.
    pub spare_young: bool,
}

//! What an operator sets for a deployment.

use crate::fences::NamePatterns;
use whittle_api::k8s::TopologySpreadConstraint;
use whittle_api::objective::{MACHINE_COST, Objective};
use whittle_units::{ClusterName, Price, SignedDuration};

/// What an operator sets for a deployment; the same for every function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The clusters that the deployment serves; doorbells for others are refused.
    pub clusters: Vec<ClusterName>,
    /// Decide and record, change nothing.
    pub shadow: bool,
    /// Instance profile of node classes made from alpha templates that name neither role nor profile.
    pub default_instance_profile: Option<String>,
    /// Role for the same; ignored when the profile is set.
    pub default_node_role: Option<String>,
    /// Feature gate `SpotToSpotConsolidation`.
    pub spot_to_spot: bool,
    /// How long a decided consolidation waits before it is looked at again (the reference: 15 s).
    pub validation_delay: SignedDuration,
    /// Whether a rebalance recommendation ends a node (the reference only records it).
    pub act_on_rebalance: bool,
    /// Feature gate `NodeRepair`: nodes that report themselves broken for too long are replaced.
    pub node_repair: bool,
    /// Feature gate `StaticCapacity`: NodePools with `replicas` hold that many machines; off, such pools are let be.
    pub static_capacity: bool,
    /// How pods are planned for.
    pub scheduling: Scheduling,
    /// Names of the roles that nodes may have, with `*` and `?`; empty where IAM alone says so.
    pub node_roles: Vec<String>,
    /// The same of single clusters.
    pub cluster_node_roles: NamePatterns,
    /// Secrets that those of the clusters' webhooks follow from, newest first; requests that do not name one are refused.
    /// None refuses all.
    pub relay_secrets: Vec<String>,
    /// Names of the roles that may ring for a cluster with a signature; any may where none is named.
    pub relay_callers: NamePatterns,
}

/// How pods are planned for, in provisioning and in consolidation alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Soft wishes of pods have no effect (the reference: `PREFERENCE_POLICY=Ignore`).
    pub ignore_preferences: bool,
    /// `minValues` that cannot be met are lowered (the reference: `MIN_VALUES_POLICY=BestEffort`).
    pub lower_min_values: bool,
    /// Feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// Work units of one planning run, whatever the speed of the machine; the next run goes on with the rest.
    pub work_budget: u64,
    /// Spread constraints of pods that have none of their own (the reference: `SCHEDULER_CONFIG`).
    pub default_spread: Vec<TopologySpreadConstraint>,
    /// Which plan is the best of those that place as many pods.
    pub objective: Objective,
    /// What a machine costs besides its price and its volumes, per hour.
    pub machine_cost: Price,
    /// Pack as the reference does, and choose its commands: for comparisons, in the simulator.
    pub reference_packing: bool,
}

/// What a planning run may spend. A unit takes about a microsecond of one core, 0.4 to 1.3 on inputs that are long enough to
/// matter (the example `scheduling` of the core prints both, built for release, for the benchmark and for `benches/odd.rs`),
/// so that a run that uses up its budget takes some four seconds of a core: seven at the function's 1,024 MB, fourteen if the
/// checker has it packed anew, of the 30 it may take.
const WORK_BUDGET: u64 = 4_000_000;

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            ignore_preferences: false,
            lower_min_values: false,
            reserved_capacity: true,
            work_budget: WORK_BUDGET,
            default_spread: Vec::new(),
            objective: Objective::Balanced,
            machine_cost: MACHINE_COST,
            reference_packing: false,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clusters: Vec::new(),
            shadow: false,
            default_instance_profile: None,
            default_node_role: None,
            spot_to_spot: false,
            validation_delay: SignedDuration::from_secs(15),
            act_on_rebalance: false,
            node_repair: false,
            static_capacity: true,
            scheduling: Scheduling::default(),
            node_roles: Vec::new(),
            cluster_node_roles: NamePatterns::default(),
            relay_secrets: Vec::new(),
            relay_callers: NamePatterns::default(),
        }
    }
}

//! What an operator sets for a deployment.

use crate::fences::NamePatterns;
use crate::metrics::{Level, NAMESPACE};
use std::collections::BTreeSet;
use whittle_api::k8s::TopologySpreadConstraint;
use whittle_api::objective::{MACHINE_COST, Objective};
use whittle_claims::{PLAN_DELAY, PLAN_DELAY_MAX};
use whittle_ec2::instance_types;
pub use whittle_ec2::kubelet::Expressions;
use whittle_units::{ClusterName, Price, SignedDuration};

/// What is done with what is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Active,
    /// It is recorded, and nothing is changed.
    Shadow,
}

/// What an operator sets for a deployment; the same for every function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The clusters that the deployment serves; doorbells for others are refused.
    pub clusters: Vec<ClusterName>,
    pub mode: Mode,
    /// Instance profile of node classes converted from alpha templates without role and profile.
    pub default_instance_profile: Option<String>,
    /// Role for the same; ignored when the profile is set.
    pub default_node_role: Option<String>,
    /// Feature gate `SpotToSpotConsolidation`.
    pub spot_to_spot: bool,
    /// How long a consolidation waits before it is validated (Karpenter: 15 s).
    pub validation_delay: SignedDuration,
    /// Whether a rebalance recommendation deletes a node (Karpenter only records it).
    pub act_on_rebalance: bool,
    /// Feature gate `NodeRepair`: nodes that are unhealthy for too long are replaced.
    pub node_repair: bool,
    /// Which metrics CloudWatch gets.
    pub metrics: Level,
    /// CloudWatch's namespace of the metrics; stacks of one account and region that share one raise each other's alarms.
    pub metrics_namespace: String,
    /// Instance types and families (`m7i.large`, `c7g`) whose offerings have gauges.
    pub offering_metrics: BTreeSet<String>,
    /// Whether zones that a zonal shift moves traffic away from are avoided (Karpenter: `ENABLE_ZONAL_SHIFT`).
    pub zonal_shift: bool,
    /// Feature gate `StaticCapacity`: NodePools with `replicas` keep that many machines; off, such pools are left alone.
    pub static_capacity: bool,
    /// How pods are scheduled.
    pub scheduling: Scheduling,
    /// How long a plan waits for the other pods of a burst.
    pub batching: Batching,
    /// Network interfaces that the pod density of types leaves out (Karpenter: `RESERVED_ENIS`).
    pub reserved_enis: u32,
    /// The share of a type's memory that its hypervisor takes, in millionths, until its nodes have been measured (Karpenter:
    /// `VM_MEMORY_OVERHEAD_PERCENT`).
    pub vm_memory_overhead_ppm: u32,
    /// Gate `NodeClassCEL`: whether node classes may compute `maxPods` and reserved resources.
    pub node_class_expressions: Expressions,
    /// Whether EC2 is asked, for each node class, if it would launch with it (Karpenter: `DISABLE_DRY_RUN`).
    pub node_class_dry_runs: bool,
    /// How old the region's instance types, zones and on-demand prices may get before they are read again.
    pub catalog_refresh: SignedDuration,
    /// The same for spot prices.
    pub spot_price_refresh: SignedDuration,
    /// Names of the roles that nodes may have, with `*` and `?`; empty if IAM alone decides.
    pub node_roles: Vec<String>,
    /// The same for single clusters.
    pub cluster_node_roles: NamePatterns,
    /// Secrets from which those of the clusters' webhooks are derived, newest first; requests without a valid one are refused.
    /// Without any all are refused.
    pub relay_secrets: Vec<String>,
    /// Names of the roles that may send signed requests for a cluster; empty for any.
    pub relay_callers: NamePatterns,
}

/// How long a plan waits for the other pods of a burst. By default it does not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batching {
    /// Pods arrive until none has for this long (Karpenter: `BATCH_IDLE_DURATION`).
    pub idle: SignedDuration,
    /// The longest wait (Karpenter: `BATCH_MAX_DURATION`); one that is no longer than `idle` is none.
    pub max: SignedDuration,
}

impl Batching {
    /// What a deployment does unless it sets something else.
    pub const STANDARD: Self = Self { idle: PLAN_DELAY, max: PLAN_DELAY_MAX };
}

/// How pods are scheduled, both in provisioning and in consolidation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Preferences of pods have no effect (Karpenter: `PREFERENCE_POLICY=Ignore`).
    pub ignore_preferences: bool,
    /// `minValues` that cannot be met are lowered (Karpenter: `MIN_VALUES_POLICY=BestEffort`).
    pub lower_min_values: bool,
    /// Feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    /// Work units of one planning run, independent of the speed of the machine; the next run continues.
    pub work_budget: u64,
    /// Spread constraints of pods that have none of their own (Karpenter: `SCHEDULER_CONFIG`).
    pub default_spread: Vec<TopologySpreadConstraint>,
    /// Which plan is the best of those that schedule the same number of pods.
    pub objective: Objective,
    /// What a machine costs besides its price and its volumes, per hour.
    pub machine_cost: Price,
    /// Pack and choose commands as Karpenter does: for comparisons in the simulator.
    pub reference_packing: bool,
}

/// The work budget of a planning run. A unit takes about a microsecond of one core, 0.4 to 1.3 on inputs that are long enough to
/// matter (the example `scheduling` of the solver prints both, built for release, for the benchmark and for `benches/odd.rs`), so
/// that a run that uses up its budget takes some four seconds of a core: seven at the function's 1,024 MB, fourteen if the
/// checker has it packed again, of the 30 that it may take.
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

const TYPES: instance_types::Settings = instance_types::Settings::standard();

impl Settings {
    /// Whether decisions are recorded only.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Those that instance types depend on.
    #[must_use]
    pub fn instance_types(&self) -> instance_types::Settings {
        instance_types::Settings {
            reserved_enis: self.reserved_enis,
            vm_memory_overhead_ppm: self.vm_memory_overhead_ppm,
            reserved_capacity: self.scheduling.reserved_capacity,
            expressions: self.node_class_expressions,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clusters: Vec::new(),
            mode: Mode::default(),
            default_instance_profile: None,
            default_node_role: None,
            spot_to_spot: false,
            validation_delay: SignedDuration::from_secs(15),
            act_on_rebalance: false,
            node_repair: false,
            zonal_shift: false,
            metrics: Level::default(),
            metrics_namespace: NAMESPACE.to_owned(),
            offering_metrics: BTreeSet::new(),
            static_capacity: true,
            scheduling: Scheduling::default(),
            batching: Batching::default(),
            reserved_enis: TYPES.reserved_enis,
            vm_memory_overhead_ppm: TYPES.vm_memory_overhead_ppm,
            node_class_expressions: TYPES.expressions,
            node_class_dry_runs: true,
            catalog_refresh: SignedDuration::from_hours(12),
            spot_price_refresh: SignedDuration::from_mins(5),
            node_roles: Vec::new(),
            cluster_node_roles: NamePatterns::default(),
            relay_secrets: Vec::new(),
            relay_callers: NamePatterns::default(),
        }
    }
}

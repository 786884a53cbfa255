//! The input of a disruption decision.

use super::cloud_drift::CloudDrift;
use super::command::Method;
use crate::scheduling;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use whittle_units::{Price, Timestamp};

/// One moment of a cluster, immutable during the decision.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Input of a scheduling decision at the same moment; its state nodes carry deletion marks and nominations.
    pub cluster: scheduling::Input<'a>,
    /// What only the claim store knows, by NodeClaim name. Claims without an entry have [`ClaimFacts::default`].
    pub facts: &'a BTreeMap<String, ClaimFacts>,
    /// What earlier decisions recorded.
    pub memory: &'a Memory,
    pub settings: &'a Settings,
}

/// What is known of a claim beyond its object and its state node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    /// The claim is a candidate of a command that is being executed.
    pub in_command: bool,
    /// That command could end the machine, and waits for a pod or node that was protected since: for how long, nobody knows.
    pub is_held: bool,
    /// Why the API server did not let its Node be tainted, a moment ago.
    pub taint_refused: Option<String>,
    /// EC2 refused the machine that was to replace its own, or that of another node of its pool.
    pub replacement_refused: Option<ReplacementRefused>,
    /// EC2 refused such a machine lately, whether another may be tried by now or not: other nodes come first.
    pub was_refused_replacement: bool,
    /// The NodePool of a claim that has been deleted, but whose launch is under way and may still create an instance.
    pub pool_of_pending_launch: Option<String>,
    /// Virtual pods of capacity buffers that the last provisioning pass placed on the node.
    pub buffer_pods: u32,
    /// When the node's instance type was last found, where the catalog of this decision does not say so: of objects that are read from
    /// files. It is not looked for within half an hour.
    pub type_seen_at: Option<Timestamp>,
    /// Drift found by comparing the instance with EC2; `None` when that was not checked in this pass. A stored
    /// `Drifted` condition with one of these reasons then remains.
    pub cloud_drift: Option<CloudDrift>,
    /// What the machine cost when it was launched: what it costs now where the catalog does not list it any more, as in a zone that its
    /// class has left. Zero when unknown.
    pub launch_price: Price,
}

/// What [`ReplacementRefused`] says where EC2 has launched replacements, and kube-scheduler may bind no pod there.
pub const TAKES_NO_PODS: &str = "the Node that was launched in its place is cordoned, or not ready any more";

/// The same where the Node has joined, and was not initialized in time (ADR 0080).
pub const NOT_INITIALIZED: &str = "the Node that was launched in its place has joined, and was not initialized in time";

/// For how long no replacement of a machine is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacementRefused {
    pub until: Timestamp,
    /// What EC2 said of what was asked for, [`TAKES_NO_PODS`] or [`NOT_INITIALIZED`]; `None` if a quota of the account is used up, which
    /// keeps no drifted node (ADR 0024).
    pub message: Option<String>,
}

/// What an operator sets for disruption, and what closes single pools and zones to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How simulations pack: policies and gates as in provisioning; `reserved` and `simulation` are overwritten. With
    /// `Packing::Reference` the choice of commands is Karpenter's as well.
    pub solve: scheduling::Options,
    /// Karpenter's gate `SpotToSpotConsolidation`.
    pub spot_to_spot: Gate,
    /// Karpenter's gate `StaticCapacity`.
    pub static_capacity: Gate,
    /// How many simulations multi-node and single-node consolidation may each run in one pass. This replaces a timeout:
    /// a node that is not reached keeps its last verdict and comes first in the next pass.
    pub simulations_max: u32,
    /// Pools whose disruption settings cannot be read, with the error: none of their nodes is disrupted.
    pub unreadable_pools: BTreeMap<String, String>,
    /// Names and ids of zones that a zonal shift moves traffic away from: instances there are not terminated, so none of their nodes is
    /// disrupted.
    pub shifted_zones: BTreeSet<String>,
}

impl Settings {
    /// The defaults: all gates off, and enough simulations for a large cluster.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            solve: scheduling::Options::provisioning(),
            spot_to_spot: Gate::Off,
            static_capacity: Gate::Off,
            simulations_max: SIMULATIONS_MAX,
            unreadable_pools: BTreeMap::new(),
            shifted_zones: BTreeSet::new(),
        }
    }
}

/// Enough to simulate every node of a cluster of twenty thousand in one pass.
const SIMULATIONS_MAX: u32 = 24_000;

/// A feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    On,
    Off,
}

/// What a decision needs to know of earlier ones. The caller stores it between passes; without it a pass is slower and
/// may undo a recent move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Recently executed consolidations, oldest first.
    pub moves: Vec<Move>,
    /// Methods that found nothing, with the fingerprint of their input.
    pub nothing_found: BTreeMap<Method, PassFingerprint>,
    /// Nodes that the last single-node pass did not reach.
    pub unreached: BTreeSet<String>,
}

/// Fingerprint of a method's input, and when it was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PassFingerprint {
    pub fingerprint: u64,
    pub at: Timestamp,
}

/// A consolidation that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    pub at: Timestamp,
    pub removed: Vec<RemovedNode>,
    /// Names of the removed nodes.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// When the nodes last had all pods that were to be moved.
    #[serde(default, rename = "unmovedAt")]
    pub undrained_at: Option<Timestamp>,
    /// When none of these pods was left on the nodes, or all were terminating.
    #[serde(default, rename = "goneAt")]
    pub drained_at: Option<Timestamp>,
    /// Names of the NodeClaims that replaced the nodes.
    pub launched: Vec<String>,
    /// Number of moved pods by owner (`namespace/kind/name`).
    pub workloads: BTreeMap<String, u32>,
    /// By owner: the highest number of moves of any of these pods, including moves of the pods they replaced and this
    /// move.
    #[serde(default, rename = "times")]
    pub move_counts: BTreeMap<String, u32>,
}

/// A node that a move removed, with what it cost an hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedNode {
    pub node_pool: String,
    pub instance_type: String,
    pub capacity_type: String,
    pub zone: String,
    pub price: Price,
}

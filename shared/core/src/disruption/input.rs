//! What a disruption decision sees.

use super::command::Method;
use super::drift::cloud::CloudDrift;
use crate::schedule;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use whittle_units::{Price, Timestamp};

/// One moment of a cluster. Nothing in it changes while a decision is made.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What a scheduling decision of the same moment sees, its state nodes with their deletion marks and nominations.
    pub cluster: schedule::Input<'a>,
    /// What only the claim store knows, by the NodeClaim's name. Claims without an entry have [`ClaimFacts::default`].
    pub facts: &'a BTreeMap<String, ClaimFacts>,
    /// What earlier decisions left.
    pub memory: &'a Memory,
    pub settings: &'a Settings,
}

/// What is known of a claim beyond its object and its state node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    /// A command that is being executed names it as a candidate.
    pub in_command: bool,
    /// The pool of a claim that is to end and is shown no more, while a launch under way may yet bring its machine.
    pub machine_may_come_to: Option<String>,
    /// Virtual pods of capacity buffers that the last provisioning pass planned on the node.
    pub buffer_pods: u32,
    /// When the node's instance type was last found in the catalog.
    pub type_seen_at: Option<Timestamp>,
    /// What the cloud says about the machine; `None` when it was not asked in this pass, then an existing
    /// Drifted condition with a cloud's reason stands.
    pub cloud_drift: Option<CloudDrift>,
}

/// Switches of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How simulations pack: policies and gates as in provisioning. `reserved` and `simulation` are set here.
    /// `Packing::Reference` also makes the choice of commands the reference's own.
    pub solve: schedule::Options,
    pub spot_to_spot: Gate,
    pub static_capacity: Gate,
    /// Simulations that multi-node and single-node consolidation may each use in one pass. Instead of a clock: a node
    /// that is not reached keeps its last verdict and is first in the next pass.
    pub simulations_max: u32,
    /// Pools whose disruption settings could not be read, and why: nothing of theirs is disrupted.
    pub closed: BTreeMap<String, String>,
}

impl Settings {
    /// What a cluster uses unless told otherwise: all gates off, as many simulations as a large cluster needs.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            solve: schedule::Options::provisioning(),
            spot_to_spot: Gate::Off,
            static_capacity: Gate::Off,
            simulations_max: SIMULATIONS_MAX,
            closed: BTreeMap::new(),
        }
    }
}

/// Enough for every node of a cluster of twenty thousand to be looked at in one pass, with some to spare.
const SIMULATIONS_MAX: u32 = 24_000;

/// A feature gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    On,
    Off,
}

/// What a decision remembers of earlier ones. Kept by the caller between passes; an empty one is only slower and
/// forgets moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Disruptions that were executed lately, oldest first.
    pub moves: Vec<Move>,
    /// Methods that found nothing, with what they had looked at and when.
    pub nothing_found: BTreeMap<Method, Seen>,
    /// Nodes that the last single-node pass did not reach.
    pub unreached: BTreeSet<String>,
}

/// A fingerprint of what a method looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    pub fingerprint: u64,
    pub at: Timestamp,
}

/// A consolidation that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    pub at: Timestamp,
    pub removed: Vec<Shape>,
    /// Names of the nodes.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// When they were last seen with all the pods that were to move.
    #[serde(default)]
    pub unmoved_at: Option<Timestamp>,
    /// When all of these pods were first seen to have left, or to be leaving.
    #[serde(default)]
    pub gone_at: Option<Timestamp>,
    /// Names of the NodeClaims that replaced them.
    pub launched: Vec<String>,
    /// Pods that had to move, by their owner (`namespace/kind/name`).
    pub workloads: BTreeMap<String, u32>,
    /// By the same owner: how often the most moved of these pods, or pods whose place it took, had been moved then,
    /// this time included.
    #[serde(default)]
    pub times: BTreeMap<String, u32>,
}

/// What a removed machine was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape {
    pub node_pool: String,
    pub instance_type: String,
    pub capacity_type: String,
    pub zone: String,
    pub price: Price,
}

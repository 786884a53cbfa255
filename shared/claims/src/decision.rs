//! The decision log: why everything happened, and why nothing did.

use serde::{Deserialize, Serialize};
use whittle_units::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// A NodeClaim was planned.
    Planned,
    /// A pod was left out.
    Unschedulable,
    Launched,
    LaunchFailed,
    Registered,
    Initialized,
    Disrupted,
    /// A node was looked at and left alone.
    Kept,
    Interrupted,
    Drained,
    Terminated,
    Collected,
}

/// One decision. `subject` is what it is about (`pod/default/web-0`, `nodeclaim/default-x7k2p`, `node/ip-10-0-0-1`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    pub at: Timestamp,
    pub kind: DecisionKind,
    pub subject: String,
    /// One sentence for people.
    pub message: String,
    /// The structure behind the sentence.
    #[serde(default)]
    pub detail: serde_json::Value,
}

//! The decision log: what was done or not done, and why.

use serde::{Deserialize, Serialize};
use whittle_units::{SignedDuration, Timestamp};

/// What a decision was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// A NodeClaim was planned.
    Planned,
    /// A pod was not scheduled.
    Unschedulable,
    Launched,
    LaunchFailed,
    Registered,
    Initialized,
    Disrupted,
    /// A node was evaluated and kept.
    Kept,
    Interrupted,
    Drained,
    Terminated,
    Collected,
}

/// One decision. `subject` is its object (`pod/default/web-0`, `nodeclaim/default-x7k2p`, `node/ip-10-0-0-1`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    pub at: Timestamp,
    pub kind: DecisionKind,
    pub subject: String,
    /// One sentence for users.
    pub message: String,
    /// The structured data of the sentence.
    #[serde(default)]
    pub detail: serde_json::Value,
}

impl DecisionRecord {
    /// How long the log keeps a decision.
    pub const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);
}

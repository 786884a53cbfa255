//! The timeline of a run: what happened, when, why, and at what cost.

use jiff::Timestamp;
use serde::Serialize;
use whittle_units::Price;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    /// A step of the user or the scenario.
    Step,
    /// A decision of Whittle, with its reason.
    Decision,
    Event,
    /// Something in the cluster: pods, Nodes.
    Cluster,
    /// Something in EC2.
    Cloud,
    /// A fault that was injected, or a function that failed.
    Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub at: Timestamp,
    pub kind: LineKind,
    pub text: String,
    /// The cost per hour of all machines of Whittle at that time.
    pub cost: Price,
}

/// The lines of a run, oldest first.
#[derive(Debug, Default)]
pub struct Story {
    lines: Vec<Line>,
}

impl Story {
    /// Adds a line.
    pub fn log(&mut self, at: Timestamp, kind: LineKind, text: impl Into<String>, cost: Price) {
        self.lines.push(Line { at, kind, text: text.into(), cost });
    }
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

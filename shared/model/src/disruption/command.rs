//! Commands: which nodes to remove, and what replaces them.

use crate::scheduling::{NewClaim, Placement};
use serde::{Deserialize, Serialize};
use std::fmt;
use whittle_units::{Price, SignedDuration, Timestamp};

/// A strategy of the disruption loop, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Method {
    Emptiness,
    StaticDrift,
    Drift,
    MultiNode,
    SingleNode,
}

impl Method {
    /// The order in which a pass tries them.
    pub const ALL: [Self; 5] = [Self::Emptiness, Self::StaticDrift, Self::Drift, Self::MultiNode, Self::SingleNode];

    /// The disruption reason in budgets, conditions and events.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Emptiness => Reason::Empty,
            Self::StaticDrift | Self::Drift => Reason::Drifted,
            Self::MultiNode | Self::SingleNode => Reason::Underutilized,
        }
    }
    /// Value of the metric label `consolidation_type`.
    pub const fn consolidation_type(self) -> &'static str {
        match self {
            Self::Emptiness => "empty",
            Self::StaticDrift | Self::Drift => "",
            Self::MultiNode => "multi",
            Self::SingleNode => "single",
        }
    }
    /// How long a command waits before it is validated and executed.
    pub const fn validation_wait(self) -> SignedDuration {
        match self {
            Self::StaticDrift | Self::Drift => SignedDuration::ZERO,
            Self::Emptiness | Self::MultiNode | Self::SingleNode => VALIDATION_WAIT,
        }
    }
    /// Whether the method may remove a node with pods that must not be evicted, given a termination grace period.
    pub const fn overrides_pod_blockers(self) -> bool {
        matches!(self, Self::StaticDrift | Self::Drift)
    }
}

/// Long enough for pods that were just bound to become visible.
pub const VALIDATION_WAIT: SignedDuration = SignedDuration::from_secs(15);

/// Reason of a voluntary disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Empty,
    Drifted,
    Underutilized,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Empty, Self::Drifted, Self::Underutilized];

    /// As budgets, conditions and events spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Underutilized => "Underutilized",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Dollars per hour that a command saves; negative when the replacement costs more, as with drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Savings(i64);

impl Savings {
    /// The difference between paying `before` and paying `after`.
    pub fn between(before: Price, after: Price) -> Self {
        let amount = i128::from(before.nanos()) - i128::from(after.nanos());
        Self(i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX }))
    }
    /// Billionths of a dollar per hour.
    pub const fn nanos(self) -> i64 {
        self.0
    }
    /// Dollars per hour, for output only.
    #[expect(clippy::cast_precision_loss, reason = "output; decisions compare the integers")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl fmt::Display for Savings {
    /// Dollars with cents, as events print them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.2}", self.dollars())
    }
}

/// A node that a command removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    pub node: String,
    pub node_claim: String,
    pub provider_id: String,
    pub node_pool: String,
    pub instance_type: String,
    pub capacity_type: String,
    pub zone: String,
    /// Per hour; zero when unknown.
    pub price: Price,
    /// Pods that have to be rescheduled, `namespace/name`, sorted.
    pub pods: Vec<String>,
}

/// Nodes to remove, and machines to launch first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub method: Method,
    /// Sorted by node name.
    pub removals: Vec<Removal>,
    /// Empty when the pods fit on existing nodes.
    pub replacements: Vec<NewClaim>,
    /// Existing nodes that receive moved pods, by node (or claim) name, sorted. They are to be nominated.
    pub destinations: Vec<String>,
    /// All pods that the simulation placed on existing nodes, not only the moved ones: the decision depends on all of them.
    pub placements: Vec<Placement>,
    /// Per hour.
    pub savings: Savings,
    /// Earliest time of validation and execution.
    pub execute_after: Timestamp,
}

/// What is stored of a command that waits for validation (disruption 8.9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    pub method: Method,
    pub decided_at: Timestamp,
    /// Earliest time of validation.
    pub execute_after: Timestamp,
    /// Names of the nodes to remove, sorted.
    pub nodes: Vec<String>,
    /// For each replacement, its instance types.
    pub replacements: Vec<Vec<String>>,
    /// Billionths of a dollar per hour.
    pub savings_nanos: i64,
}

/// Whether nodes are deleted or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Delete,
    Replace,
}

impl Action {
    /// Value of the metric label `decision`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Replace => "replace",
        }
    }
}

impl Command {
    /// What it saves; `None` if a price of the machines that it removes is not known.
    pub fn known_savings(&self) -> Option<Savings> {
        self.removals.iter().all(|removal| removal.price > Price::ZERO).then_some(self.savings)
    }
    /// Takes prices from elsewhere for the machines that it removes and whose prices it does not know.
    pub fn price_removals(&mut self, price_of: impl Fn(&str) -> Option<Price>) {
        for removal in self.removals.iter_mut().filter(|removal| removal.price == Price::ZERO) {
            removal.price = price_of(&removal.node).unwrap_or_default();
            self.savings = Savings(self.savings.0.saturating_add_unsigned(removal.price.nanos()));
        }
    }
    /// `Replace` if machines are launched first.
    pub fn action(&self) -> Action {
        if self.replacements.is_empty() { Action::Delete } else { Action::Replace }
    }
    /// What to store while the command waits for validation.
    pub fn proposal(&self, decided_at: Timestamp) -> Proposal {
        Proposal {
            method: self.method,
            decided_at,
            execute_after: self.execute_after,
            nodes: self.removals.iter().map(|removal| removal.node.clone()).collect(),
            replacements: self.replacements.iter().map(|claim| claim.instance_types.to_vec()).collect(),
            savings_nanos: self.savings.nanos(),
        }
    }
    /// Price per hour of the removed nodes.
    pub fn price_before(&self) -> Price {
        self.removals.iter().map(|removal| removal.price).sum()
    }
    /// Event text for one of its nodes.
    pub fn text_for(&self, node: &str) -> String {
        format!("{} (savings: {})", part_of(self.removals.len(), self.replacements.len(), node), self.savings)
    }
}

impl Proposal {
    /// Event text for one of its nodes when the command is rejected.
    pub fn text_for(&self, node: &str, cause: &str) -> String {
        let part = part_of(self.nodes.len(), self.replacements.len(), node);
        format!("{part}, reason: {cause} (savings: {})", Savings(self.savings_nanos))
    }
}

/// Describes one node of a command that removes `nodes` and launches `launched` machines.
fn part_of(nodes: usize, launched: usize, node: &str) -> String {
    let action = if launched == 0 { Action::Delete } else { Action::Replace }.as_str();
    match (nodes, launched) {
        (1, 0) => format!("{action}: [{node}]"),
        (1, count) => format!("{action}: [{node}] -> [{}]", replacements(count)),
        _ => format!("{action}: [{node}] (part of {nodes}-node consolidation)"),
    }
}

fn replacements(count: usize) -> String {
    if count == 1 { "1 replacement".to_owned() } else { format!("{count} replacements") }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&str> = self.removals.iter().map(|removal| removal.node.as_str()).collect();
        write!(f, "{}: [{}]", self.action().as_str(), nodes.join(", "))?;
        if !self.replacements.is_empty() {
            write!(f, " -> [{}]", replacements(self.replacements.len()))?;
        }
        Ok(())
    }
}

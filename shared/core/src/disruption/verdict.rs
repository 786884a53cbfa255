//! Verdicts: why a node is removed or kept. `Display` gives the text of events; `explain` has the text for people.

use super::command::{Action, Reason, Savings};
use super::pdb::PdbBlock;
use std::fmt;
use whittle_api::labels;
use whittle_units::{Price, Timestamp};

/// How many cheaper types single-node spot-to-spot consolidation requires, as in Karpenter: the launched instance is
/// then among the cheapest and not consolidated again at once.
pub(super) const SPOT_TYPES_MIN: usize = 15;

/// The result of a decision for one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Name of the Node; empty while there is none.
    pub node: String,
    /// Name of the NodeClaim; empty for unmanaged nodes.
    pub node_claim: String,
    /// Empty when unknown.
    pub node_pool: String,
    pub reason: VerdictReason,
}

impl Verdict {
    /// Name of the Node, or of the NodeClaim while there is no Node.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.node.is_empty() { &self.node_claim } else { &self.node }
    }
}

/// The reason of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictReason {
    /// A command of this decision removes it.
    Chosen { reason: Reason, action: Action, savings: Savings },
    /// It must not be disrupted.
    Blocked(Blocker),
    /// It may be disrupted, but not usefully, or not now.
    Kept(KeepReason),
}

/// What prevents any voluntary disruption of a node (disruption 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    InCommand,
    NotManaged,
    NoNode,
    NotInitialized,
    Deleting,
    Nominated {
        until: Timestamp,
    },
    NodeAnnotation(&'static str),
    NoNodePoolLabel,
    NodePoolUnknown(String),
    /// Kind and name of the object that cannot be read.
    Unreadable(String),
    PodAnnotation {
        pod: String,
        key: &'static str,
        until: Option<Timestamp>,
    },
    Pdb(PdbBlock),
    /// A managed Node without a provider ID.
    NoProviderId,
    /// Two Nodes or two NodeClaims have its provider ID: removing either might remove the wrong one.
    DuplicateProviderId(String),
}

/// Why a node that may be disrupted is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// Static pools are only disrupted for drift.
    StaticPool,
    InstanceTypeUnknown(String),
    LabelMissing(&'static str),
    ConsolidationDisabled {
        pool: String,
    },
    NotEmpty {
        pool: String,
    },
    ConsolidateAfter {
        until: Option<Timestamp>,
    },
    BufferPods {
        node: String,
    },
    BudgetExhausted {
        pool: String,
        reason: Reason,
    },
    /// Pods that would not be scheduled, each with its reason; at most five are listed.
    PodsWouldNotSchedule {
        listed: Vec<(String, String)>,
        others: usize,
    },
    NeedsSeveralNodes(usize),
    NothingCheaper,
    /// The catalog has no price for it, so no replacement is known to be cheaper.
    PriceUnknown,
    /// The node is empty, but pending pods fit on it; `namespace/name`.
    PendingPods {
        pods: Vec<String>,
    },
    /// A budget of its pool, or the pool's disruption settings as a whole, cannot be read.
    BudgetInvalid {
        pool: String,
        why: String,
    },
    MinValues(Vec<String>),
    SpotToSpotDisabled,
    SpotToSpotTooFewTypes {
        found: usize,
    },
    /// The Balanced policy rejects it; the score in thousandths, of which 500 are needed.
    PoorScore {
        thousandths: u64,
    },
    SavesTooLittle {
        savings: Savings,
        minimum: Price,
    },
    UndoesRecentMove {
        at: Timestamp,
    },
    MovedTooOften {
        workload: String,
    },
    /// It can be removed, but another command comes first.
    WaitsTurn {
        savings: Savings,
    },
    /// Drifted; other nodes are replaced first.
    DriftWaits,
    /// Its pool's node limit allows no replacement, or the pool is scaling down first.
    NoRoomToReplace {
        pool: String,
    },
    /// The pass ended before the node was evaluated; its last verdict remains.
    NotReached,
    /// Nothing has changed since the last pass found nothing; its last verdict remains.
    Unchanged,
}

impl VerdictReason {
    /// One word for records and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Chosen { reason, .. } => reason.as_str(),
            Self::Blocked(blocker) => blocker.code(),
            Self::Kept(reason) => reason.code(),
        }
    }

    /// Whether an earlier verdict of the node remains valid.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Kept(KeepReason::NotReached | KeepReason::Unchanged))
    }
}

impl Blocker {
    fn code(&self) -> &'static str {
        match self {
            Self::InCommand => "InCommand",
            Self::NotManaged => "NotManaged",
            Self::NoNode => "NoNode",
            Self::NotInitialized => "NotInitialized",
            Self::Deleting => "Deleting",
            Self::Nominated { .. } => "Nominated",
            Self::NodeAnnotation(_) => "NodeAnnotation",
            Self::NoNodePoolLabel => "NoNodePoolLabel",
            Self::NodePoolUnknown(_) => "NodePoolUnknown",
            Self::Unreadable(_) => "Unreadable",
            Self::PodAnnotation { .. } => "PodAnnotation",
            Self::Pdb(_) => "PodDisruptionBudget",
            Self::NoProviderId => "NoProviderId",
            Self::DuplicateProviderId(_) => "ProviderIdTwice",
        }
    }

    /// No event without a NodeClaim to report it on, or while a command is being executed.
    pub(crate) fn has_no_event(&self) -> bool {
        matches!(self, Self::InCommand | Self::NotManaged)
    }
}

impl KeepReason {
    fn code(&self) -> &'static str {
        match self {
            Self::StaticPool => "StaticNodePool",
            Self::InstanceTypeUnknown(_) => "InstanceTypeUnknown",
            Self::LabelMissing(_) => "LabelMissing",
            Self::ConsolidationDisabled { .. } => "ConsolidationDisabled",
            Self::NotEmpty { .. } => "NotEmpty",
            Self::ConsolidateAfter { .. } => "ConsolidateAfter",
            Self::BufferPods { .. } => "BufferPods",
            Self::BudgetExhausted { .. } => "Budget",
            Self::PodsWouldNotSchedule { .. } => "PodsWouldNotSchedule",
            Self::NeedsSeveralNodes(_) => "NeedsSeveralNodes",
            Self::NothingCheaper => "NothingCheaper",
            Self::PriceUnknown => "PriceUnknown",
            Self::PendingPods { .. } => "PendingPods",
            Self::BudgetInvalid { .. } => "BudgetInvalid",
            Self::MinValues(_) => "MinValues",
            Self::SpotToSpotDisabled => "SpotToSpotDisabled",
            Self::SpotToSpotTooFewTypes { .. } => "SpotToSpotTooFewTypes",
            Self::PoorScore { .. } => "PoorScore",
            Self::SavesTooLittle { .. } => "SavesTooLittle",
            Self::UndoesRecentMove { .. } => "UndoesRecentMove",
            Self::MovedTooOften { .. } => "MovedTooOften",
            Self::WaitsTurn { .. } => "WaitsTurn",
            Self::DriftWaits => "DriftWaits",
            Self::NoRoomToReplace { .. } => "NoRoomToReplace",
            Self::NotReached => "NotReached",
            Self::Unchanged => "Unchanged",
        }
    }

    /// Whether the node gets an `Unconsolidatable` event.
    pub(crate) fn has_event(&self) -> bool {
        !matches!(
            self,
            Self::StaticPool
                | Self::WaitsTurn { .. }
                | Self::ConsolidateAfter { .. }
                | Self::BudgetExhausted { .. }
                | Self::BudgetInvalid { .. }
                | Self::DriftWaits
                | Self::NoRoomToReplace { .. }
        ) && !matches!(self, Self::NotReached | Self::Unchanged | Self::PoorScore { .. })
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCommand => f.write_str("Node is being disrupted already"),
            Self::NotManaged => f.write_str("Node has no NodeClaim of ours"),
            Self::NoNode => f.write_str("NodeClaim does not have an associated node"),
            Self::NotInitialized => f.write_str("Node isn't initialized"),
            Self::Deleting => f.write_str("Node is deleting or marked for deletion"),
            Self::Nominated { .. } => f.write_str("Node is nominated for a pending pod"),
            Self::NodeAnnotation(key) => write!(f, "Disruption is blocked through the \"{key}\" annotation"),
            Self::NoNodePoolLabel => write!(f, "Node doesn't have required label (label={})", labels::NODE_POOL),
            Self::NodePoolUnknown(pool) => write!(f, "NodePool not found (NodePool={pool})"),
            Self::Unreadable(object) => write!(f, "{object} cannot be read"),
            Self::PodAnnotation { pod, key, until } => {
                write!(f, "Pod has \"{key}\" annotation (Pod={pod})")?;
                until.map_or(Ok(()), |until| write!(f, " until {until}"))
            }
            Self::Pdb(PdbBlock::Exhausted(budget)) => write!(f, "Pdb prevents pod evictions (PodDisruptionBudget=[{budget}])"),
            Self::Pdb(PdbBlock::Several(budgets)) => {
                write!(f, "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])", budgets.join(" "))
            }
            Self::NoProviderId => f.write_str("Node has no provider ID yet"),
            Self::DuplicateProviderId(id) => write!(f, "More than one Node or NodeClaim has this provider ID (ID={id})"),
        }
    }
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StaticPool => f.write_str("NodePool is static"),
            Self::InstanceTypeUnknown(name) => write!(f, "Instance Type \"{name}\" not found"),
            Self::LabelMissing(key) => write!(f, "Node does not have label \"{key}\""),
            Self::ConsolidationDisabled { pool } => write!(f, "NodePool \"{pool}\" has consolidation disabled"),
            Self::NotEmpty { pool } => write!(f, "NodePool \"{pool}\" has consolidation policy WhenEmpty, but node is not empty"),
            Self::ConsolidateAfter { until: Some(until) } => write!(f, "Pods came or went lately: not before {until} (consolidateAfter)"),
            Self::ConsolidateAfter { until: None } => f.write_str("It is not known since when the node has been quiet (consolidateAfter)"),
            Self::BufferPods { node } => write!(f, "Node \"{node}\" has buffer pods"),
            Self::BudgetExhausted { pool, reason } => {
                write!(f, "NodePool \"{pool}\" allows no more disruptions for reason {reason} now")
            }
            Self::PodsWouldNotSchedule { listed, others } => pods_stay(f, listed, *others),
            Self::NeedsSeveralNodes(count) => write!(f, "Can't remove without creating {count} candidates"),
            Self::NothingCheaper => f.write_str("Can't replace with a cheaper node"),
            Self::PriceUnknown => f.write_str("Can't replace with a cheaper node, as the price of this one is not known"),
            Self::PendingPods { pods } => write!(f, "Pending pods fit on it: {}", pods.join(", ")),
            Self::BudgetInvalid { pool, why } => write!(f, "NodePool \"{pool}\" allows no disruptions: {why}"),
            Self::MinValues(keys) => {
                write!(f, "Filtering by price: minValues requirement is not met for label(s) (label(s)=[{}])", keys.join(" "))
            }
            Self::SpotToSpotDisabled => f.write_str("SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"),
            Self::SpotToSpotTooFewTypes { found } => write!(
                f,
                "SpotToSpotConsolidation requires {} cheaper instance type options than the current candidate to consolidate, got {found}",
                SPOT_TYPES_MIN
            ),
            Self::PoorScore { thousandths } => {
                write!(f, "Saves too little for the pods it moves: score {}.{:03} is below 0.5", thousandths / 1000, thousandths % 1000)
            }
            Self::SavesTooLittle { savings, minimum } => {
                write!(f, "Saves ${:.4} an hour, under the minimum of ${:.4}", savings.dollars(), minimum.dollars())
            }
            Self::UndoesRecentMove { at } => write!(f, "Would undo the consolidation of {at}"),
            Self::MovedTooOften { workload } => write!(f, "Pods of {workload} were moved twice within the hour already"),
            Self::WaitsTurn { savings } => write!(f, "Could go (saves {savings} an hour), after the move that is under way"),
            Self::DriftWaits => f.write_str("Drifted; other nodes are replaced first"),
            Self::NoRoomToReplace { pool } => write!(f, "Drifted; NodePool \"{pool}\" has no room for a replacement"),
            Self::NotReached => f.write_str("Not looked at in this pass; it is first in the next"),
            Self::Unchanged => f.write_str("Nothing has changed since it was last looked at"),
        }
    }
}

fn pods_stay(f: &mut fmt::Formatter<'_>, listed: &[(String, String)], others: usize) -> fmt::Result {
    f.write_str("Not all pods would schedule, ")?;
    for (at, (pod, reason)) in listed.iter().enumerate() {
        let join = if at == 0 { "" } else { "; " };
        write!(f, "{join}{pod} => {reason}")?;
    }
    if others > 0 { write!(f, " and {others} other(s)") } else { Ok(()) }
}

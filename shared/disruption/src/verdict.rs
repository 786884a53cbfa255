//! Verdicts: why a node is removed or kept. How each reason is reported is in `descriptions`.

use super::pdb::PdbBlock;
use whittle_model::disruption::{Action, ClaimFacts, Reason, ReplacementRefused, Savings};
use whittle_units::{Price, SignedDuration, Timestamp};

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

/// Whether a machine is removed, and if not, why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictReason {
    /// A command of this decision removes it. `nodes` is how many nodes the command removes, and `savings` what it saves in all, if their
    /// prices are known.
    Chosen { reason: Reason, action: Action, savings: Option<Savings>, nodes: usize },
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
    /// The API server did not let it be tainted, with what it said.
    TaintRefused(String),
    /// A zonal shift moves traffic away from its zone.
    ZoneShifted(String),
    Nominated {
        until: Timestamp,
    },
    NodeAnnotation(&'static str),
    NoNodePoolLabel,
    NodePoolUnknown(String),
    /// It is there, and has no instance types.
    NodePoolEmpty {
        pool: String,
        /// What keeps it from launching, as far as conditions say it.
        why: Option<String>,
    },
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
        /// Of a node that is empty: how long it has to be.
        empty_for: Option<SignedDuration>,
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
    /// EC2 refused the machine that was to replace it, a short while ago.
    ReplacementRefused {
        until: Timestamp,
        /// What it said of what was asked for; `None` for a quota of the account.
        message: Option<String>,
    },
    /// It can be removed, but another command comes first.
    WaitsTurn {
        savings: Savings,
    },
    /// Drifted; other nodes are replaced first.
    DriftWaits,
    /// Drifted; the latest machines of its pool did not join, and another of its nodes is being replaced.
    DriftAwaitsJoin {
        pool: String,
    },
    /// Its pool's node limit allows no replacement, or the pool is scaling down first.
    NoRoomToReplace {
        pool: String,
    },
    /// Drifted; nothing that its static pool allows can be launched now.
    SoldOut {
        pool: String,
    },
    /// The pass ended before the node was evaluated; its last verdict remains.
    NotReached,
    /// Nothing has changed since the last pass found nothing; its last verdict remains.
    Unchanged,
}

impl KeepReason {
    /// While no replacement is launched.
    pub(super) fn of_refusal(refused: &ReplacementRefused) -> Self {
        Self::ReplacementRefused { until: refused.until, message: refused.message.clone() }
    }

    /// The same of a node that has drifted: a quota that is used up does not keep it, because its next replacement is of another capacity
    /// type.
    pub(super) fn of_refused_drift(facts: &ClaimFacts) -> Option<Self> {
        facts.replacement_refused.as_ref().filter(|refused| refused.message.is_some()).map(Self::of_refusal)
    }
}

impl VerdictReason {
    /// Whether an earlier verdict of the node remains valid.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Kept(KeepReason::NotReached | KeepReason::Unchanged))
    }
}

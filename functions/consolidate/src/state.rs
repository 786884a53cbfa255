//! What is under way in a cluster, as one record.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::{Claim, ClaimSpec, DeletionReason, Phase, Record};
use whittle_core::disruption::{ClaimFacts, LedgerEntry, Memory, Method, Proposal, Reason};
use whittle_snapshot::Snapshot;
use whittle_units::{ClaimName, SignedDuration, Timestamp};

/// There is one such record in a cluster.
pub(crate) const NAME: &str = "current";

/// How long a command may take while so many nodes are under way, before it is rolled back (disruption 11.2): the more
/// machines start at once, the longer each may take.
pub(crate) fn command_timeout(nodes: usize) -> SignedDuration {
    let (least, most) = (SignedDuration::from_mins(10), SignedDuration::from_hours(1));
    SignedDuration::from_millis(i64::try_from(nodes).unwrap_or(i64::MAX).saturating_mul(80)).clamp(least, most)
}

/// Voluntary disruptions of a cluster. Written by `consolidate` alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruptions {
    /// Decided, and resting before it is checked again.
    pub resting: Option<Proposal>,
    /// Being executed.
    pub running: Vec<Running>,
    /// Claims of static pools that are to go because there are more than `replicas`. Decided once and then ended, whoever
    /// dies meanwhile: another choice in between would end more of them.
    pub leaving: Vec<Leaving>,
    /// What was last said of static pools that cannot be brought to their `replicas`, by pool.
    pub statics_told: BTreeMap<String, String>,
    /// Machines that take pods of a command that was started, by the name under which something is expected of them, until
    /// when: they are not taken away meanwhile.
    pub nominated: BTreeMap<String, Timestamp>,
    pub memory: Memory,
    /// What shadow mode would do, as it was last told.
    pub imagined: Vec<LedgerEntry>,
    /// When states were last shown as gauges.
    pub gauged_at: Option<Timestamp>,
    /// When the doorbell that is under way rings.
    pub next_look_at: Option<Timestamp>,
}

/// A command that is being executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub id: String,
    pub method: Method,
    pub started_at: Timestamp,
    /// Claims to end once all replacements are initialized.
    pub removals: Vec<Going>,
    /// Whole, until they are stored: a run that dies in between loses none. Then only their names are asked for.
    pub replacements: Vec<Claim>,
    /// The nodes take no new pods any more. Known to the run alone that closed them.
    #[serde(skip)]
    pub closed: bool,
    /// The replacements are in the claim store; one that is missing from now on was deleted.
    pub stored: bool,
    /// What is entered in the ledger once the old machines go; prices of replacements as expected.
    pub ledger: LedgerEntry,
}

/// A machine that is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Going {
    pub claim: ClaimName,
    pub node: String,
}

/// A claim of a static pool that is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaving {
    pub claim: ClaimName,
    pub node_pool: String,
    pub message: String,
}

impl Record for Disruptions {
    const KIND: &'static str = "disruption";
    fn name(&self) -> String {
        NAME.to_owned()
    }
}

impl Running {
    /// Lets go of what replacements are once the claim store has them: the record of all commands is one item of the table,
    /// which holds 400 KB. What is left reads as ever, so that an older release goes on with it.
    pub(crate) fn shrink(&mut self) {
        for claim in &mut self.replacements {
            let spec = ClaimSpec { node_pool: claim.spec.node_pool.clone(), replaces: claim.spec.replaces.clone(), ..ClaimSpec::default() };
            claim.spec = spec;
            claim.conditions.clear();
            claim.annotations.clear();
        }
    }
}

impl Disruptions {
    /// Nothing is resting or being executed.
    pub fn is_idle(&self) -> bool {
        self.resting.is_none() && self.running.is_empty() && self.leaving.is_empty()
    }

    /// Notes which moves have begun and which are over, by the pods that the API server shows: decisions leave out those that a
    /// machine under way is promised to, and a node that waits for its replacement would seem to be empty.
    pub(crate) fn record_drained(&mut self, seen: &Snapshot) {
        self.memory.record_drained(&seen.read, seen.now);
    }

    /// Machines that are to go.
    pub(crate) fn removals(&self) -> impl Iterator<Item = &Going> {
        self.running.iter().flat_map(|running| &running.removals)
    }

    /// Claims that are to go, as machines of a command or as what a static pool has too many.
    pub(crate) fn going(&self) -> impl Iterator<Item = &ClaimName> {
        self.removals().map(|going| &going.claim).chain(self.leaving.iter().map(|leaving| &leaving.claim))
    }

    /// What the core has to know of claims beyond their objects: which a command names, which keep room for buffers, and
    /// which may yet get a machine although they are to end.
    pub(crate) fn facts(&self, seen: &Snapshot) -> BTreeMap<String, ClaimFacts> {
        let mut facts: BTreeMap<String, ClaimFacts> = BTreeMap::new();
        for (claim, expected) in seen.expected.iter().filter(|(_, expected)| expected.buffer_pods > 0) {
            facts.entry(claim.clone()).or_default().buffer_pods = expected.buffer_pods;
        }
        // Also one that somebody deleted by hand, before `sweep` has put it on the claim.
        let shown: BTreeSet<&str> = seen.objects.node_claims.iter().map(|claim| claim.metadata.name.as_str()).collect();
        for claim in seen.claims.iter().map(|stored| &stored.value).filter(|claim| !shown.contains(claim.key.name.as_str())) {
            if matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) {
                // A Provisioner has no `replicas`, so that its pool need not be told apart from a namesake here.
                let pool = (claim.spec.owner.kind != "Provisioner").then(|| claim.spec.node_pool.clone());
                facts.entry(claim.key.name.as_str().to_owned()).or_default().pool_of_pending_launch = pool;
            }
        }
        for claim in self.going() {
            facts.entry(claim.as_str().to_owned()).or_default().in_command = true;
        }
        facts
    }
}

/// The reason that a claim's deletion carries.
pub(crate) const fn deletion_reason(method: Method) -> DeletionReason {
    match method.reason() {
        Reason::Empty => DeletionReason::Empty,
        Reason::Drifted => DeletionReason::Drifted,
        Reason::Underutilized => DeletionReason::Underutilized,
    }
}

//! The disruptions in progress of a cluster, as one record.

use crate::failed_launches::FailedLaunches;
use crate::progress::{Readiness, readiness};
use crate::refused::LaunchRefusal;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::{Claim, ClaimSpec, DeletionReason, Phase, Record};
use whittle_disruption::{LedgerEntry, leave_out, record_drained};
use whittle_model::disruption::{ClaimFacts, Memory, Method, Proposal, Reason, ReplacementRefused};
use whittle_snapshot::Snapshot;
use whittle_units::{ClaimName, Price, SignedDuration, Timestamp};

/// There is one such record in a cluster.
pub(crate) const NAME: &str = "current";

/// How long a Node is not tried again after the API server refused to taint it: the base, what each other such Node adds, and the maximum.
/// A pass tries one of them. If a policy protects a whole pool, shorter waits would try all its nodes again before any other node.
const REFUSED_FOR: SignedDuration = SignedDuration::from_mins(5);
const REFUSED_FOR_EACH_OTHER: SignedDuration = SignedDuration::from_mins(1);
const REFUSED_FOR_MAX: SignedDuration = SignedDuration::from_hours(2);
/// How long a node is not replaced after EC2 refused its replacement, because of an account quota or an invalid request: at first, doubled
/// after each further refusal, and at most. For pending pods a quota is tried again after a minute. Nobody waits for a replacement, and
/// each attempt keeps the node tainted while the launch lasts.
const REPLACEMENT_REFUSED_FOR: SignedDuration = SignedDuration::from_mins(5);
const REPLACEMENT_REFUSED_FOR_MAX: SignedDuration = SignedDuration::from_hours(1);
/// Refusals in the record.
const REFUSALS_MAX: usize = 500;
/// Characters of each of the first ones, how many these are, and characters of each of the others.
const REFUSAL_LENGTH_MAX: usize = 300;
const REFUSALS_IN_FULL: usize = 50;
const REFUSAL_LENGTH_MIN: usize = 40;

/// How long no replacement is tried after EC2 has refused it so many times in succession.
pub(crate) fn refused_for(times: u32) -> SignedDuration {
    let wait = REPLACEMENT_REFUSED_FOR * 2_i32.saturating_pow(times.saturating_sub(1).min(10));
    wait.min(REPLACEMENT_REFUSED_FOR_MAX)
}

/// How long a command may take before it is rolled back, by the number of nodes being disrupted (disruption 11.2): the more
/// machines start at once, the longer each may take.
pub(crate) fn command_timeout(nodes: usize) -> SignedDuration {
    let (least, most) = (SignedDuration::from_mins(10), SignedDuration::from_hours(1));
    SignedDuration::from_millis(i64::try_from(nodes).unwrap_or(i64::MAX).saturating_mul(80)).clamp(least, most)
}

/// Voluntary disruptions of a cluster. Written by `consolidate` alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruptions {
    /// Decided, and waiting for its validation delay.
    pub resting: Option<Proposal>,
    /// Being executed.
    pub running: Vec<Running>,
    /// Claims of static pools above `replicas`, to be deleted. Chosen once and then deleted even if runs die meanwhile: another
    /// choice in between would delete more of them.
    #[serde(rename = "leaving")]
    pub surplus: Vec<SurplusClaim>,
    /// The last recorded reason why a static pool does not have its `replicas`, by pool.
    #[serde(rename = "staticsTold")]
    pub static_reasons: BTreeMap<String, String>,
    /// Static pools, by name, for which EC2 launched no machine of late.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_launches: BTreeMap<String, FailedLaunches>,
    /// Machines that take pods of a started command, existing ones and its replacements, by machine key, until when: they are not
    /// disrupted meanwhile.
    pub nominated: BTreeMap<String, Timestamp>,
    /// Claims whose Node the API server did not let be tainted: they are left alone for a while, so that others have their turn.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, Refusal>,
    /// Claims whose replacement EC2 refused because of an account quota; the next attempt waits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replacement_refused: BTreeMap<String, ReplacementRefusal>,
    /// NodePools, by uid, for whose nodes EC2 refuses replacements because the request is invalid.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub launches_refused: BTreeMap<String, LaunchRefusal>,
    pub memory: Memory,
    /// What shadow mode would do, as last recorded.
    #[serde(rename = "imagined")]
    pub shadow_commands: Vec<LedgerEntry>,
    /// When the state gauges were last emitted.
    pub gauged_at: Option<Timestamp>,
    /// When the pending doorbell is due.
    pub next_look_at: Option<Timestamp>,
}

/// A command that is being executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub id: String,
    pub method: Method,
    pub started_at: Timestamp,
    /// Claims to delete once all replacements are initialized.
    pub removals: Vec<DeletingMachine>,
    /// Complete until they are stored, so that a run that dies in between loses none. After that only their names are needed.
    pub replacements: Vec<Claim>,
    /// The nodes are tainted. Known only to the run that tainted them.
    #[serde(skip)]
    pub closed: bool,
    /// The replacements are in the claim store; one that is missing from now on was deleted.
    pub stored: bool,
    /// Its replacements have been ready and it did not end its nodes, or no pass came for long, or it has none and the run that began it
    /// died, or a node of it took pods meanwhile: others may have the room for their pods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waited: bool,
    /// The ledger entry for when the old machines are deleted, with the expected prices of replacements.
    pub ledger: LedgerEntry,
}

/// A machine that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletingMachine {
    pub claim: ClaimName,
    pub node: String,
}

/// What the API server said of the taint of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// When the Node may be tried again.
    pub until: Timestamp,
    pub message: String,
}

/// How often in succession EC2 refused the replacement of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementRefusal {
    pub times: u32,
    /// When another may be tried.
    pub until: Timestamp,
}

/// A claim of a static pool that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SurplusClaim {
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
    /// Takes nodes that are kept after all out of a command of empty nodes; `memory` has its move.
    pub(crate) fn leave_out(&mut self, nodes: &[&str], memory: &Memory) {
        self.removals.retain(|machine| !nodes.contains(&machine.node.as_str()));
        self.ledger.nodes.retain(|node| !nodes.contains(&node.as_str()));
        if let Some(left) = leave_out(&mut memory.clone(), self.started_at, nodes) {
            self.ledger.narrow_to(left);
        }
    }

    /// Drops the specs of replacements once the claim store has them: the record of all commands is one item of the table, which
    /// holds at most 400 KB. The rest stays readable for an older release.
    pub(crate) fn drop_stored_specs(&mut self) {
        for claim in &mut self.replacements {
            let spec = ClaimSpec { node_pool: claim.spec.node_pool.clone(), replaces: claim.spec.replaces.clone(), ..ClaimSpec::default() };
            claim.spec = spec;
            claim.conditions.clear();
            claim.annotations.clear();
        }
    }
}

impl Disruptions {
    /// Nothing is proposed or being executed.
    pub fn is_idle(&self) -> bool {
        self.resting.is_none() && self.running.is_empty() && self.surplus.is_empty()
    }

    /// Tracks which pod moves have begun and which have ended, by the pods of the snapshot: decisions leave out pods that a
    /// launching machine is meant for, and a node that waits for its replacement would seem to be empty.
    pub(crate) fn track_moves(&mut self, snapshot: &Snapshot) {
        record_drained(&mut self.memory, &snapshot.read, snapshot.now);
    }

    /// Records that the API server did not let the Node of a claim be tainted. The record of all disruptions is one item of the table: what
    /// finds no room in it is tried again at once.
    pub(crate) fn record_refusal(&mut self, claim: &str, message: &str, now: Timestamp) {
        let others = self.refused.len();
        let more = REFUSED_FOR_EACH_OTHER * i32::try_from(others).unwrap_or(i32::MAX);
        if others < REFUSALS_MAX
            && let Ok(until) = now.checked_add((REFUSED_FOR + more).min(REFUSED_FOR_MAX))
        {
            let length = if others < REFUSALS_IN_FULL { REFUSAL_LENGTH_MAX } else { REFUSAL_LENGTH_MIN };
            let message = message.chars().take(length).collect();
            self.refused.insert(claim.to_owned(), Refusal { until, message });
        }
    }

    /// Records that a command of consolidation was rolled back because EC2 refused its replacement for a quota.
    pub(crate) fn record_replacement_refusal(&mut self, running: &Running, now: Timestamp) {
        for deleting in &running.removals {
            let known = self.replacement_refused.get(deleting.claim.as_str());
            if known.is_none() && self.replacement_refused.len() >= REFUSALS_MAX {
                continue;
            }
            let times = known.map_or(0, |known| known.times).saturating_add(1);
            if let Ok(until) = now.checked_add(refused_for(times)) {
                self.replacement_refused.insert(deleting.claim.as_str().to_owned(), ReplacementRefusal { times, until });
            }
        }
    }

    /// Forgets refusals that no longer keep a node. Those of replacements count for the next one as long as that may take.
    pub(crate) fn forget_refusals(&mut self, now: Timestamp) {
        self.refused.retain(|_, refusal| now < refusal.until);
        self.replacement_refused.retain(|_, refusal| now.duration_since(refusal.until) < REPLACEMENT_REFUSED_FOR_MAX);
        self.launches_refused.retain(|_, refusal| now.duration_since(refusal.until) < REPLACEMENT_REFUSED_FOR_MAX);
    }

    /// Machines that are to be deleted by commands.
    pub(crate) fn removals(&self) -> impl Iterator<Item = &DeletingMachine> {
        self.running.iter().flat_map(|running| &running.removals)
    }

    /// Claims that are to be deleted, by commands or as surplus of a static pool.
    pub(crate) fn deleting(&self) -> impl Iterator<Item = &ClaimName> {
        self.removals().map(|removal| &removal.claim).chain(self.surplus.iter().map(|surplus| &surplus.claim))
    }

    /// Claims of static pools that are replaced already, and whose command waits for what was protected since.
    fn held<'r>(&'r self, snapshot: &'r Snapshot) -> impl Iterator<Item = &'r ClaimName> {
        let timeout = command_timeout(self.removals().count());
        let waiting = self.running.iter().filter(|running| running.waited && running.method == Method::StaticDrift);
        let held = waiting.filter(move |running| matches!(readiness(snapshot, running, timeout), Readiness::Held(_)));
        held.flat_map(|running| running.removals.iter().map(|removal| &removal.claim))
    }

    /// What a decision has to know about claims beyond their objects: which are part of a command, which hold buffer pods, what
    /// their machines cost at launch, and which may still get one although they are being deleted.
    pub(crate) fn facts(&self, snapshot: &Snapshot) -> BTreeMap<String, ClaimFacts> {
        let mut facts: BTreeMap<String, ClaimFacts> = BTreeMap::new();
        for (claim, expected) in snapshot.expected.iter().filter(|(_, expected)| expected.buffer_pods > 0) {
            facts.entry(claim.clone()).or_default().buffer_pods = expected.buffer_pods;
        }
        for claim in snapshot.claims.iter().map(|stored| &stored.value) {
            if let Some(machine) = claim.machine().filter(|machine| machine.price > Price::ZERO) {
                facts.entry(claim.key.name.as_str().to_owned()).or_default().launch_price = machine.price;
            }
        }
        // Includes claims whose object a user deleted before `sweep` has recorded it on the claim.
        let shown: BTreeSet<&str> = snapshot.objects.node_claims.iter().map(|claim| claim.metadata.name.as_str()).collect();
        for claim in snapshot.claims.iter().map(|stored| &stored.value).filter(|claim| !shown.contains(claim.key.name.as_str())) {
            if matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) {
                // A Provisioner has no `replicas`, so its pool need not be distinguished from a NodePool of the same name here.
                let pool = (claim.spec.owner.kind != "Provisioner").then(|| claim.spec.node_pool.clone());
                facts.entry(claim.key.name.as_str().to_owned()).or_default().pool_of_pending_launch = pool;
            }
        }
        for (claim, refusal) in self.refused.iter().filter(|(_, refusal)| snapshot.now < refusal.until) {
            facts.entry(claim.clone()).or_default().taint_refused = Some(refusal.message.clone());
        }
        for (claim, refusal) in self.replacement_refused.iter().filter(|(_, refusal)| snapshot.now < refusal.until) {
            let refused = ReplacementRefused { until: refusal.until, message: None };
            facts.entry(claim.clone()).or_default().replacement_refused = Some(refused);
        }
        self.add_refused_launches(snapshot, &mut facts);
        for claim in self.deleting() {
            facts.entry(claim.as_str().to_owned()).or_default().in_command = true;
        }
        for claim in self.held(snapshot) {
            facts.entry(claim.as_str().to_owned()).or_default().is_held = true;
        }
        facts
    }
}

/// The deletion reason of a claim.
pub(crate) const fn deletion_reason(method: Method) -> DeletionReason {
    match method.reason() {
        Reason::Empty => DeletionReason::Empty,
        Reason::Drifted => DeletionReason::Drifted,
        Reason::Underutilized => DeletionReason::Underutilized,
    }
}

//! Going on with commands: replacements first, then the end of the old nodes; or everything back.

use crate::counts;
use crate::execute::{self, find};
use crate::state::{Disruptions, Running, command_timeout, deletion_reason};
use crate::{Rights, Run};
use std::collections::BTreeSet;
use whittle_api::conditions;
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::NodePool;
use whittle_claims::{Claim, ClaimKey, DecisionKind, DecisionRecord, Doorbell, Event, Phase, Stored};
use whittle_core::disruption::LedgerEntry;
use whittle_ports::{
    ClaimStore, ClusterError, DecisionLog, HandleError, NodePatch, Nodes, Queues, Report, Safeguard, StoreError, advance, readable,
};
use whittle_snapshot::Snapshot;
use whittle_units::{Price, SignedDuration};

/// How a command stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Waits,
    Done,
    RolledBack,
}

impl<P: Rights> Run<'_, P> {
    /// Takes every command of the record one step further, and takes marks off nodes that no command names. Answers whether
    /// claims were made or ended, so that the snapshot shows them no more as they are.
    pub(crate) async fn go_on(&mut self, seen: &Snapshot, stored: &mut Stored<Disruptions>) -> Result<bool, HandleError> {
        let mut left = Vec::new();
        let mut launched = false;
        let patience = command_timeout(stored.value.removals().count());
        for running in stored.value.running.clone() {
            let mut next = running;
            if is_shadowed(seen, &next) {
                self.take_back(seen, &next, SHADOW_BEGAN).await?;
                undo(&mut stored.value, &next);
                continue;
            }
            launched |= !next.stored;
            match self.step(seen, &mut next, patience).await? {
                Outcome::Waits => left.push(next),
                Outcome::Done => {}
                Outcome::RolledBack => undo(&mut stored.value, &next),
            }
        }
        let moved = left.len() < stored.value.running.len();
        if !moved && Safeguard::StraysOpened.stops(true) {
            unmark_strays(self.ports, seen, &stored.value, &mut self.report).await?;
        }
        stored.value.running = left;
        Ok(moved || launched)
    }

    /// One step of a command, which is given up when it takes longer than `patience`. Every part may be repeated.
    pub(crate) async fn step(&mut self, seen: &Snapshot, running: &mut Running, patience: SignedDuration) -> Result<Outcome, HandleError> {
        if !running.stored {
            if let Some(claim) = self.mark(seen, running).await? {
                self.take_back(seen, running, &format!("the claim {claim} cannot be read")).await?;
                return Ok(Outcome::RolledBack);
            }
            self.launch(running).await?;
            running.stored = true;
            running.shrink();
            if !running.replacements.is_empty() {
                // What was read before they were stored does not show them.
                return Ok(Outcome::Waits);
            }
        }
        match readiness(seen, running, patience) {
            Readiness::Waiting => Ok(Outcome::Waits),
            Readiness::Ready => {
                let outcome = self.end_old(seen, running, patience).await?;
                if outcome == Outcome::Done {
                    // Before the command leaves its record: rather entered twice, under one id, than never.
                    let (entry, record) = entry(seen, running);
                    self.ports.store().append(&self.lease.cluster, &[record]).await?;
                    counts::saved(&mut self.report, &entry);
                }
                Ok(outcome)
            }
            Readiness::Lost(why) => {
                self.take_back(seen, running, &why).await?;
                Ok(Outcome::RolledBack)
            }
        }
    }

    /// Takes the marks of a command off its nodes and claims. What is being ended already is not kept.
    async fn take_back(&mut self, seen: &Snapshot, running: &Running, why: &str) -> Result<(), HandleError> {
        for going in &running.removals {
            let key = ClaimKey { cluster: self.lease.cluster.clone(), name: going.claim.clone() };
            // Read anew: its conditions were written a moment ago. One that cannot be read may be ending: once it can be, its node is
            // opened as that of no command.
            let claim = match self.ports.store().get(&key).await {
                Err(StoreError::Unreadable { .. }) => continue,
                found => found?,
            };
            if claim.as_ref().is_some_and(|claim| claim.value.is_ending()) {
                continue;
            }
            self.unmark(&going.node).await?;
            if let Some(claim) = claim {
                forget_reason(self.ports.store(), &claim).await?;
            }
            self.report.decide(seen.now, DecisionKind::Kept, format!("node/{}", going.node), format!("Kept after all: {why}"));
        }
        self.report.count("rolled_back");
        counts::failed(&mut self.report, seen, running);
        Ok(())
    }

    /// Rolls every command back: the cluster was put into shadow mode while they ran. What they had launched stays, as after
    /// any command that failed; what was being ended goes on when shadow mode ends.
    pub(crate) async fn give_up_all(&mut self, seen: &Snapshot, stored: &mut Stored<Disruptions>) -> Result<(), HandleError> {
        for running in std::mem::take(&mut stored.value.running) {
            self.take_back(seen, &running, SHADOW_BEGAN).await?;
            undo(&mut stored.value, &running);
        }
        // Marks of a run that died before its command was stored, or while it was rolled back.
        unmark_strays(self.ports, seen, &stored.value, &mut self.report).await
    }

    /// Asks for the end of the old claims. One that somebody changed meanwhile is asked again in the next step.
    async fn end_old(&mut self, seen: &Snapshot, running: &Running, patience: SignedDuration) -> Result<Outcome, HandleError> {
        let mut outcome = Outcome::Done;
        for going in &running.removals {
            let key = ClaimKey { cluster: self.lease.cluster.clone(), name: going.claim.clone() };
            // Read anew: its conditions were written a moment ago.
            let claim = match self.ports.store().get(&key).await {
                Ok(Some(claim)) => claim,
                Ok(None) => continue,
                Err(StoreError::Unreadable { .. }) => {
                    // It may be readable again before the command is too old; then it is left to whoever can read it.
                    if seen.now.duration_since(running.started_at) <= patience {
                        outcome = Outcome::Waits;
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if !claim.value.is_ending() {
                let message = format!("{}: part of command {}", running.method.reason(), running.id);
                let deletion = claim.value.deletion_for(deletion_reason(running.method), message, seen.now);
                match advance(self.ports.store(), &claim, &Event::DeletionAsked(deletion), seen.now).await {
                    Ok(_) => self.report.count("disrupted"),
                    Err(HandleError::Store(StoreError::Conflict { .. })) => {
                        outcome = Outcome::Waits;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            self.ports
                .queues()
                .ring(Doorbell::Terminate { cluster: self.lease.cluster.clone(), claim: going.claim.clone() }, SignedDuration::ZERO)
                .await?;
        }
        Ok(outcome)
    }

    pub(crate) async fn unmark(&self, node: &str) -> Result<(), HandleError> {
        let patch = NodePatch { remove_taints: vec![execute::disrupted()], ..NodePatch::default() };
        match self.ports.cluster().patch_node(&self.lease.cluster, node, "", &patch).await {
            Ok(()) | Err(ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Puts a command's new state into the record.
pub(crate) fn settle(state: &mut Disruptions, at: usize, next: Running, outcome: Outcome) {
    if outcome == Outcome::RolledBack {
        undo(state, &next);
    }
    match outcome {
        Outcome::Waits => state.running[at] = next,
        Outcome::Done | Outcome::RolledBack => {
            state.running.remove(at);
        }
    }
}

/// What a command remembered as moved has stayed.
fn undo(state: &mut Disruptions, running: &Running) {
    let launched: Vec<&str> = running.replacements.iter().map(|claim| claim.key.name.as_str()).collect();
    state.memory.undo(&launched);
}

/// How far the replacements of a command are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    Waiting,
    /// They will not all come.
    Lost(String),
}

/// What the claims say of a command's replacements, which may take so long. Pure.
pub(crate) fn readiness(seen: &Snapshot, running: &Running, patience: SignedDuration) -> Readiness {
    let mut all = true;
    for replacement in &running.replacements {
        let name = &replacement.key.name;
        match find(seen, name).map(|claim| &claim.value) {
            // Created by this very run, after the snapshot was read.
            None if !running.stored || running.started_at == seen.now || seen.is_hidden(name) => all = false,
            None => return Readiness::Lost(format!("replacement {name} was deleted")),
            Some(claim) if claim.is_ending() => return Readiness::Lost(format!("replacement {name} failed: {}", ending_text(claim))),
            Some(claim) if seen.is_deleted_by_hand(claim) => return Readiness::Lost(format!("replacement {name} was deleted by hand")),
            Some(claim) => all &= matches!(claim.phase, Phase::Initialized { .. }),
        }
    }
    if Safeguard::ReplacementsReady.permits(all && !is_hidden(seen, running)) {
        return Readiness::Ready;
    }
    if seen.now.duration_since(running.started_at) > patience {
        return Readiness::Lost("the replacements were not ready in time".to_owned());
    }
    Readiness::Waiting
}

/// Whether a pool that a command takes nodes from cannot be read: whether they may still go nobody knows.
fn is_hidden(seen: &Snapshot, running: &Running) -> bool {
    let kinds = [NodePool::KIND, "Provisioner"];
    let mut odd = seen.read.unreadable.iter().filter(|odd| kinds.contains(&odd.kind.as_str())).map(|odd| odd.metadata.name.as_str());
    odd.any(|name| running.ledger.node_pools.iter().any(|pool| NodePool::given_name(pool) == name))
}

fn ending_text(claim: &Claim) -> String {
    claim.deletion.as_ref().map_or_else(|| claim.phase.word().to_owned(), |deletion| deletion.message.clone())
}

/// Why a command ends that shadow mode overtook.
const SHADOW_BEGAN: &str = "shadow mode was switched on";

/// Whether a pool that a command takes nodes from is in shadow mode by now. Pure.
pub(crate) fn is_shadowed(seen: &Snapshot, running: &Running) -> bool {
    crate::statics::shadow_pools(seen).any(|pool| running.ledger.node_pools.iter().any(|of| of == pool))
}

/// The ledger's record of a command whose old machines end now. Pure.
pub(crate) fn entry(seen: &Snapshot, running: &Running) -> (LedgerEntry, DecisionRecord) {
    let prices =
        running.replacements.iter().map(|replacement| find(seen, &replacement.key.name)?.value.machine().map(|machine| machine.price));
    // What was launched may cost something else than the cheapest that was asked for.
    let after: Option<Price> = prices.map(|price| price.filter(|price| *price > Price::ZERO)).sum();
    let mut entry = LedgerEntry { at: seen.now, ..running.ledger.clone() };
    entry.after_nanos = after.unwrap_or(entry.after_nanos);
    let message = entry.to_string();
    let detail = serde_json::json!({ LedgerEntry::KEY: entry });
    let record = DecisionRecord { at: seen.now, kind: DecisionKind::Disrupted, subject: LedgerEntry::KEY.to_owned(), message, detail };
    (entry, record)
}

/// Nodes of ours that carry the mark although nothing is to happen to them: a command that was rolled back half way.
pub(crate) async fn unmark_strays<P: Rights>(
    ports: P,
    seen: &Snapshot,
    known: &Disruptions,
    report: &mut Report,
) -> Result<(), HandleError> {
    let going: BTreeSet<&str> = known.running.iter().flat_map(|running| &running.removals).map(|going| going.claim.as_str()).collect();
    for claim in seen.claims.iter().filter(|claim| !claim.value.is_ending() && !going.contains(claim.value.key.name.as_str())) {
        let Some(name) = claim.value.node_name() else { continue };
        let node = seen.read.nodes.iter().find(|node| node.metadata.name == name && !node.metadata.is_deleting());
        if let Some(node) = node.filter(|node| node.spec.taints.iter().any(|taint| taint.same(&execute::disrupted()))) {
            open_stray(ports, &claim.value.key, node, report).await?;
        }
        forget_reason(ports.store(), claim).await?;
    }
    Ok(())
}

/// Opens a Node to pods again as it was read. One that somebody has changed since, or whose claim is to end by now or cannot be
/// read, may have been closed anew: the next look sees that.
async fn open_stray<P: Rights>(ports: P, claim: &ClaimKey, node: &Node, report: &mut Report) -> Result<(), HandleError> {
    if readable(ports.store().get(claim).await)?.is_none_or(|known| known.value.is_ending()) {
        return Ok(());
    }
    let patch = NodePatch { remove_taints: vec![execute::disrupted()], ..NodePatch::default() };
    match ports.cluster().patch_node(&claim.cluster, &node.metadata.name, &node.metadata.resource_version, &patch).await {
        Ok(()) => report.count("unmarked"),
        Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => report.count("left_for_later"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A claim that stays shows no reason for which it goes.
async fn forget_reason<S: ClaimStore>(store: &S, claim: &Stored<Claim>) -> Result<(), HandleError> {
    if !claim.value.is_ending() && conditions::find(&claim.value.conditions, conditions::DISRUPTION_REASON).is_some() {
        let mut next = claim.value.clone();
        conditions::clear(&mut next.conditions, conditions::DISRUPTION_REASON);
        crate::observe::keep(store, claim, next).await?;
    }
    Ok(())
}

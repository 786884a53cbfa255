//! Advances commands: replacements first, then the deletion of the old nodes; or a rollback.

use crate::execute::{Marked, find_claim};
use crate::observe::Step;
use crate::refused::refused_launch;
use crate::state::{DeletingMachine, Disruptions, Running, command_timeout, deletion_reason};
use crate::strays::{clear_disruption_reason, untaint_strays};
use crate::{Rights, Run};
use crate::{metrics, publish, rules, time_left};
use std::collections::BTreeSet;
use whittle_api::k8s::{Kind, Node, Pod, Taint};
use whittle_api::karpenter::NodePool;
use whittle_claims::{
    Claim, ClaimKey, DecisionKind, DecisionRecord, Deletion, DeletionReason, Doorbell, Event, Phase, Stored, stated_deadline_of,
};
use whittle_disruption::{Arrival, LedgerEntry, NODE_PROTECTIONS, arrivals_on, leave_out, protected_by, undo_moves, without_place};
use whittle_model::disruption::{Input, Method, Reason};
use whittle_ports::{
    ClaimStore, ClusterError, DecisionLog, HandleError, NodePatch, Nodes, Queues, Safeguard, Settings, StoreError, advance, concurrently,
    unless_conflict,
};
use whittle_snapshot::Snapshot;
use whittle_units::{ClaimName, Price, SignedDuration, Timestamp};

/// How long a command may have been able to end its nodes without looking for places again: passes are ten seconds apart while one runs.
/// None may have come for hours, as while Karpenter runs beside.
const LOOKED_AT_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// The state of a command after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Waiting,
    Done,
    RolledBack,
}

/// What became of an old claim whose deletion was to be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OldClaim {
    Deleted,
    /// It was being deleted already, or has ended.
    Ending,
    /// It was changed meanwhile.
    Changed,
    Unreadable,
}

impl<P: Rights> Run<'_, P> {
    /// Takes every command of the record one step further, and removes taints from nodes that belong to no command. Returns
    /// whether claims were created or deleted, so that the snapshot is out of date.
    pub(crate) async fn advance_commands(&mut self, snapshot: &Snapshot, stored: &mut Stored<Disruptions>) -> Result<bool, HandleError> {
        let mut left = Vec::new();
        let (mut launched, mut narrowed) = (false, false);
        // Those that are not rolled back in this pass.
        let mut known = stored.value.clone();
        for running in stored.value.running.clone() {
            let mut next = running;
            if is_shadowed(snapshot, &next) {
                self.roll_back(snapshot, &next, SHADOW_ENABLED).await?;
                known.running.retain(|other| other.id != next.id);
                forget_moves(&mut stored.value, &next, snapshot);
                continue;
            }
            launched |= !next.stored;
            let all = next.removals.clone();
            let outcome = self.step(snapshot, &mut next, &known).await?;
            if next.removals.len() < all.len() {
                narrowed = true;
                let kept = all.iter().filter(|machine| !next.removals.contains(machine)).map(|machine| machine.node.as_str());
                leave_out(&mut stored.value.memory, next.started_at, &kept.collect::<Vec<&str>>());
            }
            match outcome {
                Outcome::Waiting => left.push(next),
                Outcome::Done => stored.value.forget_refused_launch(&next, snapshot),
                Outcome::RolledBack => {
                    // Its pods stay, and take no room from those of the others.
                    known.running.retain(|other| other.id != next.id);
                    forget_moves(&mut stored.value, &next, snapshot);
                    if let Some(refused) = refused_launch(snapshot, &next) {
                        self.report.count("replacements_refused");
                        stored.value.record_refused_launch(&next, &refused, snapshot);
                    }
                    if is_over_quota(snapshot, &next) {
                        stored.value.record_replacement_refusal(&next, snapshot.now);
                    }
                }
            }
        }
        let moved = narrowed || left.len() < stored.value.running.len();
        // Also if commands ended in this pass: while a fleet drifts, that is so in every pass for hours. Their nodes are no strays yet.
        if Safeguard::StraysOpened.stops(true) {
            match untaint_strays(self.ports, snapshot, &stored.value, &mut self.report).await {
                Ok(step) => self.handed_over |= step == Step::HandedOver,
                // What has become of the commands is to be stored first.
                Err(_) if moved => self.report.count("strays_left"),
                Err(error) => return Err(error),
            }
        }
        stored.value.running = left;
        Ok(moved || launched)
    }

    /// One step of a command among all that are `known`, which is rolled back when it takes too long. Every part is idempotent.
    pub(crate) async fn step(&mut self, snapshot: &Snapshot, running: &mut Running, known: &Disruptions) -> Result<Outcome, HandleError> {
        let timeout = command_timeout(known.removals().count());
        let was_stored = running.stored;
        if !was_stored && let Some(outcome) = self.mark_and_launch(snapshot, running, known, timeout).await? {
            return Ok(outcome);
        }
        let stands = readiness(snapshot, running, timeout);
        running.waited |= (stands != Readiness::Ready && are_initialized(snapshot, running)) || was_passed_over(snapshot, running);
        // One that this pass has tainted is still open in the snapshot.
        running.waited |= was_stored && Safeguard::ClosedBeforeCommand.stops(is_open(snapshot, running));
        match stands {
            Readiness::Waiting => Ok(Outcome::Waiting),
            Readiness::Held(held) => {
                let machines = running.removals.iter().filter(|machine| machine.node == held.node);
                self.notes.extend(machines.flat_map(|machine| publish::held(machine, &held.why)));
                Ok(Outcome::Waiting)
            }
            Readiness::Ready => {
                if has_to_look_again(running) && time_left(self.ports.clock()).is_zero() {
                    // Many commands may have waited for one NodePool, and each is simulated: the next pass goes on with the rest.
                    self.hand_over();
                    return Ok(Outcome::Waiting);
                }
                let arrivals = if has_to_look_again(running) { occupied(snapshot, running) } else { Vec::new() };
                if self.keep_occupied(snapshot, running, &arrivals, known).await? {
                    return Ok(Outcome::RolledBack);
                }
                if let Some(why) = displaced(self.settings, snapshot, running, known) {
                    self.report.count("displaced");
                    self.roll_back(snapshot, running, &why).await?;
                    return Ok(Outcome::RolledBack);
                }
                let outcome = self.delete_old_claims(snapshot, running, timeout).await?;
                if outcome == Outcome::Done {
                    // Before the command is removed from its record: a duplicate under one id is better than none.
                    let (entry, record) = ledger_entry(snapshot, running);
                    self.ports.store().append(&self.lease.cluster, &[record]).await?;
                    metrics::savings(&mut self.report, &entry);
                }
                Ok(outcome)
            }
            Readiness::Lost(why) => {
                self.roll_back(snapshot, running, &why).await?;
                Ok(Outcome::RolledBack)
            }
        }
    }

    /// Marks the nodes of a command and launches its replacements. Returns how the command stands, unless its nodes may go at once.
    async fn mark_and_launch(
        &mut self,
        snapshot: &Snapshot,
        running: &mut Running,
        known: &Disruptions,
        timeout: SignedDuration,
    ) -> Result<Option<Outcome>, HandleError> {
        if snapshot.now.duration_since(running.started_at) > timeout {
            // The run that began it died, and none came for as long: what it saw is too old to launch or delete anything for it.
            self.roll_back(snapshot, running, "nobody went on with the command in time").await?;
            return Ok(Some(Outcome::RolledBack));
        }
        if snapshot.uninstalling.is_some() && !running.replacements.is_empty() {
            self.roll_back(snapshot, running, NOTHING_LAUNCHED).await?;
            return Ok(Some(Outcome::RolledBack));
        }
        let marked = match self.set_reason(running).await? {
            Marked::All(claims) => claims,
            Marked::Unreadable(claim) => {
                self.roll_back(snapshot, running, &format!("the claim {claim} cannot be read")).await?;
                return Ok(Some(Outcome::RolledBack));
            }
            Marked::Refused { node, message } => {
                self.roll_back(snapshot, running, &format!("the API server refuses the taint of node {node}: {message}")).await?;
                return Ok(Some(Outcome::RolledBack));
            }
        };
        let arrivals = self.occupied_since(running, &marked, snapshot.now).await?;
        if self.keep_occupied(snapshot, running, &arrivals, known).await? {
            return Ok(Some(Outcome::RolledBack));
        }
        self.launch(running).await?;
        self.notes.extend(publish::launching(running));
        running.stored = true;
        running.drop_stored_specs();
        if running.replacements.is_empty() {
            return Ok(None);
        }
        // They may take minutes; without any, `terminate` shows the claims in a moment.
        self.show_claims(&marked).await;
        // The snapshot was read before they were stored.
        Ok(Some(Outcome::Waiting))
    }

    /// Removes the taints and reasons of a command from its nodes and claims. Claims that are already being deleted are not kept.
    async fn roll_back(&mut self, snapshot: &Snapshot, running: &Running, why: &str) -> Result<(), HandleError> {
        let all: Vec<(&DeletingMachine, String)> = running.removals.iter().map(|deleting| (deleting, why.to_owned())).collect();
        self.keep_all(snapshot.now, &all).await?;
        self.count_rollback(snapshot, running);
        Ok(())
    }

    fn count_rollback(&mut self, snapshot: &Snapshot, running: &Running) {
        self.report.count("rolled_back");
        metrics::command_failed(&mut self.report, snapshot, running);
    }

    /// Takes nodes that were chosen because they were empty, and have a pod by now, out of their command, which still removes the others.
    /// Returns whether none is left, so that the command is rolled back.
    async fn keep_occupied(
        &mut self,
        snapshot: &Snapshot,
        running: &mut Running,
        arrivals: &[Arrival],
        known: &Disruptions,
    ) -> Result<bool, HandleError> {
        let arrival_on = |machine: &DeletingMachine| arrivals.iter().find(|arrival| arrival.node == machine.node);
        let machines = running.removals.iter();
        let kept: Vec<(&DeletingMachine, String)> =
            machines.filter_map(|machine| Some((machine, arrival_on(machine)?.to_string()))).collect();
        if kept.is_empty() {
            return Ok(false);
        }
        self.keep_all(snapshot.now, &kept).await?;
        if kept.len() == running.removals.len() {
            self.count_rollback(snapshot, running);
            return Ok(true);
        }
        let nodes: Vec<&str> = arrivals.iter().map(|arrival| arrival.node.as_str()).collect();
        running.leave_out(&nodes, &known.memory);
        Ok(false)
    }

    /// Keeps nodes, each for a reason, unless their claims are being deleted.
    async fn keep_all(&mut self, now: Timestamp, machines: &[(&DeletingMachine, String)]) -> Result<(), HandleError> {
        let kept = concurrently(machines.iter().map(|(deleting, _)| self.keep(deleting))).await;
        for ((deleting, why), kept) in machines.iter().zip(kept) {
            if kept? {
                self.report.decide(now, DecisionKind::Kept, format!("node/{}", deleting.node), format!("Kept after all: {why}"));
            }
        }
        Ok(())
    }

    /// Removes the taint of a node and the reason of its claim. Whether the node is kept.
    async fn keep(&self, deleting: &DeletingMachine) -> Result<bool, HandleError> {
        let key = ClaimKey { cluster: self.lease.cluster.clone(), name: deleting.claim.clone() };
        // Read again: its conditions were written a moment ago. A claim that cannot be read may be ending: once it can be
        // read, its node is untainted as that of no command.
        let claim = match self.ports.store().get(&key).await {
            Err(StoreError::Unreadable { .. }) => return Ok(false),
            found => found?,
        };
        if claim.as_ref().is_some_and(|claim| claim.value.is_ending()) {
            return Ok(false);
        }
        self.untaint(&deleting.node).await?;
        if let Some(claim) = claim {
            clear_disruption_reason(self.ports, &claim).await?;
        }
        Ok(true)
    }

    /// Rolls every command back: the cluster was put into shadow mode while they ran, or is being left with its nodes. Their
    /// replacements stay, as after any failed command; deletions continue, in shadow mode when it ends.
    pub(crate) async fn roll_back_all(
        &mut self,
        snapshot: &Snapshot,
        stored: &mut Stored<Disruptions>,
        why: &str,
    ) -> Result<(), HandleError> {
        for running in std::mem::take(&mut stored.value.running) {
            self.roll_back(snapshot, &running, why).await?;
            forget_moves(&mut stored.value, &running, snapshot);
        }
        // Taints of a run that died before its command was stored, or during a rollback.
        let step = untaint_strays(self.ports, snapshot, &stored.value, &mut self.report).await?;
        self.handed_over |= step == Step::HandedOver;
        Ok(())
    }

    /// Requests the deletion of the old claims. One that was changed meanwhile is retried in the next step.
    async fn delete_old_claims(&mut self, snapshot: &Snapshot, running: &Running, timeout: SignedDuration) -> Result<Outcome, HandleError> {
        let deletions = concurrently(running.removals.iter().map(|deleting| self.delete_old_claim(snapshot, running, deleting))).await;
        let mut outcome = Outcome::Done;
        for (deleting, deletion) in running.removals.iter().zip(deletions) {
            match deletion? {
                OldClaim::Deleted => {
                    self.report.count("disrupted");
                    self.notes.extend(publish::terminating(running.method, deleting));
                }
                OldClaim::Ending => {}
                OldClaim::Changed => outcome = Outcome::Waiting,
                // It may be readable again before the command times out; after that it is left to a release that can read it.
                OldClaim::Unreadable if snapshot.now.duration_since(running.started_at) <= timeout => outcome = Outcome::Waiting,
                OldClaim::Unreadable => {}
            }
        }
        Ok(outcome)
    }

    /// Requests the deletion of one of them.
    async fn delete_old_claim(&self, snapshot: &Snapshot, running: &Running, deleting: &DeletingMachine) -> Result<OldClaim, HandleError> {
        let key = ClaimKey { cluster: self.lease.cluster.clone(), name: deleting.claim.clone() };
        // Read again: its conditions were written a moment ago.
        let claim = match self.ports.store().get(&key).await {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(OldClaim::Ending),
            Err(StoreError::Unreadable { .. }) => return Ok(OldClaim::Unreadable),
            Err(error) => return Err(error.into()),
        };
        let is_ending = claim.value.is_ending();
        if !is_ending {
            let message = format!("{}: part of command {}", running.method.reason(), running.id);
            let deletion = deletion_of(snapshot, &claim.value, deletion_reason(running.method), message, snapshot.now);
            let marked = advance(self.ports.store(), &claim, &Event::DeletionRequested(deletion), snapshot.now).await;
            if unless_conflict(marked)?.is_none() {
                return Ok(OldClaim::Changed);
            }
        }
        self.ports.queues().send_now(Doorbell::Terminate { cluster: key.cluster, claim: key.name }).await?;
        Ok(if is_ending { OldClaim::Ending } else { OldClaim::Deleted })
    }

    /// Removes the taint of a node that is kept. If an admission policy refuses, that is not an error: the node then belongs to no command,
    /// and later runs remove its taint as soon as the policy allows.
    pub(crate) async fn untaint(&self, node: &str) -> Result<(), HandleError> {
        let patch = NodePatch { remove_taints: vec![Taint::disrupted()], ..NodePatch::default() };
        match self.patch_unless_gone(node, &patch).await {
            Err(HandleError::Cluster(ClusterError::Invalid { .. })) => Ok(()),
            outcome => outcome,
        }
    }

    /// A deleted node has no taints.
    pub(crate) async fn patch_unless_gone(&self, node: &str, patch: &NodePatch) -> Result<(), HandleError> {
        match self.ports.cluster().patch_node(&self.lease.cluster, node, "", patch).await {
            Ok(()) | Err(ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The deletion of a claim, with the deadline that its NodeClaim states before that, be it later than that of its `terminationGracePeriod`
/// (lifecycle 16). Pure.
pub(crate) fn deletion_of(snapshot: &Snapshot, claim: &Claim, reason: DeletionReason, message: String, now: Timestamp) -> Deletion {
    claim.deletion_for(reason, message, now).with_stated_deadline(stated_deadline_of(claim, &snapshot.read))
}

/// Whether a command of consolidation ends because EC2 has refused a replacement while a quota of the account is used up. A node that has
/// drifted is tried again at once, with another capacity type. Pure.
pub(crate) fn is_over_quota(snapshot: &Snapshot, running: &Running) -> bool {
    let is_refused = |replacement: &Claim| {
        let claim = find_claim(snapshot, &replacement.key.name).map(|claim| &claim.value);
        let deletion = claim.filter(|claim| matches!(claim.phase, Phase::Failed { .. })).and_then(|claim| claim.deletion.as_ref());
        deletion.is_some_and(|deletion| deletion.reason == DeletionReason::InsufficientCapacity)
    };
    matches!(running.method, Method::SingleNode | Method::MultiNode)
        && snapshot.stock_outs.iter().any(|out| out.offering.quota().is_some())
        && running.replacements.iter().any(is_refused)
}

/// Stores a command's new state in the record.
pub(crate) fn apply_outcome(state: &mut Disruptions, at: usize, next: Running, outcome: Outcome, snapshot: &Snapshot) {
    if outcome == Outcome::RolledBack {
        forget_moves(state, &next, snapshot);
    }
    match outcome {
        Outcome::Waiting => state.running[at] = next,
        Outcome::Done | Outcome::RolledBack => {
            state.running.remove(at);
        }
    }
}

/// Forgets the moves of a command that was rolled back, unless one of its nodes goes all the same: its pods move then.
fn forget_moves(state: &mut Disruptions, running: &Running, snapshot: &Snapshot) {
    let goes = |machine: &DeletingMachine| {
        find_claim(snapshot, &machine.claim).map_or(!snapshot.is_hidden(&machine.claim), |claim| claim.value.is_ending())
    };
    if !running.removals.iter().any(goes) {
        let nodes: Vec<&str> = running.removals.iter().map(|machine| machine.node.as_str()).collect();
        undo_moves(&mut state.memory, running.started_at, &nodes);
    }
}

/// The state of a command's replacements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    Waiting,
    /// They are ready, and a node that they are to replace is kept for now.
    Held(Held),
    /// At least one will never be ready.
    Lost(String),
}

/// A node that was protected after its command had begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) node: String,
    pub(crate) why: String,
}

/// The state of a command's replacements, by their claims. Pure.
pub(crate) fn readiness(snapshot: &Snapshot, running: &Running, timeout: SignedDuration) -> Readiness {
    let mut all = true;
    for replacement in &running.replacements {
        let name = &replacement.key.name;
        match find_claim(snapshot, name).map(|claim| &claim.value) {
            // Created by this run, after the snapshot was read.
            None if !running.stored || running.started_at == snapshot.now || snapshot.is_hidden(name) => all = false,
            None => return Readiness::Lost(format!("replacement {name} was deleted")),
            Some(claim) if claim.is_ending() => return Readiness::Lost(format!("replacement {name} failed: {}", failure_text(claim))),
            Some(claim) if snapshot.is_deleted_by_user(claim) => {
                return Readiness::Lost(format!("replacement {name} was deleted by a user"));
            }
            Some(claim) => all &= matches!(claim.phase, Phase::Initialized { .. }) && !takes_no_pods(snapshot, claim),
        }
    }
    let held = if all { protected_since(snapshot, running) } else { None };
    if Safeguard::ReplacementsReady.permits(all && !has_unreadable_pool(snapshot, running)) && held.is_none() {
        return Readiness::Ready;
    }
    if snapshot.now.duration_since(running.started_at) > timeout {
        return Readiness::Lost(held.map_or_else(|| "the replacements were not ready in time".to_owned(), |held| held.why));
    }
    held.map_or(Readiness::Waiting, Readiness::Held)
}

/// Whether the Node of a replacement is not ready, although it was, or is cordoned, as EKS does in a zone that traffic is shifted away
/// from: no pod would start there. Pure.
pub(crate) fn takes_no_pods(snapshot: &Snapshot, replacement: &Claim) -> bool {
    let Some(name) = replacement.node_name() else { return false };
    let node = snapshot.read.nodes.iter().find(|node| node.metadata.name == name);
    node.is_some_and(|node| !node.is_ready() || node.spec.unschedulable)
}

/// Whether every replacement of a command has been ready, if it has any. One that cannot be read may have been. Pure.
fn are_initialized(snapshot: &Snapshot, running: &Running) -> bool {
    let is_initialized = |name: &ClaimName| {
        let found = find_claim(snapshot, name).is_some_and(|claim| matches!(claim.value.phase, Phase::Initialized { .. }));
        found || snapshot.is_hidden(name)
    };
    running.replacements.iter().all(|replacement| is_initialized(&replacement.key.name))
}

/// Whether a command could have ended its nodes long ago, and no pass came. Pure.
fn was_passed_over(snapshot: &Snapshot, running: &Running) -> bool {
    let latest = running.replacements.iter().try_fold(running.started_at, |latest, replacement| {
        match &find_claim(snapshot, &replacement.key.name)?.value.phase {
            Phase::Initialized { since, .. } => Some(latest.max(*since)),
            _ => None,
        }
    });
    latest.is_some_and(|since| snapshot.now.duration_since(since) > LOOKED_AT_WITHIN)
}

/// Whether a node of a command takes pods, because it is not tainted: somebody removed the taint, or a run rolled the command back and died
/// before it recorded that. Pods that were not planned for may be there by now. Pure.
fn is_open(snapshot: &Snapshot, running: &Running) -> bool {
    let names: BTreeSet<&str> = running.removals.iter().map(|machine| machine.node.as_str()).collect();
    let is_tainted = |node: &Node| node.spec.taints.iter().any(|taint| taint.same(&Taint::disrupted()));
    snapshot.read.nodes.iter().any(|node| names.contains(node.metadata.name.as_str()) && !is_tainted(node))
}

/// Whether places are looked for again before a command ends its nodes: it could have ended them earlier, and waited instead, the run that
/// began it died, or a node of it was opened. Meanwhile the room for their pods was kept for nobody (ADR 0072). What replaces a machine of
/// a static pool is not launched for its pods. Pure.
fn has_to_look_again(running: &Running) -> bool {
    running.waited && running.method != Method::StaticDrift
}

/// Why a command that waited must not remove its nodes any more: their pods no longer have a place. Pods of other commands count as moving
/// too, except while those commands wait for their replacements. Empty nodes have no pods to move. Pure.
pub(crate) fn displaced(settings: &Settings, snapshot: &Snapshot, running: &Running, known: &Disruptions) -> Option<String> {
    if !has_to_look_again(running) || running.method.reason() == Reason::Empty {
        return None;
    }
    let stays = |machine: &&DeletingMachine| goes_for_this_alone(snapshot, machine);
    let nodes: BTreeSet<&str> = running.removals.iter().filter(stays).map(|machine| machine.node.as_str()).collect();
    let (ready, starting): (Vec<&Running>, Vec<&Running>) = known.running.iter().partition(|command| are_initialized(snapshot, command));
    let going = ready.into_iter().chain([running]).flat_map(|command| &command.removals);
    let going: BTreeSet<&str> = going.map(|machine| machine.node.as_str()).collect();
    let staying = starting.into_iter().flat_map(|command| &command.removals).filter(stays);
    let staying: BTreeSet<&str> = staying.map(|machine| machine.node.as_str()).collect();
    let (facts, rules) = (known.facts(snapshot), rules(settings, snapshot));
    let input = Input { cluster: snapshot.input(), facts: &facts, memory: &known.memory, settings: &rules };
    let pods = without_place(input, &nodes, &going, &staying);
    match pods.as_slice() {
        [] => None,
        [only] => Some(format!("pod {only} has no place on another node any more")),
        [first, others @ ..] => Some(format!("pod {first} and {} more have no place on other nodes any more", others.len())),
    }
}

/// Whether a machine of a command goes for nothing else. The pods of others move in any case. Pure.
fn goes_for_this_alone(snapshot: &Snapshot, machine: &DeletingMachine) -> bool {
    find_claim(snapshot, &machine.claim).is_some_and(|claim| !claim.value.is_ending() && !snapshot.is_deleted_by_user(&claim.value))
}

/// Pods that keep nodes which a command would remove because they were empty, even if other nodes have room for the pods: one that
/// tolerates the taint may have been bound since, or somebody may have removed the taint. Pure.
fn occupied(snapshot: &Snapshot, running: &Running) -> Vec<Arrival> {
    if running.method.reason() != Reason::Empty {
        return Vec::new();
    }
    let machines = running.removals.iter();
    // One that cannot be read may be readable in a moment.
    let looked_at = machines.filter(|machine| goes_for_this_alone(snapshot, machine) || snapshot.is_hidden(&machine.claim));
    let nodes: BTreeSet<&str> = looked_at.map(|machine| machine.node.as_str()).collect();
    let pods = snapshot.read.pods.iter().chain(snapshot.read.unreadable_pods());
    let pods: Vec<Pod> = pods.filter(|pod| nodes.contains(pod.spec.node_name.as_str())).cloned().collect();
    arrivals_on(nodes.iter().copied(), &pods, snapshot.now)
}

/// Why a command whose replacements are ready does not end its nodes yet: somebody has protected one of them since it began, or a pod on
/// it, as a job does that comes to what must not be interrupted. Such a pod would block the drain, and be deleted by force at the deadline
/// of a NodeClaim that has one. Nodes that are being deleted for another reason do not count, nor pods that drift overrides. Pure.
fn protected_since(snapshot: &Snapshot, running: &Running) -> Option<Held> {
    let claim_of = |removal: &DeletingMachine| find_claim(snapshot, &removal.claim).map(|claim| &claim.value);
    let kept = running.removals.iter().filter_map(|removal| Some((removal.node.as_str(), claim_of(removal)?)));
    let kept: Vec<(&str, &Claim)> = kept.filter(|(_, claim)| !claim.is_ending()).collect();
    let nodes: BTreeSet<&str> = kept.iter().map(|(node, _)| *node).collect();
    let shown = snapshot.read.nodes.iter().map(|node| &node.metadata);
    let shown = shown.chain(snapshot.read.unreadable_of(Node::KIND).map(|odd| &odd.metadata));
    let by_user = shown.filter(|meta| nodes.contains(meta.name.as_str())).find_map(|meta| {
        let annotation = NODE_PROTECTIONS.into_iter().find(|key| meta.annotation(key) == Some("true"))?;
        Some(Held { node: meta.name.clone(), why: format!("node {} has the annotation {annotation} by now", meta.name) })
    });
    let overrides = |claim: &Claim| running.method.overrides_pod_blockers() && claim.spec.termination_grace_period.is_some();
    let nodes: BTreeSet<&str> = kept.iter().filter(|(_, claim)| !overrides(claim)).map(|(node, _)| *node).collect();
    let pods = snapshot.read.pods.iter().chain(snapshot.read.unreadable_pods());
    let by_owner = || {
        pods.filter(|pod| nodes.contains(pod.spec.node_name.as_str())).find_map(|pod| {
            let annotation = protected_by(pod, snapshot.now)?;
            let why = format!("pod {} has the annotation {annotation} by now", pod.metadata.key());
            Some(Held { node: pod.spec.node_name.clone(), why })
        })
    };
    by_user.or_else(by_owner)
}

/// Whether a pool of the command cannot be read: whether its nodes may still be disrupted is unknown.
fn has_unreadable_pool(snapshot: &Snapshot, running: &Running) -> bool {
    let kinds = [NodePool::KIND, "Provisioner"];
    let mut odd = snapshot.read.unreadable.iter().filter(|odd| kinds.contains(&odd.kind.as_str())).map(|odd| odd.metadata.name.as_str());
    odd.any(|name| running.ledger.node_pools.iter().any(|pool| NodePool::given_name(pool) == name))
}

fn failure_text(claim: &Claim) -> String {
    claim.deletion.as_ref().map_or_else(|| claim.phase.name().to_owned(), |deletion| deletion.message.clone())
}

/// Why a command is rolled back when shadow mode is switched on.
pub(crate) const SHADOW_ENABLED: &str = "shadow mode was switched on";
/// The same when Whittle is uninstalled and its nodes are kept.
pub(crate) const NODES_KEPT: &str = "Whittle is being uninstalled and leaves its nodes running";

/// The same of a command whose replacements are still to be launched when Whittle is uninstalled, whatever becomes of its nodes.
const NOTHING_LAUNCHED: &str = "Whittle is being uninstalled and launches nothing more";

/// Whether a pool of the command is in shadow mode by now. Pure.
pub(crate) fn is_shadowed(snapshot: &Snapshot, running: &Running) -> bool {
    crate::statics::shadow_pools(snapshot).any(|pool| running.ledger.node_pools.iter().any(|of| of == pool))
}

/// The ledger entry of a command whose old machines are deleted now. Pure.
pub(crate) fn ledger_entry(snapshot: &Snapshot, running: &Running) -> (LedgerEntry, DecisionRecord) {
    let prices = running
        .replacements
        .iter()
        .map(|replacement| find_claim(snapshot, &replacement.key.name)?.value.machine().map(|machine| machine.price));
    // The launched instances may cost more than the cheapest that was requested.
    let after: Option<Price> = prices.map(|price| price.filter(|price| *price > Price::ZERO)).sum();
    let mut entry = LedgerEntry { at: snapshot.now, ..running.ledger.clone() };
    entry.after_nanos = after.unwrap_or(entry.after_nanos);
    let message = entry.to_string();
    let detail = serde_json::json!({ LedgerEntry::KEY: entry });
    let record = DecisionRecord { at: snapshot.now, kind: DecisionKind::Disrupted, subject: LedgerEntry::KEY.to_owned(), message, detail };
    (entry, record)
}

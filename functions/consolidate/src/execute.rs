//! Starts a command: taints the nodes, stores the command, then the replacements, and triggers their launch.

use crate::state::{DeletingMachine, Disruptions, Running};
use crate::{Rights, Run};
use crate::{metrics, progress, time_left};
use futures::future::try_join_all;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Pod, Taint};
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::{Claim, ClaimKey, DecisionKind, Function, HELD_BACK, NOMINATION, Phase, Stored};
use whittle_disruption::{Arrival, LedgerEntry, arrivals_on, record_move, without_arrivals, without_nodes};
use whittle_model::disruption::{Command, Method, Reason, Removal, Savings};
use whittle_model::state::StateNode;
use whittle_ports::metrics::FailedRuns;
use whittle_ports::{
    CONCURRENT_REQUESTS, ClaimStore, Clock, ClusterError, ClusterReader, HandleError, NodePatch, Records, Report, Safeguard, Scope,
    StoreError, concurrently, save, unless_conflict, write_mirror,
};
use whittle_snapshot::{Snapshot, claim_of, machine_key};
use whittle_units::{ClaimName, Price, Timestamp};

/// Concurrent calls to the API server.
const READ_CONCURRENCY: usize = 10;
/// How many empty nodes one command removes at most: each takes about seven calls, and a run that does not finish starts again with the
/// first. The next pass finds the others.
const EMPTY_MAX: usize = 1_000;

/// Claims of a command after their reason was set.
pub(crate) enum Marked {
    /// Those that have it, without those that have ended or were changed meanwhile.
    All(Vec<Claim>),
    /// One cannot be read: the state of its machine is unknown.
    Unreadable(ClaimName),
    /// The API server does not let a Node be tainted, as a policy may that was not there when the command began.
    Refused { node: String, message: String },
}

impl<P: Rights> Run<'_, P> {
    /// Executes a validated command; returns whether it was started. Its nodes are tainted first, and nodes that got pods since
    /// the decision are dropped from it. Then its record is stored: a run that dies after that is resumed.
    pub(crate) async fn start(
        &mut self,
        snapshot: &Snapshot,
        command: &Command,
        stored: &mut Stored<Disruptions>,
    ) -> Result<bool, HandleError> {
        let Some(command) = &self.taint_all(snapshot, &portion(command), &mut stored.value).await? else { return Ok(false) };
        let Some(command) = &self.recheck(snapshot, command).await? else { return Ok(false) };
        let id = self.ports.clock().unique();
        let claim = |new| {
            let mut claim = claim_of(new, snapshot, &self.lease.cluster, || self.ports.clock().unique());
            claim.spec.replaces = Some(id.clone());
            claim
        };
        let replacements: Vec<Claim> = command.replacements.iter().map(claim).collect();
        let launched = replacements.iter().map(|claim| claim.key.name.as_str().to_owned()).collect();
        let removals = command
            .removals
            .iter()
            .map(|removal| DeletingMachine { claim: removal.node_claim.as_str().into(), node: removal.node.clone() });
        let running = Running {
            ledger: LedgerEntry::of(command, &id, snapshot.now),
            id,
            method: command.method,
            started_at: snapshot.now,
            removals: removals.collect(),
            replacements,
            closed: true,
            stored: false,
            waited: false,
        };
        stored.value.nominated.extend(nominations(command, snapshot));
        record_move(&mut stored.value.memory, command, launched, &snapshot.read, snapshot.now);
        stored.value.running.push(running);
        stored.revision = self.ports.store().write(&self.lease.cluster, &stored.value, stored.revision).await?;
        self.report.count("commands");
        metrics::command_started(&mut self.report, snapshot, command);
        let last = stored.value.running.len() - 1;
        let mut running = stored.value.running[last].clone();
        record_replacements(&mut self.report, command, &running, snapshot.now);
        let outcome = self.step(snapshot, &mut running, &stored.value).await?;
        progress::apply_outcome(&mut stored.value, last, running, outcome, snapshot);
        record_disruptions(&mut self.report, command, snapshot);
        Ok(true)
    }

    /// Taints the nodes of a command. Returns the command without the nodes that could not be tainted because the API server refused, for
    /// example by an admission policy: these are not tried for a while, so that they do not block others. If the run dies here, a later one
    /// removes the taints because they belong to no command.
    async fn taint_all(&mut self, snapshot: &Snapshot, command: &Command, state: &mut Disruptions) -> Result<Option<Command>, HandleError> {
        let to_close: Vec<&Removal> = command.removals.iter().filter(|_| Safeguard::ClosedBeforeCommand.stops(true)).collect();
        let answers = concurrently(to_close.iter().map(|removal| self.taint(&removal.node))).await;
        let mut refused: Vec<&str> = Vec::new();
        for (removal, answer) in to_close.iter().zip(answers) {
            match answer {
                Err(HandleError::Cluster(ClusterError::Invalid { message, .. })) => {
                    self.report_refusal(removal, &message, snapshot.now);
                    state.record_refusal(&removal.node_claim, &message, snapshot.now);
                    refused.push(&removal.node);
                }
                answer => answer?,
            }
        }
        if refused.is_empty() {
            return Ok(Some(command.clone()));
        }
        let left = without_nodes(command, &refused);
        if left.is_none() {
            for removal in to_close.iter().filter(|removal| !refused.contains(&removal.node.as_str())) {
                self.untaint(&removal.node).await?;
            }
        }
        Ok(left)
    }

    /// Reports that a node is kept because the API server refuses its taint. It counts as a failed run for the alarm: without the right
    /// no node is ever disrupted.
    fn report_refusal(&mut self, removal: &Removal, message: &str, now: Timestamp) {
        self.report.count("taints_refused");
        self.report.metric(FailedRuns { function: Function::Consolidate.name() });
        let message = format!("Kept after all: the API server refuses its taint: {message}");
        self.report.decide(now, DecisionKind::Kept, format!("node/{}", removal.node), message);
    }

    /// Reads the pods of a command's nodes again: between the decision and the taint the scheduler may have bound pods that were not
    /// considered, and owners may have protected theirs. Returns the remaining command.
    async fn recheck(&mut self, snapshot: &Snapshot, command: &Command) -> Result<Option<Command>, HandleError> {
        let recheck = Safeguard::LookedAtClosed.stops(command.method.reason() != Reason::Drifted);
        let rechecked: Vec<&str> = command.removals.iter().filter(|_| recheck).map(|removal| removal.node.as_str()).collect();
        let pods = self.pods_on(&rechecked).await?;
        let (left, arrivals) = without_arrivals(command, &pods, snapshot.now);
        let kept = |removal: &&Removal| left.as_ref().is_none_or(|left| left.removals.iter().all(|one| one.node != removal.node));
        for removal in command.removals.iter().filter(kept) {
            self.untaint(&removal.node).await?;
        }
        for arrival in &arrivals {
            self.report.decide(snapshot.now, DecisionKind::Kept, format!("node/{}", arrival.node), format!("Kept after all: {arrival}"));
        }
        metrics::validation_failed(&mut self.report, command.method, arrivals.len());
        Ok(left)
    }

    /// Pods that keep empty nodes of a command that another run began, and died: what that run saw of the pods on its nodes is not
    /// recorded, and may be old. Empty nodes are read again, but for those that are being deleted by now; for the pods of others places are
    /// looked for again, unless machines are launched for them (ADR 0072). `marked` are the claims of the command.
    pub(crate) async fn occupied_since(
        &self,
        running: &mut Running,
        marked: &[Claim],
        now: Timestamp,
    ) -> Result<Vec<Arrival>, HandleError> {
        if running.closed || running.method == Method::StaticDrift {
            return Ok(Vec::new());
        }
        running.waited |= running.replacements.is_empty();
        if running.method.reason() != Reason::Empty {
            return Ok(Vec::new());
        }
        let ending: BTreeSet<&str> = marked.iter().filter(|claim| claim.is_ending()).map(|claim| claim.key.name.as_str()).collect();
        let kept = running.removals.iter().filter(|machine| !ending.contains(machine.claim.as_str()));
        let nodes: Vec<&str> = kept.map(|machine| machine.node.as_str()).collect();
        let pods = self.pods_on(&nodes).await?;
        Ok(arrivals_on(nodes, &pods, now))
    }

    /// The pods on these nodes, as the API server has them now.
    async fn pods_on(&self, nodes: &[&str]) -> Result<Vec<Pod>, HandleError> {
        let mut pods = Vec::new();
        for some in nodes.chunks(READ_CONCURRENCY) {
            let reads = some.iter().map(|node| self.ports.cluster().read(&self.lease.cluster, Scope::Pods, Some(node)));
            for read in try_join_all(reads).await? {
                pods.extend(read.unreadable_pods().cloned());
                pods.extend(read.pods);
            }
        }
        Ok(pods)
    }

    async fn taint(&self, node: &str) -> Result<(), HandleError> {
        let patch = NodePatch { add_taints: vec![Taint::disrupted()], ..NodePatch::default() };
        self.patch_unless_gone(node, &patch).await
    }

    /// Taints the nodes, unless that is done, and sets the disruption reason on the claims.
    pub(crate) async fn set_reason(&self, running: &Running) -> Result<Marked, HandleError> {
        let mut claims = Vec::new();
        for marked in concurrently(running.removals.iter().map(|deleting| self.set_reason_of(running, deleting))).await {
            match marked? {
                Marked::All(some) => claims.extend(some),
                other => return Ok(other),
            }
        }
        Ok(Marked::All(claims))
    }

    /// The same of one of its nodes.
    async fn set_reason_of(&self, running: &Running, deleting: &DeletingMachine) -> Result<Marked, HandleError> {
        if !running.closed {
            match self.taint(&deleting.node).await {
                Err(HandleError::Cluster(ClusterError::Invalid { message, .. })) => {
                    return Ok(Marked::Refused { node: deleting.node.clone(), message });
                }
                tainted => tainted?,
            }
        }
        // Read again: its conditions were written a moment ago.
        let key = ClaimKey { cluster: self.lease.cluster.clone(), name: deleting.claim.clone() };
        let claim = match self.ports.store().get(&key).await {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(Marked::All(Vec::new())),
            Err(StoreError::Unreadable { .. }) => return Ok(Marked::Unreadable(deleting.claim.clone())),
            Err(error) => return Err(error.into()),
        };
        let mut next = claim.value.clone();
        let reason = running.method.reason().as_str();
        // Plans tell by its time which replacements are for the node: what another command left would keep its own.
        conditions::clear(&mut next.conditions, conditions::DISRUPTION_REASON);
        conditions::set(&mut next.conditions, conditions::DISRUPTION_REASON, ConditionStatus::True, reason, reason, running.started_at);
        let saved = unless_conflict(save(self.ports.store(), &claim, next).await)?;
        Ok(Marked::All(saved.map(|saved| saved.value).into_iter().collect()))
    }

    /// Writes the mirrors of claims while there is time; `sweep` writes the others.
    pub(crate) async fn show_claims(&mut self, claims: &[Claim]) {
        for some in claims.chunks(CONCURRENT_REQUESTS) {
            if time_left(self.ports.clock()).is_zero() {
                return;
            }
            for written in concurrently(some.iter().map(|claim| write_mirror(self.ports.cluster(), claim))).await {
                written.count_failure(&mut self.report, "mirrors_failed");
            }
        }
    }

    /// Stores the replacements under the lease and sends the launch doorbell. Those that are already stored are left alone.
    pub(crate) async fn launch(&self, running: &Running) -> Result<(), HandleError> {
        for claim in &running.replacements {
            unless_conflict(self.ports.store().create(self.lease, claim).await)?;
        }
        self.announce(&running.replacements).await
    }
}

/// The part of a command that one run gets through: of empty nodes, which go independently of each other, as many as it may take. Pure.
pub(crate) fn portion(command: &Command) -> Command {
    let mut portion = command.clone();
    if command.method == Method::Emptiness && command.removals.len() > EMPTY_MAX {
        portion.removals.truncate(EMPTY_MAX);
        portion.savings = Savings::between(portion.removals.iter().map(|removal| removal.price).sum(), Price::ZERO);
    }
    portion
}

/// Remaining machines that take pods of the command. Pure.
pub(crate) fn nominations(command: &Command, snapshot: &Snapshot) -> BTreeMap<String, Timestamp> {
    let until = snapshot.now.checked_add(NOMINATION).unwrap_or(snapshot.now);
    let takes = |node: &&StateNode| command.destinations.iter().any(|name| name == node.name());
    snapshot.nodes.iter().filter(takes).map(|node| (machine_key(node).to_owned(), until)).collect()
}

/// Replacements that are ready while the pods they were launched for are still on the nodes that they replace: those of commands
/// that run, and of commands among `earlier` whose nodes are being deleted by now. Without it such a machine would count as empty
/// until `schedule` expects the pods there. A command that was rolled back has none. Pure.
pub(crate) fn awaited(snapshot: &Snapshot, earlier: &[Running], running: &[Running]) -> BTreeMap<String, Timestamp> {
    let until = snapshot.now.checked_add(HELD_BACK).unwrap_or(snapshot.now);
    let ends = |old: &DeletingMachine| find_claim(snapshot, &old.claim).is_some_and(|claim| claim.value.is_ending());
    let deleted = earlier.iter().filter(|command| command.removals.iter().any(ends));
    // Nodes of a static pool are not disrupted for being empty.
    let commands = running.iter().chain(deleted).filter(|command| command.method != Method::StaticDrift);
    let ready = |claim: &&Claim| {
        let found = find_claim(snapshot, &claim.key.name);
        found.is_some_and(|found| !found.value.is_ending() && matches!(found.value.phase, Phase::Initialized { .. }))
    };
    let replacements = commands.flat_map(|command| &command.replacements).filter(ready);
    replacements.map(|claim| (claim.key.name.as_str().to_owned(), until)).collect()
}

/// Removed nodes that the record of a replacement names; more are counted.
const REPLACED_NAMED: usize = 5;

/// Records of each machine that a command launches what it is for.
fn record_replacements(report: &mut Report, command: &Command, running: &Running, now: Timestamp) {
    let mut nodes: Vec<String> = command.removals.iter().take(REPLACED_NAMED).map(|removal| removal.node.clone()).collect();
    nodes.extend(Some(command.removals.len() - nodes.len()).filter(|more| 0 < *more).map(|more| format!("{more} more")));
    for (claim, new) in running.replacements.iter().zip(&command.replacements) {
        let cheapest = new.why.cheapest.as_ref().map_or_else(String::new, |offer| format!("; cheapest {offer}"));
        let pods = if new.pods.len() == 1 { "1 pod moves".to_owned() } else { format!("{} pods move", new.pods.len()) };
        let message =
            format!("replaces {} ({}): {pods} to it, from nodepool {}{cheapest}", nodes.join(", "), command.method.reason(), new.node_pool);
        report.decide(now, DecisionKind::Planned, format!("nodeclaim/{}", claim.key.name), message);
    }
}

/// Records each node's part in a command.
fn record_disruptions(report: &mut Report, command: &Command, snapshot: &Snapshot) {
    for removal in &command.removals {
        let subject = format!("node/{}", removal.node);
        let mut kind = format!("{}/{}", removal.instance_type, removal.capacity_type);
        kind.extend(drift_of(command, removal, snapshot).map(|reason| format!("; {reason}")));
        let message = format!("{}: {} ({kind})", command.method.reason(), command.text_for(&removal.node));
        report.decide(snapshot.now, DecisionKind::Disrupted, subject, message);
    }
}

/// Why a machine has drifted, if it goes because of that.
fn drift_of<'a>(command: &Command, removal: &Removal, snapshot: &'a Snapshot) -> Option<&'a str> {
    let claim = find_claim(snapshot, &removal.node_claim.as_str().into()).filter(|_| command.method.reason() == Reason::Drifted)?;
    let drifted =
        conditions::find(&claim.value.conditions, conditions::DRIFTED).filter(|drifted| drifted.status == ConditionStatus::True)?;
    Some(drifted.reason.as_str())
}

pub(crate) fn find_claim<'a>(snapshot: &'a Snapshot, name: &ClaimName) -> Option<&'a Stored<Claim>> {
    snapshot.claims.iter().find(|claim| claim.value.key.name == *name)
}

//! Voluntary disruption: decide, wait for the validation delay, validate, launch replacements, then delete the old nodes.
//!
//! Everything in progress is in one record per cluster ([`state::Disruptions`]), which only this function writes: the next run
//! resumes one that died at any point.

// A command, from its decision to its end.
mod state; // the record of what is in progress
mod execute; // taints the nodes, stores the command, launches its replacements
mod progress; // deletes the old nodes once the replacements are ready, or rolls back
mod refused; // pools for whose nodes EC2 refuses replacements
mod strays; // what ended commands left on nodes and claims
mod statics; // static pools keep their `replicas`
mod failed_launches; // static pools whose machines EC2 does not launch
mod quotas; // replacements, and machines of static pools, that no quota of the account has room for

// When the next run is, and what it reads.
mod quiet; // whether anything can be different at the next look
mod rest; // the tick of a quiet cluster

// What a pass writes besides.
mod observe; // pod events, and the conditions that follow
mod publish; // verdicts, decisions, Events
mod shadow_log; // what would be done in shadow mode
mod metrics; // under Karpenter's names

#[cfg(test)]
mod tests;

pub use shadow_log::SHADOW;
pub use state::{Disruptions, Running};

use crate::observe::Step;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::labels;
use whittle_checker::check_command;
use whittle_claims::{Doorbell, Lease, Revision, Stored};
use whittle_disruption::{Decision, DisruptionEvent, Validated};
use whittle_model::disruption::{self, Command, Gate, Method, Proposal, Settings as Rules};
use whittle_model::scheduling::Options;
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, DecisionLog, HandleError, Leases, Mirrors, Mode, Nodes, Queues, RecordReader, Records, RegionStore,
    Report, Settings, StatusWriter, WorkloadReader, acquire_lease, lease_held_report, publish_event, record_decisions, release_lease,
    rights,
};
use whittle_snapshot::{QuotaRoom, Snapshot, load};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

rights! {
    /// What `consolidate` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Leases + Records + RegionStore + DecisionLog,
    Cluster: ClusterReader + WorkloadReader + Mirrors + Nodes + StatusWriter,
    Queues: Queues,
}

/// Longer than the largest pass, short enough that a crashed run delays the next by less than a tick.
const LEASE: SignedDuration = SignedDuration::from_secs(60);
/// Retry delay when another run holds the lease of the cluster.
const RETRY_WHEN_HELD: SignedDuration = SignedDuration::from_secs(3);
/// Reserved of the remaining time for storing the decisions and handing over.
const HANDOVER_RESERVE: SignedDuration = SignedDuration::from_secs(8);
/// A safe number of simulations per second (`cargo xtask bench consolidation`: over a thousand on a whole core, of which the
/// function has a little more than half).
const SIMULATIONS_PER_SECOND: i64 = 300;
/// Simulations that a pass makes regardless of the remaining time: 1,000 nodes are covered by ten passes, within two minutes.
const SIMULATIONS_MIN: u32 = 100;
/// Interval of passes while something changes in a cluster with machines of ours (ADR 0045).
const PASS_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// One pass for a cluster: its ports, the lease that it writes under, and its report.
pub(crate) struct Run<'a, P> {
    ports: P,
    settings: &'a Settings,
    lease: &'a Lease,
    report: Report,
    /// Events of commands that this run took further; published once it has done everything else.
    notes: Vec<DisruptionEvent>,
    /// Time ran out before all was done: the next pass follows at once.
    handed_over: bool,
}

/// One pass for a cluster. Only one run decides for a cluster at a time; another one retries later.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let doorbell = Doorbell::Consolidate { cluster: cluster.clone() };
    let Some(lease) = acquire_lease(ports, doorbell, LEASE, RETRY_WHEN_HELD).await? else { return Ok(lease_held_report()) };
    let run = Run { ports, settings, lease: &lease, report: Report::default(), notes: Vec::new(), handed_over: false };
    let outcome = run.under_lease(cluster).await;
    release_lease(ports.store(), &lease).await;
    outcome
}

impl<P: Rights> Run<'_, P> {
    async fn under_lease(mut self, cluster: &ClusterName) -> Result<Report, HandleError> {
        let known = self.ports.store().read::<Disruptions>(cluster, state::NAME).await?;
        if quiet::is_look_near(known.as_ref().and_then(|known| known.value.next_look_at), self.ports.clock().now()) {
            self.report.count("look_is_near");
            return Ok(self.report);
        }
        if let Some(known) = known
            && self.rests(cluster, known).await?
        {
            return Ok(self.report);
        }
        let mut snapshot = load(self.ports, self.settings, cluster).await?;
        if let Some(why) = snapshot.why_paused(self.settings) {
            self.report.count(why);
            return Ok(self.report);
        }
        if snapshot.is_left_running() {
            return self.leave_running(&snapshot).await;
        }
        let has_events = self.settings.is_shadow() || self.records_pod_events(cluster, &mut snapshot).await?;
        let mut stored = self.disruptions().await?;
        let before = stored.value.clone();
        if self.settings.is_shadow() {
            self.roll_back_all(&snapshot, &mut stored, progress::SHADOW_ENABLED).await?;
        } else {
            let moved = self.advance_commands(&snapshot, &mut stored).await?;
            if moved {
                // Claims that are now being deleted must count as such before anything else is decided. The old snapshot is dropped first:
                // while it shares the cached lists, an update has to copy them, with up to 100,000 pods.
                drop(snapshot);
                snapshot = load(self.ports, self.settings, cluster).await?;
            }
            snapshot.mark_deleting(stored.value.deleting().cloned());
        }
        if self.reconcile_static_pools(&snapshot, &mut stored).await? {
            // Machines that were just requested or marked for deletion count before anything else is decided.
            drop(snapshot);
            snapshot = load(self.ports, self.settings, cluster).await?;
            snapshot.mark_deleting(stored.value.deleting().cloned());
        }
        stored.value.nominated.retain(|_, until| snapshot.now < *until);
        stored.value.forget_refusals(snapshot.now);
        let awaited = execute::awaited(&snapshot, &before.running, &stored.value.running);
        stored.value.nominated.extend(awaited);
        snapshot.expect_also(&stored.value.nominated);
        stored.value.track_moves(&snapshot);
        let (decision, took) = decide(self.settings, &snapshot, &stored.value, self.ports.clock());
        metrics::evaluation(&mut self.report, &decision, &took);
        stored.value.memory = decision.memory.clone();
        self.gauge(&snapshot, &decision, &mut stored.value).await;
        shadow_log::update(&mut self.report, &mut stored.value, &decision, self.settings.mode, &snapshot);
        let acted = if has_events { self.act(&snapshot, &decision, &mut stored).await } else { Ok(None) };
        // Reporting comes second: the longer a decision waits, the more pods are bound meanwhile.
        // The next pass stores the verdicts that are missing: what this one did and wants to do must not be forgotten for them.
        if publish::store_verdicts(self.ports, cluster, &snapshot, &decision, self.settings.mode, &mut self.report).await.is_err() {
            self.report.count("verdicts_failed");
        }
        self.show(&snapshot, &decision).await?;
        self.end_pass(&snapshot, &before, &mut stored, &decision, acted?).await?;
        self.record_decisions().await;
        Ok(self.report)
    }

    /// Stores what has changed since `before`, and rings for the next pass: when this one `asked` for it, at once if it had no time for
    /// everything, else after the usual interval, or not at all while nothing can change without an event.
    async fn end_pass(
        &mut self,
        snapshot: &Snapshot,
        before: &Disruptions,
        stored: &mut Stored<Disruptions>,
        decision: &Decision,
        asked: Option<SignedDuration>,
    ) -> Result<(), HandleError> {
        let cluster = &self.lease.cluster;
        let next = if self.handed_over { Some(SignedDuration::ZERO) } else { asked };
        let unchanged = next.is_none() && self.report.counted("pod_events") == 0;
        let is_quiet = unchanged && quiet::is_quiet(snapshot, before, &stored.value, decision);
        let wanted = if is_quiet { None } else { Some(next.map_or(PASS_INTERVAL, |wait| wait.min(PASS_INTERVAL))) };
        let next_delay = schedule_next_pass(snapshot, before, wanted, &mut stored.value);
        if stored.value != *before {
            self.ports.store().write(cluster, &stored.value, stored.revision).await?;
        }
        if let Some(delay) = next_delay {
            self.ports.queues().send(Doorbell::Consolidate { cluster: cluster.clone() }, delay).await?;
        }
        Ok(())
    }

    /// Records what this run decided.
    pub(crate) async fn record_decisions(&mut self) {
        let recorded = record_decisions(self.ports.store(), &self.lease.cluster, &self.report.decisions).await;
        recorded.count_failure(&mut self.report, "decisions_unrecorded");
    }

    /// Records pod events. Returns whether all could be recorded: a node whose last event is missing seems to be without events for longer
    /// than it is, so that this pass must not begin anything new.
    async fn records_pod_events(&mut self, cluster: &ClusterName, snapshot: &mut Snapshot) -> Result<bool, HandleError> {
        let step = observe::record_pod_events(self.ports, cluster, snapshot, &mut self.report).await?;
        self.handed_over |= step == Step::HandedOver;
        Ok(step == Step::Done)
    }

    /// Shows in the cluster what commands did, and the conditions of claims.
    async fn show(&mut self, snapshot: &Snapshot, decision: &Decision) -> Result<(), HandleError> {
        if self.settings.is_shadow() {
            return Ok(());
        }
        let notes = std::mem::take(&mut self.notes);
        publish::publish_notes(self.ports, &self.lease.cluster, &notes, &snapshot.read, &mut self.report).await;
        let step = observe::write_conditions(self.ports, snapshot, decision, &mut self.report).await?;
        self.handed_over |= step == Step::HandedOver;
        Ok(())
    }

    /// What is in progress; nothing if there is no record yet.
    async fn disruptions(&self) -> Result<Stored<Disruptions>, HandleError> {
        let stored = self.ports.store().read::<Disruptions>(&self.lease.cluster, state::NAME).await?;
        Ok(stored.unwrap_or_else(|| Stored { value: Disruptions::default(), revision: Revision::ABSENT }))
    }

    /// Whittle is being uninstalled and its machines are kept. Nothing that was decided before is done any more: commands that run are
    /// rolled back, while proposals and the surplus of static pools are forgotten. Replacements stay, as after any failed command.
    async fn leave_running(mut self, snapshot: &Snapshot) -> Result<Report, HandleError> {
        let lease = self.lease;
        let mut stored = self.disruptions().await?;
        let before = stored.value.clone();
        self.roll_back_all(snapshot, &mut stored, progress::NODES_KEPT).await?;
        // A taint for which there was no time is found by the next pass, which must not take this one for quiet.
        stored.value = Disruptions { next_look_at: self.handed_over.then_some(snapshot.now), ..Disruptions::default() };
        if stored.value != before {
            self.ports.store().write(&lease.cluster, &stored.value, stored.revision).await?;
        }
        self.record_decisions().await;
        Ok(self.report)
    }

    /// Emits the state gauges when they are due.
    async fn gauge(&mut self, snapshot: &Snapshot, decision: &Decision, known: &mut Disruptions) {
        if known.gauged_at.is_none_or(|at| snapshot.now.duration_since(at) >= metrics::STATES_INTERVAL) {
            metrics::states(&mut self.report, decision);
            let cluster = &self.lease.cluster;
            publish::unreadable_objects(self.ports, cluster, snapshot, self.settings.mode, &mut self.report).await;
            known.gauged_at = Some(snapshot.now);
        }
    }

    /// Leaves the remaining work to the next pass.
    pub(crate) fn hand_over(&mut self) {
        self.report.hand_over();
        self.handed_over = true;
    }

    /// Proposes a new command, or executes the proposed one after its validation delay if it is still valid. Returns when to run
    /// again.
    async fn act(
        &mut self,
        snapshot: &Snapshot,
        decision: &Decision,
        stored: &mut Stored<Disruptions>,
    ) -> Result<Option<SignedDuration>, HandleError> {
        if self.settings.is_shadow() {
            // Proposed before shadow mode was switched on: it must no longer be executed.
            stored.value.resting = None;
            return Ok(None);
        }
        if let Some(proposal) = stored.value.resting.clone() {
            if snapshot.now < proposal.execute_after {
                return Ok(Some(proposal.execute_after.duration_since(snapshot.now)));
            }
            stored.value.resting = None;
            if self.validate_and_start(snapshot, &proposal, stored).await? {
                return Ok(None);
            }
            // An invalid proposal is replaced at once by what this pass found, by whichever method.
        }
        if !quotas::holds_static_drift(&decision.commands, snapshot, &mut self.report) {
            return self.begin(snapshot, &decision.commands, stored).await;
        }
        // Each pass finds these first while the quota is used up, which may be for days. What other methods find may give some of it back.
        let rules = Rules { static_capacity: Gate::Off, ..rules(self.settings, snapshot) };
        let (others, _) = decide_by(rules, snapshot, &stored.value, self.ports.clock());
        self.begin(snapshot, &others.commands, stored).await
    }

    /// Proposes the first of new commands, or executes all of them if they need no validation. Returns when to run again.
    async fn begin(
        &mut self,
        snapshot: &Snapshot,
        commands: &[Command],
        stored: &mut Stored<Disruptions>,
    ) -> Result<Option<SignedDuration>, HandleError> {
        let Some(command) = commands.first() else { return Ok(None) };
        publish::record_found(&mut self.report, command, Mode::Active, snapshot);
        let proposal =
            Proposal { execute_after: execute_after(command.method, self.settings, snapshot.now), ..command.proposal(snapshot.now) };
        if proposal.execute_after > snapshot.now {
            let wait = proposal.execute_after.duration_since(snapshot.now);
            stored.value.resting = Some(proposal);
            return Ok(Some(wait));
        }
        let mut room = QuotaRoom::of(snapshot);
        for command in commands {
            if time_left(self.ports.clock()).is_zero() {
                self.hand_over();
                break;
            }
            if is_rejected_by_checker(self.settings, snapshot, &stored.value, command, &mut self.report) {
                continue;
            }
            if let Some(command) = quotas::within_quotas(command, snapshot, &mut room, &mut self.report) {
                self.start(snapshot, &command, stored).await?;
            }
        }
        Ok(None)
    }

    /// Executes a proposal if it is still valid; returns whether it is.
    async fn validate_and_start(
        &mut self,
        snapshot: &Snapshot,
        proposal: &Proposal,
        stored: &mut Stored<Disruptions>,
    ) -> Result<bool, HandleError> {
        let facts = stored.value.facts(snapshot);
        let memory = stored.value.memory.clone();
        let rules = rules(self.settings, snapshot);
        let input = disruption::Input { cluster: snapshot.input(), facts: &facts, memory: &memory, settings: &rules };
        match whittle_disruption::validate(input, proposal) {
            Ok(Validated { command, dropped }) => {
                metrics::validation_failed(&mut self.report, proposal.method, dropped);
                if is_rejected_by_checker(self.settings, snapshot, &stored.value, &command, &mut self.report) {
                    return Ok(false);
                }
                let mut room = QuotaRoom::of(snapshot);
                let fitting = quotas::within_quotas(&command, snapshot, &mut room, &mut self.report);
                let Some(command) = fitting else { return Ok(false) };
                self.start(snapshot, &command, stored).await
            }
            Err(rejection) => {
                publish::record_rejected(&mut self.report, proposal, &rejection, snapshot.now);
                metrics::validation_failed(&mut self.report, proposal.method, rejection.failed);
                for note in rejection.events.iter().take(publish::EVENTS_MAX) {
                    publish_event(self.ports.cluster(), &self.lease.cluster, &publish::event_of(note, &snapshot.read)).await;
                }
                Ok(false)
            }
        }
    }
}

/// Pools with a Node whose claim is neither in the table nor in the cluster, while claims cannot be read: how many of their nodes
/// are being disrupted is unknown. Pure.
fn uncountable_pools(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let Some(claim) = snapshot.hidden.first() else { return BTreeMap::new() };
    let shown: BTreeSet<&str> = snapshot.objects.node_claims.iter().map(|mirror| mirror.status.provider_id.as_str()).collect();
    let nodes = snapshot.objects.nodes.iter().filter(|node| !shown.contains(node.spec.provider_id.as_str()));
    let pools = nodes.filter_map(|node| node.metadata.label(labels::NODE_POOL));
    pools.map(|pool| (pool.to_owned(), format!("its nodes cannot be counted: NodeClaim {claim} cannot be read"))).collect()
}

/// The settings that a decision is made with. Pure.
fn rules(settings: &Settings, snapshot: &Snapshot) -> Rules {
    let gate = |on: bool| if on { Gate::On } else { Gate::Off };
    let (spot_to_spot, static_capacity) = (gate(settings.spot_to_spot), gate(settings.static_capacity));
    let solve = Options { promised: snapshot.promises(), ..whittle_snapshot::options(settings) };
    let shifted_zones = snapshot.shifted.names.union(&snapshot.shifted.ids).cloned().collect();
    let unreadable_pools = uncountable_pools(snapshot);
    Rules { spot_to_spot, static_capacity, solve, unreadable_pools, shifted_zones, ..Rules::standard() }
}

/// The remaining time of the invocation, less the reserve for handing over.
fn time_left(clock: &impl Clock) -> SignedDuration {
    let left = clock.time_left();
    left.checked_sub(HANDOVER_RESERVE).unwrap_or_default().max(SignedDuration::ZERO)
}

/// How many simulations half of the remaining time allows. Nodes that are not reached come first in the next pass. Pure.
fn simulations(left: SignedDuration, most: u32) -> u32 {
    let affordable = left.as_secs().saturating_mul(SIMULATIONS_PER_SECOND) / 2;
    u32::try_from(affordable).unwrap_or(u32::MAX).max(SIMULATIONS_MIN).min(most)
}

/// The decision, and the evaluation time of each method; the first includes the work that all share.
fn decide(
    settings: &Settings,
    snapshot: &Snapshot,
    known: &Disruptions,
    clock: &impl Clock,
) -> (Decision, BTreeMap<Method, SignedDuration>) {
    decide_by(rules(settings, snapshot), snapshot, known, clock)
}

/// The same by these rules.
fn decide_by(rules: Rules, snapshot: &Snapshot, known: &Disruptions, clock: &impl Clock) -> (Decision, BTreeMap<Method, SignedDuration>) {
    let facts = known.facts(snapshot);
    let rules = Rules { simulations_max: simulations(time_left(clock), rules.simulations_max), ..rules };
    let input = disruption::Input { cluster: snapshot.input(), facts: &facts, memory: &known.memory, settings: &rules };
    let (mut began, mut took) = (clock.now(), BTreeMap::new());
    let decision = whittle_disruption::decide_observed(input, &mut |method| {
        let now = clock.now();
        *took.entry(method).or_insert(SignedDuration::ZERO) += now.duration_since(began);
        began = now;
    });
    (decision, took)
}

/// Whether the checker, which shares no code with the decision, rejects a command. The rejection is recorded, and nothing is
/// done.
fn is_rejected_by_checker(settings: &Settings, snapshot: &Snapshot, known: &Disruptions, command: &Command, report: &mut Report) -> bool {
    let (facts, rules) = (known.facts(snapshot), rules(settings, snapshot));
    let input = disruption::Input { cluster: snapshot.input(), facts: &facts, memory: &known.memory, settings: &rules };
    let wrong = check_command(&input, command);
    publish::record_refused(report, command, &wrong, snapshot.now);
    !wrong.is_empty()
}

/// When a command may be executed: drift at once, consolidation after the validation delay.
fn execute_after(method: Method, settings: &Settings, now: Timestamp) -> Timestamp {
    let wait = if method.validation_wait().is_zero() { SignedDuration::ZERO } else { settings.validation_delay };
    now.checked_add(wait).unwrap_or(now)
}

/// Ensures that one doorbell is pending while the cluster has machines of ours and something may happen within a tick, and that
/// doorbells do not multiply. `wanted` is when to look again; `None` leaves that to the tick.
fn schedule_next_pass(
    snapshot: &Snapshot,
    before: &Disruptions,
    wanted: Option<SignedDuration>,
    next: &mut Disruptions,
) -> Option<SignedDuration> {
    let machines = snapshot.claims.iter().any(|claim| claim.value.machine().is_some());
    let Some(wanted) = wanted.filter(|_| machines || !next.is_idle()) else {
        next.next_look_at = None;
        return None;
    };
    let delay = wanted.max(SignedDuration::from_secs(1));
    let due = snapshot.now.checked_add(delay).unwrap_or(snapshot.now);
    if before.next_look_at.is_some_and(|known| known > snapshot.now && known <= due) {
        return None;
    }
    next.next_look_at = Some(due);
    Some(delay)
}

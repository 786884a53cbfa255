//! Nodes that cost more than they give are taken out: decide, let it rest, look again, launch replacements, then end.
//!
//! Everything that is under way stands in one record per cluster ([`state::Disruptions`]), which only this function
//! writes: a run that dies anywhere is gone on with by the next one.

mod counts;
mod execute;
mod imagined;
mod observe;
mod progress;
mod shows;
mod state;
mod statics;
#[cfg(test)]
mod tests;

pub use imagined::SHADOW;
pub use state::{Disruptions, Running};

use crate::observe::Step;
use std::collections::BTreeMap;
use whittle_api::k8s::Node;
use whittle_api::labels;
use whittle_claims::{Doorbell, Lease, Revision, Stored};
use whittle_core::checker::check_command;
use whittle_core::disruption::{self, Command, Decision, Gate, Method, Proposal, Settings as Rules, Validated};
use whittle_core::schedule::Options;
use whittle_ports::{
    ClaimStore, Clock, ClusterReader, DecisionLog, HandleError, Leases, Mirrors, Nodes, Queues, Records, RegionStore, Report, Settings,
    StatusWriter, WorkloadReader, end_turn, not_my_turn, rights, take_turn,
};
use whittle_snapshot::{Snapshot, load};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

rights! {
    /// What `consolidate` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Leases + Records + RegionStore + DecisionLog,
    Cluster: ClusterReader + WorkloadReader + Mirrors + Nodes + StatusWriter,
    Queues: Queues,
}

/// Longer than the largest pass, short enough that a crashed run costs less than a tick.
const LEASE: SignedDuration = SignedDuration::from_secs(60);
/// How soon a run looks again that found another one deciding for its cluster.
const HELD_AGAIN: SignedDuration = SignedDuration::from_secs(3);
/// Kept of the time that is left for storing what was decided and for handing over.
const HANDING_OVER: SignedDuration = SignedDuration::from_secs(8);
/// Simulations that a second is sure to be enough for (`cargo xtask bench consolidation`: over a thousand on a whole core,
/// of which the function has a little more than half).
const SIMULATIONS_A_SECOND: i64 = 300;
/// So many are made however little time is left: 1,000 nodes have had their turn after ten looks, within two minutes.
const SIMULATIONS_MIN: u32 = 100;
/// How often a cluster with machines of ours is looked at: a pod that leaves is noticed within this.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// One pass for a cluster: its ports, the lease that it writes under, and what it has done.
pub(crate) struct Run<'a, P> {
    ports: P,
    settings: &'a Settings,
    lease: &'a Lease,
    report: Report,
    /// The time was over before all was done: the next pass follows at once.
    handed_over: bool,
}

/// One pass for a cluster. Only one run decides for a cluster at a time; a later one ends with `Held`.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let bell = Doorbell::Consolidate { cluster: cluster.clone() };
    let Some(lease) = take_turn(ports, bell, LEASE, HELD_AGAIN).await? else { return Ok(not_my_turn()) };
    let outcome = Run { ports, settings, lease: &lease, report: Report::default(), handed_over: false }.under_lease(cluster).await;
    end_turn(ports.store(), &lease).await;
    outcome
}

impl<P: Rights> Run<'_, P> {
    async fn under_lease(mut self, cluster: &ClusterName) -> Result<Report, HandleError> {
        let mut seen = load(self.ports, self.settings, cluster).await?;
        if let Some(why) = seen.held(self.settings) {
            self.report.count(why);
            return Ok(self.report);
        }
        if !self.settings.shadow {
            let step = observe::pod_events(self.ports, &mut seen, &mut self.report).await?;
            self.handed_over |= step == Step::HandedOver;
        }
        let stored = self.ports.store().read::<Disruptions>(cluster, state::NAME).await?;
        let mut stored = stored.unwrap_or_else(|| Stored { value: Disruptions::default(), revision: Revision::ABSENT });
        let before = stored.value.clone();
        if self.settings.shadow {
            self.give_up_all(&seen, &mut stored).await?;
        } else {
            let moved = self.go_on(&seen, &mut stored).await?;
            if moved {
                // Claims that now end must count as ending before anything else is decided.
                seen = load(self.ports, self.settings, cluster).await?;
            }
            seen.mark_going(stored.value.going().cloned());
        }
        if self.balance(&seen, &mut stored).await? {
            // Machines that were just asked for, or are to go, count before anything else is decided.
            seen = load(self.ports, self.settings, cluster).await?;
            seen.mark_going(stored.value.going().cloned());
        }
        stored.value.nominated.retain(|_, until| seen.now < *until);
        seen.expect_also(&stored.value.nominated);
        stored.value.note_leaving(&seen);
        let (decision, took) = decide(self.settings, &seen, &stored.value, self.ports.clock());
        counts::evaluated(&mut self.report, &decision, &took);
        stored.value.memory = decision.memory.clone();
        if stored.value.gauged_at.is_none_or(|at| seen.now.duration_since(at) >= counts::EVERY) {
            counts::states(&mut self.report, &decision);
            shows::unreadable(self.ports, cluster, &seen, self.settings.shadow, &mut self.report).await;
            stored.value.gauged_at = Some(seen.now);
        }
        imagined::note(&mut self.report, &mut stored.value, &decision, self.settings.shadow, seen.now);
        let acted = self.act(&seen, &decision, &mut stored).await;
        // What is to be read comes second: the longer a decision waits, the more pods have come meanwhile.
        shows::verdicts(self.ports, cluster, &seen, &decision, self.settings.shadow, &mut self.report).await?;
        if !self.settings.shadow {
            let step = observe::conditions(self.ports, &seen, &decision, &mut self.report).await?;
            self.handed_over |= step == Step::HandedOver;
        }
        let next = acted?;
        let next = if self.handed_over { Some(SignedDuration::ZERO) } else { next };
        let again = plan_next_look(&seen, &before, next, &mut stored.value);
        if stored.value != before {
            self.ports.store().write(cluster, &stored.value, stored.revision).await?;
        }
        if let Some(delay) = again {
            self.ports.queues().ring(Doorbell::Consolidate { cluster: cluster.clone() }, delay).await?;
        }
        self.ports.store().append(cluster, &self.report.decisions).await?;
        Ok(self.report)
    }

    /// Leaves what is still to be done to the next pass.
    pub(crate) fn hand_over(&mut self) {
        self.report.count("handed_over");
        self.handed_over = true;
    }

    /// Lets a found command rest, or executes the one that has rested and still holds. Answers when to look again.
    async fn act(
        &mut self,
        seen: &Snapshot,
        decision: &Decision,
        stored: &mut Stored<Disruptions>,
    ) -> Result<Option<SignedDuration>, HandleError> {
        if self.settings.shadow {
            // Found before the cluster was put into shadow mode: it is not to be executed any more.
            stored.value.resting = None;
            return Ok(None);
        }
        if let Some(proposal) = stored.value.resting.clone() {
            if seen.now < proposal.execute_after {
                return Ok(Some(proposal.execute_after.duration_since(seen.now)));
            }
            stored.value.resting = None;
            if self.validated(seen, &proposal, stored).await? {
                return Ok(None);
            }
            // What no longer holds makes way at once for what this pass has found, by whichever method.
        }
        let Some(command) = decision.commands.first() else { return Ok(None) };
        shows::found(&mut self.report, command, false, seen.now);
        let proposal = Proposal { execute_after: rested(command.method, self.settings, seen.now), ..command.proposal(seen.now) };
        if proposal.execute_after > seen.now {
            let wait = proposal.execute_after.duration_since(seen.now);
            stored.value.resting = Some(proposal);
            return Ok(Some(wait));
        }
        for command in &decision.commands {
            if time_left(self.ports.clock()).is_zero() {
                self.hand_over();
                break;
            }
            if !is_refused(self.settings, seen, &stored.value, command, &mut self.report) {
                self.start(seen, command, stored).await?;
            }
        }
        Ok(None)
    }

    /// Executes what has rested, if it still holds; answers whether it does.
    async fn validated(&mut self, seen: &Snapshot, proposal: &Proposal, stored: &mut Stored<Disruptions>) -> Result<bool, HandleError> {
        let facts = stored.value.facts(seen);
        let memory = stored.value.memory.clone();
        let rules = rules(self.settings, seen);
        let input = disruption::Input { cluster: seen.input(), facts: &facts, memory: &memory, settings: &rules };
        match disruption::validate(input, proposal) {
            Ok(Validated { command, dropped }) => {
                counts::dropped(&mut self.report, proposal.method, dropped);
                if is_refused(self.settings, seen, &stored.value, &command, &mut self.report) {
                    return Ok(false);
                }
                self.start(seen, &command, stored).await
            }
            Err(rejection) => {
                shows::rejected(&mut self.report, proposal, &rejection, seen.now);
                counts::dropped(&mut self.report, proposal.method, rejection.failed);
                for note in rejection.notes.iter().take(shows::EVENTS_MAX) {
                    // The rejection stands in the decision log; the event is a courtesy.
                    let _ = self.ports.cluster().publish(&self.lease.cluster, &shows::event_of(note, &seen.read)).await;
                }
                Ok(false)
            }
        }
    }
}

/// Pools with a Node whose claim neither the table nor the cluster shows, while claims cannot be read: how many of their nodes are on
/// their way out nobody knows. Pure.
fn uncounted(seen: &Snapshot) -> BTreeMap<String, String> {
    let Some(claim) = seen.hidden.first() else { return BTreeMap::new() };
    let shown = |node: &Node| seen.objects.node_claims.iter().any(|mirror| mirror.status.provider_id == node.spec.provider_id);
    let nodes = seen.objects.nodes.iter().filter(|node| !shown(node));
    let pools = nodes.filter_map(|node| node.metadata.label(labels::NODE_POOL));
    pools.map(|pool| (pool.to_owned(), format!("its nodes cannot be counted: NodeClaim {claim} cannot be read"))).collect()
}

/// What the core decides on. Pure.
fn rules(settings: &Settings, seen: &Snapshot) -> Rules {
    let gate = |on: bool| if on { Gate::On } else { Gate::Off };
    let (spot_to_spot, static_capacity) = (gate(settings.spot_to_spot), gate(settings.static_capacity));
    let solve = Options { promised: seen.promises(), ..whittle_snapshot::options(settings) };
    Rules { spot_to_spot, static_capacity, solve, closed: uncounted(seen), ..Rules::standard() }
}

/// What is left of the invocation, without what handing over takes.
fn time_left(clock: &impl Clock) -> SignedDuration {
    let left = clock.deadline().left(clock.now());
    left.checked_sub(HANDING_OVER).unwrap_or_default().max(SignedDuration::ZERO)
}

/// How many simulations half of the time that is left allows. What is not reached is first in the next pass. Pure.
fn simulations(left: SignedDuration, most: u32) -> u32 {
    let affordable = left.as_secs().saturating_mul(SIMULATIONS_A_SECOND) / 2;
    u32::try_from(affordable).unwrap_or(u32::MAX).max(SIMULATIONS_MIN).min(most)
}

/// The decision, and how long each method took to be evaluated; the first is charged with what all have in common.
fn decide(settings: &Settings, seen: &Snapshot, known: &Disruptions, clock: &impl Clock) -> (Decision, BTreeMap<Method, SignedDuration>) {
    let facts = known.facts(seen);
    let rules = rules(settings, seen);
    let rules = Rules { simulations_max: simulations(time_left(clock), rules.simulations_max), ..rules };
    let input = disruption::Input { cluster: seen.input(), facts: &facts, memory: &known.memory, settings: &rules };
    let (mut began, mut took) = (clock.now(), BTreeMap::new());
    let decision = disruption::decide_watched(input, &mut |method| {
        let now = clock.now();
        *took.entry(method).or_insert(SignedDuration::ZERO) += now.duration_since(began);
        began = now;
    });
    (decision, took)
}

/// Whether a second opinion, which shares no code with the decision, forbids a command. That is told, and nothing is done.
fn is_refused(settings: &Settings, seen: &Snapshot, known: &Disruptions, command: &Command, report: &mut Report) -> bool {
    let (facts, rules) = (known.facts(seen), rules(settings, seen));
    let input = disruption::Input { cluster: seen.input(), facts: &facts, memory: &known.memory, settings: &rules };
    let wrong = check_command(&input, command);
    shows::refused(report, command, &wrong, seen.now);
    !wrong.is_empty()
}

/// When a command may be executed: drift at once, consolidation after the validation delay.
fn rested(method: Method, settings: &Settings, now: Timestamp) -> Timestamp {
    let wait = if method.validation_wait().is_zero() { SignedDuration::ZERO } else { settings.validation_delay };
    now.checked_add(wait).unwrap_or(now)
}

/// Sees to it that one doorbell is under way while the cluster has machines of ours, and that doorbells do not multiply.
fn plan_next_look(seen: &Snapshot, before: &Disruptions, wanted: Option<SignedDuration>, next: &mut Disruptions) -> Option<SignedDuration> {
    let machines = seen.claims.iter().any(|claim| claim.value.machine().is_some());
    if !machines && next.is_idle() {
        next.next_look_at = None;
        return None;
    }
    let delay = wanted.map_or(LOOK_EVERY, |wanted| wanted.min(LOOK_EVERY)).max(SignedDuration::from_secs(1));
    let due = seen.now.checked_add(delay).unwrap_or(seen.now);
    if before.next_look_at.is_some_and(|known| known > seen.now && known <= due) {
        return None;
    }
    next.next_look_at = Some(due);
    Some(delay)
}

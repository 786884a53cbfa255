//! The world: everything that is not a function, and the order in which it happens.

mod agenda;
mod faults;
mod hidden;
mod mishaps;
pub mod queues;
pub mod store;
mod trouble;

use crate::allowance::Allowance;
use crate::check::Foreign;
use crate::cluster::{Cluster, ClusterEffect, Eviction};
use crate::dice::{Dice, Stream};
use crate::function::{Function, Input, TaskId};
use crate::mutants::Mutant;
use crate::region::{Region, RegionEffect};
use crate::story::{LineKind, Story};
use crate::watch::Watched;
use agenda::Agenda;
use faults::Past;
pub use faults::{Faults, TableLoss};
use jiff::{SignedDuration, Timestamp};
use queues::{Chain, Message, MessageQueues};
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use store::Store;
use trouble::Lag;
use whittle_claims::{Claim, DecisionRecord, Doorbell, Lease, Revision};
use whittle_ec2::fleet::{FleetAnswer, FleetRequest};
use whittle_ports::{CloudError, ClusterEvent, StoreError};
use whittle_units::{ClusterName, InstanceId, Price};

/// The scheduled doorbell, at most this far apart.
const TICK: SignedDuration = SignedDuration::from_secs(60);
/// Node classes are looked at once in so many ticks: every five minutes.
const REFRESH_TICKS: i32 = 5;
/// Kept back of an invocation's time for handing work over, at most.
pub(crate) const RESERVE: SignedDuration = SignedDuration::from_secs(2);
/// Controllers, scheduler and kubelets look at their objects this long after a change.
const REACTION: SignedDuration = SignedDuration::from_millis(200);

/// Messages that come together do so at multiples of this many milliseconds.
const TOGETHER_MS: i64 = 2_000;

/// Messages due within this time are work at hand.
const SOON: SignedDuration = SignedDuration::from_secs(2);

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    pub seed: u64,
    pub cluster: ClusterName,
    pub region: String,
    pub kubernetes_version: String,
    pub start: Timestamp,
}

enum Event {
    Wake { task: TaskId, waker: Waker },
    Expire { task: TaskId },
    Deliver,
    Tick,
    Refresh,
    Cluster,
    Region,
}

/// What the executor has to do about an event.
pub(crate) enum Due {
    Nothing,
    Start(Vec<Start>),
    Wake(TaskId, Waker),
    Kill(TaskId, &'static str),
}

/// A run of a function that begins.
pub(crate) struct Start {
    pub(crate) task: TaskId,
    pub(crate) function: Function,
    pub(crate) input: Input,
    pub(crate) deadline: Timestamp,
    pub(crate) skew: SignedDuration,
}

#[derive(Debug)]
struct Running {
    function: Function,
    /// How often each function ran in the chain of calls that led here.
    chain: Chain,
    /// The messages that came in the same invocation.
    batch: Option<u64>,
}

/// Counts of a run, for the summary and the fault commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub invocations: u64,
    pub gates: u64,
    pub faults: u64,
    pub failures: u64,
    /// Doorbells for one subject within a minute, at most.
    pub busiest: u64,
    /// How often one function ran in a chain of calls, at most.
    pub longest_chain: u64,
}

/// Evictions of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub granted: u32,
    pub refused: u32,
}

/// The world.
pub struct World {
    agenda: Agenda<Event>,
    /// Chance.
    pub dice: Dice,
    /// State at rest.
    pub store: Store,
    /// Messages.
    pub queues: MessageQueues,
    /// The Kubernetes cluster.
    pub cluster: Cluster,
    /// EC2 and its neighbours.
    pub region: Region,
    /// What goes wrong.
    pub faults: Faults,
    /// What happened.
    pub story: Story,
    /// Figures of the run.
    pub counts: Counts,
    /// Broken invariants, in words.
    pub violations: Vec<String>,
    /// Which function stood at each gate, kept for the fault commands when asked for.
    pub gates: Option<Vec<Function>>,
    /// What was asked of the eviction API, by second.
    pub evictions: BTreeMap<i64, Requests>,
    /// When an invocation died last.
    pub died_at: Option<Timestamp>,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) watched: Watched,
    pub(crate) allowance: Allowance,
    pub(crate) past: Past,
    pub(crate) lag: Lag,
    /// The run that rings, for the chain of its doorbells.
    pub(crate) ringing: Option<TaskId>,
    /// By how much its clock is wrong.
    pub(crate) sender_skew: SignedDuration,
    running: BTreeMap<TaskId, Running>,
    doomed: BTreeSet<TaskId>,
    /// Runs that know a table that is not there any more.
    cut_off: BTreeSet<TaskId>,
    begun: Timestamp,
    task_sequence: u64,
    unique: u64,
    /// Counts the batches of messages.
    batches: u64,
    ticking: bool,
    tick: SignedDuration,
    /// When the next scheduled doorbell and the next refresh are due: others in the agenda are stale.
    tick_at: Option<Timestamp>,
    refresh_at: Option<Timestamp>,
    cluster_at: Option<Timestamp>,
    region_at: Option<Timestamp>,
    /// When the next delivery is planned.
    delivery_at: Option<Timestamp>,
    /// What was told last about each subject.
    last_words: BTreeMap<String, String>,
    /// Nodes that are not Whittle's, as they were.
    pub(crate) foreign: BTreeMap<String, Foreign>,
}

impl World {
    /// A world in which nothing has happened yet.
    pub fn new(options: &WorldOptions) -> Self {
        let mut world = Self {
            agenda: Agenda::new(options.start),
            dice: Dice::new(options.seed),
            store: Store::default(),
            queues: MessageQueues::default(),
            cluster: Cluster::new(options.cluster.clone(), &options.kubernetes_version),
            region: Region::new(&options.region, &options.cluster),
            faults: Faults::default(),
            story: Story::default(),
            counts: Counts::default(),
            violations: Vec::new(),
            gates: None,
            evictions: BTreeMap::new(),
            died_at: None,
            mutant: None,
            watched: Watched::default(),
            allowance: Allowance::default(),
            past: Past::default(),
            lag: Lag::default(),
            ringing: None,
            sender_skew: SignedDuration::ZERO,
            batches: 0,
            running: BTreeMap::new(),
            doomed: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            begun: options.start,
            task_sequence: 0,
            unique: 0,
            ticking: false,
            tick: TICK,
            tick_at: None,
            refresh_at: None,
            cluster_at: None,
            region_at: None,
            delivery_at: None,
            last_words: BTreeMap::new(),
            foreign: BTreeMap::new(),
        };
        world.touch_cluster();
        world
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.agenda.now()
    }
    /// The name of the cluster.
    pub fn name(&self) -> ClusterName {
        self.cluster.name.clone()
    }
    pub(crate) fn idle_until(&mut self, time: Timestamp) {
        self.agenda.idle_until(time);
    }

    /// Switches Whittle on: its schedules begin to tick, the first refresh comes at once.
    pub fn switch_on(&mut self) {
        if !self.ticking {
            self.ticking = true;
            self.plan_refresh(SignedDuration::ZERO);
            self.plan_tick(self.tick);
        }
    }

    /// Changes how far apart the scheduled doorbells are. Refreshes follow, five ticks apart as ever. Where ticks are
    /// slower than usual, the looks that `consolidate` orders for itself are lost: the tick makes up for them.
    pub fn set_tick(&mut self, span: SignedDuration) {
        self.tick = span;
        if self.ticking {
            self.plan_tick(span);
            self.plan_refresh(span.saturating_mul(REFRESH_TICKS));
        }
    }
    fn plan_tick(&mut self, after: SignedDuration) {
        let at = self.now().checked_add(after).unwrap_or(Timestamp::MAX);
        self.tick_at = Some(at);
        self.agenda.at(at, Event::Tick);
    }
    fn plan_refresh(&mut self, after: SignedDuration) {
        let at = self.now().checked_add(after).unwrap_or(Timestamp::MAX);
        self.refresh_at = Some(at);
        self.agenda.at(at, Event::Refresh);
    }

    /// Whether Whittle is switched on.
    pub fn is_on(&self) -> bool {
        self.ticking
    }

    /// Tells a line of the timeline at this moment.
    pub fn tell(&mut self, kind: LineKind, text: impl Into<String>) {
        let cost = self.cost();
        self.story.tell(self.agenda.now(), kind, text, cost);
    }

    /// What all machines that Whittle started and that still run cost per hour.
    pub fn cost(&self) -> Price {
        self.region.cost()
    }

    /// Something in the cluster changed: its controllers will look soon.
    pub fn touch_cluster(&mut self) {
        self.plan_cluster(self.agenda.now().checked_add(REACTION).unwrap_or(Timestamp::MAX));
    }
    fn plan_cluster(&mut self, at: Timestamp) {
        if self.cluster_at.is_none_or(|planned| at < planned) {
            self.cluster_at = Some(at);
            self.agenda.at(at, Event::Cluster);
        }
    }
    /// Something in EC2 changed: its next step is looked for.
    pub fn touch_region(&mut self) {
        let Some(at) = self.region.next_at() else { return };
        if self.region_at.is_none_or(|planned| at < planned) {
            self.region_at = Some(at);
            self.agenda.at(at, Event::Region);
        }
    }

    /// Lets the next event happen.
    pub(crate) fn step(&mut self, limit: Timestamp) -> Option<Due> {
        let event = self.agenda.pop(limit)?;
        self.lose_table();
        Some(match event {
            Event::Wake { task, .. } if self.cut_off.remove(&task) => Due::Kill(task, "ended with its table"),
            Event::Wake { task, waker } => Due::Wake(task, waker),
            Event::Expire { task } if self.running.contains_key(&task) => Due::Kill(task, "timed out"),
            Event::Expire { .. } => Due::Nothing,
            Event::Deliver => self.deliver(),
            Event::Tick => self.tick(),
            Event::Refresh => self.refresh(),
            Event::Cluster => self.cluster_step(),
            Event::Region => self.region_step(),
        })
    }

    fn tick(&mut self) -> Due {
        if self.tick_at != Some(self.now()) {
            return Due::Nothing;
        }
        let cluster = self.name();
        self.plan_tick(self.tick);
        self.befall();
        for bell in [
            Doorbell::Sweep { cluster: cluster.clone() },
            Doorbell::Register { cluster: cluster.clone() },
            Doorbell::Schedule { cluster: cluster.clone() },
            Doorbell::Consolidate { cluster },
        ] {
            self.ring_on_schedule(bell);
        }
        Due::Nothing
    }

    fn refresh(&mut self) -> Due {
        if self.refresh_at != Some(self.now()) {
            return Due::Nothing;
        }
        self.plan_refresh(self.tick.saturating_mul(REFRESH_TICKS));
        let cluster = self.name();
        self.ring_on_schedule(Doorbell::Refresh { cluster });
        Due::Nothing
    }

    fn cluster_step(&mut self) -> Due {
        let now = self.now();
        if self.cluster_at.is_some_and(|at| at > now) {
            return Due::Nothing;
        }
        self.cluster_at = None;
        self.cluster.scheduler_lag = SignedDuration::from_millis(i64::from(self.faults.scheduler_lag_ms));
        let effects = self.cluster.step(now, &mut self.dice, &self.region);
        for effect in effects {
            match effect {
                ClusterEffect::Told(text) => self.tell(LineKind::Cluster, text),
                ClusterEffect::FailedScheduling(review) => self.send(Function::Relay, Input::Review(review)),
                ClusterEffect::NodeChanged => {
                    let cluster = self.name();
                    self.ring(Doorbell::Register { cluster }, SignedDuration::ZERO);
                }
                ClusterEffect::ClassChanged => {
                    let cluster = self.name();
                    self.ring(Doorbell::Refresh { cluster }, SignedDuration::ZERO);
                }
                ClusterEffect::Violation(text) => self.violations.push(text),
            }
        }
        self.watch_foreign_nodes();
        self.watch_nodes();
        self.remember_cluster();
        if let Some(at) = self.cluster.next_at(now) {
            self.plan_cluster(at);
        }
        Due::Nothing
    }

    fn region_step(&mut self) -> Due {
        let now = self.now();
        self.region_at = None;
        self.remember_machines();
        let effects = self.region.step(now, &mut self.dice);
        self.settle_region(effects);
        self.remember_machines();
        self.touch_region();
        Due::Nothing
    }

    fn settle_region(&mut self, effects: Vec<RegionEffect>) {
        let now = self.now();
        for effect in effects {
            match effect {
                RegionEffect::Told(text) => self.tell(LineKind::Cloud, text),
                RegionEffect::Notice(json) => self.notice(json),
                RegionEffect::Reclaimed(id) => self.watch_reclaimed(&id),
                RegionEffect::Join(machine) => {
                    self.cluster.join(&machine, now);
                    if self.strikes(self.faults.foreign_finalizers) {
                        self.cluster.hold(&machine.node_name);
                    }
                    self.touch_cluster();
                }
                RegionEffect::Lost(id) => {
                    self.cluster.machine_lost(&id, now);
                    self.touch_cluster();
                }
            }
        }
    }

    /// EC2 announces that it takes a spot machine back, if there is such a machine. The notice, to be delivered.
    pub fn take_back(&mut self, id: &InstanceId) -> Option<String> {
        let now = self.now();
        let notice = self.region.interrupt(id, now)?;
        self.watch_noticed(id);
        self.touch_region();
        Some(notice)
    }

    /// An event of EventBridge arrives in the interruption queue.
    pub fn notice(&mut self, json: String) {
        self.send(Function::Interrupt, Input::Notice(json));
    }

    /// Rings a doorbell, unless chance loses it.
    pub fn ring(&mut self, bell: Doorbell, delay: SignedDuration) {
        if self.tick > TICK && !delay.is_zero() && matches!(bell, Doorbell::Consolidate { .. }) {
            return;
        }
        if !self.strikes(self.faults.lost_messages) {
            self.post(bell, delay);
        }
    }

    /// Puts a doorbell on its queue without fail.
    pub(crate) fn post(&mut self, bell: Doorbell, delay: SignedDuration) {
        let now = self.now();
        let Some(chain) = self.chain_on(Function::of(&bell)) else {
            self.counts.faults += 1;
            return;
        };
        // A FIFO queue takes no message twice.
        let copies = if bell.queue_delay().is_none() { self.copies() } else { 1 };
        for _ in 0..copies {
            let late = self.lateness();
            if let Some(at) = self.queues.ring(bell.clone(), delay, now, self.sent_at()) {
                self.queues.chain_last(&chain);
                self.queues.delay_last(late);
                self.plan_delivery(at.checked_add(late).unwrap_or(at));
            }
        }
    }

    /// A schedule calls a function, which rings its own doorbell and does nothing else. Where every doorbell is lost this one
    /// is not, because it is what the others are made up for by; a queue that refuses it makes the tick fail.
    fn ring_on_schedule(&mut self, bell: Doorbell) {
        if self.strikes(self.faults.throttles) || self.strikes(self.faults.lost_ticks) {
            self.tell(LineKind::Fault, format!("a tick of {} could not ring", Function::of(&bell)));
        } else {
            self.post(bell, SignedDuration::ZERO);
        }
    }

    /// How often a message comes that was sent once.
    fn copies(&mut self) -> usize {
        if self.strikes(self.faults.repeated_messages) { 2 } else { 1 }
    }

    /// By how much a message comes late: behind others that were sent after it.
    fn lateness(&mut self) -> SignedDuration {
        if self.strikes(self.faults.batched_messages) {
            // Until the next even second: several come at once.
            let into = self.now().as_millisecond().rem_euclid(TOGETHER_MS);
            return SignedDuration::from_millis(TOGETHER_MS - into);
        }
        if !self.strikes(self.faults.late_messages) {
            return SignedDuration::ZERO;
        }
        SignedDuration::from_millis(i64::try_from(self.dice.below(Stream::Faults, 30_000)).unwrap_or(0))
    }

    fn send(&mut self, function: Function, input: Input) {
        for _ in 0..self.copies() {
            let late = self.lateness();
            let at = self.now().checked_add(late).unwrap_or(Timestamp::MAX);
            self.queues.send(function, input.clone(), at);
            self.plan_delivery(at);
        }
    }

    /// Plans a delivery for `at`, unless one is planned that will see it: one event for each message would stay for ever,
    /// as each delivery plans the next.
    pub(crate) fn plan_delivery(&mut self, at: Timestamp) {
        if self.delivery_at.is_none_or(|planned| at < planned) {
            self.delivery_at = Some(at);
            self.agenda.at(at, Event::Deliver);
        }
    }

    fn deliver(&mut self) -> Due {
        let now = self.now();
        self.delivery_at = self.delivery_at.filter(|planned| *planned > now);
        let mut starts = Vec::new();
        self.batches += 1;
        let batched = self.strikes(self.faults.batched_messages);
        for number in self.queues.due(now) {
            self.task_sequence += 1;
            let task = TaskId(self.task_sequence);
            let Some(message) = self.queues.receive(number, task, now) else {
                self.tell(LineKind::Fault, "a message was parked after its last try");
                continue;
            };
            if self.is_throttled(message.function) {
                self.queues.give_back(task, "throttled");
                continue;
            }
            if self.strikes(self.faults.doubled_runs) {
                // A second worker that knows nothing of the first; the message follows the first one's fate.
                self.task_sequence += 1;
                let twin = TaskId(self.task_sequence);
                starts.push(self.begin(twin, message.clone(), false));
            }
            starts.push(self.begin(task, message, batched));
        }
        if let Some(at) = self.queues.next_visible(now) {
            self.plan_delivery(at);
        }
        Due::Start(starts)
    }

    /// Parked messages are sent again, as an operator does once their cause is mended. Returns how many.
    pub fn redrive(&mut self) -> usize {
        let now = self.now();
        let count = self.queues.redrive(now);
        self.plan_delivery(now);
        count
    }

    fn begin(&mut self, task: TaskId, message: Message, batched: bool) -> Start {
        let Message { function, input, mut chain, group, .. } = message;
        let ran = chain.entry(function).or_default();
        *ran += 1;
        self.counts.longest_chain = self.counts.longest_chain.max(u64::from(*ran));
        // Messages of a group come one at a time.
        let batch = (batched && group.is_none()).then_some(self.batches);
        self.counts.invocations += 1;
        let timeout = self.time_of(function);
        let end = self.now().checked_add(timeout).unwrap_or(Timestamp::MAX);
        self.agenda.at(end, Event::Expire { task });
        self.running.insert(task, Running { function, chain, batch });
        let skew = self.skew();
        Start { task, function, input, deadline: end.checked_sub(RESERVE.min(timeout / 10)).unwrap_or(end), skew }
    }

    pub(crate) fn finished(&mut self, task: TaskId, outcome: Result<(), String>) {
        let Some(running) = self.running.remove(&task) else { return };
        match outcome {
            Ok(()) => self.queues.done(task),
            Err(error) => {
                self.counts.failures += 1;
                self.queues.give_back(task, &error);
                self.tell(LineKind::Fault, format!("{} failed: {error}", running.function));
            }
        }
        self.deliver_soon();
    }

    /// A run has died. The runs that die with it, because their messages came in the same invocation.
    pub(crate) fn died(&mut self, task: TaskId, why: &str) -> Vec<TaskId> {
        let Some(running) = self.running.remove(&task) else { return Vec::new() };
        self.queues.give_back(task, why);
        self.died_at = Some(self.now());
        self.counts.faults += 1;
        self.tell(LineKind::Fault, format!("{} {why}", running.function));
        self.deliver_soon();
        let same = |other: &Running| other.function == running.function && other.batch.is_some() && other.batch == running.batch;
        self.running.iter().filter(|(_, other)| same(other)).map(|(task, _)| *task).collect()
    }

    fn deliver_soon(&mut self) {
        let now = self.now();
        if !self.queues.due(now).is_empty() {
            self.plan_delivery(now);
        }
        if let Some(at) = self.queues.next_visible(now) {
            self.plan_delivery(at);
        }
    }

    /// A task reached an await point that lasts until the returned moment. May doom the task.
    pub(crate) fn gate(&mut self, task: TaskId, low_ms: u64, high_ms: u64, waker: Waker) -> Timestamp {
        self.counts.gates += 1;
        if let (Some(gates), Some(running)) = (&mut self.gates, self.running.get(&task)) {
            gates.push(running.function);
        }
        if self.faults.crash_at_gate == Some(self.counts.gates) || self.dice.happens(self.faults.crashes) {
            self.doomed.insert(task);
        }
        let millis = self.dice.between(Stream::Latency, low_ms, high_ms);
        let until = self.now().checked_add(SignedDuration::from_millis(i64::try_from(millis).unwrap_or(0))).unwrap_or(Timestamp::MAX);
        self.agenda.at(until, Event::Wake { task, waker });
        until
    }

    /// How often each function ran in the chain that a doorbell goes on with; `None` where the chain is cut off.
    fn chain_on(&self, next: Function) -> Option<Chain> {
        let chain = self.ringing.and_then(|task| self.running.get(&task)).map(|running| running.chain.clone()).unwrap_or_default();
        let cut = self.faults.loop_stop > 0 && chain.get(&next).is_some_and(|ran| *ran >= self.faults.loop_stop);
        (!cut).then_some(chain)
    }

    /// The time by the clock of the run that rings.
    fn sent_at(&self) -> Timestamp {
        self.now().checked_add(self.sender_skew).unwrap_or(Timestamp::MAX)
    }

    /// The function that a task runs.
    pub(crate) fn function_of(&self, task: TaskId) -> Option<Function> {
        self.running.get(&task).map(|running| running.function)
    }

    /// Runs of a function that are at work.
    pub(crate) fn runs_of(&self, function: Function) -> usize {
        self.running.values().filter(|running| running.function == function).count()
    }

    /// Runs that share the account's concurrency.
    fn runs_without_reserve(&self) -> usize {
        self.running.values().filter(|running| !running.function.is_reserved()).count()
    }

    pub(crate) fn take_crash(&mut self, task: TaskId) -> bool {
        self.doomed.remove(&task)
    }

    /// A name that no other call gets.
    pub(crate) fn unique(&mut self) -> String {
        self.unique += 1;
        self.dice.suffix(5)
    }

    /// Keeps decisions and tells them, unless the last word about their subject was the same. What is said of several
    /// subjects at once is told once.
    pub(crate) fn decided(&mut self, cluster: &ClusterName, decisions: &[DecisionRecord]) {
        let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
        for decision in decisions {
            if self.last_words.insert(decision.subject.clone(), decision.message.clone()).as_ref() == Some(&decision.message) {
                continue;
            }
            match told.iter_mut().find(|(message, _)| *message == decision.message) {
                Some((_, subjects)) => subjects.push(&decision.subject),
                None => told.push((&decision.message, vec![&decision.subject])),
            }
        }
        for (message, subjects) in told {
            let who = match subjects[..] {
                [only] => only.to_owned(),
                [first, ref rest @ ..] => format!("{first} and {} more", rest.len()),
                [] => continue,
            };
            self.tell(LineKind::Decision, format!("{who}: {message}"));
        }
        self.watch_bill(cluster, decisions);
        self.store.append(cluster, decisions);
    }

    pub(crate) fn create_claim(&mut self, lease: &Lease, claim: &Claim) -> Result<Revision, StoreError> {
        self.store.pass(self.agenda.now());
        let answer = self.store.create(lease, claim);
        if answer.is_ok() {
            if self.store.is_stale(lease) {
                self.violations.push(format!("claim {} was created under a lease that had passed on", claim.key));
            }
            self.watch_created(claim);
            self.remember_claims();
        }
        answer
    }
    pub(crate) fn update_claim(&mut self, claim: &Claim, expected: Revision) -> Result<Revision, StoreError> {
        self.store.pass(self.agenda.now());
        let old = self.store.claim(&claim.key).cloned();
        let there = old.as_ref().map_or(expected, |old| old.revision);
        let answer = self.store.update(claim, if self.is(Mutant::RevisionIgnored) { there } else { expected });
        if let (Ok(_), Some(old)) = (&answer, old) {
            self.watch_changed(&old.value, claim, there == expected);
            self.remember_claims();
        }
        self.watch_limits();
        answer
    }

    pub(crate) fn create_fleet(&mut self, request: &FleetRequest) -> Result<FleetAnswer, CloudError> {
        let now = self.now();
        let known: usize = self.region.machines.len();
        let partial = self.strikes(self.faults.partial_fleets);
        let empty = self.region.repeats(&request.client_token, now) && self.strikes(self.faults.empty_repeats);
        let mut answer = self.region.create_fleet(request, partial, now, &mut self.dice)?;
        if empty {
            answer = FleetAnswer { fleet_id: answer.fleet_id, ..FleetAnswer::default() };
        }
        self.watch_fleet(request);
        if self.region.machines.len() > known {
            self.watch_bought(request);
            let came: Vec<InstanceId> = answer.instances.iter().map(|started| started.id.clone()).collect();
            self.watch_wanted(request, &came);
            for started in &answer.instances {
                self.maybe_protect(&started.id);
                self.maybe_unshown(&started.id);
                self.maybe_rename(&started.id);
                let price = self.region.machines.get(&started.id).map_or(Price::ZERO, |machine| machine.price);
                let text = format!(
                    "EC2 starts {}: {} {} in {} at {price}",
                    started.id, started.capacity_type, started.instance_type, started.zone
                );
                self.tell(LineKind::Cloud, text);
            }
        }
        for error in &answer.errors {
            self.tell(LineKind::Cloud, format!("EC2 has no {} in {}: {}", error.instance_type, error.zone, error.code));
        }
        self.touch_region();
        Ok(answer)
    }

    /// Ends a machine as EC2 does when asked.
    pub fn terminate(&mut self, id: &InstanceId) {
        let now = self.now();
        let (_, effects) = self.region.terminate(id, now, &mut self.dice);
        self.settle_region(effects);
        self.touch_region();
    }

    /// Evicts a pod through the eviction API, and checks that no budget is left short by it.
    pub(crate) fn evict(&mut self, key: &str, uid: &str, now: Timestamp) -> Eviction {
        let before = self.cluster.overdrawn();
        let faults = self.eviction_faults(key);
        let verdict = self.cluster.evict(key, uid, now);
        let requests = self.evictions.entry(now.as_second()).or_default();
        *(if verdict == Eviction::Granted { &mut requests.granted } else { &mut requests.refused }) += 1;
        if verdict == Eviction::Granted {
            faults.into_iter().for_each(|fault| self.broke(fault));
            for budget in self.cluster.overdrawn().into_iter().filter(|budget| !before.contains(budget)) {
                self.violations.push(format!("eviction of pod {key} left the disruption budget {budget} short"));
            }
        }
        verdict
    }

    /// Deletes a pod without asking budgets.
    pub(crate) fn force(&mut self, key: &str, grace_seconds: i64, now: Timestamp) {
        self.watch_forced(key);
        if let Some(uid) = self.cluster.objects.pods.get(key).map(|pod| pod.metadata.uid.clone()) {
            self.cluster.forced.insert(uid);
        }
        self.cluster.delete_pod(key, Some(grace_seconds), now);
    }

    /// Publishes an Event of Whittle.
    pub(crate) fn publish(&mut self, event: &ClusterEvent) {
        let now = self.now();
        // What is said to pods, and why nodes stay, stands among the decisions too.
        let decided = event.kind == "Pod" || matches!(event.reason.as_str(), "DisruptionBlocked" | "Unconsolidatable");
        if self.cluster.publish(event.clone(), now) && !decided {
            let object = if event.namespace.is_empty() { event.name.clone() } else { format!("{}/{}", event.namespace, event.name) };
            self.tell(LineKind::Event, format!("{} {object}: {}: {}", event.kind.to_lowercase(), event.reason, event.message));
        }
    }

    /// Whether no function runs and no message is due before the next seconds. Later looks, which functions order for
    /// themselves, do not count.
    pub fn is_quiet(&self) -> bool {
        let soon = self.now().checked_add(SOON).unwrap_or(Timestamp::MAX);
        self.running.is_empty() && !self.queues.waiting().any(|message| message.visible_at <= soon)
    }

    /// Whether an event of EC2 or the cluster still lies ahead.
    pub fn has_pending_work(&self) -> bool {
        self.agenda.has(|event| matches!(event, Event::Region | Event::Cluster))
    }
}

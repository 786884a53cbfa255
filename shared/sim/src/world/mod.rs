//! The world: everything except the functions, and the order of events.

mod agenda;

mod delivery;
mod requests;
mod runs;

pub mod queues;
pub mod store;

mod background_faults;
mod faults;
mod hidden_objects;
mod kept_look;
mod scripted_faults;

use crate::allowance::Allowance;
use crate::check::Foreign;
use crate::cluster::{Cluster, ClusterEffect};
use crate::dice::Dice;
use crate::meter::Meter;
use crate::monitor::Monitor;
use crate::mutants::Mutant;
use crate::region::{Region, RegionEffect};
use crate::story::{LineKind, Story};
use crate::{Function, Input, TaskId};
use agenda::Agenda;
use background_faults::Lag;
use faults::History;
pub use faults::{Faults, TableLoss};
use jiff::{SignedDuration, Timestamp};
use queues::MessageQueues;
use runs::Running;
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use store::Store;
use whittle_claims::{Doorbell, TickFacts, shard_of};
use whittle_units::{ClusterName, InstanceId, Price};

/// The interval of scheduled doorbells.
const TICK: SignedDuration = SignedDuration::from_secs(60);
/// Node classes are refreshed once in this many ticks: every five minutes.
const REFRESH_TICKS: i32 = 5;
/// The most of an invocation's time that is reserved for handing work over.
pub(crate) const RESERVE: SignedDuration = SignedDuration::from_secs(2);
/// Controllers, scheduler and kubelets react this long after a change.
const REACTION: SignedDuration = SignedDuration::from_millis(200);

/// Messages due within this time count as pending work.
const SOON: SignedDuration = SignedDuration::from_secs(2);

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

/// What the executor has to do for an event.
pub(crate) enum Due {
    Nothing,
    Start(Vec<Start>),
    Wake(TaskId, Waker),
    Kill(TaskId, &'static str),
}

/// A starting run of a function.
pub(crate) struct Start {
    pub(crate) task: TaskId,
    pub(crate) function: Function,
    pub(crate) input: Input,
    pub(crate) deadline: Timestamp,
    pub(crate) skew: SignedDuration,
}

/// Counts of a run, for the summary and the fault commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub invocations: u64,
    pub gates: u64,
    pub faults: u64,
    pub failures: u64,
    /// The most doorbells for one subject within a minute.
    pub busiest: u64,
    /// The most runs of one function in a chain of calls.
    pub longest_chain: u64,
}

/// Evictions of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub granted: u32,
    pub refused: u32,
}

/// When the next event of each kind is due: others of the kind in the agenda are stale.
#[derive(Debug, Default)]
struct Timers {
    tick: Option<Timestamp>,
    refresh: Option<Timestamp>,
    cluster: Option<Timestamp>,
    region: Option<Timestamp>,
    delivery: Option<Timestamp>,
}

pub struct World {
    agenda: Agenda<Event>,
    /// The random number generators.
    pub dice: Dice,
    pub store: Store,
    pub queues: MessageQueues,
    pub cluster: Cluster,
    /// EC2 and related services.
    pub region: Region,
    pub faults: Faults,
    /// What happened.
    pub story: Story,
    /// Counters of the run.
    pub counts: Counts,
    /// Violated invariants, as text.
    pub violations: Vec<String>,
    /// The function at each await point, recorded on request for the fault commands.
    pub gates: Option<Vec<Function>>,
    /// Requests to the eviction API, by second.
    pub evictions: BTreeMap<i64, Requests>,
    /// Counts what would be billed, from when it is set.
    pub meter: Option<Box<Meter>>,
    /// When an invocation last died.
    pub died_at: Option<Timestamp>,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) monitor: Monitor,
    pub(crate) allowance: Allowance,
    pub(crate) history: History,
    pub(crate) lag: Lag,
    /// The run that sends, for the chain of its doorbells.
    pub(crate) sender: Option<TaskId>,
    /// The clock skew of that run.
    pub(crate) sender_skew: SignedDuration,
    running: BTreeMap<TaskId, Running>,
    doomed: BTreeSet<TaskId>,
    /// Runs that use a table that was replaced.
    cut_off: BTreeSet<TaskId>,
    begun: Timestamp,
    task_sequence: u64,
    unique: u64,
    /// Counts the batches of messages.
    batches: u64,
    ticking: bool,
    tick: SignedDuration,
    /// Whether the functions are in shadow mode, as ticks know it.
    pub is_shadow: bool,
    timers: Timers,
    /// The last message about each subject.
    last_messages: BTreeMap<String, String>,
    /// Nodes that Whittle does not manage, as they were first seen.
    pub(crate) foreign: BTreeMap<String, Foreign>,
}

impl World {
    /// A fresh world.
    pub fn new(options: &WorldOptions) -> Self {
        let mut world = Self {
            agenda: Agenda::new(options.start),
            dice: Dice::new(options.seed),
            store: Store::default(),
            queues: MessageQueues::default(),
            cluster: Cluster::new(options.cluster.clone(), &options.kubernetes_version, options.start),
            region: Region::new(&options.region, &options.cluster),
            faults: Faults::default(),
            story: Story::default(),
            counts: Counts::default(),
            violations: Vec::new(),
            gates: None,
            evictions: BTreeMap::new(),
            meter: None,
            died_at: None,
            mutant: None,
            monitor: Monitor::default(),
            allowance: Allowance::default(),
            history: History::default(),
            lag: Lag::default(),
            sender: None,
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
            is_shadow: false,
            timers: Timers::default(),
            last_messages: BTreeMap::new(),
            foreign: BTreeMap::new(),
        };
        world.region.network.publish_images(&options.kubernetes_version);
        world.touch_cluster();
        world
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.agenda.now()
    }

    pub fn name(&self) -> ClusterName {
        self.cluster.name.clone()
    }

    pub(crate) fn idle_until(&mut self, time: Timestamp) {
        self.agenda.idle_until(time);
    }

    /// Switches Whittle on: its schedules begin to tick, the first refresh is immediate.
    pub fn switch_on(&mut self) {
        if !self.ticking {
            self.ticking = true;
            self.plan_refresh(SignedDuration::ZERO);
            self.plan_tick(self.tick);
        }
    }

    /// Changes the interval of scheduled doorbells. Refreshes still happen every five ticks. If ticks are
    /// slower than usual, the doorbells that `consolidate` rings for itself are dropped: the tick compensates.
    pub fn set_tick(&mut self, span: SignedDuration) {
        self.tick = span;
        if self.ticking {
            self.plan_tick(span);
            self.plan_refresh(span.saturating_mul(REFRESH_TICKS));
        }
    }

    fn plan_tick(&mut self, after: SignedDuration) {
        let at = self.now().checked_add(after).unwrap_or(Timestamp::MAX);
        self.timers.tick = Some(at);
        self.agenda.at(at, Event::Tick);
    }

    fn plan_refresh(&mut self, after: SignedDuration) {
        let at = self.now().checked_add(after).unwrap_or(Timestamp::MAX);
        self.timers.refresh = Some(at);
        self.agenda.at(at, Event::Refresh);
    }

    /// Whether Whittle is switched on.
    pub fn is_on(&self) -> bool {
        self.ticking
    }

    /// Adds a line to the timeline, at the current time.
    pub fn log(&mut self, kind: LineKind, text: impl Into<String>) {
        let cost = self.cost();
        self.story.log(self.agenda.now(), kind, text, cost);
    }

    /// The cost per hour of all running machines that Whittle started.
    pub fn cost(&self) -> Price {
        self.region.cost()
    }

    /// The cluster changed: its controllers react soon.
    pub fn touch_cluster(&mut self) {
        self.plan_cluster(self.agenda.now().checked_add(REACTION).unwrap_or(Timestamp::MAX));
    }

    fn plan_cluster(&mut self, at: Timestamp) {
        if self.timers.cluster.is_none_or(|planned| at < planned) {
            self.timers.cluster = Some(at);
            self.agenda.at(at, Event::Cluster);
        }
    }

    /// EC2's state changed: its next step is scheduled.
    pub fn touch_region(&mut self) {
        let Some(at) = self.region.next_at() else { return };
        if self.timers.region.is_none_or(|planned| at < planned) {
            self.timers.region = Some(at);
            self.agenda.at(at, Event::Region);
        }
    }

    /// Bytes of the table without the decision log.
    pub fn table_bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Counts something, if anything is counted.
    pub(crate) fn metered(&mut self, count: impl FnOnce(&mut Meter)) {
        if let Some(meter) = &mut self.meter {
            count(meter);
        }
    }

    /// Processes the next event.
    pub(crate) fn step(&mut self, limit: Timestamp) -> Option<Due> {
        let event = self.agenda.pop(limit)?;
        self.lose_table();
        Some(match event {
            Event::Wake { task, .. } if self.cut_off.remove(&task) => Due::Kill(task, "killed with its table"),
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
        if self.timers.tick != Some(self.now()) {
            return Due::Nothing;
        }
        let cluster = self.name();
        self.plan_tick(self.tick);
        self.inject_periodic_faults();
        let mut starts = self.invoke_by_schedule(Doorbell::Sweep { cluster: cluster.clone(), is_tick: true });
        let facts = TickFacts { has_claims: self.finds_claims(&cluster), is_shadow: self.is_shadow };
        for doorbell in facts.doorbells(&cluster) {
            self.ring_by_schedule(doorbell);
        }
        starts.extend(self.invoke_by_schedule(Doorbell::Schedule { cluster }));
        Due::Start(starts)
    }

    /// Whether a tick of `sweep` finds a claim, as the table is asked: one partition first, and the others if that has none.
    fn finds_claims(&mut self, cluster: &ClusterName) -> bool {
        let now = self.now();
        self.store.pass(now);
        let found = self.store.claim_names(cluster).next().is_some();
        let is_found_at_once = self.store.claim_names(cluster).any(|name| shard_of(name.as_str()) == 0);
        self.metered(|meter| meter.asked_for_claims(Function::Sweep, is_found_at_once));
        found
    }

    fn refresh(&mut self) -> Due {
        if self.timers.refresh != Some(self.now()) {
            return Due::Nothing;
        }
        self.plan_refresh(self.tick.saturating_mul(REFRESH_TICKS));
        let cluster = self.name();
        Due::Start(self.invoke_by_schedule(Doorbell::Refresh { cluster }))
    }

    fn cluster_step(&mut self) -> Due {
        let now = self.now();
        if self.timers.cluster.is_some_and(|at| at > now) {
            return Due::Nothing;
        }
        self.timers.cluster = None;
        self.cluster.scheduler_lag = SignedDuration::from_millis(i64::from(self.faults.scheduler_lag_ms));
        let effects = self.cluster.step(now, &mut self.dice, &self.region);
        for effect in effects {
            match effect {
                ClusterEffect::Log(text) => self.log(LineKind::Cluster, text),
                ClusterEffect::FailedScheduling(review) => self.send(Function::Relay, Input::Review(review)),
                ClusterEffect::NodeChanged => {
                    self.metered(Meter::relayed);
                    let cluster = self.name();
                    self.send_doorbell(Doorbell::register(cluster), SignedDuration::ZERO);
                }
                ClusterEffect::ClassChanged => {
                    self.metered(Meter::relayed);
                    let cluster = self.name();
                    self.send_doorbell(Doorbell::Refresh { cluster }, SignedDuration::ZERO);
                }
                ClusterEffect::Violation(text) => self.violations.push(text),
            }
        }
        self.observe_foreign_nodes();
        self.observe_nodes();
        self.remember_cluster();
        if let Some(at) = self.cluster.next_at(now) {
            self.plan_cluster(at);
        }
        Due::Nothing
    }

    fn region_step(&mut self) -> Due {
        let now = self.now();
        self.timers.region = None;
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
                RegionEffect::Log(text) => self.log(LineKind::Cloud, text),
                RegionEffect::Notice(json) => self.notice(json),
                RegionEffect::Reclaimed(id) => self.observe_reclaimed(&id),
                RegionEffect::Join(machine) => {
                    self.cluster.join(&machine, now);
                    if self.fault_occurs(self.faults.foreign_finalizers) {
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

    /// EC2 sends a spot interruption warning, if there is such a machine. Returns the notice to deliver.
    pub fn take_back(&mut self, id: &InstanceId) -> Option<String> {
        let now = self.now();
        let notice = self.region.interrupt(id, now)?;
        self.observe_noticed(id);
        self.touch_region();
        Some(notice)
    }

    pub(crate) fn unique(&mut self) -> String {
        self.unique += 1;
        self.dice.suffix(5)
    }

    /// Whether no function runs and no message is due within the next seconds. Later doorbells, which functions ring for
    /// themselves, do not count.
    pub fn is_quiet(&self) -> bool {
        let soon = self.now().checked_add(SOON).unwrap_or(Timestamp::MAX);
        self.running.is_empty() && !self.queues.waiting().any(|message| message.visible_at <= soon)
    }
}

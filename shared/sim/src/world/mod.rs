//! The world: everything that is not a function, and the order in which it happens.

mod agenda;

mod delivery;
mod requests;
mod runs;

pub mod queues;
pub mod store;

mod faults;
mod hidden;
mod mishaps;
mod trouble;

use crate::allowance::Allowance;
use crate::check::Foreign;
use crate::cluster::{Cluster, ClusterEffect};
use crate::dice::Dice;
use crate::mutants::Mutant;
use crate::region::{Region, RegionEffect};
use crate::story::{LineKind, Story};
use crate::watch::Watched;
use crate::{Function, Input, TaskId};
use agenda::Agenda;
use faults::Past;
pub use faults::{Faults, TableLoss};
use jiff::{SignedDuration, Timestamp};
use queues::MessageQueues;
use runs::Running;
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use store::Store;
use trouble::Lag;
use whittle_claims::Doorbell;
use whittle_units::{ClusterName, InstanceId, Price};

/// The scheduled doorbell, at most this far apart.
const TICK: SignedDuration = SignedDuration::from_secs(60);
/// Node classes are looked at once in so many ticks: every five minutes.
const REFRESH_TICKS: i32 = 5;
/// Kept back of an invocation's time for handing work over, at most.
pub(crate) const RESERVE: SignedDuration = SignedDuration::from_secs(2);
/// Controllers, scheduler and kubelets look at their objects this long after a change.
const REACTION: SignedDuration = SignedDuration::from_millis(200);

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

/// When the next event of each kind is due: others of the kind in the agenda are stale.
#[derive(Debug, Default)]
struct Timers {
    tick: Option<Timestamp>,
    refresh: Option<Timestamp>,
    cluster: Option<Timestamp>,
    region: Option<Timestamp>,
    delivery: Option<Timestamp>,
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
    timers: Timers,
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
            timers: Timers::default(),
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
        if self.timers.cluster.is_none_or(|planned| at < planned) {
            self.timers.cluster = Some(at);
            self.agenda.at(at, Event::Cluster);
        }
    }

    /// Something in EC2 changed: its next step is looked for.
    pub fn touch_region(&mut self) {
        let Some(at) = self.region.next_at() else { return };
        if self.timers.region.is_none_or(|planned| at < planned) {
            self.timers.region = Some(at);
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
        if self.timers.tick != Some(self.now()) {
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
        if self.timers.refresh != Some(self.now()) {
            return Due::Nothing;
        }
        self.plan_refresh(self.tick.saturating_mul(REFRESH_TICKS));
        let cluster = self.name();
        self.ring_on_schedule(Doorbell::Refresh { cluster });
        Due::Nothing
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

    /// A name that no other call gets.
    pub(crate) fn unique(&mut self) -> String {
        self.unique += 1;
        self.dice.suffix(5)
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

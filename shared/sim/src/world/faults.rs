//! Injected faults, and the history that stale answers need.

use super::World;
use super::hidden_objects::HiddenObjects;
use super::kept_look::KeptLook;
use super::store::Store;
use crate::Function;
use crate::cluster::Objects;
use crate::dice::Stream;
use crate::mutants::Mutant;
use crate::story::LineKind;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use whittle_claims::{Claim, ClaimKey, Stored};
use whittle_ec2::fleet::FleetAnswer;
use whittle_ec2::instance::Instance;
use whittle_ports::Scope;
use whittle_units::ClusterName;

/// How old a stale answer of the API server may be.
const STALE_OBJECTS_MS_MAX: u64 = 5_000;
/// How long EC2 may not show a machine after starting it.
const UNSEEN_MACHINE: SignedDuration = SignedDuration::from_secs(10);
/// The least time between two partial answers: what two reads within it agree on is true.
const PARTIAL_READ_EVERY: SignedDuration = SignedDuration::from_secs(120);
/// The age of the listings that the mutant reads.
const LAG: SignedDuration = SignedDuration::from_secs(15);
/// States of the cluster that are kept: more than occur within the age of the stalest answer.
const STATES_MAX: usize = 64;

/// The table is replaced once: by an empty one, or by an earlier copy. Running functions end with the old one, as they do
/// when a deployment names another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLoss {
    /// Time since the start of the world.
    pub after: SignedDuration,
    /// The time of the copy, since the start of the world; `None` for an empty table.
    pub as_of: Option<SignedDuration>,
}

/// Fault rates, per thousand; all zero for a world without faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The invocation that reaches this gate (counted over the whole run, from 1) dies there.
    pub crash_at_gate: Option<u64>,
    /// Invocations that die at a gate.
    pub crashes: u32,
    /// Calls that fail without an effect.
    pub throttles: u32,
    /// Calls that take effect and whose answer is lost.
    pub lost_replies: u32,
    /// Fleet calls that start machines and whose answer is lost.
    pub lost_fleets: u32,
    /// Calls whose answer takes up to ten seconds.
    pub slow_replies: u32,
    /// Writes to the table and the API server that fail with a conflict.
    pub conflicts: u32,
    /// Writes of claims just before which another writer changes the same claim.
    pub busy_writers: u32,
    /// Answers of the API server that are up to five seconds old, and answers of EC2 without the youngest machines.
    pub stale_reads: u32,
    /// Answers of the API server in which all pools, classes, NodeClaims or Nodes are missing; never twice in two minutes.
    pub partial_reads: u32,
    /// Answers of the API server from which on an object cannot be read, for up to five minutes.
    pub unreadable: u32,
    /// Answers of the API server from which on all pools, all NodeClaims or all classes are missing, or one of them is, or their
    /// kind is reported as not served, for up to five minutes.
    pub vanished: u32,
    /// Fleets that start one machine less than requested.
    pub partial_fleets: u32,
    /// Repeated fleet calls that answer with the fleet id only: neither machines nor errors.
    pub empty_repeats: u32,
    /// Requests for a fleet call just before which another cluster of the account uses up the call rate.
    pub neighbours: u32,
    /// Messages that are lost.
    pub lost_messages: u32,
    /// Messages that are delivered twice.
    pub repeated_messages: u32,
    /// Messages that are up to 30 s late, and so out of order.
    pub late_messages: u32,
    /// Messages that two invocations process at once, whatever the kind of queue.
    pub doubled_runs: u32,
    /// Messages that are batched: several in one invocation, which is lost as a whole if it dies.
    pub batched_messages: u32,
    /// Doorbells are dropped once their function was called this often in one chain of calls; never at zero.
    pub loop_stop: u32,
    /// Calls by schedules that fail without an effect.
    pub lost_ticks: u32,
    /// Answers of EC2 without one of the older machines for some seconds, or with states of up to a minute ago.
    pub ec2_lag: u32,
    /// Whether EC2 enforces the call rates of an account.
    pub ec2_rates: bool,
    /// Machines with termination protection, until minutes after the first attempt.
    pub protected_machines: u32,
    /// Ticks do the work of their function themselves, as where a deployment serves one cluster. No fault: otherwise they ring its queue.
    pub ticks_work: bool,
    /// Quiet looks keep Nodes for two hours, as in a cluster of a thousand.
    pub old_nodes: bool,
    /// Ticks at which a kubelet stops reporting for up to 70 seconds.
    pub silent_kubelets: u32,
    /// Ticks at which a claim becomes unreadable for up to 200 seconds.
    pub unreadable_claims: u32,
    /// New claims that reach the table up to two minutes after their writer gave up.
    pub late_claims: u32,
    /// Nodes to which another controller adds a finalizer, removed some time after their deletion.
    pub foreign_finalizers: u32,
    /// Writes of Nodes and NodeClaims that a webhook denies.
    pub webhook_refusals: u32,
    /// Writes of NodeClaims alone that it denies.
    pub claim_refusals: u32,
    /// Evictions just before which the pod's namespace is deleted, to be recreated within two minutes: meanwhile the API server
    /// creates nothing in it, not even evictions and Events.
    pub deleted_namespaces: u32,
    /// Machines that get the address, and so the Node name, of a terminated machine whose Node is deleted.
    pub reused_names: u32,
    /// Calls over a connection that died while its environment was frozen: they have no effect, and the caller cannot know.
    pub dead_connections: u32,
    /// Writes of records that the table refuses as too large; an item of more than 400 KB is always refused.
    pub large_items: u32,
    /// Invocations with only some seconds left, as if work or a cold start had taken the rest.
    pub short_runs: u32,
    /// The account's concurrency limit, without functions that have reserved concurrency; no limit at zero.
    /// A message whose invocation is throttled has been received all the same.
    pub concurrency: u32,
    /// For how many milliseconds after a node was tainted the scheduler still binds pods to it.
    pub scheduler_lag_ms: u32,
    /// The clock skew of an invocation is up to this many milliseconds, either way.
    pub clock_skew_ms: u32,
    /// The API server does not answer before this moment.
    pub api_server_down_until: Option<Timestamp>,
    /// The table answers nothing before this moment.
    pub table_throttled_until: Option<Timestamp>,
    /// CreateFleet is refused before this moment.
    pub fleets_throttled_until: Option<Timestamp>,
    /// The table is lost, or restored to an earlier time.
    pub table_loss: Option<TableLoss>,
}

impl Faults {
    /// Whether the only faults are one crash and concurrent writers: then requirements in seconds can
    /// be checked.
    pub(crate) fn are_calm(&self) -> bool {
        let Self { crash_at_gate, busy_writers, ticks_work, .. } = *self;
        *self == Self { crash_at_gate, busy_writers, ticks_work, ..Self::default() }
    }
}

/// Earlier states of the cluster, oldest first; kept only while stale reads happen.
#[derive(Debug, Default)]
pub(crate) struct History {
    states: VecDeque<(Timestamp, Objects)>,
    partial_at: Option<Timestamp>,
    /// When the last stale answer was given.
    pub(crate) stale_at: Option<Timestamp>,
    /// Unreadable objects, and until when.
    pub(super) hidden: HiddenObjects,
    /// The copy of the table to be restored.
    pub(super) table: Option<Store>,
    /// The copy that a scenario made.
    pub(super) copy: Option<Store>,
    /// Earlier listings of claims, for the mutant with lagging listings.
    claims: VecDeque<(Timestamp, Vec<Stored<Claim>>)>,
    /// What execution environments keep.
    pub(crate) looks: BTreeMap<(Option<Function>, Scope), KeptLook>,
}

impl World {
    /// Replaces the table when it is due.
    pub(crate) fn lose_table(&mut self) {
        let Some(loss) = self.faults.table_loss else { return };
        let age = self.now().duration_since(self.begun);
        if loss.as_of.is_some_and(|as_of| as_of <= age) && self.history.table.is_none() {
            self.history.table = Some(self.store.clone());
        }
        if age < loss.after {
            return;
        }
        self.faults.table_loss = None;
        let was = self.history.table.take();
        self.log(LineKind::Fault, if was.is_some() { "an earlier copy of the table is restored" } else { "the table is empty" });
        self.replace_table(was.unwrap_or_default());
    }

    pub fn replace_table(&mut self, mut table: Store) {
        table.ignore_fencing = self.store.ignore_fencing;
        table.pass(self.now());
        self.store = table;
        self.counts.faults += 1;
        self.observe_table_replaced();
        self.history.claims.clear();
        self.lag.forget_late();
        self.cut_off.extend(self.running.keys());
    }

    /// Draws whether a fault occurs, and counts it.
    pub(crate) fn fault_occurs(&mut self, per_mille: u32) -> bool {
        let fault_occurs = self.dice.happens(per_mille);
        self.counts.faults += u64::from(fault_occurs);
        fault_occurs
    }

    /// May write a claim between another writer's read and write of it.
    pub(crate) fn write_concurrently(&mut self, key: &ClaimKey) {
        if self.fault_occurs(self.faults.busy_writers) {
            self.store.touch(key);
        }
    }

    /// Draws the clock skew of a new invocation.
    pub(crate) fn skew(&mut self) -> SignedDuration {
        let most = u64::from(self.faults.clock_skew_ms);
        if most == 0 {
            return SignedDuration::ZERO;
        }
        let off = self.dice.between(Stream::Faults, 0, 2 * most);
        SignedDuration::from_millis(i64::try_from(off).unwrap_or(0) - i64::from(self.faults.clock_skew_ms))
    }

    /// Keeps the state of the cluster for stale answers.
    pub(crate) fn remember_cluster(&mut self) {
        if self.faults.stale_reads == 0 {
            self.history.states.clear();
            return;
        }
        if self.history.states.len() >= STATES_MAX {
            self.history.states.pop_front();
        }
        self.history.states.push_back((self.now(), self.cluster.objects.clone()));
    }

    /// Keeps the listing of claims for the mutant with lagging listings.
    pub(crate) fn remember_claims(&mut self) {
        if self.is(Mutant::ClaimListingStale) {
            let listing = self.store.claims(&self.cluster.name).cloned().collect();
            self.history.claims.push_back((self.now(), listing));
        }
    }

    /// All claims of a cluster, as the table has them.
    pub(crate) fn claims_seen(&self, cluster: &ClusterName) -> Vec<Stored<Claim>> {
        if self.is(Mutant::ClaimListingStale) {
            let then = self.now().checked_sub(LAG).unwrap_or(Timestamp::MIN);
            return self.history.claims.iter().rev().find(|(at, _)| *at <= then).map(|(_, listing)| listing.clone()).unwrap_or_default();
        }
        self.store.claims(cluster).cloned().collect()
    }

    /// Lets a reader see the cluster: as it is, or a little stale.
    pub(crate) fn with_objects<R>(&mut self, read: impl FnOnce(&Objects) -> R) -> R {
        if let Some(objects) = self.partial_objects() {
            return read(&objects);
        }
        let stale = self.faults.stale_reads;
        if self.history.states.is_empty() || !self.fault_occurs(stale) {
            return read(&self.cluster.objects);
        }
        self.history.stale_at = Some(self.now());
        let age = i64::try_from(self.dice.below(Stream::Faults, STALE_OBJECTS_MS_MAX)).unwrap_or(0);
        let then = self.now().checked_sub(SignedDuration::from_millis(age)).unwrap_or(Timestamp::MIN);
        let state = self.history.states.iter().rev().find(|(at, _)| *at <= then).map_or(&self.cluster.objects, |(_, objects)| objects);
        read(state)
    }

    fn partial_objects(&mut self) -> Option<Objects> {
        let (partial, now) = (self.faults.partial_reads, self.now());
        let too_soon = self.history.partial_at.is_some_and(|at| now.duration_since(at) < PARTIAL_READ_EVERY);
        if too_soon || !self.fault_occurs(partial) {
            return None;
        }
        self.history.partial_at = Some(now);
        let mut objects = self.cluster.objects.clone();
        match self.dice.below(Stream::Faults, 4) {
            0 => objects.node_pools.clear(),
            1 => objects.node_claims.clear(),
            2 => objects.node_classes.clear(),
            _ => objects.nodes.clear(),
        }
        Some(objects)
    }

    /// A fleet as a reader sees it: a new one may not be visible yet.
    pub fn fleet_seen(&mut self, id: &str) -> Option<FleetAnswer> {
        let stale = self.faults.stale_reads;
        let answer = self.region.fleet(id).cloned()?;
        (!self.fault_occurs(stale)).then_some(answer)
    }

    /// Machines as a reader sees them: new ones may not be visible yet.
    pub fn machines_seen(&mut self, wanted: impl Fn(&Instance) -> bool) -> Vec<Instance> {
        let stale = self.faults.stale_reads;
        let stale = self.fault_occurs(stale);
        let now = self.now();
        let shown = |instance: &&Instance| !stale || now.duration_since(instance.launched_at) > UNSEEN_MACHINE;
        let described = self.region.machines.values().filter(|machine| self.region.is_described(machine, now));
        let instances = described.map(|machine| &machine.instance);
        let shown = instances.filter(shown).filter(|instance| wanted(instance)).cloned().collect();
        self.apply_lag(shown)
    }
}

//! What goes wrong in a world, and the memory that stale answers need.

use super::World;
use super::hidden::Hidden;
use super::store::Store;
use crate::cluster::Objects;
use crate::dice::Stream;
use crate::mutants::Mutant;
use crate::story::LineKind;
use jiff::{SignedDuration, Timestamp};
use std::collections::VecDeque;
use whittle_claims::{Claim, ClaimKey, Stored};
use whittle_ec2::fleet::FleetAnswer;
use whittle_ec2::instance::Instance;
use whittle_units::ClusterName;

/// How old a stale answer of the API server may be.
const STALE_OBJECTS_MS_MAX: u64 = 5_000;
/// How long EC2 may not show a machine that it has started.
const UNSEEN_MACHINE: SignedDuration = SignedDuration::from_secs(10);
/// A partial answer is not given twice in this time: what is seen twice by then is true.
const PARTIAL_READ_EVERY: SignedDuration = SignedDuration::from_secs(120);
/// How old a listing is that the mutant believes.
const LAG: SignedDuration = SignedDuration::from_secs(15);
/// States of the cluster that are kept: more than happen in the time of the stalest answer.
const STATES_MAX: usize = 64;

/// The table is replaced once: by an empty one, or by itself as it was. Functions under way end with the old one, as they do
/// when a deployment names another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLoss {
    /// So long after the world began.
    pub after: SignedDuration,
    /// The time of the copy, counted likewise; `None` for an empty table.
    pub as_of: Option<SignedDuration>,
}

/// What goes wrong, per thousand; all zero for a calm world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The invocation that reaches this gate (counted over the whole run, from 1) dies there.
    pub crash_at_gate: Option<u64>,
    /// Invocations that die at a gate.
    pub crashes: u32,
    /// Calls that fail before they do anything.
    pub throttles: u32,
    /// Calls that happen and whose answer is lost.
    pub lost_replies: u32,
    /// Fleet calls that start their machines and whose answer is lost.
    pub lost_fleets: u32,
    /// Calls whose answer takes up to ten seconds.
    pub slow_replies: u32,
    /// Writes of the table and the API server that lose against another writer.
    pub conflicts: u32,
    /// Writes of claims before which somebody else writes the same claim.
    pub busy_writers: u32,
    /// Answers of the API server that are up to five seconds old, and answers of EC2 without the youngest machines.
    pub stale_reads: u32,
    /// Answers of the API server in which all pools, classes, NodeClaims or Nodes are missing; never twice in two minutes.
    pub partial_reads: u32,
    /// Answers of the API server from which on an object cannot be read, for up to five minutes.
    pub unreadable: u32,
    /// Answers of the API server from which on all pools, all NodeClaims or all classes are missing, or one of them is, or their
    /// kind is said not to be served, for up to five minutes.
    pub vanished: u32,
    /// Fleets that bring one machine less than was asked for.
    pub partial_fleets: u32,
    /// Repeats of a fleet call that answer with the fleet alone: neither its machines nor why there are none.
    pub empty_repeats: u32,
    /// Asks for a fleet call before which another cluster of the account makes all that may be made.
    pub neighbours: u32,
    /// Messages that vanish.
    pub lost_messages: u32,
    /// Messages that come twice.
    pub repeated_messages: u32,
    /// Messages that come up to 30 s late, behind others.
    pub late_messages: u32,
    /// Messages that two invocations work on at once, whatever the kind of queue.
    pub doubled_runs: u32,
    /// Messages that come together: several in one invocation, which is lost as a whole if it dies.
    pub batched_messages: u32,
    /// A doorbell comes no more whose function was called so often in one chain of calls; none is lost at zero.
    pub loop_stop: u32,
    /// Calls by schedules that fail before they do anything.
    pub lost_ticks: u32,
    /// Answers of EC2 that leave out an old machine for some seconds, or show states of up to a minute ago.
    pub ec2_lag: u32,
    /// EC2 grants calls at the rates of an account only.
    pub ec2_rates: bool,
    /// Machines that somebody protects from being ended, until minutes after it was tried.
    pub protected_machines: u32,
    /// Ticks at which a kubelet falls silent for up to 70 seconds.
    pub silent_kubelets: u32,
    /// Ticks at which a claim becomes unreadable for up to 200 seconds.
    pub odd_claims: u32,
    /// New claims that reach the table up to two minutes after their writer gave them up.
    pub late_claims: u32,
    /// Nodes to which somebody else adds a finalizer, and takes it off some time after their deletion.
    pub foreign_finalizers: u32,
    /// Writes of Nodes and NodeClaims that a webhook refuses.
    pub webhook_refusals: u32,
    /// Writes of NodeClaims alone that it refuses.
    pub claim_refusals: u32,
    /// Evictions before which somebody deletes the pod's namespace, and makes it again within two minutes: meanwhile the API server
    /// creates nothing in it, evictions and Events among it.
    pub deleted_namespaces: u32,
    /// Machines that get the address, and with it the name of their Node, of one that has ended and whose Node is gone.
    pub reused_names: u32,
    /// Calls over a connection that died while its environment stood still: nothing happens, and the caller cannot know.
    pub dead_connections: u32,
    /// Writes of records that the table refuses, as it does an item of more than 400 KB; such an item it refuses always.
    pub large_items: u32,
    /// Invocations that have no more than some seconds of their time, as if work or a slow start had taken the rest.
    pub short_runs: u32,
    /// So many invocations run at once in the account, those of functions with concurrency of their own aside; any number at zero.
    /// A message whose invocation is throttled has been received all the same.
    pub concurrency: u32,
    /// So many milliseconds after a node is closed the scheduler still binds pods to it.
    pub scheduler_lag_ms: u32,
    /// Each invocation's clock is off by up to this many milliseconds, either way.
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
    /// Nothing goes wrong but the death of one invocation, and writers that come between: promises that count in seconds can
    /// be held to.
    pub(crate) fn are_calm(&self) -> bool {
        *self == Self { crash_at_gate: self.crash_at_gate, busy_writers: self.busy_writers, ..Self::default() }
    }
}

/// Earlier states of the cluster, oldest first; kept only while stale reads happen.
#[derive(Debug, Default)]
pub(crate) struct Past {
    states: VecDeque<(Timestamp, Objects)>,
    partial_at: Option<Timestamp>,
    /// What cannot be read, and until when.
    pub(super) hidden: Hidden,
    /// The table that will be restored.
    pub(super) table: Option<Store>,
    /// The one that a scenario copied.
    pub(super) copy: Option<Store>,
    /// Earlier listings of the claims, for the mutant whose listings lag.
    claims: VecDeque<(Timestamp, Vec<Stored<Claim>>)>,
}

impl World {
    /// Replaces the table when its time has come.
    pub(crate) fn lose_table(&mut self) {
        let Some(loss) = self.faults.table_loss else { return };
        let age = self.now().duration_since(self.begun);
        if loss.as_of.is_some_and(|as_of| as_of <= age) && self.past.table.is_none() {
            self.past.table = Some(self.store.clone());
        }
        if age < loss.after {
            return;
        }
        self.faults.table_loss = None;
        let was = self.past.table.take();
        self.tell(LineKind::Fault, if was.is_some() { "the table is as it was a while ago" } else { "the table is empty" });
        self.replace_table(was.unwrap_or_default());
    }

    /// Puts another table in the place of the one that is there.
    pub fn replace_table(&mut self, mut table: Store) {
        table.ignore_fencing = self.store.ignore_fencing;
        table.pass(self.now());
        self.store = table;
        self.counts.faults += 1;
        self.watch_other_table();
        self.past.claims.clear();
        self.lag.forget_late();
        self.cut_off.extend(self.running.keys());
    }

    /// Counts a fault that happens to a call, if chance wills it.
    pub(crate) fn strikes(&mut self, per_mille: u32) -> bool {
        let strikes = self.dice.happens(per_mille);
        self.counts.faults += u64::from(strikes);
        strikes
    }

    /// Somebody else writes a claim between another's read and write of it, if chance wills it.
    pub(crate) fn write_between(&mut self, key: &ClaimKey) {
        if self.strikes(self.faults.busy_writers) {
            self.store.touch(key);
        }
    }

    /// By how much the clock of a new invocation is wrong.
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
            self.past.states.clear();
            return;
        }
        if self.past.states.len() >= STATES_MAX {
            self.past.states.pop_front();
        }
        self.past.states.push_back((self.now(), self.cluster.objects.clone()));
    }

    /// Keeps the listing of claims for the mutant whose listings lag.
    pub(crate) fn remember_claims(&mut self) {
        if self.is(Mutant::ClaimsReadLate) {
            let listing = self.store.claims(&self.cluster.name).cloned().collect();
            self.past.claims.push_back((self.now(), listing));
        }
    }

    /// All claims of a cluster, as the table has them.
    pub(crate) fn claims_seen(&self, cluster: &ClusterName) -> Vec<Stored<Claim>> {
        if self.is(Mutant::ClaimsReadLate) {
            let then = self.now().checked_sub(LAG).unwrap_or(Timestamp::MIN);
            return self.past.claims.iter().rev().find(|(at, _)| *at <= then).map(|(_, listing)| listing.clone()).unwrap_or_default();
        }
        self.store.claims(cluster).cloned().collect()
    }

    /// Lets a reader see the cluster: as it is, or as it was a little ago.
    pub(crate) fn with_objects<R>(&mut self, read: impl FnOnce(&Objects) -> R) -> R {
        if let Some(objects) = self.partial_objects() {
            return read(&objects);
        }
        let stale = self.faults.stale_reads;
        if self.past.states.is_empty() || !self.strikes(stale) {
            return read(&self.cluster.objects);
        }
        let age = i64::try_from(self.dice.below(Stream::Faults, STALE_OBJECTS_MS_MAX)).unwrap_or(0);
        let then = self.now().checked_sub(SignedDuration::from_millis(age)).unwrap_or(Timestamp::MIN);
        let state = self.past.states.iter().rev().find(|(at, _)| *at <= then).map_or(&self.cluster.objects, |(_, objects)| objects);
        read(state)
    }

    fn partial_objects(&mut self) -> Option<Objects> {
        let (partial, now) = (self.faults.partial_reads, self.now());
        let too_soon = self.past.partial_at.is_some_and(|at| now.duration_since(at) < PARTIAL_READ_EVERY);
        if too_soon || !self.strikes(partial) {
            return None;
        }
        self.past.partial_at = Some(now);
        let mut objects = self.cluster.objects.clone();
        match self.dice.below(Stream::Faults, 4) {
            0 => objects.node_pools.clear(),
            1 => objects.node_claims.clear(),
            2 => objects.node_classes.clear(),
            _ => objects.nodes.clear(),
        }
        Some(objects)
    }

    /// A fleet as EC2 shows it to a reader: it may not know it yet.
    pub(crate) fn fleet_seen(&mut self, id: &str) -> Option<FleetAnswer> {
        let stale = self.faults.stale_reads;
        let answer = self.region.fleet(id).cloned()?;
        (!self.strikes(stale)).then_some(answer)
    }

    /// Machines that EC2 shows to a reader: it may not know the youngest yet.
    pub(crate) fn machines_seen(&mut self, wanted: impl Fn(&Instance) -> bool) -> Vec<Instance> {
        let stale = self.faults.stale_reads;
        let stale = self.strikes(stale);
        let now = self.now();
        let shown = |instance: &&Instance| !stale || now.duration_since(instance.launched_at) > UNSEEN_MACHINE;
        let instances = self.region.machines.values().map(|machine| &machine.instance);
        let shown = instances.filter(shown).filter(|instance| wanted(instance)).cloned().collect();
        self.lagging(shown)
    }
}

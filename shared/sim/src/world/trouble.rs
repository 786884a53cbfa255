//! What befalls machines, Nodes and claims now and then, without a call that it could be the fault of.

use super::World;
use crate::Function;
use crate::dice::Stream;
use crate::story::LineKind;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Node;
use whittle_api::labels;
use whittle_claims::{Bucket, BucketName, Claim, ClaimKey, Lease, Record};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{CloudError, CloudErrorKind};
use whittle_units::InstanceId;

/// EC2 leaves a machine out of its answers for so long at most: two looks that are half a minute apart see it.
const HIDDEN_MAX: u64 = 25;
/// Listings may leave out a machine for so long that two looks miss it, in seconds; who asks for it by name sees it.
const UNLISTED: (u64, u64) = (35, 150);
/// EC2 shows a machine only so long after it has started it, in seconds, where its answers lag.
const UNSHOWN: (u64, u64) = (1, 100);
/// When a claim that its writer gave up reaches the table, in seconds: after the lease under which it was made.
const LATE: (u64, u64) = (10, 120);
/// Between two such gaps of one machine.
const HIDDEN_EVERY: SignedDuration = SignedDuration::from_secs(120);
/// How old a machine's state may be in an answer of EC2, in milliseconds.
const STATE_AGE_MS_MAX: u64 = 60_000;
/// A machine that is younger is left to the fault of stale reads.
const OLD: SignedDuration = SignedDuration::from_secs(30);
/// What EC2 grants of a call: at once, and a second.
const CALLS: &[(&str, i64, i64)] = &[("CreateFleet", 5, 2), ("DescribeInstances", 100, 20), ("TerminateInstances", 100, 5)];
/// Bytes of an item at most.
const ITEM_MAX: usize = 400 << 10;
/// How long an invocation lasts that has little of its time, in seconds.
const SHORT: (u64, u64) = (3, 10);
/// After how many seconds a namespace that was deleted is there again.
const TERMINATING: (u64, u64) = (20, 120);
/// How long somebody keeps a machine from being ended, from the first refusal.
const PROTECTED: SignedDuration = SignedDuration::from_mins(4);

/// What EC2's answers are behind by.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Since when a machine has been left out, and until when.
    hidden: BTreeMap<InstanceId, (Timestamp, Timestamp)>,
    /// Those of them that no answer has shown yet.
    unshown: BTreeSet<InstanceId>,
    /// The machine that listings leave out, and until when.
    unlisted: Option<(InstanceId, Timestamp)>,
    /// Claims that are on their way to the table although their writers know nothing of them any more.
    late: Vec<(Timestamp, Lease, Claim)>,
    /// States of machines, oldest first.
    states: BTreeMap<InstanceId, Vec<(Timestamp, InstanceState)>>,
    /// Thousandths of calls that EC2 still grants, and when that was counted.
    granted: BTreeMap<&'static str, (i64, Timestamp)>,
    /// Machines that must not be ended, and until when once somebody tried.
    protected: BTreeMap<InstanceId, Option<Timestamp>>,
    /// Tries that were refused.
    pub(crate) refused: u64,
}

impl Lag {
    /// Whether a machine is left out of answers, or was a moment ago.
    pub(crate) fn hides(&self, id: &InstanceId, now: Timestamp) -> bool {
        self.hidden.get(id).is_some_and(|(since, until)| *since <= now && now < *until + SignedDuration::from_secs(12))
    }

    /// What was on its way to another table never arrives at this one.
    pub(super) fn forget_late(&mut self) {
        self.late.clear();
    }

    /// Whether listings lack a machine, and it is not known by its id either.
    pub(crate) fn denies(&self, id: &InstanceId, now: Timestamp) -> bool {
        self.hides(id, now) && self.unlisted.as_ref().is_some_and(|(unlisted, until)| unlisted == id && now < *until)
    }

    /// Leaves a machine out of answers for so long from its launch on.
    pub(super) fn unshow(&mut self, id: InstanceId, now: Timestamp, span: SignedDuration) {
        self.unshown.insert(id.clone());
        self.hidden.insert(id, (now, now + span));
    }

    fn state_then(&self, id: &InstanceId, then: Timestamp) -> Option<InstanceState> {
        let states = self.states.get(id)?;
        states.iter().rev().find(|(at, _)| *at <= then).or_else(|| states.first()).map(|(_, state)| *state)
    }
}

impl World {
    /// Keeps how machines stand, for answers that lag.
    pub(super) fn remember_machines(&mut self) {
        if self.faults.ec2_lag == 0 && self.lag.states.is_empty() {
            return;
        }
        let now = self.now();
        for (id, machine) in &self.region.machines {
            let states = self.lag.states.entry(id.clone()).or_default();
            if states.last().is_none_or(|(_, state)| *state != machine.instance.state) {
                states.push((now, machine.instance.state));
            }
        }
    }

    /// What EC2 shows of its machines when its answers lag: one of the older ones is left out for a while, or states are those
    /// of a moment ago.
    pub(super) fn lagging(&mut self, mut shown: Vec<Instance>) -> Vec<Instance> {
        let (lag, now) = (self.faults.ec2_lag, self.now());
        if lag == 0 && self.lag.hidden.is_empty() {
            return shown;
        }
        self.remember_machines();
        if self.strikes(lag) {
            let old: Vec<InstanceId> =
                shown.iter().filter(|one| now.duration_since(one.launched_at) > OLD).map(|one| one.id.clone()).collect();
            let chosen = usize::try_from(self.dice.below(Stream::Faults, 64)).unwrap_or(0) % old.len().max(1);
            let span = i64::try_from(self.dice.between(Stream::Faults, 1, HIDDEN_MAX)).unwrap_or(1);
            if let Some(id) = old.get(chosen)
                && self.lag.hidden.get(id).is_none_or(|(_, until)| *until + HIDDEN_EVERY <= now)
            {
                self.lag.hidden.insert(id.clone(), (now, now + SignedDuration::from_secs(span)));
            }
        }
        let hidden = |id: &InstanceId| self.lag.hidden.get(id).is_some_and(|(since, until)| *since <= now && now < *until);
        shown.retain(|one| !hidden(&one.id));
        if self.strikes(lag) {
            let age = i64::try_from(self.dice.below(Stream::Faults, STATE_AGE_MS_MAX)).unwrap_or(0);
            let then = now - SignedDuration::from_millis(age);
            for one in &mut shown {
                one.state = self.lag.state_then(&one.id, then).unwrap_or(one.state);
            }
        }
        shown
    }

    /// A listing of EC2, which may leave out one of the older machines for longer than who asks for it by name has to wait.
    pub(crate) fn listed(&mut self, mut shown: Vec<Instance>) -> Vec<Instance> {
        let now = self.now();
        self.lag.unlisted = self.lag.unlisted.take().filter(|(_, until)| now < *until && self.faults.ec2_lag > 0);
        if self.lag.unlisted.is_none() && self.strikes(self.faults.ec2_lag / 4) {
            let old: Vec<InstanceId> =
                shown.iter().filter(|one| now.duration_since(one.launched_at) > OLD).map(|one| one.id.clone()).collect();
            let until = now + self.seconds(UNLISTED);
            self.lag.unlisted = self.one_of(&old).map(|id| (id, until));
        }
        shown.retain(|one| self.lag.unlisted.as_ref().is_none_or(|(id, _)| *id != one.id));
        shown
    }

    /// Leaves a machine out of listings for so long, while answers of EC2 lag at all.
    pub fn unlist(&mut self, id: &InstanceId, span: SignedDuration) {
        self.lag.unlisted = Some((id.clone(), self.now() + span));
    }

    /// EC2 has started a machine, which its answers may not show yet.
    pub(super) fn maybe_unshown(&mut self, id: &InstanceId) {
        if self.strikes(self.faults.ec2_lag * 4) {
            let (now, span) = (self.now(), self.seconds(UNSHOWN));
            self.lag.unshow(id.clone(), now, span);
        }
    }

    /// Whether EC2 does not know a machine yet, so that whoever names it is told that there is none.
    pub(crate) fn is_unshown(&self, id: &InstanceId) -> bool {
        self.lag.unshown.contains(id) && self.lag.hidden.get(id).is_some_and(|(_, until)| self.now() < *until)
    }

    /// Another cluster of the account makes its fleet calls: as many as the account's bucket lets it.
    pub(crate) fn neighbours_launch(&mut self, name: &BucketName, full: &Bucket, now: Timestamp) {
        if self.strikes(self.faults.neighbours) {
            while self.store.take_tokens(name, full, 1, now) {
                self.watch_fleet_rate();
            }
        }
    }

    /// A new claim is sent to the table and reaches it when its writer does not wait for it any more. False where it arrives at once.
    pub(crate) fn delays(&mut self, lease: &Lease, claim: &Claim) -> bool {
        if !self.strikes(self.faults.late_claims) {
            return false;
        }
        let at = self.now() + self.seconds(LATE);
        self.lag.late.push((at, lease.clone(), claim.clone()));
        true
    }

    /// Whether Lambda runs no invocation more of a function that has no concurrency of its own.
    pub(super) fn is_throttled(&mut self, function: Function) -> bool {
        let most = usize::try_from(self.faults.concurrency).unwrap_or(usize::MAX);
        let throttled = most > 0 && !function.is_reserved() && self.runs_without_reserve() >= most;
        self.counts.faults += u64::from(throttled);
        throttled
    }

    /// Whether the table refuses a record for its size.
    pub(crate) fn is_too_large<R: Record>(&mut self, record: &R) -> bool {
        let size = serde_json::to_vec(record).map_or(0, |text| text.len());
        size > ITEM_MAX || self.strikes(self.faults.large_items)
    }

    /// Whether a call is lost on its way.
    pub(crate) fn is_disconnected(&mut self) -> bool {
        self.strikes(self.faults.dead_connections)
    }

    /// How long an invocation may last.
    pub(super) fn time_of(&mut self, function: Function) -> SignedDuration {
        let whole = function.limits().timeout;
        if self.strikes(self.faults.short_runs) { self.seconds(SHORT).min(whole) } else { whole }
    }

    /// Somebody deletes the namespace of a pod that is to be evicted.
    pub(crate) fn maybe_delete_namespace(&mut self, namespace: &str) {
        if namespace == "kube-system" || !self.strikes(self.faults.deleted_namespaces) {
            return;
        }
        let (now, span) = (self.now(), self.seconds(TERMINATING));
        if self.cluster.delete_namespace(namespace, now + span, now) {
            self.tell(LineKind::Fault, format!("namespace {namespace} is deleted, and made again in {} s", span.as_secs()));
            self.touch_cluster();
        }
    }

    /// A machine gets the address of one that has ended.
    pub(super) fn maybe_rename(&mut self, id: &InstanceId) {
        if !self.strikes(self.faults.reused_names) {
            return;
        }
        let instances = || self.region.machines.values().map(|machine| &machine.instance);
        let taken: BTreeSet<&str> = instances().filter(|one| one.is_alive()).map(|one| one.private_dns_name.as_str()).collect();
        let is_free = |name: &str| !taken.contains(name) && !self.cluster.objects.nodes.contains_key(name);
        let ended = instances().filter(|one| one.state == InstanceState::Terminated && is_free(&one.private_dns_name));
        let Some(name) = ended.max_by_key(|one| (one.launched_at, &one.id)).map(|one| one.private_dns_name.clone()) else { return };
        self.tell(LineKind::Fault, format!("machine {id} gets the name {name} again"));
        if let Some(machine) = self.region.machines.get_mut(id) {
            machine.instance.private_dns_name = name;
        }
    }

    /// Claims arrive that their writers gave up.
    fn arrive_late(&mut self) {
        let now = self.now();
        let (due, left) = std::mem::take(&mut self.lag.late).into_iter().partition(|(at, ..)| *at <= now);
        self.lag.late = left;
        let due: Vec<(Timestamp, Lease, Claim)> = due;
        for (_, lease, claim) in due {
            // The table refuses those whose lease has passed on.
            let _ = self.create_claim(&lease, &claim);
        }
    }

    fn seconds(&mut self, (least, most): (u64, u64)) -> SignedDuration {
        SignedDuration::from_secs(i64::try_from(self.dice.between(Stream::Faults, least, most)).unwrap_or(0))
    }

    /// Whether EC2 grants a call, by the rate of an account.
    pub(crate) fn grants(&mut self, call: &str) -> bool {
        if !self.faults.ec2_rates {
            return true;
        }
        let now = self.now();
        let Some((call, burst, rate)) = CALLS.iter().find(|(name, ..)| *name == call).copied() else { return true };
        let (left, at) = self.lag.granted.get(call).copied().unwrap_or((burst * 1_000, now));
        let refilled = i64::try_from(now.duration_since(at).as_millis()).unwrap_or(0).saturating_mul(rate);
        let left = left.saturating_add(refilled).min(burst * 1_000) - 1_000;
        let granted = left >= 0;
        self.lag.granted.insert(call, (if granted { left } else { left + 1_000 }, now));
        self.counts.faults += u64::from(!granted);
        granted
    }

    /// Somebody switched termination protection on for a machine, and switches it off some minutes after it was in the way.
    pub(crate) fn protects(&mut self, id: &InstanceId) -> Option<CloudError> {
        let now = self.now();
        let until = self.lag.protected.get_mut(id)?.get_or_insert(now + PROTECTED);
        if *until <= now || self.faults.protected_machines == 0 {
            return None;
        }
        self.lag.refused += 1;
        let message =
            format!("The instance '{id}' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.");
        Some(CloudError { kind: CloudErrorKind::Invalid, call: "TerminateInstances", code: "OperationNotPermitted".to_owned(), message })
    }

    /// A machine came: somebody may protect it.
    pub(super) fn maybe_protect(&mut self, id: &InstanceId) {
        if self.strikes(self.faults.protected_machines) {
            self.lag.protected.insert(id.clone(), None);
        }
    }

    /// Once a tick: claims that a newer release wrote and an older one cannot read for a while, and kubelets that fall silent.
    pub(super) fn befall(&mut self) {
        self.arrive_late();
        let now = self.now();
        self.store.show_hidden(now, self.faults.odd_claims == 0);
        if self.strikes(self.faults.odd_claims) {
            let cluster = self.name();
            let keys: Vec<ClaimKey> = self
                .store
                .claims(&cluster)
                .map(|stored| &stored.value)
                .filter(|claim| claim.is_live())
                .map(|claim| claim.key.clone())
                .collect();
            if let Some(key) = self.one_of(&keys) {
                let span = i64::try_from(self.dice.between(Stream::Faults, 70, 200)).unwrap_or(70);
                self.store.hide(&key, now + SignedDuration::from_secs(span));
                self.tell(LineKind::Fault, format!("claim {} cannot be read for {span} s", key.name));
            }
        }
        if self.strikes(self.faults.silent_kubelets) {
            let ours = |node: &&Node| node.metadata.label(labels::REGISTERED) == Some("true");
            let names: Vec<String> = self.cluster.objects.nodes.values().filter(ours).map(|node| node.metadata.name.clone()).collect();
            if let Some(name) = self.one_of(&names) {
                let span = i64::try_from(self.dice.between(Stream::Faults, 5, 70)).unwrap_or(5);
                self.cluster.silence(&name, now, SignedDuration::from_secs(span));
                self.touch_cluster();
            }
        }
    }

    fn one_of<V: Clone>(&mut self, all: &[V]) -> Option<V> {
        let at = self.dice.below(Stream::Faults, 1_000_000);
        all.get(usize::try_from(at).unwrap_or(0) % all.len().max(1)).cloned()
    }

    /// Whether EC2's answers make a machine seem lost to whoever asks now or asked a moment ago.
    pub(crate) fn seems_lost(&self, id: &InstanceId) -> bool {
        self.lag.hides(id, self.now())
    }
}

//! Random faults of machines, Nodes and claims that are not tied to a call.

use super::World;
use crate::Function;
use crate::dice::Stream;
use crate::meter;
use crate::story::LineKind;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Node;
use whittle_api::labels;
use whittle_claims::{Bucket, BucketName, Claim, ClaimKey, Lease, Record};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{CloudError, CloudErrorKind};
use whittle_units::InstanceId;

/// How long EC2 omits a machine from its answers at most: one of two reads half a minute apart sees it.
const HIDDEN_MAX: u64 = 25;
/// How long listings may omit a machine, in seconds: two reads may miss it, but a read by id sees it.
const UNLISTED: (u64, u64) = (35, 150);
/// How long EC2 may not show a new machine if its answers lag, in seconds.
const NOT_VISIBLE_YET: (u64, u64) = (1, 100);
/// After how many seconds an abandoned claim reaches the table: after its lease has expired.
const LATE: (u64, u64) = (10, 120);
/// The least time between two such gaps of one machine.
const HIDDEN_EVERY: SignedDuration = SignedDuration::from_secs(120);
/// How old a machine's state may be in an answer of EC2, in milliseconds.
const STATE_AGE_MS_MAX: u64 = 60_000;
/// Younger machines are subject to stale reads instead.
const OLD: SignedDuration = SignedDuration::from_secs(30);
/// EC2's rate limits: name, burst, and rate per second.
const CALLS: &[(&str, i64, i64)] = &[("CreateFleet", 50, 5), ("DescribeInstances", 100, 20), ("TerminateInstances", 100, 5)];
/// The size limit of an item, in bytes.
const ITEM_MAX: usize = 400 << 10;
/// How long a shortened invocation lasts, in seconds.
const SHORT: (u64, u64) = (3, 10);
/// After how many seconds a deleted namespace is recreated.
const TERMINATING: (u64, u64) = (20, 120);
/// How long termination protection lasts after the first refusal.
const PROTECTED: SignedDuration = SignedDuration::from_mins(4);

/// Whether the table has no room for a claim.
pub(super) fn is_too_large_claim(claim: &Claim) -> bool {
    let max = u64::try_from(ITEM_MAX).unwrap_or(u64::MAX);
    // Compressed it is no longer than its text.
    max < meter::json_size(claim) && max < meter::at_rest_size(claim)
}

/// The lag of EC2's answers.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Hidden machines, since when and until when.
    hidden: BTreeMap<InstanceId, (Timestamp, Timestamp)>,
    /// Those of them that no answer has ever shown.
    not_yet_visible: BTreeSet<InstanceId>,
    /// The machine that listings omit, and until when.
    hidden_from_listings: Option<(InstanceId, Timestamp)>,
    /// Claims that will still reach the table although their writers have given up.
    late: Vec<(Timestamp, Lease, Vec<Claim>)>,
    /// States of machines, oldest first.
    states: BTreeMap<InstanceId, Vec<(Timestamp, InstanceState)>>,
    /// Thousandths of calls that EC2 still grants, and when this was computed.
    granted: BTreeMap<&'static str, (i64, Timestamp)>,
    /// Machines with termination protection, and its end after the first attempt.
    protected: BTreeMap<InstanceId, Option<Timestamp>>,
    pub(crate) refused: u64,
}

impl Lag {
    /// Whether a machine is hidden from answers, or was a moment ago.
    pub(crate) fn hides(&self, id: &InstanceId, now: Timestamp) -> bool {
        self.hidden.get(id).is_some_and(|(since, until)| *since <= now && now < *until + SignedDuration::from_secs(12))
    }

    /// Drops claims that were on their way to a replaced table.
    pub(super) fn forget_late(&mut self) {
        self.late.clear();
    }

    /// Whether listings omit a machine, and a read by id does not find it either.
    pub(crate) fn reports_nonexistent(&self, id: &InstanceId, now: Timestamp) -> bool {
        self.hides(id, now)
            && self.hidden_from_listings.as_ref().is_some_and(|(hidden_from_listings, until)| hidden_from_listings == id && now < *until)
    }

    /// Hides a new machine from answers for `span`.
    pub(super) fn hide_new_machine(&mut self, id: InstanceId, now: Timestamp, span: SignedDuration) {
        self.not_yet_visible.insert(id.clone());
        self.hidden.insert(id, (now, now + span));
    }

    fn state_then(&self, id: &InstanceId, then: Timestamp) -> Option<InstanceState> {
        let states = self.states.get(id)?;
        states.iter().rev().find(|(at, _)| *at <= then).or_else(|| states.first()).map(|(_, state)| *state)
    }
}

impl World {
    /// Records the states of machines, for lagging answers.
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

    /// Applies the lag of EC2's answers: one of the older machines is hidden for a while, or states are those
    /// of a moment ago.
    pub(super) fn apply_lag(&mut self, mut shown: Vec<Instance>) -> Vec<Instance> {
        let (lag, now) = (self.faults.ec2_lag, self.now());
        if lag == 0 && self.lag.hidden.is_empty() {
            return shown;
        }
        self.remember_machines();
        if self.fault_occurs(lag) {
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
        if self.fault_occurs(lag) {
            let age = i64::try_from(self.dice.below(Stream::Faults, STATE_AGE_MS_MAX)).unwrap_or(0);
            let then = now - SignedDuration::from_millis(age);
            for one in &mut shown {
                one.state = self.lag.state_then(&one.id, then).unwrap_or(one.state);
            }
        }
        shown
    }

    /// A listing of EC2, which may omit one of the older machines for longer than a read by id does.
    pub(crate) fn listed(&mut self, mut shown: Vec<Instance>) -> Vec<Instance> {
        let now = self.now();
        self.lag.hidden_from_listings = self.lag.hidden_from_listings.take().filter(|(_, until)| now < *until && self.faults.ec2_lag > 0);
        if self.lag.hidden_from_listings.is_none() && self.fault_occurs(self.faults.ec2_lag / 4) {
            let old: Vec<InstanceId> =
                shown.iter().filter(|one| now.duration_since(one.launched_at) > OLD).map(|one| one.id.clone()).collect();
            let until = now + self.seconds(UNLISTED);
            self.lag.hidden_from_listings = self.choose(&old).map(|id| (id, until));
        }
        shown.retain(|one| self.lag.hidden_from_listings.as_ref().is_none_or(|(id, _)| *id != one.id));
        shown
    }

    /// Hides a machine from listings for `span`, as long as answers lag.
    pub fn unlist(&mut self, id: &InstanceId, span: SignedDuration) {
        self.lag.hidden_from_listings = Some((id.clone(), self.now() + span));
    }

    /// EC2 has started a machine, which may not be visible yet.
    pub(super) fn maybe_hide_new_machine(&mut self, id: &InstanceId) {
        if self.fault_occurs(self.faults.ec2_lag * 4) {
            let (now, span) = (self.now(), self.seconds(NOT_VISIBLE_YET));
            self.lag.hide_new_machine(id.clone(), now, span);
        }
    }

    /// Whether EC2 does not know a machine yet and answers that it does not exist.
    pub fn is_not_yet_visible(&self, id: &InstanceId) -> bool {
        self.lag.not_yet_visible.contains(id) && self.lag.hidden.get(id).is_some_and(|(_, until)| self.now() < *until)
    }

    /// Another cluster of the account makes as many fleet calls as the account's bucket allows.
    pub(crate) fn neighbours_launch(&mut self, name: &BucketName, full: &Bucket, now: Timestamp) {
        if self.fault_occurs(self.faults.neighbours) {
            while self.store.take_tokens(name, full, 1, now) {
                self.observe_fleet_rate(true);
            }
        }
    }

    /// May delay a new claim, which reaches the table after its writer has given up. False if it arrives at once.
    pub(crate) fn delays_claims(&mut self, lease: &Lease, claims: &[Claim]) -> bool {
        if !self.fault_occurs(self.faults.late_claims) {
            return false;
        }
        let at = self.now() + self.seconds(LATE);
        self.lag.late.push((at, lease.clone(), claims.to_vec()));
        true
    }

    /// Whether Lambda throttles a function, unless it has reserved concurrency.
    pub(super) fn is_throttled(&mut self, function: Function) -> bool {
        let most = usize::try_from(self.faults.concurrency).unwrap_or(usize::MAX);
        let throttled = most > 0 && !function.is_reserved() && self.runs_without_reserve() >= most;
        self.counts.faults += u64::from(throttled);
        throttled
    }

    /// Whether the table refuses a record for its size.
    pub(crate) fn is_too_large<R: Record>(&mut self, record: &R) -> bool {
        let size = serde_json::to_vec(record).map_or(0, |text| text.len());
        size > ITEM_MAX || self.fault_occurs(self.faults.large_items)
    }

    /// Whether a call is lost on its way.
    pub(crate) fn is_disconnected(&mut self) -> bool {
        self.fault_occurs(self.faults.dead_connections)
    }

    /// Draws the timeout of an invocation.
    pub(super) fn time_of(&mut self, function: Function) -> SignedDuration {
        let timeout = function.run_time();
        if self.fault_occurs(self.faults.short_runs) { self.seconds(SHORT).min(timeout) } else { timeout }
    }

    /// May delete the namespace of a pod that is to be evicted.
    pub(crate) fn maybe_delete_namespace(&mut self, namespace: &str) {
        if namespace == "kube-system" || !self.fault_occurs(self.faults.deleted_namespaces) {
            return;
        }
        let (now, span) = (self.now(), self.seconds(TERMINATING));
        if self.cluster.delete_namespace(namespace, now + span, now) {
            self.log(LineKind::Fault, format!("namespace {namespace} is deleted, and recreated in {} s", span.as_secs()));
            self.touch_cluster();
        }
    }

    /// May give a machine the address of a terminated one.
    pub(super) fn maybe_rename(&mut self, id: &InstanceId) {
        if !self.fault_occurs(self.faults.reused_names) {
            return;
        }
        let instances = || self.region.machines.values().map(|machine| &machine.instance);
        let taken: BTreeSet<&str> = instances().filter(|one| one.is_alive()).map(|one| one.private_dns_name.as_str()).collect();
        let is_free = |name: &str| !taken.contains(name) && !self.cluster.objects.nodes.contains_key(name);
        let ended = instances().filter(|one| one.state == InstanceState::Terminated && is_free(&one.private_dns_name));
        let Some(name) = ended.max_by_key(|one| (one.launched_at, &one.id)).map(|one| one.private_dns_name.clone()) else { return };
        self.log(LineKind::Fault, format!("machine {id} reuses the name {name}"));
        if let Some(machine) = self.region.machines.get_mut(id) {
            machine.instance.private_dns_name = name;
        }
    }

    /// Applies the claims that are due although their writers gave up.
    fn apply_late_claims(&mut self) {
        let now = self.now();
        let (due, left) = std::mem::take(&mut self.lag.late).into_iter().partition(|(at, ..)| *at <= now);
        self.lag.late = left;
        let due: Vec<(Timestamp, Lease, Vec<Claim>)> = due;
        for (_, lease, claims) in due {
            // The table refuses those whose lease is outdated.
            let _ = self.create_claims(&lease, &claims);
        }
    }

    fn seconds(&mut self, (least, most): (u64, u64)) -> SignedDuration {
        SignedDuration::from_secs(i64::try_from(self.dice.between(Stream::Faults, least, most)).unwrap_or(0))
    }

    /// Whether EC2's rate limit permits a call.
    pub(crate) fn grants_call(&mut self, call: &str) -> bool {
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

    /// The error if a machine has termination protection, which is disabled some minutes after the first attempt.
    pub(crate) fn termination_protection_error(&mut self, id: &InstanceId) -> Option<CloudError> {
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

    /// May enable termination protection for a new machine.
    pub(super) fn maybe_protect(&mut self, id: &InstanceId) {
        if self.fault_occurs(self.faults.protected_machines) {
            self.lag.protected.insert(id.clone(), None);
        }
    }

    /// Once a tick: claims become unreadable for a while, as if a newer release had written them, and kubelets stop reporting.
    pub(super) fn inject_periodic_faults(&mut self) {
        self.apply_late_claims();
        let now = self.now();
        self.store.show_hidden(now, self.faults.unreadable_claims == 0);
        if self.fault_occurs(self.faults.unreadable_claims) {
            let cluster = self.name();
            let keys: Vec<ClaimKey> = self
                .store
                .claims(&cluster)
                .map(|stored| &stored.value)
                .filter(|claim| claim.is_live())
                .map(|claim| claim.key.clone())
                .collect();
            if let Some(key) = self.choose(&keys) {
                let span = i64::try_from(self.dice.between(Stream::Faults, 70, 200)).unwrap_or(70);
                self.store.hide(&key, now + SignedDuration::from_secs(span));
                self.log(LineKind::Fault, format!("claim {} cannot be read for {span} s", key.name));
            }
        }
        if self.fault_occurs(self.faults.silent_kubelets) {
            let ours = |node: &&Node| node.metadata.label(labels::REGISTERED) == Some("true");
            let names: Vec<String> = self.cluster.objects.nodes.values().filter(ours).map(|node| node.metadata.name.clone()).collect();
            if let Some(name) = self.choose(&names) {
                let span = i64::try_from(self.dice.between(Stream::Faults, 5, 70)).unwrap_or(5);
                self.cluster.stop_kubelet_status(&name, now, SignedDuration::from_secs(span));
                self.touch_cluster();
            }
        }
    }

    fn choose<V: Clone>(&mut self, all: &[V]) -> Option<V> {
        let at = self.dice.below(Stream::Faults, 1_000_000);
        all.get(usize::try_from(at).unwrap_or(0) % all.len().max(1)).cloned()
    }

    /// Whether a machine is missing from EC2's answers, or was a moment ago.
    pub(crate) fn is_missing(&self, id: &InstanceId) -> bool {
        self.lag.hides(id, self.now())
    }
}

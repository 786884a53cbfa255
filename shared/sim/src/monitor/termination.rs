//! Invariants of evictions, disruption commands and terminations: by the true state of the cluster and EC2, whatever the
//! claims say, and with any faults.

use super::SLACK;
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Pod};
use whittle_api::karpenter::NodeClaim;
use whittle_api::labels;
use whittle_claims::{Claim, Deletion, DeletionReason, Phase};
use whittle_units::{InstanceId, ProviderId};

/// How old the view of the cluster behind a decision may be, including the time to decide.
const STALE: SignedDuration = SignedDuration::from_secs(12);
/// How old an answer of the API server may be.
const STALE_ANSWER: SignedDuration = SignedDuration::from_secs(6);
/// The same without stale reads: a pod that is bound while the node is being tainted may be missed.
const BOUND_MARGIN: SignedDuration = SignedDuration::from_millis(1);
/// The same as `STALE` if neither reads nor replies nor the scheduler are late.
const STALE_AT_LEAST: SignedDuration = SignedDuration::from_secs(4);
/// How long the scheduler may not have seen that a node was tainted, including clock skew.
const UNKNOWN_YET: SignedDuration = SignedDuration::from_millis(2_500);
/// The longest duration of a run that decides to evict.
pub(super) const RUN_MAX: SignedDuration = SignedDuration::from_secs(32);
/// How long terminating pods delay others: a minute at most.
const TERMINATING_MAX: SignedDuration = SignedDuration::from_secs(50);
/// The least time for evictions, in addition to the longest grace period, if pods wait for a machine.
const EVICTION_TIME: SignedDuration = SignedDuration::from_secs(25);
/// After this time every reader sees that a machine is terminated; the second one is for lagging EC2 answers.
const ENDED_SEEN: SignedDuration = SignedDuration::from_secs(20);
const ENDED_LAGS: SignedDuration = SignedDuration::from_secs(75);
/// Replacements cannot have been planned this soon after a claim's deletion began.
const UNPLANNED: SignedDuration = SignedDuration::from_secs(3);
/// The default grace period of Kubernetes.
const GRACE_SECONDS: i64 = 30;

/// The last known state of a Node, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeState {
    tainted: bool,
    tainted_changed: Timestamp,
    ready: bool,
    ready_changed: Timestamp,
    /// It is managed by Whittle, and has or should have its finalizer.
    registered: bool,
    was_ready: bool,
}

fn is_registered(node: &Node) -> bool {
    node.metadata.label(labels::REGISTERED) == Some("true")
}

/// Whether a pod may stay on a node that is being disrupted.
fn is_tolerant(pod: &Pod) -> bool {
    pod.spec.tolerations.iter().any(|one| one.key.is_empty() || one.key == labels::DISRUPTED_TAINT)
}

/// Whether a pod is rescheduled when its node is removed: its controller replaces it.
fn is_rescheduled(pod: &Pod) -> bool {
    let owned = pod.metadata.controller().is_some_and(|owner| matches!(owner.kind.as_str(), "ReplicaSet" | "StatefulSet"));
    owned && !is_tolerant(pod) && !pod.is_terminal()
}

/// Whether the volumes of a pod may be attached until its machine ends. Those of one that has finished are to be detached before,
/// unless the pod is left where it is.
fn keeps_volumes(pod: &Pod) -> bool {
    !pod.is_terminal() || is_tolerant(pod) || pod.is_static() || pod.metadata.is_deleting()
}

fn ran_since(pod: &Pod, before: Timestamp) -> bool {
    pod.status.phase == "Running" && pod.status.start_time.is_some_and(|at| at <= before)
}

/// Whether the pod had been bound by then.
fn was_bound(pod: &Pod, before: Timestamp) -> bool {
    let scheduled = pod.condition("PodScheduled").filter(|condition| condition.status == "True");
    scheduled.and_then(|condition| condition.last_transition_time).is_some_and(|at| at <= before)
}

/// Eviction order: critical pods after all others, and daemon pods last of each.
fn eviction_rank(pod: &Pod) -> u8 {
    let system = pod.spec.priority_class_name.starts_with("system-");
    2 * u8::from(system) + u8::from(pod.metadata.controller().is_some_and(|owner| owner.kind == "DaemonSet"))
}

fn grace(pod: &Pod) -> SignedDuration {
    SignedDuration::from_secs(pod.spec.termination_grace_period_seconds.unwrap_or(GRACE_SECONDS))
}

impl World {
    pub(super) fn ago(&self, span: SignedDuration) -> Timestamp {
        self.now().checked_sub(span).unwrap_or(Timestamp::MIN)
    }

    /// Records changes of Nodes. A managed Node must not vanish while its machine runs.
    pub(crate) fn observe_nodes(&mut self) {
        let now = self.now();
        let mut node_states = BTreeMap::new();
        for (name, node) in &self.cluster.objects.nodes {
            let known = self.monitor.node_states.get(name);
            let (tainted, ready) = (node.has_disrupted_taint(), node.is_ready());
            let since = |same: Option<(bool, Timestamp)>, value: bool| match same {
                Some((before, at)) if before == value => at,
                _ => now,
            };
            let registered = is_registered(node);
            node_states.insert(
                name.clone(),
                NodeState {
                    tainted,
                    tainted_changed: since(known.map(|state| (state.tainted, state.tainted_changed)), tainted),
                    ready,
                    ready_changed: since(known.map(|state| (state.ready, state.ready_changed)), ready),
                    registered,
                    was_ready: ready || known.is_some_and(|state| state.was_ready),
                },
            );
        }
        let before = std::mem::replace(&mut self.monitor.node_states, node_states);
        let vanished: Vec<String> = before
            .into_iter()
            .filter(|(name, state)| state.registered && !self.monitor.node_states.contains_key(name))
            .map(|(name, _)| name)
            .collect();
        for name in vanished {
            self.observe_vanished_node(&name);
        }
    }

    fn observe_vanished_node(&mut self, node: &str) {
        let cluster = self.name();
        let of_node = |claim: &&Claim| claim.is_live() && claim.node_name() == Some(node);
        let claim = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(of_node);
        let machine = claim.and_then(|claim| claim.machine()).map(|machine| machine.instance_id.clone());
        let alive = |id: &InstanceId| self.region.machines.get(id).is_some_and(|machine| machine.instance.is_alive());
        // A restored table may contain a claim whose machine was already released.
        let left = |id: &InstanceId| self.has_lost_its_table() && self.was_released(id);
        if let Some(id) = machine.filter(alive).filter(|id| !left(id)) {
            self.report_violation(format!("node {node} vanished while its machine {id} ran"));
        }
    }

    /// How old a view of the cluster may be.
    fn stale(&self) -> SignedDuration {
        let faults = &self.faults;
        let prompt = faults.stale_reads + faults.partial_reads + faults.slow_replies + faults.scheduler_lag_ms / 3_000 == 0;
        if prompt { STALE_AT_LEAST } else { STALE }
    }

    /// Whether a node has been untainted for longer than any view of the cluster is old.
    fn accepts_pods(&self, node: &str) -> bool {
        self.monitor.node_states.get(node).is_some_and(|state| !state.tainted && state.tainted_changed <= self.ago(STALE))
    }

    fn node_of(&self, provider: &ProviderId) -> Option<&Node> {
        self.cluster.objects.nodes.values().find(|node| node.spec.provider_id == provider.as_str())
    }

    /// A caller terminates a machine.
    pub(crate) fn observe_terminated(&mut self, id: &InstanceId) {
        let Some(machine) = self.region.machines.get(id).filter(|machine| machine.instance.is_alive()) else { return };
        let provider = machine.instance.provider_id();
        let text = match self.store.owner(id) {
            None => format!("machine {id} was terminated without a claim"),
            Some(claim) => match &claim.deletion {
                None => format!("machine {id} was terminated while claim {} was in service", claim.key.name),
                Some(deletion) if self.was_to_stay(id, &provider, deletion) => {
                    format!("machine {id} was terminated ({:?}) although Whittle was to keep it", deletion.reason)
                }
                Some(deletion) => {
                    let overdue = deletion.deadline.is_some_and(|deadline| deadline <= self.now() + SLACK);
                    if overdue || deletion.reason.is_involuntary() {
                        return;
                    }
                    // EC2 may deny for a while that it has a new machine; the request is repeated, and what is on its Node was seen before.
                    let decided = if let Phase::Terminating { since, .. } = &claim.phase { *since } else { self.now() };
                    let left = self.node_of(&provider).and_then(|node| {
                        self.remaining_on(&node.metadata.name, decided).or_else(|| self.recently_tainted(&node.metadata.name))
                    });
                    match left {
                        Some(left) => format!("machine {id} was terminated while {left}"),
                        None => return,
                    }
                }
            },
        };
        self.report_violation(text);
    }

    /// Whether a machine was to be kept by an uninstallation before its termination was decided. One without a Node is not kept.
    fn was_to_stay(&self, id: &InstanceId, provider: &ProviderId, deletion: &Deletion) -> bool {
        let late = |since: Timestamp| deletion.at > since + RUN_MAX;
        let decided = match deletion.reason {
            // Nor does a launch without an answer, or a machine that does not join, wait forever.
            DeletionReason::LaunchTimeout | DeletionReason::RegistrationTimeout => false,
            // An orphan, which nobody registers.
            DeletionReason::RolledBack => self.node_of(provider).is_some_and(is_registered),
            reason => !reason.is_involuntary(),
        };
        decided && self.monitor.kept_since.is_some_and(late) && !self.monitor.without_node.contains(id)
    }

    /// Records deletions of claims whose Node somebody had deleted.
    pub(super) fn observe_deleted_node(&mut self, old: &Claim, new: &Claim) {
        if old.deletion.is_none()
            && new.deletion.is_some()
            && let Some(machine) = new.machine()
            && self.node_of(&machine.provider_id).is_some_and(|node| node.metadata.is_deleting())
        {
            self.monitor.without_node.insert(machine.instance_id.clone());
        }
    }

    /// Whether the scheduler may still bind pods to a node because it was tainted a moment ago.
    fn recently_tainted(&self, node: &str) -> Option<String> {
        let state = self.monitor.node_states.get(node)?;
        // One that has never registered was closed before.
        let is_closed = |node: &Node| node.spec.taints.iter().any(|taint| taint.key == labels::UNREGISTERED_TAINT);
        if self.cluster.objects.nodes.get(node).is_some_and(is_closed) {
            return None;
        }
        let lately = state.tainted && state.tainted_changed > self.ago(UNKNOWN_YET);
        lately.then(|| format!("node {node} had just been tainted"))
    }

    /// What must not be left on a node that was drained at `decided`. What arrived in the last moments before that does not count.
    fn remaining_on(&self, node: &str, decided: Timestamp) -> Option<String> {
        let objects = &self.cluster.objects;
        let before = decided.checked_sub(self.stale()).unwrap_or(Timestamp::MIN);
        let stays = |pod: &&Pod| is_rescheduled(pod) && !pod.metadata.is_deleting() && ran_since(pod, before);
        if let Some(pod) = objects.pods_on(node).find(stays) {
            return Some(format!("pod {} was running on it", pod.metadata.key()));
        }
        let used = |volume: &str| {
            let claims = objects.volume_claims.values().filter(|claim| claim.spec.volume_name == volume);
            let names: Vec<&str> = claims.map(|claim| claim.metadata.name.as_str()).collect();
            let uses = |pod: &Pod| {
                pod.spec
                    .volumes
                    .iter()
                    .filter_map(|one| one.persistent_volume_claim.as_ref())
                    .any(|source| names.contains(&source.claim_name.as_str()))
            };
            objects.pods_on(node).any(|pod| keeps_volumes(pod) && uses(pod))
        };
        let attached = objects.volume_attachments.values().filter(|one| one.spec.node_name == node);
        let held = |volume: &str, since: Option<Timestamp>| !volume.is_empty() && since.is_none_or(|at| at <= before) && !used(volume);
        let mut held = attached.filter(|one| held(&one.spec.source.persistent_volume_name, one.metadata.creation_timestamp));
        held.next().map(|one| format!("volume {} was attached to it", one.spec.source.persistent_volume_name))
    }

    /// Violations of an eviction that the API would grant.
    pub(crate) fn eviction_faults(&self, key: &str) -> Vec<String> {
        let objects = &self.cluster.objects;
        let Some(pod) = objects.pods.get(key) else { return Vec::new() };
        let name = pod.spec.node_name.as_str();
        let Some(node) = objects.nodes.get(name) else { return Vec::new() };
        let cluster = self.name();
        let of_node = |claim: &&Claim| {
            claim.is_live() && claim.machine().is_some_and(|machine| machine.provider_id.as_str() == node.spec.provider_id)
        };
        let Some(claim) = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(of_node) else {
            // The world has no Whittle.
            let any = self.store.claims_with_hidden(&cluster).next().is_some();
            return if any { vec![format!("pod {key} was evicted from node {name}, which belongs to no claim")] } else { Vec::new() };
        };
        let Some(deletion) = &claim.deletion else {
            return vec![format!("pod {key} was evicted from node {name}, whose claim is in service")];
        };
        let mut faults = Vec::new();
        if self.accepts_pods(name) {
            faults.push(format!("pod {key} was evicted from node {name}, which is not tainted"));
        }
        let kept = [labels::DO_NOT_DISRUPT, labels::DO_NOT_EVICT];
        if kept.iter().any(|annotation| pod.metadata.annotation(annotation) == Some("true")) && pod.status.phase == "Running" {
            faults.push(format!("pod {key} was evicted although it is protected"));
        }
        faults.extend(self.evicted_before(pod, deletion).map(|other| format!("pod {key} was evicted before pod {other}")));
        if is_rescheduled(pod)
            && let Some(why) = self.is_too_early(name, deletion)
        {
            faults.push(format!("pod {key} was evicted although {why}"));
        }
        faults
    }

    /// A pod of the same node that has to be evicted before this one.
    fn evicted_before(&self, pod: &Pod, deletion: &Deletion) -> Option<String> {
        let due = |other: &Pod| {
            let latest = deletion.deadline.and_then(|deadline| deadline.checked_sub(grace(other)).ok());
            latest.is_some_and(|latest| latest <= self.now() + SLACK)
        };
        let holds = |other: &&Pod| {
            let terminating = other.metadata.deletion_timestamp;
            eviction_rank(other) < eviction_rank(pod)
                && is_rescheduled(other)
                && ran_since(other, self.ago(STALE))
                && !due(other)
                && (terminating.is_none()
                    || deletion.deadline.is_none() && terminating.is_some_and(|at| self.now().duration_since(at) < TERMINATING_MAX))
        };
        self.cluster.objects.pods_on(&pod.spec.node_name).find(holds).map(|other| other.metadata.key())
    }

    /// Why the pods of a node must not be evicted yet: they stay until a replacement is planned, and if EC2 reclaims the
    /// machine until the replacement is ready, if that is in time.
    fn is_too_early(&self, node: &str, deletion: &Deletion) -> Option<&'static str> {
        use DeletionReason::{Expired, NodePoolDeleted, Rebalance, Requested, ScheduledChange, SpotInterruption};
        let asks = matches!(deletion.reason, Expired | NodePoolDeleted | Rebalance | Requested | ScheduledChange | SpotInterruption);
        let longest =
            self.cluster.objects.pods_on(node).filter(|pod| is_rescheduled(pod) && !pod.metadata.is_deleting()).map(grace).max()?;
        let last = deletion.deadline.map(|deadline| deadline - longest - EVICTION_TIME - SLACK);
        let spot = deletion.reason == SpotInterruption;
        let in_time = last.is_none_or(|last| self.now() < last) && (!spot || last.is_some());
        if !asks || !in_time {
            return None;
        }
        let cluster = self.name();
        let is_coming = |claim: &Claim, since: Timestamp, until: Timestamp| {
            let phase = matches!(claim.phase, Phase::Planned | Phase::Launching { .. } | Phase::Launched { .. } | Phase::Registered { .. });
            phase && claim.deletion.is_none() && claim.created_at >= since && claim.created_at <= until
        };
        // An unreadable claim is not waited for: only its own content says that it is new.
        let awaited = || self.store.claims(&cluster).any(|stored| is_coming(&stored.value, deletion.at + SLACK, self.ago(RUN_MAX)));
        if spot && awaited() {
            return Some("its replacement is starting and in time");
        }
        let mut all = self.store.claims_with_hidden(&cluster);
        // A claim that has just failed was planned as well.
        let failed =
            |claim: &Claim| claim.created_at >= deletion.at - SLACK && claim.deletion.as_ref().is_some_and(|end| end.at >= self.ago(STALE));
        let planned = all.any(|stored| is_coming(&stored.value, deletion.at - SLACK, Timestamp::MAX) || failed(&stored.value));
        let early = self.now().duration_since(deletion.at) < UNPLANNED && !planned;
        early.then_some("no replacement can have been planned yet")
    }

    /// A claim's deletion begins.
    pub(super) fn observe_ending(&mut self, claim: &Claim, deletion: &Deletion) {
        use DeletionReason::{Drifted, Empty, Underutilized};
        if !matches!(deletion.reason, Drifted | Empty | Underutilized) {
            return;
        }
        let (name, reason) = (claim.key.name.clone(), deletion.reason);
        let there = claim.node_name().and_then(|node| self.cluster.objects.nodes.get(node)).filter(|node| !node.metadata.is_deleting());
        if let Some(node) = there.map(|node| node.metadata.name.clone()) {
            if self.accepts_pods(&node) && !self.was_opened_before_loss(&node) {
                self.report_violation(format!("claim {name} was deleted ({reason:?}) while its node was not tainted"));
            }
            let tainted_at =
                self.monitor.node_states.get(&node).filter(|state| state.tainted).map_or(self.now(), |state| state.tainted_changed);
            // A node is checked once more after it was tainted, which may be long ago, while answers were stale that are not any more.
            let was_stale = self.history.stale_at.is_some_and(|stale_at| tainted_at <= stale_at);
            let before = tainted_at.checked_sub(if was_stale { STALE_ANSWER } else { BOUND_MARGIN }).unwrap_or(tainted_at);
            let bound_before = |pod: &&Pod| is_rescheduled(pod) && !pod.metadata.is_deleting() && was_bound(pod, before);
            let pod = self.cluster.objects.pods_on(&node).find(bound_before).map(|pod| pod.metadata.key());
            if let Some(pod) = pod.filter(|_| reason == Empty) {
                self.report_violation(format!(
                    "claim {name} was deleted as empty although pod {pod} was on its node before it was tainted"
                ));
            }
        }
        let Some((_, command)) = deletion.message.rsplit_once("command ") else { return };
        let cluster = self.name();
        let unready = |other: &&Claim| {
            other.spec.replaces.as_deref() == Some(command) && other.deletion.is_none() && !matches!(other.phase, Phase::Initialized { .. })
        };
        let unready = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(unready).map(|other| other.key.name.clone());
        if let Some(other) = unready {
            self.report_violation(format!("claim {name} was deleted before its replacement {other} was ready"));
        }
    }

    /// Whether a node was untainted before the table was lost: the command of a restored table does not know that it was rolled back since.
    fn was_opened_before_loss(&self, node: &str) -> bool {
        let opened_at = self.monitor.node_states.get(node).filter(|state| !state.tainted).map(|state| state.tainted_changed);
        opened_at.zip(self.monitor.table_lost).is_some_and(|(opened_at, lost_at)| opened_at < lost_at)
    }

    /// Whether a kubelet has reported for long enough that every view contains it.
    pub(super) fn is_kubelet_responsive(&self, node: &str) -> bool {
        self.monitor.node_states.get(node).is_some_and(|state| state.ready && state.ready_changed <= self.ago(STALE))
    }

    pub(super) fn observe_initialized(&mut self, claim: &Claim) {
        let Some(node) = claim.node_name().and_then(|name| self.cluster.objects.nodes.get(name)) else { return };
        let starting = node.spec.taints.iter().any(|taint| claim.spec.startup_taints.iter().any(|own| own.same(taint)));
        let state = self.monitor.node_states.get(&node.metadata.name);
        let unready = state.is_some_and(|state| !state.ready && (!state.was_ready || state.ready_changed <= self.ago(STALE)));
        let (name, node) = (claim.key.name.clone(), node.metadata.name.clone());
        if starting {
            self.report_violation(format!("claim {name} counts as ready although node {node} has a startup taint"));
        }
        if unready {
            self.report_violation(format!("claim {name} counts as ready although node {node} is not ready"));
        }
    }

    /// A claim was created for an orphaned machine, only to terminate it.
    pub(super) fn observe_orphan_adopted(&mut self, id: &InstanceId) {
        let cluster = self.name();
        let launch = self.region.machines.get(id).and_then(|machine| machine.instance.tags.get(labels::TAG_LAUNCH)).cloned();
        let waits = |claim: &&Claim| {
            matches!(&claim.phase, Phase::Launching { client_token, .. } if Some(client_token) == launch.as_ref())
                && claim.deletion.is_none()
        };
        let waiting = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(waits).map(|claim| claim.key.name.clone());
        if let Some(name) = waiting {
            self.report_violation(format!("machine {id} was treated as an orphan while claim {name} was being launched with it"));
        }
        if let Some(name) = self.store.hidden_owner(id) {
            self.report_violation(format!("machine {id} was treated as an orphan although it belongs to the unreadable claim {name}"));
        }
    }

    /// A claim gets a machine, which must not have ended so long ago that every answer of EC2 says so.
    pub(super) fn observe_machine_assigned(&mut self, old: &Claim, new: &Claim) {
        let (None, Some(machine), None) = (old.machine(), new.machine(), &new.deletion) else { return };
        let known = if self.faults.ec2_lag == 0 { ENDED_SEEN } else { ENDED_LAGS };
        let ended_at = self.region.machines.get(&machine.instance_id).and_then(|machine| machine.ended_at);
        if ended_at.is_some_and(|at| self.now().duration_since(at) > known) && !self.is_missing(&machine.instance_id) {
            self.report_violation(format!("claim {} got {}, which was already terminated", new.key.name, machine.instance_id));
        }
    }

    /// A launching claim is given up without a machine. One of its call may have been another claim's until an uninstallation released it.
    pub(super) fn observe_abandoned(&mut self, old: &Claim, new: &Claim) {
        let (Phase::Launching { client_token, .. }, Phase::Gone { machine: None, .. }) = (&old.phase, &new.phase) else { return };
        let unnamed = |(id, machine): &(&InstanceId, &crate::region::Machine)| {
            machine.instance.is_alive()
                && machine.instance.tags.get(labels::TAG_LAUNCH) == Some(client_token)
                && self.store.owner(id).is_none()
                && self.ended_under(id).is_none()
                && !self.was_released(id)
                && !self.is_missing(id)
        };
        let left = self.region.machines.iter().find(unnamed).map(|(id, _)| id.clone());
        if let Some(id) = left {
            self.report_violation(format!("claim {} was abandoned while its machine {id} ran", new.key.name));
        }
    }

    /// The finalizer of a node class is removed: no claim may use it any more.
    pub(crate) fn observe_class_finalizer_removed(&mut self, class: &str) {
        let cluster = self.name();
        let uses = |claim: &&Claim| claim.is_live() && claim.spec.node_class.name == class;
        let user = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(uses).map(|claim| claim.key.name.clone());
        if let Some(user) = user {
            self.report_violation(format!("class {class} was released although claim {user} uses it"));
        }
    }

    /// A record of a class is written: if it says that the class does not exist, that must be true.
    pub(crate) fn observe_class_record(&mut self, record: &serde_json::Value) {
        let is_missing = |problem: &serde_json::Value| problem.as_str().is_some_and(|text| text.contains("does not exist any more"));
        let says = record.get("problems").and_then(serde_json::Value::as_array).is_some_and(|problems| problems.iter().any(is_missing));
        let name = record.pointer("/class/metadata/name").and_then(serde_json::Value::as_str).unwrap_or_default();
        let there = self.cluster.objects.node_classes.values().any(|class| class.metadata.name == name && !class.metadata.is_deleting());
        if says && there && !self.is_uninstalling() {
            self.report_violation(format!("class {name} was recorded as deleted although it exists"));
        }
    }

    /// Nodes of machines that Whittle let go, with a taint of Whittle's that nobody removes any more.
    pub(crate) fn left_tainted(&self) -> Vec<String> {
        let cluster = self.name();
        // A restored table may contain a claim whose machine was already released.
        let claimed = |node: &Node| {
            let mut claims = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value);
            claims.any(|claim| claim.is_live() && claim.node_name() == Some(node.metadata.name.as_str()))
        };
        let released = |node: &Node| self.machine_of_provider(&node.spec.provider_id).is_some_and(|id| self.was_released(&id));
        let is_closed =
            |node: &Node| node.has_disrupted_taint() || node.spec.taints.iter().any(|taint| taint.key == labels::UNREGISTERED_TAINT);
        let nodes = self.cluster.objects.nodes.values().filter(|node| is_closed(node) && released(node) && !claimed(node));
        nodes.map(|node| format!("node {} was let go and stays tainted", node.metadata.name)).collect()
    }

    /// Nodes that stay tainted although their claims are not being deleted, once the world is quiescent.
    pub(crate) fn needlessly_tainted(&self) -> Vec<String> {
        let cluster = self.name();
        let serves = |node: &Node| {
            let of_node = |claim: &Claim| claim.deletion.is_none() && claim.node_name() == Some(node.metadata.name.as_str());
            self.store.claims_with_hidden(&cluster).any(|stored| of_node(&stored.value))
        };
        let shown = |node: &Node| {
            let object =
                self.cluster.objects.node_claims.values().find(|object: &&NodeClaim| object.status.node_name == node.metadata.name);
            object.is_none_or(|object| !object.metadata.is_deleting()) && !node.metadata.is_deleting()
        };
        let nodes = self.cluster.objects.nodes.values().filter(|node| node.has_disrupted_taint() && serves(node) && shown(node));
        nodes.map(|node| format!("node {} is tainted although its claim is in service", node.metadata.name)).collect()
    }
}

//! What must hold when pods leave, commands begin and machines end: by what the cluster and EC2 are in truth, whatever the
//! claims know, and with whatever faults.

use super::SLACK;
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Pod};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{conditions, labels};
use whittle_claims::{Claim, Deletion, DeletionReason, Phase};
use whittle_units::{InstanceId, ProviderId};

/// Whoever decides may have been shown the cluster as it was so long ago, and taken a while over it.
const STALE: SignedDuration = SignedDuration::from_secs(12);
/// An answer of the API server may be so old.
const STALE_ANSWER: SignedDuration = SignedDuration::from_secs(6);
/// And where no answer is stale: a pod that is bound while the node is being closed may come after the look.
const SHOWN: SignedDuration = SignedDuration::from_millis(1);
/// The same where neither reads nor replies nor the scheduler are late.
const STALE_AT_LEAST: SignedDuration = SignedDuration::from_secs(4);
/// The scheduler may not know yet of a node that was closed so lately, by whatever clock.
const UNKNOWN_YET: SignedDuration = SignedDuration::from_millis(2_500);
/// The longest that a run lasts which decides to evict.
pub(super) const RUN_MAX: SignedDuration = SignedDuration::from_secs(32);
/// Terminating pods hold others back for a minute at most.
const HOLDS: SignedDuration = SignedDuration::from_secs(50);
/// What evictions are left at least, beside the longest grace of a pod, where pods wait for a machine.
const TO_EVICT: SignedDuration = SignedDuration::from_secs(25);
/// A machine that ended so long ago is seen to have: by everybody, and where EC2's answers lag.
const ENDED_SEEN: SignedDuration = SignedDuration::from_secs(20);
const ENDED_LAGS: SignedDuration = SignedDuration::from_secs(75);
/// Nothing can have been planned so soon after a claim began to end.
const UNPLANNED: SignedDuration = SignedDuration::from_secs(3);
/// What Kubernetes gives a pod that says nothing.
const GRACE_SECONDS: i64 = 30;

/// A Node as it was last, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    closed: bool,
    closed_changed: Timestamp,
    ready: bool,
    ready_changed: Timestamp,
    /// It is one of ours, and carried its finalizer or should have.
    registered: bool,
    was_ready: bool,
}

fn is_closed(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == labels::DISRUPTED_TAINT)
}

fn is_ready(node: &Node) -> bool {
    conditions::is_true(&node.status.conditions, conditions::READY)
}

/// Whether a pod moves when its node goes: it runs for somebody who brings it back elsewhere.
fn moves(pod: &Pod) -> bool {
    let owned = pod.metadata.controller().is_some_and(|owner| matches!(owner.kind.as_str(), "ReplicaSet" | "StatefulSet"));
    let tolerant = pod.spec.tolerations.iter().any(|one| one.key.is_empty() || one.key == labels::DISRUPTED_TAINT);
    owned && !tolerant && !pod.is_terminal()
}

fn ran_since(pod: &Pod, before: Timestamp) -> bool {
    pod.status.phase == "Running" && pod.status.start_time.is_some_and(|at| at <= before)
}

/// The scheduler had given it its node by then.
fn was_bound(pod: &Pod, before: Timestamp) -> bool {
    let scheduled = pod.condition("PodScheduled").filter(|condition| condition.status == "True");
    scheduled.and_then(|condition| condition.last_transition_time).is_some_and(|at| at <= before)
}

/// Those of the system go after all others, daemons last of each.
fn rank(pod: &Pod) -> u8 {
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

    /// Notes what changed about Nodes that matters here. A Node of ours must not vanish while its machine serves.
    pub(crate) fn watch_nodes(&mut self) {
        let now = self.now();
        let mut marks = BTreeMap::new();
        for (name, node) in &self.cluster.objects.nodes {
            let known = self.watched.marks.get(name);
            let (closed, ready) = (is_closed(node), is_ready(node));
            let since = |same: Option<(bool, Timestamp)>, value: bool| match same {
                Some((before, at)) if before == value => at,
                _ => now,
            };
            let registered = node.metadata.label(labels::REGISTERED) == Some("true");
            marks.insert(
                name.clone(),
                Mark {
                    closed,
                    closed_changed: since(known.map(|mark| (mark.closed, mark.closed_changed)), closed),
                    ready,
                    ready_changed: since(known.map(|mark| (mark.ready, mark.ready_changed)), ready),
                    registered,
                    was_ready: ready || known.is_some_and(|mark| mark.was_ready),
                },
            );
        }
        let before = std::mem::replace(&mut self.watched.marks, marks);
        let gone: Vec<String> = before
            .into_iter()
            .filter(|(name, mark)| mark.registered && !self.watched.marks.contains_key(name))
            .map(|(name, _)| name)
            .collect();
        for name in gone {
            self.watch_vanished(&name);
        }
    }

    fn watch_vanished(&mut self, node: &str) {
        let cluster = self.name();
        let of_node = |claim: &&Claim| claim.is_live() && claim.node_name() == Some(node);
        let claim = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(of_node);
        let machine = claim.and_then(|claim| claim.machine()).map(|machine| machine.instance_id.clone());
        let alive = |id: &InstanceId| self.region.machines.get(id).is_some_and(|machine| machine.instance.is_alive());
        // A claim of an older table may have been brought back that Whittle had left.
        let left = |id: &InstanceId| self.has_lost_its_table() && self.was_let_go(id);
        if let Some(id) = machine.filter(alive).filter(|id| !left(id)) {
            self.broke(format!("node {node} vanished while its machine {id} ran"));
        }
    }

    /// How old what anybody sees may be.
    fn stale(&self) -> SignedDuration {
        let faults = &self.faults;
        let prompt = faults.stale_reads + faults.partial_reads + faults.slow_replies + faults.scheduler_lag_ms / 3_000 == 0;
        if prompt { STALE_AT_LEAST } else { STALE }
    }

    /// Whether a node has been open to new pods for longer than anybody's view is old.
    fn is_open(&self, node: &str) -> bool {
        self.watched.marks.get(node).is_some_and(|mark| !mark.closed && mark.closed_changed <= self.ago(STALE))
    }

    fn node_of(&self, provider: &ProviderId) -> Option<&Node> {
        self.cluster.objects.nodes.values().find(|node| node.spec.provider_id == provider.as_str())
    }

    /// Somebody asks EC2 to end a machine.
    pub(crate) fn watch_terminated(&mut self, id: &InstanceId) {
        let Some(machine) = self.region.machines.get(id).filter(|machine| machine.instance.is_alive()) else { return };
        let provider = machine.instance.provider_id();
        let text = match self.store.owner(id) {
            None => format!("machine {id} was ended without a claim"),
            Some(claim) => match &claim.deletion {
                None => format!("machine {id} was ended while claim {} served", claim.key.name),
                Some(deletion) if self.was_to_stay(id, deletion) => {
                    format!("machine {id} was ended ({:?}) although Whittle was to leave it", deletion.reason)
                }
                Some(deletion) => {
                    let overdue = deletion.deadline.is_some_and(|deadline| deadline <= self.now() + SLACK);
                    if overdue || deletion.reason.is_involuntary() {
                        return;
                    }
                    let node = self.node_of(&provider);
                    let left =
                        node.and_then(|node| self.left_on(&node.metadata.name).or_else(|| self.only_just_closed(&node.metadata.name)));
                    match left {
                        Some(left) => format!("machine {id} was ended while {left}"),
                        None => return,
                    }
                }
            },
        };
        self.broke(text);
    }

    /// Whether a machine was to run on without Whittle before its end was decided. Without its Node nobody would want it to.
    fn was_to_stay(&self, id: &InstanceId, deletion: &Deletion) -> bool {
        let late = |since: Timestamp| deletion.at > since + RUN_MAX;
        // Nor is a launch waited for for ever that nobody hears of.
        let decided = !deletion.reason.is_involuntary() && deletion.reason != DeletionReason::LaunchTimeout;
        decided && self.watched.kept_since.is_some_and(late) && !self.watched.without_node.contains(id)
    }

    /// Notes where the end of a claim is decided after somebody deleted its Node.
    pub(super) fn watch_deleted_node(&mut self, old: &Claim, new: &Claim) {
        if old.deletion.is_none()
            && new.deletion.is_some()
            && let Some(machine) = new.machine()
            && self.node_of(&machine.provider_id).is_some_and(|node| node.metadata.is_deleting())
        {
            self.watched.without_node.insert(machine.instance_id.clone());
        }
    }

    /// Whether the scheduler may still bind pods to a node because it was closed a moment ago.
    fn only_just_closed(&self, node: &str) -> Option<String> {
        let mark = self.watched.marks.get(node)?;
        let lately = mark.closed && mark.closed_changed > self.ago(UNKNOWN_YET);
        lately.then(|| format!("node {node} had only just been closed to new pods"))
    }

    /// What a drained node must not hold any more. What came in the last moments is not meant.
    fn left_on(&self, node: &str) -> Option<String> {
        let objects = &self.cluster.objects;
        let before = self.ago(self.stale());
        let stays = |pod: &&Pod| moves(pod) && !pod.metadata.is_deleting() && ran_since(pod, before);
        if let Some(pod) = objects.pods_on(node).find(stays) {
            return Some(format!("pod {} ran on it", pod.metadata.key()));
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
            objects.pods_on(node).any(uses)
        };
        let attached = objects.volume_attachments.values().filter(|one| one.spec.node_name == node);
        let held = |volume: &str, since: Option<Timestamp>| !volume.is_empty() && since.is_none_or(|at| at <= before) && !used(volume);
        let mut held = attached.filter(|one| held(&one.spec.source.persistent_volume_name, one.metadata.creation_timestamp));
        held.next().map(|one| format!("volume {} was attached to it", one.spec.source.persistent_volume_name))
    }

    /// What speaks against the eviction of a pod that the API would grant.
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
            // A world without Whittle.
            let any = self.store.claims_with_hidden(&cluster).next().is_some();
            return if any { vec![format!("pod {key} was evicted from node {name}, which is no claim's")] } else { Vec::new() };
        };
        let Some(deletion) = &claim.deletion else {
            return vec![format!("pod {key} was evicted from node {name}, whose claim serves")];
        };
        let mut faults = Vec::new();
        if self.is_open(name) {
            faults.push(format!("pod {key} was evicted from node {name}, which takes new ones"));
        }
        let kept = [labels::DO_NOT_DISRUPT, labels::DO_NOT_EVICT];
        if kept.iter().any(|annotation| pod.metadata.annotation(annotation) == Some("true")) && pod.status.phase == "Running" {
            faults.push(format!("pod {key} was evicted although its owner asked to leave it"));
        }
        faults.extend(self.comes_before(pod, deletion).map(|other| format!("pod {key} was evicted before pod {other}")));
        if moves(pod)
            && let Some(why) = self.should_hold(name, deletion)
        {
            faults.push(format!("pod {key} was evicted although {why}"));
        }
        faults
    }

    /// A pod of the same node that has to go before this one.
    fn comes_before(&self, pod: &Pod, deletion: &Deletion) -> Option<String> {
        let due = |other: &Pod| {
            let latest = deletion.deadline.and_then(|deadline| deadline.checked_sub(grace(other)).ok());
            latest.is_some_and(|latest| latest <= self.now() + SLACK)
        };
        let holds = |other: &&Pod| {
            let going = other.metadata.deletion_timestamp;
            rank(other) < rank(pod)
                && moves(other)
                && ran_since(other, self.ago(STALE))
                && !due(other)
                && (going.is_none() || deletion.deadline.is_none() && going.is_some_and(|at| self.now().duration_since(at) < HOLDS))
        };
        self.cluster.objects.pods_on(&pod.spec.node_name).find(holds).map(|other| other.metadata.key())
    }

    /// Why the pods of a node stay for a while yet: they keep their place until another is planned, and where EC2 takes the
    /// machine until the next is ready, if that is in time.
    fn should_hold(&self, node: &str, deletion: &Deletion) -> Option<&'static str> {
        use DeletionReason::{Expired, NodePoolDeleted, Rebalance, Requested, ScheduledChange, SpotInterruption};
        let asks = matches!(deletion.reason, Expired | NodePoolDeleted | Rebalance | Requested | ScheduledChange | SpotInterruption);
        let longest = self.cluster.objects.pods_on(node).filter(|pod| moves(pod) && !pod.metadata.is_deleting()).map(grace).max()?;
        let last = deletion.deadline.map(|deadline| deadline - longest - TO_EVICT - SLACK);
        let spot = deletion.reason == SpotInterruption;
        let in_time = last.is_none_or(|last| self.now() < last) && (!spot || last.is_some());
        if !asks || !in_time {
            return None;
        }
        let cluster = self.name();
        let comes = |claim: &Claim, since: Timestamp, until: Timestamp| {
            let phase = matches!(claim.phase, Phase::Planned | Phase::Launching { .. } | Phase::Launched { .. } | Phase::Registered { .. });
            phase && claim.deletion.is_none() && claim.created_at >= since && claim.created_at <= until
        };
        // One that cannot be read is awaited by nobody: only itself says that it is new.
        let awaited = || self.store.claims(&cluster).any(|stored| comes(&stored.value, deletion.at + SLACK, self.ago(RUN_MAX)));
        if spot && awaited() {
            return Some("its next machine is on its way and in time");
        }
        let mut all = self.store.claims_with_hidden(&cluster);
        // One that failed a moment ago was planned all the same.
        let failed =
            |claim: &Claim| claim.created_at >= deletion.at - SLACK && claim.deletion.as_ref().is_some_and(|end| end.at >= self.ago(STALE));
        let planned = all.any(|stored| comes(&stored.value, deletion.at - SLACK, Timestamp::MAX) || failed(&stored.value));
        let early = self.now().duration_since(deletion.at) < UNPLANNED && !planned;
        early.then_some("nothing can have been planned for it yet")
    }

    /// A claim begins to end.
    pub(super) fn watch_ending(&mut self, claim: &Claim, deletion: &Deletion) {
        use DeletionReason::{Drifted, Empty, Underutilized};
        if !matches!(deletion.reason, Drifted | Empty | Underutilized) {
            return;
        }
        let (name, reason) = (claim.key.name.clone(), deletion.reason);
        let there = claim.node_name().and_then(|node| self.cluster.objects.nodes.get(node)).filter(|node| !node.metadata.is_deleting());
        if let Some(node) = there.map(|node| node.metadata.name.clone()) {
            if self.is_open(&node) {
                self.broke(format!("claim {name} was ended ({reason:?}) while its node took new pods"));
            }
            let closed_at = self.watched.marks.get(&node).filter(|mark| mark.closed).map_or(self.now(), |mark| mark.closed_changed);
            // Whoever closes a node looks at it once more.
            let before = closed_at.checked_sub(if self.faults.stale_reads > 0 { STALE_ANSWER } else { SHOWN }).unwrap_or(closed_at);
            let came = |pod: &&Pod| moves(pod) && !pod.metadata.is_deleting() && was_bound(pod, before);
            let pod = self.cluster.objects.pods_on(&node).find(came).map(|pod| pod.metadata.key());
            if let Some(pod) = pod.filter(|_| reason == Empty) {
                self.broke(format!("claim {name} was ended as empty although pod {pod} was on its node before that was closed"));
            }
        }
        let Some((_, command)) = deletion.message.rsplit_once("command ") else { return };
        let cluster = self.name();
        let unready = |other: &&Claim| {
            other.spec.replaces.as_deref() == Some(command) && other.deletion.is_none() && !matches!(other.phase, Phase::Initialized { .. })
        };
        let unready = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(unready).map(|other| other.key.name.clone());
        if let Some(other) = unready {
            self.broke(format!("claim {name} was ended before {other}, which replaces it, was ready"));
        }
    }

    /// Whether a kubelet has spoken for long enough that everybody knows.
    pub(super) fn speaks(&self, node: &str) -> bool {
        self.watched.marks.get(node).is_some_and(|mark| mark.ready && mark.ready_changed <= self.ago(STALE))
    }

    /// A claim's node is said to be ready for pods.
    pub(super) fn watch_initialized(&mut self, claim: &Claim) {
        let Some(node) = claim.node_name().and_then(|name| self.cluster.objects.nodes.get(name)) else { return };
        let starting = node.spec.taints.iter().any(|taint| claim.spec.startup_taints.iter().any(|own| own.same(taint)));
        let mark = self.watched.marks.get(&node.metadata.name);
        let unready = mark.is_some_and(|mark| !mark.ready && (!mark.was_ready || mark.ready_changed <= self.ago(STALE)));
        let (name, node) = (claim.key.name.clone(), node.metadata.name.clone());
        if starting {
            self.broke(format!("claim {name} counts as ready although node {node} has a startup taint"));
        }
        if unready {
            self.broke(format!("claim {name} counts as ready although node {node} is not"));
        }
    }

    /// A claim was made for a machine that had none, only to end it.
    pub(super) fn watch_collected(&mut self, id: &InstanceId) {
        let cluster = self.name();
        let launch = self.region.machines.get(id).and_then(|machine| machine.instance.tags.get(labels::TAG_LAUNCH)).cloned();
        let waits = |claim: &&Claim| {
            matches!(&claim.phase, Phase::Launching { client_token, .. } if Some(client_token) == launch.as_ref())
                && claim.deletion.is_none()
        };
        let waiting = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(waits).map(|claim| claim.key.name.clone());
        if let Some(name) = waiting {
            self.broke(format!("machine {id} was taken for an orphan while claim {name} was being launched with it"));
        }
        if let Some(name) = self.store.hidden_owner(id) {
            self.broke(format!("machine {id} was taken for an orphan although claim {name}, which cannot be read, has it"));
        }
    }

    /// A claim gets a machine, which may not have ended before: not so long ago that every answer of EC2 says so.
    pub(super) fn watch_given(&mut self, old: &Claim, new: &Claim) {
        let (None, Some(machine), None) = (old.machine(), new.machine(), &new.deletion) else { return };
        let known = if self.faults.ec2_lag == 0 { ENDED_SEEN } else { ENDED_LAGS };
        let ended_at = self.region.machines.get(&machine.instance_id).and_then(|machine| machine.ended_at);
        if ended_at.is_some_and(|at| self.now().duration_since(at) > known) && !self.seems_lost(&machine.instance_id) {
            self.broke(format!("claim {} got {}, which had ended before", new.key.name, machine.instance_id));
        }
    }

    /// A claim that was being launched is given up without a machine.
    pub(super) fn watch_abandoned(&mut self, old: &Claim, new: &Claim) {
        let (Phase::Launching { client_token, .. }, Phase::Gone { machine: None, .. }) = (&old.phase, &new.phase) else { return };
        let unnamed = |(id, machine): &(&InstanceId, &crate::region::Machine)| {
            machine.instance.is_alive()
                && machine.instance.tags.get(labels::TAG_LAUNCH) == Some(client_token)
                && self.store.owner(id).is_none()
                && !self.seems_lost(id)
        };
        let left = self.region.machines.iter().find(unnamed).map(|(id, _)| id.clone());
        if let Some(id) = left {
            self.broke(format!("claim {} was given up while its machine {id} ran", new.key.name));
        }
    }

    /// A node class is let go: nothing may use it any more.
    pub(crate) fn watch_class_let_go(&mut self, class: &str) {
        let cluster = self.name();
        let uses = |claim: &&Claim| claim.is_live() && claim.spec.node_class.name == class;
        let user = self.store.claims_with_hidden(&cluster).map(|stored| &stored.value).find(uses).map(|claim| claim.key.name.clone());
        if let Some(user) = user {
            self.broke(format!("class {class} was let go although claim {user} uses it"));
        }
    }

    /// A record of a class is written: one that says that its class is gone must be right.
    pub(crate) fn watch_class_record(&mut self, record: &serde_json::Value) {
        let gone = |problem: &serde_json::Value| problem.as_str().is_some_and(|text| text.contains("does not exist any more"));
        let says = record.get("problems").and_then(serde_json::Value::as_array).is_some_and(|problems| problems.iter().any(gone));
        let name = record.pointer("/class/metadata/name").and_then(serde_json::Value::as_str).unwrap_or_default();
        let there = self.cluster.objects.node_classes.values().any(|class| class.metadata.name == name && !class.metadata.is_deleting());
        if says && there && !self.is_left() {
            self.broke(format!("class {name} was closed although it is there"));
        }
    }

    /// Nodes that stay closed although their claims serve, once the world has come to rest.
    pub(crate) fn closed_for_nothing(&self) -> Vec<String> {
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
        let nodes = self.cluster.objects.nodes.values().filter(|node| is_closed(node) && serves(node) && shown(node));
        nodes.map(|node| format!("node {} takes no pods although its claim serves", node.metadata.name)).collect()
    }
}

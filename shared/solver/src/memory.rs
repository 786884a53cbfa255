//! What earlier passes found out: the pods that they could not place, and the state of the cluster at the time. While nothing
//! has changed that could help such a pod, it is not evaluated again, except once in five minutes.
//!
//! Only improvements count: a node that fills up helps no pod. What a pod requires of other pods, and how much of a limit they
//! leave, changes with every pod, so such pods are also compared with the pods of the cluster.

use crate::hash::Mix;
use serde::{Deserialize, Serialize};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{Hash as _, Hasher};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::Pod;
use whittle_api::{ClusterObjects, conditions};
use whittle_model::pods;
use whittle_model::scheduling::{Cause, Input, Options, Plan, Reason, Settled, Unready};
use whittle_model::state::StateNode;
use whittle_units::{Fnv1a, SignedDuration, Timestamp};

/// Above this number, all nodes are remembered as one hash: a change of any node then counts.
const NODES_MAX: usize = 1000;
/// Pods beyond this number are not remembered but evaluated every time.
const PODS_MAX: usize = 2000;
/// Reasons beyond this number are not remembered.
const REASONS_MAX: usize = 100;
/// Longer messages are truncated.
const MESSAGE_MAX: usize = 600;
/// Everything is evaluated again once in this time, even if nothing seems to have changed.
pub const VALID_FOR: SignedDuration = SignedDuration::from_mins(5);

/// The memory of one cluster. It may be lost at any time: the next pass then only takes longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Hash of everything except nodes and pods, and of the span of [`VALID_FOR`] in which it was made: the memory ends with that span.
    general: u64,
    /// Which span that was; 0 in records of earlier releases.
    #[serde(skip_serializing_if = "is_zero")]
    span: u64,
    /// Hash of all pods, as far as the constraints of other pods see them.
    neighbours: u64,
    /// By node; empty with more than `NODES_MAX` nodes.
    rooms: BTreeMap<String, NodeRoom>,
    /// Hash of all nodes, where `rooms` is empty.
    nodes: u64,
    /// The distinct reasons: many pods share few of them.
    #[serde(rename = "said")]
    reasons: Vec<StoredReason>,
    /// By uid.
    pods: BTreeMap<String, StoredPod>,
}

/// A reason: category and message.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct StoredReason(String, String);

impl StoredReason {
    fn of(reason: &Reason) -> Self {
        let mut message = reason.to_string();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_MAX) {
            message.truncate(end);
            message.push('…');
        }
        Self(reason.category().to_owned(), message)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A pod that had no place: a hash of everything that scheduling sees of it, whether its placement depends on other pods, and
/// the position of its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredPod(u64, bool, usize);

/// The free capacity of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct NodeRoom {
    /// Hash of labels, taints and capacity.
    #[serde(rename = "is")]
    identity: u64,
    /// Free amounts in milli-units, by resource.
    free: BTreeMap<String, i64>,
    /// Hashes of the host ports and persistent volumes in use.
    used: BTreeSet<u64>,
}

/// A hash that is the same in every process and version.
#[derive(Default)]
struct Hash(Fnv1a);

impl Hash {
    fn text(&mut self, text: &str) -> &mut Self {
        self.0.write(text.as_bytes());
        self.0.write(&[0xff]);
        self
    }
    fn number(&mut self, number: u64) -> &mut Self {
        self.0.write(&number.to_le_bytes());
        self
    }
    fn object(&mut self, object: &impl Serialize) -> &mut Self {
        self.text(&serde_json::to_string(object).expect("objects are plain data"))
    }
}

impl Memory {
    /// The pods of `input` that an earlier pass could not place and that no change since could have helped, for
    /// [`Options::settled`].
    #[must_use]
    pub fn settled(&self, input: &Input<'_>, options: &Options) -> BTreeMap<String, Settled> {
        if self.pods.is_empty() || self.general != general(input, options) || self.has_more_room(input) {
            return BTreeMap::new();
        }
        let neighbours = self.neighbours == neighbours(input);
        let still = |pod: &&Pod| {
            let StoredPod(then, depends_on_others, reason) = *self.pods.get(&pod.metadata.uid)?;
            let StoredReason(category, message) = self.reasons.get(reason)?.clone();
            let settled = Settled { category, message, depends_on_others };
            (then == pod_hash(pod) && (neighbours || !depends_on_others)).then(|| (pod.metadata.uid.clone(), settled))
        };
        input.objects.pods.iter().filter(|pod| pods::is_provisionable(pod)).filter_map(|pod| still(&pod)).collect()
    }

    /// What to remember after a pass, where `plan` is the result of [`super::solve()`] for `input`.
    #[must_use]
    pub fn after(input: &Input<'_>, options: &Options, plan: &Plan) -> Self {
        let by_uid: BTreeMap<&str, &Pod> = input.objects.pods.iter().map(|pod| (pod.metadata.uid.as_str(), pod)).collect();
        let volumes = LazyCell::new(|| pods::Volumes::of(input.objects));
        let mut reasons: Vec<StoredReason> = Vec::new();
        let mut pods: BTreeMap<String, StoredPod> = BTreeMap::new();
        for left in plan.left_out.iter().filter(|left| is_lasting(&left.reason)).take(PODS_MAX) {
            let Some(pod) = by_uid.get(left.pod.uid.as_str()) else { continue };
            let reason = StoredReason::of(&left.reason);
            let at = reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            let depends_on_others = depends_on_other_pods(pod)
                || left.reason.depends_on_limits()
                || !options.default_spread.is_empty()
                || !volumes.one_pod_claims(pod).is_empty();
            pods.insert(left.pod.uid.clone(), StoredPod(pod_hash(pod), depends_on_others, at));
            if reasons.len() >= REASONS_MAX {
                break;
            }
        }
        if pods.is_empty() {
            return Self::default();
        }
        let (rooms, nodes) = if input.nodes.len() > NODES_MAX {
            (BTreeMap::new(), all_nodes(input))
        } else {
            (input.nodes.iter().map(|node| (node.name().to_owned(), room(input, node))).collect(), 0)
        };
        Self { general: general(input, options), span: span_of(input.now), neighbours: neighbours(input), rooms, nodes, reasons, pods }
    }

    /// Whether a pass in the span of [`VALID_FOR`] that includes `now` left the pod out for this reason already. It may be one that every
    /// pass evaluates, because some node has more room than before each time: then its reason is no news.
    #[must_use]
    pub fn has_reason(&self, uid: &str, reason: &Reason, now: Timestamp) -> bool {
        let known = self.pods.get(uid).and_then(|StoredPod(_, _, at)| self.reasons.get(*at));
        self.span == span_of(now) && known.is_some_and(|known| *known == StoredReason::of(reason))
    }

    /// Whether some node has more free capacity than before, or a node was removed, which frees limits and domains.
    fn has_more_room(&self, input: &Input<'_>) -> bool {
        if input.nodes.len() > NODES_MAX || self.rooms.is_empty() {
            return self.nodes != if input.nodes.is_empty() { 0 } else { all_nodes(input) };
        }
        let names: BTreeSet<&str> = input.nodes.iter().map(StateNode::name).collect();
        if self.rooms.keys().any(|name| !names.contains(name.as_str())) {
            return true;
        }
        input.nodes.iter().any(|node| {
            let Some(then) = self.rooms.get(node.name()) else { return true };
            let now = room(input, node);
            let grown = now.free.iter().any(|(name, amount)| *amount > then.free.get(name).copied().unwrap_or(0));
            now.identity != then.identity || grown || !then.used.is_subset(&now.used)
        })
    }
}

/// Whether a reason holds until something changes; the others end with the pass.
fn is_lasting(reason: &Reason) -> bool {
    let passed = matches!(reason, Reason::Pools(rejections) if rejections.iter().any(|rejection| matches!(rejection.cause, Cause::TransientDuringPass)));
    !passed
        && !matches!(
            reason,
            Reason::Reserved(_)
                | Reason::OutOfBudget
                | Reason::OverQuota { .. }
                | Reason::AwaitsOverQuota
                | Reason::RejectedByChecker(_)
                | Reason::Truncated { .. }
                | Reason::Uninitialized { .. }
        )
}

/// A hash of everything that scheduling sees of a pod.
fn pod_hash(pod: &Pod) -> u64 {
    let mut hash = Hash::default();
    hash.text(&pod.metadata.namespace).object(&pod.metadata.labels).object(&pod.metadata.owner_references).object(&pod.spec);
    hash.object(&pod.status.container_statuses).object(&pod.status.resources).object(&pod.status.allocated_resources);
    hash.0.finish()
}

fn depends_on_other_pods(pod: &Pod) -> bool {
    let affinity = pod.spec.affinity.as_ref();
    !pod.spec.topology_spread_constraints.is_empty() || affinity.is_some_and(|a| a.pod_affinity.is_some() || a.pod_anti_affinity.is_some())
}

/// A hash of all pods as the constraints of others see them: labels and location.
fn neighbours(input: &Input<'_>) -> u64 {
    let of = |pod: &Pod| {
        let mut hash = Hash::default();
        let leaving = pod.metadata.is_deleting() || pod.is_terminal();
        hash.text(&pod.metadata.uid).text(&pod.spec.node_name).number(u64::from(leaving)).object(&pod.metadata.labels);
        hash.0.finish()
    };
    // The order of the pods does not matter.
    input.objects.pods.iter().chain(input.virtual_pods).fold(0, |sum, pod| sum.wrapping_add(of(pod)))
}

/// Numbers the spans of `VALID_FOR` since 1970. When a new span begins, everything is evaluated again.
fn span_of(now: Timestamp) -> u64 {
    now.as_second().div_euclid(VALID_FOR.as_secs()).cast_unsigned()
}

fn general(input: &Input<'_>, options: &Options) -> u64 {
    let mut hash = Hash::default();
    hash.number(span_of(input.now));
    hash.text(&format!("{:?} {:?} {:?} {}", options.packing, options.preferences, options.min_values, options.reserved_capacity));
    hash.object(&options.default_spread);
    if !options.default_spread.is_empty() {
        hash.text(&format!("{:?}", input.workloads));
    }
    let ClusterObjects { node_pools, daemon_sets, namespaces, volume_claims, volumes, storage_classes, csi_nodes, .. } = input.objects;
    for pool in sorted(node_pools, |p| p.metadata.key()) {
        let ready = conditions::find(&pool.status.conditions, conditions::READY).map(|c| c.status);
        hash.text(&pool.metadata.name).number(u64::from(pool.metadata.is_deleting())).object(&pool.spec).object(&ready);
        // Reasons quote it.
        if let Some(why) = Unready::of(pool, input.objects) {
            hash.text(&why.to_string());
        }
    }
    for pod in pods::daemon_pods(daemon_sets, &input.objects.pods) {
        hash.text(&pod.metadata.namespace).object(&pods::effective_requests(&pod)).object(&pod.spec.tolerations);
        hash.object(&pod.spec.node_selector).object(&pod.spec.affinity);
        // Pods may have to avoid it.
        hash.object(&pod.metadata.labels).object(&pod.spec.priority).text(&pod.spec.priority_class_name);
        for taken in pods::host_ports(&pod) {
            hash.text(&taken.ip).number(u64::from(taken.port.cast_unsigned())).text(&taken.protocol);
        }
        // Of a template no pod runs, which matters to those that have to be beside one.
        hash.number(u64::from(!pod.metadata.uid.is_empty()));
    }
    for set in sorted(daemon_sets, |set| set.metadata.key()) {
        let template = &set.spec.template;
        hash.text(&set.metadata.key()).number(u64::from(set.metadata.is_deleting())).object(&template.metadata.labels);
        hash.object(&template.spec.tolerations).object(&template.spec.node_selector).object(&template.spec.affinity);
    }
    sorted(namespaces, |n| n.metadata.key()).iter().for_each(|n| {
        hash.text(&n.metadata.name).object(&n.metadata.labels);
    });
    for claim in sorted(volume_claims, |c| c.metadata.key()) {
        let bound = claim.metadata.annotations.len() as u64;
        hash.text(&claim.metadata.key())
            .number(u64::from(claim.metadata.is_deleting()))
            .number(bound)
            .text(claim.metadata.annotation(pods::SELECTED_NODE).unwrap_or_default())
            .object(&claim.spec)
            // Since Kubernetes 1.37 claims show whether a pod uses them, which changes with every pod.
            .object(&claim.status["phase"]);
    }
    sorted(volumes, |v| v.metadata.key()).iter().for_each(|v| {
        hash.text(&v.metadata.name).number(u64::from(v.metadata.is_deleting())).object(&v.metadata.labels).object(&v.spec);
        hash.text(&v.status.phase);
    });
    sorted(storage_classes, |c| c.metadata.key()).iter().for_each(|c| {
        hash.object(c);
    });
    sorted(csi_nodes, |c| c.metadata.key()).iter().for_each(|c| {
        hash.text(&c.metadata.name).object(&c.spec);
    });
    let mut seen: BTreeMap<usize, u64> = BTreeMap::new();
    for (pool, types) in input.catalog {
        let of = *seen.entry(Arc::as_ptr(types) as usize).or_insert_with(|| catalog(types));
        hash.text(pool).number(of);
    }
    hash.0.finish()
}

fn sorted<T>(list: &[T], key: impl Fn(&T) -> String) -> Vec<&T> {
    let mut out: Vec<&T> = list.iter().collect();
    out.sort_by_cached_key(|item| key(item));
    out
}

/// A hash of what can be bought: types with their requirements and capacity, offerings with theirs, price, availability and free
/// reservations. They are megabytes, so that whole words are hashed at once.
fn catalog(types: &[InstanceType]) -> u64 {
    let mut hash = Mix::default();
    for t in types {
        t.name.hash(&mut hash);
        t.requirements.hash(&mut hash);
        t.ebs_attachments.hash(&mut hash);
        for (name, amount) in t.capacity.iter().chain(t.overhead.iter()) {
            (name, amount.milli()).hash(&mut hash);
        }
        for offer in &t.offerings {
            offer.requirements.hash(&mut hash);
            (offer.price.nanos(), offer.available, offer.reservation_capacity).hash(&mut hash);
        }
    }
    hash.finish()
}

fn room(input: &Input<'_>, node: &StateNode) -> NodeRoom {
    let mut identity = Hash::default();
    identity.object(node.labels()).object(&node.simulated_taints()).object(&node.capacity());
    identity.number(u64::from(node.marked_for_deletion)).number(u64::from(node.initialized()));
    let mut free = node.allocatable();
    let mut used = BTreeSet::new();
    for pod in node.pods.iter().map(|at| &input.objects.pods[*at]) {
        free.subtract(&pods::effective_requests(pod));
        let mut port = String::new();
        for taken in pods::host_ports(pod) {
            port.clear();
            let _ = write!(port, "{taken}");
            used.insert(Hash::default().text(&port).0.finish());
        }
        // What is mounted and not attached takes nothing from others, and every pod has some of it.
        for claim in pod.volume_claim_names() {
            used.insert(Hash::default().text(&pod.metadata.namespace).text(&claim).0.finish());
        }
    }
    NodeRoom { identity: identity.0.finish(), free: free.iter().map(|(name, amount)| (name.to_owned(), amount.milli())).collect(), used }
}

fn all_nodes(input: &Input<'_>) -> u64 {
    let mut hash = Hash::default();
    for node in sorted(input.nodes, |node| node.name().to_owned()) {
        hash.text(node.name()).object(&room(input, node));
    }
    hash.0.finish()
}

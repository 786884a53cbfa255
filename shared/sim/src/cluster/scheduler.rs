//! The default scheduler: filters, a simple score, and its message for pods that fit nowhere.

use super::{Cluster, ClusterEffect};
use crate::dice::{Dice, Stream};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Node, NodeSelectorTerm, Pod, PodAffinityTerm, PodCondition, Taint, TaintEffect, TopologySpreadConstraint};
use whittle_api::{LabelSelector, ObjectMeta, SelectorRequirement, labels};
use whittle_model::pods::{effective_requests, host_ports, tolerates};
use whittle_ports::ClusterEvent;
use whittle_units::{Quantity, Resources};

/// How often the scheduler repeats that a pod fits nowhere.
const REPEAT: SignedDuration = SignedDuration::from_secs(30);

/// How exactly the start of a pod is timed, in milliseconds.
const START_STEP: i64 = 100;

/// The state of one pass over the pending pods, so that the bound ones are counted only once.
struct SchedulingPass {
    /// The free resources of each node, by name.
    free: BTreeMap<String, Resources>,
    /// Whether any bound pod has anti-affinity.
    has_anti_affinity: bool,
    /// Nodes that were tainted a moment ago, which the scheduler's cache does not show yet.
    not_seen_tainted: BTreeSet<String>,
}

impl SchedulingPass {
    fn of(cluster: &Cluster, now: Timestamp) -> Self {
        let nodes = cluster.objects.nodes.values();
        let mut free: BTreeMap<String, Resources> =
            nodes.map(|node| (node.metadata.name.clone(), node.status.allocatable.clone())).collect();
        let mut has_anti_affinity = false;
        for pod in cluster.objects.pods.values().filter(|pod| pod.is_bound() && !pod.is_terminal()) {
            has_anti_affinity |= pod.spec.affinity.as_ref().is_some_and(|affinity| affinity.pod_anti_affinity.is_some());
            if let Some(room) = free.get_mut(&pod.spec.node_name) {
                room.subtract(&effective_requests(pod));
            }
        }
        let late = |at: &Timestamp| now.duration_since(*at) < cluster.scheduler_lag;
        let not_seen_tainted = cluster.tainted_at.iter().filter(|(_, at)| late(at)).map(|(name, _)| name.clone()).collect();
        Self { free, has_anti_affinity, not_seen_tainted }
    }

    fn bound(&mut self, pod: &Pod, node: &str) {
        self.has_anti_affinity |= pod.spec.affinity.as_ref().is_some_and(|affinity| affinity.pod_anti_affinity.is_some());
        if let Some(room) = self.free.get_mut(node) {
            room.subtract(&effective_requests(pod));
        }
    }
}

fn expression_holds(requirement: &SelectorRequirement, value: Option<&str>) -> bool {
    let number = || requirement.values.first().and_then(|bound| bound.parse::<i64>().ok()).zip(value?.parse::<i64>().ok());
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| requirement.values.iter().any(|one| one == value)),
        "NotIn" => value.is_none_or(|value| requirement.values.iter().all(|one| one != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number().is_some_and(|(bound, value)| value > bound),
        "Lt" => number().is_some_and(|(bound, value)| value < bound),
        _ => false,
    }
}

pub(super) fn term_holds(term: &NodeSelectorTerm, node: &Node) -> bool {
    !term.is_empty()
        && term.match_expressions.iter().all(|one| expression_holds(one, node.metadata.label(&one.key)))
        && term.match_fields.iter().all(|one| one.key == "metadata.name" && expression_holds(one, Some(&node.metadata.name)))
}

/// Whether the node selector and the required node affinity of a pod accept a node.
pub(super) fn selects(pod: &Pod, node: &Node) -> bool {
    let selector = pod.spec.node_selector.iter().all(|(key, value)| node.metadata.label(key) == Some(value));
    let required = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()).and_then(|node| node.required.as_ref());
    selector && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| term_holds(term, node)))
}

fn is_tolerated(pod: &Pod, node: &Node) -> bool {
    let hard = node.spec.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    hard.into_iter().all(|taint| tolerates(&pod.spec.tolerations, taint))
}

/// Why a node is rejected for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rejection {
    Unschedulable,
    Taint,
    Affinity,
    Resource(&'static str),
    Ports,
    PodAffinity,
    PodAntiAffinity,
    Spread,
    Volume,
}

impl Rejection {
    fn message(self) -> String {
        match self {
            Self::Unschedulable => "node(s) were unschedulable".to_owned(),
            Self::Taint => "node(s) had untolerated taints".to_owned(),
            Self::Affinity => "node(s) didn't match Pod's node affinity/selector".to_owned(),
            Self::Resource(name) => format!("Insufficient {name}"),
            Self::Ports => "node(s) didn't have free ports for the requested pod ports".to_owned(),
            Self::PodAffinity => "node(s) didn't match pod affinity rules".to_owned(),
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules".to_owned(),
            Self::Spread => "node(s) didn't match pod topology spread constraints".to_owned(),
            Self::Volume => "node(s) had volume node affinity conflict".to_owned(),
        }
    }
}

impl Cluster {
    /// Records when nodes were tainted, while the scheduler's cache lags.
    fn record_tainted(&mut self, now: Timestamp) {
        if self.scheduler_lag.is_zero() {
            self.tainted_at.clear();
            return;
        }
        let closed: BTreeSet<&String> =
            self.objects.nodes.iter().filter(|(_, node)| node.has_disrupted_taint()).map(|(name, _)| name).collect();
        self.tainted_at.retain(|name, _| closed.contains(name));
        for name in closed {
            self.tainted_at.entry(name.clone()).or_insert(now);
        }
    }

    /// Binds every pod that fits somewhere, marks the others.
    pub(super) fn schedule_pods(&mut self, now: Timestamp, dice: &mut Dice, effects: &mut Vec<ClusterEffect>) {
        self.record_tainted(now);
        let waits = |pod: &&Pod| {
            !pod.is_bound()
                && !pod.is_terminal()
                && !pod.metadata.is_deleting()
                && pod.spec.scheduling_gates.is_empty()
                && matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler")
        };
        if self.scheduled_at.is_some_and(|(workloads, next)| workloads == self.objects.workloads() && now < next) {
            return;
        }
        let mut waiting: Vec<(&String, &Pod)> = self.objects.pods.iter().filter(|(_, pod)| waits(pod)).collect();
        waiting.sort_by_cached_key(|(_, pod)| {
            (std::cmp::Reverse(pod.spec.priority.unwrap_or(0)), pod.metadata.creation_timestamp, pod.metadata.uid.clone())
        });
        let waiting: Vec<String> = waiting.into_iter().map(|(key, _)| key.clone()).collect();
        let mut pass = (!waiting.is_empty()).then(|| SchedulingPass::of(self, now));
        // If a pod was unschedulable since the last binding, an identical one is too.
        let mut refused: Option<(Pod, String)> = None;
        for key in &waiting {
            let (Some(pod), Some(pass)) = (self.objects.pods.get(key), &mut pass) else { continue };
            if let Some((_, verdict)) = refused.as_ref().filter(|(other, _)| are_alike(other, pod)) {
                self.mark_unschedulable(key, verdict, now, effects);
                continue;
            }
            let pod = pod.clone();
            match self.find_node(&pod, pass) {
                Ok(node) => {
                    self.bind_pod(key, &node, now, dice);
                    pass.bound(&pod, &node);
                    refused = None;
                }
                Err(verdict) => {
                    self.mark_unschedulable(key, &verdict, now, effects);
                    refused = Some((pod, verdict));
                }
            }
        }
        let repeats = waiting.iter().filter_map(|key| self.reviewed.get(key)?.checked_add(REPEAT).ok());
        let next = if self.scheduler_lag.is_zero() { repeats.min().unwrap_or(Timestamp::MAX) } else { now };
        self.scheduled_at = Some((self.objects.workloads(), next));
    }

    /// The node for a pod, or the scheduler's message if there is none.
    fn find_node(&self, pod: &Pod, pass: &SchedulingPass) -> Result<String, String> {
        let mut reasons: BTreeMap<Rejection, usize> = BTreeMap::new();
        let mut best: Option<(Quantity, &str)> = None;
        let requests = effective_requests(pod);
        if let Some(unusable) = self.unusable_claim(pod) {
            let total = self.objects.nodes.len();
            return Err(format!("0/{total} nodes are available: {unusable}."));
        }
        for node in self.objects.nodes.values() {
            let Some(room) = pass.free.get(&node.metadata.name) else { continue };
            match self.reject(pod, &requests, node, room, pass) {
                Some(reason) => *reasons.entry(reason).or_default() += 1,
                None => {
                    // The node with the most free CPU, like the default score; the first name among equals.
                    let free = room.get("cpu").minus(requests.get("cpu"));
                    if best.is_none_or(|(most, _)| free > most) {
                        best = Some((free, &node.metadata.name));
                    }
                }
            }
        }
        if let Some((_, node)) = best {
            return Ok(node.to_owned());
        }
        let total = self.objects.nodes.len();
        let parts: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} {}", reason.message())).collect();
        let why = if parts.is_empty() { "no nodes available to schedule pods".to_owned() } else { parts.join(", ") };
        Err(if total == 0 { why } else { format!("0/{total} nodes are available: {why}.") })
    }

    fn reject(&self, pod: &Pod, requests: &Resources, node: &Node, room: &Resources, pass: &SchedulingPass) -> Option<Rejection> {
        let cordon = Taint::new(labels::UNSCHEDULABLE_TAINT, TaintEffect::NoSchedule);
        if node.spec.unschedulable && !tolerates(&pod.spec.tolerations, &cordon) {
            return Some(Rejection::Unschedulable);
        }
        let hard = |taint: &&Taint| taint.effect != TaintEffect::PreferNoSchedule && !tolerates(&pod.spec.tolerations, taint);
        let unseen = |taint: &Taint| taint.key == labels::DISRUPTED_TAINT && pass.not_seen_tainted.contains(&node.metadata.name);
        if !node.is_ready() || node.spec.taints.iter().filter(hard).any(|taint| !unseen(taint)) {
            return Some(Rejection::Taint);
        }
        if !selects(pod, node) {
            return Some(Rejection::Affinity);
        }
        if !self.volumes_reach(pod, node) {
            return Some(Rejection::Volume);
        }
        if let Some(lacking) = requests.iter().find(|(name, amount)| !amount.is_zero() && *amount > room.get(name)) {
            return Some(Rejection::Resource(static_name(lacking.0)));
        }
        let ports = host_ports(pod);
        let takes_one = |other: &Pod| host_ports(other).iter().any(|taken| ports.iter().any(|port| port.conflicts_with(taken)));
        if !ports.is_empty() && self.objects.pods_on(&node.metadata.name).any(|other| !other.is_terminal() && takes_one(other)) {
            return Some(Rejection::Ports);
        }
        self.reject_by_affinity(pod, node, pass.has_anti_affinity).or_else(|| (!self.spread_holds(pod, node)).then_some(Rejection::Spread))
    }

    fn reject_by_affinity(&self, pod: &Pod, node: &Node, has_anti_affinity: bool) -> Option<Rejection> {
        let affinity = pod.spec.affinity.as_ref();
        let affinity_terms = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()).map_or(&[][..], |one| &one.required);
        if !self.affinity_holds(pod, affinity_terms, node) {
            return Some(Rejection::PodAffinity);
        }
        let anti_affinity_terms = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()).map_or(&[][..], |one| &one.required);
        if anti_affinity_terms.iter().any(|term| self.domain_has(&term.topology_key, node, |other| term_selects(term, pod, other))) {
            return Some(Rejection::PodAntiAffinity);
        }
        // The anti-affinity of running pods may repel this one.
        let is_repelled = has_anti_affinity
            && self.objects.pods.values().filter(|other| other.is_bound() && !other.is_terminal()).any(|other| {
                let there = other.spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
                there.is_some_and(|anti| {
                    anti.required.iter().any(|term| {
                        term_selects(term, other, pod) && self.node_of(other).is_some_and(|at| same_domain(at, node, &term.topology_key))
                    })
                })
            });
        is_repelled.then_some(Rejection::PodAntiAffinity)
    }

    /// Whether the required affinity holds: only pods that all its terms select count, for each of them. The first pod of a group
    /// that selects itself may go to any node with the keys.
    fn affinity_holds(&self, pod: &Pod, terms: &[PodAffinityTerm], node: &Node) -> bool {
        let all_select = |other: &Pod| terms.iter().all(|term| term_selects(term, pod, other));
        if terms.iter().all(|term| self.domain_has(&term.topology_key, node, all_select)) {
            return true;
        }
        let counts = |other: &&Pod| other.is_bound() && !other.is_terminal() && all_select(other);
        let is_counted =
            |other: &Pod| self.node_of(other).is_some_and(|at| terms.iter().any(|term| at.metadata.label(&term.topology_key).is_some()));
        let has_no_match = !self.objects.pods.values().filter(counts).any(is_counted);
        has_no_match && all_select(pod) && terms.iter().all(|term| node.metadata.label(&term.topology_key).is_some())
    }

    /// Whether a running pod that `counts` is in the node's domain of `key`.
    fn domain_has(&self, key: &str, node: &Node, counts: impl Fn(&Pod) -> bool) -> bool {
        self.objects
            .pods
            .values()
            .filter(|other| other.is_bound() && !other.is_terminal() && counts(other))
            .any(|other| self.node_of(other).is_some_and(|at| same_domain(at, node, key)))
    }

    fn spread_holds(&self, pod: &Pod, node: &Node) -> bool {
        let hard = pod.spec.topology_spread_constraints.iter().filter(|one| one.when_unsatisfiable != "ScheduleAnyway");
        hard.into_iter().all(|constraint| self.skew_after(pod, constraint, node).is_some_and(|skew| skew <= i64::from(constraint.max_skew)))
    }

    /// The skew of a constraint if the pod went to the node; `None` if the node lacks the key.
    fn skew_after(&self, pod: &Pod, constraint: &TopologySpreadConstraint, node: &Node) -> Option<i64> {
        let here = node.metadata.label(&constraint.topology_key)?;
        let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
        let honors_affinity = constraint.node_affinity_policy.as_deref() != Some("Ignore");
        let honors_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
        let mut counted: BTreeSet<&str> = BTreeSet::new();
        // An empty selector selects the pod itself and counts none.
        let is_empty = constraint.label_selector.as_ref() == Some(&LabelSelector::default())
            && constraint.match_label_keys.iter().all(|key| pod.metadata.label(key).is_none());
        for candidate in self.objects.nodes.values() {
            let Some(domain) = candidate.metadata.label(&constraint.topology_key) else { continue };
            let is_left_out = honors_affinity && !selects(pod, candidate) || honors_taints && !is_tolerated(pod, candidate);
            if is_left_out || !has_spread_labels(pod, candidate) {
                continue;
            }
            counts.entry(domain).or_default();
            counted.insert(&candidate.metadata.name);
        }
        for other in self.objects.pods.values().filter(|other| other.is_bound() && !other.is_terminal() && !other.metadata.is_deleting()) {
            let matches = other.metadata.namespace == pod.metadata.namespace && selector_selects(constraint, pod, &other.metadata);
            if !is_empty
                && matches
                && counted.contains(other.spec.node_name.as_str())
                && let Some(domain) = self.node_of(other).and_then(|at| at.metadata.label(&constraint.topology_key))
            {
                *counts.entry(domain).or_default() += 1;
            }
        }
        let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
        let least = if domains < i64::from(constraint.min_domains.unwrap_or(1)) { 0 } else { counts.values().copied().min().unwrap_or(0) };
        let own = i64::from(selector_selects(constraint, pod, &pod.metadata));
        Some(counts.get(here).copied().unwrap_or(0) + own - least)
    }

    fn bind_pod(&mut self, key: &str, node: &str, now: Timestamp, dice: &mut Dice) {
        self.objects.change::<Pod>(key, |pod| {
            node.clone_into(&mut pod.spec.node_name);
            pod.status.conditions.retain(|condition| condition.type_ != "PodScheduled");
            pod.status.conditions.push(PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "True".to_owned(),
                last_transition_time: Some(now),
                ..PodCondition::default()
            });
        });
        // Pods bound at once start at few different times: every start is a step of all controllers.
        let millis = i64::try_from(dice.between(Stream::Latency, 1000, 3000)).unwrap_or(1000) / START_STEP * START_STEP;
        self.starts.insert(key.to_owned(), now.checked_add(SignedDuration::from_millis(millis)).unwrap_or(now));
        self.reviewed.remove(key);
    }

    fn mark_unschedulable(&mut self, key: &str, verdict: &str, now: Timestamp, effects: &mut Vec<ClusterEffect>) {
        let says_so = |known: &PodCondition| known.status == "False" && known.reason == "Unschedulable" && known.message == verdict;
        let Some(pod) = self.objects.pods.get(key) else { return };
        if !pod.condition("PodScheduled").is_some_and(says_so) {
            self.objects.change::<Pod>(key, |pod| {
                let condition = PodCondition {
                    type_: "PodScheduled".to_owned(),
                    status: "False".to_owned(),
                    reason: "Unschedulable".to_owned(),
                    message: verdict.to_owned(),
                    last_transition_time: pod.condition("PodScheduled").map_or(Some(now), |known| known.last_transition_time),
                };
                pod.status.conditions.retain(|known| known.type_ != "PodScheduled");
                pod.status.conditions.push(condition);
            });
        }
        let is_due = self.reviewed.get(key).is_none_or(|last| now.duration_since(*last) >= REPEAT);
        let Some(pod) = self.objects.pods.get(key).filter(|_| is_due) else { return };
        let (event, review) = (scheduler_event(pod, verdict), review(pod, verdict));
        self.reviewed.insert(key.to_owned(), now);
        self.publish(event, now);
        effects.push(ClusterEffect::FailedScheduling(review));
    }
}

fn static_name(name: &str) -> &'static str {
    match name {
        "cpu" => "cpu",
        "memory" => "memory",
        "pods" => "pods",
        "ephemeral-storage" => "ephemeral-storage",
        "nvidia.com/gpu" => "nvidia.com/gpu",
        "vpc.amazonaws.com/PrivateIPv4Address" => "vpc.amazonaws.com/PrivateIPv4Address",
        _ => "extended resources",
    }
}

fn same_domain(a: &Node, b: &Node, key: &str) -> bool {
    a.metadata.label(key).is_some() && a.metadata.label(key) == b.metadata.label(key)
}

/// Whether two pending pods are identical to the scheduler.
fn are_alike(a: &Pod, b: &Pod) -> bool {
    (&a.metadata.namespace, &a.metadata.labels, &a.spec) == (&b.metadata.namespace, &b.metadata.labels, &b.spec)
}

fn term_selects(term: &PodAffinityTerm, owner: &Pod, other: &Pod) -> bool {
    let own_namespace = term.namespaces.is_empty() && term.namespace_selector.is_none();
    let namespace = if own_namespace {
        owner.metadata.namespace == other.metadata.namespace
    } else {
        // The simulated namespaces carry no labels of their own: an empty selector means all.
        term.namespaces.contains(&other.metadata.namespace)
            || term.namespace_selector.as_ref().is_some_and(|selector| *selector == LabelSelector::default())
    };
    namespace && term.label_selector.as_ref().is_some_and(|selector| selector.matches(&other.metadata.labels))
}

/// Whether the node has the labels of all hard spread constraints of the pod: else it counts for none of them.
fn has_spread_labels(pod: &Pod, node: &Node) -> bool {
    let mut hard = pod.spec.topology_spread_constraints.iter().filter(|one| one.when_unsatisfiable != "ScheduleAnyway");
    hard.all(|one| node.metadata.label(&one.topology_key).is_some())
}

fn selector_selects(constraint: &TopologySpreadConstraint, owner: &Pod, meta: &ObjectMeta) -> bool {
    constraint.label_selector.as_ref().is_some_and(|selector| selector.matches(&meta.labels))
        // Keys that the owner lacks select nothing.
        && constraint.match_label_keys.iter().all(|key| owner.metadata.label(key).is_none_or(|value| meta.label(key) == Some(value)))
}

fn scheduler_event(pod: &Pod, verdict: &str) -> ClusterEvent {
    ClusterEvent {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        warning: true,
        reason: "FailedScheduling".to_owned(),
        message: verdict.to_owned(),
    }
}

/// The admission review that the API server sends for the creation of such an Event.
fn review(pod: &Pod, verdict: &str) -> String {
    serde_json::json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": format!("review-{}", pod.metadata.uid),
            "kind": {"group": "", "version": "v1", "kind": "Event"},
            "resource": {"group": "", "version": "v1", "resource": "events"},
            "namespace": pod.metadata.namespace,
            "operation": "CREATE",
            "object": {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"namespace": pod.metadata.namespace, "name": format!("{}.1", pod.metadata.name)},
                "reason": "FailedScheduling",
                "type": "Warning",
                "message": verdict,
                "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid}
            }
        }
    })
    .to_string()
}

/// Labels that the cloud provider and kubelet set on every Node.
pub(super) fn well_known(meta: &mut ObjectMeta, pairs: &[(&str, &str)]) {
    for (key, value) in pairs {
        meta.labels.insert((*key).to_owned(), (*value).to_owned());
    }
    let name = meta.name.clone();
    meta.labels.insert(labels::HOSTNAME.to_owned(), name);
}

//! From a plan to claims, events and decision records. Pure.

use crate::outside::Texts;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Pod;
use whittle_api::labels;
use whittle_claims::{Claim, DecisionKind, Expectation, HELD_BACK, NOMINATION, expected_after};
use whittle_model::scheduling::{LeftOut, NewClaim, Plan, PodRef, PoolRejection, Reason};
use whittle_ports::{ClusterEvent, Involved, Report, metrics};
use whittle_snapshot::{Buffers, Snapshot, machine_key, pod_key};
use whittle_solver::{Memory, buffers};
use whittle_units::{SignedDuration, Timestamp};

/// The condition of a pod that records whether the scheduler has found a node for it.
pub(crate) const POD_SCHEDULED: &str = "PodScheduled";
/// The most Events of one run on pods that have a place; later kube-scheduler publishes its own on each pod.
const NOMINATED_MAX: usize = 100;
/// Unscheduled pods that get an Event in one run, and those whose reason is recorded. With more of them each has its turn.
const FAILED_MAX: usize = 200;
const LEFT_OUT_MAX: usize = 100;
/// How often a pod that stays unscheduled is evaluated again, and its reason published.
const TOLD_EVERY: SignedDuration = whittle_solver::VALID_FOR;

/// Records why a claim was planned, as a sentence and as data.
pub(crate) fn record_claim(report: &mut Report, claim: &Claim, new: &NewClaim, now: Timestamp) {
    explain(report, claim, new, "", now);
    report.count("planned");
    let min_values_relaxed = new.annotations.get(labels::MIN_VALUES_RELAXED).map_or("false", String::as_str);
    report.metric(metrics::NodeClaimsCreated { reason: "provisioned", nodepool: &new.node_pool, min_values_relaxed });
}

/// Records the same of a claim that shadow mode does not create.
pub(crate) fn record_shadowed(report: &mut Report, claim: &Claim, new: &NewClaim, now: Timestamp) {
    explain(report, claim, new, "would launch a machine (shadow mode) ", now);
    report.count("would_launch");
}

fn explain(report: &mut Report, claim: &Claim, new: &NewClaim, prefix: &str, now: Timestamp) {
    let cheapest = new.why.cheapest.as_ref().map_or_else(String::new, |offer| format!("; cheapest {offer}"));
    let pods: Vec<String> = new.pods.iter().map(PodRef::key).collect();
    let requests: Vec<String> = new.requests.iter().map(|(name, amount)| format!("{name} {}", amount.text_of(name))).collect();
    let message = format!(
        "{prefix}for {} from nodepool {}, requests {}: {}{cheapest}",
        if pods.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", pods.len()) },
        new.node_pool,
        requests.join(" "),
        candidates(new)
    );
    let passed: Vec<String> = new.why.passed_over.iter().map(|rejected| format!("{}: {}", rejected.node_pool, rejected.cause)).collect();
    let detail = serde_json::json!({
        "nodePool": new.node_pool, "pods": pods, "instanceTypes": new.instance_types.len(), "priceNanos": new.cheapest_price,
        "offerings": new.offerings, "passedOver": passed, "narrowed": new.why.narrowed,
        "cheapest": new.why.cheapest.as_ref().map(ToString::to_string),
        "nextOffer": new.why.next_offer.as_ref().map(ToString::to_string),
        "nextBest": new.why.next_best.as_ref().map(|(name, price)| format!("{name} at {price}")),
    });
    report.explain(now, DecisionKind::Planned, format!("nodeclaim/{}", claim.key.name), message, detail);
}

/// How many candidate types a message names.
const CANDIDATES_NAMED: usize = 5;

/// The first candidate types of a claim, and the number of the others.
fn candidates(new: &NewClaim) -> String {
    let named: Vec<&str> = new.instance_types.iter().take(CANDIDATES_NAMED).map(String::as_str).collect();
    match new.instance_types.len().saturating_sub(named.len()) {
        0 => named.join(", "),
        1 => format!("{} or 1 other type", named.join(", ")),
        others => format!("{} or {others} other types", named.join(", ")),
    }
}

/// Emits gauges of a run: pending pods, unscheduled pods, and the duration of the plan.
pub(crate) fn gauges(report: &mut Report, plan: &Plan, took: SignedDuration) {
    let controller = "provisioner";
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let left_out = |of: fn(&str) -> bool| count(plan.left_out.iter().filter(|left| of(left.reason.category())).count());
    report.gauge(metrics::SchedulerQueueDepth { controller }, count(plan.pods));
    report.gauge(metrics::SchedulerIgnoredPods, left_out(|category| category == "ignored"));
    // A pod that waits for a reservation, or for the next run, is not unschedulable.
    let unschedulable = left_out(|category| !["ignored", "reserved", "out-of-budget"].contains(&category));
    report.gauge(metrics::SchedulerUnschedulablePods { controller }, unschedulable);
    report.gauge(metrics::SchedulingDuration { controller }, took);
}

/// Since when a pod has been waiting: since the scheduler first failed on it, for before that no machine could have helped.
pub(crate) fn waiting_since(pod: &Pod) -> Option<Timestamp> {
    pod.condition(POD_SCHEDULED).and_then(|found| found.last_transition_time).or(pod.metadata.creation_timestamp)
}

/// Emits the longest wait of the pods in the plan, if any is pending.
pub(crate) fn longest_wait(report: &mut Report, snapshot: &Snapshot, plan: &Plan) {
    let left = plan.left_out.iter().filter(|left| left.reason.category() != "ignored").map(|left| &left.pod);
    let placed = plan.claims.iter().flat_map(|new| &new.pods).chain(plan.placements.iter().flat_map(|placement| &placement.pods));
    let waiting: BTreeSet<&str> = left.chain(placed).map(|pod| pod.uid.as_str()).collect();
    let pods = snapshot.objects.pods.iter().filter(|pod| pod.spec.node_name.is_empty() && waiting.contains(pod.metadata.uid.as_str()));
    if let Some(first) = pods.filter_map(waiting_since).min() {
        let waited = snapshot.now.duration_since(first).max(SignedDuration::ZERO);
        report.gauge(metrics::PodsLongestWait, waited);
    }
}

/// Records why pods are unscheduled, of `LEFT_OUT_MAX` at most, and of none again within `TOLD_EVERY` whose reason is `known`: in a large
/// cluster something changes before every run, each of which evaluates all of them.
pub(crate) fn record_all_left_out(report: &mut Report, plan: &Plan, snapshot: &Snapshot, known: &Memory) {
    let mut texts = Texts::new(snapshot);
    let is_news = |left: &&LeftOut| !known.has_reason(&left.pod.uid, &left.reason, snapshot.now);
    for left in in_turn(new_reasons(plan, &snapshot.buffers).filter(is_news), LEFT_OUT_MAX, snapshot.now) {
        record_left_out(report, left, &mut texts);
    }
}

/// `most` of them, beginning with others each time that they are looked at again: the order of a plan is the same every time, and those
/// at its end would never have a reason.
fn in_turn<'p>(all: impl Iterator<Item = &'p LeftOut>, most: usize, now: Timestamp) -> Vec<&'p LeftOut> {
    let mut all: Vec<&LeftOut> = all.collect();
    if all.len() > most {
        let turn = usize::try_from(now.as_second().div_euclid(TOLD_EVERY.as_secs())).unwrap_or_default();
        let first = turn.wrapping_mul(most) % all.len();
        all.rotate_left(first);
        all.truncate(most);
    }
    all
}

/// Records why a pod is unscheduled: per NodePool the cause, how many types each constraint rules out, and the nearest miss; and what would
/// help.
fn record_left_out(report: &mut Report, left: &LeftOut, texts: &mut Texts<'_>) {
    let mut detail = serde_json::json!({ "category": left.reason.category() });
    if let Reason::Pools(rejection) | Reason::NoTemplates(rejection) = &left.reason {
        detail["nodePools"] = rejection.iter().map(pool_detail).collect();
    }
    detail["remedies"] = left.reason.remedies().iter().map(ToString::to_string).collect();
    let message = texts.of(&left.reason);
    report.explain(texts.snapshot.now, DecisionKind::Unschedulable, format!("pod/{}", left.pod.key()), message, detail);
    report.count("left_out");
}

fn pool_detail(rejection: &PoolRejection) -> serde_json::Value {
    const RULED_OUT_MAX: usize = 5;
    let ruled_out = rejection.ruled_out.iter().take(RULED_OUT_MAX);
    serde_json::json!({
        "nodePool": rejection.node_pool, "category": rejection.cause.category(), "message": rejection.cause.to_string(),
        "ruledOut": ruled_out.map(|r| format!("{} rules out {} of {} instance types", r.constraint, r.types, r.of)).collect::<Vec<_>>(),
        "nearest": rejection.nearest.as_ref().map(|miss| serde_json::json!({
            "resource": miss.resource, "needed": miss.needed.text_of(&miss.resource), "largest": miss.largest.text_of(&miss.resource),
            "instanceType": miss.instance_type,
        })),
    })
}

/// Uids of virtual pods of buffers: they get no Events, and are expected on no machine.
fn virtual_pods(buffers: &Buffers) -> BTreeSet<&str> {
    buffers.pods.iter().map(|pod| pod.metadata.uid.as_str()).collect()
}

/// Pods that are unscheduled for a new reason; not those of buffers, whose status shows it.
pub(crate) fn new_reasons<'p>(plan: &'p Plan, buffers: &Buffers) -> impl Iterator<Item = &'p LeftOut> {
    let virtual_pods: BTreeSet<String> = virtual_pods(buffers).into_iter().map(str::to_owned).collect();
    let is_new = |left: &&LeftOut| !matches!(left.reason, Reason::Unchanged { .. });
    plan.left_out.iter().filter(is_new).filter(move |left| !virtual_pods.contains(&left.pod.uid))
}

/// Pods and buffer capacity that are expected on machines after `plan`.
pub(crate) fn expected(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<String, Expectation> {
    let virtual_pods = virtual_pods(&snapshot.buffers);
    let keys: BTreeMap<&str, &str> = snapshot.nodes.iter().map(|node| (node.name(), machine_key(node))).collect();
    let key = |name: &str| keys.get(name).map(|key| (*key).to_owned());
    let real = |pods: &[PodRef]| pods.iter().any(|pod| !virtual_pods.contains(pod.uid.as_str()));
    let bound = snapshot.objects.pods.iter().filter(|pod| !pod.spec.node_name.is_empty());
    let bound: BTreeSet<&str> = bound.map(|pod| pod.metadata.uid.as_str()).collect();
    let span = |pods: &[PodRef]| if pods.iter().any(|pod| bound.contains(pod.uid.as_str())) { HELD_BACK } else { NOMINATION };
    let nominated = plan.placements.iter().filter(|placement| real(&placement.pods));
    let nominated = nominated.filter_map(|placement| Some((key(&placement.node)?, span(&placement.pods))));
    let buffered = buffers::virtual_pods_by_machine(plan, &snapshot.buffers.list);
    let mut buffered: BTreeMap<String, u32> = buffered.iter().filter_map(|(name, count)| Some((key(name)?, *count))).collect();
    if snapshot.buffers.unanswered.is_some() {
        // Room is not given up because the API server does not answer for its buffer.
        for (machine, was) in &snapshot.expected {
            let count = buffered.entry(machine.clone()).or_default();
            *count = was.buffer_pods.max(*count);
        }
    }
    expected_after(&snapshot.expected, &nominated.collect(), &buffered, snapshot.now)
}

/// Events on pods: where each should be scheduled, of `NOMINATED_MAX` at most, or why it cannot, of `FAILED_MAX`.
pub(crate) fn events(plan: &Plan, created: &[Claim], snapshot: &Snapshot) -> Vec<ClusterEvent> {
    let virtual_pods = virtual_pods(&snapshot.buffers);
    let is_real = |pod: &&PodRef| !virtual_pods.contains(pod.uid.as_str());
    let on_new = plan.claims.iter().zip(created).flat_map(|(new, claim)| {
        let target = format!("nodeclaim/{}", claim.key.name);
        new.pods.iter().filter(is_real).map(move |pod| nominated(pod, &target))
    });
    let on_old = plan.placements.iter().flat_map(|placement| {
        let is_claim = snapshot.claims.iter().any(|claim| claim.value.key.name.as_str() == placement.node);
        let target = format!("{}/{}", if is_claim { "nodeclaim" } else { "node" }, placement.node);
        placement.pods.iter().filter(is_real).map(move |pod| nominated(pod, &target))
    });
    // Unchanged reasons are not published again: the pod still shows them.
    let is_published = |left: &&LeftOut| !matches!(left.reason, Reason::Reserved(_) | Reason::OptedOut) && !left.reason.is_transient();
    let mut texts = Texts::new(snapshot);
    let told = in_turn(new_reasons(plan, &snapshot.buffers).filter(is_published), FAILED_MAX, snapshot.now);
    let failed = told.into_iter().map(|left| failed(left, &mut texts));
    on_new.chain(on_old).take(NOMINATED_MAX).chain(failed).collect()
}

fn nominated(pod: &PodRef, target: &str) -> ClusterEvent {
    ClusterEvent::normal(Involved::pod(&pod_key(pod)), "Nominated", format!("Pod should schedule on: {target}"))
}

fn failed(left: &LeftOut, texts: &mut Texts<'_>) -> ClusterEvent {
    let why = texts.of(&left.reason);
    ClusterEvent::warning(Involved::pod(&pod_key(&left.pod)), "FailedScheduling", format!("Failed to schedule pod, {why}"))
}

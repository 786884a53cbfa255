//! From a plan to claims, events and decision records. Pure.

use whittle_claims::{Claim, DecisionKind, Stored};
use whittle_core::schedule::{LeftOut, NewClaim, Plan, PodRef, PoolSays, Reason};
use whittle_ports::{ClusterEvent, Report};
use whittle_units::Timestamp;

/// Events of one run; the rest is in the decision log.
pub(crate) const EVENTS_MAX: usize = 100;
/// Pods left out whose reason is recorded in one run: the same few reasons repeat from there on.
pub(crate) const LEFT_OUT_MAX: usize = 100;

/// Why a claim is what it is, as a sentence and as data.
pub(crate) fn explain_claim(report: &mut Report, claim: &Claim, new: &NewClaim, now: Timestamp) {
    let cheapest = new.why.cheapest.as_ref().map_or_else(String::new, |offer| format!(", cheapest {offer}"));
    let pods: Vec<String> = new.pods.iter().map(PodRef::key).collect();
    let message = format!("for {} pods, out of {} instance types{cheapest}", pods.len(), new.instance_types.len());
    let passed: Vec<String> = new.why.passed_over.iter().map(|said| format!("{}: {}", said.node_pool, said.cause)).collect();
    let detail = serde_json::json!({
        "nodePool": new.node_pool, "pods": pods, "instanceTypes": new.instance_types.len(), "priceNanos": new.cheapest_price,
        "offerings": new.offerings, "passedOver": passed, "narrowed": new.why.narrowed,
        "cheapest": new.why.cheapest.as_ref().map(ToString::to_string),
        "nextOffer": new.why.next_offer.as_ref().map(ToString::to_string),
        "nextBest": new.why.next_best.as_ref().map(|(name, price)| format!("{name} at {price}")),
    });
    report.explain(now, DecisionKind::Planned, format!("nodeclaim/{}", claim.key.name), message, detail);
    report.count("planned");
}

/// Why a pod has no place: per NodePool the cause, which constraint rules out how many types, and the nearest miss.
pub(crate) fn explain_left_out(report: &mut Report, left: &LeftOut, now: Timestamp) {
    let mut detail = serde_json::json!({ "category": left.reason.category() });
    if let Reason::Pools(says) | Reason::NoTemplates(says) = &left.reason {
        detail["nodePools"] = says.iter().map(pool_says).collect();
    }
    report.explain(now, DecisionKind::Unschedulable, format!("pod/{}", left.pod.key()), left.reason.to_string(), detail);
    report.count("left_out");
}

fn pool_says(says: &PoolSays) -> serde_json::Value {
    const RULED_OUT_MAX: usize = 5;
    let ruled_out = says.ruled_out.iter().take(RULED_OUT_MAX);
    serde_json::json!({
        "nodePool": says.node_pool, "category": says.cause.category(), "message": says.cause.to_string(),
        "ruledOut": ruled_out.map(|r| format!("{} rules out {} of {} instance types", r.constraint, r.types, r.of)).collect::<Vec<_>>(),
        "nearest": says.nearest.as_ref().map(|miss| serde_json::json!({
            "resource": miss.resource, "needed": miss.needed.to_string(), "largest": miss.largest.to_string(), "instanceType": miss.instance_type,
        })),
    })
}

/// What the pods' owners are told: where each pod should go, or why it cannot.
pub(crate) fn events(plan: &Plan, created: &[Claim], claims: &[Stored<Claim>]) -> Vec<ClusterEvent> {
    let on_new = plan.claims.iter().zip(created).flat_map(|(new, claim)| {
        let target = format!("nodeclaim/{}", claim.key.name);
        new.pods.iter().map(move |pod| nominated(pod, &target))
    });
    let on_old = plan.placements.iter().flat_map(|placement| {
        let is_claim = claims.iter().any(|claim| claim.value.key.name.as_str() == placement.node);
        let target = format!("{}/{}", if is_claim { "nodeclaim" } else { "node" }, placement.node);
        placement.pods.iter().map(move |pod| nominated(pod, &target))
    });
    // What was said before is not said again: the pod still shows it.
    let news = plan.left_out.iter().filter(|left| !matches!(left.reason, Reason::AsBefore { .. } | Reason::Reserved(_)));
    on_new.chain(on_old).chain(news.map(failed)).collect()
}

fn nominated(pod: &PodRef, target: &str) -> ClusterEvent {
    pod_event(pod, false, "Nominated", format!("Pod should schedule on: {target}"))
}

fn failed(left: &LeftOut) -> ClusterEvent {
    pod_event(&left.pod, true, "FailedScheduling", format!("Failed to schedule pod, {}", left.reason))
}

fn pod_event(pod: &PodRef, warning: bool, reason: &str, message: String) -> ClusterEvent {
    ClusterEvent {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        warning,
        reason: reason.to_owned(),
        message,
    }
}

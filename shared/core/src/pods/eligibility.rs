//! Which pods take part in a pass, and which move when their node goes.

use whittle_api::k8s::{IntOrString, Pod, PodDisruptionBudget, Taint, TaintEffect};
use whittle_api::{GoDuration, labels};
use whittle_units::{SignedDuration, Timestamp};

/// Whether the pod waits for a node that we may provide: the scheduler gave up on it, and nothing else is responsible.
#[must_use]
pub fn is_provisionable(pod: &Pod) -> bool {
    pod.condition("PodScheduled").is_some_and(|c| c.reason == "Unschedulable")
        && !pod.is_bound()
        && pod.status.nominated_node_name.is_empty()
        && !is_daemon_owned(pod)
        && !is_mirror(pod)
}

/// Whether a DaemonSet owns the pod.
#[must_use]
pub fn is_daemon_owned(pod: &Pod) -> bool {
    owned_by(pod, "DaemonSet", "apps/v1")
}

fn is_mirror(pod: &Pod) -> bool {
    owned_by(pod, "Node", "v1")
}

fn owned_by(pod: &Pod, kind: &str, api_version: &str) -> bool {
    pod.metadata.owner_references.iter().any(|o| o.kind == kind && o.api_version == api_version)
}

/// Whether the pod still runs and is not on its way out.
#[must_use]
pub fn is_active(pod: &Pod) -> bool {
    !pod.is_terminal() && !pod.metadata.is_deleting()
}

/// Whether a replacement of this pod will need a place once it is gone from its node.
#[must_use]
pub fn is_reschedulable(pod: &Pod) -> bool {
    let comes_back = is_active(pod) || (!pod.is_terminal() && owned_by(pod, "StatefulSet", "apps/v1"));
    comes_back && !is_daemon_owned(pod) && !is_mirror(pod)
}

/// What `karpenter.sh/do-not-disrupt`, or its old form `karpenter.sh/do-not-evict`, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// No annotation, or one whose time is over.
    None,
    Active,
    /// The annotation is neither `true` nor a positive duration; it has no effect.
    Unreadable,
}

/// Whether the pod's owner asked to leave it alone, as of `now`. Pods that do not run any more have no protection.
#[must_use]
pub fn do_not_disrupt(pod: &Pod, now: Timestamp) -> Protection {
    if !is_active(pod) {
        return Protection::None;
    }
    // The old form knows only yes and no.
    if pod.metadata.annotation(labels::DO_NOT_EVICT) == Some("true") {
        return Protection::Active;
    }
    let Some(text) = pod.metadata.annotation(labels::DO_NOT_DISRUPT) else { return Protection::None };
    if text == "true" {
        return Protection::Active;
    }
    let Ok(span) = text.parse::<GoDuration>().map(|d| d.span()) else { return Protection::Unreadable };
    if span <= SignedDuration::ZERO {
        return Protection::Unreadable;
    }
    match pod.status.start_time {
        Some(start) if now.duration_since(start) >= span => Protection::None,
        _ => Protection::Active,
    }
}

/// Whether the pod is to be planned for when its node is being removed: it is reschedulable, and neither its owner nor
/// a disruption budget holds it in place.
#[must_use]
pub fn moves_with_its_node(pod: &Pod, budgets: &[PodDisruptionBudget], now: Timestamp) -> bool {
    is_reschedulable(pod) && do_not_disrupt(pod, now) != Protection::Active && !fully_blocked(pod, budgets)
}

fn fully_blocked(pod: &Pod, budgets: &[PodDisruptionBudget]) -> bool {
    let disrupted = Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule);
    if !is_active(pod) || super::tolerates(&pod.spec.tolerations, &disrupted) {
        return false;
    }
    let selecting: Vec<&PodDisruptionBudget> = budgets
        .iter()
        .filter(|b| b.metadata.namespace == pod.metadata.namespace)
        .filter(|b| b.spec.selector.as_ref().is_some_and(|s| s.matches(&pod.metadata.labels)))
        .collect();
    match &selecting[..] {
        [] => false,
        [only] => {
            let unready = pod.condition("Ready").is_some_and(|c| c.status == "False");
            !(only.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" && unready) && never_allows(only)
        }
        _ => true,
    }
}

fn never_allows(budget: &PodDisruptionBudget) -> bool {
    let none = match &budget.spec.max_unavailable {
        Some(IntOrString::Int(n)) => *n == 0,
        Some(IntOrString::Text(text)) => text == "0%" || text == "0",
        None => false,
    };
    none || matches!(&budget.spec.min_available, Some(IntOrString::Text(text)) if text == "100%")
}

/// Whether the pod asks for dynamic resources, which we recognise but do not allocate.
#[must_use]
pub fn needs_resource_claims(pod: &Pod) -> bool {
    let in_container = |c: &whittle_api::k8s::Container| c.resources.as_ref().is_some_and(|r| !r.claims.is_empty());
    !pod.spec.resource_claims.is_empty() || pod.spec.containers.iter().chain(&pod.spec.init_containers).any(in_container)
}

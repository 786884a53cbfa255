//! Which pods are provisioned for, and which are rescheduled when their node is removed.

use super::budgets::never_allows;
use whittle_api::k8s::{Pod, PodDisruptionBudget, Taint};
use whittle_api::{GoDuration, labels};
use whittle_units::{SignedDuration, Timestamp};

/// Whether to provision for the pod: kube-scheduler found it unschedulable and may still bind it, and no other controller places it
/// (scheduling 4.1).
#[must_use]
pub fn is_provisionable(pod: &Pod) -> bool {
    pod.condition("PodScheduled").is_some_and(|c| c.reason == "Unschedulable")
        && is_active(pod)
        && !pod.is_bound()
        && pod.status.nominated_node_name.is_empty()
        && !is_placed_by_daemon_set(pod)
        && !is_mirror(pod)
}

/// Whether a DaemonSet of Kubernetes owns the pod.
#[must_use]
pub fn is_daemon_owned(pod: &Pod) -> bool {
    owned_by(pod, "DaemonSet", "apps/v1")
}

/// Whether the controller of a DaemonSet places the pod: that of Kubernetes, or of another group with a kind of this name, as OpenKruise's.
fn is_placed_by_daemon_set(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().any(|owner| owner.kind == "DaemonSet")
}

fn is_mirror(pod: &Pod) -> bool {
    owned_by(pod, "Node", "v1")
}

fn owned_by(pod: &Pod, kind: &str, api_version: &str) -> bool {
    pod.metadata.owner_references.iter().any(|o| o.kind == kind && o.api_version == api_version)
}

/// Whether the pod is neither finished nor terminating.
#[must_use]
pub fn is_active(pod: &Pod) -> bool {
    !pod.is_terminal() && !pod.metadata.is_deleting()
}

/// Whether the pod, or its replacement, must be scheduled elsewhere when its node is removed.
#[must_use]
pub fn is_reschedulable(pod: &Pod) -> bool {
    let needs_node = is_active(pod) || (!pod.is_terminal() && owned_by(pod, "StatefulSet", "apps/v1"));
    needs_node && !is_placed_by_daemon_set(pod) && !is_mirror(pod)
}

/// The value of `karpenter.sh/do-not-disrupt`, or of the deprecated `karpenter.sh/do-not-evict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// No annotation, or its duration has elapsed.
    None,
    Active,
    /// The annotation is neither `true` nor a positive duration; it has no effect.
    Unreadable,
}

/// Whether the pod's annotations forbid its disruption at `now`. Finished and terminating pods are not protected.
#[must_use]
pub fn do_not_disrupt(pod: &Pod, now: Timestamp) -> Protection {
    if !is_active(pod) {
        return Protection::None;
    }
    // The deprecated annotation has no durations.
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

/// How long before it is deleted by force a pod is planned for: a tick may be a minute away, and a machine takes about another one until
/// it is ready. It is as long as a spot notice, so that all pods of a machine with such a notice are planned for at once.
const PLANNED_BEFORE_FORCE: SignedDuration = SignedDuration::from_mins(2);

/// Whether to plan for the pod when its node is being removed: it is reschedulable, and neither an annotation nor a
/// PodDisruptionBudget prevents its eviction for good, or it is about to be deleted whatever they say. `deadline` is the time by which
/// the pods of its node must have ended, if there is one.
#[must_use]
pub fn moves_with_its_node(pod: &Pod, budgets: &[PodDisruptionBudget], deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let may_be_evicted = || do_not_disrupt(pod, now) != Protection::Active && !fully_blocked(pod, budgets);
    is_reschedulable(pod) && (deadline.is_some_and(|deadline| is_forced_soon(pod, deadline, now)) || may_be_evicted())
}

/// Whether the pod is deleted by force soon: when its grace period just fits before the deadline (lifecycle 16).
fn is_forced_soon(pod: &Pod, deadline: Timestamp, now: Timestamp) -> bool {
    let grace = SignedDuration::from_secs(pod.spec.termination_grace_period_seconds.unwrap_or_default());
    deadline.duration_since(now) <= PLANNED_BEFORE_FORCE.saturating_add(grace)
}

fn fully_blocked(pod: &Pod, budgets: &[PodDisruptionBudget]) -> bool {
    if !is_active(pod) || super::tolerates(&pod.spec.tolerations, &Taint::disrupted()) {
        return false;
    }
    let selecting: Vec<&PodDisruptionBudget> = budgets
        .iter()
        .filter(|b| b.metadata.namespace == pod.metadata.namespace)
        .filter(|b| b.spec.selector.as_ref().is_some_and(|s| s.matches(&pod.metadata.labels)))
        .collect();
    match &selecting[..] {
        [] => false,
        [budget] => {
            let unready = pod.condition("Ready").is_some_and(|c| c.status == "False");
            !(budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" && unready) && never_allows(budget)
        }
        _ => true,
    }
}

/// Whether the pod uses dynamic resource claims, which are recognised but not allocated.
#[must_use]
pub fn needs_resource_claims(pod: &Pod) -> bool {
    let in_container = |c: &whittle_api::k8s::Container| c.resources.as_ref().is_some_and(|r| !r.claims.is_empty());
    !pod.spec.resource_claims.is_empty() || pod.spec.containers.iter().chain(&pod.spec.init_containers).any(in_container)
}

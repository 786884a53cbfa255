//! PodDisruptionBudgets as the controller of Kubernetes reads them.

use whittle_api::k8s::{IntOrString, PdbStatus, Pod, PodDisruptionBudget};

/// Whether a budget is about a pod.
#[must_use]
pub fn budget_covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    budget.metadata.namespace == pod.metadata.namespace
        && budget.spec.selector.as_ref().is_some_and(|selector| selector.matches(&pod.metadata.labels))
}

/// Whether a pod has the condition Ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    pod.condition("Ready").is_some_and(|condition| condition.status == "True")
}

/// The status of a budget over pods of which `healthy` are ready and `expected` are to be there.
#[must_use]
pub fn budget_status(budget: &PodDisruptionBudget, healthy: i64, expected: i64) -> PdbStatus {
    let desired = match (&budget.spec.min_available, &budget.spec.max_unavailable) {
        (Some(_), Some(_)) => None,
        (Some(least), None) => share(least, expected),
        (None, Some(most)) => share(most, expected).map(|most| expected.saturating_sub(most)),
        (None, None) => Some(expected),
    };
    let small = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    // What cannot be understood allows nothing.
    let allowed = desired.map_or(0, |desired| healthy - desired.max(0));
    let desired = desired.unwrap_or(expected).max(0);
    PdbStatus {
        disruptions_allowed: small(allowed.max(0)),
        current_healthy: small(healthy),
        desired_healthy: small(desired),
        expected_pods: small(expected),
        observed_generation: budget.metadata.generation.unwrap_or(1),
    }
}
/// How many of some pods a budget's number or percentage is, rounded up; `None` for one that no API server accepts.
fn share(value: &IntOrString, of: i64) -> Option<i64> {
    match value {
        IntOrString::Int(count) => (0 <= *count).then_some(*count),
        IntOrString::Text(text) => {
            let percent = text.strip_suffix('%')?.parse::<u32>().ok().filter(|percent| *percent <= 100)?;
            let product = i64::from(percent).saturating_mul(of);
            Some(product / 100 + i64::from(product % 100 != 0))
        }
    }
}

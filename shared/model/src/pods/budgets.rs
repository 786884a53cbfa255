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

/// Whether a budget can never allow an eviction, however many of its pods are ready. A `minAvailable` that equals the number of replicas is
/// not detected, since that number may change.
#[must_use]
pub fn never_allows(budget: &PodDisruptionBudget) -> bool {
    let none = match &budget.spec.max_unavailable {
        Some(IntOrString::Int(n)) => *n == 0,
        Some(IntOrString::Text(text)) => text == "0%" || text == "0",
        None => false,
    };
    none || matches!(&budget.spec.min_available, Some(IntOrString::Text(text)) if text == "100%")
}

/// The pods that a budget is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// How many are ready.
    pub healthy: i64,
    pub pods: i64,
    /// How many their controllers are to have together. Pods without a controller are none of these.
    pub scale: i64,
}

/// The status of a budget. A number of pods to stay is one of those that there are; what else it says is a share of what controllers
/// are to have.
#[must_use]
pub fn budget_status(budget: &PodDisruptionBudget, covered: Covered) -> PdbStatus {
    let Covered { healthy, pods, scale } = covered;
    let (expected, desired) = match (&budget.spec.min_available, &budget.spec.max_unavailable) {
        (Some(_), Some(_)) => (scale, None),
        (Some(least @ IntOrString::Int(_)), None) => (pods, share(least, pods)),
        (Some(least), None) => (scale, share(least, scale)),
        (None, Some(most)) => (scale, share(most, scale).map(|most| scale.saturating_sub(most))),
        (None, None) => (0, Some(0)),
    };
    let small = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    // What cannot be understood allows nothing.
    let allowed = desired.filter(|_| 0 < expected).map_or(0, |desired| healthy - desired.max(0));
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

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::k8s::PdbSpec;

    fn allowed(spec: PdbSpec, covered: Covered) -> i32 {
        budget_status(&PodDisruptionBudget { spec, ..PodDisruptionBudget::default() }, covered).disruptions_allowed
    }

    fn text(text: &str) -> Option<IntOrString> {
        Some(IntOrString::Text(text.to_owned()))
    }

    fn least(value: Option<IntOrString>) -> PdbSpec {
        PdbSpec { min_available: value, ..PdbSpec::default() }
    }

    fn most(value: Option<IntOrString>) -> PdbSpec {
        PdbSpec { max_unavailable: value, ..PdbSpec::default() }
    }

    const FOUR: Covered = Covered { healthy: 4, pods: 4, scale: 4 };

    #[test]
    fn a_budget_that_cannot_be_understood_allows_nothing() {
        let number = |count| Some(IntOrString::Int(count));
        for (spec, count) in [(least(number(3)), 1), (least(text("50%")), 2), (most(text("50%")), 2), (most(number(9)), 4)] {
            assert_eq!(allowed(spec.clone(), FOUR), count, "{spec:?}");
        }
        for value in [text("zz zz"), text("500%"), text("%"), text("7"), number(-5)] {
            assert_eq!([allowed(least(value.clone()), FOUR), allowed(most(value.clone()), FOUR)], [0, 0], "{value:?}");
        }
        let both = PdbSpec { min_available: text("0%"), max_unavailable: text("100%"), ..PdbSpec::default() };
        assert_eq!([allowed(both, FOUR), allowed(PdbSpec::default(), FOUR)], [0, 0]);
    }

    #[test]
    fn a_budget_of_no_pod_or_of_all_pods_never_allows_an_eviction() {
        let never = |spec: PdbSpec| never_allows(&PodDisruptionBudget { spec, ..PodDisruptionBudget::default() });
        let number = |count| Some(IntOrString::Int(count));
        for spec in [most(number(0)), most(text("0%")), least(text("100%"))] {
            assert!(never(spec.clone()), "{spec:?}");
        }
        for spec in [PdbSpec::default(), most(number(1)), most(text("1%")), least(number(3)), least(text("50%")), least(text("0%"))] {
            assert!(!never(spec.clone()), "{spec:?}");
        }
    }

    #[test]
    fn what_is_a_share_is_one_of_what_controllers_are_to_have() {
        let one = || Some(IntOrString::Int(1));
        let three_of_four = Covered { healthy: 3, pods: 3, scale: 4 };
        assert_eq!([allowed(most(one()), three_of_four), allowed(least(text("50%")), three_of_four)], [0, 1]);
        assert_eq!(allowed(least(one()), three_of_four), 2);
        let bare = Covered { healthy: 3, pods: 3, scale: 0 };
        assert_eq!([allowed(most(one()), bare), allowed(least(text("50%")), bare), allowed(least(one()), bare)], [0, 0, 2]);
    }
}

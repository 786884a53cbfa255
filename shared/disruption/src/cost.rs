//! Disruption cost (disruption 4), in exact integers.

use std::iter::Sum;
use std::ops::Add;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodeClaim;
use whittle_model::pods::{DELETION_COST, is_daemon_owned};
use whittle_units::Timestamp;

/// Cost of evictions; [`Cost::ONE`] is that of one ordinary pod. Counted in units of 2^-27, the weight of one point of
/// `pod-deletion-cost`, so that sums are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(i64);

impl Cost {
    /// No disruption.
    pub const ZERO: Self = Self(0);
    /// One ordinary pod, and the base cost of disrupting a node at all.
    pub const ONE: Self = Self(1 << 27);
    /// Bound on the absolute cost of one pod.
    const LIMIT: i64 = 10 << 27;

    /// In ordinary pods, for output.
    #[expect(clippy::cast_precision_loss, reason = "output; decisions compare the integers")]
    pub fn pods(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }
    /// In units of 2^-27 of an ordinary pod.
    pub const fn raw(self) -> i64 {
        self.0
    }
    fn or_zero(self) -> Self {
        self.max(Self::ZERO)
    }
}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::ZERO, Add::add)
    }
}

/// Cost of evicting one pod: 1, adjusted by its deletion cost and priority, between -10 and 10.
pub fn eviction_cost(pod: &Pod) -> Cost {
    let deletion_cost = pod.metadata.annotation(DELETION_COST).and_then(points).unwrap_or(0);
    let priority = i64::from(pod.spec.priority.unwrap_or(0));
    // A point of priority weighs four points of deletion cost: 2^-25.
    let raw = Cost::ONE.0.saturating_add(deletion_cost).saturating_add(priority.saturating_mul(4));
    Cost(raw.clamp(-Cost::LIMIT, Cost::LIMIT))
}

/// A deletion cost as an integer; `None` for text that is not a number. The bound lies beyond the one on costs.
#[expect(clippy::cast_possible_truncation, reason = "clamped to the limit first")]
fn points(text: &str) -> Option<i64> {
    let bound = 4e9;
    text.trim().parse::<f64>().ok().filter(|number| !number.is_nan()).map(|number| number.clamp(-bound, bound).round() as i64)
}

/// Cost of rescheduling all pods of a node, the node itself included.
pub fn reschedule_cost<'a>(reschedulable: impl IntoIterator<Item = &'a Pod>) -> Cost {
    Cost::ONE + reschedulable.into_iter().map(|pod| eviction_cost(pod).or_zero()).sum()
}

/// What a node that is no candidate adds to its pool's total disruption (disruption 9): DaemonSet pods do not count.
pub(crate) fn non_candidate_cost<'a>(all: impl IntoIterator<Item = &'a Pod>) -> Cost {
    let counted = all.into_iter().filter(|pod| !is_daemon_owned(pod) && !pod.is_terminal());
    Cost::ONE + counted.map(|pod| eviction_cost(pod).or_zero()).sum()
}

/// A node's eviction costs weighted by its remaining lifetime: static scale-down removes the lowest first. In units of
/// 2^-27 ordinary pods times a millionth of the lifetime.
pub(crate) fn lifetime_cost<'a>(all: impl IntoIterator<Item = &'a Pod>, claim: &NodeClaim, now: Timestamp) -> i128 {
    let cost: Cost = all.into_iter().map(eviction_cost).sum();
    i128::from(cost.0) * i128::from(remaining_lifetime_millionths(claim, now))
}

fn remaining_lifetime_millionths(claim: &NodeClaim, now: Timestamp) -> i64 {
    const WHOLE: i64 = 1_000_000;
    let Some(lifetime) = claim.spec.expire_after.span() else { return WHOLE };
    let Some(created) = claim.metadata.creation_timestamp else { return WHOLE };
    let remaining = lifetime.as_nanos() - now.duration_since(created).as_nanos();
    if lifetime.as_nanos() <= 0 {
        return 0;
    }
    i64::try_from((remaining * i128::from(WHOLE)).div_euclid(lifetime.as_nanos())).unwrap_or(WHOLE).clamp(0, WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::NillableDuration;

    fn pod(deletion_cost: Option<&str>, priority: Option<i32>) -> Pod {
        let mut pod = Pod::default();
        if let Some(cost) = deletion_cost {
            pod.metadata.annotations.insert(DELETION_COST.to_owned(), cost.to_owned());
        }
        pod.spec.priority = priority;
        pod
    }

    #[track_caller]
    fn check(deletion_cost: Option<&str>, priority: Option<i32>, want: f64) {
        let cost = eviction_cost(&pod(deletion_cost, priority)).pods();
        assert!((cost - want).abs() < 1e-6, "{cost} for {deletion_cost:?} {priority:?}, want {want}");
    }

    #[test]
    fn an_ordinary_pod_costs_one() {
        check(None, None, 1.0);
        check(Some("none"), None, 1.0);
        check(Some("2147483647"), None, 17.0f64.min(10.0));
        check(Some("134217728"), None, 2.0);
        check(Some("-134217728"), None, 0.0);
        check(Some("-2147483648"), None, -10.0);
        check(None, Some(33_554_432), 2.0);
        check(None, Some(2_000_001_000), 10.0);
        check(None, Some(-33_554_432), 0.0);
    }

    #[test]
    fn only_positive_costs_count_for_moving() {
        let (plain, negative) = (pod(None, None), pod(Some("-2147483648"), None));
        assert_eq!(reschedule_cost([]), Cost::ONE);
        assert_eq!(reschedule_cost([&negative]), Cost::ONE);
        assert_eq!(reschedule_cost([&plain, &negative, &plain]).pods().to_bits(), 3.0f64.to_bits());
    }

    #[test]
    fn a_node_near_its_end_is_cheap_to_lose() {
        let now: Timestamp = "2026-01-31T00:00:00Z".parse().unwrap();
        let claim = |created: &str, lifetime: NillableDuration| {
            let mut claim = NodeClaim::default();
            claim.metadata.creation_timestamp = Some(created.parse().unwrap());
            claim.spec.expire_after = lifetime;
            claim
        };
        let days = |days: i64| NillableDuration::from_secs(days * 86_400);
        let remaining = |claim: NodeClaim| remaining_lifetime_millionths(&claim, now);
        assert_eq!(remaining(claim("2026-01-16T00:00:00Z", days(30))), 500_000);
        assert_eq!(remaining(claim("2025-01-01T00:00:00Z", days(30))), 0);
        assert_eq!(remaining(claim("2025-01-01T00:00:00Z", NillableDuration::Never)), 1_000_000);
        assert_eq!(remaining(claim("2026-02-01T00:00:00Z", days(30))), 1_000_000, "a clock that jumped back gives the full lifetime");
    }
}

//! Expiration (disruption 14): deletes nodes at the end of their lifetime, without budgets or replacements.

use whittle_api::karpenter::NodeClaim;
use whittle_units::Timestamp;

/// When a claim expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It never expires, is being deleted already, or is unmanaged.
    None,
    /// It expires then.
    At(Timestamp),
    /// It has expired and is to be deleted.
    Due,
}

/// Compares a claim's own `expireAfter` with its age. The NodePool's current `expireAfter` does not matter: a change of
/// it is drift.
#[must_use]
pub fn expiry(claim: &NodeClaim, now: Timestamp) -> Expiry {
    if claim.metadata.is_deleting() || !super::cluster_view::is_managed_class(&claim.spec.node_class_ref) {
        return Expiry::None;
    }
    let Some((lifetime, created)) = claim.spec.expire_after.span().zip(claim.metadata.creation_timestamp) else { return Expiry::None };
    match created.checked_add(lifetime) {
        Ok(end) if end <= now => Expiry::Due,
        Ok(end) => Expiry::At(end),
        Err(_) => Expiry::None,
    }
}

/// Value of the metric label `termination_mode`: how the claim's pods are evicted.
#[must_use]
pub fn termination_mode(claim: &NodeClaim) -> &'static str {
    match &claim.spec.termination_grace_period {
        None => "graceful",
        Some(grace) if grace.span().is_positive() => "eventual",
        Some(_) => "forceful",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::NillableDuration;
    use whittle_api::karpenter::NodeClassReference;

    fn claim(lifetime: NillableDuration) -> NodeClaim {
        let mut claim = NodeClaim::default();
        claim.metadata.creation_timestamp = Some(Timestamp::UNIX_EPOCH);
        claim.spec.expire_after = lifetime;
        claim.spec.node_class_ref =
            NodeClassReference { group: "karpenter.k8s.aws".to_owned(), kind: "EC2NodeClass".to_owned(), name: "default".to_owned() };
        claim
    }

    #[track_caller]
    fn check(lifetime: NillableDuration, second: i64, want: Expiry) {
        assert_eq!(expiry(&claim(lifetime), Timestamp::from_second(second).unwrap()), want);
    }

    #[test]
    fn a_claim_expires_by_its_own_age() {
        let hour = || NillableDuration::from_secs(3600);
        check(hour(), 3599, Expiry::At(Timestamp::from_second(3600).unwrap()));
        check(hour(), 3600, Expiry::Due);
        check(NillableDuration::Never, 1_000_000_000, Expiry::None);
        let mut deleting = claim(hour());
        deleting.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        assert_eq!(expiry(&deleting, Timestamp::from_second(9999).unwrap()), Expiry::None);
        let mut unmanaged = claim(hour());
        unmanaged.spec.node_class_ref.group = "example.com".to_owned();
        assert_eq!(expiry(&unmanaged, Timestamp::from_second(9999).unwrap()), Expiry::None);
    }
}

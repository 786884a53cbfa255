mod contended;
mod early;
mod effects;

use crate::{lacking_offering, reason, rebalance_setting, rebalance_setting_in, tightens};
use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_claims::{ClaimSpec, DeletionReason, Event, Machine, OfferingKey};
use whittle_ec2::interruption::InterruptionKind;
use whittle_ports::ClusterError;
use whittle_testkit::{after, at, begun, machine, planned};

/// Whether a claim that was deleted at second 0 is changed by a notice of `kind` at second 10.
#[track_caller]
fn check(known: DeletionReason, kind: InterruptionKind, expected: bool) {
    let mut claim = planned("n", ClaimSpec::default());
    claim.deletion = Some(claim.deletion_for(known, "", at(0)));
    assert_eq!(tightens(&claim, kind, at(10)), expected, "{known:?} then {kind:?}");
}

#[test]
fn a_deleted_claim_only_takes_notices_that_leave_less_time() {
    check(DeletionReason::Underutilized, InterruptionKind::SpotInterrupted, true);
    check(DeletionReason::SpotInterruption, InterruptionKind::SpotInterrupted, false);
    check(DeletionReason::SpotInterruption, InterruptionKind::SystemStatus, true);
    check(DeletionReason::Unhealthy, InterruptionKind::SpotInterrupted, false);
    check(DeletionReason::Requested, InterruptionKind::InstanceStopped, false);
    check(DeletionReason::Requested, InterruptionKind::ScheduledChange, false);
}

#[test]
fn only_scheduled_changes_respect_budgets() {
    assert!(reason(InterruptionKind::SpotInterrupted).is_involuntary());
    assert!(reason(InterruptionKind::InstanceTerminated).is_involuntary());
    assert!(!reason(InterruptionKind::ScheduledChange).is_involuntary());
    assert!(!reason(InterruptionKind::RebalanceRecommendation).is_involuntary());
}

#[test]
fn a_rebalance_recommendation_acts_only_if_pool_or_deployment_enable_it() {
    let check = |annotations: &[(&str, &str)], otherwise: bool, expected: bool| {
        let mut pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
        pool.metadata.annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(rebalance_setting(Some(&pool), otherwise), expected, "{annotations:?}, otherwise {otherwise}");
    };
    check(&[], false, false);
    check(&[], true, true);
    check(&[(labels::ACT_ON_REBALANCE, "true")], false, true);
    check(&[(labels::ACT_ON_REBALANCE, "false")], true, false);
    check(&[(labels::ACT_ON_REBALANCE, "yes")], true, false);
    check(&[(labels::ACT_ON_REBALANCE, "true"), (labels::SHADOW, "true")], true, false);
    assert!(!rebalance_setting(None, true), "a missing pool does not act");
}

#[test]
fn a_recommendation_is_not_repeated_for_a_cluster_without_access_and_is_for_one_that_does_not_answer() {
    let spec = ClaimSpec { node_pool: "default".into(), ..ClaimSpec::default() };
    let claim = planned("n", spec);
    let pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    let seen = ClusterObjects { node_pools: vec![pool], ..ClusterObjects::default() };
    let acts = |read| rebalance_setting_in(read, &claim, true);
    assert_eq!(acts(Ok(seen)), Ok(true));
    assert_eq!(acts(Ok(ClusterObjects::default())), Ok(false), "its pool is missing");
    let message = || "401".to_owned();
    assert_eq!(acts(Err(ClusterError::NoAccess { cluster: "c".into(), message: message() })), Ok(false));
    assert_eq!(acts(Err(ClusterError::Invalid { what: "NodePools".to_owned(), message: message() })), Ok(false));
    for may_pass in [
        ClusterError::Throttled { what: "NodePools".to_owned() },
        ClusterError::Unavailable { cluster: "c".into(), what: "NodePools".to_owned(), message: message() },
    ] {
        assert_eq!(acts(Err(may_pass.clone())), Err(may_pass));
    }
}

/// A Provisioner and a NodePool may share a name.
#[test]
fn a_recommendation_is_acted_on_by_the_setting_of_the_claims_own_pool_alone() {
    let pool = |is_old: bool, acts: &str| {
        let mut pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
        pool.metadata.annotations.insert(labels::ACT_ON_REBALANCE.to_owned(), acts.to_owned());
        if is_old {
            pool.metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), "Provisioner".to_owned());
        }
        pool
    };
    for (kind, expected) in [("NodePool", false), ("Provisioner", true)] {
        let mut claim = planned("n", ClaimSpec { node_pool: "default".into(), ..ClaimSpec::default() });
        claim.spec.owner.kind = kind.to_owned();
        for node_pools in [vec![pool(true, "true"), pool(false, "false")], vec![pool(false, "false"), pool(true, "true")]] {
            let seen = ClusterObjects { node_pools, ..ClusterObjects::default() };
            assert_eq!(rebalance_setting_in(Ok(seen), &claim, !expected), Ok(expected), "{kind}");
        }
        let mut other = pool(kind == "Provisioner", "true");
        other.metadata.name = "other".to_owned();
        let seen = ClusterObjects { node_pools: vec![other], ..ClusterObjects::default() };
        assert_eq!(rebalance_setting_in(Ok(seen), &claim, true), Ok(false), "{kind}: it has another name");
    }
}

#[test]
fn interrupted_spot_pools_and_reservations_become_stock_outs() {
    let planned = planned("n", ClaimSpec::default());
    let labels = [(labels::RESERVATION_ID.to_owned(), "cr-1".to_owned())].into();
    let machine = Machine { capacity_type: "reserved".into(), labels, ..machine("i-1") };
    let claim = after(&planned, &[begun("t"), Event::FleetAnswered(machine)], at(0));
    let offering = |kind| lacking_offering(&claim, kind);
    assert_eq!(offering(InterruptionKind::CapacityReservationInterrupted), Some(OfferingKey::of_reservation("cr-1")));
    assert_eq!(offering(InterruptionKind::SpotInterrupted).map(|key| key.to_string()).as_deref(), Some("spot m5.large in z"));
    assert_eq!(offering(InterruptionKind::InstanceStopped), None);
    assert_eq!(lacking_offering(&planned, InterruptionKind::SpotInterrupted), None);
}

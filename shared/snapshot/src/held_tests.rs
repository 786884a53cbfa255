//! When nothing may be decided.

use crate::{ADOPTION_WAIT, Snapshot, is_overdue};
use std::collections::BTreeMap;
use whittle_api::{ClusterObjects, KarpenterSign};
use whittle_claims::Sighting;
use whittle_ports::Settings;
use whittle_testkit::at;
use whittle_units::Timestamp;

fn beside(renewed_at: Option<i64>) -> Snapshot {
    let sign = KarpenterSign { object: "lease/karpenter-leader-election in namespace kube-system".into(), renewed_at: renewed_at.map(at) };
    let objects = ClusterObjects { karpenter: vec![sign], ..ClusterObjects::default() };
    Snapshot::of(at(0), objects, Vec::new(), Vec::new(), BTreeMap::new())
}

#[test]
fn nothing_is_decided_while_karpenter_runs_but_for_a_comparison() {
    let (active, shadow) = (Settings::default(), Settings { shadow: true, ..Settings::default() });
    for running in [None, Some(-5), Some(-119), Some(3)] {
        assert_eq!(beside(running).held(&active), Some("held_by_karpenter"), "{running:?}");
        assert_eq!(beside(running).held(&shadow), None);
    }
    assert_eq!(beside(Some(-120)).held(&active), None, "a lease that nobody renews tells of nobody");
}

#[test]
fn nothing_is_decided_while_the_table_does_not_know_what_the_cluster_shows() {
    let known = Snapshot::of(at(0), ClusterObjects::default(), Vec::new(), Vec::new(), BTreeMap::new());
    assert_eq!(known.held(&Settings::default()), None);
    let behind = Snapshot { unclaimed: vec!["default-1".into()], ..known };
    assert_eq!(behind.held(&Settings::default()), Some("held_for_adoption"));
    assert_eq!(behind.held(&Settings { shadow: true, ..Settings::default() }), None);
}

#[test]
fn a_node_claim_that_nobody_can_adopt_never_holds_up_plans_for_good() {
    let noted = |name: &str| Sighting { subject: Sighting::unclaimed(name), first_seen_at: at(0), expires_at: Timestamp::MAX };
    let sightings = [noted("default-1")];
    let asks = |name: &str, seconds| is_overdue(&Sighting::unclaimed(name), &sightings, at(seconds));
    assert!(!asks("default-1", 0) && !asks("default-1", ADOPTION_WAIT.as_secs() - 1));
    assert!(asks("default-1", ADOPTION_WAIT.as_secs()));
    assert!(!asks("default-2", i64::from(u32::MAX)), "one that no sweep has seen yet is waited for");
}

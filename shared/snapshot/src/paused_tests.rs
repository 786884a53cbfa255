//! When no decision may be made.

use crate::{ADOPTION_WAIT, Snapshot, is_overdue};
use std::collections::BTreeMap;
use whittle_api::{ClusterObjects, KarpenterSign};
use whittle_claims::{LeftNodes, Sighting};
use whittle_ports::{Mode, Settings};
use whittle_testkit::at;
use whittle_units::Timestamp;

fn with_karpenter(renewed_at: Option<i64>) -> Snapshot {
    let sign = KarpenterSign { object: "lease/karpenter-leader-election in namespace kube-system".into(), renewed_at: renewed_at.map(at) };
    let objects = ClusterObjects { karpenter: vec![sign], ..ClusterObjects::default() };
    Snapshot::of(at(0), objects, Vec::new(), Vec::new(), BTreeMap::new())
}

#[test]
fn no_decision_is_made_while_karpenter_runs_except_in_shadow_mode() {
    let (active, shadow) = (Settings::default(), Settings { mode: Mode::Shadow, ..Settings::default() });
    for running in [None, Some(-5), Some(-119), Some(3)] {
        assert_eq!(with_karpenter(running).why_paused(&active), Some("held_by_karpenter"), "{running:?}");
        assert_eq!(with_karpenter(running).why_paused(&shadow), None);
    }
    assert_eq!(with_karpenter(Some(-120)).why_paused(&active), None, "an expired lease has no holder");
}

#[test]
fn no_decision_is_made_while_a_node_claim_has_no_claim() {
    let known = Snapshot::of(at(0), ClusterObjects::default(), Vec::new(), Vec::new(), BTreeMap::new());
    assert_eq!(known.why_paused(&Settings::default()), None);
    let behind = Snapshot { unclaimed: vec!["default-1".into()], ..known };
    assert_eq!(behind.why_paused(&Settings::default()), Some("held_for_adoption"));
    assert_eq!(behind.why_paused(&Settings { mode: Mode::Shadow, ..Settings::default() }), None);
}

#[test]
fn machines_of_an_uninstallation_are_left_running_unless_they_are_drained() {
    let left = |uninstalling: Option<LeftNodes>| {
        let served = Snapshot::of(at(0), ClusterObjects::default(), Vec::new(), Vec::new(), BTreeMap::new());
        Snapshot { uninstalling, ..served }.is_left_running()
    };
    assert!(left(Some(LeftNodes::Keep)) && left(Some(LeftNodes::HandOver)));
    assert!(!left(Some(LeftNodes::Drain)) && !left(None));
}

#[test]
fn a_node_claim_that_cannot_be_adopted_does_not_block_plans_forever() {
    let first_seen = |name: &str| Sighting { subject: Sighting::unclaimed(name), first_seen_at: at(0), expires_at: Timestamp::MAX };
    let sightings = [first_seen("default-1")];
    let overdue = |name: &str, seconds| is_overdue(&Sighting::unclaimed(name), &sightings, at(seconds));
    assert!(!overdue("default-1", 0) && !overdue("default-1", ADOPTION_WAIT.as_secs() - 1));
    assert!(overdue("default-1", ADOPTION_WAIT.as_secs()));
    assert!(!overdue("default-2", i64::from(u32::MAX)), "no sweep has seen it yet");
}

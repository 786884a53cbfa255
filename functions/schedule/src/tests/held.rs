//! Plans that are not made, because they would launch what is there already.

use super::over_sim::world;
use super::pod;
use futures::executor::block_on;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{KarpenterSign, labels};
use whittle_claims::{Claim, Revision, Sighting, mirror};
use whittle_ports::{Adapters, Records, Settings};
use whittle_testkit::{TestWorld, at, default_spec, key};
use whittle_units::Timestamp;

fn claim() -> Claim {
    Claim::planned(key("lost"), "uid".into(), default_spec(), at(-600))
}

/// Whether a run makes no plan for a pod that waits beside this NodeClaim. `prepare` changes the world before.
fn is_held(shown: NodeClaim, prepare: impl FnOnce(&TestWorld)) -> bool {
    let world = world();
    world.create(pod("waits", 1));
    world.create(shown);
    prepare(&world);
    let ports = world.ports();
    let report = block_on(crate::handle(Adapters::all(&ports), &Settings::default(), &key("a").cluster)).unwrap();
    let is_held = report.counted("held_for_adoption") == 1;
    assert_eq!((report.gauges.is_empty(), report.decisions.is_empty()), (is_held, is_held), "{report:?}");
    is_held
}

#[test]
fn nothing_is_planned_while_a_node_claim_of_ours_has_no_claim() {
    assert!(is_held(mirror(&claim()), |_| ()));
    let mut deleted = mirror(&claim());
    deleted.metadata.deletion_timestamp = Some(at(-5));
    assert!(!is_held(deleted, |_| ()), "its machine goes");
    let mut of_others = mirror(&claim());
    of_others.metadata.annotations.remove(labels::MANAGED);
    assert!(!is_held(of_others, |_| ()), "whoever made it");
    assert!(!is_held(mirror(&claim()), |world| world.store(&claim())), "it has one");
    let spoil = |world: &TestWorld| {
        world.store(&claim());
        world.world().store.spoil_claim(&claim().key);
    };
    assert!(!is_held(mirror(&claim()), spoil), "it has one that cannot be read");
}

/// Two controllers would launch two machines for one pod.
#[test]
fn nothing_is_planned_while_karpenter_runs() {
    let world = world();
    world.create(pod("waits", 1));
    let object = "lease/karpenter-leader-election in namespace kube-system".to_owned();
    world.world().cluster.karpenter = vec![KarpenterSign { object, renewed_at: None }];
    let ports = world.ports();
    let run = || block_on(crate::handle(Adapters::all(&ports), &Settings::default(), &key("a").cluster)).unwrap();
    let report = run();
    assert_eq!((report.counted("held_by_karpenter"), report.gauges.len(), report.decisions.len()), (1, 0, 0));
    world.world().cluster.karpenter.clear();
    let report = run();
    assert!(report.counted("held_by_karpenter") == 0 && !report.gauges.is_empty() && !report.decisions.is_empty(), "{report:?}");
}

/// A surplus machine is removed later. Without plans no pod ever gets one.
#[test]
fn pods_wait_ten_minutes_for_the_adoption_of_a_node_claim_and_no_longer() {
    let is_held_since = |second: i64| {
        is_held(mirror(&claim()), |world| {
            let sighting = Sighting { subject: Sighting::unclaimed("lost"), first_seen_at: at(second), expires_at: Timestamp::MAX };
            block_on(world.ports().write(&key("a").cluster, &sighting, Revision::ABSENT)).unwrap();
        })
    };
    assert_eq!([-1, -599, -600].map(is_held_since), [true, true, false]);
}

//! Zonal shifts: terminations wait for their end, and nothing else changes.

use super::NODE;
use super::over_sim::{Scene, ending, own_machine, planned, running, serving};
use crate::LastPlanned;
use futures::executor::block_on;
use whittle_api::ConditionStatus;
use whittle_api::k8s::{Node, Pod};
use whittle_claims::{Claim, Phase, Revision, ShiftState, ZoneShift, ZoneShifts};
use whittle_ec2::instance::InstanceState;
use whittle_ports::{Adapters, Records, Report, Settings};
use whittle_testkit::at;
use whittle_units::Timestamp;

/// A scene in which a zonal shift away from a zone is stored.
fn scene(claim: &Claim, zone: &str, state: ShiftState, ends_at: Timestamp) -> Scene {
    let scene = Scene::of(claim);
    let shift = ZoneShift { away_from: "use1-az9".into(), ends_at, state };
    let record = ZoneShifts::after(None, &[shift], &[("use1-az9".to_owned(), zone.to_owned())].into());
    block_on(scene.ports().write(&planned().key.cluster, &record, Revision::ABSENT)).unwrap();
    scene
}

fn shifted(claim: &Claim) -> Scene {
    scene(claim, &own_machine().zone, ShiftState::Applied, at(600))
}

fn run_with(scene: &Scene, settings: &Settings) -> Report {
    let ports = scene.ports();
    block_on(crate::handle(Adapters::all(&ports), settings, &LastPlanned::default(), &planned().key)).unwrap()
}

fn run(scene: &Scene) -> Report {
    run_with(scene, &Settings { zonal_shift: true, ..Settings::default() })
}

#[test]
fn a_termination_waits_for_the_end_of_the_zonal_shift() {
    let mut scene = shifted(&ending(None));
    run(&scene);
    for second in [5, 20, 599] {
        scene.set_time(second);
        let report = run(&scene);
        assert_eq!(report.counted("termination_sent"), 0, "at {second} s");
        assert_eq!(scene.state(), InstanceState::Running);
    }
    assert!(scene.is_held() && matches!(scene.claim().phase, Phase::Draining { .. }));
    assert!(!scene.events("TerminationHeld").is_empty());
    scene.set_time(600);
    assert_eq!(run(&scene).counted("termination_sent"), 1);
    assert_ne!(scene.state(), InstanceState::Running);
}

#[test]
fn the_pods_of_a_deleted_node_leave_a_shifted_zone() {
    let scene = shifted(&ending(None));
    scene.create(running("web-1"));
    assert_eq!(run(&scene).counted("evicted"), 1, "whoever had the node deleted wants its pods elsewhere");
}

#[test]
fn not_even_a_deadline_that_has_passed_terminates_in_a_shifted_zone() {
    let mut scene = shifted(&ending(Some(at(1))));
    scene.set_time(30);
    assert_eq!(run(&scene).counted("held_by_zonal_shift"), 0, "an empty node is watched first");
    scene.set_time(60);
    assert_eq!(run(&scene).counted("held_by_zonal_shift"), 1);
    assert_eq!(scene.state(), InstanceState::Running);
}

#[test]
fn a_shift_that_is_over_not_applied_elsewhere_or_not_asked_for_holds_nothing() {
    let own = own_machine().zone;
    let on = Settings { zonal_shift: true, ..Settings::default() };
    for (zone, state, end, settings) in [
        (own.as_str(), ShiftState::Applied, 5, &on),
        (own.as_str(), ShiftState::NotApplied, 600, &on),
        ("elsewhere", ShiftState::Applied, 600, &on),
        (own.as_str(), ShiftState::Applied, 600, &Settings::default()),
    ] {
        let mut scene = scene(&ending(None), zone, state, at(end));
        run_with(&scene, settings);
        scene.set_time(5);
        let report = run_with(&scene, settings);
        assert_eq!((report.counted("termination_sent"), report.counted("held_by_zonal_shift")), (1, 0), "{zone} {state:?} {end}");
    }
}

#[test]
fn a_machine_of_a_shifted_zone_that_ec2_does_not_show_is_not_gone() {
    let mut scene = Scene::of(&ending(None));
    run(&scene);
    scene.set_time(5);
    assert_eq!(run(&scene).counted("termination_sent"), 1);
    let shift = ZoneShift { away_from: "use1-az9".into(), ends_at: at(600), state: ShiftState::Applied };
    let record = ZoneShifts::after(None, &[shift], &[("use1-az9".to_owned(), own_machine().zone)].into());
    block_on(scene.ports().write(&planned().key.cluster, &record, Revision::ABSENT)).unwrap();
    scene.world().region.machines.remove(&own_machine().instance_id);
    for second in [20, 60, 120, 599] {
        scene.set_time(second);
        assert_eq!(run(&scene).counted("terminated"), 0, "at {second} s");
    }
    assert!(scene.get::<Node>(NODE).is_some());
    for second in [600, 640, 680] {
        scene.set_time(second);
        run(&scene);
    }
    assert!(matches!(scene.claim().phase, Phase::Gone { .. }));
}

#[test]
fn a_machine_that_ec2_shows_as_ended_is_released_during_a_shift() {
    let scene = shifted(&ending(None));
    scene.world().region.machines.get_mut(&own_machine().instance_id).unwrap().instance.state = InstanceState::Terminated;
    let mut scene = scene;
    for second in [5, 10, 20] {
        scene.set_time(second);
        run(&scene);
    }
    assert!(matches!(scene.claim().phase, Phase::Gone { .. }), "{:?}", scene.claim().phase);
}

#[test]
fn a_shift_deletes_and_evicts_nothing() {
    let scene = shifted(&serving());
    scene.create(running("web-1"));
    assert_eq!(run(&scene), Report::default());
    assert_eq!(scene.state(), InstanceState::Running);
    assert!(scene.get::<Pod>("default/web-1").is_some_and(|pod| !pod.metadata.is_deleting()));
}

/// A user who deletes the node of a machine that died wants its pods elsewhere, and the machine may only be hidden.
#[test]
fn a_machine_that_seems_lost_in_a_shifted_zone_is_drained_and_then_held() {
    let mut scene = shifted(&ending(Some(at(400))));
    scene.create(running("web-1"));
    scene.world().region.machines.clear();
    scene.change::<Node>(NODE, |node| {
        node.status.conditions[0].status = ConditionStatus::Unknown;
        node.status.conditions[0].last_transition_time = Some(at(-600));
    });
    assert_eq!(run(&scene).counted("evicted"), 1);
    assert!(scene.get::<Node>(NODE).is_some_and(|node| node.metadata.is_deleting()));
    for second in [410, 450, 599] {
        scene.set_time(second);
        run(&scene);
    }
    assert!(matches!(scene.claim().phase, Phase::Draining { .. }), "{:?}", scene.claim().phase);
    for second in [600, 640, 680] {
        scene.set_time(second);
        run(&scene);
    }
    assert!(matches!(scene.claim().phase, Phase::Gone { .. }), "{:?}", scene.claim().phase);
}

/// Zones are known by their ids where no class has had a subnet with their names.
#[test]
fn a_machine_is_held_by_the_id_of_its_zone() {
    let mut claim = ending(None);
    if let Phase::Draining { machine, .. } = &mut claim.phase {
        machine.labels.insert(whittle_api::labels::ZONE_ID.into(), "use1-az9".into());
    }
    let mut scene = scene(&claim, "unknown", ShiftState::Applied, at(600));
    run(&scene);
    scene.set_time(60);
    assert_eq!(run(&scene).counted("held_by_zonal_shift"), 1);
}

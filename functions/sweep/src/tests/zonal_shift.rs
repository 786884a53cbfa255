//! Zonal shifts: what is stored and reported, and what sweeps then leave alone.

use super::over_sim::{still, sweep};
use super::{Scene, change, registered, scene};
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_claims::{Claim, DeletionReason, NodeClassRecord, Revision, ShiftState, ShiftedZones, ZoneShift, ZoneShifts};
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{ClusterRecord, RecordReader, Records, Settings};
use whittle_testkit::{TestWorld, at, pool_named};
use whittle_units::{ClusterName, SignedDuration};

fn cluster() -> ClusterName {
    ClusterName::new("c")
}

fn on() -> Settings {
    Settings { zonal_shift: true, ..Settings::default() }
}

/// A world with a catalog, the cluster's record, and a pool whose class has a subnet in the first zone. Returns the id of that zone.
fn world(arn: Option<&str>) -> (TestWorld, String) {
    let simulation = still();
    let mut world = simulation.world();
    let blob = world.region.catalog_blob();
    world.store.put_catalog(&blob, Revision::ABSENT).unwrap();
    let zone = world.region.catalog.zones[0].clone();
    let arn = arn.map_or_else(|| world.region.cluster_arn(&cluster()), str::to_owned);
    drop(world);
    let record = ClusterRecord { info: ClusterInfo { name: cluster(), arn, ..ClusterInfo::default() } };
    block_on(simulation.ports().write(&cluster(), &record, Revision::ABSENT)).unwrap();
    let subnet = whittle_api::karpenter::ResolvedSubnet { id: "s".into(), zone: zone.name, zone_id: zone.id.clone() };
    let class = whittle_testkit::resolved_class("default");
    let class = NodeClassRecord { subnets: vec![subnet], ..class };
    block_on(simulation.ports().write(&cluster(), &class, Revision::ABSENT)).unwrap();
    let pool = |name: &str| {
        let mut pool = pool_named(name);
        pool.spec.template.spec.node_class_ref.name = "default".into();
        pool
    };
    simulation.create(pool("default"));
    simulation.create(pool_named("of another class"));
    let mut elsewhere = pool("elsewhere");
    elsewhere.spec.template.metadata.labels.insert(whittle_api::labels::ZONE.into(), "us-east-1f".into());
    simulation.create(elsewhere);
    (simulation, zone.id)
}

fn shift(simulation: &TestWorld, zone: &str, state: ShiftState, ends: i64) {
    simulation.world().region.zone_shifts = vec![ZoneShift { away_from: zone.into(), ends_at: at(ends), state }];
}

fn stored(simulation: &TestWorld) -> Option<ZoneShifts> {
    block_on(simulation.ports().read::<ZoneShifts>(&cluster(), ZoneShifts::NAME)).unwrap().map(|stored| stored.value)
}

fn shifted(simulation: &TestWorld) -> ShiftedZones {
    stored(simulation).map(|known| known.shifted(simulation.world().now())).unwrap_or_default()
}

fn events(simulation: &TestWorld) -> Vec<(String, String)> {
    let world = simulation.world();
    let ours = world.cluster.events.iter().filter(|kept| kept.event.reason.starts_with("ZonalShift"));
    ours.map(|kept| (kept.event.reason.clone(), kept.event.name.clone())).collect()
}

#[test]
fn a_shift_is_stored_and_reported_once_on_the_pools_that_it_concerns() {
    let (mut simulation, zone) = world(None);
    sweep(&simulation, &on());
    assert_eq!((shifted(&simulation), events(&simulation)), (ShiftedZones::default(), vec![]));
    shift(&simulation, &zone, ShiftState::Applied, 3600);
    for _ in 0..2 {
        simulation.run_for(SignedDuration::from_mins(1));
        sweep(&simulation, &on());
    }
    assert_eq!((shifted(&simulation).ids.len(), shifted(&simulation).names.len()), (1, 1));
    let begun = ("ZonalShiftActive".to_owned(), "default".to_owned());
    assert_eq!(events(&simulation), std::slice::from_ref(&begun));
    simulation.world().region.zone_shifts.clear();
    simulation.run_for(SignedDuration::from_mins(1));
    sweep(&simulation, &on());
    assert_eq!(shifted(&simulation), ShiftedZones::default());
    assert_eq!(events(&simulation), [begun, ("ZonalShiftCleared".to_owned(), "default".to_owned())]);
}

#[test]
fn a_shift_that_runs_out_is_reported_as_ended() {
    let (mut simulation, zone) = world(None);
    shift(&simulation, &zone, ShiftState::Applied, 30);
    sweep(&simulation, &on());
    simulation.run_for(SignedDuration::from_mins(1));
    sweep(&simulation, &on());
    assert_eq!(events(&simulation).last().unwrap().0, "ZonalShiftCleared");
}

#[test]
fn a_shift_that_is_not_applied_shifts_and_reports_nothing() {
    let (simulation, zone) = world(None);
    shift(&simulation, &zone, ShiftState::NotApplied, 3600);
    sweep(&simulation, &on());
    assert_eq!((shifted(&simulation), events(&simulation)), (ShiftedZones::default(), vec![]));
}

#[test]
fn a_failed_poll_keeps_what_is_known_and_fails_nothing() {
    let (simulation, zone) = world(None);
    simulation.world().region.denied.insert("GetManagedResource");
    let known = ZoneShift { away_from: zone.clone(), ends_at: at(3600), state: ShiftState::Applied };
    let known = ZoneShifts::after(None, &[known], &[(zone, "us-east-1a".to_owned())].into()).announce(at(0)).0;
    block_on(simulation.ports().write(&cluster(), &known, Revision::ABSENT)).unwrap();
    let report = sweep(&simulation, &on());
    assert_eq!(report.counted("zonal_shifts_unseen"), 1);
    assert_eq!((stored(&simulation), events(&simulation)), (Some(known), vec![]));
}

#[test]
fn a_cluster_that_is_not_registered_any_more_has_no_shifts() {
    let (simulation, zone) = world(Some("arn:aws:eks:us-east-1:000000000000:cluster/unregistered"));
    let known = ZoneShift { away_from: zone, ends_at: at(3600), state: ShiftState::Applied };
    let known = ZoneShifts::after(None, &[known], &BTreeMap::new());
    block_on(simulation.ports().write(&cluster(), &known, Revision::ABSENT)).unwrap();
    let report = sweep(&simulation, &on());
    assert_eq!((report.counted("not_registered_for_shifts"), shifted(&simulation)), (1, ShiftedZones::default()));
}

#[test]
fn without_the_setting_nobody_asks() {
    let (simulation, zone) = world(Some("arn:aws:eks:us-east-1:000000000000:cluster/unregistered"));
    shift(&simulation, &zone, ShiftState::Applied, 3600);
    let report = sweep(&simulation, &Settings::default());
    assert_eq!((report.counted("zonal_shifts_unseen"), stored(&simulation)), (0, None));
}

/// A scene in which the zones of these names are shifted.
fn in_shift(claim: Claim, zones: &[&str]) -> Scene {
    let names = zones.iter().map(|zone| (*zone).to_owned()).collect();
    change(scene(claim), |scene| scene.shifted = ShiftedZones { names, ..ShiftedZones::default() })
}

fn reasons(scene: &Scene) -> Vec<DeletionReason> {
    scene.twice(30).1.end.iter().map(|end| end.reason).collect()
}

#[test]
fn a_machine_of_a_shifted_zone_is_neither_lost_nor_expired() {
    let own = registered().machine().unwrap().zone.clone();
    let lost = |zones: &[&str]| {
        change(in_shift(registered(), zones), |scene| {
            scene.instances.clear();
            scene.objects.nodes = vec![super::node(false)];
        })
    };
    assert_eq!(reasons(&lost(&[&own])), []);
    assert_eq!(reasons(&lost(&["elsewhere"])), [DeletionReason::InstanceGone]);
    let mut old = registered();
    old.spec.expire_after = "1s".parse().unwrap();
    assert_eq!(reasons(&in_shift(old.clone(), &[&own])), []);
    assert_eq!(reasons(&in_shift(old, &["elsewhere"])), [DeletionReason::Expired]);
}

//! Zonal shifts that began after a claim was planned.

use super::over_sim::keep;
use super::repeated::with_class;
use futures::executor::block_on;
use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::{Phase, Revision, ShiftState, ZoneShift, ZoneShifts};
use whittle_ports::{Adapters, Records, Settings};
use whittle_testkit::at;
use whittle_units::ClusterName;

/// The zones of the call for a claim that any zone suits, while all zones but `open` are shifted; whether the claim failed.
fn zones_of_call(settings: &Settings, open: &[usize], ends: i64) -> (BTreeSet<String>, bool, Vec<String>) {
    let cluster = ClusterName::new("c");
    let simulation = with_class();
    let claim = keep(&simulation, 1);
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let closed = catalog.zones.iter().enumerate().filter(|(place, _)| !open.contains(place));
    let shift = |id: &str| ZoneShift { away_from: id.to_owned(), ends_at: at(ends), state: ShiftState::Applied };
    let shifts: Vec<ZoneShift> = closed.map(|(_, zone)| shift(&zone.id)).collect();
    let record = ZoneShifts::after(None, &shifts, &BTreeMap::new());
    let ports = simulation.ports();
    block_on(ports.write(&cluster, &record, Revision::ABSENT)).unwrap();
    block_on(crate::handle(Adapters::all(&ports), settings, &cluster, &[])).unwrap();
    let world = simulation.world();
    let zones = world.region.machines.values().map(|machine| machine.instance.zone.clone()).collect();
    drop(world);
    let failed = matches!(simulation.claim(&claim.key).phase, Phase::Failed { .. });
    (zones, failed, catalog.zones.iter().map(|zone| zone.name.clone()).collect())
}

fn on() -> Settings {
    Settings { zonal_shift: true, ..Settings::default() }
}

#[test]
fn nothing_is_launched_in_a_shifted_zone() {
    for open in 0..2 {
        let (zones, failed, names) = zones_of_call(&on(), &[open], 3600);
        assert_eq!((zones, failed), (BTreeSet::from([names[open].clone()]), false));
    }
    let (zones, failed, _) = zones_of_call(&on(), &[], 3600);
    assert_eq!((zones.len(), failed), (0, true), "its pods are planned again");
}

#[test]
fn ended_shifts_and_those_that_nobody_asked_for_change_no_launch() {
    assert_eq!(zones_of_call(&on(), &[], 0).0.len(), 1);
    assert_eq!(zones_of_call(&Settings::default(), &[], 3600).0.len(), 1);
}

//! How often the parts of the region's catalog are read, and what a failure leaves of them.

use super::{Counting, cluster, over, world};
use futures::executor::block_on;
use whittle_claims::{CatalogAttempt, CatalogReads};
use whittle_ec2::facts::Catalog;
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{Adapters, CatalogWriter, Clock, HandleError, Mode, RegionStore, Settings, StoreError};
use whittle_sim::SimPorts;
use whittle_testkit::TestWorld;
use whittle_units::{ClusterName, Price, SignedDuration};

/// Runs every `every` minutes, and the expected number of reads of types and of spot prices.
#[track_caller]
fn check_reads(settings: &Settings, (every, runs): (i64, u32), reads: [u32; 2]) {
    let mut simulation = world();
    let ports = simulation.ports();
    let ec2 = Counting::over(&ports);
    for _ in 0..runs {
        simulation.run_for(SignedDuration::from_mins(every));
        block_on(crate::handle(over(&ports, &ec2), settings, &cluster())).unwrap();
    }
    assert_eq!(ec2.counts(), [reads[0], reads[1], runs], "every {every} min");
}

#[test]
fn reservations_are_read_in_every_run_spot_prices_often_and_types_twice_a_day() {
    let usual = Settings::default();
    // Includes the world's initial run.
    check_reads(&usual, (1, 3), [0, 0]);
    check_reads(&usual, (1, 12), [0, 3]);
    check_reads(&usual, (5, 4), [0, 4]);
    check_reads(&usual, (360, 4), [2, 4]);
}

#[test]
fn types_and_spot_prices_are_read_as_often_as_configured() {
    let hourly = Settings { catalog_refresh: SignedDuration::from_hours(1), ..Settings::default() };
    check_reads(&hourly, (5, 24), [2, 24]);
    let rare = Settings { spot_price_refresh: SignedDuration::from_mins(30), ..Settings::default() };
    check_reads(&rare, (5, 24), [0, 4]);
}

fn stored_catalog(ports: &SimPorts) -> Vec<u8> {
    block_on(RegionStore::catalog(ports)).unwrap().unwrap().value
}

/// A catalog in which one type is unknown and another costs next to nothing on the spot market.
fn outdated(current: &[u8]) -> Catalog {
    let mut catalog = Catalog::decode(current).unwrap();
    catalog.types.retain(|facts| facts.name != "m5.large");
    catalog.spot.get_mut("c5.large").unwrap().values_mut().for_each(|price| *price = Price::from_dollars(0.0001));
    catalog.normalized()
}

fn replace_catalog(ports: &SimPorts, blob: &[u8]) {
    let stored = block_on(RegionStore::catalog(ports)).unwrap().unwrap();
    block_on(ports.put_catalog(blob, stored.revision)).unwrap();
}

#[test]
fn clusters_of_a_region_share_a_read() {
    let mut simulation = world();
    let ports = simulation.ports();
    let ec2 = Counting::over(&ports);
    simulation.run_for(SignedDuration::from_hours(12));
    for name in ["first", "second", "third"] {
        let (cluster, settings) = (whittle_units::ClusterName::new(name), Settings::default());
        let run = crate::Run { ports: over(&ports, &ec2), settings: &settings, cluster: &cluster };
        block_on(run.refresh_catalog(&mut crate::Done::default())).unwrap();
    }
    assert_eq!(ec2.counts(), [1, 1, 0]);
}

/// Settings of a deployment that serves these clusters.
fn serving(served: &[&str]) -> Settings {
    Settings { clusters: served.iter().map(|&name| name.into()).collect(), ..Settings::default() }
}

/// The catalog's part of a run for a cluster of a deployment that serves these.
fn read_for(ports: &SimPorts, ec2: &Counting<'_>, cluster: &str, served: &[&str]) -> Result<(), HandleError> {
    let settings = serving(served);
    let cluster = ClusterName::new(cluster);
    let run = crate::Run { ports: over(ports, ec2), settings: &settings, cluster: &cluster };
    block_on(run.refresh_catalog(&mut crate::Done::default()))
}

fn stored_reads(ports: &SimPorts) -> CatalogReads {
    block_on(ports.catalog_reads()).unwrap().unwrap()
}

const TWO: [&str; 2] = ["first", "second"];

/// The times of the reads while a run for the first cluster reads for another minute.
fn begun_by_first(ports: &SimPorts) -> CatalogReads {
    let until = ports.now().checked_add(SignedDuration::from_secs(60)).unwrap();
    CatalogReads { attempt: Some(CatalogAttempt { until, failed: None, by: Some("first".into()) }), ..stored_reads(ports) }
}

#[test]
fn a_read_that_is_under_way_is_left_to_whoever_began_it_but_not_for_ever() {
    let mut simulation = world();
    let ports = simulation.ports();
    simulation.run_for(SignedDuration::from_hours(12));
    let begun = begun_by_first(&ports);
    block_on(ports.put_catalog_reads(&begun)).unwrap();
    let ec2 = Counting::over(&ports);
    read_for(&ports, &ec2, "second", &TWO).unwrap();
    assert_eq!((ec2.counts(), stored_reads(&ports)), ([0, 0, 0], begun.clone()), "it goes on with what is there");
    read_for(&ports, &ec2, "alone", &["alone"]).unwrap();
    assert_eq!((ec2.counts(), stored_reads(&ports).attempt), ([1, 1, 0], None), "nobody else reads for the only cluster");

    block_on(ports.put_catalog_reads(&begun)).unwrap();
    simulation.run_for(SignedDuration::from_secs(61));
    read_for(&ports, &ec2, "second", &TWO).unwrap();
    assert_eq!((ec2.counts(), stored_reads(&ports).attempt), ([2, 2, 0], None), "the run that began it has died");
}

#[test]
fn the_repetition_of_a_run_that_could_not_store_the_catalog_does_not_leave_it_to_that_run() {
    let mut simulation = world();
    let ports = simulation.ports();
    let current = stored_catalog(&ports);
    replace_catalog(&ports, &outdated(&current).encode());
    simulation.run_for(SignedDuration::from_hours(12));
    let (settings, cluster, ec2) = (serving(&TWO), ClusterName::new("first"), Counting::over(&ports));
    // The times of the reads, the catalog and its attempt; then what was read.
    let store = Faulty::scripted(&ports, [None, None, None, Some(Fault::Throttle)]);
    let adapters = Adapters { store: &store, cloud: &ec2, cluster: &ports, queues: &ports, clock: &ports };
    let run = crate::Run { ports: adapters, settings: &settings, cluster: &cluster };
    let outcome = block_on(run.refresh_catalog(&mut crate::Done::default()));
    assert!(matches!(outcome, Err(HandleError::Store(StoreError::Throttled { .. }))), "{outcome:?}");
    // Its message comes again.
    simulation.run_for(SignedDuration::from_secs(30));
    read_for(&ports, &ec2, "second", &TWO).unwrap();
    assert_eq!(ec2.counts(), [1, 1, 0], "others go on with what is there");
    read_for(&ports, &ec2, "first", &TWO).unwrap();
    assert_eq!((ec2.counts(), stored_reads(&ports).attempt), ([2, 2, 0], None));
    assert!(stored_catalog(&ports) == current);
}

#[test]
fn a_catalog_that_nobody_can_read_is_read_by_all() {
    let simulation = world();
    let ports = simulation.ports();
    replace_catalog(&ports, b"damaged");
    let begun = begun_by_first(&ports);
    block_on(ports.put_catalog_reads(&begun)).unwrap();
    let ec2 = Counting::over(&ports);
    read_for(&ports, &ec2, "second", &TWO).unwrap();
    assert_eq!(ec2.counts(), [1, 1, 0]);
    assert!(Catalog::decode(&stored_catalog(&ports)).is_ok());
}

#[test]
fn what_could_not_be_read_for_a_cluster_is_not_tried_at_once_for_all_others() {
    let mut simulation = world();
    let ports = simulation.ports();
    simulation.run_for(SignedDuration::from_hours(12));
    let broken = Counting { refuses_types: true, refuses_prices: true, ..Counting::over(&ports) };
    assert!(matches!(read_for(&ports, &broken, "first", &TWO), Err(HandleError::Cloud(_))));
    for cluster in ["second", "first"] {
        let error = read_for(&ports, &broken, cluster, &TWO).unwrap_err();
        assert!(error.to_string().contains("DescribeInstanceTypes"), "the alarm counts it for {cluster} as well: {error}");
    }
    assert_eq!(broken.counts(), [1, 1, 0]);
    simulation.run_for(SignedDuration::from_secs(26));
    assert!(matches!(read_for(&ports, &broken, "second", &TWO), Err(HandleError::Cloud(_))));
    assert_eq!(broken.counts(), [2, 2, 0]);
    // The only cluster of a deployment tries each time.
    assert!(matches!(read_for(&ports, &broken, "alone", &["alone"]), Err(HandleError::Cloud(_))));
    assert_eq!((broken.counts(), stored_reads(&ports).attempt), ([3, 3, 0], None));

    let ec2 = Counting::over(&ports);
    read_for(&ports, &ec2, "first", &TWO).unwrap();
    read_for(&ports, &ec2, "second", &TWO).unwrap();
    assert_eq!((ec2.counts(), stored_reads(&ports).attempt), ([1, 1, 0], None));
}

#[test]
fn a_part_that_cannot_be_read_keeps_its_last_values_and_does_not_hold_up_the_other() {
    for (refuses_types, refuses_prices) in [(true, false), (false, true), (true, true)] {
        let mut simulation = world();
        let ports = simulation.ports();
        let current = Catalog::decode(&stored_catalog(&ports)).unwrap();
        let known = outdated(&current.encode());
        replace_catalog(&ports, &known.encode());
        simulation.run_for(SignedDuration::from_hours(12));
        let ec2 = Counting { refuses_types, refuses_prices, ..Counting::over(&ports) };
        assert!(block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster())).is_err(), "the error alarm fires");
        let stored = Catalog::decode(&stored_catalog(&ports)).unwrap();
        assert_eq!(stored.facts("m5.large").is_none(), refuses_types, "types are {}", if refuses_types { "kept" } else { "read" });
        let expected = if refuses_prices { &known.spot["c5.large"] } else { &current.spot["c5.large"] };
        assert_eq!(stored.spot["c5.large"], *expected);
        let ec2 = Counting::over(&ports);
        block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster())).unwrap();
        assert_eq!(ec2.counts()[0], u32::from(refuses_types), "what was not read is read by the next run");
        assert_eq!(Catalog::decode(&stored_catalog(&ports)).unwrap(), current);
    }
}

/// Messages of the Events about prices.
fn told_of_prices(simulation: &TestWorld) -> Vec<String> {
    let world = simulation.world();
    let events = world.cluster.events.iter().filter(|kept| kept.event.reason == "PricesNotRead");
    events.map(|kept| kept.event.message.clone()).collect()
}

#[test]
fn prices_that_cannot_be_read_are_shown_and_read_again_within_a_quarter_of_an_hour() {
    let mut simulation = world();
    let ports = simulation.ports();
    let current = stored_catalog(&ports);
    let mut known = Catalog::decode(&current).unwrap();
    known.on_demand.insert("m5.large".to_owned(), Price::from_dollars(9.0));
    replace_catalog(&ports, &known.encode());
    simulation.run_for(SignedDuration::from_hours(12));
    simulation.world().region.denied.insert("GetProducts");
    let ec2 = Counting::over(&ports);
    let run = |mode: Mode| {
        let settings = Settings { mode, ..Settings::default() };
        let report = block_on(crate::handle(over(&ports, &ec2), &settings, &cluster())).unwrap();
        let is_measured = report.metrics.iter().any(|one| one.metric == "whittle_prices_not_read_total");
        assert_eq!(is_measured, report.counted("prices_not_read") > 0);
        (report.counted("prices_not_read"), ec2.counts()[0])
    };
    assert_eq!(run(Mode::Shadow), (1, 1));
    assert!(told_of_prices(&simulation).is_empty(), "shadow mode writes nothing to the cluster");
    for reads in [1, 1, 1, 2, 2] {
        assert_eq!(run(Mode::Active), (1, reads), "of runs every five minutes, each reports it and the fourth reads again");
        simulation.run_for(SignedDuration::from_mins(5));
    }
    let told = told_of_prices(&simulation);
    assert!(told.iter().all(|text| text.contains("GetProducts") && text.contains("role of refresh")) && !told.is_empty(), "{told:?}");
    let stored = Catalog::decode(&stored_catalog(&ports)).unwrap();
    assert_eq!(stored.on_demand_price("m5.large"), Some(Price::from_dollars(9.0)), "the latest prices stay");
    simulation.world().region.denied.clear();
    simulation.run_for(SignedDuration::from_mins(5));
    assert_eq!(run(Mode::Active), (0, 3));
    assert!(stored_catalog(&ports) == current);
    simulation.run_for(SignedDuration::from_hours(11));
    assert_eq!(run(Mode::Active), (0, 3), "and then as seldom as ever");
}

#[test]
fn without_any_price_of_the_region_a_table_stands_in_and_is_not_kept_for_long() {
    let mut simulation = world();
    let ports = simulation.ports();
    let current = stored_catalog(&ports);
    replace_catalog(&ports, b"no catalog");
    simulation.world().region.denied.insert("GetProducts");
    assert_eq!(super::run(&simulation).counted("prices_not_read"), 1);
    assert!(!Catalog::decode(&stored_catalog(&ports)).unwrap().on_demand.is_empty());
    simulation.world().region.denied.clear();
    simulation.run_for(SignedDuration::from_mins(15));
    assert_eq!(super::run(&simulation).counted("prices_not_read"), 0);
    assert!(stored_catalog(&ports) == current);
}

#[test]
fn what_a_concurrent_write_replaced_does_not_count_as_read() {
    let mut simulation = world();
    let ports = simulation.ports();
    let current = stored_catalog(&ports);
    let other = outdated(&current).encode();
    simulation.run_for(SignedDuration::from_hours(12));
    let ec2 = Counting { stores_meanwhile: Some(other.clone()), ..Counting::over(&ports) };
    replace_catalog(&ports, b"no catalog");
    block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster())).unwrap();
    assert_eq!(stored_catalog(&ports), other, "the first write wins");
    block_on(crate::handle(over(&ports, &Counting::over(&ports)), &Settings::default(), &cluster())).unwrap();
    assert_eq!(stored_catalog(&ports), current, "and the next run reads again");
}

#[test]
fn a_catalog_without_times_of_reads_is_read_once() {
    let simulation = world();
    let ports = simulation.ports();
    let known = stored_catalog(&ports);
    let ec2 = Counting::over(&ports);
    simulation.world().store.catalog_reads = None;
    for _ in 0..2 {
        block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster())).unwrap();
    }
    assert_eq!(ec2.counts(), [1, 1, 2], "as after an update from a release that noted them elsewhere");
    assert_eq!(stored_catalog(&ports), known);
}

#[test]
fn a_missing_or_unreadable_catalog_is_read_again() {
    let simulation = world();
    let ports = simulation.ports();
    let ec2 = Counting::over(&ports);
    let again = || {
        block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster())).unwrap();
        ec2.counts()[0]
    };
    assert_eq!(again(), 0);
    let stored = block_on(RegionStore::catalog(&ports)).unwrap().unwrap();
    block_on(ports.put_catalog(b"no catalog", stored.revision)).unwrap();
    assert_eq!(again(), 1);
    assert_eq!(again(), 1, "and is fresh again");
    assert_eq!(block_on(RegionStore::catalog(&ports)).unwrap().unwrap().value, stored.value);
}

//! What a notice changes: nothing in shadow mode, and what is known of stock-outs goes on.

use super::contended::{SUBJECT, key, serving};
use futures::executor::block_on;
use whittle_claims::{DeletionReason, Event, OfferingKey, StockOut};
use whittle_ports::{Adapters, Mode, Once, RegionStore, Report, Settings};
use whittle_testkit::{TestWorld, after, at};

/// Handles a spot notice of the claim that serves, which was sent at second 0.
fn notice(simulation: &TestWorld, mode: Mode) -> Report {
    let ports = simulation.ports();
    let adapters = Adapters { store: &ports, cloud: &(), cluster: &ports, queues: &ports, clock: &ports };
    let settings = Settings { clusters: vec![key().cluster], mode, ..Settings::default() };
    block_on(crate::handle(adapters, &settings, &Once::default(), &SUBJECT.spot_interruption(at(0)))).unwrap()
}

#[test]
fn in_shadow_mode_a_notice_is_recorded_and_ends_nothing() {
    let simulation = TestWorld::still(at(0));
    simulation.store(&serving());
    for _ in 0..2 {
        let report = notice(&simulation, Mode::Shadow);
        assert_eq!((report.counted("noted"), report.counted("ended")), (1, 0));
        assert_eq!(simulation.claim(&key()), serving());
        assert!(simulation.doorbells().is_empty() && simulation.world().cluster.events.is_empty());
    }
    assert_eq!(notice(&simulation, Mode::Active).counted("ended"), 1);
}

/// The notice that ended the claim comes again after shadow mode was switched on.
#[test]
fn in_shadow_mode_a_repeated_notice_sends_no_doorbells() {
    let deleted = serving().deletion_for(DeletionReason::SpotInterruption, "", at(0));
    let ending = after(&serving(), &[Event::DeletionRequested(deleted)], at(0));
    for (mode, sent) in [(Mode::Shadow, 0), (Mode::Active, 2)] {
        let simulation = TestWorld::still(at(0));
        simulation.store(&ending);
        assert_eq!(notice(&simulation, mode).counted("repeats"), 1);
        assert_eq!(simulation.doorbells().len(), sent, "{mode:?}");
    }
}

/// A pool that EC2 takes machines from again and again stays closed for longer each time.
#[test]
fn a_spot_pool_that_was_interrupted_before_has_a_further_strike() {
    let offering =
        OfferingKey { instance_type: "m5.large".into(), zone: "z".into(), capacity_type: "spot".into(), ..OfferingKey::default() };
    let before = |offering: OfferingKey| StockOut { offering, code: "SpotInterruption".into(), until: at(-60), strikes: 1 };
    for (known, strikes, until) in [
        (before(offering.clone()), 2, at(360)),
        (before(OfferingKey { zone: "another".into(), ..offering.clone() }), 1, at(180)),
        (before(OfferingKey { capacity_type: "on-demand".into(), ..offering.clone() }), 1, at(180)),
    ] {
        let simulation = TestWorld::still(at(0));
        simulation.store(&serving());
        block_on(simulation.ports().put_stock_outs(std::slice::from_ref(&known))).unwrap();
        notice(&simulation, Mode::Active);
        let stored = block_on(simulation.ports().stock_outs(at(0))).unwrap();
        let own = stored.iter().find(|out| out.offering == offering).unwrap();
        assert_eq!((own.strikes, own.until), (strikes, until), "after {}", known.offering);
    }
}

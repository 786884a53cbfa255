//! What a notice changes: nothing in shadow mode, and what is known of stock-outs goes on.

use super::contended::{SUBJECT, key, serving};
use futures::executor::block_on;
use whittle_claims::{DeletionReason, Doorbell, Event, Function, OfferingKey, StockOut};
use whittle_ports::{Adapters, Disposition, Mode, Once, QueueError, Queues, RegionStore, Report, Settings};
use whittle_sim::SimPorts;
use whittle_testkit::{TestWorld, after, at};
use whittle_units::SignedDuration;

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

/// Queues of which that of one function takes nothing.
struct Without<'a> {
    ports: &'a SimPorts,
    refusing: Function,
}

impl Queues for Without<'_> {
    async fn send(&self, doorbell: Doorbell, delay: SignedDuration) -> Result<(), QueueError> {
        if doorbell.function() == self.refusing {
            return Err(QueueError { cluster: doorbell.cluster().to_string(), reason: "throttled".to_owned() });
        }
        self.ports.send(doorbell, delay).await
    }
}

/// The machine goes in two minutes whatever becomes of the plan, and the notice comes again as a repeat, which shows nothing.
#[test]
fn a_queue_that_takes_nothing_holds_up_neither_the_other_nor_what_is_shown() {
    for (refusing, sent) in [(Function::Schedule, Function::Terminate), (Function::Terminate, Function::Schedule)] {
        let simulation = TestWorld::still(at(0));
        simulation.store(&serving());
        let ports = simulation.ports();
        let queues = Without { ports: &ports, refusing };
        let adapters = Adapters { store: &ports, cloud: &(), cluster: &ports, queues: &queues, clock: &ports };
        let settings = Settings { clusters: vec![key().cluster], ..Settings::default() };
        let outcome = block_on(crate::handle(adapters, &settings, &Once::default(), &SUBJECT.spot_interruption(at(0))));
        assert_eq!(outcome.unwrap_err().disposition(), Disposition::RetryLater, "without {refusing}");
        assert_eq!(simulation.doorbells(), [sent]);
        assert_eq!(simulation.claim(&key()).deletion.unwrap().reason, DeletionReason::SpotInterruption);
        let is_shown = simulation.world().cluster.events.iter().any(|kept| kept.event.reason == "SpotInterrupted");
        assert!(is_shown, "without {refusing}");
        assert_eq!(notice(&simulation, Mode::Active).counted("repeats"), 1);
        assert!(simulation.doorbells().contains(&refusing), "once its queue takes doorbells again");
    }
}

//! How many calls a run makes: of ports whose every call takes a millisecond.

use super::many::keep_in;
use super::over_sim::{keep, run_over};
use super::repeated::with_class;
use whittle_claims::{Bucket, BucketName};
use whittle_ports::Clock;
use whittle_sim::Function;
use whittle_testkit::TestWorld;
use whittle_units::{ClaimName, SignedDuration};

/// The calls of a run that launches so many equal claims.
fn calls(claims: usize) -> i128 {
    let simulation = with_class();
    let named: Vec<ClaimName> = (0..claims).map(|number| keep(&simulation, number).key.name).collect();
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(1), SignedDuration::from_hours(1));
    let begun = ports.now();
    let report = run_over(&ports, &named);
    let calls = ports.now().duration_since(begun).as_millis();
    assert_eq!(report.counted("launched"), u64::try_from(claims).unwrap());
    calls
}

#[test]
fn a_claim_is_read_stored_before_and_after_its_call_and_shown() {
    assert_eq!(calls(30) - calls(10), 4 * 20);
}

/// A world with a claim for each of so many calls.
fn groups(count: usize) -> TestWorld {
    let simulation = with_class();
    for number in 0..count {
        keep_in(&simulation, number, number);
    }
    simulation
}

#[test]
fn calls_that_are_made_at_once_ring_for_their_nodes_once() {
    let simulation = groups(5);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 5);
    let rung = simulation.doorbells().into_iter().filter(|function| *function == Function::Register).count();
    assert_eq!(rung, 1);
}

#[test]
fn as_many_calls_are_made_as_there_are_tokens() {
    for (left, launched) in [(5, 4), (2, 2), (0, 0)] {
        let simulation = groups(4);
        let now = simulation.world().now();
        assert!(simulation.world().store.take_tokens(&BucketName("CreateFleet".to_owned()), &Bucket::full(5, 2, now), 5 - left, now));
        assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), launched);
        let again = simulation.doorbells().contains(&Function::Launch);
        assert_eq!(again, launched < 4, "the others are tried again");
    }
}

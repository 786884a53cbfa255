//! How many calls a run makes: of ports whose every call takes a millisecond.

use super::over_sim::{keep, run_over};
use super::repeated::with_class;
use whittle_ports::Clock;
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

//! How many calls a run makes: of ports whose every call takes a millisecond.

use super::claim;
use super::over_sim::{owned, run_over, set_turn, still};
use whittle_claims::Phase;
use whittle_ports::{Clock, Report};
use whittle_testkit::TestWorld;
use whittle_units::SignedDuration;

/// The calls of a run, and its report.
fn calls(simulation: &TestWorld) -> (i128, Report) {
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(1), SignedDuration::from_hours(1));
    let begun = ports.now();
    let report = run_over(&ports);
    (ports.now().duration_since(begun).as_millis(), report)
}

/// A world with so many machines that have just been launched.
fn launched(machines: usize) -> TestWorld {
    let simulation = still();
    for number in 0..machines {
        let mut own = owned(claim(), &format!("c-{number}"));
        if let Phase::Launched { machine } = &mut own.phase {
            machine.instance_id = format!("i-{number}").as_str().into();
            machine.provider_id = format!("aws:///z/i-{number}").as_str().into();
        }
        simulation.store(&own);
    }
    simulation
}

/// The launch has stored already that their Nodes are awaited.
#[test]
fn a_machine_whose_node_is_awaited_costs_a_run_no_call() {
    let (one, many) = (calls(&launched(1)), calls(&launched(40)));
    assert_eq!((one.0, one.1.counted("registered")), (many.0, 0));
}

#[test]
fn a_run_that_leaves_its_work_to_another_lists_no_claim() {
    let simulation = launched(1);
    set_turn(&simulation, "another", 10);
    // The turn is read, and written by the first of them.
    for expected in [2, 1, 1] {
        let (calls, report) = calls(&simulation);
        assert_eq!((calls, report.counted("left_to_another_run")), (expected, 1));
    }
}

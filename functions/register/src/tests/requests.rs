//! How many calls a run makes: of ports whose every call takes a millisecond.

use super::over_sim::{owned, run_over, set_turn, still};
use super::{claim, node, ready};
use whittle_api::labels;
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
        own.spec.startup_taints.clear();
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

/// The same, with the Nodes of all of them.
fn joined(machines: usize, are_ready: bool) -> TestWorld {
    let simulation = launched(machines);
    for number in 0..machines {
        let mut own = if are_ready { ready(node()) } else { node() };
        own.spec.taints = node().spec.taints;
        own.metadata.name = format!("n-{number}");
        own.spec.provider_id = format!("aws:///z/i-{number}");
        simulation.create(own);
    }
    simulation
}

/// Whether or not it is ready: patched, stored, shown, and its instance looked at for its tags.
#[test]
fn a_node_that_joins_is_patched_and_stored_once() {
    for (are_ready, phase) in [(false, "registered"), (true, "initialized")] {
        let (one, eleven) = (calls(&joined(1, are_ready)), calls(&joined(11, are_ready)));
        assert_eq!((one.1.counted(phase), eleven.1.counted(phase), eleven.1.counted("registered")), (1, 11, 11));
        assert_eq!(eleven.0 - one.0, 4 * 10, "{phase}");
    }
}

#[test]
fn a_node_that_is_ready_when_it_joins_has_all_of_its_labels() {
    let simulation = joined(1, true);
    run_over(&simulation.ports());
    let own = owned(claim(), "c-0");
    assert_eq!(simulation.claim(&own.key).phase.name(), "Initialized");
    let world = simulation.world();
    let node = world.cluster.objects.get::<whittle_api::k8s::Node>("n-0").unwrap();
    let has = |label: &str| node.metadata.label(label) == Some("true");
    assert!(has(labels::REGISTERED) && has(labels::INITIALIZED), "{:?}", node.metadata.labels);
    assert!(node.spec.taints.iter().all(|taint| taint.key != labels::UNREGISTERED_TAINT));
}

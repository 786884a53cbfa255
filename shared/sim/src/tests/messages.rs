//! Queues and schedules behave like those of the template.

use super::*;
use std::path::Path;
use whittle_claims::{CONSOLIDATE_DELAY, ClaimKey, PLAN_DELAY, PLAN_DELAY_MAX};
use whittle_ports::ClaimStore;

fn schedule() -> Doorbell {
    Doorbell::Schedule { cluster: "demo".into() }
}
fn consolidate() -> Doorbell {
    Doorbell::Consolidate { cluster: "demo".into() }
}
/// A doorbell whose function always fails.
fn poison() -> Doorbell {
    Doorbell::Terminate { cluster: "demo".into(), claim: "x".into() }
}

fn send(simulation: &Simulation, doorbell: Doorbell, delay: i64) {
    simulation.ports().send(doorbell, SignedDuration::from_secs(delay)).now_or_never().unwrap().unwrap();
}

fn invocations(simulation: &Simulation) -> u64 {
    simulation.world().counts.invocations
}

#[test]
fn a_message_that_always_fails_is_dead_lettered_with_its_reason_and_can_be_redriven() {
    let mut simulation = simulation(1);
    send(&simulation, poison(), 0);
    seconds(&mut simulation, 3600);
    {
        let mut world = simulation.world();
        let parked: Vec<_> = world.queues.parked.iter().map(|message| (message.receives, message.reason.as_deref())).collect();
        assert_eq!(parked, [(7, Some("always"))]);
        assert_eq!((world.counts.failures, world.queues.waiting().count()), (7, 0), "it is not retried any more");
        assert_eq!(world.redrive(), 1);
        assert!(world.queues.parked.is_empty());
    }
    seconds(&mut simulation, 3600);
    let world = simulation.world();
    assert_eq!((world.counts.failures, world.queues.parked.len()), (14, 1), "retried as often as a new message");
}

#[test]
fn a_failing_message_does_not_affect_others() {
    let mut simulation = simulation(1);
    send(&simulation, poison(), 0);
    send(&simulation, Doorbell::sweep("demo".into()), 0);
    send(&simulation, Doorbell::register("demo".into()), 0);
    seconds(&mut simulation, 30);
    let world = simulation.world();
    assert_eq!((world.counts.invocations, world.counts.failures), (5, 3), "it fails three times, twice early");
    let left: Vec<Function> = world.queues.waiting().map(|message| message.function).collect();
    assert_eq!(left, [Function::Terminate]);
}

/// Of `register` where nobody reads the queue of `sweep`; of nobody before Whittle is there.
#[test]
fn whoever_deletes_a_machine_rings() {
    for (ticks_work, is_on, rung) in
        [(false, true, &[Function::Sweep][..]), (true, true, &[Function::Register][..]), (false, false, &[][..])]
    {
        let simulation = simulation(1);
        let mut world = simulation.world();
        world.faults.ticks_work = ticks_work;
        if is_on {
            world.switch_on();
        }
        world.ring_for_deletions();
        let waiting: Vec<Function> = world.queues.waiting().map(|message| message.function).collect();
        assert_eq!(waiting, rung, "{ticks_work} {is_on}");
    }
}

#[test]
fn duplicate_doorbells_are_dropped_for_five_minutes() {
    let mut simulation = simulation(1);
    for _ in 0..3 {
        send(&simulation, schedule(), 0);
    }
    seconds(&mut simulation, 30);
    assert_eq!(invocations(&simulation), 1);
    send(&simulation, schedule(), 0);
    seconds(&mut simulation, 30);
    assert_eq!(invocations(&simulation), 2, "a later doorbell is another message");
}

/// For every value of the parameter `PlanDelaySeconds`.
#[test]
fn a_doorbell_is_never_a_duplicate_of_one_that_was_read() {
    for delay in [0, 1, 2] {
        let mut simulation = simulation(1);
        simulation.world().queues.plan_delay = SignedDuration::from_secs(delay);
        for _ in 0..40 {
            send(&simulation, schedule(), 0);
            let rung_at = simulation.world().now();
            let waits = |simulation: &Simulation| simulation.world().queues.waiting().any(|message| message.reader.is_none());
            assert!(waits(&simulation), "delay {delay}: no message is read after {rung_at}");
            simulation.run_for(SignedDuration::from_millis(130));
        }
        seconds(&mut simulation, 30);
        assert!(simulation.world().is_quiet());
    }
}

#[test]
fn a_fifo_queue_delays_all_messages_equally() {
    for (doorbell, requested, expected) in [
        (schedule(), 0, Some(PLAN_DELAY)),
        (schedule(), 3, Some(PLAN_DELAY)),
        (schedule(), 10, None),
        (consolidate(), 0, Some(CONSOLIDATE_DELAY)),
        (consolidate(), 10, Some(CONSOLIDATE_DELAY)),
        (consolidate(), 60, None),
    ] {
        let mut simulation = simulation(1);
        let begun = simulation.world().now();
        send(&simulation, doorbell.clone(), requested);
        let due = simulation.world().queues.waiting().next().map(|message| message.visible_at.duration_since(begun));
        assert_eq!(due, expected, "{doorbell:?} requested in {requested} s");
        seconds(&mut simulation, 120);
        assert_eq!(invocations(&simulation), u64::from(expected.is_some()), "a doorbell that the tick replaces is not sent");
    }
}

#[test]
fn a_group_waits_for_the_message_that_is_in_flight() {
    let mut simulation = simulation(1);
    simulation.world().faults.crash_at_gate = Some(1);
    send(&simulation, schedule(), 0);
    seconds(&mut simulation, 5);
    send(&simulation, schedule(), 0);
    send(&simulation, consolidate(), 0);
    seconds(&mut simulation, 30);
    assert_eq!(invocations(&simulation), 2, "the one that died, and that of the other queue");
    seconds(&mut simulation, 60);
    assert_eq!(invocations(&simulation), 4, "it is delivered again, then the next one");
    assert!(simulation.world().is_quiet());
}

#[test]
fn a_tick_is_a_message_like_any_other() {
    let mut simulation = simulation(1);
    store_claim(&simulation);
    simulation.world().switch_on();
    seconds(&mut simulation, 50);
    let next = simulation.world().counts.gates + 1;
    simulation.world().faults.crash_at_gate = Some(next);
    send(&simulation, schedule(), 0);
    seconds(&mut simulation, 22);
    // The first refresh, the run that died, and a tick for each of the four functions that get one a minute.
    assert_eq!(invocations(&simulation), 1 + 1 + 3, "the message group of the plans is blocked");
    seconds(&mut simulation, 35);
    assert_eq!(invocations(&simulation), 5 + 2, "the message is delivered again, then the tick");
    let next = simulation.world().counts.gates + 1;
    simulation.world().faults.crash_at_gate = Some(next);
    seconds(&mut simulation, 20);
    let redelivered = simulation.world().queues.waiting().filter(|message| message.receives == 1).count();
    assert_eq!(redelivered, 1, "the tick of a run that died is delivered again");
}

#[test]
fn the_next_tick_compensates_for_one_that_fails() {
    let mut simulation = simulation(1);
    store_claim(&simulation);
    simulation.world().switch_on();
    simulation.world().faults.throttles = 1000;
    seconds(&mut simulation, 65);
    assert_eq!(invocations(&simulation), 0);
    simulation.world().faults.throttles = 0;
    seconds(&mut simulation, 70);
    assert_eq!(invocations(&simulation), 4);
}

/// Stores a claim that needs nothing.
fn store_claim(simulation: &Simulation) -> ClaimKey {
    let (ports, cluster, now) = (simulation.ports(), ClusterName::from("demo"), simulation.world().now());
    let lease = ports.acquire(&cluster, "test", now, SignedDuration::from_secs(1)).now_or_never().unwrap().unwrap();
    let claim = contracts::planned_claim(&cluster, "it", now);
    ports.create(&lease, &claim).now_or_never().unwrap().unwrap();
    ports.release(&lease).now_or_never().unwrap().unwrap();
    claim.key
}

/// The functions that the ticks of two minutes rang, beside `refresh`.
fn rung(simulation: &mut Simulation) -> Vec<Function> {
    simulation.world().meter = Some(Box::default());
    seconds(simulation, 120);
    let meter = simulation.world().meter.take().expect("it was put there");
    let rung = meter.functions().iter().filter(|(function, invoked)| **function != Function::Refresh && invoked.messages > 0);
    rung.map(|(function, _)| *function).collect()
}

#[test]
fn ticks_ring_for_machines_only_where_there_are_claims() {
    let all = [Function::Schedule, Function::Register, Function::Consolidate, Function::Sweep];
    let mut simulation = simulation(1);
    simulation.world().switch_on();
    assert_eq!(rung(&mut simulation), [Function::Schedule, Function::Sweep], "a cluster without claims");
    simulation.world().is_shadow = true;
    assert_eq!(rung(&mut simulation), [Function::Schedule, Function::Consolidate, Function::Sweep], "in shadow mode");
    simulation.world().is_shadow = false;
    let claim = store_claim(&simulation);
    assert_eq!(rung(&mut simulation), all, "with a claim");
    simulation.world().store.hide(&claim, Timestamp::MAX);
    assert_eq!(rung(&mut simulation), all, "with one that cannot be read");
}

#[test]
fn a_call_over_a_dead_connection_has_no_effect_and_is_retried() {
    let mut simulation = simulation_of(1, Arc::new(Writer));
    let seen = |simulation: &Simulation| {
        let failures = simulation.world().counts.failures;
        let read = simulation.ports().read::<Sighting>(&"demo".into(), "it").now_or_never().unwrap();
        (failures, read.unwrap().is_some())
    };
    simulation.world().faults.dead_connections = 1000;
    send(&simulation, schedule(), 0);
    seconds(&mut simulation, 5);
    assert_eq!(seen(&simulation), (1, false));
    simulation.world().faults.dead_connections = 0;
    seconds(&mut simulation, 10);
    assert_eq!(seen(&simulation), (1, true), "its message comes again long before its visibility timeout");
}

#[test]
fn the_message_of_a_run_that_dies_at_an_await_point_is_delivered_again() {
    let mut simulation = simulation(1);
    simulation.world().faults.crash_at_gate = Some(2);
    send(&simulation, schedule(), 0);
    seconds(&mut simulation, 200);
    let world = simulation.world();
    assert_eq!((world.counts.invocations, world.counts.faults, world.counts.failures), (2, 1, 0));
    assert!(world.is_quiet());
}

/// The value of a property in the section of a resource of the template.
fn property(template: &str, resource: &str, name: &str) -> Option<i64> {
    let section = template.split_once(&format!("\n  {resource}:\n"))?.1;
    let own = section.lines().take_while(|line| line.is_empty() || line.starts_with("   ") || line.starts_with("  #"));
    let text: Vec<&str> = own.collect();
    let line = text.iter().find_map(|line| line.split_once(&format!("{name}: ")))?;
    line.1.trim_end_matches('}').parse().ok()
}

#[test]
fn limits_equal_those_of_the_template() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml");
    let template = std::fs::read_to_string(path).unwrap();
    for (function, resource, queue) in [
        (Function::Schedule, "Schedule", "PlanQueue"),
        (Function::Consolidate, "Consolidate", "ConsolidateQueue"),
        (Function::Launch, "Launch", "LaunchQueue"),
        (Function::Register, "Register", "NodesQueue"),
        (Function::Terminate, "Terminate", "TerminateQueue"),
        (Function::Refresh, "Refresh", "RefreshQueue"),
        (Function::Sweep, "Sweep", "SweepQueue"),
    ] {
        let limits = function.limits();
        let of = |resource, name| property(&template, resource, name);
        assert_eq!(of(resource, "Timeout"), Some(limits.timeout.as_secs()), "{function}: Timeout");
        assert_eq!(of(queue, "VisibilityTimeout"), Some(limits.visibility.as_secs()), "{function}: VisibilityTimeout");
        assert_eq!(of(queue, "maxReceiveCount"), Some(i64::from(limits.receives)), "{function}: maxReceiveCount");
        assert_eq!(
            template.contains(&format!("\n  {queue}:\n    Type: AWS::SQS::Queue\n    Properties:\n      FifoQueue: true\n")),
            function.has_fifo_queue(),
            "{function}: FifoQueue"
        );
    }
    let limits = Function::Interrupt.limits();
    assert_eq!(property(&template, "Interrupt", "Timeout"), Some(limits.timeout.as_secs()));
    assert_eq!(property(&template, "Interrupt", "MaximumRetryAttempts"), Some(i64::from(limits.receives) - 1));
    // What it cannot start for a while, Lambda keeps until it has repeated the invocation twice.
    let repeated: i64 =
        (1..limits.receives).filter_map(|failures| Function::Interrupt.invoked_again(failures)).map(|wait| wait.as_secs()).sum();
    let longest = i64::from(limits.receives) * limits.timeout.as_secs() + repeated;
    assert!(property(&template, "Interrupt", "MaximumEventAgeInSeconds").is_some_and(|age| longest < age), "{longest} s");
    assert_eq!(property(&template, "ConsolidateQueue", "DelaySeconds"), Some(CONSOLIDATE_DELAY.as_secs()));
    assert_eq!(property(&template, "PlanDelaySeconds", "Default"), Some(PLAN_DELAY.as_secs()));
    assert_eq!(property(&template, "PlanDelayMaxSeconds", "Default"), Some(PLAN_DELAY_MAX.as_secs()));
}

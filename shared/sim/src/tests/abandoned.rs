//! A launch that is given up while a machine of its call runs: whether the checker notices.

use super::*;
use whittle_claims::{Claim, ClaimKey, ClaimSpec, Deletion, DeletionReason, Event, step};
use whittle_ec2::instance::Instance;
use whittle_ports::{ClaimStore, machine_to_terminate};

fn planned(name: &str, now: Timestamp) -> Claim {
    let key = ClaimKey { cluster: "demo".into(), name: name.into() };
    Claim::planned(key, format!("uid-of-{name}"), ClaimSpec::default(), now)
}

fn after(claim: &Claim, events: &[Event], now: Timestamp) -> Claim {
    events.iter().fold(claim.clone(), |claim, event| step(&claim, event, now).unwrap())
}

fn store(simulation: &Simulation, claim: &Claim) -> Revision {
    let (ports, now) = (simulation.ports(), simulation.world().now());
    let lease = ports.acquire(&claim.key.cluster, "test", now, SignedDuration::from_secs(5)).now_or_never().unwrap().unwrap();
    ports.create(&lease, claim).now_or_never().unwrap().unwrap();
    ports.release(&lease).now_or_never().unwrap().unwrap();
    ports.get(&claim.key).now_or_never().unwrap().unwrap().unwrap().revision
}

/// Whether it is noticed after `meanwhile` has happened to the machine.
fn is_noticed(meanwhile: impl FnOnce(&Simulation, &Instance)) -> bool {
    let simulation = simulation(1);
    with_template(&simulation);
    let now = simulation.world().now();
    let mut call = request("t", &[("m5.large", 0.096)]);
    call.tags.insert(labels::TAG_LAUNCH.to_owned(), "batch".to_owned());
    simulation.world().create_fleet(&call, ALLOCATION).unwrap();
    let machine = simulation.world().region.machines.values().next().unwrap().instance.clone();
    meanwhile(&simulation, &machine);
    let deletion = Deletion::without_deadline(DeletionReason::LaunchTimeout, now, "");
    let begun = Event::LaunchBegun { client_token: "batch".to_owned() };
    let waiting = after(&planned("waiting", now), &[begun, Event::DeletionRequested(deletion)], now);
    let revision = store(&simulation, &waiting);
    let given_up = after(&waiting, &[Event::LaunchAbandoned], now);
    simulation.ports().update(&given_up, revision).now_or_never().unwrap().unwrap();
    simulation.world().violations.iter().any(|text| text.contains("was abandoned while its machine"))
}

#[test]
fn a_machine_that_nobody_knows_is_noticed() {
    assert!(is_noticed(|_, _| {}));
}

#[test]
fn a_machine_that_an_uninstallation_let_go_is_the_users() {
    assert!(!is_noticed(|simulation, machine| {
        let mut world = simulation.world();
        let tags = &mut world.region.machines.get_mut(&machine.id).unwrap().instance.tags;
        tags.insert(labels::TAG_LET_GO.to_owned(), "since".to_owned());
    }));
    // Its claim has ended, and its tag comes later where it is handed over.
    assert!(!is_noticed(|simulation, machine| {
        let now = simulation.world().now();
        let events = [Event::FleetAnswered(machine_to_terminate(machine)), Event::LetGo];
        store(simulation, &after(&planned("let-go", now), &events, now));
    }));
}

//! Surplus claims of static pools that were chosen and not yet deleted.

use super::{after, claim, snapshot_of};
use crate::Run;
use crate::state::{Disruptions, SurplusClaim};
use futures::executor::block_on;
use whittle_claims::{DeletionReason, Event, Function, Revision, Stored};
use whittle_ports::{Adapters, Leases, Report, Settings};
use whittle_testkit::{TestWorld, at, begun, deletion, joined, key, machine};
use whittle_units::SignedDuration;

fn surplus(name: &str) -> SurplusClaim {
    SurplusClaim { claim: name.into(), node_pool: "fixed".to_owned(), message: "one too many".to_owned() }
}

/// It would hold up the launches and deletions of every static pool for as long.
#[test]
fn a_surplus_claim_that_cannot_be_read_is_kept_and_holds_up_nothing() {
    let world = TestWorld::still(at(0));
    let names = ["fixed-1", "fixed-2", "fixed-3"];
    for name in names {
        let started = [begun(name), Event::FleetAnswered(machine(&format!("i-{name}"))), joined(name), Event::NodeReady];
        world.store(&after(&claim(name), &started));
    }
    let claims = names.iter().map(|name| world.claim(&key(name))).collect();
    let snapshot = snapshot_of(claims, at(1));
    world.world().store.spoil_claim(&key("fixed-1"));
    let ports = world.ports();
    let lease = block_on(ports.acquire(&key("fixed-1").cluster, "run", at(0), SignedDuration::from_mins(1))).unwrap();
    let (settings, report) = (Settings::default(), Report::default());
    let mut run = Run { ports: Adapters::all(&ports), settings: &settings, lease: &lease, report, notes: Vec::new(), handed_over: false };
    let known = Disruptions { surplus: vec![surplus("fixed-1"), surplus("fixed-2")], ..Disruptions::default() };
    let mut stored = Stored { value: known, revision: Revision::ABSENT };
    assert!(block_on(run.reconcile_static_pools(&snapshot, &mut stored)).unwrap(), "another claim is being deleted");
    assert_eq!((run.report.counted("scaled_down"), run.report.counted("surplus_unreadable")), (1, 1));
    assert_eq!(stored.value.surplus, [], "the next pass is free to do what other pools need");
    let reason = |name: &str| world.claim(&key(name)).deletion.map(|deletion| deletion.reason);
    assert_eq!((reason("fixed-2"), reason("fixed-3")), (Some(DeletionReason::ScaledDown), None));
    assert_eq!(world.world().store.unreadable(&key("fixed-1").cluster), ["fixed-1"], "it is as it was");
}

/// The functions that are rung when a claim that has come so far is surplus; `again`: a run before this one marked it, and died.
fn rung(events: &[Event], again: bool) -> Vec<Function> {
    let world = TestWorld::still(at(0));
    let chosen = after(&claim("fixed-1"), events);
    let deleted = Event::DeletionRequested(deletion(DeletionReason::ScaledDown, at(1)));
    world.store(&if again { after(&chosen, &[deleted]) } else { chosen });
    let snapshot = snapshot_of(vec![world.claim(&key("fixed-1"))], at(1));
    let ports = world.ports();
    let lease = block_on(ports.acquire(&key("fixed-1").cluster, "run", at(0), SignedDuration::from_mins(1))).unwrap();
    let (settings, report) = (Settings::default(), Report::default());
    let mut run = Run { ports: Adapters::all(&ports), settings: &settings, lease: &lease, report, notes: Vec::new(), handed_over: false };
    let known = Disruptions { surplus: vec![surplus("fixed-1")], ..Disruptions::default() };
    let mut stored = Stored { value: known, revision: Revision::ABSENT };
    block_on(run.reconcile_static_pools(&snapshot, &mut stored)).unwrap();
    assert!(world.claim(&key("fixed-1")).is_ending());
    let mut rung = world.doorbells();
    rung.sort();
    rung
}

/// They leave when they have been planned for, or a moment later: until the next tick each would get a machine of its own.
#[test]
fn the_pods_of_surplus_nodes_are_planned_for_at_once() {
    let started = [begun("t"), Event::FleetAnswered(machine("i-1"))];
    let serves = [started.as_slice(), &[joined("n"), Event::NodeReady]].concat();
    assert_eq!(rung(&serves, false), [Function::Schedule, Function::Terminate]);
    assert_eq!(rung(&started, false), [Function::Terminate], "no pod is on a machine without a node");
    assert_eq!(rung(&[], false), [Function::Terminate]);
    assert_eq!(rung(&serves, true), [Function::Terminate], "an earlier run has rung, or the tick does");
}

/// They wait for a plan from when it is marked, and a large cluster takes seconds to read.
#[test]
fn a_surplus_node_is_deleted_when_it_is_marked_and_not_when_the_cluster_was_read() {
    let world = TestWorld::still(at(9));
    world.store(&after(&claim("fixed-1"), &[begun("t"), Event::FleetAnswered(machine("i-1")), joined("n"), Event::NodeReady]));
    let snapshot = snapshot_of(vec![world.claim(&key("fixed-1"))], at(1));
    let ports = world.ports();
    let lease = block_on(ports.acquire(&key("fixed-1").cluster, "run", at(9), SignedDuration::from_mins(1))).unwrap();
    let (settings, report) = (Settings::default(), Report::default());
    let mut run = Run { ports: Adapters::all(&ports), settings: &settings, lease: &lease, report, notes: Vec::new(), handed_over: false };
    let known = Disruptions { surplus: vec![surplus("fixed-1")], ..Disruptions::default() };
    let mut stored = Stored { value: known, revision: Revision::ABSENT };
    block_on(run.reconcile_static_pools(&snapshot, &mut stored)).unwrap();
    assert_eq!(world.claim(&key("fixed-1")).deletion.map(|deletion| deletion.at), Some(at(9)));
}

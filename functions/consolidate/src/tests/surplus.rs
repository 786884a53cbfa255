//! Surplus claims of static pools that were chosen and not yet deleted.

use super::{after, claim, running, snapshot_of};
use crate::Run;
use crate::state::{DeletingMachine, Disruptions, Running, SurplusClaim};
use crate::statics::still_surplus;
use futures::executor::block_on;
use whittle_api::{ObjectMeta, Unreadable};
use whittle_claims::{Claim, DeletionReason, Event, Function, Revision, Stored};
use whittle_ports::{Adapters, Leases, Report, Settings};
use whittle_snapshot::Snapshot;
use whittle_testkit::{TestWorld, at, begun, deletion, joined, key, machine, pool_named};
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

/// A claim of the pool `fixed` whose machine serves.
fn serving(name: &str) -> Claim {
    let started = [begun(name), Event::FleetAnswered(machine(&format!("i-{name}"))), joined(name), Event::NodeReady];
    let mut claim = after(&claim(name), &started);
    claim.spec.node_pool = "fixed".to_owned();
    claim
}

/// These claims in a cluster in which the pool has so many replicas; `None`: there is no such pool.
fn scaled(claims: Vec<Claim>, replicas: Option<i64>) -> Snapshot {
    let mut snapshot = snapshot_of(claims, at(1));
    if let Some(replicas) = replicas {
        let mut pool = pool_named("fixed");
        pool.spec.replicas = Some(replicas);
        snapshot.objects.node_pools = vec![pool];
    }
    snapshot
}

#[test]
fn of_what_was_chosen_as_many_go_as_the_pool_still_has_too_many() {
    let known =
        |running: Vec<Running>| Disruptions { running, surplus: vec![surplus("fixed-1"), surplus("fixed-2")], ..Disruptions::default() };
    let chosen = |snapshot: &Snapshot, known: &Disruptions| -> Vec<String> {
        still_surplus(snapshot, known).iter().map(|surplus| surplus.claim.to_string()).collect()
    };
    let four = || ["fixed-1", "fixed-2", "fixed-3", "fixed-4"].map(serving).to_vec();
    let of_four = |replicas| chosen(&scaled(four(), replicas), &known(Vec::new()));
    assert_eq!(of_four(Some(1)), ["fixed-1", "fixed-2"], "a third is chosen later");
    assert_eq!(of_four(Some(2)), ["fixed-1", "fixed-2"]);
    assert_eq!(of_four(Some(3)), ["fixed-1"]);
    assert_eq!(of_four(Some(4)), [""; 0]);
    assert_eq!(of_four(Some(9)), [""; 0]);
    assert_eq!(of_four(None), ["fixed-1", "fixed-2"]);
    // An earlier run has marked the first, and died.
    let mut marked = four();
    marked[0] = after(&marked[0], &[Event::DeletionRequested(deletion(DeletionReason::ScaledDown, at(1)))]);
    assert_eq!(chosen(&scaled(marked.clone(), Some(2)), &known(Vec::new())), ["fixed-1", "fixed-2"]);
    assert_eq!(chosen(&scaled(marked, Some(3)), &known(Vec::new())), ["fixed-1"], "it goes all the same");
    // One that has a replacement is none too many.
    let removals = vec![DeletingMachine { claim: "fixed-4".into(), node: "fixed-4".to_owned() }];
    let drifts = Running { removals, ..running(Vec::new()) };
    assert_eq!(chosen(&scaled(four(), Some(2)), &known(vec![drifts])), ["fixed-1"]);
}

/// It may have been scaled up since.
#[test]
fn nothing_that_was_chosen_goes_while_its_pool_cannot_be_read() {
    let known = Disruptions { surplus: vec![surplus("fixed-1")], ..Disruptions::default() };
    let marked = after(&serving("fixed-1"), &[Event::DeletionRequested(deletion(DeletionReason::ScaledDown, at(1)))]);
    let unmarked = serving("fixed-1");
    // The name may be what cannot be read.
    let cases = [("fixed", &unmarked, 0), ("", &unmarked, 0), ("another", &unmarked, 1), ("fixed", &marked, 1), ("", &marked, 1)];
    for (name, chosen, left) in cases {
        let mut snapshot = scaled(vec![chosen.clone(), serving("fixed-2")], None);
        let hidden = Unreadable { kind: "NodePool".to_owned(), metadata: ObjectMeta::named(name), ..Unreadable::default() };
        snapshot.objects.unreadable.push(hidden);
        assert_eq!(still_surplus(&snapshot, &known).len(), left, "{name:?}");
    }
    // Another cannot be read, and this one can: it has one machine too many.
    let mut snapshot = scaled(vec![serving("fixed-1"), serving("fixed-2")], Some(1));
    snapshot.objects.unreadable.push(Unreadable { kind: "NodePool".to_owned(), ..Unreadable::default() });
    assert_eq!(still_surplus(&snapshot, &known).len(), 1);
}

/// As while its definition is replaced: the pool may be there again in a moment, with as many replicas as machines.
#[test]
fn nothing_that_was_chosen_goes_while_the_api_server_serves_no_nodepools() {
    let known = Disruptions { surplus: vec![surplus("fixed-1")], ..Disruptions::default() };
    let marked = after(&serving("fixed-1"), &[Event::DeletionRequested(deletion(DeletionReason::ScaledDown, at(1)))]);
    for (absent, chosen, left) in [("NodePool", serving("fixed-1"), 0), ("NodePool", marked, 1), ("NodeOverlay", serving("fixed-1"), 1)] {
        let mut snapshot = scaled(vec![chosen, serving("fixed-2")], None);
        snapshot.objects.absent_kinds.push(absent.to_owned());
        assert_eq!(still_surplus(&snapshot, &known).len(), left, "{absent}");
    }
}

/// Whether a run that finds `fixed-1` chosen deletes it, in a pool of two machines with so many replicas.
fn is_deleted(replicas: i64) -> bool {
    let world = TestWorld::still(at(0));
    for name in ["fixed-1", "fixed-2"] {
        world.store(&serving(name));
    }
    let snapshot = scaled(["fixed-1", "fixed-2"].map(|name| world.claim(&key(name))).to_vec(), Some(replicas));
    let ports = world.ports();
    let lease = block_on(ports.acquire(&key("fixed-1").cluster, "run", at(0), SignedDuration::from_mins(1))).unwrap();
    let (settings, report) = (Settings::default(), Report::default());
    let mut run = Run { ports: Adapters::all(&ports), settings: &settings, lease: &lease, report, notes: Vec::new(), handed_over: false };
    let known = Disruptions { surplus: vec![surplus("fixed-1")], ..Disruptions::default() };
    let mut stored = Stored { value: known, revision: Revision::ABSENT };
    block_on(run.reconcile_static_pools(&snapshot, &mut stored)).unwrap();
    assert_eq!(stored.value.surplus, []);
    assert!(!world.claim(&key("fixed-2")).is_ending());
    world.claim(&key("fixed-1")).is_ending()
}

/// They were chosen by a run that died, and the pool is scaled up again before the next one.
#[test]
fn a_run_never_deletes_a_machine_that_its_pool_wants_again() {
    assert_eq!([1, 2, 3].map(is_deleted), [true, false, false]);
}

//! Many findings at once: all are acted on in one sweep, and none is begun without the time for it.

use super::over_sim::{still, sweep};
use super::{after, begun, instance, node, planned, shown};
use crate::adopt::Adoptable;
use crate::compare::{Ending, Findings, Missing};
use crate::execute::{Executor, MIRRORS_PER_RUN_MAX, in_turn};
use crate::health::Consistency;
use crate::index::Index;
use futures::executor::block_on;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ClusterObjects, ConditionStatus, NillableDuration, conditions};
use whittle_claims::{Claim, DecisionKind, DeletionReason, Doorbell, Event, Sighting, Stored};
use whittle_ports::contracts::{Fault, Faulty};
use whittle_ports::{
    Adapters, ClaimStore, ClusterEvent, HandleError, Involved, Leases, ObjectKind, Queues, RecordReader, Report, Settings,
};
use whittle_sim::{Function, Functions, Input, RunFailure, SimPorts};
use whittle_testkit::{TestWorld, at, joined, machine, pool_named};
use whittle_units::{ClaimName, ClusterName, SignedDuration};

/// A serving claim that expires at second 100.
fn claim_of(number: usize) -> Claim {
    let mut claim = after(&[begun(), Event::FleetAnswered(machine(&format!("i-{number}"))), joined(&format!("n{number}"))]);
    claim.key.name = format!("default-{number:03}").as_str().into();
    claim.spec.expire_after = NillableDuration::from_secs(100);
    claim
}

fn keep(world: &TestWorld, claims: usize) -> Vec<Stored<Claim>> {
    (0..claims).for_each(|number| world.store(&claim_of(number)));
    stored(world)
}

fn stored(world: &TestWorld) -> Vec<Stored<Claim>> {
    block_on(world.ports().list(&ClusterName::new("c"))).unwrap()
}

fn ended(world: &TestWorld) -> usize {
    stored(world).iter().filter(|claim| claim.value.deletion.is_some()).count()
}

/// The ports of a run with this time left, of which every call takes a tenth of a second.
fn with_time(world: &TestWorld, left: SignedDuration) -> SimPorts {
    world.ports().with_time_left(SignedDuration::from_millis(100), left)
}

/// What a sweep that has found this in the cluster does about it.
fn execute(ports: &SimPorts, cluster: &str, claims: &[Stored<Claim>], findings: Findings) -> (Result<(), HandleError>, Report) {
    let objects = ClusterObjects { nodes: vec![node(false)], ..ClusterObjects::default() };
    let cluster = ClusterName::new(cluster);
    let index = Index::of(claims, &[], &objects, &[]);
    let executor = Executor { ports: Adapters::all(ports), cluster: &cluster, index: &index, sightings: &[], failure: None };
    let mut report = Report::default();
    let outcome = block_on(executor.run(findings, &mut report));
    (outcome, report)
}

/// The claims end because their pool is missing, if it is.
fn endings(claims: &[Stored<Claim>]) -> Findings {
    let (kind, name, uid) = (ObjectKind::NodePool, "default".to_owned(), "pool-uid".to_owned());
    let gone = Missing { kind, name, uid, provider_id: String::new() };
    let ending = |claim: &Stored<Claim>| {
        let ending = Ending::new(&claim.value, DeletionReason::NodePoolDeleted, "its NodePool does not exist any more");
        Ending { gone: Some(gone.clone()), ..ending }
    };
    Findings { end: claims.iter().map(ending).collect(), ..Findings::default() }
}

/// The same, with everything else that a sweep may do for objects and claims that exist.
fn everything(claims: &[Stored<Claim>]) -> Findings {
    let sighting =
        |number: usize| Sighting { subject: format!("claim/{number} without instance"), first_seen_at: at(0), expires_at: at(900) };
    let event = |number: usize| ClusterEvent::warning(Involved::node("n"), "Unreadable", format!("number {number}"));
    Findings {
        terminate: claims.iter().map(|claim| claim.value.key.name.clone()).collect(),
        abandoned: vec!["forsaken".to_owned()],
        release_mirrors: vec!["left".to_owned()],
        release_nodes: vec!["n".to_owned()],
        hydrate: vec![("n".to_owned(), "default".to_owned())],
        events: (0..20).map(event).collect(),
        note: (0..40).map(sighting).collect(),
        ..endings(claims)
    }
}

fn sightings(world: &TestWorld) -> Vec<Stored<Sighting>> {
    block_on(world.ports().read_all::<Sighting>(&ClusterName::new("c"))).unwrap()
}

struct Sweeps;

impl Functions for Sweeps {
    fn call(&self, _: Function, ports: SimPorts, input: Input) -> BoxFuture<'static, Result<(), RunFailure>> {
        Box::pin(async move {
            let Input::Doorbell(Doorbell::Sweep { cluster, .. }) = input else { return Ok(()) };
            let adapters = Adapters::all(&ports);
            crate::handle(adapters, &Settings::default(), &cluster).await.map(|_| ()).map_err(RunFailure::passing)
        })
    }
}

/// Every call to table, cluster, queue and EC2 has latency: one claim after another would take twice as long.
#[test]
fn two_hundred_claims_are_ended_within_five_seconds() {
    let mut world = TestWorld::with_functions("c", at(0), Arc::new(Sweeps));
    world.create(pool_named("default"));
    keep(&world, 200);
    world.run_until(at(200));
    block_on(world.ports().send_now(Doorbell::sweep("c".into()))).unwrap();
    world.run_for(SignedDuration::from_secs(5));
    assert_eq!(ended(&world), 200);
}

#[test]
fn many_claims_are_ended_and_reported_in_their_order() {
    let mut world = still();
    world.create(pool_named("default"));
    let names: Vec<String> = keep(&world, 40).iter().map(|claim| format!("nodeclaim/{}", claim.value.key.name)).collect();
    world.run_until(at(200));
    let report = sweep(&world, &Settings::default());
    let disrupted = report.decisions.iter().filter(|decision| decision.kind == DecisionKind::Disrupted);
    assert_eq!(disrupted.map(|decision| decision.subject.clone()).collect::<Vec<_>>(), names);
    assert_eq!((report.counted("ended"), ended(&world)), (40, 40));
    let rung = |function: Function| world.doorbells().into_iter().filter(|one| *one == function).count();
    assert_eq!((rung(Function::Terminate), rung(Function::Schedule)), (40, 1), "pods are planned once for all of them");
}

#[test]
fn a_claim_that_was_changed_meanwhile_is_left_and_keeps_no_other() {
    let world = still();
    let claims = keep(&world, 20);
    let changed = Claim { pods_fingerprint: Some(7), ..claims[3].value.clone() };
    block_on(world.ports().update(&changed, claims[3].revision)).unwrap();
    let (outcome, report) = execute(&world.ports(), "c", &claims, endings(&claims));
    assert_eq!((outcome, report.counted("ended"), ended(&world)), (Ok(()), 19, 19));
    assert_eq!(world.claim(&changed.key), changed);
}

#[test]
fn claims_of_a_pool_that_exists_or_cannot_be_looked_up_are_kept() {
    let world = still();
    let claims = keep(&world, 20);
    // An API server that does not answer.
    let (outcome, report) = execute(&world.ports(), "unknown", &claims, endings(&claims));
    assert!(matches!(outcome, Err(HandleError::Cluster(_))), "{outcome:?}");
    assert_eq!((report.counted("endings_doubted"), ended(&world)), (20, 0));
    world.create(pool_named("default"));
    let (outcome, report) = execute(&world.ports(), "c", &claims, endings(&claims));
    assert_eq!((outcome, report.counted("endings_doubted"), ended(&world)), (Ok(()), 20, 0));
}

#[test]
fn a_sweep_without_time_begins_nothing_but_keeps_what_it_saw() {
    let world = still();
    world.create(node(false));
    let claims = keep(&world, 20);
    let (outcome, report) = execute(&with_time(&world, SignedDuration::from_secs(1)), "c", &claims, everything(&claims));
    assert_eq!((outcome, report.counts), (Ok(()), BTreeMap::from([("events_failed", 1)])));
    assert_eq!((ended(&world), world.doorbells().len(), sightings(&world).len()), (0, 0, 40));
    let (outcome, report) = execute(&world.ports(), "c", &claims, Findings { note: Vec::new(), ..everything(&claims) });
    assert_eq!((outcome, ended(&world)), (Ok(()), 20));
    let done = ["ended", "endings_sent_again", "releases_doubted", "nodes_hydrated", "warned"].map(|word| report.counted(word));
    assert_eq!(done, [20, 20, 3, 1, 20]);
}

/// A serving machine that the table has forgotten. Its launch tag and its Node are known, so that nothing is asked before.
fn forgotten(number: usize) -> Adoptable {
    let mut object = shown(&claim_of(number));
    object.status.node_name.clear();
    Adoptable { instance: instance(&format!("i-{number}")), object: Some(object), node: None }
}

fn adopting(found: Vec<Adoptable>) -> Findings {
    Findings { adopt: found, ..Findings::default() }
}

/// One after another they would take twice the time that the sweep has.
#[test]
fn a_hundred_forgotten_machines_have_their_claims_back_within_three_seconds() {
    let world = still();
    let time = SignedDuration::from_secs(3) + crate::execute::TIME_PER_STEP;
    let (outcome, report) = execute(&with_time(&world, time), "c", &[], adopting((0..100).map(forgotten).collect()));
    assert_eq!((outcome, report.counted("adopted"), stored(&world).len()), (Ok(()), 100, 100));
    let first = report.decisions.first().map(|decision| decision.subject.as_str());
    assert_eq!(first, Some("nodeclaim/default-000"), "in their order");
}

/// The listing is older than the claim.
#[test]
fn a_claim_that_was_stored_meanwhile_stays_as_it_is_and_holds_up_no_other() {
    let world = still();
    let known = keep(&world, 1);
    let (outcome, report) = execute(&world.ports(), "c", &[], adopting((0..20).map(forgotten).collect()));
    assert_eq!((outcome, report.counted("adopted"), stored(&world).len()), (Ok(()), 19, 20));
    assert_eq!((&stored(&world)[0].value, stored(&world)[0].revision), (&known[0].value, known[0].revision));
}

/// What a sweep that has read these claims does for forgotten machines, over a table with these faults: how many adoptions it reports,
/// whether it has failed, and how many claims with a machine the table has then.
fn adopt_over<const N: usize>(
    world: &TestWorld,
    read: &[Stored<Claim>],
    machines: usize,
    script: [Option<Fault>; N],
) -> (u64, bool, usize) {
    let (ports, cluster, objects) = (world.ports(), ClusterName::new("c"), ClusterObjects::default());
    let store = Faulty::scripted(&ports, script);
    let adapters = Adapters { store: &store, cloud: &ports, cluster: &ports, queues: &ports, clock: &ports };
    let index = Index::of(read, &[], &objects, &[]);
    let found: Vec<Adoptable> = (0..machines).map(forgotten).collect();
    let lease = block_on(ports.acquire(&cluster, "test", at(0), SignedDuration::from_secs(30))).unwrap();
    let (mut executor, mut report) =
        (Executor { ports: adapters, cluster: &cluster, index: &index, sightings: &[], failure: None }, Report::default());
    block_on(executor.adopt_machines(&lease, &found, None, &mut report));
    let reported = report.decisions.iter().map(|decision| decision.subject.clone()).collect::<BTreeSet<_>>();
    assert_eq!(u64::try_from(reported.len()), Ok(report.counted("adopted")), "each once, in the decisions as well");
    let with_machine = stored(world).iter().filter(|claim| claim.value.machine().is_some()).count();
    (report.counted("adopted"), executor.failure.is_some(), with_machine)
}

#[test]
fn what_was_stored_of_claims_that_were_not_all_stored_is_reported_as_adopted() {
    let (lost, busy) = (Some(Fault::LostReply), Some(Fault::Throttle));
    assert_eq!(adopt_over(&still(), &[], 3, [None, lost]), (3, false, 3), "the second is stored, and the third was not tried");
    assert_eq!(adopt_over(&still(), &[], 3, [None, busy]), (1, true, 1), "the others are left to the next sweep");
    // The first of two has been stored, as two requests find out; the answer for the other is lost as well.
    assert_eq!(adopt_over(&still(), &[], 2, [lost, None, None, lost]), (2, false, 2));
}

#[test]
fn nothing_is_reported_as_adopted_that_was_not_stored_or_by_another() {
    let busy = Some(Fault::Throttle);
    assert_eq!(adopt_over(&still(), &[], 2, [busy]), (0, true, 0));
    let world = still();
    keep(&world, 1);
    assert_eq!(adopt_over(&world, &[], 1, []), (0, false, 1), "its claim was stored after all were read");
}

/// A claim that waits for its machine.
#[test]
fn a_waiting_claim_is_reported_as_adopted_if_it_has_its_machine_whatever_was_answered() {
    let adopted = |fault: Option<Fault>| {
        let world = still();
        let mut claim = planned();
        claim.key = claim_of(0).key;
        world.store(&claim);
        adopt_over(&world, &stored(&world), 1, [fault])
    };
    assert_eq!(adopted(None), (1, false, 1));
    assert_eq!(adopted(Some(Fault::LostReply)), (1, false, 1));
    assert_eq!(adopted(Some(Fault::LostRace)), (0, false, 0));
    assert_eq!(adopted(Some(Fault::Throttle)), (0, true, 0));
}

#[test]
fn of_two_machines_with_the_claim_of_one_name_one_waits_for_the_next_sweep() {
    let world = still();
    let twin = Adoptable { instance: instance("i-9"), ..forgotten(0) };
    let (outcome, report) = execute(&world.ports(), "c", &[], adopting(vec![forgotten(0), twin, forgotten(1)]));
    assert_eq!((outcome, report.counted("adopted"), stored(&world).len()), (Ok(()), 2, 2));
    assert_eq!(stored(&world)[0].value.instance().map(ToString::to_string).as_deref(), Some("i-0"));
}

#[test]
fn sightings_are_kept_and_forgotten_all_at_once() {
    let world = still();
    execute(&world.ports(), "c", &[], everything(&[])).0.unwrap();
    let known = sightings(&world);
    let objects = ClusterObjects::default();
    let (ports, cluster) = (world.ports(), ClusterName::new("c"));
    let adapters = Adapters::all(&ports);
    let index = Index::of(&[], &[], &objects, &[]);
    let executor = Executor { ports: adapters, cluster: &cluster, index: &index, sightings: &known, failure: None };
    let left = known[0].value.subject.clone();
    let forget = known[1..].iter().map(|sighting| sighting.value.subject.clone()).collect();
    block_on(executor.run(Findings { forget, ..Findings::default() }, &mut Report::default())).unwrap();
    assert_eq!(sightings(&world).iter().map(|sighting| sighting.value.subject.clone()).collect::<Vec<_>>(), [left]);
}

/// Claims with their drift, of which nothing is stored yet.
fn drifted(claims: &[Stored<Claim>]) -> Vec<(&Stored<Claim>, Claim)> {
    let drift = |claim: &Claim| {
        let mut next = claim.clone();
        conditions::set(&mut next.conditions, conditions::DRIFTED, ConditionStatus::True, "AMIDrift", "AMIDrift", at(20));
        next
    };
    claims.iter().map(|claim| (claim, drift(&claim.value))).collect()
}

fn noted(world: &TestWorld) -> usize {
    let has_drifted = |claim: &&Stored<Claim>| conditions::find(&claim.value.conditions, conditions::DRIFTED).is_some();
    stored(world).iter().filter(has_drifted).count()
}

#[test]
fn drift_of_many_claims_is_stored_but_of_those_that_were_changed_meanwhile() {
    let world = still();
    let claims = keep(&world, 20);
    let changed = Claim { pods_fingerprint: Some(7), ..claims[3].value.clone() };
    block_on(world.ports().update(&changed, claims[3].revision)).unwrap();
    let (ports, mut report) = (world.ports(), Report::default());
    block_on(crate::store_drift(Adapters::all(&ports), &drifted(&claims), &mut report)).unwrap();
    assert_eq!((report.counted("drift_noted"), report.counted("handed_over"), noted(&world)), (19, 0, 19));
    assert_eq!(world.claim(&changed.key), changed);
}

#[test]
fn statuses_of_many_pools_are_written_at_once_and_those_without_time_are_left_to_the_next_sweep() {
    let world = still();
    let pools: Vec<NodePool> = (0..20).map(|number| pool_named(&format!("pool-{number}"))).collect();
    pools.iter().cloned().for_each(|pool| world.create(pool));
    let ready = |pool: &NodePool| {
        let mut pool = pool.clone();
        conditions::set(&mut pool.status.conditions, conditions::READY, ConditionStatus::True, "Ready", "", at(20));
        pool
    };
    // The last one is as it should be.
    let wanted: Vec<NodePool> = pools[..19].iter().map(ready).chain([pools[19].clone()]).collect();
    let objects = ClusterObjects { node_pools: pools, ..ClusterObjects::default() };
    let cluster = ClusterName::new("c");
    let write = |ports: &SimPorts| {
        let mut report = Report::default();
        block_on(crate::write_statuses(Adapters::all(ports), &cluster, &wanted, &objects, &mut report));
        ["pool_statuses", "pool_statuses_failed", "handed_over"].map(|word| report.counted(word))
    };
    assert_eq!(write(&with_time(&world, SignedDuration::from_millis(1_900))), [0, 0, 1]);
    assert_eq!(write(&with_time(&world, SignedDuration::from_millis(2_500))), [16, 0, 1], "sixteen are written at once");
    assert_eq!(write(&world.ports()), [19, 0, 0]);
    let conditions_of = |name: &str| world.get::<NodePool>(name).unwrap().status.conditions;
    let is_ready = |name: &str| conditions::is_true(&conditions_of(name), conditions::READY);
    assert!(is_ready("pool-0") && is_ready("pool-18") && !is_ready("pool-19"));
}

#[test]
fn drift_for_which_there_is_no_time_is_left_to_the_next_sweep() {
    let world = still();
    let claims = keep(&world, 20);
    for (left, expected) in [(1_900, 0), (2_500, 16)] {
        let (ports, mut report) = (with_time(&world, SignedDuration::from_millis(left)), Report::default());
        block_on(crate::store_drift(Adapters::all(&ports), &drifted(&claims), &mut report)).unwrap();
        assert_eq!((noted(&world), report.counted("handed_over")), (expected, 1), "sixteen are written at once");
    }
}

#[test]
fn mirrors_of_many_claims_are_written_and_none_of_a_claim_that_is_gone_by_now() {
    let world = still();
    let mut claims = keep(&world, 40);
    let gone = Stored { value: claim_of(40), revision: claims[0].revision };
    claims.push(gone);
    let mirrors = claims.iter().map(|claim| claim.value.key.name.clone()).collect();
    let (outcome, report) = execute(&world.ports(), "c", &claims, Findings { mirrors, ..Findings::default() });
    assert_eq!((outcome, report.counted("mirrors_applied"), report.counted("mirrors_failed")), (Ok(()), 40, 0));
    let has_mirror = |number: usize| world.get::<NodeClaim>(claims[number].value.key.name.as_str()).is_some();
    assert_eq!([0, 39, 40].map(has_mirror), [true, true, false]);
}

/// A policy may refuse the mirrors of a whole pool, however often they are written.
#[test]
fn with_more_mirrors_than_a_run_writes_each_has_its_turn() {
    let names: Vec<ClaimName> = (0..2 * MIRRORS_PER_RUN_MAX + 500).map(|number| ClaimName::new(format!("n-{number:05}"))).collect();
    // How many a run takes on, and how many are written by so many of them, each of which has time for so many.
    let written = |names: &[ClaimName], minutes: i64, in_time: usize| {
        let of_minute = |minute: i64| in_turn(names, at(60 * minute));
        let written: BTreeSet<ClaimName> = (0..minutes).flat_map(|minute| of_minute(minute).into_iter().take(in_time).cloned()).collect();
        (of_minute(0).len(), written.len())
    };
    assert_eq!(written(&names, 3, MIRRORS_PER_RUN_MAX), (MIRRORS_PER_RUN_MAX, 2500));
    assert_eq!(written(&names[..800], 1, MIRRORS_PER_RUN_MAX), (800, 800), "all of few");
    for number in [320, 800, 1000, 2000, 2500] {
        assert_eq!(written(&names[..number], 200, 48).1, number, "none is kept back by {number} of which a run writes 48");
    }
    assert_eq!(written(&[], 1, 48), (0, 0));
}

#[test]
fn the_consistency_of_many_nodes_is_noted_but_of_claims_that_were_changed_meanwhile() {
    let world = still();
    let claims = keep(&world, 40);
    let changed = Claim { pods_fingerprint: Some(7), ..claims[3].value.clone() };
    block_on(world.ports().update(&changed, claims[3].revision)).unwrap();
    let consistency = claims.iter().map(|claim| Consistency { claim: claim.value.key.name.clone(), issues: Vec::new() }).collect();
    let findings = Findings { consistency, ..Findings::default() };
    let (outcome, report) = execute(&with_time(&world, SignedDuration::from_secs(1)), "c", &claims, findings.clone());
    assert_eq!((outcome, report.counted("consistency_noted")), (Ok(()), 0), "none is begun without the time for it");
    let (outcome, report) = execute(&world.ports(), "c", &claims, findings);
    assert_eq!((outcome, report.counted("consistency_noted")), (Ok(()), 39));
    let is_consistent = |number: usize| conditions::is_true(&stored(&world)[number].value.conditions, conditions::CONSISTENT_STATE_FOUND);
    assert_eq!([0, 3, 39].map(is_consistent), [true, false, true]);
    assert_eq!(world.claim(&changed.key), changed);
}

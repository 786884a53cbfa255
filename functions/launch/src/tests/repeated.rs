//! A call that is repeated because its response is unknown, after some of its instances have ended.

use super::over_sim::{class_in, keep, know, run_over, without_classes};
use crate::batch::Batch;
use futures::executor::block_on;
use std::collections::BTreeSet;
use whittle_claims::{Claim, ClaimKey, DeletionReason, Event, Function, Phase};
use whittle_ec2::instance::InstanceState;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{ClaimStore, ClusterRecord, RecordReader, RecordRemoval, Records};
use whittle_sim::Simulation;
use whittle_testkit::{TestWorld, after, at, deletion, out_of_capacity};
use whittle_units::{ClusterName, InstanceId};

/// A world in which machines can be started.
pub(super) fn with_class() -> TestWorld {
    ready(without_classes())
}

/// The world with a class that is ready.
pub(super) fn ready(simulation: TestWorld) -> TestWorld {
    let (cluster, ports) = (ClusterName::new("c"), simulation.ports());
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let info = ClusterInfo {
        name: cluster.clone(),
        endpoint: "https://c".into(),
        certificate_authority: "Yw==".into(),
        service_cidr: "10.0.0.0/16".into(),
        ..ClusterInfo::default()
    };
    block_on(async {
        let stored = ports.read::<ClusterRecord>(&cluster, ClusterRecord::NAME).await.unwrap().unwrap();
        ports.write(&cluster, &ClusterRecord { info }, stored.revision).await.unwrap();
    });
    know(&simulation, class_in(&catalog));
    simulation
}

/// Two claims of one call, whose machines run.
pub(super) fn two_of_one_call() -> (TestWorld, [Claim; 2], [InstanceId; 2]) {
    let simulation = with_class();
    let planned = [keep(&simulation, 1), keep(&simulation, 2)];
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 2);
    let claims = planned.map(|claim| simulation.claim(&claim.key));
    let machines = claims.clone().map(|claim| claim.machine().unwrap().instance_id.clone());
    assert_eq!(simulation.world().region.machines.len(), 2);
    (simulation, claims, machines)
}

fn put(simulation: &Simulation, claim: &Claim) {
    let ports = simulation.ports();
    let stored = block_on(ports.get(&claim.key)).unwrap().unwrap();
    block_on(ports.update(claim, stored.revision)).unwrap();
}

fn end(simulation: &Simulation, id: &InstanceId) {
    simulation.world().region.machines.get_mut(id).unwrap().instance.state = InstanceState::Terminated;
}

/// Reverts the claim to its state before its instance was assigned.
pub(super) fn revert_to_launching(simulation: &Simulation, claim: &Claim) {
    let token = simulation.world().region.machines.values().next().unwrap().instance.tags[whittle_api::labels::TAG_LAUNCH].clone();
    let begun = Claim { look_again_at: None, phase: Phase::Launching { client_token: token, since: at(0), attempts: 1 }, ..claim.clone() };
    put(simulation, &begun);
}

/// Ends the claim after its instance has served.
fn end_claim(simulation: &Simulation, claim: &Claim) {
    let deletion = deletion(DeletionReason::Requested, at(0));
    let events = [Event::DeletionRequested(deletion), Event::TerminationSent, Event::MachineGone];
    put(simulation, &after(claim, &events, at(0)));
    end(simulation, &claim.machine().unwrap().instance_id);
}

fn again(simulation: &mut TestWorld, key: &ClaimKey, seconds: i64) -> Claim {
    simulation.run_until(at(seconds));
    run_over(&simulation.ports(), std::slice::from_ref(&key.name));
    simulation.claim(key)
}

#[test]
fn an_instance_that_ended_under_another_claim_is_not_assigned_again() {
    for (first, second) in [(0, 1), (1, 0)] {
        for is_shown in [true, false] {
            let (mut simulation, claims, machines) = two_of_one_call();
            revert_to_launching(&simulation, &claims[second]);
            end_claim(&simulation, &claims[first]);
            if !is_shown {
                // EC2 no longer shows it, but still returns it for the same client token.
                simulation.world().region.machines.get_mut(&machines[first]).unwrap().instance.tags.clear();
            }
            let claim = again(&mut simulation, &claims[second].key, 60);
            assert_eq!(claim.machine().map(|machine| &machine.instance_id), Some(&machines[second]), "{:?}", claim.phase);
            assert_eq!(simulation.world().region.machines.len(), 2, "no other instance was started");
        }
    }
}

/// It runs and costs money, and nobody else would have it drained.
#[test]
fn a_machine_of_a_claim_that_was_given_up_meanwhile_is_drained_by_that_claim() {
    let (mut simulation, claims, machines) = two_of_one_call();
    claims.iter().for_each(|claim| revert_to_launching(&simulation, claim));
    let given_up = after(&simulation.claim(&claims[1].key), &[out_of_capacity()], at(0));
    put(&simulation, &given_up);
    let served = again(&mut simulation, &claims[0].key, 60);
    let drained = simulation.claim(&claims[1].key);
    assert_eq!((served.phase.name(), drained.phase.name()), ("Launched", "Draining"));
    let named: BTreeSet<&InstanceId> = [&served, &drained].into_iter().filter_map(Claim::instance).collect();
    assert_eq!(named, machines.iter().collect::<BTreeSet<_>>(), "each has its own");
    assert!(simulation.doorbells().contains(&Function::Terminate));
    assert_eq!(simulation.world().region.machines.len(), 2, "no other was started");
}

#[test]
fn an_instance_that_ended_before_it_was_assigned_is_replaced_by_a_new_call() {
    let (mut simulation, claims, machines) = two_of_one_call();
    revert_to_launching(&simulation, &claims[1]);
    end(&simulation, &machines[1]);
    let waits = again(&mut simulation, &claims[1].key, 60);
    assert!(matches!(waits.phase, Phase::Launching { .. }), "{:?}", waits.phase);
    assert_eq!(simulation.world().region.machines.len(), 2, "the old call starts nothing, and an ended instance is not assigned");
    let served = again(&mut simulation, &claims[1].key, 120);
    let machine = served.machine().unwrap();
    assert!(!machines.contains(&machine.instance_id), "{machine:?}");
    assert_eq!(simulation.world().region.machines.len(), 3);
    assert_eq!(simulation.claim(&claims[0].key).machine().unwrap().instance_id, machines[0], "the other claim keeps its instance");
    assert_eq!(again(&mut simulation, &claims[1].key, 600).phase, served.phase);
    assert_eq!(simulation.world().region.machines.len(), 3, "one instance is launched for the claim");
}

/// Both claims lose their instances, EC2 does not find these by tag, and a repeated call returns none.
fn instances_missing_from_responses() -> (TestWorld, [Claim; 2], [InstanceId; 2]) {
    let (simulation, claims, machines) = two_of_one_call();
    claims.iter().for_each(|claim| revert_to_launching(&simulation, claim));
    let mut world = simulation.world();
    machines.iter().for_each(|id| world.region.machines.get_mut(id).unwrap().instance.tags.clear());
    world.faults.empty_repeats = 1000;
    drop(world);
    (simulation, claims, machines)
}

#[test]
fn a_repeated_call_without_instances_describes_the_fleet() {
    let (mut simulation, claims, machines) = instances_missing_from_responses();
    simulation.run_until(at(60));
    run_over(&simulation.ports(), &claims.clone().map(|claim| claim.key.name));
    let named = claims.map(|claim| simulation.claim(&claim.key).machine().unwrap().instance_id.clone());
    assert_eq!(named.iter().collect::<BTreeSet<_>>(), machines.iter().collect());
    assert_eq!(simulation.world().region.started(), 2);
}

#[test]
fn an_unknown_fleet_is_not_replaced_before_the_timeout() {
    let (mut simulation, claims, _) = instances_missing_from_responses();
    // The fleet is not shown either.
    simulation.world().faults.stale_reads = 1000;
    let first = simulation.claim(&claims[0].key).phase;
    let names = claims.clone().map(|claim| claim.key.name);
    let mut run_at = |seconds| {
        simulation.run_until(at(seconds));
        let report = run_over(&simulation.ports(), &names);
        let phase = simulation.claim(&claims[0].key).phase;
        (report.counted("untold"), phase, simulation.world().region.started())
    };
    // Two minutes from the first incomplete response, however old the stored call is.
    for seconds in [60, 80, 100, 140, 179] {
        let (incomplete, phase, started) = run_at(seconds);
        assert_eq!((incomplete, started), (1, 2), "at {seconds}");
        let (Phase::Launching { client_token, .. }, Phase::Launching { client_token: before, .. }) = (&phase, &first) else {
            panic!("{phase:?}")
        };
        assert_eq!(client_token, before, "at {seconds}");
    }
    // EC2 would show them by now: they never started.
    assert_eq!(run_at(200).2, 2);
    assert_eq!(run_at(240).2, 4);
}

/// `terminate` rings for itself unless the claim says that a doorbell is due before: one of `launch` would not be its own.
#[test]
fn a_claim_that_is_deleted_while_its_call_is_repeated_is_left_to_its_termination() {
    let (mut simulation, claims, _) = instances_missing_from_responses();
    simulation.world().faults.stale_reads = 1000;
    let requested = Event::DeletionRequested(deletion(DeletionReason::Requested, at(30)));
    let deleted = after(&simulation.claim(&claims[1].key), &[requested], at(30));
    assert!(matches!(deleted.phase, Phase::Launching { .. }), "{:?}", deleted.phase);
    put(&simulation, &deleted);
    let waits = again(&mut simulation, &claims[0].key, 60);
    assert!(matches!(waits.phase, Phase::Launching { .. }) && waits.look_again_at > Some(at(60)), "{waits:?}");
    assert_eq!(simulation.claim(&claims[1].key), deleted);
}

/// Changes the stored calls: a version of Whittle that writes them otherwise makes them so.
fn change_calls(simulation: &TestWorld, cluster: &ClusterName) {
    let ports = simulation.ports();
    for batch in block_on(ports.read_all::<Batch>(cluster)).unwrap() {
        let mut changed = batch.value;
        changed.request.tags.insert("new".into(), "tag".into());
        block_on(ports.write(cluster, &changed, batch.revision)).unwrap();
    }
}

#[test]
fn a_token_that_was_used_for_another_call_is_given_up_once_its_instances_would_be_seen() {
    for lost in [1, 2] {
        let (mut simulation, claims, machines) = two_of_one_call();
        claims.iter().for_each(|claim| revert_to_launching(&simulation, claim));
        machines.iter().take(lost).for_each(|id| _ = simulation.world().region.machines.remove(id));
        change_calls(&simulation, &claims[0].key.cluster);
        let names = claims.clone().map(|claim| claim.key.name);
        for seconds in [60, 100, 179] {
            simulation.run_until(at(seconds));
            let report = run_over(&simulation.ports(), &names);
            assert_eq!((report.counted("token_used"), report.counted("untold")), (1, 1), "{lost} at {seconds}");
            let served = claims.iter().filter(|claim| simulation.claim(&claim.key).machine().is_some()).count();
            assert_eq!((served, simulation.world().region.started()), (2 - lost, 2), "{lost} at {seconds}: nothing is started twice");
        }
        // EC2 would show them by now: they never started.
        for (seconds, started) in [(200, 2), (240, 2 + lost), (300, 2 + lost)] {
            simulation.run_until(at(seconds));
            run_over(&simulation.ports(), &names);
            assert_eq!(simulation.world().region.started(), started, "{lost} at {seconds}");
        }
        assert!(claims.iter().all(|claim| simulation.claim(&claim.key).machine().is_some()), "{lost}");
    }
}

#[test]
fn a_token_that_was_used_for_another_call_gives_its_instances_to_the_claims() {
    let (mut simulation, claims, machines) = two_of_one_call();
    claims.iter().for_each(|claim| revert_to_launching(&simulation, claim));
    change_calls(&simulation, &claims[0].key.cluster);
    // EC2 does not list them yet.
    let tags = machines.clone().map(|id| std::mem::take(&mut simulation.world().region.machines.get_mut(&id).unwrap().instance.tags));
    let served_at = |simulation: &mut TestWorld, seconds| {
        simulation.run_until(at(seconds));
        run_over(&simulation.ports(), &claims.clone().map(|claim| claim.key.name));
        let of = |claim: &Claim| Some(simulation.claim(&claim.key).machine()?.instance_id.clone());
        claims.iter().filter_map(of).collect::<BTreeSet<InstanceId>>()
    };
    assert!(served_at(&mut simulation, 60).is_empty());
    for (id, tags) in machines.iter().zip(tags) {
        simulation.world().region.machines.get_mut(id).unwrap().instance.tags = tags;
    }
    assert_eq!(served_at(&mut simulation, 100), machines.into_iter().collect());
    assert_eq!(simulation.world().region.started(), 2);
}

#[test]
fn a_response_that_explains_missing_instances_is_final() {
    let simulation = with_class();
    let claims = [keep(&simulation, 1), keep(&simulation, 2)];
    simulation.world().faults.partial_fleets = 1000;
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("launched"), report.counted("failed"), report.counted("untold")), (1, 1, 0));
    let given_up = claims.iter().filter(|claim| simulation.claim(&claim.key).deletion.is_some()).count();
    assert_eq!(given_up, 1, "its pods are replanned at once");
}

#[test]
fn claims_of_a_failed_fleet_stay_in_one_batch() {
    let mut simulation = with_class();
    let claims: Vec<Claim> = (0..30).map(|number| keep(&simulation, number)).collect();
    simulation.world().region.refusal = Some(("InvalidParameterValue".to_owned(), "iamInstanceProfile.name is invalid".to_owned()));
    assert_eq!(run_over(&simulation.ports(), &[]).counted("retried"), 30);
    let names: Vec<_> = claims.iter().map(|claim| claim.key.name.clone()).collect();
    let doorbells: Vec<_> = simulation
        .world()
        .queues
        .waiting()
        .filter(|message| message.function == whittle_sim::Function::Launch)
        .map(|message| message.input.clone())
        .collect();
    let [whittle_sim::Input::Doorbell(whittle_claims::Doorbell::Launch { claims: doorbell_claims, .. })] = doorbells.as_slice() else {
        panic!("{doorbells:?}")
    };
    assert_eq!(*doorbell_claims, names, "one doorbell for all of them");
    simulation.world().region.refusal = None;
    simulation.run_until(at(40));
    assert_eq!(run_over(&simulation.ports(), &names).counted("launched"), 30);
    let world = simulation.world();
    let calls: BTreeSet<_> =
        world.region.machines.values().map(|machine| machine.instance.tags[whittle_api::labels::TAG_LAUNCH].clone()).collect();
    assert_eq!((calls.len(), world.region.started()), (1, 30), "one call, one instance for each claim");
}

#[test]
fn an_unreadable_claim_blocks_no_other_and_is_not_launched_again() {
    for hidden in [0, 1] {
        let (mut simulation, claims, machines) = two_of_one_call();
        revert_to_launching(&simulation, &claims[1 - hidden]);
        simulation.world().store.spoil_claim(&claims[hidden].key);
        let claim = again(&mut simulation, &claims[1 - hidden].key, 60);
        assert!(claim.machine().is_some_and(|machine| machines.contains(&machine.instance_id)), "{:?}", claim.phase);
        assert_eq!(simulation.world().region.machines.len(), 2, "no instance was started again");
        let all = run_over(&simulation.ports(), &claims.clone().map(|claim| claim.key.name));
        assert_eq!((all.counted("launched"), simulation.world().region.machines.len()), (0, 2), "an unreadable claim blocks no other");
    }
}

/// A claim is launched within seconds of being planned: one that waited for half a minute may have been launched before.
#[test]
fn a_plan_older_than_its_instances_launches_none_again() {
    for seconds in [30, 60] {
        let (mut simulation, claims, machines) = two_of_one_call();
        simulation.run_until(at(seconds));
        let lost = |claim: &Claim| Claim { phase: Phase::Planned, conditions: Vec::new(), ..claim.clone() };
        for claim in &claims {
            put(&simulation, &lost(claim));
        }
        // The stored call is lost, too, and its parameters have changed: EC2 would start other instances.
        let ports = simulation.ports();
        let batches = block_on(ports.read_all::<Batch>(&claims[0].key.cluster)).unwrap();
        for batch in &batches {
            block_on(ports.remove::<Batch>(&claims[0].key.cluster, &batch.value.id, batch.revision)).unwrap();
        }
        assert_eq!(batches.len(), 1);
        simulation.world().region.forget_tokens = true;
        run_over(&simulation.ports(), &[]);
        let served = claims.map(|claim| simulation.claim(&claim.key).machine().unwrap().instance_id.clone());
        assert!(served.iter().all(|id| machines.contains(id)), "at {seconds}: {served:?}");
        assert_eq!(simulation.world().region.machines.len(), 2, "at {seconds}");
    }
}

/// Two claims that lost the instances of their call. It launched only one, and EC2 would accept its token for a
/// new call.
fn one_of_two_launched() -> (TestWorld, [Claim; 2]) {
    let (simulation, claims, machines) = two_of_one_call();
    claims.iter().for_each(|claim| revert_to_launching(&simulation, claim));
    simulation.world().region.machines.remove(&machines[1]);
    simulation.world().region.forget_tokens = true;
    (simulation, claims)
}

/// Stores the calls like a run that dies before it calls EC2.
fn store_without_call(simulation: &TestWorld, cluster: &ClusterName) {
    let ports = simulation.ports();
    for batch in block_on(ports.read_all::<Batch>(cluster)).unwrap() {
        let unseen = Batch { looks_first: true, ..batch.value };
        block_on(ports.write(cluster, &unseen, batch.revision)).unwrap();
    }
}

#[test]
fn a_call_lost_with_the_table_is_not_repeated_for_claims_with_instances() {
    let (mut simulation, claims) = one_of_two_launched();
    let ports = simulation.ports();
    for batch in block_on(ports.read_all::<Batch>(&claims[0].key.cluster)).unwrap() {
        block_on(ports.remove::<Batch>(&claims[0].key.cluster, &batch.value.id, batch.revision)).unwrap();
    }
    let names = claims.clone().map(|claim| claim.key.name);
    simulation.run_until(at(60));
    run_over(&simulation.ports(), &names);
    let served = |simulation: &TestWorld| claims.iter().filter(|claim| simulation.claim(&claim.key).machine().is_some()).count();
    assert_eq!((served(&simulation), simulation.world().region.machines.len()), (1, 1), "existing instances are assigned first");
    simulation.run_until(at(120));
    run_over(&simulation.ports(), &names);
    assert_eq!((served(&simulation), simulation.world().region.machines.len()), (2, 2), "and one is launched for the other");
}

/// As above, but the run that stored the new call died before it called EC2.
#[test]
fn a_stored_call_is_not_made_before_instances_with_its_token_are_looked_up() {
    let (mut simulation, claims) = one_of_two_launched();
    store_without_call(&simulation, &claims[0].key.cluster);
    simulation.run_until(at(60));
    run_over(&simulation.ports(), &claims.clone().map(|claim| claim.key.name));
    let served = claims.iter().filter(|claim| simulation.claim(&claim.key).machine().is_some()).count();
    assert_eq!((served, simulation.world().region.machines.len()), (1, 1));
}

#[test]
fn a_stored_call_for_old_plans_is_looked_up_twice() {
    let (mut simulation, claims) = one_of_two_launched();
    simulation.world().region.machines.clear();
    store_without_call(&simulation, &claims[0].key.cluster);
    for claim in &claims {
        let Phase::Launching { client_token, attempts, .. } = simulation.claim(&claim.key).phase else { panic!("{claim:?}") };
        put(
            &simulation,
            &Claim { look_again_at: None, phase: Phase::Launching { client_token, since: at(290), attempts }, ..claim.clone() },
        );
    }
    let names = claims.map(|claim| claim.key.name);
    simulation.run_until(at(330));
    let report = run_over(&simulation.ports(), &names);
    assert_eq!((report.counted("looked_for"), simulation.world().region.machines.len()), (1, 0), "EC2's response may be stale");
    simulation.run_until(at(391));
    run_over(&simulation.ports(), &names);
    assert_eq!(simulation.world().region.machines.len(), 2);
}

/// EC2 shows neither, time and again; the claim that has one shows that the call was made, which would bring two for the other.
#[test]
fn a_call_is_not_made_again_for_one_claim_while_another_has_its_machine() {
    let (mut simulation, [served, waiting], _) = two_of_one_call();
    revert_to_launching(&simulation, &waiting);
    simulation.world().region.machines.clear();
    simulation.world().region.forget_tokens = true;
    store_without_call(&simulation, &waiting.key.cluster);
    let started = simulation.world().region.started();
    for seconds in [330, 391, 452] {
        again(&mut simulation, &waiting.key, seconds);
    }
    assert_eq!(simulation.world().region.started(), started + 1, "one machine for one claim");
    assert!(simulation.claim(&waiting.key).machine().is_some());
    assert_eq!(simulation.claim(&served.key), served, "which is left as it is");
}

#[test]
fn a_call_that_may_have_been_lost_is_looked_up_twice_before_it_is_made() {
    let mut simulation = with_class();
    let claim = keep(&simulation, 1);
    let mut run_at = |seconds| {
        simulation.run_until(at(seconds));
        let report = run_over(&simulation.ports(), std::slice::from_ref(&claim.key.name));
        let started = simulation.world().region.started();
        (report.counted("looked_for"), started)
    };
    assert_eq!(run_at(300), (1, 0), "EC2's response may be stale");
    assert_eq!(run_at(310), (0, 0), "too early");
    assert_eq!(run_at(331), (0, 1));
    assert_eq!(run_at(600), (0, 1), "once");
}

#[test]
fn two_lookups_of_a_lost_call_far_apart_are_not_enough_to_make_it() {
    let mut simulation = with_class();
    let claim = keep(&simulation, 1);
    let mut started_by = |seconds| {
        again(&mut simulation, &claim.key, seconds);
        simulation.world().region.started()
    };
    assert_eq!([300, 391, 400].map(&mut started_by), [0, 0, 0], "EC2 may have shown its instance in between");
    assert_eq!([422, 600].map(&mut started_by), [1, 1], "the lookups at 391 and 422 were near each other");
}

//! Calls that EC2 refuses as a whole: their claims have another one, by the class as it is then, once nothing can have been started.

use super::over_sim::{keep, run_over};
use super::repeated::{revert_to_launching, two_of_one_call, with_class};
use crate::batch::Batch;
use futures::executor::block_on;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::{conditions, labels};
use whittle_claims::{Claim, DeletionReason, NodeClassRecord, Phase};
use whittle_ports::{Adapters, CloudError, CloudErrorKind, RecordReader, Records, Report, Settings};
use whittle_sim::Function;
use whittle_testkit::{TestWorld, at};
use whittle_units::{ClaimName, ClusterName, InstanceId};

/// Changes the record of the class, as a refresh does.
fn refresh(simulation: &TestWorld, change: impl FnOnce(&mut NodeClassRecord)) {
    let (cluster, ports) = (ClusterName::new("c"), simulation.ports());
    let mut known = block_on(ports.read::<NodeClassRecord>(&cluster, "gone")).unwrap().unwrap();
    change(&mut known.value);
    block_on(ports.write(&cluster, &known.value, known.revision)).unwrap();
}

fn deny(simulation: &TestWorld) {
    simulation.world().region.denied.insert("CreateFleet");
}

fn permit(simulation: &TestWorld) {
    simulation.world().region.denied.clear();
}

fn token(simulation: &TestWorld, claim: &Claim) -> Option<String> {
    match simulation.claim(&claim.key).phase {
        Phase::Launching { client_token, .. } => Some(client_token),
        _ => None,
    }
}

/// Two claims whose one call was refused at second 0.
fn refused() -> (TestWorld, [Claim; 2], [ClaimName; 2]) {
    let simulation = with_class();
    let claims = [keep(&simulation, 1), keep(&simulation, 2)];
    deny(&simulation);
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!((report.counted("retried"), report.counted("refused")), (1, 1));
    let names = claims.clone().map(|claim| claim.key.name);
    (simulation, claims, names)
}

#[test]
fn a_refused_call_is_not_repeated_for_a_class_that_is_not_ready_by_then() {
    let (mut simulation, claims, names) = refused();
    refresh(&simulation, |class| class.problems = vec!["ValidationSucceeded: CreateFleet failed".to_owned()]);
    simulation.run_until(at(30));
    assert_eq!(run_over(&simulation.ports(), &names).counted("failed"), 2);
    for claim in &claims {
        let deletion = simulation.claim(&claim.key).deletion.unwrap();
        assert_eq!(deletion.reason, DeletionReason::NodeClassNotReady);
        assert!(deletion.message.contains("CreateFleet failed"), "{}", deletion.message);
    }
    assert!(simulation.doorbells().contains(&Function::Schedule), "their pods are planned again");
    permit(&simulation);
    simulation.run_until(at(90));
    run_over(&simulation.ports(), &names);
    assert_eq!(simulation.world().region.started(), 0);
}

#[test]
fn a_refused_call_is_replaced_by_one_with_what_the_class_says_by_then() {
    let (mut simulation, claims, names) = refused();
    let first = claims.clone().map(|claim| token(&simulation, &claim));
    assert!(first[0].is_some() && first[0] == first[1], "still one call for both: {first:?}");
    refresh(&simulation, |class| class.amis[0].id = "ami-2".into());
    simulation.run_until(at(30));
    assert_eq!(run_over(&simulation.ports(), &names).counted("retried"), 1, "it is refused again");
    let second = token(&simulation, &claims[0]);
    assert!(second.is_some() && second != first[0]);
    permit(&simulation);
    simulation.run_until(at(60));
    assert_eq!(run_over(&simulation.ports(), &names).counted("launched"), 2);
    assert!(claims.iter().all(|claim| simulation.claim(&claim.key).machine().unwrap().image_id == "ami-2"));
    let world = simulation.world();
    let calls: BTreeSet<&String> = world.region.machines.values().map(|machine| &machine.instance.tags[labels::TAG_LAUNCH]).collect();
    assert_eq!((calls.len(), world.region.started()), (1, 2), "one call, and one machine for each");
}

#[test]
fn a_refused_call_waits_for_the_refresh_of_a_class_that_was_changed_meanwhile() {
    let (mut simulation, claims, names) = refused();
    permit(&simulation);
    simulation.change::<Ec2NodeClass>("gone", |class| {
        class.spec.role = Some("another".into());
        class.metadata.generation = class.metadata.generation.map(|known| known + 1);
    });
    simulation.run_until(at(30));
    assert_eq!(run_over(&simulation.ports(), &names).counted("retried"), 2);
    assert!(claims.iter().all(|claim| simulation.claim(&claim.key).look_again_at == Some(at(35))), "not only after half a minute");
    let class = simulation.get::<Ec2NodeClass>("gone").unwrap();
    refresh(&simulation, |record| record.class = class);
    simulation.run_until(at(35));
    assert_eq!(run_over(&simulation.ports(), &names).counted("launched"), 2);
    assert_eq!(simulation.world().region.started(), 2);
}

type Tags = BTreeMap<String, String>;

/// Two claims whose call started machines, of which the run that made it died before it knew, with the tags that EC2 does not list yet.
/// Calls are refused from now on.
fn unknown() -> (TestWorld, [Claim; 2], [ClaimName; 2], BTreeMap<InstanceId, Tags>) {
    let (simulation, claims, machines) = two_of_one_call();
    claims.iter().for_each(|claim| revert_to_launching(&simulation, claim));
    let mut world = simulation.world();
    let hidden = machines.map(|id| {
        let tags = std::mem::take(&mut world.region.machines.get_mut(&id).unwrap().instance.tags);
        (id, tags)
    });
    drop(world);
    deny(&simulation);
    let names = claims.clone().map(|claim| claim.key.name);
    (simulation, claims, names, hidden.into())
}

fn show(simulation: &TestWorld, id: &InstanceId, tags: &Tags) {
    simulation.world().region.machines.get_mut(id).unwrap().instance.tags.clone_from(tags);
}

fn served(simulation: &TestWorld, claims: &[Claim]) -> BTreeSet<InstanceId> {
    claims.iter().filter_map(|claim| Some(simulation.claim(&claim.key).machine()?.instance_id.clone())).collect()
}

#[test]
fn a_call_that_may_have_started_machines_is_repeated_although_it_is_refused() {
    let (mut simulation, claims, names, hidden) = unknown();
    let first = token(&simulation, &claims[0]);
    for second in [60, 100, 179] {
        simulation.run_until(at(second));
        run_over(&simulation.ports(), &names);
        assert_eq!(token(&simulation, &claims[0]), first, "at {second}");
    }
    permit(&simulation);
    simulation.run_until(at(210));
    run_over(&simulation.ports(), &names);
    assert_eq!(served(&simulation, &claims), hidden.into_keys().collect(), "EC2 answers the same call with its machines");
    assert_eq!(simulation.world().region.started(), 2, "none is started twice");
}

#[test]
fn a_call_whose_machines_ec2_never_shows_is_given_up_after_it_was_refused_for_two_minutes() {
    let (mut simulation, claims, names, _) = unknown();
    let first = token(&simulation, &claims[0]);
    for second in [60, 120, 181] {
        assert_eq!(token(&simulation, &claims[0]), first, "before {second}");
        simulation.run_until(at(second));
        run_over(&simulation.ports(), &names);
    }
    assert_ne!(token(&simulation, &claims[0]), first);
    assert_eq!(simulation.world().region.started(), 2);
    refresh(&simulation, |class| class.problems = vec!["it names no subnet".to_owned()]);
    simulation.run_until(at(220));
    assert_eq!(run_over(&simulation.ports(), &names).counted("failed"), 2, "the class is looked at");
}

#[test]
fn machines_of_a_refused_call_are_assigned_when_ec2_lists_them() {
    let (mut simulation, claims, names, hidden) = unknown();
    simulation.run_until(at(60));
    run_over(&simulation.ports(), &names);
    assert!(served(&simulation, &claims).is_empty());
    let mut shown = BTreeSet::new();
    for (second, (id, tags)) in [100, 140].into_iter().zip(&hidden) {
        show(&simulation, id, tags);
        shown.insert(id.clone());
        simulation.run_until(at(second));
        run_over(&simulation.ports(), &names);
        assert_eq!(served(&simulation, &claims), shown, "at {second}");
    }
    assert_eq!(simulation.world().region.started(), 2);
}

/// The only call, as it is stored.
fn stored(simulation: &TestWorld) -> Batch {
    let [batch] = <[_; 1]>::try_from(block_on(simulation.ports().read_all::<Batch>(&ClusterName::new("c"))).unwrap()).unwrap();
    batch.value
}

/// Machines that it may have started then are waited for as long as those of the first call.
#[test]
fn the_time_of_refusals_begins_anew_after_a_response_without_the_machines() {
    let (mut simulation, claims, names, _) = unknown();
    let first = token(&simulation, &claims[0]);
    simulation.run_until(at(60));
    run_over(&simulation.ports(), &names);
    assert_eq!(stored(&simulation).refused_since, Some(at(60)));
    permit(&simulation);
    let mut world = simulation.world();
    (world.faults.empty_repeats, world.faults.stale_reads) = (1000, 1000);
    drop(world);
    simulation.run_until(at(100));
    assert_eq!(run_over(&simulation.ports(), &names).counted("untold"), 1);
    assert_eq!((stored(&simulation).open_since, stored(&simulation).refused_since), (Some(at(100)), None));
    deny(&simulation);
    simulation.run_until(at(181));
    run_over(&simulation.ports(), &names);
    assert_eq!((stored(&simulation).refused_since, token(&simulation, &claims[0])), (Some(at(181)), first));
    assert_eq!(simulation.world().region.started(), 2);
}

/// The call fails like this, in a run that makes it again.
fn fail(simulation: &TestWorld, batch: &Batch, kind: CloudErrorKind) {
    let (ports, cluster) = (simulation.ports(), ClusterName::new("c"));
    let facts = block_on(crate::load(Adapters::all(&ports), &Settings::default(), &cluster)).unwrap().expect("they are stored");
    let mut run = crate::Run {
        ports: Adapters::all(&ports),
        cluster: &cluster,
        facts: Arc::new(facts),
        templates: BTreeSet::new(),
        register_rung_at: Arc::new(AtomicI64::new(i64::MIN)),
        is_throttled: false,
        templates_throttled: None,
        report: Report::default(),
    };
    let error = CloudError { kind, call: "CreateFleet", code: String::new(), message: "no answer".into() };
    block_on(run.failed(batch, error, &[], None)).unwrap();
}

/// Whoever launches a replacement learns from this whether EC2 refuses what is asked of it (disruption 11.2).
#[test]
fn a_call_that_ec2_did_not_answer_is_not_told_as_a_refusal() {
    let (simulation, claims, ..) = unknown();
    let reason = || conditions::find(&simulation.claim(&claims[0].key).conditions, conditions::LAUNCHED).map(|found| found.reason.clone());
    fail(&simulation, &stored(&simulation), CloudErrorKind::Unknown);
    assert_eq!(reason().as_deref(), Some("InternalError"));
}

#[test]
fn the_time_of_refusals_begins_anew_when_a_call_may_have_started_machines() {
    let (mut simulation, claims, names, _) = unknown();
    let first = token(&simulation, &claims[0]);
    simulation.run_until(at(60));
    run_over(&simulation.ports(), &names);
    assert_eq!(stored(&simulation).refused_since, Some(at(60)));
    fail(&simulation, &stored(&simulation), CloudErrorKind::Throttled);
    assert_eq!(stored(&simulation).refused_since, Some(at(60)), "EC2 looked at nothing");
    fail(&simulation, &stored(&simulation), CloudErrorKind::Unknown);
    assert_eq!(stored(&simulation).refused_since, None);
    for second in [120, 181] {
        simulation.run_until(at(second));
        run_over(&simulation.ports(), &names);
        assert_eq!((stored(&simulation).refused_since, token(&simulation, &claims[0])), (Some(at(120)), first.clone()), "at {second}");
    }
}

//! Dry runs of node classes: requested, and their results shown.

use super::{class, cluster, fenced, now, record, run, with_role};
use futures::executor::block_on;
use whittle_api::conditions;
use whittle_api::karpenter::{Ec2NodeClass, NodePool, Requirement};
use whittle_claims::{ClassDryRun, DryRunFailure, Function};
use whittle_ports::{Adapters, Mode, RecordReader, Records, Settings};
use whittle_testkit::TestWorld;
use whittle_units::SignedDuration;

fn known(simulation: &TestWorld) -> ClassDryRun {
    block_on(simulation.ports().read::<ClassDryRun>(&cluster(), "default")).unwrap().expect("it was requested").value
}

/// A world whose class is ready, after one run.
fn world() -> TestWorld {
    let (simulation, _) = fenced(with_role("KarpenterNodeRole-c"));
    assert_eq!(run(&simulation).counted("classes_ready"), 1);
    simulation
}

/// Records what `launch` found out.
fn answer(simulation: &TestWorld, failure: Option<&str>) {
    let refusal = |reason: &str| DryRunFailure { reason: reason.into(), message: "CreateFleet failed: denied".into(), may_pass: false };
    answer_with(simulation, failure.map(refusal));
}

fn answer_with(simulation: &TestWorld, failure: Option<DryRunFailure>) {
    let ports = simulation.ports();
    let stored = block_on(ports.read::<ClassDryRun>(&cluster(), "default")).unwrap().unwrap();
    let now = simulation.world().now();
    block_on(ports.write(&cluster(), &stored.value.made(failure, now), stored.revision)).unwrap();
}

/// Status and reason of the condition.
fn validation(simulation: &TestWorld) -> (bool, String) {
    let class = class(simulation).unwrap();
    let condition = conditions::find(&class.status.conditions, conditions::VALIDATION_SUCCEEDED).unwrap();
    (conditions::is_true(&class.status.conditions, conditions::READY), condition.reason.clone())
}

#[test]
fn a_class_is_ready_while_its_first_dry_run_is_pending() {
    let simulation = world();
    let requested = known(&simulation);
    assert!(requested.is_pending());
    assert_eq!(requested.pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["default"]);
    assert!(simulation.doorbells().contains(&Function::Launch));
    assert!(validation(&simulation).0, "the first pods do not wait for it");
    // A lost request is repeated.
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 1);
    answer(&simulation, None);
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 0);
    assert!(validation(&simulation).0);
}

#[test]
fn a_class_whose_launches_are_not_permitted_is_not_ready_and_says_why() {
    let mut simulation = world();
    answer(&simulation, Some("CreateFleetAuthCheckFailed"));
    assert_eq!(run(&simulation).counted("classes_not_ready"), 1);
    assert_eq!(validation(&simulation), (false, "CreateFleetAuthCheckFailed".to_owned()));
    assert_eq!(record(&simulation).unwrap().problems, ["ValidationSucceeded: CreateFleet failed: denied"]);
    let events: Vec<_> = simulation.world().cluster.events.iter().map(|kept| kept.event.reason.clone()).collect();
    assert!(events.contains(&"CreateFleetAuthCheckFailed".to_owned()), "{events:?}");
    run(&simulation);
    let count = simulation.world().cluster.events.iter().filter(|kept| kept.event.reason == "CreateFleetAuthCheckFailed").count();
    assert_eq!(count, 1, "it is news once");
    // It is asked again after five minutes, remains closed until the answer, and is ready when the permission is there.
    simulation.run_for(SignedDuration::from_mins(6));
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 1);
    assert!(!validation(&simulation).0);
    answer(&simulation, None);
    run(&simulation);
    assert_eq!(validation(&simulation), (true, "ValidationSucceeded".to_owned()));
}

#[test]
fn what_may_be_too_new_for_ec2_is_asked_about_again_after_seconds() {
    let mut simulation = world();
    let too_new = DryRunFailure { reason: "InstanceProfileNotFound".into(), message: "unknown".into(), may_pass: true };
    answer_with(&simulation, Some(too_new));
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 0);
    assert_eq!(validation(&simulation), (false, "InstanceProfileNotFound".to_owned()));
    simulation.run_for(SignedDuration::from_secs(10));
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 0, "it has just been asked");
    simulation.run_for(SignedDuration::from_secs(5));
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 1);
    assert!(!validation(&simulation).0, "not before the answer");
    answer(&simulation, None);
    run(&simulation);
    assert!(validation(&simulation).0);
}

#[test]
fn a_result_for_the_class_as_it_was_says_nothing_about_the_class_as_it_is() {
    let simulation = world();
    answer(&simulation, Some("RunInstancesAuthCheckFailed"));
    run(&simulation);
    assert!(!validation(&simulation).0);
    simulation.change::<Ec2NodeClass>("default", |class| {
        class.metadata.annotations.insert("checked".into(), "again".into());
    });
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 1);
    assert!(validation(&simulation).0);
    answer(&simulation, None);
    // Other types are other launches.
    simulation.change::<NodePool>("default", |pool| {
        pool.spec.template.spec.requirements = vec![Requirement::is_in("kubernetes.io/arch", ["arm64"])];
    });
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 1);
}

#[test]
fn a_failed_class_stays_closed_while_addresses_are_used() {
    let simulation = world();
    answer(&simulation, Some("CreateFleetAuthCheckFailed"));
    let order = || class(&simulation).unwrap().status.subnets.iter().map(|subnet| subnet.id.clone()).collect::<Vec<_>>();
    run(&simulation);
    let before = order();
    // The subnet with the most free addresses comes first in the status.
    simulation
        .world()
        .region
        .network
        .subnets
        .iter_mut()
        .filter(|subnet| subnet.id == before[0])
        .for_each(|subnet| subnet.free_addresses = 1);
    assert_eq!(run(&simulation).counted("dry_runs_pending"), 0);
    assert_ne!(order(), before);
    assert_eq!(validation(&simulation), (false, "CreateFleetAuthCheckFailed".to_owned()));
}

#[test]
fn nothing_is_requested_or_shown_where_dry_runs_are_off_or_in_shadow_mode() {
    let unasked = Settings { node_class_dry_runs: false, ..Settings::default() };
    let shadow = Settings { mode: Mode::Shadow, ..Settings::default() };
    for settings in [unasked, shadow] {
        let simulation = world();
        answer(&simulation, Some("CreateFleetAuthCheckFailed"));
        let before = known(&simulation);
        let ports = simulation.ports();
        let report = block_on(crate::handle(Adapters::all(&ports), &settings, &cluster())).unwrap();
        assert_eq!((report.counted("dry_runs_pending"), report.counted("classes_ready")), (0, 1));
        assert_eq!(known(&simulation), before);
        assert!(validation(&simulation).0);
    }
}

#[test]
fn a_class_that_is_not_ready_for_another_reason_asks_for_no_dry_run() {
    let simulation = TestWorld::still(now());
    let mut class = Ec2NodeClass { metadata: whittle_api::ObjectMeta::named("default"), ..Ec2NodeClass::default() };
    class.spec.role = Some("node".into());
    class.spec.ami_selector_terms =
        vec![whittle_api::karpenter::AmiSelectorTerm { id: Some("ami-0123456789abcdef0".into()), ..Default::default() }];
    simulation.create(class);
    assert_eq!(run(&simulation).counted("classes_not_ready"), 1);
    assert!(block_on(simulation.ports().read::<ClassDryRun>(&cluster(), "default")).unwrap().is_none());
    assert!(!simulation.doorbells().contains(&Function::Launch));
}

/// What the Events on an object of this kind say of one condition.
fn transitions(simulation: &TestWorld, kind: &str, condition: &str) -> Vec<String> {
    let world = simulation.world();
    let events = world.cluster.events.iter().map(|kept| &kept.event).filter(|event| event.kind == kind && event.reason == condition);
    let shortened = |text: &str| text.replace(&format!("Status condition transitioned, Type: {condition}, Status: "), "");
    events.map(|event| shortened(&event.message)).collect()
}

#[test]
fn a_class_and_its_pool_say_when_they_stop_being_ready_and_when_they_are_again() {
    let mut simulation = world();
    let both = |simulation: &TestWorld| {
        [("EC2NodeClass", conditions::READY), ("NodePool", conditions::NODE_CLASS_READY)]
            .map(|(kind, condition)| transitions(simulation, kind, condition))
    };
    let before = both(&simulation);
    let since = |simulation: &TestWorld| {
        let [class, pool] = both(simulation);
        [class[before[0].len()..].to_vec(), pool[before[1].len()..].to_vec()]
    };
    answer(&simulation, Some("CreateFleetAuthCheckFailed"));
    for _ in 0..2 {
        run(&simulation);
        let said = "True -> False, Reason: UnhealthyDependents, Message: ValidationSucceeded: CreateFleet failed: denied".to_owned();
        assert_eq!(since(&simulation), [vec![said.clone()], vec![said]], "once");
    }
    simulation.run_for(SignedDuration::from_mins(6));
    run(&simulation);
    answer(&simulation, None);
    run(&simulation);
    let [class, pool] = since(&simulation);
    assert_eq!(class[1..], ["False -> True, Reason: Ready"]);
    assert_eq!(pool[1..], ["False -> True, Reason: NodeClassReady"]);
}

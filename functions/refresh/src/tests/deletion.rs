//! Classes that are deleted, or that lists lack: what is kept of them, and until when.

use super::*;

#[test]
fn an_unreadable_or_unlisted_class_is_not_closed() {
    for named in [true, false] {
        let mut simulation = world();
        simulation.world().hide_always("EC2NodeClass", "default", named);
        for _ in 0..4 {
            simulation.run_for(crate::missing_classes::CONFIRM_AFTER);
            assert_eq!(run(&simulation).counted("classes_closed"), 0, "named: {named}");
        }
        assert!(!record(&simulation).unwrap().class.metadata.is_deleting(), "named: {named}");
        assert_eq!(templates_and_profiles(&simulation), (1, 1));
        assert_eq!(pool_reason(&simulation), if named { "NodeClassUnreadable" } else { "NodeClassNotFound" });
        // It is readable again.
        simulation.world().show_all();
        run(&simulation);
        assert!(!record(&simulation).unwrap().class.metadata.is_deleting());
    }
}

#[test]
fn an_unreadable_nodeclaim_of_another_controller_blocks_the_deletion_of_every_class() {
    let mut simulation = world();
    let theirs = whittle_api::karpenter::NodeClaim { metadata: ObjectMeta::named("theirs"), ..Default::default() };
    simulation.world().cluster.objects.create(theirs, now());
    simulation.world().hide_always("NodeClaim", "theirs", true);
    delete_class(&simulation);
    for _ in 0..4 {
        simulation.run_for(crate::missing_classes::CONFIRM_AFTER);
        run(&simulation);
    }
    assert!(class(&simulation).is_some());
    assert_eq!(templates_and_profiles(&simulation), (1, 1));
}

fn pool_reason(simulation: &Simulation) -> String {
    let world = simulation.world();
    let pool = world.cluster.objects.get::<NodePool>("default").unwrap();
    conditions::find(&pool.status.conditions, conditions::NODE_CLASS_READY).unwrap().reason.clone()
}

fn keep_claim(simulation: &TestWorld) -> Claim {
    let claim = planned("default-1", ClaimSpec { node_class: reference(), ..ClaimSpec::default() });
    simulation.store(&claim);
    claim
}

fn end_claim(simulation: &Simulation, claim: &Claim) {
    let ports = simulation.ports();
    let stored = block_on(ports.get(&claim.key)).unwrap().unwrap();
    block_on(ports.update(&after(&stored.value, &[out_of_capacity()], now()), stored.revision)).unwrap();
}

#[test]
fn a_class_in_use_is_kept_until_its_last_claim_has_ended() {
    let simulation = world();
    let claim = keep_claim(&simulation);
    delete_class(&simulation);
    for _ in 0..3 {
        run(&simulation);
        assert!(class(&simulation).is_some());
        assert_eq!(templates_and_profiles(&simulation), (1, 1), "resources that a machine may need are kept");
    }
    let event = simulation.world().cluster.events.iter().any(|kept| {
        kept.event.reason == "WaitingOnNodeClaimTermination" && kept.event.message.contains("default-1") && !kept.event.warning
    });
    assert!(event);
    assert_eq!(pool_reason(&simulation), "NodeClassTerminating");
    end_claim(&simulation, &claim);
    assert_eq!(run(&simulation).counted("classes_ended"), 1);
    assert_eq!((class(&simulation), templates_and_profiles(&simulation), record(&simulation)), (None, (0, 0), None));
    let finalized = simulation.world().cluster.events.iter().filter(|kept| kept.event.reason == "Finalized").count();
    assert_eq!(finalized, 1);
}

#[test]
fn a_class_is_kept_while_an_unreadable_claim_may_use_it() {
    let simulation = world();
    let claim = keep_claim(&simulation);
    delete_class(&simulation);
    simulation.world().store.spoil_claim(&claim.key);
    for _ in 0..3 {
        run(&simulation);
        assert_eq!((class(&simulation).is_some(), templates_and_profiles(&simulation)), (true, (1, 1)));
    }
    let event = simulation.world().cluster.events.iter().any(|kept| kept.event.message.contains("default-1"));
    assert!(event, "the Event contains its name");
}

#[test]
fn a_class_is_closed_to_launches_before_its_resources_are_deleted() {
    let simulation = world();
    delete_class(&simulation);
    let first = run(&simulation);
    assert_eq!((first.counted("classes_closed"), first.counted("classes_ended")), (1, 0));
    assert!(!record(&simulation).unwrap().is_ready());
    assert_eq!(templates_and_profiles(&simulation), (1, 1));
    // A claim that was created meanwhile uses it.
    let claim = keep_claim(&simulation);
    assert_eq!(run(&simulation).counted("classes_held"), 1);
    end_claim(&simulation, &claim);
    assert_eq!(run(&simulation).counted("classes_ended"), 1);
    assert_eq!(run(&simulation).counted("classes_ended"), 0, "once");
}

#[test]
fn a_class_without_its_finalizer_is_cleaned_up_after_its_claims() {
    let mut simulation = world();
    let claim = keep_claim(&simulation);
    simulation.world().cluster.objects.change::<Ec2NodeClass>("default", |class| class.metadata.finalizers.clear());
    delete_class(&simulation);
    assert_eq!(class(&simulation), None);
    run(&simulation);
    simulation.run_for(crate::missing_classes::CONFIRM_AFTER);
    run(&simulation);
    run(&simulation);
    assert_eq!(templates_and_profiles(&simulation), (1, 1));
    assert!(!record(&simulation).unwrap().is_ready(), "nothing is launched with it");
    assert_eq!(pool_reason(&simulation), "NodeClassNotFound");
    end_claim(&simulation, &claim);
    run(&simulation);
    assert_eq!((templates_and_profiles(&simulation), record(&simulation)), ((0, 0), None));
}

#[test]
fn a_class_is_closed_only_if_two_responses_lack_it() {
    let mut simulation = world();
    let lacking = |simulation: &Simulation| {
        let whole = class(simulation).unwrap();
        simulation.world().cluster.objects.change::<Ec2NodeClass>("default", |class| class.metadata.finalizers.clear());
        delete_class(simulation);
        let report = run(simulation);
        let mut world = simulation.world();
        let now = world.now();
        assert!(world.cluster.objects.create(whole, now));
        report
    };
    let first = lacking(&simulation);
    assert_eq!((first.counted("classes_missed"), first.counted("classes_closed")), (1, 0));
    let closed = |simulation: &Simulation| record(simulation).unwrap().class.metadata.is_deleting();
    assert!(!closed(&simulation), "launches continue");
    // It has reappeared: the next response without it is a first one.
    run(&simulation);
    simulation.run_for(crate::missing_classes::CONFIRM_AFTER * 2);
    assert_eq!(lacking(&simulation).counted("classes_missed"), 1);
    assert!(!closed(&simulation));
    // Two responses at the same time count once.
    assert_eq!(lacking(&simulation).counted("classes_closed"), 0);
    simulation.run_for(crate::missing_classes::CONFIRM_AFTER);
    assert_eq!(lacking(&simulation).counted("classes_closed"), 1);
    assert_eq!(templates_and_profiles(&simulation), (1, 1), "and even then nothing is deleted yet");
}

/// A machine that runs with the profile of the class, known to no claim.
fn start_machine(simulation: &TestWorld) -> InstanceId {
    let profile = simulation.world().region.network.profiles.keys().next().unwrap().clone();
    let launch_template = LaunchTemplate { instance_profile: profile, ..LaunchTemplate::default() };
    simulation.start_machine_from(launch_template, instance_of(&machine("i-1")))
}

#[test]
fn a_profile_in_use_is_not_deleted() {
    let simulation = world();
    let machine = start_machine(&simulation);
    delete_class(&simulation);
    run(&simulation);
    assert_eq!(run(&simulation).counted("classes_held"), 1);
    assert_eq!(templates_and_profiles(&simulation), (0, 1), "the template is deleted, nothing is launched with it");
    assert!(class(&simulation).is_some());
    let event = simulation.world().cluster.events.iter().any(|kept| kept.event.reason == "InstanceProfileInUse");
    assert!(event);
    simulation.world().region.machines.remove(&machine);
    assert_eq!(run(&simulation).counted("classes_ended"), 1);
    assert_eq!((class(&simulation), templates_and_profiles(&simulation)), (None, (0, 0)));
}

#[test]
fn kept_machines_keep_their_profile_after_an_uninstallation() {
    let simulation = world();
    start_machine(&simulation);
    let left = Uninstall { asked_at: now(), nodes: LeftNodes::Keep };
    block_on(simulation.ports().write(&cluster(), &left, Revision::ABSENT)).unwrap();
    run(&simulation);
    let report = run(&simulation);
    assert_eq!(report.counted("classes_ended"), 1, "kept machines are not waited for");
    assert!(report.decisions.last().unwrap().message.contains("is kept"), "{report:?}");
    assert_eq!(templates_and_profiles(&simulation), (0, 1));
    assert!(class(&simulation).unwrap().metadata.finalizers.is_empty());
}

#[test]
fn a_claim_of_another_controller_blocks_the_deletion_of_the_class() {
    let simulation = world();
    let mut theirs = whittle_api::karpenter::NodeClaim { metadata: ObjectMeta::named("theirs"), ..Default::default() };
    theirs.spec.node_class_ref = reference();
    simulation.world().cluster.objects.create(theirs, now());
    delete_class(&simulation);
    run(&simulation);
    assert_eq!(run(&simulation).counted("classes_held"), 1);
    assert!(class(&simulation).is_some());
}

#[test]
fn shadow_mode_neither_adds_nor_removes_finalizers() {
    let simulation = world();
    delete_class(&simulation);
    let ports = simulation.ports();
    let settings = Settings { mode: Mode::Shadow, ..Settings::default() };
    for _ in 0..3 {
        let adapters = Adapters::all(&ports);
        block_on(crate::handle(adapters, &settings, &cluster())).unwrap();
    }
    assert_eq!((class(&simulation).is_some(), templates_and_profiles(&simulation)), (true, (1, 1)));
}

#[test]
fn a_claim_of_another_kind_of_class_does_not_use_the_class_of_that_name() {
    let simulation = world();
    let mut theirs = whittle_api::karpenter::NodeClaim { metadata: ObjectMeta::named("theirs"), ..Default::default() };
    theirs.spec.node_class_ref = NodeClassReference { group: "eks.amazonaws.com".into(), kind: "NodeClass".into(), name: "default".into() };
    simulation.create(theirs);
    delete_class(&simulation);
    run(&simulation);
    assert_eq!(run(&simulation).counted("classes_ended"), 1);
}

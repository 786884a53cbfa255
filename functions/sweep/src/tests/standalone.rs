//! Standalone NodeClaims.

use super::over_sim::still;
use super::*;
use crate::compare::Missing;
use futures::executor::block_on;
use whittle_api::karpenter::{Ec2NodeClass, Operator, Requirement};
use whittle_claims::{Doorbell, Phase};
use whittle_ports::{Adapters, ClaimStore, ObjectKind, Settings};
use whittle_sim::{Input, Simulation};
use whittle_units::{ClusterName, Quantity, SignedDuration};

fn object() -> NodeClaim {
    let mut object = NodeClaim { metadata: ObjectMeta::named("mine"), ..NodeClaim::default() };
    object.metadata.uid = "uid-1".into();
    object.metadata.labels = [("team".to_owned(), "a".to_owned())].into();
    object.metadata.annotations =
        [("note".to_owned(), "keep".to_owned()), ("kubectl.kubernetes.io/last-applied-configuration".to_owned(), "{}".to_owned())].into();
    object.spec.node_class_ref = planned().spec.node_class;
    object.spec.resources.requests = Resources::from([("cpu", Quantity::from_units(3))]);
    object.spec.requirements = vec![
        Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]),
        Requirement::is_in("example.com/rack", ["r7"]),
        Requirement::is_in("example.com/row", ["1", "2"]),
    ];
    object
}

/// A cluster with nothing but a standalone NodeClaim.
fn made() -> Scene {
    change(scene(planned()), |s| {
        s.claims.clear();
        s.objects.node_claims = vec![object()];
        s.objects.nodes.clear();
        s.instances.clear();
    })
}

fn claim() -> Claim {
    crate::standalone::claim_of(&object(), &ClusterName::new("c"), at(0))
}

/// The scene after the object got its claim.
fn answered(claim: &Claim) -> Scene {
    change(made(), |s| {
        let shown = shown(claim);
        s.objects.node_claims[0].metadata.finalizers = shown.metadata.finalizers;
        s.objects.node_claims[0].status = shown.status;
        s.claims = vec![claim.clone()];
    })
}

fn names(findings: &Findings) -> Vec<&str> {
    findings.answer.iter().map(|object| object.metadata.name.as_str()).collect()
}

#[track_caller]
fn check_answered(scene: &Scene, expected: &[&str]) {
    let (first, early) = scene.twice(29);
    assert!(first.answer.is_empty() && early.answer.is_empty(), "never at the first sighting");
    let (_, second) = scene.twice(30);
    assert_eq!(names(&second), expected);
    assert!(second.end.is_empty() && second.terminate.is_empty() && second.release_mirrors.is_empty(), "{second:?}");
}

#[track_caller]
fn check_unanswered(scene: &Scene) {
    assert_eq!(names(&scene.twice(60).1), Vec::<&str>::new());
}

#[test]
fn a_standalone_nodeclaim_gets_a_claim_at_the_second_sighting() {
    check_answered(&made(), &["mine"]);
}

#[test]
fn a_nodeclaim_of_another_controller_never_gets_a_claim() {
    let spoilt: [fn(&mut NodeClaim); 9] = [
        |o| o.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()],
        |o| o.status.provider_id = "aws:///z/i-9".into(),
        |o| o.status.conditions = vec![Condition { type_: "Launched".into(), ..Condition::default() }],
        |o| {
            o.metadata.labels.insert(labels::NODE_POOL.into(), "default".into());
        },
        |o| o.metadata.owner_references = vec![OwnerReference { kind: "NodePool".into(), ..OwnerReference::default() }].into(),
        |o| o.spec.node_class_ref.group = "example.com".into(),
        |o| o.spec.node_class_ref.kind = "OtherNodeClass".into(),
        |o| o.metadata.deletion_timestamp = Some(at(90)),
        |o| o.metadata.uid.clear(),
    ];
    for spoil in spoilt {
        check_answered(&change(made(), |s| spoil(&mut s.objects.node_claims[0])), &[]);
    }
}

#[test]
fn a_nodeclaim_with_a_finalizer_of_somebody_else_gets_a_claim() {
    check_answered(&change(made(), |s| s.objects.node_claims[0].metadata.finalizers = vec!["example.com/theirs".into()]), &["mine"]);
}

/// A machine that is tagged as that of the object.
fn with_machine(launched_by_us: bool) -> Scene {
    change(made(), |s| {
        let mut machine = instance("i-1");
        machine.tags.insert(labels::TAG_NODE_CLAIM.into(), "mine".into());
        if !launched_by_us {
            machine.tags.remove(labels::TAG_LAUNCH);
        }
        s.instances = vec![machine];
    })
}

#[test]
fn a_restored_nodeclaim_whose_machine_may_run_gets_no_claim() {
    for launched_by_us in [true, false] {
        check_unanswered(&with_machine(launched_by_us));
        let ended = change(with_machine(launched_by_us), |s| s.instances[0].state = InstanceState::Terminated);
        check_answered(&ended, &["mine"]);
    }
    let of_another_claim = change(with_machine(true), |s| s.claims = vec![registered()]);
    assert_eq!(names(&of_another_claim.twice(60).1), ["mine"]);
    let shifted = change(made(), |s| {
        s.shifted.names.insert("us-east-1a".into());
        s.objects.node_claims[0].metadata.labels.insert(labels::ZONE.into(), "us-east-1a".into());
    });
    check_unanswered(&shifted);
}

/// What users are told of the NodeClaim, at the second sighting.
#[track_caller]
fn reports(scene: &Scene) -> Vec<String> {
    let (first, early) = scene.twice(29);
    assert!(first.events.is_empty() && early.events.is_empty(), "never at the first sighting");
    let events = scene.twice(30).1.events.into_iter().filter(|event| event.reason == "NotLaunched");
    let of_claim = |event: whittle_ports::ClusterEvent| {
        assert_eq!((event.kind.as_str(), event.name.as_str(), event.uid.as_str(), event.warning), ("NodeClaim", "mine", "uid-1", true));
        event.message
    };
    events.map(of_claim).collect()
}

fn labelled() -> Scene {
    change(made(), |s| {
        s.objects.node_claims[0].metadata.labels.insert(labels::NODE_POOL.into(), "default".into());
    })
}

#[test]
fn users_are_told_what_keeps_a_nodeclaim_from_being_launched() {
    assert_eq!(
        reports(&labelled()),
        ["no machine is launched for it: label karpenter.sh/nodepool shows that a controller made it, or what it was copied or restored \
          from, and a machine may run for that. If you made this NodeClaim, remove that, and it gets a machine that belongs to no \
          NodePool; if not, delete it"]
    );
    let copied = change(labelled(), |s| {
        let meta = &mut s.objects.node_claims[0].metadata;
        let owner = OwnerReference { kind: "NodePool".into(), name: "default".into(), ..OwnerReference::default() };
        meta.owner_references = vec![owner].into();
        meta.finalizers = vec!["example.com/theirs".into(), labels::TERMINATION_FINALIZER.into()];
    });
    let marks = "label karpenter.sh/nodepool, owner NodePool default, finalizer karpenter.sh/termination show that";
    assert!(matches!(reports(&copied).as_slice(), [only] if only.contains(marks) && only.contains("remove those")));
    let karpenters = with_machine(false);
    assert!(matches!(reports(&karpenters).as_slice(), [only] if only.contains("instance i-1") && only.contains(labels::TAG_NODE_CLAIM)));
}

#[test]
fn nothing_is_said_of_nodeclaims_that_are_launched_or_in_hand() {
    assert_eq!(reports(&made()), Vec::<String>::new(), "it is launched");
    assert_eq!(reports(&with_machine(true)), Vec::<String>::new(), "its machine is adopted or terminated");
    let spoilt: [fn(&mut NodeClaim); 6] = [
        |o| o.status.provider_id = "aws:///z/i-9".into(),
        |o| o.status.conditions = vec![Condition { type_: "Launched".into(), ..Condition::default() }],
        |o| o.metadata.deletion_timestamp = Some(at(90)),
        |o| o.spec.node_class_ref.group = "eks.amazonaws.com".into(),
        |o| o.spec.node_class_ref.kind = "OtherNodeClass".into(),
        |o| {
            o.metadata.annotations.insert(labels::MANAGED.into(), "true".into());
        },
    ];
    for spoil in spoilt {
        assert_eq!(reports(&change(labelled(), |s| spoil(&mut s.objects.node_claims[0]))), Vec::<String>::new());
    }
    let shown_by_claim = change(labelled(), |s| {
        s.claims = vec![claim()];
        s.claims[0].spec.standalone_uid = None;
    });
    assert_eq!(reports(&shown_by_claim), Vec::<String>::new());
    assert_eq!(reports(&change(labelled(), |s| s.unreadable = vec!["mine".into()])), Vec::<String>::new());
    assert_eq!(reports(&change(labelled(), |s| s.uninstalling = true)), Vec::<String>::new());
}

#[test]
fn users_are_told_of_an_unlaunched_nodeclaim_once_and_reminded_after_hours() {
    let (first, second) = labelled().twice(30);
    assert_eq!(second.events.len(), 1);
    let both = [first.note, second.note.clone()].concat();
    let third = labelled().compare(&both, 190);
    assert_eq!((third.events.len(), third.note.len(), third.forget.len()), (0, 0, 1), "the first sighting is not needed any more");
    assert_eq!(labelled().compare(&second.note, 250), Findings::default(), "a quiet tick");
    let hours = 130 + 6 * 3600;
    let again = labelled().compare(&second.note, hours);
    assert_eq!(again.events, []);
    assert_eq!(labelled().compare(&again.note, hours + 60).events, second.events);
}

#[test]
fn thousands_of_restored_nodeclaims_are_reported_a_few_at_a_time() {
    let restored = change(labelled(), |s| {
        let of = |number: u32| {
            let mut object = s.objects.node_claims[0].clone();
            object.metadata.name = format!("default-{number}");
            object.metadata.uid = format!("uid-{number}");
            object
        };
        s.objects.node_claims = (0..45).map(of).collect();
    });
    let (mut known, mut told): (Vec<Sighting>, std::collections::BTreeSet<String>) = Default::default();
    for tick in 0..6 {
        let found = restored.compare(&known, 100 + 60 * tick);
        assert!(found.note.len() <= 40 && found.events.len() <= 20 && found.answer.is_empty());
        known.retain(|sighting| !found.forget.contains(&sighting.subject));
        known.extend(found.note);
        told.extend(found.events.into_iter().map(|event| event.name));
    }
    assert_eq!(told.len(), 45);
}

#[test]
fn our_own_mirrors_never_get_a_second_claim() {
    for claim in [planned(), registered(), after(&[begun(), deletion_requested()])] {
        // Not even if the table has lost the claim.
        let lost = change(scene(claim), |s| s.claims.clear());
        let (_, second) = lost.twice(60);
        assert_eq!(names(&second), Vec::<&str>::new());
    }
}

#[test]
fn a_nodeclaim_with_a_claim_gets_no_second_one() {
    for phase in [&[][..], &[begun()], &[begun(), Event::FleetAnswered(machine("i-1"))]] {
        let claim = phase.iter().fold(claim(), |claim, event| step(&claim, event, at(10)).unwrap());
        // Even if its mirror was never written.
        let without_node_claim = change(made(), |s| s.claims = vec![claim.clone()]);
        assert_eq!(names(&without_node_claim.twice(60).1), Vec::<&str>::new());
    }
    let given_up = whittle_testkit::out_of_capacity();
    let failed = change(made(), |s| s.claims = vec![step(&claim(), &given_up, at(10)).unwrap()]);
    let (_, second) = failed.twice(60);
    assert_eq!((names(&second), second.terminate.len()), (vec![], 1), "it is released, not retried");
}

#[test]
fn a_live_or_unreadable_claim_of_the_same_name_has_to_end_first() {
    let predecessor = |events: &[Event]| {
        let mut claim = events.iter().fold(claim(), |claim, event| step(&claim, event, at(10)).unwrap());
        claim.spec.standalone_uid = Some("uid-0".into());
        claim
    };
    let living = change(made(), |s| s.claims = vec![predecessor(&[begun(), Event::FleetAnswered(machine("i-1")), deletion_requested()])]);
    assert_eq!(names(&living.twice(60).1), Vec::<&str>::new());
    check_answered(&change(made(), |s| s.unreadable = vec!["mine".into()]), &[]);
    check_answered(&change(made(), |s| s.claims = vec![predecessor(&[deletion_requested()])]), &["mine"]);
}

#[test]
fn an_ended_planned_claim_does_not_release_a_standalone_nodeclaim_of_its_name() {
    let ended = change(made(), |s| {
        s.claims = vec![step(&planned(), &deletion_requested(), at(10)).unwrap()];
        s.objects.node_claims[0].metadata.name = "default-1".into();
    });
    check_answered(&ended, &["default-1"]);
}

#[test]
fn a_standalone_nodeclaim_waits_for_its_class_to_be_resolved() {
    let class = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
    let unseen = change(made(), |s| s.objects.node_classes = vec![class]);
    let (_, second) = unseen.twice(60);
    assert_eq!((names(&second), second.refresh), (vec![], true));
    // An AWSNodeTemplate of the name is no such class, and will never be: the launch says that there is none.
    let template = change(unseen, |s| {
        s.objects.node_classes[0].metadata.annotations = [(labels::CONVERTED_FROM.to_owned(), "AWSNodeTemplate".to_owned())].into();
    });
    assert_eq!(names(&template.twice(60).1), ["mine"]);
    let uninstalling = change(made(), |s| s.uninstalling = true);
    assert_eq!(names(&uninstalling.twice(60).1), Vec::<&str>::new());
}

#[test]
fn the_claim_has_the_spec_of_the_object_and_no_pool() {
    let claim = claim();
    assert_eq!((claim.key.name.as_str(), claim.uid.as_str(), claim.object_uid()), ("mine", "uid-1", "uid-1"));
    assert_eq!(claim, crate::standalone::claim_of(&object(), &ClusterName::new("c"), at(0)), "every run creates the same claim");
    let shown = mirror(&claim);
    assert_eq!(shown.spec.requirements, object().spec.requirements);
    assert_eq!(shown.spec.resources, object().spec.resources);
    let labels: Vec<(&str, &str)> = shown.metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    // Well-known labels are left to the machine.
    assert_eq!(labels, [("example.com/rack", "r7"), ("example.com/row", "1"), (labels::EC2_NODE_CLASS, "default"), ("team", "a")]);
    let annotations = [("note", "keep"), (labels::MANAGED, "true")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(shown.metadata.annotations, whittle_api::Shared::from(annotations));
    assert_eq!((shown.metadata.uid.as_str(), shown.metadata.owner_references.len()), ("uid-1", 0));
}

/// Pods that select by such a key would not run on it.
#[test]
fn a_machine_has_a_value_that_its_requirements_allow_for_each_key_of_the_users_own() {
    let of =
        |operator: Operator, values: &[&str]| Requirement { operator, ..Requirement::is_in("example.com/row", values.iter().copied()) };
    let row = |requirements: Vec<Requirement>, own: Option<&str>| {
        let mut object = object();
        object.spec.requirements = requirements;
        object.metadata.labels = own.map(|value| ("example.com/row".to_owned(), value.to_owned())).into_iter().collect();
        let claim = crate::standalone::claim_of(&object, &ClusterName::new("c"), at(0));
        claim.spec.labels.get("example.com/row").cloned()
    };
    let (several, others) = (of(Operator::In, &["1", "2"]), of(Operator::In, &["2", "3"]));
    assert_eq!(row(vec![several.clone()], None).as_deref(), Some("1"));
    assert_eq!(row(vec![several.clone(), others], None).as_deref(), Some("2"));
    assert_eq!(row(vec![several.clone(), of(Operator::NotIn, &["1"])], None).as_deref(), Some("2"));
    assert_eq!(row(vec![of(Operator::Gt, &["7"])], None).as_deref(), Some("8"));
    assert_eq!(row(vec![several.clone()], Some("2")).as_deref(), Some("2"), "the object's own label is kept");
    assert_eq!(row(vec![of(Operator::DoesNotExist, &[])], None), None);
    assert_eq!(row(vec![several, of(Operator::In, &["3"])], None), None, "no value is allowed");
    assert_eq!(row(Vec::new(), None), None);
}

#[test]
fn a_requirement_for_what_is_no_label_value_labels_nothing() {
    for odd in ["r7,team=b", "r7' --anonymous-auth=true '", "$(id)", "a b"] {
        let mut object = object();
        object.spec.requirements = vec![Requirement::is_in("example.com/rack", [odd])];
        let claim = crate::standalone::claim_of(&object, &ClusterName::new("c"), at(0));
        assert!(!claim.spec.labels.contains_key("example.com/rack"), "{:?}", claim.spec.labels);
    }
}

#[test]
fn nothing_is_launched_before_the_object_has_our_finalizer() {
    let claim = claim();
    let unguarded = change(answered(&claim), |s| s.objects.node_claims[0].metadata.finalizers.clear());
    assert!(unguarded.compare(&[], 100).launch.is_empty());
    assert!(change(answered(&claim), |s| s.objects.node_claims.clear()).compare(&[], 100).launch.is_empty());
    assert_eq!(answered(&claim).compare(&[], 100).launch, [claim.key.name]);
}

#[test]
fn a_standalone_claim_is_deleted_when_its_object_is_confirmed_gone() {
    let running = [begun(), Event::FleetAnswered(machine("i-1")), Event::NodeJoined { node_name: "n".into() }];
    let running = running.iter().fold(claim(), |claim, event| step(&claim, event, at(10)).unwrap());
    let well = change(answered(&running), |s| {
        s.objects.nodes = vec![node(true)];
        s.instances = vec![instance("i-1")];
    });
    check_never_ends(&well);
    check_ends(&change(well.clone(), |s| s.objects.node_claims[0].metadata.deletion_timestamp = Some(at(90))), DeletionReason::Requested);
    let gone = change(well.clone(), |s| s.objects.node_claims[0].metadata.name = "another".into());
    check_ends(&gone, DeletionReason::Requested);
    let missing =
        |uid: &str| Some(Missing { kind: ObjectKind::NodeClaim, name: "mine".into(), uid: uid.into(), provider_id: String::new() });
    assert_eq!(gone.compare(&[], 100).end[0].gone, missing("uid-1"), "a missing object is requested by name");
    assert!(gone.compare(&[], 100).mirrors.is_empty(), "a user's object is not recreated");
    // A later object of its name is another one.
    let replaced = change(well, |s| {
        s.objects.node_claims = vec![NodeClaim { metadata: ObjectMeta { uid: "uid-2".into(), ..object().metadata }, ..object() }]
    });
    check_ends(&replaced, DeletionReason::Requested);
    assert_eq!(replaced.compare(&[], 100).end[0].gone, missing("uid-1"));
    assert!(replaced.compare(&[], 100).mirrors.is_empty(), "nor is it overwritten");
}

#[test]
fn a_claim_without_a_pool_is_not_deleted_for_a_missing_pool() {
    let running = [begun(), Event::FleetAnswered(machine("i-1"))];
    let running = running.iter().fold(claim(), |claim, event| step(&claim, event, at(10)).unwrap());
    check_never_ends(&change(answered(&running), |s| {
        s.objects.node_pools.clear();
        s.instances = vec![instance("i-1")];
    }));
}

fn sweep(simulation: &Simulation) -> Result<whittle_ports::Report, whittle_ports::HandleError> {
    let ports = simulation.ports();
    let adapters = Adapters::all(&ports);
    block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c")))
}

fn stored(simulation: &Simulation) -> Option<Claim> {
    block_on(simulation.ports().get(&whittle_testkit::key("mine"))).unwrap().map(|stored| stored.value)
}

/// The number of launch doorbells.
fn doorbells_sent(simulation: &Simulation) -> usize {
    let world = simulation.world();
    let to_launch = |input: &Input| matches!(input, Input::Doorbell(Doorbell::Launch { claims, .. }) if claims.iter().any(|name| name.as_str() == "mine"));
    world.queues.waiting().filter(|message| to_launch(&message.input)).count()
}

fn current(simulation: &Simulation) -> NodeClaim {
    simulation.world().cluster.objects.get::<NodeClaim>("mine").unwrap().clone()
}

#[test]
fn a_standalone_nodeclaim_gets_the_finalizer_then_one_launch() {
    let mut simulation = still();
    simulation.create(object());
    sweep(&simulation).unwrap();
    assert_eq!(
        (stored(&simulation), doorbells_sent(&simulation), current(&simulation)),
        (None, 0, {
            let mut as_made = current(&simulation);
            as_made.spec = object().spec;
            as_made
        })
    );
    simulation.run_for(SignedDuration::from_mins(1));
    assert_eq!(sweep(&simulation).unwrap().counted("answered"), 1);
    assert_eq!(stored(&simulation).unwrap().phase, Phase::Planned);
    assert_eq!(
        (current(&simulation).metadata.finalizers, doorbells_sent(&simulation)),
        (vec![labels::TERMINATION_FINALIZER.to_owned()], 1)
    );
    assert_eq!(current(&simulation).metadata.annotations.len(), 3, "annotations of others are kept");
    for _ in 0..2 {
        assert_eq!(sweep(&simulation).unwrap().counted("answered"), 0);
    }
    let claims = block_on(simulation.ports().list(&ClusterName::new("c"))).unwrap();
    assert_eq!((claims.len(), doorbells_sent(&simulation)), (1, 1));
}

#[test]
fn a_recreated_nodeclaim_gets_a_new_claim_when_the_old_one_has_ended() {
    let mut simulation = still();
    let mut old = claim();
    old.spec.standalone_uid = Some("uid-0".into());
    old.uid = "uid-0".into();
    simulation.store(&step(&old, &deletion_requested(), at(5)).unwrap());
    simulation.create(object());
    sweep(&simulation).unwrap();
    assert_eq!(stored(&simulation).unwrap().uid, "uid-0");
    simulation.run_for(SignedDuration::from_mins(1));
    sweep(&simulation).unwrap();
    let new = stored(&simulation).unwrap();
    assert_eq!((new.uid.as_str(), new.phase, new.deletion), ("uid-1", Phase::Planned, None));
}

#[test]
fn the_finalizer_of_somebody_else_stays_on_a_nodeclaim_that_is_launched() {
    let mut simulation = still();
    let mut held = object();
    held.metadata.finalizers = vec!["example.com/theirs".into()];
    simulation.create(held);
    sweep(&simulation).unwrap();
    simulation.run_for(SignedDuration::from_mins(1));
    assert_eq!(sweep(&simulation).unwrap().counted("answered"), 1);
    assert_eq!(current(&simulation).metadata.finalizers, ["example.com/theirs", labels::TERMINATION_FINALIZER]);
    assert_eq!(doorbells_sent(&simulation), 1);
}

fn times_reported(simulation: &Simulation) -> u32 {
    let world = simulation.world();
    world.cluster.events.iter().filter(|kept| kept.event.reason == "NotLaunched").map(|kept| kept.count).sum()
}

#[test]
fn a_nodeclaim_with_a_pools_label_is_reported_once_and_launched_without_the_label() {
    let mut simulation = still();
    let mut labelled = object();
    labelled.metadata.labels.insert(labels::NODE_POOL.into(), "default".into());
    simulation.create(labelled);
    for (tick, expected) in [0, 1, 1, 1, 1].into_iter().enumerate() {
        sweep(&simulation).unwrap();
        assert_eq!((times_reported(&simulation), stored(&simulation), doorbells_sent(&simulation)), (expected, None, 0), "tick {tick}");
        simulation.run_for(SignedDuration::from_mins(1));
    }
    assert_eq!(current(&simulation).status, NodeClaimStatus::default(), "with a status it would not be launched later");
    simulation.change::<NodeClaim>("mine", |object| {
        object.metadata.labels.remove(labels::NODE_POOL);
    });
    sweep(&simulation).unwrap();
    simulation.run_for(SignedDuration::from_mins(1));
    sweep(&simulation).unwrap();
    let launched = (stored(&simulation).unwrap().phase, doorbells_sent(&simulation), times_reported(&simulation));
    assert_eq!(launched, (Phase::Planned, 1, 1));
}

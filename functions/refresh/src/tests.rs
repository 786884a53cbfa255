//! The whole handler over the memory adapters, in a world where only the test acts.

mod blocks;
mod catalog;
mod counting;
mod deletion;
mod dry_runs;
mod fences;
mod placement;
mod profiles;
mod remarks;
mod reservations;
mod unanswered;

use counting::{Counting, over};
use futures::executor::block_on;
use std::sync::atomic::Ordering;
use whittle_api::karpenter::{AmiSelectorTerm, Ec2NodeClass, NodeClassReference, NodePool, SecurityGroupSelectorTerm, SubnetSelectorTerm};
use whittle_api::{KarpenterSign, ObjectMeta, conditions, labels};
use whittle_claims::{Claim, ClaimSpec, Function, LeftNodes, NodeClassRecord, Revision, Uninstall};
use whittle_ec2::fleet::LaunchTemplate;
use whittle_ec2::network::{CapacityReservation, ClusterInfo};
use whittle_ports::{
    Adapters, ClaimStore, CloudErrorKind, ClusterReader, ClusterRecord, LaunchTemplates, Mode, RecordReader, Records, Report, Scope,
    Settings,
};
use whittle_sim::Simulation;
use whittle_sim::region::Reservation;
use whittle_testkit::{TestWorld, after, at, instance_of, machine, node_class_reference, out_of_capacity, planned};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

fn now() -> Timestamp {
    at(0)
}

fn cluster() -> ClusterName {
    ClusterName::new("c")
}

/// A world with a class, its pool and its launch template, after one run.
fn world() -> TestWorld {
    let simulation = TestWorld::still(now());
    let mut class = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
    class.spec.role = Some("node".into());
    let mut pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    pool.spec.template.spec.node_class_ref = reference();
    simulation.create(class);
    simulation.create(pool);
    let tags = [(labels::EC2_NODE_CLASS.to_owned(), "default".to_owned())].into();
    block_on(simulation.ports().ensure_launch_template(&LaunchTemplate { name: "t".into(), tags, ..LaunchTemplate::default() })).unwrap();
    run(&simulation);
    simulation
}

fn reference() -> NodeClassReference {
    node_class_reference("default")
}

fn run(simulation: &Simulation) -> Report {
    let ports = simulation.ports();
    let adapters = Adapters::all(&ports);
    block_on(crate::handle(adapters, &Settings::default(), &cluster())).unwrap()
}

fn class(simulation: &Simulation) -> Option<Ec2NodeClass> {
    simulation.world().cluster.objects.get::<Ec2NodeClass>("default").cloned()
}

fn delete_class(simulation: &Simulation) {
    let mut world = simulation.world();
    world.cluster.objects.delete::<Ec2NodeClass>("default", now());
}

fn record(simulation: &Simulation) -> Option<NodeClassRecord> {
    block_on(RecordReader::read::<NodeClassRecord>(&simulation.ports(), &cluster(), "default")).unwrap().map(|stored| stored.value)
}

/// Launches leave out instance types by it.
#[test]
fn the_record_of_a_class_says_whether_its_cluster_has_ipv6() {
    let simulation = world();
    assert!(!record(&simulation).unwrap().ipv6);
    let info = simulation.world().cluster_info(&cluster()).unwrap();
    simulation.world().cluster.info = Some(ClusterInfo { ipv6: true, ..info });
    run(&simulation);
    assert!(record(&simulation).unwrap().ipv6);
}

#[test]
fn classes_that_select_the_same_images_share_their_look_up_unless_it_fails() {
    let world = world();
    let create = |name: &str, terms: Vec<AmiSelectorTerm>| {
        let mut class = Ec2NodeClass { metadata: ObjectMeta::named(name), ..Ec2NodeClass::default() };
        class.spec.role = Some("node".into());
        class.spec.ami_selector_terms = terms;
        world.create(class);
    };
    create("same", class(&world).unwrap().spec.ami_selector_terms);
    create("other", vec![AmiSelectorTerm { id: Some("ami-other".into()), ..AmiSelectorTerm::default() }]);
    let ports = world.ports();
    for (refuses_images, looked_up) in [(None, 2), (Some(CloudErrorKind::Throttled), 3)] {
        let ec2 = Counting { refuses_images, ..Counting::over(&ports) };
        let outcome = block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster()));
        assert_eq!((outcome.is_err(), ec2.images.load(Ordering::Relaxed)), (refuses_images.is_some(), looked_up));
    }
}

#[test]
fn statuses_of_many_pools_are_written_at_once_and_those_without_time_are_left_to_a_later_run() {
    let world = world();
    for number in 0..20 {
        let mut pool = NodePool { metadata: ObjectMeta::named(format!("pool-{number}")), ..NodePool::default() };
        pool.spec.template.spec.node_class_ref = reference();
        world.create(pool);
    }
    let objects = block_on(ClusterReader::read(&world.ports(), &cluster(), Scope::Karpenter, None)).unwrap();
    let update = |settings: &Settings, left_ms: i64| {
        let ports = world.ports().with_time_left(SignedDuration::from_millis(100), SignedDuration::from_millis(left_ms));
        let (cluster, mut done) = (cluster(), crate::Done::default());
        let run = crate::Run { ports: Adapters::all(&ports), settings, cluster: &cluster };
        block_on(run.update_pools(&objects, &[], &mut done)).unwrap();
        (["pool_statuses", "pool_statuses_failed", "handed_over"].map(|word| done.report.counted(word)), done.changed)
    };
    let shadow = Settings { mode: Mode::Shadow, ..Settings::default() };
    assert_eq!(update(&shadow, 60_000), ([0, 0, 0], false));
    assert_eq!(update(&Settings::default(), 1_900), ([0, 0, 1], false));
    assert_eq!(update(&Settings::default(), 2_700), ([16, 0, 1], true), "sixteen are written at once");
    assert_eq!(run(&world).counted("pool_statuses"), 4, "the others");
    assert_eq!(run(&world).counted("pool_statuses"), 0, "nothing has changed");
}

/// The numbers of launch templates and of instance profiles that there are.
fn templates_and_profiles(simulation: &Simulation) -> (usize, usize) {
    let world = simulation.world();
    (world.region.launch_templates.len(), world.region.network.profiles.len())
}

#[test]
fn a_class_gets_the_finalizer_in_its_first_run() {
    let simulation = world();
    assert_eq!(class(&simulation).unwrap().metadata.finalizers, [labels::NODE_CLASS_FINALIZER]);
    assert!(record(&simulation).is_some());
    assert_eq!(templates_and_profiles(&simulation), (1, 1));
}

#[test]
fn shadow_mode_creates_no_instance_profile_and_plans_with_its_name() {
    let simulation = TestWorld::still(now());
    let mut class = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
    class.spec.role = Some("node".into());
    simulation.world().cluster.objects.create(class, now());
    let ports = simulation.ports();
    let adapters = Adapters::all(&ports);
    block_on(crate::handle(adapters, &Settings { mode: Mode::Shadow, ..Settings::default() }, &cluster())).unwrap();
    assert_eq!(templates_and_profiles(&simulation).1, 0, "nothing was written to IAM");
    assert_eq!(record(&simulation).unwrap().instance_profile, "c_default");
}

/// They are Karpenter's to write meanwhile: each would undo what the other wrote.
#[test]
fn while_karpenter_runs_no_class_no_pool_and_no_profile_is_written() {
    let simulation = TestWorld::still(now());
    let sign = KarpenterSign { object: "lease/karpenter-leader-election in namespace kube-system".into(), renewed_at: None };
    simulation.world().cluster.karpenter = vec![sign];
    let mut shown = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
    shown.spec.role = Some("node".into());
    simulation.create(shown);
    let mut pool = NodePool { metadata: ObjectMeta::named("default"), ..NodePool::default() };
    pool.spec.template.spec.node_class_ref = reference();
    simulation.create(pool);
    let objects = || (class(&simulation).unwrap(), simulation.get::<NodePool>("default").unwrap());
    let before = objects();
    run(&simulation);
    assert_eq!((objects(), templates_and_profiles(&simulation).1), (before, 0));
    assert!(record(&simulation).is_some(), "what it selects is known all the same");
    simulation.world().cluster.karpenter.clear();
    run(&simulation);
    let (class, pool) = objects();
    assert_eq!((class.metadata.finalizers.len(), pool.status.conditions.is_empty(), templates_and_profiles(&simulation).1), (1, false, 1));
}

/// The records of its class go with the uninstallation, which makes no pool unready.
#[test]
fn pools_stay_ready_after_an_ended_uninstallation() {
    let simulation = world();
    let pool = || simulation.world().cluster.objects.get::<NodePool>("default").unwrap().clone();
    let ready = pool();
    let done = Uninstall { asked_at: now(), nodes: LeftNodes::HandOver };
    block_on(simulation.ports().write(&cluster(), &done, Revision::ABSENT)).unwrap();
    let name = NodeClassRecord::name_of(&class(&simulation).unwrap());
    let record = block_on(RecordReader::read::<NodeClassRecord>(&simulation.ports(), &cluster(), &name)).unwrap().unwrap();
    block_on(whittle_ports::RecordRemoval::remove::<NodeClassRecord>(&simulation.ports(), &cluster(), &name, record.revision)).unwrap();
    run(&simulation);
    assert_eq!(pool(), ready);
}

/// Creates or changes a reservation, and has the class select it.
fn reserve(simulation: &Simulation, kind: &str, total: u32, ends_at: Timestamp) {
    let mut world = simulation.world();
    let described = CapacityReservation {
        id: "cr-1".into(),
        zone: "us-west-2a".into(),
        instance_type: "m5.large".into(),
        owner: "111122223333".into(),
        match_criteria: "targeted".into(),
        kind: kind.into(),
        state: "active".into(),
        ends_at: Some(ends_at),
        ..CapacityReservation::default()
    };
    world.region.reserve(Reservation { described, total });
    let terms = serde_json::from_str(r#"[{"id": "cr-1"}]"#).unwrap();
    world.cluster.objects.change::<Ec2NodeClass>("default", |class| class.spec.capacity_reservation_selector_terms = terms);
}

fn later(minutes: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_mins(minutes)).unwrap()
}

/// A world with an unresolved class and some change; the settings are of a deployment that serves two clusters.
fn fenced(change: impl FnOnce(&mut whittle_sim::World)) -> (TestWorld, Settings) {
    let simulation = world();
    {
        let mut world = simulation.world();
        world.region.network.profiles.clear();
        world.cluster.objects.change::<Ec2NodeClass>("default", |class| {
            let tags = [("karpenter.sh/discovery".to_owned(), "c".to_owned())];
            class.spec.ami_selector_terms = vec![AmiSelectorTerm { alias: Some("al2023@latest".into()), ..AmiSelectorTerm::default() }];
            class.spec.subnet_selector_terms = vec![SubnetSelectorTerm { tags: Some(tags.clone().into()), id: None }];
            class.spec.security_group_selector_terms =
                vec![SecurityGroupSelectorTerm { tags: Some(tags.into()), ..SecurityGroupSelectorTerm::default() }];
        });
        change(&mut world);
    }
    (simulation, Settings { clusters: vec![cluster(), "other".into()], ..Settings::default() })
}

fn run_under(simulation: &Simulation, settings: &Settings) -> (Ec2NodeClass, NodeClassRecord) {
    let ports = simulation.ports();
    let adapters = Adapters::all(&ports);
    block_on(crate::handle(adapters, settings, &cluster())).unwrap();
    (class(simulation).unwrap(), record(simulation).unwrap())
}

fn with_role(role: &str) -> impl FnOnce(&mut whittle_sim::World) {
    move |world| {
        world.cluster.objects.change::<Ec2NodeClass>("default", |class| class.spec.role = Some(role.to_owned()));
    }
}

/// The class is not ready, and its status names the object, the field and the remedy.
#[track_caller]
fn check_refused((shown, record): &(Ec2NodeClass, NodeClassRecord), part: &str, reason: &str, words: &[&str]) {
    assert!(!record.is_ready(), "{record:?}");
    let condition = conditions::find(&shown.status.conditions, part).unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (whittle_api::ConditionStatus::False, reason), "{}", condition.message);
    let ready = conditions::find(&shown.status.conditions, conditions::READY).unwrap();
    assert_eq!(ready.status, whittle_api::ConditionStatus::False);
    for word in words {
        assert!(condition.message.contains(word) && ready.message.contains(word), "{word}: {}", ready.message);
        assert!(record.problems.iter().any(|problem| problem.contains(word)), "{word}: {:?}", record.problems);
    }
}

#[test]
fn a_static_pool_that_is_edited_gets_its_machines_at_once() {
    let simulation = world();
    let rings = |simulation: &TestWorld| {
        run(simulation);
        let rung = simulation.doorbells();
        [Function::Consolidate, Function::Schedule].map(|function| rung.contains(&function))
    };
    let edit = |replicas, generation| {
        simulation.world().cluster.objects.change::<NodePool>("default", |pool| {
            pool.spec.replicas = replicas;
            pool.metadata.generation = Some(generation);
        });
    };
    edit(None, 2);
    assert!(!rings(&simulation)[0], "pods alone ask for machines of this one");
    edit(Some(2), 3);
    assert_eq!(rings(&simulation), [true, true]);
}

/// EKS Auto Mode has NodePools as well, with classes of its own kind.
#[test]
fn the_status_of_another_controllers_pool_is_never_written() {
    let simulation = world();
    let mut theirs = NodePool { metadata: ObjectMeta::named("theirs"), ..NodePool::default() };
    theirs.spec.template.spec.node_class_ref =
        NodeClassReference { group: "eks.amazonaws.com".into(), kind: "NodeClass".into(), name: "default".into() };
    simulation.create(theirs.clone());
    run(&simulation);
    let world = simulation.world();
    assert_eq!(world.cluster.objects.get::<NodePool>("theirs").unwrap().status, theirs.status);
    assert!(!world.cluster.objects.get::<NodePool>("default").unwrap().status.conditions.is_empty(), "ours is");
}

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

#[test]
fn computed_kubelet_settings_need_the_feature_gate() {
    let (simulation, settings) = fenced(|world| {
        with_role("KarpenterNodeRole-c")(world);
        world.cluster.objects.change::<Ec2NodeClass>("default", |class| {
            class.spec.kubelet = Some(serde_json::json!({"maxPods": "min(30, max_pods)"}));
        });
    });
    let seen = run_under(&simulation, &settings);
    let words = ["spec.kubelet.maxPods", "NodeClassExpressions=true"];
    check_refused(&seen, conditions::VALIDATION_SUCCEEDED, "KubeletExpressionsDisabled", &words);
    let settings = Settings { node_class_expressions: whittle_ports::Expressions::Evaluated, ..settings };
    let (_, record) = run_under(&simulation, &settings);
    assert!(record.is_ready(), "{:?}", record.problems);
    simulation.world().cluster.objects.change::<Ec2NodeClass>("default", |class| {
        class.spec.kubelet = Some(serde_json::json!({"maxPods": "vcpus - 3"}));
    });
    let words = ["spec.kubelet.maxPods", "between 0 and"];
    check_refused(&run_under(&simulation, &settings), conditions::VALIDATION_SUCCEEDED, "KubeletExpressionEvaluationFailed", &words);
}

/// The message of the Event about the class, if there is one, after a run in which its images could not be looked up.
fn without_images(kind: CloudErrorKind) -> Option<String> {
    let simulation = world();
    run(&simulation);
    let (known, ports) = (record(&simulation).unwrap(), simulation.ports());
    let ec2 = Counting { refuses_images: Some(kind), ..Counting::over(&ports) };
    assert!(block_on(crate::handle(over(&ports, &ec2), &Settings::default(), &cluster())).is_err(), "the function's error alarm fires");
    assert_eq!(record(&simulation).unwrap(), known);
    let world = simulation.world();
    let event = world.cluster.events.iter().find(|kept| kept.event.reason == "LookupRefused")?;
    assert_eq!((event.event.kind.as_str(), event.event.name.as_str()), ("EC2NodeClass", "default"));
    assert!(event.event.message.contains("/mine"), "{}", event.event.message);
    Some(event.event.message.clone())
}

/// Without one term, all machines of its images would drift.
#[test]
fn a_refused_lookup_is_an_event_and_keeps_the_stored_results() {
    assert!(without_images(CloudErrorKind::Unauthorized).is_some_and(|message| message.contains("ImageParameters")));
    assert!(without_images(CloudErrorKind::Invalid).is_some_and(|message| message.contains("spec.amiSelectorTerms")));
}

#[test]
fn a_lookup_that_fails_for_now_is_no_event() {
    for kind in [CloudErrorKind::Unknown, CloudErrorKind::Throttled] {
        assert_eq!(without_images(kind), None, "{kind:?}");
    }
}

#[test]
fn stored_records_of_every_release_stay_readable() {
    use crate::missing_classes::MissingClass;
    use crate::profiles::UnusedProfiles;
    use whittle_claims::Record;
    golden::check::<MissingClass>(MissingClass::KIND, MissingClass::VERSION);
    golden::check::<UnusedProfiles>(UnusedProfiles::KIND, UnusedProfiles::VERSION);
    golden::check::<ClusterRecord>(ClusterRecord::KIND, ClusterRecord::VERSION);
}

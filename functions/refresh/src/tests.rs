//! The whole handler over the memory adapters, in a world where only the test acts.

mod blocks;
mod catalog;
mod dry_runs;
mod placement;
mod profiles;
mod remarks;
mod reservations;
mod unanswered;

use futures::executor::block_on;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use whittle_api::karpenter::{
    AmiSelectorTerm, CapacityReservationSelectorTerm, Ec2NodeClass, NodeClassReference, NodePool, PlacementGroupSelector,
    SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use whittle_api::{ObjectMeta, conditions, labels};
use whittle_claims::{Claim, ClaimSpec, Function, LeftNodes, NodeClassRecord, Revision, Uninstall};
use whittle_ec2::fleet::LaunchTemplate;
use whittle_ec2::network::{CapacityReservation, ClusterInfo, Image, PlacementGroup, SecurityGroup, Subnet};
use whittle_ports::{
    Adapters, CatalogRead, CatalogWriter, ClaimStore, ClassProfile, CloudError, CloudErrorKind, ClusterReader, ClusterRecord, Discovery,
    LaunchTemplates, Mode, RecordReader, Records, RegionStore, Report, Scope, Settings,
};
use whittle_sim::region::Reservation;
use whittle_sim::{SimPorts, Simulation};
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

#[test]
fn an_unreadable_or_unlisted_class_is_not_closed() {
    for named in [true, false] {
        let mut simulation = world();
        simulation.world().hide_always("EC2NodeClass", "default", named);
        for _ in 0..4 {
            simulation.run_for(crate::missing_classes::CONFIRM_AFTER);
            assert_eq!(run(&simulation).counted("classes_closed"), 0, "named: {named}");
        }
        assert!(record(&simulation).unwrap().is_ready() || !record(&simulation).unwrap().class.metadata.is_deleting());
        assert_eq!(made(&simulation), (1, 1));
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
    assert_eq!(made(&simulation), (1, 1));
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

/// The number of templates and profiles.
fn made(simulation: &Simulation) -> (usize, usize) {
    let world = simulation.world();
    (world.region.launch_templates.len(), world.region.network.profiles.len())
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
fn a_class_gets_the_finalizer_in_its_first_run() {
    let simulation = world();
    assert_eq!(class(&simulation).unwrap().metadata.finalizers, [labels::NODE_CLASS_FINALIZER]);
    assert!(record(&simulation).is_some());
    assert_eq!(made(&simulation), (1, 1));
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
    assert_eq!(made(&simulation).1, 0, "nothing was written to IAM");
    assert_eq!(record(&simulation).unwrap().instance_profile, "c_default");
}

#[test]
fn a_class_in_use_is_kept_until_its_last_claim_has_ended() {
    let simulation = world();
    let claim = keep_claim(&simulation);
    delete_class(&simulation);
    for _ in 0..3 {
        run(&simulation);
        assert!(class(&simulation).is_some());
        assert_eq!(made(&simulation), (1, 1), "resources that a machine may need are kept");
    }
    let event = simulation.world().cluster.events.iter().any(|kept| {
        kept.event.reason == "WaitingOnNodeClaimTermination" && kept.event.message.contains("default-1") && !kept.event.warning
    });
    assert!(event);
    assert_eq!(pool_reason(&simulation), "NodeClassTerminating");
    end_claim(&simulation, &claim);
    assert_eq!(run(&simulation).counted("classes_ended"), 1);
    assert_eq!((class(&simulation), made(&simulation), record(&simulation)), (None, (0, 0), None));
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
        assert_eq!((class(&simulation).is_some(), made(&simulation)), (true, (1, 1)));
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
    assert_eq!(made(&simulation), (1, 1));
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
    assert_eq!(made(&simulation), (1, 1));
    assert!(!record(&simulation).unwrap().is_ready(), "nothing is launched with it");
    assert_eq!(pool_reason(&simulation), "NodeClassNotFound");
    end_claim(&simulation, &claim);
    run(&simulation);
    assert_eq!((made(&simulation), record(&simulation)), ((0, 0), None));
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
    assert_eq!(made(&simulation), (1, 1), "and even then nothing is deleted yet");
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
    assert_eq!(made(&simulation), (0, 1), "the template is deleted, nothing is launched with it");
    assert!(class(&simulation).is_some());
    let event = simulation.world().cluster.events.iter().any(|kept| kept.event.reason == "InstanceProfileInUse");
    assert!(event);
    simulation.world().region.machines.remove(&machine);
    assert_eq!(run(&simulation).counted("classes_ended"), 1);
    assert_eq!((class(&simulation), made(&simulation)), (None, (0, 0)));
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
    assert_eq!(made(&simulation), (0, 1));
    assert!(class(&simulation).unwrap().metadata.finalizers.is_empty());
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
    assert_eq!((class(&simulation).is_some(), made(&simulation)), (true, (1, 1)));
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
fn a_class_never_gets_the_node_role_of_another_cluster() {
    let (simulation, settings) = fenced(with_role("KarpenterNodeRole-other"));
    let seen = run_under(&simulation, &settings);
    let words = ["KarpenterNodeRole-other", "spec.role", "ClusterNodeRoles"];
    check_refused(&seen, conditions::INSTANCE_PROFILE_READY, "NodeRoleNotPermitted", &words);
    assert_eq!((seen.1.instance_profile.as_str(), &seen.0.status.instance_profile), ("", &None));
    assert!(simulation.world().region.network.profiles.is_empty(), "no profile is created for it");

    let (simulation, settings) = fenced(with_role("KarpenterNodeRole-c"));
    let (_, record) = run_under(&simulation, &settings);
    assert!(record.is_ready(), "{:?}", record.problems);
}

#[test]
fn an_instance_profile_must_contain_a_permitted_role() {
    for (holds, permitted) in [("admin", false), ("KarpenterNodeRole-other", false), ("", false), ("KarpenterNodeRole-c", true)] {
        let (simulation, settings) = fenced(|world| {
            world.region.network.profiles.insert("p".into(), holds.into());
            world.cluster.objects.change::<Ec2NodeClass>("default", |class| {
                class.spec.role = None;
                class.spec.instance_profile = Some("p".into());
            });
        });
        let seen = run_under(&simulation, &settings);
        if permitted {
            assert!(seen.1.is_ready(), "{:?}", seen.1.problems);
        } else {
            check_refused(&seen, conditions::INSTANCE_PROFILE_READY, "NodeRoleNotPermitted", &["profile p", "spec.instanceProfile"]);
        }
    }
}

#[test]
fn a_class_never_uses_the_vpc_of_another_cluster() {
    let words = ["vpc-other", "spec.subnetSelectorTerms", "spec.securityGroupSelectorTerms"];
    for change in [
        |world: &mut whittle_sim::World| world.region.network.subnets[0].vpc = "vpc-other".into(),
        |world: &mut whittle_sim::World| world.region.network.groups[0].vpc = "vpc-other".into(),
    ] {
        let (simulation, settings) = fenced(|world| {
            with_role("KarpenterNodeRole-c")(world);
            change(world);
        });
        check_refused(&run_under(&simulation, &settings), conditions::SUBNETS_READY, "OtherVPC", &words);
    }
}

#[test]
fn a_refusal_is_written_once() {
    let (mut simulation, settings) = fenced(with_role("KarpenterNodeRole-other"));
    let (first, _) = run_under(&simulation, &settings);
    simulation.run_for(SignedDuration::from_mins(5));
    let (second, _) = run_under(&simulation, &settings);
    assert_eq!(second.status.conditions, first.status.conditions, "no write every five minutes");
    with_role("KarpenterNodeRole-c")(&mut simulation.world());
    let (fixed, record) = run_under(&simulation, &settings);
    assert!(record.is_ready() && conditions::is_true(&fixed.status.conditions, conditions::READY));
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

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

/// EC2 with counted calls.
struct Counting<'a> {
    ec2: &'a SimPorts,
    catalogs: AtomicU32,
    spot_prices: AtomicU32,
    reservations: AtomicU32,
    refuses_images: Option<CloudErrorKind>,
    refuses_groups: bool,
    refuses_types: bool,
    refuses_prices: bool,
    refuses_reservations: bool,
    lacks_profiles: bool,
    /// What IAM answers instead of making or showing a profile.
    profile_error: Option<CloudError>,
    /// Calls that fail for now.
    unanswered: Vec<&'static str>,
    /// The catalog of a concurrent run, which is stored while types are read.
    stores_meanwhile: Option<Vec<u8>>,
}

impl<'a> Counting<'a> {
    fn over(ec2: &'a SimPorts) -> Self {
        Self {
            ec2,
            catalogs: AtomicU32::new(0),
            spot_prices: AtomicU32::new(0),
            reservations: AtomicU32::new(0),
            refuses_images: None,
            refuses_groups: false,
            refuses_types: false,
            refuses_prices: false,
            refuses_reservations: false,
            lacks_profiles: false,
            profile_error: None,
            unanswered: Vec::new(),
            stores_meanwhile: None,
        }
    }
    fn ask(&self, call: &'static str) -> Result<(), CloudError> {
        if self.unanswered.contains(&call) { Err(no_answer(call)) } else { Ok(()) }
    }
    /// The number of reads of types, of spot prices and of reservations.
    fn counts(&self) -> [u32; 3] {
        [&self.catalogs, &self.spot_prices, &self.reservations].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Discovery for Counting<'_> {
    async fn cluster_info(&self, cluster: &ClusterName) -> Result<ClusterInfo, CloudError> {
        self.ec2.cluster_info(cluster).await
    }
    async fn subnets(&self, terms: &[SubnetSelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
        self.ask("DescribeSubnets")?;
        self.ec2.subnets(terms).await
    }
    async fn security_groups(&self, terms: &[SecurityGroupSelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError> {
        self.ask("DescribeSecurityGroups")?;
        self.ec2.security_groups(terms).await
    }
    async fn images(&self, terms: &[AmiSelectorTerm], kubernetes_version: &str) -> Result<Vec<Image>, CloudError> {
        if let Some(kind) = self.refuses_images {
            let (code, message) = ("Refused".to_owned(), "SSM parameter /mine: no".to_owned());
            return Err(CloudError { kind, call: "GetParameter", code, message });
        }
        self.ask("DescribeImages")?;
        self.ec2.images(terms, kubernetes_version).await
    }
    async fn capacity_reservations(&self, terms: &[CapacityReservationSelectorTerm]) -> Result<Vec<CapacityReservation>, CloudError> {
        self.reservations.fetch_add(1, Ordering::Relaxed);
        self.ask("DescribeCapacityReservations")?;
        if self.refuses_reservations { Err(no_answer("DescribeCapacityReservations")) } else { self.ec2.capacity_reservations(terms).await }
    }
    async fn placement_groups(&self, selector: &PlacementGroupSelector) -> Result<Vec<PlacementGroup>, CloudError> {
        if self.refuses_groups {
            let (code, message) = ("UnauthorizedOperation".to_owned(), "no".to_owned());
            return Err(CloudError { kind: whittle_ports::CloudErrorKind::Unauthorized, call: "DescribePlacementGroups", code, message });
        }
        self.ask("DescribePlacementGroups")?;
        self.ec2.placement_groups(selector).await
    }
    fn instance_profile_name(&self, cluster: &ClusterName, class: &str, role: &str) -> String {
        self.ec2.instance_profile_name(cluster, class, role)
    }
    async fn ensure_instance_profile(
        &self,
        cluster: &ClusterName,
        class: &str,
        role: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<String, CloudError> {
        self.ask("CreateInstanceProfile")?;
        match &self.profile_error {
            Some(error) => Err(error.clone()),
            None => self.ec2.ensure_instance_profile(cluster, class, role, tags).await,
        }
    }
    async fn profile_role(&self, profile: &str) -> Result<Option<String>, CloudError> {
        if let Some(error) = &self.profile_error {
            return Err(error.clone());
        }
        if self.lacks_profiles {
            let message = format!("Instance Profile {profile} cannot be found.");
            return Err(CloudError {
                kind: CloudErrorKind::NotFound,
                call: "GetInstanceProfile",
                code: "NoSuchEntity".to_owned(),
                message,
            });
        }
        self.ec2.profile_role(profile).await
    }
    async fn profiles(&self, cluster: &ClusterName) -> Result<Vec<ClassProfile>, CloudError> {
        self.ec2.profiles(cluster).await
    }
    async fn delete_profile(&self, profile: &ClassProfile) -> Result<bool, CloudError> {
        self.ec2.delete_profile(profile).await
    }
    async fn release_class(&self, cluster: &ClusterName, class: &str) -> Result<Vec<String>, CloudError> {
        self.ec2.release_class(cluster, class).await
    }
    async fn catalog(&self, known: Option<&[u8]>) -> Result<CatalogRead, CloudError> {
        self.catalogs.fetch_add(1, Ordering::Relaxed);
        if let Some(other) = &self.stores_meanwhile {
            let revision = RegionStore::catalog(self.ec2).await.unwrap().unwrap().revision;
            self.ec2.put_catalog(other, revision).await.unwrap();
        }
        if self.refuses_types { Err(no_answer("DescribeInstanceTypes")) } else { Discovery::catalog(self.ec2, known).await }
    }
    async fn with_spot_prices(&self, known: &[u8]) -> Result<Vec<u8>, CloudError> {
        self.spot_prices.fetch_add(1, Ordering::Relaxed);
        if self.refuses_prices { Err(no_answer("DescribeSpotPriceHistory")) } else { self.ec2.with_spot_prices(known).await }
    }
}

fn no_answer(call: &'static str) -> CloudError {
    let kind = whittle_ports::CloudErrorKind::Unknown;
    CloudError { kind, call, code: "InternalError".to_owned(), message: "no".to_owned() }
}

fn over<'a>(ports: &'a SimPorts, ec2: &'a Counting<'a>) -> Adapters<'a, SimPorts, Counting<'a>, SimPorts, SimPorts, SimPorts> {
    Adapters { store: ports, cloud: ec2, cluster: ports, queues: ports, clock: ports }
}

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
    let adapters = Adapters { store: &ports, cloud: &ec2, cluster: &ports, queues: &ports, clock: &ports };
    assert!(block_on(crate::handle(adapters, &Settings::default(), &cluster())).is_err(), "the function's error alarm fires");
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

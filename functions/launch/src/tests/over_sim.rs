//! The whole handler over the memory adapters, in a world where only the test acts.

use super::planned;
use crate::plan::Facts;
use futures::executor::block_on;
use std::collections::BTreeSet;
use std::sync::Arc;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_api::karpenter::{Ec2NodeClass, Operator, Requirement, ResolvedAmi, ResolvedSecurityGroup, ResolvedSubnet};
use whittle_api::labels;
use whittle_claims::{Claim, DeletionReason, Doorbell, NodeClassRecord, Phase, Revision, ShiftedZones, Stored};
use whittle_ec2::fleet::MinValuesPolicy;
use whittle_ec2::network::ClusterInfo;
use whittle_ec2::user_data::ClusterAccess;
use whittle_ports::{Adapters, ClaimStore, Clock, ClusterRecord, Mode, RecordReader, Records, Report, Settings};
use whittle_sim::{Function, Functions, Input, SimPorts, Simulation};
use whittle_testkit::{NoFunctions, TestWorld, at, resolved_class};
use whittle_units::{ClaimName, ClusterName, SignedDuration};

/// A world whose types are known, and no node class.
pub(super) fn without_classes() -> TestWorld {
    with_functions(Arc::new(NoFunctions))
}

/// The same, with functions that run in response to messages.
pub(super) fn with_functions(functions: Arc<dyn Functions>) -> TestWorld {
    let cluster = ClusterName::new("c");
    let simulation = TestWorld::with_functions(cluster.as_str(), at(0), functions);
    let ports = simulation.ports();
    let record = ClusterRecord { info: ClusterInfo { name: cluster.clone(), ..ClusterInfo::default() } };
    block_on(ports.write(&cluster, &record, Revision::ABSENT)).unwrap();
    let mut world = simulation.world();
    let blob = world.region.catalog_blob();
    world.store.put_catalog(&blob, Revision::ABSENT).unwrap();
    drop(world);
    simulation
}

pub(super) fn keep(simulation: &TestWorld, number: usize) -> Claim {
    keep_as(simulation, number, |_| {})
}

/// Creates a class in the cluster and its record in the table.
pub(super) fn know(simulation: &Simulation, mut record: NodeClassRecord) {
    let name = record.class.metadata.name.clone();
    let mut world = simulation.world();
    world.cluster.objects.create(record.class.clone(), at(0));
    record.class = world.cluster.objects.get::<Ec2NodeClass>(&name).unwrap().clone();
    drop(world);
    block_on(simulation.ports().write(&ClusterName::new("c"), &record, Revision::ABSENT)).unwrap();
}

/// A claim with some changes.
pub(super) fn keep_as(simulation: &TestWorld, number: usize, change: impl FnOnce(&mut Claim)) -> Claim {
    let mut claim = planned();
    claim.key.name = format!("a-{number:02}").as_str().into();
    claim.spec.node_class.name = "gone".into();
    change(&mut claim);
    simulation.store(&claim);
    claim
}

pub(super) fn run_over(ports: &SimPorts, claims: &[ClaimName]) -> Report {
    let adapters = Adapters::all(ports);
    block_on(crate::handle(adapters, &Settings::default(), &ClusterName::new("c"), claims)).unwrap()
}

/// The schema takes such a value, and nobody looks at a NodeClaim that a user makes before its machine is started.
#[test]
fn a_claim_whose_taint_no_node_can_have_starts_no_machine_and_says_so() {
    for (value, launched) in [("team/a", 0), ("team-a", 1)] {
        let simulation = super::repeated::with_class();
        let claim = keep_as(&simulation, 1, |claim| {
            claim.spec.startup_taints = vec![Taint { value: value.into(), ..Taint::new("team.io/a", TaintEffect::NoSchedule) }];
        });
        run_over(&simulation.ports(), &[claim.key.name]);
        let world = simulation.world();
        assert_eq!(world.region.machines.len(), launched, "{value}");
        let refused = world.cluster.events.iter().filter(|kept| kept.event.reason == "LaunchRefused");
        let told: Vec<&str> = refused.map(|kept| kept.event.message.as_str()).collect();
        assert_eq!(told.len(), 1 - launched, "{told:?}");
        assert!(told.iter().all(|text| text.contains("spec.startupTaints[0].value: \"team/a\" is no value of a taint")), "{told:?}");
    }
}

/// It could vanish while its machine runs: whoever names its claim has seen our finalizer on it.
#[test]
fn the_claim_of_a_users_nodeclaim_is_launched_only_by_its_name() {
    let simulation = super::repeated::with_class();
    let of_user = keep_as(&simulation, 1, |claim| claim.spec.standalone_uid = Some("uid-1".into()));
    let planned = keep(&simulation, 2);
    assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
    let phases = || [&of_user, &planned].map(|claim| simulation.claim(&claim.key).phase.name());
    assert_eq!(phases(), ["Planned", "Launched"]);
    assert_eq!(run_over(&simulation.ports(), std::slice::from_ref(&of_user.key.name)).counted("launched"), 1);
    assert_eq!(phases(), ["Launched", "Launched"]);
}

/// They would wait for the next tick, and everybody else's launch would have a plan made for nobody.
#[test]
fn a_launch_rings_for_pods_that_wait_to_know_where_it_is_and_for_no_others() {
    for (awaited, rung) in [(None, 0), (Some(1), 1), (Some(2), 1)] {
        let simulation = super::repeated::with_class();
        for number in 1..=2 {
            keep_as(&simulation, number, |claim| claim.spec.is_awaited = awaited == Some(number));
        }
        assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 2);
        let doorbells = simulation.doorbells();
        let of = |function: Function| doorbells.iter().filter(|rung| **rung == function).count();
        assert_eq!((of(Function::Schedule), of(Function::Register)), (rung, 1), "{awaited:?}");
        run_over(&simulation.ports(), &[]);
        assert_eq!(simulation.doorbells(), doorbells, "nothing is launched any more");
    }
}

#[test]
fn a_claim_of_a_missing_class_fails_and_its_pods_are_replanned() {
    let simulation = without_classes();
    let claim = keep(&simulation, 1);
    run_over(&simulation.ports(), std::slice::from_ref(&claim.key.name));
    let after = simulation.claim(&claim.key);
    assert!(matches!(after.phase, Phase::Failed { .. }), "{:?}", after.phase);
    assert_eq!(after.deletion.map(|deletion| deletion.reason), Some(DeletionReason::InsufficientCapacity));
    let world = simulation.world();
    assert!(world.region.machines.is_empty(), "nothing was launched");
    let mut events: Vec<(&str, &str)> =
        world.cluster.events.iter().map(|kept| (kept.event.reason.as_str(), kept.event.kind.as_str())).collect();
    events.sort_unstable();
    assert_eq!(events, [("", "NodeClaim"), ("InsufficientCapacityError", "NodeClaim")]);
    drop(world);
    assert_eq!(simulation.doorbells(), [Function::Schedule, Function::Terminate]);
}

#[test]
fn a_claim_of_an_unready_class_fails_without_an_event() {
    let simulation = without_classes();
    let claim = keep(&simulation, 1);
    know(&simulation, NodeClassRecord { problems: vec!["it names no subnet".to_owned()], ..resolved_class("gone") });
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!(simulation.claim(&claim.key).deletion.map(|deletion| deletion.reason), Some(DeletionReason::NodeClassNotReady));
    assert!(simulation.world().cluster.events.is_empty());
    let counted = report.metrics.iter().find(|metric| metric.metric == "karpenter_nodeclaims_disrupted_total").unwrap();
    assert_eq!(counted.labels["reason"], "nodeclass_not_ready");
}

#[test]
fn a_class_with_unknown_readiness_fails_no_claim() {
    let simulation = super::repeated::with_class();
    let (cluster, ports) = (ClusterName::new("c"), simulation.ports());
    let known = |problems: &[&str]| {
        block_on(async {
            let mut stored = ports.read::<NodeClassRecord>(&cluster, "gone").await.unwrap().unwrap();
            let status = if problems.is_empty() { whittle_api::ConditionStatus::True } else { whittle_api::ConditionStatus::Unknown };
            let all = &mut stored.value.class.status.conditions;
            whittle_api::conditions::set(all, whittle_api::conditions::READY, status, "Waiting", "the profile is not known yet", at(0));
            stored.value.problems = problems.iter().map(|text| (*text).to_owned()).collect();
            ports.write(&cluster, &stored.value, stored.revision).await.unwrap();
        });
    };
    known(&["the profile is not known yet"]);
    let claim = keep(&simulation, 1);
    assert_eq!(run_over(&ports, &[]).counted("retried"), 1);
    let waits = simulation.claim(&claim.key);
    assert_eq!((waits.phase, waits.deletion), (Phase::Planned, None));
    assert!(simulation.world().region.machines.is_empty());
    known(&[]);
    assert_eq!(run_over(&ports, &[]).counted("launched"), 1);
}

#[test]
fn only_claims_that_request_efa_get_efa_interfaces() {
    for asks in [true, false] {
        let simulation = super::repeated::with_class();
        let claim = keep_as(&simulation, 1, |claim| {
            claim.spec.requirements = vec![Requirement::is_in(labels::INSTANCE_TYPE, ["c5n.18xlarge"])];
            if asks {
                claim.spec.requests.set("vpc.amazonaws.com/efa", whittle_units::Quantity::from_units(1));
            }
        });
        assert_eq!(run_over(&simulation.ports(), &[]).counted("launched"), 1);
        let machine = simulation.claim(&claim.key).machine().unwrap().clone();
        assert_eq!(machine.capacity.get("vpc.amazonaws.com/efa").units_floor(), i64::from(asks), "{:?}", machine.capacity);
    }
}

#[test]
fn each_instance_of_a_large_response_is_stored_once() {
    let simulation = super::repeated::with_class();
    for number in 0..100 {
        keep(&simulation, number);
    }
    // Every call takes 100 ms.
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(50), SignedDuration::from_secs(60));
    let report = run_over(&ports, &[]);
    assert_eq!((report.counted("launched"), report.counted("surplus")), (100, 0));
    let claims = block_on(simulation.ports().list(&ClusterName::new("c"))).unwrap();
    let machines: std::collections::BTreeSet<_> =
        claims.iter().filter_map(|claim| claim.value.machine()).map(|machine| machine.instance_id.clone()).collect();
    assert_eq!((machines.len(), simulation.world().region.started()), (100, 100), "one instance for each claim");
}

/// A class that is ready in every zone.
pub(super) fn class_in(catalog: &whittle_ec2::facts::Catalog) -> NodeClassRecord {
    let zones = catalog.zones.iter().map(|zone| ResolvedSubnet {
        id: format!("subnet-{}", zone.name),
        zone: zone.name.clone(),
        zone_id: zone.id.clone(),
    });
    let class = serde_json::json!({"metadata": {"name": "gone"}, "spec": {"role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"id": "s"}], "securityGroupSelectorTerms": [{"id": "g"}]}});
    NodeClassRecord {
        class: serde_json::from_value(class).unwrap(),
        subnets: zones.collect(),
        security_groups: vec![ResolvedSecurityGroup { id: "sg-1".into(), name: "g".into() }],
        amis: vec![ResolvedAmi {
            id: "ami-1".into(),
            requirements: vec![Requirement::is_in(labels::ARCH, ["amd64"])],
            ..ResolvedAmi::default()
        }],
        instance_profile: "p".into(),
        hash: String::new(),
        problems: Vec::new(),
        free_addresses: std::collections::BTreeMap::new(),
        free_reserved: std::collections::BTreeMap::new(),
        reservation_tenancies: std::collections::BTreeMap::new(),
        unused_reservations: std::collections::BTreeSet::new(),
        fence: None,
        placement_group: None,
        ipv6: false,
        resolved_at: at(0),
    }
}

/// Even if the stored class is ready: settings may be newer than its refresh.
#[test]
fn a_role_or_vpc_of_another_cluster_is_never_used() {
    let facts = |role: &str, vpc: &str| Some(whittle_claims::FenceFacts { role: Some(role.into()), vpcs: vec![vpc.into()] });
    for (fence, launches) in [
        (facts("KarpenterNodeRole-c", "vpc-c"), true),
        (facts("KarpenterNodeRole-other", "vpc-c"), false),
        (facts("KarpenterNodeRole-c", "vpc-other"), false),
        // A record of an older release: the class itself names the role `r`.
        (None, false),
    ] {
        let record = ClusterRecord { info: ClusterInfo { name: "c".into(), vpc: "vpc-c".into(), ..ClusterInfo::default() } };
        let blob = without_classes().world().region.catalog_blob();
        let catalog = whittle_snapshot::warm::catalog(&blob).unwrap();
        let class = NodeClassRecord { fence: fence.clone(), ..class_in(&catalog) };
        let settings = Settings { clusters: vec!["c".into(), "other".into()], ..Settings::default() };
        let with_refusals = crate::with_refusals(class, &settings, &"c".into(), &record);
        assert_eq!(with_refusals.is_ready(), launches, "{fence:?}: {:?}", with_refusals.problems);
    }
}

#[test]
fn a_claim_whose_class_refers_to_another_cluster_fails() {
    let simulation = without_classes();
    let claim = keep(&simulation, 1);
    let catalog = whittle_snapshot::warm::catalog(&simulation.world().region.catalog_blob()).unwrap();
    let class = class_in(&catalog);
    assert!(class.is_ready());
    know(&simulation, class);
    let settings = Settings { clusters: vec!["c".into(), "other".into()], ..Settings::default() };
    let ports = simulation.ports();
    let adapters = Adapters::all(&ports);
    block_on(crate::handle(adapters, &settings, &"c".into(), &[])).unwrap();
    let after = simulation.claim(&claim.key);
    assert_eq!(after.deletion.map(|deletion| deletion.reason), Some(DeletionReason::NodeClassNotReady));
    assert!(simulation.world().region.machines.is_empty(), "nothing was launched");
}

/// How many types the call has for a claim that requires `least` different ones; `None` if it is refused.
fn types_of_the_call(least: u32, min_values: MinValuesPolicy) -> Option<usize> {
    let simulation = without_classes();
    let blob = simulation.world().region.catalog_blob();
    let catalog = whittle_snapshot::warm::catalog(&blob).unwrap();
    let class = class_in(&catalog);
    let access = ClusterAccess {
        name: "c".into(),
        endpoint: "https://c".into(),
        ca_bundle: Some("Yw==".into()),
        service_cidr: Some("10.0.0.0/16".into()),
        dns_address: Some("10.0.0.10".into()),
    };
    let reserved = whittle_snapshot::Reserved::for_launches(&[], &[], &[], at(0));
    let facts = Facts {
        catalog,
        classes: vec![class],
        changed: BTreeSet::new(),
        stock_outs: Vec::new(),
        uses: Vec::new(),
        inputs: whittle_snapshot::TypeInputs {
            settings: Settings::default().instance_types(),
            reserved,
            measured: Vec::new(),
            now: at(0),
            shifted: ShiftedZones::default(),
            prices: Default::default(),
        },
        access,
        min_values,
        left_to_others: 0,
        now: at(0),
    };
    let mut claim = planned();
    claim.spec.node_class.name = "gone".into();
    claim.spec.requirements = vec![
        Requirement::is_in(labels::ARCH, ["amd64"]),
        Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"]),
        Requirement { key: labels::INSTANCE_TYPE.into(), operator: Operator::Exists, values: Vec::new(), min_values: Some(least) },
    ];
    let plan = facts.plan(vec![Stored { value: claim, revision: Revision::ABSENT }]);
    let names = plan.groups.iter().flat_map(|group| &group.launch.request.configs).flat_map(|config| &config.overrides);
    let count = names.map(|one| one.instance_type.as_str()).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(plan.refused.len(), usize::from(count == 0), "{:?}", plan.refused.first().map(|(_, error)| error.to_string()));
    (count > 0).then_some(count)
}

#[test]
fn a_call_has_at_most_sixty_types_and_strict_min_values_beyond_that_fail() {
    assert_eq!(types_of_the_call(60, MinValuesPolicy::Strict), Some(60));
    assert_eq!(types_of_the_call(61, MinValuesPolicy::Strict), None);
    assert_eq!(types_of_the_call(61, MinValuesPolicy::BestEffort), Some(60));
}

#[test]
fn nothing_is_launched_without_a_catalog_and_cluster_facts() {
    let simulation = without_classes();
    simulation.world().store = whittle_sim::world::store::Store::default();
    let claim = keep(&simulation, 1);
    let report = run_over(&simulation.ports(), &[]);
    assert_eq!(report.counted("facts_missing"), 1);
    assert_eq!(simulation.claim(&claim.key).phase, Phase::Planned);
    assert_eq!(simulation.world().queues.waiting().count(), 1, "it is retried");
}

#[test]
fn nothing_is_launched_in_shadow_mode() {
    let simulation = super::repeated::with_class();
    let claim = keep(&simulation, 1);
    let (ports, shadow) = (simulation.ports(), Settings { mode: Mode::Shadow, ..Settings::default() });
    for names in [&[][..], std::slice::from_ref(&claim.key.name)] {
        let report = block_on(crate::handle(Adapters::all(&ports), &shadow, &claim.key.cluster, names)).unwrap();
        assert_eq!((report, simulation.claim(&claim.key)), (Report::default(), claim.clone()));
        assert!(simulation.doorbells().is_empty() && simulation.world().region.machines.is_empty());
    }
    assert_eq!(run_over(&ports, &[]).counted("launched"), 1);
}

#[test]
fn repeated_doorbells_do_not_multiply_while_launches_fail() {
    let mut simulation = without_classes();
    simulation.world().store = whittle_sim::world::store::Store::default();
    let [first, second, third] = [1, 2, 3].map(|number| keep(&simulation, number).key.name);
    let doorbells =
        |simulation: &TestWorld| simulation.world().queues.waiting().filter(|message| message.function == Function::Launch).count();
    let both = [first.clone(), second.clone()];
    for _ in 0..3 {
        run_over(&simulation.ports(), &both);
    }
    run_over(&simulation.ports(), std::slice::from_ref(&first));
    assert_eq!(doorbells(&simulation), 1, "one pending doorbell for repeated ones");
    run_over(&simulation.ports(), &[second.clone(), third.clone()]);
    assert_eq!(doorbells(&simulation), 2, "no doorbell names the third yet");
    let last = simulation.world().queues.waiting().last().unwrap().input.clone();
    let Input::Doorbell(Doorbell::Launch { claims, .. }) = last else { panic!("{last:?}") };
    assert_eq!(claims, [first.clone(), second, third], "it names all waiting claims");
    simulation.run_until(at(3));
    run_over(&simulation.ports(), &[first]);
    assert_eq!(doorbells(&simulation), 1, "a new one after they were delivered");
}

#[test]
fn a_run_out_of_time_requeues_the_rest() {
    let simulation = without_classes();
    for number in 0..12 {
        keep(&simulation, number);
    }
    let ports = simulation.ports().with_time_left(SignedDuration::from_millis(100), SignedDuration::from_secs(4));
    let report = run_over(&ports, &[]);
    let done = report.counted("failed");
    assert!(done > 0 && done < 12 && ports.is_in_time(), "{done} of them until {}", ports.now());
    assert_eq!(report.counted("handed_over"), 12 - done);
    let launches = simulation.world().queues.waiting().filter(|message| message.function == Function::Launch).count();
    assert_eq!(launches, 1, "one doorbell for all remaining claims");
    assert_eq!(run_over(&simulation.ports(), &[]).counted("failed"), 12 - done);
}

use super::*;
use crate::golden::{Case, files};
use serde_json::{Map, Value, json};
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::labels as keys;
use whittle_units::Price;

/// CPU in millicores, everything else in whole units.
fn amounts(resources: &Resources) -> Value {
    let number = |name: &str, amount: Quantity| if name == "cpu" { amount.milli() } else { amount.units_ceil() };
    let entries = resources.iter().filter(|(_, amount)| !amount.is_zero());
    Value::Object(entries.map(|(name, amount)| (name.to_owned(), json!(number(name, amount)))).collect())
}

fn labels_of(requirements: &[Requirement]) -> Value {
    let values = |requirement: &Requirement| match requirement.operator {
        Operator::In => json!(requirement.values),
        Operator::DoesNotExist => Value::Null,
        other => panic!("a type has no {other:?} requirement"),
    };
    Value::Object(requirements.iter().map(|requirement| (requirement.key.clone(), values(requirement))).collect())
}

/// Unknown zone ids are omitted by us and listed as empty strings by Karpenter.
fn without_empty_zone_ids(expected: &Value) -> Value {
    let mut labels: Map<String, Value> = expected.as_object().unwrap().clone();
    if let Some(Value::Array(ids)) = labels.get_mut(keys::ZONE_ID) {
        ids.retain(|id| id != "");
        if ids.is_empty() {
            labels.remove(keys::ZONE_ID);
        }
    }
    Value::Object(labels)
}

/// Replaces Karpenter's negative amounts: here the allocatable of a machine smaller than its overhead is zero.
fn without_negatives(expected: &Value) -> Value {
    let entries = expected.as_object().unwrap().iter().filter(|(_, amount)| amount.as_i64().unwrap() > 0);
    Value::Object(entries.map(|(name, amount)| (name.clone(), amount.clone())).collect())
}

/// Classes with an `efa-only` interface on the first card, and a type whose first card takes none: EC2 refuses what Karpenter launches.
const LAUNCHED_BY_KARPENTER_ALONE: [(&str, &str); 2] =
    [("interfaces-and-reserved-enis", "p6-b300.48xlarge"), ("interfaces-efa-only", "p6-b300.48xlarge")];

#[test]
fn every_type_of_every_golden_class_is_resolved_as_karpenter_does() {
    let mut compared = 0;
    for path in files("types/variants", ".yaml") {
        let case = Case::read(&path);
        let (catalog, context) = (case.catalog(true), case.context());
        let expected: Value = serde_json::from_str(&std::fs::read_to_string(path.with_extension("json")).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let resolved = resolve(&catalog, &context);
        if expected.get("error").is_some() {
            assert!(matches!(resolved, Err(ResolveError::Kubelet { .. })), "{name}: {resolved:?}");
            continue;
        }
        let resolved = resolved.unwrap();
        assert_eq!(resolved.len(), expected.as_object().unwrap().len(), "{name}");
        for instance_type in &resolved {
            let (label, expected) = (format!("{name} {}", instance_type.name), &expected[&instance_type.name]);
            let parts = type_resources(catalog.facts(&instance_type.name).unwrap(), &context).unwrap();
            assert_eq!(amounts(&parts.capacity), expected["capacity"], "{label} capacity");
            assert_eq!(amounts(&parts.kube_reserved), expected["kubeReserved"], "{label} kubeReserved");
            assert_eq!(amounts(&parts.system_reserved), expected["systemReserved"], "{label} systemReserved");
            assert_eq!(amounts(&parts.eviction_threshold), expected["evictionThreshold"], "{label} evictionThreshold");
            assert_eq!(amounts(&instance_type.allocatable()), without_negatives(&expected["allocatable"]), "{label} allocatable");
            let is_refused = LAUNCHED_BY_KARPENTER_ALONE.contains(&(name, instance_type.name.as_str()));
            let launchable = expected["launchable"] == true && !is_refused;
            assert_eq!(instance_type.offerings.iter().any(|offering| offering.available), launchable, "{label} launchable");
            if let Some(labels) = expected.get("requirements") {
                assert_eq!(labels_of(&instance_type.requirements), without_empty_zone_ids(labels), "{label}");
            }
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared}");
}

static CATALOG: std::sync::LazyLock<Catalog> = std::sync::LazyLock::new(|| crate::facts::offline::catalog("us-east-1").unwrap());

/// Facts of the offline region us-east-1 with one subnet in zone a and one in zone b.
struct Fixture {
    class: Ec2NodeClass,
    kubelet: Kubelet,
    settings: Settings,
    unavailable: Unavailable,
    reservations: BTreeMap<String, u32>,
    tenancies: BTreeMap<String, String>,
    group: Option<ResolvedPlacementGroup>,
    ipv6: bool,
    measured: BTreeMap<String, Quantity>,
    allocatable: BTreeMap<String, Resources>,
}

impl Fixture {
    fn new(spec: Value) -> Self {
        let class: Ec2NodeClass = serde_json::from_value(json!({
            "metadata": {"name": "default"},
            "spec": spec,
            "status": {"subnets": [
                {"id": "subnet-a", "zone": "us-east-1a", "zoneID": "use1-az1"},
                {"id": "subnet-b", "zone": "us-east-1b", "zoneID": "use1-az2"},
            ]},
        }))
        .unwrap();
        Self {
            class,
            kubelet: Kubelet::default(),
            settings: Settings::standard(),
            unavailable: Unavailable::default(),
            reservations: BTreeMap::new(),
            tenancies: BTreeMap::new(),
            group: None,
            ipv6: false,
            measured: BTreeMap::new(),
            allocatable: BTreeMap::new(),
        }
    }
    /// Gives the class a group that holds as many machines in a zone as EC2 allows.
    fn fill_group(&mut self, zone: &str) {
        self.group = Some(spread_group());
        self.unavailable.full_groups.insert(("pg-1".into(), zone.into()));
    }
    fn get(&self, name: &str) -> InstanceType {
        self.of(CATALOG.facts(name).unwrap())
    }
    fn of(&self, facts: &InstanceTypeFacts) -> InstanceType {
        self.within(&CATALOG, facts)
    }
    fn within(&self, catalog: &Catalog, facts: &InstanceTypeFacts) -> InstanceType {
        let context = Context {
            class: &self.class,
            family: self.class.spec.family(),
            kubelet: &self.kubelet,
            settings: &self.settings,
            unavailable: &self.unavailable,
            reservation_capacity: &self.reservations,
            reservation_tenancies: &self.tenancies,
            placement_group: self.group.as_ref(),
            ipv6: self.ipv6,
            measured_memory: &self.measured,
            measured_allocatable: &self.allocatable,
        };
        instance_type(facts, catalog, &context).unwrap()
    }
    /// `capacity type zone` of available offerings, with the partition if there is one.
    fn available(&self, name: &str) -> Vec<String> {
        let offerings = self.get(name).offerings;
        let text = |offering: &whittle_api::catalog::Offering| {
            let partition = offering.label(keys::PLACEMENT_GROUP_PARTITION).map(|number| format!(" {number}")).unwrap_or_default();
            format!("{} {}{partition}", offering.capacity_type(), offering.zone().trim_start_matches("us-east-1"))
        };
        offerings.iter().filter(|offering| offering.available).map(text).collect()
    }
}

fn pool(capacity_type: &str, zone: &str) -> Pool {
    Pool { capacity_type: capacity_type.into(), instance_type: "m5.large".into(), zone: zone.into(), ..Pool::default() }
}

#[test]
fn s0_9_the_allocatable_of_windows_nodes_equals_the_seed() {
    let windows = Fixture::new(json!({"amiSelectorTerms": [{"alias": "windows2022@latest"}]})).get("c6a.xlarge");
    let expected: Resources = [
        ("cpu", "3920m"),
        ("memory", "6012Mi"),
        ("ephemeral-storage", "44Gi"),
        ("pods", "110"),
        ("vpc.amazonaws.com/PrivateIPv4Address", "14"),
    ]
    .into_iter()
    .map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()))
    .collect();
    let mut allocatable = windows.allocatable();
    assert_eq!(allocatable.0.remove("vpc.amazonaws.com/pod-eni"), Some(Quantity::from_units(18)));
    assert_eq!(allocatable, expected);
    assert_eq!((windows.label(keys::OS), windows.label(keys::WINDOWS_BUILD)), (Some("windows"), Some("10.0.20348")));
}

#[test]
fn allocatable_never_exceeds_that_of_real_nodes() {
    let fixture = Fixture::new(json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}));
    for (name, cpu, memory) in [
        ("t4g.small", "1930m", "1408312Ki"),
        ("t4g.medium", "1930m", "3377496Ki"),
        ("t4g.xlarge", "3920m", "15136012Ki"),
        ("m5.large", "1930m", "7220184Ki"),
    ] {
        let allocatable = fixture.get(name).allocatable();
        assert!(
            allocatable.get("cpu") <= cpu.parse().unwrap() && allocatable.get("memory") <= memory.parse().unwrap(),
            "{name}: {allocatable:?}"
        );
    }
}

#[test]
fn each_zone_has_an_offering_for_each_capacity_type() {
    let fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    assert_eq!(fixture.available("m5.large"), ["on-demand a", "spot a", "on-demand b", "spot b"]);
}

/// Spot machines run where the market has no price any more. At the highest price of all anything would be cheaper than they are.
#[test]
fn an_offering_without_a_price_is_unavailable_and_its_price_unknown() {
    let mut catalog = Catalog::clone(&CATALOG);
    catalog.spot.get_mut("m5.large").unwrap().remove("us-east-1a");
    let fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    let offerings = fixture.within(&catalog, catalog.facts("m5.large").unwrap()).offerings;
    let known: Vec<(bool, bool)> = offerings.iter().map(|offering| (offering.available, offering.price > Price::ZERO)).collect();
    assert_eq!(known.iter().filter(|known| **known == (true, true)).count(), 3);
    assert_eq!(known.iter().filter(|known| **known == (false, false)).count(), 1, "{offerings:?}");
}

#[test]
fn offerings_of_exhausted_pools_are_listed_as_unavailable() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    fixture.unavailable.pools.insert(pool("spot", "us-east-1a"));
    assert_eq!(fixture.available("m5.large"), ["on-demand a", "on-demand b", "spot b"]);
    assert_eq!(fixture.get("m5.large").offerings.len(), 4);
    assert_eq!(fixture.available("m5.xlarge").len(), 4, "only that type");
    fixture.unavailable.capacity_types.insert("spot".into());
    assert_eq!(fixture.available("m5.large"), ["on-demand a", "on-demand b"]);
}

#[test]
fn a_zone_is_unavailable_when_all_its_subnets_are_full() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    let extra = whittle_api::karpenter::ResolvedSubnet { id: "subnet-a2".into(), zone: "us-east-1a".into(), zone_id: "use1-az1".into() };
    fixture.class.status.subnets.push(extra);
    fixture.unavailable.subnets.insert("subnet-a".into());
    assert_eq!(fixture.available("m5.large").len(), 4);
    fixture.unavailable.subnets.insert("subnet-a2".into());
    assert_eq!(fixture.available("m5.large"), ["on-demand b", "spot b"]);
}

#[test]
fn a_subnet_without_prefixes_is_full_to_classes_that_take_some_and_to_no_others() {
    let available = |spec: Value, ipv6: bool| {
        let mut fixture = Fixture::new(spec);
        fixture.ipv6 = ipv6;
        fixture.unavailable.subnets_without_prefixes.insert("subnet-a".into());
        fixture.available("m5.large")
    };
    let everywhere = ["on-demand a", "spot a", "on-demand b", "spot b"];
    assert_eq!(available(json!({"amiFamily": "AL2023", "ipPrefixCount": 2}), false), ["on-demand b", "spot b"]);
    for (spec, ipv6) in [
        (json!({"amiFamily": "AL2023"}), false),
        (json!({"amiFamily": "AL2023", "ipPrefixCount": 0}), false),
        (json!({"amiFamily": "AL2023", "ipPrefixCount": 2}), true),
    ] {
        let found: BTreeSet<String> = available(spec.clone(), ipv6).into_iter().collect();
        assert_eq!(found, everywhere.map(str::to_owned).into(), "{spec}");
    }
}

#[test]
fn a_zone_with_a_zonal_shift_is_unavailable() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    fixture.unavailable.shifted_zone_ids.insert("use1-az2".into());
    assert_eq!(fixture.available("m5.large"), ["on-demand a", "spot a"]);
}

#[test]
fn a_full_partition_is_unavailable_and_the_others_are_not() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    fixture.group =
        Some(ResolvedPlacementGroup { id: "pg-1".into(), name: "parts".into(), strategy: "partition".into(), partition_count: 2 });
    fixture.unavailable.pools.insert(Pool { placement_group: Some("pg-1".into()), partition: Some(1), ..pool("spot", "us-east-1a") });
    fixture.unavailable.pools.insert(Pool { placement_group: Some("pg-2".into()), ..pool("spot", "us-east-1b") });
    let expected = ["on-demand a 1", "on-demand a 2", "spot a 2", "on-demand b 1", "on-demand b 2", "spot b 1", "spot b 2"];
    assert_eq!(fixture.available("m5.large"), expected);
}

#[test]
fn what_ec2_refuses_to_another_class_is_available() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    fixture.class.metadata.uid = "u-1".into();
    fixture.unavailable.refused.insert("u-2".into(), [pool("spot", "us-east-1a"), pool("spot", "us-east-1b")].into());
    assert_eq!(fixture.available("m5.large"), ["on-demand a", "spot a", "on-demand b", "spot b"]);
    fixture.unavailable.refused.insert("u-1".into(), [pool("spot", "us-east-1a")].into());
    assert_eq!(fixture.available("m5.large"), ["on-demand a", "on-demand b", "spot b"]);
}

#[test]
fn a_reservation_is_available_while_active_and_not_exhausted() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    let reservation = |id: &str, zone: &str, state: &str| ResolvedCapacityReservation {
        id: id.into(),
        availability_zone: zone.into(),
        instance_type: "m5.large".into(),
        reservation_type: "default".into(),
        state: state.into(),
        ..ResolvedCapacityReservation::default()
    };
    fixture.class.status.capacity_reservations = vec![
        reservation("cr-1", "us-east-1a", "active"),
        reservation("cr-2", "us-east-1b", "active"),
        reservation("cr-3", "us-east-1b", "expiring"),
    ];
    fixture.reservations = BTreeMap::from([("cr-1".into(), 3), ("cr-3".into(), 3)]);
    let reserved: Vec<_> =
        fixture.get("m5.large").offerings.into_iter().filter(|offering| offering.capacity_type() == "reserved").collect();
    assert_eq!(
        reserved.iter().map(|offering| (offering.available, offering.reservation_capacity)).collect::<Vec<_>>(),
        [(true, Some(3)), (false, Some(0)), (false, Some(3))]
    );
    let on_demand = CATALOG.on_demand_price("m5.large").unwrap();
    assert_eq!(reserved[0].price.nanos(), on_demand.nanos() / 10_000_000);
    fixture.settings.reserved_capacity = false;
    assert_eq!(fixture.get("m5.large").offerings.len(), 4);
}

fn spread_group() -> ResolvedPlacementGroup {
    ResolvedPlacementGroup { id: "pg-1".into(), name: "apart".into(), strategy: "spread".into(), partition_count: 0 }
}

/// A plan would wait for it, and its pods get no other machine meanwhile.
#[test]
fn a_reservation_is_never_available_where_no_machine_can_start() {
    let is_available = |change: fn(&mut Fixture)| {
        let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
        fixture.class.status.capacity_reservations = vec![ResolvedCapacityReservation {
            id: "cr-1".into(),
            availability_zone: "us-east-1a".into(),
            instance_type: "m5.large".into(),
            reservation_type: "default".into(),
            state: "active".into(),
            ..ResolvedCapacityReservation::default()
        }];
        fixture.reservations = BTreeMap::from([("cr-1".into(), 1)]);
        change(&mut fixture);
        fixture.available("m5.large").iter().any(|offered| offered.starts_with("reserved"))
    };
    assert!(is_available(|_| ()));
    assert!(!is_available(|fixture| fixture.class.status.capacity_reservations[0].availability_zone = "us-east-1c".into()), "no subnet");
    assert!(!is_available(|fixture| _ = fixture.unavailable.shifted_zone_ids.insert("use1-az1".into())));
    assert!(is_available(|fixture| _ = fixture.unavailable.shifted_zone_ids.insert("use1-az2".into())), "another zone");
    assert!(!is_available(|fixture| fixture.fill_group("us-east-1a")));
    assert!(is_available(|fixture| fixture.fill_group("us-east-1b")), "another zone");
    assert!(!is_available(|fixture| _ = fixture.unavailable.subnets.insert("subnet-a".into())), "no address");
    assert!(is_available(|fixture| _ = fixture.unavailable.subnets.insert("subnet-b".into())), "another zone");
    assert!(is_available(|fixture| _ = fixture.unavailable.subnets_without_prefixes.insert("subnet-a".into())), "it takes none");
    let without_prefixes = |fixture: &mut Fixture| {
        fixture.class.spec.ip_prefix_count = Some(1);
        fixture.unavailable.subnets_without_prefixes.insert("subnet-a".into());
    };
    assert!(!is_available(without_prefixes));
    let with_another = |fixture: &mut Fixture| {
        let free = whittle_api::karpenter::ResolvedSubnet { id: "subnet-a2".into(), ..fixture.class.status.subnets[0].clone() };
        fixture.class.status.subnets.push(free);
        fixture.unavailable.subnets.insert("subnet-a".into());
    };
    assert!(is_available(with_another), "another subnet");
}

#[test]
fn what_a_placement_group_cannot_have_is_closed_to_its_machines_and_to_no_others() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    fixture.unavailable.full_groups.insert(("pg-1".into(), "us-east-1a".into()));
    fixture.unavailable.pools.insert(Pool { placement_group: Some("pg-1".into()), ..pool("spot", "us-east-1b") });
    assert_eq!(fixture.available("m5.large").len(), 4, "of a class without a group");
    fixture.group = Some(spread_group());
    assert_eq!(fixture.available("m5.large"), ["on-demand b"]);
    fixture.group = Some(ResolvedPlacementGroup { id: "pg-2".into(), ..spread_group() });
    assert_eq!(fixture.available("m5.large").len(), 4, "of another group");
}

#[test]
fn a_reservation_is_offered_to_machines_of_its_tenancy_and_nothing_else_has_one() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    let reservation = |id: &str| ResolvedCapacityReservation {
        id: id.into(),
        availability_zone: "us-east-1a".into(),
        instance_type: "m5.large".into(),
        ..ResolvedCapacityReservation::default()
    };
    fixture.class.status.capacity_reservations = vec![reservation("cr-1"), reservation("cr-2")];
    fixture.tenancies = BTreeMap::from([("cr-2".into(), "dedicated".into())]);
    let offerings = fixture.get("m5.large").offerings;
    assert_eq!(offerings.len(), 6);
    for offering in offerings {
        let expected = (offering.label(keys::RESERVATION_ID) == Some("cr-2")).then_some("dedicated");
        assert_eq!(offering.label(keys::INSTANCE_TENANCY), expected, "{offering:?}");
    }
}

#[test]
fn measured_memory_replaces_the_estimate() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    fixture.measured.insert("m5.large".into(), "7900Mi".parse().unwrap());
    assert_eq!(fixture.get("m5.large").capacity.get("memory"), "7900Mi".parse().unwrap());
}

#[test]
fn no_more_is_allocatable_than_nodes_have_had_and_the_rest_is_as_before() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    let before = fixture.get("m5.large");
    let amounts = |pairs: &[(&str, &str)]| -> Resources {
        pairs.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse::<Quantity>().unwrap())).collect()
    };
    fixture.allocatable.insert("m5.large".into(), amounts(&[("cpu", "1500m"), ("pods", "8")]));
    let (after, other) = (fixture.get("m5.large").allocatable(), fixture.get("m5.xlarge"));
    assert_eq!((after.get("cpu"), after.get("pods")), ("1500m".parse().unwrap(), "8".parse().unwrap()));
    for name in ["memory", "ephemeral-storage"] {
        assert_eq!(after.get(name), before.allocatable().get(name));
    }
    assert_eq!(fixture.get("m5.large").capacity, before.capacity);
    fixture.allocatable.clear();
    assert_eq!(fixture.get("m5.xlarge"), other);
    fixture.allocatable.insert("m5.large".into(), amounts(&[("cpu", "4"), ("pods", "500")]));
    assert_eq!(fixture.get("m5.large").allocatable(), before.allocatable(), "more than is planned changes nothing");
}

/// A kubelet evicts by a share of the memory that it has: nodes had less for pods than was planned with, as those of Karpenter have.
#[test]
fn a_share_of_memory_is_one_of_what_nodes_report() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    let mebibytes = Quantity::from_mebibytes;
    let planned = |fixture: &Fixture| {
        let planned = fixture.get("m5.large");
        planned.capacity.get("memory").minus(planned.overhead.get("memory"))
    };
    fixture.measured.insert("m5.large".into(), mebibytes(7800));
    let (default, reserved) = (planned(&fixture), mebibytes(11 * 29 + 255));
    assert_eq!(default, mebibytes(7800).minus(reserved).minus(mebibytes(100)), "an amount is the same on every machine");
    fixture.kubelet.eviction_hard.insert("memory.available".into(), "10%".into());
    assert_eq!(planned(&fixture), mebibytes(7800).minus(reserved).minus(mebibytes(780)));
}

/// User data for Windows never join local disks: a pod would be given a machine that has no room for it, and then the next one.
#[test]
fn local_disks_hold_pods_only_where_user_data_join_them() {
    for family in AmiFamily::all() {
        let storage = |policy: Value| {
            let fixture = Fixture::new(json!({"amiFamily": family.name(), "instanceStorePolicy": policy}));
            fixture.get("m5d.xlarge").capacity.get("ephemeral-storage")
        };
        let (joined, apart) = (storage(json!("RAID0")), storage(Value::Null));
        let disk: Quantity = "150G".parse().unwrap();
        assert_eq!(joined, if family.is_windows() { apart } else { disk }, "{family:?}");
        assert!(apart < disk, "{family:?}");
    }
}

#[test]
fn types_incompatible_with_a_class_have_no_available_offerings() {
    #[track_caller]
    fn check(spec: Value, name: &str, usable: bool) {
        assert_eq!(!Fixture::new(spec.clone()).available(name).is_empty(), usable, "{name} with {spec}");
    }
    let nic = |card: i32, device: i32, kind: &str| json!({"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind});
    let with = |interfaces: Vec<Value>| json!({"amiFamily": "AL2023", "networkInterfaces": interfaces});
    check(json!({"amiFamily": "AL2023"}), "a1.large", false);
    check(json!({"amiFamily": "Bottlerocket"}), "a1.large", true);
    check(json!({"amiFamily": "Custom"}), "a1.large", true);
    check(with(vec![nic(0, 0, "interface")]), "m5.large", true);
    check(with(vec![nic(1, 0, "interface")]), "m5.large", false);
    check(with(vec![nic(0, 3, "interface")]), "m5.large", false);
    check(with(vec![nic(0, 0, "efa-only")]), "m5.large", false);
    check(with(vec![nic(0, 0, "interface"), nic(1, 1, "efa-only")]), "p4d.24xlarge", true);
    check(with(vec![nic(0, 0, "interface"), nic(0, 1, "efa-only")]), "p5en.48xlarge", true);
    // Its first card takes plain interfaces alone.
    check(with(vec![nic(0, 0, "interface"), nic(0, 1, "efa-only")]), "p6-b300.48xlarge", false);
    check(with(vec![nic(0, 0, "interface"), nic(0, 1, "interface")]), "p6-b300.48xlarge", true);
    check(with(vec![nic(0, 0, "interface"), nic(1, 1, "efa-only")]), "p6-b300.48xlarge", true);
    check(json!({"amiFamily": "AL2023", "cpuOptions": {"nestedVirtualization": "enabled"}}), "m5.large", false);
    check(json!({"amiFamily": "AL2023", "cpuOptions": {"nestedVirtualization": "disabled"}}), "m5.large", true);
    check(json!({"amiFamily": "AL2023", "connectionTracking": {"udpTimeout": 45}}), "m4.large", false);
    check(json!({"amiFamily": "AL2023", "connectionTracking": {"udpTimeout": 45}}), "m5.large", true);
}

/// EKS: "Nitro-based EC2 nodes required". Other machines start, and the VPC CNI on them does not: no pod ever ran on one.
#[test]
fn an_ipv6_cluster_has_machines_of_the_nitro_system_alone() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2"}));
    let mut check = |name: &str, in_ipv6: bool| {
        fixture.ipv6 = false;
        assert!(!fixture.available(name).is_empty(), "{name} in an IPv4 cluster");
        fixture.ipv6 = true;
        assert_eq!(!fixture.available(name).is_empty(), in_ipv6, "{name} in an IPv6 cluster");
    };
    // EC2 gives the first no IPv6 address at all.
    for name in ["m3.medium", "t2.micro", "m4.large", "i3.large"] {
        check(name, false);
    }
    for name in ["t3.micro", "m5.large", "m5.metal", "m6g.large"] {
        check(name, true);
    }
}

#[test]
fn a_class_without_subnets_and_a_catalog_without_types_are_errors() {
    let mut fixture = Fixture::new(json!({"amiFamily": "AL2023"}));
    fixture.class.status.subnets.clear();
    let (unavailable, reservations, measured) = (Unavailable::default(), BTreeMap::new(), BTreeMap::new());
    let context = Context {
        class: &fixture.class,
        family: AmiFamily::Al2023,
        kubelet: &fixture.kubelet,
        settings: &fixture.settings,
        unavailable: &unavailable,
        reservation_capacity: &reservations,
        reservation_tenancies: &fixture.tenancies,
        placement_group: None,
        ipv6: false,
        measured_memory: &measured,
        measured_allocatable: &BTreeMap::new(),
    };
    assert!(matches!(resolve(&Catalog::default(), &context), Err(ResolveError::EmptyCatalog { .. })));
    assert!(matches!(resolve(&CATALOG, &context), Err(ResolveError::NoSubnets { .. })));
}

/// The types of a class with these settings, as JSON Pointers and values, and what they depend on.
fn with_settings(settings: &[(&str, Value)]) -> (Vec<InstanceType>, String) {
    let mut fixture = Fixture::new(json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}));
    let mut class = serde_json::to_value(&fixture.class).unwrap();
    for (field, value) in settings {
        let (parent, key) = field.rsplit_once('/').unwrap();
        class.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    fixture.class = serde_json::from_value(class).unwrap();
    fixture.kubelet = Kubelet::parse(fixture.class.spec.kubelet.as_ref()).unwrap();
    let context = Context {
        class: &fixture.class,
        family: fixture.class.spec.family(),
        kubelet: &fixture.kubelet,
        settings: &fixture.settings,
        unavailable: &fixture.unavailable,
        reservation_capacity: &fixture.reservations,
        reservation_tenancies: &fixture.tenancies,
        placement_group: None,
        ipv6: false,
        measured_memory: &fixture.measured,
        measured_allocatable: &fixture.allocatable,
    };
    (resolve(&CATALOG, &context).unwrap(), relevant_settings(&fixture.class))
}

#[test]
fn classes_that_differ_in_nothing_relevant_have_equal_types() {
    let (types, relevant) = with_settings(&[]);
    let irrelevant = [
        ("/metadata/name", json!("other")),
        ("/metadata/uid", json!("uid-of-another")),
        ("/spec/subnetSelectorTerms", json!([{"id": "subnet-a"}])),
        ("/spec/securityGroupSelectorTerms", json!([{"id": "sg-1"}])),
        ("/spec/role", json!("another")),
        ("/spec/instanceProfile", json!("another")),
        ("/spec/tags", json!({"team": "a"})),
        ("/spec/userData", json!("#!/bin/sh")),
        ("/spec/context", json!("a")),
        ("/spec/detailedMonitoring", json!(true)),
        ("/spec/metadataOptions", json!({"httpPutResponseHopLimit": 2})),
        ("/status/securityGroups", json!([{"id": "sg-1", "name": "a"}])),
        ("/status/instanceProfile", json!("another")),
    ];
    for one in &irrelevant {
        assert!(with_settings(std::slice::from_ref(one)) == (types.clone(), relevant.clone()), "{one:?}");
    }
    assert!(with_settings(&irrelevant) == (types, relevant));
}

#[test]
fn whatever_changes_the_types_of_a_class_is_relevant() {
    let (types, relevant) = with_settings(&[]);
    let settings = [
        ("/spec/kubelet", json!({"maxPods": 20})),
        ("/spec/amiSelectorTerms", json!([{"alias": "windows2022@latest"}])),
        ("/spec/blockDeviceMappings", json!([{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "50Gi"}, "rootVolume": true}])),
        ("/spec/instanceStorePolicy", json!("RAID0")),
        ("/spec/connectionTracking", json!({"tcpEstablishedTimeout": 60})),
        ("/spec/cpuOptions", json!({"nestedVirtualization": "enabled"})),
        ("/status/subnets", json!([{"id": "subnet-a", "zone": "us-east-1a", "zoneID": "use1-az1"}])),
    ];
    for one in settings {
        let (other, other_relevant) = with_settings(std::slice::from_ref(&one));
        assert!(other != types && other_relevant != relevant, "{one:?}");
    }
    let images = ("/status/amis", json!([{"id": "ami-1", "name": "a", "requirements": []}]));
    assert_ne!(with_settings(&[images]).1, relevant, "images say which types boot");
}

#[test]
fn a_node_attaches_what_its_type_allows_less_what_it_has_anyway() {
    let attached = |spec: Value, name: &str| Fixture::new(spec).get(name).ebs_attachments;
    let spec = || json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]});
    // As the driver reports it of nodes with two interfaces: of 27 places that are shared, 26 beside a local disk, 32 dedicated, 40 of Xen.
    for (name, expected) in [("m5.large", 25), ("m5d.large", 24), ("m7i.large", 31), ("t2.medium", 38)] {
        assert_eq!(attached(spec(), name), Some(expected), "{name}");
    }
    let bottlerocket = json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]});
    assert_eq!(attached(bottlerocket, "m5.large"), Some(24), "it has two volumes");
    let mut volumes = spec();
    let volume = |device: &str| json!({"deviceName": device, "ebs": {"volumeSize": "20Gi"}});
    volumes["blockDeviceMappings"] = json!([volume("/dev/xvda"), volume("/dev/xvdb"), volume("/dev/xvdc")]);
    assert_eq!(attached(volumes, "m5.large"), Some(23));
}

#[test]
fn where_nothing_is_known_nothing_is_limited_and_a_limit_is_never_zero() {
    let fixture = Fixture::new(json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}));
    let of = |ebs_attachments: Option<u32>| {
        let facts = InstanceTypeFacts { ebs_attachments, ..CATALOG.facts("m5.large").unwrap().clone() };
        fixture.of(&facts).ebs_attachments
    };
    assert_eq!([None, Some(0), Some(2), Some(4)].map(of), [None, Some(1), Some(1), Some(2)]);
}

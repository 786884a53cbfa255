use super::*;
use crate::facts::{CardEfa, InstanceTypeFacts, NetworkCard};
use crate::golden::{Case, files};
use crate::instance_types::{Context, Unavailable, resolve};
use crate::user_data::tests::{access, without_layout};
use serde_json::{Map, Value, json};
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::{NodeClaim, Operator, Requirement, ResolvedCapacityReservation, ResolvedSubnet};
use whittle_api::labels;
use whittle_units::{Quantity, Resources};

mod golden;

/// The first golden case, to be modified.
fn on_demand() -> Case {
    Case::read(&files("launch", "001-on-demand.yaml")[0])
}

fn prepared(case: &Case) -> Result<Launch, LaunchError> {
    let (catalog, context, cluster) = (case.catalog(false), case.context(), access(&case.facts));
    let types = resolve(&catalog, &context).unwrap();
    prepare(&LaunchInput {
        claim: case.claim.as_ref().unwrap(),
        context: &context,
        catalog: &catalog,
        types: &types,
        cluster: &cluster,
        free_addresses: &BTreeMap::new(),
        min_values: MinValuesPolicy::Strict,
    })
}

#[test]
fn the_batch_id_ignores_the_order_of_claims_and_the_token_covers_all_parameters() {
    assert_eq!(batch_id("demo", ["b", "a"]), batch_id("demo", ["a", "b"]));
    assert_ne!(batch_id("demo", ["a"]), batch_id("other", ["a"]));
    let request = prepared(&on_demand()).unwrap().request;
    let batch = batch_id("demo", ["a", "b"]);
    let (first, again) = (batched(request.clone(), &batch, 2), batched(batched(request.clone(), &batch, 2), &batch, 2));
    assert_eq!(first, again);
    assert_eq!((first.client_token.len(), first.target_capacity), (64, 2));
    assert_eq!(first.tags.get(labels::TAG_LAUNCH), Some(&batch));
    assert_ne!(first.client_token, batched(request, &batch, 1).client_token);
}

#[test]
fn launch_templates_with_equal_options_have_equal_names() {
    let mut case = on_demand();
    let names = |case: &Case| prepared(case).unwrap().templates.into_iter().map(|template| template.name).collect::<Vec<_>>();
    let before = names(&case);
    assert_eq!(before, names(&case));
    assert!(before.iter().all(|name| name.starts_with("karpenter.k8s.aws/")));
    case.class.metadata.name = "other".into();
    assert_ne!(before, names(&case), "classes of other names have other tags");
    let mut case = on_demand();
    case.class.spec.detailed_monitoring = Some(true);
    assert_ne!(before, names(&case));
}

#[test]
fn machines_of_a_converted_provisioner_have_the_tags_of_both_kinds() {
    let mut case = on_demand();
    assert_eq!(prepared(&case).unwrap().request.tags.get(labels::PROVISIONER_NAME), None);
    let claim = case.claim.as_mut().unwrap();
    claim.metadata.labels.insert(labels::PROVISIONER_NAME.into(), "default".into());
    let tags = prepared(&case).unwrap().request.tags;
    assert_eq!(tags.get(labels::PROVISIONER_NAME), tags.get(labels::NODE_POOL));
}

#[test]
fn the_lowest_partition_with_capacity_is_chosen() {
    let mut case = Case::read(&files("launch", "053-placement-partition-several.yaml")[0]);
    let claim = case.claim.as_mut().unwrap();
    claim.spec.requirements.retain(|requirement| requirement.key != labels::PLACEMENT_GROUP_PARTITION);
    claim.spec.requirements.push(whittle_api::karpenter::Requirement::is_in(labels::PLACEMENT_GROUP_PARTITION, ["4", "3"]));
    assert_eq!(prepared(&case).unwrap().partition, Some(3));
    let catalog = case.catalog(false);
    let group = case.group.as_ref().unwrap().id.clone();
    for facts in &catalog.types {
        for zone in &catalog.zones {
            case.unavailable.pools.insert(crate::instance_types::Pool {
                capacity_type: "on-demand".into(),
                instance_type: facts.name.clone(),
                zone: zone.name.clone(),
                placement_group: Some(group.clone()),
                partition: Some(3),
            });
        }
    }
    assert_eq!(prepared(&case).unwrap().partition, Some(4));
}

/// EC2 knows nothing of the claim's requirements: pods would not be bound to a node of a partition that they exclude.
#[test]
fn a_partition_is_left_to_ec2_only_if_the_claim_excludes_none() {
    let partition = |requirement: Option<Requirement>| {
        let mut case = Case::read(&files("launch", "053-placement-partition-several.yaml")[0]);
        let requirements = &mut case.claim.as_mut().unwrap().spec.requirements;
        requirements.retain(|requirement| requirement.key != labels::PLACEMENT_GROUP_PARTITION);
        requirements.extend(requirement);
        prepared(&case).unwrap().partition
    };
    let of = |operator: Operator, values: &[&str]| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Some(Requirement { key: labels::PLACEMENT_GROUP_PARTITION.to_owned(), operator, values, min_values: None })
    };
    assert_eq!(partition(None), None);
    assert_eq!(partition(of(Operator::Exists, &[])), None);
    assert_eq!(partition(of(Operator::NotIn, &["1"])), Some(2));
    assert_eq!(partition(of(Operator::NotIn, &["2"])), Some(1));
    assert_eq!(partition(of(Operator::Gt, &["2"])), Some(3));
    assert_eq!(partition(of(Operator::Lte, &["2"])), Some(1));
}

const TWENTY_TYPES: [&str; 20] = [
    "m5.large",
    "m5.xlarge",
    "m5d.large",
    "m5d.24xlarge",
    "m6i.large",
    "m6id.32xlarge",
    "m7i-flex.large",
    "m8g.medium",
    "m6g.large",
    "m4.large",
    "m4.16xlarge",
    "t3.large",
    "t3a.xlarge",
    "t4g.medium",
    "t4g.xlarge",
    "c5.large",
    "c5n.18xlarge",
    "c6a.48xlarge",
    "r5.large",
    "i3.large",
];
const THREE_ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

/// A claim for reserved capacity, of which there is one machine of each of twenty types in each of three zones.
fn sixty_reservations() -> Case {
    let mut case = Case::read(&files("launch", "013-sixty-of-many.yaml")[0]);
    let pools = TWENTY_TYPES.iter().flat_map(|name| THREE_ZONES.iter().map(move |zone| (*name, *zone)));
    for (index, (instance_type, zone)) in pools.enumerate() {
        let id = format!("cr-{index:016}");
        case.reservations.insert(id.clone(), 1);
        case.class.status.capacity_reservations.push(ResolvedCapacityReservation {
            id,
            availability_zone: zone.into(),
            instance_type: instance_type.into(),
            instance_match_criteria: "targeted".into(),
            reservation_type: "default".into(),
            state: "active".into(),
            ..ResolvedCapacityReservation::default()
        });
    }
    case.claim.as_mut().unwrap().spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, [labels::CAPACITY_RESERVED])];
    case
}

#[test]
fn of_more_templates_than_one_fleet_takes_the_cheapest_are_used_and_no_others_are_made() {
    let case = sixty_reservations();
    let catalog = case.catalog(false);
    let price = |name: &str| Price::from_nanos(catalog.on_demand_price(name).unwrap().nanos() / 10_000_000);
    let pools = TWENTY_TYPES.iter().flat_map(|name| THREE_ZONES.iter().map(move |zone| (*name, *zone)));
    let mut cheapest: Vec<(Price, String, String)> = pools.map(|(name, zone)| (price(name), name.to_owned(), zone.to_owned())).collect();
    cheapest.sort();
    cheapest.truncate(MAX_CONFIGS);
    let launch = prepared(&case).unwrap();
    let entries = launch.request.configs.iter().flat_map(|config| &config.overrides);
    let used: Vec<_> = entries.map(|entry| (entry.price, entry.instance_type.clone(), entry.zone.clone())).collect();
    assert_eq!(used, cheapest);
    let mut named: Vec<&str> = launch.request.configs.iter().map(|config| config.launch_template.as_str()).collect();
    named.sort_unstable();
    assert_eq!(named.len(), MAX_CONFIGS);
    assert_eq!(named, launch.templates.iter().map(|template| template.name.as_str()).collect::<Vec<_>>());
    let mut pools: Vec<_> = cheapest.into_iter().map(|(_, name, zone)| (name, zone)).collect();
    pools.sort();
    assert_eq!(launch.reservations.into_keys().collect::<Vec<_>>(), pools);
}

/// Gives the class a reservation of m5.large. An empty tenancy is not known.
fn reserve(case: &mut Case, id: &str, zone: &str, tenancy: &str, free: u32) {
    case.reservations.insert(id.to_owned(), free);
    if !tenancy.is_empty() {
        case.tenancies.insert(id.to_owned(), tenancy.to_owned());
    }
    case.class.status.capacity_reservations.push(ResolvedCapacityReservation {
        id: id.into(),
        availability_zone: zone.into(),
        instance_type: "m5.large".into(),
        instance_match_criteria: "targeted".into(),
        reservation_type: "default".into(),
        state: "active".into(),
        ..ResolvedCapacityReservation::default()
    });
}

/// What is launched for a class with a reservation of each of these tenancies, each in a zone of its own, if the claim allows these:
/// tenancy, capacity type and reservations.
#[track_caller]
fn check_tenancy(reserved: &[&str], allowed: Option<&[&str]>, expected: (&str, &str, &[&str])) {
    let mut case = Case::read(&files("launch", "013-sixty-of-many.yaml")[0]);
    for (index, tenancy) in reserved.iter().enumerate() {
        reserve(&mut case, &format!("cr-{index}"), THREE_ZONES[index], tenancy, 1);
    }
    let mut wanted = vec![Requirement::is_in(labels::CAPACITY_TYPE, [labels::CAPACITY_ON_DEMAND, labels::CAPACITY_RESERVED])];
    wanted.extend(allowed.map(|allowed| Requirement::is_in(labels::INSTANCE_TENANCY, allowed.iter().copied())));
    case.claim.as_mut().unwrap().spec.requirements = wanted;
    let launch = prepared(&case).unwrap();
    let used: Vec<&str> = launch.reservations.values().map(String::as_str).collect();
    assert_eq!((launch.tenancy.as_str(), launch.request.capacity_type.as_str(), used.as_slice()), expected, "{reserved:?} {allowed:?}");
    assert!(launch.templates.iter().all(|template| template.tenancy == launch.tenancy));
}

/// EC2 refuses them, and a reservation that it refuses is closed to all for some minutes.
#[test]
fn a_reservation_is_never_used_for_machines_of_another_tenancy() {
    check_tenancy(&["default"], Some(&["dedicated"]), ("dedicated", "on-demand", &[]));
    check_tenancy(&["dedicated"], Some(&["default"]), ("default", "on-demand", &[]));
    check_tenancy(&["default", "dedicated"], Some(&["dedicated"]), ("dedicated", "reserved", &["cr-1"]));
    check_tenancy(&["default", "dedicated"], Some(&["default"]), ("default", "reserved", &["cr-0"]));
    check_tenancy(&["default", "dedicated"], None, ("default", "reserved", &["cr-0"]));
}

#[test]
fn a_reservation_is_used_for_machines_that_may_be_of_its_tenancy() {
    let either = Some(&["default", "dedicated"][..]);
    for allowed in [None, either] {
        check_tenancy(&["default"], allowed, ("default", "reserved", &["cr-0"]));
        check_tenancy(&[], allowed, ("default", "on-demand", &[]));
    }
    check_tenancy(&["dedicated"], either, ("dedicated", "reserved", &["cr-0"]));
    check_tenancy(&[""], None, ("default", "reserved", &["cr-0"]));
    check_tenancy(&[""], Some(&["dedicated"]), ("dedicated", "reserved", &["cr-0"]));
}

/// A claim without a requirement on it gets default tenancy, as with Karpenter: a dedicated machine has a fee by region.
#[test]
fn machines_of_claims_that_name_no_tenancy_are_never_dedicated() {
    check_tenancy(&["dedicated"], None, ("default", "on-demand", &[]));
    check_tenancy(&["dedicated", "dedicated"], None, ("default", "on-demand", &[]));
    check_tenancy(&["dedicated", "default"], None, ("default", "reserved", &["cr-1"]));
}

/// It is tried before all else. A claim for it would wait until the subnet is tried again, and its pods get no other machine meanwhile.
#[test]
fn a_reservation_in_a_zone_without_free_addresses_is_left_for_a_machine_elsewhere() {
    let mut case = Case::read(&files("launch", "013-sixty-of-many.yaml")[0]);
    reserve(&mut case, "cr-0", THREE_ZONES[0], "", 1);
    let either = [labels::CAPACITY_ON_DEMAND, labels::CAPACITY_RESERVED];
    case.claim.as_mut().unwrap().spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, either)];
    assert_eq!(prepared(&case).unwrap().request.capacity_type, "reserved");
    case.unavailable.subnets.insert("subnet-a".into());
    let request = prepared(&case).unwrap().request;
    assert_eq!(request.capacity_type, "on-demand");
    let mut zones: Vec<&str> = request.configs.iter().flat_map(|config| &config.overrides).map(|entry| entry.zone.as_str()).collect();
    zones.sort_unstable();
    zones.dedup();
    assert_eq!(zones, THREE_ZONES[1..]);
}

#[test]
fn of_the_reservations_for_a_type_in_a_zone_those_for_dedicated_machines_are_used_last() {
    let used = |reserved: [(&str, u32); 2], allowed: &[&str]| {
        let mut case = Case::read(&files("launch", "013-sixty-of-many.yaml")[0]);
        for (id, (tenancy, free)) in ["cr-0", "cr-1"].into_iter().zip(reserved) {
            reserve(&mut case, id, THREE_ZONES[0], tenancy, free);
        }
        case.claim.as_mut().unwrap().spec.requirements = vec![
            Requirement::is_in(labels::CAPACITY_TYPE, [labels::CAPACITY_RESERVED]),
            Requirement::is_in(labels::INSTANCE_TENANCY, allowed.iter().copied()),
        ];
        let launch = prepared(&case).unwrap();
        format!("{} in {}", launch.tenancy, launch.reservations.into_values().collect::<Vec<_>>().join(" "))
    };
    let either = ["default", "dedicated"];
    assert_eq!(used([("dedicated", 5), ("default", 1)], &either), "default in cr-1", "more are free in the other");
    assert_eq!(used([("dedicated", 5), ("default", 1)], &["dedicated"]), "dedicated in cr-0");
    assert_eq!(used([("dedicated", 1), ("dedicated", 5)], &either), "dedicated in cr-1");
    assert_eq!(used([("default", 1), ("default", 5)], &either), "default in cr-1");
}

#[test]
fn min_values_hold_for_what_is_left_of_too_many_templates() {
    let asking = |types: u32| {
        let mut case = sixty_reservations();
        case.claim.as_mut().unwrap().spec.requirements.push(Requirement {
            key: labels::INSTANCE_TYPE.into(),
            operator: Operator::Exists,
            values: Vec::new(),
            min_values: Some(types),
        });
        prepared(&case).map(|launch| launch.request.configs.len())
    };
    assert_eq!(asking(17), Ok(MAX_CONFIGS));
    let error = FilterError::MinValues { key: labels::INSTANCE_TYPE.into(), found: 17, wanted: 18 };
    assert_eq!(asking(18), Err(LaunchError::Insufficient(error)));
}

/// A type that is sold on demand and as spot in one zone at these prices.
fn priced(name: &str, on_demand: u64, spot: u64) -> InstanceType {
    let offering = |capacity_type: &str, nanos: u64| Offering {
        requirements: vec![Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]), Requirement::is_in(labels::ZONE, ["z"])],
        price: Price::from_nanos(nanos),
        available: true,
        reservation_capacity: None,
    };
    InstanceType {
        name: name.into(),
        requirements: vec![Requirement::is_in(labels::INSTANCE_TYPE, [name])],
        offerings: vec![offering(labels::CAPACITY_ON_DEMAND, on_demand), offering(labels::CAPACITY_SPOT, spot)],
        ..InstanceType::default()
    }
}

/// At least so many types.
fn types_at_least(least: u32) -> Requirement {
    let key = labels::INSTANCE_TYPE.to_owned();
    Requirement { key, operator: Operator::Exists, values: Vec::new(), min_values: Some(least) }
}

/// What a launch chooses from, in its order.
fn selected(types: &[InstanceType], requirements: &[Requirement], policy: MinValuesPolicy) -> Result<Vec<String>, FilterError> {
    let requests = Resources::new();
    let found = select(types, &Demand { requirements, requests: &requests, policy })?;
    let text = |each: &Candidate<'_>| {
        let kinds: Vec<&str> = each.offerings.iter().map(|offering| offering.capacity_type()).collect();
        format!("{} {}", each.instance_type.name, kinds.join("+"))
    };
    Ok(found.iter().map(text).collect())
}

/// The same without `minValues` that have to be lowered.
fn strictly(types: &[InstanceType], requirements: &[Requirement]) -> Result<Vec<String>, FilterError> {
    selected(types, requirements, MinValuesPolicy::Strict)
}

#[test]
fn spot_is_bought_at_the_price_of_the_cheapest_on_demand_machine_and_never_above_it() {
    let types = [priced("a", 10, 10), priced("b", 12, 11), priced("c", 20, 9)];
    let of = |kinds: &[&str]| [Requirement::is_in(labels::CAPACITY_TYPE, kinds.iter().copied())];
    let both = [labels::CAPACITY_ON_DEMAND, labels::CAPACITY_SPOT];
    let expected = ["c on-demand+spot", "a on-demand+spot", "b on-demand"].map(str::to_owned);
    assert_eq!(strictly(&types, &of(&both)), Ok(expected.to_vec()));
    assert_eq!(strictly(&types, &[]), Ok(expected.to_vec()), "whatever is allowed");
    let spot = ["c spot", "a spot", "b spot"].map(str::to_owned);
    assert_eq!(strictly(&types, &of(&[labels::CAPACITY_SPOT])), Ok(spot.to_vec()), "where nothing else may be bought");
    let all = ["c on-demand+spot", "a on-demand+spot", "b on-demand+spot"].map(str::to_owned);
    assert_eq!(strictly(&types, &[types_at_least(3)]), Ok(all.to_vec()), "whoever wants several has to take them");
}

#[test]
fn a_launch_is_of_the_sixty_cheapest_types_and_of_no_dearer_one() {
    let type_of = |at: u64| priced(&format!("t-{at:02}"), 100 + at, 100 + at);
    let types: Vec<InstanceType> = (0..61).rev().map(type_of).collect();
    let on_demand = Requirement::is_in(labels::CAPACITY_TYPE, [labels::CAPACITY_ON_DEMAND]);
    let cheapest: Vec<String> = (0..60).map(|at| format!("t-{at:02} on-demand")).collect();
    assert_eq!(strictly(&types, std::slice::from_ref(&on_demand)), Ok(cheapest.clone()));
    // What sixty types cannot have is not launched, unless fewer are allowed.
    let asking = |least: u32| [on_demand.clone(), types_at_least(least)];
    assert_eq!(strictly(&types, &asking(60)), Ok(cheapest.clone()));
    let error = FilterError::MinValues { key: labels::INSTANCE_TYPE.into(), found: 60, wanted: 61 };
    assert_eq!(strictly(&types, &asking(61)), Err(error));
    assert_eq!(selected(&types, &asking(61), MinValuesPolicy::BestEffort), Ok(cheapest));
    // Of equal prices the names decide, so that equal claims make equal calls.
    let equal: Vec<InstanceType> = (0..61).rev().map(|at: u64| priced(&format!("t-{at:02}"), 100, 100)).collect();
    assert_eq!(strictly(&equal, &[on_demand]).map(|chosen| chosen[59].clone()), Ok("t-59 on-demand".to_owned()));
}

#[test]
fn fleet_errors_mark_the_pools_subnets_and_capacity_types_they_name() {
    let case = on_demand();
    let launch = prepared(&case).unwrap();
    let context = case.context();
    let error = |code: &str, message: &str, name: &str, zone: &str| FleetPoolError {
        code: code.into(),
        message: message.into(),
        instance_type: name.into(),
        zone: zone.into(),
    };
    let of = |errors: Vec<FleetPoolError>| marks(&launch, &FleetAnswer { errors, ..FleetAnswer::default() }, &context);
    for code in ["InsufficientInstanceCapacity", "Unsupported", "VcpuLimitExceeded", "MaxFleetCountExceeded"] {
        let marks = of(vec![error(code, "text", "m5.large", "us-east-1a")]);
        let pools: Vec<_> = marks.pools.iter().map(|pool| (pool.instance_type.as_str(), pool.zone.as_str())).collect();
        assert_eq!(pools, [("m5.large", "us-east-1a")], "{code}");
        assert!(marks.subnets.is_empty() && marks.capacity_types.is_empty());
    }
    let no_prefix = "There aren't sufficient free Ipv4 addresses or prefixes";
    let codes = [("InsufficientFreeAddressesInSubnet", "text"), ("InsufficientCidrBlocks", "text"), ("InvalidParameterValue", no_prefix)];
    for (code, message) in codes {
        let full = of(vec![error(code, message, "m5.large", "us-east-1b")]);
        assert_eq!(full.subnets.iter().collect::<Vec<_>>(), ["subnet-b"], "{code}");
    }
    let no_ipv6 = "IPv6 is not supported for the instance type 'm5.large'.";
    let lacks_ipv6 = of(vec![error("UnsupportedOperation", no_ipv6, "m5.large", "us-east-1a")]);
    assert!(lacks_ipv6.pools.len() == 1 && lacks_ipv6.subnets.is_empty(), "{lacks_ipv6:?}");
    assert!(of(vec![error("UnsupportedOperation", "text", "m5.large", "us-east-1a")]) == Marks::default(), "it may be any other request");
    assert!(of(vec![error("RequestLimitExceeded", "text", "m5.large", "us-east-1a")]) == Marks::default());
    let role = of(vec![error("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "text", "m5.large", "us-east-1a")]);
    assert_eq!(role.capacity_types.iter().collect::<Vec<_>>(), ["spot"]);
    let spread = "You've reached the limit of instances in this spread placement group.";
    assert_eq!(of(vec![error("InsufficientInstanceCapacity", spread, "m5.large", "us-east-1a")]).pools.len(), 6);
}

#[test]
fn a_subnet_without_prefixes_is_chosen_for_machines_without_prefixes_alone() {
    let mut case = on_demand();
    case.unavailable.subnets_without_prefixes.insert("subnet-a".into());
    assert!(prepared(&case).unwrap().subnets().contains("subnet-a"));
    case.class.spec.ip_prefix_count = Some(2);
    let chosen = prepared(&case).unwrap().subnets();
    assert!(!chosen.contains("subnet-a") && chosen.contains("subnet-b"), "{chosen:?}");
}

#[test]
fn a_machine_starts_in_the_subnet_of_its_zone_with_most_free_addresses_and_never_in_a_full_one() {
    let mut class = on_demand().class;
    let subnet = |id: &str| ResolvedSubnet { id: id.into(), zone: "a".into(), zone_id: "use1-az1".into() };
    class.status.subnets = ["s-1", "s-2", "s-3"].map(subnet).to_vec();
    let chosen = |free: [u32; 3], full: &[&str]| {
        let free = ["s-1", "s-2", "s-3"].map(str::to_owned).into_iter().zip(free).collect();
        let unavailable = Unavailable { subnets: full.iter().map(|id| (*id).to_owned()).collect(), ..Unavailable::default() };
        subnets(&class, &free, &unavailable, false).remove("a")
    };
    assert_eq!(chosen([5, 9, 7], &[]).as_deref(), Some("s-2"));
    assert_eq!(chosen([5, 9, 9], &[]).as_deref(), Some("s-2"), "the earlier of equal ones");
    assert_eq!(chosen([5, 9, 7], &["s-2"]).as_deref(), Some("s-3"));
    assert_eq!(chosen([0, 0, 0], &[]).as_deref(), Some("s-1"), "EC2 says whether there is room");
    assert_eq!(chosen([5, 9, 7], &["s-1", "s-2", "s-3"]), None);
}

/// A machine that is tagged as another cluster's would be found by that one, and one with both spellings never be terminated.
#[test]
fn a_class_never_sets_a_tag_by_which_machines_are_found_however_it_is_spelt() {
    let launched_with = |key: &str| {
        let mut case = on_demand();
        case.class.spec.tags = Some([(key.to_owned(), "x".to_owned())].into());
        prepared(&case).map(|launch| launch.request.tags.get(key).cloned())
    };
    let own = [labels::NODE_POOL, labels::EC2_NODE_CLASS, labels::TAG_CLUSTER, labels::TAG_NODE_CLAIM, labels::TAG_LAUNCH];
    for key in own.into_iter().chain([labels::TAG_LET_GO, "kubernetes.io/cluster/other"]) {
        for spelt in [key.to_owned(), key.to_uppercase()] {
            let refused = launched_with(&spelt);
            assert!(matches!(&refused, Err(LaunchError::NodeClassNotReady { message, .. }) if message.contains(&spelt)), "{refused:?}");
        }
    }
    for key in ["team", "karpenter.sh/discovery", "kubernetes.io/cluster/", "kubernetes.io/cluster"] {
        assert_eq!(launched_with(key), Ok(Some("x".to_owned())), "{key}");
    }
}

#[test]
fn of_many_errors_a_few_of_each_code_are_listed() {
    let error = |code: &str, at: usize| FleetPoolError {
        code: code.into(),
        message: format!("no capacity {at:03}"),
        instance_type: "m5.large".into(),
        zone: "a".into(),
    };
    let many = |code: &'static str| (0..200).map(move |at| error(code, at));
    let message = |errors: Vec<FleetPoolError>| match failure(&errors) {
        FleetFailure::InsufficientCapacity(message) | FleetFailure::Create { message, .. } => message,
    };
    let told = message(many("InsufficientInstanceCapacity").collect());
    let first = ["000", "001", "002"].map(|at| format!("InsufficientInstanceCapacity: no capacity {at}")).join("; ");
    assert_eq!(told, format!("{first}; and 197 more of InsufficientInstanceCapacity"));
    let told = message(many("InsufficientInstanceCapacity").chain([error("UnauthorizedOperation", 0)]).collect());
    assert!(told.contains("; UnauthorizedOperation: no capacity 000"), "an error that a user can remedy is not only counted: {told}");
}

#[test]
fn a_fleet_without_machines_is_a_stock_out_only_when_every_error_is_one() {
    let error =
        |code: &str| FleetPoolError { code: code.into(), message: "text".into(), instance_type: "m5.large".into(), zone: "a".into() };
    let is_stock_out = |codes: &[&str]| {
        matches!(failure(&codes.iter().map(|code| error(code)).collect::<Vec<_>>()), FleetFailure::InsufficientCapacity(_))
    };
    assert!(is_stock_out(&["InsufficientInstanceCapacity", "UnfulfillableCapacity"]));
    assert!(!is_stock_out(&["InsufficientInstanceCapacity", "UnauthorizedOperation"]));
    assert!(!is_stock_out(&["RequestLimitExceeded"]), "throttling is no stock-out");
    assert!(!is_stock_out(&[]));
}

#[test]
fn a_fleet_of_an_ec2_in_trouble_is_refused_only_if_another_error_refuses_it() {
    let error = |code: &str| FleetPoolError { code: code.into(), message: "x".into(), instance_type: "m5.large".into(), zone: "a".into() };
    let reason = |codes: &[&str]| match failure(&codes.iter().map(|code| error(code)).collect::<Vec<_>>()) {
        FleetFailure::Create { reason, .. } => Some(reason.as_str()),
        FleetFailure::InsufficientCapacity(_) => None,
    };
    assert_eq!(reason(&["Unavailable"]), Some("InternalError"));
    assert_eq!(reason(&["InsufficientInstanceCapacity", "InternalFailure"]), Some("InternalError"), "no capacity is no refusal");
    assert_eq!(reason(&[]), Some("InternalError"), "nothing was said");
    assert_eq!(reason(&["Throttling"]), Some("RequestLimitExceeded"));
    assert_eq!(reason(&["Unavailable", "InvalidBlockDeviceMapping"]), Some("LaunchFailed"));
    assert_eq!(reason(&["Unavailable", "UnauthorizedOperation"]), Some("Unauthorized"));
}

fn facts_of(name: &str) -> InstanceTypeFacts {
    crate::facts::offline::types().into_iter().find(|facts| facts.name == name).unwrap()
}

/// The interfaces of a machine for EFA, as `card.number type`.
fn efa_layout(facts: &InstanceTypeFacts) -> Vec<String> {
    let asked = template::efa_interfaces(facts, facts.efa_interfaces);
    let interfaces = template::interfaces(&on_demand().class.spec, &asked, template::IpFamily::V6);
    for each in &interfaces {
        let has_addresses = each.interface_type.as_deref() != Some("efa-only");
        assert_eq!(each.ipv6_address_count, has_addresses.then_some(1), "{each:?}");
    }
    let text = |each: &TemplateInterface| {
        format!("{}.{} {}", each.card_index.unwrap(), each.device_index, each.interface_type.as_deref().unwrap_or_default())
    };
    interfaces.iter().map(text).collect()
}

#[test]
fn an_efa_interface_is_on_each_card_that_takes_one_and_the_primary_interface_on_card_0() {
    assert_eq!(efa_layout(&facts_of("p4d.24xlarge")), ["0.0 efa", "1.1 efa", "2.1 efa", "3.1 efa"]);
    assert_eq!(efa_layout(&facts_of("i7ie.48xlarge")), ["0.0 efa"], "it has one, and two cards that take it");
    assert_eq!(efa_layout(&facts_of("hpc6id.32xlarge")), ["0.0 efa", "1.0 efa"], "its cards have one interface");
    let layout = efa_layout(&facts_of("p6-b300.48xlarge"));
    assert_eq!((layout.len(), layout[16].as_str()), (17, "16.1 efa"), "sixteen, and one for addresses");
    assert_eq!(layout[..2], ["0.0 interface", "1.1 efa"]);
    let mut facts = facts_of("p4d.24xlarge");
    facts.network_cards[1] = NetworkCard { index: 1, interfaces: 1, efa: CardEfa::EfaOnly };
    assert_eq!(efa_layout(&facts), ["0.0 efa", "1.0 efa-only", "2.1 efa", "3.1 efa"]);
    facts.network_cards[0].efa = CardEfa::EfaOnly;
    assert_eq!(efa_layout(&facts)[..2], ["0.0 interface", "0.1 efa-only"], "the primary interface has addresses");
    facts.network_cards.clear();
    assert_eq!(efa_layout(&facts), ["0.0 efa", "1.1 efa", "2.1 efa", "3.1 efa"], "EC2 did not tell of its cards");
    assert!(template::efa_interfaces(&facts, 0).is_empty());
}

#[test]
fn types_with_as_many_efa_interfaces_on_other_cards_have_other_launch_templates() {
    let mut case = Case::read(&files("launch", "024-efa-requested.yaml")[0]);
    let types = ["p6-b300.48xlarge", "trn2.48xlarge"];
    case.facts["types"] = json!(types);
    case.facts["onDemandPrices"] = json!({"p6-b300.48xlarge": 142.0, "trn2.48xlarge": 42.0});
    let launch = prepared(&case).unwrap();
    for (name, interfaces) in types.into_iter().zip([17, 16]) {
        let is_of_type = |config: &&FleetConfig| config.overrides.iter().any(|entry| entry.instance_type == name);
        let config = launch.request.configs.iter().find(is_of_type).unwrap();
        assert!(config.overrides.iter().all(|entry| entry.instance_type == name), "{config:?}");
        let template = launch.templates.iter().find(|template| template.name == config.launch_template).unwrap();
        assert_eq!(template.interfaces.len(), interfaces, "{name}");
    }
}

#[test]
fn an_interface_of_an_ipv6_cluster_has_an_address_and_no_prefixes() {
    let of = |file: &str| {
        let launch = prepared(&Case::read(&files("launch", file)[0])).unwrap();
        let all: Vec<TemplateInterface> = launch.templates.into_iter().flat_map(|template| template.interfaces).collect();
        assert!(!all.is_empty());
        all.into_iter().map(|each| (each.ipv4_prefix_count, each.ipv6_prefix_count, each.ipv6_address_count)).collect::<Vec<_>>()
    };
    assert!(of("045-metadata-absent-ipv6.yaml").iter().all(|counts| *counts == (None, None, Some(1))));
    assert!(of("046-prefixes.yaml").iter().all(|counts| *counts == (Some(10), None, None)), "IPv4 takes both");
}

#[test]
fn volumes_round_up_to_whole_gibibytes() {
    for (size, gibibytes) in [(Some("20Gi"), Some(20)), (Some("100G"), Some(94)), (Some("1"), Some(1)), (Some("x"), None), (None, None)] {
        assert_eq!(volume_gibibytes(size), gibibytes, "{size:?}");
    }
}

#[test]
fn a_launch_that_its_class_prevents_names_the_class_the_field_and_what_to_do() {
    let check = |error: LaunchError, object: &str, remedy: &str| {
        let text = error.to_string();
        assert!(text.contains(object) && text.ends_with(remedy), "{text}");
    };
    let types = "select images of their architecture by spec.amiSelectorTerms, or other types by the requirements";
    check(LaunchError::NoImage("web".into()), "node class web", types);
    let zones = "select one there by spec.subnetSelectorTerms, or allow other zones in the requirements";
    check(LaunchError::NoSubnet("web".into()), "node class web", zones);
}

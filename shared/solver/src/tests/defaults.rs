//! Cluster-default spread, placeholder pods and reserved capacity.

use super::world::{World, Z, all, asks, hard, left, near, offering, reasons, sizes, spread};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_api::catalog::Offering;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_model::scheduling::{Options, Packing, ReservedMode};

fn default_spread(world: &mut World, key: &str, action: &str) {
    let constraint = json!({"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": action});
    world.options.default_spread = vec![serde_json::from_value(constraint).unwrap()];
}

fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn service(world: &mut World, namespace: &str, name: &str, selector: &[(&str, &str)]) {
    world.workloads.services.push((namespace.into(), name.into(), pairs(selector)));
}

fn owner(kind: &str, uid: &str, controller: bool) -> Value {
    let version = if kind == "ReplicationController" { "v1" } else { "apps/v1" };
    json!({"owners": [{"apiVersion": version, "kind": kind, "name": uid, "uid": uid, "controller": controller}]})
}

fn selects(world: &mut World, uid: &str, selector: Value) {
    world.workloads.owners.insert(uid.into(), serde_json::from_value(selector).unwrap());
}

/// How many machines three small pods get under a hard default spread over hosts: three when it was injected.
#[track_caller]
fn machines(make: impl Fn(&mut World), spec: Value, expected: usize) {
    let mut world = World::new();
    default_spread(&mut world, labels::HOSTNAME, "DoNotSchedule");
    make(&mut world);
    let shown = spec.to_string();
    world.pods("web", 3, &all(&[json!({"requests": {"cpu": "10m"}}), spec]));
    assert_eq!(world.plan().claims.len(), expected, "{shown}");
}

#[test]
fn the_selector_of_the_workload_is_deduced() {
    for kind in ["ReplicaSet", "StatefulSet", "ReplicationController"] {
        machines(|w| selects(w, "u", json!({"matchLabels": {"app": "web"}})), owner(kind, "u", true), 3);
    }
    let by_expression = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]});
    machines(|w| selects(w, "u", by_expression.clone()), owner("ReplicaSet", "u", true), 3);
    machines(|w| selects(w, "u", json!({"matchLabels": {"app": "web"}})), owner("Job", "u", true), 1);
    machines(|w| selects(w, "u", json!({"matchLabels": {"app": "web"}})), owner("ReplicaSet", "u", false), 1);
    machines(|_| (), owner("ReplicaSet", "gone", true), 1);
    machines(|_| (), json!({}), 1);
}

#[test]
fn services_that_select_the_pod_count() {
    machines(|w| service(w, "default", "s", &[("app", "web")]), json!({}), 3);
    machines(|w| service(w, "default", "s", &[("app", "other")]), json!({}), 1);
    machines(|w| service(w, "default", "s", &[]), json!({}), 1);
    machines(|w| service(w, "other", "s", &[("app", "web")]), json!({}), 1);
    let two = |w: &mut World| {
        service(w, "default", "a", &[("app", "web")]);
        service(w, "default", "b", &[("tier", "x")]);
    };
    machines(two, json!({"labels": {"app": "web", "tier": "x"}}), 3);
}

#[test]
fn services_and_owners_are_joined() {
    let both = |selector: Value| {
        move |w: &mut World| {
            service(w, "default", "s", &[("app", "web")]);
            selects(w, "u", selector.clone());
        }
    };
    let fitting = || json!({"matchLabels": {"app": "web"}});
    let clash = || json!({"matchLabels": {"app": "else"}});
    machines(both(fitting()), owner("ReplicaSet", "u", true), 3);
    machines(both(clash()), owner("ReplicaSet", "u", true), 1);
    machines(both(clash()), owner("ReplicationController", "u", true), 1);
}

#[test]
fn deductions_are_not_shared_between_different_pods() {
    let mut world = World::new();
    default_spread(&mut world, labels::HOSTNAME, "DoNotSchedule");
    service(&mut world, "default", "s", &[("app", "web")]);
    world.pods("web", 2, &json!({"requests": {"cpu": "10m"}}));
    world.pods("free", 2, &json!({"requests": {"cpu": "10m"}}));
    world.pods("web", 2, &json!({"requests": {"cpu": "10m"}, "namespace": "other"}));
    assert_eq!(sizes(&world.plan()).len(), 2);
}

#[test]
fn pods_with_constraints_of_their_own_are_left_as_they_are() {
    let own = json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, "web", 3)]});
    machines(|w| service(w, "default", "s", &[("app", "web")]), own, 1);
    let mut world = World::new();
    service(&mut world, "default", "s", &[("app", "web")]);
    world.pods("web", 3, &json!({"requests": {"cpu": "10m"}}));
    assert_eq!(world.plan().claims.len(), 1, "no defaults");
}

#[test]
fn default_spreads_are_hard_or_soft_as_they_say_and_count_what_runs() {
    let zoned = |key: &str, action: &str| {
        let mut world = World::new();
        default_spread(&mut world, key, action);
        service(&mut world, "default", "s", &[("app", "web")]);
        world.pods("web", 3, &json!({"cpu": "1"}));
        world.pass();
        world.pods("web", 3, &json!({"cpu": "1"}));
        world.pass();
        world
    };
    assert_eq!(zoned(labels::ZONE, "DoNotSchedule").counts(labels::ZONE, "web"), [2, 2, 2]);
    assert_eq!(zoned(labels::ZONE, "ScheduleAnyway").counts(labels::ZONE, "web"), [2, 2, 2]);
    let placed = |world: World| world.objects.pods.iter().filter(|p| p.is_bound()).count();
    assert_eq!(placed(zoned("unknown", "DoNotSchedule")), 0);
    assert_eq!(placed(zoned("unknown", "ScheduleAnyway")), 6, "dropped");
}

#[test]
fn each_revision_spreads_alone() {
    let mut world = World::new();
    default_spread(&mut world, labels::HOSTNAME, "DoNotSchedule");
    for revision in ["a", "b"] {
        selects(&mut world, revision, json!({"matchLabels": {"app": "web", "hash": revision}}));
        let labelled = json!({"requests": {"cpu": "10m"}, "labels": {"app": "web", "hash": revision}});
        world.pods("web", 2, &all(&[labelled, owner("ReplicaSet", revision, true)]));
    }
    assert_eq!(sizes(&world.plan()), [2, 2]);
}

#[test]
fn min_domains_and_policies_of_a_default_are_kept_for_every_pod() {
    let mut world = World::new();
    default_spread(&mut world, labels::ZONE, "DoNotSchedule");
    world.options.default_spread[0].min_domains = Some(4);
    service(&mut world, "default", "s", &[("app", "web")]);
    world.pods("web", 5, &json!({"requests": {"cpu": "10m"}}));
    assert_eq!(left(&world.plan()).len(), 2, "one in each of three zones");
}

#[test]
fn pretend_pods_reserve_room_like_real_ones() {
    let buffer = |name: &str, replicas: i32, ready: bool| {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")}, "spec": {},
            "status": {"replicas": replicas, "conditions": [{"type": "ReadyForProvisioning", "status": status, "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
        .unwrap()
    };
    let mut template = super::world::pod(
        "template",
        json!({"cpu": "3", "nodeName": "old", "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "x"}}]}),
    );
    let template = whittle_api::k8s::PodTemplate { metadata: std::mem::take(&mut template.metadata), spec: template.spec };
    let mut world = World::new();
    world.virtual_pods = whittle_model::pods::virtual_pods(&buffer("b", 2, true), &template);
    assert_eq!(
        world.virtual_pods.iter().map(|p| p.metadata.name.as_str()).collect::<Vec<_>>(),
        ["capacity-buffer-b-1", "capacity-buffer-b-2"]
    );
    assert_eq!(world.plan().scheduled(), 2);
    assert!(world.virtual_pods.iter().all(whittle_model::pods::is_virtual));
    assert_eq!(world.virtual_pods[1].metadata.key(), "default/capacity-buffer-b-2");
    for missing in [whittle_model::pods::FAKE_POD, whittle_model::pods::BUFFER_NAME, whittle_model::pods::BUFFER_NAMESPACE] {
        let mut partly = world.virtual_pods[0].clone();
        partly.metadata.annotations.insert(missing.into(), String::new());
        assert!(!whittle_model::pods::is_virtual(&partly), "{missing} is empty");
        partly.metadata.annotations.remove(missing);
        assert!(!whittle_model::pods::is_virtual(&partly), "without {missing}");
    }
    assert!(!whittle_model::pods::is_virtual(&super::world::pod("real", json!({}))));
    for (replicas, ready) in [(0, true), (-3, true), (2, false)] {
        assert!(whittle_model::pods::virtual_pods(&buffer("b", replicas, ready), &template).is_empty());
    }
}

#[test]
fn what_a_limit_leaves_goes_to_real_pods_before_buffers() {
    for packing in [Packing::Best, Packing::Reference] {
        let mut world = World::new();
        world.options.packing = packing;
        world.pool("default", json!({"limits": {"cpu": "4"}}));
        world.pod("small", json!({"requests": {"cpu": "1500m"}}));
        let mut pretend = super::world::pod("pretend", json!({"requests": {"cpu": "3"}}));
        for key in [whittle_model::pods::FAKE_POD, whittle_model::pods::BUFFER_NAME, whittle_model::pods::BUFFER_NAMESPACE] {
            pretend.metadata.annotations.insert(key.into(), "true".into());
        }
        world.virtual_pods = vec![pretend];
        let plan = world.plan();
        let left: Vec<_> = plan.left_out.iter().map(|left| left.pod.name.as_str()).collect();
        // Karpenter takes the larger one first, whatever it is.
        assert_eq!(left, [if packing == Packing::Best { "pretend" } else { "small" }], "{packing:?}");
    }
}

/// A reservation `id` of this many machines of a type, in the first zone.
fn reserve(world: &mut World, pool: Option<&str>, of: &str, id: &str, free: u32) {
    if let Some(pool) = pool {
        world.types_of.entry(pool.into()).or_insert_with(|| world.types.clone());
    }
    let types = pool.map_or(&mut world.types, |p| world.types_of.get_mut(p).unwrap());
    for t in types.iter_mut() {
        if t.name == of {
            let mut reserved: Offering = offering("reserved", Z[0], 10);
            reserved.requirements.push(Requirement::is_in(labels::RESERVATION_ID, [id]));
            reserved.reservation_capacity = Some(free);
            t.offerings.push(reserved);
        }
        for (key, value) in [(labels::CAPACITY_TYPE, "reserved"), (labels::RESERVATION_ID, id)] {
            if t.name == of {
                match t.requirements.iter_mut().find(|r| r.key == key && !r.values.is_empty()) {
                    Some(r) => r.values.push(value.to_owned()),
                    None => {
                        t.requirements.retain(|r| r.key != key);
                        t.requirements.push(Requirement::is_in(key, [value]));
                    }
                }
            }
        }
    }
}

/// Launches each claim from the first reservation that it holds, which then has one machine fewer.
fn launch_reserved(world: &mut World) -> Vec<String> {
    let plan = world.pass();
    let types: Vec<String> = (0..plan.claims.len()).map(|n| asks(&plan, n, labels::CAPACITY_TYPE)).collect();
    let first = |c: &whittle_model::scheduling::NewClaim| {
        c.requirements.iter().find(|r| r.key == labels::RESERVATION_ID).map(|r| r.values[0].clone())
    };
    let ids: Vec<String> = plan.claims.iter().filter_map(first).collect();
    let own = world.types_of.values_mut().flatten();
    for offer in world.types.iter_mut().chain(own).flat_map(|t| &mut t.offerings) {
        let taken = ids.iter().filter(|id| offer.label(labels::RESERVATION_ID) == Some(id)).count();
        if let Some(free) = &mut offer.reservation_capacity {
            *free = free.saturating_sub(u32::try_from(taken).unwrap());
            offer.available = *free > 0;
        }
    }
    let mut out: Vec<String> = types.into_iter().map(|t| if t == "In [reserved]" { "reserved".into() } else { "bought".into() }).collect();
    out.sort();
    out
}

fn alone() -> Value {
    all(&[json!({"requests": {"cpu": "10m"}}), hard("podAntiAffinity", near(labels::HOSTNAME, "web"))])
}

#[test]
fn a_claim_that_holds_a_reservation_is_pinned_to_it() {
    let mut world = World::new();
    reserve(&mut world, None, "default-instance-type", "cr-1", 2);
    world.pods("web", 3, &json!({"requests": {"cpu": "10m"}}));
    let plan = world.plan();
    assert_eq!(sizes(&plan), [3], "all pods share one reserved machine");
    assert_eq!(
        (asks(&plan, 0, labels::CAPACITY_TYPE), asks(&plan, 0, labels::RESERVATION_ID)),
        ("In [reserved]".into(), "In [cr-1]".into())
    );
    let mut gated = world.clone();
    gated.options.reserved_capacity = false;
    assert_ne!(asks(&gated.solve(&gated.options), 0, labels::RESERVATION_ID), "In [cr-1]");
}

/// A world with a reservation for machines of this tenancy.
fn with_reservation(tenancy: &str) -> World {
    let mut world = World::new();
    reserve(&mut world, None, "default-instance-type", "cr-1", 1);
    for t in &mut world.types {
        t.requirements.push(Requirement::is_in(labels::INSTANCE_TENANCY, ["dedicated", "default"]));
        for offer in t.offerings.iter_mut().filter(|offer| offer.reservation_capacity.is_some()) {
            offer.requirements.push(Requirement::is_in(labels::INSTANCE_TENANCY, [tenancy]));
        }
    }
    world
}

/// EC2 starts no machine of another tenancy in a reservation, and whoever names none gets default tenancy.
#[test]
fn a_reservation_is_for_pods_that_may_be_on_machines_of_its_tenancy() {
    let cases = [
        ("default", Some("dedicated"), false),
        ("dedicated", Some("default"), false),
        ("default", Some("default"), true),
        ("dedicated", Some("dedicated"), true),
        ("default", None, true),
        ("dedicated", None, false),
    ];
    for (tenancy, asked, is_reserved) in cases {
        let mut world = with_reservation(tenancy);
        let selector = asked.map_or_else(|| json!({}), |asked| json!({"nodeSelector": {labels::INSTANCE_TENANCY: asked}}));
        world.pods("web", 1, &all(&[json!({"requests": {"cpu": "10m"}}), selector]));
        let plan = world.plan();
        assert_eq!(sizes(&plan), [1]);
        assert_eq!(asks(&plan, 0, labels::CAPACITY_TYPE) == "In [reserved]", is_reserved, "{tenancy} for {asked:?}");
    }
}

/// Nor is it a domain of their spread, which would bound it for good.
#[test]
fn a_reservation_for_dedicated_machines_is_no_domain_of_pods_that_get_none() {
    let mut world = with_reservation("dedicated");
    world.pods("web", 4, &json!({"requests": {"cpu": "10m"}, "topologySpreadConstraints": [spread(labels::CAPACITY_TYPE, "web", 1)]}));
    world.pass();
    assert_eq!(world.counts(labels::CAPACITY_TYPE, "web"), [2, 2]);
}

#[test]
fn reservations_are_used_pass_by_pass_before_anything_is_bought() {
    let mut world = World::new();
    reserve(&mut world, None, "default-instance-type", "cr-1", 1);
    reserve(&mut world, None, "default-instance-type", "cr-2", 2);
    world.pods("web", 4, &alone());
    let passes: Vec<Vec<String>> = (0..4).map(|_| launch_reserved(&mut world)).collect();
    assert_eq!(passes, [vec!["reserved", "reserved"], vec!["reserved"], vec!["bought"], vec![]]);
    // Two types with one each, and pods that fit either: a claim holds both until it is launched.
    let mut world = World::new();
    reserve(&mut world, None, "small-instance-type", "cr-small", 1);
    reserve(&mut world, None, "default-instance-type", "cr-medium", 1);
    world.pods("web", 3, &all(&[json!({"requests": {"cpu": "10m"}}), hard("podAntiAffinity", near(labels::HOSTNAME, "web"))]));
    let first = world.solve(&world.options);
    assert_eq!((first.claims.len(), left(&first).len(), asks(&first, 0, labels::RESERVATION_ID)), (1, 2, "In [cr-medium cr-small]".into()));
    let passes: Vec<Vec<String>> = (0..4).map(|_| launch_reserved(&mut world)).collect();
    assert_eq!(passes, [vec!["reserved"], vec!["reserved"], vec!["bought"], vec![]]);
}

#[test]
fn a_reservation_is_held_once_and_given_back_by_a_claim_that_outgrows_it() {
    let mut world = World::new();
    reserve(&mut world, None, "small-instance-type", "cr-small", 1);
    reserve(&mut world, None, "default-instance-type", "cr-medium", 1);
    // The second pod joins the first on what has room for both; the third then finds the small reservation free again.
    world.pods("first", 1, &json!({"cpu": "1500m"}));
    world.pods("second", 1, &json!({"cpu": "1200m"}));
    world.pods("third", 1, &json!({"cpu": "1100m", "nodeSelector": {labels::INSTANCE_TYPE: "small-instance-type"}}));
    let plan = world.solve(&world.options);
    assert_eq!(left(&plan), Vec::<&str>::new());
    let mut ids: Vec<String> = (0..plan.claims.len()).map(|n| asks(&plan, n, labels::RESERVATION_ID)).collect();
    ids.sort();
    assert_eq!(ids, ["In [cr-medium]", "In [cr-small]"]);
    // More pods on the same machine take no more of it.
    let mut world = World::new();
    reserve(&mut world, None, "default-instance-type", "cr-medium", 2);
    let two = all(&[json!({"requests": {"cpu": "10m"}}), json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, "web", 2)]})]);
    world.pods("web", 4, &two);
    assert_eq!(sizes(&world.plan()), [2, 2]);
}

#[test]
fn a_pod_that_waits_for_a_reservation_has_that_reason_and_is_placed_in_the_next_pass() {
    let mut world = World::new();
    reserve(&mut world, None, "default-instance-type", "cr-1", 1);
    world.pool("second", json!({}));
    world.pods("web", 2, &alone());
    let plan = world.solve(&world.options);
    assert_eq!((plan.claims.len(), left(&plan).len()), (1, 1));
    assert!(reasons(&plan)[0].contains("compatible reserved offerings are available, but could not be reserved"), "{:?}", reasons(&plan));
    assert_eq!(launch_reserved(&mut world.clone()), ["reserved"]);
    launch_reserved(&mut world);
    assert_eq!(launch_reserved(&mut world), ["bought"]);
    let mut world = World::new();
    reserve(&mut world, None, "default-instance-type", "cr-1", 1);
    world.pods("web", 2, &alone());
    let fallback = Options { reserved: ReservedMode::Fallback, ..world.options.clone() };
    assert_eq!(world.solve(&fallback).claims.len(), 2, "a simulation goes on with what can be bought");
}

#[test]
fn pools_use_their_own_reservations_and_heavier_ones_first() {
    let mut world = World::new();
    world.pool("default", json!({"weight": 50}));
    world.pool("light", json!({}));
    reserve(&mut world, Some("default"), "default-instance-type", "cr-heavy", 1);
    reserve(&mut world, Some("light"), "default-instance-type", "cr-light", 1);
    world.pods("web", 2, &alone());
    let first = world.solve(&world.options);
    assert_eq!(
        (first.claims.len(), first.claims[0].node_pool.as_str()),
        (1, "default"),
        "the other waits, although the light pool has one"
    );
    launch_reserved(&mut world);
    let second = world.solve(&world.options);
    assert_eq!((second.claims[0].node_pool.as_str(), asks(&second, 0, labels::RESERVATION_ID)), ("default", "-".into()));
    // The same where a preference, not a weight, puts one NodePool first: it is not dropped for the other's reservation.
    let mut world = World::new();
    world.pool("other", json!({}));
    reserve(&mut world, Some("default"), "default-instance-type", "cr-a", 1);
    reserve(&mut world, Some("other"), "default-instance-type", "cr-b", 1);
    world.pods("web", 2, &all(&[alone(), super::world::preferred(&[(1, super::world::expr(labels::NODE_POOL, "In", &["default"]))])]));
    for expected in [vec!["reserved"], vec!["bought"]] {
        assert_eq!(launch_reserved(&mut world), expected);
    }
    let pools: Vec<&str> = world.objects.nodes.iter().filter_map(|n| n.metadata.label(labels::NODE_POOL)).collect();
    assert_eq!(pools, ["default", "default"]);
    let mut world = World::new();
    world.pool("light", json!({}));
    reserve(&mut world, Some("default"), "default-instance-type", "cr-a", 1);
    reserve(&mut world, Some("light"), "default-instance-type", "cr-b", 1);
    for pool in ["default", "light"] {
        world.pods("web", 1, &all(&[alone(), json!({"nodeSelector": {labels::NODE_POOL: pool}})]));
    }
    assert_eq!(launch_reserved(&mut world), ["reserved", "reserved"]);
}

#[test]
fn a_reservation_that_two_pools_share_is_promised_once() {
    let mut world = World::new();
    world.pool("light", json!({}));
    reserve(&mut world, None, "default-instance-type", "cr-1", 1);
    for pool in ["default", "light"] {
        world.pods("web", 1, &all(&[alone(), json!({"nodeSelector": {labels::NODE_POOL: pool}})]));
    }
    assert_eq!(launch_reserved(&mut world), ["reserved"]);
    assert_eq!(launch_reserved(&mut world), ["bought"]);
}

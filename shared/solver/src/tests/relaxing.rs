//! Which preferences are dropped, and in which order.

use super::world::{World, Z, all, asks, expr, hard, left, near, one, preferred, reasons, required, sizes, soft, spread};
use crate::relaxation::RELAXATIONS_MAX;
use serde_json::json;
use whittle_api::labels;
use whittle_model::scheduling::PreferencePolicy;

fn zone(zones: &[&str]) -> serde_json::Value {
    expr(labels::ZONE, "In", zones)
}

#[test]
fn the_last_alternative_of_a_required_affinity_is_never_dropped() {
    assert_eq!(one(json!({}), required(&[&[zone(&["invalid"])]]), labels::ZONE), None);
    let four = required(&[&[zone(&["invalid"])], &[zone(&["invalid"])], &[zone(&[Z[0]])], &[zone(&[Z[1]])]]);
    assert_eq!(one(json!({}), four, labels::ZONE).as_deref(), Some(Z[0]));
}

#[test]
fn each_alternative_is_tried_without_preferences_before_a_pod_is_given_up() {
    fn pod(terms: &[&[serde_json::Value]]) -> serde_json::Value {
        all(&[required(terms), preferred(&[(1, expr(labels::INSTANCE_TYPE, "In", &["none"]))])])
    }
    let placed = |spec| one(json!({}), spec, labels::ZONE);
    assert_eq!(placed(pod(&[&[zone(&[Z[1]])], &[zone(&["x"])]])).as_deref(), Some(Z[1]));
    assert_eq!(placed(pod(&[&[zone(&["x"])], &[zone(&[Z[2]])], &[zone(&["y"])]])).as_deref(), Some(Z[2]));
    assert_eq!(placed(pod(&[&[zone(&[Z[1]])], &[zone(&[Z[2]])]])).as_deref(), Some(Z[2]), "Karpenter's choice is the last one");
    let mut world = World::new();
    world.pod("it", pod(&[&[zone(&["x"])], &[zone(&["y"])]]));
    let plan = world.plan();
    assert_eq!(left(&plan).len(), 1, "none is made up");
    assert!(reasons(&plan)[0].contains("In [y]"), "the reason is about the last: {:?}", reasons(&plan));
}

#[test]
fn each_alternative_comes_to_tolerate_soft_taints() {
    let taint = json!([{"key": "example.com/taint", "value": "v", "effect": "PreferNoSchedule"}]);
    let mut world = World::new();
    world.pool("tainted", json!({"taints": taint}));
    world.objects.node_pools.retain(|pool| pool.metadata.name == "tainted");
    world.pod("it", required(&[&[zone(&[Z[1]])], &[zone(&["x"])]]));
    world.pass();
    assert_eq!(world.label_of("it", labels::ZONE), Some(Z[1]));
}

#[test]
fn an_empty_term_of_a_required_affinity_matches_no_node() {
    let first = required(&[&[], &[zone(&[Z[1]])], &[]]);
    assert_eq!(one(json!({}), first, labels::ZONE).as_deref(), Some(Z[1]), "only the term with an expression counts");
    assert_eq!(one(json!({}), required(&[&[zone(&["invalid"])], &[]]), labels::ZONE), None, "an empty term is no way out");
    let mut world = World::new();
    world.pod("it", required(&[&[], &[]]));
    world.node("n", 8, json!({}));
    let plan = world.plan();
    assert!(plan.claims.is_empty() && plan.placements.is_empty());
    assert!(reasons(&plan)[0].contains("an empty term matches no node"), "{:?}", reasons(&plan));
}

#[test]
fn preferences_are_dropped_from_the_heaviest_down() {
    let impossible = preferred(&[(1, zone(&["x"])), (1, expr(labels::INSTANCE_TYPE, "In", &["x"]))]);
    assert!(one(json!({}), impossible, labels::ZONE).is_some());
    let pool = || json!({"requirements": [zone(&Z[..2])]});
    let preferences = preferred(&[(1, zone(&[Z[0]])), (100, zone(&["x"])), (50, zone(&[Z[1]]))]);
    assert_eq!(one(pool(), preferences, labels::ZONE).as_deref(), Some(Z[1]));
    let against = all(&[required(&[&[zone(&[Z[1]])]]), preferred(&[(1, zone(&[Z[0]]))])]);
    assert_eq!(one(pool(), against, labels::ZONE).as_deref(), Some(Z[1]));
    let term = json!({"weight": 1, "preference": {"matchExpressions": [zone(&[Z[0]]), zone(&[Z[1]])]}});
    let contradictory = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}});
    assert!(one(pool(), contradictory, labels::ZONE).is_some());
}

/// Nobody looks at the values in preferences before they come here: not the API server, and not the checks of pods.
#[test]
fn a_preference_for_what_is_no_label_value_is_dropped_and_never_reaches_a_machine() {
    for odd in ["v,karpenter.sh/nodepool=other", "x' --anonymous-auth=true '", "$(id)", "a\nb"] {
        let prefers = preferred(&[(100, expr("team", "In", &[odd]))]);
        // A NodePool that leaves the value to its pods, and one without the label, which another pod of the machine has named.
        for pool in [json!({"requirements": [expr("team", "Exists", &[])]}), json!({})] {
            let mut world = World::new();
            world.pool("default", pool);
            world.pod("other", all(&[json!({"cpu": "2"}), required(&[&[expr("team", "NotIn", &["b"])]])]));
            world.pod("it", all(&[json!({"cpu": "1"}), prefers.clone()]));
            let plan = world.plan();
            assert!(left(&plan).is_empty(), "{odd:?}: {:?}", reasons(&plan));
            for claim in &plan.claims {
                assert!(claim.labels.values().all(|value| value != odd), "{:?}", claim.labels);
                let values = claim.requirements.iter().flat_map(|requirement| &requirement.values);
                assert_eq!(values.filter(|value| *value == odd).count(), 0, "{:?}", claim.requirements);
            }
        }
    }
    let fallback = preferred(&[(100, expr("team", "In", &["a b"])), (1, expr("team", "In", &["c"]))]);
    let pool = json!({"requirements": [expr("team", "Exists", &[])]});
    assert_eq!(one(pool, fallback, "team").as_deref(), Some("c"), "the next preference counts");
}

#[test]
fn soft_taints_are_tolerated_last_and_only_if_a_pool_has_them() {
    let taint = json!([{"key": "example.com/taint", "value": "v", "effect": "PreferNoSchedule"}]);
    let preference = preferred(&[(1, zone(&["x"]))]);
    assert!(one(json!({"taints": taint}), preference.clone(), labels::ZONE).is_some());
    let mut world = World::new();
    world.pool("tainted", json!({"taints": taint, "weight": 100}));
    world.pod("it", json!({}));
    assert_eq!(world.plan().claims[0].node_pool, "default", "the clean pool wins over the heavier one");
    // A preference that only the tainted NodePool could satisfy is dropped before its taint is tolerated.
    world.pool("tainted", json!({"taints": taint, "weight": 100, "requirements": [zone(&[Z[1]])]}));
    world.pool("default", json!({"requirements": [zone(&[Z[0]])]}));
    world.objects.pods.clear();
    world.pod("it", preferred(&[(1, zone(&[Z[1]]))]));
    assert_eq!(world.plan().claims[0].node_pool, "default");
    world.objects.node_pools.retain(|p| p.metadata.name == "tainted");
    assert_eq!(world.plan().claims[0].node_pool, "tainted");
    let mut world = World::new();
    world.node("soft", 8, json!({})).spec.taints = serde_json::from_value(taint).unwrap();
    world.pod("it", json!({}));
    assert_eq!(world.plan().claims.len(), 1, "no pool has such a taint, so nodes with one are left alone");
}

#[test]
fn the_zone_of_a_volume_is_no_preference() {
    let mut world = World::new();
    super::volumes::bound(&mut world, "data", Z[1]);
    world.pod(
        "it",
        all(&[json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}), preferred(&[(1, zone(&[Z[0]]))])]),
    );
    world.pass();
    assert_eq!(world.label_of("it", labels::ZONE), Some(Z[1]));
}

#[test]
fn a_preferred_zone_does_not_shrink_the_domains_of_other_constraints() {
    let preference = preferred(&[(1, zone(&[Z[0]]))]);
    let mut world = World::new();
    let by_zone = json!({"cpu": "1", "topologySpreadConstraints": [spread(labels::ZONE, "web", 1)]});
    world.pods("web", 6, &all(&[by_zone, preference.clone()]));
    world.pass();
    assert_eq!(world.counts(labels::ZONE, "web"), [2, 2, 2]);
    let mut world = World::new();
    world.pods("web", 3, &all(&[hard("podAntiAffinity", near(labels::HOSTNAME, "web")), preference.clone()]));
    world.pass();
    assert_eq!(world.counts(labels::HOSTNAME, "web"), [1, 1, 1]);
    // Hosts are apart in the preferred zone; preferences about other pods are dropped before it.
    let by_host = json!({"topologySpreadConstraints": [spread(labels::HOSTNAME, "web", 1)]});
    for (beside, hosts) in [
        (by_host, 3),
        (soft("podAntiAffinity", near(labels::HOSTNAME, "web")), 3),
        (soft("podAntiAffinity", near(labels::ZONE, "web")), 1),
        (soft("podAffinity", near(labels::ZONE, "far")), 1),
    ] {
        let mut world = World::new();
        world.pods("far", 1, &json!({"cpu": "3", "nodeSelector": {labels::ZONE: Z[2]}}));
        world.pods("web", 3, &all(&[json!({"requests": {"cpu": "10m"}}), beside.clone(), preference.clone()]));
        world.pass();
        assert_eq!((world.counts(labels::ZONE, "web"), world.counts(labels::HOSTNAME, "web").len()), (vec![3], hosts), "{beside}");
        assert_eq!(world.label_of("web-1", labels::ZONE), Some(Z[0]), "{beside}");
    }
}

#[test]
fn ignored_preferences_have_no_effect() {
    let mut world = World::new();
    world.options.preferences = PreferencePolicy::Ignore;
    let plain = |world: &World, spec: serde_json::Value| {
        let mut world = world.clone();
        world.pods("web", 3, &all(&[json!({"cpu": "10m"}), spec]));
        world.pass();
        (world.counts(labels::HOSTNAME, "web"), world.label_of("web-0", labels::ZONE).map(str::to_owned))
    };
    let (hosts, zone) = plain(&world, preferred(&[(1, zone(&[Z[2]]))]));
    assert_eq!((hosts, zone.as_deref()), (vec![3], Some(Z[0])));
    for key in [labels::ZONE, labels::HOSTNAME] {
        let mut anyway = spread(key, "web", 1);
        anyway["whenUnsatisfiable"] = json!("ScheduleAnyway");
        assert_eq!(plain(&world, json!({"topologySpreadConstraints": [anyway]})).0, [3], "{key}");
        assert_eq!(plain(&world, soft("podAntiAffinity", near(key, "web"))).0, [3], "{key}");
    }
    world.node("far", 8, json!({labels::ZONE: Z[2]}));
    world.pods("db", 1, &json!({}));
    world.bind("db", "far");
    world.objects.nodes[0].spec.taints = serde_json::from_value(json!([{"key": "full", "effect": "NoSchedule"}])).unwrap();
    world.pods("web", 1, &soft("podAffinity", near(labels::ZONE, "db")));
    world.pass();
    assert_eq!(world.counts(labels::ZONE, "web"), [1]);
    assert_eq!(world.label_of("web-1", labels::ZONE), Some(Z[0]), "the affinity is only a preference");
}

#[test]
fn preferences_are_dropped_in_the_documented_order() {
    // Every kind of preference at once: each is impossible, so all are dropped, and the pod keeps what is required.
    let mut anyway = spread("undefined", "web", 1);
    anyway["whenUnsatisfiable"] = json!("ScheduleAnyway");
    let spec = all(&[
        required(&[&[zone(&["x"])], &[zone(&[Z[1]])]]),
        preferred(&[(7, zone(&["y"]))]),
        soft("podAffinity", near(labels::ZONE, "nobody")),
        soft("podAntiAffinity", near("undefined", "web")),
        json!({"topologySpreadConstraints": [anyway], "labels": {"app": "web"}}),
    ]);
    assert_eq!(one(json!({}), spec, labels::ZONE).as_deref(), Some(Z[1]));
}

/// Karpenter puts a negative number onto the NodeClaim, which the API server refuses, each time anew.
#[test]
fn a_preference_for_numbers_that_no_label_can_be_is_dropped() {
    let made = |operator: &str, bound: &str| {
        let mut world = World::new();
        world.pool("default", json!({"requirements": [expr("tier", "Exists", &[])]}));
        world.pod("it", preferred(&[(1, expr("tier", operator, &[bound]))]));
        let plan = world.plan();
        (asks(&plan, 0, "tier"), plan.claims[0].labels["tier"].clone())
    };
    let of = |asked: &str, label: &str| (asked.to_owned(), label.to_owned());
    assert_eq!(made("Gt", "4"), of("Exists >=5", "5"));
    assert_eq!(made("Gt", "-5"), of("Exists >=0", "0"), "any number will do");
    for (operator, bound) in [("Lt", "0"), ("Lte", "-3"), ("Gt", "high")] {
        assert_eq!(made(operator, bound), of("Exists", "0"), "{operator} {bound}: dropped");
    }
}

/// One for each number around the most that are tried one after the other: none may keep the solver from ending.
#[test]
fn however_many_preferences_or_alternatives_a_pod_has_it_is_placed_without_them() {
    for count in RELAXATIONS_MAX - 2..=RELAXATIONS_MAX + 2 {
        let nowhere = |nth: usize| zone(&[format!("z{nth}").as_str()]);
        let preferences: Vec<_> = (0..count).map(|nth| (1, nowhere(nth))).collect();
        assert!(one(json!({}), preferred(&preferences), labels::ZONE).is_some(), "{count} preferences");
        let mut terms: Vec<_> = (1..count).map(|nth| [nowhere(nth)]).collect();
        terms.push([zone(&[Z[1]])]);
        let terms: Vec<&[serde_json::Value]> = terms.iter().map(|term| &term[..]).collect();
        assert_eq!(one(json!({}), required(&terms), labels::ZONE).as_deref(), Some(Z[1]), "{count} alternatives");
    }
}

#[test]
fn a_preference_is_tried_again_when_another_pod_made_it_possible() {
    let mut world = World::new();
    world.pods("small", 1, &all(&[json!({"cpu": "2"}), soft("podAffinity", near(labels::HOSTNAME, "large"))]));
    world.pods("large", 1, &json!({"cpu": "1"}));
    let plan = world.plan();
    assert!(left(&plan).is_empty());
    assert_eq!(sizes(&plan).iter().sum::<usize>(), 2);
}

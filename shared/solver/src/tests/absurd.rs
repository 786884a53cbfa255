//! Absurd pods: explained, never a panic, and never at the cost of the others.

use super::world::{World, all, expr, hard, left, near, reasons, required, soft};
use crate::{assemble, meter, shares};
use serde_json::{Value, json};
use whittle_api::labels;
use whittle_model::scheduling::{Options, Packing};

/// Plans `odd` next to twenty ordinary pods: those are placed, with hardly more work than without it.
#[track_caller]
fn beside(odd: Value, expected: Option<&str>) {
    let mut world = World::new();
    world.pods("good", 20, &json!({"cpu": "1"}));
    let alone = world.solve(&world.options).work;
    world.pod("odd", odd);
    for packing in [Packing::Reference, Packing::Best] {
        let plan = world.solve(&Options { packing, ..world.options.clone() });
        match expected {
            None => assert!(left(&plan).is_empty(), "{:?}", reasons(&plan)),
            Some(text) => {
                assert_eq!(left(&plan), ["odd"]);
                assert!(reasons(&plan)[0].contains(text), "{:?}", reasons(&plan));
            }
        }
    }
    let work = world.solve(&world.options).work;
    assert!(work < alone + 400, "{work} instead of {alone}");
}

fn many(kind: &str, count: usize) -> Value {
    let terms: Vec<Value> = (0..count).map(|n| near(labels::ZONE, &format!("app-{n}"))).collect();
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn ten_thousand_terms_are_refused_by_their_number() {
    beside(many("podAntiAffinity", 10_000), Some("it has 10000 terms about other pods: at most 1000 are looked at"));
    beside(many("podAffinity", 10_000), Some("it has 10000 terms about other pods"));
    let expression = expr(labels::ZONE, "In", &["x"]);
    let terms: Vec<&[Value]> = (0..10_000).map(|_| std::slice::from_ref(&expression)).collect();
    beside(required(&terms), Some("it has 10000 terms of node affinity: at most 5000 are looked at"));
    beside(many("podAntiAffinity", 200), None);
}

fn requires(terms: &[Value]) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
}

fn prefers(terms: &[Value]) -> Value {
    let terms: Vec<Value> = terms.iter().map(|term| json!({"weight": 1, "podAffinityTerm": term})).collect();
    json!({"preferredDuringSchedulingIgnoredDuringExecution": terms})
}

/// Five ordinary pods, two hundred that run with labels of their own, and so many pods of another namespace, each with so many terms
/// of anti-affinity to pods of all namespaces, with this expression for each key.
fn crowded((pods, terms): (usize, usize), anti_affinity: fn(&[Value]) -> Value, expression: fn(String) -> Value) -> World {
    let mut world = World::new();
    world.node("n", 4, json!({}));
    for n in 0..200 {
        world.pod(&format!("runs-{n}"), json!({"labels": {"job": n.to_string()}, "nodeName": "n"})).status.phase = "Running".into();
    }
    world.pods("good", 5, &all(&[json!({"cpu": "1"}), hard("podAntiAffinity", near(labels::HOSTNAME, "good"))]));
    for pod in 0..pods {
        let term = |n: usize| {
            let selector = json!({"matchExpressions": [expression(format!("k-{pod}-{n}"))]});
            json!({"topologyKey": labels::HOSTNAME, "namespaceSelector": {}, "labelSelector": selector})
        };
        let terms: Vec<Value> = (0..terms).map(term).collect();
        let affinity = json!({"podAntiAffinity": anti_affinity(&terms)});
        world.pod(&format!("odd-{pod}"), json!({"cpu": "1", "namespace": "odd", "affinity": affinity}));
    }
    world
}

#[test]
fn selectors_that_look_at_every_pod_take_no_more_than_their_share() {
    let world = crowded((5, 1000), requires, |key| expr(&key, "DoesNotExist", &[]));
    // The rules of the first pod find room in the share of their namespace.
    let plan = world.solve(&world.options);
    assert_eq!(left(&plan), ["odd-1", "odd-2", "odd-3", "odd-4"]);
    let told = reasons(&plan);
    assert!(told.iter().all(|reason| reason.contains("more rules about other pods than can be looked at")), "{told:?}");
    let ticks = world.ask(|input| assemble::build(input, &world.options).meter.ticks());
    let most = (meter::SELECT * 2 * shares::most(202)) as u64;
    assert!(ticks < most, "{ticks} instead of {most}");
}

/// Without them the pods may go wherever they may with them.
#[test]
fn preferences_that_look_at_every_pod_are_dropped_beyond_the_share() {
    let world = crowded((50, 100), prefers, |key| expr(&key, "DoesNotExist", &[]));
    let plan = world.solve(&world.options);
    assert!(left(&plan).is_empty(), "{:?}", reasons(&plan));
}

#[test]
fn as_many_selectors_that_name_rare_values_are_all_looked_at() {
    let world = crowded((5, 1000), requires, |key| expr(&key, "In", &["rare"]));
    let plan = world.solve(&world.options);
    assert!(left(&plan).is_empty(), "{:?}", reasons(&plan));
}

/// A term of this many labels that no NodePool defines, each without `values` values, named after `name`.
fn excluding(name: &str, labels: usize, values: usize) -> Value {
    let values: Vec<String> = (0..values).map(|n| format!("{name}-{n}")).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let term: Vec<Value> = (0..labels).map(|n| expr(&format!("example.com/{name}-{n}"), "NotIn", &values)).collect();
    required(&[&term])
}

/// A claim takes over what its pods ask of labels, and one that is too large to be stored would hold up all others.
#[test]
fn more_labels_and_values_than_a_claim_can_hold_are_refused() {
    beside(excluding("many", 65, 1), Some("it has 65 constraints on labels"));
    beside(excluding("many", 1, 3001), Some("it has 3001 values"));
    beside(excluding("many", 64, 1), None);
    beside(excluding("many", 1, 3000), None);
}

#[test]
fn pods_that_ask_for_more_than_a_claim_can_hold_together_get_machines_apart() {
    for packing in [Packing::Reference, Packing::Best] {
        let mut world = World::new();
        world.options.packing = packing;
        for (name, labels, values) in [("a", 40, 1), ("b", 40, 1), ("c", 1, 2000), ("d", 1, 2000)] {
            world.pod(name, all(&[json!({"cpu": "10m"}), excluding(name, labels, values)]));
        }
        world.pods("good", 5, &json!({"cpu": "10m"}));
        let plan = world.solve(&world.options);
        assert!(left(&plan).is_empty(), "{:?}", reasons(&plan));
        assert_eq!(plan.claims.len(), 2, "{packing:?}");
        for claim in &plan.claims {
            let values = claim.requirements.iter().map(|requirement| requirement.values.len()).sum::<usize>();
            assert!(claim.requirements.len() <= 100 && values <= 3500, "{} with {values} values", claim.requirements.len());
        }
    }
}

#[test]
fn absurd_amounts_are_refused_or_do_not_fit() {
    beside(json!({"cpu": "-4"}), Some("a request cannot be negative"));
    beside(json!({"memory": "9223372036854775"}), Some("no instance type has enough resources"));
    beside(json!({"cpu": "1000000"}), Some("m vs M typo?"));
}

#[test]
fn no_container_makes_room_for_another_by_asking_for_less_than_nothing() {
    let part = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    beside(json!({"containers": [part("a", "5"), part("b", "-4")]}), Some("it requests -4 of cpu: a request cannot be negative"));
    beside(json!({"containers": [part("a", "1")], "initContainers": [part("i", "-4")]}), Some("a request cannot be negative"));
    beside(json!({"containers": [part("a", "1")], "overhead": {"cpu": "-4"}}), Some("a request cannot be negative"));
}

#[test]
fn daemons_that_ask_for_less_than_nothing_make_no_room() {
    let set = json!({"metadata": {"name": "odd", "namespace": "default"}, "spec": {"template": {"spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": "-4", "example.com/gpu": "-4"}}}]}}}});
    for packing in [Packing::Reference, Packing::Best] {
        let mut world = World::new();
        world.objects.daemon_sets.push(serde_json::from_value(set.clone()).unwrap());
        world.options.packing = packing;
        world.pool("default", json!({"requirements": [expr(labels::INSTANCE_TYPE, "In", &["default-instance-type"])]}));
        world.pods("it", 2, &json!({"cpu": "3"}));
        let plan = world.plan();
        assert_eq!(plan.claims.len(), 2, "four processors hold one of them, whatever the daemon says");
        assert_eq!(plan.claims[0].requests.get("cpu").to_string(), "3");
    }
}

#[test]
fn bound_pods_that_ask_for_less_than_nothing_make_no_room() {
    let mut world = World::new();
    world.objects.node_pools.clear();
    world.node("n", 2, json!({}));
    world.pod("odd", json!({"cpu": "-4", "nodeName": "n"})).status.phase = "Running".into();
    world.pod("it", json!({"cpu": "3"}));
    assert_eq!(left(&world.plan()), ["it"]);
}

#[test]
fn nonsense_about_nodes_is_named() {
    beside(required(&[&[expr("k", "Near", &["a"])]]), Some("unsupported operator Near"));
    beside(required(&[&[expr("k", "In", &[])]]), Some("operator In must have a value"));
    beside(required(&[&[expr("k", "Gt", &["a"])]]), Some("must have a single integer value"));
    beside(required(&[&[expr("a b", "Exists", &[])]]), Some("is not a qualified label name"));
    beside(required(&[&[expr("k", "In", &["a"]), expr("k", "NotIn", &["a"])]]), Some("incompatible requirements"));
    beside(json!({"nodeSelector": {"k": "no label value!"}}), Some("is not a label value"));
}

#[test]
fn circular_preferences_end() {
    let mut world = World::new();
    for (app, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let preference = all(&[soft("podAffinity", near(labels::HOSTNAME, next)), soft("podAntiAffinity", near(labels::HOSTNAME, next))]);
        world.pods(app, 2, &preference);
    }
    assert!(left(&world.plan()).is_empty());
    let mut world = World::new();
    for (app, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        world.pods(app, 2, &hard("podAffinity", near(labels::ZONE, next)));
    }
    let plan = world.plan();
    assert_eq!(left(&plan).len(), 6, "no pod has a place yet");
    assert!(reasons(&plan).iter().all(|r| r.contains("unsatisfiable topology constraint for pod affinity")));
    let mut world = World::new();
    world.pods(
        "alone",
        2,
        &all(&[hard("podAffinity", near(labels::HOSTNAME, "alone")), hard("podAntiAffinity", near(labels::HOSTNAME, "alone"))]),
    );
    assert_eq!(left(&world.plan()).len(), 1, "the second wants and shuns the same");
}

//! Pods that nobody means: explained, never a panic, and never at the cost of the others.

use super::world::{World, all, expr, hard, left, near, reasons, required, soft};
use crate::schedule::{Options, Packing};
use serde_json::{Value, json};
use whittle_api::labels;

/// Plans `odd` beside twenty ordinary pods: those are placed, with hardly more work than without it.
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

#[test]
fn absurd_amounts_are_refused_or_do_not_fit() {
    beside(json!({"cpu": "-4"}), Some("a request cannot be negative"));
    beside(json!({"memory": "9223372036854775"}), Some("no instance type has enough resources"));
    beside(json!({"cpu": "1000000"}), Some("m vs M typo?"));
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
fn wishes_that_go_in_circles_end() {
    let mut world = World::new();
    for (app, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let wish = all(&[soft("podAffinity", near(labels::HOSTNAME, next)), soft("podAntiAffinity", near(labels::HOSTNAME, next))]);
        world.pods(app, 2, &wish);
    }
    assert!(left(&world.plan()).is_empty());
    let mut world = World::new();
    for (app, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        world.pods(app, 2, &hard("podAffinity", near(labels::ZONE, next)));
    }
    let plan = world.plan();
    assert_eq!(left(&plan).len(), 6, "nobody is there to begin with");
    assert!(reasons(&plan).iter().all(|r| r.contains("unsatisfiable topology constraint for pod affinity")));
    let mut world = World::new();
    world.pods(
        "alone",
        2,
        &all(&[hard("podAffinity", near(labels::HOSTNAME, "alone")), hard("podAntiAffinity", near(labels::HOSTNAME, "alone"))]),
    );
    assert_eq!(left(&world.plan()).len(), 1, "the second wants and shuns the same");
}

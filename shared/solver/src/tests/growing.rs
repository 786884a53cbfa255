//! More capacity never leaves more pods out, and pods that are known to fail are not missed: random clusters.

use super::properties::mix::Dice;
use super::world::{World, Z, expr, hard, instance_type, left, near, required, spread};
use crate::Memory;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_api::labels;
use whittle_model::scheduling::{Options, Plan};

fn pick<'v, T>(dice: &mut Dice, of: &'v [T]) -> &'v T {
    &of[dice.below(of.len())]
}

/// A pod without constraints on others.
fn plain(dice: &mut Dice) -> Value {
    let asks = json!({"cpu": pick(dice, &["100m", "1", "3", "9", "20"]), "memory": pick(dice, &["100Mi", "1Gi", "3Gi", "60Gi"])});
    let preference = match dice.below(6) {
        0 => json!({"nodeSelector": {labels::ZONE: pick(dice, &Z)}}),
        1 => json!({"nodeSelector": {labels::ARCH: pick(dice, &["amd64", "arm64", "s390x"])}}),
        // Not `NotIn`: a pod that excludes a value of a label that no NodePool defines brings that label with it, and others
        // may depend on it; where more capacity takes the one pod, the other has no place.
        2 => required(&[&[expr("k", ["In", "Exists", "DoesNotExist"][dice.below(3)], &["v"])]]),
        3 => json!({"tolerations": [{"key": "t", "operator": "Exists"}]}),
        _ => json!({}),
    };
    super::world::all(&[asks, preference])
}

fn drawn(dice: &mut Dice) -> World {
    let mut world = World::new();
    if dice.below(3) == 0 {
        world.pool("default", json!({"requirements": [expr(labels::ARCH, "In", &["amd64"])]}));
    }
    if dice.below(2) == 0 {
        world.node("old", 4, json!({labels::ZONE: pick(dice, &Z), labels::ARCH: "amd64"}));
    }
    for n in 0..4 + dice.below(12) {
        let spec = plain(dice);
        world.pod(&format!("p{n}"), spec);
    }
    world
}

#[test]
fn more_capacity_never_leaves_more_pods_out() {
    let mut dice = Dice::new(7);
    for round in 0..40 {
        let world = drawn(&mut dice);
        let before = world.solve(&world.options).scheduled();
        let mut grown = world.clone();
        match dice.below(5) {
            0 => grown.node("new", 8, json!({labels::ZONE: Z[0], labels::ARCH: "amd64"})).metadata.annotations.clear(),
            1 => grown.pool("more", json!({"labels": {"k": "v"}})).metadata.annotations.clear(),
            2 => drop(std::mem::take(
                &mut grown.pool("tainted", json!({"weight": 9, "taints": [{"key": "t", "effect": "NoSchedule"}]})).metadata.annotations,
            )),
            3 => grown.types.push(instance_type("giant", 64, 256, 50)),
            _ => grown.objects.nodes.iter_mut().for_each(|n| n.status.allocatable.set("cpu", whittle_units::Quantity::from_units(40))),
        }
        let after = grown.solve(&grown.options).scheduled();
        assert!(after >= before, "round {round}: {after} of {before}");
    }
}

fn placed(plan: &Plan) -> BTreeSet<&str> {
    plan.claims.iter().flat_map(|c| &c.pods).chain(plan.placements.iter().flat_map(|p| &p.pods)).map(|p| p.name.as_str()).collect()
}

#[test]
fn what_is_not_looked_at_again_would_have_had_no_place() {
    let mut dice = Dice::new(11);
    for round in 0..40 {
        let mut world = drawn(&mut dice);
        if dice.below(2) == 0 {
            world.pods("social", 2, &hard("podAffinity", near(labels::ZONE, "target")));
            world.pods("even", 3, &json!({"cpu": "1", "topologySpreadConstraints": [spread("k", "even", 1)]}));
        }
        if dice.below(2) == 0 {
            world.pool("default", json!({"limits": {"cpu": "8"}}));
        }
        let first = world.solve(&world.options);
        let memory = world.ask(|input| Memory::after(input, &world.options, &first));
        match dice.below(5) {
            0 => world.pods("target", 1, &json!({"cpu": "1", "nodeSelector": {labels::ZONE: Z[0]}})),
            1 => world.pass().claims.clear(),
            2 => world.objects.pods.truncate(3),
            3 => world.node("new", 30, json!({labels::ZONE: Z[1], "k": "v"})).metadata.annotations.clear(),
            _ => {}
        }
        let settled = world.ask(|input| memory.settled(input, &world.options));
        let whole = world.solve(&world.options);
        let short = world.solve(&Options { settled, ..world.options.clone() });
        assert_eq!(placed(&whole), placed(&short), "round {round}");
        assert_eq!(left(&whole), left(&short), "round {round}");
    }
}

//! Pods of some dozens of sizes, which column generation divides among machines.

use super::better::sold;
use super::world::{World, all, hard, left, near};
use serde_json::json;
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_api::objective::Objective;
use whittle_model::scheduling::{Options, Packing, Plan};
use whittle_units::Price;

/// Machines of two to eight cores with two, four and eight GiB a core.
fn world() -> World {
    let mut world = World::new();
    let of = |cores: i64| {
        [("c", 2, 0.0425), ("m", 4, 0.048), ("r", 8, 0.063)]
            .map(|(family, gib, price)| sold(&format!("{family}6i.{cores}"), cores, cores * gib, 0, price * cores as f64))
    };
    world.types = [2, 4, 8].into_iter().flat_map(of).collect();
    world
}

/// Twenty applications with as many `cores` each, which differ in cores and in memory by core.
fn twenty_applications(world: &mut World, cores: u32) {
    for (n, (cpu, gib)) in [250, 500, 750, 1_000, 2_000].into_iter().flat_map(|cpu| [1, 2, 4, 7].map(|gib| (cpu, gib))).enumerate() {
        let spec = json!({"cpu": format!("{cpu}m"), "memory": format!("{}Mi", cpu * gib)});
        world.pods(&format!("app-{n}"), (cores * 1_000 / cpu) as usize, &spec);
    }
}

fn plan(world: &World, packing: Packing, objective: Objective) -> Plan {
    world.plan();
    let plan = world.solve(&Options { packing, objective, ..world.options.clone() });
    assert_eq!(left(&plan), Vec::<&str>::new());
    plan
}

#[test]
fn twenty_applications_cost_little_more_than_the_lower_bound() {
    let mut world = world();
    twenty_applications(&mut world, 10);
    let best = plan(&world, Packing::Best, Objective::Cheapest);
    let bound = best.lower_bound.expect("a plan has a bound");
    // 10.395 with the search alone, and 10.604 with Karpenter's packing.
    assert!(best.price() < Price::from_dollars(9.53), "{}", best.price());
    assert!(bound > Price::from_dollars(9.24), "{bound}");
    let few = plan(&world, Packing::Best, Objective::Fewest);
    let reference = plan(&world, Packing::Reference, Objective::Cheapest);
    assert!(few.claims.len() <= reference.claims.len(), "{} and {}", few.claims.len(), reference.claims.len());
}

#[test]
fn pods_that_keep_apart_by_host_are_divided_as_well() {
    let mut world = world();
    for (n, cpu) in [250, 500, 750, 1_000, 1_250, 1_500, 1_750, 2_000].into_iter().enumerate() {
        let name = format!("app-{n}");
        let apart = hard("podAntiAffinity", near(labels::HOSTNAME, &name));
        world.pods(&name, 6, &all(&[json!({"cpu": format!("{cpu}m"), "labels": {"app": name}}), apart]));
    }
    let best = plan(&world, Packing::Best, Objective::Cheapest);
    for claim in &best.claims {
        let mut apps: BTreeMap<&str, usize> = BTreeMap::new();
        claim.pods.iter().for_each(|pod| *apps.entry(pod.name.rsplit_once('-').map_or("", |(app, _)| app)).or_default() += 1);
        assert!(apps.values().all(|pods| *pods == 1), "{apps:?}");
    }
    // 2.55 with the search alone.
    assert!(best.price() <= Price::from_dollars(2.38), "{}", best.price());
}

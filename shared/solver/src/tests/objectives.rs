//! The objectives of plans: hourly price, and the cost of each machine on top of that (ADR 0030).

use super::better::sold;
use super::world::{World, left};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_api::objective::Objective;
use whittle_model::scheduling::{Options, Packing, Plan};
use whittle_units::Price;

/// Machines of one family, whose price is that of their cores.
fn linear() -> World {
    let mut world = World::new();
    let families = ["c5", "c6i", "c6a", "c7i", "c7a"];
    let sizes = [("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16), ("8xlarge", 32)];
    let of = |family: &str| sizes.map(|(size, cores)| sold(&format!("{family}.{size}"), cores, cores * 2, 0, 0.04 * cores as f64));
    world.types = families.iter().flat_map(|family| of(family)).collect();
    world
}

fn plan(world: &World, objective: Objective, machine_cost: f64) -> Plan {
    let machine_cost = Price::from_dollars(machine_cost);
    world.solve(&Options { packing: Packing::Best, objective, machine_cost, ..world.options.clone() })
}

fn karpenter(world: &World) -> Plan {
    world.solve(&Options { packing: Packing::Reference, ..world.options.clone() })
}

/// Pods of many sizes, alternating between more CPU and more memory.
fn mixed(count: usize) -> World {
    let mut world = linear();
    for n in 0..count {
        let (cpu, memory) = [("1500m", "256Mi"), ("100m", "3Gi"), ("700m", "1Gi"), ("250m", "2Gi")][n % 4];
        world.pod(&format!("p-{n:03}"), json!({"cpu": cpu, "memory": memory}));
    }
    world
}

#[test]
fn a_machine_that_costs_something_besides_is_bought_only_where_it_saves_more() {
    let world = mixed(80);
    let (free, dear) = (plan(&world, Objective::Balanced, 0.0), plan(&world, Objective::Balanced, 0.5));
    assert_eq!((left(&free).len(), left(&dear).len()), (0, 0));
    assert!(dear.claims.len() <= free.claims.len() && dear.price() >= free.price(), "{} and {}", dear.claims.len(), free.claims.len());
    let all = |plan: &Plan| plan.price().dollars() + 0.5 * plan.claims.len() as f64;
    assert!(all(&dear) <= all(&free), "{} and {}", all(&dear), all(&free));
}

#[test]
fn no_plan_comes_to_less_than_the_bound_of_its_objective() {
    for dollars in [0.0, 0.05, 0.5] {
        let world = mixed(120);
        let best = plan(&world, Objective::Balanced, dollars);
        let costs = best.machine_costs.expect("balanced counts it");
        let volumes = 1.6 / 730.0;
        let each = costs.cost.dollars() / best.claims.len() as f64;
        assert!((each - dollars - volumes).abs() < 1e-6, "{each}");
        let all = best.price() + costs.cost;
        assert!(costs.lower_bound <= all && best.lower_bound.unwrap() <= costs.lower_bound);
        assert!(all.nanos() * 100 <= costs.lower_bound.nanos() * 125, "{all} is far above {}", costs.lower_bound);
    }
    for objective in [Objective::Cheapest, Objective::Fewest] {
        assert_eq!(plan(&mixed(9), objective, 0.05).machine_costs, None);
    }
    assert_eq!(karpenter(&mixed(9)).machine_costs, None);
}

#[test]
fn the_default_needs_few_machines_and_costs_less_by_the_hour_than_karpenters_packing() {
    let world = mixed(120);
    let (plain, best) = (karpenter(&world), plan(&world, Objective::Balanced, 0.05));
    assert!(best.price() <= plain.price(), "{} and {}", best.price(), plain.price());
    assert!(best.claims.len() <= plain.claims.len() * 3, "{} and {}", best.claims.len(), plain.claims.len());
    for claim in &best.claims {
        assert!(claim.instance_types.len() >= 5, "{:?}", claim.instance_types);
    }
}

#[test]
fn no_objective_and_no_cost_makes_a_plan_more_expensive_than_karpenters_or_leaves_more_pods_out() {
    for count in [1, 3, 7, 20, 60] {
        let world = mixed(count);
        let plain = karpenter(&world);
        for objective in [Objective::Cheapest, Objective::Balanced, Objective::Fewest] {
            for cost in [0.0, 0.05, 5.0, 100.0] {
                let best = plan(&world, objective, cost);
                assert!(left(&best).len() <= left(&plain).len());
                assert!(best.price() <= plain.price(), "{objective:?} at {cost}: {} and {}", best.price(), plain.price());
            }
        }
    }
}

#[test]
fn fewest_never_takes_more_machines_than_any_other_and_cheapest_never_more_money() {
    for count in [5, 30, 90] {
        let world = mixed(count);
        let of = |objective| plan(&world, objective, 0.05);
        let (cheapest, balanced, fewest) = (of(Objective::Cheapest), of(Objective::Balanced), of(Objective::Fewest));
        assert!(fewest.claims.len() <= balanced.claims.len() && fewest.claims.len() <= karpenter(&world).claims.len());
        assert!(cheapest.price() <= balanced.price() && cheapest.price() <= fewest.price());
    }
}

#[test]
fn what_a_node_pool_says_of_its_machines_goes_over_what_the_deployment_says() {
    let mut world = mixed(80);
    world.pool("default", json!({}));
    let with_cost = |world: &mut World, dollars: &str| {
        let pool = &mut world.objects.node_pools[0];
        pool.metadata.annotations.insert(labels::MACHINE_COST.to_owned(), dollars.to_owned());
        plan(world, Objective::Balanced, 0.0)
    };
    let by_deployment = plan(&world, Objective::Balanced, 0.5);
    assert_eq!(with_cost(&mut world, "0.5").claims.len(), by_deployment.claims.len());
    let nonsense = with_cost(&mut world, "a lot");
    assert_eq!(nonsense.claims.len(), plan(&mixed(80), Objective::Balanced, 0.0).claims.len(), "an invalid value is ignored");
}

/// The first so many sizes of so many families, two cores and more, at 5 cents for a core, or a little more in other families.
fn few_types(families: usize, sizes: u32) -> World {
    let mut world = World::new();
    let cores = |size: u32| 2_i64 << size;
    let of = |family: usize| {
        let dollars = move |size| 0.05 * cores(size) as f64 * (1.0 + 0.1 * family as f64);
        (0..sizes).map(move |size| sold(&format!("{family}.{}", cores(size)), cores(size), cores(size) * 4, 0, dollars(size)))
    };
    world.types = (0..families).flat_map(of).collect();
    world
}

#[test]
fn two_pods_share_one_machine_of_a_pool_of_few_types() {
    // As m5.large, m5.xlarge and m5.2xlarge: two of the first leave a choice of three types, and cost another root volume.
    let mut world = few_types(1, 3);
    world.pods("web", 2, &json!({"cpu": "1500m"}));
    let plan = plan(&world, Objective::Balanced, 0.05);
    assert_eq!((plan.claims.len(), plan.price()), (1, Price::from_dollars(0.2)));
}

/// What the cheapest machines for so many equal pods cost, where machines of each of these numbers of cores cost 5 cents a core.
fn least_for(pods: i64, cores: &[i64], besides: f64) -> f64 {
    let mut least = vec![0.0_f64];
    for all in 1..=pods {
        let with = |cores: &i64| {
            // 900m each, and 100m of each machine are not for pods.
            let room = (cores * 1000 - 100) / 900;
            0.05 * *cores as f64 + besides + least[usize::try_from((all - room).max(0)).unwrap()]
        };
        least.push(cores.iter().map(with).fold(f64::MAX, f64::min));
    }
    least[usize::try_from(pods).unwrap()]
}

#[test]
fn equal_pods_cost_the_least_that_they_can_in_a_pool_of_few_types() {
    for pods in (1..40).chain([100, 333]) {
        let mut world = few_types(1, 4);
        world.pods("web", usize::try_from(pods).unwrap(), &json!({"cpu": "900m"}));
        let plan = plan(&world, Objective::Balanced, 0.05);
        let besides = 0.05 + 1.6 / 730.0;
        let costs = plan.price().dollars() + besides * plan.claims.len() as f64;
        let least = least_for(pods, &[2, 4, 8, 16], besides);
        assert!((costs - least).abs() < 1e-6, "{pods} pods: {costs} instead of {least}, {} machines", plan.claims.len());
    }
}

/// The least for pods of 900m and of 1700m, on such machines.
fn least_for_two_sizes(small: i64, large: i64, cores: &[i64], besides: f64) -> f64 {
    let mut least = BTreeMap::from([((0, 0), 0.0_f64)]);
    for left in (0..=small).flat_map(|small| (0..=large).map(move |large| (small, large))).skip(1) {
        let shares = (0..=left.0).flat_map(|small| (0..=left.1).map(move |large| (small, large))).skip(1);
        let with = |(small, large): (i64, i64)| {
            let need = 900 * small + 1700 * large + 100;
            let machine = cores.iter().find(|cores| need <= **cores * 1000)?;
            Some(0.05 * *machine as f64 + besides + least[&(left.0 - small, left.1 - large)])
        };
        let best = shares.filter_map(with).fold(f64::MAX, f64::min);
        least.insert(left, best);
    }
    least[&(small, large)]
}

#[test]
fn pods_of_two_sizes_cost_the_least_that_they_can_in_a_pool_of_few_types() {
    let besides = 0.05 + 1.6 / 730.0;
    for (small, large) in [(1, 1), (3, 5), (11, 3), (2, 14), (7, 7), (12, 10), (30, 4)] {
        let mut world = few_types(1, 4);
        world.pods("small", usize::try_from(small).unwrap(), &json!({"cpu": "900m"}));
        world.pods("large", usize::try_from(large).unwrap(), &json!({"cpu": "1700m"}));
        let balanced = plan(&world, Objective::Balanced, 0.05);
        let costs = balanced.price().dollars() + besides * balanced.claims.len() as f64;
        let least = least_for_two_sizes(small, large, &[2, 4, 8, 16], besides);
        assert!((costs - least).abs() < 1e-6, "{small} and {large} pods: {costs} instead of {least}, {} machines", balanced.claims.len());
        let cheapest = plan(&world, Objective::Cheapest, 0.05).price().dollars();
        let least = least_for_two_sizes(small, large, &[2, 4, 8, 16], 0.0);
        assert!((cheapest - least).abs() < 1e-6, "{small} and {large} pods, the cheapest: {cheapest} instead of {least}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn pools_of_few_types_cost_no_more_with_their_machines_than_karpenters_packing(
        families in 1_usize..4,
        sizes in 1_u32..7,
        pods in prop::collection::vec((1_i64..8, 1_i64..8, 1_usize..9), 1..4),
    ) {
        let mut world = few_types(families, sizes);
        for (n, (cpu, gib, count)) in pods.into_iter().enumerate() {
            world.pods(&format!("p{n}"), count, &json!({"cpu": format!("{}m", 450 * cpu), "memory": format!("{gib}Gi")}));
        }
        let with_machines = |plan: &Plan| plan.price().dollars() + (0.05 + 1.6 / 730.0) * plan.claims.len() as f64;
        let (plain, best) = (karpenter(&world), plan(&world, Objective::Balanced, 0.05));
        prop_assert!(left(&best).len() <= left(&plain).len());
        if left(&best).len() == left(&plain).len() {
            // Or it says so, and for what it costs more.
            let passed_over = best.narrower.map(|other| other.with_machines().dollars());
            let least = passed_over.unwrap_or(f64::MAX).min(with_machines(&best));
            prop_assert!(least <= with_machines(&plain) + 1e-9, "{least} and {}", with_machines(&plain));
            prop_assert!(best.narrower.is_none_or(|other| other.types < 5), "it has too few types");
        }
    }
}

#[test]
fn karpenters_packing_ignores_the_objective() {
    let world = mixed(40);
    let under = |objective| {
        let machine_cost = Price::from_dollars(10.0);
        world.solve(&Options { packing: Packing::Reference, objective, machine_cost, ..world.options.clone() })
    };
    assert_eq!(under(Objective::Fewest), under(Objective::Cheapest));
}

//! What was settled while pods were placed holds when all are placed, whichever packing wins.

use super::better::sold;
use super::world::{World, Z, all, hard, instance_type, left, near, with};
use crate::assemble;
use crate::ids::{ClaimId, Id as _, PodId};
use crate::packing::{Candidate, all_candidates, winner};
use serde_json::{Value, json};
use whittle_api::catalog::Offering;
use whittle_api::labels;
use whittle_model::scheduling::{MinValuesPolicy, Options, Packing, Plan};
use whittle_units::Price;

fn best(world: &World) -> Plan {
    world.plan();
    world.solve(&Options { packing: Packing::Best, ..world.options.clone() })
}

/// A pool with a limit of processors whose claims keep `min` types; the cheapest type is the largest. Some pods repel each
/// other.
fn limited(cpu: u32, min: u32, policy: MinValuesPolicy) -> World {
    let mut world = World::new();
    world.types = [("a", 1, 0.10), ("b", 2, 0.11), ("c", 3, 0.12), ("d", 4, 0.13), ("e", 8, 0.05)]
        .into_iter()
        .map(|(name, cpu, price)| sold(name, cpu, 8, 0, price))
        .collect();
    let varied = json!([{"key": labels::INSTANCE_TYPE, "operator": "Exists", "minValues": min}]);
    world.pool("default", json!({"limits": {"cpu": cpu.to_string()}, "requirements": varied}));
    world.pods("x", 4, &all(&[json!({"memory": "1Gi"}), hard("podAntiAffinity", near(labels::HOSTNAME, "x"))]));
    world.options.min_values = policy;
    world
}

fn relaxed(plan: &Plan) -> Vec<bool> {
    plan.claims.iter().map(|c| c.annotations[labels::MIN_VALUES_RELAXED] == "true").collect()
}

#[test]
fn small_machines_for_the_sake_of_a_limit_keep_min_values() {
    for (cpu, min, placed) in [(8, 2, 4), (8, 3, 2), (8, 4, 2), (6, 2, 3), (3, 1, 3), (7, 4, 1), (4, 5, 0)] {
        let plan = best(&limited(cpu, min, MinValuesPolicy::Strict));
        assert_eq!(plan.scheduled(), placed, "{min} types within {cpu} processors");
        for claim in &plan.claims {
            assert!(claim.instance_types.len() >= min as usize, "{:?} of {min}", claim.instance_types);
            assert_eq!(claim.instance_type_min_values, Some(min));
        }
        assert!(!relaxed(&plan).contains(&true));
    }
}

#[test]
fn min_values_that_a_limit_lowers_are_said_in_the_claim_and_kept() {
    let mut lowered = 0;
    for cpu in 1..20 {
        for min in 1..=6 {
            let plan = best(&limited(cpu, min, MinValuesPolicy::BestEffort));
            for (claim, relaxed) in plan.claims.iter().zip(relaxed(&plan)) {
                let kept = claim.instance_type_min_values.unwrap();
                assert!(claim.instance_types.len() >= kept as usize, "{:?} of {kept}", claim.instance_types);
                assert_eq!(relaxed, kept < min, "{cpu} processors, {min} types");
                lowered += usize::from(relaxed);
            }
        }
    }
    assert!(lowered > 20, "only {lowered} claims were lowered");
}

/// Only types of `near` are offered: with its company, no type is left.
fn no_room_for_two() -> World {
    let mut world = World::new();
    world.types = vec![sold("r6i.2xlarge", 8, 64, 0, 0.504), sold("g4dn.xlarge", 4, 16, 1, 0.526), sold("g4dn.2xlarge", 8, 32, 1, 0.752)];
    world.pods("mate", 1, &json!({"cpu": "1", "requests": {"nvidia.com/gpu": "1"}}));
    world
}

/// A host affinity to pods of these applications.
fn beside(apps: &[&str]) -> Value {
    let one_of = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": apps}]});
    hard("podAffinity", json!({"topologyKey": labels::HOSTNAME, "labelSelector": one_of}))
}

#[test]
fn a_pod_that_would_do_as_the_first_of_its_kind_is_not_placed_apart_from_the_others() {
    let mut world = no_room_for_two();
    world.pods("near", 1, &all(&[json!({"memory": "50Gi"}), beside(&["mate", "near"])]));
    let plan = best(&world);
    assert_eq!(left(&plan), ["near-1"], "alone it is right only if it is bound first");
    assert_eq!(plan.claims.len(), 1);
    let why = plan.left_out[0].reason.to_string();
    assert!(why.contains("unsatisfiable topology constraint for pod affinity, key=kubernetes.io/hostname"), "{why}");
}

#[test]
fn who_leans_on_a_pod_that_is_sent_back_waits_with_it() {
    let mut world = no_room_for_two();
    world.pods("near", 1, &all(&[json!({"memory": "50Gi"}), beside(&["mate", "near"])]));
    world.pods("leans", 1, &all(&[json!({"memory": "1Gi"}), beside(&["near"])]));
    assert_eq!(left(&best(&world)), ["leans-2", "near-1"]);
}

#[test]
fn a_zone_that_is_taken_first_counts_only_if_the_company_is_there() {
    let mut world = World::new();
    world.types = vec![sold("r6i.2xlarge", 8, 64, 0, 0.504), sold("c6i.large", 2, 4, 0, 0.085), sold("c6i.xlarge", 4, 8, 0, 0.17)];
    world.types[0].offerings.retain(|o| o.zone() == Z[0]);
    world.pods("mate", 1, &json!({"cpu": "1", "nodeSelector": {labels::ZONE: Z[1]}}));
    let term = json!({"topologyKey": labels::ZONE, "labelSelector": {}});
    world.pods("near", 1, &all(&[json!({"memory": "50Gi"}), hard("podAffinity", term)]));
    assert_eq!(left(&best(&world)), ["near-1"]);
}

/// Karpenter pins the second machine to what the first can only be; a packing with the cheaper spot offering would have put the
/// pod where its affinity certainly does not hold.
#[test]
fn a_machine_whose_types_are_only_sold_on_demand_is_no_company_for_one_on_spot() {
    let mut world = World::new();
    let gpu = with(sold("g4dn.xlarge", 4, 16, 1, 0.526), labels::CAPACITY_TYPE, &["on-demand"]);
    world.types = vec![gpu, instance_type("c6i.large", 2, 4, 110)];
    let on_spot = |offering: &&mut Offering| offering.capacity_type() == "spot";
    world.types[1].offerings.iter_mut().filter(on_spot).for_each(|spot| spot.price = Price::from_dollars(0.01));
    world.pods("gpu", 1, &json!({"cpu": "1", "requests": {"nvidia.com/gpu": "1"}}));
    let of_all = |key: &str| json!({"topologyKey": key, "labelSelector": {}});
    let alone = hard("podAntiAffinity", of_all(labels::HOSTNAME));
    world.pods("near", 1, &all(&[hard("podAffinity", of_all(labels::CAPACITY_TYPE)), alone]));
    world.pods("too-large", 1, &json!({"cpu": "900"}));
    let plan = best(&world);
    assert_eq!(left(&plan), ["too-large-2"]);
    let kinds: Vec<_> = plan.claims.iter().flat_map(|claim| &claim.requirements).filter(|r| r.key == labels::CAPACITY_TYPE).collect();
    assert!(plan.claims.len() == 2 && kinds.iter().all(|r| r.values == ["on-demand"]), "{kinds:?}");
}

#[test]
fn a_pod_without_company_does_not_cost_the_others_their_better_packing() {
    let mut world = no_room_for_two();
    let sizes = [("c6i.xlarge", 4, 0.17), ("c6i.2xlarge", 8, 0.34), ("c6i.4xlarge", 16, 0.68), ("c6i.8xlarge", 32, 1.36)];
    world.types.extend(sizes.map(|(name, cpu, price)| sold(name, cpu, 2 * cpu, 0, price)));
    world.pods("near", 1, &all(&[json!({"memory": "50Gi"}), beside(&["mate", "near"])]));
    world.pods("large", 1, &json!({"cpu": "1", "memory": "50Gi"}));
    world.pods("small", 10, &json!({"cpu": "1500m"}));
    let (plain, plan) = (world.plan(), best(&world));
    assert_eq!((left(&plain), left(&plan)), (vec!["near-1"], vec!["near-1"]));
    assert!(plan.price() < plain.price(), "{} is not below {}", plan.price(), plain.price());
}

/// What is wrong with one packing does not matter as long as another is valid, and Karpenter's always is.
#[test]
fn a_packing_that_breaks_what_was_settled_does_not_win() {
    let narrow = |candidate: &mut Candidate| {
        let claim = &mut candidate.outcome.state.claims[ClaimId::at(0)];
        claim.types.iter().skip(1).collect::<Vec<_>>().into_iter().for_each(|t| claim.types.remove(t));
    };
    let world = limited(100, 3, MinValuesPolicy::Strict);
    let options = Options { packing: Packing::Best, ..world.options.clone() };
    let won = |spoilt: usize| {
        world.ask(|input| {
            let mut problem = assemble::build(input, &options);
            let mut candidates = all_candidates(&mut problem, &options);
            assert!(candidates.len() > 1, "the other ways place as many pods");
            candidates.iter_mut().take(spoilt).for_each(narrow);
            winner(&mut problem, &Options { effort: 0, ..options.clone() }, candidates, &mut 0).map(|won| won.candidate.name)
        })
    };
    assert_eq!(won(0), Some("first fit"), "of equals Karpenter's");
    assert!(won(1).is_some_and(|name| name != "first fit"), "{:?}", won(1));
    assert_eq!(won(usize::MAX), None, "then it is packed as Karpenter does it, from the beginning");
}

/// Karpenter starts the pod apart from its company, so that every packing may; but no packing may do that to another pod.
#[test]
fn a_packing_that_comes_to_misplace_another_pod_does_not_win() {
    let mut world = no_room_for_two();
    let one_of = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["mate", "near"]}]});
    let zonal = hard("podAffinity", json!({"topologyKey": labels::ZONE, "labelSelector": one_of}));
    world.pods("near", 1, &all(&[json!({"memory": "50Gi"}), zonal]));
    let options = Options { packing: Packing::Best, ..world.options.clone() };
    let won = |another: bool| {
        world.ask(|input| {
            let mut problem = assemble::build(input, &options);
            let mut candidates = all_candidates(&mut problem, &options);
            for candidate in &mut candidates {
                let misplaced: Vec<PodId> = candidate.misplaced.iter().copied().collect();
                let [pod] = misplaced[..] else { panic!("{misplaced:?} of {} are misplaced", candidate.name) };
                assert_eq!(problem.pods[pod].metadata.name, "near-1");
                let other = problem.pods.ids().find(|other| *other != pod).unwrap();
                candidate.misplaced = [if another { other } else { pod }].into();
            }
            winner(&mut problem, &options, candidates, &mut 0).is_some()
        })
    };
    assert!(won(false));
    assert!(!won(true), "as many as before, but another one");
}

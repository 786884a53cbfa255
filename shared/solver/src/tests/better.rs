//! Cases where Karpenter packs poorly or wrongly, and the default packing does better. One test per case, on realistic
//! machines.

use super::volumes::bound;
use super::world::{World, Z, all, expr, hard, instance_type, left, near, offering, spread, with};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_api::catalog::InstanceType;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_api::objective::Objective;
use whittle_model::scheduling::{Options, Packing, Plan, Reason};
use whittle_units::{Price, Quantity};

/// A type with on-demand offerings in three zones.
pub(super) fn sold(name: &str, cpu: i64, gib: i64, gpus: i64, dollars: f64) -> InstanceType {
    let mut t = instance_type(name, cpu, gib, 110);
    t.offerings.retain(|o| o.capacity_type() == "on-demand");
    t.offerings.iter_mut().for_each(|o| o.price = Price::from_dollars(dollars));
    if gpus > 0 {
        t.capacity.set("nvidia.com/gpu", Quantity::from_units(gpus));
    }
    t
}

fn ec2_world() -> World {
    let mut world = World::new();
    world.types = vec![
        sold("c6i.large", 2, 4, 0, 0.085),
        sold("c6i.xlarge", 4, 8, 0, 0.17),
        sold("c6i.2xlarge", 8, 16, 0, 0.34),
        sold("c6i.4xlarge", 16, 32, 0, 0.68),
        sold("c6i.8xlarge", 32, 64, 0, 1.36),
        sold("r6i.2xlarge", 8, 64, 0, 0.504),
        sold("g4dn.xlarge", 4, 16, 1, 0.526),
        sold("g4dn.12xlarge", 48, 192, 4, 3.912),
        with(sold("c6g.large", 2, 4, 0, 0.068), labels::ARCH, &["arm64"]),
        with(sold("c6g.xlarge", 4, 8, 0, 0.136), labels::ARCH, &["arm64"]),
    ];
    world
}

fn best(world: &World) -> Plan {
    world.plan();
    world.solve(&Options { packing: Packing::Best, ..world.options.clone() })
}

#[track_caller]
fn costs_at_most(world: &World, dollars: f64) {
    let plan = best(world);
    assert_eq!(left(&plan), Vec::<&str>::new());
    assert!(plan.price() <= Price::from_dollars(dollars), "{} is more than {dollars}", plan.price());
}

/// The zones that each claim may be launched in.
fn zones(plan: &Plan) -> Vec<Vec<String>> {
    let of = |r: &&Requirement| r.key == labels::ZONE;
    plan.claims.iter().map(|c| c.requirements.iter().find(of).map(|r| r.values.clone()).unwrap_or_default()).collect()
}

fn one_gpu() -> Value {
    json!({"cpu": "1", "requests": {"nvidia.com/gpu": "1"}})
}

#[test]
fn pods_that_attract_each_other_in_a_zone_are_pinned_to_one() {
    let mut world = ec2_world();
    world.types.truncate(2);
    world.pods("a", 4, &all(&[json!({"cpu": "3"}), hard("podAffinity", near(labels::ZONE, "a"))]));
    let zones = zones(&best(&world));
    assert_eq!(zones.len(), 4);
    assert!(zones.iter().all(|z| z.len() == 1 && *z == zones[0]), "{zones:?}");
}

#[test]
fn spreads_that_differ_only_in_the_architecture_are_spread_each() {
    let mut world = ec2_world();
    for arch in ["arm64", "amd64"] {
        let spec = json!({"cpu": "1", "labels": {"app": "web"}, "nodeSelector": {labels::ARCH: arch},
            "topologySpreadConstraints": [spread(labels::ZONE, "web", 1)]});
        world.pods(arch, 4, &spec);
    }
    let plan = best(&world);
    for arch in ["arm64", "amd64"] {
        let mine = plan.claims.iter().zip(zones(&plan)).filter(|(c, _)| c.pods.iter().any(|p| p.name.starts_with(arch)));
        assert_eq!(mine.map(|(_, zones)| zones).collect::<BTreeSet<_>>().len(), 3, "{arch}");
    }
}

#[test]
fn a_limit_of_nodes_is_counted_down_within_a_pass() {
    let mut world = ec2_world();
    world.pool("default", json!({"limits": {"nodes": "1"}}));
    world.pods("a", 5, &all(&[json!({"cpu": "1"}), hard("podAntiAffinity", near(labels::HOSTNAME, "a"))]));
    assert_eq!(best(&world).claims.len(), 1);
}

#[test]
fn a_claim_is_not_charged_with_machines_that_it_need_not_become() {
    let mut world = ec2_world();
    world.types.truncate(3);
    world.pool("default", json!({"limits": {"cpu": "8"}}));
    world.pods("a", 2, &all(&[json!({"cpu": "3"}), hard("podAntiAffinity", near(labels::HOSTNAME, "a"))]));
    assert_eq!(world.plan().scheduled(), 1, "Karpenter charges eight for the first");
    let plan = best(&world);
    assert_eq!(left(&plan), Vec::<&str>::new());
    for claim in &plan.claims {
        assert_eq!(claim.instance_types, ["c6i.xlarge"]);
    }
}

#[test]
fn limits_leave_each_claim_as_many_types_as_they_can() {
    let mut world = ec2_world();
    world.types.truncate(5);
    world.pool("default", json!({"limits": {"cpu": "16"}}));
    world.pods("a", 2, &all(&[json!({"cpu": "1"}), hard("podAntiAffinity", near(labels::HOSTNAME, "a"))]));
    for claim in &best(&world).claims {
        assert_eq!(claim.instance_types, ["c6i.large", "c6i.xlarge", "c6i.2xlarge"], "two of 8 fit, two of 16 do not");
    }
}

#[test]
fn plain_pods_do_not_make_a_gpu_machine_larger() {
    let mut world = ec2_world();
    world.pod("gpu", one_gpu());
    world.pods("cpu", 6, &json!({"cpu": "2"}));
    costs_at_most(&world, 1.206);
}

#[test]
fn single_gpus_are_bought_where_four_together_cost_more() {
    let mut world = ec2_world();
    world.pods("gpu", 4, &one_gpu());
    costs_at_most(&world, 2.104);
}

#[test]
fn a_pod_with_much_memory_does_not_share_its_machine_with_many_that_need_little() {
    let mut world = ec2_world();
    world.pod("large", json!({"cpu": "1", "memory": "50Gi"}));
    world.pods("small", 10, &json!({"cpu": "1500m"}));
    costs_at_most(&world, 1.184);
}

#[test]
fn pods_that_repel_each_other_in_zones_are_all_placed_at_once() {
    let mut world = ec2_world();
    world.pods("a", 3, &all(&[json!({"cpu": "1"}), hard("podAntiAffinity", near(labels::ZONE, "a"))]));
    assert_eq!(world.plan().scheduled(), 1, "Karpenter blocks every zone that the first may end up in");
    let plan = best(&world);
    assert_eq!(plan.scheduled(), 3);
    assert_eq!(zones(&plan).into_iter().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn a_pod_that_wants_a_zone_to_itself_takes_it_before_others_are_anywhere() {
    let mut world = ec2_world();
    world.pod("b", json!({"cpu": "2"}));
    let everybody = json!({"topologyKey": labels::ZONE, "labelSelector": {}});
    world.pod("alone", all(&[json!({"cpu": "100m"}), hard("podAntiAffinity", everybody)]));
    assert_eq!(world.plan().scheduled(), 1, "the machine of the first may end up in every zone");
    let plan = best(&world);
    assert_eq!(left(&plan), Vec::<&str>::new());
    let zones = zones(&plan);
    assert_eq!(zones.len(), 2);
    assert_ne!(zones[0], zones[1]);
}

#[test]
fn a_spread_over_zones_and_capacity_types_takes_the_scarce_ones_in_time() {
    let mut world = ec2_world();
    for at in 0..world.types.len() {
        let on_demand: Vec<_> = world.types[at].offerings.clone();
        let spot = on_demand.into_iter().map(|o| {
            let mut spot = offering("spot", o.zone(), o.price.nanos() / 3);
            spot.available = o.available;
            spot
        });
        world.types[at].offerings.extend(spot.collect::<Vec<_>>());
    }
    // One machine in one zone is reserved: a pod that starts elsewhere unbalances the capacity types, and that zone is taken.
    let mut reserved = offering("reserved", "test-zone-1", 1);
    reserved.reservation_capacity = Some(1);
    reserved.requirements.push(Requirement::is_in(labels::RESERVATION_ID, ["cr-1"]));
    world.types[2].offerings.push(reserved);
    let t = &mut world.types[2];
    t.requirements.retain(|r| r.key != labels::CAPACITY_TYPE);
    t.requirements.push(Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot", "reserved"]));
    let both = json!({"topologySpreadConstraints": [spread(labels::ZONE, "web", 1), spread(labels::CAPACITY_TYPE, "web", 1)]});
    world.pods("web", 6, &all(&[json!({"cpu": "500m"}), both]));
    assert_eq!(left(&best(&world)), Vec::<&str>::new());
}

#[test]
fn a_pod_with_a_volume_in_one_zone_comes_before_its_equals() {
    // They stay together: whichever comes first chooses the zone.
    let together = all(&[json!({"cpu": "1", "labels": {"app": "web"}}), hard("podAffinity", near(labels::ZONE, "web"))]);
    let mut world = ec2_world();
    bound(&mut world, "data", Z[1]);
    let volume = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
    world.pod("web-0", together.clone());
    world.pod("web-1", all(&[together.clone(), volume]));
    world.pod("web-2", together);
    assert_eq!(left(&world.plan()), ["web-1"]);
    assert_eq!(left(&best(&world)), Vec::<&str>::new());
}

#[test]
fn two_pods_apart_use_two_reservations() {
    let mut world = ec2_world();
    for (n, id) in [(0, "cr-a"), (1, "cr-b")] {
        let mut reserved = offering("reserved", "test-zone-1", 1_000_000);
        reserved.requirements.push(Requirement::is_in(labels::RESERVATION_ID, [id]));
        reserved.reservation_capacity = Some(1);
        world.types[n].offerings.push(reserved);
    }
    for t in &mut world.types {
        t.requirements.retain(|r| r.key != labels::CAPACITY_TYPE);
        t.requirements.push(Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "reserved"]));
    }
    world.pods("a", 2, &all(&[json!({"cpu": "1"}), hard("podAntiAffinity", near(labels::HOSTNAME, "a"))]));
    let reference = world.plan();
    assert!(reference.left_out.iter().any(|l| matches!(l.reason, Reason::Reserved(_))), "the first holds both");
    let plan = best(&world);
    assert_eq!(plan.scheduled(), 2);
    let ids: BTreeSet<String> = plan
        .claims
        .iter()
        .flat_map(|c| &c.requirements)
        .filter(|r| r.key == labels::RESERVATION_ID)
        .flat_map(|r| r.values.clone())
        .collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
}

#[test]
fn a_claim_asks_for_the_daemons_of_the_type_that_has_the_fewest() {
    let mut world = ec2_world();
    let only = expr(labels::INSTANCE_TYPE, "In", &["c6i.8xlarge"]);
    let template = json!({"spec": all(&[
        json!({"containers": [{"name": "d", "resources": {"requests": {"cpu": "1"}}}]}),
        super::world::required(&[&[only]]),
    ])});
    let daemon = json!({"metadata": {"name": "d", "namespace": "default"}, "spec": {"template": template}});
    world.objects.daemon_sets.push(serde_json::from_value(daemon).unwrap());
    world.pod("a", json!({"cpu": "1"}));
    let plan = best(&world);
    assert_eq!(plan.claims[0].requests.get("cpu"), Quantity::from_units(1));
    assert!(plan.claims[0].instance_types.contains(&"c6i.8xlarge".to_owned()));
}

/// A NodePool of 45 types with spot offerings, whose price per CPU grows with their size.
fn spot_shop() -> World {
    let mut world = World::new();
    world.types = (1..=45).map(|cpu| instance_type(&format!("t{cpu:02}"), cpu, 4 * cpu, 110)).collect();
    // Large types are cheap, so that only the number of types to keep favours small machines.
    for (n, t) in world.types.iter_mut().enumerate() {
        t.offerings.iter_mut().for_each(|o| o.price = Price::from_dollars(0.5 + 0.05 * (n as f64 + 1.0)));
    }
    world
}

#[test]
fn a_spot_claim_keeps_fifteen_types_where_its_pods_allow_it() {
    let mut world = spot_shop();
    world.pods("a", 40, &json!({"cpu": "900m"}));
    let plan = world.solve(&Options { effort: 0, ..Options::provisioning() });
    let plans = [plan, world.solve(&Options::provisioning())];
    // Karpenter fills one machine after the other completely, and may then have the only plan that costs no more.
    for claim in plans.iter().filter(|p| p.packing != "first fit").flat_map(|p| &p.claims) {
        assert!(claim.instance_types.len() >= 15, "{} types are left", claim.instance_types.len());
    }
    let mut alone = spot_shop();
    alone.pod("a", json!({"cpu": "43"}));
    assert_eq!(best(&alone).claims[0].instance_types.len(), 2, "its own size allows no more");
}

#[test]
fn min_values_outlive_the_search_for_a_better_packing() {
    let mut world = spot_shop();
    let r = json!([{"key": labels::INSTANCE_TYPE, "operator": "Exists", "minValues": 20}]);
    world.pool("default", json!({"requirements": r}));
    world.pods("a", 30, &json!({"cpu": "1500m"}));
    for claim in &best(&world).claims {
        assert!(claim.instance_types.len() >= 20, "{} types are left", claim.instance_types.len());
    }
}

#[test]
fn a_plan_says_from_how_many_offerings_each_claim_could_be_launched() {
    let mut world = spot_shop();
    world.pod("a", json!({"cpu": "43"}));
    world.pod("b", json!({"cpu": "43", "nodeSelector": {labels::ZONE: "test-zone-3"}}));
    let plan = best(&world);
    let mut offerings: Vec<usize> = plan.claims.iter().map(|c| c.offerings).collect();
    offerings.sort_unstable();
    assert_eq!(offerings, [2, 10], "two types: on-demand in one zone, or five offerings each");
}

#[test]
fn the_lower_bound_knows_that_repelling_pods_share_no_machine() {
    let mut world = ec2_world();
    world.pods("a", 10, &all(&[json!({"cpu": "100m"}), hard("podAntiAffinity", near(labels::HOSTNAME, "a"))]));
    let plan = best(&world);
    let bound = plan.lower_bound.unwrap();
    assert!(bound <= plan.price() && bound.nanos() * 10 >= plan.price().nanos() * 9, "{bound} of {}", plan.price());
}

#[test]
fn what_dividing_one_machine_saves_pays_for_the_types_of_another() {
    let mut world = World::new();
    world.types = ('a'..='o').map(|family| sold(&format!("{family}6i.large"), 2, 8, 0, 0.10)).collect();
    world.types.push(sold("a6i.3xlarge", 11, 64, 0, 0.60));
    // Seven fit on the large machine. Seven small machines cost more than it, and five for the rest cost less by as much.
    world.pods("a", 12, &json!({"cpu": "1500m"}));
    assert_eq!(world.plan().price(), Price::from_dollars(1.20));
    let of = |world: &mut World, objective| {
        world.options.objective = objective;
        let plan = best(world);
        let types = plan.claims.iter().map(|claim| claim.instance_types.len()).min().unwrap();
        (left(&plan).len(), plan.claims.len(), plan.price(), types)
    };
    world.options.machine_cost = Price::ZERO;
    assert_eq!(of(&mut world, Objective::Balanced), (0, 12, Price::from_dollars(1.20), 16));
    // By price alone types are worth nothing.
    assert_eq!(of(&mut world, Objective::Cheapest), (0, 6, Price::from_dollars(1.10), 1));
}

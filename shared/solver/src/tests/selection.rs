//! Price order, minValues, limits, weights and taints.

use super::world::{World, Z, all, asks, assorted, expr, hard, instance_type, left, near, offering, one, reasons, required, sizes};
use serde_json::{Value, json};
use whittle_api::k8s::Pod;
use whittle_api::{conditions, labels};
use whittle_model::scheduling::MinValuesPolicy;

#[test]
fn the_cheapest_type_that_matches_comes_first_whoever_constrains_it() {
    let types = assorted();
    let values = [(labels::ARCH, "arm64"), (labels::OS, "windows"), (labels::ZONE, Z[1]), (labels::CAPACITY_TYPE, "spot")];
    for mask in 0..16_usize {
        // By the NodePool, by the pod, every other by either, and by both.
        for by_pool in [0b1111_usize, 0, 0b0101, 0b1010] {
            let chosen = |of: usize| -> Vec<Value> {
                (0..4).filter(|n| of >> n & 1 == 1).map(|n| expr(values[n].0, "In", &[values[n].1])).collect()
            };
            let mut world = World::new();
            world.types.clone_from(&types);
            world.pool("default", json!({"requirements": chosen(mask & by_pool)}));
            let of_pod = chosen(mask & !(by_pool & 0b0111));
            world.pod("it", if of_pod.is_empty() { json!({}) } else { required(&[&of_pod]) });
            let plan = world.solve(&world.options);
            let offers = |name: &String| {
                let t = types.iter().find(|t| t.name == *name).unwrap();
                (0..4).filter(|n| mask >> n & 1 == 1).all(|n| t.label(values[n].0) == Some(values[n].1))
            };
            let claim = &plan.claims[0];
            assert!(claim.instance_types.iter().all(offers), "{mask}");
            for (key, value) in (0..4).filter(|n| mask >> n & 1 == 1).map(|n| values[n]) {
                assert_eq!(asks(&plan, 0, key), format!("In [{value}]"), "{mask} by pool: {by_pool}");
            }
            let least = types.iter().filter(|t| offers(&t.name)).flat_map(|t| &t.offerings).map(|o| o.price).min().unwrap();
            assert_eq!(claim.cheapest_price, least, "{mask} by pool: {by_pool}");
        }
    }
}

#[test]
fn only_offerings_that_may_be_used_count_for_the_order() {
    let mut world = World::new();
    world.types = vec![instance_type("a", 4, 4, 10), instance_type("b", 4, 4, 10)];
    world.types[0].offerings = vec![offering("spot", Z[0], 10), offering("on-demand", Z[0], 900)];
    world.types[1].offerings = vec![offering("spot", Z[0], 500), offering("on-demand", Z[0], 600)];
    world.pod("it", json!({"nodeSelector": {labels::CAPACITY_TYPE: "on-demand"}}));
    assert_eq!(world.plan().claims[0].instance_types, ["b", "a"]);
    world.objects.pods[0].spec.node_selector.clear();
    assert_eq!(world.plan().claims[0].instance_types, ["a", "b"]);
}

#[test]
fn a_pod_that_is_never_bound_any_more_gets_no_machine_and_keeps_none_from_others() {
    // Deleted, and what the garbage collector makes of it while a finalizer keeps it.
    let changes: [fn(&mut Pod); 2] =
        [|pod| pod.metadata.deletion_timestamp = Some(super::world::now()), |pod| pod.status.phase = "Failed".into()];
    for change in changes {
        let mut world = World::new();
        world.pod("other", json!({"cpu": "1"}));
        change(world.pod("it", json!({"cpu": "3"})));
        let plan = world.plan();
        assert_eq!((plan.claims.len(), plan.scheduled(), left(&plan)), (1, 1, vec![]));
        assert_eq!(plan.claims[0].pods[0].name, "other");
    }
}

#[test]
fn pods_of_daemon_sets_of_other_groups_are_not_placed_and_keep_no_machine_from_others() {
    let pinned = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}});
    let owner = json!([{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]);
    let mut world = World::new();
    world.managed("n", "initialized", 16, json!({})).1.metadata.deletion_timestamp = Some(super::world::now());
    world.pod("agent", all(&[pinned, json!({"owners": owner})]));
    world.pod("other", json!({"cpu": "1"}));
    for runs in [false, true] {
        if runs {
            world.bind("agent", "n");
        }
        let plan = world.plan();
        assert_eq!((plan.claims.len(), plan.scheduled(), left(&plan)), (1, 1, vec![]), "runs: {runs}");
    }
}

#[test]
fn a_combination_that_no_type_has_leaves_the_pod_out() {
    for (pool, pod) in [
        (json!({}), json!({"nodeSelector": {labels::ARCH: "s390x"}})),
        (json!({}), json!({"nodeSelector": {labels::ARCH: "arm64", labels::ZONE: "nowhere"}})),
        (json!({"requirements": [expr(labels::ARCH, "In", &["arm64"])]}), json!({"nodeSelector": {labels::ZONE: "nowhere"}})),
    ] {
        assert_eq!(one(pool, pod, labels::ZONE), None);
    }
}

/// Types with these counts of processors.
fn sized(cpus: &[i64]) -> World {
    let mut world = World::new();
    world.types = cpus.iter().map(|cpu| instance_type(&format!("c{cpu}"), *cpu, 16, 10)).collect();
    world
}

fn at_least(key: &str, operator: &str, values: &[&str], n: u32) -> Value {
    json!({"key": key, "operator": operator, "values": values, "minValues": n})
}

#[test]
fn min_values_keep_that_many_distinct_values_on_every_machine() {
    let mut world = sized(&[1, 4]);
    world.pool("default", json!({"requirements": [at_least(labels::INSTANCE_TYPE, "In", &["c1", "c4"], 2)]}));
    world.pod("a", json!({"cpu": "900m"}));
    world.pod("b", json!({"cpu": "900m"}));
    let plan = world.plan();
    assert_eq!((sizes(&plan), plan.claims.iter().all(|c| c.instance_types.len() == 2)), (vec![1, 1], true));
}

#[test]
fn min_values_count_on_bounds_and_with_several_operators_the_largest_holds() {
    let on = |requirements: Value, cpu: &str| {
        let mut world = sized(&[1, 2, 3, 4]);
        world.pool("default", json!({"requirements": requirements}));
        world.pod("it", json!({"cpu": cpu}));
        world.plan().claims.first().map(|c| c.instance_types.len())
    };
    let either = |operator, value, n| json!([at_least("integer", operator, &[value], n)]);
    assert_eq!(on(either("Gt", "1", 2), "100m"), Some(3));
    assert_eq!(on(either("Lt", "4", 3), "100m"), Some(3));
    assert_eq!(on(either("Gt", "2", 3), "100m"), None);
    assert_eq!(on(either("Lt", "3", 3), "100m"), None);
    assert_eq!(on(json!([at_least("integer", "Gt", &["1"], 2), at_least("integer", "Lt", &["4"], 1)]), "100m"), Some(2));
    assert_eq!(on(json!([at_least("integer", "Gt", &["1"], 3), at_least("integer", "Lt", &["4"], 1)]), "100m"), None);
    let names = at_least(labels::INSTANCE_TYPE, "In", &["c1", "c2", "c3"], 1);
    assert_eq!(on(json!([names, at_least(labels::INSTANCE_TYPE, "NotIn", &["c3"], 2)]), "100m"), Some(2));
    assert_eq!(on(json!([names, at_least(labels::INSTANCE_TYPE, "NotIn", &["c3"], 3)]), "100m"), None);
    assert_eq!(on(json!([at_least(labels::INSTANCE_TYPE, "Exists", &[], 2), at_least("integer", "Exists", &[], 3)]), "1500m"), Some(3));
    assert_eq!(on(json!([at_least(labels::INSTANCE_TYPE, "Exists", &[], 2), at_least("integer", "Exists", &[], 3)]), "2500m"), None);
}

#[test]
fn unmet_min_values_leave_the_pod_out_and_name_the_label() {
    let mut world = sized(&[1, 4]);
    world.pool("default", json!({"requirements": [at_least(labels::INSTANCE_TYPE, "Exists", &[], 2)]}));
    world.pod("it", json!({"cpu": "3"}));
    let plan = world.plan();
    assert!(
        reasons(&plan)[0].contains("minValues requirement is not met for label(s) (label(s)=[node.kubernetes.io/instance-type])"),
        "{:?}",
        reasons(&plan)
    );
    world.pool("default", json!({"requirements": [at_least(labels::ZONE, "Exists", &[], 4)]}));
    assert_eq!(left(&world.plan()), ["it"]);
}

#[test]
fn the_six_hundred_cheapest_must_keep_min_values() {
    let mut world = World::new();
    world.types = (0..610).map(|n| instance_type(&format!("t{n:03}"), 2, 2, 10)).collect();
    for (n, t) in world.types.iter_mut().enumerate() {
        *t = super::world::with(t.clone(), "family", &[if n < 605 { "a" } else { "b" }]);
        t.offerings.iter_mut().for_each(|o| o.price = whittle_units::Price::from_nanos(n as u64 + 1));
    }
    world.pod("it", json!({}));
    assert_eq!(world.plan().claims[0].instance_types.len(), 600);
    world.pool("default", json!({"requirements": [at_least("family", "Exists", &[], 2)]}));
    let plan = world.plan();
    assert_eq!((plan.claims.len(), left(&plan)), (0, vec!["it"]));
    assert!(reasons(&plan)[0].contains("nodepool default could not meet minValues"), "{:?}", reasons(&plan));
}

#[test]
fn best_effort_lowers_min_values_to_what_there_is() {
    let lowered = |requirements: Value, cpu: &str| {
        let mut world = sized(&[1, 2, 4]);
        world.options.min_values = MinValuesPolicy::BestEffort;
        world.pool("default", json!({"requirements": requirements}));
        world.pod("it", json!({"cpu": cpu}));
        let plan = world.plan();
        let claim = &plan.claims[0];
        let zones = claim.requirements.iter().find(|r| r.key == labels::ZONE).and_then(|r| r.min_values);
        (claim.instance_type_min_values, zones, claim.annotations[labels::MIN_VALUES_RELAXED].clone())
    };
    let types = |n| at_least(labels::INSTANCE_TYPE, "Exists", &[], n);
    let zones = |n| at_least(labels::ZONE, "Exists", &[], n);
    assert_eq!(lowered(json!([types(3)]), "1500m"), (Some(2), None, "true".into()));
    assert_eq!(lowered(json!([types(2)]), "1500m"), (Some(2), None, "false".into()));
    assert_eq!(lowered(json!([zones(5)]), "1"), (None, Some(3), "true".into()));
    assert_eq!(lowered(json!([types(3), zones(5)]), "3"), (Some(1), Some(3), "true".into()));
}

/// A NodeClaim with `minValues: 0` is refused by the API server.
#[test]
fn min_values_of_which_nothing_is_left_are_not_written() {
    let mut world = sized(&[1, 2, 4]);
    world.options.min_values = MinValuesPolicy::BestEffort;
    let of_types = at_least(labels::INSTANCE_TYPE, "Exists", &[], 2);
    world.pool(
        "default",
        json!({"requirements": [at_least("team", "In", &["a", "b"], 2), at_least("integer", "Exists", &[], 3), of_types]}),
    );
    world.pod("it", json!({"cpu": "1500m"}));
    let plan = world.plan();
    let written = plan.claims[0].requirements_with_types();
    let least = |key: &str| written.iter().find(|one| one.key == key).map(|one| one.min_values);
    assert_eq!((least("team"), least("integer"), least(labels::INSTANCE_TYPE)), (Some(None), Some(Some(2)), Some(Some(2))));
    assert_eq!((plan.claims[0].annotations[labels::MIN_VALUES_RELAXED].as_str(), &plan.claims[0].labels["team"][..]), ("true", "a"));
}

#[test]
fn a_heavy_pool_with_lowered_min_values_comes_before_a_light_one() {
    for light in [1, 3] {
        let mut world = sized(&[1, 4]);
        world.options.min_values = MinValuesPolicy::BestEffort;
        world.pool("default", json!({"weight": 10, "requirements": [at_least(labels::INSTANCE_TYPE, "Exists", &[], 2)]}));
        world.pool("light", json!({"requirements": [at_least(labels::INSTANCE_TYPE, "Exists", &[], light)]}));
        world.pod("it", json!({"cpu": "3"}));
        let plan = world.plan();
        assert_eq!((plan.claims[0].node_pool.as_str(), plan.claims[0].instance_type_min_values), ("default", Some(1)));
    }
}

#[track_caller]
fn limited(limits: Value, pods: &[Value], placed: usize) {
    let mut world = World::new();
    world.pool("default", json!({"limits": limits}));
    for (n, spec) in pods.iter().enumerate() {
        world.pod(&format!("p{n}"), spec.clone());
    }
    assert_eq!(world.solve(&world.options).scheduled(), placed);
}

#[test]
fn limits_bound_the_capacity_of_what_is_launched() {
    limited(json!({"cpu": "2"}), &[json!({"cpu": "1750m"})], 1);
    limited(json!({"cpu": "2"}), &[json!({"cpu": "2100m"})], 0);
    let alone = all(&[json!({"cpu": "1500m", "labels": {"app": "x"}}), hard("podAntiAffinity", near(labels::HOSTNAME, "x"))]);
    limited(json!({"cpu": "3"}), &[alone.clone(), alone], 1);
    limited(
        json!({"pods": "1"}),
        &[json!({"requests": {"cpu": "10m"}, "nodeSelector": {labels::INSTANCE_TYPE: "small-instance-type"}})],
        0,
    );
    limited(json!({"karpenter.sh/super-great-gpu": "1"}), &[json!({"requests": {"karpenter.sh/super-great-gpu": "1"}})], 0);
}

#[test]
fn what_runs_already_uses_limits_up() {
    let mut world = World::new();
    world.pool("default", json!({"limits": {"cpu": "4"}}));
    world.managed("n", "initialized", 16, json!({})).0.status.allocatable.set("cpu", whittle_units::Quantity::ZERO);
    world.pod("it", json!({"cpu": "1"}));
    let plan = world.plan();
    let told = &reasons(&plan)[0];
    assert!(
        told.contains("all available instance types exceed limits for nodepool (NodePool=default); its limit leaves 0 cpu, "),
        "{told}"
    );
    let mut world = World::new();
    world.pool("default", json!({"limits": {"cpu": "2"}}));
    world.pod("first", json!({"cpu": "1500m"}));
    world.pass();
    world.pod("second", json!({"cpu": "1500m"}));
    assert_eq!(left(&world.clone().pass()), ["second"]);
    // Only machines that stay and belong to the NodePool count.
    let mut going = world.clone();
    going.objects.node_claims[0].metadata.deletion_timestamp = Some(super::world::now());
    assert_eq!(left(&going.plan()), ["second"], "its own pod moves, too, and there is room for one machine");
    going.objects.pods.retain(|p| p.metadata.name == "second");
    let plan = going.plan();
    assert_eq!((plan.claims.len(), left(&plan).len()), (1, 0));
    let mut others = world;
    for labels in [&mut others.objects.nodes[0].metadata.labels, &mut others.objects.node_claims[0].metadata.labels] {
        labels.insert(labels::NODE_POOL.into(), "another".into());
    }
    assert!(left(&others.plan()).is_empty());
}

#[test]
fn nodes_are_limited_too_even_within_a_pass() {
    let alone = all(&[json!({"labels": {"app": "x"}}), hard("podAntiAffinity", near(labels::HOSTNAME, "x"))]);
    let mut world = World::new();
    world.pool("default", json!({"limits": {"nodes": "2"}}));
    for pass in 0..3 {
        world.pod(&format!("p{pass}"), alone.clone());
        let plan = world.pass();
        assert_eq!(plan.claims.len(), usize::from(pass < 2));
    }
    let mut world = World::new();
    world.pool("default", json!({"limits": {"nodes": "1"}}));
    for n in 0..5 {
        world.pod(&format!("p{n}"), alone.clone());
    }
    let plan = world.plan();
    assert_eq!((plan.claims.len(), left(&plan).len()), (1, 4));
    assert!(reasons(&plan)[0].contains("node limits have been exhausted for nodepool"), "{:?}", reasons(&plan));
}

#[test]
fn an_exhausted_pool_falls_through_to_the_next() {
    let mut world = World::new();
    world.pool("default", json!({"weight": 100, "limits": {"cpu": "0"}}));
    world.pool("other", json!({}));
    world.pod("it", json!({}));
    assert_eq!(world.plan().claims[0].node_pool, "other");
}

#[test]
fn weights_order_pools_and_equal_ones_go_by_name_from_the_end() {
    let mut world = World::new();
    world.pool("heavy", json!({"weight": 20}));
    world.pool("zebra", json!({}));
    world.pool("middle", json!({"weight": 10, "labels": {"k": "v"}}));
    world.pods("web", 2, &json!({"cpu": "3"}));
    assert!(world.plan().claims.iter().all(|c| c.node_pool == "heavy"));
    let chosen = |selector: Value, world: &World| {
        let mut world = world.clone();
        world.objects.pods.clear();
        world.pod("it", json!({"nodeSelector": selector}));
        world.plan().claims[0].node_pool.clone()
    };
    assert_eq!(chosen(json!({labels::NODE_POOL: "default"}), &world), "default");
    assert_eq!(chosen(json!({"k": "v"}), &world), "middle");
    world.objects.node_pools.retain(|p| ["default", "zebra"].contains(&p.metadata.name.as_str()));
    assert_eq!(chosen(json!({}), &world), "zebra");
}

#[test]
fn taints_of_a_pool_must_be_tolerated() {
    let taint = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    for (toleration, fine) in [
        (json!({"operator": "Exists"}), true),
        (json!({"operator": "Exists", "effect": "NoSchedule"}), true),
        (json!({"key": "k", "operator": "Exists"}), true),
        (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), true),
        (json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}), true),
        (json!({"key": "k", "value": "v"}), true),
        (json!({"key": "other", "operator": "Exists"}), false),
        (json!({"key": "k", "operator": "Equal", "value": "other"}), false),
        (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
        (json!({"key": "k", "operator": "Unheard"}), false),
    ] {
        let spec = json!({"tolerations": [toleration]});
        assert_eq!(one(json!({"taints": taint}), spec, labels::ZONE).is_some(), fine, "{toleration}");
    }
    let mut world = World::new();
    world.pool("default", json!({"taints": taint}));
    world.pod("it", json!({}));
    assert!(reasons(&world.plan())[0].contains("did not tolerate taint (taint=k=v:NoSchedule)"), "{:?}", reasons(&world.plan()));
}

#[test]
fn startup_taints_need_no_toleration_and_tolerations_make_no_taints() {
    let mut world = World::new();
    world.pool("default", json!({"startupTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}));
    world.pod("it", json!({"tolerations": [{"key": "mine", "operator": "Exists"}]}));
    let plan = world.plan();
    assert_eq!((plan.claims[0].startup_taints.len(), plan.claims[0].taints.len()), (1, 0));
}

#[test]
fn pools_that_cannot_grow_get_no_machines() {
    let mut world = World::new();
    world.pod("it", json!({}));
    let mut deleting = world.clone();
    deleting.objects.node_pools[0].metadata.deletion_timestamp = Some(super::world::now());
    assert_eq!(reasons(&deleting.plan()), ["no dynamic nodepools found"]);
    let mut unready = world.clone();
    conditions::set(
        &mut unready.objects.node_pools[0].status.conditions,
        conditions::READY,
        whittle_api::ConditionStatus::False,
        "",
        "",
        super::world::now(),
    );
    assert_eq!(left(&unready.plan()), ["it"]);
    // The class is not among the objects.
    let reason = unready.plan().left_out[0].reason.clone();
    assert!(
        reason.to_string().starts_with("nodepool default: EC2NodeClass ") && reason.to_string().ends_with(" does not exist"),
        "{reason}"
    );
    assert_eq!(reason.category(), "no-node-pools");
    let mut fixed = world.clone();
    fixed.pool("default", json!({"replicas": 3}));
    assert_eq!(left(&fixed.plan()), ["it"]);
    fixed.pool("dynamic", json!({}));
    assert_eq!(fixed.plan().claims[0].node_pool, "dynamic");
    world.objects.node_pools.clear();
    assert_eq!(left(&world.plan()), ["it"]);
}

#[test]
fn a_pool_whose_requirements_leave_no_type_is_named_in_every_reason() {
    for requirements in [
        json!([expr(labels::INSTANCE_TYPE, "In", &["unknown"])]),
        json!([expr(labels::ARCH, "In", &["amd64"]), expr(labels::ARCH, "In", &["arm64"])]),
        json!([expr(labels::ZONE, "In", &["nowhere"])]),
    ] {
        for count in [1, 4] {
            let mut world = World::new();
            world.pool("default", json!({"requirements": requirements}));
            world.pods("web", count, &json!({}));
            let plan = world.plan();
            let fine = |r: &String| {
                r.starts_with("nodepool requirements filtered out all available instance types; nodepool default: no instance type")
            };
            assert!(reasons(&plan).len() == count && reasons(&plan).iter().all(fine), "{:?}", reasons(&plan));
            assert_eq!(plan.unusable_pools.iter().map(|p| p.node_pool.as_str()).collect::<Vec<_>>(), ["default"]);
        }
    }
}

#[test]
fn equal_values_of_zone_and_host_are_written_to_the_claim() {
    let mut world = World::new();
    world.pod("it", json!({"nodeSelector": {labels::ZONE: Z[1]}}));
    assert_eq!(asks(&world.plan(), 0, labels::ZONE), format!("In [{}]", Z[1]));
}

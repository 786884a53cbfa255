//! Topology spread.

use super::world::{World, Z, all, assorted, expr, left, now, preferred, required, spread, with};
use serde_json::{Value, json};
use whittle_api::labels;
use whittle_model::scheduling::MinValuesPolicy;

/// Pods `web` with these constraints, one CPU each by default.
fn web(constraints: &[Value], more: Value) -> Value {
    all(&[json!({"requests": {"cpu": "10m"}, "topologySpreadConstraints": constraints}), more])
}

fn by_zone() -> Value {
    spread(labels::ZONE, "web", 1)
}

fn zones(zones: &[&str]) -> Value {
    json!({"requirements": [expr(labels::ZONE, "In", zones)]})
}

/// Pods that run already, one per entry, in these values of `key`.
fn running(world: &mut World, key: &str, values: &[&str]) {
    for value in values {
        let name = format!("old{}", world.objects.nodes.len());
        world.node(&name, 1, json!({key: value}));
        world.pod(&name, json!({"cpu": "1", "labels": {"app": "web"}, "nodeName": name})).status =
            serde_json::from_value(json!({"phase": "Running"})).unwrap();
    }
}

#[track_caller]
fn after(world: &mut World, key: &str, expected: &[usize]) {
    world.pass();
    assert_eq!(world.counts(key, "web"), expected);
}

#[test]
fn a_spread_over_an_unknown_key_leaves_only_its_own_pods_out() {
    let mut world = World::new();
    world.pods("web", 1, &web(&[spread("unknown", "web", 1)], json!({})));
    world.pods("good", 1, &json!({}));
    assert_eq!(left(&world.plan()), ["web-0"]);
}

#[test]
fn without_a_selector_nothing_is_spread() {
    let mut world = World::new();
    let mut over = by_zone();
    over.as_object_mut().unwrap().remove("labelSelector");
    world.pods("web", 2, &web(&[over.clone()], json!({})));
    after(&mut world, labels::ZONE, &[2]);
    let mut world = World::new();
    world.pods("web", 1, &web(&[over], json!({})));
    after(&mut world, labels::ZONE, &[1]);
    let mut world = World::new();
    world.pods("web", 5, &web(&[spread(labels::HOSTNAME, "somebody-else", 1)], json!({})));
    after(&mut world, labels::HOSTNAME, &[5]);
}

#[test]
fn pods_are_balanced_over_zones() {
    let mut world = World::new();
    world.pods("web", 4, &web(&[by_zone()], json!({})));
    after(&mut world, labels::ZONE, &[1, 1, 2]);
    let mut over = by_zone();
    over["labelSelector"] = json!({"matchExpressions": [expr("app", "In", &["web"])]});
    let mut world = World::new();
    world.pods("web", 4, &web(&[over], json!({})));
    after(&mut world, labels::ZONE, &[1, 1, 2]);
}

#[test]
fn the_zones_of_pools_are_the_domains() {
    let spread_over = |pools: &[Value]| {
        let mut world = World::new();
        for (n, pool) in pools.iter().enumerate() {
            world.pool(["default", "other"][n], pool.clone());
        }
        world.pods("web", 4, &web(&[by_zone()], json!({})));
        world.pass();
        world.counts(labels::ZONE, "web")
    };
    assert_eq!(spread_over(&[zones(&Z[..2])]), [2, 2]);
    assert_eq!(spread_over(&[json!({"labels": {labels::ZONE: Z[0]}}), json!({"labels": {labels::ZONE: Z[1]}})]), [2, 2]);
    assert_eq!(spread_over(&[json!({"labels": {labels::ZONE: Z[0]}}), zones(&[Z[1]])]), [2, 2]);
    assert_eq!(spread_over(&[all(&[zones(&Z[..2]), json!({"labels": {labels::ZONE: Z[0]}})]), zones(&[Z[1]])]), [2, 2]);
}

#[test]
fn pods_in_zones_that_no_pool_offers_still_count() {
    let mut world = World::new();
    running(&mut world, labels::ZONE, &[Z[2]]);
    world.pool("default", zones(&Z[..2]));
    world.pods("web", 6, &web(&[by_zone()], json!({"cpu": "1"})));
    after(&mut world, labels::ZONE, &[1, 2, 2]);
    let mut world = World::new();
    running(&mut world, labels::ZONE, &Z[..2]);
    world.pool("default", zones(&[Z[2]]));
    world.pods("web", 10, &web(&[spread(labels::ZONE, "web", 5)], json!({})));
    after(&mut world, labels::ZONE, &[1, 1, 6]);
    for own in [false, true] {
        let mut world = World::new();
        running(&mut world, labels::ZONE, &[Z[0]]);
        if own {
            world.objects.pods[0].spec.topology_spread_constraints = serde_json::from_value(json!([by_zone()])).unwrap();
        }
        world.pool("default", zones(&Z[1..]));
        world.pods("web", 10, &web(&[by_zone()], json!({})));
        after(&mut world, labels::ZONE, &[1, 2, 2]);
    }
}

#[test]
fn only_the_emptiest_domains_are_filled() {
    let mut world = World::new();
    world.pods("web", 9, &web(&[by_zone()], json!({"cpu": "1"})));
    after(&mut world, labels::ZONE, &[3, 3, 3]);
    let elsewhere: Vec<String> =
        world.objects.pods.iter().map(|p| p.metadata.name.clone()).filter(|p| world.label_of(p, labels::ZONE) != Some(Z[0])).collect();
    world.objects.pods.retain(|p| !elsewhere.contains(&p.metadata.name));
    world.pods("web", 3, &web(&[by_zone()], json!({"cpu": "1"})));
    after(&mut world, labels::ZONE, &[1, 2, 3]);
}

#[test]
fn pods_that_do_not_run_here_are_not_counted() {
    for (key, values, expected) in
        [(labels::ZONE, [Z[0], Z[1]], [1, 2, 2].as_slice()), (labels::CAPACITY_TYPE, ["spot", "on-demand"], &[2, 3])]
    {
        let mut world = World::new();
        world.node("first", 64, json!({key: values[0]}));
        world.node("second", 64, json!({key: values[1]}));
        world.node("blank", 64, json!({}));
        for node in &mut world.objects.nodes {
            node.spec.taints = serde_json::from_value(json!([{"key": "full", "effect": "NoSchedule"}])).unwrap();
        }
        let mut add = |name: &str, node: &str, change: fn(&mut whittle_api::k8s::Pod)| {
            let pod = world.pod(name, json!({"labels": {"app": "web"}, "nodeName": node}));
            pod.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
            change(pod);
        };
        add("a", "first", |_| ());
        add("b", "first", |_| ());
        add("c", "second", |_| ());
        add("other-label", "second", |p| p.metadata.labels.clear());
        add("finished", "second", |p| p.status.phase = "Succeeded".into());
        add("failed", "second", |p| p.status.phase = "Failed".into());
        add("leaving", "second", |p| p.metadata.deletion_timestamp = Some(now()));
        add("elsewhere", "second", |p| p.metadata.namespace = "other".into());
        add("no-label", "blank", |_| ());
        add("leaked", "gone", |_| ());
        world.pods("web", 2, &web(&[spread(key, "web", 1)], json!({})));
        world.pass();
        // Domains that are not counted are not shown either.
        world.objects.pods.retain(|p| p.metadata.namespace == "default" && !p.metadata.is_deleting());
        assert_eq!(world.counts(key, "web"), expected);
    }
}

#[test]
fn min_domains_hold_pods_back_until_there_are_enough() {
    let placed = |pool_zones: &[&str], min: i32, count: usize| {
        let mut world = World::new();
        world.pool("default", zones(pool_zones));
        let mut over = by_zone();
        over["minDomains"] = json!(min);
        world.pods("web", count, &web(&[over], json!({})));
        world.pass();
        world.counts(labels::ZONE, "web")
    };
    assert_eq!(placed(&Z[..2], 3, 3), [1, 1]);
    assert_eq!(placed(&Z, 3, 11), [3, 4, 4]);
    assert_eq!(placed(&Z, 2, 11), [3, 4, 4]);
}

#[test]
fn hosts_are_domains_of_their_own() {
    for (skew, expected) in [(1, vec![1, 1, 1, 1]), (4, vec![4])] {
        let mut world = World::new();
        world.pods("web", 4, &web(&[spread(labels::HOSTNAME, "web", skew)], json!({})));
        after(&mut world, labels::HOSTNAME, &expected);
    }
    let two = |arch: bool| {
        let mut world = World::new();
        for (app, wanted) in [("web", "amd64"), ("db", "arm64")] {
            let selector = if arch { json!({"nodeSelector": {labels::ARCH: wanted}}) } else { json!({}) };
            world.pods(app, 2, &web(&[spread(labels::HOSTNAME, app, 1)], selector));
        }
        world.plan().claims.len()
    };
    assert_eq!((two(false), two(true)), (2, 4));
}

#[test]
fn capacity_types_can_be_balanced() {
    for pool in [json!({}), json!({"requirements": [expr(labels::CAPACITY_TYPE, "In", &["spot", "on-demand"])]})] {
        let mut world = World::new();
        world.pool("default", pool);
        world.pods("web", 4, &web(&[spread(labels::CAPACITY_TYPE, "web", 1)], json!({})));
        after(&mut world, labels::CAPACITY_TYPE, &[2, 2]);
    }
    for (action, expected) in [("DoNotSchedule", [1, 2]), ("ScheduleAnyway", [1, 5])] {
        let mut world = World::new();
        running(&mut world, labels::CAPACITY_TYPE, &["spot"]);
        world.pool("default", json!({"requirements": [expr(labels::CAPACITY_TYPE, "In", &["on-demand"])]}));
        let mut over = spread(labels::CAPACITY_TYPE, "web", 1);
        over["whenUnsatisfiable"] = json!(action);
        world.pods("web", 5, &web(&[over], json!({})));
        after(&mut world, labels::CAPACITY_TYPE, &expected);
    }
}

#[test]
fn nodes_that_the_pods_may_not_use_are_not_counted() {
    let mut world = World::new();
    running(&mut world, labels::CAPACITY_TYPE, &["on-demand"]);
    world.objects.nodes[0].metadata.labels.insert(labels::ZONE.into(), Z[0].into());
    let only = required(&[&[expr(labels::ZONE, "In", &[Z[1]]), expr(labels::CAPACITY_TYPE, "In", &["spot"])]]);
    world.pods("web", 5, &web(&[spread(labels::CAPACITY_TYPE, "web", 1)], only));
    after(&mut world, labels::CAPACITY_TYPE, &[1, 5]);
}

/// As kube-scheduler counts (scheduling 6): Karpenter forgets the nodes of alternatives that it has dropped.
#[test]
fn nodes_of_every_alternative_count_whichever_is_tried() {
    let either = |key: &str, [one, other]: [&str; 2]| required(&[&[expr(key, "In", &[one])], &[expr(key, "In", &[other])]]);
    let mut world = World::new();
    running(&mut world, labels::ZONE, &[Z[0], Z[0], Z[1], Z[1], Z[2]]);
    for node in &mut world.objects.nodes {
        node.metadata.labels.insert(labels::CAPACITY_TYPE.into(), "spot".into());
    }
    world.pool("default", json!({"requirements": [expr(labels::CAPACITY_TYPE, "In", &["on-demand"])]}));
    world.pods("web", 1, &web(&[by_zone()], either(labels::CAPACITY_TYPE, ["spot", "on-demand"])));
    after(&mut world, labels::ZONE, &[2, 2, 2]);
}

/// As for kube-scheduler, a domain without nodes that count bounds nothing, so that an alternative which cannot be had keeps no pod out.
#[test]
fn domains_of_other_alternatives_bound_a_spread_once_they_have_nodes() {
    let in_zone = |zone: &str| expr(labels::ZONE, "In", &[zone]);
    let nowhere = || expr(labels::INSTANCE_TYPE, "In", &["sold-nowhere"]);
    for (node, expected) in [(false, vec![4]), (true, vec![2, 2])] {
        let mut world = World::new();
        if node {
            world.node("old", 1, json!({labels::ZONE: Z[1]}));
        }
        world.pods("web", 4, &web(&[by_zone()], required(&[&[in_zone(Z[0])], &[in_zone(Z[1])]])));
        after(&mut world, labels::ZONE, &expected);
    }
    for terms in [[vec![in_zone(Z[0]), nowhere()], vec![in_zone(Z[1])]], [vec![in_zone(Z[1])], vec![in_zone(Z[0]), nowhere()]]] {
        let mut world = World::new();
        world.pods("web", 4, &web(&[by_zone()], required(&terms.each_ref().map(Vec::as_slice))));
        after(&mut world, labels::ZONE, &[4]);
    }
}

/// As for kube-scheduler: for Karpenter only the domains where a pod may go bound it.
#[test]
fn domains_where_a_pod_may_not_go_bound_it_if_the_policy_says_so() {
    for (policy, nodes, placed) in [("Ignore", 1, 1), ("Ignore", 0, 3), ("Honor", 1, 3)] {
        let mut world = World::new();
        if nodes > 0 {
            world.node("old", 1, json!({labels::ZONE: Z[1]}));
        }
        let mut over = by_zone();
        over["nodeAffinityPolicy"] = json!(policy);
        world.pods("web", 3, &web(&[over], json!({"nodeSelector": {labels::ZONE: Z[0]}})));
        after(&mut world, labels::ZONE, &[placed]);
        assert_eq!(left(&world.plan()).len(), 3 - placed, "{policy}: kube-scheduler binds no further pod, machine or not");
    }
    let mut over = by_zone();
    over["nodeAffinityPolicy"] = json!("Ignore");
    let mut world = World::new();
    running(&mut world, labels::ZONE, &[Z[0], Z[0], Z[1], Z[1]]);
    world.pods("web", 3, &web(&[over], json!({"nodeSelector": {labels::ZONE: Z[0]}})));
    after(&mut world, labels::ZONE, &[2, 3]);
}

/// As kube-scheduler counts (scheduling 23): to it such nodes are in no domain, not even an empty one.
#[test]
fn nodes_without_a_label_of_another_constraint_are_not_counted() {
    let beside = |action: &str, expected: &[usize]| {
        let mut world = World::new();
        running(&mut world, labels::ZONE, &[Z[0], Z[0], Z[0]]);
        let mut other = spread(labels::CAPACITY_TYPE, "web", 2);
        other["whenUnsatisfiable"] = json!(action);
        world.pods("web", 3, &web(&[by_zone(), other], json!({})));
        after(&mut world, labels::ZONE, expected);
    };
    beside("DoNotSchedule", &[1, 1, 4]);
    beside("ScheduleAnyway", &[1, 2, 3]);
}

/// Every node counts for itself: its hostname is a label that it has.
#[test]
fn nodes_are_counted_beside_a_constraint_by_host() {
    let mut world = World::new();
    running(&mut world, labels::ZONE, &[Z[0], Z[0], Z[0]]);
    world.pods("web", 3, &web(&[by_zone(), spread(labels::HOSTNAME, "web", 3)], json!({})));
    after(&mut world, labels::ZONE, &[1, 2, 3]);
}

/// A pod that lands on a node without the label of another constraint counts no more than those that run there.
#[test]
fn placed_pods_count_where_running_ones_would() {
    let mut world = World::new();
    world.node("plain", 4, json!({labels::ZONE: Z[0], "example.com/kind": "plain"}));
    let selects_plain = json!({"cpu": "1", "labels": {"app": "web"}, "nodeSelector": {"example.com/kind": "plain"}});
    world.pods("pinned", 3, &selects_plain);
    world.pods("web", 3, &web(&[by_zone(), spread(labels::CAPACITY_TYPE, "web", 2)], json!({})));
    after(&mut world, labels::ZONE, &[1, 1, 4]);
}

/// A Node gets the labels of its instance type when it is registered. Without one of them it would count for no constraint beside that one,
/// and its host would be given another pod although it has one.
#[test]
fn a_node_that_is_not_registered_yet_counts_by_the_labels_of_its_claim() {
    let mut world = World::new();
    world.managed("joined", "launched", 64, json!({labels::ZONE: Z[0]})).0.metadata.labels.remove(labels::ZONE);
    world.pods("old", 1, &json!({"cpu": "1", "labels": {"app": "web"}}));
    world.bind("old", "joined");
    world.pods("web", 2, &web(&[by_zone(), spread(labels::HOSTNAME, "web", 1)], json!({})));
    after(&mut world, labels::HOSTNAME, &[1, 1, 1]);
    for pod in ["web-1", "web-2"] {
        assert!([Some(Z[1]), Some(Z[2])].contains(&world.label_of(pod, labels::ZONE)), "{pod}");
    }
}

/// Once it is registered, its own labels count, as for kube-scheduler.
#[test]
fn a_registered_node_counts_by_its_own_labels() {
    let mut world = World::new();
    world.managed("odd", "registered", 64, json!({labels::ZONE: Z[0]})).0.metadata.labels.remove(labels::ZONE);
    world.pods("old", 3, &json!({"cpu": "1", "labels": {"app": "web"}}));
    world.bind("old", "odd");
    world.pods("web", 3, &web(&[by_zone()], json!({})));
    after(&mut world, labels::ZONE, &[1, 1, 1]);
}

/// As kube-scheduler counts: Karpenter counts every pod of the namespace.
#[test]
fn an_empty_selector_counts_no_pod() {
    let mut over = spread(labels::HOSTNAME, "web", 1);
    over["labelSelector"] = json!({});
    let mut world = World::new();
    world.pods("web", 5, &web(&[over.clone()], json!({})));
    after(&mut world, labels::HOSTNAME, &[5]);
    over["topologyKey"] = json!("unknown");
    world.pods("web", 1, &web(&[over], json!({})));
    assert_eq!(left(&world.plan()), ["web-5"], "a node needs the label all the same");
}

#[test]
fn values_that_only_exist_elsewhere_bound_those_that_can_be_had() {
    for (key, old, new) in [(labels::CAPACITY_TYPE, "spot", "on-demand"), (labels::ARCH, "amd64", "arm64")] {
        let mut world = World::new();
        running(&mut world, key, &[old]);
        world.pool("default", json!({"requirements": [expr(key, "In", &[new])]}));
        world.pods("web", 5, &web(&[spread(key, "web", 1)], json!({})));
        after(&mut world, key, &[1, 2]);
    }
}

#[test]
fn several_constraints_hold_together() {
    let mut world = World::new();
    for (count, expected) in [(2, vec![1, 1]), (3, vec![1, 2, 2]), (5, vec![3, 3, 4]), (11, vec![7, 7, 7])] {
        world.pods("web", count, &web(&[by_zone(), spread(labels::HOSTNAME, "web", 3)], json!({})));
        after(&mut world, labels::ZONE, &expected);
        assert!(world.counts(labels::HOSTNAME, "web").iter().all(|n| *n <= 3));
    }
    let mut world = World::new();
    for (count, expected) in [(2, vec![1, 1]), (3, vec![2, 3]), (5, vec![5, 5]), (11, vec![10, 11])] {
        world.pods("web", count, &web(&[spread(labels::CAPACITY_TYPE, "web", 1), spread(labels::HOSTNAME, "web", 3)], json!({})));
        after(&mut world, labels::CAPACITY_TYPE, &expected);
        assert!(world.counts(labels::HOSTNAME, "web").iter().all(|n| *n <= 3));
    }
    let mut world = World::new();
    for count in [2, 3, 3, 11] {
        world.pods("web", count, &web(&[spread(labels::CAPACITY_TYPE, "web", 1), by_zone()], json!({})));
        world.pass();
        for key in [labels::CAPACITY_TYPE, labels::ZONE] {
            let counts = world.counts(key, "web");
            assert!(counts.last().unwrap() - counts[0] <= 1, "{key}: {counts:?}");
        }
    }
}

#[test]
fn three_skews_hold_step_by_step_on_a_large_catalogue() {
    let mut world = World::new();
    world.types = assorted()
        .into_iter()
        .filter(|t| t.label("integer").is_some_and(|n| ["2", "16"].contains(&n)) && t.label(labels::ARCH) == Some("amd64"))
        .collect();
    for count in 1..=14 {
        let three = [spread(labels::CAPACITY_TYPE, "web", 1), spread(labels::ZONE, "web", 2), spread(labels::HOSTNAME, "web", 3)];
        world.pods("web", count, &web(&three, json!({})));
        world.pass();
        for (key, skew) in [(labels::CAPACITY_TYPE, 1), (labels::ZONE, 2)] {
            let counts = world.counts(key, "web");
            let domains = if key == labels::ZONE { 3 } else { 2 };
            let least = if counts.len() < domains { 0 } else { counts[0] };
            assert!(counts.last().unwrap() - least <= skew, "{key}: {counts:?}");
        }
        assert!(world.counts(labels::HOSTNAME, "web").iter().all(|n| *n <= 3));
    }
}

#[test]
fn values_of_a_custom_label_express_a_ratio() {
    let mut world = World::new();
    let pool = |values: &[&str], capacity_type: &str| json!({"requirements": [expr("slot", "In", values), expr(labels::CAPACITY_TYPE, "In", &[capacity_type])]});
    world.pool("default", pool(&["2", "3", "4", "5"], "spot"));
    world.pool("base", pool(&["1"], "on-demand"));
    world.pods("web", 20, &web(&[spread("slot", "web", 1)], json!({})));
    after(&mut world, "slot", &[4; 5]);
    assert_eq!(world.counts(labels::CAPACITY_TYPE, "web"), [4, 16]);
}

#[test]
fn an_exhausted_zone_stays_a_domain() {
    let mut world = World::new();
    world.pool("default", zones(&Z[..2]));
    world.pool("empty", all(&[zones(&[Z[2]]), json!({"limits": {"cpu": "0"}})]));
    let mut anyway = spread(labels::HOSTNAME, "web", 1);
    anyway["whenUnsatisfiable"] = json!("ScheduleAnyway");
    world.pods("web", 10, &web(&[by_zone(), anyway], json!({})));
    after(&mut world, labels::ZONE, &[1, 1]);
    // And a domain without capacity.
    let mut world = World::new();
    world.pool("default", zones(&Z[..2]));
    world.pool("other", zones(&[Z[2]]));
    for t in &mut world.types {
        t.offerings.iter_mut().filter(|o| o.zone() == Z[2]).for_each(|o| o.available = false);
    }
    world.pods("web", 10, &web(&[by_zone()], json!({})));
    let plan = world.pass();
    assert_eq!((world.counts(labels::ZONE, "web"), left(&plan).len()), (vec![1, 1], 8));
}

/// The small type in the first two zones alone, and all others in three.
fn sold_in_two_zones(world: &mut World) {
    let small = world.types.iter_mut().find(|t| t.name == "small-instance-type").unwrap();
    *small = with(small.clone(), labels::ZONE, &Z[..2]);
    small.offerings.retain(|o| o.zone() != Z[2]);
}

/// For Karpenter each zone that a NodePool lists is a domain for everybody, and so are the zones of types that no NodePool allows: pods
/// wait for a node there that nobody can launch, and that kube-scheduler does not ask for (scheduling 23).
#[test]
fn a_zone_in_which_no_pool_can_launch_is_no_domain() {
    let listed = zones(&[Z[0], Z[1], "nowhere"]);
    for (default, other) in [(listed, None), (zones(&Z[..2]), Some(zones(&["nowhere"])))] {
        let mut world = World::new();
        world.pool("default", default);
        if let Some(other) = other {
            world.pool("other", other);
        }
        world.pods("web", 10, &web(&[by_zone()], json!({})));
        after(&mut world, labels::ZONE, &[5, 5]);
    }
    let small = json!({"requirements": [expr(labels::INSTANCE_TYPE, "In", &["small-instance-type"])]});
    for (pool, expected) in [(small, [5, 5].as_slice()), (json!({}), &[3, 3, 4])] {
        let mut world = World::new();
        sold_in_two_zones(&mut world);
        world.pool("default", pool);
        world.pods("web", 10, &web(&[by_zone()], json!({})));
        after(&mut world, labels::ZONE, expected);
    }
}

/// For Karpenter each zone of a type is a domain, also for a NodePool whose capacity type is not sold there (scheduling 23).
#[test]
fn a_zone_in_which_the_capacity_type_is_not_sold_is_no_domain() {
    let spot = json!({"requirements": [expr(labels::CAPACITY_TYPE, "In", &["spot"])]});
    let of_spot = json!({"nodeSelector": {labels::CAPACITY_TYPE: "spot"}});
    for (pool, pods) in [(spot.clone(), json!({})), (json!({}), of_spot.clone()), (spot.clone(), of_spot)] {
        let mut world = World::new();
        world.pool("default", pool);
        world.pods("web", 10, &web(&[by_zone()], pods));
        after(&mut world, labels::ZONE, &[5, 5]);
    }
    // One in which it is out of stock is a domain; without a price it is not sold.
    for (is_priced, expected) in [(true, [1, 1]), (false, [5, 5])] {
        let mut world = World::new();
        world.pool("default", spot.clone());
        for t in &mut world.types {
            let mut out_of_stock = t.offerings[0].clone();
            let third = json!([expr(labels::CAPACITY_TYPE, "In", &["spot"]), expr(labels::ZONE, "In", &[Z[2]])]);
            out_of_stock.requirements = serde_json::from_value(third).unwrap();
            out_of_stock.available = false;
            if !is_priced {
                out_of_stock.price = whittle_units::Price::ZERO;
            }
            t.offerings.push(out_of_stock);
        }
        world.pods("web", 10, &web(&[by_zone()], json!({})));
        after(&mut world, labels::ZONE, &expected);
    }
}

/// Where fewer types are sold than `minValues` ask for, no machine is launched. For Karpenter such a zone is a domain, too (scheduling 23).
#[test]
fn a_zone_that_sells_fewer_types_than_asked_is_no_domain() {
    let (strict, lenient) = (MinValuesPolicy::Strict, MinValuesPolicy::BestEffort);
    for (least, policy, expected) in [(3, strict, [5, 5].as_slice()), (2, strict, &[3, 3, 4]), (3, lenient, &[3, 3, 4])] {
        let mut world = World::new();
        world.options.min_values = policy;
        for t in &mut world.types {
            if !["default-instance-type", "small-instance-type"].contains(&t.name.as_str()) {
                *t = with(t.clone(), labels::ZONE, &Z[..2]);
                t.offerings.retain(|o| o.zone() != Z[2]);
            }
        }
        world.pool("default", json!({"requirements": [{"key": labels::INSTANCE_TYPE, "operator": "Exists", "minValues": least}]}));
        world.pods("web", 10, &web(&[by_zone()], json!({})));
        after(&mut world, labels::ZONE, expected);
    }
}

/// A node that runs there counts all the same, as for kube-scheduler.
#[test]
fn a_zone_with_a_node_is_a_domain_whatever_is_sold_there() {
    let mut world = World::new();
    world.pool("default", json!({"requirements": [expr(labels::CAPACITY_TYPE, "In", &["spot"])]}));
    let third = world.node("third", 1, json!({labels::ZONE: Z[2]}));
    third.spec.taints = serde_json::from_value(json!([{"key": "full", "effect": "NoSchedule"}])).unwrap();
    world.pods("web", 10, &web(&[by_zone()], json!({})));
    after(&mut world, labels::ZONE, &[1, 1]);
}

/// As for kube-scheduler, which counts only the nodes that a pod's node selector and node affinity allow (scheduling 23). For Karpenter the
/// zones of every NodePool bound the pods of each.
#[test]
fn a_zone_in_which_no_node_would_count_is_no_domain() {
    let of_team = |team: &str| json!({"labels": {"team": team}});
    let world_with = |nodes: &[(&str, &str)]| {
        let mut world = World::new();
        world.pool("default", of_team("a"));
        world.pool("other", all(&[zones(&Z[..2]), of_team("b")]));
        for (team, zone) in nodes {
            world.node(&format!("of-{team}"), 4, json!({labels::ZONE: zone, "team": team}));
        }
        world
    };
    let places = |nodes: &[(&str, &str)], expected: &[usize]| {
        let mut world = world_with(nodes);
        let mut over = by_zone();
        over["minDomains"] = json!(2);
        world.pods("web", 10, &web(&[over], json!({"nodeSelector": {"team": "b"}})));
        after(&mut world, labels::ZONE, expected);
    };
    places(&[], &[5, 5]);
    places(&[("a", Z[2])], &[5, 5]);
    places(&[("b", Z[2])], &[3, 3, 4]);
    places(&[("a", Z[2]), ("b", Z[0])], &[5, 5]);
    // The zones of every alternative, as before.
    let mut world = world_with(&[]);
    world.pods("web", 3, &web(&[by_zone()], required(&[&[expr("team", "In", &["b"])], &[expr("team", "In", &["a"])]])));
    after(&mut world, labels::ZONE, &[1, 1, 1]);
    // Of the types that the pods select, not of all that the NodePool allows.
    let mut world = World::new();
    sold_in_two_zones(&mut world);
    world.pods("web", 10, &web(&[by_zone()], json!({"nodeSelector": {labels::INSTANCE_TYPE: "small-instance-type"}})));
    after(&mut world, labels::ZONE, &[5, 5]);
}

/// A node without the label of another hard constraint counts for none of them (scheduling 23), and so does one that could be launched.
#[test]
fn a_zone_whose_machines_would_lack_another_label_is_no_domain() {
    let in_racks = json!({"requirements": [expr(labels::ZONE, "In", &Z[..2]), expr("rack", "In", &["r1", "r2"])]});
    for other in [json!({}), zones(&[Z[2]])] {
        let mut world = World::new();
        world.pool("default", in_racks.clone());
        world.pool("other", other);
        world.pods("web", 10, &web(&[by_zone(), spread("rack", "web", 1)], json!({})));
        after(&mut world, labels::ZONE, &[5, 5]);
        assert_eq!(world.counts("rack", "web"), [5, 5]);
    }
    // All machines have a type.
    let mut world = World::new();
    world.pool("default", zones(&Z[..2]));
    world.pool("other", zones(&[Z[2]]));
    world.pods("web", 9, &web(&[by_zone(), spread(labels::CAPACITY_TYPE, "web", 9)], json!({})));
    after(&mut world, labels::ZONE, &[3, 3, 3]);
}

#[test]
fn match_label_keys_spread_each_revision_alone() {
    let mut over = spread(labels::HOSTNAME, "web", 1);
    over["matchLabelKeys"] = json!(["revision", "unknown"]);
    let mut world = World::new();
    for revision in ["a", "b"] {
        world.pods("web", 2, &web(&[over.clone()], json!({"labels": {"app": "web", "revision": revision}})));
    }
    after(&mut world, labels::HOSTNAME, &[2, 2]);
}

#[test]
fn taints_count_when_the_policy_says_so() {
    let taint = |value: &str| json!([{"key": "k", "value": value, "effect": "NoSchedule"}]);
    let over = |policy: &str| {
        let mut over = spread("fake", "web", 1);
        over["nodeTaintsPolicy"] = json!(policy);
        over
    };
    for (policy, expected) in [("Ignore", vec![1]), ("Honor", vec![5])] {
        let mut world = World::new();
        world.pool("default", json!({"labels": {"fake": "baz"}}));
        for value in ["foo", "bar"] {
            world.node(value, 4, json!({"fake": value})).spec.taints = serde_json::from_value(taint("x")).unwrap();
        }
        world.pods("web", 5, &web(&[over(policy)], json!({})));
        after(&mut world, "fake", &expected);
    }
    for (policy, expected) in [("Ignore", vec![1]), ("Honor", vec![2])] {
        let mut world = World::new();
        world.pool("default", json!({"labels": {"fake": "foo"}}));
        world.pool("tainted", json!({"taints": taint("x"), "requirements": [expr("fake", "In", &["bar"])]}));
        world.pods("web", 2, &web(&[over(policy)], json!({})));
        after(&mut world, "fake", &expected);
    }
    let mut world = World::new();
    world.objects.node_pools.clear();
    world.pool("a", json!({"taints": taint("a"), "requirements": [expr("fake", "In", &["foo", "bar"])]}));
    world.pool("b", json!({"taints": taint("b"), "requirements": [expr("fake", "In", &["foo", "baz"])]}));
    for (value, count) in [("a", 2), ("b", 4)] {
        let tolerating = json!({"tolerations": [{"key": "k", "value": value}]});
        world.pods("web", count, &web(&[over("Honor")], tolerating));
    }
    after(&mut world, "fake", &[1, 2, 3]);
}

/// Kube-scheduler counts such nodes for every policy (scheduling 23).
#[test]
fn a_taint_that_is_only_preferred_takes_no_node_out_of_a_spread() {
    for (effect, policy, waiting) in
        [("PreferNoSchedule", "Honor", 1), ("PreferNoSchedule", "Ignore", 1), ("NoSchedule", "Honor", 0), ("NoSchedule", "Ignore", 1)]
    {
        let mut world = World::new();
        world.pool("default", zones(&Z[..2]));
        let node = world.node("full", 1, json!({labels::ZONE: Z[2]}));
        node.spec.taints = serde_json::from_value(json!([{"key": "k", "effect": effect}])).unwrap();
        let mut over = by_zone();
        over["nodeTaintsPolicy"] = json!(policy);
        world.pods("web", 3, &web(&[over], json!({"cpu": "2"})));
        assert_eq!(world.plan().left_out.len(), waiting, "{effect}, {policy}");
    }
}

/// Where a zone bounds the spread that has only nodes with taints, its own policy helps (scheduling 23).
#[test]
fn a_spread_that_a_tainted_domain_blocks_is_told_of_the_policy() {
    let tainted = || json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    let world_with = |default: Value, policy: &str| {
        let mut world = World::new();
        world.pool("default", default);
        world.pool("tainted", all(&[zones(&Z[2..]), tainted()]));
        let mut over = by_zone();
        over["nodeTaintsPolicy"] = json!(policy);
        world.pods("web", 5, &web(&[over], json!({})));
        world
    };
    let is_told = |world: &World| {
        let plan = world.plan();
        let mut remedies = plan.left_out.iter().flat_map(|left| left.reason.remedies());
        (plan.left_out.len(), remedies.any(|remedy| remedy.text.contains("nodeTaintsPolicy: Honor, ")))
    };
    // The NodePool is not in the zone; or it is, and the types are not sold there as it asks.
    let of_spot = || json!({"requirements": [expr(labels::CAPACITY_TYPE, "In", &["spot"])]});
    for default in [zones(&Z[..2]), of_spot()] {
        assert_eq!(is_told(&world_with(default.clone(), "Ignore")), (3, true), "{default}");
        assert_eq!(is_told(&world_with(default, "Honor")), (0, false));
    }
    // A node that the pods tolerate bounds the spread all the same, and so does a NodePool without taints that has reached its limit.
    let mut world = world_with(zones(&Z[..2]), "Ignore");
    world.node("full", 0, json!({labels::ZONE: Z[2]}));
    assert_eq!(is_told(&world), (3, false));
    world.objects.nodes[0].spec.taints = serde_json::from_value(tainted()["taints"].clone()).unwrap();
    assert_eq!(is_told(&world), (3, true));
    world.pool("limited", all(&[zones(&Z[2..]), json!({"limits": {"cpu": "0"}})]));
    assert_eq!(is_told(&world), (3, false));
}

#[test]
fn node_affinity_counts_when_the_policy_says_so() {
    for (policy, expected) in [("Ignore", vec![1]), ("Honor", vec![5])] {
        let mut world = World::new();
        world.pool("default", json!({"labels": {"fake": "baz", "selected": "yes"}}));
        for value in ["foo", "bar"] {
            world.node(value, 4, json!({"fake": value, "selected": "no"}));
        }
        let mut over = spread("fake", "web", 1);
        over["nodeAffinityPolicy"] = json!(policy);
        world.pods("web", 5, &web(&[over], json!({"nodeSelector": {"selected": "yes"}})));
        after(&mut world, "fake", &expected);
    }
}

#[test]
fn pods_with_different_selectors_balance_in_their_own_domains() {
    let mut world = World::new();
    for (zone, count) in [(Z[0], 5), (Z[1], 10)] {
        world.pods("web", count, &web(&[by_zone()], json!({"nodeSelector": {labels::ZONE: zone}})));
    }
    after(&mut world, labels::ZONE, &[5, 10]);
    let mut world = World::new();
    for capacity_type in ["spot", "on-demand"] {
        world.pods(
            "web",
            5,
            &web(&[spread(labels::CAPACITY_TYPE, "web", 1)], json!({"nodeSelector": {labels::CAPACITY_TYPE: capacity_type}})),
        );
    }
    after(&mut world, labels::CAPACITY_TYPE, &[5, 5]);
}

#[test]
fn a_required_affinity_limits_the_domains_and_a_preferred_one_does_not() {
    let only = |zones: &[&str]| required(&[&[expr(labels::ZONE, "In", zones)]]);
    let mut world = World::new();
    world.pods("web", 10, &web(&[by_zone()], only(&Z[..2])));
    after(&mut world, labels::ZONE, &[5, 5]);
    let mut world = World::new();
    world.pods("web", 6, &web(&[by_zone()], only(&Z[..2])));
    after(&mut world, labels::ZONE, &[3, 3]);
    world.pods("web", 1, &web(&[by_zone()], only(&Z)));
    after(&mut world, labels::ZONE, &[1, 3, 3]);
    world.pods("web", 5, &web(&[by_zone()], only(&Z)));
    after(&mut world, labels::ZONE, &[4, 4, 4]);
    let mut world = World::new();
    world.pods("web", 6, &web(&[by_zone()], preferred(&[(1, expr(labels::ZONE, "In", &Z[..2]))])));
    after(&mut world, labels::ZONE, &[2, 2, 2]);
    let by_type =
        |values: &[&str]| web(&[spread(labels::CAPACITY_TYPE, "web", 1)], required(&[&[expr(labels::CAPACITY_TYPE, "In", values)]]));
    let mut world = World::new();
    world.pods("web", 3, &by_type(&["spot"]));
    after(&mut world, labels::CAPACITY_TYPE, &[3]);
    world.pods("web", 1, &by_type(&["spot", "on-demand"]));
    after(&mut world, labels::CAPACITY_TYPE, &[1, 3]);
    world.pods("web", 5, &web(&[spread(labels::CAPACITY_TYPE, "web", 1)], json!({})));
    after(&mut world, labels::CAPACITY_TYPE, &[4, 5]);
}

#[test]
fn of_domains_that_are_as_good_the_one_that_is_sold_is_taken() {
    let mut world = World::new();
    for t in &mut world.types {
        t.offerings.retain(|o| o.zone() == Z[1]);
    }
    world.pods("web", 1, &web(&[by_zone()], json!({})));
    after(&mut world, labels::ZONE, &[1]);
    // Two keys at once: on demand in the second zone alone, spot in the first.
    let mut world = World::new();
    for t in &mut world.types {
        t.offerings.retain(|o| (o.capacity_type(), o.zone()) == ("on-demand", Z[1]) || (o.capacity_type(), o.zone()) == ("spot", Z[0]));
    }
    world.pods("web", 2, &web(&[by_zone(), spread(labels::CAPACITY_TYPE, "web", 1)], json!({})));
    after(&mut world, labels::ZONE, &[1, 1]);
}

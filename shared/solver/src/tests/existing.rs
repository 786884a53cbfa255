//! Existing and starting machines, and pods that move.

use super::world::{World, Z, all, expr, left, near, now, required, sizes, spread};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_api::k8s::{Pod, Taint, TaintEffect};
use whittle_api::{ConditionStatus, conditions, labels};
use whittle_model::scheduling::{Options, Packing};
use whittle_units::SignedDuration;

#[test]
fn a_node_that_does_not_say_its_type_yet_is_not_looked_at_and_its_claim_is() {
    for (state, expected) in [("launched", "claim-n"), ("registered", "claim-n"), ("initialized", "n")] {
        let mut world = World::new();
        world.types.clear();
        world.managed("n", state, 4, json!({})).0.metadata.labels.remove(labels::INSTANCE_TYPE);
        world.pod("it", json!({"cpu": "1"}));
        assert_eq!(world.plan().placements.iter().map(|p| p.node.as_str()).collect::<Vec<_>>(), [expected], "{state}");
    }
    for (more, fits) in [(json!({}), false), (json!({labels::INSTANCE_TYPE: "x"}), true), (json!({labels::INITIALIZED: "true"}), true)] {
        let mut world = World::new();
        world.types.clear();
        world.node("n", 4, all(&[json!({labels::NODE_POOL: "default"}), more])).spec.provider_id = "aws:///n".into();
        world.pod("it", json!({"cpu": "1"}));
        assert_eq!(left(&world.plan()).is_empty(), fits, "a node whose claim is gone");
    }
}

#[test]
fn pods_of_a_node_that_does_not_say_its_type_yet_take_room_of_its_claim() {
    for (cpu, expected) in [("1", (1, 0)), ("2", (0, 0))] {
        let mut world = World::new();
        world.types.clear();
        world.managed("n", "registered", 4, json!({})).0.metadata.labels.remove(labels::INSTANCE_TYPE);
        world.pod("old", json!({"cpu": "3", "nodeName": "n"})).status.phase = "Running".into();
        world.pod("it", json!({"cpu": cpu}));
        check(&world, expected);
    }
}

/// How many pods went to existing machines, and how many new machines were planned.
#[track_caller]
fn check(world: &World, expected: (usize, usize)) {
    let plan = world.plan();
    assert_eq!((plan.placements.iter().map(|p| p.pods.len()).sum::<usize>(), plan.claims.len()), expected);
}

#[test]
fn a_machine_on_its_way_takes_what_fits_and_matches() {
    let with_room = |labels: Value, spec: Value, expected| {
        let mut world = World::new();
        world.managed("n", "launched", 4, labels);
        world.pod("it", spec);
        check(&world, expected);
    };
    with_room(json!({}), json!({"cpu": "1"}), (1, 0));
    with_room(json!({labels::ZONE: Z[1]}), json!({"nodeSelector": {labels::ZONE: Z[1]}}), (1, 0));
    with_room(json!({}), json!({"cpu": "5"}), (0, 1));
    with_room(json!({labels::ZONE: Z[1]}), json!({"nodeSelector": {labels::ZONE: Z[0]}}), (0, 1));
    let mut world = World::new();
    world.managed("n", "launched", 4, json!({})).1.metadata.deletion_timestamp = Some(now());
    world.pod("it", json!({}));
    check(&world, (0, 1));
}

/// A label that it lacks is there once it is launched, and then kube-scheduler does not bind who excludes its value.
#[test]
fn a_pod_goes_to_a_machine_to_come_only_if_it_may_be_on_whatever_that_becomes() {
    const TEAM: &str = "example.com/team";
    let placed = |stated: &Value, is_launched: bool, term: Value| {
        let mut world = World::new();
        let claim = world.managed("n", "launched", 4, json!({})).1;
        claim.spec.requirements = serde_json::from_value(json!([stated])).unwrap();
        if is_launched {
            conditions::set(&mut claim.status.conditions, conditions::LAUNCHED, ConditionStatus::True, "", "", now());
        }
        world.objects.nodes.clear();
        world.pod("it", all(&[json!({"cpu": "1"}), required(&[&[term]])]));
        let plan = world.plan();
        assert!(left(&plan).is_empty());
        plan.placements.len()
    };
    let in_two = expr(labels::ZONE, "In", &Z[..2]);
    assert_eq!(placed(&in_two, false, expr(labels::ZONE, "NotIn", &[Z[0]])), 0, "it may be launched there");
    assert_eq!(placed(&in_two, false, expr(labels::ZONE, "NotIn", &[Z[2]])), 1, "it cannot be launched there");
    assert_eq!(placed(&in_two, true, expr(labels::ZONE, "NotIn", &[Z[0]])), 1, "it has all labels that it will get");
    assert_eq!(placed(&in_two, false, expr(TEAM, "NotIn", &["a"])), 1, "no launch gives it that label");
    let outside = expr(labels::ZONE, "NotIn", &[Z[0]]);
    assert_eq!(placed(&outside, false, expr(labels::ZONE, "NotIn", &[Z[0]])), 1);
    assert_eq!(placed(&outside, false, expr(labels::ZONE, "NotIn", &[Z[1]])), 0);
    assert_eq!(placed(&expr(TEAM, "In", &["a", "b"]), false, expr(TEAM, "DoesNotExist", &[])), 0, "it gets one of them");
}

#[test]
fn batches_leave_at_most_one_machine_with_room() {
    let mut world = World::new();
    for (batch, count) in [3, 7, 0, 9, 1, 4, 2, 8, 5, 6].into_iter().enumerate() {
        world.pods(&format!("b{batch}"), count, &json!({"cpu": "900m", "nodeSelector": {labels::INSTANCE_TYPE: "default-instance-type"}}));
        world.pass();
    }
    let mut on: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    world.objects.pods.iter().for_each(|p| *on.entry(&p.spec.node_name).or_default() += 1);
    assert!(on.values().filter(|n| **n < 4).count() <= 1, "{on:?}");
    assert_eq!(on.values().sum::<usize>(), 45);
}

#[test]
fn a_zone_spread_goes_on_over_the_same_machines() {
    let mut world = World::new();
    let spec = json!({"requests": {"cpu": "10m"}, "topologySpreadConstraints": [spread(labels::ZONE, "web", 1)]});
    world.pods("web", 4, &spec);
    world.pass();
    assert_eq!((world.counts(labels::ZONE, "web"), world.objects.nodes.len()), (vec![1, 1, 2], 3));
    world.pods("web", 5, &spec);
    world.pass();
    assert_eq!((world.counts(labels::ZONE, "web"), world.objects.nodes.len()), (vec![3, 3, 3], 3));
}

#[test]
fn a_host_spread_opens_new_hosts() {
    let mut world = World::new();
    let spec = json!({"requests": {"cpu": "10m"}, "topologySpreadConstraints": [spread(labels::HOSTNAME, "web", 1)]});
    world.pods("web", 4, &spec);
    world.pass();
    world.pods("web", 5, &spec);
    world.pass();
    assert_eq!(world.counts(labels::HOSTNAME, "web"), [1; 9]);
}

#[test]
fn initialized_machines_come_first() {
    for state in ["launched", "registered"] {
        let mut world = World::new();
        for n in 0..100 {
            world.managed(&format!("a{n:02}"), state, 16, json!({}));
        }
        world.managed("z", "initialized", 16, json!({}));
        world.pod("it", json!({}));
        let plan = world.plan();
        assert_eq!((plan.placements[0].node.as_str(), plan.placements[0].initialized), ("z", true));
    }
}

#[test]
fn nodes_without_a_node_pool_take_pods() {
    for count in [1, 100] {
        let mut world = World::new();
        world.node("n", 64, json!({}));
        world.pods("web", count, &json!({"requests": {"cpu": "10m"}}));
        check(&world, (count, 0));
    }
}

/// Karpenter launches a machine for each of them (scheduling 7.2).
#[test]
fn a_node_that_is_overdrawn_takes_pods_that_ask_for_nothing_of_that() {
    for (spec, expected) in [(json!({"cpu": "1"}), (1, 0)), (json!({"cpu": "1", "memory": "1Mi"}), (0, 1))] {
        let mut world = World::new();
        world.node("n", 4, json!({}));
        world.pod("large", json!({"memory": "5Gi", "nodeName": "n"})).status.phase = "Running".into();
        world.pod("it", spec);
        check(&world, expected);
    }
}

#[test]
fn a_node_without_the_required_label_is_passed_over() {
    for managed in [false, true] {
        let mut world = World::new();
        if managed {
            world.managed("n", "initialized", 16, json!({}));
        } else {
            world.node("n", 16, json!({}));
        }
        world.pod("it", json!({"nodeSelector": {labels::ZONE: Z[0]}}));
        check(&world, (0, 1));
        world.objects.node_pools.clear();
        check(&world, (0, 0));
    }
}

#[test]
fn without_a_pool_that_is_the_reason_even_beside_room() {
    let mut world = World::new();
    world.node("n", 16, json!({}));
    world.objects.node_pools.clear();
    world.pod("it", json!({}));
    assert_eq!(super::world::reasons(&world.plan()), ["no dynamic nodepools found"]);
}

/// Whether a pod goes to a machine with this taint.
fn usable(state: &str, taint: Value, startup: Value) -> bool {
    let mut world = World::new();
    if state == "unmanaged" {
        world.node("n", 16, json!({})).spec.taints = serde_json::from_value(json!([taint])).unwrap();
    } else {
        let (node, claim) = world.managed("n", state, 16, json!({}));
        node.spec.taints = serde_json::from_value(json!([taint])).unwrap();
        claim.spec.taints.clone_from(&node.spec.taints);
        claim.spec.startup_taints = serde_json::from_value(startup).unwrap();
    }
    world.pod("it", json!({}));
    world.plan().claims.is_empty()
}

#[test]
fn taints_of_a_start_up_do_not_count_before_it_is_over() {
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let starting = [
        taint("node.kubernetes.io/not-ready", "NoSchedule"),
        taint("node.kubernetes.io/not-ready", "NoExecute"),
        taint("node.kubernetes.io/unreachable", "NoSchedule"),
        json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}),
        taint(labels::UNREGISTERED_TAINT, "NoExecute"),
        taint("readiness.k8s.io/network", "NoSchedule"),
        taint("readiness.k8s.io/storage", "NoExecute"),
        taint("readiness.k8s.io/soft", "PreferNoSchedule"),
    ];
    for taint in &starting {
        assert!(usable("launched", taint.clone(), json!([])), "{taint}");
        assert!(usable("registered", taint.clone(), json!([])), "{taint}");
        assert!(!usable("initialized", taint.clone(), json!([])), "{taint}");
        assert!(!usable("unmanaged", taint.clone(), json!([])), "{taint}");
    }
    let custom = taint("example.com/own", "NoSchedule");
    assert!(usable("registered", custom.clone(), json!([custom])), "a startup taint of the claim");
    assert!(!usable("registered", custom.clone(), json!([])));
    assert!(!usable("initialized", custom.clone(), json!([custom])), "it should be gone by now");
    assert!(!usable("registered", taint("my.readiness.k8s.io/x", "NoSchedule"), json!([])));
}

#[test]
fn resources_that_the_kubelet_has_not_reported_yet_are_those_of_the_claim() {
    let mut world = World::new();
    world.types.clear();
    let (node, claim) = world.managed("n", "registered", 4, json!({}));
    claim.status.capacity.set("gpu.example/x", whittle_units::Quantity::from_units(2));
    claim.status.allocatable.set("gpu.example/x", whittle_units::Quantity::from_units(2));
    node.status.capacity.set("gpu.example/x", whittle_units::Quantity::ZERO);
    node.status.allocatable.set("gpu.example/x", whittle_units::Quantity::ZERO);
    world.pod("it", json!({"requests": {"gpu.example/x": "1"}}));
    check(&world, (1, 0));
    world.objects.nodes[0].metadata.labels.insert(labels::INITIALIZED.into(), "true".into());
    check(&world, (0, 0));
}

/// A machine of four cores whose Node lacks labels. Three cores are in use, and its NodeClaim expects a GPU that the Node does not report.
/// Whether a pod that asks for this fits there: 1 or 0.
#[track_caller]
fn check_without(gone: &[&str], has_initialized: ConditionStatus, taints: &[Taint], asked: Value, expected: usize) {
    let mut world = World::new();
    world.types.clear();
    let (node, claim) = world.managed("n", "initialized", 4, json!({}));
    conditions::set(&mut claim.status.conditions, conditions::INITIALIZED, has_initialized, "", "", now());
    claim.status.capacity.set("gpu.example/x", whittle_units::Quantity::from_units(1));
    claim.status.allocatable.set("gpu.example/x", whittle_units::Quantity::from_units(1));
    gone.iter().for_each(|label| drop(node.metadata.labels.remove(*label)));
    node.spec.taints = taints.to_vec();
    world.pod("old", json!({"cpu": "3", "nodeName": "n"})).status.phase = "Running".into();
    world.pod("it", asked);
    check(&world, (expected, 0));
}

/// A kubelet may take any of them off its Node.
#[test]
fn a_machine_that_has_initialized_does_not_start_again_without_the_labels_of_its_node() {
    let (yes, not_yet) = (ConditionStatus::True, ConditionStatus::Unknown);
    let unreachable = [Taint::new("node.kubernetes.io/unreachable", TaintEffect::NoSchedule)];
    let own: [&[&str]; 4] = [
        &[labels::INITIALIZED],
        &[labels::INITIALIZED, labels::REGISTERED],
        &[labels::INITIALIZED, labels::INSTANCE_TYPE],
        &[labels::INITIALIZED, labels::INSTANCE_TYPE, labels::REGISTERED],
    ];
    for gone in own {
        check_without(gone, yes, &[], json!({"cpu": "1"}), 1);
        check_without(gone, yes, &[], json!({"cpu": "2"}), 0);
        check_without(gone, yes, &unreachable, json!({"cpu": "1"}), 0);
        check_without(gone, yes, &[], json!({"requests": {"gpu.example/x": "1"}}), 0);
        // One that starts has that before it.
        check_without(gone, not_yet, &unreachable, json!({"cpu": "1"}), 1);
        check_without(gone, not_yet, &[], json!({"cpu": "2"}), 0);
        check_without(gone, not_yet, &[], json!({"requests": {"gpu.example/x": "1"}}), 1);
    }
    check_without(&[labels::REGISTERED], yes, &unreachable, json!({"cpu": "1"}), 0);
}

#[test]
fn a_node_takes_no_more_than_its_machine_can_have_whatever_it_reports() {
    let room = |resource: &str, reported: &str, asked: &str, expected| {
        let mut world = World::new();
        world.types.clear();
        world.managed("n", "initialized", 4, json!({})).0.status.allocatable.set(resource, reported.parse().unwrap());
        world.pod("it", json!({resource: asked}));
        check(&world, expected);
    };
    room("cpu", "1000", "5", (0, 0));
    room("cpu", "1000", "3", (1, 0));
    room("memory", "1000Gi", "5Gi", (0, 0));
    room("memory", "1000Gi", "3Gi", (1, 0));
    // Twice as much is believed, and less always.
    room("cpu", "8", "7", (1, 0));
    room("cpu", "1", "3", (0, 0));
    // Nobody knows the machine of a node without a NodeClaim.
    let mut world = World::new();
    world.types.clear();
    world.node("n", 4, json!({})).status.allocatable.set("cpu", whittle_units::Quantity::from_units(1000));
    world.pod("it", json!({"cpu": "5"}));
    check(&world, (1, 0));
}

#[test]
fn a_node_neither_uses_up_the_limits_of_its_pool_nor_lifts_them_by_what_it_reports() {
    let launched = |cpu: i64, limit: &str, expected| {
        let mut world = World::new();
        world.types.truncate(1); // of four cores
        world.pool("default", json!({"limits": {"cpu": limit}}));
        let (node, _) = world.managed("n", "initialized", 4, json!({}));
        node.status.capacity.set("cpu", whittle_units::Quantity::from_units(cpu));
        node.status.allocatable.set("cpu", whittle_units::Quantity::ZERO);
        world.pod("it", json!({"cpu": "3"}));
        check(&world, (0, expected));
    };
    launched(4, "8", 1);
    launched(4, "7", 0);
    launched(1_000_000, "8", 1);
    launched(0, "7", 0);
    // What the machine may have counts as it is reported.
    launched(8, "8", 0);
    launched(2, "6", 1);
}

#[test]
fn a_node_that_leaves_its_pool_by_its_label_uses_up_the_limits_all_the_same() {
    let launched = |change: fn(&mut World)| {
        let mut world = World::new();
        world.types.truncate(1); // of four cores
        world.pool("default", json!({"limits": {"cpu": "7"}}));
        world.managed("n", "initialized", 4, json!({})).0.status.allocatable.set("cpu", whittle_units::Quantity::ZERO);
        world.pod("it", json!({"cpu": "3"}));
        change(&mut world);
        world.plan().claims.len()
    };
    assert_eq!(launched(|_| ()), 0);
    assert_eq!(launched(|world| drop(world.objects.nodes[0].metadata.labels.remove(labels::NODE_POOL))), 0);
    assert_eq!(launched(|world| drop(world.objects.nodes[0].metadata.labels.insert(labels::NODE_POOL.into(), "other".into()))), 0);
    // The label of a node without a NodeClaim is all that is known.
    assert_eq!(launched(|world| world.objects.node_claims.clear()), 0);
    let of_another = |world: &mut World| {
        world.objects.node_claims.clear();
        drop(world.objects.nodes[0].metadata.labels.insert(labels::NODE_POOL.into(), "other".into()));
    };
    assert_eq!(launched(of_another), 1);
}

#[test]
fn only_bound_pods_that_run_take_room() {
    let room = |change: fn(&mut whittle_api::k8s::Pod)| {
        let mut world = World::new();
        world.types.clear();
        world.node("n", 4, json!({}));
        let port = json!([{"containerPort": 80, "hostPort": 80}]);
        world.pod("old", json!({"cpu": "3", "ports": port, "nodeName": "n"})).status =
            serde_json::from_value(json!({"phase": "Running"})).unwrap();
        change(&mut world.objects.pods[0]);
        world.pod("it", json!({"cpu": "2", "ports": port}));
        left(&world.plan()).is_empty()
    };
    assert!(!room(|_| ()));
    assert!(room(|p| p.spec.node_name.clear()));
    assert!(room(|p| p.status.phase = "Succeeded".into()));
    assert!(room(|p| p.status.phase = "Failed".into()));
    assert!(!room(|p| p.metadata.deletion_timestamp = Some(now())), "it is still there");
}

#[test]
fn a_machine_counts_one_node_and_knows_its_deletion() {
    use whittle_model::state::ClusterState;
    let mut world = World::new();
    world.managed("n", "initialized", 4, json!({}));
    let marked = |world: &World| {
        let state = ClusterState::of(&world.objects);
        assert_eq!(state.nodes[0].capacity().get("nodes"), whittle_units::Quantity::from_units(1));
        state.nodes[0].marked_for_deletion
    };
    assert!(!marked(&world));
    let mut deleting = world.clone();
    deleting.objects.node_claims[0].metadata.deletion_timestamp = Some(now());
    assert!(marked(&deleting));
    let mut ending = world.clone();
    conditions::set(
        &mut ending.objects.node_claims[0].status.conditions,
        conditions::INSTANCE_TERMINATING,
        whittle_api::ConditionStatus::True,
        "",
        "",
        now(),
    );
    assert!(marked(&ending));
    world.objects.nodes[0].metadata.deletion_timestamp = Some(now());
    assert!(!marked(&world), "its claim decides");
    world.objects.node_claims.clear();
    world.objects.nodes[0].spec.provider_id.clear();
    world.objects.nodes[0].metadata.labels.remove(labels::NODE_POOL);
    assert!(marked(&world));
}

/// Pods `old-0`, … on a node that is being deleted; returns how many of them are planned for.
fn moved(count: usize, spec: &Value, change: impl Fn(&mut World)) -> usize {
    let mut world = World::new();
    world.managed("n", "initialized", 16, json!({})).1.metadata.deletion_timestamp = Some(now());
    world.pods("old", count, spec);
    world.bind("old", "n");
    for pod in &mut world.objects.pods {
        pod.status.start_time = Some(now() - SignedDuration::from_mins(10));
    }
    change(&mut world);
    let plan = world.plan();
    assert!(plan.placements.is_empty() && left(&plan).is_empty());
    assert_eq!(plan.claims.len(), usize::from(plan.scheduled() > 0), "all of them on one machine");
    plan.scheduled()
}

fn owned_by(kind: &str) -> Value {
    json!({"owners": [{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": true}]})
}

#[test]
fn pods_move_from_nodes_that_are_being_deleted() {
    let dying = |w: &mut World| w.objects.pods.iter_mut().for_each(|p| p.metadata.deletion_timestamp = Some(now()));
    let done = |w: &mut World| w.objects.pods.iter_mut().for_each(|p| p.status.phase = "Succeeded".into());
    assert_eq!(moved(3, &owned_by("ReplicaSet"), |_| ()), 3);
    assert_eq!(moved(3, &owned_by("ReplicaSet"), done), 0);
    assert_eq!(moved(3, &owned_by("DaemonSet"), |_| ()), 0);
    assert_eq!(moved(3, &owned_by("ReplicaSet"), dying), 0);
    assert_eq!(moved(3, &owned_by("StatefulSet"), dying), 3);
}

#[test]
fn budgets_that_forbid_every_eviction_keep_pods_where_they_are() {
    let with = |budgets: Value, unready: bool| {
        moved(2, &json!({}), |w| {
            w.objects.disruption_budgets = serde_json::from_value(budgets.clone()).unwrap();
            if unready {
                let not_ready = serde_json::from_value(json!([{"type": "Ready", "status": "False"}])).unwrap();
                w.objects.pods.iter_mut().for_each(|p| p.status.conditions = Vec::clone(&not_ready));
            }
        })
    };
    let budget = |spec: Value| {
        let selector = json!({"selector": {"matchLabels": {"app": "old"}}});
        json!({"metadata": {"name": "b", "namespace": "default"}, "spec": all(&[selector, spec])})
    };
    assert_eq!(with(json!([budget(json!({"maxUnavailable": 0}))]), false), 0);
    assert_eq!(with(json!([budget(json!({"maxUnavailable": "0%"}))]), false), 0);
    assert_eq!(with(json!([budget(json!({"minAvailable": "100%"}))]), false), 0);
    assert_eq!(with(json!([budget(json!({"maxUnavailable": 1})), budget(json!({"maxUnavailable": 1}))]), false), 0);
    assert_eq!(with(json!([budget(json!({"maxUnavailable": 1}))]), false), 2);
    assert_eq!(with(json!([budget(json!({"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"}))]), true), 2);
    assert_eq!(with(json!([budget(json!({"maxUnavailable": 0}))]), true), 0);
}

#[test]
fn do_not_disrupt_holds_while_it_is_in_force() {
    let marked = |key: &str, value: &str| moved(1, &json!({"annotations": {key: value}}), |_| ());
    assert_eq!(marked(labels::DO_NOT_DISRUPT, "true"), 0);
    assert_eq!(marked(labels::DO_NOT_EVICT, "true"), 0);
    assert_eq!(marked(labels::DO_NOT_DISRUPT, "1h"), 0);
    assert_eq!(marked(labels::DO_NOT_DISRUPT, "5m"), 1, "its time is over");
    for value in ["false", "0s", "-5m", "soon"] {
        assert_eq!(marked(labels::DO_NOT_DISRUPT, value), 1, "{value}");
    }
    let unstarted = |w: &mut World| w.objects.pods[0].status.start_time = None;
    assert_eq!(moved(1, &json!({"annotations": {labels::DO_NOT_DISRUPT: "5m"}}), unstarted), 0);
    let done = |w: &mut World| w.objects.pods[0].status.phase = "Succeeded".into();
    assert_eq!(moved(1, &json!({"annotations": {labels::DO_NOT_DISRUPT: "true"}}), done), 0);
    assert_eq!(moved(1, &json!({}), |_| ()), 1);
}

/// Sets the time by which the pods of the only claim's machine must have ended.
fn force_within(world: &mut World, seconds: i64) {
    let deadline = now() + SignedDuration::from_secs(seconds);
    world.objects.node_claims[0].metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_string());
}

#[test]
fn pods_that_are_deleted_by_force_soon_are_planned_for_whatever_holds_them() {
    let planned = |seconds: i64, spec: &Value, budgets: &Value| {
        moved(1, spec, |w| {
            w.objects.disruption_budgets = serde_json::from_value(budgets.clone()).unwrap();
            force_within(w, seconds);
        })
    };
    let budget = |name: &str, allows: u32| {
        let spec = json!({"maxUnavailable": allows, "selector": {"matchLabels": {"app": "old"}}});
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    };
    let kept = json!({"annotations": {labels::DO_NOT_DISRUPT: "true"}});
    for (spec, budgets, what) in [
        (kept.clone(), json!([]), "its annotation holds it"),
        (json!({}), json!([budget("b", 0)]), "its budget never allows an eviction"),
        (json!({}), json!([budget("b", 1), budget("c", 1)]), "nothing evicts a pod under two budgets"),
    ] {
        let at = |seconds: i64| planned(seconds, &spec, &budgets);
        assert_eq!((at(120), at(121), at(-1)), (1, 0, 1), "{what}");
        let slow = all(&[spec.clone(), json!({"terminationGracePeriodSeconds": 60})]);
        assert_eq!((planned(180, &slow, &budgets), planned(181, &slow, &budgets)), (1, 0), "{what}, and it is deleted a minute before");
    }
    let daemon = all(&[owned_by("DaemonSet"), kept]);
    assert_eq!(planned(60, &daemon, &json!([])), 0, "its DaemonSet places it");
}

#[test]
fn a_pod_that_is_deleted_by_force_soon_gets_one_machine_however_often_it_is_planned_for() {
    for state in ["launched", "registered", "initialized"] {
        let mut world = World::new();
        world.managed("n", "initialized", 16, json!({})).1.metadata.deletion_timestamp = Some(now());
        world.pod("old", json!({"cpu": "2", "annotations": {labels::DO_NOT_DISRUPT: "true"}}));
        world.bind("old", "n");
        force_within(&mut world, 120);
        check(&world, (0, 1));
        world.managed("r", state, 4, json!({}));
        check(&world, (1, 0));
    }
}

#[test]
fn a_node_that_is_not_deleted_has_no_deadline_for_its_pods() {
    let mut world = World::new();
    world.managed("n", "initialized", 16, json!({}));
    world.pod("kept", json!({"annotations": {labels::DO_NOT_DISRUPT: "true"}}));
    world.pod("free", json!({}));
    world.bind("kept", "n");
    world.bind("free", "n");
    force_within(&mut world, 60);
    assert_eq!(world.plan().pods, 0, "nothing leaves it");
    let plan = world.solve(&Options { packing: Packing::Reference, ..Options::simulating(["n".to_owned()].into()) });
    assert_eq!(plan.pods, 1, "a simulation moves only what may be evicted");
}

#[test]
fn moving_pods_are_not_counted_where_they_leave() {
    let mut world = World::new();
    world.managed("n", "initialized", 16, json!({labels::ZONE: Z[0]})).1.metadata.deletion_timestamp = Some(now());
    world.pods("web", 3, &json!({"topologySpreadConstraints": [spread(labels::ZONE, "web", 1)]}));
    world.bind("web", "n");
    assert_eq!(sizes(&world.plan()), [1, 1, 1]);
}

#[test]
fn pods_that_are_not_ours_to_place_are_left_alone() {
    let mut world = World::new();
    world.pod("gated", json!({})).status.conditions[0].reason = "SchedulingGated".into();
    world.pod("elsewhere", json!({})).status.conditions.clear();
    world.pod("preempting", json!({})).status.nominated_node_name = "n".into();
    world.pod("daemon", owned_by("DaemonSet"));
    world.pod("mirror", json!({"owners": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}));
    world.pod("ours", json!({"schedulerName": "mine"}));
    let plan = world.plan();
    assert_eq!((plan.pods, plan.scheduled()), (1, 1));
}

#[test]
fn pods_that_exclude_all_pools_get_that_reason() {
    let mut world = World::new();
    world.pod("shuns", required(&[&[expr(labels::NODE_POOL, "DoesNotExist", &[])]]));
    world.pod("would-rather-not", super::world::preferred(&[(1, expr(labels::NODE_POOL, "DoesNotExist", &[]))]));
    let plan = world.plan();
    assert_eq!(left(&plan), ["shuns", "would-rather-not"]);
    assert!(super::world::reasons(&plan)[0].contains("configured to not run on a Karpenter provisioned node"));
}

#[test]
fn pods_with_resource_claims_are_left_out_with_that_reason() {
    let claims = json!({"resources": {"claims": [{"name": "gpu"}]}, "name": "c"});
    let mut world = World::new();
    world.pod("by-pod", json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}));
    world.pod("by-container", json!({"containers": [claims]}));
    world.pod("by-init", json!({"containers": [], "initContainers": [claims]}));
    world.pod("plain", json!({}));
    let plan = world.plan();
    assert_eq!(left(&plan), ["by-container", "by-init", "by-pod"]);
    assert!(
        super::world::reasons(&plan)
            .iter()
            .all(|r| r.starts_with("pod has Dynamic Resource Allocation requirements that are not yet supported"))
    );
    let mut daemon = super::world::pod("agent", json!({"cpu": "10000", "resourceClaims": [{"name": "gpu"}]}));
    daemon.status = whittle_api::k8s::PodStatus::default();
    let set = json!({"metadata": {"name": "agent", "namespace": "default"}, "spec": {"template": {"metadata": {}, "spec": daemon.spec}}});
    world.objects.daemon_sets.push(serde_json::from_value(set).unwrap());
    assert_eq!(world.plan().scheduled(), 1, "a daemon that asks for them is not counted");
}

#[test]
fn a_zone_affinity_follows_the_machine_on_its_way() {
    let mut world = World::new();
    let spec = super::world::hard("podAffinity", near(labels::ZONE, "web"));
    world.pods("web", 1, &spec);
    world.pass();
    world.pods("web", 1, &all(&[json!({"cpu": "1"}), spec]));
    assert_eq!(world.pass().claims.len(), 0);
}

/// Four pods for which two machines are starting: two large pods fill the larger, two small ones the smaller.
fn promised(world: &mut World) -> BTreeMap<String, String> {
    world.managed("a", "launched", 3, json!({}));
    world.managed("b", "launched", 4, json!({}));
    world.pods("large", 2, &json!({"cpu": "2"}));
    world.pods("small", 2, &json!({"cpu": "1500m"}));
    let claim = |pod: &Pod| if pod.metadata.name.starts_with("large") { "claim-b" } else { "claim-a" };
    world.objects.pods.iter().map(|pod| (pod.metadata.uid.clone(), claim(pod).to_owned())).collect()
}

#[test]
fn pods_take_the_machines_that_are_on_their_way_for_them() {
    let mut world = World::new();
    let promised = promised(&mut world);
    assert_eq!(world.plan().claims.len(), 1, "when all are packed again, one of them finds no room");
    // A newer pod takes what they leave, which is nothing.
    world.pods("newcomer", 1, &json!({"cpu": "2"}));
    for packing in [Packing::Reference, Packing::Best] {
        let plan = world.solve(&Options { packing, promised: promised.clone(), ..world.options.clone() });
        let newcomers: Vec<&str> = plan.claims.iter().flat_map(|claim| &claim.pods).map(|pod| pod.name.as_str()).collect();
        assert_eq!((newcomers, left(&plan)), (vec!["newcomer-4"], vec![]), "{packing:?}");
    }
}

#[test]
fn a_promise_that_cannot_be_kept_is_ignored() {
    let mut world = World::new();
    let promised = promised(&mut world);
    let solve =
        |world: &World, promised: &BTreeMap<String, String>| world.solve(&Options { promised: promised.clone(), ..world.options.clone() });
    let nowhere: BTreeMap<String, String> = promised.keys().map(|uid| (uid.clone(), "claim-gone".to_owned())).collect();
    assert_eq!(solve(&world, &nowhere).claims, world.plan().claims, "that machine does not come");
    // The larger machine is full when they are evaluated again, and the smaller one is removed.
    world.pods("stranger", 1, &json!({"cpu": "3"}));
    world.bind("stranger", "b");
    world.objects.node_claims[0].metadata.deletion_timestamp = Some(now());
    let plan = solve(&world, &promised);
    assert_eq!((plan.placements.len(), plan.claims.iter().map(|claim| claim.pods.len()).sum::<usize>()), (0, 4));
}

#[test]
fn a_cordoned_node_takes_only_pods_that_tolerate_it() {
    let tolerant = json!({"cpu": "1", "tolerations": [{"key": labels::UNSCHEDULABLE_TAINT, "operator": "Exists", "effect": "NoSchedule"}]});
    for state in ["unmanaged", "registered", "initialized"] {
        let check = |spec: &Value, cordoned: bool, expected: (usize, usize)| {
            let mut world = World::new();
            let node = if state == "unmanaged" { world.node("n", 4, json!({})) } else { world.managed("n", state, 4, json!({})).0 };
            node.spec.unschedulable = cordoned;
            world.pod("it", spec.clone());
            self::check(&world, expected);
        };
        check(&json!({"cpu": "1"}), true, (0, 1));
        check(&tolerant, true, (1, 0));
        check(&json!({"cpu": "1"}), false, (1, 0));
    }
}

#[test]
fn a_cordoned_node_keeps_its_pods_and_the_room_of_its_daemons() {
    let mut world = World::new();
    world.node("n", 4, json!({})).spec.unschedulable = true;
    world.pod("runs", json!({"cpu": "1"}));
    world.bind("runs", "n");
    let plan = world.plan();
    assert!(plan.claims.is_empty() && plan.placements.is_empty() && plan.left_out.is_empty(), "the pod on it is not to be placed again");
    // Three CPUs are free; the DaemonSet controller adds the toleration, so that one of them is for the daemon.
    let daemon = json!({"metadata": {"name": "agent", "namespace": "default"}, "spec": {"selector": {}, "template": {"spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}});
    world.objects.daemon_sets.push(serde_json::from_value(daemon).unwrap());
    let tolerations = json!([{"key": labels::UNSCHEDULABLE_TAINT, "operator": "Exists"}]);
    world.pod("small", json!({"cpu": "2", "tolerations": tolerations.clone()}));
    world.pod("more", json!({"cpu": "1", "tolerations": tolerations}));
    check(&world, (1, 1));
}

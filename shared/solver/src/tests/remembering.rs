//! What is evaluated again and what is not; and runs that are too short for all pods.

use super::world::{World, Z, absent, all, expr, hard, instance_type, left, near, offering, required};
use crate::Memory;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use whittle_api::k8s::Volume;
use whittle_api::karpenter::Requirement;
use whittle_api::labels;
use whittle_model::scheduling::{Cause, Input, MinValuesPolicy, Options, Packing, PoolRejection, Reason};
use whittle_units::{Quantity, SignedDuration};

/// A node with a pod on it, a pod that is too large, one whose affinity matches no pod, and a type without capacity that would
/// fit the first.
fn stuck() -> World {
    let mut world = World::new();
    world.types.push(instance_type("huge", 128, 512, 100));
    for offer in &mut world.types.last_mut().unwrap().offerings {
        offer.available = false;
    }
    world.node("n", 4, json!({labels::ZONE: Z[0]}));
    world.pod("running", json!({"cpu": "1", "labels": {"app": "running"}, "nodeName": "n"})).status.phase = "Running".into();
    world.pod("large", json!({"cpu": "100"}));
    world.pod("follower", all(&[json!({"cpu": "1"}), hard("podAffinity", near(labels::ZONE, "nobody"))]));
    world
}

/// The pods that a pass after `change` does not evaluate again.
#[track_caller]
fn check(change: impl FnOnce(&mut World), expected: &[&str]) {
    check_of(stuck(), change, expected);
}

/// The same in a cluster of its own.
#[track_caller]
fn check_of(mut world: World, change: impl FnOnce(&mut World), expected: &[&str]) {
    let first = world.solve(&world.options);
    assert_eq!(left(&first), ["follower", "large"]);
    let memory = world.ask(|input| Memory::after(input, &world.options, &first));
    let kept = serde_json::to_string(&memory).unwrap();
    assert_eq!(serde_json::from_str::<Memory>(&kept).unwrap(), memory, "it survives its record");
    change(&mut world);
    let settled = world.ask(|input| memory.settled(input, &world.options));
    let mut names: Vec<&str> = settled.keys().map(|uid| uid.strip_prefix("uid-").unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, expected);
    let whole = world.solve(&world.options);
    let short = world.solve(&Options { settled, ..world.options.clone() });
    assert_eq!(left(&whole), left(&short), "no pod is overlooked");
    for (a, b) in whole.left_out.iter().zip(&short.left_out) {
        assert_eq!((a.reason.category(), a.reason.to_string()), (b.reason.category(), b.reason.to_string()));
    }
}

const BOTH: &[&str] = &["follower", "large"];
const PLAIN: &[&str] = &["large"];

#[test]
fn pods_without_a_place_are_not_looked_at_again_while_nothing_helps_them() {
    check(|_| (), BOTH);
    check(|w| w.objects.pods.reverse(), BOTH);
    check(|w| w.objects.pods[1].status.conditions[0].message = "0/1 nodes are available".into(), BOTH);
    check(|w| w.objects.pods[1].metadata.resource_version = "7".into(), BOTH);
    check(|w| w.objects.node_pools[0].metadata.resource_version = "7".into(), BOTH);
}

#[test]
fn what_only_takes_room_away_wakes_those_alone_who_look_at_others() {
    let more = |w: &mut World| w.pod("more", json!({"cpu": "1", "nodeName": "n"})).status.phase = "Running".into();
    check(more, PLAIN);
    check(|w| w.pod("new", json!({"cpu": "1"})).metadata.name.truncate(9), PLAIN);
}

#[test]
fn what_others_need_of_a_limit_wakes_those_whom_it_keeps_out() {
    let mut world = stuck();
    world.pool("default", json!({"limits": {"cpu": "4"}}));
    world.pod("this", json!({"cpu": "3500m"}));
    world.pod("that", json!({"cpu": "3500m"}));
    let first = world.solve(&world.options);
    let out = left(&first).iter().find(|name| ["this", "that"].contains(name)).map(|name| (*name).to_owned());
    let memory = world.ask(|input| Memory::after(input, &world.options, &first));
    // One of the two is removed before it got its machine.
    world.objects.pods.retain(|p| !["this", "that"].contains(&p.metadata.name.as_str()) || Some(&p.metadata.name) == out.as_ref());
    let settled = world.ask(|input| memory.settled(input, &world.options));
    let plan = world.solve(&Options { settled, ..world.options.clone() });
    assert!(out.is_some_and(|out| !left(&plan).contains(&out.as_str())), "{:?}", left(&plan));
}

#[test]
fn whatever_could_help_wakes_everybody() {
    check(|w| w.objects.pods.remove(0).metadata.name.clear(), &[]);
    check(|w| w.objects.pods[0].status.phase = "Succeeded".into(), &[]);
    check(|w| w.objects.nodes[0].status.allocatable.set("cpu", Quantity::from_units(5)), &[]);
    check(|w| w.objects.nodes[0].metadata.labels.insert("k".into(), "v".into()).unwrap_or_default().clear(), &[]);
    check(|w| w.node("m", 1, json!({})).metadata.name.truncate(9), &[]);
    check(|w| w.objects.nodes.clear(), &[]);
    check(|w| w.pool("second", json!({})).metadata.name.truncate(9), &[]);
    check(|w| w.pool("default", json!({"limits": {"cpu": "1000"}})).metadata.name.truncate(9), &[]);
    check(|w| w.objects.node_pools[0].metadata.deletion_timestamp = Some(super::world::now()), &[]);
    check(|w| w.types.last_mut().unwrap().offerings[0].available = true, &[]);
    check(|w| w.types.push(instance_type("new", 256, 512, 10)), &[]);
    check(|w| w.types[0].offerings.push(offering("spot", Z[2], 5)), &[]);
    check(|w| w.types[0].requirements.push(absent("k")), &[]);
    let daemon =
        json!({"metadata": {"name": "d", "namespace": "default"}, "spec": {"template": {"metadata": {}, "spec": {"containers": []}}}});
    check(|w| w.objects.daemon_sets.push(serde_json::from_value(daemon).unwrap()), &[]);
    check(|w| w.objects.storage_classes.push(serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap()), &[]);
    check(|w| w.objects.namespaces.push(serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap()), &[]);
    check(|w| w.options.min_values = MinValuesPolicy::BestEffort, &[]);
}

/// Who has to be beside a daemon goes where it goes.
#[test]
fn of_daemons_counts_what_makes_others_go_beside_them() {
    let with_daemon = || {
        let mut world = stuck();
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}});
        let set = json!({"metadata": {"name": "d", "namespace": "default"}, "spec": {"template": template}});
        world.objects.daemon_sets.push(serde_json::from_value(set).unwrap());
        world
    };
    check_of(with_daemon(), |_| (), BOTH);
    check_of(with_daemon(), |w| w.objects.daemon_sets[0].spec.template.metadata.labels.clear(), &[]);
    check_of(with_daemon(), |w| w.objects.daemon_sets[0].metadata.deletion_timestamp = Some(super::world::now()), &[]);
}

#[test]
fn what_a_type_or_an_offering_requires_is_compared_whole() {
    let size = |w: &mut World| w.types[0].requirements.iter_mut().find(|r| r.key == "size").unwrap().values = vec!["large".into()];
    check(size, &[]);
    let reservation = "karpenter.k8s.aws/capacity-reservation-id";
    check(|w| w.types[0].offerings[0].requirements.push(Requirement::is_in(reservation, ["cr-1"])), &[]);
    let reserved = || {
        let mut world = stuck();
        world.types[0].offerings[0].requirements.push(Requirement::is_in(reservation, ["cr-1"]));
        world
    };
    check_of(reserved(), |_| (), BOTH);
    check_of(reserved(), |w| w.types[0].offerings[0].requirements.last_mut().unwrap().values = vec!["cr-2".into()], &[]);
}

#[test]
fn of_volumes_and_claims_counts_what_pods_depend_on() {
    let with = |kind: &str| {
        let mut world = stuck();
        let object = json!({"metadata": {"name": kind, "namespace": "default"}, "spec": {}, "status": {"phase": "Bound"}});
        match kind {
            "claim" => world.objects.volume_claims.push(serde_json::from_value(object).unwrap()),
            _ => world.objects.volumes.push(serde_json::from_value(object).unwrap()),
        }
        world
    };
    let unused = json!({"phase": "Bound", "conditions": [{"type": "Unused", "status": "True"}]});
    check_of(with("claim"), |w| w.objects.volume_claims[0].status = unused, BOTH);
    check_of(with("claim"), |w| w.objects.volume_claims[0].status = json!({"phase": "Lost"}), &[]);
    check_of(with("volume"), |_| (), BOTH);
    check_of(with("volume"), |w| w.objects.volumes[0].status.phase = "Available".into(), &[]);
    check_of(with("volume"), |w| w.objects.volumes[0].spec.claim_ref = Some(whittle_api::k8s::ClaimReference::default()), &[]);
}

#[test]
fn ports_of_daemons_are_compared() {
    let mut world = stuck();
    let ports = json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]);
    let daemon = json!({"metadata": {"name": "d", "namespace": "default"},
        "spec": {"template": {"metadata": {}, "spec": {"containers": [{"name": "c", "ports": ports}]}}}});
    world.objects.daemon_sets.push(serde_json::from_value(daemon).unwrap());
    check_of(world.clone(), |_| (), BOTH);
    check_of(world.clone(), |w| w.objects.daemon_sets[0].spec.template.spec.containers[0].ports[0].host_port = 81, &[]);
    check_of(world, |w| w.objects.daemon_sets[0].spec.template.spec.containers[0].ports.clear(), &[]);
}

/// Pods may have to avoid them.
#[test]
fn labels_and_priorities_of_daemons_are_compared() {
    let mut world = stuck();
    let daemon = json!({"metadata": {"name": "d", "namespace": "default"},
        "spec": {"template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}}}});
    world.objects.daemon_sets.push(serde_json::from_value(daemon).unwrap());
    check_of(world.clone(), |_| (), BOTH);
    check_of(world.clone(), |w| w.objects.daemon_sets[0].spec.template.metadata.labels.clear(), &[]);
    check_of(world, |w| w.objects.daemon_sets[0].spec.template.spec.priority = Some(1), &[]);
}

#[test]
fn of_volumes_only_those_that_are_attached_are_compared() {
    let volumes = |token: &str, claim: &str| {
        let mounted = json!({"name": token, "projected": {"sources": []}});
        serde_json::from_value::<Vec<Volume>>(json!([mounted, {"name": "data", "persistentVolumeClaim": {"claimName": claim}}])).unwrap()
    };
    let mut world = stuck();
    world.objects.pods[0].spec.volumes = volumes("kube-api-access-abcde", "data-0");
    // A pod of the same size took the place of the other.
    check_of(world.clone(), |w| w.objects.pods[0].spec.volumes = volumes("kube-api-access-fghij", "data-0"), BOTH);
    check_of(world, |w| w.objects.pods[0].spec.volumes = volumes("kube-api-access-abcde", "data-1"), &[]);
}

#[test]
fn what_is_remembered_of_a_thousand_nodes_fits_into_an_item() {
    let mut world = stuck();
    for node in 0..999 {
        let name = format!("ip-10-0-{}-{}.eu-west-1.compute.internal", node / 250, node % 250);
        world.node(&name, 16, json!({labels::ZONE: Z[0]}));
        for pod in 0..10 {
            let of_node = json!({"cpu": "100m", "nodeName": name});
            let running = world.pod(&format!("web-{node}-{pod}"), of_node);
            running.status.phase = "Running".into();
            let mounted = ["kube-api-access", "config", "secret", "cache"];
            running.spec.volumes =
                mounted.iter().map(|kind| Volume { name: format!("{kind}-{node}-{pod}"), ..Volume::default() }).collect();
        }
    }
    let plan = world.solve(&world.options);
    let memory = world.ask(|input| Memory::after(input, &world.options, &plan));
    let stored = serde_json::to_string(&memory).unwrap();
    assert!(stored.len() < 400_000, "{} bytes, even if nothing of it were compressed", stored.len());
}

#[test]
fn once_in_five_minutes_everything_is_looked_at_again() {
    let world = stuck();
    let plan = world.solve(&world.options);
    let memory = world.ask(|input| Memory::after(input, &world.options, &plan));
    let settled_after = |seconds: i64| {
        world.ask(|input| {
            let later = Input { now: input.now + SignedDuration::from_secs(seconds), ..*input };
            memory.settled(&later, &world.options).len()
        })
    };
    // The clock of these tests begins at a whole hour.
    assert_eq!([0, 60, 299, 300, 360].map(settled_after), [2, 2, 2, 0, 0]);
}

#[test]
fn a_pod_that_changes_is_looked_at_again() {
    check(|w| w.objects.pods[1].metadata.labels.insert("k".into(), "v".into()).unwrap_or_default().clear(), &[]);
    let mut world = stuck();
    let plan = world.solve(&world.options);
    let memory = world.ask(|input| Memory::after(input, &world.options, &plan));
    world.objects.pods[1].spec.node_selector.insert(labels::ARCH.into(), "arm64".into());
    assert!(!world.ask(|input| memory.settled(input, &world.options)).contains_key("uid-large"));
    world.objects.pods[1].metadata.uid = "another".into();
    assert!(!world.ask(|input| memory.settled(input, &world.options)).contains_key("another"), "a pod of the same name is another pod");
}

#[test]
fn what_ends_with_the_pass_is_not_remembered() {
    let mut world = World::new();
    world.pods("web", 4, &json!({"cpu": "1"}));
    world.options.work_budget = Some(1);
    let plan = world.solve(&world.options);
    assert!(plan.left_out.iter().all(|l| l.reason == Reason::OutOfBudget) && !plan.left_out.is_empty());
    assert_eq!(world.ask(|input| Memory::after(input, &world.options, &plan)), Memory::default());
    let mut passed = plan;
    for left in &mut passed.left_out {
        let says = PoolRejection::of_name("p", Cause::TransientDuringPass);
        left.reason = Reason::Pools(vec![says]);
    }
    assert_eq!((passed.left_out[0].reason.category(), Cause::TransientDuringPass.category()), ("turn", "turn"));
    assert_eq!(world.ask(|input| Memory::after(input, &world.options, &passed)), Memory::default(), "nothing need change for it");
}

#[test]
fn thirty_thousand_pods_finish_over_several_runs_each_considered_once_per_round() {
    let mut world = World::new();
    world.types = vec![instance_type("t", 64, 256, 110)];
    world.pods("giant", 100, &json!({"cpu": "1000"}));
    for (n, cpu) in ["1", "2", "3"].iter().enumerate() {
        world.pods(&format!("small{n}"), 9_900 + usize::from(n == 0) * 200, &json!({"cpu": cpu}));
    }
    let total = world.objects.pods.len();
    assert_eq!(total, 30_000);
    let mut options = Options { packing: Packing::Reference, work_budget: Some(400), ..Options::provisioning() };
    let mut placed = 0;
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs < 100, "{placed} of {total} placed");
        let plan = world.ask(|input| crate::solve(input, &options));
        let done: BTreeSet<&str> = plan.claims.iter().flat_map(|c| &c.pods).map(|p| p.name.as_str()).collect();
        placed += done.len();
        let considered = plan.left_out.iter().filter(|l| l.reason != Reason::OutOfBudget).count();
        assert!(considered == 0 || runs == 1 || plan.cursor.is_none(), "the giants had their turn in this round already");
        world.objects.pods.retain(|p| !done.contains(p.metadata.name.as_str()));
        let Some(cursor) = plan.cursor else { break };
        options.cursor = cursor;
    }
    assert_eq!((placed, world.objects.pods.len(), runs > 3), (29_900, 100, true), "{runs} runs");
}

#[test]
fn respected_preferences_have_a_cost() {
    let mut world = World::new();
    let apart: Value = super::world::soft("podAntiAffinity", near(labels::HOSTNAME, "web"));
    world.pods("web", 5, &all(&[json!({"requests": {"cpu": "10m"}}), apart]));
    let cost = |world: &World| {
        let plan = world.solve(&world.options);
        world.ask(|input| crate::preference_cost(input, &world.options, &plan))
    };
    let found = cost(&world).unwrap();
    assert_eq!((found.pods, found.machines), (5, (5, 1)));
    assert!(found.without < found.price);
    world.options.preferences = whittle_model::scheduling::PreferencePolicy::Ignore;
    assert_eq!(cost(&world), None, "they have no effect");
    let mut world = World::new();
    world.pods("web", 5, &json!({"requests": {"cpu": "10m"}}));
    assert_eq!(cost(&world), None, "no pod has preferences");
}

#[test]
fn a_claim_says_why_it_is_what_it_is_and_what_the_next_best_would_cost() {
    let mut world = World::new();
    world.pool("tainted", json!({"weight": 50, "taints": [{"key": "k", "effect": "NoSchedule"}]}));
    world.pool("small", json!({"weight": 20, "requirements": [expr(labels::INSTANCE_TYPE, "In", &["small-instance-type"])]}));
    world.pod("it", json!({"cpu": "3", "nodeSelector": {labels::ARCH: "amd64"}}));
    let plan = world.plan();
    let why = &plan.claims[0].why;
    let passed: Vec<(&str, &str)> = why.passed_over.iter().map(|s| (s.node_pool.as_str(), s.cause.category())).collect();
    assert_eq!(passed, [("tainted", "taints"), ("small", "instance-types")]);
    let miss = why.passed_over[1].nearest.as_ref().unwrap();
    assert_eq!((miss.resource.as_str(), miss.needed, miss.largest), ("cpu", Quantity::from_units(3), Quantity::from_milli(1900)));
    let (first, next) = (why.cheapest.as_ref().unwrap(), why.next_offer.as_ref().unwrap());
    assert_eq!(
        (first.instance_type.as_str(), first.zone.as_str(), first.price),
        ("default-instance-type", Z[0], plan.claims[0].cheapest_price)
    );
    assert!(next.price >= first.price && next != first);
    assert_eq!(why.next_best.as_ref().map(|(name, _)| name.as_str()), Some("single-pod-instance-type"));
    assert!(why.narrowed.iter().any(|n| n.contains(labels::ARCH)));
}

/// A spread, or an affinity with all of them, lists zones and excludes none.
#[test]
fn a_claim_that_may_be_in_every_zone_is_not_said_to_be_narrowed_to_them() {
    for (zones, is_narrowed) in [(&Z[..], false), (&Z[1..], true), (&Z[..1], true)] {
        let mut world = World::new();
        world.pod("it", all(&[json!({"cpu": "1"}), required(&[&[expr(labels::ZONE, "In", zones)]])]));
        let plan = world.plan();
        let narrowed = &plan.claims[0].why.narrowed;
        assert_eq!(narrowed.iter().any(|one| one.contains(labels::ZONE)), is_narrowed, "{zones:?}: {narrowed:?}");
    }
}

#[test]
fn a_reason_names_what_rules_out_how_many_types_and_what_would_be_enough() {
    let mut world = World::new();
    world.pod("it", json!({"cpu": "65", "nodeSelector": {labels::ARCH: "amd64"}}));
    let plan = world.plan();
    let Reason::Pools(says) = &plan.left_out[0].reason else { panic!("{:?}", plan.left_out) };
    let ruled: Vec<(&str, usize, usize)> = says[0].ruled_out.iter().map(|r| (r.constraint.as_str(), r.types, r.of)).collect();
    assert_eq!(ruled, [("resources", 6, 6), ("kubernetes.io/arch In [amd64]", 1, 6)]);
    let text = plan.left_out[0].reason.to_string();
    assert!(!text.contains(labels::HOSTNAME), "{text}");
    assert_eq!(text, world.plan().left_out[0].reason.to_string(), "the same text each time");
    assert!(text.contains("(needs 65 cpu, the largest allowed type, default-instance-type, has 3900m)"), "{text}");
}

#[test]
fn a_limit_that_leaves_only_small_types_is_named() {
    let mut world = World::new();
    world.pool("default", json!({"limits": {"cpu": "2", "memory": "1000Gi"}}));
    world.pod("it", json!({"cpu": "3"}));
    let plan = world.plan();
    let text = plan.left_out[0].reason.to_string();
    assert!(text.contains("no instance type has enough resources"), "{text}");
    assert!(text.contains("has 1900m); its limit leaves 2 cpu, 5 instance types are larger"), "{text}");
    assert_eq!(plan.left_out[0].reason.category(), "instance-types");
    let mut world = World::new();
    world.pool("default", json!({"limits": {"cpu": "2"}}));
    world.pod("it", json!({"cpu": "65"}));
    let text = world.plan().left_out[0].reason.to_string();
    assert!(!text.contains("its limit"), "no type would do without the limit: {text}");
}

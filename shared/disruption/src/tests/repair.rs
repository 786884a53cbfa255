//! Repair of unhealthy nodes.

use crate::repair::{RepairVerdict, repairs};
use crate::testing::{Scene, noon};
use jiff::ToSpan as _;
use whittle_api::{ConditionStatus, conditions, labels};

fn make_unhealthy(scene: &mut Scene, node: &str, type_: &str, status: ConditionStatus, minutes: i64) {
    let conditions = &mut scene.parts(node).0.status.conditions;
    conditions::clear(conditions, type_);
    conditions::set(conditions, type_, status, "", "", noon() - minutes.minutes());
}

#[track_caller]
fn check(type_: &str, status: ConditionStatus, minutes: i64, want: Option<&RepairVerdict>) {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    make_unhealthy(&mut scene, "n", type_, status, minutes);
    let found = repairs(&scene.objects, noon());
    assert_eq!(found.first().map(|repair| &repair.verdict), want, "{type_} {status:?} for {minutes} minutes");
}

#[test]
fn an_unhealthy_node_is_replaced_after_its_toleration() {
    let replace = |condition| RepairVerdict::Replace { condition, deadline: Some(noon()) };
    check("Ready", ConditionStatus::False, 30, Some(&replace("Ready")));
    check("Ready", ConditionStatus::Unknown, 31, Some(&replace("Ready")));
    check("Ready", ConditionStatus::False, 29, Some(&RepairVerdict::Wait { until: noon() + 1.minute() }));
    check("AcceleratedHardwareReady", ConditionStatus::False, 10, Some(&replace("AcceleratedHardwareReady")));
    check("StorageReady", ConditionStatus::Unknown, 99, None);
    check("DiskPressure", ConditionStatus::True, 99, None);
}

#[test]
fn whatever_the_monitoring_agent_reports_is_tolerated_for_its_time_and_not_a_minute_longer() {
    let later = RepairVerdict::Wait { until: noon() + 1.minute() };
    for condition in ["StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady"] {
        let replace = RepairVerdict::Replace { condition, deadline: Some(noon()) };
        check(condition, ConditionStatus::False, 29, Some(&later));
        check(condition, ConditionStatus::False, 30, Some(&replace));
        check(condition, ConditionStatus::Unknown, 99, None);
        check(condition, ConditionStatus::True, 99, None);
    }
    check("Ready", ConditionStatus::Unknown, 29, Some(&later));
    check("Ready", ConditionStatus::True, 99, None);
    check("AcceleratedHardwareReady", ConditionStatus::False, 9, Some(&later));
}

#[test]
fn of_several_conditions_the_one_whose_time_ends_first_counts() {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    let verdict = |scene: &Scene| repairs(&scene.objects, noon()).remove(0).verdict;
    make_unhealthy(&mut scene, "n", "Ready", ConditionStatus::False, 20);
    assert_eq!(verdict(&scene), RepairVerdict::Wait { until: noon() + 10.minutes() });
    make_unhealthy(&mut scene, "n", "AcceleratedHardwareReady", ConditionStatus::False, 5);
    assert_eq!(verdict(&scene), RepairVerdict::Wait { until: noon() + 5.minutes() }, "it has lasted for less, and is tolerated for less");
    make_unhealthy(&mut scene, "n", "StorageReady", ConditionStatus::False, 30);
    assert_eq!(verdict(&scene), RepairVerdict::Replace { condition: "StorageReady", deadline: Some(noon()) });
}

#[test]
fn repair_stops_when_over_a_fifth_of_the_pool_is_unhealthy() {
    let mut scene = Scene::new();
    for at in 0..10 {
        scene.node(&format!("n{at}"), "default", 2);
    }
    for (broken, want) in [("n0", 1), ("n1", 2), ("n2", 0)] {
        make_unhealthy(&mut scene, broken, "Ready", ConditionStatus::False, 60);
        let found = repairs(&scene.objects, noon());
        let replaced = found.iter().filter(|repair| matches!(repair.verdict, RepairVerdict::Replace { .. })).count();
        assert_eq!(replaced, want, "with {broken} broken too");
    }
    let too_many = RepairVerdict::TooMany { unhealthy: 3, allowed: 2, pool: Some("default".to_owned()) };
    assert_eq!(repairs(&scene.objects, noon())[0].verdict, too_many);
}

#[test]
fn healthy_nodes_of_another_pool_never_let_a_pool_be_replaced_as_a_whole() {
    let mut scene = Scene::new();
    scene.pool("other");
    for at in 0..10 {
        scene.node(&format!("o{at}"), "other", 2);
    }
    for broken in ["n0", "n1"] {
        scene.node(broken, "default", 2);
        make_unhealthy(&mut scene, broken, "Ready", ConditionStatus::False, 60);
    }
    let too_many = RepairVerdict::TooMany { unhealthy: 2, allowed: 1, pool: Some("default".to_owned()) };
    let found: Vec<RepairVerdict> = repairs(&scene.objects, noon()).into_iter().map(|repair| repair.verdict).collect();
    assert_eq!(found, [too_many.clone(), too_many]);
}

/// What becomes of an unhealthy node `n` among so many healthy nodes and so many other unhealthy ones, all of NodePool `default` until they
/// are changed.
fn verdict_among(healthy: usize, broken: usize, change: fn(&mut Scene, &str)) -> RepairVerdict {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    make_unhealthy(&mut scene, "n", "Ready", ConditionStatus::False, 60);
    for at in 0..healthy {
        scene.node(&format!("healthy{at}"), "default", 2);
    }
    for at in 0..broken {
        let name = format!("broken{at}");
        scene.node(&name, "default", 2);
        make_unhealthy(&mut scene, &name, "Ready", ConditionStatus::False, 60);
        change(&mut scene, &name);
    }
    change(&mut scene, "n");
    repairs(&scene.objects, noon()).into_iter().find(|repair| repair.node == "n").unwrap().verdict
}

fn replaced() -> RepairVerdict {
    RepairVerdict::Replace { condition: "Ready", deadline: Some(noon()) }
}

/// It belongs to no pool, so that the whole cluster tells whether the cause lies elsewhere.
#[test]
fn a_node_of_no_pool_is_replaced_unless_over_a_fifth_of_the_cluster_is_unhealthy() {
    let standalone = |scene: &mut Scene, name: &str| {
        if name == "n" {
            let (node, claim) = scene.parts(name);
            node.metadata.labels.remove(labels::NODE_POOL);
            claim.metadata.labels.remove(labels::NODE_POOL);
        }
    };
    assert_eq!(verdict_among(8, 1, standalone), replaced());
    assert_eq!(verdict_among(7, 2, standalone), RepairVerdict::TooMany { unhealthy: 3, allowed: 2, pool: None });
}

#[test]
fn nodes_of_a_provisioner_of_the_same_name_never_hold_up_the_repair_of_a_pool() {
    let of_provisioner = |scene: &mut Scene, name: &str| {
        if name != "n" {
            let (node, claim) = scene.parts(name);
            node.metadata.labels.insert(labels::PROVISIONER_NAME.to_owned(), "default".to_owned());
            claim.metadata.labels.insert(labels::PROVISIONER_NAME.to_owned(), "default".to_owned());
        }
    };
    assert_eq!(verdict_among(4, 2, of_provisioner), replaced());
    let too_many = RepairVerdict::TooMany { unhealthy: 3, allowed: 2, pool: Some("default".to_owned()) };
    assert_eq!(verdict_among(4, 2, |_, _| ()), too_many, "those of the pool itself do");
}

#[test]
fn each_pool_is_judged_by_its_own_nodes() {
    let mut scene = Scene::new();
    scene.pool("other");
    for at in 0..10 {
        scene.node(&format!("n{at}"), "default", 2);
        scene.node(&format!("o{at}"), "other", 2);
    }
    for broken in ["n0", "o0", "n1", "o1", "o2"] {
        make_unhealthy(&mut scene, broken, "Ready", ConditionStatus::False, 60);
    }
    let found = repairs(&scene.objects, noon());
    let replaced = found.iter().filter(|repair| matches!(repair.verdict, RepairVerdict::Replace { .. }));
    assert_eq!((found.len(), replaced.map(|repair| repair.node.as_str()).collect::<Vec<_>>()), (5, vec!["n0", "n1"]));
}

#[test]
fn a_node_without_one_nodeclaim_of_ours_is_never_replaced() {
    let found = |change: fn(&mut Scene)| {
        let mut scene = Scene::new();
        scene.node("n", "default", 2);
        make_unhealthy(&mut scene, "n", "Ready", ConditionStatus::False, 60);
        change(&mut scene);
        repairs(&scene.objects, noon()).len()
    };
    assert_eq!(found(|_| ()), 1);
    assert_eq!(found(|scene| scene.objects.node_claims.clear()), 0);
    assert_eq!(found(|scene| scene.parts("n").1.spec.node_class_ref.group = "example.com".to_owned()), 0, "another controller's");
    let twin = |scene: &mut Scene| {
        let mut twin = scene.objects.node_claims[0].clone();
        twin.metadata.name = "twin".to_owned();
        scene.objects.node_claims.push(twin);
    };
    assert_eq!(found(twin), 0, "it is not clear which of them has to go");
    let unnamed = |scene: &mut Scene| {
        let (node, claim) = scene.parts("n");
        node.spec.provider_id.clear();
        claim.status.provider_id.clear();
    };
    assert_eq!(found(unnamed), 0, "neither has a machine");
}

#[test]
fn a_deadline_in_the_past_is_kept() {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    make_unhealthy(&mut scene, "n", "Ready", ConditionStatus::False, 60);
    for (stated, want) in [("2026-01-01T11:00:00Z", None), ("2026-01-01T13:00:00Z", Some(noon())), ("later", Some(noon()))] {
        scene.parts("n").1.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), stated.to_owned());
        let want = RepairVerdict::Replace { condition: "Ready", deadline: want };
        assert_eq!(repairs(&scene.objects, noon())[0].verdict, want, "{stated}");
    }
}

//! Static pools: their number of nodes, and their drift.

use crate::testing::{Scene, enable_static_capacity, noon, owner, reason_of};
use crate::{NODE_PROTECTIONS, StaticChange, static_changes};
use std::sync::Arc;
use whittle_api::k8s::IntOrString;
use whittle_api::karpenter::{Budget, Requirement};
use whittle_api::{ConditionStatus, conditions, labels};
use whittle_model::disruption::{ClaimFacts, ReplacementRefused};
use whittle_model::scheduling::Packing;
use whittle_units::Quantity;

fn pool_of(replicas: i64, nodes: usize, limit: Option<i64>) -> Scene {
    let mut scene = Scene::new();
    enable_static_capacity(&mut scene);
    let pool = scene.the_pool("default");
    pool.spec.replicas = Some(replicas);
    if let Some(limit) = limit {
        pool.spec.limits.set("nodes", Quantity::from_units(limit));
    }
    for at in 0..nodes {
        scene.node(&format!("n{at}"), "default", 2);
    }
    scene
}

#[track_caller]
fn check_change(scene: &Scene, want_launched: usize, want_deleted: &[&str]) -> Option<StaticChange> {
    let change = scene.with(static_changes).pop();
    let launched = change.as_ref().map_or(0, |change| change.launch.len());
    let deleted: Vec<&str> = change.iter().flat_map(|change| &change.delete).map(String::as_str).collect();
    assert_eq!((launched, deleted.as_slice()), (want_launched, want_deleted));
    change
}

#[test]
fn a_static_pool_is_filled_up_to_its_replicas_and_its_limit() {
    check_change(&pool_of(5, 2, None), 3, &[]);
    check_change(&pool_of(2, 2, None), 0, &[]);
    let change = check_change(&pool_of(5, 2, Some(4)), 2, &[]).unwrap();
    assert!(change.at_limit);
    let claim = &change.launch[0];
    assert_eq!(claim.labels[labels::NODE_POOL], "default");
    assert!(claim.requirements.contains(&Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand"])));
    assert!(claim.instance_types.is_empty());
    let mut not_ready = pool_of(5, 2, None);
    conditions::clear(&mut not_ready.the_pool("default").status.conditions, conditions::READY);
    check_change(&not_ready, 0, &[]);
    let mut foreign = pool_of(5, 2, None);
    "Other".clone_into(&mut foreign.the_pool("default").spec.template.spec.node_class_ref.kind);
    check_change(&foreign, 0, &[]);
    let mut deleting = pool_of(5, 5, Some(5));
    deleting.parts("n0").1.metadata.deletion_timestamp = Some(noon());
    assert!(check_change(&deleting, 0, &[]).unwrap().at_limit, "nodes being deleted count against the limit");
}

#[test]
fn a_pending_launch_of_a_deleted_claim_counts_against_the_limit_but_not_as_a_replica() {
    let mut scene = pool_of(3, 1, Some(3));
    let facts = ClaimFacts { pool_of_pending_launch: Some("default".to_owned()), ..ClaimFacts::default() };
    scene.facts.insert("claim-hidden".to_owned(), facts.clone());
    let change = check_change(&scene, 1, &[]).unwrap();
    assert!(change.at_limit);
    scene.facts.insert("claim-hidden".to_owned(), ClaimFacts { pool_of_pending_launch: Some("other".to_owned()), ..facts });
    check_change(&scene, 2, &[]);
}

/// A pool whose last node has no claim of ours.
fn pool_with_another(replicas: i64, nodes: usize, limit: Option<i64>) -> Scene {
    let mut scene = pool_of(replicas, nodes, limit);
    scene.objects.node_claims.pop();
    scene
}

#[test]
fn a_node_that_karpenter_left_is_neither_launched_again_nor_deleted() {
    check_change(&pool_with_another(2, 2, None), 0, &[]);
    check_change(&pool_with_another(3, 2, None), 1, &[]);
    check_change(&pool_with_another(1, 2, None), 0, &[]);
    check_change(&pool_with_another(1, 3, None), 0, &["claim-n0"]);
    check_change(&pool_with_another(0, 2, None), 0, &["claim-n0"]);
    assert!(check_change(&pool_with_another(3, 2, Some(2)), 0, &[]).unwrap().at_limit);
    let mut going = pool_with_another(2, 2, Some(2));
    going.objects.nodes[1].metadata.deletion_timestamp = Some(noon());
    assert!(check_change(&going, 0, &[]).unwrap().at_limit, "it serves no more, and is there still");
    let mut elsewhere = pool_with_another(2, 2, None);
    elsewhere.objects.nodes[1].metadata.labels.insert(labels::NODE_POOL.to_owned(), "other".to_owned());
    check_change(&elsewhere, 1, &[]);
    check_drift(pool_with_another(2, 3, None), "100%", 2);
    check_drift(pool_with_another(2, 3, Some(3)), "100%", 0);
    check_drift(pool_with_another(2, 3, Some(4)), "100%", 1);
}

#[test]
fn pending_launches_are_not_repeated_and_are_deleted_first() {
    let mut scene = pool_of(3, 3, None);
    let (node, claim) = scene.parts("n1");
    // A claim whose instance has no ID yet, as decisions see it.
    claim.status.provider_id = "planned:///claim-n1".to_owned();
    conditions::clear(&mut claim.status.conditions, conditions::LAUNCHED);
    node.spec.provider_id = "planned:///claim-n1".to_owned();
    check_change(&scene, 0, &[]);
    scene.the_pool("default").spec.replicas = Some(1);
    check_change(&scene, 0, &["claim-n1", "claim-n0"]);
}

#[test]
fn a_large_static_pool_is_launched_at_once() {
    let change = check_change(&pool_of(500, 0, None), 500, &[]).unwrap();
    assert!(!change.at_limit);
    check_change(&pool_of(500, 0, Some(499)), 499, &[]);
    check_change(&pool_of(0, 0, None), 0, &[]);
}

#[test]
fn changes_of_a_static_pool_in_shadow_mode_are_marked() {
    let mut scene = pool_of(3, 1, None);
    assert!(!check_change(&scene, 2, &[]).unwrap().shadow);
    scene.the_pool("default").metadata.annotations.insert(labels::SHADOW.to_owned(), "true".to_owned());
    assert!(check_change(&scene, 2, &[]).unwrap().shadow);
}

#[test]
fn each_static_pool_is_scaled_on_its_own() {
    let mut scene = pool_of(2, 1, None);
    let other = scene.pool("other");
    other.spec.replicas = Some(1);
    other.metadata.deletion_timestamp = None;
    for at in 0..3 {
        scene.node(&format!("o{at}"), "other", 2);
    }
    let going = scene.pool("going");
    going.spec.replicas = Some(5);
    going.metadata.deletion_timestamp = Some(noon());
    scene.pool("moving");
    let changes = scene.with(static_changes);
    let shown: Vec<_> = changes.iter().map(|change| (change.node_pool.as_str(), change.launch.len(), change.delete.len())).collect();
    assert_eq!(shown, [("default", 1, 0), ("other", 0, 2)]);
}

#[test]
fn a_node_that_waits_for_its_replacement_is_not_missing() {
    let mut scene = pool_of(3, 3, None);
    scene.marks.insert("n0".to_owned(), (true, None));
    check_change(&scene, 0, &[]);
}

#[test]
fn scaling_down_deletes_the_least_used_nodes_first() {
    let mut scene = pool_of(7, 7, None);
    scene.parts("n6").1.status.provider_id.clear();
    scene.parts("n6").0.spec.provider_id.clear();
    scene.pod("daemon", "n5", "100m").metadata.owner_references = vec![owner("apps/v1", "DaemonSet", "agent")].into();
    for (node, pods) in [("n0", 3), ("n1", 1), ("n2", 2), ("n3", 1), ("n4", 4)] {
        for at in 0..pods {
            scene.pod(&format!("{node}-{at}"), node, "100m");
        }
    }
    let guarded_cluster = scene.objects.pods.iter_mut().find(|pod| pod.spec.node_name == "n3").unwrap();
    guarded_cluster.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    let order = ["claim-n6", "claim-n5", "claim-n1", "claim-n2", "claim-n0", "claim-n4", "claim-n3"];
    for replicas in [6, 4, 2, 0] {
        scene.the_pool("default").spec.replicas = Some(replicas);
        check_change(&scene, 0, &order[..7 - usize::try_from(replicas).unwrap()]);
    }
}

/// As the replacement that a command was rolled back for: Karpenter deletes either, and in the end none of the pool might serve.
#[test]
fn of_empty_nodes_one_that_does_not_serve_yet_is_deleted_first_but_none_with_pods_before_it() {
    let mut scene = pool_of(2, 3, None);
    check_change(&scene, 0, &["claim-n0"]);
    let (node, claim) = scene.parts("n2");
    node.metadata.labels.remove(labels::INITIALIZED);
    conditions::clear(&mut claim.status.conditions, conditions::INITIALIZED);
    check_change(&scene, 0, &["claim-n2"]);
    scene.the_pool("default").spec.replicas = Some(1);
    check_change(&scene, 0, &["claim-n2", "claim-n0"]);
    scene.pod("early", "n2", "100m");
    check_change(&scene, 0, &["claim-n0", "claim-n1"]);
}

#[test]
fn scaling_down_deletes_a_node_that_an_annotation_protects_after_the_others() {
    let mut scene = pool_of(1, 2, None);
    for node in ["n0", "n1"] {
        scene.pod(&format!("{node}-0"), node, "100m");
    }
    check_change(&scene, 0, &["claim-n0"]);
    for key in NODE_PROTECTIONS {
        for (value, deleted) in [("true", "claim-n1"), ("false", "claim-n0")] {
            scene.parts("n0").0.metadata.annotations = [(key.to_owned(), value.to_owned())].into();
            check_change(&scene, 0, &[deleted]);
        }
    }
    scene.the_pool("default").spec.replicas = Some(0);
    check_change(&scene, 0, &["claim-n0", "claim-n1"]);
}

#[test]
fn without_the_gate_static_pools_are_ignored() {
    let mut scene = pool_of(5, 2, None);
    scene.settings.static_capacity = whittle_model::disruption::Gate::Off;
    check_change(&scene, 0, &[]);
}

/// How many drifted nodes of a pool are replaced in one pass.
#[track_caller]
fn check_drift(mut scene: Scene, budget: &str, want: usize) {
    let pool = scene.the_pool("default");
    pool.spec.disruption.budgets = vec![Budget { nodes: IntOrString::Text(budget.to_owned()), ..Budget::default() }];
    pool.spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    let decision = scene.decide();
    assert_eq!(decision.commands.len(), want, "{:#?}", decision.verdicts);
    assert!(decision.commands.iter().all(|command| command.removals.len() == 1 && command.replacements.len() == 1));
}

#[test]
fn drifted_static_nodes_are_replaced_one_for_one_within_budget_and_limit() {
    check_drift(pool_of(5, 5, None), "3", 3);
    check_drift(pool_of(5, 5, None), "60%", 3);
    check_drift(pool_of(5, 5, Some(5)), "100%", 0);
    check_drift(pool_of(5, 5, Some(7)), "100%", 2);
    check_drift(pool_of(5, 2, Some(5)), "100%", 2);
    check_drift(pool_of(5, 5, Some(6)), "100%", 1);
    check_drift(pool_of(4, 5, None), "100%", 0);
    check_drift(pool_of(5, 5, None), "100%", 5);
    check_drift(pool_of(5, 5, None), "0", 0);
    check_drift(pool_of(0, 2, None), "100%", 0);
    let mut held = pool_of(2, 2, None);
    held.parts("n0").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    check_drift(held, "100%", 1);
    pool_of(2, 2, None).expect(&[]);
}

/// Nothing else says so of a pool whose nodes drift for ever.
#[test]
fn a_static_pool_whose_limit_leaves_no_room_for_a_replacement_says_so() {
    let blocked = |replicas: i64, limit: Option<i64>| {
        let mut scene = pool_of(replicas, 2, limit);
        let pool = scene.the_pool("default");
        pool.spec.disruption.budgets = vec![Budget { nodes: IntOrString::Text("100%".to_owned()), ..Budget::default() }];
        pool.spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
        let decision = scene.decide();
        let of_pool = decision.events.iter().filter(|event| event.object == "nodepool/default" && event.reason == "DisruptionBlocked");
        of_pool.map(|event| event.message.clone()).collect::<Vec<_>>()
    };
    let said = blocked(2, Some(2));
    assert!(said.len() == 1 && said[0].contains("limits.nodes 2 beside replicas 2 leaves no room"), "{said:?}");
    for (replicas, limit) in [(2, Some(3)), (2, None), (1, Some(2))] {
        assert_eq!(blocked(replicas, limit), [""; 0], "{replicas} {limit:?}");
    }
}

#[test]
fn drifted_static_nodes_are_replaced_until_none_is_left() {
    let mut scene = pool_of(5, 5, Some(6));
    let other = scene.pool("other");
    other.spec.replicas = Some(1);
    other.spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    scene.node("o", "other", 2);
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    for round in 0..6 {
        let decision = scene.decide();
        let removed: Vec<String> = decision.commands.iter().map(|command| command.removals[0].node.clone()).collect();
        // One node of each pool at a time: the pools' limits are independent.
        let want = [1 + usize::from(round == 0), 1, 1, 1, 1, 0][round];
        assert_eq!(removed.len(), want, "round {round}: {removed:?}");
        for node in removed {
            // The replacement matches its pool.
            let (node, claim) = scene.parts(&node);
            for labels in [&mut node.metadata.labels, &mut claim.metadata.labels] {
                labels.insert(labels::CAPACITY_TYPE.to_owned(), "spot".to_owned());
            }
        }
    }
}

/// EC2 has no spot machines but in this zone.
fn sell_out(scene: &mut Scene, but_zone: &str) {
    for types in scene.catalog.values_mut() {
        for offering in Arc::make_mut(types).change().iter_mut().flat_map(|instance_type| &mut instance_type.offerings) {
            offering.available &= offering.capacity_type() != "spot" || offering.zone() == but_zone;
        }
    }
}

/// Karpenter closes a node for each launch, and opens it again when the launch has failed.
#[test]
fn a_drifted_static_node_is_left_alone_while_nothing_that_its_pool_allows_can_be_launched() {
    let mut none = pool_of(5, 5, None);
    sell_out(&mut none, "");
    check_drift(none, "3", 0);
    let mut in_one_zone = pool_of(5, 5, None);
    sell_out(&mut in_one_zone, "b");
    check_drift(in_one_zone, "3", 3);
    let mut elsewhere = pool_of(5, 5, None);
    sell_out(&mut elsewhere, "b");
    elsewhere.the_pool("default").spec.template.metadata.labels.insert(labels::ZONE.to_owned(), "a".to_owned());
    check_drift(elsewhere, "3", 0);
}

#[test]
fn drifted_static_nodes_are_left_alone_while_ec2_refuses_what_would_replace_them() {
    let mut scene = pool_of(2, 2, None);
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    assert_eq!(scene.decide().commands.len(), 2);
    let refused = |message: Option<&str>| {
        let refused = ReplacementRefused { until: noon(), message: message.map(str::to_owned) };
        ClaimFacts { replacement_refused: Some(refused), ..ClaimFacts::default() }
    };
    scene.facts.insert("claim-n0".to_owned(), refused(Some("UnauthorizedOperation")));
    scene.facts.insert("claim-n1".to_owned(), refused(None));
    let decision = scene.decide();
    assert_eq!(reason_of(&decision, "n0").code(), "ReplacementRefused");
    let removed: Vec<&str> = decision.commands.iter().flat_map(|command| &command.removals).map(|removal| removal.node.as_str()).collect();
    assert_eq!(removed, ["n1"], "a quota keeps no drifted node");
}

/// Each would close a node for as long as its launch takes.
#[test]
fn one_machine_finds_out_whether_ec2_still_refuses_what_replaces_static_nodes() {
    let mut scene = pool_of(5, 5, None);
    let pool = scene.the_pool("default");
    pool.spec.disruption.budgets = vec![Budget { nodes: IntOrString::Text("100%".to_owned()), ..Budget::default() }];
    pool.spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    scene.facts.insert("claim-n2".to_owned(), ClaimFacts { was_refused_replacement: true, ..ClaimFacts::default() });
    scene.expect_reason("n1", "DriftWaits");
    check_drift(scene, "100%", 1);
    check_drift(pool_of(5, 5, None), "100%", 5);
}

#[test]
fn drifted_static_nodes_without_replacements_hold_up_no_other_disruption() {
    let mut scene = pool_of(2, 2, None);
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    scene.pool("moving");
    scene.node("m", "moving", 4);
    scene.pod("p", "m", "100m");
    let removed = |scene: &Scene| -> Vec<String> {
        let decision = scene.decide();
        decision.commands.iter().flat_map(|command| &command.removals).map(|removal| removal.node.clone()).collect()
    };
    assert_eq!(removed(&scene), ["n0", "n1"]);
    sell_out(&mut scene, "");
    assert_eq!(removed(&scene), ["m"]);
    let decision = scene.decide();
    for node in ["n0", "n1"] {
        let reason = reason_of(&decision, node);
        assert_eq!(reason.code(), "SoldOut", "{reason}");
    }
}

#[test]
fn static_nodes_are_never_consolidated() {
    let mut scene = pool_of(2, 2, None);
    scene.pod("p", "n0", "100m");
    scene.expect(&[]);
    for node in ["n0", "n1"] {
        scene.expect_reason(node, "StaticNodePool");
    }
}

/// A static pool of five drifted nodes, whose latest machines did so or so.
fn five_drifted(health: ConditionStatus) -> Scene {
    let mut scene = pool_of(5, 5, None).best();
    let shown = &mut scene.the_pool("default").status.conditions;
    conditions::set(shown, conditions::NODE_REGISTRATION_HEALTHY, health, "RegistrationFailed", "", noon());
    scene
}

fn being_replaced(mut scene: Scene, claim: &str) -> Scene {
    scene.facts.insert(claim.to_owned(), ClaimFacts { in_command: true, ..ClaimFacts::default() });
    scene
}

/// Its replacement is there, so that the pool has one node more than replicas; nobody knows when the pod lets its node go.
#[test]
fn a_node_that_is_held_after_it_was_replaced_keeps_no_other_of_its_pool_waiting() {
    let replaced = |is_held: bool, replicas: i64, limit: Option<i64>| {
        let mut scene = pool_of(replicas, 6, limit);
        scene.marks.insert("n0".to_owned(), (true, None));
        scene.facts.insert("claim-n0".to_owned(), ClaimFacts { in_command: true, is_held, ..ClaimFacts::default() });
        scene
    };
    check_drift(replaced(false, 5, None), "100%", 0);
    check_drift(replaced(true, 5, None), "100%", 5);
    check_drift(replaced(true, 5, None), "3", 2);
    check_drift(replaced(true, 5, None), "1", 0);
    check_drift(replaced(true, 5, Some(7)), "100%", 1);
    check_drift(replaced(true, 5, Some(6)), "100%", 0);
    check_drift(replaced(true, 4, None), "100%", 0);
    check_change(&replaced(true, 5, None), 0, &[]);
    check_change(&replaced(true, 4, None), 0, &["claim-n1"]);
    let mut ending = replaced(true, 5, None);
    ending.parts("n0").1.metadata.deletion_timestamp = Some(noon());
    check_drift(ending, "100%", 5);
    let mut more = replaced(true, 5, None);
    more.parts("n0").1.metadata.deletion_timestamp = Some(noon());
    more.node("n6", "default", 2);
    check_drift(more, "100%", 0);
}

#[test]
fn where_the_latest_machines_did_not_join_one_static_node_at_a_time_is_replaced() {
    check_drift(five_drifted(ConditionStatus::False), "100%", 1);
    check_drift(five_drifted(ConditionStatus::False), "0", 0);
    let mut waiting = being_replaced(five_drifted(ConditionStatus::False), "claim-n0");
    let pool = waiting.the_pool("default");
    pool.spec.disruption.budgets = vec![Budget { nodes: IntOrString::Text("100%".to_owned()), ..Budget::default() }];
    pool.spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    assert!(waiting.decide().commands.is_empty());
    waiting.expect_reason("n1", "DriftAwaitsJoin");
}

#[test]
fn static_drift_never_waits_for_joins_where_machines_join_or_of_another_pool() {
    for health in [ConditionStatus::True, ConditionStatus::Unknown] {
        check_drift(five_drifted(health), "100%", 5);
        check_drift(being_replaced(five_drifted(health), "claim-n0"), "100%", 4);
    }
    let mut other = five_drifted(ConditionStatus::False);
    other.pool("other");
    other.node("z", "other", 4);
    check_drift(being_replaced(other, "claim-z"), "100%", 1);
    // As Karpenter decides.
    let mut reference = five_drifted(ConditionStatus::False);
    reference.settings.solve.packing = Packing::Reference;
    check_drift(reference, "100%", 5);
}

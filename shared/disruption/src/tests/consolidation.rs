//! Multi-node and single-node consolidation.

use crate::testing::{Scene, budget, noon, reason_of, render};
use crate::{RejectionCause, record_drained, record_move, undo_moves};
use jiff::ToSpan as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{IntOrString, PodDisruptionBudget};
use whittle_api::karpenter::{Budget, ConsolidationPolicy, Requirement};
use whittle_api::{LabelSelector, NillableDuration, labels};
use whittle_model::disruption::{ClaimFacts, Gate, Memory, Method, Move, NOT_INITIALIZED, RemovedNode, ReplacementRefused, TAKES_NO_PODS};
use whittle_units::Price;

/// A node of `cpu` cores with one pod.
fn used(scene: &mut Scene, node: &str, cpu: i64, pod: &str) {
    scene.node(node, "default", cpu);
    scene.pod(&format!("pod-{node}"), node, pod);
}

fn scene(nodes: &[(&str, i64, &str)]) -> Scene {
    let mut scene = Scene::new();
    for (node, cpu, pod) in nodes {
        used(&mut scene, node, *cpu, pod);
    }
    scene
}

fn on_spot(scene: &mut Scene, nodes: &[&str]) {
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])];
    for name in nodes {
        let (node, claim) = scene.parts(name);
        for labels in [&mut node.metadata.labels, &mut claim.metadata.labels] {
            labels.insert(labels::CAPACITY_TYPE.to_owned(), "spot".to_owned());
        }
    }
}

/// A catalog of `count` types of two cores, each slightly more expensive than the one before it by name, in no order,
/// and the node's own type.
fn many_types(scene: &mut Scene, count: i64) {
    let order = (0..count).map(|at| at * 13 % count);
    let mut types: Vec<InstanceType> = order
        .map(|at| {
            let mut small = crate::testing::instance_type(2);
            small.name = format!("s{at:02}");
            small.requirements[0] = Requirement::is_in(labels::INSTANCE_TYPE, [small.name.clone()]);
            for offering in &mut small.offerings {
                offering.price = Price::from_nanos(offering.price.nanos() + u64::try_from(at).unwrap() * 1_000_000);
            }
            small
        })
        .collect();
    types.push(crate::testing::instance_type(16));
    scene.catalog.insert("default".to_owned(), Arc::new(types.into()));
}

#[test]
fn a_node_whose_pods_fit_elsewhere_is_deleted() {
    let scene = scene(&[("a", 4, "1"), ("b", 2, "500m")]);
    let decision = scene.expect(&["single delete [a]"]);
    assert_eq!(decision.commands[0].destinations, ["b"]);
}

#[test]
fn an_oversized_node_is_replaced_by_what_is_cheaper() {
    let scene = scene(&[("big", 16, "1500m")]);
    let decision = scene.expect(&["single replace [big] -> x2|x4|x8"]);
    assert_eq!(decision.commands[0].savings.nanos(), 700_000_000);
    assert_eq!(decision.commands[0].to_string(), "replace: [big] -> [1 replacement]");
    assert_eq!(decision.commands[0].replacements[0].cheapest_price, Price::from_nanos(100_000_000));
}

#[test]
fn a_node_that_is_already_the_cheapest_gets_an_event() {
    let scene = scene(&[("fit", 2, "1500m")]);
    let decision = scene.expect(&[]);
    assert_eq!(reason_of(&decision, "fit").to_string(), "kept: cheapest already");
    assert!(decision.events.iter().any(|event| event.object == "node/fit" && event.reason == "Unconsolidatable"));
    scene.best().expect_reason("fit", "NothingCheaper");
}

#[test]
fn an_on_demand_node_is_replaced_by_spot_only_where_both_are_allowed() {
    let mut scene = scene(&[("n", 2, "1500m")]);
    scene.the_pool("default").spec.template.spec.requirements.clear();
    let decision = scene.expect(&["single replace [n] -> x2|x4"]);
    let claim = &decision.commands[0].replacements[0];
    assert!(claim.requirements.contains(&Requirement::is_in(labels::CAPACITY_TYPE, ["spot"])));
}

#[test]
fn spot_to_spot_needs_its_gate() {
    let mut scene = scene(&[("n", 16, "1500m")]);
    on_spot(&mut scene, &["n"]);
    many_types(&mut scene, 20);
    scene.expect(&[]);
    scene.expect_reason("n", "SpotToSpotDisabled");
    scene.settings.spot_to_spot = Gate::On;
    let decision = scene.decide();
    let wanted: Vec<String> = (0..15).map(|at| format!("s{at:02}")).collect();
    assert_eq!(*decision.commands[0].replacements[0].instance_types, wanted);
}

#[test]
fn spot_to_spot_needs_fifteen_cheaper_types() {
    let mut scene = scene(&[("n", 16, "1500m")]);
    on_spot(&mut scene, &["n"]);
    scene.settings.spot_to_spot = Gate::On;
    many_types(&mut scene, 14);
    let decision = scene.expect(&[]);
    assert!(reason_of(&decision, "n").to_string().starts_with("kept: 14 cheaper"), "{}", reason_of(&decision, "n"));
    assert!(
        decision.events.iter().any(|event| event.message.ends_with("current candidate to consolidate, got 14")),
        "{:?}",
        decision.events
    );
    many_types(&mut scene, 15);
    assert_eq!(scene.decide().commands.len(), 1);
}

#[test]
fn min_values_keep_more_types_or_forbid_the_move() {
    let mut scene = scene(&[("n", 16, "1500m")]);
    on_spot(&mut scene, &["n"]);
    scene.settings.spot_to_spot = Gate::On;
    many_types(&mut scene, 18);
    let require = |scene: &mut Scene, types: u32| {
        let requirement = Requirement { operator: whittle_api::karpenter::Operator::Exists, ..Requirement::default() };
        let requirement = Requirement { key: labels::INSTANCE_TYPE.to_owned(), min_values: Some(types), ..requirement };
        scene.the_pool("default").spec.template.spec.requirements.truncate(1);
        scene.the_pool("default").spec.template.spec.requirements.push(requirement);
    };
    for (required, want) in [(16, 16), (10, 15)] {
        require(&mut scene, required);
        let decision = scene.decide();
        assert_eq!(decision.commands[0].replacements[0].instance_types.len(), want, "minValues {required}");
    }
    require(&mut scene, 19);
    scene.expect(&[]);
    scene.expect_reason("n", "MinValues");
}

#[test]
fn a_replacement_must_be_cheaper_even_at_its_worst_launch_price() {
    let mut scene = scene(&[("n", 4, "1500m")]);
    let mut types: Vec<InstanceType> = [2, 4].map(crate::testing::instance_type).into();
    types[0].offerings[1].price = Price::from_dollars(0.5);
    scene.catalog.insert("default".to_owned(), Arc::new(types.into()));
    scene.expect(&[]);
    scene.expect_reason("n", "NothingCheaper");
}

#[test]
fn several_nodes_are_replaced_by_one_that_costs_less() {
    let scene = scene(&[("a", 4, "1500m"), ("b", 4, "1500m"), ("c", 4, "900m")]);
    scene.expect(&["multi delete [a b]"]);
    self::scene(&[("a", 8, "3"), ("b", 8, "3500m")]).expect(&["single delete [a]"]);
}

#[test]
fn several_nodes_are_deleted_together_when_their_pods_fit_on_the_rest() {
    let mut scene = scene(&[("a", 2, "500m"), ("b", 2, "500m"), ("c", 8, "3")]);
    scene.expect(&["multi replace [a b c] -> x4"]);
    on_spot(&mut scene, &["a", "b", "c"]);
    scene.settings.spot_to_spot = Gate::On;
    scene.expect(&["multi replace [a b c] -> x4"]);
    scene.settings.spot_to_spot = Gate::Off;
    scene.expect(&["single delete [a]"]);
}

#[test]
fn a_node_that_cannot_be_removed_does_not_block_the_others() {
    // The first by savings ratio is too full for any set; the two after it fit on one small machine.
    let mut scene = scene(&[("full", 16, "15500m"), ("a", 2, "700m"), ("b", 2, "700m")]);
    scene.pod("filler-a", "a", "200m");
    scene.pod("filler-b", "b", "200m");
    let reference = scene.decide();
    let best = scene.best().decide();
    let saved = |decision: &crate::Decision| decision.commands.iter().map(|command| command.savings.nanos()).sum::<i64>();
    assert!(saved(&best) >= saved(&reference));
    assert!(!best.commands.is_empty());
}

#[test]
fn budgets_limit_multi_node_commands() {
    let mut scene = scene(&[("a", 4, "500m"), ("b", 4, "500m"), ("c", 4, "500m"), ("d", 4, "500m")]);
    scene.the_pool("default").spec.disruption.budgets = vec![budget("2")];
    let decision = scene.decide();
    assert!(decision.commands[0].removals.len() <= 2, "{}", render(&decision.commands[0]));
    scene.the_pool("default").spec.disruption.budgets[0].nodes = IntOrString::Text("0".to_owned());
    scene.expect(&[]);
    scene.expect_reason("a", "Budget");
}

#[test]
fn a_pod_that_fits_nowhere_else_keeps_its_node() {
    let mut scene = scene(&[("a", 4, "1"), ("b", 4, "1")]);
    let pinned = scene.objects.pods.iter_mut().find(|pod| pod.metadata.name == "pod-a").unwrap();
    pinned.spec.node_selector.insert("disk".to_owned(), "ssd".to_owned());
    let scene = scene.best();
    let decision = scene.decide();
    assert!(decision.commands.iter().all(|command| command.removals.iter().all(|removal| removal.node != "a")));
    scene.expect_reason("a", "PodsWouldNotSchedule");
}

#[test]
fn blocked_nodes_are_skipped() {
    let mut scene = scene(&[("a", 4, "1"), ("b", 4, "1")]);
    let mut budget = PodDisruptionBudget::default();
    budget.metadata.namespace = "default".to_owned();
    budget.spec.selector = Some(LabelSelector { match_labels: [("app".to_owned(), "a".to_owned())].into(), ..LabelSelector::default() });
    scene.objects.disruption_budgets.push(budget);
    scene.objects.pods[0].metadata.labels.insert("app".to_owned(), "a".to_owned());
    scene.parts("a").1.spec.termination_grace_period = Some("1h".parse().unwrap());
    scene.expect(&["single delete [b]"]);
    scene.expect_reason("a", "PodDisruptionBudget");
    // The other has no room, so its neighbour is replaced.
    scene.pod("filler", "a", "2500m");
    scene.expect(&["single replace [b] -> x1|x2"]);
}

#[test]
fn a_node_protected_by_itself_or_by_a_pod_is_skipped() {
    let annotation = || (labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    for on_node in [true, false] {
        let mut scene = scene(&[("a", 4, "1"), ("b", 4, "1")]);
        if on_node {
            scene.parts("a").0.metadata.annotations.extend([annotation()]);
        } else {
            scene.objects.pods[0].metadata.annotations.extend([annotation()]);
        }
        scene.expect(&["single delete [b]"]);
        scene.expect_reason("a", if on_node { "NodeAnnotation" } else { "PodAnnotation" });
    }
}

#[test]
fn each_pool_loses_at_most_as_many_nodes_together_as_its_budget_allows() {
    for (nodes, want) in [("2", 4), ("100%", 6), ("0", 0)] {
        let mut scene = Scene::new();
        scene.pool("other");
        scene.node("room", "default", 16).0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        for (at, pool) in ["default", "other"].into_iter().cycle().enumerate().take(6) {
            let name = format!("n{at}");
            scene.node(&name, pool, 2);
            scene.pod(&format!("pod-{name}"), &name, "100m");
        }
        for pool in ["default", "other"] {
            scene.the_pool(pool).spec.disruption.budgets = vec![budget(nodes)];
        }
        let decision = scene.decide();
        let removed: Vec<&str> =
            decision.commands.iter().flat_map(|command| &command.removals).map(|removal| removal.node_pool.as_str()).collect();
        assert_eq!(removed.len(), want, "budgets of {nodes}");
        assert_eq!(removed.iter().filter(|pool| **pool == "other").count(), want / 2, "budgets of {nodes}");
        // Nodes that a budget excluded are evaluated again when it admits them.
        scene.memory = decision.memory;
        scene.the_pool("default").spec.disruption.budgets.clear();
        assert_eq!(scene.decide().commands.len(), 1, "budgets of {nodes}");
    }
}

#[test]
fn nodes_whose_pods_changed_recently_receive_no_moved_pods() {
    let mut scene = scene(&[("old", 4, "1"), ("young", 4, "1")]);
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(3600);
    scene.parts("young").1.status.last_pod_event_time = Some(noon() - 1.minute());
    scene.expect(&["single replace [old] -> x1|x2"]);
    scene.expect_reason("young", "ConsolidateAfter");
}

#[test]
fn policies_decide_whether_used_nodes_are_evaluated() {
    let mut scene = scene(&[("big", 16, "1")]);
    scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
    scene.expect(&[]);
    scene.expect_reason("big", "NotEmpty");
    for policy in [ConsolidationPolicy::WhenEmptyOrUnderutilized, ConsolidationPolicy::Balanced] {
        scene.the_pool("default").spec.disruption.consolidation_policy = policy;
        assert_eq!(scene.decide().commands.len(), 1, "{policy:?}");
    }
}

#[test]
fn a_minimum_saving_is_respected() {
    let mut scene = scene(&[("n", 4, "1500m")]);
    let set_minimum = |scene: &mut Scene, dollars: &str| {
        scene.the_pool("default").metadata.annotations.insert(labels::MINIMUM_SAVING.to_owned(), dollars.to_owned());
    };
    set_minimum(&mut scene, "0.11");
    let decision = scene.expect(&[]);
    assert_eq!(reason_of(&decision, "n").to_string(), "kept: saves $2.40 a day, under the minimum of $2.64");
    for enough in ["0.1", "free", "-1"] {
        set_minimum(&mut scene, enough);
        scene.expect(&["single replace [n] -> x2"]);
    }
}

#[test]
fn a_move_that_undoes_a_recent_one_is_rejected() {
    let mut scene = scene(&[("n", 16, "1500m")]);
    let shape = |name: &str| RemovedNode {
        node_pool: "default".to_owned(),
        instance_type: name.to_owned(),
        capacity_type: "on-demand".to_owned(),
        zone: "a".to_owned(),
        price: Price::ZERO,
    };
    let earlier = Move {
        at: noon() - 30.minutes(),
        removed: vec![shape("x2"), shape("x4")],
        nodes: Vec::new(),
        undrained_at: None,
        drained_at: None,
        launched: vec!["claim-n".to_owned()],
        workloads: [("default/ReplicaSet/other".to_owned(), 9)].into(),
        move_counts: BTreeMap::new(),
    };
    scene.memory.moves = vec![earlier.clone()];
    scene.expect(&["single replace [n] -> x8"]);
    scene.memory.moves[0].removed.push(shape("x8"));
    scene.expect(&[]);
    scene.expect_reason("n", "UndoesRecentMove");
    scene.memory.moves[0].at = noon() - 1.hour();
    assert_eq!(scene.expect(&["single replace [n] -> x2|x4|x8"]).memory.moves.len(), 1);
    scene.memory.moves[0].at = noon() - 80.minutes();
    assert_eq!(scene.decide().memory.moves, [], "forgotten");
}

#[test]
fn no_workload_is_moved_more_than_twice_an_hour() {
    let mut scene = scene(&[("n", 16, "1500m")]);
    let moved = |pods| Move {
        at: noon() - 30.minutes(),
        removed: Vec::new(),
        nodes: Vec::new(),
        undrained_at: None,
        drained_at: None,
        launched: Vec::new(),
        workloads: [("default/ReplicaSet/web".to_owned(), pods)].into(),
        move_counts: BTreeMap::new(),
    };
    scene.memory.moves = vec![moved(1)];
    assert_eq!(scene.decide().commands.len(), 1);
    scene.memory.moves.push(moved(1));
    scene.expect(&[]);
    scene.expect_reason("n", "MovedTooOften");
}

#[test]
fn no_pod_is_moved_a_third_time_within_the_hour_even_if_its_workload_is_large() {
    let workload = "default/ReplicaSet/web";
    let mut scene = scene(&[("n", 16, "1500m")]);
    scene.node("full", "default", 4).0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    for at in 0..8 {
        scene.pod(&format!("old-{at}"), "full", "500m").metadata.creation_timestamp = Some(noon() - 2.hours());
    }
    let command = scene.expect(&["single replace [n] -> x2|x4|x8"]).commands.remove(0);
    let mut memory = scene.memory.clone();
    record_move(&mut memory, &command, Vec::new(), &scene.objects, noon() - 40.minutes());
    assert_eq!(memory.moves[0].move_counts[workload], 1);
    record_move(&mut memory, &command, Vec::new(), &scene.objects, noon() - 20.minutes());
    assert_eq!(memory.moves[1].move_counts[workload], 2, "the pod is younger than the first move: it may have been moved by it");
    scene.memory = memory;
    scene.expect_reason("n", "MovedTooOften");
    let pod = scene.objects.pods.iter_mut().find(|pod| pod.spec.node_name == "n").unwrap();
    pod.metadata.creation_timestamp = Some(noon() - 30.minutes());
    scene.expect_reason("n", "Underutilized");
    let pod = scene.objects.pods.iter_mut().find(|pod| pod.spec.node_name == "n").unwrap();
    pod.metadata.creation_timestamp = Some(noon());
    scene.now = noon() + 61.minutes();
    scene.expect_reason("n", "Underutilized");
}

#[test]
fn a_pod_created_after_the_drain_replaced_no_moved_pod() {
    let mut scene = scene(&[("n", 16, "1500m")]);
    scene.node("full", "default", 4).0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    for at in 0..8 {
        scene.pod(&format!("old-{at}"), "full", "500m").metadata.creation_timestamp = Some(noon() - 2.hours());
    }
    let moved_twice = |drained_at| Move {
        at: noon() - 40.minutes(),
        removed: Vec::new(),
        nodes: vec!["n0".to_owned()],
        undrained_at: None,
        drained_at,
        launched: Vec::new(),
        workloads: [("default/ReplicaSet/web".to_owned(), 1)].into(),
        move_counts: [("default/ReplicaSet/web".to_owned(), 2)].into(),
    };
    let mut check = |drained: i64, created: i64, now: i64, want: &str| {
        let at = |minutes: i64| noon() + minutes.minutes();
        scene.memory.moves = vec![moved_twice(Some(at(drained)))];
        scene.objects.pods.iter_mut().find(|pod| pod.spec.node_name == "n").unwrap().metadata.creation_timestamp = Some(at(created));
        scene.now = at(now);
        scene.expect_reason("n", want);
    };
    check(-30, -35, 0, "MovedTooOften");
    check(-30, -30, 0, "MovedTooOften");
    check(-30, -20, 0, "Underutilized");
    check(-35, -36, 24, "MovedTooOften");
    check(-35, -36, 25, "Underutilized");
    // The pods are seen to leave the node.
    let noted = |scene: &Scene| {
        let mut memory = Memory { moves: vec![moved_twice(None)], ..Memory::default() };
        record_drained(&mut memory, &scene.objects, noon());
        (memory.moves[0].undrained_at, memory.moves[0].drained_at)
    };
    assert_eq!(noted(&scene), (None, Some(noon())));
    scene.node("n0", "default", 2);
    scene.pod("staying", "n0", "1");
    assert_eq!(noted(&scene), (Some(noon()), None));
    scene.objects.pods.last_mut().unwrap().metadata.deletion_timestamp = Some(noon());
    assert_eq!(noted(&scene), (None, Some(noon())));
}

#[test]
fn a_pod_created_before_the_drain_replaced_no_moved_pod() {
    let mut scene = scene(&[("n", 16, "1500m")]);
    scene.node("full", "default", 4).0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    for at in 0..8 {
        scene.pod(&format!("old-{at}"), "full", "500m").metadata.creation_timestamp = Some(noon() - 2.hours());
    }
    scene.memory.moves = vec![Move {
        at: noon() - 40.minutes(),
        removed: Vec::new(),
        nodes: vec!["n0".to_owned()],
        undrained_at: Some(noon() - 35.minutes()),
        drained_at: Some(noon() - 34.minutes()),
        launched: Vec::new(),
        workloads: [("default/ReplicaSet/web".to_owned(), 1)].into(),
        move_counts: [("default/ReplicaSet/web".to_owned(), 2)].into(),
    }];
    for (created, want) in
        [(-38 * 60, "Underutilized"), (-35 * 60, "MovedTooOften"), (-34 * 60 + 29, "MovedTooOften"), (-34 * 60 + 30, "Underutilized")]
    {
        let pod = scene.objects.pods.iter_mut().find(|pod| pod.spec.node_name == "n").unwrap();
        pod.metadata.creation_timestamp = Some(noon() + i64::from(created).seconds());
        scene.expect_reason("n", want);
    }
}

#[test]
fn a_pass_that_found_nothing_is_not_repeated_until_something_changes() {
    let mut scene = scene(&[("fit", 2, "1500m")]);
    let decision = scene.expect(&[]);
    assert!(decision.memory.nothing_found.contains_key(&Method::SingleNode));
    scene.memory = decision.memory;
    scene.now = noon() + 4.minutes();
    scene.expect_reason("fit", "Unchanged");
    scene.now = noon() + 5.minutes();
    scene.expect_reason("fit", "NothingCheaper");
    scene.now = noon() + 1.minute();
    scene.node("empty", "default", 2);
    scene.parts("empty").1.metadata.deletion_timestamp = Some(noon());
    scene.expect_reason("fit", "NothingCheaper");
}

/// Two execution environments that follow the pods of a cluster have them in different orders.
#[test]
fn a_pass_that_found_nothing_is_not_repeated_for_another_order_of_the_pods() {
    let mut scene = scene(&[("a", 2, "1500m"), ("b", 2, "1500m")]);
    scene.memory = scene.expect(&[]).memory;
    scene.now = noon() + 1.minute();
    scene.objects.pods.reverse();
    scene.expect_reason("a", "Unchanged");
    for (pod, node) in scene.objects.pods.iter_mut().zip(["a", "b"]) {
        pod.spec.node_name = node.into();
    }
    scene.expect_reason("a", "NothingCheaper");
}

#[test]
fn an_exhausted_budget_does_not_repeat_the_search_for_the_others() {
    let mut scene = scene(&[("fit", 2, "1500m")]);
    scene.pool("closed").spec.disruption.budgets = vec![Budget { nodes: IntOrString::Int(0), ..Budget::default() }];
    scene.node("held", "closed", 2);
    scene.pod("pod-held", "held", "1500m");
    let decision = scene.expect(&[]);
    scene.memory = decision.memory;
    scene.now = noon() + 1.minute();
    scene.expect_reason("fit", "Unchanged");
    scene.expect_reason("held", "Budget");
    scene.the_pool("closed").spec.disruption.budgets.clear();
    scene.expect_reason("fit", "NothingCheaper");
    scene.expect_reason("held", "NothingCheaper");
}

#[test]
fn a_pass_is_repeated_when_a_receiving_node_passes_consolidate_after() {
    let mut scene = scene(&[("small", 1, "500m"), ("stirred", 4, "1")]);
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(120);
    let (node, claim) = scene.parts("stirred");
    node.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    claim.status.last_pod_event_time = Some(noon() - 1.minute());
    let decision = scene.expect(&[]);
    scene.memory = decision.memory;
    scene.now = noon() + 30.seconds();
    scene.expect_reason("small", "Unchanged");
    scene.now = noon() + 1.minute();
    scene.expect(&["single delete [small]"]);
}

/// What is known of a node whose replacement EC2 has refused: for a quota, or with these words.
fn refused_with(message: Option<&str>) -> ClaimFacts {
    let refused = ReplacementRefused { until: noon() + 5.minutes(), message: message.map(str::to_owned) };
    ClaimFacts { replacement_refused: Some(refused), ..ClaimFacts::default() }
}

fn refused() -> ClaimFacts {
    refused_with(None)
}

#[test]
fn a_node_whose_replacement_was_refused_gets_no_other_and_may_go_without_one() {
    let mut alone = scene(&[("a", 4, "1")]);
    alone.expect(&["single replace [a] -> x1|x2"]);
    alone.facts.insert("claim-a".to_owned(), refused());
    let decision = alone.expect(&[]);
    assert_eq!(reason_of(&decision, "a").code(), "ReplacementRefused");
    alone.memory = decision.memory;
    alone.facts.clear();
    alone.expect(&["single replace [a] -> x1|x2"]);
    let mut beside_room = scene(&[("a", 4, "1"), ("room", 4, "1")]);
    beside_room.parts("room").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    beside_room.facts.insert("claim-a".to_owned(), refused());
    beside_room.expect(&["single delete [a]"]);
    let mut empty = scene(&[("a", 4, "1")]);
    empty.objects.pods.clear();
    empty.facts.insert("claim-a".to_owned(), refused());
    empty.expect(&["empty delete [a]"]);
}

#[test]
fn the_verdict_of_a_refused_replacement_has_what_ec2_said_and_a_remedy() {
    let verdict = |message: Option<&str>| {
        let mut scene = scene(&[("a", 4, "1")]);
        scene.facts.insert("claim-a".to_owned(), refused_with(message));
        let decision = scene.expect(&[]);
        let verdict = decision.verdicts.iter().find(|verdict| verdict.node == "a").unwrap();
        (verdict.reason.to_string(), verdict.remedy(&scene.objects.node_pools).unwrap().text)
    };
    let (text, remedy) = verdict(Some("InvalidBlockDeviceMapping: Volume of size 8GB is smaller than snapshot"));
    assert!(text.contains("EC2 refuses what would replace it") && text.contains("2026-01-01T12:05:00Z"), "{text}");
    assert!(text.ends_with("smaller than snapshot") && !text.contains("quota"), "{text}");
    assert!(remedy.contains("EC2NodeClass") && remedy.contains("LaunchRefused") && !remedy.contains("Service Quotas"), "{remedy}");
    let (text, remedy) = verdict(Some(TAKES_NO_PODS));
    assert!(text.contains("in vain") && text.ends_with(TAKES_NO_PODS) && !text.contains("refuse"), "{text}");
    assert!(remedy.contains("cordoned") && !remedy.contains("Service Quotas"), "{remedy}");
    let (text, remedy) = verdict(Some(NOT_INITIALIZED));
    assert!(text.contains("in vain") && text.ends_with(NOT_INITIALIZED) && !text.contains("refuse"), "{text}");
    assert!(remedy.contains("startup taints") && !remedy.contains("cordoned"), "{remedy}");
    let (text, remedy) = verdict(None);
    assert!(text.contains("EC2 refused its replacement for a quota") && remedy.contains("Service Quotas"), "{text}; {remedy}");
}

#[test]
fn a_node_whose_replacement_was_refused_spoils_no_set_of_others() {
    let mut scene = scene(&[("a", 2, "500m"), ("b", 2, "500m"), ("c", 8, "3")]);
    scene.expect(&["multi replace [a b c] -> x4"]);
    scene.facts.insert("claim-c".to_owned(), refused());
    scene.expect(&["multi delete [a b]"]);
    // Nor when another may be tried.
    scene.facts.insert("claim-c".to_owned(), ClaimFacts { was_refused_replacement: true, ..ClaimFacts::default() });
    scene.expect(&["multi delete [a b]"]);
}

/// It would be tried first each time, and all others would wait for as long as EC2 refuses that one.
#[test]
fn a_node_whose_replacement_was_refused_is_replaced_after_the_others() {
    let mut scene = Scene::new().best();
    scene.pool("other");
    for (node, pool, cpu) in [("a", "default", 8), ("b", "other", 4)] {
        scene.node(node, pool, cpu);
        scene.pod(&format!("pod-{node}"), node, "1").spec.node_selector.insert(labels::NODE_POOL.to_owned(), pool.to_owned());
    }
    let chosen = |scene: &Scene| {
        let decision = scene.decide();
        let removed: Vec<String> = decision.commands.iter().flat_map(|command| &command.removals).map(|gone| gone.node.clone()).collect();
        (decision.commands.iter().all(|command| !command.replacements.is_empty()), removed)
    };
    assert_eq!(chosen(&scene), (true, vec!["a".to_owned()]), "it saves most");
    let was_refused = || ClaimFacts { was_refused_replacement: true, ..ClaimFacts::default() };
    scene.facts.insert("claim-a".to_owned(), was_refused());
    assert_eq!(chosen(&scene), (true, vec!["b".to_owned()]));
    scene.facts.insert("claim-b".to_owned(), was_refused());
    assert_eq!(chosen(&scene), (true, vec!["a".to_owned()]));
}

#[test]
fn nodes_that_a_short_pass_does_not_reach_are_evaluated_by_the_next() {
    let mut scene = scene(&[("a", 2, "1500m"), ("b", 2, "1500m"), ("c", 2, "1500m")]);
    scene.settings.simulations_max = 2;
    let mut evaluated = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let decision = scene.decide();
        evaluated.extend(decision.verdicts.iter().filter(|verdict| !verdict.reason.is_stale()).map(|verdict| verdict.node.clone()));
        assert_eq!(decision.timeouts, [Method::SingleNode].into());
        assert_eq!(decision.memory.unreached.len(), 1);
        scene.memory = decision.memory;
    }
    assert_eq!(evaluated.len(), 3);
    scene.settings.simulations_max = 100;
    let decision = scene.expect(&[]);
    assert!(decision.timeouts.is_empty() && decision.memory.unreached.is_empty(), "{:?}", decision.memory);
    let mut hurried = self::scene(&[("a", 2, "1500m"), ("b", 2, "1500m"), ("c", 2, "1500m")]);
    hurried.settings.simulations_max = 1;
    assert_eq!(hurried.decide().timeouts, [Method::MultiNode, Method::SingleNode].into());
}

/// Passes follow each other while a node waits for its turn.
#[test]
fn no_node_waits_for_its_turn_once_none_may_be_consolidated() {
    let mut scene = scene(&[("a", 2, "1500m"), ("b", 2, "1500m"), ("c", 2, "1500m")]);
    scene.settings.simulations_max = 2;
    let decision = scene.decide();
    assert_eq!(decision.memory.unreached.len(), 1);
    scene.memory = decision.memory;
    scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
    let decision = scene.decide();
    assert!(decision.memory.unreached.is_empty(), "{:?}", decision.memory);
}

#[test]
fn a_proposal_must_still_be_valid_after_its_wait() {
    let mut scene = scene(&[("big", 16, "1500m")]);
    let proposal = scene.decide().commands[0].proposal(noon());
    scene.now = noon() + 14.seconds();
    assert_eq!(scene.validate(&proposal).unwrap_err().cause, RejectionCause::TooEarly);
    scene.now = noon() + 15.seconds();
    let command = scene.validate(&proposal).unwrap();
    assert_eq!(command.proposal(noon()).replacements, proposal.replacements);
    let check = |change: &dyn Fn(&mut Scene), want: RejectionCause| {
        let mut scene = self::scene(&[("big", 16, "1500m")]);
        scene.now = noon() + 15.seconds();
        change(&mut scene);
        let rejection = scene.validate(&proposal).unwrap_err();
        assert_eq!(rejection.cause, want);
        assert_eq!(rejection.failed, usize::from(want != RejectionCause::Scheduling), "{want}");
        let published: Vec<(&str, &str)> = rejection.events.iter().map(|event| (event.object.as_str(), event.message.as_str())).collect();
        let message = format!("Consolidation rejected: replace: [big] -> [1 replacement], reason: {want} (savings: $0.70)");
        assert_eq!(published, [("node/big", message.as_str()), ("nodeclaim/claim-big", message.as_str())]);
    };
    check(&|scene| used(scene, "room", 4, "1"), RejectionCause::Scheduling);
    check(
        &|scene| {
            scene.pod("more", "big", "3");
        },
        RejectionCause::Scheduling,
    );
    check(
        &|scene| {
            scene.objects.pods[0].metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        },
        RejectionCause::Churn,
    );
    check(&|scene| scene.the_pool("default").spec.disruption.budgets = vec![budget("0")], RejectionCause::Budget);
}

#[test]
fn a_proposal_is_rejected_once_one_of_its_types_is_no_longer_cheaper_or_cannot_be_launched() {
    let nodes = [("big", 16, "1500m")];
    let proposal = scene(&nodes).expect(&["single replace [big] -> x2|x4|x8"]).commands[0].proposal(noon());
    let validated = |change: &dyn Fn(&mut Offering)| {
        let mut scene = scene(&nodes);
        scene.now = noon() + 15.seconds();
        let mut types = [1, 2, 4, 8, 16].map(crate::testing::instance_type);
        types[3].offerings.iter_mut().for_each(change);
        scene.catalog.insert("default".to_owned(), Arc::new(types.into_iter().collect()));
        scene.validate(&proposal).map(|command| command.replacements.len()).map_err(|rejection| rejection.cause)
    };
    // The node costs 0.8 an hour.
    let costs = |dollars: f64| move |offering: &mut Offering| offering.price = Price::from_dollars(dollars);
    assert_eq!(validated(&|_| ()), Ok(1));
    assert_eq!(validated(&costs(0.79)), Ok(1));
    assert_eq!(validated(&costs(0.8)), Err(RejectionCause::Scheduling));
    assert_eq!(validated(&|offering| offering.available = false), Err(RejectionCause::Scheduling));
}

#[test]
fn a_multi_node_proposal_is_rejected_as_a_whole_when_one_node_is_blocked() {
    let nodes = [("a", 4, "1500m"), ("b", 4, "1500m"), ("c", 4, "900m")];
    let proposal = scene(&nodes).expect(&["multi delete [a b]"]).commands[0].proposal(noon());
    type Change = fn(&mut Scene);
    let change: [(Change, RejectionCause); 5] = [
        (|scene| scene.marks.extend([("a".to_owned(), (false, Some(noon() + 1.minute())))]), RejectionCause::Churn),
        (
            |scene| scene.objects.pods[1].metadata.annotations.extend([(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned())]),
            RejectionCause::Churn,
        ),
        (
            |scene| {
                let mut pdb = PodDisruptionBudget::default();
                "default".clone_into(&mut pdb.metadata.namespace);
                pdb.spec.selector = Some(LabelSelector::default());
                scene.objects.disruption_budgets.push(pdb);
            },
            RejectionCause::Churn,
        ),
        (
            |scene| scene.the_pool("default").spec.disruption.budgets = vec![Budget { nodes: IntOrString::Int(1), ..Budget::default() }],
            RejectionCause::Budget,
        ),
        (
            |scene| {
                scene.pod("late", "c", "2");
            },
            RejectionCause::Scheduling,
        ),
    ];
    for (change, cause) in change {
        let mut later = scene(&nodes);
        later.now = noon() + 15.seconds();
        assert!(later.validate(&proposal).is_ok());
        change(&mut later);
        let rejection = later.validate(&proposal).unwrap_err();
        let failed = if cause == RejectionCause::Scheduling { 0 } else { 2 };
        assert_eq!((rejection.cause, rejection.failed, rejection.events.len()), (cause, failed, 4));
        assert!(rejection.events[0].message.contains("delete: [a] (part of 2-node consolidation)"), "{}", rejection.events[0].message);
    }
}

#[test]
fn a_rolled_back_move_is_forgotten_and_the_others_are_kept() {
    let mut scene = scene(&[("n", 16, "1500m")]);
    let command = scene.expect(&["single replace [n] -> x2|x4|x8"]).commands.remove(0);
    record_move(&mut scene.memory, &command, vec!["lost".to_owned()], &scene.objects, noon() - 40.minutes());
    record_move(&mut scene.memory, &command, vec!["came".to_owned()], &scene.objects, noon() - 20.minutes());
    // Deletions launch nothing, and several commands may begin in one moment.
    for node in ["n", "other"] {
        let mut deletion = command.clone();
        node.clone_into(&mut deletion.removals[0].node);
        record_move(&mut scene.memory, &deletion, Vec::new(), &scene.objects, noon() - 10.minutes());
    }
    undo_moves(&mut scene.memory, noon() - 40.minutes(), &["n"]);
    undo_moves(&mut scene.memory, noon() - 10.minutes(), &["n"]);
    let left: Vec<(&str, usize)> = scene.memory.moves.iter().map(|one| (one.nodes[0].as_str(), one.launched.len())).collect();
    assert_eq!(left, [("n", 1), ("other", 0)]);
}

//! Nodes of a pool whose node class is not ready: nothing is launched for the pool, and what needs no launch goes as ever.

use crate::testing::{Scene, budget, enable_static_capacity, noon, owner, reason_of};
use jiff::ToSpan as _;
use whittle_api::karpenter::{ConsolidationPolicy, Ec2NodeClass, ResolvedSubnet};
use whittle_api::{ConditionStatus, NillableDuration, conditions, labels};
use whittle_model::disruption::{ClaimFacts, Method};
use whittle_units::Price;

/// The class of pool `default` finds no image any more, and the pool has no instance types therefore.
fn make_unready(scene: &mut Scene) {
    scene.catalog.remove("default");
    let mut class = Ec2NodeClass::default();
    "default".clone_into(&mut class.metadata.name);
    class.status.subnets = vec![ResolvedSubnet { zone: "a".to_owned(), ..ResolvedSubnet::default() }];
    conditions::set(&mut class.status.conditions, conditions::READY, ConditionStatus::False, "AMINotFound", "no image", noon());
    scene.objects.node_classes.push(class);
    let of_pool = &mut scene.the_pool("default").status.conditions;
    conditions::set(of_pool, conditions::READY, ConditionStatus::False, "UnhealthyDependents", "NodeClassReady=False", noon());
}

/// An empty node of such a pool.
fn empty() -> Scene {
    let mut scene = Scene::new();
    scene.node("empty", "default", 2);
    make_unready(&mut scene);
    scene
}

/// A node of such a pool with a pod of one core.
fn used() -> Scene {
    let mut scene = Scene::new();
    scene.node("used", "default", 4);
    scene.pod("p", "used", "1");
    make_unready(&mut scene);
    scene
}

/// Adds a pool whose class is ready.
fn add_ready_pool(scene: &mut Scene) {
    "ready".clone_into(&mut scene.pool("other").spec.template.spec.node_class_ref.name);
}

/// Adds a node with room to that pool, which stays.
fn add_room(scene: &mut Scene) {
    scene.node("room", "other", 4).0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
}

fn drift(scene: &mut Scene, node: &str) {
    let claim = scene.parts(node).1;
    conditions::set(&mut claim.status.conditions, conditions::DRIFTED, ConditionStatus::True, "AMIDrift", "AMIDrift", noon());
}

#[test]
fn an_empty_node_goes_while_its_class_is_not_ready() {
    for policy in [ConsolidationPolicy::WhenEmpty, ConsolidationPolicy::WhenEmptyOrUnderutilized, ConsolidationPolicy::Balanced] {
        for mut scene in [empty(), empty().best()] {
            scene.the_pool("default").spec.disruption.consolidation_policy = policy;
            let launched = ClaimFacts { launch_price: Price::from_dollars(0.1), ..ClaimFacts::default() };
            scene.facts.insert("claim-empty".to_owned(), launched);
            let decision = scene.expect(&["empty delete [empty]"]);
            assert_eq!(reason_of(&decision, "empty").code(), "Empty");
            assert_eq!(decision.commands[0].savings.to_string(), "$0.10", "what it cost at its launch");
            assert!(decision.events.iter().all(|event| event.reason != "DisruptionBlocked"), "{:?}", decision.events);
            let proposal = decision.commands[0].proposal(noon());
            scene.now = noon() + 15.seconds();
            assert_eq!(scene.validate(&proposal).unwrap().to_string(), "delete: [empty]", "also after the wait");
        }
    }
}

#[test]
fn a_condition_that_is_missing_or_unknown_is_not_ready_either() {
    let mut scene = empty();
    scene.objects.node_classes[0].status.conditions.clear();
    scene.expect(&["empty delete [empty]"]);
    let mut scene = empty();
    let of_class = &mut scene.objects.node_classes[0].status.conditions;
    conditions::set(of_class, conditions::READY, ConditionStatus::Unknown, "AwaitingReconciliation", "", noon());
    scene.expect(&["empty delete [empty]"]);
}

#[test]
fn an_empty_node_is_kept_by_all_that_keeps_others() {
    let kept = |change: &dyn Fn(&mut Scene), want: &str| {
        let mut scene = empty();
        change(&mut scene);
        let decision = scene.expect(&[]);
        assert_eq!(reason_of(&decision, "empty").code(), want);
    };
    kept(&|scene| scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never, "ConsolidationDisabled");
    let young = |scene: &mut Scene| {
        scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(600);
        scene.parts("empty").1.status.last_pod_event_time = Some(noon() - 599.seconds());
    };
    kept(&young, "ConsolidateAfter");
    kept(&|scene| scene.the_pool("default").spec.disruption.budgets = vec![budget("0")], "Budget");
    let annotate = |scene: &mut Scene| {
        scene.parts("empty").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    };
    kept(&annotate, "NodeAnnotation");
    let protect = |scene: &mut Scene| {
        let daemon = scene.pod("daemon", "empty", "100m");
        daemon.metadata.owner_references = vec![owner("apps/v1", "DaemonSet", "agent")].into();
        daemon.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    };
    kept(&protect, "PodAnnotation");
    let buffered = |scene: &mut Scene| {
        scene.facts.insert("claim-empty".to_owned(), ClaimFacts { buffer_pods: 1, ..ClaimFacts::default() });
    };
    kept(&buffered, "BufferPods");
    let nominated = |scene: &mut Scene| {
        scene.marks.insert("empty".to_owned(), (false, Some(noon() + 1.minute())));
    };
    kept(&nominated, "Nominated");
}

/// Karpenter knows no types of these pools either, and of a pool whose class is ready nobody knows why it has none.
#[test]
fn an_empty_node_is_kept_where_more_is_missing_than_readiness() {
    let kept = |change: &dyn Fn(&mut Scene)| {
        let mut scene = empty();
        change(&mut scene);
        let decision = scene.expect(&[]);
        assert_eq!(reason_of(&decision, "empty").code(), "NodePoolUnknown");
    };
    kept(&|scene| scene.objects.node_classes.clear());
    kept(&|scene| scene.objects.node_classes[0].metadata.deletion_timestamp = Some(noon()));
    kept(&|scene| scene.objects.node_classes[0].status.subnets.clear());
    kept(&|scene| {
        let of_class = &mut scene.objects.node_classes[0].status.conditions;
        conditions::set(of_class, conditions::READY, ConditionStatus::True, conditions::READY, "", noon());
    });
    kept(&|scene| scene.the_pool("default").spec.replicas = Some(1));
}

#[test]
fn a_node_with_pods_is_not_consolidated_while_its_class_is_not_ready() {
    let why = "kept: NodePool default has no instance types: EC2NodeClass \"default\" is not ready: AMINotFound: no image";
    for policy in [ConsolidationPolicy::WhenEmptyOrUnderutilized, ConsolidationPolicy::Balanced] {
        for mut scene in [used(), used().best()] {
            scene.the_pool("default").spec.disruption.consolidation_policy = policy;
            add_ready_pool(&mut scene);
            add_room(&mut scene);
            scene.node("also", "default", 4);
            scene.pod("q", "also", "1");
            let decision = scene.expect(&[]);
            for node in ["used", "also"] {
                assert_eq!(reason_of(&decision, node).to_string(), why, "its pod would fit on the other node");
            }
        }
    }
}

#[test]
fn a_drifted_node_is_replaced_by_other_pools_alone_while_its_class_is_not_ready() {
    let mut scene = used();
    drift(&mut scene, "used");
    scene.expect(&[]);
    scene.expect_reason("used", "PodsWouldNotSchedule");
    add_ready_pool(&mut scene);
    let decision = scene.expect(&["drift replace [used] -> x1|x2|x4|x8|x16"]);
    assert_eq!((decision.commands[0].method, decision.commands[0].replacements[0].node_pool.as_str()), (Method::Drift, "other"));
    add_room(&mut scene);
    scene.expect(&["drift delete [used]"]);
}

#[test]
fn a_static_pools_node_does_not_drift_while_its_class_is_not_ready() {
    let mut scene = used();
    enable_static_capacity(&mut scene);
    scene.the_pool("default").spec.replicas = Some(1);
    drift(&mut scene, "used");
    scene.expect(&[]);
    scene.expect_reason("used", "NodePoolUnknown");
}

//! Drift of dynamic pools: which nodes are replaced, in which order, and what blocks it.

use crate::testing::{Scene, budget, noon, reason_of};
use jiff::ToSpan as _;
use whittle_api::k8s::{IntOrString, PodDisruptionBudget};
use whittle_api::karpenter::{Budget, ConsolidationPolicy, Ec2NodeClass, Requirement, ResolvedAmi};
use whittle_api::{ConditionStatus, LabelSelector, NillableDuration, ObjectMeta, conditions, labels};
use whittle_model::disruption::{ClaimFacts, Method, Reason, ReplacementRefused};
use whittle_units::Price;

/// Marks a node as drifted by its image, `minutes` ago.
fn drift(scene: &mut Scene, node: &str, minutes: i64) {
    let claim = scene.parts(node).1;
    let since = noon() - minutes.minutes();
    conditions::set(&mut claim.status.conditions, conditions::DRIFTED, ConditionStatus::True, "AMIDrift", "AMIDrift", since);
}

/// Drifted nodes of four cores with one pod each, the first drifted longest ago; consolidation is off.
fn drifted(nodes: &[(&str, &str)]) -> Scene {
    let mut scene = Scene::new();
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never;
    for (at, (node, pod)) in (0..).zip(nodes) {
        scene.node(node, "default", 4);
        if !pod.is_empty() {
            scene.pod(&format!("pod-{node}"), node, pod);
        }
        drift(&mut scene, node, 60 - at);
    }
    scene
}

fn with_grace(scene: &mut Scene, node: &str) {
    scene.parts(node).1.spec.termination_grace_period = Some("1h".parse().unwrap());
}

fn annotate(scene: &mut Scene, pod: &str, value: &str) {
    let pod = scene.objects.pods.iter_mut().find(|found| found.metadata.name == pod).unwrap();
    pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), value.to_owned());
    pod.status.start_time = Some(noon() - 30.minutes());
}

fn exhausted_pdb(scene: &mut Scene, never: bool) {
    let mut pdb = PodDisruptionBudget::default();
    (pdb.metadata.namespace, pdb.metadata.name) = ("default".to_owned(), "pdb".to_owned());
    pdb.spec.selector = Some(LabelSelector::default());
    pdb.spec.max_unavailable = never.then_some(IntOrString::Int(0));
    scene.objects.disruption_budgets.push(pdb);
}

#[test]
fn a_drifted_node_with_pods_is_replaced_immediately_at_any_price() {
    let scene = drifted(&[("a", "3500m")]);
    let decision = scene.expect(&["drift replace [a] -> x4|x8|x16"]);
    let command = &decision.commands[0];
    assert_eq!((command.method, command.execute_after), (Method::Drift, noon()));
    assert_eq!(decision.eligible[&Method::Drift], 1);
}

/// A drifted node that was launched at this price, in a zone that its class has left.
fn outside_of_the_catalog(launched_at: f64) -> Scene {
    let mut scene = drifted(&[("a", "3500m")]);
    let (node, claim) = scene.parts("a");
    node.metadata.labels.insert(labels::ZONE.to_owned(), "left".to_owned());
    claim.metadata.labels.insert(labels::ZONE.to_owned(), "left".to_owned());
    let facts = ClaimFacts { launch_price: Price::from_dollars(launched_at), type_seen_at: Some(noon()), ..ClaimFacts::default() };
    scene.facts.insert("claim-a".to_owned(), facts);
    scene
}

#[test]
fn a_drifted_node_that_the_catalog_does_not_list_cost_what_it_cost_at_launch() {
    let saved = |scene: Scene| scene.expect(&["drift replace [a] -> x4|x8|x16"]).commands[0].savings.to_string();
    assert_eq!(saved(drifted(&[("a", "3500m")])), "$0.00", "the same type again");
    assert_eq!(saved(outside_of_the_catalog(0.2)), "$0.00");
    assert_eq!(saved(outside_of_the_catalog(0.35)), "$0.15");
    assert_eq!(saved(outside_of_the_catalog(0.0)), "$-0.20", "nothing is known of it");
}

#[test]
fn consolidation_compares_with_no_price_but_that_of_the_catalog() {
    let mut scene = outside_of_the_catalog(5.0);
    conditions::clear(&mut scene.parts("a").1.status.conditions, conditions::DRIFTED);
    scene.the_pool("default").spec.disruption.consolidate_after = "0s".parse().unwrap();
    scene.expect(&[]);
    scene.expect_reason("a", "PriceUnknown");
}

#[test]
fn a_drifted_node_whose_pods_fit_elsewhere_is_deleted_without_a_replacement() {
    let mut scene = drifted(&[("a", "1")]);
    scene.node("room", "default", 4);
    scene.pod("other", "room", "1");
    scene.expect(&["drift delete [a]"]);
}

/// A drifted node whose pod would fit only on a node that has not initialized.
fn beside_an_uninitialized_node() -> Scene {
    let mut scene = drifted(&[("a", "1")]);
    scene.node("young", "default", 4);
    let (node, claim) = scene.parts("young");
    node.metadata.labels.remove(labels::INITIALIZED);
    claim.metadata.creation_timestamp = Some(noon() - 4.minutes());
    scene
}

/// The same, and the node has not initialized for `minutes`.
fn beside_a_node_that_does_not_initialize(minutes: i64) -> Scene {
    let mut scene = beside_an_uninitialized_node().best();
    scene.parts("young").1.metadata.creation_timestamp = Some(noon() - minutes.minutes());
    scene
}

#[test]
fn drift_launches_no_machine_beside_one_that_does_not_initialize() {
    for minutes in [5, 6, 60 * 24] {
        let scene = beside_a_node_that_does_not_initialize(minutes);
        scene.expect(&[]);
        scene.expect_reason("a", "PodsWouldNotSchedule");
    }
    // One that takes long keeps back only those whose pods would go there.
    let mut scene = beside_a_node_that_does_not_initialize(60);
    scene.parts("young").0.status.allocatable.set("cpu", whittle_units::Quantity::from_milli(100));
    scene.expect(&["drift replace [a] -> x1|x2|x4|x8|x16"]);
}

#[test]
fn drift_does_not_wait_for_uninitialized_nodes_but_for_unschedulable_pods() {
    // Like Karpenter: there may be another uninitialized node tomorrow.
    beside_an_uninitialized_node().expect_reason("a", "PodsWouldNotSchedule");
    beside_an_uninitialized_node().best().expect(&["drift replace [a] -> x1|x2|x4|x8|x16"]);
    let mut nowhere = beside_an_uninitialized_node().best();
    nowhere.the_pool("default").spec.limits.set("cpu", whittle_units::Quantity::from_units(4));
    nowhere.expect(&[]);
    nowhere.expect_reason("a", "PodsWouldNotSchedule");
}

/// With an image that no node starts with, there would be another machine every ten seconds, until the budget is exhausted.
#[test]
fn drift_waits_for_a_starting_node_where_the_latest_machines_did_not_join() {
    let (waits, goes_on): (&[&str], &[&str]) = (&[], &["drift replace [a] -> x1|x2|x4|x8|x16"]);
    for (health, expected) in [(ConditionStatus::False, waits), (ConditionStatus::Unknown, goes_on), (ConditionStatus::True, goes_on)] {
        let mut scene = beside_an_uninitialized_node().best();
        let shown = &mut scene.the_pool("default").status.conditions;
        conditions::set(shown, conditions::NODE_REGISTRATION_HEALTHY, health, "RegistrationFailed", "Failed to register node", noon());
        scene.expect(expected);
    }
    // It keeps back only those whose pods would go to that node.
    let mut alone = drifted(&[("a", "1")]).best();
    let shown = &mut alone.the_pool("default").status.conditions;
    conditions::set(shown, conditions::NODE_REGISTRATION_HEALTHY, ConditionStatus::False, "RegistrationFailed", "", noon());
    alone.expect(&["drift replace [a] -> x1|x2|x4|x8|x16"]);
}

/// Two drifted nodes with pods, of which the first is being replaced, in a pool whose latest machines did so or so.
fn beside_one_that_is_replaced(health: ConditionStatus) -> Scene {
    let mut scene = drifted(&[("a", "3500m"), ("b", "3500m")]).best();
    let pool = scene.the_pool("default");
    pool.spec.disruption.budgets = vec![budget("100%")];
    let reason = "RegistrationFailed";
    conditions::set(&mut pool.status.conditions, conditions::NODE_REGISTRATION_HEALTHY, health, reason, "", noon());
    scene.facts.insert("claim-a".to_owned(), ClaimFacts { in_command: true, ..ClaimFacts::default() });
    scene
}

#[test]
fn where_the_latest_machines_did_not_join_one_drifted_node_at_a_time_is_replaced() {
    let scene = beside_one_that_is_replaced(ConditionStatus::False);
    let decision = scene.expect(&[]);
    let reason = reason_of(&decision, "b");
    assert_eq!(reason.code(), "DriftAwaitsJoin");
    let text = reason.to_string();
    assert!(text.contains("NodePool \"default\" did not join") && text.contains("one at a time"), "{text}");
    let mut first = beside_one_that_is_replaced(ConditionStatus::False);
    first.facts.clear();
    first.expect(&["drift replace [a] -> x4|x8|x16"]);
}

#[test]
fn drift_never_waits_for_the_join_of_machines_that_it_does_not_need() {
    for health in [ConditionStatus::Unknown, ConditionStatus::True] {
        beside_one_that_is_replaced(health).expect(&["drift replace [b] -> x4|x8|x16"]);
    }
    // Nothing is launched for it.
    let mut empty = beside_one_that_is_replaced(ConditionStatus::False);
    empty.objects.pods.retain(|pod| pod.metadata.name != "pod-b");
    empty.expect(&["drift delete [b]"]);
    // A command of another pool says nothing of this one.
    let mut other = beside_one_that_is_replaced(ConditionStatus::False);
    other.facts.clear();
    other.pool("other");
    other.node("z", "other", 4);
    other.pod("pod-z", "z", "3500m");
    other.facts.insert("claim-z".to_owned(), ClaimFacts { in_command: true, ..ClaimFacts::default() });
    assert_eq!(other.decide().commands[0].removals[0].node, "a");
}

/// What is known of the nodes of a pool for which EC2 refuses a machine with these words, or for a quota.
fn refused(message: Option<&str>) -> ClaimFacts {
    let refused = ReplacementRefused { until: noon() + 5.minutes(), message: message.map(str::to_owned) };
    ClaimFacts { replacement_refused: Some(refused), ..ClaimFacts::default() }
}

#[test]
fn a_drifted_node_whose_replacement_ec2_refuses_is_left_alone_and_says_why() {
    let mut scene = drifted(&[("a", "3500m"), ("b", "3500m")]);
    let of_pool = || refused(Some("UnauthorizedOperation"));
    scene.facts = [("claim-a".to_owned(), of_pool()), ("claim-b".to_owned(), of_pool())].into();
    let decision = scene.expect(&[]);
    for node in ["a", "b"] {
        assert_eq!(reason_of(&decision, node).code(), "ReplacementRefused");
        let blocked = || decision.events.iter().filter(|event| event.reason == "DisruptionBlocked");
        let is_told = |kind: &str| blocked().any(|event| event.object == format!("{kind}{node}"));
        assert!(is_told("node/") && is_told("nodeclaim/claim-"), "{:?}", decision.events);
    }
    // Nodes of other pools have their turn.
    scene.pool("other");
    scene.node("z", "other", 4);
    scene.pod("pod-z", "z", "3500m");
    drift(&mut scene, "z", 0);
    assert_eq!(scene.decide().commands[0].removals[0].node, "z");
    scene.facts.clear();
    scene.expect(&["drift replace [a] -> x4|x8|x16"]);
}

#[test]
fn a_refused_replacement_never_keeps_a_drifted_node_that_needs_none_or_that_a_quota_refused() {
    let mut bare = drifted(&[("a", "")]);
    bare.facts.insert("claim-a".to_owned(), refused(Some("UnauthorizedOperation")));
    bare.expect(&["drift delete [a]"]);
    let mut beside_room = drifted(&[("full", "3500m"), ("a", "1")]);
    beside_room.node("room", "default", 4);
    beside_room.pod("pod-room", "room", "2");
    for claim in ["claim-full", "claim-a"] {
        beside_room.facts.insert(claim.to_owned(), refused(Some("UnauthorizedOperation")));
    }
    let decision = beside_room.expect(&["drift delete [a]"]);
    assert_eq!(reason_of(&decision, "full").code(), "ReplacementRefused");
    let mut of_quota = drifted(&[("a", "3500m")]);
    of_quota.facts.insert("claim-a".to_owned(), refused(None));
    of_quota.expect(&["drift replace [a] -> x4|x8|x16"]);
}

#[test]
fn a_node_whose_replacement_was_refused_is_tried_after_the_others() {
    let mut scene = drifted(&[("a", "3500m"), ("b", "3500m")]);
    scene.facts.insert("claim-a".to_owned(), ClaimFacts { was_refused_replacement: true, ..ClaimFacts::default() });
    scene.expect(&["drift replace [b] -> x4|x8|x16"]);
    scene.facts.insert("claim-b".to_owned(), ClaimFacts { was_refused_replacement: true, ..ClaimFacts::default() });
    scene.expect(&["drift replace [a] -> x4|x8|x16"]);
}

#[test]
fn only_a_true_condition_is_drift() {
    for status in [ConditionStatus::False, ConditionStatus::Unknown] {
        let mut scene = drifted(&[("a", "1")]);
        conditions::set(&mut scene.parts("a").1.status.conditions, conditions::DRIFTED, status, "AMIDrift", "", noon());
        scene.expect(&[]);
    }
    let mut scene = drifted(&[("a", "1")]);
    conditions::clear(&mut scene.parts("a").1.status.conditions, conditions::DRIFTED);
    scene.expect(&[]);
}

#[test]
fn annotations_of_node_and_pods_block_drift_as_they_block_consolidation() {
    let held = |change: &dyn Fn(&mut Scene), code: &str| {
        let mut scene = drifted(&[("a", "1")]);
        change(&mut scene);
        let decision = scene.expect(&[]);
        assert_eq!(reason_of(&decision, "a").code(), code);
        assert!(decision.events.iter().any(|event| event.object == "node/a" && event.reason == "DisruptionBlocked"));
    };
    let on_node = |scene: &mut Scene, value: &str| {
        scene.parts("a").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), value.to_owned());
    };
    held(&|scene| on_node(scene, "true"), "NodeAnnotation");
    held(&|scene| annotate(scene, "pod-a", "true"), "PodAnnotation");
    held(&|scene| annotate(scene, "pod-a", "31m"), "PodAnnotation");
    held(&|scene| exhausted_pdb(scene, false), "PodDisruptionBudget");
    held(&|scene| exhausted_pdb(scene, true), "PodDisruptionBudget");
    for (pod, node) in [("30m", ""), ("soon", ""), ("-1h", ""), ("", "false")] {
        let mut scene = drifted(&[("a", "1")]);
        if !pod.is_empty() {
            annotate(&mut scene, "pod-a", pod);
        }
        on_node(&mut scene, node);
        assert_eq!(scene.decide().commands.len(), 1, "pod {pod:?}, node {node:?}");
    }
}

#[test]
fn the_longest_protection_on_a_node_counts() {
    let mut scene = drifted(&[("a", "1")]);
    scene.pod("second", "a", "1");
    annotate(&mut scene, "pod-a", "31m");
    annotate(&mut scene, "second", "40m");
    scene.now = noon() + 5.minutes();
    scene.expect_reason("a", "PodAnnotation");
    scene.now = noon() + 10.minutes();
    assert_eq!(scene.decide().commands.len(), 1);
}

#[test]
fn a_grace_period_lets_drift_override_pods_and_nothing_else() {
    type Change = fn(&mut Scene);
    let blockers: [Change; 3] =
        [|scene| annotate(scene, "pod-a", "true"), |scene| exhausted_pdb(scene, false), |scene| exhausted_pdb(scene, true)];
    for change in blockers {
        let mut scene = drifted(&[("a", "1")]);
        change(&mut scene);
        with_grace(&mut scene, "a");
        let decision = scene.decide();
        assert_eq!(decision.commands.len(), 1, "{:?}", decision.verdicts);
        assert_eq!(decision.commands[0].method, Method::Drift);
        // Methods that respect pods must not do the same.
        conditions::clear(&mut scene.parts("a").1.status.conditions, conditions::DRIFTED);
        scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(0);
        scene.expect(&[]);
    }
}

#[test]
fn pods_that_can_never_be_evicted_get_no_capacity_and_those_under_an_exhausted_budget_do() {
    let mut scene = drifted(&[("a", "1")]);
    with_grace(&mut scene, "a");
    exhausted_pdb(&mut scene, false);
    scene.expect(&["drift replace [a] -> x1|x2|x4|x8|x16"]);
    scene.objects.disruption_budgets.clear();
    exhausted_pdb(&mut scene, true);
    scene.expect(&["drift delete [a]"]);
    scene.objects.disruption_budgets.clear();
    annotate(&mut scene, "pod-a", "true");
    scene.expect(&["drift delete [a]"]);
}

#[test]
fn drift_continues_until_its_budget_is_exhausted() {
    let names: Vec<String> = (0..10).map(|at| format!("n{at}")).collect();
    let bare: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    for under_way in [0, 1] {
        let mut scene = drifted(&bare);
        scene.the_pool("default").spec.disruption.budgets = vec![budget("3")];
        if under_way == 1 {
            scene.marks.insert("n9".to_owned(), (true, None));
        }
        for left in (0..3 - under_way).rev() {
            let decision = scene.decide();
            assert_eq!((decision.commands.len(), decision.commands[0].removals.len()), (1, 1));
            scene.marks.insert(decision.commands[0].removals[0].node.clone(), (true, None));
            let state = scene.decide().budgets.into_iter().find(|state| state.reason == Reason::Drifted);
            assert_eq!(state.map(|state| state.allowed()), Some(left));
        }
        assert_eq!(reason_of(&scene.expect(&[]), "n8").code(), "Budget");
    }
}

#[test]
fn drift_deletes_empty_nodes_only_where_emptiness_may_not() {
    let mut scene = drifted(&[("a", "")]);
    scene.expect(&["drift delete [a]"]);
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(0);
    scene.expect(&["empty delete [a]"]);
    scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
    scene.pod("p", "a", "1");
    assert_eq!(scene.decide().commands[0].method, Method::Drift, "no policy blocks drift");
}

#[test]
fn nodes_without_pods_are_replaced_before_those_that_drifted_earlier_and_one_at_a_time() {
    let mut scene = drifted(&[("oldest", "3500m"), ("middle", "3500m"), ("bare", "")]);
    scene.expect(&["drift delete [bare]"]);
    scene.objects.nodes.retain(|node| node.metadata.name != "bare");
    scene.objects.node_claims.retain(|claim| claim.metadata.name != "claim-bare");
    let decision = scene.expect(&["drift replace [oldest] -> x4|x8|x16"]);
    assert_eq!(reason_of(&decision, "middle").code(), "DriftWaits");
    drift(&mut scene, "middle", 0);
    let claim = scene.parts("middle").1;
    let condition = claim.status.conditions.iter_mut().find(|condition| condition.type_ == conditions::DRIFTED).unwrap();
    condition.last_transition_time = Some(noon() - 3.hours());
    scene.expect(&["drift replace [middle] -> x4|x8|x16"]);
}

#[test]
fn pods_that_need_several_machines_get_them_in_one_command() {
    let mut scene = drifted(&[("a", "")]);
    for at in 0..3 {
        scene.pod(&format!("p{at}"), "a", "1").metadata.labels.insert("app".to_owned(), "a".to_owned());
    }
    let term = whittle_api::k8s::PodAffinityTerm {
        label_selector: Some(LabelSelector { match_labels: [("app".to_owned(), "a".to_owned())].into(), ..LabelSelector::default() }),
        topology_key: labels::HOSTNAME.to_owned(),
        ..whittle_api::k8s::PodAffinityTerm::default()
    };
    for pod in &mut scene.objects.pods {
        let apart = whittle_api::k8s::PodAffinity { required: vec![term.clone()], ..whittle_api::k8s::PodAffinity::default() };
        pod.spec.affinity = Some(whittle_api::k8s::Affinity { pod_anti_affinity: Some(apart), ..whittle_api::k8s::Affinity::default() });
    }
    assert_eq!(scene.decide().commands[0].replacements.len(), 3);
}

#[test]
fn a_drifted_node_whose_pods_would_not_schedule_is_skipped_with_an_event() {
    let mut scene = drifted(&[("stuck", "1"), ("free", "1")]);
    let pinned = scene.objects.pods.iter_mut().find(|pod| pod.metadata.name == "pod-stuck").unwrap();
    pinned.spec.node_selector.insert("disk".to_owned(), "ssd".to_owned());
    let decision = scene.expect(&["drift delete [free]"]);
    let published: Vec<&str> = decision.events.iter().filter(|event| event.object == "node/stuck").map(|event| event.reason).collect();
    assert!(published.contains(&"DisruptionBlocked"), "{published:?}");
}

#[test]
fn budgets_limit_drift_pool_by_pool() {
    let mut scene = drifted(&[("a", "3500m"), ("b", "3500m")]);
    scene.pool("other").spec.disruption.consolidate_after = NillableDuration::Never;
    scene.node("c", "other", 4);
    scene.pod("pod-c", "c", "3500m");
    drift(&mut scene, "c", 1);
    scene.the_pool("default").spec.disruption.budgets = vec![Budget { reasons: Some(vec!["Drifted".to_owned()]), ..budget("0") }];
    let decision = scene.decide();
    assert_eq!(decision.commands[0].removals[0].node, "c");
    scene.the_pool("default").spec.disruption.budgets = vec![budget("1")];
    scene.marks.insert("b".to_owned(), (true, None));
    assert_eq!(scene.decide().commands[0].removals[0].node, "c", "one of its two is being deleted already");
    let closed = Budget { schedule: Some("@daily".to_owned()), duration: Some("13h".parse().unwrap()), ..budget("0") };
    for pool in ["default", "other"] {
        scene.the_pool(pool).spec.disruption.budgets = vec![closed.clone()];
    }
    let decision = scene.expect(&[]);
    assert!(decision.budgets.iter().any(|state| state.reason == Reason::Drifted && state.allowed() == 0));
}

#[test]
fn static_pools_are_excluded_from_dynamic_drift() {
    let mut scene = drifted(&[("a", "1")]);
    scene.the_pool("default").spec.replicas = Some(1);
    scene.expect(&[]);
}

#[test]
fn cloud_drift_remains_until_the_cloud_is_checked_again() {
    use whittle_model::disruption::CloudDrift;
    let mut scene = drifted(&[("a", "1")]);
    let facts = |found| ClaimFacts { cloud_drift: Some(found), ..ClaimFacts::default() };
    scene.facts.insert("claim-a".to_owned(), facts(CloudDrift::Subnet));
    assert_eq!(scene.decide().conditions[0].drifted.as_deref(), Some("SubnetDrift"));
    scene.facts.insert("claim-a".to_owned(), facts(CloudDrift::No));
    let decision = scene.expect(&[]);
    assert_eq!((decision.conditions[0].drifted.as_deref(), decision.conditions[0].changed), (None, true));
}

#[test]
fn the_pool_comes_before_its_requirements_and_both_before_the_cloud() {
    let mut scene = drifted(&[("a", "1")]);
    let reason = |scene: &Scene| scene.decide().conditions[0].drifted.clone();
    assert_eq!(reason(&scene).as_deref(), Some("AMIDrift"));
    scene.parts("a").1.metadata.labels.insert(labels::CAPACITY_TYPE.to_owned(), "spot".to_owned());
    assert_eq!(reason(&scene).as_deref(), Some("RequirementsDrifted"));
    for (key, of_pool, of_claim) in [(labels::NODE_POOL_HASH, "1", "2"), (labels::NODE_POOL_HASH_VERSION, "v3", "v3")] {
        scene.the_pool("default").metadata.annotations.insert(key.to_owned(), of_pool.to_owned());
        scene.parts("a").1.metadata.annotations.insert(key.to_owned(), of_claim.to_owned());
    }
    assert_eq!(reason(&scene).as_deref(), Some("NodePoolDrifted"));
    for status in [ConditionStatus::False, ConditionStatus::Unknown] {
        conditions::set(&mut scene.parts("a").1.status.conditions, conditions::LAUNCHED, status, "", "", noon());
        assert_eq!(reason(&scene), None, "not launched");
    }
}

#[test]
fn a_machine_missing_from_the_catalog_drifts_after_an_hour() {
    let mut scene = drifted(&[("a", "1")]);
    conditions::clear(&mut scene.parts("a").1.status.conditions, conditions::DRIFTED);
    scene.parts("a").1.metadata.labels.insert(labels::INSTANCE_TYPE.to_owned(), "gone".to_owned());
    assert_eq!(scene.decide().conditions[0].drifted.as_deref(), Some("InstanceTypeNotFound"));
    scene.parts("a").1.metadata.labels.remove(labels::INSTANCE_TYPE);
    assert_eq!(scene.decide().conditions[0].drifted.as_deref(), Some("InstanceTypeNotFound"));
    scene.parts("a").1.metadata.creation_timestamp = Some(noon() - 1.hour());
    assert_eq!(scene.decide().conditions[0].drifted, None);
    scene.parts("a").1.metadata.creation_timestamp = Some(noon() - 24.hours());
    let seen = whittle_model::disruption::ClaimFacts { type_seen_at: Some(noon() - 29.minutes()), ..Default::default() };
    scene.facts.insert("claim-a".to_owned(), seen);
    assert_eq!(scene.decide().conditions[0].drifted, None, "found half an hour ago");
    scene.facts.get_mut("claim-a").unwrap().type_seen_at = Some(noon() - 30.minutes());
    assert_eq!(scene.decide().conditions[0].drifted.as_deref(), Some("InstanceTypeNotFound"));
}

/// Each pass finds these anew, unlike what only the cloud can tell.
#[test]
fn a_stored_reason_that_the_pool_or_the_catalog_gave_never_outlasts_it() {
    for reason in ["NodePoolDrifted", "RequirementsDrifted", "InstanceTypeNotFound"] {
        let mut scene = drifted(&[("a", "1")]);
        let known = &mut scene.parts("a").1.status.conditions;
        conditions::clear(known, conditions::DRIFTED);
        conditions::set(known, conditions::DRIFTED, ConditionStatus::True, reason, reason, noon());
        let decision = scene.expect(&[]);
        assert_eq!((decision.conditions[0].drifted.as_deref(), decision.conditions[0].changed), (None, true), "{reason}");
    }
}

#[test]
fn a_machine_that_no_image_of_its_class_boots_has_drifted_for_that_and_not_for_its_type() {
    let image = |arch: &&str| ResolvedAmi { requirements: vec![Requirement::is_in(labels::ARCH, [*arch])], ..ResolvedAmi::default() };
    let cases: [(&[&str], &str); 3] =
        [(&["arm64"], "AMIDrift"), (&["arm64", "amd64"], "InstanceTypeNotFound"), (&[], "InstanceTypeNotFound")];
    for (arches, expected) in cases {
        let mut scene = drifted(&[("a", "1")]);
        let claim = scene.parts("a").1;
        conditions::clear(&mut claim.status.conditions, conditions::DRIFTED);
        for (key, value) in [(labels::INSTANCE_TYPE, "gone"), (labels::ARCH, "amd64")] {
            claim.metadata.labels.insert(key.to_owned(), value.to_owned());
        }
        let mut class = Ec2NodeClass { metadata: ObjectMeta::named("default"), ..Ec2NodeClass::default() };
        class.status.amis = arches.iter().map(image).collect();
        scene.objects.node_classes.push(class);
        assert_eq!(scene.decide().conditions[0].drifted.as_deref(), Some(expected), "{arches:?}");
        scene.parts("a").1.metadata.labels.remove(labels::ARCH);
        assert_eq!(scene.decide().conditions[0].drifted.as_deref(), Some("InstanceTypeNotFound"), "its labels were lost");
    }
}

#[test]
fn unmanaged_deleting_and_poolless_claims_have_no_conditions() {
    let none = |change: &dyn Fn(&mut Scene)| {
        let mut scene = drifted(&[("a", "1")]);
        change(&mut scene);
        assert_eq!(scene.decide().conditions, []);
    };
    none(&|scene| "Other".clone_into(&mut scene.parts("a").1.spec.node_class_ref.kind));
    none(&|scene| scene.parts("a").1.metadata.deletion_timestamp = Some(noon()));
    none(&|scene| scene.objects.node_pools.clear());
    none(&|scene| drop(scene.parts("a").1.metadata.labels.remove(labels::NODE_POOL)));
}

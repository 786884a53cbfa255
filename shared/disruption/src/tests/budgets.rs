//! What counts for budgets and gauges, and which events a pass wants published.

use crate::testing::{Scene, budget, instance_type, noon, reason_of};
use jiff::ToSpan as _;
use whittle_api::karpenter::ConsolidationPolicy;
use whittle_api::{ConditionStatus, NillableDuration, conditions, labels};
use whittle_model::disruption::{Method, Reason};

/// Nodes, disrupting and allowed for empty ones.
fn counted(scene: &Scene) -> (u32, u32, u32) {
    let decision = scene.decide();
    let state = decision.budgets.iter().find(|state| state.reason == Reason::Empty).unwrap();
    (state.nodes, state.disrupting, state.allowed())
}

#[test]
fn only_managed_initialized_and_not_terminating_nodes_count_for_a_budget() {
    let mut scene = Scene::of_nodes(10);
    scene.the_pool("default").spec.disruption.budgets = vec![budget("10%")];
    assert_eq!(counted(&scene), (10, 0, 1));
    "Other".clone_into(&mut scene.parts("n0").1.spec.node_class_ref.kind);
    assert_eq!(counted(&scene), (9, 0, 1));
    scene.parts("n1").0.metadata.labels.remove(labels::INITIALIZED);
    assert_eq!(counted(&scene), (8, 0, 1));
    let ending = &mut scene.parts("n2").1.status.conditions;
    conditions::set(ending, conditions::INSTANCE_TERMINATING, ConditionStatus::True, "", "", noon());
    assert_eq!(counted(&scene), (7, 0, 1));
    scene.marks.insert("n3".to_owned(), (true, None));
    scene.parts("n4").1.metadata.deletion_timestamp = Some(noon());
    conditions::set(&mut scene.parts("n5").0.status.conditions, conditions::READY, ConditionStatus::False, "", "", noon());
    assert_eq!(counted(&scene), (7, 3, 0), "never below zero");
}

#[test]
fn a_gauge_counts_the_eligible_nodes_of_a_method() {
    let mut scene = Scene::of_nodes(4);
    for node in ["n0", "n1", "n2", "n3"] {
        scene.pod(&format!("pod-{node}"), node, "1500m");
    }
    scene.parts("n3").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    let decision = scene.expect(&[]);
    let eligible = |method| decision.eligible.get(&method).copied();
    assert_eq!(eligible(Method::SingleNode), Some(3));
    assert_eq!(eligible(Method::MultiNode), Some(3));
    assert_eq!(eligible(Method::Emptiness), Some(0));
}

fn published(scene: &Scene) -> Vec<(String, String)> {
    let decision = scene.decide();
    let published = decision.events.into_iter().filter(|event| event.reason == "Unconsolidatable");
    published.map(|event| (event.object, event.message)).collect()
}

/// Both the Node and its claim get the event.
#[track_caller]
fn check_event(change: impl FnOnce(&mut Scene), message: &str) {
    let mut scene = Scene::of_nodes(1);
    scene.pod("p", "n0", "1500m");
    change(&mut scene);
    let both = ["node/n0", "nodeclaim/claim-n0"].map(|object| (object.to_owned(), message.to_owned()));
    assert_eq!(published(&scene), both);
}

#[test]
fn nodes_that_consolidation_cannot_evaluate_get_an_event() {
    check_event(
        |scene| scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty,
        "NodePool \"default\" has consolidation policy WhenEmpty, but node is not empty",
    );
    check_event(
        |scene| scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never,
        "NodePool \"default\" has consolidation disabled",
    );
    check_event(
        |scene| {
            let (node, claim) = scene.parts("n0");
            node.metadata.labels.insert(labels::INSTANCE_TYPE.to_owned(), "zz".to_owned());
            claim.metadata.creation_timestamp = Some(noon());
        },
        "Instance Type \"zz\" not found",
    );
    check_event(
        |scene| drop(scene.parts("n0").0.metadata.labels.remove(labels::CAPACITY_TYPE)),
        "Node does not have label \"karpenter.sh/capacity-type\"",
    );
    check_event(
        |scene| drop(scene.parts("n0").0.metadata.labels.remove(labels::ZONE)),
        "Node does not have label \"topology.kubernetes.io/zone\"",
    );
    check_event(|_| (), "Can't replace with a cheaper node");
}

#[test]
fn a_node_within_consolidate_after_and_an_empty_one_get_no_event() {
    let mut scene = Scene::of_nodes(1);
    scene.pod("p", "n0", "1500m");
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(60);
    scene.parts("n0").1.status.last_pod_event_time = Some(noon());
    assert_eq!(published(&scene), []);
    assert_eq!(published(&Scene::of_nodes(1)), []);
}

#[test]
fn single_node_commands_are_executed_one_after_the_other_within_a_budget() {
    let mut scene = Scene::of_nodes(0);
    scene.the_pool("default").spec.disruption.budgets = vec![budget("3")];
    for at in 0..5 {
        let name = format!("n{at}");
        scene.node(&name, "default", 16).0.metadata.labels.insert("slot".to_owned(), name.clone());
        scene.pod(&format!("pod-{name}"), &name, "1");
    }
    for taken in 0..3 {
        let decision = scene.decide();
        let removals = &decision.commands[0].removals;
        assert!(removals.len() + taken <= 3);
        for removal in removals {
            scene.marks.insert(removal.node.clone(), (true, None));
        }
        if scene.marks.len() == 3 {
            break;
        }
    }
    assert_eq!(scene.marks.len(), 3);
    scene.expect(&[]);
}

/// Ten nodes that can only be replaced one for one, while the old ones wait for their replacements.
#[test]
fn a_budget_limits_the_number_of_nodes_at_any_moment() {
    let mut scene = Scene::of_nodes(0);
    scene.catalog.insert("default".to_owned(), std::sync::Arc::new([12, 16].map(instance_type).into_iter().collect()));
    scene.the_pool("default").spec.disruption.budgets = vec![budget("3")];
    for at in 0..10 {
        let name = format!("n{at}");
        scene.node(&name, "default", 16);
        scene.pod(&format!("pod-{name}"), &name, "11");
    }
    let (mut peak, mut waiting) = (10, Vec::new());
    for round in 0..100 {
        let decision = scene.decide();
        if let [command] = &decision.commands[..] {
            assert_eq!((command.removals.len(), command.replacements.len()), (1, 1), "{command}");
            let old = command.removals[0].node.clone();
            scene.marks.insert(old.clone(), (true, None));
            let new = format!("new-{round}");
            scene.node(&new, "default", 12).0.metadata.labels.remove(labels::INITIALIZED);
            waiting.push((old, new));
            assert!(waiting.len() <= 3, "round {round}");
            peak = peak.max(scene.objects.nodes.len());
            continue;
        }
        if waiting.is_empty() {
            break;
        }
        // The oldest command is complete.
        let (old, new) = waiting.remove(0);
        scene.parts(&new).0.metadata.labels.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
        scene.objects.nodes.retain(|node| node.metadata.name != old);
        scene.objects.node_claims.retain(|claim| claim.metadata.name != format!("claim-{old}"));
        let pod = scene.objects.pods.iter_mut().find(|pod| pod.spec.node_name == old).unwrap();
        pod.spec.node_name = new;
    }
    assert_eq!(peak, 13);
    assert_eq!(scene.objects.nodes.len(), 10);
    assert!(scene.objects.nodes.iter().all(|node| node.metadata.labels[labels::INSTANCE_TYPE] == "x12"));
}

#[test]
fn the_conditions_of_a_claim_are_set_and_cleared_together() {
    let mut scene = Scene::of_nodes(1);
    let kept = scene.decide().conditions.remove(0);
    assert!(kept.consolidatable && kept.changed && kept.drifted.is_none());
    let claim = scene.parts("n0").1;
    for type_ in [conditions::CONSOLIDATABLE, conditions::DRIFTED] {
        conditions::set(&mut claim.status.conditions, type_, ConditionStatus::True, "RequirementsDrifted", "", noon() - 1.hour());
    }
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never;
    let cleared = scene.decide().conditions.remove(0);
    assert!(!cleared.consolidatable && cleared.changed && cleared.drifted.is_none(), "{cleared:?}");
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(0);
    scene.parts("n0").1.metadata.labels.insert(labels::CAPACITY_TYPE.to_owned(), "spot".to_owned());
    let both = scene.decide().conditions.remove(0);
    assert!(both.consolidatable && !both.changed, "{both:?}");
    assert_eq!(both.drifted.as_deref(), Some("RequirementsDrifted"));
    for status in [ConditionStatus::False, ConditionStatus::Unknown] {
        conditions::set(&mut scene.parts("n0").1.status.conditions, conditions::INITIALIZED, status, "", "", noon());
        assert!(!scene.decide().conditions[0].consolidatable);
    }
    scene.settings.static_capacity = whittle_model::disruption::Gate::On;
    conditions::set(&mut scene.parts("n0").1.status.conditions, conditions::INITIALIZED, ConditionStatus::True, "", "", noon());
    scene.the_pool("default").spec.replicas = Some(1);
    assert!(!scene.decide().conditions[0].consolidatable, "static pools have no such condition");
}

#[test]
fn a_machine_without_a_node_is_blocked() {
    let mut scene = Scene::of_nodes(1);
    scene.objects.nodes.clear();
    let decision = scene.expect(&[]);
    assert_eq!(decision.verdicts[0].reason.code(), "NoNode");
    assert_eq!((decision.verdicts[0].node.as_str(), decision.verdicts[0].name()), ("", "claim-n0"));
}

#[test]
fn nodes_with_a_duplicate_or_missing_provider_id_are_not_disrupted() {
    let mut scene = Scene::of_nodes(2);
    let id = scene.parts("n0").0.spec.provider_id.clone();
    scene.parts("n1").0.spec.provider_id.clone_from(&id);
    let decision = scene.expect(&[]);
    assert_eq!((reason_of(&decision, "n0").code(), reason_of(&decision, "n1").code()), ("ProviderIdTwice", "ProviderIdTwice"));
    scene.parts("n1").0.spec.provider_id.clear();
    let decision = scene.expect(&["empty delete [n0]"]);
    assert_eq!(reason_of(&decision, "n1").code(), "NoProviderId");
    let mut twin = scene.parts("n1").1.clone();
    twin.status.provider_id = id;
    scene.objects.node_claims.push(twin);
    scene.expect(&[]);
}

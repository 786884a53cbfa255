//! Emptiness, and its validation.

use crate::RejectionCause;
use crate::testing::{Scene, budget, noon, owner, reason_of};
use jiff::ToSpan as _;
use whittle_api::karpenter::{Budget, ConsolidationPolicy};
use whittle_api::{NillableDuration, labels};
use whittle_model::disruption::{ClaimFacts, Reason};

#[test]
fn an_empty_node_is_deleted_without_a_replacement() {
    let decision = Scene::of_nodes(1).expect(&["empty delete [n0]"]);
    assert_eq!(decision.commands[0].savings.nanos(), 100_000_000);
    assert_eq!(decision.commands[0].execute_after, noon() + 15.seconds());
    assert_eq!(decision.commands[0].to_string(), "delete: [n0]");
    assert_eq!(reason_of(&decision, "n0").code(), "Empty");
}

#[test]
fn daemons_mirror_pods_and_terminating_pods_do_not_make_a_node_used() {
    let mut scene = Scene::of_nodes(1);
    scene.pod("daemon", "n0", "100m").metadata.owner_references = vec![owner("apps/v1", "DaemonSet", "agent")].into();
    scene.pod("mirror", "n0", "100m").metadata.owner_references = vec![owner("v1", "Node", "n0")].into();
    scene.pod("going", "n0", "100m").metadata.deletion_timestamp = Some(noon());
    "Failed".clone_into(&mut scene.pod("failed", "n0", "100m").status.phase);
    let worthless = "-2147483648".to_owned();
    scene.pod("glad", "n0", "100m").metadata.annotations.insert("controller.kubernetes.io/pod-deletion-cost".to_owned(), worthless);
    scene.expect(&["empty delete [n0]"]);
}

#[test]
fn a_terminating_stateful_pod_and_an_ordinary_one_make_a_node_used() {
    let mut scene = Scene::of_nodes(2);
    scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
    let stateful = scene.pod("db-0", "n0", "100m");
    stateful.metadata.owner_references = vec![owner("apps/v1", "StatefulSet", "db")].into();
    stateful.metadata.deletion_timestamp = Some(noon());
    scene.pod("web", "n1", "100m");
    let decision = scene.expect(&[]);
    for node in ["n0", "n1"] {
        assert_eq!(reason_of(&decision, node).code(), "NotEmpty");
        let published: Vec<_> = decision.events.iter().filter(|event| event.object == format!("node/{node}")).collect();
        assert!(matches!(published[..], [one] if one.reason == "Unconsolidatable"), "{published:?}");
    }
    scene.node("bare", "default", 2);
    scene.expect(&["empty delete [bare]"]);
}

#[test]
fn a_node_is_kept_until_consolidate_after_has_passed() {
    let mut scene = Scene::of_nodes(1);
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(600);
    scene.parts("n0").1.status.last_pod_event_time = Some(noon() - 599.seconds());
    let decision = scene.expect(&[]);
    assert_eq!(
        reason_of(&decision, "n0").to_string(),
        "kept: empty, and removed once it has been for 10m (consolidateAfter), not before 2026-01-01T12:00:01Z"
    );
    assert!(!decision.conditions[0].consolidatable);
    scene.now = noon() + 1.second();
    let decision = scene.expect(&["empty delete [n0]"]);
    assert!(decision.conditions[0].consolidatable && decision.conditions[0].changed);
    scene.parts("n0").1.status.last_pod_event_time = None;
    scene.expect(&["empty delete [n0]"]);
}

#[test]
fn never_and_buffers_keep_empty_nodes() {
    let mut scene = Scene::of_nodes(2);
    scene.facts.insert("claim-n0".to_owned(), ClaimFacts { buffer_pods: 1, ..ClaimFacts::default() });
    let decision = scene.expect(&["empty delete [n1]"]);
    assert_eq!(reason_of(&decision, "n0").code(), "BufferPods");
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never;
    scene.expect(&[]);
    scene.expect_reason("n1", "ConsolidationDisabled");
}

#[test]
fn budgets_limit_how_many_empty_nodes_are_deleted_together() {
    let mut scene = Scene::of_nodes(10);
    for (text, want) in [("100%", 10), ("3", 3), ("30%", 3), ("25%", 3)] {
        scene.the_pool("default").spec.disruption.budgets = vec![budget(text)];
        let decision = scene.decide();
        assert_eq!(decision.commands[0].removals.len(), want, "{text}");
        let spent = decision.verdicts.iter().filter(|verdict| verdict.reason.code() == "Budget").count();
        assert_eq!(spent, 10 - want, "{text}");
    }
    scene.the_pool("default").spec.disruption.budgets = vec![budget("0")];
    let decision = scene.expect(&[]);
    assert!(decision.events.iter().any(|event| event.object == "nodepool/default" && event.reason == "DisruptionBlocked"));
}

#[test]
fn a_budget_window_that_opens_is_noticed_by_the_next_pass() {
    let mut scene = Scene::of_nodes(2);
    scene.the_pool("default").spec.disruption.budgets = vec![budget("0")];
    scene.memory = scene.expect(&[]).memory;
    scene.the_pool("default").spec.disruption.budgets = vec![budget("1")];
    scene.expect(&["empty delete [n0]"]);
}

#[test]
fn empty_nodes_are_deleted_before_used_ones_under_every_policy() {
    for policy in [ConsolidationPolicy::WhenEmpty, ConsolidationPolicy::WhenEmptyOrUnderutilized, ConsolidationPolicy::Balanced] {
        let mut scene = Scene::of_nodes(2);
        scene.the_pool("default").spec.disruption.consolidation_policy = policy;
        scene.the_pool("default").spec.disruption.budgets = vec![budget("1")];
        scene.node("big", "default", 16);
        scene.pod("p", "big", "100m");
        scene.expect(&["empty delete [n0]"]);
    }
}

#[test]
fn deleting_nodes_and_nodes_not_ready_count_against_a_budget() {
    let mut scene = Scene::of_nodes(4);
    scene.the_pool("default").spec.disruption.budgets = vec![budget("2")];
    scene.marks.insert("n0".to_owned(), (true, None));
    scene.parts("n1").0.status.conditions.clear();
    scene.parts("n1").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    let decision = scene.expect(&[]);
    let state = decision.budgets.iter().find(|state| state.reason == Reason::Empty).unwrap();
    assert_eq!((state.nodes, state.disrupting, state.allowed()), (4, 2, 0));
}

#[test]
fn pools_have_their_own_budgets() {
    let mut scene = Scene::new();
    for pool in 0..10 {
        let name = format!("pool-{pool}");
        scene.pool(&name).spec.disruption.budgets = vec![budget("2")];
        for node in 0..3 {
            scene.node(&format!("{name}-{node}"), &name, 2);
        }
    }
    assert_eq!(scene.decide().commands[0].removals.len(), 20);
}

#[test]
fn an_invalid_budget_stops_only_its_pool() {
    let mut scene = Scene::of_nodes(1);
    scene.pool("other");
    scene.node("m", "other", 2);
    let broken = Budget { schedule: Some("61 * * * *".to_owned()), duration: Some("1h".parse().unwrap()), ..Budget::default() };
    scene.the_pool("default").spec.disruption.budgets = vec![broken];
    let decision = scene.expect(&["empty delete [m]"]);
    assert_eq!(reason_of(&decision, "n0").code(), "BudgetInvalid");
    assert!(reason_of(&decision, "n0").to_string().contains("61 * * * *"), "{}", reason_of(&decision, "n0"));
    assert!(decision.events.iter().any(|event| event.warning && event.message.contains("61 * * * *")));
}

#[test]
fn the_most_expensive_empty_node_is_deleted_first() {
    let mut scene = Scene::of_nodes(1);
    scene.node("big", "default", 8);
    scene.the_pool("default").spec.disruption.budgets = vec![budget("1")];
    scene.expect(&["empty delete [big]"]);
}

#[test]
fn a_provisioners_empty_nodes_are_deleted_together_after_their_ttl() {
    let mut scene = Scene::of_nodes(3);
    let pool = scene.the_pool("default");
    pool.metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), "Provisioner".to_owned());
    pool.spec.disruption.budgets = vec![budget("10%")];
    pool.spec.disruption.consolidate_after = NillableDuration::from_secs(30);
    let decision = scene.expect(&["empty delete [n0 n1 n2]"]);
    assert_eq!(decision.commands[0].execute_after, noon());
}

/// What is decided waits for validation; where a Provisioner's TTL is as long, the node has been empty for that time already.
#[test]
fn only_the_ttl_of_a_provisioner_stands_for_the_wait_for_validation_and_only_if_it_is_as_long() {
    let waits = |is_converted: bool, quiet: i64| {
        let mut scene = Scene::of_nodes(1);
        let pool = scene.the_pool("default");
        if is_converted {
            pool.metadata.annotations.insert(labels::CONVERTED_FROM.to_owned(), "Provisioner".to_owned());
        }
        pool.spec.disruption.consolidate_after = NillableDuration::from_secs(quiet);
        let decision = scene.expect(&["empty delete [n0]"]);
        decision.commands[0].execute_after.duration_since(noon()).as_secs()
    };
    assert_eq!([0, 14, 15, 30].map(|quiet| waits(true, quiet)), [15, 15, 0, 0]);
    assert_eq!([0, 14, 15, 30].map(|quiet| waits(false, quiet)), [15; 4]);
}

#[test]
fn empty_nodes_are_validated_node_by_node() {
    let mut scene = Scene::of_nodes(3);
    let proposal = scene.decide().commands[0].proposal(noon());
    assert_eq!(scene.validate(&proposal).unwrap_err().cause, RejectionCause::TooEarly);
    scene.now = noon() + 15.seconds();
    scene.pod("late", "n0", "100m");
    scene.marks.insert("n1".to_owned(), (false, Some(noon() + 1.minute())));
    let valid = scene.validated(&proposal).unwrap();
    assert_eq!((valid.command.to_string().as_str(), valid.dropped), ("delete: [n2]", 1), "one is nominated, one no longer empty");
    scene.objects.pods.clear();
    scene.the_pool("default").spec.disruption.budgets = vec![budget("1")];
    let valid = scene.validated(&proposal).unwrap();
    assert_eq!((valid.command.to_string().as_str(), valid.dropped), ("delete: [n0]", 2), "one is nominated, one over the budget");
    scene.the_pool("default").spec.disruption.budgets = vec![budget("0")];
    let rejection = scene.validate(&proposal).unwrap_err();
    assert_eq!((rejection.cause, rejection.failed), (RejectionCause::Budget, 3));
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never;
    let rejection = scene.validate(&proposal).unwrap_err();
    assert_eq!((rejection.cause, rejection.failed), (RejectionCause::Churn, 3));
}

#[test]
fn a_pool_in_shadow_mode_is_decided_but_not_disrupted() {
    let mut scene = Scene::of_nodes(1);
    scene.pool("quiet").metadata.annotations.insert(labels::SHADOW.to_owned(), "true".to_owned());
    scene.node("m", "quiet", 2);
    let decision = scene.expect(&["empty delete [n0]"]);
    assert_eq!(decision.shadow.iter().map(ToString::to_string).collect::<Vec<_>>(), ["delete: [m]"]);
    assert_eq!(reason_of(&decision, "m").code(), "Empty");
    scene.now = noon() + 15.seconds();
    let proposal = decision.shadow[0].proposal(noon());
    assert_eq!(scene.validate(&proposal).unwrap_err().cause, RejectionCause::Churn);
}

#[test]
fn an_empty_node_that_a_pending_pod_fits_is_not_deleted() {
    let mut scene = Scene::of_nodes(2).best();
    scene.pod("waits", "", "1");
    let decision = scene.expect(&["empty delete [n1]"]);
    assert_eq!(reason_of(&decision, "n0").to_string(), "kept: empty, but pending pods fit on it: default/waits");
    scene.pod("waits-too", "", "1500m");
    let decision = scene.expect(&[]);
    assert_eq!(reason_of(&decision, "n1").code(), "PendingPods");
    scene.objects.pods.clear();
    let proposal = scene.decide().commands[0].proposal(noon());
    scene.now = noon() + 15.seconds();
    scene.pod("late", "", "1");
    assert_eq!(scene.validate(&proposal).unwrap().to_string(), "delete: [n1]", "also after the wait");
}

/// The pod may wait for days, as one that a budget holds on a node that is being drained.
#[test]
fn an_empty_node_that_a_pending_pod_fits_takes_no_other_its_turn() {
    let mut scene = Scene::of_nodes(3).best();
    scene.the_pool("default").spec.disruption.budgets = vec![budget("1")];
    scene.pod("waits", "", "1");
    let decision = scene.expect(&["empty delete [n1]"]);
    assert_eq!(["n0", "n2"].map(|node| reason_of(&decision, node).code()), ["PendingPods", "Budget"]);
    scene.node("z", "default", 8);
    scene.expect(&["empty delete [z]"]);
    scene.the_pool("default").spec.disruption.budgets = vec![budget("0")];
    let decision = scene.expect(&[]);
    assert_eq!(["n0", "n1", "n2", "z"].map(|node| reason_of(&decision, node).code()), ["Budget"; 4]);
}

#[test]
fn an_empty_node_that_a_pod_of_a_going_node_fits_is_not_deleted() {
    let mut scene = Scene::of_nodes(1).best();
    scene.node("going", "default", 2).1.metadata.deletion_timestamp = Some(noon());
    scene.pod("leaves", "going", "1");
    let decision = scene.expect(&[]);
    assert_eq!(reason_of(&decision, "n0").code(), "PendingPods");
    scene.objects.pods[0].metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    scene.expect(&["empty delete [n0]"]);
    // It is killed soon, whatever its annotation says.
    let deadline = noon() + 2.minutes();
    scene.parts("going").1.metadata.annotations.insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_string());
    let decision = scene.expect(&[]);
    assert_eq!(reason_of(&decision, "n0").code(), "PendingPods");
}

#[test]
fn pending_pods_that_fit_nowhere_or_elsewhere_keep_no_empty_node() {
    let mut scene = Scene::of_nodes(1).best();
    scene.pod("large", "", "5");
    scene.expect(&["empty delete [n0]"]);
    scene.node("used", "default", 4).0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    scene.pod("runs", "used", "1");
    scene.pod("small", "", "500m");
    scene.expect(&["empty delete [n0]"]);
}

//! The checker rejects every command that must not be executed, rule by rule.

use crate::testing::{Scene, budget, noon};
use jiff::ToSpan as _;
use whittle_api::k8s::{Affinity, IntOrString, PodAffinity, PodAffinityTerm, PodDisruptionBudget};
use whittle_api::karpenter::{Budget, ConsolidationPolicy};
use whittle_api::{ConditionStatus, LabelSelector, NillableDuration, conditions, labels};
use whittle_checker::check_command;
use whittle_model::disruption::{ClaimFacts, Command, Method};
use whittle_units::Price;

/// A node that is replaced by a smaller one, and one that could also take its pod.
fn view() -> Scene {
    let mut scene = Scene::new();
    scene.node("big", "default", 16);
    scene.pod("p", "big", "1500m");
    scene
}

fn rules(scene: &Scene, command: &Command) -> Vec<&'static str> {
    let mut rules: Vec<&str> = scene.with(|input| check_command(&input, command)).into_iter().map(|wrong| wrong.rule).collect();
    rules.dedup();
    rules
}

/// The command of a valid view, checked after `change`.
#[track_caller]
fn check(change: impl FnOnce(&mut Scene, &mut Command), want: &str) {
    let mut scene = view();
    let mut command = scene.decide().commands.remove(0);
    assert_eq!(rules(&scene, &command), [] as [&str; 0]);
    change(&mut scene, &mut command);
    let found = rules(&scene, &command);
    assert!(found.contains(&want), "{want} is not among {found:?}");
}

#[test]
fn nodes_that_must_not_be_removed_are_rejected() {
    check(|_, command| command.removals.clear(), "no-node");
    check(|_, command| command.removals.push(command.removals[0].clone()), "node-twice");
    check(|scene, _| scene.objects.nodes.clear(), "node-unknown");
    check(|scene, _| scene.parts("big").0.spec.provider_id.push('x'), "provider-id");
    check(|scene, _| drop(scene.parts("big").0.metadata.labels.remove(labels::INITIALIZED)), "not-initialized");
    check(|scene, _| scene.parts("big").1.metadata.deletion_timestamp = Some(noon()), "going");
    check(
        |scene, _| {
            scene.marks.insert("big".to_owned(), (true, None));
        },
        "going",
    );
    check(
        |scene, _| {
            scene.marks.insert("big".to_owned(), (false, Some(noon() + 1.second())));
        },
        "nominated",
    );
    let annotate = |scene: &mut Scene| {
        scene.parts("big").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    };
    check(|scene, _| annotate(scene), "do-not-disrupt");
    check(
        |scene, _| {
            scene.facts.insert("claim-big".to_owned(), ClaimFacts { in_command: true, ..ClaimFacts::default() });
        },
        "in-command",
    );
    check(|scene, _| scene.objects.node_pools.clear(), "pool-unknown");
}

#[test]
fn pods_that_must_not_be_moved_are_rejected() {
    for (value, started) in [("true", None), ("1h", Some(noon() - 59.minutes())), ("1h", None)] {
        let protect = |scene: &mut Scene, _: &mut Command| {
            let pod = &mut scene.objects.pods[0];
            pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), value.to_owned());
            pod.status.start_time = started;
        };
        check(protect, "pod-do-not-disrupt");
    }
    let budget = |scene: &mut Scene, name: &str, allowed: i32| {
        let mut budget = PodDisruptionBudget::default();
        (budget.metadata.namespace, budget.metadata.name) = ("default".to_owned(), name.to_owned());
        budget.spec.selector = Some(LabelSelector::default());
        budget.status.disruptions_allowed = allowed;
        scene.objects.disruption_budgets.push(budget);
    };
    check(|scene, _| budget(scene, "a", 0), "pod-budget-spent");
    let two = |scene: &mut Scene, _: &mut Command| {
        budget(scene, "a", 1);
        budget(scene, "b", 1);
    };
    check(two, "pod-several-budgets");
}

/// The simulation puts the pending pod on `recent`, which takes no moved pods, as the first of its app there. A pending pod loses
/// nothing if kube-scheduler binds it elsewhere, so the command need not wait for it; a pod that already runs would lose its node.
#[test]
fn a_pending_pod_that_would_start_apart_rejects_no_command() {
    let mut scene = Scene::new().best();
    scene.node("large", "default", 2);
    let web = [("app".to_owned(), "web".to_owned())];
    scene.pod("running", "large", "300m").metadata.labels.extend(web.clone());
    scene.pool("other").spec.disruption.consolidate_after = NillableDuration::from_secs(600);
    scene.node("recent", "other", 2).1.status.last_pod_event_time = Some(noon());
    let pending = scene.pod("follower", "", "500m");
    pending.metadata.labels.extend(web.clone());
    let selector = LabelSelector { match_labels: web.into(), ..LabelSelector::default() };
    let term = PodAffinityTerm { label_selector: Some(selector), topology_key: labels::HOSTNAME.to_owned(), ..PodAffinityTerm::default() };
    let near = PodAffinity { required: vec![term], ..PodAffinity::default() };
    pending.spec.affinity = Some(Affinity { pod_affinity: Some(near), ..Affinity::default() });
    let command = scene.expect(&["single replace [large] -> x1"]).commands.remove(0);
    assert_eq!(command.placements[0].node, "recent", "the pending pod starts apart from the running one");
    assert_eq!(rules(&scene, &command), [] as [&str; 0]);
    "large".clone_into(&mut scene.objects.pods[1].spec.node_name);
    assert_eq!(rules(&scene, &command), ["affinity"], "a running pod must not be moved apart");
}

#[test]
fn commands_that_the_pool_forbids_are_rejected() {
    check(|scene, _| scene.the_pool("default").spec.replicas = Some(1), "static-pool");
    check(|scene, _| scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never, "consolidation-off");
    let quiet = |scene: &mut Scene, _: &mut Command| {
        scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::from_secs(60);
        scene.parts("big").1.status.last_pod_event_time = Some(noon() - 59.seconds());
    };
    check(quiet, "not-quiet");
    let only_empty = |scene: &mut Scene, _: &mut Command| {
        scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
    };
    check(only_empty, "only-when-empty");
    check(|_, command| command.method = Method::Emptiness, "not-empty");
    let closed = |scene: &mut Scene, _: &mut Command| {
        scene.settings.unreadable_pools.insert("default".to_owned(), "unreadable".to_owned());
    };
    check(closed, "pool-closed");
    let shifted = |scene: &mut Scene, command: &mut Command| {
        scene.settings.shifted_zones.insert(command.removals[0].zone.clone());
    };
    check(shifted, "zonal-shift");
    let budgets = [
        budget("0"),
        Budget { reasons: Some(vec!["Underutilized".to_owned()]), ..budget("0%") },
        Budget { schedule: Some("@daily".to_owned()), duration: Some("13h".parse().unwrap()), nodes: IntOrString::Int(0), reasons: None },
        Budget {
            schedule: Some("0 0 31 2 *".to_owned()),
            duration: Some("1m".parse().unwrap()),
            nodes: IntOrString::Int(0),
            reasons: None,
        },
        Budget { schedule: Some("61 * * * *".to_owned()), duration: Some("1h".parse().unwrap()), ..Budget::default() },
        Budget { schedule: Some("@daily".to_owned()), ..Budget::default() },
        budget("many"),
    ];
    for budget in budgets {
        check(|scene, _| scene.the_pool("default").spec.disruption.budgets.push(budget.clone()), "budget");
    }
    let unready = |scene: &mut Scene, _: &mut Command| {
        scene.the_pool("default").spec.disruption.budgets = vec![Budget { nodes: IntOrString::Int(1), ..Budget::default() }];
        let (node, _) = scene.node("sick", "default", 2);
        conditions::set(&mut node.status.conditions, conditions::READY, ConditionStatus::False, "", "", noon());
    };
    check(unready, "budget");
}

#[test]
fn higher_prices_and_unscheduled_pods_are_rejected() {
    check(|_, command| command.replacements[0].cheapest_price = Price::from_dollars(0.8), "dearer");
    check(|_, command| command.replacements.push(command.replacements[0].clone()), "several-replacements");
    check(|_, command| command.replacements.clear(), "pod-without-a-place");
    check(|_, command| command.replacements[0].pods.clear(), "pod-without-a-place");
    check(|_, command| command.replacements[0].instance_types = ["x1".to_owned()].into_iter().collect(), "overfull");
    let onto_itself = |_: &mut Scene, command: &mut Command| {
        let pods = command.replacements.remove(0).pods;
        command.placements.push(whittle_model::scheduling::Placement { node: "big".to_owned(), initialized: true, pods });
    };
    check(onto_itself, "node-leaving");
    let onto_a_full_one = |scene: &mut Scene, command: &mut Command| {
        scene.node("small", "default", 1);
        let pods = command.replacements.remove(0).pods;
        command.placements.push(whittle_model::scheduling::Placement { node: "small".to_owned(), initialized: true, pods });
    };
    check(onto_a_full_one, "overfull");
}

#[test]
fn drift_with_a_grace_period_overrides_pods_and_nothing_else_in_the_checker() {
    let mut scene = view();
    let claim = scene.parts("big").1;
    conditions::set(&mut claim.status.conditions, conditions::DRIFTED, ConditionStatus::True, "AMIDrift", "", noon());
    claim.spec.termination_grace_period = Some("1h".parse().unwrap());
    scene.objects.pods[0].metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    let command = scene.decide().commands.remove(0);
    assert_eq!((command.method, rules(&scene, &command)), (Method::Drift, Vec::new()));
    scene.parts("big").1.spec.termination_grace_period = None;
    assert!(rules(&scene, &command).contains(&"pod-do-not-disrupt"));
}

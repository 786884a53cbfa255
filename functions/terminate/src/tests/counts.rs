//! What a drain counts.

use super::over_sim::{Scene, budget, ending, running, serving};
use super::{owned_by, pod};
use whittle_api::k8s::PodDisruptionBudget;
use whittle_claims::{Claim, DeletionReason, Event, step};
use whittle_ports::Report;
use whittle_testkit::{at, deletion};

/// The values of a label of a metric, each with what it was increased by.
fn counted(report: &Report, metric: &str, label: &str) -> Vec<(String, u64)> {
    let of_metric = report.metrics.iter().filter(|counted| counted.metric == metric);
    of_metric.map(|counted| (counted.labels[label].clone(), counted.by)).collect()
}

/// So many budgets for the same pods.
fn budgets(count: usize) -> Vec<PodDisruptionBudget> {
    let named = |number: usize| {
        let mut budget = budget();
        budget.metadata.name = format!("web-{number}");
        budget
    };
    (0..count).map(named).collect()
}

#[test]
fn an_eviction_is_counted_by_the_code_of_the_answer() {
    for (count, code) in [(0, "200"), (1, "429"), (2, "500")] {
        let scene = Scene::of(&ending(None));
        budgets(count).into_iter().for_each(|budget| scene.create(budget));
        scene.create(running("web-0"));
        let report = scene.run();
        assert_eq!(counted(&report, "karpenter_pods_eviction_requests_total", "code"), [(code.to_owned(), 1)]);
        assert_eq!(report.counted("evicted"), u64::from(count == 0));
    }
}

/// The serving claim, deleted at second 0 for this reason.
fn ended(reason: DeletionReason) -> Claim {
    step(&serving(), &Event::DeletionRequested(deletion(reason, at(0))), at(0)).unwrap()
}

#[test]
fn pods_of_a_node_that_expires_or_is_repaired_are_counted_once_when_its_drain_begins() {
    use DeletionReason::{Drifted, Empty, Expired, InstanceStopped, Requested, ScaledDown, Underutilized, Unhealthy};
    let metric = "karpenter_pods_disruption_initiated_total";
    for (reason, expected) in [(Expired, Some("expired")), (Unhealthy, Some("unhealthy"))]
        .into_iter()
        .chain([Drifted, Empty, Underutilized, Requested, ScaledDown, InstanceStopped].map(|reason| (reason, None)))
    {
        let scene = Scene::of(&ended(reason));
        scene.create(pod("a"));
        scene.create(pod("b"));
        scene.create(owned_by(pod("daemon"), "DaemonSet", "apps/v1"));
        let expected: Vec<(String, u64)> = expected.map(|reason| (reason.to_owned(), 2)).into_iter().collect();
        let first = scene.run();
        assert_eq!(counted(&first, metric, "reason"), expected, "{reason:?}");
        assert!(counted(&first, metric, "termination_mode").iter().all(|(mode, _)| mode == "graceful"));
        assert!(counted(&scene.run(), metric, "reason").is_empty(), "{reason:?}: not again");
    }
}

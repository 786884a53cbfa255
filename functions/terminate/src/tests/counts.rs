//! What a drain counts.

use super::over_sim::{Scene, budget, ending, running};
use whittle_api::k8s::PodDisruptionBudget;
use whittle_ports::Report;

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

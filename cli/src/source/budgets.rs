//! The status of PodDisruptionBudgets that no cluster has seen yet: those of --changed, of files without a status, and about workloads that
//! --changed changes.

use super::documents::Document;
use super::workloads::WorkloadManifests;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Kind, Pod, PodDisruptionBudget};
use whittle_model::pods::{self, Covered};

/// The budgets among documents whose status is not known, by namespace and name. Who applies a budget does not write its status.
pub(super) fn without_status(documents: &[Document]) -> BTreeSet<String> {
    let budgets = documents.iter().filter(|document| document.kind() == PodDisruptionBudget::KIND);
    let unseen = budgets.filter(|document| document.changed || !document.live && document.value.get("status").is_none());
    let namespace =
        |document: &Document| document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default").to_owned();
    unseen.map(|document| format!("{}/{}", namespace(document), document.name())).collect()
}

/// Gives budgets the status that their controller would compute from the pods that there are.
pub(super) fn observe(objects: &mut ClusterObjects, workloads: &WorkloadManifests, unseen: &BTreeSet<String>) {
    let changed: Vec<Pod> = workloads.changed_pods().collect();
    let is_moved = |budget: &PodDisruptionBudget| {
        unseen.contains(&budget.metadata.key()) || changed.iter().any(|pod| pods::budget_covers(budget, pod))
    };
    if !objects.disruption_budgets.iter().any(is_moved) {
        return;
    }
    let mut scale_of: BTreeMap<String, (usize, i64)> = BTreeMap::new();
    for (controller, (scale, own)) in workloads.scales(&objects.pods).into_iter().enumerate() {
        scale_of.extend(own.into_iter().map(|pod| (pod.metadata.key(), (controller, scale))));
    }
    for budget in objects.disruption_budgets.iter_mut().filter(|budget| is_moved(budget)) {
        let lives = |pod: &&Pod| !pod.is_terminal() && !pod.metadata.is_deleting() && pods::budget_covers(budget, pod);
        let own: Vec<&Pod> = objects.pods.iter().filter(lives).collect();
        let controllers: BTreeMap<usize, i64> = own.iter().filter_map(|pod| scale_of.get(&pod.metadata.key()).copied()).collect();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let healthy = own.iter().filter(|pod| is_healthy(pod)).count();
        let covered = Covered { healthy: count(healthy), pods: count(own.len()), scale: controllers.values().sum() };
        budget.status = pods::budget_status(budget, covered);
    }
}

/// A pod that a file places on a node runs there, unless its conditions say that it is not ready; one that is only planned will run.
fn is_healthy(pod: &Pod) -> bool {
    let is_planned = || !pod.is_bound() && pod.status.phase.is_empty() && pod.status.conditions.is_empty();
    pods::is_ready(pod) || pod.is_bound() && pod.condition("Ready").is_none() && pod.status.phase != "Pending" || is_planned()
}

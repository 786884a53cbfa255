//! The status of PodDisruptionBudgets that no cluster has seen yet: those of --changed, and of files without a status.

use super::documents::Document;
use serde_json::Value;
use std::collections::BTreeSet;
use whittle_api::ClusterObjects;
use whittle_api::k8s::{Kind, Pod, PodDisruptionBudget};
use whittle_model::pods;

/// The budgets among documents whose status is not known, by namespace and name.
pub(super) fn without_status(documents: &[Document]) -> BTreeSet<String> {
    let unseen = documents.iter().filter(|document| document.kind() == PodDisruptionBudget::KIND && !document.live);
    let unseen = unseen.filter(|document| document.value.get("status").is_none());
    let namespace =
        |document: &Document| document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default").to_owned();
    unseen.map(|document| format!("{}/{}", namespace(document), document.name())).collect()
}

/// Gives budgets the status that their controller would compute from the pods that there are.
pub(super) fn observe(objects: &mut ClusterObjects, unseen: &BTreeSet<String>) {
    for budget in objects.disruption_budgets.iter_mut().filter(|budget| unseen.contains(&budget.metadata.key())) {
        let lives = |pod: &&Pod| !pod.is_terminal() && !pod.metadata.is_deleting() && pods::budget_covers(budget, pod);
        let covered: Vec<&Pod> = objects.pods.iter().filter(lives).collect();
        let healthy = covered.iter().filter(|pod| is_healthy(pod)).count();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        budget.status = pods::budget_status(budget, count(healthy), count(covered.len()));
    }
}

/// A pod that a file places on a node runs there, unless its conditions say that it is not ready.
fn is_healthy(pod: &Pod) -> bool {
    pods::is_ready(pod) || pod.is_bound() && pod.condition("Ready").is_none() && pod.status.phase != "Pending"
}

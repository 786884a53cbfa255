//! Disruption budgets: their status, and the eviction API that enforces them.

use super::Cluster;
use jiff::Timestamp;
use whittle_api::k8s::{PdbStatus, Pod, PodDisruptionBudget};
use whittle_model::pods;

/// The eviction API's verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is being deleted, or did not exist.
    Granted,
    /// 429: not now.
    Refused(String),
    /// 500: more than one budget covers the pod.
    Confused(String),
}

impl Cluster {
    /// The status of a budget, computed from the pods.
    pub fn budget_status(&self, budget: &PodDisruptionBudget) -> PdbStatus {
        let covered: Vec<&Pod> = self.objects.pods.values().filter(|pod| pods::budget_covers(budget, pod) && !pod.is_terminal()).collect();
        let healthy = covered.iter().filter(|pod| pods::is_ready(pod) && !pod.metadata.is_deleting()).count();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let covered = pods::Covered { healthy: count(healthy), pods: count(covered.len()), scale: self.scale_of(&covered) };
        pods::budget_status(budget, covered)
    }

    /// How many pods the controllers of the covered pods are to have.
    fn scale_of(&self, covered: &[&Pod]) -> i64 {
        let mut seen = std::collections::BTreeSet::new();
        let deployments = covered.iter().filter_map(|pod| self.deployment_of(pod));
        let first = deployments.filter(|deployment| seen.insert(deployment.metadata.key()));
        first.map(|deployment| i64::from(deployment.spec.replicas.unwrap_or(1))).sum()
    }

    /// Brings the status of every budget up to date.
    pub(super) fn update_budgets(&mut self) {
        let statuses: Vec<(String, PdbStatus)> =
            self.objects.budgets.iter().map(|(key, budget)| (key.clone(), self.budget_status(budget))).collect();
        for (key, status) in statuses {
            self.objects.change::<PodDisruptionBudget>(&key, |budget| budget.status = status);
        }
    }

    /// Evicts a pod if its budget allows it.
    pub fn evict(&mut self, key: &str, uid: &str, now: Timestamp) -> Eviction {
        let Some(pod) = self.objects.pods.get(key) else { return Eviction::Granted };
        if !uid.is_empty() && pod.metadata.uid != uid {
            return Eviction::Granted;
        }
        let is_running = pod.is_bound() && !pod.is_terminal() && !pod.metadata.is_deleting();
        if is_running && !self.skip_budgets {
            let budgets: Vec<&PodDisruptionBudget> =
                self.objects.budgets.values().filter(|budget| pods::budget_covers(budget, pod)).collect();
            match budgets[..] {
                [] => {}
                [budget] => {
                    let status = self.budget_status(budget);
                    // A budget that wants no healthy pod gives no leave, as that of pods without a controller.
                    let has_enough = 0 < status.desired_healthy && status.desired_healthy <= status.current_healthy;
                    let lenient = budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" || has_enough;
                    let unhealthy_allowed = !pods::is_ready(pod) && lenient;
                    if status.disruptions_allowed < 1 && !unhealthy_allowed {
                        let name = &budget.metadata.name;
                        return Eviction::Refused(format!(
                            "the disruption budget {name} needs {} healthy pods and has {} currently",
                            status.desired_healthy, status.current_healthy
                        ));
                    }
                }
                _ => return Eviction::Confused("more than one PodDisruptionBudget covers the pod".to_owned()),
            }
        }
        let grace = pod.spec.termination_grace_period_seconds;
        self.delete_pod(key, grace, now);
        Eviction::Granted
    }

    /// Budgets with fewer healthy pods than desired, by name: a violated budget after an eviction.
    pub fn violated_budgets(&self) -> Vec<String> {
        let short = |budget: &&PodDisruptionBudget| {
            let status = self.budget_status(budget);
            status.current_healthy < status.desired_healthy
        };
        self.objects.budgets.values().filter(short).map(|budget| budget.metadata.key()).collect()
    }
}

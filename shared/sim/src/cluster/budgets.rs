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
        pods::budget_status(budget, i64::try_from(healthy).unwrap_or(i64::MAX), self.expected_pods(&covered))
    }

    /// How many pods the controllers of the covered pods desire; pods without controller count as themselves.
    fn expected_pods(&self, covered: &[&Pod]) -> i64 {
        let mut expected = 0;
        let mut seen = std::collections::BTreeSet::new();
        for pod in covered {
            match self.deployment_of(pod) {
                Some(deployment) if seen.insert(deployment.metadata.key()) => {
                    expected += i64::from(deployment.spec.replicas.unwrap_or(1));
                }
                Some(_) => {}
                None => expected += 1,
            }
        }
        expected
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
                    let lenient =
                        budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" || status.current_healthy >= status.desired_healthy;
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

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::k8s::{IntOrString, PdbSpec};

    fn allowed(spec: PdbSpec) -> i32 {
        let mut cluster = Cluster::new("c".into(), "1.33", jiff::Timestamp::UNIX_EPOCH);
        for name in ["a", "b", "c", "d"] {
            let pod: Pod = serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "namespace": "default"},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap();
            cluster.objects.pods.insert(pod.metadata.key(), pod);
        }
        let selector = serde_json::from_str("{}").unwrap();
        let metadata = whittle_api::ObjectMeta { namespace: "default".to_owned(), ..whittle_api::ObjectMeta::named("b") };
        let budget = PodDisruptionBudget { metadata, spec: PdbSpec { selector: Some(selector), ..spec }, ..PodDisruptionBudget::default() };
        cluster.budget_status(&budget).disruptions_allowed
    }

    #[test]
    fn a_budget_that_cannot_be_understood_allows_nothing() {
        let text = |text: &str| Some(IntOrString::Text(text.to_owned()));
        let least = |value| allowed(PdbSpec { min_available: value, ..PdbSpec::default() });
        let most = |value| allowed(PdbSpec { max_unavailable: value, ..PdbSpec::default() });
        assert_eq!(
            [least(Some(IntOrString::Int(3))), least(text("50%")), most(text("50%")), most(Some(IntOrString::Int(9)))],
            [1, 2, 2, 4]
        );
        for value in [text("zz zz"), text("500%"), text("%"), text("7"), Some(IntOrString::Int(-5))] {
            assert_eq!([least(value.clone()), most(value.clone())], [0, 0], "{value:?}");
        }
        let both = PdbSpec { min_available: text("0%"), max_unavailable: text("100%"), ..PdbSpec::default() };
        assert_eq!(allowed(both), 0);
    }
}

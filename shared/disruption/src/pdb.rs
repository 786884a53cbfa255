//! PodDisruptionBudgets (disruption 3.6): whether the eviction API would evict a pod.

use super::protection;
use jiff::Timestamp;
use std::collections::BTreeMap;
use whittle_api::k8s::{Pod, PodDisruptionBudget};
use whittle_model::pods::never_allows;

/// The PodDisruptionBudgets of a cluster, by namespace.
pub(crate) struct Pdbs<'a> {
    by_namespace: BTreeMap<&'a str, Vec<&'a PodDisruptionBudget>>,
}

/// How many of several budgets are named: whoever may create them may create thousands for one pod.
const NAMED_MAX: usize = 5;

/// Which budgets prevent an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PdbBlock {
    /// This one, `namespace/name`, allows no disruption.
    Exhausted(String),
    /// The same, and the pod is not ready: with the policy `AlwaysAllow` it could be evicted.
    ExhaustedForUnready(String),
    /// Several select the pod, and Kubernetes then refuses every eviction. The first few of them.
    Several(Vec<String>),
}

impl<'a> Pdbs<'a> {
    pub(crate) fn new(budgets: &'a [PodDisruptionBudget]) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<&PodDisruptionBudget>> = BTreeMap::new();
        for budget in budgets {
            by_namespace.entry(budget.metadata.namespace.as_str()).or_default().push(budget);
        }
        for list in by_namespace.values_mut() {
            list.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        }
        Self { by_namespace }
    }

    /// What prevents the eviction of `pod`, if anything. Pods that are not evicted through the API are never blocked.
    pub(crate) fn block(&self, pod: &Pod, now: Timestamp) -> Option<PdbBlock> {
        if !protection::is_evictable(pod, now) {
            return None;
        }
        let in_namespace = self.by_namespace.get(pod.metadata.namespace.as_str())?;
        let matching = in_namespace.iter().copied().filter(|budget| selects(budget, pod));
        let matching: Vec<&PodDisruptionBudget> = matching.take(NAMED_MAX).collect();
        match matching.as_slice() {
            [] => None,
            [budget] => {
                let is_unready = pod.condition("Ready").is_some_and(|condition| condition.status == "False");
                let unready_may_go = is_unready && budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow";
                let block = if is_unready { PdbBlock::ExhaustedForUnready } else { PdbBlock::Exhausted };
                (!allows(budget) && !unready_may_go).then(|| block(budget.metadata.key()))
            }
            several => Some(PdbBlock::Several(several.iter().map(|budget| budget.metadata.key()).collect())),
        }
    }
}

/// An unreadable selector may select any pod.
fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    budget.spec.selector.as_ref().is_some_and(|selector| !selector.is_readable() || selector.matches(&pod.metadata.labels))
}

/// Whether a budget allows an eviction now. The status of one that was edited a moment ago is about what it said before (ADR 0088).
fn allows(budget: &PodDisruptionBudget) -> bool {
    let is_stale = budget.metadata.generation.is_some_and(|generation| budget.status.observed_generation < generation);
    !is_stale && !never_allows(budget) && 0 < budget.status.disruptions_allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::k8s::{IntOrString, PodCondition};
    use whittle_api::{LabelSelector, SelectorRequirement};

    fn budget(name: &str, app: Option<&str>, allowed: i32) -> PodDisruptionBudget {
        let mut budget = PodDisruptionBudget::default();
        budget.metadata.namespace = "default".to_owned();
        budget.metadata.name = name.to_owned();
        budget.spec.selector = Some(LabelSelector {
            match_labels: app.map(|app| ("app".to_owned(), app.to_owned())).into_iter().collect(),
            ..LabelSelector::default()
        });
        budget.status.disruptions_allowed = allowed;
        budget
    }

    fn pod(app: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = "default".to_owned();
        pod.metadata.labels.insert("app".to_owned(), app.to_owned());
        pod
    }

    #[track_caller]
    fn check(budgets: &[PodDisruptionBudget], pod: &Pod, want: Option<PdbBlock>) {
        assert_eq!(Pdbs::new(budgets).block(pod, Timestamp::UNIX_EPOCH), want);
    }

    #[test]
    fn an_exhausted_budget_blocks_the_pods_that_it_selects() {
        let spent = || Some(PdbBlock::Exhausted("default/web".to_owned()));
        check(&[budget("web", Some("web"), 0)], &pod("web"), spent());
        check(&[budget("web", None, 0)], &pod("web"), spent());
        check(&[budget("web", Some("web"), 1)], &pod("web"), None);
        check(&[budget("web", Some("api"), 0)], &pod("web"), None);
        check(&[budget("web", Some("web"), -1)], &pod("web"), spent());
        let mut unreadable = budget("web", None, 0);
        let requirement = SelectorRequirement { key: "app".to_owned(), operator: "Like".to_owned(), values: vec!["api".to_owned()] };
        unreadable.spec.selector = Some(LabelSelector { match_expressions: vec![requirement], ..LabelSelector::default() });
        check(&[unreadable.clone()], &pod("web"), spent());
        unreadable.status.disruptions_allowed = 1;
        check(&[unreadable], &pod("web"), None);
        let mut elsewhere = budget("web", Some("web"), 0);
        elsewhere.metadata.namespace = "other".to_owned();
        check(&[elsewhere], &pod("web"), None);
        let mut selects_nothing = budget("web", Some("web"), 0);
        selects_nothing.spec.selector = None;
        check(&[selects_nothing], &pod("web"), None);
    }

    #[test]
    fn two_budgets_for_one_pod_block_whatever_they_allow() {
        let both = [budget("b", Some("web"), 5), budget("a", None, 5)];
        let want = Some(PdbBlock::Several(vec!["default/a".to_owned(), "default/b".to_owned()]));
        check(&both, &pod("web"), want);
    }

    #[test]
    fn of_thousands_of_budgets_for_one_pod_a_few_are_named() {
        let many: Vec<PodDisruptionBudget> = (0..3000).map(|number| budget(&format!("b{number:04}"), None, 5)).collect();
        let named = ["default/b0000", "default/b0001", "default/b0002", "default/b0003", "default/b0004"];
        check(&many, &pod("web"), Some(PdbBlock::Several(named.map(str::to_owned).to_vec())));
    }

    #[test]
    fn an_unhealthy_pod_may_be_evicted_where_the_policy_always_allows() {
        let mut unhealthy = pod("web");
        unhealthy.status.conditions.push(PodCondition { type_: "Ready".to_owned(), status: "False".to_owned(), ..PodCondition::default() });
        let mut lenient = budget("web", Some("web"), 0);
        for policy in ["", "IfHealthyBudget"] {
            policy.clone_into(&mut lenient.spec.unhealthy_pod_eviction_policy);
            check(&[lenient.clone()], &unhealthy, Some(PdbBlock::ExhaustedForUnready("default/web".to_owned())));
        }
        lenient.spec.unhealthy_pod_eviction_policy = "AlwaysAllow".to_owned();
        check(&[lenient.clone()], &unhealthy, None);
        check(&[lenient], &pod("web"), Some(PdbBlock::Exhausted("default/web".to_owned())));
    }

    #[test]
    fn a_budget_that_never_allows_a_disruption_blocks_before_its_status_says_so() {
        let with = |min: Option<IntOrString>, max: Option<IntOrString>| {
            let mut budget = budget("web", Some("web"), 1);
            (budget.spec.min_available, budget.spec.max_unavailable) = (min, max);
            budget
        };
        let blocked = || Some(PdbBlock::Exhausted("default/web".to_owned()));
        let text = |text: &str| Some(IntOrString::Text(text.to_owned()));
        check(&[with(text("100%"), None)], &pod("web"), blocked());
        check(&[with(None, text("0%"))], &pod("web"), blocked());
        check(&[with(None, Some(IntOrString::Int(0)))], &pod("web"), blocked());
        check(&[with(Some(IntOrString::Int(3)), None)], &pod("web"), None);
        check(&[with(text("50%"), None)], &pod("web"), None);
    }

    #[test]
    fn a_budget_blocks_until_its_status_is_about_its_latest_edit() {
        for (generation, observed, is_blocked) in
            [(None, 0, false), (Some(1), 1, false), (Some(2), 2, false), (Some(2), 1, true), (Some(1), 0, true)]
        {
            let mut edited = budget("web", Some("web"), 1);
            (edited.metadata.generation, edited.status.observed_generation) = (generation, observed);
            let want = is_blocked.then(|| PdbBlock::Exhausted("default/web".to_owned()));
            check(&[edited], &pod("web"), want);
        }
    }

    #[test]
    fn pods_that_are_not_evicted_are_not_blocked_by_budgets() {
        let mut finished = pod("web");
        finished.status.phase = "Succeeded".to_owned();
        check(&[budget("web", Some("web"), 0)], &finished, None);
        let mut deleting = pod("web");
        deleting.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        check(&[budget("web", Some("web"), 0)], &deleting, None);
    }
}

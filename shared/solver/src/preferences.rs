//! What preferences cost: the plan compared with one that ignores them.

use super::solve::solve;
use whittle_api::k8s::{Pod, TaintEffect};
use whittle_model::pods;
use whittle_model::scheduling::{Input, Options, Plan, PreferencePolicy};
use whittle_units::Price;

/// What preferences add to the cost of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferenceCost {
    /// Pods of the plan with preferences.
    pub pods: usize,
    /// Per hour, of the plan that respects preferences.
    pub price: Price,
    /// Per hour, of a plan that ignores them.
    pub without: Price,
    /// The numbers of new machines of both.
    pub machines: (usize, usize),
}

/// What the preferences of the pods of `plan` cost, if ignoring all of them would place as many pods for less money.
///
/// Preferences are respected whatever they cost; this only reports it. It takes a second solve, unless no pod has preferences.
#[must_use]
pub fn preference_cost(input: &Input<'_>, options: &Options, plan: &Plan) -> Option<PreferenceCost> {
    if options.preferences == PreferencePolicy::Ignore || plan.claims.is_empty() {
        return None;
    }
    let soft_taints =
        input.objects.node_pools.iter().any(|p| p.spec.template.spec.taints.iter().any(|t| t.effect == TaintEffect::PreferNoSchedule));
    let soft_defaults = options.default_spread.iter().any(|c| c.when_unsatisfiable == "ScheduleAnyway");
    let waiting = input.objects.pods.iter().filter(|p| pods::is_provisionable(p));
    let with_preferences = waiting.filter(|p| soft_taints || soft_defaults || has_preferences(p)).count();
    if with_preferences == 0 {
        return None;
    }
    let ignoring = Options { preferences: PreferencePolicy::Ignore, ..options.clone() };
    let without = solve(input, &ignoring);
    let cheaper = without.scheduled() >= plan.scheduled() && without.price() < plan.price();
    cheaper.then(|| PreferenceCost {
        pods: with_preferences,
        price: plan.price(),
        without: without.price(),
        machines: (plan.claims.len(), without.claims.len()),
    })
}

fn has_preferences(pod: &Pod) -> bool {
    let by_affinity = pod.spec.affinity.as_ref().is_some_and(|a| {
        let near = [a.pod_affinity.as_ref(), a.pod_anti_affinity.as_ref()];
        a.node_affinity.as_ref().is_some_and(|n| !n.preferred.is_empty()) || near.into_iter().flatten().any(|n| !n.preferred.is_empty())
    });
    by_affinity || pod.spec.topology_spread_constraints.iter().any(|c| c.when_unsatisfiable == "ScheduleAnyway")
}

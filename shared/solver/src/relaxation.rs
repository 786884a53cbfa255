//! Relaxing a pod: which of its preferences is dropped next when it cannot be placed.

use whittle_api::k8s::{PodSpec, Toleration};
use whittle_model::requirements::{Requirements, from_selector, term_requirements};
use whittle_model::scheduling::PreferencePolicy;

/// After this many relaxations, all remaining preferences are dropped at once. Real pods have a handful.
pub(crate) const RELAXATIONS_MAX: usize = 128;

/// Whether there are `PreferNoSchedule` taints, which a pod may come to tolerate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftTaints {
    Some,
    None,
}

/// The pod's requirements on node labels: its node selector and first required term, with the heaviest preference if
/// preferences count.
pub(crate) fn requirements_of(spec: &PodSpec, policy: PreferencePolicy) -> Requirements {
    let mut reqs = from_selector(&spec.node_selector);
    let Some(affinity) = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()) else { return reqs };
    if policy == PreferencePolicy::Respect
        && let Some(at) = heaviest(&affinity.preferred, |t| t.weight)
    {
        reqs.add_all(&term_requirements(&affinity.preferred[at].preference));
    }
    if let Some(first) = affinity.required.as_ref().and_then(|r| r.node_selector_terms.first()) {
        reqs.add_all(&term_requirements(first));
    }
    reqs
}

/// Drops one thing, as Karpenter does: the first alternative of the required node affinity, else the heaviest preference, else
/// a `ScheduleAnyway` spread constraint, else it tolerates `PreferNoSchedule` taints. Returns whether there was something to
/// drop.
pub(crate) fn relax(spec: &mut PodSpec, soft_taints: SoftTaints) -> bool {
    if let Some(affinity) = &mut spec.affinity {
        if let Some(required) = affinity.node_affinity.as_mut().and_then(|n| n.required.as_mut())
            && required.node_selector_terms.len() > 1
        {
            required.node_selector_terms.remove(0);
            return true;
        }
        let pods = [affinity.pod_affinity.as_mut(), affinity.pod_anti_affinity.as_mut()];
        for terms in pods.into_iter().flatten() {
            if drop_heaviest(&mut terms.preferred, |t| t.weight) {
                return true;
            }
        }
        if let Some(node) = &mut affinity.node_affinity
            && drop_heaviest(&mut node.preferred, |t| t.weight)
        {
            return true;
        }
    }
    let spread = &mut spec.topology_spread_constraints;
    if let Some(soft) = spread.iter().position(|c| c.when_unsatisfiable == "ScheduleAnyway") {
        spread.swap_remove(soft);
        return true;
    }
    soft_taints == SoftTaints::Some && tolerate_soft_taints(spec)
}

fn tolerate_soft_taints(spec: &mut PodSpec) -> bool {
    let all = of_soft_taints();
    let missing = !spec.tolerations.contains(&all);
    if missing {
        spec.tolerations.push(all);
    }
    missing
}

/// The toleration of every `PreferNoSchedule` taint.
fn of_soft_taints() -> Toleration {
    Toleration { operator: "Exists".into(), effect: "PreferNoSchedule".into(), ..Toleration::default() }
}

/// The tolerations with that of every `PreferNoSchedule` taint.
pub(crate) fn with_soft_taints(tolerations: &[Toleration]) -> Vec<Toleration> {
    let mut out = tolerations.to_vec();
    let all = of_soft_taints();
    if !out.contains(&all) {
        out.push(all);
    }
    out
}

/// Drops the heaviest; of equals, the first in the pod's spec.
fn drop_heaviest<T>(terms: &mut Vec<T>, weight: impl Fn(&T) -> i32) -> bool {
    let heaviest = heaviest(terms, weight);
    if let Some(at) = heaviest {
        terms.remove(at);
    }
    heaviest.is_some()
}

/// The position of the heaviest; of equals, the first.
pub(crate) fn heaviest<T>(terms: &[T], weight: impl Fn(&T) -> i32) -> Option<usize> {
    let top = terms.iter().map(&weight).max()?;
    terms.iter().position(|t| weight(t) == top)
}

/// Drops the required node affinity's empty terms (scheduling 6): such a term matches no node, while without expressions it would read
/// as one that every node satisfies. Pods whose terms are all empty are rejected before.
pub(crate) fn drop_empty_terms(spec: &mut PodSpec) {
    let required = spec.affinity.as_mut().and_then(|a| a.node_affinity.as_mut()).and_then(|n| n.required.as_mut());
    if let Some(required) = required
        && required.node_selector_terms.iter().any(|term| !term.is_empty())
    {
        required.node_selector_terms.retain(|term| !term.is_empty());
    }
}

/// Drops all preferences at once.
pub(crate) fn drop_preferences(spec: &mut PodSpec, soft_taints: SoftTaints) {
    if let Some(affinity) = &mut spec.affinity {
        if let Some(node) = &mut affinity.node_affinity {
            node.preferred.clear();
            if let Some(required) = &mut node.required
                && let Some(last) = required.node_selector_terms.pop()
            {
                required.node_selector_terms = vec![last];
            }
        }
        for terms in [affinity.pod_affinity.as_mut(), affinity.pod_anti_affinity.as_mut()].into_iter().flatten() {
            terms.preferred.clear();
        }
    }
    spec.topology_spread_constraints.retain(|c| c.when_unsatisfiable != "ScheduleAnyway");
    if soft_taints == SoftTaints::Some {
        tolerate_soft_taints(spec);
    }
}

/// The pod by each alternative of its required node affinity but the last, without preferences; by as many as are ever tried.
pub(crate) fn earlier_alternatives(spec: &PodSpec, soft_taints: SoftTaints) -> Vec<PodSpec> {
    let required = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
    let terms = required.map(|r| &r.node_selector_terms[..]).unwrap_or_default();
    let earlier = &terms[..terms.len().saturating_sub(1)];
    if earlier.is_empty() {
        return Vec::new();
    }
    let mut by_last = spec.clone();
    drop_preferences(&mut by_last, soft_taints);
    let alone = earlier.iter().take(RELAXATIONS_MAX).map(|term| {
        let mut alone = by_last.clone();
        if let Some(required) = alone.affinity.as_mut().and_then(|a| a.node_affinity.as_mut()).and_then(|n| n.required.as_mut()) {
            required.node_selector_terms = vec![term.clone()];
        }
        alone
    });
    alone.collect()
}

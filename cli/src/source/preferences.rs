//! The preferences of a pod: what is dropped, one after the other, before the pod is given up.

use whittle_api::k8s::Pod;

/// The preferences that a pod states, in the words of its spec.
pub(crate) fn of(pod: &Pod) -> Vec<String> {
    let mut found = Vec::new();
    let mut count = |field: &str, preferred: usize| {
        if 0 < preferred {
            found.push(format!("spec.affinity.{field} ({preferred} preferred)"));
        }
    };
    if let Some(affinity) = &pod.spec.affinity {
        count("podAffinity", affinity.pod_affinity.as_ref().map_or(0, |terms| terms.preferred.len()));
        count("podAntiAffinity", affinity.pod_anti_affinity.as_ref().map_or(0, |terms| terms.preferred.len()));
        count("nodeAffinity", affinity.node_affinity.as_ref().map_or(0, |terms| terms.preferred.len()));
    }
    let soft = pod.spec.topology_spread_constraints.iter().filter(|spread| spread.when_unsatisfiable == "ScheduleAnyway");
    found.extend(soft.map(|spread| format!("spec.topologySpreadConstraints on {} (ScheduleAnyway)", spread.topology_key)));
    found
}

/// The line about a pod that has no place although its preferences were dropped and all its terms were tried; `None` if it states none.
pub(crate) fn dropped(pod: &Pod) -> Option<String> {
    let found = of(pod);
    let preferences = (!found.is_empty()).then(|| format!("also without its preferences, which were dropped first: {}", found.join(", ")));
    let required = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()?.required.as_ref());
    let terms = required.map_or(0, |required| required.node_selector_terms.len());
    let terms = (1 < terms)
        .then(|| format!("with none of its {terms} nodeSelectorTerms, tried one after the other: what is said here is about the last"));
    let told: Vec<String> = [preferences, terms].into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join("; "))
}

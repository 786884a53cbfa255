//! Scheduling semantics of Kubernetes, implemented independently of the solver: requests, tolerations, selectors, label
//! requirements.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{NodeSelectorTerm, Pod, PodAffinityTerm, Taint, TaintEffect};
use whittle_api::labels;
use whittle_units::{Quantity, Resources};

/// Requests of a pod: containers and sidecars, or the peak during startup if that is higher, plus overhead. Negative
/// requests count as zero.
pub(crate) fn requests(pod: &Pod) -> Resources {
    let non_negative = |list: &Resources| list.iter().map(|(name, n)| (name.to_owned(), n.max(Quantity::ZERO))).collect::<Resources>();
    let infeasible = pod.status.conditions.iter().any(|c| c.type_ == "PodResizePending" && c.reason == "Infeasible");
    let of = |c: &whittle_api::k8s::Container| {
        let spec = c.resources.as_ref().map(|r| r.requests.clone()).unwrap_or_default();
        // Ordinary init containers are never resized.
        let init = pod.spec.init_containers.iter().any(|i| i.name == c.name && i.restart_policy != "Always");
        let mut all = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let Some(status) = all.find(|s| s.name == c.name && s.resources.is_some() && !init) else { return non_negative(&spec) };
        let mut most = if infeasible { Resources::new() } else { spec };
        most.raise_to(&status.resources.as_ref().map(|r| r.requests.clone()).unwrap_or_default());
        most.raise_to(&status.allocated_resources);
        non_negative(&most)
    };
    let mut running = Resources::new();
    pod.spec.containers.iter().for_each(|c| running.add(&of(c)));
    let mut sidecars = Resources::new();
    let mut peak = Resources::new();
    for container in &pod.spec.init_containers {
        let mut now = sidecars.clone();
        now.add(&of(container));
        if container.restart_policy == "Always" {
            sidecars.clone_from(&now);
        }
        peak.raise_to(&now);
    }
    running.add(&sidecars);
    running.raise_to(&peak);
    let reported = pod.status.resources.as_ref().map(|r| [&r.requests, &pod.status.allocated_resources]);
    for list in reported.iter().filter(|lists| lists.iter().all(|list| !list.is_empty())).flatten() {
        running.raise_to(list);
    }
    // Requests of the pod as a whole take the place of those sums.
    let is_whole = |name: &str| ["cpu", "memory"].contains(&name) || name.starts_with("hugepages-");
    let asked = pod.spec.resources.as_ref().map(|r| r.requests.clone()).unwrap_or_default();
    if asked.iter().any(|(name, _)| is_whole(name)) {
        let mut most = if infeasible && reported.is_some() { Resources::new() } else { asked };
        reported.iter().flatten().for_each(|list| most.raise_to(list));
        most.iter().filter(|(name, _)| is_whole(name)).for_each(|(name, amount)| running.set(name, amount.max(Quantity::ZERO)));
    }
    running.add(&non_negative(&pod.spec.overhead));
    running.set("pods", Quantity::from_units(1));
    running
}

/// Whether the pod tolerates `taint`; `PreferNoSchedule` prevents nothing.
pub(crate) fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    taint.effect == TaintEffect::PreferNoSchedule
        || pod.spec.tolerations.iter().any(|t| {
            let effect = t.effect.is_empty() || t.effect == taint.effect.to_string();
            let key = t.key.is_empty() || t.key == taint.key;
            let number = |text: &str| text.parse::<i64>().ok();
            let value = match t.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => !t.key.is_empty() && t.value == taint.value,
                "Lt" => number(&taint.value).zip(number(&t.value)).is_some_and(|(a, b)| a < b),
                "Gt" => number(&taint.value).zip(number(&t.value)).is_some_and(|(a, b)| a > b),
                _ => false,
            };
            effect && key && value
        })
}

/// Whether a label with this value (or without one) satisfies `key operator values`.
pub(crate) fn admits(operator: &str, values: &[String], label: Option<&str>) -> bool {
    let bound = || values.first().and_then(|v| v.parse::<i64>().ok());
    let compare = |f: fn(i64, i64) -> bool| label.and_then(|l| l.parse::<i64>().ok()).zip(bound()).is_some_and(|(l, b)| f(l, b));
    match operator {
        "In" => label.is_some_and(|l| values.iter().any(|v| v == l)),
        "NotIn" => label.is_none_or(|l| values.iter().all(|v| v != l)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => compare(|l, b| l > b),
        "Lt" => compare(|l, b| l < b),
        "Gte" => compare(|l, b| l >= b),
        "Lte" => compare(|l, b| l <= b),
        _ => false,
    }
}

/// All values that a label of the machine may have; `None` means that it may be absent.
pub(crate) type PossibleLabels = BTreeMap<String, BTreeSet<Option<String>>>;

/// The node label keys that these pods refer to.
pub(crate) fn referenced_label_keys<'p>(pods: impl Iterator<Item = &'p Pod>) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut note = |key: &str| {
        let key = labels::normalized(key);
        if !out.contains(key) {
            out.insert(key.to_owned());
        }
    };
    for pod in pods {
        pod.spec.node_selector.keys().for_each(|key| note(key));
        let required = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
        let terms = required.map(|r| &r.node_selector_terms[..]).unwrap_or_default();
        terms.iter().flat_map(|term| &term.match_expressions).for_each(|e| note(&e.key));
    }
    out
}

fn all_admitted(possible: &PossibleLabels, key: &str, operator: &str, values: &[String]) -> bool {
    let key = labels::normalized(key);
    match possible.get(key) {
        None => admits(operator, values, None),
        Some(can_be) => can_be.iter().all(|v| admits(operator, values, v.as_deref())),
    }
}

fn term_holds(possible: &PossibleLabels, term: &NodeSelectorTerm) -> bool {
    term.match_fields.is_empty()
        && !term.match_expressions.is_empty()
        && term.match_expressions.iter().all(|e| all_admitted(possible, &e.key, &e.operator, &e.values))
}

/// Whether the pod's node selector and one of its required affinity terms hold on every machine that `possible`
/// describes.
pub(crate) fn node_fits(pod: &Pod, possible: &PossibleLabels) -> bool {
    let selector = pod.spec.node_selector.iter().all(|(k, v)| all_admitted(possible, k, "In", std::slice::from_ref(v)));
    let required = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
    let terms = required.map(|r| &r.node_selector_terms[..]).unwrap_or_default();
    selector && (terms.is_empty() || terms.iter().any(|t| term_holds(possible, t)))
}

/// Whether the pod's node selector and one of its required affinity terms allow `value` for `key`, ignoring other keys.
pub(crate) fn may_be_in(pod: &Pod, key: &str, value: &str) -> bool {
    let selected = pod.spec.node_selector.iter().filter(|(k, _)| labels::normalized(k) == key).all(|(_, v)| v == value);
    let required = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()).and_then(|n| n.required.as_ref());
    let terms = required.map(|r| &r.node_selector_terms[..]).unwrap_or_default();
    let holds = |t: &NodeSelectorTerm| {
        t.match_expressions.iter().filter(|e| labels::normalized(&e.key) == key).all(|e| admits(&e.operator, &e.values, Some(value)))
    };
    selected && (terms.is_empty() || terms.iter().any(holds))
}

/// Host ports of containers and sidecars, as (address, port, protocol).
pub(crate) fn ports(pod: &Pod) -> Vec<(String, i32, String)> {
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let sidecars = pod.spec.init_containers.iter().filter(|c| c.restart_policy == "Always");
    let all = pod.spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports).filter(|p| p.host_port != 0);
    all.map(|p| (or(&p.host_ip, "0.0.0.0"), p.host_port, or(&p.protocol, "TCP"))).collect()
}

/// The first pod in `placed` that conflicts over a host port, with the pod it conflicts with: a bound one, or one
/// placed before it.
pub(crate) fn host_port_conflict<'a>(bound: &[&'a Pod], placed: &[&'a Pod]) -> Option<(&'a Pod, &'a Pod)> {
    let is_any_address = |ip: &str| ip == "0.0.0.0" || ip == "::";
    let with_ports = |pods: &[&'a Pod]| pods.iter().map(|p| (*p, ports(p))).filter(|(_, ports)| !ports.is_empty()).collect::<Vec<_>>();
    let mut before = with_ports(bound);
    for (b, ports) in with_ports(placed) {
        let conflicts = |taken: &[(String, i32, String)]| {
            taken
                .iter()
                .any(|x| ports.iter().any(|y| x.1 == y.1 && x.2 == y.2 && (x.0 == y.0 || is_any_address(&x.0) || is_any_address(&y.0))))
        };
        if let Some((a, _)) = before.iter().find(|(_, taken)| conflicts(taken)) {
            return Some((a, b));
        }
        before.push((b, ports));
    }
    None
}

/// Whether every one of these terms of `owner` selects the other pod.
pub(crate) fn all_select(terms: &[PodAffinityTerm], owner: &Pod, other: &Pod, namespaces: &[whittle_api::k8s::Namespace]) -> bool {
    terms.iter().all(|term| selects(term, owner, other, namespaces))
}

fn selects(term: &PodAffinityTerm, owner: &Pod, other: &Pod, namespaces: &[whittle_api::k8s::Namespace]) -> bool {
    let namespace = &other.metadata.namespace;
    let namespace_selected = || match &term.namespace_selector {
        None if term.namespaces.is_empty() => *namespace == owner.metadata.namespace,
        None => term.namespaces.contains(namespace),
        Some(selector) => {
            let everywhere = selector.match_labels.is_empty() && selector.match_expressions.is_empty();
            let labelled = || namespaces.iter().any(|n| n.metadata.name == *namespace && selector.matches(&n.metadata.labels));
            everywhere || term.namespaces.contains(namespace) || labelled()
        }
    };
    // There may be many namespaces.
    term.label_selector.as_ref().is_some_and(|s| s.matches(&other.metadata.labels)) && namespace_selected()
}

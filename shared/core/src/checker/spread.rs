//! Pods relative to each other: affinity, anti-affinity, spread.

use super::{Findings, kube};
use crate::schedule::{Input, Plan};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Pod, PodAffinityTerm, TopologySpreadConstraint};
use whittle_api::labels;

/// A machine, old or new, with all its pods.
struct Place<'a> {
    name: String,
    /// What each topology key may turn out to be; one value: it is settled.
    domains: BTreeMap<String, BTreeSet<String>>,
    bound: Vec<&'a Pod>,
    placed: Vec<&'a Pod>,
    /// It does not exist yet.
    planned: bool,
}

pub(crate) fn check(input: &Input<'_>, plan: &Plan, pods: &BTreeMap<String, &Pod>, findings: &mut Findings) {
    let places = places(input, plan, pods);
    for place in &places {
        for pod in &place.placed {
            let Some(affinity) = &pod.spec.affinity else { continue };
            for term in affinity.pod_anti_affinity.iter().flat_map(|a| &a.required) {
                apart(input, &places, place, pod, term, findings);
            }
            for term in affinity.pod_affinity.iter().flat_map(|a| &a.required) {
                together(input, &places, place, pod, term, findings);
            }
        }
        for owner in &place.bound {
            let anti = owner.spec.affinity.as_ref().and_then(|a| a.pod_anti_affinity.as_ref());
            for term in anti.iter().flat_map(|a| &a.required) {
                repelled(input, &places, place, owner, term, findings);
            }
        }
    }
    skews(input, &places, findings);
}

fn places<'a>(input: &Input<'a>, plan: &Plan, pods: &BTreeMap<String, &'a Pod>) -> Vec<Place<'a>> {
    let moved: BTreeSet<String> = plan
        .claims
        .iter()
        .flat_map(|c| &c.pods)
        .chain(plan.placements.iter().flat_map(|p| &p.pods))
        .map(crate::schedule::PodRef::key)
        .collect();
    let find = |list: &[crate::schedule::PodRef]| list.iter().filter_map(|p| pods.get(&p.key()).copied()).collect::<Vec<_>>();
    let mut out: Vec<Place<'a>> = Vec::new();
    for node in input.nodes {
        let mut domains: BTreeMap<String, BTreeSet<String>> =
            node.labels().iter().map(|(k, v)| (k.clone(), BTreeSet::from([v.clone()]))).collect();
        domains.insert(labels::HOSTNAME.to_owned(), BTreeSet::from([node.hostname().to_owned()]));
        let bound = node.pods.iter().map(|p| &input.objects.pods[*p]);
        let placed = plan.placements.iter().find(|p| p.node == node.name());
        out.push(Place {
            name: node.name().to_owned(),
            domains,
            bound: bound.filter(|p| !moved.contains(&p.metadata.key()) && p.metadata.deletion_timestamp.is_none()).collect(),
            placed: placed.map(|p| find(&p.pods)).unwrap_or_default(),
            planned: false,
        });
    }
    for (n, claim) in plan.claims.iter().enumerate() {
        let name = format!("claim {n}");
        let mut domains: BTreeMap<String, BTreeSet<String>> =
            claim.labels.iter().map(|(k, v)| (k.clone(), BTreeSet::from([v.clone()]))).collect();
        let types = input.catalog.get(&claim.node_pool).map(|c| &c[..]).unwrap_or_default();
        for r in types.iter().filter(|t| claim.instance_types.contains(&t.name)).flat_map(|t| &t.requirements) {
            if r.operator.as_str() == "In" {
                domains.entry(labels::normalized(&r.key).to_owned()).or_default().extend(r.values.iter().cloned());
            }
        }
        for r in &claim.requirements {
            if let (Some(values), "In") = (domains.get_mut(&r.key), r.operator.as_str()) {
                values.retain(|v| r.values.contains(v));
            }
        }
        domains.insert(labels::HOSTNAME.to_owned(), BTreeSet::from([name.clone()]));
        out.push(Place { name, domains, bound: Vec::new(), placed: find(&claim.pods), planned: true });
    }
    out
}

/// Whether two machines may end up in one domain of `key`.
fn may_share(a: &Place<'_>, b: &Place<'_>, key: &str) -> bool {
    match (a.domains.get(key), b.domains.get(key)) {
        (Some(a), Some(b)) => a.iter().any(|v| b.contains(v)),
        _ => a.name == b.name,
    }
}

fn apart(input: &Input<'_>, places: &[Place<'_>], place: &Place<'_>, pod: &Pod, term: &PodAffinityTerm, findings: &mut Findings) {
    for other in places.iter().filter(|o| may_share(o, place, &term.topology_key)) {
        for neighbour in other.bound.iter().chain(&other.placed) {
            let same = std::ptr::eq(*neighbour, pod);
            let clash = !same && kube::selects(term, pod, neighbour, &input.objects.namespaces);
            findings.expect(!clash, &place.name, "anti-affinity", || {
                format!("{} repels {} in {}", pod.metadata.key(), neighbour.metadata.key(), term.topology_key)
            });
        }
    }
}

/// A running pod repels pods that are placed now.
fn repelled(input: &Input<'_>, places: &[Place<'_>], place: &Place<'_>, owner: &Pod, term: &PodAffinityTerm, findings: &mut Findings) {
    for other in places.iter().filter(|o| may_share(o, place, &term.topology_key)) {
        for pod in &other.placed {
            let clash = kube::selects(term, owner, pod, &input.objects.namespaces);
            findings.expect(!clash, &other.name, "anti-affinity", || {
                format!("{} repels {} in {}", owner.metadata.key(), pod.metadata.key(), term.topology_key)
            });
        }
    }
}

fn together(input: &Input<'_>, places: &[Place<'_>], place: &Place<'_>, pod: &Pod, term: &PodAffinityTerm, findings: &mut Findings) {
    let wanted = |p: &&&Pod| kube::selects(term, pod, p, &input.objects.namespaces);
    let within_reach = |o: &&Place<'_>| {
        let domains = o.domains.get(&term.topology_key);
        domains.is_none_or(|d| d.iter().any(|value| kube::may_be_in(pod, &term.topology_key, value)))
    };
    let others = places.iter().filter(within_reach).flat_map(|o| o.bound.iter().chain(&o.placed));
    let elsewhere = others.filter(|p| !std::ptr::eq(**p, pod)).any(|p| wanted(&p));
    // The first of a kind that attracts itself may go anywhere, and so may one that cannot go where its kind is.
    if !elsewhere && kube::selects(term, pod, pod, &input.objects.namespaces) {
        return;
    }
    let near = places.iter().filter(|o| {
        let settled = |p: &Place<'_>| p.domains.get(&term.topology_key).is_some_and(|d| d.len() == 1);
        may_share(o, place, &term.topology_key) && (o.name == place.name || (settled(o) && settled(place)))
    });
    let found = near.flat_map(|o| o.bound.iter().chain(&o.placed)).any(|p| (!std::ptr::eq(*p, pod)) && wanted(&p));
    findings
        .expect(found, &place.name, "affinity", || format!("{} wants a pod that is not near in {}", pod.metadata.key(), term.topology_key));
}

/// Hard spread constraints that only count pods which have them: no domain may be fuller than the emptiest known one by
/// more than the skew, as far as pods of this plan made it so.
fn skews(input: &Input<'_>, places: &[Place<'_>], findings: &mut Findings) {
    let mut done: BTreeSet<(String, TopologySpreadConstraint)> = BTreeSet::new();
    for pod in places.iter().flat_map(|p| &p.placed) {
        for constraint in pod.spec.topology_spread_constraints.iter().filter(|c| c.when_unsatisfiable != "ScheduleAnyway") {
            if done.insert((pod.metadata.namespace.clone(), constraint.clone())) {
                skew(input, places, &pod.metadata.namespace, constraint, findings);
            }
        }
    }
}

fn skew(input: &Input<'_>, places: &[Place<'_>], namespace: &str, constraint: &TopologySpreadConstraint, findings: &mut Findings) {
    // Which nodes count is then a matter of each pod's tolerations, which is more than is checked here.
    let by_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
    let plain = constraint.match_label_keys.is_empty() && !by_taints;
    let Some(selector) = constraint.label_selector.as_ref().filter(|_| plain) else { return };
    let selected = |p: &&&Pod| p.metadata.namespace == namespace && selector.matches(&p.metadata.labels);
    let mixed = places.iter().flat_map(|p| &p.placed).filter(selected).any(|p| {
        let plain = p.spec.node_selector.is_empty() && p.spec.affinity.is_none();
        !plain || !p.spec.topology_spread_constraints.contains(constraint)
    });
    if mixed {
        return;
    }
    let by_host = constraint.topology_key == labels::HOSTNAME;
    let mut counts: BTreeMap<&String, (i32, bool)> = BTreeMap::new();
    // What untainted NodePools without wishes of their own could open counts as empty.
    let plain = |p: &&whittle_api::karpenter::NodePool| {
        p.spec.replicas.is_none() && !p.metadata.is_deleting() && asks_nothing(p, &constraint.topology_key)
    };
    for types in input.objects.node_pools.iter().filter(plain).filter_map(|p| input.catalog.get(&p.metadata.name)) {
        let all = types.iter().flat_map(|t| &t.requirements).filter(|r| labels::normalized(&r.key) == constraint.topology_key);
        all.filter(|r| r.operator.as_str() == "In").flat_map(|r| &r.values).for_each(|v| {
            counts.entry(v).or_default();
        });
    }
    for place in places {
        let Some(domain) = place.domains.get(&constraint.topology_key).filter(|d| d.len() == 1).and_then(|d| d.first()) else { continue };
        let new = place.placed.iter().filter(selected).count();
        // A machine that is only asked for opens no domain to pods that do not go there.
        if place.planned && new == 0 {
            continue;
        }
        let entry = counts.entry(domain).or_default();
        entry.0 += i32::try_from(place.bound.iter().filter(selected).count() + new).unwrap_or(i32::MAX);
        entry.1 |= new > 0;
    }
    let least = if by_host { 0 } else { counts.values().map(|(n, _)| *n).min().unwrap_or(0) };
    for (domain, (count, new)) in counts {
        findings.expect(!new || count - least <= constraint.max_skew, domain, "spread", || {
            format!("{count} pods of a spread over {}, elsewhere {least}", constraint.topology_key)
        });
    }
}

fn asks_nothing(pool: &whittle_api::karpenter::NodePool, key: &str) -> bool {
    let template = &pool.spec.template;
    template.spec.taints.is_empty()
        && !template.metadata.labels.contains_key(key)
        && !template.spec.requirements.iter().any(|r| r.key == key)
}

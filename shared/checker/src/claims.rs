//! Checks every NodeClaim of the plan.

use super::Findings;
use super::claim_groups::{ClaimGroup, ClaimGroups};
use super::kube;
use super::launchable::{TYPES_MAX, is_reserved};
use super::machines::Storage;
use super::type_lists::{TypeList, TypeLists};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{DaemonSet, Pod, PodSpec};
use whittle_api::karpenter::NodePool;
use whittle_api::{ObjectMeta, labels};
use whittle_model::scheduling::{Input, MinValuesPolicy, NewClaim, Options, Plan};
use whittle_units::Resources;

pub(crate) fn check<'a>(
    input: &Input<'a>,
    options: &Options,
    plan: &'a Plan,
    lists: &TypeLists<'a>,
    pods: &BTreeMap<String, &'a Pod>,
    findings: &mut Findings,
) {
    let pools: BTreeMap<&str, &NodePool> = input.objects.node_pools.iter().rev().map(|p| (p.metadata.name.as_str(), p)).collect();
    let daemons: Vec<Pod> = input.objects.daemon_sets.iter().map(|set| daemon(set, &input.objects.pods)).filter(is_placeable).collect();
    let storage = Storage::of(input);
    let mut groups = ClaimGroups::new(kube::referenced_label_keys(daemons.iter().chain(pods.values().copied())));
    for (n, claim) in plan.claims.iter().enumerate() {
        let object = format!("claim {n}");
        let Some(&pool) = pools.get(claim.node_pool.as_str()) else {
            findings.add(&object, "pool-unknown", format!("there is no NodePool {}", claim.node_pool));
            continue;
        };
        let usable = pool.spec.replicas.is_none() && pool.metadata.deletion_timestamp.is_none();
        findings.expect(usable, &object, "pool-not-dynamic", || format!("NodePool {} is static or being deleted", claim.node_pool));
        check_template(&object, claim, pool, findings);
        let on: Vec<&'a Pod> = claim.pods.iter().filter_map(|p| pods.get(&p.key()).copied()).collect();
        findings.expect(!on.is_empty(), &object, "claim-empty", || "no pod needs it".into());
        let sum = on.iter().fold(Resources::new(), |mut sum, pod| {
            sum.add(&kube::requests(pod));
            sum
        });
        let index = lists.index(n);
        let list = &lists.all[index];
        let group = groups.of(claim, pool, (index, list), &daemons, |wrong| check_type_variety(claim, list, options.min_values, wrong));
        check_min_values(&object, claim, pool, options.min_values, findings);
        check_types(&object, claim, group, &on, &sum, findings);
        storage.expected_limits(&object, list, &on, findings);
        for pod in &on {
            for taint in &claim.taints {
                findings
                    .expect(kube::tolerates(pod, taint), &object, "taint", || format!("{} does not tolerate {taint}", pod.metadata.key()));
            }
        }
        if let Some((a, b)) = kube::host_port_conflict(&[], &on) {
            findings.add(&object, "host-port", format!("{} and {} request the same host port", a.metadata.key(), b.metadata.key()));
        }
        let covers = sum.iter().all(|(name, amount)| claim.requests.get(name) >= amount);
        findings.expect(covers, &object, "requests", || "the recorded requests are less than those of its pods".into());
    }
    check_limits(input, options, lists, findings);
    check_reservations(input, plan, findings);
}

/// DaemonSet pods with dynamic resource claims are ignored, as dynamic resources are not supported.
fn is_placeable(daemon: &Pod) -> bool {
    let mut containers = daemon.spec.containers.iter().chain(&daemon.spec.init_containers);
    daemon.spec.resource_claims.is_empty() && containers.all(|c| c.resources.as_ref().is_none_or(|r| r.claims.is_empty()))
}

/// A pod as the DaemonSet would create it. If one is running, its containers are used, since admission may have changed
/// them.
fn daemon(set: &DaemonSet, pods: &[Pod]) -> Pod {
    let mut spec: PodSpec = set.spec.template.spec.clone();
    let is_owned = |p: &&Pod| {
        let owners = &p.metadata.owner_references;
        p.metadata.namespace == set.metadata.namespace && owners.iter().any(|o| o.kind == "DaemonSet" && o.name == set.metadata.name)
    };
    if let Some(live) = pods.iter().filter(is_owned).max_by_key(|p| (p.metadata.creation_timestamp, &p.metadata.uid)) {
        spec.containers.clone_from(&live.spec.containers);
        spec.init_containers.clone_from(&live.spec.init_containers);
        spec.resources.clone_from(&live.spec.resources);
        spec.overhead.clone_from(&live.spec.overhead);
    }
    Pod { metadata: ObjectMeta::namespaced(set.metadata.namespace.clone(), set.metadata.name.clone()), spec, ..Pod::default() }
}

fn check_template(object: &str, claim: &NewClaim, pool: &NodePool, findings: &mut Findings) {
    let spec = &pool.spec.template.spec;
    findings.expect(claim.taints == spec.taints, object, "template", || "its taints are not those of its NodePool".into());
    findings.expect(claim.startup_taints == spec.startup_taints, object, "template", || {
        "its startup taints are not those of its NodePool".into()
    });
    findings
        .expect(claim.node_class_ref == spec.node_class_ref, object, "template", || "its node class is not that of its NodePool".into());
    for (key, value) in &pool.spec.template.metadata.labels {
        findings.expect(claim.labels.get(key) == Some(value), object, "template", || format!("label {key} of its NodePool is missing"));
    }
    for required in spec.requirements.iter().filter(|r| labels::normalized(&r.key) != labels::INSTANCE_TYPE) {
        let key = labels::normalized(&required.key);
        let listed = claim.requirements.iter().filter(|r| r.key == key && r.operator.as_str() == "In");
        for value in listed.flat_map(|r| &r.values) {
            findings.expect(kube::admits(required.operator.as_str(), &required.values, Some(value)), object, "template", || {
                format!("{key} may be {value}, which its NodePool does not allow")
            });
        }
    }
}

fn check_types<'a>(object: &str, claim: &NewClaim, group: &mut ClaimGroup<'a>, on: &[&'a Pod], sum: &Resources, findings: &mut Findings) {
    group.report(object, findings);
    for pod in on {
        for name in group.types_refusing(pod) {
            findings.add(object, "node-selector", format!("{} may not run on {name}", pod.metadata.key()));
        }
    }
    for name in group.types_too_small(sum) {
        findings.add(object, "overfull", format!("its pods and daemons do not fit {name}"));
    }
    match group.cheapest {
        None => findings.add(object, "no-offering", "none of its types has an available offering under its requirements"),
        Some(price) => findings.expect(price == claim.cheapest_price, object, "price", || {
            format!("the cheapest offering costs {price}, not {}", claim.cheapest_price)
        }),
    }
}

fn stated_min_values(claim: &NewClaim, key: &str) -> Option<u32> {
    let types = claim.instance_type_min_values.filter(|_| key == labels::INSTANCE_TYPE);
    let stated = claim.requirements.iter().filter(|r| labels::normalized(&r.key) == key).filter_map(|r| r.min_values).max();
    stated.max(types)
}

/// A claim must have the `minValues` of its NodePool. It may have lower ones only if the policy allows that and an
/// annotation says so.
fn check_min_values(object: &str, claim: &NewClaim, pool: &NodePool, policy: MinValuesPolicy, findings: &mut Findings) {
    let relaxed = policy == MinValuesPolicy::BestEffort && claim.annotations.get(labels::MIN_VALUES_RELAXED).is_some_and(|v| v == "true");
    for required in pool.spec.template.spec.requirements.iter().filter(|r| r.min_values.is_some()) {
        let key = labels::normalized(&required.key);
        let (stated, wanted) = (stated_min_values(claim, key), required.min_values.unwrap_or(0));
        // Labels that nodes receive at startup are not requirements of the claim.
        let startup_label = [labels::REGISTERED, labels::INITIALIZED].contains(&key);
        // A claim for reservations replaces the capacity type requirement, as in Karpenter.
        let reservation_replaces = key == labels::CAPACITY_TYPE && is_reserved(claim);
        let satisfied = reservation_replaces || stated.unwrap_or(0) >= wanted || relaxed && (stated.is_some() || startup_label);
        findings.expect(satisfied, object, "min-values", || {
            format!("it keeps {} values of {key}, its NodePool requires {wanted}", stated.unwrap_or(0))
        });
    }
}

/// The claim's types have as many distinct values as its `minValues` require. Where `minValues` may be relaxed, a list
/// truncated to its maximum length is not checked again, as in Karpenter.
fn check_type_variety(claim: &NewClaim, list: &TypeList<'_>, policy: MinValuesPolicy, findings: &mut Findings) {
    if policy == MinValuesPolicy::BestEffort && list.types.len() >= TYPES_MAX {
        return;
    }
    let stated = claim.requirements.iter().filter(|r| r.min_values.is_some()).map(|r| labels::normalized(&r.key));
    let of_types = claim.instance_type_min_values.map(|_| labels::INSTANCE_TYPE);
    for key in stated.chain(of_types).collect::<BTreeSet<&str>>() {
        let requirements = list.known().flat_map(|t| &t.requirements).filter(|r| labels::normalized(&r.key) == key);
        let values: BTreeSet<&String> = requirements.flat_map(|r| &r.values).collect();
        let wanted = stated_min_values(claim, key).unwrap_or(0);
        findings.expect(values.len() >= wanted as usize, "", "min-values", || {
            format!("{} distinct values of {key} remain, {wanted} are required", values.len())
        });
    }
}

/// No NodePool exceeds its limits, whichever types the claims are launched with.
fn check_limits(input: &Input<'_>, options: &Options, lists: &TypeLists<'_>, findings: &mut Findings) {
    let removed = options.simulation.as_ref().map(|s| &s.candidates);
    for pool in input.objects.node_pools.iter().filter(|p| !p.spec.limits.is_empty()) {
        let name = &pool.metadata.name;
        let pool_lists: Vec<&TypeList<'_>> = lists.all.iter().filter(|l| l.pool == name).collect();
        if pool_lists.is_empty() {
            continue;
        }
        let remaining = input.nodes.iter().filter(|n| !n.marked_for_deletion && removed.is_none_or(|g| !g.contains(n.name())));
        let here: Vec<Resources> = remaining.filter(|n| n.limited_by() == Some(name.as_str())).map(|n| n.capacity()).collect();
        for (resource, limit) in pool.spec.limits.iter() {
            let used: i128 = here.iter().map(|c| i128::from(c.get(resource).milli())).sum();
            let added: i128 = pool_lists.iter().map(|l| l.claims * i128::from(l.largest(resource).milli())).sum();
            findings
                .expect(used + added <= i128::from(limit.milli()), name, "limit", || format!("{resource} may exceed its limit of {limit}"));
        }
    }
}

/// No reservation is used by more claims than it has capacity for.
fn check_reservations(input: &Input<'_>, plan: &Plan, findings: &mut Findings) {
    let mut promised: BTreeMap<&String, u32> = BTreeMap::new();
    for claim in &plan.claims {
        let pinned = is_reserved(claim);
        let ids = claim.requirements.iter().filter(|r| r.key == labels::RESERVATION_ID && pinned).flat_map(|r| &r.values);
        ids.for_each(|id| *promised.entry(id).or_default() += 1);
    }
    for (id, count) in promised {
        let offerings = input.catalog.values().flat_map(|c| c.iter()).flat_map(|t| &t.offerings);
        let free =
            offerings.filter(|o| o.label(labels::RESERVATION_ID) == Some(id)).filter_map(|o| o.reservation_capacity).min().unwrap_or(0);
        findings.expect(count <= free, id, "reservation", || format!("used by {count} machines, has capacity for {free}"));
    }
}

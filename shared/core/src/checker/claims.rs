//! Every machine that the plan asks for.

use super::Findings;
use super::kinds::{Kind, Kinds};
use super::kube::{self, Possible};
use super::lists::{List, Lists};
use crate::schedule::{Input, MinValuesPolicy, NewClaim, Options, Plan};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::k8s::{DaemonSet, Pod, PodSpec};
use whittle_api::karpenter::{NodePool, Requirement};
use whittle_api::{ObjectMeta, labels};
use whittle_units::Resources;

/// No claim lists more instance types.
pub(crate) const TYPES_MAX: usize = 600;

pub(crate) fn check<'a>(
    input: &Input<'a>,
    options: &Options,
    plan: &'a Plan,
    lists: &Lists<'a>,
    pods: &BTreeMap<String, &'a Pod>,
    findings: &mut Findings,
) {
    let pools: BTreeMap<&str, &NodePool> = input.objects.node_pools.iter().rev().map(|p| (p.metadata.name.as_str(), p)).collect();
    let daemons: Vec<Pod> = input.objects.daemon_sets.iter().map(|set| daemon(set, &input.objects.pods)).filter(placeable).collect();
    let mut kinds = Kinds::asking(kube::asked_keys(daemons.iter().chain(pods.values().copied())));
    for (n, claim) in plan.claims.iter().enumerate() {
        let object = format!("claim {n}");
        let Some(&pool) = pools.get(claim.node_pool.as_str()) else {
            findings.add(&object, "pool-unknown", format!("there is no NodePool {}", claim.node_pool));
            continue;
        };
        let usable = pool.spec.replicas.is_none() && pool.metadata.deletion_timestamp.is_none();
        findings.expect(usable, &object, "pool-not-dynamic", || format!("NodePool {} is static or being deleted", claim.node_pool));
        template_kept(&object, claim, pool, findings);
        let on: Vec<&'a Pod> = claim.pods.iter().filter_map(|p| pods.get(&p.key()).copied()).collect();
        findings.expect(!on.is_empty(), &object, "claim-empty", || "no pod needs it".into());
        let sum = on.iter().fold(Resources::new(), |mut sum, pod| {
            sum.add(&kube::requests(pod));
            sum
        });
        let place = lists.index(n);
        let list = &lists.all[place];
        let kind = kinds.of(claim, pool, (place, list), &daemons, |wrong| variety(claim, list, options.min_values, wrong));
        min_values_said(&object, claim, pool, options.min_values, findings);
        types_hold(&object, claim, kind, &on, &sum, findings);
        for pod in &on {
            for taint in &claim.taints {
                findings
                    .expect(kube::tolerates(pod, taint), &object, "taint", || format!("{} does not tolerate {taint}", pod.metadata.key()));
            }
        }
        if let Some((a, b)) = kube::port_clash(&[], &on) {
            findings.add(&object, "host-port", format!("{} and {} want the same host port", a.metadata.key(), b.metadata.key()));
        }
        let covers = sum.iter().all(|(name, amount)| claim.requests.get(name) >= amount);
        findings.expect(covers, &object, "requests", || "the recorded requests are less than its pods ask for".into());
    }
    limits(input, options, lists, findings);
    reservations(input, plan, findings);
}

/// Dynamic resources are nobody's business here, so neither are daemons that wait for them.
fn placeable(daemon: &Pod) -> bool {
    let mut containers = daemon.spec.containers.iter().chain(&daemon.spec.init_containers);
    daemon.spec.resource_claims.is_empty() && containers.all(|c| c.resources.as_ref().is_none_or(|r| r.claims.is_empty()))
}

/// A pod as the DaemonSet would make it; where one runs already, with the containers that admission left it.
fn daemon(set: &DaemonSet, pods: &[Pod]) -> Pod {
    let mut spec: PodSpec = set.spec.template.spec.clone();
    let own = |p: &&Pod| {
        let owners = &p.metadata.owner_references;
        p.metadata.namespace == set.metadata.namespace && owners.iter().any(|o| o.kind == "DaemonSet" && o.name == set.metadata.name)
    };
    if let Some(live) = pods.iter().filter(own).max_by_key(|p| (p.metadata.creation_timestamp, &p.metadata.uid)) {
        spec.containers.clone_from(&live.spec.containers);
        spec.init_containers.clone_from(&live.spec.init_containers);
        spec.resources.clone_from(&live.spec.resources);
        spec.overhead.clone_from(&live.spec.overhead);
    }
    Pod { metadata: ObjectMeta::namespaced(set.metadata.namespace.clone(), set.metadata.name.clone()), spec, ..Pod::default() }
}

fn template_kept(object: &str, claim: &NewClaim, pool: &NodePool, findings: &mut Findings) {
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
    for asked in spec.requirements.iter().filter(|r| labels::normalized(&r.key) != labels::INSTANCE_TYPE) {
        let key = labels::normalized(&asked.key);
        let listed = claim.requirements.iter().filter(|r| r.key == key && r.operator.as_str() == "In");
        for value in listed.flat_map(|r| &r.values) {
            findings.expect(kube::admits(asked.operator.as_str(), &asked.values, Some(value)), object, "template", || {
                format!("{key} may be {value}, which its NodePool does not allow")
            });
        }
    }
}

/// Whether an instance type or offering with these requirements may serve a claim that asks for `asked`.
pub(crate) fn agrees(asked: &[Requirement], has: &[Requirement]) -> bool {
    asked.iter().all(|a| {
        let own: Vec<&Requirement> = has.iter().filter(|h| labels::normalized(&h.key) == a.key).collect();
        own.iter().all(|h| match h.operator.as_str() {
            "In" => h.values.iter().any(|v| kube::admits(a.operator.as_str(), &a.values, Some(v))),
            "DoesNotExist" => kube::admits(a.operator.as_str(), &a.values, None),
            _ => true,
        })
    })
}

/// Whether only reservations are launched for the claim.
fn holds_reservations(claim: &NewClaim) -> bool {
    claim.requirements.iter().any(|r| r.key == labels::CAPACITY_TYPE && r.values == [labels::CAPACITY_RESERVED])
}

/// What a claim asks of its types. One that holds reservations also lists types that were not reserved: they cannot be
/// launched, which is what [`launchable`] is about.
pub(crate) fn of_the_type(claim: &NewClaim) -> Vec<Requirement> {
    let of_offering =
        |r: &&Requirement| holds_reservations(claim) && [labels::CAPACITY_TYPE, labels::RESERVATION_ID].contains(&r.key.as_str());
    claim.requirements.iter().filter(|r| !of_offering(r)).cloned().collect()
}

pub(crate) fn launchable<'c>(claim: &NewClaim, t: &'c InstanceType) -> Vec<&'c Offering> {
    if !agrees(&claim.requirements, &t.requirements) {
        return Vec::new();
    }
    t.offerings.iter().filter(|o| o.available && agrees(&claim.requirements, &o.requirements)).collect()
}

fn types_hold<'a>(object: &str, claim: &NewClaim, kind: &mut Kind<'a>, on: &[&'a Pod], sum: &Resources, findings: &mut Findings) {
    kind.repeat(object, findings);
    for pod in on {
        for name in kind.refused(pod) {
            findings.add(object, "node-selector", format!("{} may not run on {name}", pod.metadata.key()));
        }
    }
    for name in kind.too_small(sum) {
        findings.add(object, "overfull", format!("its pods and daemons do not fit {name}"));
    }
    match kind.cheapest {
        None => findings.add(object, "no-offering", "none of its types has an available offering under its requirements"),
        Some(price) => findings.expect(price == claim.cheapest_price, object, "price", || {
            format!("the cheapest offering costs {price}, not {}", claim.cheapest_price)
        }),
    }
}

/// A daemon counts when it would certainly run; one that only may is the solver's guess.
pub(crate) fn runs_on(daemon: &Pod, claim: &NewClaim, possible: &Possible) -> bool {
    claim.taints.iter().all(|t| kube::tolerates(daemon, t)) && kube::node_fits(daemon, possible)
}

/// What those labels of the machine may turn out to be that somebody asks about.
pub(crate) fn possible_labels(
    claim: &NewClaim,
    pool: &NodePool,
    t: &InstanceType,
    offerings: &[&Offering],
    asked: &BTreeSet<String>,
) -> Possible {
    let mut out: Possible = BTreeMap::new();
    for (key, value) in claim.labels.iter().chain(&pool.spec.template.metadata.labels).filter(|(key, _)| asked.contains(*key)) {
        out.entry(key.clone()).or_default().insert(Some(value.clone()));
    }
    if asked.contains(labels::HOSTNAME) {
        // It will have one, and nobody can know it: no label has this value.
        out.insert(labels::HOSTNAME.to_owned(), BTreeSet::from([Some("?".to_owned())]));
    }
    for key in [labels::REGISTERED, labels::INITIALIZED].into_iter().filter(|key| asked.contains(*key)) {
        out.entry(key.to_owned()).or_default().insert(Some("true".to_owned()));
    }
    let narrowed = |key: &str, value: &str| {
        claim.requirements.iter().filter(|r| r.key == key).all(|r| kube::admits(r.operator.as_str(), &r.values, Some(value)))
    };
    for r in &t.requirements {
        let key = labels::normalized(&r.key);
        if !asked.contains(key) {
            continue;
        }
        let by_offering = offerings.iter().any(|o| o.requirements.iter().any(|x| labels::normalized(&x.key) == key));
        if r.operator.as_str() == "In" && !by_offering {
            let values = r.values.iter().filter(|v| narrowed(key, v)).cloned().map(Some);
            out.entry(key.to_owned()).or_default().extend(values);
        }
    }
    for o in offerings {
        for r in o.requirements.iter().filter(|r| r.operator.as_str() == "In" && asked.contains(labels::normalized(&r.key))) {
            let values = r.values.iter().cloned().map(Some);
            out.entry(labels::normalized(&r.key).to_owned()).or_default().extend(values);
        }
    }
    out
}

/// How many different values of `key` a claim says that it keeps.
fn said(claim: &NewClaim, key: &str) -> Option<u32> {
    let types = claim.instance_type_min_values.filter(|_| key == labels::INSTANCE_TYPE);
    let stated = claim.requirements.iter().filter(|r| labels::normalized(&r.key) == key).filter_map(|r| r.min_values).max();
    stated.max(types)
}

/// A claim asks for as many different values as its NodePool. It may ask for fewer only where the policy allows that, and has
/// to say so.
fn min_values_said(object: &str, claim: &NewClaim, pool: &NodePool, policy: MinValuesPolicy, findings: &mut Findings) {
    let lowered = policy == MinValuesPolicy::BestEffort && claim.annotations.get(labels::MIN_VALUES_RELAXED).is_some_and(|v| v == "true");
    for asked in pool.spec.template.spec.requirements.iter().filter(|r| r.min_values.is_some()) {
        let key = labels::normalized(&asked.key);
        let (said, wanted) = (said(claim, key), asked.min_values.unwrap_or(0));
        // What a machine gets while it starts is not said in its claim.
        let given = [labels::REGISTERED, labels::INITIALIZED].contains(&key);
        // Reservations take the place of what is said of capacity types, as the reference has it.
        let replaced = key == labels::CAPACITY_TYPE && holds_reservations(claim);
        let kept = replaced || said.unwrap_or(0) >= wanted || lowered && (said.is_some() || given);
        findings.expect(kept, object, "min-values", || {
            format!("it keeps {} values of {key}, its NodePool asks for {wanted}", said.unwrap_or(0))
        });
    }
}

/// The types of a claim have as many different values as it says. Where `minValues` may be lowered, a list that was cut off
/// at its largest length is not looked at again, as the reference has it.
fn variety(claim: &NewClaim, list: &List<'_>, policy: MinValuesPolicy, findings: &mut Findings) {
    if policy == MinValuesPolicy::BestEffort && list.types.len() >= TYPES_MAX {
        return;
    }
    let stated = claim.requirements.iter().filter(|r| r.min_values.is_some()).map(|r| labels::normalized(&r.key));
    let of_types = claim.instance_type_min_values.map(|_| labels::INSTANCE_TYPE);
    for key in stated.chain(of_types).collect::<BTreeSet<&str>>() {
        let own = list.known().flat_map(|t| &t.requirements).filter(|r| labels::normalized(&r.key) == key);
        let values: BTreeSet<&String> = own.flat_map(|r| &r.values).collect();
        let wanted = said(claim, key).unwrap_or(0);
        findings.expect(values.len() >= wanted as usize, "", "min-values", || {
            format!("{} different values of {key} are left, {wanted} are wanted", values.len())
        });
    }
}

/// Whatever the claims become, no NodePool may exceed its limits.
fn limits(input: &Input<'_>, options: &Options, lists: &Lists<'_>, findings: &mut Findings) {
    let gone = options.simulation.as_ref().map(|s| &s.candidates);
    for pool in input.objects.node_pools.iter().filter(|p| !p.spec.limits.is_empty()) {
        let name = &pool.metadata.name;
        let own: Vec<&List<'_>> = lists.all.iter().filter(|l| l.pool == name).collect();
        if own.is_empty() {
            continue;
        }
        let staying = input.nodes.iter().filter(|n| !n.marked_for_deletion && gone.is_none_or(|g| !g.contains(n.name())));
        let here: Vec<Resources> = staying.filter(|n| n.labels().get(labels::NODE_POOL) == Some(name)).map(|n| n.capacity()).collect();
        for (resource, limit) in pool.spec.limits.iter() {
            let used: i128 = here.iter().map(|c| i128::from(c.get(resource).milli())).sum();
            let added: i128 = own.iter().map(|l| l.claims * i128::from(l.largest(resource).milli())).sum();
            findings
                .expect(used + added <= i128::from(limit.milli()), name, "limit", || format!("{resource} may exceed its limit of {limit}"));
        }
    }
}

/// No reservation is promised to more machines than it has.
fn reservations(input: &Input<'_>, plan: &Plan, findings: &mut Findings) {
    let mut promised: BTreeMap<&String, u32> = BTreeMap::new();
    for claim in &plan.claims {
        let pinned = holds_reservations(claim);
        let ids = claim.requirements.iter().filter(|r| r.key == labels::RESERVATION_ID && pinned).flat_map(|r| &r.values);
        ids.for_each(|id| *promised.entry(id).or_default() += 1);
    }
    for (id, count) in promised {
        let offerings = input.catalog.values().flat_map(|c| c.iter()).flat_map(|t| &t.offerings);
        let free =
            offerings.filter(|o| o.label(labels::RESERVATION_ID) == Some(id)).filter_map(|o| o.reservation_capacity).min().unwrap_or(0);
        findings.expect(count <= free, id, "reservation", || format!("promised to {count} machines, has room for {free}"));
    }
}

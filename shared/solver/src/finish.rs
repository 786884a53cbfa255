//! From the decisions of a solve to the plan.

use super::affinity_check;
use super::bits::Bits;
use super::catalog::View;
use super::catalog_index::NO_PRICE;
use super::explain;
use super::hash::Map;
use super::ids::{CatalogId, ClaimId, ClassId, Id as _, IdVec, Key, PodId, PoolId, ReservationId, SetId, TypeId};
use super::intern::{Set, Vals};
use super::order;
use super::packing_run::Outcome;
use super::problem::Problem;
use super::state::Claim;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;
use whittle_api::{hashes, labels};
use whittle_model::requirements::{Allowed, Requirements, custom_labels};
use whittle_model::scheduling::{
    ClaimWhy, LeftOut, MinValuesPolicy, NewClaim, Offer, Options, Placement, Plan, PodRef, PoolRejection, Reason,
};
use whittle_units::{Price, Resources};

/// How many instance types a claim may list.
pub(crate) const TYPES_MAX: usize = 600;

/// A claim with its final requirements, before its names are written out.
struct FinalClaim {
    set: SetId,
    /// By price, then name.
    types: Vec<TypeId>,
    /// Keys whose `minValues` the kept types miss.
    short: Vec<String>,
}

/// Claims with equal keys are written out alike.
#[derive(PartialEq, Eq, Hash)]
struct ClaimKey {
    pool: PoolId,
    set: SetId,
    types: Bits,
    reservations: Vec<ReservationId>,
    /// `minValues` was lowered.
    relaxed: bool,
}

impl ClaimKey {
    fn of(claim: &Claim) -> Self {
        let Claim { pool, set, types, reservations, relaxed, .. } = claim;
        Self { pool: *pool, set: *set, types: types.clone(), reservations: reservations.clone(), relaxed: *relaxed }
    }
}

/// A claim without its pods.
struct ClaimTemplate {
    /// Keys whose `minValues` the kept types miss.
    short: Vec<String>,
    /// Its requests are those of daemons.
    claim: NewClaim,
}

/// Writes out the plan.
pub(crate) fn plan(problem: &mut Problem<'_>, options: &Options, outcome: &Outcome) -> Plan {
    let mut out = Plan { pods: problem.queue.len() + problem.refused.len(), work: outcome.work, ..Plan::default() };
    out.left_out.append(&mut problem.refused.clone());
    // Claims for equal pods were refused alike.
    let mut passed: BTreeMap<(ClassId, PoolId), Vec<PoolRejection>> = BTreeMap::new();
    let mut known: Map<ClaimKey, ClaimTemplate> = Map::default();
    for claim in in_order(problem, &outcome.state.claims) {
        let template_claim = known.entry(ClaimKey::of(claim)).or_insert_with(|| {
            let last = finalize(problem, options, claim);
            ClaimTemplate { claim: new_claim(problem, claim, &last), short: last.short }
        });
        if template_claim.short.is_empty() {
            let mut new = with_pods(problem, claim, template_claim.claim.clone());
            // No NodePool comes before the first, and simulations explain nothing.
            if let (1.., Some(first), None) = (claim.pool.position(), claim.pods.first(), &options.simulation) {
                let id = problem.class_of[*first];
                let class = Rc::clone(&problem.classes[id]);
                let rejections =
                    passed.entry((id, claim.pool)).or_insert_with(|| explain::passed_over(problem, &outcome.state, &class, claim.pool));
                new.why.passed_over.clone_from(rejections);
            }
            out.claims.push(new);
        } else {
            let node_pool = problem.pools[claim.pool].source.metadata.name.clone();
            let reason = Reason::Truncated { node_pool, labels: template_claim.short.clone() };
            out.left_out.extend(claim.pods.iter().map(|pod| left_out(problem, *pod, reason.clone())));
        }
    }
    // Computed on demand: few questions need it, and a cluster has many nodes.
    let deleted_nodes: LazyCell<BTreeSet<&str>, _> = LazyCell::new(|| {
        let leaving = problem.state_nodes.iter().filter(|node| node.marked_for_deletion);
        leaving.filter_map(|node| Some(node.node.as_ref()?.metadata.name.as_str())).collect()
    });
    for (machine, now) in outcome.state.filled() {
        let node = problem.node(machine);
        // In a simulation, only pods of nodes that are being deleted may wait for a node that has not initialized.
        let waits = |pod: &Pod| options.simulation.is_none() || node.initialized() || deleted_nodes.contains(pod.spec.node_name.as_str());
        let (kept, refused): (Vec<&Pod>, Vec<&Pod>) = now.pods.iter().map(|n| problem.pods[*n]).partition(|pod| waits(pod));
        let reason = Reason::Uninitialized { node: node.name().to_owned() };
        out.left_out.extend(refused.into_iter().map(|pod| LeftOut { pod: PodRef::of(pod), reason: reason.clone() }));
        let mut pods: Vec<PodRef> = kept.into_iter().map(PodRef::of).collect();
        pods.sort();
        if !pods.is_empty() {
            out.placements.push(Placement { node: node.name().to_owned(), initialized: node.initialized(), pods });
        }
    }
    if options.simulation.is_some() {
        out.apart = affinity_check::misplaced(problem, &outcome.state).into_iter().map(|pod| PodRef::of(problem.pods[pod])).collect();
    }
    out.unusable_pools = explain::unusable_pools(problem);
    let reasons = explain::reasons(problem, outcome, &out.unusable_pools);
    out.left_out.extend(reasons.into_iter().map(|(pod, reason)| left_out(problem, pod, reason)));
    out.left_out
        .extend(outcome.unconsidered.iter().map(|entry| LeftOut { pod: PodRef::of(problem.pods[entry.pod]), reason: Reason::OutOfBudget }));
    out.placements.sort_by(|a, b| a.node.cmp(&b.node));
    out.left_out.sort_by(|a, b| a.pod.cmp(&b.pod));
    out
}

/// By NodePool, then by first pod.
fn in_order<'c>(problem: &Problem<'_>, claims: &'c IdVec<ClaimId, Claim>) -> Vec<&'c Claim> {
    let key = |claim: &Claim| {
        let first = claim.pods.iter().map(|pod| by_name(problem.pods[*pod])).min();
        (problem.pools[claim.pool].source.metadata.name.as_str(), first)
    };
    let mut out: Vec<_> = claims.iter().map(|claim| (key(claim), claim)).collect();
    out.sort_by_key(|(key, _)| *key);
    out.into_iter().map(|(_, claim)| claim).collect()
}

/// The order of pods, equal to that of their [`PodRef`]s.
fn by_name(pod: &Pod) -> (&str, &str, &str) {
    (&pod.metadata.namespace, &pod.metadata.name, &pod.metadata.uid)
}

fn left_out(problem: &Problem<'_>, pod: PodId, reason: Reason) -> LeftOut {
    LeftOut { pod: PodRef::of(problem.pods[pod]), reason }
}

fn finalize(problem: &mut Problem<'_>, options: &Options, claim: &Claim) -> FinalClaim {
    let mut set = problem.sets.get(claim.set).clone();
    if !claim.reservations.is_empty() {
        set.replace(problem.key.capacity_type, Allowed::one(problem.key.reserved));
        let ids: Vec<String> = claim.reservations.iter().map(|h| problem.reservations.ids[*h].clone()).collect();
        let ids: Vec<_> = ids.iter().map(|id| problem.names.val(id)).collect();
        set.add(problem.key.reservation, Allowed::one_of(ids));
    }
    let set = problem.sets.id(set);
    let catalog_at = problem.pools[claim.pool].catalog;
    let view = problem.view(catalog_at, set);
    let catalog = &problem.catalogs[catalog_at];
    let mut priced: Vec<(u64, TypeId)> = Vec::new();
    // Ties keep the order of the groups: Karpenter's is random, here the larger daemon share comes first.
    let mut groups: Vec<_> = problem.pools[claim.pool].daemons.iter().collect();
    groups.sort_by(|a, b| b.overhead.cmp(&a.overhead));
    for group in groups {
        let mut listed: Vec<TypeId> = group.types.iter().filter(|t| claim.types.has(*t)).collect();
        listed.sort_by_key(|t| catalog.place[*t]);
        priced.extend(listed.into_iter().map(|t| (view.price[t], t)));
    }
    order::with_ties(&mut priced);
    let mut types: Vec<TypeId> = priced.into_iter().map(|(_, t)| t).collect();
    let mut short = Vec::new();
    if types.len() > TYPES_MAX {
        types.truncate(TYPES_MAX);
        if options.min_values == MinValuesPolicy::Strict {
            let mut kept = Bits::none(catalog.len());
            types.iter().for_each(|t| kept.insert(*t));
            let missed = view.min_values.iter().filter(|(key, wanted)| catalog.distinct(*key, &kept) < *wanted);
            short = missed.map(|(key, _)| problem.names.key_name(*key).to_owned()).collect();
        }
    }
    FinalClaim { set, types, short }
}

/// The capacity types and the number of the available offerings that a claim can be launched from.
fn offerings(problem: &Problem<'_>, catalog: CatalogId, view: &View, types: &[TypeId]) -> (BTreeSet<String>, usize) {
    let mut capacity_types = BTreeSet::new();
    let mut count = 0;
    for kind in view.kinds.iter().map(|k| &problem.catalogs[catalog].kinds[*k]) {
        let here = types.iter().filter(|t| kind.available.has(**t)).count();
        if here > 0 {
            capacity_types.insert(kind.capacity_type.clone());
        }
        count += here;
    }
    (capacity_types, count)
}

fn with_pods(problem: &Problem<'_>, claim: &Claim, mut out: NewClaim) -> NewClaim {
    for pod in &claim.pods {
        out.requests.add(&problem.classes[problem.class_of[*pod]].resources);
    }
    let mut pods: Vec<&Pod> = claim.pods.iter().map(|n| problem.pods[*n]).collect();
    pods.sort_by_key(|pod| by_name(pod));
    out.pods = pods.into_iter().map(PodRef::of).collect();
    out
}

fn new_claim(problem: &mut Problem<'_>, claim: &Claim, last: &FinalClaim) -> NewClaim {
    let catalog_at = problem.pools[claim.pool].catalog;
    let view = problem.view(catalog_at, last.set);
    let (capacity_types, offerings) = offerings(problem, catalog_at, &view, &last.types);
    let mut reqs = problem.names.spell(problem.sets.get(last.set));
    for only_while_scheduling in [labels::REGISTERED, labels::INITIALIZED] {
        reqs.remove(only_while_scheduling);
    }
    if !capacity_types.is_empty() {
        reqs.add(labels::CAPACITY_TYPE.to_owned(), Allowed::one_of(capacity_types));
    }
    let instance_types = reqs.remove(labels::INSTANCE_TYPE);
    let pool = &problem.pools[claim.pool];
    let spec = &pool.source.spec.template.spec;
    let cheapest = last.types.first().map_or(NO_PRICE, |t| view.price[*t]);
    NewClaim {
        node_pool: pool.source.metadata.name.clone(),
        instance_types: last.types.iter().map(|t| problem.catalogs[catalog_at].names[*t].clone()).collect(),
        instance_type_min_values: instance_types.and_then(|a| a.min_values()),
        labels: claim_labels(problem, claim.pool, &reqs),
        annotations: annotations(pool.source, claim),
        requirements: reqs.to_api(),
        taints: spec.taints.clone(),
        startup_taints: spec.startup_taints.clone(),
        node_class_ref: spec.node_class_ref.clone(),
        expire_after: spec.expire_after.clone(),
        termination_grace_period: spec.termination_grace_period.clone(),
        requests: daemons(problem, claim, &last.types),
        pods: Vec::new(),
        cheapest_price: Price::from_nanos(if cheapest == NO_PRICE { 0 } else { cheapest }),
        offerings,
        why: why(problem, claim, last, &view),
    }
}

/// Template labels, and one value for each custom key on which the claim has several.
fn claim_labels(problem: &Problem<'_>, pool: PoolId, reqs: &Requirements) -> BTreeMap<String, String> {
    let is_known = |key: &str| problem.names.known_key(key).is_some_and(|k| problem.well_known.contains(&k));
    let mut out = custom_labels(reqs, is_known);
    out.extend(problem.pools[pool].labels.clone());
    out
}

fn annotations(pool: &NodePool, claim: &Claim) -> BTreeMap<String, String> {
    let mut out = pool.spec.template.metadata.annotations.clone();
    // The hash of the NodePool as this pass sees it: later edits show as drift.
    out.insert(labels::NODE_POOL_HASH.to_owned(), hashes::node_pool(pool));
    out.insert(labels::NODE_POOL_HASH_VERSION.to_owned(), hashes::NODE_POOL_VERSION.to_owned());
    out.insert(labels::MIN_VALUES_RELAXED.to_owned(), claim.relaxed.to_string());
    out
}

/// The smallest requests of daemons on any of its types.
fn daemons(problem: &Problem<'_>, claim: &Claim, types: &[TypeId]) -> Resources {
    let groups = problem.pools[claim.pool].daemons.iter().filter(|g| types.iter().any(|t| g.types.has(*t)));
    let mut least: Option<Resources> = None;
    for group in groups {
        least = Some(match least {
            None => group.resources.clone(),
            Some(so_far) => so_far
                .iter()
                .filter(|(n, _)| group.resources.0.contains_key(*n))
                .map(|(n, a)| (n.to_owned(), a.min(group.resources.get(n))))
                .collect(),
        });
    }
    least.unwrap_or_default()
}

/// An offering of a claim, in the order in which offerings are compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Offered<'c> {
    price: u64,
    zone: &'c str,
    instance_type: &'c str,
    capacity_type: &'c str,
}

fn why(problem: &Problem<'_>, claim: &Claim, last: &FinalClaim, view: &View) -> ClaimWhy {
    let catalog = &problem.catalogs[problem.pools[claim.pool].catalog];
    let priced = |t: &TypeId| (view.price[*t] != NO_PRICE).then(|| Price::from_nanos(view.price[*t]));
    // The two cheapest of all offerings are among those of the two cheapest types; equals are ordered by zone, then capacity
    // type.
    let mut offers: Vec<Offered<'_>> = Vec::new();
    for kind in view.kinds.iter().map(|k| &catalog.kinds[*k]) {
        let had = last.types.iter().take(2).filter(|t| kind.available.has(**t));
        offers.extend(had.map(|t| Offered {
            price: kind.price[*t],
            zone: &kind.zone,
            instance_type: &catalog.names[*t],
            capacity_type: &kind.capacity_type,
        }));
    }
    let first = last.types.first().map(|t| catalog.names[*t].as_str());
    offers.sort_unstable_by_key(|offer| (offer.price, Some(offer.instance_type) != first, *offer));
    let offer = |at: usize| {
        offers.get(at).map(|offer| Offer {
            instance_type: offer.instance_type.to_owned(),
            zone: offer.zone.to_owned(),
            capacity_type: offer.capacity_type.to_owned(),
            price: Price::from_nanos(offer.price),
        })
    };
    let (cheapest, next_offer) = (offer(0), offer(1));
    let next_best = last.types.get(1).and_then(|t| Some((catalog.names[*t].clone(), priced(t)?)));
    let template: &Set = problem.sets.get(problem.pools[claim.pool].set);
    // A spread writes down all zones that there are, and excludes none.
    let excludes = |key: &Key, allowed: &Vals| {
        let is_list = allowed.members().is_some_and(|values| 1 < values.len());
        let values = is_list.then(|| catalog.values(*key, &Bits::all(catalog.len()))).flatten().unwrap_or_default();
        let before = template.get(key);
        values.is_empty() || values.iter().any(|value| before.is_none_or(|own| own.has(value)) && !allowed.has(value))
    };
    let narrowed = problem
        .sets
        .get(last.set)
        .iter()
        .filter(|(key, allowed)| template.get(*key) != Some(*allowed) && excludes(key, allowed))
        .map(|(key, allowed)| format!("{} {}", problem.names.key_name(*key), problem.names.spell_vals(allowed)))
        .collect();
    ClaimWhy { passed_over: Vec::new(), cheapest, next_offer, next_best, narrowed }
}

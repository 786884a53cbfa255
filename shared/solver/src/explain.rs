//! Why a pod has no place: determined once, at the end, since failures are common and rarely shown.

use super::bits::Bits;
use super::fit::FitError;
use super::ids::{CatalogId, ClassId, DimId, GroupId, IdVec, Key, PodId, PoolId, SetId, TypeId};
use super::intern::{LabelsOf, Set, Vals};
use super::limits;
use super::meant;
use super::packing_run::Outcome;
use super::pod::{Class, Relaxation};
use super::pools::{Template, UnusablePool};
use super::problem::Problem;
use super::state::State;
use super::topology::{AllowedDomains, GroupKind, TopologyQuery, TopologyTarget};
use std::collections::BTreeMap;
use std::rc::Rc;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::pods::{self, HostPort};
use whittle_model::requirements::{Allowed, Conflict, Operator};
use whittle_model::scheduling::{Cause, Finding, LimitLeft, NearestMiss, PoolRejection, PortTaken, Reason, RuledOut, Unready, meant_key};
use whittle_units::{Quantity, Resources};

/// After this many rejections by NodePools, further classes only get that of the first NodePool: the reasons of twenty thousand
/// different pods would take half a gigabyte.
const REASONS_MAX: usize = 20_000;

/// The reason of each unplaced pod. Pods of a class share theirs.
pub(crate) fn reasons(problem: &mut Problem<'_>, outcome: &Outcome, unusable: &[PoolRejection]) -> Vec<(PodId, Reason)> {
    let mut known: BTreeMap<(ClassId, bool), Reason> = BTreeMap::new();
    let mut out = Vec::with_capacity(outcome.unplaced.len());
    let mut explained = 0;
    for (entry, error) in &outcome.unplaced {
        let reserved = matches!(error, Some(FitError::Reserved { .. }));
        let reason = match known.get(&(entry.class, reserved)) {
            Some(reason) => reason.clone(),
            None => {
                let class = Rc::clone(&problem.classes[entry.class]);
                let pools = if explained < REASONS_MAX { problem.pools.len() } else { 1 };
                let reason = reason(problem, &outcome.state, &class, *error, unusable, pools);
                explained += if let Reason::Pools(rejections) = &reason { rejections.len() } else { 1 };
                known.insert((entry.class, reserved), reason.clone());
                reason
            }
        };
        out.push((entry.pod, reason));
    }
    out
}

/// Why NodePools have no usable type: their own requirements, without any pod.
pub(crate) fn unusable_pools(problem: &mut Problem<'_>) -> Vec<PoolRejection> {
    let unusable = problem.unusable_pools.clone();
    unusable.iter().map(|pool| explain_unusable(problem, pool)).collect()
}

fn explain_unusable(problem: &mut Problem<'_>, pool: &UnusablePool<'_>) -> PoolRejection {
    let Some(Template { catalog: at, set, .. }) = pool.template else {
        let class = &pool.source.spec.template.spec.node_class_ref;
        let why = Unready::of(pool.source, problem.objects);
        let cause = Cause::NothingOffered { node_class: format!("{} {:?}", class.kind, class.name), why };
        return PoolRejection::of(pool.source, cause);
    };
    let view = problem.view(at, set);
    let all = Bits::all(problem.catalogs[at].len());
    let requirements = problem.names.spell(problem.sets.get(set));
    let cause = if view.usable.is_empty() {
        let checks: Vec<TypeCheck> =
            all.iter().map(|t| TypeCheck { met: view.met.has(t), fits: true, offered: view.offered.has(t) }).collect();
        Cause::InstanceTypes {
            finding: finding(&checks, Quantity::ZERO),
            requirements,
            resources: Resources::new(),
            daemons: Resources::new(),
            port: None,
        }
    } else {
        let catalog = &problem.catalogs[at];
        let short = view.min_values.iter().filter(|(key, wanted)| catalog.distinct(*key, &view.usable) < *wanted);
        let labels = short.map(|(key, _)| problem.names.key_name(*key).to_owned()).collect();
        Cause::MinValues { labels, requirements, resources: Resources::new() }
    };
    let ruled_out = ruled_out(problem, at, set, &all, &all, &view.offered);
    let meant = meant::by_node_pool(problem, at, set);
    PoolRejection { ruled_out, meant, ..PoolRejection::of(pool.source, cause) }
}

/// Why there is no NodePool to create nodes: those that are there are not ready, or there is none.
pub(crate) fn no_node_pools(problem: &Problem<'_>) -> Reason {
    let pools = problem.objects.node_pools.iter().filter(|pool| !pool.is_static() && !pool.metadata.is_deleting());
    let rejection = |pool: &NodePool| {
        let cause = Cause::Unready(Unready::of(pool, problem.objects)?);
        Some(PoolRejection::of(pool, cause))
    };
    let mut unready: Vec<PoolRejection> = pools.filter_map(rejection).collect();
    unready.sort_by(|a, b| a.node_pool.cmp(&b.node_pool));
    if unready.is_empty() { Reason::NoNodePools } else { Reason::Pools(unready) }
}

/// Why no NodePool has a place for the pods of a class, explained by the first `pools` of them.
fn reason(
    problem: &mut Problem<'_>,
    state: &State,
    class: &Class,
    error: Option<FitError>,
    unusable: &[PoolRejection],
    pools: usize,
) -> Reason {
    if !problem.any_pool {
        return no_node_pools(problem);
    }
    if class.resource_claims {
        return Reason::ResourceClaims;
    }
    match error {
        Some(FitError::Reserved { lost: true }) => return Reason::Reserved(Cause::ReservedLost),
        Some(FitError::Reserved { lost: false }) => return Reason::Reserved(Cause::ReservedUnavailable),
        _ => {}
    }
    if problem.pools.is_empty() {
        // It is not their requirements that leave no instance type.
        let unready = unusable.iter().all(|pool| pool.cause.unready().is_some());
        return if unready { Reason::Pools(unusable.to_vec()) } else { Reason::NoTemplates(unusable.to_vec()) };
    }
    let relaxation = class.relaxations.last().expect("a class has at least one relaxation");
    let unusable = if pools < problem.pools.len() { &[] } else { unusable };
    let explained = problem.pools.ids().take(pools).map(|pool| {
        explain_pool(problem, state, class, relaxation, pool).unwrap_or_else(|| {
            let source = problem.pools[pool].source;
            PoolRejection::of(source, resolved_since(state, pool, &source.metadata.name))
        })
    });
    Reason::Pools(explained.chain(unusable.iter().cloned()).collect())
}

/// The cause for a NodePool that could take the pod at the end of the pass.
fn resolved_since(state: &State, pool: PoolId, node_pool: &str) -> Cause {
    let has_limits = state.node_limits[pool].is_some() || state.limits[pool].iter().any(Option::is_some);
    if has_limits { Cause::LimitsExceeded { node_pool: node_pool.to_owned() } } else { Cause::TransientDuringPass }
}

/// Why the NodePool cannot create a machine for the pod alone at this point; `None` if it can.
fn explain_pool(problem: &mut Problem<'_>, state: &State, class: &Class, relaxation: &Relaxation, pool: PoolId) -> Option<PoolRejection> {
    let source = problem.pools[pool].source;
    let node_pool = &source.metadata.name;
    let plain = |cause| PoolRejection::of(source, cause);
    if state.node_limits[pool].is_some_and(|left| left < 1000) {
        return Some(plain(Cause::NodeLimit { node_pool: node_pool.clone() }));
    }
    let Some(types) = limits::allowed_types(problem, state, pool) else {
        let limits = limits_left(problem, state, pool);
        return Some(PoolRejection { limits, ..plain(Cause::LimitsExceeded { node_pool: node_pool.clone() }) });
    };
    let tolerations = &problem.taint_table.tolerations[relaxation.tolerations];
    let untolerated = pods::untolerated(tolerations, &problem.taint_table.taints[problem.pools[pool].taints]);
    if !untolerated.is_empty() {
        return Some(plain(Cause::Taints(untolerated)));
    }
    let template = problem.pools[pool].set;
    let asks_unknown = |problem: &mut Problem<'_>| meant::by_pod(problem, pool, relaxation.full);
    if let Err(cause) = check_compatible(problem, template, relaxation.full, relaxation.host.as_ref()) {
        return Some(PoolRejection { meant: asks_unknown(problem), ..plain(cause) });
    }
    let merged = problem.merge(template, relaxation.full, LabelsOf::NewNode).unwrap_or(template);
    let mut cause = None;
    for at in 0..class.places.len().max(1) {
        let mut set = merged;
        if let Some(place) = class.places.get(at) {
            if let Err(inner) = check_compatible(problem, merged, place.set, place.host.as_ref()) {
                cause = Some(plain(Cause::Volumes(Box::new(inner))));
                continue;
            }
            set = problem.merge(merged, place.set, LabelsOf::NewNode).unwrap_or(merged);
        }
        match in_topology(problem, state, relaxation, set) {
            Err(topology) => cause = Some(plain(topology)),
            Ok(set) => {
                let (found, mut ruled_out, nearest) = explain_types(problem, class, pool, &types, set)?;
                if let Some(place) = class.places.get(at) {
                    mark_volumes(problem, place.set, &mut ruled_out);
                }
                let all = problem.pools[pool].types.clone();
                let limited = types.count() < all.count() && explain_types(problem, class, pool, &all, set).is_none();
                let limits = if limited { limits_left(problem, state, pool) } else { Vec::new() };
                cause = Some(PoolRejection { ruled_out, nearest, limits, meant: asks_unknown(problem), ..plain(found) });
            }
        }
    }
    cause
}

/// Marks the constraints that say where a volume of the pod is.
fn mark_volumes(problem: &Problem<'_>, place: SetId, ruled_out: &mut [RuledOut]) {
    for (key, _) in problem.sets.get(place).iter() {
        let key = problem.names.key_name(*key);
        for ruled in &mut *ruled_out {
            ruled.of_volume |= ruled.constraint.strip_prefix(key).is_some_and(|rest| rest.starts_with(' '));
        }
    }
}

/// What remains of each limit of the NodePool that excludes instance types.
fn limits_left(problem: &Problem<'_>, state: &State, pool: PoolId) -> Vec<LimitLeft> {
    let catalog = &problem.catalogs[problem.pools[pool].catalog];
    let all = &problem.pools[pool].types;
    let left = state.limits[pool].enumerate().filter_map(|(dim, left)| Some((dim, (*left)?)));
    let excluding = left.map(|(dim, left)| {
        let mut kept = all.clone();
        catalog.keep_no_larger(dim, left, &mut kept);
        LimitLeft { resource: problem.dims.names[dim].clone(), left: Quantity::from_milli(left), types: all.count() - kept.count() }
    });
    excluding.filter(|limit| limit.types > 0).collect()
}

/// Why the NodePools before `pool` cannot take the pod, without its preferences: what a preference alone rules out is not the
/// NodePool's fault.
pub(crate) fn passed_over(problem: &mut Problem<'_>, state: &State, class: &Class, pool: PoolId) -> Vec<PoolRejection> {
    let relaxation = class.relaxations.last().expect("a class has at least one relaxation");
    problem
        .pools
        .ids()
        .take_while(|earlier| *earlier < pool)
        .filter_map(|earlier| explain_pool(problem, state, class, relaxation, earlier))
        .collect()
}

/// Whether the offered requirements are compatible with the required ones, with the cause if not.
fn check_compatible(problem: &Problem<'_>, offered: SetId, required: SetId, host: Option<&Vals>) -> Result<(), Cause> {
    let (a, b) = (problem.sets.get(offered), problem.sets.get(required));
    let text_of = |set: &Set, key| set.get(key).map_or_else(|| "Exists".to_owned(), |v| problem.names.spell_vals(v).text());
    let is_negated = |k: &Key| b.get(k).is_some_and(|wanted| wanted.operator() == Operator::NotIn);
    if let Err(conflict) = a.compatible(b, |k| problem.well_known.contains(k) || is_negated(k)) {
        return Err(match conflict {
            Conflict::Undefined(key) => {
                let key = problem.names.key_name(key).to_owned();
                let meant = probably_meant(problem, a, &key);
                Cause::UndefinedLabel { key, meant }
            }
            Conflict::Disjoint(keys) => {
                Cause::Disjoint(keys.iter().map(|k| (problem.names.key_name(*k).to_owned(), text_of(b, k), text_of(a, k))).collect())
            }
        });
    }
    match host {
        Some(wanted) if !matches!(wanted.operator(), Operator::Exists | Operator::NotIn) => {
            let required = problem.names.spell_vals(wanted).text();
            Err(Cause::Disjoint(vec![(labels::HOSTNAME.to_owned(), required, "of a new node".to_owned())]))
        }
        _ => Ok(()),
    }
}

/// The label that was probably meant by `key`: one that contains it or has the same end, preferably one with the same name
/// after the slash; else one that differs by a typing error.
fn probably_meant(problem: &Problem<'_>, offered: &Set, key: &str) -> Option<String> {
    let tail = key.split_once('/').map_or(key, |(_, tail)| tail);
    let is_similar = |name: &str| name.contains(key) || name.ends_with(tail);
    let mut known: Vec<&str> = problem.well_known.iter().map(|k| problem.names.key_name(*k)).collect();
    known.sort_unstable_by_key(|name| (name.split_once('/').is_none_or(|(_, last)| last != tail), *name));
    let own = offered.iter().map(|(k, _)| problem.names.key_name(*k));
    known.into_iter().chain(own).find(|name| is_similar(name)).or_else(|| meant_key(key)).map(str::to_owned)
}

/// The requirements after topology, or the group that refuses.
fn in_topology(problem: &mut Problem<'_>, state: &State, relaxation: &Relaxation, set: SetId) -> Result<SetId, Cause> {
    let mut allowed_domains: Vec<AllowedDomains> = Vec::new();
    let query = TopologyQuery { groups: &problem.groups, counts: &state.counts, sets: &problem.sets };
    if let Err(refused) = query.check(relaxation, TopologyTarget { host: None, set }, &mut allowed_domains) {
        return Err(topology_cause(problem, state, relaxation, set, refused.group));
    }
    let mut out = set;
    for domains in &allowed_domains {
        if problem.sets.get(set).get(&domains.key).is_none() && !problem.well_known.contains(&domains.key) {
            let key = problem.names.key_name(domains.key).to_owned();
            return Err(Cause::UndefinedLabel { meant: probably_meant(problem, problem.sets.get(set), &key), key });
        }
        let allowed = if domains.pick { Allowed::one(domains.vals[0]) } else { Allowed::one_of(domains.vals.iter().copied()) };
        out = problem.sets.narrow(out, domains.key, &allowed);
    }
    Ok(out)
}

fn topology_cause(problem: &Problem<'_>, state: &State, relaxation: &Relaxation, set: SetId, id: GroupId) -> Cause {
    let group = &problem.groups[id];
    let counts = &state.counts[id];
    let text_of =
        |set: SetId| problem.sets.get(set).get(&group.key).map_or_else(|| "Exists".to_owned(), |v| problem.names.spell_vals(v).text());
    Cause::Topology {
        kind: match group.kind {
            GroupKind::Spread { .. } => "topology spread",
            GroupKind::Affinity => "pod affinity",
            GroupKind::Anti | GroupKind::Inverse => "pod anti-affinity",
        },
        key: problem.names.key_name(group.key).to_owned(),
        counts: counts.domains.iter().map(|(v, n)| (problem.names.val_name(*v).to_owned(), *n)).collect(),
        pod_domains: text_of(relaxation.strict),
        node_domains: text_of(set),
    }
}

/// What the instance types lack, how many each constraint rules out, and the nearest miss; `None` if some type fits.
fn explain_types(
    problem: &mut Problem<'_>,
    class: &Class,
    pool: PoolId,
    types: &Bits,
    set: SetId,
) -> Option<(Cause, Vec<RuledOut>, Option<NearestMiss>)> {
    let at = problem.pools[pool].catalog;
    let view = problem.view(at, set);
    let daemon_fit = DaemonFit::of(problem, class, pool, types);
    let catalog = &problem.catalogs[at];
    let mut both = daemon_fit.fitting.clone();
    both.intersect_with(&view.usable);
    let requirements = problem.names.spell(problem.sets.get(set));
    let resources = class.resources.clone();
    let short: Vec<String> = view
        .min_values
        .iter()
        .filter(|(key, wanted)| catalog.distinct(*key, &both) < *wanted)
        .map(|(key, _)| problem.names.key_name(*key).to_owned())
        .collect();
    if !both.is_empty() {
        let unmet = !short.is_empty();
        return unmet.then(|| (Cause::MinValues { labels: short, requirements, resources }, Vec::new(), None));
    }
    // As in Karpenter, types whose daemons use a host port of the pod are not considered at all.
    let considered: Vec<TypeId> = types.iter().filter(|t| !daemon_fit.clashing.has(*t)).collect();
    let check = |t: &TypeId| TypeCheck { met: view.met.has(*t), fits: daemon_fit.fitting.has(*t), offered: view.offered.has(*t) };
    let checks: Vec<TypeCheck> = considered.iter().map(check).collect();
    let finding = finding(&checks, class.resources.get("cpu"));
    let nearest = daemon_fit.nearest_miss(problem, class, &view.usable, at);
    let mut ruled_out = ruled_out(problem, at, set, types, &daemon_fit.room, &view.offered);
    let port = daemon_fit.port.map(|(wanted, taken)| PortTaken {
        wanted: wanted.to_string(),
        taken: taken.to_string(),
        types: daemon_fit.clashing.count(),
        of: types.count(),
    });
    if let Some(port) = &port {
        ruled_out.push(RuledOut {
            constraint: format!("host port {}, which a daemon has,", port.wanted),
            types: port.types,
            of: port.of,
            of_volume: false,
        });
        ruled_out.sort_by_key(|r| std::cmp::Reverse(r.types));
    }
    Some((
        Cause::InstanceTypes { finding, requirements, resources, daemons: daemon_fit.daemons, port: port.map(Box::new) },
        ruled_out,
        nearest,
    ))
}

/// How a pod fits together with the daemons of a NodePool's types.
struct DaemonFit {
    /// Types whose daemons use a host port of the pod.
    clashing: Bits,
    port: Option<(HostPort, HostPort)>,
    /// Types with room for the pod and their daemons.
    room: Bits,
    /// Those of them without port conflicts.
    fitting: Bits,
    groups: Vec<TypesWithDaemons>,
    /// The smallest requests of daemons without port conflicts.
    daemons: Resources,
}

/// Types with the same daemons, and what those request.
struct TypesWithDaemons {
    types: Bits,
    overhead: IdVec<DimId, i64>,
}

impl DaemonFit {
    fn of(problem: &Problem<'_>, class: &Class, pool: PoolId, types: &Bits) -> Self {
        let catalog = &problem.catalogs[problem.pools[pool].catalog];
        let none = || Bits::none(catalog.len());
        let mut out = Self { clashing: none(), port: None, room: none(), fitting: none(), groups: Vec::new(), daemons: Resources::new() };
        let mut least: Option<Resources> = None;
        for group in &problem.pools[pool].daemons {
            let mut some = types.clone();
            some.intersect_with(&group.types);
            if some.is_empty() {
                continue;
            }
            let clash = class.ports.iter().find_map(|w| group.ports.iter().find(|t| w.conflicts_with(t)).map(|t| (w.clone(), t.clone())));
            let need: Vec<i64> = class.requests.iter().zip(&group.overhead).map(|(want, over)| want.saturating_add(*over)).collect();
            let mut fits = some.clone();
            catalog.keep_fitting(&need, &mut fits);
            out.room.union_with(&fits);
            if clash.is_some() {
                out.clashing.union_with(&some);
                out.port = out.port.or(clash);
            } else {
                out.fitting.union_with(&fits);
                least = Some(least.map_or_else(|| group.resources.clone(), |so_far| smaller(&so_far, &group.resources)));
            }
            out.groups.push(TypesWithDaemons { types: some, overhead: group.overhead.clone() });
        }
        out.daemons = least.unwrap_or_default();
        out
    }

    /// The first resource of which even the largest type, among those allowed otherwise, has too little.
    fn nearest_miss(&self, problem: &Problem<'_>, class: &Class, usable: &Bits, catalog: CatalogId) -> Option<NearestMiss> {
        let catalog = &problem.catalogs[catalog];
        for (dim, wanted) in class.requests.enumerate().filter(|(_, n)| **n > 0) {
            let net = |t: TypeId, over: &IdVec<DimId, i64>| catalog.allocatable[t][dim].saturating_sub(over[dim]);
            let candidates = self.groups.iter().flat_map(|group| group.types.iter().map(move |t| (t, &group.overhead)));
            let allowed = candidates.filter(|(t, _)| usable.has(*t) && !self.clashing.has(*t));
            let (largest, over) = allowed.max_by_key(|(t, over)| (net(*t, over), std::cmp::Reverse(&catalog.names[*t])))?;
            if net(largest, over) < *wanted {
                return Some(NearestMiss {
                    resource: problem.dims.names[dim].clone(),
                    needed: Quantity::from_milli(wanted.saturating_add(over[dim])),
                    largest: Quantity::from_milli(catalog.allocatable[largest][dim]),
                    instance_type: catalog.names[largest].clone(),
                });
            }
        }
        None
    }
}

/// The resources in both lists, with the smaller amount.
fn smaller(a: &Resources, b: &Resources) -> Resources {
    a.iter().filter(|(name, _)| b.0.contains_key(*name)).map(|(name, amount)| (name.to_owned(), amount.min(b.get(name)))).collect()
}

/// What an instance type has: its requirements met, enough resources, an available offering.
struct TypeCheck {
    met: bool,
    fits: bool,
    offered: bool,
}

/// The finding that describes what the types lack.
fn finding(checks: &[TypeCheck], cpu: Quantity) -> Finding {
    let any = |holds: fn(&TypeCheck) -> bool| checks.iter().any(holds);
    let (met, fits, offered) = (any(|t| t.met), any(|t| t.fits), any(|t| t.offered));
    match (met, fits, offered) {
        (false, false, false) => Finding::Nothing,
        (false, false, _) => Finding::NoRequirementsNoResources,
        (false, _, false) => Finding::NoRequirementsNoOffering,
        (_, false, false) => Finding::NoResourcesNoOffering,
        (false, _, _) => Finding::NoRequirements,
        (_, false, _) => Finding::NoResources { absurd_cpu: cpu >= Quantity::from_units(1_000_000) },
        (_, _, false) => Finding::NoOffering,
        _ if any(|t| t.met && t.fits && !t.offered) => Finding::FitWithoutOffering,
        _ if any(|t| t.fits && t.offered && !t.met) => Finding::FitWithoutRequirements,
        _ if any(|t| t.met && t.offered && !t.fits) => Finding::OfferedWithoutFit,
        _ => Finding::NeverAllThree,
    }
}

fn ruled_out(problem: &mut Problem<'_>, catalog: CatalogId, set: SetId, types: &Bits, fitting: &Bits, offered: &Bits) -> Vec<RuledOut> {
    let all = problem.catalogs[catalog].len();
    let of = types.count();
    let mut out = Vec::new();
    let entries: Vec<_> = problem.sets.get(set).iter().map(|(k, v)| (*k, v.clone().with_min_values(None))).collect();
    for (key, allowed) in entries {
        let left = problem.catalogs[catalog].compatible_count(key, &allowed);
        if left < all {
            let constraint = format!("{} {}", problem.names.key_name(key), problem.names.spell_vals(&allowed));
            out.push(RuledOut { constraint, types: all - left, of: all, of_volume: false });
        }
    }
    for (constraint, left) in [("resources", fitting), ("available offerings", offered)] {
        let mut kept = types.clone();
        kept.intersect_with(left);
        if kept.count() < of {
            out.push(RuledOut { constraint: constraint.to_owned(), types: of - kept.count(), of, of_volume: false });
        }
    }
    out.sort_by(|a, b| (b.types, &a.constraint).cmp(&(a.types, &b.constraint)));
    out
}

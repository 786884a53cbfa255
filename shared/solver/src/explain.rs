//! Why a pod has no place: determined once, at the end, since failures are common and rarely shown.

use super::alone::DaemonFit;
use super::bits::Bits;
use super::changes::{self, Ask};
use super::explain_topology::{followers, in_topology};
use super::explain_types::{TypeCheck, TypesRejection, explain_types, finding, misses, ruled_out};
use super::fit::FitError;
use super::ids::{ClassId, Key, PodId, PoolId, SetId};
use super::intern::{LabelsOf, Set, Vals};
use super::limits;
use super::misspelt_values;
use super::packing_run::Outcome;
use super::pod::{Class, Relaxation, VolumePlace};
use super::pools::{Template, UnusablePool};
use super::problem::Problem;
use super::state::State;
use std::collections::BTreeMap;
use std::rc::Rc;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::pods;
use whittle_model::requirements::{Conflict, Operator};
use whittle_model::scheduling::{
    Cause, Changes, ClassChange, Follows, LimitLeft, Meant, OwnRule, PoolRejection, Reason, RuledOut, Unready,
};
use whittle_units::{Quantity, Resources};

/// After this many rejections by NodePools, further classes only get that of the first NodePool: the reasons of twenty thousand
/// different pods would take half a gigabyte.
const REASONS_MAX: usize = 20_000;

/// For rejections after this many, no remedies are looked for.
const REMEDIES_MAX: usize = 1_000;
/// Nor are they once the search for remedies has left this many views of instance types in memory, of some twenty kilobytes each.
const TRIED_VIEWS_MAX: usize = 2_000;

/// Keys whose values are names of NodePools.
const OF_NODE_POOLS: [&str; 2] = [labels::NODE_POOL, labels::PROVISIONER_NAME];

/// The fault of a pod whose rules are left aside.
const LEFT_ASIDE: &str = "its namespace has more rules about other pods than can be looked at: a selector counts for little if it names a \
                          value that few pods have";

/// At most this many causes of one rejection get remedies; each is what remains once the one before it is remedied.
const CAUSES_MAX: u32 = 4;

/// The reason of each unplaced pod. Pods of a class share theirs.
pub(crate) fn reasons(problem: &mut Problem<'_>, outcome: &Outcome, unusable: &[PoolRejection]) -> Vec<(PodId, Reason)> {
    let mut known: BTreeMap<(ClassId, bool), Reason> = BTreeMap::new();
    let mut out = Vec::with_capacity(outcome.unplaced.len());
    let mut explained = 0;
    let views_max = problem.views.len() + TRIED_VIEWS_MAX;
    problem.followers = followers(problem, outcome);
    for (entry, error) in &outcome.unplaced {
        let reserved = matches!(error, Some(FitError::Reserved { .. }));
        let reason = match known.get(&(entry.class, reserved)) {
            Some(reason) => reason.clone(),
            None => {
                let class = Rc::clone(&problem.classes[entry.class]);
                let pools = if explained < REASONS_MAX { problem.pools.len() } else { 1 };
                let tries = explained < REMEDIES_MAX && problem.views.len() < views_max;
                let detail = if tries { Detail::ALL } else { Detail::Cause };
                let reason = reason(problem, &outcome.state, &class, *error, unusable, (pools, detail));
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
    let mut meant = misspelt_values::by_node_pool(problem, at, set);
    if let Some(template) = pool.template {
        meant = changes::helpful(problem, template, meant);
    }
    let changes = pool.template.map(|template| changes::of_template(problem, pool.source, template));
    PoolRejection { ruled_out, meant, changes, ..PoolRejection::of(pool.source, cause) }
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
    (pools, detail): (usize, Detail),
) -> Reason {
    if !problem.any_pool {
        return no_node_pools(problem);
    }
    if class.resource_claims {
        return Reason::ResourceClaims;
    }
    if class.left_aside {
        return Reason::Ignored(vec![LEFT_ASIDE.to_owned()]);
    }
    if let Some((claim, user)) = state.claim_user(class) {
        return Reason::Ignored(vec![pods::planned_for_another(claim, &problem.pods[user].metadata.key())]);
    }
    match error {
        Some(FitError::Reserved { lost: true }) => return Reason::Reserved(Cause::ReservedLost),
        Some(FitError::Reserved { lost: false }) => return Reason::Reserved(Cause::ReservedUnavailable),
        _ => {}
    }
    if problem.pools.is_empty() {
        // It is not their requirements that leave no instance type.
        let unready = unusable.iter().all(|pool| pool.cause.unready().is_some());
        let unusable = unusable.iter().map(of_any_pod).collect();
        return if unready { Reason::Pools(unusable) } else { Reason::NoTemplates(unusable) };
    }
    let relaxation = class.relaxations.last().expect("a class has at least one relaxation");
    let unusable = if pools < problem.pools.len() { &[] } else { unusable };
    let explained = problem.pools.ids().take(pools).map(|pool| {
        explain_pool(problem, state, class, relaxation, pool, detail).unwrap_or_else(|| {
            let source = problem.pools[pool].source;
            PoolRejection::of(source, resolved_since(state, pool, &source.metadata.name))
        })
    });
    Reason::Pools(explained.chain(unusable.iter().map(of_any_pod)).collect())
}

/// Why a NodePool is unusable, to a pod: what the cheapest machine for no pod costs says nothing about one for this pod.
fn of_any_pod(unusable: &PoolRejection) -> PoolRejection {
    let mut out = unusable.clone();
    out.changes.iter_mut().flat_map(|changes| &mut changes.enough).for_each(|change| change.price = None);
    out
}

/// The cause for a NodePool that could take the pod at the end of the pass.
fn resolved_since(state: &State, pool: PoolId, node_pool: &str) -> Cause {
    let has_limits = state.node_limits[pool].is_some() || state.limits[pool].iter().any(Option::is_some);
    if has_limits { Cause::LimitsExceeded { node_pool: node_pool.to_owned() } } else { Cause::TransientDuringPass }
}

/// How much the explanation of a rejection contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Cause,
    /// Also what would help, and then the cause that would remain, with its remedies; for at most this many further causes.
    Remedies(u32),
}

impl Detail {
    const ALL: Self = Self::Remedies(CAUSES_MAX);

    /// How much is explained of the next cause; `None` if it is left out.
    fn next(self) -> Option<Self> {
        match self {
            Self::Cause | Self::Remedies(0) => None,
            Self::Remedies(more) => Some(Self::Remedies(more - 1)),
        }
    }
}

/// Why the NodePool cannot create a machine for the pod alone at this point; `None` if it can.
fn explain_pool(
    problem: &mut Problem<'_>,
    state: &State,
    class: &Class,
    relaxation: &Relaxation,
    pool: PoolId,
    detail: Detail,
) -> Option<PoolRejection> {
    let mut in_the_way = limits_and_taints(problem, state, relaxation, pool);
    let types = limits::allowed_types(problem, state, pool).unwrap_or_else(|| problem.pools[pool].types.clone());
    if in_the_way.is_empty() || detail.next().is_some() {
        let ask = Ask::of(problem, class, relaxation, pool);
        in_the_way.extend(explain_requirements(problem, state, (ask, relaxation.host.as_ref()), &types, detail));
    }
    let besides = |rest: Option<PoolRejection>, first: PoolRejection| match detail.next() {
        Some(_) => Some(PoolRejection { besides: rest.map(Box::new).or(first.besides), ..first }),
        None => Some(first),
    };
    in_the_way.into_iter().rev().fold(None, besides)
}

/// What of the NodePool's limits and taints keeps the pod out.
fn limits_and_taints(problem: &Problem<'_>, state: &State, relaxation: &Relaxation, pool: PoolId) -> Vec<PoolRejection> {
    let source = problem.pools[pool].source;
    let node_pool = || source.metadata.name.clone();
    let plain = |cause| PoolRejection::of(source, cause);
    let mut out = Vec::new();
    if state.node_limits[pool].is_some_and(|left| left < 1000) {
        out.push(plain(Cause::NodeLimit { node_pool: node_pool() }));
    } else if limits::allowed_types(problem, state, pool).is_none() {
        let limits = limits_left(problem, state, pool);
        out.push(PoolRejection { limits, ..plain(Cause::LimitsExceeded { node_pool: node_pool() }) });
    }
    let tolerations = &problem.taint_table.tolerations[relaxation.tolerations];
    let untolerated = pods::untolerated(tolerations, &problem.taint_table.taints[problem.pools[pool].taints]);
    if !untolerated.is_empty() {
        out.push(plain(Cause::Taints(untolerated)));
    }
    out
}

/// Why no type of the NodePool meets what it and the pod require. `host` is the pod's requirement on the hostname.
fn explain_requirements(
    problem: &mut Problem<'_>,
    state: &State,
    (ask, host): (Ask<'_>, Option<&Vals>),
    types: &Bits,
    detail: Detail,
) -> Option<PoolRejection> {
    let source = problem.pools[ask.pool].source;
    let mut found = match check_compatible(problem, ask.template, ask.pod, host) {
        Err(cause) => PoolRejection::of(source, cause),
        Ok(()) => explain_places(problem, state, ask, types, detail)?,
    };
    keep_true(problem, state, ask, &mut found.cause);
    let meant = misspelt_values::by_pod(problem, ask.pool, ask.pod);
    let Some(next) = detail.next() else { return Some(PoolRejection { meant, ..found }) };
    if matches!(&found.cause, Cause::Disjoint(keys) if keys.iter().any(|(key, ..)| OF_NODE_POOLS.contains(&key.as_str()))) {
        return Some(found); // who names another NodePool means it
    }
    let explained =
        |problem: &mut Problem<'_>, ask: Ask<'_>, host| explain_requirements(problem, state, (ask, host), types, next).map(Box::new);
    if let Cause::UndefinedLabel { key, .. } = &found.cause {
        let key = problem.names.key(key);
        let without = ask.without_pods(problem, key);
        let besides = explained(problem, without, host);
        return Some(PoolRejection { meant, besides, ..found });
    }
    if matches!(found.cause, Cause::BesideDaemon { .. }) {
        return Some(PoolRejection { meant, ..found });
    }
    if matches!(&found.cause, Cause::Disjoint(keys) if keys.iter().any(|(key, ..)| key == labels::HOSTNAME)) {
        let besides = explained(problem, ask, None);
        return Some(PoolRejection { meant, besides, ..found });
    }
    if let Some((meant, corrected)) = corrected(problem, ask, meant, |problem, ask| explained(problem, ask, host)) {
        let besides = explained(problem, corrected, host);
        if besides.as_ref().is_none_or(|besides| !drops_any(besides, &meant)) {
            return Some(PoolRejection { meant, besides, ..found });
        }
    }
    let (mut changes, _) = ask.changes(problem, state);
    let mut besides = None;
    if is_none(&changes) && !is_of_size(&found) {
        (changes, besides) = changes_for_any_size(problem, state, (ask, host));
    }
    if is_none(&changes) && ask.has_volumes() {
        // Neither what is required nor the volume is in the way alone.
        let elsewhere = ask.without_volumes();
        let mut rest = None;
        (changes, _) = elsewhere.changes(problem, state);
        if changes.enough.is_empty() && !is_of_size(&found) {
            (changes, rest) = changes_for_any_size(problem, state, (elsewhere, host));
        }
        besides = Some(Box::new(PoolRejection { besides: rest, ..of_volume(source, ask.of_volumes(problem)) }));
    }
    of_topology(problem, state, (ask, &found.cause), &mut changes);
    let besides = besides.or_else(|| too_large(problem, ask, types, &found.cause));
    Some(PoolRejection { changes: Some(changes), besides, ..found })
}

/// Forgets that time alone helps where the pod fits on no machine of the NodePool.
fn keep_true(problem: &mut Problem<'_>, state: &State, ask: Ask<'_>, cause: &mut Cause) {
    if let Cause::Topology { follows, .. } = cause
        && follows.as_deref().is_some_and(|follows| !matches!(follows, Follows::On(_)))
        && !ask.fits_apart(problem, state)
    {
        *follows = None;
    }
}

/// What would help where it is a rule of topology that leaves no domain with a type.
fn of_topology(problem: &mut Problem<'_>, state: &State, (ask, cause): (Ask<'_>, &Cause), changes: &mut Changes) {
    changes.honored_taints = ask.fits_with_honored_taints(problem, state);
    if let Cause::Topology { key, .. } = cause {
        let key = problem.names.key(key);
        changes.other_domain = ask.has_other_domain(problem, key);
    } else if !ask.has_volumes() {
        changes.excluded = ask.excluded(problem, state);
        changes.own_rule = ask.own_rule(problem, state);
        // Each of several pods wants a domain of its own.
        if changes.own_rule == Some(OwnRule::AntiAffinity) && ask.class.size > 1 {
            changes.enough.clear();
        }
    }
}

/// That no type has room for a pod, whatever becomes of the rule of topology that is in its way.
fn too_large(problem: &mut Problem<'_>, ask: Ask<'_>, types: &Bits, in_the_way: &Cause) -> Option<Box<PoolRejection>> {
    // Where it is to run on a node that is there, its size is that node's matter.
    if !matches!(in_the_way, Cause::Topology { follows: None, .. }) {
        return None;
    }
    let merged = problem.merge(ask.template, ask.pod, LabelsOf::NewNode)?;
    let found = explain_types(problem, ask.class, ask.pool, types, merged)?;
    let plain = PoolRejection::of(problem.pools[ask.pool].source, found.cause);
    found.nearest.is_some().then(|| Box::new(PoolRejection { nearest: found.nearest, ..plain }))
}

/// Whether no change is enough.
fn is_none(changes: &Changes) -> bool {
    changes.enough.is_empty() && !changes.another_volume
}

/// That the volume would have to be another, or the class one for its place.
fn of_volume(source: &NodePool, of_class: Vec<ClassChange>) -> PoolRejection {
    let changes = Changes { another_volume: true, of_class, ..Changes::default() };
    let cause = Cause::Volumes(Box::new(Cause::Disjoint(Vec::new())));
    PoolRejection { changes: Some(changes), ..PoolRejection::of(source, cause) }
}

/// What would help a pod that is too large as well, and that it is.
fn changes_for_any_size(
    problem: &mut Problem<'_>,
    state: &State,
    (ask, host): (Ask<'_>, Option<&Vals>),
) -> (Changes, Option<Box<PoolRejection>>) {
    let (mut changes, after) = ask.changes_for_any_size(problem, state);
    let all = Bits::all(problem.catalogs[problem.pools[ask.pool].catalog].len());
    let left = after.into_iter().map(|ask| explain_requirements(problem, state, (ask, host), &all, Detail::Cause));
    let left: Vec<Option<PoolRejection>> = left.collect();
    let largest = |left: &Option<PoolRejection>| left.as_ref().and_then(|left| left.nearest.as_ref()).map(|miss| miss.largest);
    // Where several alternatives leave a pod that is too large, those that leave the largest machines.
    let most = left.iter().filter_map(largest).max();
    let mut kept = left.iter().map(|left| largest(left) == most);
    changes.enough.retain(|_| kept.next().unwrap_or(false));
    changes.another_volume &= kept.next().unwrap_or(false);
    (changes, left.into_iter().filter(|left| largest(left) == most).flatten().next().map(Box::new))
}

/// Whether the pod is larger than any type, whatever is required besides.
fn is_of_size(rejection: &PoolRejection) -> bool {
    rejection.nearest.is_some()
}

/// What the pod asks for with the values that were probably meant, and those of them that help; `None` if there are none. `explained`
/// says what is in the way of what a pod asks for.
fn corrected<'c>(
    problem: &mut Problem<'_>,
    ask: Ask<'c>,
    mut meant: Vec<Meant>,
    explained: impl Fn(&mut Problem<'_>, Ask<'c>) -> Option<Box<PoolRejection>>,
) -> Option<(Vec<Meant>, Ask<'c>)> {
    if meant.is_empty() {
        return None;
    }
    let keys: Vec<Key> = meant.iter().map(|one| problem.names.key(&one.key)).collect();
    let mut corrected = meant.iter().zip(&keys).fold(ask, |ask, (one, key)| ask.with(problem, *key, &one.values));
    if check_compatible(problem, corrected.template, corrected.pod, None).is_err_and(|cause| names_any(&cause, &meant)) {
        return None;
    }
    for (one, key) in meant.iter_mut().zip(&keys).filter(|(one, _)| one.values.len() > 1) {
        let mut left = |value: &String| {
            let alone = corrected.with(problem, *key, std::slice::from_ref(value));
            explained(problem, alone).and_then(|left| left.remedy()).map(|remedy| remedy.text)
        };
        let left: Vec<(Option<String>, String)> = one.values.iter().map(|value| (left(value), value.clone())).collect();
        // With the others more would have to be done.
        let least = left.iter().map(|(text, _)| text).min_by_key(|text| text.as_ref().map(String::len))?.clone();
        one.values = left.into_iter().filter(|(text, _)| *text == least).map(|(_, value)| value).collect();
        corrected = corrected.with(problem, *key, &one.values);
    }
    Some((meant, corrected))
}

/// Whether there are changes that would help, and each of them removes one of these keys from the pod's requirements.
fn drops_any(rejection: &PoolRejection, meant: &[Meant]) -> bool {
    let enough = rejection.changes.iter().flat_map(|changes| &changes.enough);
    let mut dropped = enough.map(|change| meant.iter().any(|one| change.pod.contains(&one.key))).peekable();
    dropped.peek().is_some() && dropped.all(|dropped| dropped)
}

/// Whether the cause is about a key of these.
fn names_any(cause: &Cause, meant: &[Meant]) -> bool {
    matches!(cause, Cause::Disjoint(keys) if keys.iter().any(|(key, ..)| meant.iter().any(|one| one.key == *key)))
}

/// Why no type takes the pod in any place of its volumes: the reason of the last. Of a cause alone, one domain is looked at.
fn explain_places(problem: &mut Problem<'_>, state: &State, ask: Ask<'_>, types: &Bits, detail: Detail) -> Option<PoolRejection> {
    let places = if ask.with_volumes { &ask.class.places[..] } else { &[] };
    let merged = problem.merge(ask.template, ask.pod, LabelsOf::NewNode).unwrap_or(ask.template);
    let mut last = None;
    for at in 0..places.len().max(1) {
        last = Some(explain_place(problem, state, ask, types, (merged, places.get(at)), detail)?);
    }
    last
}

/// The same in one place of its volumes, or of a pod without any. `merged` is what the NodePool and the pod require.
fn explain_place(
    problem: &mut Problem<'_>,
    state: &State,
    ask: Ask<'_>,
    types: &Bits,
    (merged, place): (SetId, Option<&VolumePlace>),
    detail: Detail,
) -> Option<PoolRejection> {
    let Ask { class, relaxation, pool, .. } = ask;
    let source = problem.pools[pool].source;
    let plain = |cause| PoolRejection::of(source, cause);
    let mut set = merged;
    if let Some(place) = place {
        if let Err(inner) = check_compatible(problem, merged, place.set, place.host.as_ref()) {
            return Some(plain(Cause::Volumes(Box::new(inner))));
        }
        set = problem.merge(merged, place.set, LabelsOf::NewNode).unwrap_or(merged);
    }
    let mut sets = match in_topology(problem, state, relaxation, set) {
        Err(topology) => return Some(plain(topology)),
        Ok(sets) => sets,
    };
    if detail == Detail::Cause {
        sets.truncate(1);
    }
    let mut first = None;
    for set in &sets {
        // In one domain is a type, or in none.
        let found = explain_types(problem, class, pool, types, *set)?;
        first.get_or_insert(found);
    }
    let TypesRejection { cause, mut ruled_out, nearest } = first?;
    let mut misses = if detail == Detail::Cause { Vec::new() } else { misses(problem, class, pool, types, sets[0]) };
    if nearest.is_some() && misses.len() == 1 {
        misses.clear();
    }
    if let Some(place) = place {
        mark_volumes(problem, place.set, &mut ruled_out);
    }
    let all = problem.pools[pool].types.clone();
    let limited = types.count() < all.count();
    let fitting = limited.then(|| sets.iter().find(|set| explain_types(problem, class, pool, &all, **set).is_none())).flatten();
    let limits = fitting.map(|set| limits_in_the_way(problem, state, (class, pool), *set)).unwrap_or_default();
    Some(PoolRejection { ruled_out, nearest, misses, limits, ..plain(cause) })
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

/// What remains of the limits without which a type would take the pod: of one that excludes all such types, or else of all.
fn limits_in_the_way(problem: &mut Problem<'_>, state: &State, (class, pool): (&Class, PoolId), set: SetId) -> Vec<LimitLeft> {
    let all = problem.pools[pool].types.clone();
    let view = problem.view(problem.pools[pool].catalog, set);
    let mut takers = DaemonFit::of(problem, class, pool, &all).fitting;
    takers.intersect_with(&view.usable);
    let names: Vec<String> = limits::excluding(problem, state, pool, &takers);
    limits_left(problem, state, pool).into_iter().filter(|left| names.contains(&left.resource)).collect()
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
        .filter_map(|earlier| explain_pool(problem, state, class, relaxation, earlier, Detail::Cause))
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
                let meant = misspelt_values::meant_label(problem, a, &key);
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

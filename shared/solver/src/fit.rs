//! Whether a pod fits a machine, existing or new, and what would become of the machine.

use super::bits::Bits;
use super::catalog::{SPOT_TYPES_KEPT, View};
use super::ids::{DimId, GroupId, HostId, IdVec, Key, MachineId, PoolId, ReservationId, SetId};
use super::intern::{LabelsOf, Val, Vals};
use super::limits;
use super::meter;
use super::pod::{Class, Relaxation, allows_unnamed_host};
use super::problem::{Machine, MachineNow, Problem};
use super::state::{Fit, State};
use super::topology::{AllowedDomains, GroupKind, Refused, TopologyQuery, TopologyTarget};
use std::collections::BTreeSet;
use std::rc::Rc;
use whittle_model::pods::HostPort;
use whittle_model::requirements::{Allowed, Operator};
use whittle_model::scheduling::{MinValuesPolicy, Options, ReservedMode};

/// Why a pod does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FitError {
    /// For the rest of the pass, whatever else is placed.
    Permanent,
    /// Counts may change.
    Transient,
    /// Reserved capacity fits but is held by other claims; `lost` if the claim would lose a reservation that it holds.
    Reserved { lost: bool },
}

/// A claim to check, open or new.
#[derive(Clone, Copy)]
pub(crate) struct ClaimTarget<'t> {
    pub(crate) pool: PoolId,
    pub(crate) set: SetId,
    pub(crate) types: &'t Bits,
    pub(crate) requests: &'t IdVec<DimId, i64>,
    pub(crate) ports: &'t [HostPort],
    /// The claims of its EBS volumes.
    pub(crate) ebs_volumes: &'t BTreeSet<String>,
    pub(crate) reservations: &'t [ReservationId],
    /// Its host number; `None` for a new claim.
    pub(crate) host: Option<HostId>,
}

/// At most this many combinations of domains are tried on one machine.
const TRIES_MAX: usize = 16;

/// How the solver chooses where Karpenter leaves the choice to chance or to later passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackingOptions {
    /// Try all domains that topology allows, not only those with the lowest count.
    pub(crate) all_domains: bool,
    /// Pin a pod with anti-affinity to one domain instead of blocking all that its machine may end up in.
    pub(crate) pin_anti_affinity: bool,
    /// Hold one reservation per claim instead of all that it might use.
    pub(crate) one_reservation: bool,
    /// Give a claim only the smallest types that `minValues` allows, so that more machines fit within the limits of a NodePool.
    pub(crate) smallest_types: bool,
    /// Of equally good domains, take the one that the fewest offerings serve, before other pods take what the pod needs.
    pub(crate) scarce_domains_first: bool,
    /// Charge limits with this many types of a claim, revised as it grows; 0: with all its types when it is opened.
    pub(crate) types_charged: usize,
}

impl PackingOptions {
    /// As Karpenter does it.
    pub(crate) const KARPENTER: Self = Self {
        all_domains: false,
        pin_anti_affinity: false,
        one_reservation: false,
        smallest_types: false,
        scarce_domains_first: false,
        types_charged: 0,
    };
    /// Whatever places more pods.
    pub(crate) const UNRESTRICTED: Self = Self {
        all_domains: true,
        pin_anti_affinity: true,
        one_reservation: true,
        smallest_types: false,
        scarce_domains_first: false,
        types_charged: SPOT_TYPES_KEPT,
    };
}

/// What decides about a pod on a claim, besides the problem, the claim and the pod themselves.
#[derive(Clone, Copy)]
pub(crate) struct ClaimRules<'r> {
    /// What has been decided so far.
    pub(crate) state: &'r State,
    pub(crate) options: &'r Options,
    pub(crate) packing: PackingOptions,
}

/// Whether the pod fits an existing machine; returns the machine's requirements with the pod.
pub(crate) fn check_machine(
    problem: &mut Problem<'_>,
    state: &State,
    id: MachineId,
    class: &Class,
    relaxation: &Relaxation,
) -> Result<SetId, FitError> {
    let now = state.machine(problem, id);
    problem.meter.spend(meter::MACHINE);
    // What is overdrawn matters only to those that ask for some of it (scheduling 7.2).
    for (have, want) in now.remaining.iter().zip(&class.requests) {
        if *want > 0 && want > have {
            return Err(FitError::Permanent);
        }
    }
    problem.meter.spend(meter::MACHINE_CLOSER);
    let machine = &problem.machines[id];
    if !problem.tolerated(relaxation.tolerations, machine.taints)
        || (machine.spared && class.avoids_spared)
        || !class.missed_drivers.is_disjoint(&machine.lacks_drivers)
        || over_attach_limit(machine, now, class)
    {
        return Err(FitError::Permanent);
    }
    if class.ports.iter().any(|want| now.ports.iter().any(|taken| want.conflicts_with(taken))) {
        return Err(FitError::Permanent);
    }
    let (host, hostname, own, open) = (machine.host, machine.hostname, now.set, machine.open);
    if !hostname_matches(relaxation.host.as_ref(), hostname) {
        return Err(FitError::Permanent);
    }
    let Some(merged) = problem.merge(own, relaxation.full, LabelsOf::ExistingNode) else { return Err(FitError::Permanent) };
    if !admits_launch(problem, (own, open), relaxation.full) {
        return Err(FitError::Permanent);
    }
    let mut error = FitError::Permanent;
    for at in 0..class.places.len().max(1) {
        let mut set = merged;
        if let Some(place) = class.places.get(at) {
            if !hostname_matches(place.host.as_ref(), hostname) {
                continue;
            }
            let Some(narrowed) = problem.merge(merged, place.set, LabelsOf::ExistingNode) else { continue };
            if !admits_launch(problem, (own, open), place.set) {
                continue;
            }
            set = narrowed;
        }
        let mut allowed_domains = Vec::new();
        match check_topology(problem, state, relaxation, TopologyTarget { host: Some(host), set }, &mut allowed_domains) {
            Ok(()) => {}
            Err(refused) if refused.permanent => continue,
            Err(_) => {
                error = FitError::Transient;
                continue;
            }
        }
        if let Some(set) = settle_on_machine(problem, relaxation, set, &allowed_domains) {
            return Ok(set);
        }
        error = FitError::Transient;
    }
    Err(error)
}

/// Whether `required` admits whatever a machine with the labels `own` may yet get of what is `open`. A label that it lacks meets `NotIn`
/// and `DoesNotExist` until its launch gives it a value (scheduling 16).
fn admits_launch(problem: &Problem<'_>, (own, open): (SetId, Option<SetId>), required: SetId) -> bool {
    let Some(open) = open else { return true };
    let (own, open) = (problem.sets.get(own), problem.sets.get(open));
    problem.sets.get(required).iter().all(|(key, wanted)| match (own.get(key), open.get(key)) {
        (None, Some(possible)) => match possible.members() {
            Some(members) => members.iter().all(|value| wanted.has(value)),
            None => wanted.operator() == Operator::NotIn && wanted.listed().iter().all(|value| !possible.has(value)),
        },
        _ => true,
    })
}

/// Narrows an existing machine's requirements to the allowed domains; `None` if it lacks a label.
fn settle_on_machine(
    problem: &mut Problem<'_>,
    relaxation: &Relaxation,
    mut set: SetId,
    allowed_domains: &[AllowedDomains],
) -> Option<SetId> {
    for domains in allowed_domains {
        if problem.sets.get(set).get(&domains.key).is_none() {
            // A machine without the label is in no domain, so nothing repels the pod. Karpenter sees that only if the pod
            // itself mentions the label.
            if problem.sets.get(relaxation.full).get(&domains.key).is_some() && only_repelled(problem, relaxation, domains.key) {
                continue;
            }
            return None;
        }
        let allowed = Allowed::one_of(domains.vals[..if domains.pick { 1 } else { domains.vals.len() }].iter().copied());
        set = problem.sets.narrow(set, domains.key, &allowed);
    }
    Some(set)
}

/// Whether all the groups of the pod with `key` are anti-affinity.
fn only_repelled(problem: &Problem<'_>, relaxation: &Relaxation, key: Key) -> bool {
    let groups = relaxation.owned.iter().chain(&relaxation.repelled_by).map(|g| &problem.groups[*g]);
    groups.filter(|group| group.key == key).all(|group| matches!(group.kind, GroupKind::Anti | GroupKind::Inverse))
}

fn over_attach_limit(machine: &Machine, now: &MachineNow, class: &Class) -> bool {
    if class.volumes.is_empty() || machine.attach_limits.is_empty() {
        return false;
    }
    machine.attach_limits.iter().any(|(driver, limit)| {
        let used = now.volumes.get(driver);
        let mine = class.volumes.iter().filter(|v| v.driver == *driver);
        let new = mine.clone().filter(|v| used.is_none_or(|u| !u.contains(&v.claim))).count();
        mine.count() > 0 && used.map_or(0, BTreeSet::len) + new > *limit
    })
}

fn hostname_matches(wanted: Option<&Vals>, hostname: Val) -> bool {
    wanted.is_none_or(|w| w.has(&hostname))
}

fn check_topology(
    problem: &Problem<'_>,
    state: &State,
    relaxation: &Relaxation,
    target: TopologyTarget,
    allowed_domains: &mut Vec<AllowedDomains>,
) -> Result<(), Refused> {
    if relaxation.owned.is_empty() && relaxation.repelled_by.is_empty() {
        allowed_domains.clear();
        return Ok(());
    }
    let domains = |g: &GroupId| state.counts[*g].domains.len();
    let groups = relaxation.owned.iter().chain(&relaxation.repelled_by);
    problem.meter.spend(groups.map(|g| meter::GROUP + 2 * domains(g)).sum());
    TopologyQuery { groups: &problem.groups, counts: &state.counts, sets: &problem.sets }.check(relaxation, target, allowed_domains)
}

/// Whether the pod fits a claim; returns what the claim would become.
pub(crate) fn check_claim(
    problem: &mut Problem<'_>,
    rules: ClaimRules<'_>,
    target: ClaimTarget<'_>,
    class: &Class,
    relaxation: &Relaxation,
) -> Result<Fit, FitError> {
    let mut fitting = Bits::default();
    problem.meter.spend(meter::CLAIM + problem.pools[target.pool].daemons.len() * meter::DAEMONS);
    room(problem, &target, class, &mut fitting);
    if fitting.is_empty() {
        return Err(FitError::Permanent);
    }
    if !problem.tolerated(relaxation.tolerations, problem.pools[target.pool].taints) || !allows_unnamed_host(relaxation.host.as_ref()) {
        return Err(FitError::Permanent);
    }
    let Some(merged) = problem.merge(target.set, relaxation.full, LabelsOf::NewNode) else {
        return Err(incompatibility(problem, &target, relaxation.full));
    };
    // One alone is bounded: on a machine of its own it is as welcome as any.
    if merged != target.set && problem.sets.is_overgrown(problem.pools[target.pool].set, merged) {
        return Err(FitError::Permanent);
    }
    let mut error = FitError::Permanent;
    for at in 0..class.places.len().max(1) {
        let mut set = merged;
        if let Some(place) = class.places.get(at) {
            let narrowed = problem.merge(merged, place.set, LabelsOf::NewNode).filter(|_| allows_unnamed_host(place.host.as_ref()));
            let Some(narrowed) = narrowed else {
                if error == FitError::Permanent {
                    error = incompatibility(problem, &target, place.set);
                }
                continue;
            };
            set = narrowed;
        }
        match check_volume_place(problem, rules, &target, relaxation, set, &fitting) {
            Ok(fit) => return Ok(fit),
            Err(FitError::Permanent) => {}
            Err(other) => error = other,
        }
    }
    Err(error)
}

/// How long the requirements are incompatible: an open claim may yet get a label that its NodePool does not define.
fn incompatibility(problem: &Problem<'_>, target: &ClaimTarget<'_>, required: SetId) -> FitError {
    let may_be_added = |key: &Key| problem.negated_custom_keys.contains(key) && problem.sets.get(target.set).get(key).is_none();
    let may_get_label = target.host.is_some()
        && !problem.negated_custom_keys.is_empty()
        && problem.sets.get(required).iter().any(|(key, _)| may_be_added(key));
    if may_get_label { FitError::Transient } else { FitError::Permanent }
}

/// Types of the target with room for its pods, the new pod and the daemons, without port conflicts, that attach all volumes and run no
/// daemon that the pod must avoid.
fn room(problem: &Problem<'_>, target: &ClaimTarget<'_>, class: &Class, out: &mut Bits) {
    let pool = &problem.pools[target.pool];
    let catalog = &problem.catalogs[pool.catalog];
    if class.ports.iter().any(|want| target.ports.iter().any(|taken| want.conflicts_with(taken))) {
        *out = Bits::none(catalog.len());
        return;
    }
    let mut need: [i64; 8] = [0; 8];
    let mut spill: Vec<i64> = Vec::new();
    let dims = target.requests.len();
    let need: &mut [i64] = if dims <= 8 {
        &mut need[..dims]
    } else {
        spill.resize(dims, 0);
        &mut spill
    };
    let single = pool.daemons.len() == 1;
    if !single {
        *out = Bits::none(catalog.len());
    }
    for group in &pool.daemons {
        if class.ports.iter().any(|want| group.ports.iter().any(|taken| want.conflicts_with(taken))) {
            if single {
                *out = Bits::none(catalog.len());
            }
            continue;
        }
        let amounts = target.requests.iter().zip(&class.requests).zip(&group.overhead);
        for (need, ((requested, more), overhead)) in need.iter_mut().zip(amounts) {
            *need = requested.saturating_add(*more).saturating_add(*overhead);
        }
        if single {
            out.copy_from(target.types);
            catalog.keep_fitting(need, out);
        } else {
            let mut some = target.types.clone();
            some.intersect_with(&group.types);
            catalog.keep_fitting(need, &mut some);
            out.union_with(&some);
        }
    }
    if !class.volumes.is_empty() {
        catalog.keep_attaching(class.ebs_volumes_with(target.ebs_volumes), out);
    }
    for daemon in pool.avoided.iter().filter(|daemon| class.avoids.contains_key(&daemon.at)) {
        out.subtract(&daemon.types);
    }
}

/// The same with the requirements of one place that the pod's volumes allow.
fn check_volume_place(
    problem: &mut Problem<'_>,
    rules: ClaimRules<'_>,
    target: &ClaimTarget<'_>,
    relaxation: &Relaxation,
    set: SetId,
    fitting: &Bits,
) -> Result<Fit, FitError> {
    let mut allowed_domains = Vec::new();
    let topology_target = TopologyTarget { host: target.host, set };
    if let Err(refused) = check_topology(problem, rules.state, relaxation, topology_target, &mut allowed_domains) {
        return Err(if refused.permanent { FitError::Permanent } else { FitError::Transient });
    }
    if allowed_domains.is_empty() {
        return settle(problem, rules, target, set, fitting);
    }
    for domains in &mut allowed_domains {
        let defined = problem.sets.get(set).get(&domains.key).is_some() || problem.well_known.contains(&domains.key);
        if !defined {
            return Err(if target.host.is_some() && problem.negated_custom_keys.contains(&domains.key) {
                FitError::Transient
            } else {
                FitError::Permanent
            });
        }
        if rules.packing.pin_anti_affinity && !domains.pick && domains.vals.len() > 1 && owns_repulsion(problem, relaxation, domains.key) {
            domains.pick = true;
        }
    }
    let volatile = relaxation.volatile;
    let mut error = FitError::Permanent;
    for narrowed in combinations(problem, rules.packing, target, set, &allowed_domains, fitting) {
        match settle(problem, rules, target, narrowed, fitting) {
            Ok(fit) => return Ok(fit),
            Err(FitError::Permanent) if volatile => error = FitError::Transient,
            Err(other) => error = other,
        }
    }
    Err(error)
}

/// `set` narrowed to each combination of domains that may be tried, in order.
fn combinations(
    problem: &mut Problem<'_>,
    packing: PackingOptions,
    target: &ClaimTarget<'_>,
    set: SetId,
    allowed_domains: &[AllowedDomains],
    fitting: &Bits,
) -> Vec<SetId> {
    // Karpenter takes the first, or an equally good one; with more options, later ones are taken, too.
    let open = |domains: &AllowedDomains| match domains {
        AllowedDomains { pick: false, .. } => 1,
        _ if packing.all_domains => domains.vals.len(),
        _ => domains.ties.clamp(1, domains.vals.len()),
    };
    let tries = allowed_domains.iter().map(open).fold(1, usize::saturating_mul).min(TRIES_MAX);
    let mut out = Vec::with_capacity(tries);
    problem.meter.spend(meter::NARROW * tries * allowed_domains.len());
    for attempt in 0..tries {
        let (mut narrowed, mut rest, mut worse) = (set, attempt, 0);
        for domains in allowed_domains {
            let allowed = if domains.pick {
                let at = rest % open(domains);
                rest /= open(domains);
                worse += usize::from(at >= domains.ties);
                Allowed::one(domains.vals[at])
            } else {
                Allowed::one_of(domains.vals.iter().copied())
            };
            narrowed = problem.sets.narrow(narrowed, domains.key, &allowed);
        }
        out.push((worse, narrowed));
    }
    if packing.scarce_domains_first && out.len() > 1 {
        let catalog = problem.pools[target.pool].catalog;
        out.sort_by_cached_key(|(worse, narrowed)| {
            let view = problem.view(catalog, *narrowed);
            let kinds = view.kinds.iter().map(|k| &problem.catalogs[catalog].kinds[*k]);
            (*worse, kinds.map(|kind| kind.available.intersection_count(fitting)).sum::<usize>())
        });
    }
    out.into_iter().map(|(_, narrowed)| narrowed).collect()
}

fn owns_repulsion(problem: &Problem<'_>, relaxation: &Relaxation, key: Key) -> bool {
    relaxation.owned.iter().any(|g| {
        let group = &problem.groups[*g];
        group.kind == GroupKind::Anti && group.key == key
    })
}

/// With all requirements settled: types, `minValues`, reservations.
fn settle(problem: &mut Problem<'_>, rules: ClaimRules<'_>, target: &ClaimTarget<'_>, set: SetId, fitting: &Bits) -> Result<Fit, FitError> {
    let view = problem.view(problem.pools[target.pool].catalog, set);
    let mut types = fitting.clone();
    types.intersect_with(&view.usable);
    if types.is_empty() {
        return Err(FitError::Permanent);
    }
    let mut fit = Fit { set, types, reservations: Vec::new(), relaxed: false };
    if !view.min_values.is_empty() {
        // What was settled when a claim was opened still holds.
        let policy = if target.host.is_none() { rules.options.min_values } else { MinValuesPolicy::Strict };
        settle_min_values(problem, target, &view, policy, &mut fit)?;
    }
    if rules.options.reserved_capacity && !problem.reservations.ids.is_empty() {
        settle_reservations(problem, rules, target, &view, &mut fit)?;
    }
    if rules.packing.smallest_types && target.host.is_none() && fit.reservations.is_empty() {
        // What was settled so far also holds for the remaining types.
        let view = problem.view(problem.pools[target.pool].catalog, fit.set);
        fit.types = limits::smallest(problem, target.pool, &view, &fit.types);
    }
    Ok(fit)
}

fn settle_min_values(
    problem: &mut Problem<'_>,
    target: &ClaimTarget<'_>,
    view: &View,
    policy: MinValuesPolicy,
    fit: &mut Fit,
) -> Result<(), FitError> {
    let catalog = &problem.catalogs[problem.pools[target.pool].catalog];
    let short: Vec<(Key, u32)> = view
        .min_values
        .iter()
        .map(|(key, wanted)| (*key, catalog.distinct(*key, &fit.types), *wanted))
        .filter(|(_, has, wanted)| has < wanted)
        .map(|(k, has, _)| (k, has))
        .collect();
    if short.is_empty() {
        return Ok(());
    }
    if policy == MinValuesPolicy::Strict {
        return Err(FitError::Permanent);
    }
    let mut set = problem.sets.get(fit.set).clone();
    for (key, has) in short {
        let lowered = set.get(&key).cloned().unwrap_or_else(Allowed::any).with_min_values(Some(has));
        set.replace(key, lowered);
    }
    fit.set = problem.sets.id(set);
    fit.relaxed = true;
    Ok(())
}

fn settle_reservations(
    problem: &Problem<'_>,
    rules: ClaimRules<'_>,
    target: &ClaimTarget<'_>,
    view: &Rc<View>,
    fit: &mut Fit,
) -> Result<(), FitError> {
    let catalog = &problem.catalogs[problem.pools[target.pool].catalog];
    let mut some = false;
    for kind in view.kinds.iter().map(|k| &catalog.kinds[*k]) {
        let Some(id) = kind.reservation else { continue };
        if !kind.available.intersects(&fit.types) {
            continue;
        }
        some = true;
        if (target.reservations.contains(&id) || rules.state.reserved_left[id] > 0) && !fit.reservations.contains(&id) {
            fit.reservations.push(id);
        }
    }
    fit.reservations.sort_unstable();
    if rules.packing.one_reservation && fit.reservations.len() > 1 {
        let keep = fit.reservations.iter().copied().find(|id| target.reservations.contains(id)).unwrap_or(fit.reservations[0]);
        fit.reservations = vec![keep];
    }
    if rules.options.reserved == ReservedMode::Strict && fit.reservations.is_empty() {
        if !target.reservations.is_empty() {
            return Err(FitError::Reserved { lost: true });
        }
        if some {
            return Err(FitError::Reserved { lost: false });
        }
    }
    Ok(())
}

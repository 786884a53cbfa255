//! What the instance types of a NodePool lack for a pod.

use super::alone::DaemonFit;
use super::bits::Bits;
use super::ids::{CatalogId, PoolId, SetId, TypeId};
use super::pod::Class;
use super::problem::Problem;
use whittle_model::scheduling::{Cause, Finding, NearestMiss, PortTaken, RuledOut};
use whittle_units::Quantity;

/// Why no instance type of a list takes a pod.
pub(crate) struct TypesRejection {
    pub(crate) cause: Cause,
    /// How many types each constraint rules out.
    pub(crate) ruled_out: Vec<RuledOut>,
    /// Where the pod is larger than any type that has everything else.
    pub(crate) nearest: Option<NearestMiss>,
}

impl TypesRejection {
    /// A cause that says all by itself.
    fn of(cause: Cause) -> Self {
        Self { cause, ruled_out: Vec::new(), nearest: None }
    }
}

/// Why none of these types of the NodePool takes a pod of the class with these requirements; `None` if one does.
pub(crate) fn explain_types(problem: &mut Problem<'_>, class: &Class, pool: PoolId, types: &Bits, set: SetId) -> Option<TypesRejection> {
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
        return unmet.then(|| TypesRejection::of(Cause::MinValues { labels: short, requirements, resources }));
    }
    let mut but_for_daemon = daemon_fit.beside.clone();
    but_for_daemon.intersect_with(&daemon_fit.room);
    if let Some((daemon_set, by_pod)) = daemon_fit.avoided.clone().filter(|_| but_for_daemon.intersects(&view.usable)) {
        let (types, of) = (daemon_fit.beside.count(), types.count());
        return Some(TypesRejection::of(Cause::BesideDaemon { daemon_set, by_pod, types, of }));
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
    let cause = Cause::InstanceTypes { finding, requirements, resources, daemons: daemon_fit.daemons, port: port.map(Box::new) };
    Some(TypesRejection { cause, ruled_out, nearest })
}

/// What an instance type has: its requirements met, enough resources, an available offering.
pub(crate) struct TypeCheck {
    pub(crate) met: bool,
    pub(crate) fits: bool,
    pub(crate) offered: bool,
}

/// The finding that describes what the types lack.
pub(crate) fn finding(checks: &[TypeCheck], cpu: Quantity) -> Finding {
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

/// How many of the types each requirement, their room and their offerings rule out: those that rule out most come first.
pub(crate) fn ruled_out(
    problem: &mut Problem<'_>,
    catalog: CatalogId,
    set: SetId,
    types: &Bits,
    fitting: &Bits,
    offered: &Bits,
) -> Vec<RuledOut> {
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

/// All that types with everything else have too little of.
pub(crate) fn misses(problem: &mut Problem<'_>, class: &Class, pool: PoolId, types: &Bits, set: SetId) -> Vec<NearestMiss> {
    let at = problem.pools[pool].catalog;
    let view = problem.view(at, set);
    DaemonFit::of(problem, class, pool, types).misses(problem, class, &view.usable, at)
}

//! A pod alone on a new machine of a NodePool: what topology leaves of its requirements, and which types have room for it beside their
//! daemons.

use super::bits::Bits;
use super::catalog::Catalog;
use super::ids::{CatalogId, DimId, GroupId, IdVec, Key, PoolId, SetId, TypeId};
use super::pod::{Class, Relaxation};
use super::problem::Problem;
use super::topology::{AllowedDomains, Counts, TopologyQuery, TopologyTarget};
use whittle_model::pods::HostPort;
use whittle_model::requirements::Allowed;
use whittle_model::scheduling::{EBS_VOLUMES, NearestMiss};
use whittle_units::{Quantity, Resources};

/// Why topology leaves nothing.
pub(crate) enum NoDomain {
    /// This group allows no domain.
    Group(GroupId),
    /// Nothing says which domains of this key there are.
    Undefined(Key),
}

/// How many combinations of domains are examined at most.
const TRIES_MAX: usize = 16;

/// The requirements `set` narrowed by topology: one set for each combination of domains that it may choose. `counts` has the pods of
/// each group.
pub(crate) fn in_topology(
    problem: &mut Problem<'_>,
    counts: &IdVec<GroupId, Counts>,
    relaxation: &Relaxation,
    set: SetId,
) -> Result<Vec<SetId>, NoDomain> {
    let mut allowed_domains: Vec<AllowedDomains> = Vec::new();
    let query = TopologyQuery { groups: &problem.groups, counts, sets: &problem.sets };
    query.check(relaxation, TopologyTarget { host: None, set }, &mut allowed_domains).map_err(|refused| NoDomain::Group(refused.group))?;
    let mut out = vec![set];
    for domains in &allowed_domains {
        if problem.sets.get(set).get(&domains.key).is_none() && !problem.well_known.contains(&domains.key) {
            return Err(NoDomain::Undefined(domains.key));
        }
        let ways: Vec<_> = match domains.pick {
            true => domains.vals.iter().map(|val| Allowed::one(*val)).collect(),
            false => vec![Allowed::one_of(domains.vals.iter().copied())],
        };
        let narrowed = ways.iter().flat_map(|allowed| out.iter().map(move |set| (*set, allowed)));
        out = narrowed.take(TRIES_MAX).map(|(set, allowed)| problem.sets.narrow(set, domains.key, allowed)).collect();
    }
    Ok(out)
}

/// How a pod fits together with the daemons of a NodePool's types.
pub(crate) struct DaemonFit {
    /// Types whose daemons use a host port of the pod, or are among those that it must avoid.
    pub(crate) clashing: Bits,
    pub(crate) port: Option<(HostPort, HostPort)>,
    /// Types that run a daemon which the pod must avoid; all of them are in `clashing`.
    pub(crate) beside: Bits,
    /// The first such daemon, and whether the rule is the pod's own anti-affinity: otherwise it is the daemon's.
    pub(crate) avoided: Option<(String, bool)>,
    /// Types with room for the pod and their daemons.
    pub(crate) room: Bits,
    /// Those of them whose daemons do not clash with the pod.
    pub(crate) fitting: Bits,
    groups: Vec<TypesWithDaemons>,
    /// The smallest requests of daemons without port conflicts.
    pub(crate) daemons: Resources,
}

/// Types with the same daemons, and what those request.
struct TypesWithDaemons {
    types: Bits,
    overhead: IdVec<DimId, i64>,
}

impl DaemonFit {
    pub(crate) fn of(problem: &Problem<'_>, class: &Class, pool: PoolId, types: &Bits) -> Self {
        let catalog = &problem.catalogs[problem.pools[pool].catalog];
        let none = || Bits::none(catalog.len());
        let (beside, avoided) = (none(), None);
        let (clashing, room, fitting, groups, daemons) = (none(), none(), none(), Vec::new(), Resources::new());
        let mut out = Self { clashing, port: None, beside, avoided, room, fitting, groups, daemons };
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
            catalog.keep_attaching(class.ebs_volumes(), &mut fits);
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
        for daemon in &problem.pools[pool].avoided {
            if let Some(by_pod) = class.avoids.get(&daemon.at) {
                out.beside.union_with(&daemon.types);
                out.avoided.get_or_insert_with(|| (daemon.name.clone(), *by_pod));
            }
        }
        out.beside.intersect_with(types);
        out.clashing.union_with(&out.beside);
        out.fitting.subtract(&out.beside);
        out
    }

    /// The first resource of which even the largest type, among those allowed otherwise, has too little.
    pub(crate) fn nearest_miss(&self, problem: &Problem<'_>, class: &Class, usable: &Bits, catalog: CatalogId) -> Option<NearestMiss> {
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
        let allowed = self.groups.iter().flat_map(|group| group.types.iter()).filter(|t| usable.has(*t) && !self.clashing.has(*t));
        too_many_volumes(catalog, class, allowed)
    }
}

impl DaemonFit {
    /// The resources that are short. They are examined one after the other, those that the fewest types have first, and each only on types
    /// with enough of those before it (where no type has enough: with the most there is).
    pub(crate) fn misses(&self, problem: &Problem<'_>, class: &Class, usable: &Bits, catalog: CatalogId) -> Vec<NearestMiss> {
        let catalog = &problem.catalogs[catalog];
        let pairs = self.groups.iter().flat_map(|group| group.types.iter().map(move |t| (t, &group.overhead)));
        let mut candidates: Vec<(TypeId, &IdVec<DimId, i64>)> = pairs.filter(|(t, _)| usable.has(*t) && !self.clashing.has(*t)).collect();
        let net = |(t, over): (TypeId, &IdVec<DimId, i64>), dim: DimId| catalog.allocatable[t][dim].saturating_sub(over[dim]);
        let mut wanted: Vec<(DimId, i64)> = class.requests.enumerate().filter(|(_, n)| **n > 0).map(|(dim, n)| (dim, *n)).collect();
        wanted.sort_by_key(|(dim, _)| candidates.iter().filter(|one| net(**one, *dim) > 0).count());
        let mut out = Vec::new();
        for (dim, want) in wanted {
            let key = |one: &(TypeId, &IdVec<DimId, i64>)| (net(*one, dim), std::cmp::Reverse(&catalog.names[one.0]));
            let Some((largest, over)) = candidates.iter().copied().max_by_key(key) else { break };
            let most = net((largest, over), dim);
            if most < want {
                out.push(NearestMiss {
                    resource: problem.dims.names[dim].clone(),
                    needed: Quantity::from_milli(want.saturating_add(over[dim])),
                    largest: Quantity::from_milli(catalog.allocatable[largest][dim]),
                    instance_type: catalog.names[largest].clone(),
                });
            }
            candidates.retain(|one| net(*one, dim) >= want.min(most));
        }
        out.extend(too_many_volumes(catalog, class, candidates.iter().map(|(t, _)| *t)));
        out
    }
}

/// That each of `types` attaches fewer EBS volumes than the pod has.
fn too_many_volumes(catalog: &Catalog, class: &Class, types: impl Iterator<Item = TypeId>) -> Option<NearestMiss> {
    let (attachments, wanted) = (catalog.attachments.as_ref()?, i64::try_from(class.ebs_volumes()).ok()?);
    let largest = types.max_by_key(|t| (attachments.most[*t], std::cmp::Reverse(&catalog.names[*t])))?;
    (attachments.most[largest] < wanted).then(|| NearestMiss {
        resource: EBS_VOLUMES.to_owned(),
        needed: Quantity::from_units(wanted),
        largest: Quantity::from_units(attachments.most[largest]),
        instance_type: catalog.names[largest].clone(),
    })
}

/// The resources in both lists, with the smaller amount.
fn smaller(a: &Resources, b: &Resources) -> Resources {
    a.iter().filter(|(name, _)| b.0.contains_key(*name)).map(|(name, amount)| (name.to_owned(), amount.min(b.get(name)))).collect()
}

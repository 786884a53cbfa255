//! A lower bound of the cost of any plan for the same pods, by weak duality: prices for a unit of each resource and for a
//! machine as such prove a bound if no type is cheaper than what it holds at these prices; several are tried, and the best
//! bound is kept.
//!
//! The bound ignores that machines are indivisible, and all constraints except those that keep pods from sharing a machine.

use super::catalog_index::NO_PRICE;
use super::ids::{DimId, GroupId, IdVec};
use super::packing_run::Outcome;
use super::problem::Problem;
use super::topology::GroupKind;
use std::collections::{BTreeMap, BTreeSet};
use whittle_units::Price;

/// Steps in which a weight is divided between two resources.
const PARTS: u32 = 8;
/// Steps of the price of a machine as such, from zero to the price of the cheapest type, finer where it is small.
const STEPS: u32 = 16;

/// What a bound counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundOf {
    Prices,
    /// Prices and the other costs of machines.
    AllCosts,
}

/// The bound for the pods that `outcome` puts on new machines.
pub(crate) fn lower_bound(problem: &mut Problem<'_>, outcome: &Outcome, bound_of: BoundOf) -> Price {
    let mut sums: IdVec<DimId, f64> = IdVec::filled(0.0, &problem.dims.names);
    for claim in &outcome.state.claims {
        for (sum, amount) in sums.iter_mut().zip(&claim.requests) {
            *sum += *amount as f64;
        }
    }
    let dims: Vec<DimId> = sums.ids().filter(|dim| sums[*dim] > 0.0).collect();
    if dims.is_empty() {
        return Price::ZERO; // nothing is to be launched, as in most runs
    }
    let machines = fewest_machines(problem, outcome) as f64;
    let types = undercut(types(problem, bound_of), &dims);
    let cheapest = types.iter().map(|one| one.cost as f64).fold(f64::MAX, f64::min);
    let mut best: f64 = 0.0;
    for (n, a) in dims.iter().enumerate() {
        for b in &dims[n..] {
            for part in 0..=PARTS {
                let share = f64::from(part) / f64::from(PARTS);
                for step in 0..=STEPS {
                    let machine = cheapest * f64::from(step * step) / f64::from(STEPS * STEPS);
                    let worth = |room: &IdVec<DimId, i64>| share * room[*a] as f64 / sums[*a] + (1.0 - share) * room[*b] as f64 / sums[*b];
                    let scale = types.iter().filter(|one| worth(&one.room) > 0.0).map(|one| (one.cost as f64 - machine) / worth(&one.room));
                    let scale = scale.fold(f64::MAX, f64::min);
                    if scale < f64::MAX {
                        best = best.max(scale + machine * machines);
                    }
                }
            }
        }
    }
    // Slightly less, to allow for rounding.
    Price::from_nanos((best * (1.0 - 1e-12)) as u64)
}

/// What a machine of some type costs, and what it has for pods.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PricedRoom {
    cost: u64,
    room: IdVec<DimId, i64>,
}

/// Types that no cheaper type dominates: a dominated type adds no restriction.
fn undercut(types: BTreeSet<PricedRoom>, dims: &[DimId]) -> Vec<PricedRoom> {
    let mut kept: Vec<PricedRoom> = Vec::new();
    for one in types {
        if kept.iter().all(|other| dims.iter().any(|dim| other.room[*dim] < one.room[*dim])) {
            kept.push(one);
        }
    }
    kept
}

/// Cost and room for pods of every type that some NodePool can buy; without duplicates, cheapest first.
fn types(problem: &mut Problem<'_>, bound_of: BoundOf) -> BTreeSet<PricedRoom> {
    let mut out = BTreeSet::new();
    for id in problem.pools.ids() {
        let view = problem.view(problem.pools[id].catalog, problem.pools[id].set);
        let pool = &problem.pools[id];
        let catalog = &problem.catalogs[pool.catalog];
        for t in pool.types.iter().filter(|t| view.price[*t] != NO_PRICE) {
            let daemons = pool.daemons.iter().find(|g| g.types.has(t));
            let room = catalog.allocatable[t].enumerate().map(|(dim, n)| n.saturating_sub(daemons.map_or(0, |g| g.overhead[dim])).max(0));
            let extra = if bound_of == BoundOf::AllCosts { pool.machine_cost } else { 0 };
            out.insert(PricedRoom { cost: view.price[t] + extra, room: room.collect() });
        }
    }
    out
}

/// Placed pods of a group that keeps them apart.
struct Members {
    pods: usize,
    /// How many of them may share a machine.
    together: usize,
}

/// The least number of machines for the placed pods, since some of them cannot share one.
pub(crate) fn fewest_machines(problem: &Problem<'_>, outcome: &Outcome) -> usize {
    let mut members: BTreeMap<GroupId, Members> = BTreeMap::new();
    let mut any = 0;
    for pod in outcome.state.claims.iter().flat_map(|c| &c.pods) {
        any = 1;
        let class = &problem.classes[problem.class_of[*pod]];
        // Without preferences, which may be dropped.
        let Some(relaxation) = class.relaxations.last() else { continue };
        for id in &relaxation.owned {
            let group = &problem.groups[*id];
            if !group.by_host || !group.selects.has(relaxation.labels) {
                continue;
            }
            let together = match group.kind {
                GroupKind::Anti => 1,
                GroupKind::Spread { max_skew, .. } => usize::try_from(max_skew).unwrap_or(1).max(1),
                GroupKind::Affinity | GroupKind::Inverse => continue,
            };
            members.entry(*id).or_insert(Members { pods: 0, together }).pods += 1;
        }
    }
    members.values().map(|members| members.pods.div_ceil(members.together)).max().unwrap_or(0).max(any)
}

//! The instance type that a machine is filled up to: the one with which all pods of the pass together would cost least.

use super::bits::Bits;
use super::catalog::View;
use super::catalog_index::NO_PRICE;
use super::hash::Map;
use super::ids::{DimId, IdVec, PoolId, SetId, TypeId};
use super::meter;
use super::problem::Problem;

/// The shares of a type's room for pods, in tenths, that are tried: a machine is filled up to the largest share for which as
/// many types as a claim should keep have room.
const FILLED: [i64; 3] = [10, 9, 8];

/// Which types machines may be filled up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Any type.
    Any,
    /// Any type, by its price alone: otherwise the other costs of machines decide between types whose prices hardly differ.
    ByPrice,
    /// A type that holds at most a ninth of all pods, if there is one: larger ones are seldom full in the end.
    Smaller,
}

/// A type that holds a larger share of all pods is too large for [`Aim::Smaller`].
const SMALLER: f64 = 1.0 / 9.0;

/// The types of machines with given requirements, the best one to fill up first.
#[derive(Debug, Default)]
pub(crate) struct Aims {
    by_set: Map<(PoolId, SetId), Vec<TypeId>>,
    /// The total requests of all pods.
    total: IdVec<DimId, i128>,
}

impl Aims {
    /// The types that a machine of the NodePool with these requirements is best filled up to, the best first.
    pub(crate) fn of(&mut self, problem: &Problem<'_>, aim: Aim, pool: PoolId, set: SetId, view: &View) -> impl Iterator<Item = TypeId> {
        if self.total.is_empty() {
            self.total = total_requests(problem);
        }
        let total = &self.total;
        self.by_set.entry((pool, set)).or_insert_with(|| ranked(problem, aim, pool, view, total)).iter().copied()
    }
}

/// A type that machines may be filled up to.
struct Scored {
    too_large: bool,
    /// What all pods together would cost on machines of this type.
    cost_of_all: f64,
    instance_type: TypeId,
}

fn total_requests(problem: &Problem<'_>) -> IdVec<DimId, i128> {
    let mut out = IdVec::filled(0, &problem.dims.names);
    for entry in &problem.queue {
        let requests = &problem.classes[entry.class].requests;
        out.iter_mut().zip(requests).for_each(|(sum, amount)| *sum += i128::from(*amount));
    }
    out
}

fn ranked(problem: &Problem<'_>, aim: Aim, pool: PoolId, view: &View, total: &IdVec<DimId, i128>) -> Vec<TypeId> {
    let keep = problem.types_to_keep(pool, view);
    let pool = &problem.pools[pool];
    let catalog = &problem.catalogs[pool.catalog];
    let mut usable = pool.types.clone();
    usable.intersect_with(&view.usable);
    let keep = keep.min(usable.count());
    problem.meter.spend(meter::NARROW + usable.count() * total.len() * catalog.len() / 64 / meter::WORDS);
    let mut scored: Vec<Scored> = Vec::new();
    for t in usable.iter().filter(|t| view.price[*t] != NO_PRICE) {
        let daemons = pool.daemons.iter().find(|group| group.types.has(t));
        let taken = |dim: DimId| daemons.map_or(0, |group| group.overhead[dim]);
        let room = |dim: DimId| catalog.allocatable[t][dim] - taken(dim);
        let part = |dim: DimId| room(dim) as f64 / total[dim] as f64;
        let part = total.ids().filter(|dim| total[*dim] > 0).map(part).fold(f64::MAX, f64::min);
        if part <= 0.0 {
            continue;
        }
        let types_with_room = |tenths: i64| {
            let filled: Vec<i64> = total.ids().map(|dim| if total[dim] > 0 { room(dim) / 10 * tenths + taken(dim) } else { 0 }).collect();
            let mut as_large: Bits = usable.clone();
            catalog.keep_fitting(&filled, &mut as_large);
            as_large.count()
        };
        let Some(filled) = FILLED.into_iter().find(|tenths| types_with_room(*tenths) >= keep) else { continue };
        let other_cost = if aim == Aim::ByPrice { 0 } else { pool.machine_cost };
        let each = view.price[t].saturating_add(other_cost) as f64;
        let too_large = aim == Aim::Smaller && part > SMALLER;
        scored.push(Scored { too_large, cost_of_all: each / (part * filled as f64 / 10.0).min(1.0), instance_type: t });
    }
    scored.sort_by(|a, b| a.too_large.cmp(&b.too_large).then(a.cost_of_all.total_cmp(&b.cost_of_all)));
    scored.into_iter().map(|scored| scored.instance_type).collect()
}

//! NodePool limits: what a claim is charged with before its instance type is known, and which types it may keep.
//!
//! Karpenter charges a NodeClaim with its largest possible type when it is opened, however small its pods are. Here a claim is
//! charged with the largest of the few types that it has to keep; once all pods have places, what remains of the limits is
//! spent on keeping more types. Whatever is launched, no limit is exceeded.

use super::bits::Bits;
use super::catalog::View;
use super::hash::Map;
use super::ids::{CatalogId, ClaimId, DimId, Id as _, IdVec, PoolId, SetId, TypeId};
use super::pools::min_values_met;
use super::price_index::{DIMS, TypePriceIndex, amounts};
use super::problem::Problem;
use super::state::State;
use std::cmp::Ordering;

/// The first of `types`, in their order, until there are `keep` of them and as many more as `minValues` requires. Everything
/// that drops types of a claim goes through this function, so that a claim always keeps the distinct values that were settled.
fn keep_first(problem: &Problem<'_>, pool: PoolId, view: &View, types: impl Iterator<Item = TypeId>, keep: usize) -> Bits {
    let catalog = &problem.catalogs[problem.pools[pool].catalog];
    let mut out = Bits::none(catalog.len());
    for (n, t) in types.enumerate() {
        if n >= keep && min_values_met(catalog, view, &out) {
            break;
        }
        out.insert(t);
    }
    out
}

/// The cheapest `keep` of `types`, and as many more as `minValues` requires.
fn cheapest(problem: &Problem<'_>, pool: PoolId, view: &View, types: &Bits, keep: usize) -> Bits {
    keep_first(problem, pool, view, view.by_price(types), keep)
}

/// The names of the resources of which the NodePool's limits leave too little for each of `types`; where none alone does, of all that
/// leave too little for one.
pub(crate) fn excluding(problem: &Problem<'_>, state: &State, pool: PoolId, types: &Bits) -> Vec<String> {
    let catalog = &problem.catalogs[problem.pools[pool].catalog];
    let left = state.limits[pool].enumerate().filter_map(|(dim, left)| Some((dim, (*left)?)));
    let kept = left.map(|(dim, left)| {
        let mut kept = types.clone();
        catalog.keep_no_larger(dim, left, &mut kept);
        (dim, kept.count())
    });
    let kept: Vec<(DimId, usize)> = kept.filter(|(_, kept)| *kept < types.count()).collect();
    let alone = kept.iter().any(|(_, kept)| *kept == 0);
    kept.into_iter().filter(|(_, kept)| !alone || *kept == 0).map(|(dim, _)| problem.dims.names[dim].clone()).collect()
}

/// Those of `types` that charge the NodePool's limits least, and as many of the next larger as `minValues` requires.
pub(crate) fn smallest(problem: &Problem<'_>, pool: PoolId, view: &View, types: &Bits) -> Bits {
    let catalog = &problem.catalogs[problem.pools[pool].catalog];
    let limited = || problem.pools[pool].limits.enumerate().filter(|(_, limit)| limit.is_some()).map(|(dim, _)| dim);
    let by_size = |a: TypeId, b: TypeId| limited().map(|dim| catalog.capacity[a][dim].cmp(&catalog.capacity[b][dim])).find(|o| o.is_ne());
    let by_size = |a: &TypeId, b: &TypeId| by_size(*a, *b).unwrap_or(Ordering::Equal);
    let Some(least) = types.iter().min_by(by_size) else { return types.clone() };
    let (mut order, larger): (Vec<TypeId>, Vec<TypeId>) = types.iter().partition(|t| by_size(t, &least).is_eq());
    let keep = order.len();
    if !view.min_values.is_empty() {
        let from = order.len();
        order.extend(larger);
        order[from..].sort_by(by_size);
    }
    keep_first(problem, pool, view, order.into_iter(), keep)
}

/// What a claim with `types` is charged with when it keeps `keep` of them; empty without limits.
pub(crate) fn charge(problem: &Problem<'_>, pool: PoolId, view: &View, types: &Bits, keep: usize) -> IdVec<DimId, i64> {
    if !problem.pools[pool].is_limited() {
        return IdVec::new();
    }
    let catalog = &problem.catalogs[problem.pools[pool].catalog];
    let kept = cheapest(problem, pool, view, types, keep);
    problem.pools[pool].limits.enumerate().map(|(dim, limit)| if limit.is_some() { catalog.largest(dim, &kept) } else { 0 }).collect()
}

/// Types of a NodePool that its limits still allow; `None` if no more machines are allowed.
pub(crate) fn allowed_types(problem: &Problem<'_>, state: &State, pool: PoolId) -> Option<Bits> {
    if state.node_limits[pool].is_some_and(|left| left < 1000) {
        return None;
    }
    let mut types = problem.pools[pool].types.clone();
    let catalog = &problem.catalogs[problem.pools[pool].catalog];
    for (dim, left) in state.limits[pool].enumerate() {
        if let Some(left) = left {
            catalog.keep_no_larger(dim, *left, &mut types);
        }
    }
    (!types.is_empty()).then_some(types)
}

impl State {
    /// Charges all claims again with `keep` types each. Returns whether that is within the limits; if not, nothing changes.
    pub(crate) fn charge_all(&mut self, problem: &mut Problem<'_>, keep: usize) -> bool {
        let mut known: Map<(PoolId, SetId, Bits), IdVec<DimId, i64>> = Map::default();
        let mut charges = Vec::with_capacity(self.claims.len());
        let mut left: IdVec<PoolId, IdVec<DimId, Option<i64>>> = problem.pools.iter().map(|pool| pool.limits.clone()).collect();
        for claim in &self.claims {
            let view = problem.view(problem.pools[claim.pool].catalog, claim.set);
            let charged = known
                .entry((claim.pool, claim.set, claim.types.clone()))
                .or_insert_with(|| charge(problem, claim.pool, &view, &claim.types, keep))
                .clone();
            for (left, more) in left[claim.pool].iter_mut().zip(&charged) {
                *left = left.map(|n| n.saturating_sub(*more));
            }
            charges.push(charged);
        }
        if left.iter().flatten().flatten().any(|n| *n < 0) {
            return false;
        }
        self.limits = left;
        self.claims.iter_mut().zip(charges).for_each(|(claim, charged)| claim.charged = charged);
        true
    }

    /// Charges a claim with what it is now.
    pub(crate) fn recharge(&mut self, problem: &mut Problem<'_>, at: ClaimId, keep: usize) {
        let claim = &self.claims[at];
        if !problem.pools[claim.pool].is_limited() {
            return;
        }
        let view = problem.view(problem.pools[claim.pool].catalog, claim.set);
        let charged = charge(problem, claim.pool, &view, &claim.types, keep);
        let claim = &mut self.claims[at];
        for (dim, left) in self.limits[claim.pool].enumerate_mut() {
            let before = claim.charged.get(dim).copied().unwrap_or(0);
            *left = left.map(|n| n.saturating_add(before).saturating_sub(charged[dim]));
        }
        claim.charged = charged;
    }

    /// The types that an open claim may still become under its NodePool's limits; `None` if the limits rule none out.
    pub(crate) fn types_within_limits(&self, problem: &Problem<'_>, at: ClaimId) -> Option<Bits> {
        let claim = &self.claims[at];
        let catalog = &problem.catalogs[problem.pools[claim.pool].catalog];
        let mut out: Option<Bits> = None;
        for (dim, left) in self.limits[claim.pool].enumerate() {
            let Some(left) = left else { continue };
            let most = left.saturating_add(claim.charged.get(dim).copied().unwrap_or(0));
            if most < catalog.largest_of_all(dim) {
                catalog.keep_no_larger(dim, most, out.get_or_insert_with(|| claim.types.clone()));
            }
        }
        out
    }

    /// Replaces the charges `before`, by dimension, by `after` if the NodePool's limits allow it.
    pub(crate) fn swap_charges(&mut self, pool: PoolId, before: &[i64], after: &[i64]) -> bool {
        let of = |list: &[i64], dim: DimId| list.get(dim.position()).copied().unwrap_or(0);
        let left = &mut self.limits[pool];
        let after_all = |(dim, left): (DimId, &Option<i64>)| left.map(|n| n.saturating_add(of(before, dim)).saturating_sub(of(after, dim)));
        let new: IdVec<DimId, Option<i64>> = left.enumerate().map(after_all).collect();
        // What exceeds its limit already may remain as it is.
        let fine = new.iter().zip(left.iter()).all(|(new, old)| new.is_none_or(|n| n >= 0 || Some(n) >= *old));
        if fine {
            *left = new;
        }
        fine
    }

    /// Lets claims keep all types with room for their pods again, if one type each is within the limits then.
    pub(crate) fn widen_types(&mut self, problem: &mut Problem<'_>) {
        if problem.dims.len() > DIMS {
            return;
        }
        let mut price_indexes: Map<(PoolId, SetId), TypePriceIndex<DIMS>> = Map::default();
        let mut before: Vec<(ClaimId, Bits)> = Vec::new();
        for (at, claim) in self.claims.enumerate_mut() {
            let avoids_daemons = || claim.pods.iter().any(|pod| !problem.classes[problem.class_of[*pod]].avoids.is_empty());
            let fixed = !claim.reservations.is_empty() || !claim.ports.is_empty() || claim.relaxed || avoids_daemons();
            if problem.pools[claim.pool].is_limited() && !fixed {
                let price_index =
                    price_indexes.entry((claim.pool, claim.set)).or_insert_with(|| TypePriceIndex::open(problem, claim.pool, claim.set));
                let mut types = price_index.types(&amounts(claim.requests.as_slice()));
                problem.catalogs[problem.pools[claim.pool].catalog].keep_attaching(claim.ebs_volumes.len(), &mut types);
                before.push((at, std::mem::replace(&mut claim.types, types)));
            }
        }
        if !self.charge_all(problem, 1) {
            before.into_iter().for_each(|(at, types)| self.claims[at].types = types);
        }
    }

    /// Drops types, the most expensive first, where all claims together could exceed a limit: each claim of a NodePool keeps
    /// equally many, as many as the limits allow. Returns whether they are within the limits then.
    #[must_use]
    pub(crate) fn keep_within_limits(&mut self, problem: &mut Problem<'_>) -> bool {
        let mut within = true;
        for pool in problem.pools.ids().filter(|pool| problem.pools[*pool].is_limited()).collect::<Vec<_>>() {
            struct Alike<'c> {
                set: SetId,
                types: &'c Bits,
                claims: i128,
            }
            let mut distinct: Vec<Alike<'_>> = Vec::new();
            let mut at: Map<(SetId, &Bits), usize> = Map::default();
            for claim in self.claims.iter().filter(|claim| claim.pool == pool) {
                let n = *at.entry((claim.set, &claim.types)).or_insert_with(|| {
                    distinct.push(Alike { set: claim.set, types: &claim.types, claims: 0 });
                    distinct.len() - 1
                });
                distinct[n].claims += 1;
            }
            let mut fits = |keep: usize| {
                let mut left: Vec<Option<i128>> = problem.pools[pool].limits.iter().map(|l| l.map(i128::from)).collect();
                for Alike { set, types, claims } in &distinct {
                    let view = problem.view(problem.pools[pool].catalog, *set);
                    let charge = charge(problem, pool, &view, types, keep);
                    for (left, more) in left.iter_mut().zip(charge) {
                        *left = left.map(|n| n - i128::from(more) * claims);
                    }
                }
                left.iter().flatten().all(|n| *n >= 0)
            };
            let most = distinct.iter().map(|alike| alike.types.count()).max().unwrap_or(0);
            if most == 0 || fits(most) {
                continue;
            }
            let (mut low, mut high) = (1, most);
            while low + 1 < high {
                let middle = usize::midpoint(low, high);
                if fits(middle) { low = middle } else { high = middle }
            }
            within &= low > 1 || fits(low);
            for claim in self.claims.iter_mut().filter(|c| c.pool == pool) {
                let view = problem.view(problem.pools[pool].catalog, claim.set);
                claim.types = cheapest(problem, pool, &view, &claim.types, low);
            }
        }
        within
    }

    /// Whether every claim can still be launched as stated: with the distinct values that `minValues` requires, and from the
    /// reservations that it holds.
    pub(crate) fn is_launchable(&self, problem: &mut Problem<'_>) -> bool {
        let mut known: Map<(CatalogId, SetId, &Bits), bool> = Map::default();
        self.claims.iter().all(|claim| {
            let at = problem.pools[claim.pool].catalog;
            let view = problem.view(at, claim.set);
            let catalog = &problem.catalogs[at];
            let mut reserved = catalog.kinds.iter().filter(|kind| kind.reservation.is_some_and(|id| claim.reservations.contains(&id)));
            let reservable = claim.reservations.is_empty() || reserved.any(|kind| kind.available.intersects(&claim.types));
            let mut varied = || min_values_met(catalog, &view, &claim.types);
            let varied = view.min_values.is_empty() || *known.entry((at, claim.set, &claim.types)).or_insert_with(&mut varied);
            reservable && varied && !claim.types.is_empty()
        })
    }
}

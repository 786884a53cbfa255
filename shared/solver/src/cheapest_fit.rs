//! Chooses among open claims by what the pod would add to their price.

use super::bits::Bits;
use super::catalog_index::NO_PRICE;
use super::fit::{self, ClaimRules, ClaimTarget, FitError};
use super::ids::{ClaimId, Id as _, IdVec, PoolId, TypeId};
use super::limits;
use super::meter;
use super::packing_run::{Choice, PackingRun};
use super::pod::{Class, Relaxation};
use super::state::{Fit, RefusalCache};
use std::collections::BTreeSet;

/// How many open claims are checked per pod for room to spare; with more, a rolling window reaches all of them in turn.
const QUICK_CHECKS_MAX: usize = 256;
/// How many of them are checked in full when none has room to spare.
const FULL_CHECKS_MAX: usize = 12;

impl PackingRun<'_, '_> {
    /// Records the current price of an open claim and what it has to spare.
    pub(crate) fn remember_price(&mut self, at: ClaimId) {
        if matches!(self.choice, Choice::Karpenter | Choice::FewestPods) {
            return;
        }
        let (pool, set) = (self.state.claims[at].pool, self.state.claims[at].set);
        let view = self.problem.view(self.problem.pools[pool].catalog, set);
        let claim = &self.state.claims[at];
        let catalog = &self.problem.catalogs[self.problem.pools[pool].catalog];
        let aimed = match self.choice {
            Choice::Aimed(aim) => self.aims.of(self.problem, aim, pool, set, &view).find(|t| claim.types.has(*t)),
            Choice::Karpenter | Choice::FewestPods | Choice::Cheapest => None,
        };
        let aimed = aimed.map(|t| (t, view.price[t]));
        let (cheapest, price) = aimed.or_else(|| view.cheapest(&claim.types)).unwrap_or((TypeId::at(0), NO_PRICE));
        let daemons = self.problem.pools[pool].daemons.iter().find(|g| g.types.has(cheapest));
        let dims = claim.requests.len();
        if self.prices.least.is_empty() {
            self.prices.least =
                claim.requests.ids().map(|dim| self.problem.classes.iter().map(|c| c.requests[dim]).min().unwrap_or(0)).collect();
        }
        if self.prices.price.get(at).is_none() {
            self.prices.price.grow_to(at, NO_PRICE);
            self.prices.spare.resize((at.position() + 1) * dims, 0);
            self.prices.full.grow(at.position() + 1);
        }
        self.prices.price[at] = price;
        let mut full = false;
        for dim in claim.requests.ids() {
            let left = catalog.allocatable[cheapest][dim] - claim.requests[dim] - daemons.map_or(0, |g| g.overhead[dim]);
            self.prices.spare[at.position() * dims + dim.position()] = left;
            full |= left < self.prices.least[dim];
        }
        if full {
            self.prices.full.insert(at);
        } else {
            self.prices.full.remove(at);
        }
    }

    /// The open claim whose price grows least with the pod; `None` if a new one is cheaper.
    pub(crate) fn find_cheapest(&mut self, class: &Class, relaxation: &Relaxation, refusals: &mut RefusalCache) -> Option<(ClaimId, Fit)> {
        let open = self.state.claims.len();
        if open == 0 {
            return None;
        }
        let dims = self.problem.dims.len();
        let start = self.prices.window.get(&relaxation.id).map_or(0, |at| at.position() % open);
        let open_by_topology = self.open_by_topology(relaxation);
        let mut tight: Vec<(i64, ClaimId)> = Vec::new();
        let mut full_checks = 0;
        let mut best: Option<Cheapest> = None;
        self.problem.meter.spend(meter::POD + open / 64 / meter::WORDS * 4);
        let mut out = refusals.claims.clone();
        out.absorb(&self.prices.full);
        let mut window = Window { from: start, start, wrapped: false };
        let mut at = ClaimId::at(start);
        for _ in 0..QUICK_CHECKS_MAX {
            self.problem.meter.spend(meter::QUICK_CHECK);
            let Some(next) = window.next(&self.state.all, &out, open_by_topology.as_ref()) else { break };
            at = next;
            if let Some(left) = slack(self.prices.spare_of(at, dims), class.requests.as_slice()) {
                tight.push((left, at));
                if tight.len() >= FULL_CHECKS_MAX / 2 {
                    break;
                }
            }
        }
        tight.sort_unstable();
        for (left, at) in tight {
            if let Some((added_price, fit)) = self.added_price(at, class, relaxation, refusals)
                && best.as_ref().is_none_or(|best| (added_price, left, at) < (best.added_price, best.left, best.claim))
            {
                let free = added_price == 0;
                best = Some(Cheapest { added_price, left, claim: at, fit });
                if free {
                    break;
                }
            }
            full_checks += 1;
        }
        if best.as_ref().is_none_or(|best| best.added_price > 0) {
            let mut window = Window { from: start, start, wrapped: false };
            while full_checks < FULL_CHECKS_MAX {
                let Some(at) = window.next(&self.state.all, &refusals.claims, open_by_topology.as_ref()) else { break };
                full_checks += 1;
                if let Some((added_price, fit)) = self.added_price(at, class, relaxation, refusals)
                    && best.as_ref().is_none_or(|best| (added_price, at) < (best.added_price, best.claim))
                {
                    best = Some(Cheapest { added_price, left: i64::MAX, claim: at, fit });
                }
            }
        }
        self.prices.window.insert(relaxation.id, best.as_ref().map_or(at, |best| best.claim));
        let Cheapest { added_price, claim, fit, .. } = best?;
        (added_price <= self.price_alone(class, relaxation)).then_some((claim, fit))
    }

    /// How much the price of an open claim would grow.
    fn added_price(&mut self, at: ClaimId, class: &Class, relaxation: &Relaxation, refusals: &mut RefusalCache) -> Option<(u64, Fit)> {
        match self.fit_open(at, class, relaxation) {
            Ok(fit) => {
                let catalog = self.problem.pools[self.state.claims[at].pool].catalog;
                let view = self.problem.view(catalog, fit.set);
                let (_, price) = view.cheapest(&fit.types)?;
                if self.leaves_too_few_types(at, &fit) {
                    return None;
                }
                Some((price.saturating_sub(self.prices.price[at]), fit))
            }
            Err(FitError::Permanent) => {
                refusals.claims.insert(at);
                None
            }
            Err(_) => None,
        }
    }

    /// The price of a machine for this pod alone, as an estimate: it guides the choice but decides nothing.
    fn price_alone(&mut self, class: &Class, relaxation: &Relaxation) -> u64 {
        if let Some(price) = self.prices.price_alone.get(&relaxation.id) {
            return *price;
        }
        let mut price = NO_PRICE;
        for pool in self.problem.pools.ids() {
            let Some(types) = limits::allowed_types(self.problem, &self.state, pool) else { continue };
            if let Some(found) = self.price_on(pool, &types, class, relaxation) {
                price = found;
                break;
            }
        }
        self.prices.price_alone.insert(relaxation.id, price);
        price
    }

    fn price_on(&mut self, pool: PoolId, types: &Bits, class: &Class, relaxation: &Relaxation) -> Option<u64> {
        let zeros = IdVec::filled(0, &self.problem.dims.names);
        let (set, no_volumes) = (self.problem.pools[pool].set, BTreeSet::new());
        let target =
            ClaimTarget { pool, set, types, requests: &zeros, ports: &[], ebs_volumes: &no_volumes, reservations: &[], host: None };
        let rules = ClaimRules { state: &self.state, options: self.options, packing: self.packing_options };
        let fit = fit::check_claim(self.problem, rules, target, class, relaxation).ok()?;
        let view = self.problem.view(self.problem.pools[pool].catalog, fit.set);
        view.cheapest(&fit.types).map(|(_, price)| price.saturating_add(self.problem.pools[pool].machine_cost))
    }
}

/// The best open claim so far for a pod.
struct Cheapest {
    added_price: u64,
    /// What would be left of the scarcest dimension, as [`slack`] measures it; the maximum where that was not measured.
    left: i64,
    claim: ClaimId,
    fit: Fit,
}

/// Goes once around all claims, by their positions.
struct Window {
    from: usize,
    start: usize,
    wrapped: bool,
}

impl Window {
    fn next(&mut self, all: &Bits<ClaimId>, out: &Bits<ClaimId>, only: Option<&Bits<ClaimId>>) -> Option<ClaimId> {
        if !self.wrapped {
            if let Some(at) = all.next_without(out, only, self.from) {
                self.from = at.position() + 1;
                return Some(at);
            }
            self.wrapped = true;
            self.from = 0;
        }
        let at = all.next_without(out, only, self.from).filter(|at| at.position() < self.start)?;
        self.from = at.position() + 1;
        Some(at)
    }
}

/// What would be left of the scarcest dimension, in millionths of what is spare; `None` if the pod does not fit.
fn slack(spare: &[i64], want: &[i64]) -> Option<i64> {
    let mut most: f64 = 0.0;
    for (have, want) in spare.iter().zip(want) {
        if want > have {
            return None;
        }
        if *want > 0 {
            // Without integer division, which would take longer than everything else here.
            most = f64::max(most, (have - want) as f64 / have.max(&1).to_owned() as f64);
        }
    }
    Some((most * 1e6) as i64)
}

//! Several ways of packing compete; the reference's own is always among them, so that no plan is worse than its.

use super::catalog::NO_PRICE;
use super::finish;
use super::fit::Freedom;
use super::place::{Choice, FirstFit, Outcome};
use super::pod::Entry;
use super::problem::Problem;
use super::topology::Kind;
use super::{Cursor, Options, Packing, Plan};
use std::collections::BTreeSet;
use whittle_units::Price;

/// The cheapest plan among those that leave out the fewest pods.
pub(crate) fn best(p: &mut Problem<'_>, options: &Options) -> Plan {
    let queue = in_turn(p, &options.cursor);
    let budget = options.work_budget.unwrap_or(u64::MAX);
    let mut won = FirstFit::new(p, options, Freedom::NONE, Choice::FewestPods, budget).run(&queue);
    let mut name = "first fit";
    let mut work = won.work;
    // What does not finish in one run is not worth a second look in the same run.
    if options.packing == Packing::Best && won.unseen.is_empty() {
        for way in ways(&won) {
            if work >= budget {
                break;
            }
            let order = way.order.sort(p, &queue);
            let tried = FirstFit::new(p, options, way.freedom, way.choice, budget - work).run(&order);
            work += tried.work;
            if tried.unseen.is_empty() && value(p, &tried) < value(p, &won) {
                won = tried;
                name = way.name;
            }
        }
    }
    // Nobody asks what a simulation could cost at least, and there are many of them.
    let bound = if options.simulation.is_none() { lower_bound(p, &won) } else { None };
    let mut plan = finish::plan(p, options, &won);
    plan.packing = name;
    plan.work = work;
    plan.lower_bound = bound;
    if !won.unseen.is_empty() {
        let unseen: BTreeSet<usize> = won.unseen.iter().map(|e| e.pod).collect();
        let uid = |e: &Entry| p.pods[e.pod].metadata.uid.clone();
        let before = &options.cursor.considered;
        let considered: BTreeSet<String> = queue.iter().filter(|e| !unseen.contains(&e.pod) || before.contains(&uid(e))).map(uid).collect();
        // The round ends when every pod has had its turn; the next one starts afresh.
        plan.cursor = (considered.len() < queue.len()).then_some(Cursor { considered });
    }
    plan
}

/// The queue, with those last that had their turn in this round.
fn in_turn(p: &Problem<'_>, cursor: &Cursor) -> Vec<Entry> {
    let mut queue = p.queue.clone();
    if !cursor.considered.is_empty() {
        queue.sort_by_key(|e| cursor.considered.contains(&p.pods[e.pod].metadata.uid));
    }
    queue
}

/// One way of packing.
struct Way {
    name: &'static str,
    freedom: Freedom,
    choice: Choice,
    order: Order,
}

/// In which order pods are placed.
#[derive(Clone, Copy)]
enum Order {
    Queue,
    /// By the largest share of what all pods together ask for.
    Largest,
    /// Pods that repel others on a machine first: they need a machine each, which the others may fill.
    Repelling,
}

fn ways(reference: &Outcome) -> Vec<Way> {
    let way = |name, freedom, choice, order| Way { name, freedom, choice, order };
    let mut out = vec![
        way("repelling first, cheapest fit", Freedom::FULL, Choice::Cheapest, Order::Repelling),
        way("largest first, cheapest fit", Freedom::FULL, Choice::Cheapest, Order::Largest),
    ];
    if !reference.left.is_empty() {
        out.insert(0, way("first fit, pinned", Freedom::FULL, Choice::FewestPods, Order::Queue));
        let narrow = Freedom { narrow: true, ..Freedom::FULL };
        out.push(way("smallest types, cheapest fit", narrow, Choice::Cheapest, Order::Queue));
    }
    out
}

impl Order {
    fn sort(self, p: &Problem<'_>, queue: &[Entry]) -> Vec<Entry> {
        let mut out = queue.to_vec();
        let mut total = vec![0i128; p.dims.len()];
        for entry in queue {
            for (sum, amount) in total.iter_mut().zip(&p.classes[entry.class.0 as usize].requests) {
                *sum += i128::from(*amount);
            }
        }
        let shares: Vec<i128> = p
            .classes
            .iter()
            .map(|c| c.requests.iter().zip(&total).map(|(n, t)| i128::from(*n) * 1_000_000_000_000 / (*t).max(1)).max().unwrap_or(0))
            .collect();
        let repelling: Vec<bool> = p
            .classes
            .iter()
            .map(|c| {
                let groups = c.forms[0].owned.iter().map(|g| &p.groups[g.0 as usize]);
                groups.filter(|g| g.kind == Kind::Anti && g.by_host).any(|g| g.selects.has(c.labels.0 as usize))
            })
            .collect();
        match self {
            Order::Queue => {}
            Order::Largest => out.sort_by_key(|e| std::cmp::Reverse(shares[e.class.0 as usize])),
            Order::Repelling => out.sort_by_key(|e| {
                let class = e.class.0 as usize;
                (std::cmp::Reverse(repelling[class]), std::cmp::Reverse(shares[class]))
            }),
        }
        out
    }
}

/// Fewer pods left out first, then less money.
fn value(p: &mut Problem<'_>, outcome: &Outcome) -> (usize, u128) {
    let mut price = 0;
    for claim in &outcome.state.claims {
        let catalog = p.pools[claim.pool].catalog;
        let view = p.view(catalog, claim.set);
        let reserved = if claim.held.is_empty() { None } else { reserved_price(p, claim) };
        price += u128::from(reserved.or_else(|| view.cheapest(&claim.types).map(|(_, n)| n)).unwrap_or(NO_PRICE));
    }
    (outcome.left.len(), price)
}

/// A claim that holds reservations is pinned to them.
fn reserved_price(p: &Problem<'_>, claim: &super::state::Claim) -> Option<u64> {
    let kinds = p.catalogs[p.pools[claim.pool].catalog].kinds.iter().filter(|k| k.reservation.is_some_and(|r| claim.held.contains(&r)));
    kinds.flat_map(|k| claim.types.iter().map(|t| k.price[t])).min()
}

/// No plan that puts the same pods on new machines costs less: for each resource, the pods' sum at the best price per unit
/// that any type offers. Ignores that machines come whole, and every constraint.
fn lower_bound(p: &mut Problem<'_>, outcome: &Outcome) -> Option<Price> {
    let mut sums = vec![0i128; p.dims.len()];
    for claim in &outcome.state.claims {
        for (sum, amount) in sums.iter_mut().zip(&claim.requests) {
            *sum += i128::from(*amount);
        }
    }
    let views: Vec<_> = (0..p.pools.len()).map(|at| p.view(p.pools[at].catalog, p.pools[at].set)).collect();
    let mut bound: i128 = 0;
    for (d, sum) in sums.iter().enumerate().filter(|(_, s)| **s > 0) {
        let mut least: Option<i128> = None;
        for (pool, view) in p.pools.iter().zip(&views) {
            let catalog = &p.catalogs[pool.catalog];
            for t in pool.types.iter().filter(|t| catalog.allocatable[*t][d] > 0 && view.price[*t] != NO_PRICE) {
                let cost = sum * i128::from(view.price[t]) / i128::from(catalog.allocatable[t][d]);
                least = Some(least.map_or(cost, |l| l.min(cost)));
            }
        }
        bound = bound.max(least.unwrap_or(0));
    }
    Some(Price::from_nanos(u64::try_from(bound).unwrap_or(u64::MAX)))
}

//! Sets of nodes whose pods one cheaper machine could hold, found by arithmetic.
//!
//! The reference looks at the first so many nodes of one order (disruption 8.4). A cluster that grew by small machines has
//! other sets: some of them fill one larger machine better than they fill themselves. Only amounts are added up here; the
//! simulation has the last word on each set.

use super::budgets::Left;
use super::candidates::Candidate;
use super::outlook::{resource_names, vector};
use super::state::World;
use crate::pods::{effective_requests, is_daemon_owned};
use crate::requirements::{Requirements, from_requirements};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::InstanceType;
use whittle_units::Price;

/// So many sets are proposed at most.
const PROPOSED_MAX: usize = 24;
/// So many nodes are tried as the first of a set, for each size of machine.
const FIRSTS: usize = 6;
/// The whole of a machine, in shares.
const WHOLE: i128 = 1_000_000;

/// Nodes, by position, that could go together for one machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bundle {
    pub(super) nodes: Vec<usize>,
    /// What they cost more than that machine.
    pub(super) promise: Price,
}

/// The most promising sets within the budgets, best first.
pub(super) fn bundles(world: &World<'_>, nodes: &[Candidate<'_>], left: &Left, most: usize) -> Vec<Bundle> {
    let names = resource_names(world);
    let mut by_pool: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.price > Price::ZERO) {
        by_pool.entry(node.pool_name()).or_default().push(at);
    }
    let mut found = BTreeSet::new();
    for (pool, members) in by_pool {
        let most = most.min(usize::try_from(left.of(pool)).unwrap_or(usize::MAX));
        if most >= 2 && members.len() >= 2 {
            found.extend(Yard::new(world, &names, nodes, &members, most).bundles());
        }
    }
    let mut found: Vec<Bundle> = found.into_iter().collect();
    found.sort_by(|a, b| b.promise.cmp(&a.promise).then_with(|| a.nodes.cmp(&b.nodes)));
    found.truncate(PROPOSED_MAX);
    found
}

/// A node that may go: its position, what its pods ask for, and its price.
struct Member {
    at: usize,
    need: Vec<i64>,
    price: Price,
}

/// The nodes of one NodePool, and what it can buy.
struct Yard<'w> {
    members: Vec<Member>,
    /// What the pool asks of types.
    asked: Requirements,
    /// Types by what they have for pods, with the price of the cheapest.
    sizes: BTreeMap<Vec<i64>, (Price, Vec<&'w InstanceType>)>,
    /// Nodes in a set.
    most: usize,
}

impl<'w> Yard<'w> {
    fn new(world: &World<'w>, names: &[&str], nodes: &[Candidate<'w>], of_pool: &[usize], most: usize) -> Self {
        let sum = |pods: &mut dyn Iterator<Item = &whittle_api::k8s::Pod>| {
            let mut sum = vec![0_i64; names.len()];
            for pod in pods {
                add(&mut sum, &vector(names, &effective_requests(pod)));
            }
            sum
        };
        let mut daemons = vec![0; names.len()];
        let mut members = Vec::with_capacity(of_pool.len());
        for at in of_pool {
            let node = &nodes[*at];
            let own = sum(&mut node.machine.pods.iter().copied().filter(|pod| is_daemon_owned(pod)));
            daemons = daemons.iter().zip(&own).map(|(known, own)| *known.max(own)).collect();
            members.push(Member { at: *at, need: sum(&mut node.pods.iter().copied()), price: node.price });
        }
        let pool = nodes[of_pool[0]].pool;
        let asked = from_requirements(&pool.spec.template.spec.requirements);
        let admitted = world.offers.admitted(&asked);
        let mut sizes: BTreeMap<Vec<i64>, (Price, Vec<&'w InstanceType>)> = BTreeMap::new();
        for instance_type in world.input.cluster.catalog.get(&pool.metadata.name).iter().flat_map(|types| types.iter()) {
            let offered = world.offers.kinds_of(instance_type).filter(|(kind, offering)| offering.available && admitted[*kind]);
            let Some(price) = offered.map(|(_, offering)| offering.price).filter(|price| *price > Price::ZERO).min() else { continue };
            let room: Vec<i64> = vector(names, &instance_type.allocatable()).iter().zip(&daemons).map(|(all, own)| all - own).collect();
            let size = sizes.entry(room).or_insert_with(|| (price, Vec::new()));
            size.0 = price.min(size.0);
            size.1.push(instance_type);
        }
        Self { members, asked, sizes, most }
    }

    fn bundles(&self) -> Vec<Bundle> {
        let dearest: Price = self.members.iter().map(|member| member.price).sum();
        let mut out = Vec::new();
        for (room, (price, types)) in self.sizes.iter().filter(|(_, (price, _))| *price < dearest) {
            let found = self.fill(room, *price);
            // Asked last: most types promise nothing.
            if !found.is_empty() && types.iter().any(|instance_type| self.may_buy(instance_type)) {
                out.extend(found);
            }
        }
        out
    }

    fn may_buy(&self, instance_type: &InstanceType) -> bool {
        self.asked.intersects(&from_requirements(&instance_type.requirements)).is_ok()
    }

    /// Sets that fit into a machine and cost more than it does.
    fn fill(&self, room: &[i64], price: Price) -> Vec<Bundle> {
        let mut fitting: Vec<(i128, &Member)> = self
            .members
            .iter()
            .filter(|member| member.price < price)
            .filter_map(|member| Some((share(&member.need, room)?, member)))
            .collect();
        let mut out = Vec::new();
        // Who costs the most for what they hold, then who holds the most: few may go at once.
        fitting.sort_by(|a, b| worth(b).cmp(&worth(a)).then_with(|| a.1.at.cmp(&b.1.at)));
        let firsts: Vec<&Member> = fitting.iter().take(FIRSTS).map(|(_, member)| *member).collect();
        out.extend(firsts.iter().filter_map(|first| self.gather(first, &fitting, room, price)));
        fitting.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.at.cmp(&b.1.at)));
        out.extend(firsts.iter().filter_map(|first| self.gather(first, &fitting, room, price)));
        out
    }

    fn gather(&self, first: &Member, order: &[(i128, &Member)], room: &[i64], price: Price) -> Option<Bundle> {
        let mut load = first.need.clone();
        let (mut nodes, mut cost) = (vec![first.at], first.price);
        for (_, member) in order {
            if nodes.len() == self.most {
                break;
            }
            let fits = load.iter().zip(&member.need).zip(room).all(|((load, more), room)| load.saturating_add(*more) <= *room);
            if fits && member.at != first.at {
                add(&mut load, &member.need);
                nodes.push(member.at);
                cost += member.price;
            }
        }
        nodes.sort_unstable();
        let promise = Price::from_nanos(cost.nanos().checked_sub(price.nanos())?);
        (nodes.len() >= 2 && promise > Price::ZERO).then_some(Bundle { nodes, promise })
    }
}

/// The largest share of a machine's room that some pods take; nothing when they do not fit.
fn share(need: &[i64], room: &[i64]) -> Option<i128> {
    let mut most = 1;
    for (need, room) in need.iter().zip(room).filter(|(need, _)| **need > 0) {
        if need > room {
            return None;
        }
        most = most.max(i128::from(*need) * WHOLE / i128::from(*room));
    }
    Some(most)
}

/// Price for the share that is held.
fn worth((share, member): &(i128, &Member)) -> i128 {
    i128::from(member.price.nanos()) * WHOLE / *share
}

fn add(sum: &mut [i64], more: &[i64]) {
    for (total, amount) in sum.iter_mut().zip(more) {
        *total = total.saturating_add(*amount);
    }
}

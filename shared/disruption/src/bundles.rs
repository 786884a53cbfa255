//! Sets of nodes whose pods fit onto one cheaper machine, found by adding up requests.
//!
//! Karpenter tries prefixes of one sorted list (disruption 8.4). A cluster that has grown from small machines has other
//! sets, which fill one larger machine better than they fill their own. Only resource amounts are compared here; a
//! simulation decides about each set.

use super::budgets::RemainingBudget;
use super::candidates::Candidate;
use super::cluster_view::ClusterView;
use super::quick_check::{add, resource_names, vector};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::InstanceType;
use whittle_model::pods::{effective_requests, is_daemon_owned};
use whittle_model::requirements::{Requirements, from_requirements};
use whittle_units::Price;

/// How many sets are proposed at most.
const BUNDLES_MAX: usize = 24;
/// For each machine size, how many nodes are tried as the first of a set.
const SEEDS_MAX: usize = 6;
/// The whole machine, in units of a share.
const WHOLE_MACHINE: i128 = 1_000_000;

/// Nodes, by position, that may be replaced together by one machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bundle {
    pub(super) nodes: Vec<usize>,
    /// Price of the nodes less the price of that machine.
    pub(super) expected_savings: Price,
}

/// The sets within the budgets that would save most, best first.
pub(super) fn find_bundles(view: &ClusterView<'_>, nodes: &[Candidate<'_>], remaining: &RemainingBudget, nodes_max: usize) -> Vec<Bundle> {
    let names = resource_names(view);
    let mut by_pool: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.price > Price::ZERO) {
        by_pool.entry(node.pool_name()).or_default().push(at);
    }
    let mut found = BTreeSet::new();
    for (pool, members) in by_pool {
        let nodes_max = nodes_max.min(usize::try_from(remaining.of(pool)).unwrap_or(usize::MAX));
        if nodes_max >= 2 && members.len() >= 2 {
            found.extend(BundleSearch::new(view, &names, nodes, &members, nodes_max).bundles());
        }
    }
    let mut found: Vec<Bundle> = found.into_iter().collect();
    found.sort_by(|a, b| b.expected_savings.cmp(&a.expected_savings).then_with(|| a.nodes.cmp(&b.nodes)));
    found.truncate(BUNDLES_MAX);
    found
}

/// A node that may be removed: its position, the requests of its pods, and its price.
struct Member {
    at: usize,
    requests: Vec<i64>,
    price: Price,
}

/// The nodes of one NodePool, and the instance types that can replace them.
struct BundleSearch<'w> {
    members: Vec<Member>,
    /// The pool's requirements on instance types.
    requirements: Requirements,
    /// Types by what they leave for pods, with the price of the cheapest.
    sizes: BTreeMap<Vec<i64>, (Price, Vec<&'w InstanceType>)>,
    /// Largest size of a set.
    nodes_max: usize,
}

impl<'w> BundleSearch<'w> {
    fn new(view: &ClusterView<'w>, names: &[&str], nodes: &[Candidate<'w>], positions: &[usize], nodes_max: usize) -> Self {
        let sum = |pods: &mut dyn Iterator<Item = &whittle_api::k8s::Pod>| {
            let mut sum = vec![0_i64; names.len()];
            for pod in pods {
                add(&mut sum, &vector(names, &effective_requests(pod)));
            }
            sum
        };
        let mut daemons = vec![0; names.len()];
        let mut members = Vec::with_capacity(positions.len());
        for at in positions {
            let node = &nodes[*at];
            let on_node = sum(&mut node.machine.pods.iter().copied().filter(|pod| is_daemon_owned(pod)));
            daemons = daemons.iter().zip(&on_node).map(|(known, on_node)| *known.max(on_node)).collect();
            members.push(Member { at: *at, requests: sum(&mut node.pods.iter().copied()), price: node.price });
        }
        let pool = nodes[positions[0]].pool;
        let requirements = from_requirements(&pool.spec.template.spec.requirements);
        let admitted = view.offerings.admitted(&requirements);
        let mut sizes: BTreeMap<Vec<i64>, (Price, Vec<&'w InstanceType>)> = BTreeMap::new();
        for instance_type in view.input.cluster.catalog.get(&pool.metadata.name).iter().flat_map(|types| types.iter()) {
            let offered = view.offerings.kinds_of(instance_type).filter(|(kind, offering)| offering.available && admitted[*kind]);
            let Some(price) = offered.map(|(_, offering)| offering.price).filter(|price| *price > Price::ZERO).min() else { continue };
            let room: Vec<i64> =
                vector(names, &instance_type.allocatable()).iter().zip(&daemons).map(|(total, daemons)| total - daemons).collect();
            let size = sizes.entry(room).or_insert_with(|| (price, Vec::new()));
            size.0 = price.min(size.0);
            size.1.push(instance_type);
        }
        Self { members, requirements, sizes, nodes_max }
    }

    fn bundles(&self) -> Vec<Bundle> {
        let total_price: Price = self.members.iter().map(|member| member.price).sum();
        let mut out = Vec::new();
        for (room, (price, types)) in self.sizes.iter().filter(|(_, (price, _))| *price < total_price) {
            let found = self.bundles_for(room, *price);
            // Requirements are checked last, since most types yield no set.
            if !found.is_empty() && types.iter().any(|instance_type| self.is_allowed(instance_type)) {
                out.extend(found);
            }
        }
        out
    }

    fn is_allowed(&self, instance_type: &InstanceType) -> bool {
        self.requirements.intersects(&from_requirements(&instance_type.requirements)).is_ok()
    }

    /// Sets that fit into a machine of this size and cost more than it does.
    fn bundles_for(&self, room: &[i64], price: Price) -> Vec<Bundle> {
        let mut fitting: Vec<(i128, &Member)> = self
            .members
            .iter()
            .filter(|member| member.price < price)
            .filter_map(|member| Some((dominant_share(&member.requests, room)?, member)))
            .collect();
        let mut out = Vec::new();
        // Nodes with the highest price for their share come first, then those with the largest share: budgets allow few
        // at once.
        fitting.sort_by(|a, b| price_per_share(b).cmp(&price_per_share(a)).then_with(|| a.1.at.cmp(&b.1.at)));
        let seeds: Vec<&Member> = fitting.iter().take(SEEDS_MAX).map(|(_, member)| *member).collect();
        out.extend(seeds.iter().filter_map(|seed| self.pack_from(seed, &fitting, room, price)));
        fitting.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.at.cmp(&b.1.at)));
        out.extend(seeds.iter().filter_map(|seed| self.pack_from(seed, &fitting, room, price)));
        out
    }

    fn pack_from(&self, seed: &Member, order: &[(i128, &Member)], room: &[i64], price: Price) -> Option<Bundle> {
        let mut load = seed.requests.clone();
        let (mut nodes, mut cost) = (vec![seed.at], seed.price);
        for (_, member) in order {
            if nodes.len() == self.nodes_max {
                break;
            }
            let fits = load.iter().zip(&member.requests).zip(room).all(|((load, more), room)| load.saturating_add(*more) <= *room);
            if fits && member.at != seed.at {
                add(&mut load, &member.requests);
                nodes.push(member.at);
                cost += member.price;
            }
        }
        nodes.sort_unstable();
        let expected_savings = Price::from_nanos(cost.nanos().checked_sub(price.nanos())?);
        (nodes.len() >= 2 && expected_savings > Price::ZERO).then_some(Bundle { nodes, expected_savings })
    }
}

/// The dominant share of a machine that the requests take; `None` when they do not fit.
fn dominant_share(requests: &[i64], room: &[i64]) -> Option<i128> {
    let mut nodes_max = 1;
    for (requests, room) in requests.iter().zip(room).filter(|(requests, _)| **requests > 0) {
        if requests > room {
            return None;
        }
        nodes_max = nodes_max.max(i128::from(*requests) * WHOLE_MACHINE / i128::from(*room));
    }
    Some(nodes_max)
}

/// Price of the node per share of the machine that its pods take.
fn price_per_share((share, member): &(i128, &Member)) -> i128 {
    i128::from(member.price.nanos()) * WHOLE_MACHINE / *share
}

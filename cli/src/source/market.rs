//! What there is to buy and what it costs: instance types by NodePool, and the price of a machine that runs already.

use super::offers::InstanceTypesByPool;
use super::remarks::NAMED_MAX;
use crate::listing::first_named;
use crate::money::{Bill, Currency};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::InstanceType;
use whittle_api::labels;
use whittle_ec2::facts::Catalog;
use whittle_model::state::{ClusterState, StateNode};
use whittle_units::Price;

/// The answer to `--region` or `--instance-types`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Market {
    pub(crate) types: InstanceTypesByPool,
    pub(crate) prices: PriceList,
    pub(crate) currency: Currency,
    /// What the tables of the region lack, and what stands for it.
    pub(crate) assumptions: Vec<String>,
    /// The NodeClaims of machines that the tables do not have.
    pub(crate) unlisted: BTreeSet<String>,
}

/// The price of an offering.
#[derive(Clone, Debug)]
struct Listed {
    zone: String,
    capacity_type: String,
    price: Price,
}

/// The prices of all types, whether NodePools admit them or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct PriceList {
    /// By type.
    listed: BTreeMap<String, Vec<Listed>>,
    /// By NodePool, of types whose prices NodeOverlays change.
    overlaid: BTreeMap<String, Self>,
}

/// What is known of a node's bill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeOffer<'n> {
    pub(crate) instance_type: &'n str,
    pub(crate) capacity_type: &'static str,
    /// `None` if the list does not have it.
    pub(crate) price: Option<Price>,
}

/// What the nodes of a cluster cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paid {
    pub(crate) now: Bill,
    /// Without the nodes that are being deleted.
    pub(crate) staying: Bill,
    /// A sentence about the nodes whose price is not known.
    pub(crate) unpriced: Option<String>,
}

/// The label of nodes of EKS's node groups: `SPOT`, `ON_DEMAND` or `CAPACITY_BLOCK`.
const GROUP_CAPACITY_TYPE: &str = "eks.amazonaws.com/capacityType";
/// The label by which self-managed groups, and the tools that make them, tell spot from the rest.
const LIFECYCLE: &str = "node.kubernetes.io/lifecycle";

impl PriceList {
    /// The prices of a catalog file. An offering without a price is not in the list.
    pub(super) fn of_types(types: &[InstanceType]) -> Self {
        let mut list = Self::default();
        for (one, offering) in types.iter().flat_map(|one| one.offerings.iter().map(move |offering| (one, offering))) {
            if offering.price > Price::ZERO {
                list.add(&one.name, offering.zone(), offering.capacity_type(), offering.price);
            }
        }
        list
    }

    /// The prices of a region's tables.
    pub(super) fn of_tables(tables: &Catalog) -> Self {
        let mut list = Self::default();
        for (name, price) in &tables.on_demand {
            list.add(name, "", labels::CAPACITY_ON_DEMAND, *price);
        }
        for (name, zones) in &tables.spot {
            zones.iter().for_each(|(zone, price)| list.add(name, zone, labels::CAPACITY_SPOT, *price));
        }
        list
    }

    fn add(&mut self, instance_type: &str, zone: &str, capacity_type: &str, price: Price) {
        let listed = Listed { zone: zone.to_owned(), capacity_type: capacity_type.to_owned(), price };
        self.listed.entry(instance_type.to_owned()).or_default().push(listed);
    }

    /// A node's type and price, by its labels. Reserved capacity is billed on demand, and so is what no label calls spot.
    pub(crate) fn offer_of<'n>(&self, node: &'n StateNode) -> NodeOffer<'n> {
        let label = |key: &str| node.labels().get(key).map(String::as_str).unwrap_or_default();
        let spot = label(labels::CAPACITY_TYPE) == labels::CAPACITY_SPOT
            || label(GROUP_CAPACITY_TYPE) == "SPOT"
            || ["spot", "Ec2Spot"].iter().any(|value| label(LIFECYCLE).eq_ignore_ascii_case(value));
        let capacity_type = if spot { labels::CAPACITY_SPOT } else { labels::CAPACITY_ON_DEMAND };
        let (instance_type, zone) = (label(labels::INSTANCE_TYPE), label(labels::ZONE));
        let find = |list: &Self| {
            let listed = list.listed.get(instance_type).map_or(&[][..], Vec::as_slice);
            let in_zone =
                |one: &&Listed| one.capacity_type == capacity_type && (one.zone == zone || one.zone.is_empty() || zone.is_empty());
            listed.iter().find(in_zone).map(|one| one.price)
        };
        let price = self.overlaid.get(label(labels::NODE_POOL)).and_then(find).or_else(|| find(self));
        NodeOffer { instance_type, capacity_type, price }
    }

    /// The same, with the prices of NodePools that NodeOverlays changed: machines that run are compared with what there is to buy.
    pub(super) fn overlaid(mut self, pools: &InstanceTypesByPool) -> Self {
        self.overlaid = pools.iter().map(|(pool, types)| (pool.clone(), Self::of_types(types))).collect();
        self
    }

    /// Whether a label says that a node is spot or on demand.
    pub(crate) fn says_how_it_is_bought(node: &StateNode) -> bool {
        [labels::CAPACITY_TYPE, GROUP_CAPACITY_TYPE, LIFECYCLE].iter().any(|key| node.labels().contains_key(*key))
    }

    /// What the nodes of a cluster cost.
    pub(crate) fn paid(&self, state: &ClusterState) -> Paid {
        let (mut now, mut staying, mut unknown) = (Bill::default(), Bill::default(), Vec::new());
        for node in &state.nodes {
            let offer = self.offer_of(node);
            now = now.with(offer.price);
            if !node.marked_for_deletion {
                staying = staying.with(offer.price);
            }
            if offer.price.is_none() {
                unknown.push(format!("{} ({})", node.name(), if offer.instance_type.is_empty() { "no type" } else { offer.instance_type }));
            }
        }
        Paid { now, staying, unpriced: unpriced(&unknown) }
    }
}

/// A sentence about nodes whose price is not known.
pub(crate) fn unpriced(nodes: &[String]) -> Option<String> {
    let named = first_named(nodes, NAMED_MAX);
    (!nodes.is_empty()).then(|| format!("not counted, because no price is known of their types: {named}"))
}

//! The offerings of a type (aws 4, 6).

use super::labels::{absent, capacity_type, set};
use super::{Context, zones_of};
use crate::facts::{Catalog, InstanceTypeFacts};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::Offering;
use whittle_api::karpenter::{Ec2NodeClass, Requirement, ResolvedCapacityReservation};
use whittle_api::labels;
use whittle_units::Price;

/// A reserved offering costs its on-demand price divided by this: it is already paid for, but the order of prices is kept.
const RESERVED_DIVISOR: u64 = 10_000_000;

/// A capacity pool: the key of a stock-out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pool {
    pub capacity_type: String,
    pub instance_type: String,
    pub zone: String,
    /// Set if the stock-out affects only one placement group.
    pub placement_group: Option<String>,
    pub partition: Option<u32>,
}

/// Currently unavailable pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unavailable {
    pub pools: BTreeSet<Pool>,
    /// Pools that EC2 refuses to machines of one node class, by its uid.
    pub refused: BTreeMap<String, BTreeSet<Pool>>,
    /// Capacity types as a whole (spot without its service-linked role).
    pub capacity_types: BTreeSet<String>,
    /// Subnets without addresses.
    pub subnets: BTreeSet<String>,
    /// Subnets without room for the prefixes of an interface, which only some classes ask for: see [`takes_prefixes`].
    pub subnets_without_prefixes: BTreeSet<String>,
    /// Quotas of the account, each with its capacity type, and how many vCPUs of a machine are more than what it has left.
    pub quotas: BTreeMap<(String, String), u32>,
    /// Spread placement groups, by id, that hold as many machines in a zone as EC2 allows.
    pub full_groups: BTreeSet<(String, String)>,
    /// Ids of zones that traffic is shifted away from.
    pub shifted_zone_ids: BTreeSet<String>,
}

impl Unavailable {
    fn contains(&self, offer: &Offer<'_>, vcpus: u32, context: &Context<'_>) -> bool {
        let refused = self.refused.get(&context.class.metadata.uid);
        let known = |placement_group: Option<&str>, partition: Option<u32>| {
            let pool = Pool {
                capacity_type: offer.capacity_type.to_owned(),
                instance_type: offer.instance_type.to_owned(),
                zone: offer.zone.to_owned(),
                placement_group: placement_group.map(str::to_owned),
                partition,
            };
            self.pools.contains(&pool) || refused.is_some_and(|pools| pools.contains(&pool))
        };
        let group = context.placement_group.map(|group| group.id.as_str());
        let quota = || (quota_of(offer.instance_type).to_owned(), offer.capacity_type.to_owned());
        self.capacity_types.contains(offer.capacity_type)
            || !self.quotas.is_empty() && self.quotas.get(&quota()).is_some_and(|refused| vcpus >= *refused)
            || known(None, None)
            || context.is_group_full(offer.zone)
            || group.is_some() && (known(group, None) || offer.partition.is_some() && known(group, offer.partition))
            || self.is_zone_full(offer.zone, context)
    }
    /// Whether the class has subnets in a zone, and no machine can start in any of them.
    fn is_zone_full(&self, zone: &str, context: &Context<'_>) -> bool {
        let with_prefixes = takes_prefixes(context.class, context.ipv6);
        let subnets = || context.class.status.subnets.iter().filter(|subnet| subnet.zone == zone);
        subnets().next().is_some() && subnets().all(|subnet| self.is_full(&subnet.id, with_prefixes))
    }
    /// Whether no machine can start in a subnet.
    pub fn is_full(&self, subnet: &str, takes_prefixes: bool) -> bool {
        self.subnets.contains(subnet) || takes_prefixes && self.subnets_without_prefixes.contains(subnet)
    }
}

/// Whether the interfaces of a class's machines get prefixes of their subnet. In an IPv6 cluster they have an address instead.
pub fn takes_prefixes(class: &Ec2NodeClass, ipv6: bool) -> bool {
    !ipv6 && class.spec.ip_prefix_count.is_some_and(|count| 0 < count)
}

/// The vCPU quota that machines of a type count against, separately for each capacity type. AWS has one quota for
/// the standard families together, and one for each group of the others.
pub fn quota_of(instance_type: &str) -> &'static str {
    let family = instance_type.split('.').next().unwrap_or_default();
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| family.starts_with(prefix));
    let letters = family.find(|c: char| c.is_ascii_digit()).map_or(family, |at| &family[..at]);
    match letters {
        _ if begins(&["u-", "u7"]) => "high-memory",
        _ if begins(&["hpc"]) => "hpc",
        _ if begins(&["inf"]) => "inf",
        _ if begins(&["trn"]) => "trn",
        _ if begins(&["dl"]) => "dl",
        _ if begins(&["mac"]) => "mac",
        "g" | "gr" | "vt" => "g-vt",
        "p" => "p",
        "f" => "f",
        "x" => "x",
        _ => "standard",
    }
}

struct Offer<'a> {
    instance_type: &'a str,
    zone: &'a str,
    capacity_type: &'a str,
    partition: Option<u32>,
}

/// All offerings of a type in the zones that the class has subnets in, available or not.
///
/// Zones without a subnet are omitted (Karpenter lists them as unavailable): nothing can be launched there.
pub(super) fn offerings(facts: &InstanceTypeFacts, catalog: &Catalog, context: &Context<'_>, usable: bool) -> Vec<Offering> {
    let zones = zones_of(&facts.name, catalog, context);
    let mut all = Vec::new();
    for zone in &zones {
        for kind in facts.usage_classes.iter().filter_map(|class| capacity_type(class)) {
            for partition in context.partitions() {
                let offer = Offer { instance_type: &facts.name, zone, capacity_type: kind, partition };
                let price = match kind {
                    labels::CAPACITY_SPOT => catalog.spot_price(&facts.name, zone),
                    _ => catalog.on_demand_price(&facts.name),
                };
                let can_start = usable && price.is_some() && !context.is_shifted(zone);
                let available = can_start && !context.unavailable.contains(&offer, facts.vcpus, context);
                // Zero is unknown, as in a catalog that is given. A machine of this kind may run, and any would be cheaper than at the
                // highest price.
                let price = price.unwrap_or(Price::ZERO);
                all.push(Offering { requirements: requirements(&offer, None, context), price, available, reservation_capacity: None });
            }
        }
    }
    let on_demand = catalog.on_demand_price(&facts.name).unwrap_or_default();
    for reservation in context.reservations_of(&facts.name) {
        for partition in context.partitions() {
            all.push(reserved(reservation, partition, &zones, on_demand, context, usable));
        }
    }
    all
}

fn reserved(
    reservation: &ResolvedCapacityReservation,
    partition: Option<u32>,
    zones: &BTreeSet<String>,
    on_demand: Price,
    context: &Context<'_>,
    usable: bool,
) -> Offering {
    let zone = reservation.availability_zone.as_str();
    let offer = Offer { instance_type: &reservation.instance_type, zone, capacity_type: labels::CAPACITY_RESERVED, partition };
    let free = context.reservation_capacity.get(&reservation.id).copied().unwrap_or_default();
    // A launch there finds no subnet, and would be tried again before all others, which cost something.
    let has_room = !context.is_group_full(zone) && !context.unavailable.is_zone_full(zone, context);
    let can_start = !context.is_shifted(zone) && has_room;
    let available = usable && free > 0 && zones.contains(zone) && reservation.state != "expiring" && can_start;
    let mut requirements = requirements(&offer, Some(reservation), context);
    // EC2 starts no machine of another tenancy in it, and Karpenter tries one, which costs nothing, before all else.
    let tenancy = context.reservation_tenancies.get(&reservation.id);
    requirements.extend(tenancy.map(|tenancy| set(labels::INSTANCE_TENANCY, [tenancy.as_str()])));
    Offering { requirements, price: Price::from_nanos(on_demand.nanos() / RESERVED_DIVISOR), available, reservation_capacity: Some(free) }
}

fn requirements(offer: &Offer<'_>, reservation: Option<&ResolvedCapacityReservation>, context: &Context<'_>) -> Vec<Requirement> {
    let mut all = vec![set(labels::CAPACITY_TYPE, [offer.capacity_type]), set(labels::ZONE, [offer.zone])];
    all.extend(context.zone_id(offer.zone).map(|id| set(labels::ZONE_ID, [id])));
    match reservation {
        Some(reservation) => all.extend([
            set(labels::RESERVATION_ID, [reservation.id.as_str()]),
            set(labels::RESERVATION_TYPE, [reservation.reservation_type.as_str()]),
            set(labels::RESERVATION_INTERRUPTIBLE, [reservation.interruptible.to_string()]),
        ]),
        None => all.extend([labels::RESERVATION_ID, labels::RESERVATION_TYPE, labels::RESERVATION_INTERRUPTIBLE].map(absent)),
    }
    all.extend(offer.partition.map(|number| set(labels::PLACEMENT_GROUP_PARTITION, [number.to_string()])));
    all
}

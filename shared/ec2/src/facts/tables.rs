//! Data that no EC2 API returns, kept as tables (aws 27, `data/README.md`).

use std::collections::BTreeMap;
use std::sync::LazyLock;
use whittle_units::Price;

/// The VPC limits of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceLimits {
    pub ipv4_per_interface: u32,
    /// Branch interfaces for pods with own security groups; 0 where trunking is not possible.
    pub branch_interfaces: u32,
}

static BANDWIDTH: LazyLock<BTreeMap<&str, u32>> = LazyLock::new(|| {
    rows(include_str!("../../data/bandwidth.csv")).filter_map(|row| Some((*row.first()?, row.get(1)?.parse().ok()?))).collect()
});

static LIMITS: LazyLock<BTreeMap<&str, InterfaceLimits>> = LazyLock::new(|| {
    rows(include_str!("../../data/interface-limits.csv"))
        .filter_map(|row| {
            let [name, ipv4, trunking, branches] = row.as_slice() else { return None };
            let branch_interfaces = if *trunking == "true" { branches.parse().ok()? } else { 0 };
            Some((*name, InterfaceLimits { ipv4_per_interface: ipv4.parse().ok()?, branch_interfaces }))
        })
        .collect()
});

const PRICES: &str = include_str!("../../data/on-demand-prices.csv");
/// The region whose prices are used for regions without a table.
pub(super) const DEFAULT_REGION: &str = "us-east-1";

/// Rows of a table without its header, split at commas.
pub(super) fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().skip(1).map(|line| line.split(',').collect())
}

/// Network bandwidth in Mbit/s, if the table has it.
pub fn network_bandwidth(instance_type: &str) -> Option<u32> {
    BANDWIDTH.get(instance_type).copied()
}

/// Interface limits; `None` for a type that is not in the table.
pub fn interface_limits(instance_type: &str) -> Option<InterfaceLimits> {
    LIMITS.get(instance_type).copied()
}

/// The region whose prices stand for those of one without a table: of its partition, so that they are of its currency.
pub fn price_stand_in(region: &str) -> &'static str {
    match region {
        china if china.starts_with("cn-") => "cn-north-1",
        government if government.starts_with("us-gov-") => "us-gov-west-1",
        _ => DEFAULT_REGION,
    }
}

/// On-demand prices of a region before the first refresh; regions without a table use those of another (aws 5).
pub fn static_on_demand_prices(region: &str) -> BTreeMap<String, Price> {
    let of = |wanted: &str| -> BTreeMap<String, Price> {
        rows(PRICES)
            .filter_map(|row| {
                let [region, name, dollars] = row.as_slice() else { return None };
                (*region == wanted).then_some((*name, *dollars))
            })
            .filter_map(|(name, dollars)| Some((name.to_owned(), Price::from_dollars(dollars.parse().ok()?))))
            .collect()
    };
    let prices = of(region);
    if prices.is_empty() { of(price_stand_in(region)) } else { prices }
}

/// Whether there is a table of a region's own prices.
pub fn has_prices(region: &str) -> bool {
    rows(PRICES).any(|row| row.first().is_some_and(|known| *known == region))
}

/// The regions of partitions that have a price list of their own, and nobody else's: their accounts are known nowhere else.
const OWN_PRICE_LISTS: &[(&str, &str)] = &[
    ("us-iso-", "us-iso-east-1"),
    ("us-isob-", "us-isob-east-1"),
    ("us-isof-", "us-isof-south-1"),
    ("eu-isoe-", "eu-isoe-west-1"),
    ("eusc-", "eusc-de-east-1"),
];

/// The region whose price list contains a region's prices; `None` if there is none (aws 5).
pub fn pricing_region(region: &str) -> Option<&'static str> {
    if let Some((_, own)) = OWN_PRICE_LISTS.iter().copied().find(|(start, _)| region.starts_with(start)) {
        return Some(own);
    }
    match region.split('-').next() {
        _ if region.starts_with("us-gov-") => None,
        Some("ap") => Some("ap-south-1"),
        Some("cn") => Some("cn-northwest-1"),
        Some("eu") => Some("eu-central-1"),
        _ => Some("us-east-1"),
    }
}

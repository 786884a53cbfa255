//! A region from tables, for simulation, tests and plans without an account.
//!
//! Types, zones and on-demand prices are real (`data/README.md`). Regions without prices of their own use those of another of their
//! partition; where there are prices and no table of zones, the types of us-east-1 are taken in three zones. Spot prices are made up, since
//! no public table has them: each (family, zone) pair has a fixed share of the on-demand price between 25 % and 60 %, distributed evenly by
//! a hash of their names. Sizes of a family keep their price ratios, as they mostly do on the market, so that a plan never gains by
//! splitting a machine just because a smaller size is cheap by chance.

use super::tables::{DEFAULT_REGION, has_prices, rows, static_on_demand_prices};
use super::{Accelerator, CardEfa, Catalog, Gpu, InstanceTypeFacts, NetworkCard, NeuronDevice, Zone};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use whittle_units::{Fnv1a, Price};

/// Regions that have tables.
pub const REGIONS: &[&str] = &["ap-southeast-1", "cn-north-1", "eu-west-1", "us-east-1", "us-gov-east-1", "us-gov-west-1", "us-west-2"];

/// The catalog of a region; `None` for a region without tables.
pub fn catalog(region: &str) -> Option<Catalog> {
    match zones_of(region) {
        Some(zones) => Some(of_zones(region, zones)),
        None => has_prices(region).then(|| assumed(region)),
    }
}

/// The table of the zones that sell each type.
fn zones_of(region: &str) -> Option<&'static str> {
    Some(match region {
        "ap-southeast-1" => include_str!("../../data/zones-ap-southeast-1.csv"),
        "eu-west-1" => include_str!("../../data/zones-eu-west-1.csv"),
        "us-east-1" => include_str!("../../data/zones-us-east-1.csv"),
        "us-west-2" => include_str!("../../data/zones-us-west-2.csv"),
        _ => return None,
    })
}

/// Whether a table says which zones of a region sell a type.
pub fn has_zones(region: &str) -> bool {
    zones_of(region).is_some()
}

/// The catalog that a region without a table of zones may have: the types of us-east-1 in zones a, b and c, at the region's own prices
/// where there are any.
pub fn assumed(region: &str) -> Catalog {
    let prefix = zone_prefix(region);
    let ids: Vec<String> = (1..=3).map(|number| format!("{prefix}-az{number}")).collect();
    let (prices, ids) = (static_on_demand_prices(region), ids.join(";"));
    let sold =
        rows(zones_of(DEFAULT_REGION).unwrap_or_default()).filter_map(|row| row.first().copied()).filter(|name| prices.contains_key(*name));
    let zones: String = sold.map(|name| format!("{name},{ids}\n")).collect();
    of_zones(region, &format!("type,zones\n{zones}"))
}

/// `cn-north-1` becomes `cnn1`, `us-gov-west-1` becomes `usgw1`.
fn zone_prefix(region: &str) -> String {
    let parts: Vec<&str> = region.split('-').collect();
    let [area, sides @ .., number] = parts.as_slice() else { return region.to_owned() };
    let initials: String = sides.iter().filter_map(|side| side.chars().next()).collect();
    format!("{area}{initials}{number}")
}

fn of_zones(region: &str, zones: &str) -> Catalog {
    let mut known = BTreeSet::new();
    let mut offered: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows(zones) {
        let [name, ids] = row.as_slice() else { continue };
        let names = ids.split(';').map(|id| zone_name(region, id)).collect();
        known.extend(ids.split(';').map(|id| Zone { name: zone_name(region, id), id: id.to_owned() }));
        offered.insert((*name).to_owned(), names);
    }
    let types: Vec<InstanceTypeFacts> = types().into_iter().filter(|facts| offered.contains_key(&facts.name)).collect();
    let on_demand = static_on_demand_prices(region);
    let spot = types
        .iter()
        .filter(|facts| facts.usage_classes.iter().any(|class| class == "spot"))
        .filter_map(|facts| {
            let price = *on_demand.get(&facts.name)?;
            let zones = offered.get(&facts.name)?;
            Some((facts.name.clone(), zones.iter().map(|zone| (zone.clone(), synthetic_spot(&facts.name, zone, price))).collect()))
        })
        .collect();
    Catalog { region: region.into(), zones: known.into_iter().collect(), types, offered, on_demand, spot }.normalized()
}

/// The facts of all types of all regions.
pub fn types() -> Vec<InstanceTypeFacts> {
    rows(include_str!("../../data/instance-types.csv")).filter_map(|row| facts(&row)).collect()
}

/// Names the zone `use1-az4` us-east-1d: letters differ between accounts, here they follow the ids.
fn zone_name(region: &str, id: &str) -> String {
    let number: u8 = id.rsplit("-az").next().and_then(|number| number.parse().ok()).unwrap_or(1);
    format!("{region}{}", char::from(b'a' + number.saturating_sub(1).min(25)))
}

/// The made-up spot price of a type in a zone.
fn synthetic_spot(instance_type: &str, zone: &str, on_demand: Price) -> Price {
    let family = instance_type.split_once('.').map_or(instance_type, |(family, _)| family);
    let permille = 250 + seed(&[family, zone]) % 351;
    Price::from_nanos(on_demand.nanos() / 1000 * permille)
}

/// A hash of the names, the same in every build.
fn seed(texts: &[&str]) -> u64 {
    let mut hash = Fnv1a::default();
    for text in texts {
        hash.write(text.as_bytes());
        hash.write(&[0]);
    }
    let hash = hash.finish();
    hash ^ (hash >> 29)
}

fn list(field: &str) -> Vec<String> {
    field.split(';').filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn facts(row: &[&str]) -> Option<InstanceTypeFacts> {
    let [
        name,
        vcpus,
        memory,
        architectures,
        cpu_manufacturer,
        clock_ghz,
        cpu_features,
        hypervisor,
        usage,
        gpus,
        accelerators,
        neuron,
        storage_gb,
        storage_nvme,
        default_card,
        cards,
        ipv4,
        ena,
        efa,
        encryption,
        ebs_optimized,
        ebs_max,
        ebs_attachments,
        attachment_limit,
        enclaves,
        strategies,
    ] = row
    else {
        return None;
    };
    Some(InstanceTypeFacts {
        name: (*name).to_owned(),
        architectures: list(architectures),
        vcpus: vcpus.parse().ok()?,
        memory_mib: memory.parse().ok()?,
        cpu_manufacturer: (*cpu_manufacturer).to_owned(),
        clock_mhz: super::clock_mhz(clock_ghz),
        cpu_features: list(cpu_features),
        hypervisor: (*hypervisor).to_owned(),
        usage_classes: list(usage),
        gpus: list(gpus).iter().filter_map(|item| gpu(item)).collect(),
        accelerators: list(accelerators).iter().filter_map(|item| gpu(item)).map(accelerator).collect(),
        neuron: list(neuron).iter().filter_map(|item| neuron_device(item)).collect(),
        storage_gb: storage_gb.parse().ok(),
        storage_nvme: (*storage_nvme).to_owned(),
        default_network_card: default_card.parse().ok()?,
        network_cards: list(cards).iter().filter_map(|item| card_range(item)).flatten().collect(),
        ipv4_per_interface: ipv4.parse().ok()?,
        ena: matches!(*ena, "required" | "supported"),
        efa_interfaces: efa.parse().unwrap_or_default(),
        encryption_in_transit: *encryption == "true",
        ebs_optimized: (*ebs_optimized).to_owned(),
        ebs_max_mbps: ebs_max.parse().ok(),
        ebs_attachments: ebs_attachments.parse().ok(),
        attachment_limit: (*attachment_limit).to_owned(),
        nitro_enclaves: *enclaves == "supported",
        placement_strategies: list(strategies),
    })
}

fn gpu(item: &str) -> Option<Gpu> {
    let mut parts = item.split(':');
    Some(Gpu {
        count: parts.next()?.parse().ok()?,
        manufacturer: parts.next()?.to_owned(),
        name: parts.next()?.to_owned(),
        memory_mib: parts.next().and_then(|mebibytes| mebibytes.parse().ok()).unwrap_or_default(),
    })
}

fn accelerator(gpu: Gpu) -> Accelerator {
    Accelerator { count: gpu.count, manufacturer: gpu.manufacturer, name: gpu.name }
}

fn neuron_device(item: &str) -> Option<NeuronDevice> {
    let mut parts = item.split(':');
    Some(NeuronDevice { count: parts.next()?.parse().ok()?, name: parts.next()?.to_owned(), cores: parts.next()?.parse().ok()? })
}

fn card_range(item: &str) -> Option<Vec<NetworkCard>> {
    let (range, taken) = item.split_once(':')?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (interfaces, kind) = taken.split_once(':').unwrap_or((taken, ""));
    let interfaces = interfaces.parse().ok()?;
    let efa = CardEfa::of(Some(kind).filter(|kind| !kind.is_empty()));
    Some((first.parse().ok()?..=last.parse().ok()?).map(|index| NetworkCard { index, interfaces, efa }).collect())
}

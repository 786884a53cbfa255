//! What the region sells, from a catalog as `whittle plan` reads it.
//!
//! EC2 describes a type by its hardware, a catalog by what its nodes have. A type whose hardware gives just that is made up: memory as
//! it is, and one network interface with as many addresses as the pods need.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use whittle_api::labels;
use whittle_ec2::facts::{Catalog, InstanceTypeFacts, NetworkCard, Zone};
use whittle_units::{Price, Quantity, Resources};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    architecture: String,
    #[serde(default)]
    operating_systems: Vec<String>,
    resources: Resources,
    #[serde(default)]
    overhead: Option<Resources>,
    offerings: Vec<Offering>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Offering {
    price: f64,
    #[serde(default = "available")]
    available: bool,
    requirements: Vec<Requirement>,
}

#[derive(Deserialize)]
struct Requirement {
    key: String,
    values: Vec<String>,
}

fn available() -> bool {
    true
}

impl Offering {
    fn value(&self, key: &str) -> Option<&str> {
        self.requirements.iter().find(|one| one.key == key)?.values.first().map(String::as_str)
    }
}

/// What the nodes of each type have, and what of it pods may have.
pub(crate) type Sizes = BTreeMap<String, (Resources, Resources)>;

/// What is sold, and what the nodes are.
pub(crate) struct Goods {
    pub catalog: Catalog,
    pub sizes: Sizes,
}

/// What a node keeps back if its catalog does not say.
fn usual_overhead() -> Resources {
    Resources::from([("cpu", Quantity::from_milli(100)), ("memory", Quantity::from_mebibytes(10))])
}

/// AWS's price list has bare metal.
const BARE_METAL: (&str, f64) = ("m5.metal", 4.608);

/// Reads a catalog for a region with these zones, which the catalog's own stand for in their order; further ones are not sold in.
pub(crate) fn read(file: &Path, region: &Catalog, zones: &[Zone]) -> Result<Goods> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    parse(&text, region, zones).with_context(|| format!("{} is no catalog", file.display()))
}

fn parse(text: &str, region: &Catalog, zones: &[Zone]) -> Result<Goods> {
    let mut entries: Vec<Entry> = serde_json::from_str(text)?;
    entries.retain(|entry| entry.operating_systems.is_empty() || entry.operating_systems.iter().any(|os| os == "linux"));
    let named: BTreeSet<&str> =
        entries.iter().flat_map(|entry| &entry.offerings).filter_map(|offering| offering.value(labels::ZONE)).collect();
    let here: BTreeMap<&str, &str> = named.into_iter().zip(zones.iter().map(|zone| zone.name.as_str())).collect();
    let mut sizes = Sizes::new();
    let mut catalog = Catalog { region: region.region.clone(), zones: region.zones.clone(), ..Catalog::default() };
    for entry in &entries {
        let (mut on_demand, mut spot, mut offered) = (None, BTreeMap::new(), BTreeSet::new());
        for offering in entry.offerings.iter().filter(|offering| offering.available) {
            let Some(zone) = offering.value(labels::ZONE).and_then(|zone| here.get(zone)) else { continue };
            offered.insert((*zone).to_owned());
            let price = Price::from_dollars(offering.price);
            match offering.value(labels::CAPACITY_TYPE) {
                Some(labels::CAPACITY_SPOT) => drop(spot.insert((*zone).to_owned(), price)),
                Some(labels::CAPACITY_ON_DEMAND) => on_demand = Some(price),
                _ => {}
            }
        }
        let mut allocatable = entry.resources.clone();
        allocatable.subtract(&entry.overhead.clone().unwrap_or_else(usual_overhead));
        sizes.insert(entry.name.clone(), (entry.resources.clone(), allocatable));
        let classes = [(on_demand.is_some(), labels::CAPACITY_ON_DEMAND), (!spot.is_empty(), labels::CAPACITY_SPOT)];
        let sold = classes.into_iter().filter(|(is_sold, _)| *is_sold).map(|(_, class)| class.to_owned());
        catalog.types.push(facts(entry, sold.collect()));
        catalog.offered.insert(entry.name.clone(), offered.into_iter().collect());
        catalog.on_demand.extend(on_demand.map(|price| (entry.name.clone(), price)));
        catalog.spot.insert(entry.name.clone(), spot);
    }
    ensure!(!catalog.types.is_empty(), "it sells no type for Linux");
    let mut catalog = catalog.normalized();
    catalog.on_demand.entry(BARE_METAL.0.to_owned()).or_insert(Price::from_dollars(BARE_METAL.1));
    Ok(Goods { catalog, sizes })
}

/// A type that is sold in these usage classes.
fn facts(entry: &Entry, usage_classes: Vec<String>) -> InstanceTypeFacts {
    let units = |name: &str| entry.resources.get(name).milli() / 1000;
    let pods = u32::try_from(units("pods")).unwrap_or_default();
    InstanceTypeFacts {
        name: entry.name.clone(),
        architectures: vec![if entry.architecture == "amd64" { "x86_64".to_owned() } else { entry.architecture.clone() }],
        vcpus: u32::try_from(units("cpu")).unwrap_or_default(),
        memory_mib: u64::try_from(units("memory") >> 20).unwrap_or_default(),
        cpu_manufacturer: "Intel".to_owned(),
        hypervisor: "nitro".to_owned(),
        usage_classes,
        network_cards: vec![NetworkCard { interfaces: 1, ..NetworkCard::default() }],
        // Each interface keeps one address for itself, and two pods use the host's.
        ipv4_per_interface: pods.saturating_sub(1),
        ena: true,
        ebs_optimized: "default".to_owned(),
        ebs_max_mbps: Some(10_000),
        placement_strategies: vec!["cluster".to_owned(), "partition".to_owned(), "spread".to_owned()],
        ..InstanceTypeFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_what_the_catalog_says_and_zones_of_the_region() {
        let offering = |zone: &str, kind: &str, price: f64| {
            format!(
                r#"{{"Price": {price}, "Available": true, "Requirements": [{{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["{kind}"]}},
                {{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["{zone}"]}}]}}"#
            )
        };
        let offers = [offering("z-b", "spot", 0.5), offering("z-a", "on-demand", 1.0), offering("z-c", "spot", 0.1)].join(",");
        let entry = |os: &str| {
            format!(
                r#"{{"name": "c-4x-{os}", "architecture": "amd64", "operatingSystems": ["{os}"],
                "resources": {{"cpu": "4", "memory": "8Gi", "pods": "64"}}, "offerings": [{offers}]}}"#
            )
        };
        let zone = |name: &str| Zone { name: name.to_owned(), id: format!("{name}-id") };
        let region = Catalog { zones: vec![zone("west-a"), zone("west-b")], ..Catalog::default() };
        let goods = parse(&format!("[{}, {}]", entry("linux"), entry("windows")), &region, &region.zones).unwrap();
        let (read, size) = (goods.catalog, &goods.sizes["c-4x-linux"]);
        assert_eq!((size.0.get("cpu").milli(), size.1.get("cpu").milli()), (4000, 3900));
        assert_eq!(read.types.iter().map(|facts| facts.name.as_str()).collect::<Vec<_>>(), ["c-4x-linux"]);
        assert_eq!((read.types[0].vcpus, read.types[0].memory_mib, read.types[0].ipv4_per_interface), (4, 8192, 63));
        assert_eq!(read.offered["c-4x-linux"], ["west-a", "west-b"]);
        assert_eq!(read.spot["c-4x-linux"], BTreeMap::from([("west-b".to_owned(), Price::from_dollars(0.5))]), "z-c stands for no zone");
        assert_eq!(read.on_demand["c-4x-linux"], Price::from_dollars(1.0));
        assert!(parse("[]", &region, &region.zones).is_err());
    }
}

//! Reading the golden cases of `tests/golden/cloud` (tests only).

use crate::facts::describe::from_describe;
use crate::facts::{Catalog, InstanceTypeFacts, Zone, tables};
use crate::instance_types::{Context, Settings, Unavailable};
use crate::kubelet::{Expressions, Kubelet};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, ResolvedPlacementGroup};
use whittle_units::{Price, Quantity, Resources};

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/cloud").join(name)
}

/// Files of a folder whose names end so, in order.
pub(crate) fn files(name: &str, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(ending));
    files.sort();
    assert!(!files.is_empty(), "no golden files {ending} in {name}");
    files
}

pub(crate) struct Case {
    pub(crate) class: Ec2NodeClass,
    pub(crate) claim: Option<NodeClaim>,
    pub(crate) facts: Value,
    pub(crate) kubelet: Kubelet,
    pub(crate) settings: Settings,
    pub(crate) unavailable: Unavailable,
    pub(crate) reservations: BTreeMap<String, u32>,
    /// Karpenter knows nothing of them.
    pub(crate) tenancies: BTreeMap<String, String>,
    pub(crate) group: Option<ResolvedPlacementGroup>,
    measured: BTreeMap<String, Quantity>,
    allocatable: BTreeMap<String, Resources>,
}

impl Case {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let of = |kind: &str| documents.iter().find(|document| document["kind"] == kind).cloned();
        let class: Ec2NodeClass = serde_json::from_value(of("EC2NodeClass").unwrap()).unwrap();
        let claim = of("NodeClaim").map(|claim| serde_json::from_value(claim).unwrap());
        let facts = of("Facts").unwrap();
        let given = &facts["settings"];
        let percent = given["vmMemoryOverheadPercent"].as_f64().unwrap_or(0.075);
        let settings = Settings {
            reserved_enis: given["reservedENIs"].as_u64().map_or(0, |count| u32::try_from(count).unwrap()),
            vm_memory_overhead_ppm: format!("{:.0}", percent * 1e6).parse().unwrap(),
            reserved_capacity: given["reservedCapacity"].as_bool().unwrap_or(true),
            expressions: if given["nodeClassCEL"] == true { Expressions::Evaluated } else { Expressions::Ignored },
        };
        let reservations = facts["reservations"].as_object().into_iter().flatten();
        let selector = class.spec.placement_group_selector.clone();
        let groups = facts["placementGroups"].as_array().into_iter().flatten().map(|group| ResolvedPlacementGroup {
            id: group["GroupId"].as_str().unwrap().to_owned(),
            name: group["GroupName"].as_str().unwrap().to_owned(),
            strategy: group["Strategy"].as_str().unwrap().to_owned(),
            partition_count: group["PartitionCount"].as_u64().map_or(0, |count| u32::try_from(count).unwrap()),
        });
        let group = selector.and_then(|selector| {
            groups.into_iter().find(|group| selector.id.as_ref() == Some(&group.id) || selector.name.as_ref() == Some(&group.name))
        });
        Self {
            kubelet: Kubelet::parse(class.spec.kubelet.as_ref()).unwrap(),
            reservations: reservations.map(|(id, count)| (id.clone(), u32::try_from(count.as_u64().unwrap()).unwrap())).collect(),
            tenancies: BTreeMap::new(),
            class,
            claim,
            settings,
            facts,
            group,
            unavailable: Unavailable::default(),
            measured: BTreeMap::new(),
            allocatable: BTreeMap::new(),
        }
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            class: &self.class,
            family: self.class.spec.family(),
            kubelet: &self.kubelet,
            settings: &self.settings,
            unavailable: &self.unavailable,
            reservation_capacity: &self.reservations,
            reservation_tenancies: &self.tenancies,
            placement_group: self.group.as_ref(),
            ipv6: false,
            measured_memory: &self.measured,
            measured_allocatable: &self.allocatable,
        }
    }

    /// The region of the case; `priced` gives every type a price everywhere.
    pub(crate) fn catalog(&self, priced: bool) -> Catalog {
        let all: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(folder("types/facts.json")).unwrap()).unwrap();
        let wanted: Vec<&str> =
            self.facts["types"].as_array().map_or(Vec::new(), |names| names.iter().map(|name| name.as_str().unwrap()).collect());
        let types: Vec<InstanceTypeFacts> =
            all.iter().map(from_describe).filter(|facts| wanted.is_empty() || wanted.contains(&facts.name.as_str())).collect();
        let zones: Vec<String> = self.facts["zones"].as_array().unwrap().iter().map(|zone| zone.as_str().unwrap().to_owned()).collect();
        let region = self.facts["region"].as_str().unwrap();
        let dollars = |value: &Value| Price::from_dollars(value.as_f64().unwrap());
        let mut catalog = Catalog { region: region.into(), ..Catalog::default() };
        catalog.zones = zones.iter().map(|zone| Zone { name: zone.clone(), id: String::new() }).collect();
        for facts in &types {
            let offered = self.facts["offered"][&facts.name].as_array();
            let offered = offered.map(|zones| zones.iter().map(|zone| zone.as_str().unwrap().to_owned()).collect());
            catalog.offered.insert(facts.name.clone(), offered.unwrap_or_else(|| zones.clone()));
            let price = if priced { Some(Price::from_dollars(1.0)) } else { None };
            catalog.on_demand.extend(price.map(|price| (facts.name.clone(), price)));
            catalog.spot.extend(price.map(|price| (facts.name.clone(), zones.iter().map(|zone| (zone.clone(), price)).collect())));
        }
        if !priced {
            catalog.on_demand = tables::static_on_demand_prices(region);
            for (name, price) in self.facts["onDemandPrices"].as_object().into_iter().flatten() {
                catalog.on_demand.insert(name.clone(), dollars(price));
            }
            for (name, prices) in self.facts["spotPrices"].as_object().into_iter().flatten() {
                catalog
                    .spot
                    .insert(name.clone(), prices.as_object().unwrap().iter().map(|(zone, price)| (zone.clone(), dollars(price))).collect());
            }
        }
        catalog.types = types;
        catalog.normalized()
    }
}

//! Reads a catalog of instance types.

use super::error::ReadError;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use whittle_api::catalog::{InstanceType, Offering};
use whittle_api::karpenter::{Operator, Requirement};
use whittle_api::{ClusterObjects, labels};
use whittle_model::scheduling::InstanceTypes;
use whittle_units::{Price, Quantity, Resources};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeEntry {
    name: String,
    architecture: String,
    #[serde(default)]
    operating_systems: Vec<String>,
    resources: Resources,
    #[serde(default)]
    offerings: Vec<OfferingEntry>,
    #[serde(default)]
    overhead: Option<Resources>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    requirements: Vec<Requirement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OfferingEntry {
    /// Unknown if missing or negative.
    #[serde(default)]
    price: Option<f64>,
    #[serde(default = "available")]
    available: bool,
    #[serde(default)]
    reservation_capacity: Option<u32>,
    #[serde(default)]
    requirements: Vec<Requirement>,
}

fn available() -> bool {
    true
}

/// Reads the instance types of a catalog file.
///
/// # Errors
/// A file that is unreadable or not a catalog.
pub fn read(path: &Path) -> Result<Vec<InstanceType>, ReadError> {
    let fail = |message: String| ReadError::Catalog { path: path.display().to_string(), message };
    let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
    parse(&text).map_err(fail)
}

/// Reads the instance types of a catalog text.
///
/// # Errors
/// The parse error.
pub fn parse(text: &str) -> Result<Vec<InstanceType>, String> {
    let entries: Vec<TypeEntry> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let keys = keys_of(&entries);
    Ok(entries.into_iter().map(|entry| instance_type(entry, &keys)).collect())
}

/// Offers the same types to every NodePool.
#[must_use]
pub fn for_all_pools(objects: &ClusterObjects, types: Vec<InstanceType>) -> BTreeMap<String, Arc<InstanceTypes>> {
    let types = Arc::new(types.into());
    objects.node_pools.iter().map(|p| (p.metadata.name.clone(), Arc::clone(&types))).collect()
}

/// All keys that instance types define: the provider's, and any that the catalog uses.
fn keys_of(entries: &[TypeEntry]) -> BTreeSet<String> {
    let mut keys: BTreeSet<String> =
        labels::WELL_KNOWN.iter().filter(|k| k.starts_with(labels::AWS_DOMAIN)).map(|k| (*k).to_owned()).collect();
    for entry in entries {
        keys.extend(entry.labels.keys().cloned());
        keys.extend(entry.requirements.iter().map(|r| r.key.clone()));
        keys.extend(entry.offerings.iter().flat_map(|o| o.requirements.iter().map(|r| r.key.clone())));
    }
    keys
}

fn instance_type(entry: TypeEntry, keys: &BTreeSet<String>) -> InstanceType {
    let mut requirements = vec![
        Requirement::is_in(labels::INSTANCE_TYPE, [entry.name.clone()]),
        Requirement::is_in(labels::ARCH, [entry.architecture]),
        Requirement::is_in(labels::OS, entry.operating_systems),
    ];
    requirements.extend(entry.labels.into_iter().map(|(key, value)| Requirement::is_in(&key, [value])));
    requirements.extend(entry.requirements);
    let offered: BTreeSet<&str> = entry.offerings.iter().flat_map(|o| o.requirements.iter().map(|r| r.key.as_str())).collect();
    for key in offered {
        let named = entry.offerings.iter().flat_map(|o| &o.requirements).filter(|r| r.key == key && r.operator == Operator::In);
        let values: BTreeSet<String> = named.flat_map(|r| r.values.iter().cloned()).collect();
        if !requirements.iter().any(|r| r.key == key) {
            requirements.push(Requirement::is_in(key, values));
        }
    }
    let defined: BTreeSet<String> = requirements.iter().map(|r| r.key.clone()).collect();
    requirements.extend(keys.difference(&defined).map(|key| Requirement {
        key: key.clone(),
        operator: Operator::DoesNotExist,
        values: Vec::new(),
        min_values: None,
    }));
    let mut capacity = entry.resources;
    if !capacity.0.contains_key("pods") {
        capacity.set("pods", Quantity::from_units(110));
    }
    let default_overhead = || Resources::from([("cpu", Quantity::from_milli(100)), ("memory", Quantity::from_mebibytes(10))]);
    InstanceType {
        name: entry.name,
        requirements,
        offerings: entry
            .offerings
            .into_iter()
            .map(|o| Offering {
                requirements: o.requirements,
                price: o.price.map_or(Price::ZERO, Price::from_dollars),
                // An offering without a price is never launched, because it might cost anything.
                available: o.available && o.price.is_some_and(|price| price >= 0.0),
                reservation_capacity: o.reservation_capacity,
            })
            .collect(),
        capacity,
        overhead: entry.overhead.unwrap_or_else(default_overhead),
    }
}

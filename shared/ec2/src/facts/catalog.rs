//! The catalog of a region, as one value that fits into one table item.

use super::InstanceTypeFacts;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use whittle_units::{Price, Region};

/// A zone by name and by the id that is the same in all accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Zone {
    pub name: String,
    pub id: String,
}

/// Types, zones and prices of one region. Maps are keyed by type name (and zone name).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Catalog {
    pub region: Region,
    /// In the order of their names.
    pub zones: Vec<Zone>,
    /// In the order of their names.
    pub types: Vec<InstanceTypeFacts>,
    /// Names of the zones that offer a type, sorted.
    pub offered: BTreeMap<String, Vec<String>>,
    pub on_demand: BTreeMap<String, Price>,
    /// Empty until spot prices were read for the first time; after that, absent entries have no price.
    pub spot: BTreeMap<String, BTreeMap<String, Price>>,
}

/// A blob that is not a catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("the catalog blob is not a gzip stream")]
    Gzip(#[from] std::io::Error),
    #[error("the catalog blob does not hold a catalog")]
    Json(#[from] serde_json::Error),
    #[error("the catalog blob has version {0}, this release reads version {VERSION}")]
    Version(u32),
    #[error("the catalog blob unpacks to more than {LARGEST} bytes")]
    TooLarge,
    #[error("parts of the catalog are missing in the table: the next run of refresh writes it again")]
    PartsMissing,
}

const VERSION: u32 = 1;
/// Ten times the size of the largest region; bounds allocations for a damaged blob.
const LARGEST: u64 = 16 << 20;

/// How the spot prices begin, which are the last field.
const SPOT: &str = ",\"spot\":";

fn compressed(json: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(json.as_bytes()).expect("writing to memory does not fail");
    gzip.finish().expect("writing to memory does not fail")
}

#[derive(Serialize, Deserialize)]
struct Envelope<C> {
    version: u32,
    catalog: C,
}

impl Catalog {
    /// Compact bytes: gzip of JSON, deterministic. Spot prices, which change all the time, are a stream of their own: the bytes before it
    /// stay the same.
    pub fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_string(&Envelope { version: VERSION, catalog: self }).expect("maps have text keys");
        let (facts, prices) = json.split_at(json.rfind(SPOT).unwrap_or(0));
        let mut streams = if facts.is_empty() { Vec::new() } else { compressed(facts) };
        streams.extend(compressed(prices));
        streams
    }

    /// Reads what [`Catalog::encode`] wrote.
    pub fn decode(blob: &[u8]) -> Result<Self, CatalogError> {
        if blob.is_empty() {
            return Err(CatalogError::PartsMissing);
        }
        let mut json = Vec::new();
        let length = MultiGzDecoder::new(blob).take(LARGEST + 1).read_to_end(&mut json)?;
        if u64::try_from(length).is_ok_and(|length| length > LARGEST) {
            return Err(CatalogError::TooLarge);
        }
        // Of another version nothing but the version can be read.
        let envelope: Envelope<IgnoredAny> = serde_json::from_slice(&json)?;
        if envelope.version != VERSION {
            return Err(CatalogError::Version(envelope.version));
        }
        let envelope: Envelope<Self> = serde_json::from_slice(&json)?;
        Ok(envelope.catalog)
    }

    /// The facts of a type.
    pub fn facts(&self, instance_type: &str) -> Option<&InstanceTypeFacts> {
        let index = self.types.binary_search_by(|facts| facts.name.as_str().cmp(instance_type)).ok()?;
        self.types.get(index)
    }
    /// Price per hour for on-demand use.
    pub fn on_demand_price(&self, instance_type: &str) -> Option<Price> {
        self.on_demand.get(instance_type).copied()
    }
    /// Price per hour in the spot market; the on-demand price until spot prices are known (aws 5).
    pub fn spot_price(&self, instance_type: &str, zone: &str) -> Option<Price> {
        if self.spot.is_empty() {
            return self.on_demand_price(instance_type);
        }
        self.spot.get(instance_type)?.get(zone).copied()
    }
    /// The same with these prices, by type, where a type has none.
    pub fn with_missing_prices(&self, prices: &BTreeMap<String, Price>) -> Cow<'_, Self> {
        let mut out = Cow::Borrowed(self);
        for (name, price) in prices {
            if self.on_demand_price(name).is_none() {
                out.to_mut().on_demand.insert(name.clone(), *price);
            }
            // Until spot prices were read, a type has its on-demand price there.
            let zones = self.offered.get(name).into_iter().flatten().filter(|_| !self.spot.is_empty());
            for zone in zones.filter(|zone| self.spot_price(name, zone).is_none()) {
                out.to_mut().spot.entry(name.clone()).or_default().insert(zone.clone(), *price);
            }
        }
        out
    }
    /// The id of a zone, empty when unknown.
    pub fn zone_id(&self, zone: &str) -> &str {
        self.zones.iter().find(|known| known.name == zone).map_or("", |known| known.id.as_str())
    }
    /// Sorts the lists and drops offers of unlisted types and zones. Call after filling.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        self.zones.sort();
        self.zones.dedup();
        self.types.sort_by(|a, b| a.name.cmp(&b.name));
        self.types.dedup_by(|a, b| a.name == b.name);
        let known = |name: &String| self.types.binary_search_by(|facts| facts.name.cmp(name)).is_ok();
        self.offered.retain(|name, _| known(name));
        self.on_demand.retain(|name, _| known(name));
        self.spot.retain(|name, _| known(name));
        for zones in self.offered.values_mut() {
            zones.sort();
            zones.dedup();
        }
        self
    }
}

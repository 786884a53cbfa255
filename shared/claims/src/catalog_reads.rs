//! When the region's catalog was last read.

use serde::{Deserialize, Serialize};
use whittle_units::Timestamp;

/// When the last successful reads of the region's catalog began; shared by the clusters of the region. Losing one costs a further
/// read. Written by `refresh` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogReads {
    /// Of types, zones and on-demand prices.
    pub types: Option<Timestamp>,
    /// Of spot prices.
    pub spot_prices: Option<Timestamp>,
}

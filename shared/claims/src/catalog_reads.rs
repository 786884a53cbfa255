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
    /// Why on-demand prices, or some of them, could not be read with the types: others stand in. Absent once they could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices_failed: Option<String>,
}

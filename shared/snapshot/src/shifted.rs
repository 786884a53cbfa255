//! The zones that a zonal shift moves traffic away from.

use whittle_claims::{ShiftedZones, ZoneShifts};
use whittle_ports::{Clock, HandleError, Ports, RecordReader, Records, Settings};
use whittle_units::ClusterName;

/// The zones of a cluster that are shifted now, as of `sweep`'s last poll. None, without a read, while the setting is off.
///
/// # Errors The store failed.
pub async fn shifted_zones<P: Ports<Store: Records>>(
    ports: P,
    settings: &Settings,
    cluster: &ClusterName,
) -> Result<ShiftedZones, HandleError> {
    if !settings.zonal_shift {
        return Ok(ShiftedZones::default());
    }
    let known = ports.store().read::<ZoneShifts>(cluster, ZoneShifts::NAME).await?;
    Ok(known.map(|known| known.value.shifted(ports.clock().now())).unwrap_or_default())
}

//! When the region's catalog was read: where reservations have to be looked at every minute, types and prices need not be.

use crate::Rights;
use serde::{Deserialize, Serialize};
use whittle_claims::{Record, Revision};
use whittle_ports::{Clock, HandleError, Records, RegionStore, StoreError};
use whittle_snapshot::warm;
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// A catalog that was read so lately is left alone: less than the schedule's five minutes, by what one run may take.
const FRESH: SignedDuration = SignedDuration::from_mins(4);

/// The beginning of the latest look at the catalog that went well. Written by `refresh` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CatalogLook {
    at: Timestamp,
}

impl CatalogLook {
    const NAME: &'static str = "latest";
}

impl Record for CatalogLook {
    const KIND: &'static str = "catalog-look";
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

/// Whether the stored catalog was read not long ago, and is one that today's release can read. A look that lies ahead is of a
/// clock that was wrong, and proves nothing.
pub(crate) async fn is_fresh<P: Rights>(ports: P, cluster: &ClusterName) -> Result<bool, HandleError> {
    let Some(look) = ports.store().read::<CatalogLook>(cluster, CatalogLook::NAME).await? else { return Ok(false) };
    let age = ports.clock().now().duration_since(look.value.at);
    if age < SignedDuration::ZERO || age >= FRESH {
        return Ok(false);
    }
    Ok(ports.store().catalog().await?.is_some_and(|blob| warm::catalog(&blob.value).is_ok()))
}

/// Notes that the catalog was read at `at`. Of two runs that note it at once either may be right.
pub(crate) async fn note<P: Rights>(ports: P, cluster: &ClusterName, at: Timestamp) -> Result<(), HandleError> {
    let known = ports.store().read::<CatalogLook>(cluster, CatalogLook::NAME).await?;
    let revision = known.map_or(Revision::ABSENT, |known| known.revision);
    match ports.store().write(cluster, &CatalogLook { at }, revision).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

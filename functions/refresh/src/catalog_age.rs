//! When the region's catalog was last read: reservations have to be read every minute, types and prices need not.

use crate::{Rights, Run};
use serde::{Deserialize, Serialize};
use whittle_claims::Record;
use whittle_ports::{Clock, HandleError, Records, RegionStore, update_record};
use whittle_snapshot::warm;
use whittle_units::{SignedDuration, Timestamp};

/// A catalog is read again this long before it is as old as the settings allow, because runs are not punctual.
const EARLY: SignedDuration = SignedDuration::from_mins(1);

/// When the last successful read of the catalog began. Written by `refresh` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CatalogRead {
    at: Timestamp,
}

impl CatalogRead {
    const NAME: &'static str = "latest";
}

impl Record for CatalogRead {
    const KIND: &'static str = "catalog-look";
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

impl<P: Rights> Run<'_, P> {
    /// Whether the stored catalog was read recently, and is readable by this release. A time in the future comes from a wrong
    /// clock and does not count.
    pub(crate) async fn is_catalog_fresh(&self) -> Result<bool, HandleError> {
        let Some(look) = self.ports.store().read::<CatalogRead>(self.cluster, CatalogRead::NAME).await? else { return Ok(false) };
        let age = self.ports.clock().now().duration_since(look.value.at);
        let valid_for = self.settings.catalog_refresh.checked_sub(EARLY).unwrap_or_default();
        if age < SignedDuration::ZERO || age >= valid_for {
            return Ok(false);
        }
        Ok(self.ports.store().catalog().await?.is_some_and(|blob| warm::catalog(&blob.value).is_ok()))
    }

    /// Records that the catalog was read at `at`. Of two concurrent runs either may win.
    pub(crate) async fn record_catalog_read(&self, at: Timestamp) -> Result<(), HandleError> {
        update_record(self.ports, self.cluster, CatalogRead::NAME, 1, |_: Option<CatalogRead>, _| Some(CatalogRead { at })).await?;
        Ok(())
    }
}

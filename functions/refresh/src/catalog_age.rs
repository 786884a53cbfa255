//! When the region's catalog was read: where reservations have to be looked at every minute, types and prices need not be.

use crate::{Rights, Run};
use serde::{Deserialize, Serialize};
use whittle_claims::{Record, Revision};
use whittle_ports::{Clock, HandleError, Records, RegionStore, StoreError};
use whittle_snapshot::warm;
use whittle_units::{SignedDuration, Timestamp};

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

impl<P: Rights> Run<'_, P> {
    /// Whether the stored catalog was read not long ago, and is one that today's release can read. A look that lies ahead is of a
    /// clock that was wrong, and proves nothing.
    pub(crate) async fn is_fresh(&self) -> Result<bool, HandleError> {
        let Some(look) = self.ports.store().read::<CatalogLook>(self.cluster, CatalogLook::NAME).await? else { return Ok(false) };
        let age = self.ports.clock().now().duration_since(look.value.at);
        if age < SignedDuration::ZERO || age >= FRESH {
            return Ok(false);
        }
        Ok(self.ports.store().catalog().await?.is_some_and(|blob| warm::catalog(&blob.value).is_ok()))
    }

    /// Notes that the catalog was read at `at`. Of two runs that note it at once either may be right.
    pub(crate) async fn note_look(&self, at: Timestamp) -> Result<(), HandleError> {
        let known = self.ports.store().read::<CatalogLook>(self.cluster, CatalogLook::NAME).await?;
        let revision = known.map_or(Revision::ABSENT, |known| known.revision);
        match self.ports.store().write(self.cluster, &CatalogLook { at }, revision).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

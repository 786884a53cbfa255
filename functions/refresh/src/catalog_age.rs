//! The region's catalog: when it was last read, and which of its parts are read again. Reservations have to be read in every run and
//! spot prices often; types, zones and on-demand prices need not. All clusters of the region share the catalog and its reads.

use crate::{Done, Rights, Run};
use whittle_claims::{CatalogReads, Revision};
use whittle_ports::{CatalogWriter, Clock, Discovery, HandleError, RegionStore, StoreError, unless_conflict};
use whittle_snapshot::warm;
use whittle_units::{SignedDuration, Timestamp};

/// A part is read again this long before it is as old as the settings allow, because runs are not punctual.
const EARLY: SignedDuration = SignedDuration::from_mins(1);

/// Whether a part was read so recently that it is not read again. A time in the future comes from a wrong clock and does not count.
fn is_fresh(read_at: Option<Timestamp>, valid_for: SignedDuration, now: Timestamp) -> bool {
    let valid_for = valid_for.checked_sub(EARLY).unwrap_or_default();
    read_at.is_some_and(|at| (SignedDuration::ZERO..valid_for).contains(&now.duration_since(at)))
}

impl<P: Rights> Run<'_, P> {
    /// Reads the parts of the region's catalog that were not read recently, and stores it if it differs. When one part cannot be
    /// read, its last values stay and the other is stored all the same; the error is returned at the end.
    pub(crate) async fn refresh_catalog(&self, done: &mut Done) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let known_reads = self.catalog_reads().await?;
        let mut reads = known_reads.clone();
        let stored = self.ports.store().catalog().await?;
        let known = stored.as_ref().map(|stored| stored.value.as_slice());
        // A catalog of another release, or a damaged one, is read again as a whole.
        let readable = known.filter(|blob| warm::catalog(blob).is_ok());
        let types_are_fresh = readable.is_some() && is_fresh(reads.types, self.settings.catalog_refresh, now);
        let prices_are_fresh = types_are_fresh && is_fresh(reads.spot_prices, self.settings.spot_price_refresh, now);
        if prices_are_fresh {
            done.report.count("catalog_fresh");
            return Ok(());
        }
        let mut failure = None;
        let mut current = readable.map(<[u8]>::to_vec);
        if !types_are_fresh {
            match self.ports.cloud().catalog(known).await {
                Ok(blob) => (current, reads.types) = (Some(blob), Some(now)),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(blob) = &mut current {
            match self.ports.cloud().with_spot_prices(blob).await {
                Ok(priced) => (*blob, reads.spot_prices) = (priced, Some(now)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(blob) = current {
            let expected = stored.as_ref().map_or(Revision::ABSENT, |stored| stored.revision);
            let is_new = known != Some(blob.as_slice());
            // After a concurrent write these parts may be missing from what is stored: they do not count as read.
            let is_stored = !is_new || unless_conflict(self.ports.store().put_catalog(&blob, expected).await)?.is_some();
            if is_stored {
                if is_new {
                    done.change();
                }
                if reads != known_reads {
                    self.ports.store().put_catalog_reads(&reads).await?;
                }
            }
        }
        failure.map_or(Ok(()), |error| Err(HandleError::Cloud(error)))
    }

    /// When the parts were last read. Times that this release cannot read are written again.
    async fn catalog_reads(&self) -> Result<CatalogReads, HandleError> {
        match self.ports.store().catalog_reads().await {
            Err(StoreError::Unreadable { .. }) => Ok(CatalogReads::default()),
            found => Ok(found?.unwrap_or_default()),
        }
    }
}

//! The region's catalog: when it was last read, and which of its parts are read again. Reservations have to be read in every run and
//! spot prices often; types, zones and on-demand prices need not. All clusters of the region share the catalog and its reads: where several
//! are served, one run reads it while those of the others go on with what is there.

use crate::{Done, Rights, Run};
use whittle_api::karpenter::Ec2NodeClass;
use whittle_claims::{CatalogAttempt, CatalogReads, Revision};
use whittle_ports::{
    CatalogWriter, Clock, CloudError, ClusterEvent, Discovery, HandleError, Involved, RegionStore, StoreError, metrics, publish_event,
    unless_conflict,
};
use whittle_snapshot::warm;
use whittle_units::{SignedDuration, Timestamp};

/// A part is read again this long before it is as old as the settings allow, because runs are not punctual.
const EARLY: SignedDuration = SignedDuration::from_mins(1);

/// How soon prices are read again that could not be. The price list is asked for all of the region's, so not in every run.
const PRICES_RETRY: SignedDuration = SignedDuration::from_mins(15);

/// Whether a part was read so recently that it is not read again. A time in the future comes from a wrong clock and does not count.
fn is_fresh(read_at: Option<Timestamp>, valid_for: SignedDuration, now: Timestamp) -> bool {
    let valid_for = valid_for.checked_sub(EARLY).unwrap_or_default();
    read_at.is_some_and(|at| (SignedDuration::ZERO..valid_for).contains(&now.duration_since(at)))
}

impl<P: Rights> Run<'_, P> {
    /// Reads the parts of the region's catalog that were not read recently, and stores it if it differs. When one part cannot be
    /// read, its last values stay and the other is stored all the same; the error is returned at the end. It is none when on-demand prices
    /// alone cannot be read, of which a table stands in: that is counted and shown.
    pub(crate) async fn refresh_catalog(&self, done: &mut Done) -> Result<(), HandleError> {
        let outcome = self.refresh_parts(done).await;
        if done.prices_failed.is_some() {
            done.report.count("prices_not_read");
            done.report.metric(metrics::PricesNotRead);
        }
        outcome
    }

    async fn refresh_parts(&self, done: &mut Done) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let known_reads = self.catalog_reads().await?;
        let mut reads = known_reads.clone();
        let stored = self.ports.store().catalog().await?;
        let known = stored.as_ref().map(|stored| stored.value.as_slice());
        // A catalog of another release, or a damaged one, is read again as a whole.
        let readable = known.filter(|blob| warm::catalog(blob).is_ok());
        let valid_for = match reads.prices_failed {
            Some(_) => self.settings.catalog_refresh.min(PRICES_RETRY),
            None => self.settings.catalog_refresh,
        };
        let types_are_fresh = readable.is_some() && is_fresh(reads.types, valid_for, now);
        let prices_are_fresh = types_are_fresh && is_fresh(reads.spot_prices, self.settings.spot_price_refresh, now);
        if prices_are_fresh {
            done.report.count("catalog_fresh");
            done.prices_failed = reads.prices_failed;
            return Ok(());
        }
        // One that is not there, or that nobody can read, is waited for by everybody: whoever can reads it.
        let holds_back = |attempt: &&CatalogAttempt| self.is_shared() && readable.is_some() && attempt.holds_back(self.cluster, now);
        if let Some(attempt) = known_reads.attempt.as_ref().filter(holds_back) {
            done.report.count("catalog_left_to_another");
            done.prices_failed = reads.prices_failed;
            return left_to_another(attempt);
        }
        if self.is_shared() {
            reads.attempt = self.attempt_for(CatalogAttempt::LONGEST, None);
            self.ports.store().put_catalog_reads(&reads).await?;
        }
        let mut failure = None;
        let mut current = readable.map(<[u8]>::to_vec);
        if !types_are_fresh {
            match self.ports.cloud().catalog(known).await {
                Ok(read) => {
                    reads.prices_failed = read.prices_failed.as_ref().map(ToString::to_string);
                    (current, reads.types) = (Some(read.blob), Some(now));
                }
                Err(error) => failure = Some(error),
            }
        }
        done.prices_failed.clone_from(&reads.prices_failed);
        if let Some(blob) = &mut current {
            match self.ports.cloud().with_spot_prices(blob).await {
                Ok(priced) => (*blob, reads.spot_prices) = (priced, Some(now)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        reads.attempt = failure.as_ref().and_then(|error| self.failed_attempt(error));
        if let Some(blob) = current {
            let expected = stored.as_ref().map_or(Revision::ABSENT, |stored| stored.revision);
            let is_new = known != Some(blob.as_slice());
            // After a concurrent write these parts may be missing from what is stored: they do not count as read.
            let is_stored = !is_new || unless_conflict(self.ports.store().put_catalog(&blob, expected).await)?.is_some();
            if is_stored {
                if is_new {
                    done.change();
                }
                if reads != known_reads || self.is_shared() {
                    self.ports.store().put_catalog_reads(&reads).await?;
                }
            }
        }
        failure.map_or(Ok(()), |error| Err(HandleError::Cloud(error)))
    }

    /// Whether other clusters share the catalog.
    fn is_shared(&self) -> bool {
        self.settings.clusters.len() > 1
    }

    /// What holds the others back after a read that failed: each of them would ask an API again that answers nobody, for as long as it
    /// takes to fail, before it looks at its classes.
    fn failed_attempt(&self, error: &CloudError) -> Option<CatalogAttempt> {
        self.attempt_for(CatalogAttempt::PAUSE, Some(error.to_string())).filter(|_| self.is_shared())
    }

    /// That of this run, which holds others back for a span from now on.
    fn attempt_for(&self, span: SignedDuration, failed: Option<String>) -> Option<CatalogAttempt> {
        let until = self.ports.clock().now().checked_add(span).ok()?;
        Some(CatalogAttempt { until, failed, by: Some(self.cluster.clone()) })
    }

    /// Shows why prices could not be read, which no other object does: nodes are chosen by prices that stand in, and types without one are
    /// left out.
    pub(crate) async fn report_prices(&self, class: &Ec2NodeClass, done: &Done) {
        let Some(error) = done.prices_failed.as_ref().filter(|_| !self.settings.is_shadow()) else { return };
        let message = format!(
            "on-demand prices of the region could not be read: {error}. They are read again within {} minutes; until then the latest ones or a \
             built-in table stand in, and types without a price there are not launched. If the call is denied, allow pricing:GetProducts for \
             the role of refresh",
            PRICES_RETRY.as_mins()
        );
        let event = ClusterEvent::warning(Involved::object(class), "PricesNotRead", message);
        publish_event(self.ports.cluster(), self.cluster, &event).await;
    }

    /// When the parts were last read. Times that this release cannot read are written again.
    async fn catalog_reads(&self) -> Result<CatalogReads, HandleError> {
        match self.ports.store().catalog_reads().await {
            Err(StoreError::Unreadable { .. }) => Ok(CatalogReads::default()),
            found => Ok(found?.unwrap_or_default()),
        }
    }
}

/// The outcome for a run that leaves the catalog to another. If that failed, so has this one: the alarm counts what each cluster lacks.
fn left_to_another(attempt: &CatalogAttempt) -> Result<(), HandleError> {
    let Some(reason) = &attempt.failed else { return Ok(()) };
    Err(HandleError::NotYet { what: format!("a newer catalog of the region (another run could not read it just now: {reason})") })
}

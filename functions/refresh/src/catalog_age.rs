//! The region's catalog: when it was last read, and which of its parts are read again. Reservations have to be read in every run and
//! spot prices often; types, zones and on-demand prices need not. All clusters of the region share the catalog and its reads: where several
//! are served, one run reads it while those of the others go on with what is there.

use crate::{Done, Rights, Run};
use whittle_api::karpenter::Ec2NodeClass;
use whittle_claims::{CatalogAttempt, CatalogReads, Revision, Stored};
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

/// Which parts of the catalog are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    SpotPrices,
    /// Types, zones and on-demand prices, and spot prices with them.
    Everything,
}

/// The catalog before this run.
struct KeptCatalog {
    reads: CatalogReads,
    stored: Option<Stored<Vec<u8>>>,
    /// False for one of another release, or a damaged one: it is read again as a whole.
    is_readable: bool,
    due: Due,
    now: Timestamp,
}

impl KeptCatalog {
    /// What is stored, whether it can be read or not.
    fn blob(&self) -> Option<&[u8]> {
        self.stored.as_ref().map(|stored| stored.value.as_slice())
    }
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
        let kept = self.kept_catalog().await?;
        let mut reads = kept.reads.clone();
        if kept.due == Due::Nothing {
            done.report.count("catalog_fresh");
            done.prices_failed = reads.prices_failed;
            return Ok(());
        }
        // One that is not there, or that nobody can read, is waited for by everybody: whoever can reads it.
        let holds_back = |attempt: &&CatalogAttempt| self.is_shared() && kept.is_readable && attempt.holds_back(self.cluster, kept.now);
        if let Some(attempt) = kept.reads.attempt.as_ref().filter(holds_back) {
            done.report.count("catalog_left_to_another");
            done.prices_failed = reads.prices_failed;
            return left_to_another(attempt);
        }
        if self.is_shared() {
            reads.attempt = self.attempt_for(CatalogAttempt::LONGEST, None);
            self.ports.store().put_catalog_reads(&reads).await?;
        }
        let (catalog, failure) = self.read_due_parts(&kept, &mut reads).await;
        done.prices_failed.clone_from(&reads.prices_failed);
        reads.attempt = failure.as_ref().and_then(|error| self.failed_attempt(error));
        if let Some(blob) = catalog {
            self.store_catalog(&kept, &blob, &reads, done).await?;
        }
        failure.map_or(Ok(()), |error| Err(HandleError::Cloud(error)))
    }

    /// What is stored of the catalog, and what of it is due.
    async fn kept_catalog(&self) -> Result<KeptCatalog, HandleError> {
        let now = self.ports.clock().now();
        let reads = self.catalog_reads().await?;
        let stored = self.ports.store().catalog().await?;
        let is_readable = stored.as_ref().is_some_and(|stored| warm::catalog(&stored.value).is_ok());
        let due = if is_readable { self.due(&reads, now) } else { Due::Everything };
        Ok(KeptCatalog { reads, stored, is_readable, due, now })
    }

    /// Which parts of a catalog that can be read are due.
    fn due(&self, reads: &CatalogReads, now: Timestamp) -> Due {
        let valid_for = match reads.prices_failed {
            Some(_) => self.settings.catalog_refresh.min(PRICES_RETRY),
            None => self.settings.catalog_refresh,
        };
        if !is_fresh(reads.types, valid_for, now) {
            return Due::Everything;
        }
        if is_fresh(reads.spot_prices, self.settings.spot_price_refresh, now) { Due::Nothing } else { Due::SpotPrices }
    }

    /// Reads what is due, and notes in `reads` when it was. Returns the catalog, unless there is none, and the first failure.
    async fn read_due_parts(&self, kept: &KeptCatalog, reads: &mut CatalogReads) -> (Option<Vec<u8>>, Option<CloudError>) {
        let mut failure = None;
        let mut current = kept.blob().filter(|_| kept.is_readable).map(<[u8]>::to_vec);
        if kept.due == Due::Everything {
            match self.ports.cloud().catalog(kept.blob()).await {
                Ok(read) => {
                    reads.prices_failed = read.prices_failed.as_ref().map(ToString::to_string);
                    (current, reads.types) = (Some(read.blob), Some(kept.now));
                }
                Err(error) => failure = Some(error),
            }
        }
        if let Some(blob) = &mut current {
            match self.ports.cloud().with_spot_prices(blob).await {
                Ok(priced) => (*blob, reads.spot_prices) = (priced, Some(kept.now)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        (current, failure)
    }

    /// Stores the catalog if it differs from the stored one, and when its parts were read.
    async fn store_catalog(&self, kept: &KeptCatalog, blob: &[u8], reads: &CatalogReads, done: &mut Done) -> Result<(), HandleError> {
        if kept.blob() != Some(blob) {
            let expected = kept.stored.as_ref().map_or(Revision::ABSENT, |stored| stored.revision);
            // After a concurrent write these parts may be missing from what is stored: they do not count as read.
            if unless_conflict(self.ports.store().put_catalog(blob, expected).await)?.is_none() {
                return Ok(());
            }
            done.change();
        }
        if *reads != kept.reads || self.is_shared() {
            self.ports.store().put_catalog_reads(reads).await?;
        }
        Ok(())
    }

    /// Whether other clusters share the catalog.
    fn is_shared(&self) -> bool {
        self.settings.clusters.len() > 1
    }

    /// A pause for runs of other clusters after a failed read. Each would otherwise call an API that does not answer, and wait until
    /// the call fails before it looks at its own classes.
    fn failed_attempt(&self, error: &CloudError) -> Option<CatalogAttempt> {
        self.attempt_for(CatalogAttempt::PAUSE, Some(error.to_string())).filter(|_| self.is_shared())
    }

    /// The attempt of this run, which makes runs of other clusters wait for `span`.
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

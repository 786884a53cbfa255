//! A caller that retries until it succeeds, as functions do because doorbells are redelivered.
//!
//! It uses only the ports of a store: it retries after throttling, reads the outcome of a write after a lost response,
//! and accepts a conflict if the stored value confirms it. A store that fulfils its contract does so for such a caller
//! whatever fails in between.

use super::faults::Faulty;
use crate::{
    CatalogWriter, ClaimStore, DecisionLog, Erase, Leases, Listing, RecordReader, RecordRemoval, Records, RegionStore, StoreError,
    TokenBuckets,
};
use whittle_claims::{Bucket, BucketName, CatalogReads, Claim, ClaimKey, DecisionRecord, Lease, Record, Revision, StockOut, Stored};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

/// Tries of one call: half of the calls fail, so that one in thousands of calls needs as many.
const TRIES_MAX: u32 = 16;

/// A conflict that the stored revision contradicts this often has another cause, such as a machine with another claim.
const LOST_RACES_MAX: u32 = 6;

/// The caller.
pub struct Steady<'a, S>(pub Faulty<'a, S>);

/// Whether a failure may be transient.
fn is_transient(error: &StoreError) -> bool {
    matches!(error, StoreError::Throttled { .. } | StoreError::Unavailable { .. })
}

// Macros rather than functions of closures: the futures of async closures that borrow cannot be shown to be `Send` yet.

/// Repeats an idempotent call until it gets a response.
macro_rules! persist {
    ($call:expr) => {{
        let mut answer = $call.await;
        for _ in 1..TRIES_MAX {
            match &answer {
                Err(error) if is_transient(error) => answer = $call.await,
                _ => break,
            }
        }
        answer
    }};
}

/// Repeats a write until its outcome is known. `$there` reads the stored revision, and whether the value is ours.
macro_rules! swap {
    ($expected:expr, $write:expr, $there:expr) => {{
        let (mut in_doubt, mut lost_races) = (false, 0);
        let mut answer = $write.await;
        for _ in 1..TRIES_MAX {
            match &answer {
                Err(StoreError::Unavailable { .. }) => in_doubt = true,
                Err(StoreError::Throttled { .. }) => {}
                Err(StoreError::Conflict { .. }) => {
                    let (revision, is_ours) = $there;
                    if in_doubt && is_ours && revision == $expected.next() {
                        answer = Ok(revision);
                        break;
                    }
                    lost_races += 1;
                    if revision != $expected || lost_races == LOST_RACES_MAX {
                        break;
                    }
                }
                _ => break,
            }
            answer = $write.await;
        }
        answer
    }};
}

/// Records cannot be compared with each other, but as the JSON that is stored.
fn json(record: &impl Record) -> serde_json::Value {
    serde_json::to_value(record).expect("records are plain data, which JSON can always express")
}

impl<S: ClaimStore> Steady<'_, S> {
    /// The stored revision of a claim, and whether it is this very value.
    async fn stored(&self, claim: &Claim) -> Result<(Revision, bool), StoreError> {
        let stored = self.get(&claim.key).await?;
        Ok(stored.map_or((Revision::ABSENT, false), |stored| (stored.revision, stored.value == *claim)))
    }
}

impl<S: ClaimStore> ClaimStore for Steady<'_, S> {
    async fn get(&self, key: &ClaimKey) -> Result<Option<Stored<Claim>>, StoreError> {
        persist!(self.0.get(key))
    }
    async fn listing(&self, cluster: &ClusterName) -> Result<Listing, StoreError> {
        persist!(self.0.listing(cluster))
    }
    async fn has_claims(&self, cluster: &ClusterName) -> Result<bool, StoreError> {
        persist!(self.0.has_claims(cluster))
    }
    async fn without_instance(&self, cluster: &ClusterName) -> Result<Vec<Stored<Claim>>, StoreError> {
        persist!(self.0.without_instance(cluster))
    }
    async fn by_instance(&self, id: &InstanceId) -> Result<Option<Stored<Claim>>, StoreError> {
        persist!(self.0.by_instance(id))
    }
    async fn create(&self, lease: &Lease, claim: &Claim) -> Result<Revision, StoreError> {
        swap!(Revision::ABSENT, self.0.create(lease, claim), self.stored(claim).await?)
    }
    async fn update(&self, claim: &Claim, expected: Revision) -> Result<Revision, StoreError> {
        swap!(expected, self.0.update(claim, expected), self.stored(claim).await?)
    }
}

impl<S: Leases> Leases for Steady<'_, S> {
    async fn acquire(&self, cluster: &ClusterName, owner: &str, now: Timestamp, ttl: SignedDuration) -> Result<Lease, StoreError> {
        persist!(self.0.acquire(cluster, owner, now, ttl))
    }
    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        persist!(self.0.release(lease))
    }
}

impl<S: RecordReader> RecordReader for Steady<'_, S> {
    async fn read<R: Record>(&self, cluster: &ClusterName, name: &str) -> Result<Option<Stored<R>>, StoreError> {
        persist!(self.0.read::<R>(cluster, name))
    }
    async fn read_all<R: Record>(&self, cluster: &ClusterName) -> Result<Vec<Stored<R>>, StoreError> {
        persist!(self.0.read_all::<R>(cluster))
    }
}

impl<S: Records> Records for Steady<'_, S> {
    async fn write<R: Record>(&self, cluster: &ClusterName, record: &R, expected: Revision) -> Result<Revision, StoreError> {
        swap!(expected, self.0.write(cluster, record, expected), {
            let stored = self.read::<R>(cluster, &record.name()).await?;
            stored.map_or((Revision::ABSENT, false), |stored| (stored.revision, json(&stored.value) == json(record)))
        })
    }
}

impl<S: Records + RecordRemoval> RecordRemoval for Steady<'_, S> {
    async fn remove<R: Record>(&self, cluster: &ClusterName, name: &str, expected: Revision) -> Result<(), StoreError> {
        // It may have been removed by a call whose response was lost; removing a missing record is no conflict.
        let mut answer = self.0.remove::<R>(cluster, name, expected).await;
        for _ in 1..TRIES_MAX {
            match &answer {
                Err(StoreError::Conflict { .. }) => {
                    let stored = self.read::<R>(cluster, name).await?;
                    if stored.is_some_and(|stored| stored.revision != expected) {
                        break;
                    }
                }
                Err(error) if is_transient(error) => {}
                _ => break,
            }
            answer = self.0.remove::<R>(cluster, name, expected).await;
        }
        answer
    }
}

impl<S: Erase> Erase for Steady<'_, S> {
    async fn erase(&self, cluster: &ClusterName, kinds: &[&str]) -> Result<u64, StoreError> {
        persist!(self.0.erase(cluster, kinds))
    }
}

impl<S: RegionStore> RegionStore for Steady<'_, S> {
    async fn stock_outs(&self, now: Timestamp) -> Result<Vec<StockOut>, StoreError> {
        persist!(self.0.stock_outs(now))
    }
    async fn put_stock_outs(&self, stock_outs: &[StockOut]) -> Result<(), StoreError> {
        persist!(self.0.put_stock_outs(stock_outs))
    }
    async fn catalog(&self) -> Result<Option<Stored<Vec<u8>>>, StoreError> {
        persist!(self.0.catalog())
    }
}

impl<S: TokenBuckets> TokenBuckets for Steady<'_, S> {
    async fn take_tokens(&self, name: &BucketName, full: &Bucket, count: u32, now: Timestamp) -> Result<bool, StoreError> {
        persist!(self.0.take_tokens(name, full, count, now))
    }
}

impl<S: RegionStore + CatalogWriter> CatalogWriter for Steady<'_, S> {
    async fn put_catalog(&self, blob: &[u8], expected: Revision) -> Result<Revision, StoreError> {
        swap!(expected, self.0.put_catalog(blob, expected), {
            let stored = self.catalog().await?;
            stored.map_or((Revision::ABSENT, false), |stored| (stored.revision, stored.value == blob))
        })
    }
    async fn catalog_reads(&self) -> Result<Option<CatalogReads>, StoreError> {
        persist!(self.0.catalog_reads())
    }
    async fn put_catalog_reads(&self, reads: &CatalogReads) -> Result<(), StoreError> {
        persist!(self.0.put_catalog_reads(reads))
    }
}

impl<S: DecisionLog> DecisionLog for Steady<'_, S> {
    /// The log is append-only: after a lost response it is read before the write is repeated.
    async fn append(&self, cluster: &ClusterName, decisions: &[DecisionRecord]) -> Result<(), StoreError> {
        let mut answer = self.0.append(cluster, decisions).await;
        for _ in 1..TRIES_MAX {
            match &answer {
                Err(StoreError::Throttled { .. }) => {}
                Err(StoreError::Unavailable { .. }) => {
                    let written = self.recent(cluster, None, decisions.len()).await?;
                    if decisions.iter().all(|decision| written.contains(decision)) {
                        return Ok(());
                    }
                }
                _ => break,
            }
            answer = self.0.append(cluster, decisions).await;
        }
        answer
    }
    async fn recent(&self, cluster: &ClusterName, subject: Option<&str>, limit: usize) -> Result<Vec<DecisionRecord>, StoreError> {
        persist!(self.0.recent(cluster, subject, limit))
    }
}

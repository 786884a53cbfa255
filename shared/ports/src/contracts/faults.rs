//! A store whose calls fail in the ways in which calls of a table fail.

use crate::{
    CatalogWriter, ClaimStore, DecisionLog, Erase, Leases, Listing, RecordReader, RecordRemoval, Records, RegionStore, StoreError,
    TokenBuckets,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use whittle_claims::{Bucket, BucketName, CatalogReads, Claim, ClaimKey, DecisionRecord, Lease, Record, Revision, StockOut, Stored};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The table is too busy: nothing was done.
    Throttle,
    /// A compare-and-swap gets a spurious conflict: nothing was done.
    LostRace,
    /// It was done, but the response is lost.
    LostReply,
    /// It was done, but the response arrives only after other tasks have run.
    SlowReply,
}

/// Polls of other tasks before a slow response arrives.
const SLOW_TURNS: u32 = 25;

/// A store over another one. Faults come from a script, call by call, and are random after its end.
///
/// A rejection is never lost: to the caller that would be the same as throttling.
pub struct Faulty<'a, S> {
    inner: &'a S,
    plan: Mutex<Plan>,
}

struct Plan {
    script: VecDeque<Option<Fault>>,
    /// State of the random generator; `None` for a store without faults beyond the script.
    dice: Option<u64>,
    counts: BTreeMap<Fault, u32>,
}

impl Plan {
    /// The fault of the next call: every other call has one.
    fn next(&mut self) -> Option<Fault> {
        if let Some(scripted) = self.script.pop_front() {
            return scripted;
        }
        let state = self.dice.as_mut()?;
        // A step of Knuth's generator: its high bits are good enough for a table of faults.
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match *state >> 61 {
            0 => Some(Fault::Throttle),
            1 => Some(Fault::LostRace),
            2 => Some(Fault::LostReply),
            3 => Some(Fault::SlowReply),
            _ => None,
        }
    }
}

impl<'a, S> Faulty<'a, S> {
    /// Random faults: a seed determines the sequence.
    pub fn random(inner: &'a S, seed: u64) -> Self {
        Self::new(inner, VecDeque::new(), Some(seed))
    }

    /// These faults for the next calls, and none afterwards.
    pub fn scripted<const N: usize>(inner: &'a S, script: [Option<Fault>; N]) -> Self {
        Self::new(inner, script.into(), None)
    }

    fn new(inner: &'a S, script: VecDeque<Option<Fault>>, dice: Option<u64>) -> Self {
        Self { inner, plan: Mutex::new(Plan { script, dice, counts: BTreeMap::new() }) }
    }

    /// How often each fault occurred.
    pub fn counts(&self) -> BTreeMap<Fault, u32> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    /// The fault of a new call. Only calls that `races` get conflicts.
    fn strike(&self, races: bool) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = plan.next().map(|fault| if fault == Fault::LostRace && !races { Fault::Throttle } else { fault });
        if let Some(fault) = fault {
            *plan.counts.entry(fault).or_default() += 1;
        }
        fault
    }

    /// `effect` runs when its call reaches the store, and not before.
    async fn call<T>(&self, what: &str, races: bool, effect: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let what = what.to_owned();
        let fault = self.strike(races);
        match fault {
            Some(Fault::Throttle) => return Err(StoreError::Throttled { what }),
            Some(Fault::LostRace) => return Err(StoreError::Conflict { what }),
            Some(Fault::LostReply | Fault::SlowReply) | None => {}
        }
        let answer = effect.await;
        if fault == Some(Fault::SlowReply) {
            yield_to_others(SLOW_TURNS).await;
        }
        if fault == Some(Fault::LostReply) && answer.is_ok() {
            return Err(StoreError::Unavailable { what, reason: "the reply was lost".to_owned() });
        }
        answer
    }
}

/// Yields to other tasks this many times.
async fn yield_to_others(mut turns: u32) {
    std::future::poll_fn(|context| {
        if turns == 0 {
            return Poll::Ready(());
        }
        turns -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<S: ClaimStore> ClaimStore for Faulty<'_, S> {
    async fn get(&self, key: &ClaimKey) -> Result<Option<Stored<Claim>>, StoreError> {
        self.call("a claim", false, self.inner.get(key)).await
    }
    async fn listing(&self, cluster: &ClusterName) -> Result<Listing, StoreError> {
        self.call("the claims", false, self.inner.listing(cluster)).await
    }
    async fn has_claims(&self, cluster: &ClusterName) -> Result<bool, StoreError> {
        self.call("the claims", false, self.inner.has_claims(cluster)).await
    }
    async fn without_instance(&self, cluster: &ClusterName) -> Result<Vec<Stored<Claim>>, StoreError> {
        self.call("the claims", false, self.inner.without_instance(cluster)).await
    }
    async fn by_instance(&self, id: &InstanceId) -> Result<Option<Stored<Claim>>, StoreError> {
        self.call("a claim", false, self.inner.by_instance(id)).await
    }
    async fn create(&self, lease: &Lease, claim: &Claim) -> Result<Revision, StoreError> {
        self.call("a new claim", false, self.inner.create(lease, claim)).await
    }
    async fn update(&self, claim: &Claim, expected: Revision) -> Result<Revision, StoreError> {
        self.call("a claim", true, self.inner.update(claim, expected)).await
    }
}

impl<S: Leases> Leases for Faulty<'_, S> {
    async fn acquire(&self, cluster: &ClusterName, owner: &str, now: Timestamp, ttl: SignedDuration) -> Result<Lease, StoreError> {
        self.call("the lease", false, self.inner.acquire(cluster, owner, now, ttl)).await
    }
    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.call("the lease", false, self.inner.release(lease)).await
    }
}

impl<S: RecordReader> RecordReader for Faulty<'_, S> {
    async fn read<R: Record>(&self, cluster: &ClusterName, name: &str) -> Result<Option<Stored<R>>, StoreError> {
        self.call(R::KIND, false, self.inner.read::<R>(cluster, name)).await
    }
    async fn read_all<R: Record>(&self, cluster: &ClusterName) -> Result<Vec<Stored<R>>, StoreError> {
        self.call(R::KIND, false, self.inner.read_all::<R>(cluster)).await
    }
}

impl<S: Records> Records for Faulty<'_, S> {
    async fn write<R: Record>(&self, cluster: &ClusterName, record: &R, expected: Revision) -> Result<Revision, StoreError> {
        self.call(R::KIND, true, self.inner.write(cluster, record, expected)).await
    }
}

impl<S: RecordRemoval> RecordRemoval for Faulty<'_, S> {
    async fn remove<R: Record>(&self, cluster: &ClusterName, name: &str, expected: Revision) -> Result<(), StoreError> {
        self.call(R::KIND, true, self.inner.remove::<R>(cluster, name, expected)).await
    }
}

impl<S: Erase> Erase for Faulty<'_, S> {
    async fn erase(&self, cluster: &ClusterName, kinds: &[&str]) -> Result<u64, StoreError> {
        self.call("the cluster's items", false, self.inner.erase(cluster, kinds)).await
    }
}

impl<S: RegionStore> RegionStore for Faulty<'_, S> {
    async fn stock_outs(&self, now: Timestamp) -> Result<Vec<StockOut>, StoreError> {
        self.call("stock-outs", false, self.inner.stock_outs(now)).await
    }
    async fn put_stock_outs(&self, stock_outs: &[StockOut]) -> Result<(), StoreError> {
        self.call("stock-outs", false, self.inner.put_stock_outs(stock_outs)).await
    }
    async fn catalog(&self) -> Result<Option<Stored<Vec<u8>>>, StoreError> {
        self.call("the catalog", false, self.inner.catalog()).await
    }
}

impl<S: TokenBuckets> TokenBuckets for Faulty<'_, S> {
    async fn take_tokens(&self, name: &BucketName, full: &Bucket, count: u32, now: Timestamp) -> Result<bool, StoreError> {
        self.call("a token bucket", false, self.inner.take_tokens(name, full, count, now)).await
    }
}

impl<S: CatalogWriter> CatalogWriter for Faulty<'_, S> {
    async fn put_catalog(&self, blob: &[u8], expected: Revision) -> Result<Revision, StoreError> {
        self.call("the catalog", true, self.inner.put_catalog(blob, expected)).await
    }
    async fn catalog_reads(&self) -> Result<Option<CatalogReads>, StoreError> {
        self.call("the times of the catalog", false, self.inner.catalog_reads()).await
    }
    async fn put_catalog_reads(&self, reads: &CatalogReads) -> Result<(), StoreError> {
        self.call("the times of the catalog", false, self.inner.put_catalog_reads(reads)).await
    }
}

impl<S: DecisionLog> DecisionLog for Faulty<'_, S> {
    async fn append(&self, cluster: &ClusterName, decisions: &[DecisionRecord]) -> Result<(), StoreError> {
        self.call("the decision log", false, self.inner.append(cluster, decisions)).await
    }
    async fn recent(&self, cluster: &ClusterName, subject: Option<&str>, limit: usize) -> Result<Vec<DecisionRecord>, StoreError> {
        self.call("the decision log", false, self.inner.recent(cluster, subject, limit)).await
    }
}

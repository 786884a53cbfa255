//! Stored state.

use crate::Answer;
use whittle_claims::{Bucket, BucketName, CatalogReads, Claim, ClaimKey, DecisionRecord, Lease, Record, Revision, StockOut, Stored};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

/// A failed call to the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another write came first: a normal outcome that ends the invocation.
    #[error("{what} was changed concurrently")]
    Conflict { what: String },
    /// A newer lease exists: this invocation may not decide any more.
    #[error("the lease of cluster {cluster} has passed to another invocation")]
    Fenced { cluster: ClusterName },
    /// Another invocation holds the lease.
    #[error("the lease of cluster {cluster} is held until {until}")]
    Held { cluster: ClusterName, until: Timestamp },
    #[error("the table throttles {what}")]
    Throttled { what: String },
    /// It is unknown whether the write happened.
    #[error("the table did not respond for {what}: {reason}")]
    Unavailable { what: String, reason: String },
    /// The stored value cannot be read: a newer version, or damage. It is left as it is.
    #[error("{what} cannot be read: {reason}")]
    Unreadable { what: String, reason: String },
}

/// The claims of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// In the order of their names.
    pub claims: Vec<Stored<Claim>>,
    /// Names of stored claims that cannot be read (newer version, damage): they may have machines, which must not be collected as
    /// orphans.
    pub unreadable: Vec<String>,
}

/// The most claims that one request of [`ClaimStore::create_all`] stores: DynamoDB allows 100 actions, of which one checks the lease, and
/// a claim takes up to two.
pub const CLAIMS_PER_REQUEST: usize = 49;

/// Stored claims. `update` is compare-and-swap: of two racing writers exactly one wins. All reads are consistent.
pub trait ClaimStore: Sync {
    fn get(&self, key: &ClaimKey) -> impl Answer<Option<Stored<Claim>>, StoreError>;
    /// All claims of a cluster, including ended ones until they are deleted, with the names of those that cannot be read.
    fn listing(&self, cluster: &ClusterName) -> impl Answer<Listing, StoreError>;
    /// Only the claims that can be read: for uses that a missing claim does not affect.
    fn list(&self, cluster: &ClusterName) -> impl Answer<Vec<Stored<Claim>>, StoreError> {
        async { Ok(self.listing(cluster).await?.claims) }
    }
    /// Whether the cluster has any claim, also one that has ended and is not deleted yet, or one that cannot be read.
    fn has_claims(&self, cluster: &ClusterName) -> impl Answer<bool, StoreError> {
        async {
            let Listing { claims, unreadable } = self.listing(cluster).await?;
            Ok(!claims.is_empty() || !unreadable.is_empty())
        }
    }
    /// Claims that no instance is known of, those that ended without one included: mostly few of many. Only those that can be read.
    fn without_instance(&self, cluster: &ClusterName) -> impl Answer<Vec<Stored<Claim>>, StoreError> {
        async {
            let mut claims = self.list(cluster).await?;
            claims.retain(|claim| claim.value.instance().is_none());
            Ok(claims)
        }
    }
    /// The claim of an instance. An instance has one claim: an `update` with the instance of another claim is a conflict. A
    /// deleted claim has none any more.
    fn by_instance(&self, id: &InstanceId) -> impl Answer<Option<Stored<Claim>>, StoreError>;
    /// Stores a new claim under the lease. Fails with `Conflict` if the name is taken, `Fenced` if there is a newer lease.
    fn create(&self, lease: &Lease, claim: &Claim) -> impl Answer<Revision, StoreError>;
    /// Stores new claims like `create`, in their order and in few requests. Each request stores all of its claims or none, and the
    /// first one that fails ends the call: claims before it are stored, those after it are not.
    fn create_all(&self, lease: &Lease, claims: &[Claim]) -> impl Answer<(), StoreError> {
        async move {
            for claim in claims {
                self.create(lease, claim).await?;
            }
            Ok(())
        }
    }
    /// Replaces the claim if it still has the expected revision.
    fn update(&self, claim: &Claim, expected: Revision) -> impl Answer<Revision, StoreError>;
}

/// The right to decide for a cluster.
pub trait Leases: Sync {
    fn acquire(&self, cluster: &ClusterName, owner: &str, now: Timestamp, ttl: SignedDuration) -> impl Answer<Lease, StoreError>;
    /// Releases the lease; one that another invocation holds by now is left alone.
    fn release(&self, lease: &Lease) -> impl Answer<(), StoreError>;
}

/// Reads small records of a cluster.
pub trait RecordReader: Sync {
    fn read<R: Record>(&self, cluster: &ClusterName, name: &str) -> impl Answer<Option<Stored<R>>, StoreError>;
    /// All records of a kind that can be read; the others are left alone, and logged.
    fn read_all<R: Record>(&self, cluster: &ClusterName) -> impl Answer<Vec<Stored<R>>, StoreError>;
}

/// Reads and writes small records of a cluster. `write` with an expected revision is compare-and-swap.
pub trait Records: RecordReader {
    fn write<R: Record>(&self, cluster: &ClusterName, record: &R, expected: Revision) -> impl Answer<Revision, StoreError>;
}

/// Removes records of a cluster.
pub trait RecordRemoval: Sync {
    /// Removes a record if it still has the expected revision; success if there is none.
    fn remove<R: Record>(&self, cluster: &ClusterName, name: &str, expected: Revision) -> impl Answer<(), StoreError>;
}

/// Deletes the data of a cluster after an uninstallation. Only `sweep` has this right.
pub trait Erase: Sync {
    /// Deletes ended claims, records of these kinds and the decisions of a cluster; claims that may have a machine and claims
    /// that cannot be read stay, and so does the lease, whose tokens must grow. Returns how many items were deleted.
    fn erase(&self, cluster: &ClusterName, kinds: &[&str]) -> impl Answer<u64, StoreError>;
}

/// State that the clusters of a region share.
pub trait RegionStore: Sync {
    /// Stock-outs that hold at `now`, and those that ended within the last hour: a further failure extends them. Check whether
    /// each still holds.
    fn stock_outs(&self, now: Timestamp) -> impl Answer<Vec<StockOut>, StoreError>;
    /// Stores or replaces stock-outs; the later `until` wins.
    fn put_stock_outs(&self, stock_outs: &[StockOut]) -> impl Answer<(), StoreError>;
    /// The compressed catalog of the region (at most 400 KB), and its version. Empty if parts of it are missing.
    fn catalog(&self) -> impl Answer<Option<Stored<Vec<u8>>>, StoreError>;
}

/// Token buckets that all functions and clusters of a region share: for limits that an account has.
pub trait TokenBuckets: Sync {
    /// Takes `count` tokens, starting from `full` if the bucket is new, and leaves as many as `full` says. False when there are too few.
    fn take_tokens(&self, name: &BucketName, full: &Bucket, count: u32, now: Timestamp) -> impl Answer<bool, StoreError>;
}

/// Replaces the catalog of the region. Only `refresh` has this right.
pub trait CatalogWriter: Sync {
    /// Replaces the catalog if it still has the expected version.
    fn put_catalog(&self, blob: &[u8], expected: Revision) -> impl Answer<Revision, StoreError>;
    /// When the catalog was last read from EC2, for all clusters of the region.
    fn catalog_reads(&self) -> impl Answer<Option<CatalogReads>, StoreError>;
    /// Replaces these times; of two concurrent writes either may win.
    fn put_catalog_reads(&self, reads: &CatalogReads) -> impl Answer<(), StoreError>;
}

/// The decision log.
pub trait DecisionLog: Sync {
    /// Adds decisions, many in one request. One that cannot be stored fails the call, and the others are stored all the same.
    fn append(&self, cluster: &ClusterName, decisions: &[DecisionRecord]) -> impl Answer<(), StoreError>;
    /// The newest decisions first; `subject` filters them.
    fn recent(&self, cluster: &ClusterName, subject: Option<&str>, limit: usize) -> impl Answer<Vec<DecisionRecord>, StoreError>;
}

/// A claim, or `None` if it cannot be read: an unreadable one does not block work on others.
///
/// # Errors The store failed.
pub fn readable(found: Result<Option<Stored<Claim>>, StoreError>) -> Result<Option<Stored<Claim>>, StoreError> {
    match found {
        Err(StoreError::Unreadable { .. }) => Ok(None),
        found => found,
    }
}

/// Whether an instance belongs to a claim, including one that cannot be read.
///
/// # Errors The store failed.
pub async fn is_owned<S: ClaimStore>(store: &S, id: &InstanceId) -> Result<bool, StoreError> {
    match store.by_instance(id).await {
        Err(StoreError::Unreadable { .. }) => Ok(true),
        found => Ok(found?.is_some()),
    }
}

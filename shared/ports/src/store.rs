//! State at rest.

use crate::Answer;
use whittle_claims::{Bucket, BucketName, Claim, ClaimKey, DecisionRecord, Lease, Record, Revision, StockOut, Stored};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

/// What a store answers when it does not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote first: a normal outcome that ends the invocation.
    #[error("{what} was changed by somebody else")]
    Conflict { what: String },
    /// A newer lease exists: this invocation may not decide any more.
    #[error("the lease of cluster {cluster} has passed to another invocation")]
    Fenced { cluster: ClusterName },
    /// Another invocation holds the lease.
    #[error("the lease of cluster {cluster} is held until {until}")]
    Held { cluster: ClusterName, until: Timestamp },
    #[error("the table throttles {what}")]
    Throttled { what: String },
    /// It is not known whether the write happened.
    #[error("the table did not answer for {what}: {reason}")]
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
    /// Names of stored claims that cannot be read (newer version, damage): they may have machines, which are nobody's orphans.
    pub unreadable: Vec<String>,
}

/// Claims at rest. `update` is compare-and-swap: of two racing writers exactly one wins. All reads are consistent.
pub trait ClaimStore: Sync {
    fn get(&self, key: &ClaimKey) -> impl Answer<Option<Stored<Claim>>, StoreError>;
    /// All claims of a cluster, ended ones too until they are forgotten, with the names of those that cannot be read.
    fn listing(&self, cluster: &ClusterName) -> impl Answer<Listing, StoreError>;
    /// The claims that can be read alone: for what one claim more or less does not change.
    fn list(&self, cluster: &ClusterName) -> impl Answer<Vec<Stored<Claim>>, StoreError> {
        async { Ok(self.listing(cluster).await?.claims) }
    }
    /// The claim whose machine an instance is. An instance has one claim: an `update` that names the machine of another one
    /// is a conflict. A claim that is gone names none any more.
    fn by_instance(&self, id: &InstanceId) -> impl Answer<Option<Stored<Claim>>, StoreError>;
    /// Stores a new claim under the lease. Fails with `Conflict` if the name is taken, `Fenced` if the lease has passed.
    fn create(&self, lease: &Lease, claim: &Claim) -> impl Answer<Revision, StoreError>;
    /// Replaces the claim if it still has the expected revision.
    fn update(&self, claim: &Claim, expected: Revision) -> impl Answer<Revision, StoreError>;
}

/// The right to decide for a cluster.
pub trait Leases: Sync {
    fn acquire(&self, cluster: &ClusterName, owner: &str, now: Timestamp, ttl: SignedDuration) -> impl Answer<Lease, StoreError>;
    /// Gives the lease back; a lease that has passed on is left alone.
    fn release(&self, lease: &Lease) -> impl Answer<(), StoreError>;
}

/// Small records of a cluster. `write` with an expected revision is compare-and-swap.
pub trait Records: Sync {
    fn read<R: Record>(&self, cluster: &ClusterName, name: &str) -> impl Answer<Option<Stored<R>>, StoreError>;
    /// All records of a kind that can be read; the others are left as they are, and reported in the log.
    fn read_all<R: Record>(&self, cluster: &ClusterName) -> impl Answer<Vec<Stored<R>>, StoreError>;
    fn write<R: Record>(&self, cluster: &ClusterName, record: &R, expected: Revision) -> impl Answer<Revision, StoreError>;
}

/// Takes records of a cluster away.
pub trait RecordRemoval: Sync {
    /// Removes a record if it still has the expected revision; success where there is none.
    fn remove<R: Record>(&self, cluster: &ClusterName, name: &str, expected: Revision) -> impl Answer<(), StoreError>;
}

/// Forgets a cluster that Whittle has left. Only `sweep` has this right.
pub trait Erase: Sync {
    /// Deletes ended claims, records of these kinds and the decisions of a cluster; claims that may have a machine and claims
    /// that cannot be read stay, and so does the lease, whose tokens must grow. Returns how many items were deleted.
    fn erase(&self, cluster: &ClusterName, kinds: &[&str]) -> impl Answer<u64, StoreError>;
}

/// What the clusters of a region share.
pub trait RegionStore: Sync {
    /// Stock-outs that hold at `now`, and those that ended within the last hour: the next strike counts on from them. Ask
    /// each whether it still holds.
    fn stock_outs(&self, now: Timestamp) -> impl Answer<Vec<StockOut>, StoreError>;
    /// Stores or replaces stock-outs; the later `until` wins.
    fn put_stock_outs(&self, stock_outs: &[StockOut]) -> impl Answer<(), StoreError>;
    /// Takes `count` tokens, starting from `full` if the bucket is new. False when there are too few.
    fn take_tokens(&self, name: &BucketName, full: &Bucket, count: u32, now: Timestamp) -> impl Answer<bool, StoreError>;
    /// The compressed catalog of the region (at most 400 KB), and its version.
    fn catalog(&self) -> impl Answer<Option<Stored<Vec<u8>>>, StoreError>;
}

/// Replaces the catalog of the region. Only `refresh` has this right.
pub trait CatalogWriter: Sync {
    /// Replaces the catalog if it still has the expected version.
    fn put_catalog(&self, blob: &[u8], expected: Revision) -> impl Answer<Revision, StoreError>;
}

/// Why everything happened.
pub trait DecisionLog: Sync {
    fn append(&self, cluster: &ClusterName, decisions: &[DecisionRecord]) -> impl Answer<(), StoreError>;
    /// The newest decisions first; `subject` narrows to what they are about.
    fn recent(&self, cluster: &ClusterName, subject: Option<&str>, limit: usize) -> impl Answer<Vec<DecisionRecord>, StoreError>;
}

/// A claim as far as it can be read: one that cannot stops nobody who works on others.
///
/// # Errors
/// The store did not answer.
pub fn readable(found: Result<Option<Stored<Claim>>, StoreError>) -> Result<Option<Stored<Claim>>, StoreError> {
    match found {
        Err(StoreError::Unreadable { .. }) => Ok(None),
        found => found,
    }
}

/// Whether an instance is the machine of a claim, be it of one that cannot be read.
///
/// # Errors
/// The store did not answer.
pub async fn is_owned<S: ClaimStore>(store: &S, id: &InstanceId) -> Result<bool, StoreError> {
    match store.by_instance(id).await {
        Err(StoreError::Unreadable { .. }) => Ok(true),
        found => Ok(found?.is_some()),
    }
}

//! Everything that Whittle asks of the world, as small traits.
//!
//! One trait per right: a function's bounds read like its role's policy. Every adapter passes the same contract suites.
//! Calls are bounded by [`Deadline`]s that the adapters are built with; no port retries by itself beyond what its SDK does, but
//! for reads of a cluster, which are sent again once or twice where that is likely to help.

mod clock;
mod cloud;
mod cluster;
#[cfg(feature = "contracts")]
pub mod contracts;
mod event;
mod fences;
mod handle;
mod queue;
mod record;
mod safeguard;
mod store;
mod turn;

pub use clock::{Clock, Deadline};
pub use cloud::{CloudError, CloudErrorKind, ClusterAccess, Discovery, Fleets, Instances, Terminator};
pub use cluster::{
    ClusterError, ClusterReader, Evictions, Mirrors, NodePatch, Nodes, Presence, Scope, Sought, StatusWriter, WorkloadReader,
};
pub use event::{ClusterEvent, Involved};
pub use fences::{ClassRefusal, NamePatterns, NamePatternsError, covers, names_of};
pub use handle::{Amount, Counted, Disposition, Gauge, HandleError, Report, Scheduling, Settings, World, advance, save};
pub use queue::{QueueError, Queues};
pub use record::ClusterRecord;
pub use safeguard::Safeguard;
pub use store::{ClaimStore, DecisionLog, Erase, Leases, Listing, Records, RegionStore, StoreError, is_owned, readable};
pub use turn::{end_turn, not_my_turn, take_turn};

/// What a port's method returns.
pub trait Answer<T, E>: Future<Output = Result<T, E>> + Send {}
impl<F, T, E> Answer<T, E> for F where F: Future<Output = Result<T, E>> + Send {}

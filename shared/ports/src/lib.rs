//! The interfaces to AWS, Kubernetes and the store, as small traits.
//!
//! One trait per right: a function's block [`rights!`] reads like its role's policy. Every adapter passes the same contract suites.
//! Calls are bounded by [`Deadline`]s that the adapters are built with; no port retries by itself beyond its SDK, except
//! reads of a cluster, which are retried once or twice if that is likely to help.

mod adapters;
mod advance;
mod clock;
mod cloud;
mod cluster;
mod conflict;
#[cfg(feature = "contracts")]
pub mod contracts;
mod effects;
mod error;
mod event;
mod fences;
mod leasing;
pub mod metrics;
mod once;
pub mod problems;
mod queue;
mod record;
mod report;
mod safeguard;
mod settings;
mod store;
pub mod telemetry;

pub use adapters::{Adapters, Ports};
pub use advance::{advance, save};
pub use clock::{Clock, Deadline};
pub use cloud::{
    CatalogRead, ClassProfile, CloudError, CloudErrorKind, ClusterAccess, Discovery, DryRuns, Fleets, InstanceChecks, InstanceRun,
    InstanceTags, Instances, LaunchTemplateCleanup, LaunchTemplates, Terminator, ZonalShifts,
};
pub use cluster::{
    ClusterError, ClusterReader, Evictions, Mirrors, NodePatch, Nodes, ObjectKind, Presence, Scope, StatusWriter, WorkloadReader,
    confirmed_for, kept_for,
};
pub use conflict::{WriteError, unless_conflict, unless_outdated};
pub use effects::{
    BestEffort, CONCURRENT_REQUESTS, Update, concurrently, machine_to_terminate, note_health, publish_event, publish_events,
    record_decisions, update_record, write_mirror, write_planned_mirror,
};
pub use error::{Disposition, HandleError, error_chain};
pub use event::{ClusterEvent, Involved};
pub use fences::{ClassRefusal, NamePatterns, NamePatternsError, covers, names_of};
pub use leasing::{acquire_lease, lease_held_report, release_lease};
pub use once::Once;
pub use queue::{QueueError, Queues};
pub use record::ClusterRecord;
pub use report::{Amount, Counted, Measured, Report};
pub use safeguard::Safeguard;
pub use settings::{Batching, Expressions, Scheduling, Settings};
pub use store::{
    CLAIMS_PER_REQUEST, CatalogWriter, ClaimStore, DecisionLog, Erase, Leases, Listing, RecordReader, RecordRemoval, Records, RegionStore,
    StoreError, TokenBuckets, is_owned, readable,
};

/// What a port's method returns.
pub trait Answer<T, E>: Future<Output = Result<T, E>> + Send {}
impl<F, T, E> Answer<T, E> for F where F: Future<Output = Result<T, E>> + Send {}

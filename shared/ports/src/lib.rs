//! The interfaces to AWS, Kubernetes and the store, as small traits.
//!
//! One trait per right: a function's block [`rights!`] reads like its role's policy. Every adapter passes the same contract suites.
//! Calls are bounded by [`Deadline`]s that the adapters are built with; no port retries by itself beyond its SDK, except
//! reads of a cluster, which are retried once or twice if that is likely to help.

// The ports, and who may use which.
mod adapters; // `Ports` and `rights!`
mod clock;
mod store; // claims, leases, buckets, decisions
mod record; // records of facts from EC2 and EKS
mod cloud; // EC2 and related AWS APIs
mod cluster; // the Kubernetes API
mod queue; // doorbells

// What they take and return.
mod event; // Kubernetes Events
mod error; // why a handler failed, and what its caller does
mod settings; // what an operator sets
mod fences; // what a cluster of a deployment may use

// Steps that several functions share.
mod advance; // stores transitions of claims
mod conflict; // races that were lost
mod effects; // over one port each
mod leasing; // decides under a cluster's lease
mod once; // facts that messages share

// What a run says about itself.
mod report; // what it did
pub mod metrics; // every metric of Whittle
pub mod problems; // what a person has to fix
pub mod telemetry; // the lines that are printed

// For tests.
#[cfg(feature = "contracts")]
pub mod contracts; // what every adapter must do
mod safeguard; // protections of handlers, to be switched off

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
    record_decisions, update_record, write_mirror, write_planned_mirror, write_pool_statuses,
};
pub use error::{Disposition, HandleError, error_chain};
pub use event::{ClusterEvent, Involved};
pub use fences::{ClassRefusal, NamePatterns, NamePatternsError, covers, names_of};
pub use leasing::{acquire_lease, lease_held_report, release_lease};
pub use once::{Cached, Once};
pub use queue::{QueueError, Queues};
pub use record::ClusterRecord;
pub use report::{Amount, Counted, Measured, Report};
pub use safeguard::Safeguard;
pub use settings::{Batching, Expressions, Mode, Scheduling, Settings};
pub use store::{
    CLAIMS_PER_REQUEST, CatalogWriter, ClaimStore, DecisionLog, Erase, Leases, Listing, RecordReader, RecordRemoval, Records, RegionStore,
    StoreError, TokenBuckets, is_owned, readable,
};

/// What a port's method returns.
pub trait Answer<T, E>: Future<Output = Result<T, E>> + Send {}
impl<F, T, E> Answer<T, E> for F where F: Future<Output = Result<T, E>> + Send {}

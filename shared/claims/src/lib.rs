//! The state machine of claims: phases, records, leases, token buckets and stock-outs as values.
//!
//! Pure and synchronous: a transition is a function from a claim, an event and the time to a claim. Adapters store the result.

// A claim and its life.
mod claim; // what is stored of one machine
mod phase; // how far it has come, and the data of each phase
mod machine; // its transitions, each from an event
mod timing; // those that depend on time alone
mod mirror; // the NodeClaim object that shows it
mod requested; // its deletion, by a user

// Functions, and the messages between them.
mod function; // their names and limits
mod doorbell; // the messages
mod watcher_post; // what a watcher posts to the relay
mod tick; // what a tick rings besides

// Who may act, and how often.
mod lease; // the right to decide for one cluster
mod bucket; // token buckets for APIs that throttle

// What else is stored.
mod record; // small records by cluster, kind and name
mod decision; // the decision log
mod verdict; // of disruption, on every node
mod stock_out; // offerings that EC2 could not deliver
mod zone_shift; // zones that traffic is shifted away from
mod catalog_reads; // when the catalog was last read
mod dry_run; // of node classes
mod block_ends; // when capacity blocks end
mod measured; // the memory that nodes reported
mod expected; // pods and buffers that existing machines wait for
mod pool_health; // the outcomes of a pool's latest launches
mod function_health; // whether each function serves the cluster
mod uninstall; // that a cluster is left

// The form in which it is stored.
mod at_rest; // compressed JSON
mod catalog_parts; // the parts of the catalog
mod shard; // partitions of claims and decisions

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;

pub use at_rest::{AtRest, oversize, text_at_rest};
pub use block_ends::BlockEnds;
pub use bucket::{Bucket, BucketName};
pub use catalog_parts::catalog_parts;
pub use catalog_reads::{CatalogAttempt, CatalogReads};
pub use claim::{Claim, ClaimKey, ClaimSpec, Deletion, DeletionReason, ExtraCapacity, Machine, OverlaidPrice, PodKey, Revision, Stored};
pub use decision::{DecisionKind, DecisionRecord};
pub use doorbell::{CONSOLIDATE_DELAY, Doorbell, PLAN_DELAY, PLAN_DELAY_MAX, Sending};
pub use dry_run::{ClassDryRun, DryRunFailure, DryRunPool, DryRunResult};
pub use expected::{Expectation, ExpectedPage, HELD_BACK, NOMINATION, expected_after};
pub use function::{Function, Limits};
pub use function_health::{FunctionHealth, Overdue};
pub use lease::{FencingToken, Lease};
pub use machine::{Event, IllegalStep, step};
pub use measured::{MeasuredMemory, Measurement, ShortAmount, Shortfall, SmallNode, SmallNodes};
pub use mirror::{annotations_of, holds, labels_of, mirror, stated_deadline, stated_deadline_of};
pub use phase::Phase;
pub use pool_health::{LaunchOutcome, PoolHealth, update_health};
pub use record::{FenceFacts, NodeClassRecord, Record, Sighting};
pub use requested::{Requested, requested, requests, serves};
pub use shard::{SHARDS, shard_of};
pub use stock_out::{OfferingKey, StockOut};
pub use tick::TickFacts;
pub use timing::{LAUNCH_TIMEOUT, Liveness, REGISTRATION_TIMEOUT};
pub use uninstall::{LeftNodes, Uninstall, UninstallRequest};
pub use verdict::{NodeVerdict, VerdictPage};
pub use watcher_post::{POST_AGE_MAX, POST_BYTES_MAX, POST_VERSION, PostKind, WatcherPost};
pub use zone_shift::{ShiftChange, ShiftState, ShiftedZones, ZoneShift, ZoneShifts, ZoneTraffic};

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

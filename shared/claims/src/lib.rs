//! The state machine of claims: phases, records, leases, token buckets and stock-outs as values.
//!
//! Pure and synchronous: a transition is a function from a claim, an event and the time to a claim. Adapters store the result.

mod at_rest;
mod block_ends;
mod bucket;
mod catalog_parts;
mod catalog_reads;
mod claim;
mod decision;
mod doorbell;
mod dry_run;
mod expected;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod function;
mod function_health;
mod lease;
mod look;
mod machine;
mod measured;
mod mirror;
mod phase;
mod pool_health;
mod record;
mod shard;
mod stock_out;
mod tick;
mod timing;
mod uninstall;
mod verdict;
mod zone_shift;

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
pub use function_health::FunctionHealth;
pub use lease::{FencingToken, Lease};
pub use look::{LOOK_AGE_MAX, LOOK_BYTES_MAX, LOOK_VERSION, Look, LookKind};
pub use machine::{Event, IllegalStep, step};
pub use measured::{MeasuredMemory, Measurement};
pub use mirror::{annotations_of, holds, labels_of, mirror};
pub use phase::Phase;
pub use pool_health::{LaunchOutcome, PoolHealth, update_health};
pub use record::{FenceFacts, NodeClassRecord, Record, Sighting};
pub use shard::{SHARDS, shard_of};
pub use stock_out::{OfferingKey, StockOut};
pub use tick::TickFacts;
pub use timing::{LAUNCH_TIMEOUT, Liveness, REGISTRATION_TIMEOUT};
pub use uninstall::{LeftNodes, Uninstall, UninstallRequest};
pub use verdict::{NodeVerdict, VerdictPage};
pub use zone_shift::{ShiftChange, ShiftState, ShiftedZones, ZoneShift, ZoneShifts, ZoneTraffic};

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

//! Claims at rest in DynamoDB: every store port on one table.
//!
//! All reads are consistent and no index is used, so that no decision rests on an old value. A value is JSON text with
//! a version; what conditions look at (revision, token, instance) are attributes of their own. Whoever loses a race
//! gets [`StoreError::Conflict`], also when the race was with an earlier try of its own that somebody overwrote since.

mod call;
mod claims;
mod contention;
mod decisions;
mod erase;
mod errors;
mod item;
mod keys;
mod leases;
mod records;
mod region;

pub use claims::encode_claim;

use aws_sdk_dynamodb::Client;
use std::sync::Arc;
use whittle_ports::Clock;

#[cfg(doc)]
use whittle_ports::StoreError;

/// The table, as one invocation sees it: calls end before the clock's deadline.
#[derive(Clone)]
pub struct DynamoStore {
    client: Client,
    table: Arc<str>,
    clock: Arc<dyn Clock + Send>,
}

impl DynamoStore {
    /// A store on the table of this name. The client may be shared by all invocations of an environment; the clock
    /// belongs to one.
    pub fn new(client: Client, table: &str, clock: Arc<dyn Clock + Send>) -> Self {
        Self { client, table: table.into(), clock }
    }

    fn table(&self) -> &str {
        &self.table
    }

    /// A name for one write, which no other write has.
    fn write_name(&self) -> String {
        self.clock.unique()
    }
}

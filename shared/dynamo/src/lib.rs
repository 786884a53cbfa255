//! The store in DynamoDB: every store port on one table.
//!
//! All reads are strongly consistent and no index is used, so that no decision is based on a stale value. A value is JSON
//! with a version; attributes that conditions refer to (revision, token, instance) are stored beside it. The loser of a
//! race gets [`StoreError::Conflict`], also when its own earlier attempt succeeded and has been overwritten since.

// The kinds of items.
mod claims; // and what points from instances to them
mod records; // facts by cluster and name
mod leases; // who decides for a cluster
mod region; // what the clusters of a region share
mod decisions; // the log
mod erase; // all of a cluster

// What they have in common.
mod keys; // of all items
mod item; // values as attributes
mod call; // timeouts, pages, compare-and-swap, transactions
mod contention; // lost races that are tried again
mod errors; // the only module that reads error codes

pub use claims::encode_claim;

use aws_sdk_dynamodb::Client;
use std::sync::Arc;
use whittle_ports::Clock;

#[cfg(doc)]
use whittle_ports::StoreError;

/// The table, with the deadline of one invocation for its calls.
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

    /// A unique id of one write.
    fn write_id(&self) -> String {
        self.clock.unique()
    }
}

//! The lease for decisions about a cluster. Its item is never deleted, because its fencing token must never start again.

use crate::DynamoStore;
use crate::call::{Condition, Put};
use crate::item::{self, Item, attribute, number};
use crate::keys;
use whittle_claims::{Lease, Revision};
use whittle_ports::{Leases, StoreError};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

const VERSION: u32 = 1;

fn what(cluster: &ClusterName) -> String {
    format!("the lease of cluster {cluster}")
}

fn lease_item(lease: &Lease, write: &str) -> Item {
    let item = item::of_value(&keys::lease(&lease.cluster), VERSION, lease);
    // The token is the revision.
    let mut item = item::with_revision(item, Revision(lease.token.0), write, None);
    item.insert(attribute::TOKEN.to_owned(), number(lease.token.0));
    item
}

/// The condition that the lease has not been acquired since it was read.
fn unchanged(old: Option<&Lease>) -> Condition {
    match old {
        None => Condition { expression: "attribute_not_exists(#pk)", names: vec![("#pk", attribute::PK)], values: vec![] },
        Some(old) => Condition {
            expression: "#token = :token",
            names: vec![("#token", attribute::TOKEN)],
            values: vec![(":token", number(old.token.0))],
        },
    }
}

impl Leases for DynamoStore {
    async fn acquire(&self, cluster: &ClusterName, owner: &str, now: Timestamp, ttl: SignedDuration) -> Result<Lease, StoreError> {
        let what = what(cluster);
        let read = |item: &Item| item::value_of::<Lease>(item, VERSION, &what);
        let old = self.get_item(&keys::lease(cluster), &what).await?.as_ref().map(read).transpose()?;
        let held = |until| StoreError::Held { cluster: cluster.clone(), until };
        let until = now.checked_add(ttl).unwrap_or(Timestamp::MAX);
        let Some(lease) = Lease::acquire(old.as_ref(), cluster, owner, now, until) else {
            return Err(held(old.map_or(now, |old| old.expires_at)));
        };
        match self.put_if(lease_item(&lease, &self.write_id()), unchanged(old.as_ref()), &what).await? {
            Put::Written => Ok(lease),
            // Another owner acquired it between our read and our write.
            Put::Refused(winner) => Err(held(winner.as_ref().map(read).transpose()?.map_or(now, |winner| winner.expires_at))),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let what = what(&lease.cluster);
        // A lease that has expired is free, and keeps its token.
        let ended = Lease { expires_at: Timestamp::UNIX_EPOCH, ..lease.clone() };
        self.put_if(lease_item(&ended, &self.write_id()), unchanged(Some(lease)), &what).await?;
        Ok(())
    }
}

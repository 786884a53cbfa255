//! Deletes the items of a cluster from which Whittle was uninstalled.

use crate::DynamoStore;
use crate::errors;
use crate::item::{self, Item, attribute};
use crate::keys::{self, Key};
use futures::stream::{self, StreamExt, TryStreamExt};
use whittle_claims::{Claim, Phase, SHARDS};
use whittle_ports::{Erase, StoreError};
use whittle_units::ClusterName;

/// Concurrent deletions.
const DELETES_MAX: usize = 16;

/// The key of an item.
fn key_of(item: &Item) -> Option<Key> {
    let text = |name| item::text_of(item, name).map(str::to_owned);
    Some(Key { pk: text(attribute::PK)?, sk: text(attribute::SK)? })
}

/// The keys of an ended claim and of its instance's pointer; empty for a claim that may have a machine or cannot be read.
fn keys_if_ended(item: &Item) -> Vec<Key> {
    let Ok(claim) = item::value_of::<Claim>(item, crate::claims::VERSION, "a claim") else { return Vec::new() };
    if !matches!(claim.phase, Phase::Gone { .. } | Phase::Failed { .. }) {
        return Vec::new();
    }
    let pointer = claim.instance().map(keys::instance);
    key_of(item).into_iter().chain(pointer).collect()
}

impl DynamoStore {
    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        let what = format!("{} {}", key.pk, key.sk);
        let delete = self.client.delete_item().table_name(self.table()).set_key(Some(item::of_key(key)));
        delete.customize().config_override(self.limits(&what)?).send().await.map_err(|error| errors::store_error(error, &what))?;
        Ok(())
    }
}

impl Erase for DynamoStore {
    async fn erase(&self, cluster: &ClusterName, kinds: &[&str]) -> Result<u64, StoreError> {
        let mut to_delete = Vec::new();
        for shard in 0..SHARDS {
            let claims = self.query(&keys::claim_shard(cluster, shard), "the claims").await?;
            to_delete.extend(claims.iter().flat_map(keys_if_ended));
            let decisions = self.query(&keys::decision_shard(cluster, shard), "the decisions").await?;
            to_delete.extend(decisions.iter().filter_map(key_of));
        }
        for kind in kinds {
            let records = self.query(&keys::records(cluster, kind), "the records").await?;
            to_delete.extend(records.iter().filter_map(key_of));
        }
        let count = u64::try_from(to_delete.len()).unwrap_or(u64::MAX);
        let deletions = stream::iter(to_delete).map(async |key: Key| self.delete(&key).await);
        deletions.buffer_unordered(DELETES_MAX).try_collect::<Vec<()>>().await?;
        Ok(count)
    }
}

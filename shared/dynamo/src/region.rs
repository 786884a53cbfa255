//! What all clusters of a region share: stock-outs, token buckets, the catalog.

use crate::DynamoStore;
use crate::call::{Condition, Put};
use crate::errors;
use crate::item::{self, Item, attribute, number};
use crate::keys::{self, Key};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use whittle_claims::{Bucket, BucketName, CatalogReads, Revision, StockOut, Stored, catalog_parts};
use whittle_ports::{CatalogWriter, RegionStore, StoreError, TokenBuckets};
use whittle_units::{SignedDuration, Timestamp};

const VERSION: u32 = 1;
/// How long a stock-out is kept after its end, so that the next one can count the earlier ones.
const STOCK_OUT_RETENTION: SignedDuration = SignedDuration::from_hours(1);
/// A bucket that has not been used for a day is full.
const BUCKET_RETENTION: SignedDuration = SignedDuration::from_hours(24);
/// Attempts to take tokens: concurrent takers conflict and retry; more conflicts than this mean that the bucket is overloaded.
const TAKE_ATTEMPTS_MAX: u32 = 5;
/// Concurrent writes of stock-outs: a fleet may report a hundred.
const STOCK_OUT_WRITES_MAX: usize = 16;
/// Attempts to read a catalog that is being replaced.
const CATALOG_READS_MAX: u32 = 3;
/// How long a part that was read counts as stored. No write removes one that a head names, but somebody may, or a table of a backup may
/// lack it: an execution environment that knew it for good would name it again and again, and new ones could not read the catalog.
const PART_KNOWN_FOR: SignedDuration = SignedDuration::from_hours(1);

fn stock_out_item(stock_out: &StockOut, write: &str) -> Item {
    let item = item::of_value(&keys::offering(&stock_out.offering), VERSION, stock_out);
    let expires_at = stock_out.until.checked_add(STOCK_OUT_RETENTION).ok();
    let mut item = item::with_revision(item, Revision(1), write, expires_at);
    item.insert(attribute::UNTIL.to_owned(), number(stock_out.until.as_millisecond()));
    item
}

impl DynamoStore {
    async fn put_stock_out(&self, stock_out: &StockOut) -> Result<(), StoreError> {
        let condition = Condition {
            expression: "attribute_not_exists(#until) OR #until < :until",
            names: vec![("#until", attribute::UNTIL)],
            values: vec![(":until", number(stock_out.until.as_millisecond()))],
        };
        // Refused: a longer stock-out is stored already.
        self.put_if(stock_out_item(stock_out, &self.write_id()), condition, &format!("the stock-out of {}", stock_out.offering)).await?;
        Ok(())
    }

    async fn put_part(&self, key: &Key, part: &[u8]) -> Result<(), StoreError> {
        let mut item = item::of_key(key);
        item.insert(attribute::BLOB.to_owned(), AttributeValue::B(Blob::new(part)));
        let what = "a part of the catalog";
        let put = self.client.put_item().table_name(self.table()).set_item(Some(item));
        put.customize().config_override(self.limits(what)?).send().await.map_err(|error| errors::store_error(error, what))?;
        Ok(())
    }

    /// Removes parts of a catalog that nobody names. Parts that remain after a failure only take space.
    async fn remove_parts(&self, keys: &[Key]) -> Result<(), StoreError> {
        let what = "a part of the replaced catalog";
        for key in keys {
            let delete = self.client.delete_item().table_name(self.table()).set_key(Some(item::of_key(key)));
            delete.customize().config_override(self.limits(what)?).send().await.map_err(|error| errors::store_error(error, what))?;
        }
        Ok(())
    }

    /// The head of the catalog, with its revision. That of an earlier release counts until this one has written its own, and is left to
    /// that release, which cannot read parts that several heads name: after a rollback it goes on with its own.
    async fn catalog_head(&self, what: &str) -> Result<Option<(Item, Revision)>, StoreError> {
        if let Some(head) = self.get_item(&keys::catalog_head(), what).await? {
            let revision = item::revision_of(&head, what)?;
            return Ok(Some((head, revision)));
        }
        Ok(self.get_item(&keys::old_catalog_head(), what).await?.map(|head| (head, Revision::ABSENT)))
    }

    /// The concatenated parts of a catalog; `None` when it has been replaced since the head was read. Parts never change, so those that
    /// this execution environment has read within the hour are not read again.
    async fn parts(&self, head: &Item, what: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let keys = part_keys(head);
        let read = try_join_all(keys.iter().map(|key| self.part(key, what))).await?;
        let Some(parts) = read.into_iter().collect::<Option<Vec<ReadPart>>>() else { return Ok(None) };
        let blob = parts.iter().map(|part| part.bytes.as_slice()).collect::<Vec<_>>().concat();
        *lock(&LAST_READ) = Some(ReadCatalog { table: self.table().to_owned(), parts });
        Ok(Some(blob))
    }

    /// A part of the catalog; `None` if it was removed.
    async fn part(&self, key: &Key, what: &str) -> Result<Option<ReadPart>, StoreError> {
        let read_at = self.clock.now();
        if let Some(known) = known_part(self.table(), key, read_at) {
            return Ok(Some(known));
        }
        let part = self.get_item(key, what).await?;
        let bytes = part.as_ref().and_then(|part| part.get(attribute::BLOB)?.as_b().ok());
        Ok(bytes.map(|bytes| ReadPart { key: key.clone(), bytes: bytes.as_ref().to_vec(), read_at }))
    }
}

/// A part of the catalog, and when it was read from the table.
#[derive(Clone)]
struct ReadPart {
    key: Key,
    bytes: Vec<u8>,
    read_at: Timestamp,
}

/// The parts of the catalog that was read last.
struct ReadCatalog {
    table: String,
    parts: Vec<ReadPart>,
}

static LAST_READ: Mutex<Option<ReadCatalog>> = Mutex::new(None);

fn lock(last: &Mutex<Option<ReadCatalog>>) -> MutexGuard<'_, Option<ReadCatalog>> {
    // A panic elsewhere cannot leave a partial entry, so a poisoned lock is safe to use.
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

fn known_part(table: &str, key: &Key, now: Timestamp) -> Option<ReadPart> {
    let last = lock(&LAST_READ);
    let parts = &last.as_ref().filter(|last| last.table == table)?.parts;
    parts.iter().find(|part| part.key == *key && now.duration_since(part.read_at) < PART_KNOWN_FOR).cloned()
}

/// The parts that a head names.
fn part_keys(head: &Item) -> Vec<Key> {
    if let Some(names) = head.get(attribute::NAMES).and_then(|names| names.as_l().ok()) {
        return names.iter().filter_map(|name| name.as_s().ok()).map(|name| keys::named_catalog_part(name)).collect();
    }
    let write = item::text_of(head, attribute::WRITE).unwrap_or_default();
    let count = item::number_of(head, attribute::PARTS).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    (0..count).map(|position| keys::catalog_part(write, position)).collect()
}

impl RegionStore for DynamoStore {
    async fn stock_outs(&self, now: Timestamp) -> Result<Vec<StockOut>, StoreError> {
        let mut stock_outs = Vec::new();
        for item in self.query(keys::OFFERINGS, "the stock-outs").await? {
            match item::value_of::<StockOut>(&item, VERSION, "a stock-out") {
                Ok(stock_out) => stock_outs.push(stock_out),
                Err(error) => tracing::error!(%error, "a stock-out is skipped"),
            }
        }
        stock_outs.retain(|stock_out| stock_out.is_remembered(now));
        Ok(stock_outs)
    }

    async fn put_stock_outs(&self, stock_outs: &[StockOut]) -> Result<(), StoreError> {
        let writes = stream::iter(stock_outs.to_vec()).map(async |stock_out: StockOut| self.put_stock_out(&stock_out).await);
        writes.buffer_unordered(STOCK_OUT_WRITES_MAX).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    async fn catalog(&self) -> Result<Option<Stored<Vec<u8>>>, StoreError> {
        let what = "the catalog";
        let mut damaged = None;
        for _ in 0..CATALOG_READS_MAX {
            let Some((head, revision)) = self.catalog_head(what).await? else { return Ok(None) };
            if let Some(value) = self.parts(&head, what).await? {
                return Ok(Some(Stored { value, revision }));
            }
            damaged = Some(revision);
        }
        // Whoever replaces it has to know the revision.
        tracing::error!("parts of the catalog are missing: refresh writes it again within an hour");
        Ok(damaged.map(|revision| Stored { value: Vec::new(), revision }))
    }
}

impl TokenBuckets for DynamoStore {
    async fn take_tokens(&self, name: &BucketName, full: &Bucket, count: u32, now: Timestamp) -> Result<bool, StoreError> {
        let what = format!("bucket {}", name.0);
        let key = keys::bucket(name);
        for _ in 0..TAKE_ATTEMPTS_MAX {
            let old = self.get_item(&key, &what).await?;
            let (bucket, revision) = match &old {
                // The caller's rate wins: a deployment may have changed it. What it leaves to others is its own.
                Some(item) => {
                    let stored: Bucket = item::value_of(item, VERSION, &what)?;
                    let (capacity, refill_per_second, reserve) = (full.capacity, full.refill_per_second, full.reserve);
                    let rate = Bucket { capacity, refill_per_second, reserve, ..stored };
                    (rate, item::revision_of(item, &what)?)
                }
                None => (full.clone(), Revision::ABSENT),
            };
            let Some(bucket) = bucket.take(count, now) else { return Ok(false) };
            let item = item::of_value(&key, VERSION, &bucket);
            let item = item::with_revision(item, revision.next(), &self.write_id(), now.checked_add(BUCKET_RETENTION).ok());
            match self.put_if(item, Condition::revision(revision, self.clock.now()), &what).await? {
                Put::Written => return Ok(true),
                Put::Refused(_) => {}
            }
        }
        Err(StoreError::Throttled { what })
    }
}

impl CatalogWriter for DynamoStore {
    async fn put_catalog(&self, blob: &[u8], expected: Revision) -> Result<Revision, StoreError> {
        let what = "the catalog";
        let write = self.write_id();
        let old = self.get_item(&keys::catalog_head(), what).await?;
        // Parts of the head that this write replaces or fails: nobody removes them before it is replaced.
        let is_expected = |head: &&Item| item::revision_of(head, what).is_ok_and(|revision| revision == expected);
        let kept = old.as_ref().filter(is_expected).map(part_keys).unwrap_or_default();
        // Parts first, new ones under the id of this write: the head makes all of them visible at once.
        let (mut named, mut written) = (Vec::new(), Vec::new());
        for (position, part) in catalog_parts(blob).into_iter().enumerate() {
            let same = kept.iter().find(|key| known_part(self.table(), key, self.clock.now()).is_some_and(|known| known.bytes == part));
            let key = same.cloned().unwrap_or_else(|| keys::catalog_part(&write, position));
            if same.is_none() {
                self.put_part(&key, part).await?;
                written.push(key.clone());
            }
            named.push(key);
        }
        let mut head = item::with_revision(item::of_key(&keys::catalog_head()), expected.next(), &write, None);
        let names = named.iter().map(|key| item::text(&key.sk)).collect();
        head.insert(attribute::NAMES.to_owned(), AttributeValue::L(names));
        match self.put_if(head, Condition::revision(expected, self.clock.now()), what).await? {
            Put::Written => {}
            Put::Refused(current) => {
                // If the answer to the first attempt was lost, another write may have replaced its head already, and named its parts.
                let named_since: Vec<Key> = current.iter().flat_map(part_keys).collect();
                written.retain(|key| !named_since.contains(key));
                self.remove_parts(&written).await?;
                return Err(StoreError::Conflict { what: what.to_owned() });
            }
        }
        let replaced: Vec<Key> = old.iter().flat_map(part_keys).filter(|key| !named.contains(key)).collect();
        self.remove_parts(&replaced).await?;
        Ok(expected.next())
    }

    async fn catalog_reads(&self) -> Result<Option<CatalogReads>, StoreError> {
        let what = "when the catalog was read";
        let Some(item) = self.get_item(&keys::catalog_reads(), what).await? else { return Ok(None) };
        item::value_of(&item, VERSION, what).map(Some)
    }

    async fn put_catalog_reads(&self, reads: &CatalogReads) -> Result<(), StoreError> {
        let what = "when the catalog was read";
        let put = self.client.put_item().table_name(self.table()).set_item(Some(item::of_value(&keys::catalog_reads(), VERSION, reads)));
        put.customize().config_override(self.limits(what)?).send().await.map_err(|error| errors::store_error(error, what))?;
        Ok(())
    }
}

//! The decision log.

use crate::DynamoStore;
use crate::errors;
use crate::item::{self, Item, attribute, number, text};
use crate::keys;
use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use futures::future::try_join_all;
use whittle_claims::{DecisionRecord, SHARDS, shard_of};
use whittle_ports::{DecisionLog, StoreError, concurrently};
use whittle_units::ClusterName;

const VERSION: u32 = 1;
/// The most items that DynamoDB writes in one request. An item has up to 400 KB, so that they cannot exceed the 16 MB of a request.
const BATCH_MAX: usize = 25;
/// The most pages of 1 MB that are searched for the decisions about one subject.
const PAGES_MAX: usize = 20;

fn decision_item(cluster: &ClusterName, decision: &DecisionRecord, writer: &str, position: usize) -> Item {
    let key = keys::decision(cluster, &decision.subject, decision.at, writer, position);
    let mut item = item::of_value(&key, VERSION, decision);
    item.insert(attribute::SUBJECT.to_owned(), text(&decision.subject));
    if let Ok(expires_at) = decision.at.checked_add(DecisionRecord::RETENTION) {
        item.insert(attribute::TTL.to_owned(), number(expires_at.as_second()));
    }
    item
}

fn put_request(item: &Item) -> WriteRequest {
    let put = PutRequest::builder().set_item(Some(item.clone())).build().expect("the item is set");
    WriteRequest::builder().put_request(put).build()
}

impl DynamoStore {
    /// Writes up to [`BATCH_MAX`] decisions in one request. Returns those that DynamoDB left out: as a rule none.
    async fn put_decisions(&self, items: &[Item], what: &str) -> Result<Vec<Item>, StoreError> {
        let batch = self.client.batch_write_item().request_items(self.table(), items.iter().map(put_request).collect());
        match batch.customize().config_override(self.limits(what)?).send().await {
            Ok(answer) => {
                let requests = answer.unprocessed_items.into_iter().flatten().flat_map(|(_, requests)| requests);
                Ok(requests.filter_map(|request| request.put_request).map(|put| put.item).collect())
            }
            // One that is too large refuses all of them.
            Err(error) if errors::is_refused(&error) => Ok(items.to_vec()),
            Err(error) => Err(errors::store_error(error, what)),
        }
    }

    /// Writes a decision that a batch left out. The SDK backs off between its attempts, as a table wants that throttles a batch in part.
    async fn put_decision(&self, item: Item, cluster: &ClusterName) -> Result<(), StoreError> {
        let subject = item::text_of(&item, attribute::SUBJECT).unwrap_or_default();
        let what = format!("the decision about {subject} of {cluster}");
        let put = self.client.put_item().table_name(self.table()).set_item(Some(item));
        put.customize().config_override(self.limits(&what)?).send().await.map_err(|error| errors::store_error(error, &what))?;
        Ok(())
    }

    /// The newest decisions of a partition, newest first.
    async fn newest(&self, pk: String, subject: Option<&str>, limit: usize, what: &str) -> Result<Vec<Item>, StoreError> {
        let mut items = Vec::new();
        let mut start = None;
        for _ in 0..PAGES_MAX {
            let mut request = self
                .client
                .query()
                .table_name(self.table())
                .consistent_read(true)
                .scan_index_forward(false)
                .key_condition_expression("#pk = :pk")
                .expression_attribute_names("#pk", attribute::PK)
                .expression_attribute_values(":pk", text(&pk))
                .set_exclusive_start_key(start);
            if let Some(subject) = subject {
                request = request
                    .filter_expression("#subject = :subject")
                    .expression_attribute_names("#subject", attribute::SUBJECT)
                    .expression_attribute_values(":subject", text(subject));
            } else {
                request = request.limit(i32::try_from(limit).unwrap_or(i32::MAX).max(1));
            }
            let page = request.customize().config_override(self.limits(what)?).send().await;
            let page = page.map_err(|error| errors::store_error(error, what))?;
            items.extend(page.items.unwrap_or_default());
            start = page.last_evaluated_key.filter(|last| !last.is_empty());
            if start.is_none() || items.len() >= limit {
                break;
            }
        }
        Ok(items)
    }
}

impl DecisionLog for DynamoStore {
    async fn append(&self, cluster: &ClusterName, decisions: &[DecisionRecord]) -> Result<(), StoreError> {
        let what = format!("the decisions of {cluster}");
        let writer = self.write_id();
        let items: Vec<Item> =
            decisions.iter().enumerate().map(|(position, decision)| decision_item(cluster, decision, &writer, position)).collect();
        // All are tried before the first failure is returned: it says nothing about the others.
        let (mut left_out, mut outcome) = (Vec::new(), Ok(()));
        for written in concurrently(items.chunks(BATCH_MAX).map(|batch| self.put_decisions(batch, &what))).await {
            match written {
                Ok(items) => left_out.extend(items),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        for written in concurrently(left_out.into_iter().map(|item| self.put_decision(item, cluster))).await {
            outcome = outcome.and(written);
        }
        outcome
    }

    async fn recent(&self, cluster: &ClusterName, subject: Option<&str>, limit: usize) -> Result<Vec<DecisionRecord>, StoreError> {
        let what = &format!("the decisions of {cluster}");
        let shards = match subject {
            Some(subject) => shard_of(subject)..shard_of(subject) + 1,
            None => 0..SHARDS,
        };
        let queries = shards.map(|shard| self.newest(keys::decision_shard(cluster, shard), subject, limit, what));
        let mut items: Vec<Item> = try_join_all(queries).await?.into_iter().flatten().collect();
        let sort_key = |item: &Item| item::text_of(item, attribute::SK).unwrap_or_default().to_owned();
        items.sort_by_cached_key(|item| std::cmp::Reverse(sort_key(item)));
        items.retain(|item| !item::is_expired(item, self.clock.now()));
        let decode = |item: &Item| {
            item::value_of::<DecisionRecord>(item, VERSION, what).inspect_err(|error| tracing::error!(%error, "a decision is skipped"))
        };
        Ok(items.iter().filter_map(|item| decode(item).ok()).take(limit).collect())
    }
}

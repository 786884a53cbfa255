//! Calls of DynamoDB: timeouts, pages, compare-and-swap, transactions.

use crate::DynamoStore;
use crate::contention::{self, Contention};
use crate::errors::{self, Class};
use crate::item::{self, Item, attribute, number, text};
use crate::keys::Key;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use std::time::Duration;
use whittle_claims::Revision;
use whittle_ports::StoreError;
use whittle_units::Timestamp;

/// The longest that a call with the SDK's retries may take. A healthy table responds within 20 ms.
const CALL_MAX: Duration = Duration::from_secs(5);
/// The longest that one attempt may take, so that a lost packet leaves time for more attempts.
const ATTEMPT_MAX: Duration = Duration::from_millis(1500);

/// Items that are read to see whether there is one. The table may keep expired ones for days, and a unit of reading is a few claims.
const LOOKED_AT: i32 = 4;

/// Items of a partition.
struct Page {
    /// Those whose TTL has not expired.
    items: Vec<Item>,
    /// Where the next page begins, if there may be one.
    next: Option<Item>,
}

/// The result of a conditional write.
pub(crate) enum Put {
    Written,
    /// The condition did not hold; with the stored item, if any.
    Refused(Option<Item>),
}

/// The condition expression of a write, with its attribute names and values.
pub(crate) struct Condition {
    pub(crate) expression: &'static str,
    pub(crate) names: Vec<(&'static str, &'static str)>,
    pub(crate) values: Vec<(&'static str, aws_sdk_dynamodb::types::AttributeValue)>,
}

impl Condition {
    /// The item has this revision. An item that does not exist or whose TTL has expired is absent.
    pub(crate) fn revision(expected: Revision, now: Timestamp) -> Self {
        if expected == Revision::ABSENT {
            return Self {
                expression: "attribute_not_exists(#pk) OR #ttl <= :now",
                names: vec![("#pk", attribute::PK), ("#ttl", attribute::TTL)],
                values: vec![(":now", number(now.as_second()))],
            };
        }
        Self { expression: "#rev = :rev", names: vec![("#rev", attribute::REV)], values: vec![(":rev", number(expected.0))] }
    }
}

impl DynamoStore {
    /// The timeouts of the next call, from the time that the invocation has left.
    pub(crate) fn limits(&self, what: &str) -> Result<Builder, StoreError> {
        let left = self.clock.time_left().unsigned_abs();
        if left.is_zero() {
            return Err(StoreError::Unavailable { what: what.to_owned(), reason: "the invocation has no time left".to_owned() });
        }
        let operation = left.min(CALL_MAX);
        let timeouts = TimeoutConfig::builder().operation_timeout(operation).operation_attempt_timeout(operation.min(ATTEMPT_MAX)).build();
        Ok(Builder::new().timeout_config(timeouts).retry_config(contention::retry_config()).retry_classifier(Contention))
    }

    /// The item of a key, unless its TTL has expired.
    pub(crate) async fn get_item(&self, key: &Key, what: &str) -> Result<Option<Item>, StoreError> {
        let answer = self
            .client
            .get_item()
            .table_name(self.table())
            .set_key(Some(item::of_key(key)))
            .consistent_read(true)
            .customize()
            .config_override(self.limits(what)?)
            .send()
            .await
            .map_err(|error| errors::store_error(error, what))?;
        Ok(answer.item.filter(|item| !item::is_expired(item, self.clock.now())))
    }

    /// All items of a partition whose TTL has not expired, in the order of their sort keys.
    pub(crate) async fn query(&self, pk: &str, what: &str) -> Result<Vec<Item>, StoreError> {
        self.query_lacking(pk, None, what).await
    }

    /// The same of those that lack an attribute, if one is named. The table reads the others as well, but does not send them.
    pub(crate) async fn query_lacking(&self, pk: &str, lacking: Option<&str>, what: &str) -> Result<Vec<Item>, StoreError> {
        let mut items = Vec::new();
        let mut start = None;
        loop {
            let page = self.page(pk, start, (None, lacking), what).await?;
            items.extend(page.items);
            // The deadline bounds the number of pages.
            match page.next {
                Some(next) => start = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// Whether a partition has an item whose TTL has not expired.
    pub(crate) async fn has_items(&self, pk: &str, what: &str) -> Result<bool, StoreError> {
        let mut start = None;
        loop {
            let page = self.page(pk, start, (Some(LOOKED_AT), None), what).await?;
            match page.next {
                _ if !page.items.is_empty() => return Ok(true),
                Some(next) => start = Some(next),
                None => return Ok(false),
            }
        }
    }

    /// Items of a partition from a key on: at most `limit`, or what fits into an answer; of these the ones that lack an attribute, if one
    /// is named.
    async fn page(
        &self,
        pk: &str,
        start: Option<Item>,
        (limit, lacking): (Option<i32>, Option<&str>),
        what: &str,
    ) -> Result<Page, StoreError> {
        let query = self
            .client
            .query()
            .table_name(self.table())
            .consistent_read(true)
            .key_condition_expression("#pk = :pk")
            .expression_attribute_names("#pk", attribute::PK)
            .expression_attribute_values(":pk", text(pk))
            .set_exclusive_start_key(start)
            .set_limit(limit);
        let query = match lacking {
            Some(name) => query.filter_expression("attribute_not_exists(#lacking)").expression_attribute_names("#lacking", name),
            None => query,
        };
        let page = query.customize().config_override(self.limits(what)?).send().await;
        let page = page.map_err(|error| errors::store_error(error, what))?;
        let now = self.clock.now();
        let items = page.items.unwrap_or_default().into_iter().filter(|item| !item::is_expired(item, now)).collect();
        Ok(Page { items, next: page.last_evaluated_key.filter(|last| !last.is_empty()) })
    }

    /// Writes an item if a condition holds. A retry finds its own earlier attempt by the write id, and counts as written.
    pub(crate) async fn put_if(&self, item: Item, condition: Condition, what: &str) -> Result<Put, StoreError> {
        let write = item::text_of(&item, attribute::WRITE).map(str::to_owned);
        let mut request = self
            .client
            .put_item()
            .table_name(self.table())
            .set_item(Some(item))
            .condition_expression(condition.expression)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for (placeholder, name) in condition.names {
            request = request.expression_attribute_names(placeholder, name);
        }
        for (placeholder, value) in condition.values {
            request = request.expression_attribute_values(placeholder, value);
        }
        let Err(error) = request.customize().config_override(self.limits(what)?).send().await else {
            return Ok(Put::Written);
        };
        let refused = error.as_service_error().filter(|error| error.is_conditional_check_failed_exception());
        if refused.is_none() {
            return Err(errors::store_error(error, what));
        }
        let old = refused.and_then(|error| match error {
            aws_sdk_dynamodb::operation::put_item::PutItemError::ConditionalCheckFailedException(failed) => failed.item.clone(),
            _ => None,
        });
        let is_ours = write.is_some() && old.as_ref().and_then(|old| item::text_of(old, attribute::WRITE)) == write.as_deref();
        Ok(if is_ours { Put::Written } else { Put::Refused(old) })
    }

    /// Runs a transaction. Returns `None` when everything was written, and the class of each action if a condition did not
    /// hold.
    pub(crate) async fn transact(&self, actions: Vec<TransactWriteItem>, what: &str) -> Result<Option<Vec<Option<Class>>>, StoreError> {
        let answer = self
            .client
            .transact_write_items()
            .set_transact_items(Some(actions))
            // One token for all attempts, so that a transaction whose response was lost is not executed twice.
            .client_request_token(self.write_id())
            .customize()
            .config_override(self.limits(what)?)
            .send()
            .await;
        let Err(error) = answer else { return Ok(None) };
        let Some(reasons) = errors::cancellation(&error) else { return Err(errors::store_error(error, what)) };
        if reasons.contains(&Some(Class::ConditionFailed)) {
            return Ok(Some(reasons));
        }
        if reasons.contains(&Some(Class::Throttled)) {
            return Err(StoreError::Throttled { what: what.to_owned() });
        }
        Err(errors::store_error(error, what))
    }
}

//! The DynamoDB store with failing calls: HTTP requests below the SDK, and store calls above it, as functions see them.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use whittle_claims::{Claim, Revision};
use whittle_dynamo::{DynamoStore, encode_claim};
use whittle_ports::{CatalogWriter, ClaimStore, RegionStore, StoreError, contracts};
use whittle_tests::clock::FixedClock;
use whittle_tests::dynamo::{TABLE, client, client_over, create_table, store};
use whittle_tests::ministack::Ministack;
use whittle_tests::wire::{Request, Wire};
use whittle_units::ClusterName;

#[tokio::test]
async fn the_store_keeps_its_contracts_while_most_first_attempts_fail_and_reads_are_consistent() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    create_table(&client(&ministack)).await;
    let wire = Wire::failing();
    let store = DynamoStore::new(client_over(&ministack, wire.clone()), TABLE, Arc::new(clock));
    let cluster = |name: &str| ClusterName::new(name);
    contracts::claim_store(&store, &cluster("claims"), clock.now).await;
    contracts::many_claims(&store, &cluster("many"), clock.now, 120).await;
    contracts::leases(&store, &cluster("leases"), clock.now).await;
    contracts::records(&store, &cluster("records"), clock.now).await;
    contracts::decision_log(&store, &cluster("decisions"), clock.now).await;
    contracts::erase(&store, &cluster("erased"), clock.now).await;
    contracts::region_store_with_lost_responses(&store, clock.now).await;
    contracts::lost_replies(&store, &cluster("lost"), clock.now).await;
    let faults = wire.faults();
    assert!(faults.len() == 4 && faults.values().all(|count| *count >= 20), "{faults:?}");
    println!("faults: {faults:?} in {} requests", wire.requests().len());
    reads_are_consistent(&wire.requests());
}

/// All ports have been used, so these are all kinds of requests.
fn reads_are_consistent(requests: &[Request]) {
    let operations: BTreeSet<&str> = requests.iter().map(|request| request.operation.as_str()).collect();
    let expected = ["BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "TransactWriteItems"];
    assert_eq!(operations.into_iter().collect::<Vec<_>>(), expected, "extend this check to the new operation");
    for Request { operation, body, .. } in requests {
        if ["GetItem", "Query"].contains(&operation.as_str()) {
            assert_eq!(body["ConsistentRead"], Value::Bool(true), "{operation} may return a stale value: {body}");
            assert_eq!(body["IndexName"], Value::Null, "an index is eventually consistent: {body}");
        }
    }
}

/// `cargo xtask bench paging` runs it with 100,000 claims. The pages are canned, because an emulator takes seconds for one.
#[tokio::test]
async fn every_claim_of_many_pages_is_listed_once() {
    let count: usize = std::env::var("WHITTLE_CLAIMS").map_or(8000, |count| count.parse().expect("WHITTLE_CLAIMS is a number"));
    let (clock, cluster) = (FixedClock::new(), ClusterName::new("many"));
    let pages = Pages::of(&contracts::planned_claim(&cluster, "pool-000000", clock.now), count);
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(pages.clone())
        .region(Region::new(Ministack::REGION))
        .credentials_provider(Credentials::new("testing", "testing", None, None, "tests"))
        .build();
    let store = DynamoStore::new(Client::from_conf(config), TABLE, Arc::new(clock));
    let start = Instant::now();
    let listed = store.list(&cluster).await.expect("the table answers");
    let names = listed.iter().map(|stored| stored.value.key.name.to_string());
    assert!(names.eq((0..count).map(|number| format!("pool-{number:06}"))), "every claim is listed once, in the order of names");
    let queries = pages.queries.load(Ordering::Relaxed);
    assert!(queries >= 2 * PARTITIONS, "every partition has several pages: {queries}");
    println!("{count} claims: {queries} pages in {:.1} s", start.elapsed().as_secs_f64());
}

/// Partitions of a cluster's claims.
const PARTITIONS: usize = 8;
/// Items per page: somewhat fewer than fit into 1 MB.
const PAGE: usize = 400;

/// A fake table with copies of one claim, which answers queries page by page.
#[derive(Clone, Debug)]
struct Pages {
    item: Arc<str>,
    count: usize,
    queries: Arc<AtomicUsize>,
}

impl Pages {
    fn of(claim: &Claim, count: usize) -> Self {
        let (version, data) = encode_claim(claim);
        let item = json!({
            "pk": { "S": "$PK" }, "sk": { "S": "pool-000000" }, "rev": { "N": "1" }, "v": { "N": version.to_string() },
            "data": { "S": data }, "w": { "S": "w" },
        });
        Self { item: item.to_string().into(), count, queries: Arc::default() }
    }

    /// The requested page of a partition, after the start key.
    fn page(&self, request: &Value) -> String {
        assert_eq!(request["ConsistentRead"], Value::Bool(true));
        self.queries.fetch_add(1, Ordering::Relaxed);
        let pk = request["ExpressionAttributeValues"][":pk"]["S"].as_str().expect("a query names its partition");
        let partition: usize = pk.rsplit('#').next().and_then(|last| last.parse().ok()).expect("a partition has a number");
        let after = request["ExclusiveStartKey"]["sk"]["S"].as_str().map(|last| last["pool-".len()..].parse::<usize>().expect("a number"));
        let first = after.map_or(partition, |last| last + PARTITIONS);
        let numbers: Vec<usize> = (first..self.count).step_by(PARTITIONS).take(PAGE).collect();
        let item = |number: &usize| self.item.replace("pool-000000", &format!("pool-{number:06}"));
        let items: Vec<String> = numbers.iter().map(item).collect();
        let last = numbers.last().filter(|last| **last + PARTITIONS < self.count);
        let next = last.map(|last| format!(r#","LastEvaluatedKey":{{"pk":{{"S":"{pk}"}},"sk":{{"S":"pool-{last:06}"}}}}"#));
        format!(r#"{{"Count":{},"Items":[{}]{}}}"#, items.len(), items.join(","), next.unwrap_or_default())
    }
}

impl HttpConnector for Pages {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let query = serde_json::from_slice(request.body().bytes().unwrap_or_default()).expect("the SDK writes JSON");
        HttpConnectorFuture::ready(Ok(Response::new(200.try_into().expect("a valid status"), SdkBody::from(self.page(&query)))))
    }
}

impl HttpClient for Pages {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

#[tokio::test]
async fn callers_that_retry_see_the_same_outcomes_under_faults() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let store = store(&ministack, clock).await;
    let faults = contracts::suites_under_faults(&store, "faulty", clock.now, 1).await;
    assert_eq!(faults.len(), 4, "every kind of fault occurred: {faults:?}");
    contracts::lost_replies(&store, &ClusterName::new("lost"), clock.now).await;
}

/// A catalog of two streams, the second of which has the spot prices.
fn catalog(prices: u8) -> Vec<u8> {
    let stream = |content: u8| [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255][..], &[content; 50][..]].concat();
    [stream(1), stream(prices)].concat()
}

/// A connection that loses the answer to the first write of a catalog's head. Before the SDK repeats it, another run has read that catalog
/// and replaced its prices.
#[derive(Clone)]
struct Overtaken {
    wire: Wire,
    other: DynamoStore,
    is_over: Arc<AtomicBool>,
}

impl fmt::Debug for Overtaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overtaken").finish_non_exhaustive()
    }
}

impl HttpClient for Overtaken {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let inner = self.wire.http_connector(settings, components);
        SharedHttpConnector::new(OvertakenEnd { connection: self.clone(), inner })
    }
}

#[derive(Debug)]
struct OvertakenEnd {
    connection: Overtaken,
    inner: SharedHttpConnector,
}

impl HttpConnector for OvertakenEnd {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body: Value = serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        let is_head = body["Item"]["sk"]["S"] == "PARTS";
        let is_lost = is_head && !self.connection.is_over.swap(true, Ordering::Relaxed);
        let (answer, other) = (self.inner.call(request), self.connection.other.clone());
        HttpConnectorFuture::new(async move {
            let answer = answer.await;
            if !is_lost {
                return answer;
            }
            let known = other.catalog().await.expect("the store answers").expect("the first attempt was written");
            other.put_catalog(&catalog(3), known.revision).await.expect("the holder of the revision may write");
            Err(ConnectorError::io("the reply was lost".into()))
        })
    }
}

#[tokio::test]
async fn a_write_of_the_catalog_that_was_replaced_before_its_answer_came_removes_no_part_of_the_next() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let other = store(&ministack, clock).await;
    let client_of_run = client_over(&ministack, Overtaken { wire: Wire::recording(), other, is_over: Arc::default() });
    let overtaken = DynamoStore::new(client_of_run, TABLE, Arc::new(clock));
    let outcome = overtaken.put_catalog(&catalog(2), Revision::ABSENT).await;
    assert!(matches!(outcome, Err(StoreError::Conflict { .. })), "{outcome:?}");
    // What is cached of parts does not count.
    let items = client(&ministack).scan().table_name(TABLE).send().await.expect("MiniStack answers").items.expect("the table has items");
    let sort_key = |item: &std::collections::HashMap<String, AttributeValue>| item["sk"].as_s().expect("it is a text").clone();
    let head = items.iter().find(|item| sort_key(item) == "PARTS").expect("there is a catalog");
    let named = head["names"].as_l().expect("it is a list").iter().map(|name| name.as_s().expect("it is a text").clone());
    let stored = items.iter().map(sort_key).filter(|key| key.starts_with("PART#"));
    assert_eq!(named.collect::<BTreeSet<_>>(), stored.collect::<BTreeSet<_>>(), "none is missing, and none is left");
}

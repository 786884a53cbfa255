//! In how many requests decisions are stored, and what becomes of those that a request leaves out.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use whittle_claims::{DecisionKind, DecisionRecord};
use whittle_dynamo::DynamoStore;
use whittle_ports::{DecisionLog, StoreError};
use whittle_tests::clock::FixedClock;
use whittle_tests::dynamo::TABLE;
use whittle_tests::ministack::Ministack;
use whittle_units::ClusterName;

/// DynamoDB's limits.
const BATCH_MAX: usize = 25;
const ITEM_MAX: usize = 400 * 1024;

/// A fake table, which answers writes as DynamoDB does.
#[derive(Clone, Debug, Default)]
struct Writes {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    operations: Vec<String>,
    /// Subjects of the stored decisions.
    stored: BTreeSet<String>,
    /// Subjects that a batch leaves out.
    left_out: BTreeSet<String>,
    /// Whether the caller may not write batches.
    denies_batches: bool,
}

fn subject(request: &Value) -> &str {
    request["PutRequest"]["Item"]["subject"]["S"].as_str().expect("a decision has a subject")
}

fn refusal(code: &str) -> (u16, Value) {
    (400, json!({ "__type": format!("com.amazon.coral.validate#{code}"), "message": "refused" }))
}

impl State {
    fn answer(&mut self, operation: &str, body: &Value) -> (u16, Value) {
        self.operations.push(operation.to_owned());
        let is_batch = operation == "BatchWriteItem";
        let requests = match operation {
            "BatchWriteItem" => body["RequestItems"][TABLE].as_array().expect("a batch names its table").clone(),
            "PutItem" => vec![json!({ "PutRequest": { "Item": body["Item"] } })],
            other => panic!("{other} writes no decision"),
        };
        if is_batch && self.denies_batches {
            return refusal("AccessDeniedException");
        }
        if requests.is_empty() || requests.len() > BATCH_MAX || requests.iter().any(|request| request.to_string().len() > ITEM_MAX) {
            return refusal("ValidationException");
        }
        let (left_out, written): (Vec<Value>, Vec<Value>) =
            requests.into_iter().partition(|request| is_batch && self.left_out.contains(subject(request)));
        self.stored.extend(written.iter().map(|request| subject(request).to_owned()));
        let unprocessed = if left_out.is_empty() { json!({}) } else { json!({ (TABLE): left_out }) };
        (200, json!({ "UnprocessedItems": unprocessed }))
    }
}

impl HttpConnector for Writes {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default();
        let body = serde_json::from_slice(request.body().bytes().unwrap_or_default()).expect("the SDK writes JSON");
        let (status, answer) = self.state.lock().unwrap().answer(operation, &body);
        HttpConnectorFuture::ready(Ok(Response::new(status.try_into().expect("a valid status"), SdkBody::from(answer.to_string()))))
    }
}

impl HttpClient for Writes {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl Writes {
    async fn append(&self, decisions: &[DecisionRecord]) -> Result<(), StoreError> {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(self.clone())
            .region(Region::new(Ministack::REGION))
            .credentials_provider(Credentials::new("testing", "testing", None, None, "tests"))
            .build();
        let store = DynamoStore::new(Client::from_conf(config), TABLE, Arc::new(FixedClock::new()));
        store.append(&ClusterName::new("prod"), decisions).await
    }

    /// How many requests of an operation there were.
    fn count(&self, operation: &str) -> usize {
        self.state.lock().unwrap().operations.iter().filter(|one| *one == operation).count()
    }

    fn stored(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().stored.clone()
    }
}

/// Decisions about as many claims.
fn decisions(count: usize) -> Vec<DecisionRecord> {
    let of = |number| DecisionRecord {
        at: FixedClock::new().now,
        kind: DecisionKind::Planned,
        subject: format!("nodeclaim/c-{number:03}"),
        message: "planned".to_owned(),
        detail: json!({}),
    };
    (0..count).map(of).collect()
}

fn subjects(decisions: &[DecisionRecord]) -> BTreeSet<String> {
    decisions.iter().map(|decision| decision.subject.clone()).collect()
}

#[tokio::test]
async fn the_decisions_of_a_run_are_written_in_few_requests() {
    for (count, requests) in [(0, 0), (1, 1), (25, 1), (26, 2), (440, 18)] {
        let (table, decisions) = (Writes::default(), decisions(count));
        assert_eq!(table.append(&decisions).await, Ok(()));
        assert_eq!((table.count("BatchWriteItem"), table.count("PutItem")), (requests, 0), "{count}");
        assert_eq!(table.stored(), subjects(&decisions));
    }
}

#[tokio::test]
async fn what_a_throttled_table_leaves_out_of_a_batch_is_written_alone() {
    let (table, decisions) = (Writes::default(), decisions(30));
    table.state.lock().unwrap().left_out = subjects(&decisions[3..5]);
    assert_eq!(table.append(&decisions).await, Ok(()));
    assert_eq!((table.count("BatchWriteItem"), table.count("PutItem")), (2, 2));
    assert_eq!(table.stored(), subjects(&decisions));
}

#[tokio::test]
async fn a_decision_that_is_too_large_costs_no_other() {
    let (table, mut decisions) = (Writes::default(), decisions(60));
    decisions[3].message = "x".repeat(ITEM_MAX);
    let refused = table.append(&decisions).await.expect_err("one is not stored");
    assert!(refused.to_string().contains("the decision about nodeclaim/c-003 of prod"), "{refused}");
    assert_eq!((table.count("BatchWriteItem"), table.count("PutItem")), (3, 25), "the other batches are stored whole");
    decisions.remove(3);
    assert_eq!(table.stored(), subjects(&decisions));
}

#[tokio::test]
async fn a_role_of_a_release_without_batches_writes_each_decision_alone() {
    let (table, decisions) = (Writes::default(), decisions(30));
    table.state.lock().unwrap().denies_batches = true;
    assert_eq!(table.append(&decisions).await, Ok(()));
    assert_eq!((table.count("BatchWriteItem"), table.count("PutItem")), (2, 30));
    assert_eq!(table.stored(), subjects(&decisions));
}

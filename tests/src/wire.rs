//! An HTTP client between an SDK and an emulator: it records requests, and injects lost or slow responses, throttling and conflicts.

use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use whittle_ports::contracts::Fault;

/// The delay of a slow response: longer than the next call of any other client.
const SLOW: Duration = Duration::from_millis(30);

/// An HTTP client for the SDK. Clones share their state.
#[derive(Clone, Debug)]
pub struct Wire {
    inner: SharedHttpClient,
    state: Arc<Mutex<State>>,
    /// Whether first attempts fail. The SDK's retries always succeed.
    fails: bool,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    /// First attempts so far, which select the next fault.
    first_attempts: usize,
    faults: BTreeMap<Fault, u32>,
}

/// A sent request.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GetItem`, `TransactWriteItems` …
    pub operation: String,
    pub body: Value,
    pub begun: Instant,
    /// `None` while it is unanswered.
    pub ended: Option<Instant>,
}

/// Faults of consecutive first attempts: three of four fail.
const FAULTS: [Option<Fault>; 8] = [
    Some(Fault::LostReply),
    Some(Fault::Throttle),
    None,
    Some(Fault::LostRace),
    Some(Fault::SlowReply),
    Some(Fault::LostReply),
    None,
    Some(Fault::Throttle),
];

impl Wire {
    /// A client that only records.
    #[must_use]
    pub fn recording() -> Self {
        Self::new(false)
    }

    /// A client of whose first attempts three of four fail.
    #[must_use]
    pub fn failing() -> Self {
        Self::new(true)
    }

    fn new(fails: bool) -> Self {
        let inner = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https();
        Self { inner, state: Arc::default(), fails }
    }

    /// All requests so far, including retries.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }

    /// How often each fault occurred.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<Fault, u32> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).faults.clone()
    }

    /// Records a request and chooses its fault.
    fn record(&self, request: &HttpRequest) -> (usize, String, Option<Fault>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body = serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        let number = state.requests.len();
        state.requests.push(Request { operation: operation.clone(), body, begun: Instant::now(), ended: None });
        let is_first = request.headers().get("amz-sdk-request").is_some_and(|tries| tries.starts_with("attempt=1"));
        if !self.fails || !is_first {
            return (number, operation, None);
        }
        let next = FAULTS[state.first_attempts % FAULTS.len()];
        state.first_attempts += 1;
        // Only writes conflict with transactions.
        let is_write = ["PutItem", "DeleteItem", "TransactWriteItems"].contains(&operation.as_str());
        let fault = next.map(|fault| if fault == Fault::LostRace && !is_write { Fault::Throttle } else { fault });
        if let Some(fault) = fault {
            *state.faults.entry(fault).or_default() += 1;
        }
        (number, operation, fault)
    }

    fn end(&self, number: usize) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).requests[number].ended = Some(Instant::now());
    }
}

/// DynamoDB's error response.
fn refusal(body: &Value) -> Response {
    Response::new(400.try_into().expect("a status of HTTP"), SdkBody::from(body.to_string()))
}

fn throttle() -> Response {
    refusal(&json!({ "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "too much" }))
}

/// The error of a write that conflicts with a transaction on the same item.
fn contention(operation: &str) -> Response {
    if operation != "TransactWriteItems" {
        return refusal(&json!({ "__type": "com.amazonaws.dynamodb.v20120810#TransactionConflictException", "message": "ongoing" }));
    }
    refusal(&json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict, None]",
        "CancellationReasons": [{ "Code": "TransactionConflict", "Message": "ongoing" }, { "Code": "None" }],
    }))
}

/// The connector that the SDK sends requests through.
#[derive(Debug)]
struct End {
    wire: Wire,
    inner: SharedHttpConnector,
}

impl HttpConnector for End {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (number, operation, fault) = self.wire.record(&request);
        match fault {
            Some(Fault::Throttle) => return HttpConnectorFuture::ready(Ok(throttle())),
            Some(Fault::LostRace) => return HttpConnectorFuture::ready(Ok(contention(&operation))),
            Some(Fault::LostReply | Fault::SlowReply) | None => {}
        }
        let (answer, wire) = (self.inner.call(request), self.wire.clone());
        HttpConnectorFuture::new(async move {
            let answer = answer.await;
            wire.end(number);
            match fault {
                Some(Fault::LostReply) => Err(ConnectorError::io("the reply was lost".into())),
                Some(Fault::SlowReply) => {
                    // tidy: allow(sleep), because it is the fault itself
                    tokio::time::sleep(SLOW).await;
                    answer
                }
                _ => answer,
            }
        })
    }
}

impl HttpClient for Wire {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(End { wire: self.clone(), inner })
    }
}

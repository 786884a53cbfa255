//! Canned HTTP exchanges: the requests that are sent, and how responses are converted. Queues are also tested in an emulator.

mod discovery;
mod iam_eks_sqs;
mod machines;
mod queues;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::RetryConfig;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use whittle_ports::{Clock, Deadline};
use whittle_units::{SignedDuration, Timestamp};

/// Returns canned responses in order, and records the requests.
#[derive(Clone, Debug, Default)]
struct Wire {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Wire {
    fn answering<const N: usize>(answers: [(u16, &str); N]) -> Self {
        let wire = Self::default();
        wire.answers.lock().unwrap().extend(answers.map(|(status, text)| (status, text.to_owned())));
        wire
    }
    /// Bodies of the requests so far.
    fn bodies(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
    /// Fields of a request in form encoding.
    fn form(&self, index: usize) -> BTreeMap<String, String> {
        let body = self.bodies()[index].clone();
        body.split('&').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (decoded(key), decoded(value))).collect()
    }
    fn config(&self) -> SdkConfig {
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials()))
            .http_client(self.clone())
            // Retries are the SDK's; these tests check single exchanges.
            .retry_config(RetryConfig::disabled())
            .build()
    }
}

fn credentials() -> Credentials {
    Credentials::new("AKIDEXAMPLE", "secret", Some("session".to_owned()), None, "tests")
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = String::from_utf8(request.body().bytes().unwrap_or_default().to_vec()).unwrap();
        self.requests.lock().unwrap().push(body);
        let (status, text) = self.answers.lock().unwrap().pop_front().expect("a request that the test does not answer");
        // As on a network, whoever else has something to do comes first.
        HttpConnectorFuture::new(async move {
            tokio::task::yield_now().await;
            Ok(Response::new(status.try_into().unwrap(), SdkBody::from(text)))
        })
    }
}

impl HttpClient for Wire {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// A stopped clock with a given time left.
#[derive(Debug)]
struct StoppedClock {
    left: SignedDuration,
}

const NOW: &str = "2026-03-01T12:00:00Z";

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        NOW.parse().unwrap()
    }
    fn deadline(&self) -> Deadline {
        Deadline(self.now().checked_add(self.left).unwrap())
    }
    fn unique(&self) -> String {
        "unique".to_owned()
    }
}

fn clock() -> Arc<dyn Clock + Send> {
    Arc::new(StoppedClock { left: SignedDuration::from_secs(60) })
}

/// The tests' clock, some time later.
struct Later(SignedDuration);

impl Clock for Later {
    fn now(&self) -> Timestamp {
        clock().now() + self.0
    }
    fn deadline(&self) -> Deadline {
        Deadline(self.now() + SignedDuration::from_mins(1))
    }
    fn unique(&self) -> String {
        clock().unique()
    }
}

/// An error response of EC2.
fn refusal(code: &str) -> String {
    format!("<Response><Errors><Error><Code>{code}</Code><Message>text</Message></Error></Errors><RequestID>r-1</RequestID></Response>")
}

/// Runs a future to completion; no test here waits for real I/O.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

//! The simulated region as an SDK's HTTP client, and a record of what was sent to it.

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_ec2::config::{AsyncSleep, SharedAsyncSleep, Sleep};
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::RetryConfig;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use whittle_fake_aws::{Api, Lone, Place, Request};
use whittle_sim::SimPorts;

/// Gives access to a region for the time of one call.
pub trait Reach: Send + Sync {
    fn with(&self, call: &mut dyn FnMut(&mut dyn Place));
}

impl Reach for Mutex<Lone> {
    fn with(&self, call: &mut dyn FnMut(&mut dyn Place)) {
        call(&mut *held(self));
    }
}

/// The region of a simulated world.
impl Reach for SimPorts {
    fn with(&self, call: &mut dyn FnMut(&mut dyn Place)) {
        self.inspect(|world| call(world));
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that an SDK sent, and on behalf of what.
#[derive(Clone, Debug)]
pub struct Sent {
    pub label: String,
    pub uri: String,
    pub request: Request,
    /// Status and body of the answer.
    pub answer: (u16, String),
}

impl Sent {
    /// The line that `aws_models.py` reads.
    #[must_use]
    pub fn as_line(&self) -> Value {
        let Request { service, method, target, body, .. } = &self.request;
        let answer = json!({"status": self.answer.0, "body": self.answer.1});
        json!({"label": self.label, "service": service, "method": method, "uri": self.uri, "target": target, "body": body, "answer": answer})
    }
}

/// What becomes of the reply of a call that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// The connection breaks.
    Lost,
    /// It arrives after the time limit of the call.
    Late,
    /// It says nothing.
    Empty,
    /// Of a fleet, it says the id alone.
    IdAlone,
}

/// AWS, as the HTTP client of an SDK. Clones are one AWS.
#[derive(Clone)]
pub struct FakeAws {
    pub api: Arc<Mutex<Api>>,
    place: Arc<dyn Reach>,
    record: Arc<Mutex<(String, Vec<Sent>)>>,
    /// By action: what becomes of the next replies.
    replies: Arc<Mutex<BTreeMap<String, Vec<Reply>>>>,
}

impl fmt::Debug for FakeAws {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FakeAws")
    }
}

impl FakeAws {
    /// AWS with this region behind it.
    pub fn new(place: Arc<dyn Reach>) -> Self {
        Self { api: Arc::default(), place, record: Arc::default(), replies: Arc::default() }
    }

    /// The same AWS, which keeps one journal and one record, with another way to its region.
    #[must_use]
    pub fn at(&self, place: Arc<dyn Reach>) -> Self {
        Self { place, ..self.clone() }
    }

    /// What becomes of the next replies to an action.
    pub fn spoil(&self, action: &str, replies: Vec<Reply>) {
        held(&self.replies).insert(action.to_owned(), replies);
    }

    /// How many replies to an action are still to be spoiled.
    #[must_use]
    pub fn replies_to_spoil(&self, action: &str) -> usize {
        held(&self.replies).get(action).map_or(0, Vec::len)
    }

    /// Names what is sent from now on.
    pub fn label(&self, label: impl Into<String>) {
        held(&self.record).0 = label.into();
    }

    /// What was sent so far.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        held(&self.record).1.clone()
    }

    /// The configuration of an SDK that calls it as an administrator. Nothing is retried, and nothing ever waits.
    #[must_use]
    pub fn config(&self, region: &str) -> SdkConfig {
        self.config_of("AKIDEXAMPLE", region)
    }

    /// The same for a principal, by its access key.
    #[must_use]
    pub fn config_of(&self, principal: &str, region: &str) -> SdkConfig {
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .credentials_provider(SharedCredentialsProvider::new(Credentials::new(principal, "secret", None, None, "tests")))
            .http_client(self.clone())
            .retry_config(RetryConfig::disabled())
            .sleep_impl(SharedAsyncSleep::new(Forever))
            .build()
    }

    fn answer(&self, request: &HttpRequest) -> Result<Response, ConnectorError> {
        let header = |name: &str| request.headers().get(name).unwrap_or_default().to_owned();
        let authorization = header("authorization");
        let (principal, service) = Request::signed_for(&authorization).unwrap_or_default();
        let path = request.uri().splitn(4, '/').nth(3).unwrap_or_default();
        let asked = Request {
            service: service.to_owned(),
            principal: principal.to_owned(),
            method: request.method().to_owned(),
            path: format!("/{path}"),
            target: header("x-amz-target"),
            body: String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).into_owned(),
        };
        let mut answer = None;
        self.place.with(&mut |place| answer = Some(held(&self.api).answer(place, &asked)));
        let mut answer = answer.expect("a way to a region calls back once");
        let action = held(&self.api).journal.last().map(|entry| entry.action.clone()).unwrap_or_default();
        match held(&self.replies).get_mut(&action).and_then(Vec::pop) {
            Some(Reply::Lost) => return Err(ConnectorError::io("the connection broke".into())),
            Some(Reply::Late) => return Err(ConnectorError::timeout("the reply came too late".into())),
            Some(Reply::Empty) if answer.content_type.contains("xml") => answer.body = format!("<{action}Response/>"),
            Some(Reply::Empty) => answer.body = "{}".to_owned(),
            Some(Reply::IdAlone) => answer.body = id_alone(&action, &answer.body),
            None => {}
        }
        {
            let mut record = held(&self.record);
            let label = record.0.clone();
            record.1.push(Sent { label, uri: request.uri().to_owned(), request: asked, answer: (answer.status, answer.body.clone()) });
        }
        let mut response = Response::new(answer.status.try_into().expect("a status of HTTP"), SdkBody::from(answer.body));
        response.headers_mut().insert("content-type", answer.content_type);
        if let Some(kind) = answer.error_type {
            response.headers_mut().insert("x-amzn-errortype", kind);
        }
        Ok(response)
    }
}

/// An answer about a fleet without its instances and errors.
fn id_alone(action: &str, body: &str) -> String {
    let id = body.split("<fleetId>").nth(1).and_then(|rest| rest.split("</fleetId>").next()).expect("a fleet's answer has its id");
    format!("<{action}Response><fleetId>{id}</fleetId></{action}Response>")
}

impl HttpConnector for FakeAws {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let aws = self.clone();
        HttpConnectorFuture::new(async move {
            // As on a network, whoever else has something to do comes first. The simulator takes care of that itself, and knows no
            // other wait than its own.
            if tokio::runtime::Handle::try_current().is_ok() {
                tokio::task::yield_now().await;
            }
            aws.answer(&request)
        })
    }
}

impl HttpClient for FakeAws {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// A sleep that never ends: answers come at once, so that no time limit is ever reached.
#[derive(Debug)]
pub struct Forever;

impl AsyncSleep for Forever {
    // tidy: allow(sleep), because the trait names it so and nothing waits for it
    fn sleep(&self, _: Duration) -> Sleep {
        Sleep::new(std::future::pending())
    }
}

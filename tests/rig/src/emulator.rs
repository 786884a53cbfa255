//! Calls of the emulator's services.

use anyhow::{Context, Result, bail};
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::collections::BTreeMap;
use whittle_backends::ministack::Ministack;

/// The account of everything in the rig.
pub(crate) const ACCOUNT: &str = whittle_sim::region::ACCOUNT;

/// The emulator as a client sees it. It takes account, region and service from where a signature is, and verifies none of a client whose
/// access key is the account's number.
#[derive(Clone, Debug)]
pub(crate) struct Emulator {
    endpoint: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Emulator {
    pub(crate) fn new(endpoint: String) -> Self {
        Self { endpoint, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A call in JSON: the target is `AmazonSQS.SendMessage`.
    pub(crate) async fn json(&self, service: &str, target: &str, body: &Value) -> Result<Value> {
        let content = if service == "sqs" { "application/x-amz-json-1.0" } else { "application/x-amz-json-1.1" };
        let request = self.signed(service, content).header("x-amz-target", target);
        let text = self.send(target, request, body.to_string()).await?;
        if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text).with_context(|| format!("{target} answered {text}")) }
    }

    /// A call in query form; the answer is XML.
    pub(crate) async fn query(&self, service: &str, parameters: &[(&str, &str)]) -> Result<String> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let request = self.signed(service, "application/x-www-form-urlencoded");
        self.send(service, request, body).await
    }

    /// Sends a doorbell or an event to a queue by its URL.
    pub(crate) async fn enqueue(&self, url: &str, message: &str) -> Result<()> {
        let body = serde_json::json!({"QueueUrl": url, "MessageBody": message});
        self.json("sqs", "AmazonSQS.SendMessage", &body).await.map(drop)
    }

    /// Invokes a function and waits for its answer.
    pub(crate) async fn invoke(&self, function: &str, event: &Value) -> Result<Value> {
        let path = format!("/2015-03-31/functions/{function}/invocations");
        let text = self.send(function, self.signed_at(&path, "lambda", "application/json"), event.to_string()).await?;
        serde_json::from_str(&text).with_context(|| format!("{function} answered {text}"))
    }

    /// Invokes a function with an event as EventBridge does: nobody waits for what it comes to, and Lambda repeats what fails.
    pub(crate) async fn invoke_with_event(&self, function: &str, event: &Value) -> Result<()> {
        let path = format!("/2015-03-31/functions/{function}/invocations");
        let request = self.signed_at(&path, "lambda", "application/json").header("x-amz-invocation-type", "Event");
        self.send(function, request, event.to_string()).await.map(drop)
    }

    /// Invokes a function as if the request had come through this many functions already.
    pub(crate) async fn invoke_after(&self, hops: u32, function: &str, event: &Value) -> Result<()> {
        let path = format!("/2015-03-31/functions/{function}/invocations");
        let request = self.signed_at(&path, "lambda", "application/json").header("x-ministack-invoke-depth", hops);
        self.send(function, request, event.to_string()).await.map(drop)
    }

    /// A call of a service whose calls are methods and paths; without a body if that is null.
    pub(crate) async fn rest(&self, service: &str, method: Method, path: &str, body: &Value) -> Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let text = self.send(path, self.signed_at(path, service, "application/json").method(method), body).await?;
        if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(&text).with_context(|| format!("{path} answered {text}")) }
    }

    /// What is at a path, with these headers.
    pub(crate) async fn look(&self, path: &str, headers: &[(&str, &str)]) -> Result<String> {
        let request = http::Request::get(format!("{}{path}", self.endpoint));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let place = path.split('?').next().unwrap_or_default();
        self.send(place, request, String::new()).await
    }

    fn signed(&self, service: &str, content: &str) -> http::request::Builder {
        self.signed_at("/", service, content)
    }

    fn signed_at(&self, path: &str, service: &str, content: &str) -> http::request::Builder {
        let scope = format!("{ACCOUNT}/20260101/{}/{service}/aws4_request", Ministack::REGION);
        let authorization = format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0");
        http::Request::post(format!("{}{path}", self.endpoint)).header("authorization", authorization).header("content-type", content)
    }

    async fn send(&self, call: &str, request: http::request::Builder, body: String) -> Result<String> {
        let request = request.body(Full::from(body))?;
        let answer = self.client.request(request).await.with_context(|| format!("the emulator does not answer {call}"))?;
        let status = answer.status();
        let text = String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()).into_owned();
        if !status.is_success() {
            bail!("the emulator answers {call} with {status}: {text}");
        }
        Ok(text)
    }

    /// The physical names of a stack's resources by their logical ones.
    pub(crate) async fn resources(&self, stack: &str) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        let mut token = String::new();
        loop {
            let mut parameters = vec![("Action", "ListStackResources"), ("Version", "2010-05-15"), ("StackName", stack)];
            if !token.is_empty() {
                parameters.push(("NextToken", &token));
            }
            let page = self.query("cloudformation", &parameters).await?;
            for member in page.split("<member>").skip(1) {
                let field = |name: &str| text_of(member, name).unwrap_or_default();
                found.insert(field("LogicalResourceId"), field("PhysicalResourceId"));
            }
            match text_of(&page, "NextToken").filter(|next| !next.is_empty()) {
                Some(next) => token = next,
                None => return Ok(found),
            }
        }
    }

    /// An output of a stack.
    pub(crate) async fn output(&self, stack: &str, key: &str) -> Result<String> {
        let answer = self.query("cloudformation", &[("Action", "DescribeStacks"), ("Version", "2010-05-15"), ("StackName", stack)]).await?;
        let mut outputs = answer.split("<member>").filter(|member| text_of(member, "OutputKey").as_deref() == Some(key));
        outputs.next().and_then(|member| text_of(member, "OutputValue")).with_context(|| format!("the stack {stack} has no output {key}"))
    }
}

/// The text of the first element of this name; its entities are not expanded, since names and URLs have none.
pub(crate) fn text_of(xml: &str, name: &str) -> Option<String> {
    let rest = xml.split_once(&format!("<{name}>"))?.1;
    rest.split_once("</").map(|(text, _)| text.to_owned())
}

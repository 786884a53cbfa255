//! The loop of a function.

use crate::Function;
use crate::clock::InvocationClock;
use crate::environment::Environment;
use crate::events::{self, Asked, Work};
use crate::telemetry;
use crate::wiring::{Connections, Shell};
use base64::Engine;
use futures::stream::{self, StreamExt};
use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Instant;
use whittle_ports::{Clock, Disposition, HandleError, Report};
use whittle_units::{SignedDuration, Timestamp};

/// Pieces of one event that are worked on at once: a batch holds ten messages, and a tick a few clusters.
const AT_ONCE_MAX: usize = 10;
/// Work that is started with less time than this only ends in the middle.
const WORK_MIN: SignedDuration = SignedDuration::from_millis(500);

/// Serves a function until its execution environment ends: `handler` is called for each piece of work.
///
/// Errors when the environment is not complete, before the first event is taken.
pub async fn serve<H>(function: Function, handler: H) -> Result<(), Error>
where
    H: AsyncFn(&Shell, &Work) -> Result<Report, HandleError>,
{
    telemetry::init_logs();
    let environment = Environment::read(|name| std::env::var(name).ok())?;
    let connections = &Connections::open(environment).await?;
    let handler = &handler;
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let clock = InvocationClock::until(event.context.deadline, Timestamp::now());
        let shell = connections.shell(clock);
        let decoded = match events::decode(function, &event.payload, &connections.settings().clusters) {
            Ok(decoded) => decoded,
            Err(reason) => {
                tracing::error!(%reason, "the event cannot be decoded");
                return Err(diagnostic("Unreadable", reason));
            }
        };
        let mut failed: Vec<String> = Vec::new();
        for poison in decoded.poison {
            tracing::error!(message = %poison.message, reason = %poison.reason, "a message is left for the dead-letter queue");
            failed.push(poison.message);
        }
        let works = stream::iter(decoded.asked).map(|asked| run(function, &shell, asked, handler));
        let ended: Vec<Ended> = works.buffer_unordered(AT_ONCE_MAX).collect().await;
        let mut broken = None;
        let mut told = Vec::new();
        for ended in ended {
            told.extend(ended.told);
            if ended.comes_back {
                failed.extend(ended.messages);
            }
            broken = broken.or(ended.broken);
        }
        match broken {
            // A batch names what comes back; a tick has no other way to be counted as failed.
            Some(reason) if !decoded.is_batch => Err(diagnostic("Failed", reason)),
            _ if decoded.is_batch => Ok(events::batch_answer(&failed)),
            // Nobody but a person who invokes the function reads this.
            _ => Ok(json!({ "told": told })),
        }
    }))
    .await
}

/// What Lambda reports of an invocation that failed, and counts as an error.
fn diagnostic(error_type: &str, reason: String) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: reason }
}

/// How a piece of work ended.
struct Ended {
    messages: Vec<String>,
    /// The messages have to be delivered again.
    comes_back: bool,
    /// What a person has to look at.
    broken: Option<String>,
    /// What was decided, in words.
    told: Vec<String>,
}

async fn run<H>(function: Function, shell: &Shell, asked: Asked, handler: &H) -> Ended
where
    H: AsyncFn(&Shell, &Work) -> Result<Report, HandleError>,
{
    let Asked { work, messages } = asked;
    if !shell.clock.deadline().has(shell.clock.now(), WORK_MIN) {
        return Ended { messages, comes_back: true, broken: None, told: Vec::new() };
    }
    let start = Instant::now();
    let outcome = handler(shell, &work).await;
    for line in telemetry::lines(shell.clock.now(), function, &work, start.elapsed(), &outcome) {
        println!("{line}");
    }
    match outcome {
        Ok(report) => {
            for decision in &report.decisions {
                tracing::info!(subject = %decision.subject, kind = ?decision.kind, "{}", decision.message);
            }
            let told = report.decisions.into_iter().map(|decision| decision.message).collect();
            Ended { messages, comes_back: false, broken: None, told }
        }
        Err(error) => {
            let reason = telemetry::chain(&error);
            let disposition = error.disposition();
            tracing::warn!(%reason, disposition = disposition.as_str(), "the work stopped");
            Ended {
                messages,
                comes_back: matches!(disposition, Disposition::RetryLater | Disposition::Fail),
                broken: (disposition == Disposition::Fail).then_some(reason),
                told: Vec::new(),
            }
        }
    }
}

/// A call of a Function URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlRequest {
    pub path: String,
    pub body: Vec<u8>,
    /// ARN of the caller whose IAM signature the URL has checked.
    pub signed_by: Option<String>,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlAnswer {
    pub status: u16,
    /// JSON.
    pub body: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct UrlEvent {
    raw_path: String,
    body: Option<String>,
    is_base64_encoded: bool,
    request_context: UrlContext,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UrlContext {
    authorizer: Option<UrlAuthorizer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UrlAuthorizer {
    iam: Option<UrlCaller>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UrlCaller {
    user_arn: Option<String>,
}

/// Reads an event of a Function URL (payload format 2.0).
fn url_request(event: &Value) -> Result<UrlRequest, String> {
    let event = UrlEvent::deserialize(event).map_err(|error| format!("the event is no call of a Function URL: {error}"))?;
    let body = event.body.unwrap_or_default();
    let body = if event.is_base64_encoded {
        base64::engine::general_purpose::STANDARD.decode(body).map_err(|error| format!("the body is no base64: {error}"))?
    } else {
        body.into_bytes()
    };
    let caller = event.request_context.authorizer.and_then(|authorizer| authorizer.iam).and_then(|iam| iam.user_arn);
    Ok(UrlRequest { path: event.raw_path, body, signed_by: caller })
}

/// Serves a function behind a Function URL. The relay's secret is in the shell's settings.
///
/// Errors when the environment is not complete or the secret cannot be read, before the first call is taken.
pub async fn serve_url<H>(function: Function, handler: H) -> Result<(), Error>
where
    H: AsyncFn(&Shell, &UrlRequest) -> Result<(UrlAnswer, Report), HandleError>,
{
    telemetry::init_logs();
    let mut connections = Connections::open(Environment::read(|name| std::env::var(name).ok())?).await?;
    connections.fetch_relay_secret().await?;
    let connections = &connections;
    let handler = &handler;
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let shell = connections.shell(InvocationClock::until(event.context.deadline, Timestamp::now()));
        let request = match url_request(&event.payload) {
            Ok(request) => request,
            Err(reason) => return Ok::<Value, Error>(url_answer(400, &json!({ "message": reason }).to_string())),
        };
        let start = Instant::now();
        let (answer, outcome) = match handler(&shell, &request).await {
            Ok((answer, report)) => (url_answer(answer.status, &answer.body), Ok(report)),
            Err(error) => (url_answer(500, &json!({ "message": telemetry::chain(&error) }).to_string()), Err(error)),
        };
        // The path holds a secret: it is neither logged nor counted.
        for line in telemetry::lines(shell.clock.now(), function, &Work::Notice(String::new()), start.elapsed(), &outcome) {
            println!("{line}");
        }
        Ok(answer)
    }))
    .await
}

fn url_answer(status: u16, body: &str) -> Value {
    json!({ "statusCode": status, "headers": { "content-type": "application/json" }, "body": body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_call_names_its_caller() {
        let event = json!({
            "version": "2.0", "rawPath": "/prod", "isBase64Encoded": true, "body": "e30=",
            "requestContext": { "authorizer": { "iam": { "userArn": "arn:aws:sts::1:assumed-role/relay/x" } } },
        });
        let request = url_request(&event).expect("it is a call");
        assert_eq!((request.path.as_str(), request.body.as_slice()), ("/prod", b"{}".as_slice()));
        assert_eq!(request.signed_by.as_deref(), Some("arn:aws:sts::1:assumed-role/relay/x"));
    }

    #[test]
    fn a_webhook_has_no_caller() {
        let event = json!({ "version": "2.0", "rawPath": "/secret/prod", "isBase64Encoded": false, "body": "{}", "requestContext": { "http": { "method": "POST" } } });
        assert_eq!(url_request(&event), Ok(UrlRequest { path: "/secret/prod".to_owned(), body: b"{}".to_vec(), signed_by: None }));
        assert!(url_request(&json!({ "rawPath": 1 })).is_err());
    }
}

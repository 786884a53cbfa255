//! The loop of a function.

use crate::Function;
use crate::clock::InvocationClock;
use crate::environment::Environment;
use crate::events::{self, Asked, Decoded, ToRing, Work};
use crate::secrets::RelaySecrets;
use crate::telemetry;
use crate::wiring::{Connections, Shell};
use aws_lambda_events::lambda_function_urls::LambdaFunctionUrlRequest;
use base64::Engine;
use futures::stream::{self, StreamExt};
use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Instant;
use whittle_ports::{Clock, Disposition, HandleError, Queues, Report, error_chain};
use whittle_units::{SignedDuration, Timestamp};

/// Pieces of one event that are worked on at once: a batch holds ten messages.
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
        let is_batch = decoded.is_batch;
        let ended = work_off(function, &shell, decoded, handler).await;
        answer(is_batch, ended)
    }))
    .await
}

/// What Lambda reports of an invocation that failed, and counts as an error.
fn diagnostic(error_type: &str, reason: String) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: reason }
}

/// How a piece of work ended.
#[derive(Debug, Default)]
struct Ended {
    messages: Vec<String>,
    /// The messages have to be delivered again.
    comes_back: bool,
    /// Why it did not come to its end.
    failed: Option<Failed>,
    /// What was decided, in words.
    told: Vec<String>,
}

#[derive(Debug)]
struct Failed {
    disposition: Disposition,
    reason: String,
}

/// Rings what is for other invocations, then does the work.
async fn work_off<H>(function: Function, shell: &Shell, decoded: Decoded, handler: &H) -> Vec<Ended>
where
    H: AsyncFn(&Shell, &Work) -> Result<Report, HandleError>,
{
    let mut all = Vec::new();
    for poison in decoded.poison {
        tracing::error!(message = %poison.message, reason = %poison.reason, "a message is left for the dead-letter queue");
        all.push(Ended { messages: vec![poison.message], comes_back: true, ..Ended::default() });
    }
    let rung = stream::iter(decoded.to_ring).map(|to_ring| hand_on(&shell.queues, to_ring));
    all.extend(rung.buffer_unordered(AT_ONCE_MAX).collect::<Vec<_>>().await);
    let works = stream::iter(decoded.asked).map(|asked| run(function, shell, asked, handler));
    all.extend(works.buffer_unordered(AT_ONCE_MAX).collect::<Vec<_>>().await);
    all
}

/// Rings a doorbell in place of work; one that cannot be rung fails what asked for it.
async fn hand_on(queues: &impl Queues, to_ring: ToRing) -> Ended {
    let ToRing { bell, messages } = to_ring;
    let outcome = queues.ring(bell, SignedDuration::ZERO).await;
    let failed = outcome.err().map(|error| {
        let reason = error_chain(&error);
        tracing::error!(%reason, "a doorbell could not be rung");
        Failed { disposition: Disposition::RetryLater, reason }
    });
    Ended { messages, comes_back: failed.is_some(), failed, told: Vec::new() }
}

/// What Lambda is told. A batch names the messages that come back; who calls the function directly (a tick, `whittle uninstall`)
/// has no other way to learn of a failure than that the call fails.
///
/// Work that failed for good fails the call of a batch too, once all messages have been dealt with: an error that only a log
/// line tells of raises no alarm. Lambda would then deliver the whole batch again, so it does only where no message is done.
fn answer(is_batch: bool, ended: Vec<Ended>) -> Result<Value, Diagnostic> {
    let mut back = Vec::new();
    let mut failures = Vec::new();
    let mut told = Vec::new();
    let mut some_done = false;
    for ended in ended {
        some_done |= !ended.comes_back;
        told.extend(ended.told);
        failures.extend(ended.failed);
        if ended.comes_back {
            back.extend(ended.messages);
        }
    }
    let for_good = failures.iter().find(|failed| failed.disposition == Disposition::Fail);
    match (is_batch, for_good.or(failures.first())) {
        (true, Some(failed)) if failed.disposition == Disposition::Fail && !some_done => Err(diagnostic("Failed", failed.reason.clone())),
        (true, _) => Ok(events::batch_answer(&back)),
        (false, Some(failed)) => Err(diagnostic("Failed", format!("{} ({})", failed.reason, failed.disposition.as_str()))),
        // Nobody but a person who invokes the function reads this.
        (false, None) => Ok(json!({ "told": told })),
    }
}

async fn run<H>(function: Function, shell: &Shell, asked: Asked, handler: &H) -> Ended
where
    H: AsyncFn(&Shell, &Work) -> Result<Report, HandleError>,
{
    let Asked { work, messages } = asked;
    if !shell.clock.has_time_for(WORK_MIN) {
        let reason = "the invocation has no time left to begin".to_owned();
        return Ended {
            messages,
            comes_back: true,
            failed: Some(Failed { disposition: Disposition::RetryLater, reason }),
            told: Vec::new(),
        };
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
            Ended { messages, told, ..Ended::default() }
        }
        Err(error) => stopped(messages, &error),
    }
}

/// Work that did not come to its end.
fn stopped(messages: Vec<String>, error: &HandleError) -> Ended {
    let reason = error_chain(error);
    let disposition = error.disposition();
    if disposition == Disposition::Fail {
        tracing::error!(%reason, disposition = disposition.as_str(), "the work stopped");
    } else {
        tracing::warn!(%reason, disposition = disposition.as_str(), "the work stopped");
    }
    let comes_back = matches!(disposition, Disposition::RetryLater | Disposition::Fail);
    Ended { messages, comes_back, failed: Some(Failed { disposition, reason }), told: Vec::new() }
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

/// Reads an event of a Function URL (payload format 2.0), whose callers `sign` where the URL checks signatures; where it does not,
/// nobody is taken at his word. Of a longer body than `body_max` one byte more is kept: nobody has
/// been asked yet who calls.
fn url_request(event: &Value, body_max: usize, sign: bool) -> Result<UrlRequest, String> {
    let event = LambdaFunctionUrlRequest::deserialize(event).map_err(|error| format!("the event is no call of a Function URL: {error}"))?;
    let mut body = event.body.unwrap_or_default().into_bytes();
    if event.is_base64_encoded {
        // Four letters for three bytes; a body that is cut is cut between such groups.
        body.truncate((body_max / 3 + 1) * 4);
        body = base64::engine::general_purpose::STANDARD.decode(body).map_err(|error| format!("the body is no base64: {error}"))?;
    }
    body.truncate(body_max + 1);
    let caller = event.request_context.authorizer.and_then(|authorizer| authorizer.iam).and_then(|iam| iam.user_arn);
    Ok(UrlRequest { path: event.raw_path.unwrap_or_default(), body, signed_by: caller.filter(|_| sign) })
}

/// Serves a function behind a Function URL, of whose bodies at most `body_max` bytes and one are read. The secrets that let
/// callers in are in the shell's settings.
///
/// Errors when the environment is not complete or the secret cannot be read, before the first call is taken.
pub async fn serve_url<H>(function: Function, body_max: usize, handler: H) -> Result<(), Error>
where
    H: AsyncFn(&Shell, &UrlRequest) -> Result<(UrlAnswer, Report), HandleError>,
{
    telemetry::init_logs();
    let connections = &Connections::open(Environment::read(|name| std::env::var(name).ok())?).await?;
    let secrets = &connections.relay_secrets().await?;
    let handler = &handler;
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let mut shell = connections.shell(InvocationClock::until(event.context.deadline, Timestamp::now()));
        let request = match url_request(&event.payload, body_max, secrets.is_none()) {
            Ok(request) => request,
            Err(reason) => return Ok::<Value, Error>(url_answer(400, &json!({ "message": reason }).to_string())),
        };
        let start = Instant::now();
        shell.settings.relay_secrets = accepted(secrets.as_ref(), false).await;
        let mut outcome = handler(&shell, &request).await;
        if is_refused(&outcome) {
            // The caller may know a secret that is newer than ours.
            let anew = accepted(secrets.as_ref(), true).await;
            if anew != shell.settings.relay_secrets {
                shell.settings.relay_secrets = anew;
                outcome = handler(&shell, &request).await;
            }
        }
        // The path holds a secret: it is neither logged nor counted. Nor is what strangers send: Lambda counts it for nothing.
        let is_counted = !is_refused(&outcome);
        let (answer, outcome) = match outcome {
            Ok((answer, report)) => (url_answer(answer.status, &answer.body), Ok(report)),
            Err(error) => (url_answer(500, &json!({ "message": error_chain(&error) }).to_string()), Err(error)),
        };
        if is_counted {
            for line in telemetry::lines(shell.clock.now(), function, &Work::Notice(String::new()), start.elapsed(), &outcome) {
                println!("{line}");
            }
        }
        Ok(answer)
    }))
    .await
}

async fn accepted(secrets: Option<&RelaySecrets>, was_refused: bool) -> Vec<String> {
    match secrets {
        Some(secrets) => secrets.accepted(was_refused).await,
        None => Vec::new(),
    }
}

/// Whether the caller was not let in.
fn is_refused(outcome: &Result<(UrlAnswer, Report), HandleError>) -> bool {
    outcome.as_ref().is_ok_and(|(answer, _)| answer.status == 403)
}

fn url_answer(status: u16, body: &str) -> Value {
    json!({ "statusCode": status, "headers": { "content-type": "application/json" }, "body": body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use whittle_claims::Doorbell;
    use whittle_ports::{QueueError, StoreError};

    fn done(message: &str) -> Ended {
        Ended { messages: vec![message.to_owned()], told: vec![format!("did {message}")], ..Ended::default() }
    }

    fn failing(disposition: Disposition) -> HandleError {
        let what = "the record".to_owned();
        match disposition {
            Disposition::RetryLater => HandleError::Store(StoreError::Throttled { what }),
            Disposition::Replan => HandleError::Store(StoreError::Conflict { what }),
            Disposition::Drop => HandleError::Unreadable { what, reason: "r".to_owned() },
            Disposition::Fail => HandleError::PlanRefused { cluster: "a".to_owned(), reason: "r".to_owned() },
        }
    }

    const ALL: [Disposition; 4] = [Disposition::RetryLater, Disposition::Replan, Disposition::Drop, Disposition::Fail];

    #[test]
    fn a_direct_call_that_failed_is_never_answered_as_done() {
        for disposition in ALL {
            let error = failing(disposition);
            assert_eq!(error.disposition(), disposition);
            let ended = vec![Ended { messages: vec![], ..done("x") }, stopped(vec![], &error)];
            let answer = answer(false, ended).expect_err("nobody else learns of it");
            assert!(answer.error_message.contains(disposition.as_str()), "{}", answer.error_message);
        }
        assert_eq!(answer(false, vec![done("x")]).expect("nothing failed"), json!({ "told": ["did x"] }));
    }

    #[test]
    fn of_a_batch_only_what_failed_comes_back() {
        for disposition in ALL {
            let comes_back = matches!(disposition, Disposition::RetryLater | Disposition::Fail);
            let ended = vec![done("m0"), stopped(vec!["m1".to_owned()], &failing(disposition))];
            let answer = answer(true, ended).expect("one message is done: it must not come again");
            let back = answer["batchItemFailures"].as_array().map(Vec::len);
            assert_eq!(back, Some(usize::from(comes_back)), "{disposition:?}");
        }
    }

    /// The alarm on errors stands on calls that fail.
    #[test]
    fn work_that_failed_for_good_fails_the_call() {
        let lone = |disposition| answer(true, vec![stopped(vec!["m0".to_owned()], &failing(disposition))]);
        assert!(lone(Disposition::Fail).is_err());
        for disposition in [Disposition::RetryLater, Disposition::Replan, Disposition::Drop] {
            assert!(lone(disposition).is_ok(), "{disposition:?}");
        }
    }

    /// Rings, or refuses to.
    struct Bells(Mutex<Vec<Doorbell>>, bool);

    impl Queues for Bells {
        async fn ring(&self, bell: Doorbell, _: SignedDuration) -> Result<(), QueueError> {
            if self.1 {
                return Err(QueueError { cluster: bell.cluster().to_string(), reason: "throttled".to_owned() });
            }
            self.0.lock().expect("nobody panics").push(bell);
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_doorbell_that_cannot_be_rung_fails_what_asked_for_it() {
        let bell = Doorbell::Sweep { cluster: "a".into() };
        let to_ring = |messages: &[&str]| ToRing { bell: bell.clone(), messages: messages.iter().map(|&id| id.to_owned()).collect() };
        let bells = Bells(Mutex::default(), false);
        let rung = hand_on(&bells, to_ring(&["m0"])).await;
        assert!(!rung.comes_back && rung.failed.is_none());
        assert_eq!(*bells.0.lock().expect("nobody panics"), std::slice::from_ref(&bell));
        let refused = hand_on(&Bells(Mutex::default(), true), to_ring(&["m0"])).await;
        assert_eq!(answer(true, vec![refused]).expect("it is a batch"), events::batch_answer(&["m0".to_owned()]));
        let tick = hand_on(&Bells(Mutex::default(), true), to_ring(&[])).await;
        assert!(answer(false, vec![tick]).is_err(), "a tick that rang nothing is no success");
    }

    /// A call as Lambda hands it on.
    fn call(path: &str, body: &str, is_base64_encoded: bool, authorizer: &Value) -> Value {
        let http = json!({ "method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1", "userAgent": "x" });
        json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": { "content-type": "application/json" },
            "requestContext": { "accountId": "1", "timeEpoch": 1_767_225_600_000_u64, "http": http, "authorizer": authorizer },
            "body": body, "isBase64Encoded": is_base64_encoded,
        })
    }

    #[test]
    fn a_signed_call_names_its_caller_and_never_one_whose_signature_nobody_checked() {
        let event = call("/prod", "e30=", true, &json!({ "iam": { "userArn": "arn:aws:sts::1:assumed-role/relay/x" } }));
        assert_eq!(url_request(&event, 10, false).expect("it is a call").signed_by, None, "nobody checked it");
        let request = url_request(&event, 10, true).expect("it is a call");
        assert_eq!((request.path.as_str(), request.body.as_slice()), ("/prod", b"{}".as_slice()));
        assert_eq!(request.signed_by.as_deref(), Some("arn:aws:sts::1:assumed-role/relay/x"));
    }

    #[test]
    fn a_webhook_has_no_caller() {
        let event = call("/secret/prod", "{}", false, &Value::Null);
        assert_eq!(
            url_request(&event, 10, true),
            Ok(UrlRequest { path: "/secret/prod".to_owned(), body: b"{}".to_vec(), signed_by: None })
        );
        assert!(url_request(&json!({ "rawPath": 1 }), 10, true).is_err());
    }

    #[test]
    fn a_strangers_megabytes_are_not_decoded() {
        for max in [0, 1, 2, 3, 10, 100] {
            for length in 0..150 {
                let bytes = vec![b'x'; length];
                let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
                let of = |body: &str, encoded: bool| {
                    let event = call("/", body, encoded, &Value::Null);
                    url_request(&event, max, true).expect("it is a call").body
                };
                let plain = String::from_utf8(bytes.clone()).expect("ASCII");
                for body in [of(&plain, false), of(&encoded, true)] {
                    assert_eq!(body.len(), length.min(max + 1), "what is too large stays so, and no more of it is kept");
                }
            }
        }
    }

    #[test]
    fn who_is_not_let_in_is_not_counted() {
        let outcome = |status| Ok((UrlAnswer { status, body: String::new() }, Report::default()));
        assert!(is_refused(&outcome(403)));
        assert!(!is_refused(&outcome(200)) && !is_refused(&outcome(404)) && !is_refused(&Err(failing(Disposition::Fail))));
    }
}

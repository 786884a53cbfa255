//! The invocation loop of a function behind a Function URL.

use crate::Function;
use crate::clock::InvocationClock;
use crate::environment::Environment;
use crate::events::Work;
use crate::secrets::{MAX_AGE, MAX_AGE_WHEN_REFUSED, RelaySecrets};
use crate::telemetry;
use crate::wiring::{Connections, Shell};
use aws_lambda_events::lambda_function_urls::LambdaFunctionUrlRequest;
use base64::Engine;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Instant;
use whittle_ports::{Clock, HandleError, Report, error_chain};
use whittle_units::{SignedDuration, Timestamp};

/// A request to a Function URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlRequest {
    pub path: String,
    pub body: Vec<u8>,
    /// ARN of the caller whose IAM signature the URL has checked.
    pub signed_by: Option<String>,
    /// The alias of the function that was called, whose URL checks signatures; `None` for the function's own URL.
    pub alias: Option<String>,
}

/// The response to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlAnswer {
    pub status: u16,
    /// JSON.
    pub body: String,
}

/// Serves a function behind a Function URL. At most `body_max + 1` bytes of a body are decoded. The secrets that authenticate
/// callers are in the shell's settings.
///
/// Errors when the environment is not complete or the secret cannot be read, before the first request is received.
pub async fn serve_url<H>(function: Function, body_max: usize, handler: H) -> Result<(), Error>
where
    H: AsyncFn(&Shell, &UrlRequest) -> Result<(UrlAnswer, Report), HandleError>,
{
    telemetry::init_logs();
    let connections = &Connections::open(Environment::read(|name| std::env::var(name).ok())?).await?;
    let secrets = &connections.relay_secrets().await?;
    let handler = &handler;
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async move {
        let mut shell = connections.shell(function, InvocationClock::until(event.context.deadline, Timestamp::now()));
        let url = called_url(&event.context.invoked_function_arn, secrets.is_some());
        let request = match url_request(&event.payload, body_max, url) {
            Ok(request) => request,
            Err(reason) => return Ok::<Value, Error>(url_response(400, &json!({ "message": reason }).to_string())),
        };
        let start = Instant::now();
        shell.settings.relay_secrets = accepted(secrets.as_ref(), MAX_AGE).await;
        let mut outcome = handler(&shell, &request).await;
        if is_refused(&outcome) {
            // The caller may know a secret that is newer than ours.
            let newest = accepted(secrets.as_ref(), MAX_AGE_WHEN_REFUSED).await;
            if newest != shell.settings.relay_secrets {
                shell.settings.relay_secrets = newest;
                outcome = handler(&shell, &request).await;
            }
        }
        // The path holds a secret, so it is not logged. Refused requests are not counted: Lambda does that.
        let is_counted = !is_refused(&outcome);
        let (response, outcome) = match outcome {
            Ok((response, report)) => (url_response(response.status, &response.body), Ok(report)),
            Err(error) => (url_response(500, &json!({ "message": error_chain(&error) }).to_string()), Err(error)),
        };
        if is_counted {
            let (work, took) = (Work::Notice(String::new()), start.elapsed());
            for line in telemetry::lines((shell.clock.now(), &shell.settings), function, (&work, false), took, &outcome) {
                println!("{line}");
            }
        }
        Ok(response)
    }))
    .await
}

/// The URL that was called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CalledUrl {
    alias: Option<String>,
    /// Whether it verifies signatures; where it does not, the caller's ARN is not trusted.
    is_signed: bool,
}

/// The URL that was called, by the ARN that Lambda invoked. The function's own URL verifies signatures only in a deployment that has no
/// secrets, that of an alias always does.
fn called_url(invoked_arn: &str, has_secrets: bool) -> CalledUrl {
    // arn:PARTITION:lambda:REGION:ACCOUNT:function:NAME, and the qualifier if there is one.
    let qualifier = invoked_arn.split(':').nth(7).filter(|qualifier| !qualifier.is_empty() && *qualifier != "$LATEST");
    CalledUrl { alias: qualifier.map(str::to_owned), is_signed: !has_secrets || qualifier.is_some() }
}

/// Decodes an event of a Function URL (payload format 2.0). A body is truncated to one byte more than `body_max`, because the caller is
/// not authenticated yet.
fn url_request(event: &Value, body_max: usize, url: CalledUrl) -> Result<UrlRequest, String> {
    let event =
        LambdaFunctionUrlRequest::deserialize(event).map_err(|error| format!("the event is not a call of a Function URL: {error}"))?;
    let mut body = event.body.unwrap_or_default().into_bytes();
    if event.is_base64_encoded {
        // Base64 encodes three bytes in four characters: truncate between such groups.
        body.truncate((body_max / 3 + 1) * 4);
        body = base64::engine::general_purpose::STANDARD.decode(body).map_err(|error| format!("the body is not base64: {error}"))?;
    }
    body.truncate(body_max + 1);
    let caller = event.request_context.authorizer.and_then(|authorizer| authorizer.iam).and_then(|iam| iam.user_arn);
    let signed_by = caller.filter(|_| url.is_signed);
    Ok(UrlRequest { path: event.raw_path.unwrap_or_default(), body, signed_by, alias: url.alias })
}

async fn accepted(secrets: Option<&RelaySecrets>, max_age: SignedDuration) -> Vec<String> {
    match secrets {
        Some(secrets) => secrets.accepted(max_age).await,
        None => Vec::new(),
    }
}

/// Whether the caller was refused.
fn is_refused(outcome: &Result<(UrlAnswer, Report), HandleError>) -> bool {
    outcome.as_ref().is_ok_and(|(response, _)| response.status == 403)
}

fn url_response(status: u16, body: &str) -> Value {
    json!({ "statusCode": status, "headers": { "content-type": "application/json" }, "body": body })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request as Lambda delivers it.
    fn request(path: &str, body: &str, is_base64_encoded: bool, authorizer: &Value) -> Value {
        let http = json!({ "method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1", "userAgent": "x" });
        json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": { "content-type": "application/json" },
            "requestContext": { "accountId": "1", "timeEpoch": 1_767_225_600_000_u64, "http": http, "authorizer": authorizer },
            "body": body, "isBase64Encoded": is_base64_encoded,
        })
    }

    /// The function's own URL.
    fn own(is_signed: bool) -> CalledUrl {
        CalledUrl { alias: None, is_signed }
    }

    #[test]
    fn the_url_of_an_alias_verifies_signatures_beside_one_that_does_not() {
        let own_arn = "arn:aws:lambda:us-west-2:111122223333:function:whittle-Relay-1";
        for (suffix, has_secrets, alias, is_signed) in [
            ("", true, None, false),
            ("", false, None, true),
            (":$LATEST", true, None, false),
            (":", true, None, false),
            (":prod", true, Some("prod"), true),
            (":prod", false, Some("prod"), true),
        ] {
            let called = called_url(&format!("{own_arn}{suffix}"), has_secrets);
            assert_eq!((called.alias.as_deref(), called.is_signed), (alias, is_signed), "{suffix} {has_secrets}");
        }
        let event = request("/prod", "e30=", true, &json!({ "iam": { "userArn": "arn:aws:sts::1:assumed-role/watcher/x" } }));
        let call = url_request(&event, 10, called_url(&format!("{own_arn}:prod"), true)).expect("it is a request");
        assert_eq!((call.alias.as_deref(), call.signed_by.is_some()), (Some("prod"), true));
    }

    #[test]
    fn the_caller_of_a_request_is_known_only_when_the_url_verified_its_signature() {
        let event = request("/prod", "e30=", true, &json!({ "iam": { "userArn": "arn:aws:sts::1:assumed-role/relay/x" } }));
        assert_eq!(url_request(&event, 10, own(false)).expect("it is a request").signed_by, None, "it was not verified");
        let decoded = url_request(&event, 10, own(true)).expect("it is a request");
        assert_eq!((decoded.path.as_str(), decoded.body.as_slice()), ("/prod", b"{}".as_slice()));
        assert_eq!(decoded.signed_by.as_deref(), Some("arn:aws:sts::1:assumed-role/relay/x"));
    }

    #[test]
    fn a_request_without_signature_has_no_caller() {
        let event = request("/secret/prod", "{}", false, &Value::Null);
        assert_eq!(
            url_request(&event, 10, own(true)),
            Ok(UrlRequest { path: "/secret/prod".to_owned(), body: b"{}".to_vec(), signed_by: None, alias: None })
        );
        assert!(url_request(&json!({ "rawPath": 1 }), 10, own(true)).is_err());
    }

    #[test]
    fn an_oversized_body_is_truncated_before_it_is_decoded() {
        for max in [0, 1, 2, 3, 10, 100] {
            for length in 0..150 {
                let bytes = vec![b'x'; length];
                let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
                let of = |body: &str, encoded: bool| {
                    let event = request("/", body, encoded, &Value::Null);
                    url_request(&event, max, own(true)).expect("it is a request").body
                };
                let plain = String::from_utf8(bytes.clone()).expect("ASCII");
                for body in [of(&plain, false), of(&encoded, true)] {
                    assert_eq!(body.len(), length.min(max + 1), "one byte beyond the limit is kept, so that the body is still too large");
                }
            }
        }
    }

    #[test]
    fn only_a_forbidden_response_counts_as_refused() {
        let outcome = |status| Ok((UrlAnswer { status, body: String::new() }, Report::default()));
        let failed = HandleError::PlanRefused { cluster: "a".to_owned(), reason: "r".to_owned() };
        assert!(is_refused(&outcome(403)));
        assert!(!is_refused(&outcome(200)) && !is_refused(&outcome(404)) && !is_refused(&Err(failed)));
    }
}

//! The relay's Function URL with the authorization type AWS_IAM, as Lambda serves it: it verifies the signature and tells the function who
//! has signed. The emulator invokes the function; of a signature it looks at no more than whether there is one, and it names nobody.

use crate::emulator::{ACCOUNT, Emulator};
use crate::http_server;
use anyhow::{Context, Result, ensure};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use whittle_backends::ministack::Ministack;

/// How far the time of a signature may be from now.
const SKEW_MAX: Duration = Duration::from_secs(300);
/// The header with the time of a signature, in this form: 20260101T120000Z.
const DATE: &str = "x-amz-date";

/// Who may call, as IAM knows it: the role that `infra/watcher/stack.yaml` makes, and a session of it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub credentials: Credentials,
    pub arn: String,
}

impl Caller {
    /// The watcher's role.
    pub(crate) fn watcher() -> Self {
        let credentials = Credentials::new("ASIARIGWATCHER", "rig-watcher-secret", None, None, "rig");
        Self { credentials, arn: format!("arn:aws:sts::{ACCOUNT}:assumed-role/whittle-watcher/rig") }
    }
}

/// The function, and who may call it.
struct Target {
    emulator: Emulator,
    function: String,
    caller: Caller,
}

/// Serves the URL of a function.
pub(crate) async fn serve(listener: TcpListener, emulator: Emulator, function: String, caller: Caller) {
    let target = Arc::new(Target { emulator, function, caller });
    let answer = move |request| {
        let target = Arc::clone(&target);
        async move { target.answer(request).await }
    };
    http_server::serve(listener, None, answer).await;
}

impl Target {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return response(StatusCode::BAD_REQUEST, "the body is incomplete") };
        let body = body.to_bytes();
        let path = parts.uri.path().to_owned();
        if let Err(error) = verify(&self.caller.credentials, &parts.method, &path, &parts.headers, &body, SystemTime::now()) {
            eprintln!("a call of the relay is refused: {error:#}");
            return response(StatusCode::FORBIDDEN, r#"{"Message":"Forbidden"}"#);
        }
        match self.emulator.invoke(&self.function, &self.event(&path, &body)).await {
            Ok(answer) => {
                let status = answer["statusCode"].as_u64().and_then(|status| u16::try_from(status).ok());
                let status = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::BAD_GATEWAY);
                response(status, answer["body"].as_str().unwrap_or_default())
            }
            Err(error) => response(StatusCode::BAD_GATEWAY, &format!("{error:#}")),
        }
    }

    /// The event of a Function URL, payload format 2.0.
    fn event(&self, path: &str, body: &[u8]) -> Value {
        let iam = json!({"accessKey": self.caller.credentials.access_key_id(), "accountId": ACCOUNT, "userArn": self.caller.arn});
        json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": {},
            "requestContext": {
                "accountId": ACCOUNT, "apiId": "rig", "authorizer": {"iam": iam}, "domainName": "rig", "domainPrefix": "rig",
                "http": {"method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "rig"},
                "requestId": "rig", "routeKey": "$default", "stage": "$default", "time": "", "timeEpoch": 0,
            },
            "body": STANDARD.encode(body), "isBase64Encoded": true,
        })
    }
}

fn response(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text.to_owned()));
    *response.status_mut() = status;
    response
}

/// Signs the request once more and compares.
fn verify(credentials: &Credentials, method: &Method, path: &str, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<()> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let authorization = header("authorization");
    let field = |name: &str| authorization.split([' ', ',']).find_map(|part| part.strip_prefix(name)).unwrap_or_default();
    let key = field("Credential=").split('/').next().unwrap_or_default();
    ensure!(key == credentials.access_key_id(), "the access key {key:?} is nobody's");
    let at = time_of(header(DATE)).with_context(|| format!("{:?} is no time of a signature", header(DATE)))?;
    let skew = now.duration_since(at).unwrap_or_else(|before| before.duration());
    ensure!(skew <= SKEW_MAX, "the signature is of {:?}, {} s from now", header(DATE), skew.as_secs());
    let names: Vec<&str> = field("SignedHeaders=").split(';').collect();
    ensure!(names.contains(&"host"), "the host is not signed");
    let identity = credentials.clone().into();
    let parameters = v4::SigningParams::builder().identity(&identity).region(Ministack::REGION).name("lambda").time(at);
    let parameters = parameters.settings(SigningSettings::default()).build()?;
    // The signer adds the time by itself.
    let signed = names.iter().filter(|name| **name != DATE).map(|name| (*name, header(name)));
    let url = format!("http://{}{path}", header("host"));
    let request = SignableRequest::new(method.as_str(), &url, signed, SignableBody::Bytes(body))?;
    let (_, signature) = sign(request, &parameters.into())?.into_parts();
    ensure!(signature == field("Signature="), "the signature is another one");
    Ok(())
}

fn time_of(text: &str) -> Option<SystemTime> {
    let part = |at: std::ops::Range<usize>| text.get(at);
    let shown = format!("{}-{}-{}T{}:{}:{}Z", part(0..4)?, part(4..6)?, part(6..8)?, part(9..11)?, part(11..13)?, part(13..15)?);
    shown.parse::<whittle_units::Timestamp>().ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_units::Region;

    #[test]
    fn only_what_the_watcher_signs_is_passed_on() {
        let caller = Caller::watcher();
        let (now, url) = (SystemTime::now(), "http://127.0.0.1:1234/rig".parse().unwrap());
        let region = Region::new(Ministack::REGION);
        let signed = |credentials: &Credentials, at| whittle_watcher::post::signed(&url, &region, b"{}".to_vec(), credentials, at).unwrap();
        let check = |request: &http::Request<Vec<u8>>, path: &str, body: &[u8]| {
            verify(&caller.credentials, request.method(), path, request.headers(), body, now).map_err(|error| error.to_string())
        };
        let good = signed(&caller.credentials, now);
        assert_eq!(check(&good, "/rig", b"{}"), Ok(()));
        assert!(check(&good, "/rig", b"{ }").unwrap_err().contains("another one"), "another body");
        assert!(check(&good, "/other", b"{}").unwrap_err().contains("another one"), "another path");
        let wrong = Credentials::new(caller.credentials.access_key_id(), "guessed", None, None, "test");
        assert!(check(&signed(&wrong, now), "/rig", b"{}").unwrap_err().contains("another one"));
        let stranger = Credentials::new("AKIASTRANGER", "x", None, None, "test");
        assert!(check(&signed(&stranger, now), "/rig", b"{}").unwrap_err().contains("nobody's"));
        let old = signed(&caller.credentials, now - SKEW_MAX - Duration::from_secs(2));
        assert!(check(&old, "/rig", b"{}").unwrap_err().contains("from now"));
        assert!(check(&http::Request::post(url.clone()).body(Vec::new()).unwrap(), "/rig", b"").is_err());
    }
}

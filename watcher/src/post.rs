//! Posts to the relay, signed with the watcher's own role.

use crate::bells::Failure;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tokio::time::timeout;
use whittle_claims::{PostKind, WatcherPost};
use whittle_units::{ClusterName, Region, Timestamp};

/// A connection that takes longer than this is not made.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A post with everything that belongs to it takes no longer: the function itself may take five seconds.
const POST_MAX: Duration = Duration::from_secs(8);
/// Credentials are renewed this long before they expire.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// A renewal may take so much of a post's time while there are credentials that still last.
const RENEWAL_MAX: Duration = Duration::from_secs(2);
/// What is read of an answer, and told in the log.
const ANSWER_MAX: usize = 1024;

/// Why a post failed.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    #[error("there are no credentials for AWS: the service account needs a role (see infra/README.md)")]
    Credentials(#[source] CredentialsError),
    #[error("the post cannot be signed: {0}")]
    Signature(String),
    #[error("the relay cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the relay did not answer within {} s", POST_MAX.as_secs())]
    TimedOut,
    #[error("the relay answered {status}: {text}")]
    Answered { status: u16, text: String },
}

impl PostError {
    /// How it is retried.
    pub const fn failure(&self) -> Failure {
        match self {
            // 429: the function has no concurrency left.
            Self::Answered { status, .. } if *status >= 400 && *status < 500 && *status != 429 => Failure::Refused,
            _ => Failure::Unavailable,
        }
    }
}

/// What sends posts.
pub struct Poster {
    url: http::Uri,
    cluster: ClusterName,
    region: Region,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    provider: SharedCredentialsProvider,
    credentials: Mutex<Option<Credentials>>,
}

impl Poster {
    /// A poster with the system's root certificates.
    ///
    /// Errors when there are none.
    pub fn new(url: http::Uri, cluster: ClusterName, region: Region, provider: SharedCredentialsProvider) -> std::io::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_MAX));
        let roots = HttpsConnectorBuilder::new().with_provider_and_native_roots(rustls::crypto::aws_lc_rs::default_provider())?;
        let connector = roots.https_or_http().enable_http1().wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { url, cluster, region, client, provider, credentials: Mutex::new(None) })
    }

    /// Tells the relay of these kinds, and up to which version of a pod they were seen.
    pub async fn post(&self, kinds: &BTreeSet<PostKind>, seen: Option<String>) -> Result<(), PostError> {
        match timeout(POST_MAX, self.send(kinds, seen)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(PostError::TimedOut),
        }
    }

    async fn send(&self, kinds: &BTreeSet<PostKind>, seen: Option<String>) -> Result<(), PostError> {
        let credentials = self.credentials(SystemTime::now(), RENEWAL_MAX).await?;
        // After the wait for credentials: the signature, and the message, are of this moment.
        let now = SystemTime::now();
        let sent_at = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
        let post = WatcherPost { seen, ..WatcherPost::new(self.cluster.clone(), sent_at, kinds.iter().copied()) };
        let body = serde_json::to_vec(&post).map_err(|error| PostError::Signature(error.to_string()))?;
        let request = signed(&self.url, &self.region, body, &credentials, now)?;
        let answer = self.client.request(request.map(Full::from)).await.map_err(|error| PostError::Unreachable(error.into()))?;
        let status = answer.status();
        if status == http::StatusCode::FORBIDDEN {
            // They may be of a role that was made anew, or of a session that was revoked: the next post asks for others.
            *self.credentials.lock().await = None;
        }
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        if status.is_success() {
            return Ok(());
        }
        let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
        Err(PostError::Answered { status: status.as_u16(), text: text.unwrap_or_else(|_| "a long answer, which is left out".to_owned()) })
    }

    /// Credentials that are valid for a while: the provider makes a call for each time that it is asked. Where there are some that still
    /// last, it is given no more than `patience`.
    async fn credentials(&self, now: SystemTime, patience: Duration) -> Result<Credentials, PostError> {
        let mut kept = self.credentials.lock().await;
        let lasts = |credentials: &Credentials, at| credentials.expiry().is_none_or(|expiry| expiry > at);
        if let Some(credentials) = kept.as_ref().filter(|credentials| lasts(credentials, now + RENEWED_BEFORE)) {
            return Ok(credentials.clone());
        }
        let Some(old) = kept.as_ref().filter(|credentials| lasts(credentials, now)).cloned() else {
            let new = self.provider.provide_credentials().await.map_err(PostError::Credentials)?;
            *kept = Some(new.clone());
            return Ok(new);
        };
        match timeout(patience, self.provider.provide_credentials()).await {
            Ok(Ok(new)) => {
                *kept = Some(new.clone());
                Ok(new)
            }
            Ok(Err(_)) | Err(_) => Ok(old),
        }
    }
}

/// A POST of this body to a Function URL, signed as of `now`.
pub fn signed(
    url: &http::Uri,
    region: &Region,
    body: Vec<u8>,
    credentials: &Credentials,
    now: SystemTime,
) -> Result<http::Request<Vec<u8>>, PostError> {
    let failed = |error: &dyn std::fmt::Display| PostError::Signature(error.to_string());
    let host = url.authority().map(http::uri::Authority::as_str).unwrap_or_default().to_owned();
    let identity = credentials.clone().into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(region.as_str())
        .name("lambda")
        .time(now)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| failed(&error))?;
    let headers = [("host", host.as_str()), ("content-type", "application/json")];
    let text = url.to_string();
    let signable = SignableRequest::new("POST", &text, headers.into_iter(), SignableBody::Bytes(&body)).map_err(|error| failed(&error))?;
    let (instructions, _) = sign(signable, &parameters.into()).map_err(|error| failed(&error))?.into_parts();
    let mut request = http::Request::post(url.clone())
        .header("host", &host)
        .header("content-type", "application/json")
        .header("user-agent", concat!("whittle-watcher/", env!("CARGO_PKG_VERSION")))
        .body(body)
        .map_err(|error| failed(&error))?;
    instructions.apply_to_request_http1x(&mut request);
    Ok(request)
}

#[cfg(test)]
mod tests;

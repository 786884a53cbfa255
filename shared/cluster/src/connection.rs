//! Connections to the API servers of clusters: endpoint, token, time limits.

use crate::errors::{Class, Failure};
use crate::keeper::Keeper;
use crate::response;
use crate::watch::{Encoding, Watch};
use base64::Engine;
use http::{Method, Request, header};
use kube::client::Body as HttpBody;
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use whittle_api::legacy::ConvertOptions;
use whittle_ec2::network::ClusterInfo;
use whittle_ports::{Clock, ClusterAccess, ClusterError};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// The longest that a request may take. A page of 2,500 pods takes well under a second.
const REQUEST_MAX: Duration = Duration::from_secs(20);
/// How long a cached token is used. EKS accepts it for 14 minutes, and it must outlive the invocation that takes it.
const TOKEN_VALID_FOR: SignedDuration = SignedDuration::from_mins(8);

/// A failure to access a cluster is cached for this long: all requests of a run need access at once.
const FAILURE_VALID_FOR: SignedDuration = SignedDuration::from_secs(1);
/// Retries of a read that was throttled, that met an error of the server, or whose connection broke.
const READ_RETRIES_MAX: u32 = 2;
/// Time that must remain after the pause for a read to be retried.
const READ_TIME_MIN: Duration = Duration::from_secs(1);

const JSON: &str = "application/json";
const PROTOBUF_OR_JSON_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch, application/json;q=0.9";
/// A list without what the objects say.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The same, shorter.
const METADATA_LIST_IN_PROTOBUF: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, \
     application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;q=0.9";
/// A server without protobuf (for this kind, or at all) answers in JSON.
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json;q=0.9";

/// A connection to an API server: kept for all invocations of an execution environment.
#[derive(Clone)]
struct ApiConnection {
    client: Client,
    endpoint: Arc<str>,
    token: Arc<str>,
    token_since: Timestamp,
}

/// The connection of one cluster. The first caller without one opens it, and the others wait for that.
#[derive(Default)]
struct Slot {
    connection: Option<ApiConnection>,
    failed: Option<(Timestamp, ClusterError)>,
}

type Slots = BTreeMap<ClusterName, Arc<tokio::sync::Mutex<Slot>>>;

/// When each event was last published, by cluster and key.
pub(crate) type Published = BTreeMap<(ClusterName, String), Timestamp>;

/// The clusters of an account and region, with the deadline of one invocation for its requests.
pub struct Clusters<A> {
    access: Arc<A>,
    slots: Arc<Mutex<Slots>>,
    pub(crate) published: Arc<Mutex<Published>>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) convert: Arc<ConvertOptions>,
    pub(crate) clock: Arc<dyn Clock + Send>,
}

impl<A: ClusterAccess> Clusters<A> {
    /// `convert` configures the conversion of objects of old API versions.
    pub fn new(access: A, convert: ConvertOptions, clock: Arc<dyn Clock + Send>) -> Self {
        Self {
            access: Arc::new(access),
            slots: Arc::default(),
            published: Arc::default(),
            keeper: Arc::default(),
            convert: Arc::new(convert),
            clock,
        }
    }

    /// The same clusters, connections, tokens and kept objects for another invocation.
    #[must_use]
    pub fn with_clock(&self, clock: Arc<dyn Clock + Send>) -> Self {
        Self {
            access: Arc::clone(&self.access),
            slots: Arc::clone(&self.slots),
            published: Arc::clone(&self.published),
            keeper: Arc::clone(&self.keeper),
            convert: Arc::clone(&self.convert),
            clock,
        }
    }

    async fn connection(&self, cluster: &ClusterName) -> Result<ApiConnection, ClusterError> {
        let slot = self.slot(cluster);
        let mut slot = slot.lock().await;
        let now = self.clock.now();
        if let Some(connection) = slot.connection.as_ref().filter(|connection| now.duration_since(connection.token_since) < TOKEN_VALID_FOR)
        {
            return Ok(connection.clone());
        }
        if let Some((at, error)) = &slot.failed
            && now.duration_since(*at).abs() < FAILURE_VALID_FOR
        {
            return Err(error.clone());
        }
        match self.open(cluster, slot.connection.as_ref()).await {
            Ok(connection) => {
                *slot = Slot { connection: Some(connection.clone()), failed: None };
                Ok(connection)
            }
            Err(error) => {
                slot.failed = Some((self.clock.now(), error.clone()));
                Err(error)
            }
        }
    }

    fn slot(&self, cluster: &ClusterName) -> Arc<tokio::sync::Mutex<Slot>> {
        Arc::clone(self.slots.lock().unwrap_or_else(PoisonError::into_inner).entry(cluster.clone()).or_default())
    }

    /// A connection with a new token; the client of a known connection is reused.
    async fn open(&self, cluster: &ClusterName, known: Option<&ApiConnection>) -> Result<ApiConnection, ClusterError> {
        let (client, endpoint) = match known {
            Some(connection) => (connection.client.clone(), Arc::clone(&connection.endpoint)),
            None => {
                let info = self.access.endpoint(cluster).await.map_err(|error| ClusterError::of_access(cluster, &error))?;
                let no_access = |message| ClusterError::NoAccess { cluster: cluster.clone(), message };
                (client_of(&info).map_err(no_access)?, info.endpoint.as_str().into())
            }
        };
        let token = self.access.bearer_token(cluster).await.map_err(|error| ClusterError::of_access(cluster, &error))?;
        Ok(ApiConnection { client, endpoint, token: token.into(), token_since: self.clock.now() })
    }

    /// Drops a connection that failed, so that the next request looks up the endpoint again: the cluster may have been recreated
    /// under its name. Another that was opened meanwhile is kept.
    async fn drop_connection(&self, cluster: &ClusterName, connection: &ApiConnection) {
        let slot = self.slot(cluster);
        let mut slot = slot.lock().await;
        if slot.connection.as_ref().is_some_and(|known| Arc::ptr_eq(&known.token, &connection.token)) {
            slot.connection = None;
        }
    }

    /// The time that the next request may take.
    fn limit(&self) -> Duration {
        self.clock.time_left().unsigned_abs().min(REQUEST_MAX)
    }

    /// Sends a request, and repeats it with a new token when the old one is rejected (the cluster's endpoint and certificate
    /// authority may have changed as well). A read is also retried where that is likely to help.
    pub(crate) async fn send_bytes(&self, cluster: &ClusterName, request: &ApiRequest<'_>) -> Result<Vec<u8>, RequestError> {
        let mut is_renewed = false;
        let mut retries = 0;
        loop {
            let failed = match self.send_once(cluster, request).await {
                Ok(body) => return Ok(body),
                Err(failed) => failed,
            };
            let RequestError::Server(failure) = &failed else { return Err(failed) };
            if failure.class == Class::Unauthenticated && !is_renewed {
                is_renewed = true;
                continue;
            }
            match failure.retry_after {
                Some(pause) if request.method == Method::GET && retries < READ_RETRIES_MAX && self.limit() > pause + READ_TIME_MIN => {
                    retries += 1;
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(failed),
            }
        }
    }

    /// Sends a request and parses its response as JSON.
    pub(crate) async fn send<T: DeserializeOwned>(&self, cluster: &ClusterName, request: &ApiRequest<'_>) -> Result<T, RequestError> {
        let body = self.send_bytes(cluster, request).await?;
        serde_json::from_slice(&body)
            .map_err(|error| RequestError::Server(Failure::unknown(format!("its response cannot be read: {error}"))))
    }

    /// Where a cluster's API server is.
    pub(crate) async fn endpoint(&self, cluster: &ClusterName) -> Result<Arc<str>, ClusterError> {
        Ok(self.connection(cluster).await?.endpoint)
    }

    /// Opens a watch, which the server may tell in protobuf. It is neither compressed nor retried.
    pub(crate) async fn watch(&self, cluster: &ClusterName, path: String, wanted: Encoding) -> Result<Watch, RequestError> {
        let connection = self.connection(cluster).await.map_err(RequestError::Access)?;
        let accept = match wanted {
            Encoding::Protobuf => PROTOBUF_OR_JSON_WATCH,
            Encoding::Json => JSON,
        };
        let request = ApiRequest { is_watch: true, accept, ..ApiRequest::get(path) };
        let request = request.http(&connection.token).map_err(|error| RequestError::Server(Failure::unknown(error.to_string())))?;
        let limit = self.limit();
        let opened = async { response::watch(connection.client.send(request.map(HttpBody::from)).await?).await };
        let opened = tokio::time::timeout(limit, opened).await.unwrap_or_else(|_| Err(Failure::timeout(limit)));
        opened.map_err(RequestError::Server)
    }

    async fn send_once(&self, cluster: &ClusterName, request: &ApiRequest<'_>) -> Result<Vec<u8>, RequestError> {
        let connection = self.connection(cluster).await.map_err(RequestError::Access)?;
        let limit = self.limit().min(request.timeout);
        if limit.is_zero() {
            return Err(RequestError::Server(Failure::unknown("the invocation has no time left")));
        }
        let (length, longest, is_attempt) = (request.length, request.longest, request.is_attempt);
        let request = request.http(&connection.token).map_err(|error| RequestError::Server(Failure::unknown(error.to_string())))?;
        let answer = async { response::read(connection.client.send(request.map(HttpBody::from)).await?, length, longest).await };
        let failure = match tokio::time::timeout(limit, answer).await {
            Ok(Ok(body)) => return Ok(body),
            Ok(Err(failure)) => failure,
            Err(_) if is_attempt => return Err(RequestError::Server(Failure::timeout(limit))),
            Err(_) => Failure::timeout(limit),
        };
        if failure.is_of_connection() {
            self.drop_connection(cluster, &connection).await;
        }
        Err(RequestError::Server(failure))
    }
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The cluster's endpoint or a token could not be obtained.
    Access(ClusterError),
    /// The API server returned an error, or could not be reached.
    Server(Failure),
}

impl RequestError {
    pub(crate) fn class(&self) -> Option<Class> {
        match self {
            Self::Access(_) => None,
            Self::Server(failure) => Some(failure.class),
        }
    }

    /// Whether the server has read the object, and refuses what it says.
    pub(crate) fn is_of_validation(&self) -> bool {
        matches!(self, Self::Server(failure) if failure.is_of_validation)
    }

    /// Whether the cluster's definition of the kind lacks a field of what was to be applied.
    pub(crate) fn is_of_definition(&self) -> bool {
        matches!(self, Self::Server(failure) if failure.is_of_definition())
    }

    /// Whether nothing is created because the namespace is being deleted.
    pub(crate) fn is_of_deleted_namespace(&self) -> bool {
        matches!(self, Self::Server(failure) if failure.is_of_deleted_namespace)
    }

    /// The object that the response is about, if it names one.
    pub(crate) fn object(&self) -> Option<&str> {
        match self {
            Self::Access(_) => None,
            Self::Server(failure) => failure.object.as_deref(),
        }
    }

    pub(crate) fn into_error(self, cluster: &ClusterName, what: &str) -> ClusterError {
        match self {
            Self::Access(error) => error,
            Self::Server(failure) => failure.into_error(cluster, what),
        }
    }
}

/// A request's body, by content type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    None,
    Json(&'a serde_json::Value),
    MergePatch(&'a serde_json::Value),
    /// Server-side apply: fields that we applied before and omit now are removed.
    Apply(&'a serde_json::Value),
}

/// A request to an API server.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest<'a> {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) body: Body<'a>,
    accept: &'static str,
    is_watch: bool,
    /// The longest that each attempt may take.
    timeout: Duration,
    /// Whether one that is not answered tells nothing of the connection: a webhook may keep the API server waiting, or another request
    /// follows.
    is_attempt: bool,
    /// About how many bytes the response has, decompressed; 0 if that is unknown.
    length: usize,
    /// The most bytes of a response that is read.
    longest: usize,
}

impl<'a> ApiRequest<'a> {
    const fn new(method: Method, path: String, body: Body<'a>) -> Self {
        let (timeout, longest) = (REQUEST_MAX, response::BODY_MAX);
        Self { method, path, body, accept: JSON, is_watch: false, timeout, is_attempt: false, length: 0, longest }
    }
    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, Body::None)
    }
    pub(crate) fn post(path: String, body: &'a serde_json::Value) -> Self {
        Self::new(Method::POST, with_manager(&path), Body::Json(body))
    }
    pub(crate) fn delete(path: String, options: &'a serde_json::Value) -> Self {
        Self::new(Method::DELETE, path, Body::Json(options))
    }
    pub(crate) fn merge(path: String, patch: &'a serde_json::Value) -> Self {
        Self::new(Method::PATCH, with_manager(&path), Body::MergePatch(patch))
    }
    pub(crate) fn apply(path: String, object: &'a serde_json::Value) -> Self {
        Self::new(Method::PATCH, format!("{}&force=true", with_manager(&path)), Body::Apply(object))
    }
    /// The same request, which the server may answer in protobuf.
    pub(crate) fn preferring_protobuf(self) -> Self {
        Self { accept: PROTOBUF_OR_JSON, ..self }
    }
    /// The same request, for metadata alone.
    pub(crate) fn for_metadata(self) -> Self {
        Self { accept: METADATA_LIST, ..self }
    }
    /// The same request, for metadata of many objects.
    pub(crate) fn for_metadata_in_protobuf(self) -> Self {
        Self { accept: METADATA_LIST_IN_PROTOBUF, ..self }
    }
    /// The same request with a shorter timeout.
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The same request, which is given up if it is not answered in this time; its connection is kept.
    pub(crate) fn tried_for(self, timeout: Duration) -> Self {
        Self { timeout, is_attempt: true, ..self }
    }

    /// The same request, whose response has about this many bytes when it is decompressed.
    pub(crate) fn expecting(self, length: usize) -> Self {
        Self { length, ..self }
    }

    /// The same request, whose response is not read if it has more bytes, decompressed.
    pub(crate) fn of_at_most(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    fn http(&self, token: &str) -> Result<Request<Vec<u8>>, http::Error> {
        let (content_type, body) = match self.body {
            Body::None => (None, Vec::new()),
            Body::Json(value) => (Some("application/json"), value.to_string().into_bytes()),
            Body::MergePatch(value) => (Some("application/merge-patch+json"), value.to_string().into_bytes()),
            // JSON is valid YAML.
            Body::Apply(value) => (Some("application/apply-patch+yaml"), value.to_string().into_bytes()),
        };
        let mut request = Request::builder()
            .method(&self.method)
            .uri(&self.path)
            .header(header::ACCEPT, self.accept)
            .header(header::USER_AGENT, crate::FIELD_MANAGER)
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        if self.method == Method::GET && !self.is_watch {
            // Servers compress what is longer than 128 KB.
            request = request.header(header::ACCEPT_ENCODING, "gzip");
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        request.body(body)
    }
}

fn with_manager(path: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}fieldManager={}", crate::FIELD_MANAGER)
}

fn client_of(info: &ClusterInfo) -> Result<Client, String> {
    let url = info.endpoint.parse().map_err(|error| format!("its endpoint {:?} is not an address: {error}", info.endpoint))?;
    let mut config = Config::new(url);
    config.root_cert = Some(certificates(&info.certificate_authority)?);
    // A 429 may be a PodDisruptionBudget's refusal, and the next tick retries anyway.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(3));
    Client::try_from(config).map_err(|error| error.to_string())
}

/// The certificates (DER) in PEM that is itself in base64, as EKS returns it.
fn certificates(authority: &str) -> Result<Vec<Vec<u8>>, String> {
    let base64 = &base64::engine::general_purpose::STANDARD;
    let unreadable = |error: &dyn std::fmt::Display| format!("its certificate authority cannot be read: {error}");
    let pem = base64.decode(authority.trim()).map_err(|error| unreadable(&error))?;
    let pem = String::from_utf8(pem).map_err(|error| unreadable(&error))?;
    let mut certificates = Vec::new();
    for block in pem.split("-----BEGIN CERTIFICATE-----").skip(1) {
        let body: String = block.split("-----END").next().unwrap_or_default().split_whitespace().collect();
        certificates.push(base64.decode(body).map_err(|error| unreadable(&error))?);
    }
    if certificates.is_empty() { Err(unreadable(&"it contains no certificate")) } else { Ok(certificates) }
}

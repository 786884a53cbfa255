//! The simulated AWS on a loopback port, with the control API beside the services.
//!
//! SDKs call it through their endpoint settings. The signature of a request names its principal and its service and is not verified:
//! only this computer can call. Its time is the computer's, and goes on with `advanceSeconds` of a change.

use crate::{Api, CONTROL_PATH, Lone, Request, Response, control, is_control};
use clap::Parser;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::Value;
use std::convert::Infallible;
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// The largest body of a request. EC2 takes less than a megabyte.
const BODY_MAX: usize = 4 << 20;
/// How long open requests are waited for at the end.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Parser)]
#[command(
    name = "whittle-fake-aws",
    about = "A simulated AWS region (EC2, IAM, SSM, EKS, Pricing) on loopback",
    after_help = "Prints its address, and serves until it is interrupted (Ctrl-C or SIGTERM). The owner's API is below /_control:\n  \
        GET /_control            time, machines, limits and faults\n  \
        POST /_control           changes prices, pools, quotas, faults, policies, checks and the clock\n  \
        GET /_control/journal    all calls\n  \
        GET /_control/events     EventBridge events since the last request for them\n\n\
        Exit codes: 0 after an interruption, 1 if the port cannot be taken, 2 for wrong arguments."
)]
struct Options {
    /// The port of 127.0.0.1; a free one if it is 0.
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[arg(long, default_value = "us-east-1")]
    region: String,
    /// The EKS cluster, whose subnets and security group have its discovery tag.
    #[arg(long, default_value = "demo")]
    cluster: String,
}

/// The server's program.
pub fn main() -> ExitCode {
    let options = Options::parse();
    let failed = |problem: String| {
        eprintln!("whittle-fake-aws: {problem}");
        ExitCode::FAILURE
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(format!("the runtime does not start: {error}")),
    };
    runtime.block_on(async {
        let listener = match TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, options.port))).await {
            Ok(listener) => listener,
            Err(error) => return failed(format!("port {} of 127.0.0.1 cannot be taken: {error}; name another with --port", options.port)),
        };
        match listener.local_addr() {
            Ok(address) => println!("http://{address}"),
            Err(error) => return failed(format!("the port has no address: {error}")),
        }
        let lone = Lone::new(&options.region, &ClusterName::new(options.cluster), Timestamp::now());
        serve(listener, Shared::new(lone), interrupted()).await;
        ExitCode::SUCCESS
    })
}

/// Ends with the first Ctrl-C or SIGTERM.
async fn interrupted() {
    #[cfg(unix)]
    if let Ok(mut ended) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = ended.recv() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// What all requests share; clones are one.
#[derive(Clone, Debug)]
pub struct Shared {
    region: Arc<Mutex<Region>>,
    identities: Option<Arc<dyn Identities>>,
}

/// Who signs with an access key, where that is kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The principal that the journal names.
    pub name: String,
    /// Its policy documents.
    pub policies: Vec<Value>,
}

/// The answer of [`Identities`]: nobody is an administrator, and an error is the reason why the key is unknown.
pub type Identified = Pin<Box<dyn Future<Output = Result<Option<Identity>, String>> + Send>>;

/// Knows the holders of access keys, and their policies.
pub trait Identities: Debug + Send + Sync {
    /// Asked at each call.
    fn of(&self, access_key: String) -> Identified;
}

#[derive(Debug)]
struct Region {
    api: Api,
    lone: Lone,
    /// How far the region's clock is ahead of the computer's.
    ahead: SignedDuration,
}

impl Shared {
    /// A region whose clock goes with the computer's from now on.
    pub fn new(lone: Lone) -> Self {
        let ahead = crate::Place::now(&lone).duration_since(Timestamp::now());
        Self { region: Arc::new(Mutex::new(Region { api: Api::default(), lone, ahead })), identities: None }
    }

    /// The same region, whose callers are these.
    #[must_use]
    pub fn identified_by(self, identities: Arc<dyn Identities>) -> Self {
        Self { identities: Some(identities), ..self }
    }

    /// Gives the caller the name and the policies that it has now; the error is the answer to a caller who is unknown.
    async fn identify(&self, asked: &mut Request) -> Result<(), Response> {
        let Some(identities) = self.identities.as_ref().filter(|_| !asked.principal.is_empty()) else { return Ok(()) };
        let refused = |body: String| Response { status: 403, content_type: "text/plain", error_type: None, body };
        let Some(identity) = identities.of(asked.principal.clone()).await.map_err(refused)? else { return Ok(()) };
        asked.principal = identity.name;
        let set = self.with(|region| region.api.access.set_policies(&asked.principal, Some(&identity.policies)));
        set.map_err(|error| refused(format!("the policies of {} cannot be judged: {error}", asked.principal)))
    }

    /// Gives its owner, who runs in the same process, the region as it is now.
    pub fn look<T>(&self, owner: impl FnOnce(&mut Lone) -> T) -> T {
        self.with(|region| {
            region.lone.set_time(Timestamp::now() + region.ahead);
            owner(&mut region.lone)
        })
    }

    fn with<T>(&self, call: impl FnOnce(&mut Region) -> T) -> T {
        call(&mut self.region.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Region {
    fn answer(&mut self, request: &Request) -> Response {
        self.lone.set_time(Timestamp::now() + self.ahead);
        if is_control(&request.path) {
            let before = crate::Place::now(&self.lone);
            let answer = control(&mut self.api, &mut self.lone, &request.method, &request.path, &request.body);
            self.ahead += crate::Place::now(&self.lone).duration_since(before);
            return answer;
        }
        if request.service.is_empty() {
            let body = format!("the request is not signed (AWS signature version 4), and is not below {CONTROL_PATH}\n");
            return Response { status: 403, content_type: "text/plain", error_type: None, body };
        }
        self.api.answer(&mut self.lone, request)
    }
}

/// Serves until `stop` ends; then requests that are open are answered.
pub async fn serve(listener: TcpListener, shared: Shared, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let stream = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // A client that is gone again is no reason to end.
                Err(_) => continue,
            },
        };
        let shared = shared.clone();
        let service = service_fn(move |request| {
            let shared = shared.clone();
            async move { Ok::<_, Infallible>(answer(&shared, request).await) }
        });
        let connection = graceful.watch(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // A client that breaks a connection off knows that it did.
            let _ = connection.await;
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

async fn answer(shared: &Shared, request: hyper::Request<Incoming>) -> hyper::Response<Full<Bytes>> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (authorization, target) = (header("authorization"), header("x-amz-target"));
    let (principal, service) = Request::signed_for(&authorization).unwrap_or_default();
    let mut asked = Request {
        service: service.to_owned(),
        principal: principal.to_owned(),
        method: request.method().to_string(),
        path: request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        target,
        body: String::new(),
    };
    let answered = match Limited::new(request.into_body(), BODY_MAX).collect().await {
        Ok(body) => {
            asked.body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            match shared.identify(&mut asked).await {
                Ok(()) => shared.with(|region| region.answer(&asked)),
                Err(refusal) => refusal,
            }
        }
        Err(error) => {
            let body = format!("the body is incomplete or larger than {BODY_MAX} bytes: {error}\n");
            Response { status: 413, content_type: "text/plain", error_type: None, body }
        }
    };
    let mut response = hyper::Response::builder().status(answered.status).header("content-type", answered.content_type);
    if let Some(kind) = answered.error_type {
        response = response.header("x-amzn-errortype", kind);
    }
    response.body(Full::new(Bytes::from(answered.body))).unwrap_or_default()
}

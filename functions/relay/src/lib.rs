//! The relay: turns a webhook call of the API server, or a signed post of a cluster's watcher, into doorbells.
//!
//! The API server always gets the response "allowed" at once: the relay must never slow or block it. The watcher gets an error when
//! a doorbell was not sent, because it posts again. An unauthenticated request triggers nothing and learns nothing.

mod secret; // of a cluster's webhook
mod recent; // doorbells that were sent a moment ago
#[cfg(test)]
mod tests;

pub use recent::Recent;
pub use secret::cluster_secret;

use serde::Deserialize;
use whittle_claims::{DecisionKind, Doorbell, POST_AGE_MAX, POST_BYTES_MAX, POST_VERSION, PostKind, WatcherPost};
use whittle_ports::{Clock, HandleError, Queues, Report, Settings, metrics, rights};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

rights! {
    /// What `relay` may do; its role in `template.yaml` allows the same.
    Queues: Queues,
}

/// Larger bodies are refused unread. An AdmissionReview of an Event is about 2 KB. That of an edited node class has the object before
/// and after, and each has its user data twice if `kubectl apply` made it: 100 KB with the largest that EC2 takes. The API server's own
/// bound is 3 MB.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// What an answer tells of a refusal.
const QUOTED_CHARS_MAX: usize = 200;
/// A webhook is called before a change is stored, so that whoever looks at once sees nothing of it yet.
const STORED_DELAY: SignedDuration = SignedDuration::from_secs(1);

/// A request to the Function URL.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `/<cluster's secret>/<cluster>` from a webhook, `/<cluster>` from a signed caller.
    pub path: &'a str,
    pub body: &'a [u8],
    /// ARN of the caller, where the URL checked an IAM signature.
    pub signed_by: Option<&'a str>,
    /// The alias of the function that was called. Each cluster with a watcher has one, named after it, with a URL of its own; only the
    /// role of that watcher may call it.
    pub alias: Option<&'a str>,
}

/// The response to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// JSON.
    pub body: String,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the request is not authenticated: sign it, or use the secret path")]
    NotAuthenticated,
    #[error("the path contains the stored secret: each cluster now has its own, see infra/README.md for how to derive it")]
    OldPath,
    #[error("cluster {0:?} is not served here: add it to the stack's parameter Clusters")]
    UnknownCluster(String),
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    #[error("the body is not an AdmissionReview: {0}")]
    NotAReview(String),
    #[error("the body is neither an AdmissionReview nor a message of the watcher: {0}")]
    NotAPost(String),
    #[error("version {0} of the watcher's message is not known here: deploy the stack of the watcher's release first")]
    UnknownVersion(u32),
    #[error("the message is of {}, more than {} s from now: correct the sender's clock", .0, POST_AGE_MAX.as_secs())]
    Stale(Timestamp),
    #[error("the message is of cluster {body} and was posted for {path}")]
    OtherCluster { path: ClusterName, body: ClusterName },
}

impl Refusal {
    /// The HTTP status of the refusal.
    const fn status(&self) -> u16 {
        match self {
            Self::NotAuthenticated | Self::OldPath | Self::OtherCluster { .. } => 403,
            Self::UnknownCluster(_) => 404,
            Self::TooLarge(_) => 413,
            Self::NotAReview(_) | Self::NotAPost(_) | Self::UnknownVersion(_) | Self::Stale(_) => 400,
        }
    }
}

/// Who asks, which decides what a body may be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Caller {
    /// An API server, by the secret of its cluster.
    Webhook(ClusterName),
    /// A role, by its signature.
    Signed(ClusterName),
    /// The same at the URL of one cluster, where only its watcher posts.
    Watcher(ClusterName),
}

/// The parts of an AdmissionReview that matter; the object itself is not read.
#[derive(Debug, Deserialize)]
struct Review {
    request: ReviewRequest,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest {
    uid: String,
    resource: ReviewResource,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
struct ReviewResource {
    resource: String,
}

/// A doorbell, and when it is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    pub doorbell: Doorbell,
    pub delay: SignedDuration,
    /// What it tells of, where that is known: a version of the cluster's objects.
    pub seen: Option<String>,
    /// Whether one that is delivered later tells of the same: a watcher gathers what it posts itself.
    pub is_gathered: bool,
}

impl Ring {
    const fn now(doorbell: Doorbell) -> Self {
        Self { doorbell, delay: SignedDuration::ZERO, seen: None, is_gathered: false }
    }
}

/// The response to a request, and the doorbells that it triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub response: Response,
    pub rings: Vec<Ring>,
    /// The response if one of them is not sent. None for a webhook, whose call is not repeated: the next tick does the work.
    pub failed: Option<Response>,
}

/// Handles a request and sends its doorbells.
pub async fn handle<P: Rights>(
    ports: P,
    settings: &Settings,
    recent: &Recent,
    request: Request<'_>,
) -> Result<(Response, Report), HandleError> {
    let mut report = Report::default();
    let verdict = match decide(settings, request, ports.clock().now()) {
        Ok(verdict) => verdict,
        Err(refusal) => {
            report.count("refused");
            let said = shortened(refusal.to_string());
            match refusal {
                Refusal::OldPath => tracing::warn!(%refusal, "request from a webhook of an earlier release"),
                // The caller is authenticated, so that it is no stranger's guess: the cluster was served, or is to be. No function works
                // for it, so that no other says it.
                Refusal::UnknownCluster(_) => {
                    report.metric(metrics::UnservedRings);
                    tracing::warn!(%said, "a cluster rings that is not served");
                }
                _ => {}
            }
            return Ok((message(refusal.status(), &said), report));
        }
    };
    let mut all_sent = true;
    for Ring { doorbell, delay, seen, is_gathered } in verdict.rings {
        let (told, now) = (doorbell.clone(), ports.clock().now());
        let later = if is_gathered { recent.delay(&told, now + delay) } else { Some(SignedDuration::ZERO) };
        let Some(later) = later else {
            report.count("covered");
            continue;
        };
        let delay = delay + later;
        let sent = match seen {
            Some(seen) => ports.queues().send_seen(doorbell, &seen).await,
            None => ports.queues().send(doorbell, delay).await,
        };
        match sent {
            Ok(()) => {
                report.count("rung");
                if is_gathered {
                    recent.sent(&told, now + delay);
                }
            }
            Err(error) => {
                all_sent = false;
                report.count("not_rung");
                report.decide(ports.clock().now(), DecisionKind::Kept, format!("cluster/{}", told.cluster()), error.to_string());
            }
        }
    }
    let response = verdict.failed.filter(|_| !all_sent).unwrap_or(verdict.response);
    Ok((response, report))
}

/// A refusal's text without most of what it quotes: that may be as large as a request.
fn shortened(text: String) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn message(status: u16, text: &str) -> Response {
    Response { status, body: serde_json::json!({ "message": text }).to_string() }
}

/// Authenticates a request and derives its doorbells. Pure.
pub fn decide(settings: &Settings, request: Request<'_>, now: Timestamp) -> Result<Verdict, Refusal> {
    // Authentication first: an unauthenticated caller learns nothing about clusters or sizes.
    let mut verdict = match authenticated(settings, request)? {
        Caller::Webhook(cluster) => verdict_of_review(cluster, request.body),
        // Something of the user's own may also forward what an API server sends it.
        Caller::Signed(cluster) if is_review(request.body) => verdict_of_review(cluster, request.body),
        Caller::Signed(cluster) | Caller::Watcher(cluster) => verdict_of_post(cluster, request.body, now),
    }?;
    // Nobody reads the queue of `sweep` where one cluster is served: `register` drains what is deleted (ADR 0071).
    if settings.clusters.len() == 1 {
        for ring in &mut verdict.rings {
            if let Doorbell::Sweep { cluster, .. } = &ring.doorbell {
                ring.doorbell = Doorbell::Deletions { cluster: cluster.clone() };
            }
        }
    }
    Ok(verdict)
}

/// Whether a signed body is to be read as an AdmissionReview: only that may be larger than what a watcher posts.
fn is_review(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Probe {
        request: Option<serde::de::IgnoredAny>,
    }
    body.len() > POST_BYTES_MAX || serde_json::from_slice::<Probe>(body).is_ok_and(|probe| probe.request.is_some())
}

fn verdict_of_review(cluster: ClusterName, body: &[u8]) -> Result<Verdict, Refusal> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Refusal::TooLarge(BODY_BYTES_MAX));
    }
    let review: Review = serde_json::from_slice(body).map_err(|error| Refusal::NotAReview(error.to_string()))?;
    let answer = serde_json::json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review.request.uid, "allowed": true},
    });
    let ring = if review.request.dry_run { None } else { ring_of(&review.request, cluster) };
    Ok(Verdict { response: Response { status: 200, body: answer.to_string() }, rings: Vec::from_iter(ring), failed: None })
}

fn ring_of(request: &ReviewRequest, cluster: ClusterName) -> Option<Ring> {
    match request.resource.resource.as_str() {
        // The webhook lets only FailedScheduling events through.
        "events" | "pods" => Some(Ring::now(Doorbell::Schedule { cluster })),
        "nodes" | "nodeclaims" if request.operation == "DELETE" => {
            Some(Ring { delay: STORED_DELAY, is_gathered: true, ..Ring::now(Doorbell::Sweep { cluster, is_tick: false }) })
        }
        "nodes" => Some(Ring { is_gathered: true, ..Ring::now(Doorbell::Register { cluster, is_tick: false }) }),
        "nodeclaims" => Some(Ring { is_gathered: true, ..Ring::now(Doorbell::Sweep { cluster, is_tick: false }) }),
        // Whoever applies one often applies several, and nothing else bounds how often: each would be a run that asks EC2. What a run does
        // not see yet would wait for the scheduled one, which is minutes away.
        "nodepools" | "provisioners" | "ec2nodeclasses" | "awsnodetemplates" => {
            Some(Ring { delay: STORED_DELAY, is_gathered: true, ..Ring::now(Doorbell::Refresh { cluster }) })
        }
        _ => None,
    }
}

fn verdict_of_post(cluster: ClusterName, body: &[u8], now: Timestamp) -> Result<Verdict, Refusal> {
    if body.len() > POST_BYTES_MAX {
        return Err(Refusal::TooLarge(POST_BYTES_MAX));
    }
    let post: WatcherPost = serde_json::from_slice(body).map_err(|error| Refusal::NotAPost(error.to_string()))?;
    if post.version != POST_VERSION {
        return Err(Refusal::UnknownVersion(post.version));
    }
    if post.cluster != cluster {
        return Err(Refusal::OtherCluster { path: cluster, body: post.cluster });
    }
    if !post.is_fresh(now) {
        return Err(Refusal::Stale(post.sent_at));
    }
    let seen = |kind| post.seen().filter(|_| kind == PostKind::Pods).map(str::to_owned);
    let rings = post.known_kinds().map(|kind| Ring { seen: seen(kind), ..Ring::now(kind.doorbell(cluster.clone())) }).collect();
    let failed = message(503, "a doorbell was not sent: post again");
    Ok(Verdict { response: message(200, "sent"), rings, failed: Some(failed) })
}

fn authenticated(settings: &Settings, request: Request<'_>) -> Result<Caller, Refusal> {
    let path = request.path.trim_matches('/');
    let (secret, cluster) = match path.split_once('/') {
        Some((secret, cluster)) => (Some(secret), cluster),
        None => (None, path),
    };
    // Where a URL is for one cluster, nothing authenticates another.
    let is_at_its_url = request.alias.is_none_or(|alias| alias == cluster);
    let by_secret = request.alias.is_none() && secret.is_some_and(|given| secret::authenticates(settings, given, cluster));
    let by_signature = is_at_its_url && request.signed_by.is_some_and(|caller| settings.permits_caller(cluster, caller));
    if !by_secret && !by_signature {
        let is_old = secret.is_some_and(|given| secret::is_stored(settings, given));
        return Err(if is_old { Refusal::OldPath } else { Refusal::NotAuthenticated });
    }
    let known = settings.clusters.iter().find(|known| known.as_str() == cluster);
    let known = known.cloned().ok_or_else(|| Refusal::UnknownCluster(cluster.to_owned()))?;
    Ok(match request.alias {
        Some(_) => Caller::Watcher(known),
        None if by_secret => Caller::Webhook(known),
        None => Caller::Signed(known),
    })
}

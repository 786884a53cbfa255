//! The relay: turns a webhook call of the API server, or a signed request from inside a cluster, into a doorbell.
//!
//! The API server always gets the response "allowed" at once: the relay must never slow or block it. An unauthenticated request
//! triggers nothing and learns nothing.

mod secret;
#[cfg(test)]
mod tests;

pub use secret::cluster_secret;

use serde::Deserialize;
use whittle_claims::{DecisionKind, Doorbell};
use whittle_ports::{Clock, HandleError, Queues, Report, Settings, rights};
use whittle_units::ClusterName;

rights! {
    /// What `relay` may do; its role in `template.yaml` allows the same.
    Queues: Queues,
}

/// Larger bodies are refused unread. An AdmissionReview of an Event is about 2 KB; the API server's own bound is 3 MB.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// A request to the Function URL.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `/<cluster's secret>/<cluster>` from a webhook, `/<cluster>` from a signed caller.
    pub path: &'a str,
    pub body: &'a [u8],
    /// ARN of the caller, where the URL checked an IAM signature.
    pub signed_by: Option<&'a str>,
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
    #[error("the body has more than {BODY_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the body is not an AdmissionReview: {0}")]
    NotAReview(String),
}

impl Refusal {
    /// The HTTP status of the refusal.
    const fn status(&self) -> u16 {
        match self {
            Self::NotAuthenticated | Self::OldPath => 403,
            Self::UnknownCluster(_) => 404,
            Self::TooLarge => 413,
            Self::NotAReview(_) => 400,
        }
    }
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
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
struct ReviewResource {
    resource: String,
}

/// The response to a request, and the doorbell that it triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub response: Response,
    pub doorbell: Option<Doorbell>,
}

/// Handles a request and sends its doorbell. A failure to send does not change the response: the next tick does the work.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, request: Request<'_>) -> Result<(Response, Report), HandleError> {
    let mut report = Report::default();
    let verdict = match decide(settings, request) {
        Ok(verdict) => verdict,
        Err(refusal) => {
            report.count("refused");
            if refusal == Refusal::OldPath {
                tracing::warn!(%refusal, "request from a webhook of an earlier release");
            }
            let body = serde_json::json!({"message": refusal.to_string()}).to_string();
            return Ok((Response { status: refusal.status(), body }, report));
        }
    };
    if let Some(doorbell) = verdict.doorbell {
        let cluster = doorbell.cluster().clone();
        match ports.queues().send_now(doorbell).await {
            Ok(()) => report.count("rung"),
            Err(error) => {
                report.count("not_rung");
                report.decide(ports.clock().now(), DecisionKind::Kept, format!("cluster/{cluster}"), error.to_string());
            }
        }
    }
    Ok((verdict.response, report))
}

/// Authenticates a request and derives its doorbell. Pure.
pub fn decide(settings: &Settings, request: Request<'_>) -> Result<Verdict, Refusal> {
    // Authentication first: an unauthenticated caller learns nothing about clusters or sizes.
    let cluster = authenticated_cluster(settings, request)?;
    if request.body.len() > BODY_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    let review: Review = serde_json::from_slice(request.body).map_err(|error| Refusal::NotAReview(error.to_string()))?;
    let answer = serde_json::json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review.request.uid, "allowed": true},
    });
    let doorbell = if review.request.dry_run { None } else { doorbell_of(&review.request.resource.resource, cluster) };
    Ok(Verdict { response: Response { status: 200, body: answer.to_string() }, doorbell })
}

fn doorbell_of(resource: &str, cluster: ClusterName) -> Option<Doorbell> {
    match resource {
        // The webhook lets only FailedScheduling events through.
        "events" | "pods" => Some(Doorbell::Schedule { cluster }),
        "nodes" => Some(Doorbell::Register { cluster }),
        "nodeclaims" | "nodepools" => Some(Doorbell::Sweep { cluster }),
        "ec2nodeclasses" => Some(Doorbell::Refresh { cluster }),
        _ => None,
    }
}

fn authenticated_cluster(settings: &Settings, request: Request<'_>) -> Result<ClusterName, Refusal> {
    let path = request.path.trim_matches('/');
    let (secret, cluster) = match path.split_once('/') {
        Some((secret, cluster)) => (Some(secret), cluster),
        None => (None, path),
    };
    let by_secret = secret.is_some_and(|given| secret::authenticates(settings, given, cluster));
    let by_signature = request.signed_by.is_some_and(|caller| settings.permits_caller(cluster, caller));
    if !by_secret && !by_signature {
        let is_old = secret.is_some_and(|given| secret::is_stored(settings, given));
        return Err(if is_old { Refusal::OldPath } else { Refusal::NotAuthenticated });
    }
    let known = settings.clusters.iter().find(|known| known.as_str() == cluster);
    known.cloned().ok_or_else(|| Refusal::UnknownCluster(cluster.to_owned()))
}

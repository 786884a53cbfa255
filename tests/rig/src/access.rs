//! The API server's side of EKS: who calls with a token of AWS, and which groups of the cluster the access entry of that role has.
//!
//! The control plane knows nothing of AWS. So the endpoint that EKS names is this server: it takes a function's token apart as EKS
//! does, and passes the request on in the name of the function, by impersonation. RBAC, priority levels and admission therefore see
//! the groups of `infra/README.md`. Where access is checked, STS is asked who signed the token, and its role has its own groups alone.

use crate::account::{AccessEntries, USER_KEY};
use crate::emulator::{Emulator, text_of};
use crate::http_server;
use crate::roles;
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kube::Client;
use kube::client::Body;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const PREFIX: &str = "k8s-aws-v1.";
/// All groups of `infra/cluster/rbac.yaml`.
pub(crate) const GROUPS: [&str; 5] = ["whittle:read", "whittle:plan", "whittle:nodes", "whittle:terminate", "whittle:refresh"];
const USER: &str = "whittle";

/// The file in the rig's folder with what the API server refused for want of a right, a line each.
pub(crate) const REFUSED: &str = "refused";

/// What is behind the endpoint.
pub(crate) struct Gate {
    client: Client,
    entries: AccessEntries,
    checked: Option<Checked>,
}

/// Where tokens are verified.
struct Checked {
    emulator: Emulator,
    /// The cluster that they must be bound to.
    cluster: String,
    /// Whose they are: each is sent until it expires.
    callers: Mutex<BTreeMap<String, String>>,
    refused: PathBuf,
}

/// Who a request is passed on as.
struct Caller {
    user: String,
    groups: BTreeSet<String>,
}

impl Gate {
    /// Takes the tokens' word for who sent them.
    pub(crate) fn trusting(client: Client, entries: AccessEntries) -> Self {
        Self { client, entries, checked: None }
    }

    /// Has the emulator's STS verify tokens; `folder` gets [`REFUSED`].
    pub(crate) fn checking(client: Client, entries: AccessEntries, emulator: Emulator, (cluster, folder): (&str, &Path)) -> Self {
        let checked = Checked { emulator, cluster: cluster.to_owned(), callers: Mutex::default(), refused: folder.join(REFUSED) };
        Self { client, entries, checked: Some(checked) }
    }

    /// Serves the cluster's endpoint.
    pub(crate) async fn serve(self, listener: TcpListener, acceptor: TlsAcceptor) {
        let gate = Arc::new(self);
        let answer = move |request| {
            let gate = Arc::clone(&gate);
            async move { gate.answer(request).await }
        };
        http_server::serve(listener, Some(acceptor), answer).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match self.pass_on(request).await {
            Ok(answer) => answer,
            Err((status, problem)) => refused(status, &problem),
        }
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Result<Response<Body>, (StatusCode, String)> {
        let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let caller = self.caller(bearer).await.map_err(|problem| (StatusCode::UNAUTHORIZED, format!("{problem:#}")))?;
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        parts.uri = path.parse().map_err(|_| (StatusCode::BAD_REQUEST, format!("{path} is no path")))?;
        parts.headers.remove(AUTHORIZATION);
        parts.headers.remove(HOST);
        let asked = format!("{} {path}", parts.method);
        // Whoever made the cluster has all rights in it.
        if let Some(caller) = &caller {
            let value = |text: &str| HeaderValue::from_str(text).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()));
            parts.headers.insert("impersonate-user", value(&caller.user)?);
            for group in &caller.groups {
                parts.headers.append("impersonate-group", value(group)?);
            }
        }
        let body = body.collect().await.map_err(|error| (StatusCode::BAD_REQUEST, format!("the body is incomplete: {error}")))?;
        let gone = |error: kube::Error| (StatusCode::BAD_GATEWAY, format!("the API server does not answer: {error}"));
        let answer = self.client.send(Request::from_parts(parts, Body::from(body.to_bytes()))).await.map_err(gone)?;
        if let (StatusCode::FORBIDDEN, Some(checked), Some(caller)) = (answer.status(), &self.checked, &caller) {
            checked.note(&format!("{} may not {asked}", caller.user));
        }
        Ok(answer)
    }

    /// Who sent a token; nobody for whoever made the cluster.
    async fn caller(&self, bearer: &str) -> Result<Option<Caller>> {
        let Token { key, url } = Token::of(bearer)?;
        if key == USER_KEY {
            return Ok(None);
        }
        let Some(checked) = &self.checked else {
            let groups = self.entries.groups();
            anyhow::ensure!(!groups.is_empty(), "no access entry lets the functions in");
            return Ok(Some(Caller { user: USER.to_owned(), groups }));
        };
        let user = checked.signed_by(&url, &checked.cluster).await?;
        let role = roles::role_of(&user).with_context(|| format!("{user} is no session of a role"))?;
        let groups = self.entries.groups_of(&roles::arn(&role)).with_context(|| format!("no access entry lets {role} in"))?;
        Ok(Some(Caller { user, groups }))
    }
}

impl Checked {
    /// The session that signed a token, by STS.
    async fn signed_by(&self, url: &str, cluster: &str) -> Result<String> {
        let kept = self.callers.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned();
        if let Some(caller) = kept {
            return Ok(caller);
        }
        let (host, path) = url.strip_prefix("https://").and_then(|rest| rest.split_once('/')).context("the token is no URL of STS")?;
        let answer = self.emulator.look(&format!("/{path}"), &[("host", host), ("x-k8s-aws-id", cluster)]).await?;
        let caller = text_of(&answer, "Arn").with_context(|| format!("STS names nobody: {answer}"))?;
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).insert(url.to_owned(), caller.clone());
        Ok(caller)
    }

    fn note(&self, refusal: &str) {
        let file = OpenOptions::new().create(true).append(true).open(&self.refused);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{refusal}")) {
            eprintln!("{refusal}, which {} does not say: {error}", self.refused.display());
        }
    }
}

/// A token, taken apart as EKS does.
struct Token {
    /// The access key that signed it.
    key: String,
    /// The call of STS that it is.
    url: String,
}

impl Token {
    /// What EKS asks of a token before it asks STS who sent it.
    fn of(authorization: &str) -> Result<Self> {
        let token =
            authorization.strip_prefix("Bearer ").and_then(|token| token.strip_prefix(PREFIX)).context("there is no token of AWS")?;
        let url = String::from_utf8(URL_SAFE_NO_PAD.decode(token)?)?;
        let query = url.split_once('?').map(|(_, query)| query).context("the token is no URL")?;
        let fields: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default();
        anyhow::ensure!(field("Action") == "GetCallerIdentity", "the token asks for {:?}", field("Action"));
        anyhow::ensure!(field("X-Amz-SignedHeaders").contains("x-k8s-aws-id"), "the token is bound to no cluster");
        let key = field("X-Amz-Credential").split('/').next().unwrap_or_default().to_owned();
        Ok(Self { key, url })
    }
}

fn refused(status: StatusCode, problem: &str) -> Response<Body> {
    let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(), "message": problem,
        "reason": if status == StatusCode::UNAUTHORIZED { "Unauthorized" } else { "InternalError" }});
    let mut answer = Response::new(Body::from(body.to_string().into_bytes()));
    *answer.status_mut() = status;
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_for_a_cluster_are_taken() {
        let token =
            |query: &str| format!("Bearer {PREFIX}{}", URL_SAFE_NO_PAD.encode(format!("https://sts.us-west-2.amazonaws.com/?{query}")));
        let good = "Action=GetCallerIdentity&X-Amz-Credential=AKIA1%2F20260101&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id";
        assert_eq!(Token::of(&token(good)).unwrap().key, "AKIA1");
        for wrong in ["", "Bearer abc", &token("Action=GetCallerIdentity&X-Amz-SignedHeaders=host"), &token("Action=AssumeRole")] {
            assert!(Token::of(wrong).is_err(), "{wrong}");
        }
    }
}

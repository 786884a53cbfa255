//! The API server's side of EKS: who calls with a token of AWS, and which groups of the cluster the access entry of that role has.
//!
//! The control plane knows nothing of AWS. So the endpoint that EKS names is this server: it takes a function's token apart as EKS
//! does, and passes the request on in the name of the function, by impersonation. RBAC, priority levels and admission therefore see
//! the groups of `infra/README.md`.

use crate::account::{AccessEntries, USER_KEY};
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use std::convert::Infallible;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const PREFIX: &str = "k8s-aws-v1.";
/// All groups of `infra/cluster/rbac.yaml`.
pub(crate) const GROUPS: [&str; 5] = ["whittle:read", "whittle:plan", "whittle:nodes", "whittle:terminate", "whittle:refresh"];
const USER: &str = "whittle";

/// Serves the cluster's endpoint.
pub(crate) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, client: Client, entries: AccessEntries) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (acceptor, client, entries) = (acceptor.clone(), client.clone(), entries.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| {
                let (client, entries) = (client.clone(), entries.clone());
                async move { Ok::<_, Infallible>(answer(&client, &entries, request).await) }
            });
            // A client that breaks a connection off knows that it did.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(client: &Client, entries: &AccessEntries, request: Request<Incoming>) -> Response<Body> {
    match pass_on(client, entries, request).await {
        Ok(answer) => answer,
        Err((status, problem)) => refused(status, &problem),
    }
}

async fn pass_on(client: &Client, entries: &AccessEntries, request: Request<Incoming>) -> Result<Response<Body>, (StatusCode, String)> {
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = check(bearer).map_err(|problem| (StatusCode::UNAUTHORIZED, problem.to_string()))?;
    let groups = entries.groups();
    if key != USER_KEY && groups.is_empty() {
        return Err((StatusCode::UNAUTHORIZED, "no access entry lets the functions in".to_owned()));
    }
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().map_err(|_| (StatusCode::BAD_REQUEST, format!("{path} is no path")))?;
    parts.headers.remove(AUTHORIZATION);
    parts.headers.remove(HOST);
    // Whoever made the cluster has all rights in it.
    if key != USER_KEY {
        parts.headers.insert("impersonate-user", HeaderValue::from_static(USER));
        for group in groups.iter().filter_map(|group| HeaderValue::from_str(group).ok()) {
            parts.headers.append("impersonate-group", group);
        }
    }
    let body = body.collect().await.map_err(|error| (StatusCode::BAD_REQUEST, format!("the body is incomplete: {error}")))?;
    let gone = |error: kube::Error| (StatusCode::BAD_GATEWAY, format!("the API server does not answer: {error}"));
    client.send(Request::from_parts(parts, Body::from(body.to_bytes()))).await.map_err(gone)
}

/// What EKS asks of a token before it asks STS who sent it; the access key of who that is.
fn check(authorization: &str) -> Result<String> {
    let token = authorization.strip_prefix("Bearer ").and_then(|token| token.strip_prefix(PREFIX)).context("there is no token of AWS")?;
    let url = String::from_utf8(URL_SAFE_NO_PAD.decode(token)?)?;
    let query = url.split_once('?').map(|(_, query)| query).context("the token is no URL")?;
    let fields: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default();
    anyhow::ensure!(field("Action") == "GetCallerIdentity", "the token asks for {:?}", field("Action"));
    anyhow::ensure!(field("X-Amz-SignedHeaders").contains("x-k8s-aws-id"), "the token is bound to no cluster");
    Ok(field("X-Amz-Credential").split('/').next().unwrap_or_default().to_owned())
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
        assert_eq!(check(&token(good)).unwrap(), "AKIA1");
        for wrong in ["", "Bearer abc", &token("Action=GetCallerIdentity&X-Amz-SignedHeaders=host"), &token("Action=AssumeRole")] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}

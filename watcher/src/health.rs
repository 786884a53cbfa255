//! The answers to the kubelet's probes.

use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections that are served at once, and how long each may take: a probe is one short request.
const CONNECTIONS_MAX: usize = 16;
const CONNECTION_MAX: Duration = Duration::from_secs(5);

/// Whether both watches have read their first list.
pub(crate) type Ready = Arc<AtomicBool>;

/// Serves `/livez` and `/readyz` until it is dropped.
pub(crate) async fn serve(listener: TcpListener, ready: Ready) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // No file descriptors are left, for example.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let ready = Arc::clone(&ready);
        tokio::spawn(async move {
            let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                let status = status_of(request.method(), request.uri().path(), ready.load(Ordering::Relaxed));
                let mut response = Response::new(Full::new(Bytes::from_static(if status == StatusCode::OK { b"ok\n" } else { b"no\n" })));
                *response.status_mut() = status;
                std::future::ready(Ok::<_, Infallible>(response))
            });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A probe that breaks off is the kubelet's to report.
            drop(tokio::time::timeout(CONNECTION_MAX, connection).await);
            drop(permit);
        });
    }
}

fn status_of(method: &Method, path: &str, is_ready: bool) -> StatusCode {
    match path {
        "/livez" | "/readyz" if method != Method::GET && method != Method::HEAD => StatusCode::METHOD_NOT_ALLOWED,
        "/readyz" if !is_ready => StatusCode::SERVICE_UNAVAILABLE,
        "/livez" | "/readyz" => StatusCode::OK,
        _ => StatusCode::NOT_FOUND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_is_ready_once_it_has_read_its_lists() {
        for (method, path, is_ready, expected) in [
            (Method::GET, "/livez", false, 200),
            (Method::GET, "/readyz", false, 503),
            (Method::GET, "/readyz", true, 200),
            (Method::POST, "/livez", true, 405),
            (Method::GET, "/", true, 404),
        ] {
            assert_eq!(status_of(&method, path, is_ready).as_u16(), expected, "{method} {path} {is_ready}");
        }
    }
}

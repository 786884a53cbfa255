//! The relay's Function URL by https, as API servers call it: the emulator serves it by http, and knows it by its host.

use crate::emulator::Emulator;
use crate::http_server;
use http::header::{HOST, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Where the requests go.
struct Target {
    emulator: String,
    /// The relay's host; without one it is the caller's.
    host: Option<HeaderValue>,
    client: Client<HttpConnector, Incoming>,
}

/// Serves the Function URL.
pub(crate) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, emulator: &Emulator, host: Option<HeaderValue>) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let target = Arc::new(Target { emulator: emulator.endpoint().to_owned(), host, client });
    let answer = move |request| {
        let target = Arc::clone(&target);
        async move { target.pass_on(request).await }
    };
    http_server::serve(listener, Some(acceptor), answer).await;
}

type Body = http_body_util::Either<Incoming, Full<Bytes>>;

impl Target {
    async fn pass_on(&self, mut request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        if let Ok(uri) = format!("{}{path}", self.emulator).parse() {
            *request.uri_mut() = uri;
        }
        if let Some(host) = &self.host {
            request.headers_mut().insert(HOST, host.clone());
        }
        match self.client.request(request).await {
            Ok(answer) => answer.map(Body::Left),
            Err(error) => {
                let text = format!("the emulator does not answer: {error}\n");
                let mut answer = Response::new(Body::Right(Full::from(text)));
                *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
                answer
            }
        }
    }
}

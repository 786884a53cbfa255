//! The servers of the rig: whoever connects is answered, each connection beside the others.

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Serves http, or https with `tls`, for good.
pub(crate) async fn serve<F, A, B>(listener: TcpListener, tls: Option<TlsAcceptor>, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let answer = Arc::new(answer);
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (tls, answer) = (tls.clone(), Arc::clone(&answer));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            match tls {
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    serve_connection(stream, answer).await;
                }
                None => serve_connection(stream, answer).await,
            }
        });
    }
}

async fn serve_connection<S, F, A, B>(stream: S, answer: Arc<F>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    // A client that breaks a connection off knows that it did.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

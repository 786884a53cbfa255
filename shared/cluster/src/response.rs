//! Reads responses: their bodies, compressed or not, and what a failed request answers.

use crate::errors::Failure;
use crate::watch::Watch;
use flate2::write::GzDecoder;
use http::{HeaderMap, Response, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use std::io::{self, Write};
use std::time::Duration;
use whittle_api::protobuf;

/// The longest body that is read, decompressed. Lists that are too long to be pages end far below it.
pub(crate) const BODY_MAX: usize = 512 << 20;
/// How much of an answer that is no status is shown.
const SHOWN_MAX: usize = 200;

/// The parts of a `Status` that we use. All may be missing: proxies answer as well.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) message: String,
    pub(crate) reason: String,
    pub(crate) details: Option<StatusDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StatusDetails {
    pub(crate) name: String,
    pub(crate) causes: Option<Vec<StatusCause>>,
    pub(crate) retry_after_seconds: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusCause {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The field of the object that is refused, if it is one.
    pub(crate) field: String,
}

/// The body of a successful response, which probably has about `length` bytes, and has at most `limit`.
pub(crate) async fn read(response: Response<Body>, length: usize, limit: usize) -> Result<Vec<u8>, Failure> {
    let (head, body) = response.into_parts();
    let bytes = Vec::with_capacity(length.min(limit));
    let bytes = read_body(&head.headers, body, Limited { bytes, limit }).await?;
    if head.status.is_success() { Ok(bytes) } else { Err(failure(head.status.as_u16(), &head.headers, &bytes)) }
}

/// The body of a successful response to a watch, while it arrives.
pub(crate) async fn watch(response: Response<Body>) -> Result<Watch, Failure> {
    if response.status().is_success() {
        let (head, body) = response.into_parts();
        return Ok(Watch::new(&head.headers, body));
    }
    read(response, 0, BODY_MAX).await.and(Err(Failure::unknown("it is no watch".to_owned())))
}

/// The failure that a response reports.
fn failure(code: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
    let status = if protobuf::is_protobuf(body) { protobuf::read_status(body).ok() } else { serde_json::from_slice(body).ok() };
    let status = status.unwrap_or_else(|| {
        let message = String::from_utf8_lossy(&body[..body.len().min(SHOWN_MAX)]).trim().to_owned();
        Status { message, ..Status::default() }
    });
    // Requests that are turned away before they are looked at (priority and fairness, too many in flight) only get the header.
    let pause = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Failure::of_status(code, &status, pause.map(Duration::from_secs))
}

async fn read_body(headers: &HeaderMap, mut body: Body, into: Limited) -> Result<Vec<u8>, Failure> {
    let mut bytes = match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"" | b"identity") => Decoder::Plain(into),
        Some(b"gzip") => Decoder::Gzip(Box::new(GzDecoder::new(into))),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            return Err(Failure::unknown(format!("its response has the encoding {other:?}, which was not asked for")));
        }
    };
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.write(&data).map_err(|error| Failure::of_body(&error))?;
        }
    }
    bytes.finish().map_err(|error| Failure::of_body(&error))
}

/// Decompresses a body while it arrives, so that it is never in memory twice.
enum Decoder {
    Plain(Limited),
    Gzip(Box<GzDecoder<Limited>>),
}

impl Decoder {
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(bytes) => bytes.write_all(data),
            Self::Gzip(decoder) => decoder.write_all(data),
        }
    }

    /// The whole body; an error if a compressed one is cut off.
    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain(body) => Ok(body.bytes),
            Self::Gzip(decoder) => Ok(decoder.finish()?.bytes),
        }
    }
}

/// Bytes up to a limit: a small compressed body may be a very long one.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Limited {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > self.limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {} bytes", self.limit)));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Class;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory has room");
        encoder.finish().expect("memory has room")
    }

    async fn decoded(encoding: &'static str, bytes: Vec<u8>, limit: usize) -> Result<Vec<u8>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, encoding.parse().expect("a header"));
        let read = read_body(&headers, Body::from(bytes), Limited { bytes: Vec::new(), limit }).await;
        read.map_err(|failure| format!("{:?}: {}", failure.class, failure.message))
    }

    #[tokio::test]
    async fn compressed_bodies_are_decompressed_whole_or_refused() {
        let body = vec![b'a'; 100_000];
        let compressed = gzipped(&body);
        assert_eq!(decoded("gzip", compressed.clone(), 100_000).await.expect("it fits"), body);
        assert_eq!(decoded("identity", body.clone(), 100_000).await.expect("it fits"), body);
        for length in [0, 5, 20, compressed.len() - 9, compressed.len() - 1] {
            let error = decoded("gzip", compressed[..length].to_vec(), 100_000).await.expect_err("it is cut off");
            assert!(error.starts_with("Unknown: "), "{error}");
        }
        for (encoding, body) in [("gzip", compressed), ("identity", body)] {
            let error = decoded(encoding, body, 99_999).await.expect_err("it is too long");
            assert!(error.starts_with("TooLong: ") && error.contains("99999 bytes"), "{error}");
        }
        assert!(decoded("br", vec![], 1).await.expect_err("we do not ask for it").contains("\"br\""));
        assert!(decoded("gzip", b"<html>".to_vec(), 100).await.is_err());
    }

    #[test]
    fn the_pause_is_that_of_the_body_or_of_the_header() {
        let pause = |header: &'static str, body: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, header.parse().expect("a header"));
            let failure = failure(429, &headers, body.as_bytes());
            assert_eq!(failure.class, Class::Throttled);
            failure.retry_after.map(|pause| pause.as_secs())
        };
        assert_eq!(pause("3", "Too many requests, please try again later."), Some(3));
        assert_eq!(pause("3", r#"{"kind":"Status","details":{"retryAfterSeconds":2,"causes":null}}"#), Some(2));
        assert_eq!(pause("60", "Too many requests"), None, "the next invocation comes sooner");
        assert_eq!(pause("Wed, 21 Oct 2026 07:28:00 GMT", "Too many requests"), Some(1));
    }

    #[test]
    fn an_answer_that_is_no_status_is_shown_shortened() {
        let html = format!("<html>{}", "ä".repeat(1_000));
        let failure = failure(502, &HeaderMap::new(), html.as_bytes());
        assert_eq!(failure.class, Class::Unknown);
        assert!(failure.message.starts_with("<html>ä") && failure.message.len() < 2 * SHOWN_MAX, "{}", failure.message);
    }
}

//! The events of a watch: changes of objects, one after another, as lines of JSON or in protobuf.

use crate::errors::Failure;
use crate::kept::Followed;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use whittle_api::k8s::Kind;
use whittle_api::{Unreadable, protobuf};

/// The longest change: an object of more than etcd's limit, as JSON.
const CHANGE_MAX: usize = 8 << 20;
/// Protobuf has the length of a change before it, in as many bytes.
const LENGTH: usize = 4;

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WatchEvent<T> {
    /// The object is new, or has changed.
    Applied(Result<T, Box<Unreadable>>),
    /// The object is gone; its last state.
    Deleted(Result<T, Box<Unreadable>>),
    /// Everything up to this version has been sent.
    Bookmark(String),
    /// The watch ends, for this reason: versions as old as its own are gone, for example.
    Error(String),
}

/// How objects are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    /// How those of a kind are asked for. A server that does not know the kind in protobuf answers in JSON.
    pub(crate) const fn of<K: Kind>() -> Self {
        if K::PROTOBUF.is_some() { Self::Protobuf } else { Self::Json }
    }
}

/// An open watch.
pub(crate) struct Watch {
    body: Body,
    arrived: Arrived,
}

impl Watch {
    pub(crate) fn new(headers: &HeaderMap, body: Body) -> Self {
        let is_protobuf = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(protobuf::CONTENT_TYPE.as_bytes()));
        Self { body, arrived: Arrived::new(if is_protobuf { Encoding::Protobuf } else { Encoding::Json }) }
    }

    /// The next change; `None` at the end. Nothing is lost if it is not waited for to the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Change>, Failure> {
        loop {
            if let Some(change) = self.arrived.next().map_err(Failure::unknown)? {
                return Ok(Some(change));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.arrived.bytes.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// A change that was not read yet.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    Json(Vec<u8>),
    Protobuf(Vec<u8>),
}

/// What has arrived and was not returned yet.
struct Arrived {
    bytes: Vec<u8>,
    encoding: Encoding,
}

impl Arrived {
    const fn new(encoding: Encoding) -> Self {
        Self { bytes: Vec::new(), encoding }
    }

    /// The next whole change.
    fn next(&mut self) -> Result<Option<Change>, String> {
        let end = match self.encoding {
            Encoding::Protobuf => {
                let length = self.bytes.first_chunk::<LENGTH>().map(|length| u32::from_be_bytes(*length) as usize + LENGTH);
                length.filter(|end| *end > CHANGE_MAX || self.bytes.len() >= *end)
            }
            Encoding::Json => self.bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1),
        };
        if end.unwrap_or(self.bytes.len()) > CHANGE_MAX {
            return Err(format!("a change is longer than {CHANGE_MAX} bytes"));
        }
        let Some(end) = end else { return Ok(None) };
        let mut change: Vec<u8> = self.bytes.drain(..end).collect();
        Ok(Some(match self.encoding {
            Encoding::Protobuf => Change::Protobuf(change.split_off(LENGTH)),
            Encoding::Json => Change::Json(change),
        }))
    }
}

impl Change {
    /// Reads the change.
    pub(crate) fn read<T: Followed>(&self) -> Result<WatchEvent<T>, String> {
        let unreadable = |error: &dyn std::fmt::Display| format!("a change cannot be read: {error}");
        match self {
            Self::Json(line) => {
                let mut line: Value = serde_json::from_slice(line).map_err(|error| unreadable(&error))?;
                let object = line["object"].take();
                let version = || object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                let message = || object["message"].as_str().unwrap_or("without a message").to_owned();
                event_of(line["type"].as_str().unwrap_or_default(), || Ok(T::read(&object)), version, message)
            }
            Self::Protobuf(change) => {
                let (kind, object) = protobuf::read_change(change).map_err(|error| unreadable(&error))?;
                let read = || T::read_protobuf(object).map_err(|error| unreadable(&error));
                let version = || {
                    T::read_protobuf(object).ok().and_then(Result::ok).map_or_else(String::new, |item| item.meta().resource_version.clone())
                };
                let message = || {
                    protobuf::read_status(object).map_or_else(|error| error.to_string(), |status: crate::response::Status| status.message)
                };
                event_of(&kind, read, version, message)
            }
        }
    }
}

fn event_of<T>(
    kind: &str,
    object: impl Fn() -> Result<Result<T, Box<Unreadable>>, String>,
    version: impl Fn() -> String,
    message: impl Fn() -> String,
) -> Result<WatchEvent<T>, String> {
    match kind {
        "ADDED" | "MODIFIED" => object().map(WatchEvent::Applied),
        "DELETED" => object().map(WatchEvent::Deleted),
        "BOOKMARK" => Ok(WatchEvent::Bookmark(version())),
        "ERROR" => Ok(WatchEvent::Error(message())),
        other => Err(format!("a change has the type {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_api::k8s::Node;

    /// All changes, as they arrive in pieces.
    fn changes(bytes: &[u8], encoding: Encoding, size: usize) -> Vec<Change> {
        let (mut arrived, mut found) = (Arrived::new(encoding), Vec::new());
        for piece in bytes.chunks(size) {
            arrived.bytes.extend_from_slice(piece);
            while let Some(change) = arrived.next().expect("a change") {
                found.push(change);
            }
        }
        found
    }

    #[test]
    fn changes_may_come_in_pieces_or_together() {
        let line = |kind: &str, version: u64| {
            format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n")
        };
        let text = line("ADDED", 1) + &line("BOOKMARK", 2) + &line("DELETED", 3);
        for size in [1, 7, 1000] {
            let versions: Vec<String> = changes(text.as_bytes(), Encoding::Json, size)
                .iter()
                .map(|change| match change.read::<Node>().expect("it can be read") {
                    WatchEvent::Applied(node) | WatchEvent::Deleted(node) => node.expect("a node").metadata.resource_version,
                    WatchEvent::Bookmark(version) => version,
                    ended @ WatchEvent::Error(_) => panic!("{ended:?}"),
                })
                .collect();
            assert_eq!(versions, ["1", "2", "3"], "pieces of {size}");
            let framed = [&[0, 0, 0, 2][..], b"ab", &[0, 0, 0, 0], &[0, 0, 0, 1], b"c"].concat();
            let expected = [b"ab".to_vec(), Vec::new(), b"c".to_vec()].map(Change::Protobuf);
            assert_eq!(changes(&framed, Encoding::Protobuf, size), expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_change_without_an_end_is_not_collected_for_ever() {
        for (encoding, bytes) in [(Encoding::Json, vec![b'x'; CHANGE_MAX + 1]), (Encoding::Protobuf, vec![0xff; 5])] {
            assert!(Arrived { bytes, encoding }.next().is_err());
        }
        assert_eq!(Arrived { bytes: vec![b'x'; CHANGE_MAX], encoding: Encoding::Json }.next(), Ok(None));
    }

    #[test]
    fn why_a_watch_ends_is_known_and_nonsense_is_an_error() {
        let read = |line: &[u8]| Change::Json(line.to_vec()).read::<Node>();
        let expired = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}"#;
        assert_eq!(read(expired), Ok(WatchEvent::Error("too old resource version".to_owned())));
        for nonsense in [&b"<html>"[..], b"{}", br#"{"type":"RENAMED","object":{}}"#, br#"{"type":"ADDED""#] {
            assert!(read(nonsense).is_err(), "{}", String::from_utf8_lossy(nonsense));
        }
        for nonsense in [&b""[..], b"k8s\0", b"<html>", &[10, 5, b'A', b'D', b'D', b'E', b'D']] {
            assert!(Change::Protobuf(nonsense.to_vec()).read::<Node>().is_err(), "{nonsense:?}");
        }
    }
}

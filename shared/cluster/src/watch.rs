//! What a watch tells: changes of objects, one on each line.

use crate::errors::Failure;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

/// The longest line: an object of more than etcd's limit, as JSON.
const LINE_MAX: usize = 8 << 20;

/// A change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    /// The object is new, or has changed.
    Is(Value),
    /// The object is gone; its last state.
    Was(Value),
    /// Everything up to this version was told.
    Version(Value),
    /// The watch ends, for this reason: versions as old as its own are gone, for example.
    Ends(String),
}

/// An open watch.
pub(crate) struct Watch {
    body: Body,
    lines: Lines,
}

impl Watch {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, lines: Lines::default() }
    }

    /// The next change; `None` at the end. Nothing is lost if it is not waited for to the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Told>, Failure> {
        loop {
            if let Some(told) = self.lines.next() {
                return told.map(Some).map_err(Failure::unknown);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.lines.add(&data);
                    }
                }
            }
        }
    }
}

/// What has arrived and was not told yet.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn add(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }

    /// The next whole line.
    fn next(&mut self) -> Option<Result<Told, String>> {
        match self.0.iter().position(|byte| *byte == b'\n') {
            Some(end) => Some(told(&self.0.drain(..=end).collect::<Vec<u8>>())),
            None if self.0.len() > LINE_MAX => Some(Err(format!("a line of its watch is longer than {LINE_MAX} bytes"))),
            None => None,
        }
    }
}

/// Reads a line.
fn told(line: &[u8]) -> Result<Told, String> {
    let mut line: Value = serde_json::from_slice(line).map_err(|error| format!("a line of its watch cannot be read: {error}"))?;
    let object = line["object"].take();
    match line["type"].as_str() {
        Some("ADDED" | "MODIFIED") => Ok(Told::Is(object)),
        Some("DELETED") => Ok(Told::Was(object)),
        Some("BOOKMARK") => Ok(Told::Version(object)),
        Some("ERROR") => Ok(Told::Ends(object["message"].as_str().unwrap_or("without a message").to_owned())),
        _ => Err(format!("a line of its watch has the type {}", line["type"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_come_in_pieces_or_together() {
        let line = |kind: &str, version: u64| format!(r#"{{"type":"{kind}","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}"#);
        let text = [line("ADDED", 1), line("BOOKMARK", 2), line("DELETED", 3)].join("\n") + "\n";
        for size in [1, 7, 1000] {
            let (mut lines, mut versions) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.add(piece);
                while let Some(next) = lines.next() {
                    let Ok(Told::Is(object) | Told::Was(object) | Told::Version(object)) = next else { panic!("{next:?}") };
                    versions.push(object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned());
                }
            }
            assert_eq!(versions, ["1", "2", "3"], "pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_collected_for_ever() {
        let mut lines = Lines::default();
        lines.add(&vec![b'x'; LINE_MAX]);
        assert_eq!(lines.next(), None);
        lines.add(b"x");
        assert!(lines.next().expect("an error").is_err());
    }

    #[test]
    fn what_ends_a_watch_is_told_and_nonsense_is_an_error() {
        let expired = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}"#;
        assert_eq!(told(expired), Ok(Told::Ends("too old resource version".to_owned())));
        for nonsense in [&b"<html>"[..], b"{}", br#"{"type":"RENAMED","object":{}}"#, br#"{"type":"ADDED""#] {
            assert!(told(nonsense).is_err(), "{}", String::from_utf8_lossy(nonsense));
        }
    }
}

//! Documents as they were written, each for itself: what an API server would be sent, before any of it is read as a kind.

use super::{ManifestError, Source, indent, position_of, read_value, repeated_keys, visit};
use crate::field::{FieldError, FieldPath};
use crate::manifest::Object;
use crate::yaml::{self, Mark, Node};
use serde_json::Value;

/// An object of a text, not yet validated.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    /// Number of the document in the file, from 1.
    document: usize,
    api_version: String,
    kind: String,
    node: Node,
    value: Value,
}

impl Document {
    /// `apiVersion`, `kind`.
    pub fn type_meta(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
    }

    /// The object as JSON; of repeated keys the last one wins.
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// Name, or `namespace/name`; what stands for the name where it has none or no text.
    pub fn key(&self) -> String {
        let word = |field: &str| self.value["metadata"][field].as_str().unwrap_or_default();
        let name = if word("name").is_empty() { word("generateName") } else { word("name") };
        if word("namespace").is_empty() { name.to_owned() } else { format!("{}/{name}", word("namespace")) }
    }

    /// Kind and name: `NodePool "default"`.
    pub fn title(&self) -> String {
        format!("{} {:?}", self.kind, self.key())
    }

    /// Keys that occur twice in a map, which strict decoding rejects.
    pub fn repeated_keys(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        repeated_keys(&self.node, &FieldPath::root(), &mut errors);
        errors
    }

    /// The typed object, of a document that is valid.
    ///
    /// # Errors
    /// A field that has a value which the API server accepts and a controller cannot read, such as a duration of a thousand years.
    pub fn object(&self) -> Result<Object, FieldError> {
        read_value(&self.api_version, &self.kind, self.value.clone())
    }

    /// An error with the position of its field, or of the nearest field above it that was written.
    pub fn error(&self, fault: FieldError) -> ManifestError {
        let mark = position_of(&self.node, &fault.path);
        Source { file: &self.file, document: self.document }.error(mark, Some(&self.title()), fault)
    }
}

/// All objects of a text with what is no object, in their order. Other than by [`super::read`] nothing is hidden by an error elsewhere:
/// where the text is not YAML, each of its documents is parsed for itself.
pub fn documents(file: &str, text: &str) -> Vec<Result<Document, ManifestError>> {
    let mut found = Vec::new();
    if let Ok(nodes) = yaml::documents(text) {
        for (position, node) in nodes.iter().enumerate() {
            collect(&Source { file, document: position + 1 }, node, &mut found);
        }
        return found;
    }
    let mut number = 1;
    for part in parts(text) {
        match yaml::documents(part.text) {
            Ok(nodes) => {
                for mut node in nodes {
                    node.shift(part.line);
                    collect(&Source { file, document: number }, &node, &mut found);
                    number += 1;
                }
            }
            Err(error) => {
                let mut error = indent::explain(file, part.text, &error);
                error.document = number;
                error.mark = error.mark.map(|mark| Mark { line: mark.line + part.line, ..mark });
                found.push(Err(error));
                number += 1;
            }
        }
    }
    found
}

fn collect(source: &Source<'_>, node: &Node, found: &mut Vec<Result<Document, ManifestError>>) {
    visit(source, node, None, &mut |read| {
        found.push(read.map(|(node, api_version, kind)| Document {
            file: source.file.to_owned(),
            document: source.document,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            node: node.clone(),
            value: node.to_json(),
        }));
    });
}

/// One document of a text, with the number of lines above it.
struct Part<'a> {
    text: &'a str,
    line: usize,
}

/// Splits a text at its lines of three dashes, as kubectl does.
fn parts(text: &str) -> Vec<Part<'_>> {
    let (mut parts, mut begin, mut begin_line, mut at) = (Vec::new(), 0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            parts.push(Part { text: &text[begin..at], line: begin_line });
            (begin, begin_line) = (at, number);
        }
        at += line.len();
    }
    parts.push(Part { text: &text[begin..], line: begin_line });
    parts.retain(|part| !part.text.trim().is_empty());
    parts
}

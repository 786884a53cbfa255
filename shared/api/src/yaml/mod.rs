//! YAML text as trees whose nodes have their line and column.
//!
//! Plain scalars are parsed as by the API server's tools (YAML 1.1: `on` is a boolean, `010` is eight), anchors and
//! merge keys work, and a repeated key of a map is kept and reported. Depth and size are bounded, so that no
//! input can exhaust memory.

mod scalar;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use scalar::Scalar;

/// Deeper nesting than any Kubernetes object has.
const DEPTH_MAX: usize = 100;
/// Nodes per text: ten times those of a large cluster's dump.
const NODES_MAX: usize = 20_000_000;
/// Nodes per text that aliases may repeat: manifests use them for a label or two.
const REPEATED_MAX: usize = 100_000;
/// Nodes per document that are kept for aliases; one within several anchored ones counts several times.
const ANCHORED_MAX: usize = 1_000_000;

/// A position in the text, both counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub line: usize,
    pub column: usize,
}

/// Text that is not YAML, or exceeds our limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct YamlError {
    pub(crate) mark: Mark,
    /// Number of the document, from 1.
    pub(crate) document: usize,
    pub(crate) message: String,
    /// Whether the text is not YAML; what is, and cannot be an object, says itself what to do.
    pub(crate) of_syntax: bool,
}

/// A node and its position.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) mark: Mark,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Scalar(Scalar),
    List(Vec<Node>),
    /// In the order of the text; keys may be repeated.
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) mark: Mark,
    pub(crate) key: String,
    pub(crate) value: Node,
}

impl Node {
    /// The last value of a key of a map, as lenient parsers use it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match &self.content {
            Content::Map(entries) => entries.iter().rev().find(|entry| entry.key == key).map(|entry| &entry.value),
            _ => None,
        }
    }
    /// The position of a key of a map.
    pub(crate) fn key_mark(&self, key: &str) -> Option<Mark> {
        match &self.content {
            Content::Map(entries) => entries.iter().rev().find(|entry| entry.key == key).map(|entry| entry.mark),
            _ => None,
        }
    }
    /// The element of a list.
    pub(crate) fn item(&self, index: usize) -> Option<&Self> {
        match &self.content {
            Content::List(items) => items.get(index),
            _ => None,
        }
    }
    /// Text of a string scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(Scalar::Text(text)) => Some(text),
            _ => None,
        }
    }
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Scalar::Null))
    }
    /// Moves the tree down by some lines.
    pub(crate) fn shift(&mut self, lines: usize) {
        self.mark.line += lines;
        match &mut self.content {
            Content::Scalar(_) => {}
            Content::List(items) => items.iter_mut().for_each(|item| item.shift(lines)),
            Content::Map(entries) => {
                for entry in entries {
                    entry.mark.line += lines;
                    entry.value.shift(lines);
                }
            }
        }
    }
    /// The tree as JSON; of repeated keys the last one wins.
    pub(crate) fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar(scalar) => scalar.to_json(),
            Content::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Content::Map(entries) => {
                let map: Map<String, Value> = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect();
                Value::Object(map)
            }
        }
    }
    /// The same of a tree that is not needed any more, without a copy of its texts; `None` if a map has a key twice.
    pub(crate) fn into_json(self) -> Option<Value> {
        Some(match self.content {
            Content::Scalar(Scalar::Text(text)) => Value::String(text),
            Content::Scalar(scalar) => scalar.to_json(),
            Content::List(items) => Value::Array(items.into_iter().map(Self::into_json).collect::<Option<_>>()?),
            Content::Map(entries) => {
                let mut map = Map::new();
                for entry in entries {
                    if map.insert(entry.key, entry.value.into_json()?).is_some() {
                        return None;
                    }
                }
                Value::Object(map)
            }
        })
    }
}

/// The documents of a text, empty ones as null.
pub(crate) fn documents(text: &str) -> Result<Vec<Node>, YamlError> {
    // Of files that were joined each may begin with a byte order mark.
    let joined = text.contains("\n\u{feff}").then(|| text.replace("\n\u{feff}", "\n"));
    Composer::default().run(joined.as_deref().unwrap_or(text))
}

/// A collection that is being parsed.
enum Open {
    List { mark: Mark, anchor: usize, items: Vec<Node> },
    Map { mark: Mark, anchor: usize, entries: Vec<Entry>, merged: Vec<Node>, key: Option<Key> },
}

/// A key whose value is being parsed.
struct Key {
    mark: Mark,
    text: String,
    /// Whether the value is merged into the map.
    merges: bool,
}

#[derive(Default)]
struct Composer {
    stack: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    documents: Vec<Node>,
    root: Option<Node>,
    /// Whether the last scalar is `<<` without quotes. In quotes it is a key like any other.
    merges: bool,
    nodes: usize,
    repeated: usize,
    anchored: usize,
}

impl Composer {
    fn run(mut self, text: &str) -> Result<Vec<Node>, YamlError> {
        for next in Parser::new_from_str(text) {
            let (event, span) = match next {
                Ok(next) => next,
                Err(error) => {
                    let mark = Mark { line: error.marker().line(), column: error.marker().col() + 1 };
                    return Err(YamlError { of_syntax: true, ..self.error(mark, error.info()) });
                }
            };
            let mark = Mark { line: span.start.line(), column: span.start.col() + 1 };
            self.take(event, mark)?;
        }
        Ok(self.documents)
    }

    fn error(&self, mark: Mark, message: impl Into<String>) -> YamlError {
        YamlError { mark, document: self.documents.len() + 1, message: message.into(), of_syntax: false }
    }

    fn take(&mut self, event: Event<'_>, mark: Mark) -> Result<(), YamlError> {
        match event {
            Event::DocumentStart(..) => self.root = None,
            Event::DocumentEnd => {
                self.anchors.clear();
                self.anchored = 0;
                let null = Node { mark, content: Content::Scalar(Scalar::Null) };
                self.documents.push(self.root.take().unwrap_or(null));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = scalar(&text, style, tag.as_deref()).map_err(|message| self.error(mark, message))?;
                self.merges = style == ScalarStyle::Plain && text == "<<";
                self.add(Node { mark, content: Content::Scalar(scalar) }, anchor)?;
            }
            Event::SequenceStart(_, anchor, _) => self.open(Open::List { mark, anchor, items: Vec::new() }, mark)?,
            Event::MappingStart(_, anchor, _) => {
                self.open(Open::Map { mark, anchor, entries: Vec::new(), merged: Vec::new(), key: None }, mark)?;
            }
            Event::SequenceEnd | Event::MappingEnd => match self.stack.pop() {
                Some(Open::List { mark, anchor, items }) => self.add(Node { mark, content: Content::List(items) }, anchor)?,
                Some(Open::Map { mark, anchor, entries, merged, .. }) => {
                    self.add(Node { mark, content: Content::Map(with_merged(entries, merged)) }, anchor)?;
                }
                None => return Err(self.error(mark, "a collection ends that never began")),
            },
            Event::Alias(id) => self.repeat(id, mark)?,
            _ => {}
        }
        Ok(())
    }

    /// Replaces an alias by a copy of its anchored node.
    fn repeat(&mut self, id: usize, mark: Mark) -> Result<(), YamlError> {
        let Some(node) = self.anchors.get(&id) else {
            return Err(self.error(mark, "an alias names an anchor that is not defined before it: write the value out"));
        };
        let (size, depth) = extent(node);
        if REPEATED_MAX < self.repeated + size || DEPTH_MAX < self.stack.len() + depth {
            return Err(self.error(mark, format!("aliases repeat more than {REPEATED_MAX} values, or too deep ones: write them out")));
        }
        self.repeated += size;
        let copy = Node { mark, content: node.content.clone() };
        self.merges = false;
        self.add(copy, 0)
    }

    fn open(&mut self, open: Open, mark: Mark) -> Result<(), YamlError> {
        if DEPTH_MAX <= self.stack.len() {
            return Err(self.error(mark, format!("nested more than {DEPTH_MAX} deep, as no Kubernetes object is: write it flatter")));
        }
        self.stack.push(open);
        Ok(())
    }

    fn add(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        self.nodes += 1;
        if NODES_MAX < self.nodes {
            return Err(self.error(node.mark, format!("more than {NODES_MAX} values: split the file")));
        }
        if anchor != 0 {
            self.anchored += extent(&node).0;
            if ANCHORED_MAX < self.anchored {
                let message = format!("anchors (&) stand before more than {ANCHORED_MAX} values: remove those that no alias names");
                return Err(self.error(node.mark, message));
            }
            self.anchors.insert(anchor, node.clone());
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Open::List { items, .. }) => items.push(node),
            Some(Open::Map { entries, merged, key, .. }) => match key.take() {
                Some(Key { merges: true, .. }) if !is_mergeable(&node) => return Err(self.error(node.mark, NOT_MERGEABLE)),
                Some(Key { merges: true, .. }) => merged.push(node),
                Some(Key { mark, text, .. }) => entries.push(Entry { mark, key: text, value: node }),
                None => match &node.content {
                    Content::Scalar(scalar) => *key = Some(Key { mark: node.mark, text: scalar.as_key(), merges: self.merges }),
                    _ => return Err(self.error(node.mark, "a list or map is used as a key: keys are text")),
                },
            },
        }
        Ok(())
    }
}

/// Number of nodes and depth of a tree.
fn extent(node: &Node) -> (usize, usize) {
    let join = |(size, depth): (usize, usize), (more, deeper): (usize, usize)| (size + more, depth.max(deeper + 1));
    match &node.content {
        Content::Scalar(_) => (1, 1),
        Content::List(items) => items.iter().map(extent).fold((1, 1), join),
        Content::Map(entries) => entries.iter().map(|entry| extent(&entry.value)).fold((1, 1), join),
    }
}

/// What is wrong with a merge key without fields to merge, which would be lost.
const NOT_MERGEABLE: &str = "a merge key (<<) needs a map or a list of maps, such as an alias of one: quote it if a key is meant";

/// Whether a node has fields to merge into a map. Null has none, and nothing is lost of it.
fn is_mergeable(node: &Node) -> bool {
    match &node.content {
        Content::Map(_) | Content::Scalar(Scalar::Null) => true,
        Content::List(items) => items.iter().all(|item| matches!(item.content, Content::Map(_))),
        Content::Scalar(_) => false,
    }
}

/// Resolves merge keys (`<<`): keys of the map itself take precedence.
fn with_merged(mut own: Vec<Entry>, merged: Vec<Node>) -> Vec<Entry> {
    if merged.is_empty() {
        return own;
    }
    let sources = merged.into_iter().flat_map(|node| match node.content {
        Content::List(items) => items,
        content => vec![Node { mark: node.mark, content }],
    });
    let mut keys: BTreeSet<String> = own.iter().map(|entry| entry.key.clone()).collect();
    for source in sources {
        if let Content::Map(entries) = source.content {
            own.extend(entries.into_iter().filter(|entry| keys.insert(entry.key.clone())));
        }
    }
    own
}

fn is_binary(tag: &Tag) -> bool {
    tag.suffix_in_namespace("tag:yaml.org,2002:").as_deref() == Some("binary")
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Scalar, String> {
    match tag.map(Tag::core_suffix) {
        Some(None) if tag.is_some_and(is_binary) => return Scalar::binary(text),
        // What has another tag, such as `!!timestamp` or `!` alone, is the text that it is.
        Some(Some("str") | None) => return Ok(Scalar::Text(text.to_owned())),
        Some(Some("null")) => return Ok(Scalar::Null),
        Some(Some(kind @ ("int" | "float" | "bool"))) => {
            return match Scalar::plain(text)? {
                Scalar::Text(_) | Scalar::Null => Err(format!("{text:?} is tagged as {kind} and is none")),
                scalar => Ok(scalar),
            };
        }
        _ => {}
    }
    if style == ScalarStyle::Plain { Scalar::plain(text) } else { Ok(Scalar::Text(text.to_owned())) }
}

#[cfg(test)]
mod tests;

//! Schemas of the kinds as data, for validation, defaulting and the CRDs.
//!
//! A schema has the rules of the API server (OpenAPI and CEL). Each CEL rule is paired with a function that decides
//! the same, so that files are validated without a server exactly as by a server.

mod buffer;
mod check;
mod defaults;
#[cfg(test)]
mod fields_tests;
mod forms;
mod kubelet;
mod kubelet_document;
mod legacy;
mod metadata;
mod moved;
mod node_claim;
mod node_class;
mod node_overlay;
mod node_pool;
mod openapi;
mod parts;

pub(crate) use check::{check, check_change, check_fields, differing_letters, is_date, matches};
pub(crate) use defaults::apply_defaults;
pub(crate) use kubelet_document::kubelet_document;
pub(crate) use metadata::object_meta;
pub(crate) use moved::explain;
pub(crate) use openapi::openapi;
use serde_json::Value;
use std::borrow::Cow;

/// The schema of one value.
#[derive(Clone)]
pub(crate) struct Schema {
    pub(crate) shape: Shape,
    pub(crate) about: &'static str,
    pub(crate) default: Option<Value>,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone)]
pub(crate) enum Shape {
    Object(Vec<Field>),
    /// An object with arbitrary keys.
    Map {
        values: Box<Schema>,
        max: Option<usize>,
        /// How writers share it; without a word key by key.
        map_type: Option<MapType>,
    },
    /// Any JSON object, kept as it is.
    Open,
    List {
        items: Box<Schema>,
        min: usize,
        max: Option<usize>,
        /// How writers share it; without a word as a whole.
        list_type: Option<ListType>,
    },
    Text {
        pattern: Option<&'static str>,
        min: usize,
        max: Option<usize>,
        one_of: &'static [&'static str],
    },
    /// A point in time, RFC 3339.
    Time,
    Integer {
        bits: u8,
        min: Option<i64>,
        max: Option<i64>,
    },
    Boolean,
    /// A string or an integer in the form of a quantity.
    Quantity,
    /// Any number.
    Number,
    /// Any string or integer.
    IntOrText,
}

/// How the writers of a list share it: what server-side apply merges by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListType {
    /// One writer has all of it.
    Atomic,
    /// Element by element; they must be unique.
    Set,
    /// Element by element, told apart by this field.
    Map(&'static str),
}

impl ListType {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::Set => "set",
            Self::Map(_) => "map",
        }
    }
}

/// How the writers of a map share it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapType {
    /// One writer has all of it.
    Atomic,
    /// Key by key.
    Granular,
}

impl MapType {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Atomic => "atomic",
            Self::Granular => "granular",
        }
    }
}

#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) schema: Schema,
}

/// A rule beyond the shape, in CEL for the API server and as a function for us.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) cel: String,
    /// The error with its remedy.
    pub(crate) message: Cow<'static, str>,
    /// A message that says more of a value, where there is more to say.
    pub(crate) hint: Option<fn(&Value) -> Option<String>>,
    pub(crate) holds: Holds,
}

#[derive(Clone, Copy)]
pub(crate) enum Holds {
    /// For a value; those of the wrong shape pass, because the shape's own error suffices.
    Of(fn(&Value) -> bool),
    /// For the old and the new value; does not apply if either is absent.
    Between(fn(&Value, &Value) -> bool),
}

/// A kind with its schema.
pub(crate) struct Kind {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) spec: Schema,
    /// Whether objects without a spec are rejected.
    pub(crate) spec_required: bool,
    /// `None` for versions from before v1, whose status is that of the version that is stored.
    pub(crate) status: Option<Schema>,
}

impl Kind {
    /// The group of its API version.
    pub(crate) fn group(&self) -> &'static str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// The schema of a kind.
pub(crate) fn find(api_version: &str, kind: &str) -> Option<&'static Kind> {
    kinds().iter().find(|known| known.api_version == api_version && known.kind == kind)
}

pub(crate) fn kinds() -> &'static [Kind] {
    static KINDS: std::sync::LazyLock<Vec<Kind>> = std::sync::LazyLock::new(|| {
        let mut kinds = vec![node_pool::kind(), node_claim::kind(), node_overlay::kind(), node_class::kind(), buffer::kind()];
        kinds.extend(legacy::kinds());
        kinds
    });
    &KINDS
}

impl Schema {
    fn new(shape: Shape) -> Self {
        Self { shape, about: "", default: None, rules: Vec::new() }
    }
    fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }
    fn default(mut self, value: Value) -> Self {
        self.default = Some(value);
        self
    }
    fn rule(mut self, cel: impl Into<String>, message: impl Into<Cow<'static, str>>, holds: fn(&Value) -> bool) -> Self {
        self.rules.push(Rule { cel: cel.into(), message: message.into(), hint: None, holds: Holds::Of(holds) });
        self
    }
    /// What the last rule says of values that it can say more of.
    fn hint(mut self, hint: fn(&Value) -> Option<String>) -> Self {
        if let Some(rule) = self.rules.last_mut() {
            rule.hint = Some(hint);
        }
        self
    }
    fn change(mut self, cel: &'static str, message: &'static str, holds: fn(&Value, &Value) -> bool) -> Self {
        self.rules.push(Rule { cel: cel.to_owned(), message: message.into(), hint: None, holds: Holds::Between(holds) });
        self
    }
    fn pattern(mut self, text: &'static str) -> Self {
        if let Shape::Text { pattern, .. } = &mut self.shape {
            *pattern = Some(text);
        }
        self
    }
    fn min(mut self, least: usize) -> Self {
        match &mut self.shape {
            Shape::Text { min, .. } | Shape::List { min, .. } => *min = least,
            _ => {}
        }
        self
    }
    fn max(mut self, most: usize) -> Self {
        match &mut self.shape {
            Shape::Text { max, .. } | Shape::List { max, .. } | Shape::Map { max, .. } => *max = Some(most),
            _ => {}
        }
        self
    }
    fn range(mut self, least: i64, most: impl Into<Option<i64>>) -> Self {
        if let Shape::Integer { min, max, .. } = &mut self.shape {
            *min = Some(least);
            *max = most.into();
        }
        self
    }
    fn list_type(mut self, given: ListType) -> Self {
        if let Shape::List { list_type, .. } = &mut self.shape {
            *list_type = Some(given);
        }
        self
    }
    fn atomic(self) -> Self {
        self.list_type(ListType::Atomic)
    }
    fn set(self) -> Self {
        self.list_type(ListType::Set)
    }
    fn keyed_by(self, field: &'static str) -> Self {
        self.list_type(ListType::Map(field))
    }
    fn map_type(mut self, given: MapType) -> Self {
        if let Shape::Map { map_type, .. } = &mut self.shape {
            *map_type = Some(given);
        }
        self
    }
}

fn object<const N: usize>(fields: [Field; N]) -> Schema {
    Schema::new(Shape::Object(fields.into_iter().collect()))
}
fn need(name: &'static str, schema: Schema) -> Field {
    Field { name, required: true, schema }
}
fn may(name: &'static str, schema: Schema) -> Field {
    Field { name, required: false, schema }
}
fn list(items: Schema) -> Schema {
    Schema::new(Shape::List { items: Box::new(items), min: 0, max: None, list_type: None })
}
fn map(values: Schema) -> Schema {
    Schema::new(Shape::Map { values: Box::new(values), max: None, map_type: None })
}
fn open() -> Schema {
    Schema::new(Shape::Open)
}
fn text() -> Schema {
    Schema::new(Shape::Text { pattern: None, min: 0, max: None, one_of: &[] })
}
fn one_of(words: &'static [&'static str]) -> Schema {
    Schema::new(Shape::Text { pattern: None, min: 0, max: None, one_of: words })
}
fn time() -> Schema {
    Schema::new(Shape::Time)
}
fn int32() -> Schema {
    Schema::new(Shape::Integer { bits: 32, min: None, max: None })
}
fn int64() -> Schema {
    Schema::new(Shape::Integer { bits: 64, min: None, max: None })
}
fn boolean() -> Schema {
    Schema::new(Shape::Boolean)
}
fn quantity() -> Schema {
    Schema::new(Shape::Quantity)
}
fn quantities() -> Schema {
    map(quantity())
}
fn quantity_or_duration() -> Schema {
    Schema::new(Shape::IntOrText)
}

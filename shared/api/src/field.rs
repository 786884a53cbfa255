//! Field paths and field errors.

use crate::words;
use std::fmt;

/// The path of a field in an object: `spec.template.spec.requirements[0].key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl FieldPath {
    /// The object itself.
    pub const fn root() -> Self {
        Self(Vec::new())
    }
    /// A path of plain keys, `spec.limits`.
    pub fn of(path: &str) -> Self {
        Self(path.split('.').filter(|key| !key.is_empty()).map(|key| Step::Key(key.to_owned())).collect())
    }
    /// The path of a field of this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        Self(steps)
    }
    /// The path of an element of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Index(index));
        Self(steps)
    }
    /// The path of a part of this field, which is at `below` in it.
    #[must_use]
    pub fn join(&self, below: &Self) -> Self {
        Self(self.0.iter().chain(&below.0).cloned().collect())
    }
    /// Where a parser found an error.
    pub fn of_error(path: &serde_path_to_error::Path) -> Self {
        let mut found = Self::root();
        for segment in path {
            found = match segment {
                serde_path_to_error::Segment::Seq { index } => found.index(*index),
                serde_path_to_error::Segment::Map { key } => found.key(key),
                _ => found,
            };
        }
        found
    }
    /// True for this path and those of its parts.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }
    /// True for the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                // A key that somebody made up must not look like another line.
                Step::Key(key) if !words::is_printable(key) => write!(f, "[{key:?}]")?,
                Step::Key(key) if position == 0 => f.write_str(key)?,
                // A key with a dot (a label, a resource name) would look like two fields.
                Step::Key(key) if key.contains('.') => write!(f, "[{key}]")?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The step of admission that finds an error. A server does not take the later steps once an earlier one has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Metadata has a value of the wrong type: the object cannot be decoded.
    Malformed,
    /// A field that the kind does not have, or that is repeated: strict decoding fails.
    Unknown,
    /// A value of the wrong type: rules are not evaluated, and nothing below it is looked at.
    Type,
    /// A value that is missing, too long or none of the known words: rules are not evaluated.
    Shape,
    /// A value of the right type that is not allowed. Rules are evaluated nevertheless.
    #[default]
    Value,
    /// A rule of the schema, CEL on the server.
    Rule,
}

/// One error of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    pub path: FieldPath,
    /// What is wrong, with the value, and what to write instead.
    pub message: String,
    pub stage: Stage,
}

impl FieldError {
    /// An error of a field's value.
    pub fn new(path: FieldPath, message: impl Into<String>) -> Self {
        Self { path, message: message.into(), stage: Stage::default() }
    }

    /// The same error, found by another step.
    #[must_use]
    pub const fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }
}

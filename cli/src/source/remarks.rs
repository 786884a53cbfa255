//! What is said about the input beside an answer: what is refused, what has no effect, and what was added.
//!
//! A remark is a text and how much it matters. The steps of reading return notes, which are the texts of the least important ones; what is
//! wrong with a field of an object is a fault of it.

use crate::report::Section;
use serde_json::{Value, json};
use std::fmt;

/// Remarks of one kind that are made one by one. More are one remark, which names the first objects: their lines would hide all others.
pub(crate) const TOLD_EACH_MAX: usize = 10;
/// How many objects one remark names; the others are counted.
pub(crate) const NAMED_MAX: usize = 3;

/// How much a remark matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Importance {
    /// The object does not count, or an API server would not have it.
    Error,
    /// It has an effect, but probably not the intended one.
    Warning,
    Note,
}

impl Importance {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something about the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub importance: Importance,
    pub text: String,
}

impl Remark {
    /// An error.
    pub(crate) const fn error(text: String) -> Self {
        Self { importance: Importance::Error, text }
    }

    /// A warning.
    pub(crate) const fn warning(text: String) -> Self {
        Self { importance: Importance::Warning, text }
    }

    /// A note.
    pub(crate) const fn note(text: String) -> Self {
        Self { importance: Importance::Note, text }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.importance.as_str(), self.text)
    }
}

/// Remarks as JSON, in the form of the findings of `check`.
pub(crate) fn json(remarks: &[Remark]) -> Value {
    remarks.iter().map(|remark| json!({"level": remark.importance.as_str(), "message": remark.text})).collect()
}

/// Remarks as a part of a report, the gravest first. It comes first itself if something is refused, as the answer does without that.
pub(crate) fn around(remarks: &[Remark], sections: impl IntoIterator<Item = Section>) -> Vec<Section> {
    let mut sorted: Vec<&Remark> = remarks.iter().collect();
    sorted.sort_by_key(|remark| remark.importance);
    let is_grave = sorted.first().is_some_and(|remark| remark.importance == Importance::Error);
    let rows = sorted.iter().map(|remark| vec![remark.importance.as_str().to_owned(), remark.text.clone()]);
    let own = Section::of_table("About the input", &["Level", "What"], rows.collect());
    let (before, after) = if is_grave { (own, None) } else { (None, own) };
    before.into_iter().chain(sections).chain(after).collect()
}

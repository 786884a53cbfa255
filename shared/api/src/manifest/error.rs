//! Errors of manifests.

use crate::field::FieldPath;
use crate::yaml::Mark;
use std::fmt;

/// An error of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ManifestError {
    pub file: String,
    /// Number of the document in the file, from 1.
    pub document: usize,
    /// Line and column, if known.
    pub mark: Option<Mark>,
    /// Kind and name, `NodePool "default"`, if they could be read.
    pub object: Option<String>,
    /// The field; the root when the whole document is meant.
    pub field: FieldPath,
    /// What is wrong, and the remedy.
    pub message: String,
}

impl fmt::Display for ManifestError {
    /// `pools.yaml:7:5: document 2, NodePool "default", spec.weight: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(mark) = self.mark {
            write!(f, ":{}:{}", mark.line, mark.column)?;
        }
        write!(f, ": document {}", self.document)?;
        if let Some(object) = &self.object {
            write!(f, ", {object}")?;
        }
        if !self.field.is_root() {
            write!(f, ", {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

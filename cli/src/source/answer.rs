//! What a command that decides from files prints, and its exit code.

use super::manifests::Manifests;
use crate::colours::painted;
use crate::printing::{self, say};
use std::fmt::Display;
use std::process::ExitCode;

/// The exit code of a command that has no answer.
const NO_ANSWER: u8 = 2;

/// The answer of `plan`, `consolidate` or `explain`.
///
/// Exit codes mean what they mean for `validate`: 0, nothing is refused; 1, there is an answer, but some objects are refused, because they
/// cannot be used and are left out, or because an API server would not have them; 2, there is no answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    refused: bool,
    /// Whether machines would be launched, where the exit code says so (`--detailed-exitcode`).
    launches: Option<bool>,
}

impl Answer {
    /// The same with another text.
    pub(crate) fn with(self, text: String) -> Self {
        Self { text, ..self }
    }

    /// An answer for which no objects are needed.
    pub(crate) fn of(text: String) -> Self {
        Self { text, refused: false, launches: None }
    }

    /// Its exit code says whether machines would be launched.
    pub(crate) fn detailed(self, launches: bool) -> Self {
        Self { launches: Some(launches), ..self }
    }

    /// What is refused counts before what is launched: a plan without some of its pods is none to go by.
    fn status(&self) -> u8 {
        match (self.refused, self.launches) {
            (true, _) => 1,
            (false, Some(true)) => 2,
            (false, Some(false) | None) => 0,
        }
    }

    /// Prints an answer, or why there is none.
    pub(crate) fn finish<E: Display>(answer: Result<Self, E>) -> ExitCode {
        match answer {
            Ok(answer) => {
                say!("{}", painted(&answer.text));
                ExitCode::from(answer.status())
            }
            Err(error) => {
                printing::errors(&error);
                ExitCode::from(NO_ANSWER)
            }
        }
    }
}

impl Manifests {
    /// An answer that was decided from these manifests.
    pub(crate) fn answer(&self, text: String) -> Answer {
        Answer { text, refused: !self.refused.is_empty() || !self.warnings.is_empty(), launches: None }
    }
}

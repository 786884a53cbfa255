//! What a command that decides from files prints, and its exit code.

use super::manifests::Manifests;
use crate::printing::{complain, say};
use std::fmt::Display;
use std::process::ExitCode;

/// The answer of `plan`, `consolidate` or `explain`.
///
/// Exit codes mean what they mean for `validate`: 0, nothing is refused; 1, there is an answer, but some objects are refused, because they
/// cannot be used and are left out, or because an API server would not have them; 2, there is no answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    refused: bool,
}

impl Answer {
    /// Prints an answer, or why there is none.
    pub(crate) fn finish<E: Display>(command: &str, answer: Result<Self, E>) -> ExitCode {
        match answer {
            Ok(answer) => {
                say!("{}", answer.text);
                ExitCode::from(u8::from(answer.refused))
            }
            Err(error) => {
                complain!("whittle {command}: {error}");
                ExitCode::from(2)
            }
        }
    }
}

impl Manifests {
    /// An answer that was decided from these manifests.
    pub(crate) fn answer(&self, text: String) -> Answer {
        Answer { text, refused: !self.refused.is_empty() || !self.warnings.is_empty() }
    }
}

//! What is wrong with an installation, and what would fix it: facts in, findings out.

mod account;
mod cluster;
mod deployment;

use super::facts::{Facts, Known};
use serde::Serialize;

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    /// It works, but probably not as intended.
    Warning,
    Problem,
    /// It could not be read.
    Unknown,
}

/// What one check says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) status: Status,
    pub(super) what: String,
    /// What fixes it; empty if nothing is to fix.
    pub(super) remedy: String,
}

impl Finding {
    fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, what: what.into(), remedy: String::new() }
    }

    fn warning(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, status: Status::Warning, what: what.into(), remedy: remedy.into() }
    }

    fn problem(check: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, status: Status::Problem, what: what.into(), remedy: remedy.into() }
    }

    fn unknown(check: &'static str, why: impl Into<String>) -> Self {
        let remedy = "let aws and kubectl read it, then run this again".to_owned();
        Self { check, status: Status::Unknown, what: why.into(), remedy }
    }
}

/// The finding of a thing that was read, or that it is unknown.
fn known<T>(check: &'static str, fact: &Known<T>, judge: impl FnOnce(&T) -> Finding) -> Finding {
    match fact {
        Ok(fact) => judge(fact),
        Err(why) => Finding::unknown(check, why.clone()),
    }
}

/// The command that puts a cluster's side right.
fn add(facts: &Facts) -> String {
    facts.add.clone()
}

/// The option that keeps a command of `aws` in the stack's region, where that is known.
fn in_region(facts: &Facts) -> String {
    facts.stack.as_ref().map_or_else(|_| String::new(), |stack| format!(" --region {}", stack.region))
}

/// All findings, in the order of the way from the account to the pods.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = deployment::findings(facts);
    all.extend(account::findings(facts));
    all.extend(cluster::findings(facts));
    all
}

#[cfg(test)]
mod tests;

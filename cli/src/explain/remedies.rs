//! How it is shown what would take a pod, or let a machine go.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use whittle_api::words;
use whittle_model::scheduling::Remedy;

/// A line for people.
pub(super) fn line(remedy: &Remedy) -> String {
    format!("  {}\n", words::printable(&remedy.to_string()))
}

/// For programs.
pub(super) fn json_of(remedy: &Remedy) -> Value {
    json!({"nodePool": remedy.node_pool, "remedy": remedy.text})
}

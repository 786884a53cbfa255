//! A disruption decision as JSON and as text.

use crate::plan::output;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;
use whittle_core::disruption::{Command, Decision, Note, Verdict};

pub(super) fn json(decision: &Decision, elapsed: Duration) -> String {
    let value = json!({
        "engine": concat!("whittle ", env!("CARGO_PKG_VERSION")),
        "elapsed_ms": (elapsed.as_secs_f64() * 1e5).round() / 100.0,
        "commands": decision.commands.iter().map(command).collect::<Vec<_>>(),
        "shadow": decision.shadow.iter().map(command).collect::<Vec<_>>(),
        "verdicts": decision.verdicts.iter().map(verdict).collect::<Vec<_>>(),
        "notes": decision.notes.iter().map(note).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

/// A command as the output format has it.
pub(crate) fn command(command: &Command) -> Value {
    json!({
        "reason": command.method.reason().as_str(),
        "method": command.method.consolidation_type(),
        "decision": command.action().as_str(),
        "candidates": command.removals.iter().map(|removal| &removal.node).collect::<Vec<_>>(),
        "replacements": command.replacements.iter().map(output::claim).collect::<Vec<_>>(),
        "destinations": command.destinations,
        "savings": (command.savings.dollars() * 1e6).round() / 1e6,
    })
}

/// What is said of one machine.
pub(crate) fn verdict(verdict: &Verdict) -> Value {
    json!({
        "node": verdict.node,
        "nodeClaim": verdict.node_claim,
        "nodePool": verdict.node_pool,
        "code": verdict.why.code(),
        "why": verdict.why.to_string(),
    })
}

fn note(note: &Note) -> Value {
    json!({"object": note.object, "reason": note.reason, "message": note.message})
}

/// What would be done, then every node with its reason.
pub(super) fn text(decision: &Decision) -> String {
    let mut out = String::new();
    for (title, commands) in [("", &decision.commands), ("shadow: ", &decision.shadow)] {
        for command in commands {
            let _ = writeln!(out, "{title}{}: {command} (saves {} an hour)", command.method.reason(), command.savings);
            for claim in &command.replacements {
                let types = claim.instance_types.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
                let more = claim.instance_types.len().saturating_sub(5);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let _ = writeln!(out, "  + {} of {types}{more}, from {}", claim.node_pool, claim.cheapest_price);
            }
        }
    }
    if decision.commands.is_empty() {
        out.push_str("nothing to do\n");
    }
    let width = decision.verdicts.iter().map(|verdict| name(verdict).len()).max().unwrap_or(0);
    for verdict in &decision.verdicts {
        let _ = writeln!(out, "{:width$}  {}", name(verdict), verdict.why);
    }
    out
}

fn name(verdict: &Verdict) -> &str {
    if verdict.node.is_empty() { &verdict.node_claim } else { &verdict.node }
}

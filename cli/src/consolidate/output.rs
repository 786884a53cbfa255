//! A disruption decision as JSON and as text.

use crate::listing::first_named;
use crate::money::{Bill, HOURS_A_MONTH, counted};
use crate::plan::output::{self, Costs, Unchanged};
use crate::schema::Document;
use crate::source::remarks::{self, Remark};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;
use whittle_disruption::{BudgetState, Decision, DisruptionEvent, Verdict, VerdictReason};
use whittle_model::disruption::{Command, Method, Savings};
use whittle_units::Price;

/// How many instance types of a replacement are named.
const TYPES_NAMED: usize = 5;

/// What is said instead of a replacement of a static NodePool, which lists none, and has no price yet.
pub(super) const CHOSEN_AT_LAUNCH: &str = "of a type that is chosen at launch: counted at the price of its node";

/// The bill after the commands of a decision.
pub(super) fn after(now: &Bill, decision: &Decision) -> Bill {
    let saved: i128 = decision.commands.iter().map(|command| i128::from(command.savings.nanos())).sum();
    let removals = decision.commands.iter().flat_map(|command| &command.removals);
    let unpriced = now.unpriced.saturating_sub(removals.filter(|removal| removal.price == Price::ZERO).count());
    let nanos = (i128::from(now.price.nanos()) - saved).clamp(0, i128::from(u64::MAX));
    let removed: usize = decision.commands.iter().map(|command| command.removals.len()).sum();
    let launched: usize = decision.commands.iter().map(|command| command.replacements.len()).sum();
    let nodes = (now.nodes + launched).saturating_sub(removed);
    Bill { nodes, unpriced: unpriced.min(nodes), price: Price::from_nanos(u64::try_from(nanos).unwrap_or_default()) }
}

pub(super) fn json(decision: &Decision, costs: &Costs, elapsed: Duration, remarks: &[Remark]) -> String {
    let value = json!({
        "engine": concat!("whittle ", env!("CARGO_PKG_VERSION")),
        "elapsed_ms": (elapsed.as_secs_f64() * 1e5).round() / 100.0,
        "costs": costs.json(),
        "unchanged": costs.unchanged.as_ref().map(Unchanged::json),
        "findings": remarks::json(remarks),
        "commands": decision.commands.iter().map(command).collect::<Vec<_>>(),
        "shadow": decision.shadow.iter().map(command).collect::<Vec<_>>(),
        "verdicts": decision.verdicts.iter().map(|of| verdict(decision, of)).collect::<Vec<_>>(),
        "budgets": decision.budgets.iter().map(budget).collect::<Vec<_>>(),
        "notes": decision.events.iter().map(note).collect::<Vec<_>>(),
    });
    format!("{:#}\n", Document::Consolidate.versioned(value))
}

/// A command in the output format.
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

/// The verdict on one machine: `why` for people; `verdict`, `code` and `detail` for programs.
pub(crate) fn verdict(decision: &Decision, verdict: &Verdict) -> Value {
    let word = match &verdict.reason {
        VerdictReason::Chosen { action, .. } => action.as_str(),
        VerdictReason::Blocked(_) | VerdictReason::Kept(_) => "kept",
    };
    json!({
        "node": verdict.node,
        "nodeClaim": verdict.node_claim,
        "nodePool": verdict.node_pool,
        "verdict": word,
        "code": verdict.reason.code(),
        "why": verdict.reason.to_string(),
        "drifted": drifted(decision, verdict),
        "detail": verdict.reason.values(),
    })
}

/// Why a machine has drifted, whatever the verdict is.
pub(crate) fn drifted<'d>(decision: &'d Decision, verdict: &Verdict) -> Option<&'d str> {
    let conditions = decision.conditions.iter().find(|conditions| conditions.node_claim == verdict.node_claim)?;
    conditions.drifted.as_deref()
}

/// The same behind a verdict, and when its turn comes.
pub(crate) fn drifted_text(decision: &Decision, verdict: &Verdict) -> String {
    let Some(reason) = drifted(decision, verdict) else { return String::new() };
    let empty_first = decision.commands.iter().any(|command| command.method == Method::Emptiness);
    let waits = empty_first && matches!(verdict.reason, VerdictReason::Kept(_));
    let turn = if waits { "; it is replaced for that after the command of this pass" } else { "" };
    format!(" (drifted: {reason}{turn})")
}

fn budget(state: &BudgetState) -> Value {
    json!({
        "nodePool": state.node_pool,
        "reason": state.reason.as_str(),
        "nodes": state.nodes,
        "disrupting": state.disrupting,
        "allowed": state.allowed(),
        "fault": state.invalid.as_ref().map(|broken| broken.text()),
    })
}

fn note(note: &DisruptionEvent) -> Value {
    json!({"object": note.object, "reason": note.reason, "message": note.message})
}

/// The commands, then every node with its reason.
pub(super) fn text(decision: &Decision, costs: &Costs) -> String {
    let mut out = String::new();
    for (title, commands) in [("", &decision.commands), ("shadow: ", &decision.shadow)] {
        for command in commands {
            let _ = writeln!(out, "{title}{}: {command} ({})", command.method.reason(), saves(command));
            for claim in &command.replacements {
                let types = first_named(claim.instance_types.as_slice(), TYPES_NAMED);
                let _ = if claim.instance_types.is_empty() {
                    writeln!(out, "  + {}, {CHOSEN_AT_LAUNCH}", claim.node_pool)
                } else {
                    writeln!(out, "  + {} of {types}, from {}", claim.node_pool, claim.cheapest_price)
                };
            }
        }
    }
    if decision.commands.is_empty() {
        out.push_str("nothing to do\n");
    } else {
        let _ = writeln!(out, "together: {}", together(decision));
    }
    out.push_str(&costs.text());
    let width = decision.verdicts.iter().map(|verdict| verdict.name().len()).max().unwrap_or(0);
    for verdict in &decision.verdicts {
        let drifted = drifted_text(decision, verdict);
        let _ = writeln!(out, "{:width$}  {}{drifted}", verdict.name(), verdict.reason);
    }
    out
}

/// What a command saves, in words; one for drift may cost more.
pub(crate) fn saves(command: &Command) -> String {
    let Some(savings) = command.known_savings() else { return "what it saves is not known: a price is not".to_owned() };
    if savings.nanos() < 0 { format!("costs ${:.2} an hour more", -savings.dollars()) } else { format!("saves {savings} an hour") }
}

/// What the commands save together.
pub(super) fn together(decision: &Decision) -> String {
    let known = decision.commands.iter().filter_map(Command::known_savings);
    let saved = known.map(Savings::dollars).fold(0.0, std::ops::Add::add);
    let (word, amount) = if saved < 0.0 { ("more", -saved) } else { ("saved", saved) };
    let unknown = decision.commands.iter().filter(|command| command.known_savings().is_none()).count();
    let without =
        if unknown > 0 { format!(", without {} whose savings are not known", counted(unknown, "command")) } else { String::new() };
    format!("${amount:.2} an hour {word}, ${:.2} a month{without}", amount * HOURS_A_MONTH)
}

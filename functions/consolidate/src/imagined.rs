//! Shadow mode: what would be done is told when it changes, and nothing is done.

use crate::shows;
use crate::state::Disruptions;
use whittle_claims::{DecisionKind, DecisionRecord};
use whittle_core::disruption::{Command, Decision, LedgerEntry};
use whittle_ports::Report;
use whittle_units::Timestamp;

/// Subject of the records of what would be done, and the key of their entries in the detail. Each record replaces the one
/// before: an empty list says that there is nothing to do any more.
pub const SHADOW: &str = "shadow";

/// Notes the commands that shadow mode only imagines: all of a cluster in shadow mode, and those of pools in shadow mode.
/// Nothing is written while they stay the same.
pub(crate) fn note(report: &mut Report, state: &mut Disruptions, decision: &Decision, shadow: bool, now: Timestamp) {
    let whole: &[Command] = if shadow { &decision.commands } else { &[] };
    let commands: Vec<&Command> = whole.iter().chain(&decision.shadow).collect();
    let known = |entry: &LedgerEntry| state.imagined.iter().find(|old| same(old, entry)).cloned();
    let found: Vec<(LedgerEntry, bool)> = commands
        .iter()
        .map(|command| LedgerEntry::of(command, "", now))
        .map(|fresh| known(&fresh).map_or((fresh, true), |old| (old, false)))
        .collect();
    if found.len() == state.imagined.len() && found.iter().all(|(_, fresh)| !fresh) {
        return;
    }
    for (command, _) in commands.iter().zip(&found).filter(|(_, (_, fresh))| *fresh) {
        shows::found(report, command, true, now);
    }
    state.imagined = found.into_iter().map(|(entry, _)| entry).collect();
    report.decisions.push(record(&state.imagined, now));
}

/// The same machines for the same money; when it was first seen does not matter.
fn same(old: &LedgerEntry, new: &LedgerEntry) -> bool {
    LedgerEntry { at: new.at, ..old.clone() } == *new
}

fn record(entries: &[LedgerEntry], now: Timestamp) -> DecisionRecord {
    let message = match entries {
        [] => "would (shadow mode) do nothing now".to_owned(),
        some => some.iter().map(|entry| format!("would (shadow mode) {entry}")).collect::<Vec<_>>().join("; "),
    };
    let detail = serde_json::json!({ SHADOW: entries });
    DecisionRecord { at: now, kind: DecisionKind::Kept, subject: SHADOW.to_owned(), message, detail }
}

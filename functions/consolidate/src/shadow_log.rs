//! Shadow mode: what would be done is recorded when it changes; nothing is done.

use crate::publish;
use crate::state::Disruptions;
use whittle_claims::{DecisionKind, DecisionRecord};
use whittle_disruption::{Decision, LedgerEntry};
use whittle_model::disruption::Command;
use whittle_ports::{Mode, Report};
use whittle_snapshot::Snapshot;
use whittle_units::Timestamp;

/// Subject of the records of what would be done, and the key of their entries in the detail. Each record replaces the previous
/// one: an empty list means that there is nothing to do any more.
pub const SHADOW: &str = "shadow";

/// Records the commands that shadow mode holds back: all of a cluster in shadow mode, and those of pools in shadow mode. Nothing
/// is written while they stay the same.
pub(crate) fn update(report: &mut Report, state: &mut Disruptions, decision: &Decision, mode: Mode, snapshot: &Snapshot) {
    let now = snapshot.now;
    let whole: &[Command] = match mode {
        Mode::Active => &[],
        Mode::Shadow => &decision.commands,
    };
    let commands: Vec<&Command> = whole.iter().chain(&decision.shadow).collect();
    let known = |entry: &LedgerEntry| state.shadow_commands.iter().find(|old| is_same(old, entry)).cloned();
    let found: Vec<(LedgerEntry, bool)> = commands
        .iter()
        .map(|command| LedgerEntry::of(command, "", now))
        .map(|fresh| known(&fresh).map_or((fresh, true), |old| (old, false)))
        .collect();
    if found.len() == state.shadow_commands.len() && found.iter().all(|(_, fresh)| !fresh) {
        return;
    }
    for (command, _) in commands.iter().zip(&found).filter(|(_, (_, fresh))| *fresh) {
        publish::record_found(report, command, Mode::Shadow, snapshot);
    }
    state.shadow_commands = found.into_iter().map(|(entry, _)| entry).collect();
    let is_on = mode == Mode::Shadow || snapshot.objects.node_pools.iter().any(|pool| pool.is_shadow());
    report.decisions.push(record(&state.shadow_commands, is_on, now));
}

/// The same machines at the same cost; the time of the first sighting does not matter.
fn is_same(old: &LedgerEntry, new: &LedgerEntry) -> bool {
    LedgerEntry { at: new.at, ..old.clone() } == *new
}

/// `is_on` is whether shadow mode still is, for the cluster or for a pool.
fn record(entries: &[LedgerEntry], is_on: bool, now: Timestamp) -> DecisionRecord {
    let message = match entries {
        [] if !is_on => "shadow mode was switched off: nothing is held back any more".to_owned(),
        [] => "would (shadow mode) do nothing now".to_owned(),
        some => some.iter().map(|entry| format!("would (shadow mode) {entry}")).collect::<Vec<_>>().join("; "),
    };
    let detail = serde_json::json!({ SHADOW: entries });
    DecisionRecord { at: now, kind: DecisionKind::Kept, subject: SHADOW.to_owned(), message, detail }
}

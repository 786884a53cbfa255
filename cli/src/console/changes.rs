//! What has changed in a cluster between two looks, as lines of the timeline.

use crate::look::view::{Machine, View};
use crate::money::counted;
use std::collections::BTreeMap;

/// How many changes of one kind are listed one by one; of more, how many there were.
const LISTED_MAX: usize = 20;

/// The machines that were there at the last look: their state, and what they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Option<BTreeMap<String, (&'static str, String)>>);

/// What a machine is known by: its NodeClaim stays when it becomes a node.
fn key(machine: &Machine) -> &str {
    if machine.claim.is_empty() { &machine.name } else { &machine.claim }
}

fn described(machine: &Machine) -> String {
    let parts = [&machine.instance_type, &machine.capacity_type, &machine.zone];
    let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { machine.name.clone() } else { format!("{} ({})", machine.name, parts.join(", ")) }
}

impl Known {
    /// What is new since the last look; of the first one, how many machines and waiting pods there are.
    pub(super) fn changes(&mut self, view: &View) -> Vec<String> {
        let of = |machine: &Machine| (key(machine).to_owned(), (machine.state.as_str(), described(machine)));
        let now: BTreeMap<String, (&'static str, String)> = view.machines.iter().map(of).collect();
        let Some(before) = self.0.replace(now.clone()) else {
            let (nodes, pods) = (counted(view.machines.len(), "node"), counted(view.pods, "pod"));
            return vec![format!("the cluster was looked at first: {nodes} with {pods}, and {} waiting", view.pending())];
        };
        let mut lines = Vec::new();
        let new = now.iter().filter(|(key, _)| !before.contains_key(*key)).map(|(_, (state, what))| format!("{what}: new, {state}"));
        list(&mut lines, new.collect(), "are new");
        let moved = now.iter().filter_map(|(key, (state, what))| {
            let (was, _) = before.get(key).filter(|(was, _)| was != state)?;
            Some(format!("{what}: {was}, now {state}"))
        });
        list(&mut lines, moved.collect(), "have another state");
        let gone = before.iter().filter(|(key, _)| !now.contains_key(*key)).map(|(_, (was, what))| format!("{what}: gone, was {was}"));
        list(&mut lines, gone.collect(), "are gone");
        lines
    }
}

fn list(lines: &mut Vec<String>, changes: Vec<String>, what: &str) {
    let more = changes.len().saturating_sub(LISTED_MAX);
    lines.extend(changes.into_iter().take(LISTED_MAX));
    if more > 0 {
        lines.push(format!("{more} more {what}"));
    }
}

//! A status as text and as JSON.

use super::{Decided, Status};
use crate::live::deployment::shown;
use crate::look::view::{State, View, Waiting};
use crate::money::{HOURS_A_MONTH, cents, counted};
use crate::plan::output::dollars;
use crate::printing::in_line;
use crate::schema::Document;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The most groups of waiting pods that are shown.
const WAITING_MAX: usize = 10;

fn states(view: &View) -> BTreeMap<State, usize> {
    let mut counts = BTreeMap::new();
    for machine in &view.machines {
        *counts.entry(machine.state).or_insert(0) += 1;
    }
    counts
}

/// For people.
pub(super) fn text(status: &Status, paint: bool) -> String {
    let mut out = String::new();
    let bold = |text: &str| if paint { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() };
    if let Some(deployed) = &status.deployed {
        let deployment = &deployed.deployment;
        let head = format!("deployment {}: {}, {}", deployment.stack.name, deployment.mode(), deployment.stack.status);
        let _ = writeln!(out, "{}\n  clusters: {}", bold(&head), deployment.stack.clusters().join(", "));
        if deployed.alarms.is_empty() {
            let _ = writeln!(out, "  no alarm");
        }
        for alarm in &deployed.alarms {
            let since = if alarm.since.is_empty() { String::new() } else { format!(" since {}", in_line(&alarm.since)) };
            let _ = writeln!(out, "  ALARM {}{since}", in_line(&alarm.name));
        }
    }
    cluster(&mut out, &status.view, &bold);
    if !status.decisions.is_empty() {
        let _ = writeln!(out, "{}", bold("last decisions (UTC)"));
    }
    for Decided { at, about, message } in &status.decisions {
        let _ = writeln!(out, "  {}  {}: {}", shown(*at), in_line(about), in_line(message));
    }
    let head = match status.attention.len() {
        0 => "nothing needs attention".to_owned(),
        1 => "1 thing needs attention".to_owned(),
        many => format!("{many} things need attention"),
    };
    let _ = writeln!(out, "{}", bold(&head));
    for line in &status.attention {
        let _ = writeln!(out, "  {}", in_line(line));
    }
    out
}

fn cluster(out: &mut String, view: &View, bold: &dyn Fn(&str) -> String) {
    let bill = &view.bill;
    let money = format!("{} (${:.2} a month)", bill.price, bill.price.dollars() * HOURS_A_MONTH);
    let unpriced =
        if bill.unpriced == 0 { String::new() } else { format!(", without {} of unknown price", counted(bill.unpriced, "node")) };
    let head = format!(
        "cluster: {}, {}, {}{unpriced}",
        counted(view.machines.len(), "node"),
        counted(view.pods, "pod"),
        view.currency.shown(money)
    );
    let _ = writeln!(out, "{}", bold(&head));
    let states: Vec<String> = states(view).iter().map(|(state, count)| format!("{count} {}", state.as_str())).collect();
    if !states.is_empty() {
        let _ = writeln!(out, "  nodes: {}", states.join(", "));
    }
    match view.pending() {
        0 => {
            let _ = writeln!(out, "  no pod waits");
        }
        1 => {
            let _ = writeln!(out, "  1 pod waits");
        }
        many => {
            let _ = writeln!(out, "  {many} pods wait");
        }
    }
    for group in view.waiting.iter().take(WAITING_MAX) {
        let _ = writeln!(out, "    {} of {}: {}", group.count, in_line(&group.owner), in_line(&group.reason));
    }
    let more = view.waiting.len().saturating_sub(WAITING_MAX);
    if more > 0 {
        let _ = writeln!(out, "    and {more} other reasons");
    }
}

/// For programs.
pub(super) fn json(status: &Status) -> Value {
    let view = &status.view;
    let states: BTreeMap<&str, usize> = states(view).into_iter().map(|(state, count)| (state.as_str(), count)).collect();
    let waiting = |group: &Waiting| {
        let Waiting { pod, owner, count, since, reason } = group;
        json!({"pod": pod, "owner": owner, "count": count, "since": since, "reason": reason})
    };
    Document::Status.versioned(json!({
        "at": status.now,
        "deployment": status.deployed.as_ref().map(|deployed| json!({
            "stack": deployed.deployment.stack.name,
            "status": deployed.deployment.stack.status,
            "mode": deployed.deployment.mode(),
            "clusters": deployed.deployment.stack.clusters(),
            "alarms": deployed.alarms.iter().map(|alarm| json!({
                "name": alarm.name, "description": alarm.description, "since": alarm.since,
            })).collect::<Vec<_>>(),
        })),
        "cluster": {
            "nodes": view.machines.len(),
            "states": states,
            "pods": view.pods,
            "waiting": view.waiting.iter().map(waiting).collect::<Vec<_>>(),
            "currency": view.currency.code(),
            "price": dollars(view.bill.price),
            "monthly": cents(view.bill.price.dollars() * HOURS_A_MONTH),
            "unpriced": view.bill.unpriced,
        },
        "decisions": status.decisions,
        "attention": status.attention,
    }))
}

//! Timelines and tables for people.

use super::scenario::Outcome;
use jiff::Timestamp;
use whittle_sim::{Line, LineKind};
use whittle_units::Price;

/// `00:01:23` since the beginning.
pub fn clock(begun: Timestamp, at: Timestamp) -> String {
    let seconds = at.duration_since(begun).as_secs().max(0);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The mark of a kind of line.
pub const fn mark(kind: LineKind) -> &'static str {
    match kind {
        LineKind::Step => "you     ",
        LineKind::Decision => "whittle ",
        LineKind::Event => "event   ",
        LineKind::Cluster => "cluster ",
        LineKind::Cloud => "ec2     ",
        LineKind::Fault => "fault   ",
    }
}

/// Lines of a timeline: time, who, what, and the cost per hour whenever it changes.
pub fn timeline(lines: &[Line], begun: Timestamp, mut cost: Price) -> String {
    let mut text = String::new();
    for line in lines {
        let price = if line.cost == cost { String::new() } else { format!("   [{}]", line.cost) };
        cost = line.cost;
        text.push_str(&format!("{}  {}  {}{price}\n", clock(begun, line.at), mark(line.kind), line.text));
    }
    text
}

/// A scenario's story, its verdict and its figures.
pub fn text(outcome: &Outcome) -> String {
    let mut text = format!("━━ {} (seed {}", outcome.name, outcome.seed);
    if !outcome.shows.is_empty() {
        text.push_str(&format!("; shows {}", outcome.shows.join(" ")));
    }
    text.push_str(")\n");
    let begun = outcome.lines.first().map_or(Timestamp::UNIX_EPOCH, |line| line.at);
    text.push_str(&timeline(&outcome.lines, begun, Price::ZERO));
    let figures = &outcome.summary;
    text.push_str(&format!(
        "   {} machines started, {} running; {} pods running, {} waiting; {} invocations over {} virtual seconds\n",
        figures.machines_started,
        figures.machines_running,
        figures.pods_running,
        figures.pods_pending,
        figures.invocations,
        figures.virtual_seconds
    ));
    if outcome.failures.is_empty() {
        text.push_str(&format!("   {}: passed\n", outcome.name));
    }
    for failure in &outcome.failures {
        text.push_str(&format!("   {}: FAILED: {failure}\n", outcome.name));
    }
    text
}

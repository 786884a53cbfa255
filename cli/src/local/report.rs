//! Timelines and tables for people.

use super::scenario::{MachineSpan, Outcome};
use crate::money::{Currency, counted};
use crate::printing;
use crate::report::chart::{self, MACHINES_MAX, Span};
use crate::report::{Kind, Report, Section};
use jiff::Timestamp;
use std::time::Duration;
use whittle_sim::{Line, LineKind};
use whittle_units::Price;

/// Time since the beginning, as `00:01:23`.
pub fn clock(begun: Timestamp, at: Timestamp) -> String {
    let seconds = at.duration_since(begun).as_secs().max(0);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A text with the times of the session as its clock tells them, which is in front of every line.
pub fn on_clock(text: &str, begun: Timestamp) -> String {
    let time = |word: &str| word.strip_suffix('Z').filter(|word| word.contains('T')).and_then(|_| word.parse::<Timestamp>().ok());
    let shown = |word: &str| {
        let bare = word.trim_end_matches([',', ';', '.', ')']);
        let at = time(bare).filter(|at| begun <= *at)?;
        Some(format!("{}{}", clock(begun, at), word.strip_prefix(bare).unwrap_or_default()))
    };
    text.split(' ').map(|word| shown(word).unwrap_or_else(|| word.to_owned())).collect::<Vec<_>>().join(" ")
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

/// A mark in its colour.
fn painted(kind: LineKind, paint: bool) -> String {
    let colour = match kind {
        LineKind::Step => "1",
        LineKind::Decision => "36",
        LineKind::Event => "34",
        LineKind::Cluster => "32",
        LineKind::Cloud => "33",
        LineKind::Fault => "31",
    };
    if paint { format!("\u{1b}[{colour}m{}\u{1b}[0m", mark(kind)) } else { mark(kind).to_owned() }
}

/// Lines of a timeline: time, who, what, and the cost per hour whenever it changes.
pub fn timeline(lines: &[Line], begun: Timestamp, mut cost: Price, paint: bool) -> String {
    let mut text = String::new();
    for line in lines {
        let price = if line.cost == cost { String::new() } else { format!("   [{}]", line.cost) };
        cost = line.cost;
        let said = on_clock(&line.text, begun);
        let said = folded(&format!("{said}{price}"), printing::columns());
        text.push_str(&format!("{}  {}  {said}\n", clock(begun, line.at), painted(line.kind, paint)));
    }
    text
}

/// What stands before the text of a line: the time, and who.
const MARGIN: usize = 20;
/// A terminal with fewer columns folds lines itself.
const COLUMNS_MIN: usize = 60;

/// A text in lines as short as the columns of a terminal want them, each below the first; as it is where no terminal shows it.
fn folded(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns.filter(|columns| *columns >= COLUMNS_MIN) else { return text.to_owned() };
    let (mut out, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let letters = word.chars().count();
        if 0 < used && columns < MARGIN + used + 1 + letters {
            out.push_str(&format!("\n{:MARGIN$}", ""));
            used = 0;
        } else if !out.is_empty() {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += letters;
    }
    out
}

/// The report of some scenarios as a file's text.
pub(super) fn file(kind: Kind, outcomes: &[Outcome]) -> String {
    let failed = outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).count();
    let lead = match (outcomes.len(), failed) {
        (all, 0) => format!("{}, all as expected", counted(all, "scenario")),
        (all, failed) => format!("{}, {failed} not as expected", counted(all, "scenario")),
    };
    let sections = outcomes.iter().flat_map(sections).collect();
    kind.render(&Report { title: "Scenarios".to_owned(), lead: vec![lead], sections })
}

/// The parts of a report about one scenario.
fn sections(outcome: &Outcome) -> Vec<Section> {
    let currency = Currency::of_region(&outcome.region);
    let figures = &outcome.summary;
    let mut text: Vec<String> = outcome.failures.iter().map(|failure| format!("failed: {failure}")).collect();
    text.push(format!(
        "{} started, {} running at the end; {} running and {} pending",
        counted(figures.machines_started, "machine"),
        figures.machines_running,
        counted(figures.pods_running, "pod"),
        figures.pods_pending
    ));
    let begun = outcome.lines.first().map_or(Timestamp::UNIX_EPOCH, |line| line.at);
    let since = |at: Timestamp| at.duration_since(begun).as_secs_f64().max(0.0);
    let end = outcome.lines.last().map_or(0.0, |line| since(line.at));
    let steps: Vec<(f64, f64)> = outcome.lines.iter().map(|line| (since(line.at), line.cost.dollars())).collect();
    let spans: Vec<Span> = outcome.machines.iter().map(span).collect();
    if spans.len() > MACHINES_MAX {
        text.push(format!("the drawing has the first {MACHINES_MAX} of {} machines", spans.len()));
    }
    let charts = [chart::cost(&steps, end), chart::machines(&spans, end).filter(|_| !spans.is_empty())];
    let title = format!("{} (seed {})", outcome.name, outcome.seed);
    let overview = Section { title, text, table: None, charts: charts.into_iter().flatten().collect() };
    let rows = outcome.lines.iter().map(|line| {
        let who = mark(line.kind).trim().to_owned();
        vec![clock(begun, line.at), who, currency.shown(line.text.clone()), currency.shown(line.cost.to_string())]
    });
    let timeline = Section::of_table(&format!("{}: what happened", outcome.name), &["Time", "Who", "What", "Cost"], rows.collect());
    std::iter::once(overview).chain(timeline).collect()
}

fn span(machine: &MachineSpan) -> Span {
    let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).as_secs_f64();
    Span {
        name: format!("{} {} {}", machine.instance_type, machine.capacity_type, machine.zone),
        is_spot: machine.capacity_type == "spot",
        from: seconds(machine.from_seconds),
        to: seconds(machine.to_seconds),
    }
}

/// A scenario's story, its verdict and its figures.
pub fn text(outcome: &Outcome, paint: bool) -> String {
    let mut text = format!("━━ {} (seed {}", outcome.name, outcome.seed);
    if !outcome.shows.is_empty() {
        text.push_str(&format!("; shows {}", outcome.shows.join(" ")));
    }
    text.push_str(")\n");
    let begun = outcome.lines.first().map_or(Timestamp::UNIX_EPOCH, |line| line.at);
    text.push_str(&timeline(&outcome.lines, begun, Price::ZERO, paint));
    let figures = &outcome.summary;
    text.push_str(&format!(
        "   {} started, {} running; {} running, {} waiting; {} invocations over {} virtual seconds\n",
        counted(figures.machines_started, "machine"),
        figures.machines_running,
        counted(figures.pods_running, "pod"),
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
    Currency::of_region(&outcome.region).shown(text)
}

/// One line about several scenarios: how many passed, and the names of those that failed.
pub fn summary(outcomes: &[Outcome]) -> String {
    let failed: Vec<&str> = outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).map(|outcome| outcome.name.as_str()).collect();
    let names = if failed.is_empty() { String::new() } else { format!(": {}", failed.join(", ")) };
    format!("━━ {} scenarios: {} passed, {} failed{names}", outcomes.len(), outcomes.len() - failed.len(), failed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_at_words_below_their_beginning() {
        let text = "nodeclaim/default-abcde: for 3 pods from nodepool default, requests cpu 4500m   [$0.1/h]";
        assert_eq!(folded(text, None), text);
        assert_eq!(folded(text, Some(20)), text);
        let lines = folded(text, Some(60));
        let lines: Vec<&str> = lines.lines().collect();
        assert!(lines.len() == 3 && lines[1..].iter().all(|line| line.starts_with(&" ".repeat(20)) && line.len() <= 60), "{lines:?}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines.join(" ")), words(text));
        assert_eq!(folded(&"a".repeat(90), Some(60)), "a".repeat(90), "a word stays whole");
    }

    #[test]
    fn lines_are_coloured_only_on_request() {
        let line = Line { at: Timestamp::UNIX_EPOCH, kind: LineKind::Cloud, text: "EC2 starts".to_owned(), cost: Price::ZERO };
        let line_text = |paint| timeline(std::slice::from_ref(&line), Timestamp::UNIX_EPOCH, Price::ZERO, paint);
        assert_eq!(line_text(false), "00:00:00  ec2       EC2 starts\n");
        assert_eq!(line_text(true), "00:00:00  \u{1b}[33mec2     \u{1b}[0m  EC2 starts\n");
    }

    #[test]
    fn times_of_the_session_are_told_by_its_clock() {
        let begun: Timestamp = "2026-01-05T09:00:00Z".parse().unwrap();
        let told = |text: &str| on_clock(text, begun);
        assert_eq!(told("not before 2026-01-05T10:01:40.086Z (consolidateAfter)"), "not before 01:01:40 (consolidateAfter)");
        assert_eq!(told("until 2026-01-05T09:00:30Z, and  then"), "until 00:00:30, and  then");
        let before = "an image of 2025-06-01T00:00:00Z in zone TZ";
        assert_eq!(told(before), before, "what is older than the session has no time there");
    }
}

//! The ledger as a report for others to read.

use super::{ASSUMPTION, amount, dollars, text};
use crate::money::Currency;
use crate::report::{Kind, Report, Section, chart};
use crate::source::files;
use jiff::Timestamp;
use std::path::Path;
use whittle_disruption::{LedgerEntry, SavingsReport};

/// The most commands that are listed, the newest.
const COMMANDS_MAX: usize = 1_000;

/// What is reported.
pub(super) struct Ledger<'a> {
    /// How many entries there are, of any time.
    pub(super) all: usize,
    pub(super) report: &'a SavingsReport,
    /// The commands that the sums are of.
    pub(super) entries: Vec<&'a LedgerEntry>,
    /// What there is to say of shadow mode; may be empty.
    pub(super) shadow: String,
    pub(super) until: Timestamp,
    pub(super) currency: Currency,
}

/// Writes the report in the format that the file's name asks for.
///
/// Errors in a sentence.
pub(super) fn write(path: &Path, ledger: &Ledger<'_>) -> Result<(), String> {
    let kind = Kind::of_file(path)?;
    let written = std::fs::write(path, kind.render(&report(ledger)));
    written.map_err(|error| format!("{}: the report cannot be written: {error}", files::shown(path)))
}

fn report(ledger: &Ledger<'_>) -> Report {
    let shown = |text: String| ledger.currency.shown(text);
    let mut entries = ledger.entries.clone();
    entries.sort_by_key(|entry| entry.at);
    let said = text(ledger.report, ledger.until, ledger.all) + &ledger.shadow;
    let lead = said.lines().filter(|line| !line.starts_with("  ") && !line.contains(ASSUMPTION)).map(|line| shown(line.to_owned()));
    let mut over_time = Section { title: "Saved an hour, over time".to_owned(), ..Section::default() };
    over_time.text = vec![format!("Each command counts from its decision on. That assumes that {ASSUMPTION}.")];
    over_time.charts.extend(saved_over_time(&entries, ledger.until));
    let by =
        |by: &std::collections::BTreeMap<String, i128>| by.iter().map(|(name, rate)| vec![name.clone(), shown(amount(*rate, 4))]).collect();
    let mut commands =
        Section::of_table("Commands", &HEADER, entries.iter().rev().take(COMMANDS_MAX).map(|entry| row(entry, &shown)).collect());
    if let Some(section) = commands.as_mut().filter(|_| entries.len() > COMMANDS_MAX) {
        section.text.push(format!("The newest {COMMANDS_MAX} of {}.", entries.len()));
    }
    let sections = [
        (!entries.is_empty()).then_some(over_time),
        Section::of_table("By reason", &["Reason", "Saved an hour"], by(&ledger.report.by_reason)),
        Section::of_table("By NodePool", &["NodePool", "Saved an hour"], by(&ledger.report.by_pool)),
        commands,
    ];
    Report { title: "What disruptions have saved".to_owned(), lead: lead.collect(), sections: sections.into_iter().flatten().collect() }
}

const HEADER: [&str; 8] = ["Time (UTC)", "Reason", "What", "Nodes", "NodePools", "Pods moved", "Before, an hour", "After, an hour"];

fn row(entry: &LedgerEntry, shown: &dyn Fn(String) -> String) -> Vec<String> {
    vec![
        entry.at.strftime("%F %T").to_string(),
        entry.reason.clone(),
        entry.action.clone(),
        entry.nodes.join(", "),
        entry.node_pools.join(", "),
        entry.pods_moved.to_string(),
        shown(entry.before_nanos.to_string()),
        shown(entry.after_nanos.to_string()),
    ]
}

/// The sum of what commands save an hour, from the first one to the end.
fn saved_over_time(entries: &[&LedgerEntry], until: Timestamp) -> Option<String> {
    let begun = entries.first()?.at;
    let mut saved = 0_i128;
    let steps: Vec<(f64, f64)> = entries
        .iter()
        .map(|entry| {
            saved = saved.saturating_add(entry.saved_nanos());
            (entry.at.duration_since(begun).as_secs_f64(), dollars(saved))
        })
        .collect();
    chart::rate("saved an hour", &steps, until.duration_since(begun).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_disruption::savings;
    use whittle_units::Price;

    fn entry(hour: i8, id: &str, before: u64, after: u64) -> LedgerEntry {
        LedgerEntry {
            id: id.to_owned(),
            at: jiff::civil::date(2026, 1, 5).at(hour, 0, 0, 0).to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp(),
            reason: "Underutilized".to_owned(),
            action: "replace".to_owned(),
            nodes: vec![format!("<b>{id}|</b>")],
            node_pools: vec!["default".to_owned()],
            before_nanos: Price::from_nanos(before),
            after_nanos: Price::from_nanos(after),
            pods_moved: 3,
        }
    }

    #[test]
    fn a_report_has_the_sums_every_command_and_a_drawing() {
        let entries = [entry(1, "a", 3_000_000_000, 1_000_000_000), entry(2, "b", 500_000_000, 700_000_000)];
        let until = entry(6, "", 0, 0).at;
        let sums = savings(&entries, Timestamp::MIN, until);
        let ledger = Ledger {
            all: 0,
            report: &sums,
            entries: entries.iter().collect(),
            shadow: String::new(),
            until,
            currency: Currency::default(),
        };
        let report = report(&ledger);
        let markdown = Kind::Markdown.render(&report);
        assert!(markdown.contains("2 commands removed 2 nodes and moved 6 pods"), "{markdown}");
        assert!(
            markdown.contains("| 2026-01-05 01:00:00 | Underutilized | replace |") && markdown.contains(r"\<b\>a\|\</b\>"),
            "{markdown}"
        );
        assert!(markdown.find("02:00:00") < markdown.find("01:00:00"), "the newest first");
        let html = Kind::Html.render(&report);
        assert!(html.contains("<svg") && html.contains("&lt;b&gt;a|&lt;/b&gt;") && !html.contains("<b>a"), "{html}");
        let nothing = SavingsReport::default();
        let empty = Ledger { all: 0, report: &nothing, entries: Vec::new(), shadow: String::new(), until, currency: Currency::default() };
        let markdown = Kind::Markdown.render(&super::report(&empty));
        assert!(markdown.contains("No disruption command was executed") && !markdown.contains("##"), "{markdown}");
    }

    #[test]
    fn a_report_that_cannot_be_written_or_has_no_format_is_an_error() {
        let nothing = SavingsReport::default();
        let empty = Ledger {
            all: 0,
            report: &nothing,
            entries: Vec::new(),
            shadow: String::new(),
            until: Timestamp::UNIX_EPOCH,
            currency: Currency::default(),
        };
        assert!(write(Path::new("savings.pdf"), &empty).unwrap_err().contains(".md or .html"));
        assert!(write(Path::new("/nowhere/savings.md"), &empty).unwrap_err().contains("cannot be written"));
    }
}

//! Finds ledger entries in any of the formats that contain them.

use super::shadow::ShadowRecord;
use crate::money::Currency;
use crate::source::unique;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::Range;
use whittle_api::words;
use whittle_claims::DecisionRecord;
use whittle_consolidate::SHADOW;
use whittle_disruption::{LedgerEntry, SavingsReport, savings};
use whittle_units::fnv1a;

/// The maximum number of errors that are printed; more are only counted.
const ERRORS_MAX: usize = 20;

/// What is wrong with a value of another kind.
const NEITHER: &str = "is neither a ledger entry nor a decision: name an export of the table, or what `whittle local run -o json` printed";

/// The records found so far.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) entries: Vec<LedgerEntry>,
    /// Records of shadow mode.
    pub(super) shadow_records: Vec<ShadowRecord>,
    pub(super) faults: Vec<String>,
    suppressed: usize,
    /// The entries of simulations, by their positions, and when each of these ended.
    simulated: Vec<(Range<usize>, Option<Timestamp>)>,
    /// Digests of the outcomes.
    outcomes: BTreeSet<u64>,
    /// By the id of a command: where its first entry is.
    places: BTreeMap<String, (String, usize)>,
}

impl Ledger {
    /// Reads all JSON values of a stream one by one: a long export of JSON lines is never held in memory as a whole. Returns whether there
    /// is none.
    pub(super) fn read(&mut self, name: &str, input: impl Read) -> bool {
        let mut values = unique::stream(input).peekable();
        let is_empty = values.peek().is_none();
        for (number, value) in (1..).zip(values) {
            match value {
                Ok(value) => self.take(&format!("{name}: value {number}"), value),
                Err(error) => {
                    self.fail(format!("{name}: value {number} is not JSON, the rest is left out: {}", plain(error)));
                    return false;
                }
            }
        }
        is_empty
    }

    /// Adds the entries of decisions.
    pub(super) fn add_decisions(&mut self, place: &str, decisions: Vec<DecisionRecord>) {
        for decision in decisions {
            let place = format!("{place}, decision of {}", decision.at);
            self.take(&place, serde_json::json!(decision));
        }
    }

    pub(super) fn fail(&mut self, fault: String) {
        if self.faults.len() < ERRORS_MAX {
            self.faults.push(fault);
            return;
        }
        self.suppressed += 1;
        self.faults.truncate(ERRORS_MAX - 1);
        self.faults.push(format!("and {} more faults", self.suppressed + 1));
    }

    fn take(&mut self, place: &str, value: Value) {
        match value {
            Value::Array(values) => {
                for (number, value) in (1..).zip(values) {
                    self.take(&format!("{place}, item {number}"), value);
                }
            }
            Value::Object(object) if object.get("formatVersion").is_some_and(|version| version != 1) => {
                let version = object.get("formatVersion").map(ToString::to_string).unwrap_or_default();
                self.fail(format!("{place} is of formatVersion {version}, of which this command knows 1: use a newer one"));
            }
            Value::Object(mut object) => {
                if let Some(outcomes) = object.remove("scenarios") {
                    return self.take(place, outcomes);
                }
                // An export of the table; an outcome of a simulation; an item of the table; a decision; an entry.
                if let Some(lines) = object.get("lines").and_then(Value::as_array) {
                    return self.take_simulation(place, end_of(&object, lines), object);
                }
                if let Some(items) = object.remove("Items").or_else(|| object.remove(LedgerEntry::KEY)) {
                    return self.take(place, items);
                }
                if let Some(data) = object.get("data").and_then(|data| data.get("S")).and_then(Value::as_str) {
                    return match unique::json(data) {
                        Ok(value) => self.take(place, value),
                        Err(error) => self.fail(format!("{place}: its data are not JSON: {}", plain(error))),
                    };
                }
                if object.contains_key("beforeNanos") {
                    return self.add_entry(place, Value::Object(object));
                }
                let detail = object.remove("detail");
                if let Some(shadow_records) = detail.as_ref().and_then(|detail| detail.get(SHADOW)) {
                    return self.add_shadow_record(place, object.get("at"), shadow_records);
                }
                match detail.map(|mut detail| detail.get_mut(LedgerEntry::KEY).map(Value::take)) {
                    Some(Some(entry)) => self.add_entry(place, entry),
                    // A decision that is not in the ledger.
                    Some(None) => {}
                    None if object.get("subject").and_then(|subject| subject.get("S")).is_some_and(|of| of == LedgerEntry::KEY) => {
                        self.fail(format!("{place} is an item of the ledger without data"));
                    }
                    None if object.contains_key("subject") || object.contains_key("Count") => {}
                    None => self.fail(format!("{place} {NEITHER}")),
                }
            }
            _ => self.fail(format!("{place} {NEITHER}")),
        }
    }

    /// Takes an outcome, unless it was taken before. Simulations of one seed give their commands the same ids.
    fn take_simulation(&mut self, place: &str, ended: Option<Timestamp>, mut outcome: Map<String, Value>) {
        let entries = outcome.remove(LedgerEntry::KEY).unwrap_or_default();
        if !self.outcomes.insert(fnv1a(format!("{entries}{outcome:?}"))) {
            return;
        }
        let (before, number) = (self.entries.len(), self.outcomes.len());
        let of_others = std::mem::take(&mut self.places);
        self.take(place, entries);
        self.places = of_others;
        for entry in self.entries.iter_mut().skip(before).filter(|entry| !entry.id.is_empty()) {
            entry.id = format!("{number}/{}", entry.id);
        }
        // What claims to be the outcome of another simulation within this one ends with it.
        self.simulated.retain(|(entries, _)| entries.start < before);
        self.simulated.push((before..self.entries.len(), ended.map(after)));
    }

    /// When the last of the simulations that all entries come from had ended: nothing was saved after that. `None` if there are other
    /// entries.
    pub(super) fn ended(&self) -> Option<Timestamp> {
        let simulated: usize = self.simulated.iter().map(|(entries, _)| entries.len()).sum();
        let all = simulated == self.entries.len() && self.shadow_records.is_empty();
        self.simulated.iter().filter_map(|(_, ended)| *ended).max().filter(|_| all)
    }

    /// The sums of the entries in a time, those of a simulation until its end.
    pub(super) fn sums(&self, from: Timestamp, until: Timestamp) -> SavingsReport {
        let mut sums = SavingsReport::default();
        let mut others = self.entries.clone();
        for (entries, ended) in self.simulated.iter().rev() {
            let own: Vec<LedgerEntry> = others.drain(entries.clone()).collect();
            sums.add(savings(&own, from, ended.map_or(until, |ended| ended.min(until))));
        }
        sums.add(savings(&others, from, until));
        sums
    }

    /// The currency of the regions that the names of the nodes end with.
    ///
    /// # Errors
    /// There are several.
    pub(super) fn currency(&self) -> Result<Currency, String> {
        let entries = self.entries.iter().chain(self.shadow_records.iter().flat_map(|record| &record.entries));
        let mut all: Vec<Currency> = entries.flat_map(|entry| &entry.nodes).map(|node| Currency::of_node(node)).collect();
        all.sort();
        all.dedup();
        match all[..] {
            [] => Ok(Currency::default()),
            [one] => Ok(one),
            _ => {
                let codes = all.iter().map(|one| one.code()).collect::<Vec<_>>().join(" and ");
                Err(format!("the entries are in {codes}, which are not added up: name those of one currency at a time"))
            }
        }
    }

    fn add_shadow_record(&mut self, place: &str, at: Option<&Value>, entries: &Value) {
        let at = at.and_then(|at| serde_json::from_value(at.clone()).ok());
        match (at, serde_json::from_value(entries.clone())) {
            (Some(at), Ok(entries)) => {
                let entries: Vec<LedgerEntry> = entries;
                self.shadow_records.push(ShadowRecord { at, entries: entries.into_iter().map(printable).collect() });
            }
            (None, _) => self.fail(format!("{place} is a record of shadow mode without a time")),
            (_, Err(error)) => self.fail(format!("{place} is no record of shadow mode: {}", plain(error))),
        }
    }

    fn add_entry(&mut self, place: &str, value: Value) {
        match serde_json::from_value::<LedgerEntry>(value) {
            Ok(entry) => self.add(place, printable(entry)),
            Err(error) => self.fail(format!("{place} is no ledger entry: {}", plain(error))),
        }
    }
}

impl Ledger {
    /// Adds an entry. Of those with one id the first counts: whoever writes a decision again says the same of its money.
    fn add(&mut self, place: &str, entry: LedgerEntry) {
        if !entry.id.is_empty() {
            let (first, at) = self.places.entry(entry.id.clone()).or_insert_with(|| (place.to_owned(), self.entries.len()));
            let other = self.entries.get(*at);
            if other.is_some_and(|other| {
                (other.before_nanos, other.after_nanos, &other.nodes) != (entry.before_nanos, entry.after_nanos, &entry.nodes)
            }) {
                let first = first.clone();
                self.fail(format!("{place} has the id of {first}, {:?}, with other nodes or prices: it is not counted", entry.id));
                return;
            }
        }
        self.entries.push(entry);
    }
}

fn plain(error: serde_json::Error) -> String {
    words::plain(&error.to_string())
}

/// The moment after another.
fn after(at: Timestamp) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX)
}

/// An entry of which nothing ends a line or steers a terminal.
fn printable(mut entry: LedgerEntry) -> LedgerEntry {
    let own = [&mut entry.reason, &mut entry.action].into_iter();
    for word in own.chain(&mut entry.nodes).chain(&mut entry.node_pools).filter(|word| !words::is_printable(word)) {
        *word = words::printable(word).into_owned();
    }
    entry
}

/// When a simulation ended; where an older release does not say it, the time of its last line.
fn end_of(outcome: &Map<String, Value>, lines: &[Value]) -> Option<Timestamp> {
    let said = outcome.get("summary").and_then(|summary| summary.get("endedAt")?.as_str()?.parse().ok());
    said.or_else(|| last_time(lines))
}

/// The time of the last line of a simulation.
fn last_time(lines: &[Value]) -> Option<Timestamp> {
    lines.iter().rev().find_map(|line| line.get("at")?.as_str()?.parse().ok())
}

//! What was last seen of a cluster, and how much of it a page has.

use super::view::{LINES_MAX, State, new_lines};
use crate::money::Currency;
use jiff::Timestamp;
use serde_json::{Value, json};
use whittle_sim::Line;
use whittle_units::Price;

/// What a page has already.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    version: u64,
    lines: usize,
    costs: usize,
    clock: String,
}

impl Seen {
    /// As the query of a request says it; what it does not say is nothing.
    pub(crate) fn of(query: &str) -> Self {
        let mut seen = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "version" => seen.version = value.parse().unwrap_or(0),
                "lines" => seen.lines = value.parse().unwrap_or(0),
                "costs" => seen.costs = value.parse().unwrap_or(0),
                "clock" => value.clone_into(&mut seen.clock),
                _ => {}
            }
        }
        seen
    }
}

/// What was last seen of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    body: String,
    version: u64,
    pub(crate) now: Timestamp,
    pub(crate) currency: Currency,
    /// Per hour.
    pub(crate) cost: Price,
    pub(crate) lines: Vec<Line>,
    /// How many lines were there before these.
    forgotten: usize,
    pub(crate) costs: Costs,
}

impl Picture {
    /// Shows a state; it has a new version if it is another one.
    pub(crate) fn show(&mut self, state: &State) {
        let body = self.currency.shown(serde_json::to_string(state).unwrap_or_default());
        if body != self.body {
            self.body = body;
            self.version += 1;
        }
    }

    /// Forgets lines that no page is sent any more, now and then: what is looked at runs for weeks.
    pub(crate) fn forget_old_lines(&mut self) {
        if 2 * LINES_MAX < self.lines.len() {
            let old = self.lines.len() - LINES_MAX;
            self.lines.drain(..old);
            self.forgotten += old;
        }
    }

    /// What a page lacks, as JSON. `clock` changes with whatever else it is to be told, which is `more`.
    pub(crate) fn news(&self, seen: &Seen, clock: &str, begun: Timestamp, more: Value) -> Option<String> {
        let lines = self.forgotten + self.lines.len();
        let has_all = seen.version == self.version && seen.lines == lines && seen.costs == self.costs.steps.len();
        if has_all && seen.clock == clock {
            return None;
        }
        let mut news = json!({
            "clock": clock,
            "sign": self.currency.sign(),
            "now": self.now.as_millisecond(),
            "begun": begun.as_millisecond(),
            "cost": self.cost.nanos(),
            "spent": self.costs.spent(self.now),
            "version": self.version,
            "told": new_lines(&self.lines, seen.lines.saturating_sub(self.forgotten)),
            "lines": lines,
            "steps": self.costs.steps.get(seen.costs..).unwrap_or_default(),
            "costs": self.costs.steps.len(),
        });
        if let (Value::Object(news), Value::Object(more)) = (&mut news, more) {
            news.extend(more);
        }
        let mut text = self.currency.shown(news.to_string());
        if seen.version != self.version {
            text.pop();
            text.push_str(r#","state":"#);
            text.push_str(&self.body);
            text.push('}');
        }
        Some(text)
    }
}

/// The cost per hour over time, and what was spent, read from the timeline as it grows.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    read: usize,
    last: Option<(Timestamp, Price)>,
    /// Up to the last line that was read, in billionths of a dollar.
    spent: u128,
    /// When the cost per hour changed, and to what: milliseconds, billionths of a dollar.
    pub(crate) steps: Vec<(i64, u64)>,
}

/// What a cost per hour amounts to in a time, in billionths of a dollar times 3,600,000: rounded only when it is shown.
fn amount(cost: Price, from: Timestamp, to: Timestamp) -> u128 {
    let span = u128::try_from(to.as_millisecond() - from.as_millisecond()).unwrap_or(0);
    u128::from(cost.nanos()) * span
}

impl Costs {
    /// Reads what the timeline has more than last time.
    pub(crate) fn read(&mut self, lines: &[Line]) {
        for line in lines.get(self.read..).unwrap_or_default() {
            self.add(line.at, line.cost);
        }
        self.read = lines.len();
    }

    /// The cost per hour from a time on.
    pub(crate) fn add(&mut self, from: Timestamp, cost: Price) {
        if let Some((at, cost)) = self.last {
            self.spent += amount(cost, at, from);
        }
        if self.last.is_none_or(|(_, known)| known != cost) {
            self.steps.push((from.as_millisecond(), cost.nanos()));
        }
        self.last = Some((from, cost));
    }

    /// What was spent until now, in billionths of a dollar.
    pub(crate) fn spent(&self, now: Timestamp) -> u64 {
        let running = self.last.map_or(0, |(at, cost)| amount(cost, at, now));
        u64::try_from((self.spent + running) / 3_600_000).unwrap_or(u64::MAX)
    }
}

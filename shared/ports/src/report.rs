//! What an invocation did.

use std::collections::BTreeMap;
use std::fmt;
use whittle_claims::{DecisionKind, DecisionRecord};
use whittle_units::{Price, Quantity, SignedDuration, Timestamp};

/// One increment of a counter, under Karpenter's metric name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    pub metric: &'static str,
    pub labels: BTreeMap<&'static str, String>,
    pub by: u64,
}

/// The value of a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    Count(u64),
    /// A resource in thousandths of its unit.
    Quantity(Quantity),
    Time(SignedDuration),
    /// Dollars; per hour for a price.
    Dollars(Price),
}

/// A state as of the invocation, or a duration, under Karpenter's metric name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gauge {
    pub metric: &'static str,
    pub labels: BTreeMap<&'static str, String>,
    pub amount: Amount,
}

/// What an invocation did: for the log, the decision log, the metrics and the simulator's timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they happened.
    pub decisions: Vec<DecisionRecord>,
    /// Counts of what was done, by name (`created`, `evicted`, …).
    pub counts: BTreeMap<&'static str, u64>,
    pub metrics: Vec<Counted>,
    pub gauges: Vec<Gauge>,
}

impl Report {
    /// Records a decision.
    pub fn decide(&mut self, at: Timestamp, kind: DecisionKind, subject: impl Into<String>, message: impl Into<String>) {
        self.explain(at, kind, subject, message, serde_json::Value::Null);
    }
    /// Records a decision with its structured data.
    pub fn explain(
        &mut self,
        at: Timestamp,
        kind: DecisionKind,
        subject: impl Into<String>,
        message: impl Into<String>,
        detail: serde_json::Value,
    ) {
        self.decisions.push(DecisionRecord { at, kind, subject: subject.into(), message: message.into(), detail });
    }
    /// Increments the count of `word`.
    pub fn count(&mut self, word: &'static str) {
        *self.counts.entry(word).or_default() += 1;
    }
    /// How often `word` was counted.
    pub fn counted(&self, word: &str) -> u64 {
        self.counts.get(word).copied().unwrap_or(0)
    }
    /// Increments a metric by one.
    pub fn metric<const N: usize>(&mut self, metric: &'static str, labels: [(&'static str, &str); N]) {
        self.metric_by(metric, labels, 1);
    }
    /// Increments a metric.
    pub fn metric_by<const N: usize>(&mut self, metric: &'static str, labels: [(&'static str, &str); N], by: u64) {
        let labels = labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        self.metrics.push(Counted { metric, labels, by });
    }
    /// Sets a gauge.
    pub fn gauge<const N: usize>(&mut self, metric: &'static str, labels: [(&'static str, &str); N], amount: Amount) {
        let labels = labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        self.gauges.push(Gauge { metric, labels, amount });
    }
    /// Merges the report of a part of the work.
    pub fn absorb(&mut self, other: Self) {
        self.decisions.extend(other.decisions);
        self.metrics.extend(other.metrics);
        self.gauges.extend(other.gauges);
        for (word, count) in other.counts {
            *self.counts.entry(word).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    /// `created 2, skipped 1`, or `nothing to do`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.counts.is_empty() {
            return f.write_str("nothing to do");
        }
        for (n, (word, count)) in self.counts.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{word} {count}")?;
        }
        Ok(())
    }
}

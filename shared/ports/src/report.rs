//! What an invocation did.

use crate::metrics::{CounterMetric, DistributionMetric, GaugeMetric};
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

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    Count(u64),
    /// A resource in thousandths of its unit.
    Quantity(Quantity),
    Time(SignedDuration),
    /// Dollars; per hour for a price.
    Dollars(Price),
}

impl From<u64> for Amount {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<Quantity> for Amount {
    fn from(quantity: Quantity) -> Self {
        Self::Quantity(quantity)
    }
}

impl From<SignedDuration> for Amount {
    fn from(span: SignedDuration) -> Self {
        Self::Time(span)
    }
}

impl From<Price> for Amount {
    fn from(price: Price) -> Self {
        Self::Dollars(price)
    }
}

/// A state as of the invocation, a duration, or one value of a distribution, under Karpenter's metric name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Measured {
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
    pub gauges: Vec<Measured>,
    /// Values of distributions, in the order in which they were observed.
    pub observations: Vec<Measured>,
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
    /// Counts that time ran out: the caller leaves the rest to a later run.
    pub fn hand_over(&mut self) {
        self.count("handed_over");
    }
    /// How often `word` was counted, for tests: what is decided follows from typed outcomes.
    pub fn counted(&self, word: &str) -> u64 {
        self.counts.get(word).copied().unwrap_or(0)
    }
    /// Increments a metric by one.
    pub fn metric<M: CounterMetric>(&mut self, metric: M) {
        self.metric_by(metric, 1);
    }
    /// Increments a metric.
    pub fn metric_by<M: CounterMetric>(&mut self, metric: M, by: u64) {
        self.metrics.push(Counted { metric: M::ENTRY.name, labels: metric.labels(), by });
    }
    /// Sets a gauge.
    pub fn gauge<M: GaugeMetric>(&mut self, metric: M, value: M::Value) {
        self.gauges.push(Measured { metric: M::ENTRY.name, labels: metric.labels(), amount: value.into() });
    }
    /// Adds a value to a distribution.
    pub fn observe<M: DistributionMetric>(&mut self, metric: M, value: M::Value) {
        self.observations.push(Measured { metric: M::ENTRY.name, labels: metric.labels(), amount: value.into() });
    }
    /// Merges the report of a part of the work.
    pub fn absorb(&mut self, other: Self) {
        self.decisions.extend(other.decisions);
        self.metrics.extend(other.metrics);
        self.gauges.extend(other.gauges);
        self.observations.extend(other.observations);
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

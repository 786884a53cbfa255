//! The potential savings of shadow mode.
//!
//! At any moment only the next commands are known, not those that would follow: the sums are lower
//! bounds.

use super::{amount, dollars};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use whittle_claims::DecisionRecord;
use whittle_consolidate::SHADOW;
use whittle_disruption::LedgerEntry;

/// The commands that shadow mode would have executed, from `at` until the next record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShadowRecord {
    pub(super) at: Timestamp,
    pub(super) entries: Vec<LedgerEntry>,
}

impl ShadowRecord {
    /// The record in a decision's detail, if there is one.
    pub(super) fn of(decision: &DecisionRecord) -> Option<Self> {
        let entries = serde_json::from_value(decision.detail.get(SHADOW)?.clone()).ok()?;
        Some(Self { at: decision.at, entries })
    }
}

/// Sums over the records of shadow mode; billionths of a dollar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shadow {
    /// Whether there are any records.
    pub(super) known: bool,
    /// The number of distinct commands.
    pub(super) commands: usize,
    /// Savings per hour at the end.
    pub(super) rate_nanos: i128,
    /// Rates multiplied by their durations.
    pub(super) total_nanos: i128,
    /// `total_nanos` by pool; a command over several pools is shared equally.
    pub(super) by_pool: BTreeMap<String, i128>,
}

/// Sums the records within `[from, until)`.
pub(super) fn sum(records: &[ShadowRecord], from: Timestamp, until: Timestamp) -> Shadow {
    const HOUR: i128 = 3_600_000_000_000;
    let mut records: Vec<&ShadowRecord> = records.iter().filter(|record| record.at < until).collect();
    records.sort_by_key(|record| record.at);
    let mut shadow = Shadow { known: !records.is_empty(), ..Shadow::default() };
    let ends = records.iter().skip(1).map(|record| record.at).chain([until]);
    let mut before: &[LedgerEntry] = &[];
    for (record, end) in records.iter().zip(ends) {
        shadow.rate_nanos = 0;
        let in_force = end.duration_since(record.at.max(from)).as_nanos().max(0);
        for entry in &record.entries {
            let rate = entry.saved_nanos();
            shadow.rate_nanos = shadow.rate_nanos.saturating_add(rate);
            let saved = rate.saturating_mul(in_force) / HOUR;
            shadow.total_nanos = shadow.total_nanos.saturating_add(saved);
            let shares = i128::try_from(entry.node_pools.len().max(1)).unwrap_or(1);
            for pool in &entry.node_pools {
                let sum = shadow.by_pool.entry(pool.clone()).or_default();
                *sum = sum.saturating_add(saved / shares);
            }
            shadow.commands += usize::from(in_force > 0 && !before.contains(entry));
        }
        before = &record.entries;
    }
    shadow
}

impl Shadow {
    pub(super) fn json(&self) -> Value {
        let pools: BTreeMap<&String, f64> = self.by_pool.iter().map(|(pool, nanos)| (pool, dollars(*nanos))).collect();
        json!({
            "commands": self.commands,
            "dollarsPerHour": dollars(self.rate_nanos),
            "dollarsSaved": dollars(self.total_nanos),
            "byNodePool": pools,
        })
    }

    pub(super) fn text(&self) -> String {
        if !self.known {
            return String::new();
        }
        let mut out = format!(
            "In shadow mode {} found: {} an hour would be saved now, {} would have been so far, at least.\n",
            if self.commands == 1 { "1 command was".to_owned() } else { format!("{} commands were", self.commands) },
            amount(self.rate_nanos, 4),
            amount(self.total_nanos, 2)
        );
        for (pool, nanos) in &self.by_pool {
            let _ = writeln!(out, "  NodePool {pool}: {} so far", amount(*nanos, 2));
        }
        out
    }
}

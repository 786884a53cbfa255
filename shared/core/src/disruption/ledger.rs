//! The ledger of savings: one entry for every command that was executed.

use super::command::Command;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{Price, Timestamp};

/// What an executed command did to the bill and to the pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    pub at: Timestamp,
    /// Empty, Drifted or Underutilized.
    pub reason: String,
    /// `delete` or `replace`.
    pub action: String,
    pub nodes: Vec<String>,
    /// Pools that lost nodes.
    pub node_pools: Vec<String>,
    /// Billionths of a dollar per hour.
    pub before_nanos: Price,
    /// What the replacements are expected to cost.
    pub after_nanos: Price,
    pub pods_moved: u32,
}

impl LedgerEntry {
    /// The entry of a command that is being executed.
    #[must_use]
    pub fn of(command: &Command, at: Timestamp) -> Self {
        let before = command.price_before();
        let after = i128::from(before.nanos()) - i128::from(command.savings.nanos());
        let mut node_pools: Vec<String> = command.removals.iter().map(|removal| removal.node_pool.clone()).collect();
        node_pools.sort();
        node_pools.dedup();
        Self {
            at,
            reason: command.method.reason().as_str().to_owned(),
            action: command.action().as_str().to_owned(),
            nodes: command.removals.iter().map(|removal| removal.node.clone()).collect(),
            node_pools,
            before_nanos: before,
            after_nanos: Price::from_nanos(u64::try_from(after).unwrap_or(0)),
            pods_moved: command.removals.iter().map(|removal| u32::try_from(removal.pods.len()).unwrap_or(u32::MAX)).sum(),
        }
    }

    /// Billionths of a dollar per hour; negative when it costs more than before.
    #[must_use]
    pub fn saved_nanos(&self) -> i128 {
        i128::from(self.before_nanos.nanos()) - i128::from(self.after_nanos.nanos())
    }
}

/// Sums over a part of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavingsReport {
    pub commands: usize,
    pub nodes_removed: usize,
    pub pods_moved: u64,
    /// What the bill per hour fell by, in billionths of a dollar.
    pub rate_nanos: i128,
    /// What was not paid until the end of the report, in billionths of a dollar: each rate times the time since.
    pub total_nanos: i128,
    /// The rate by reason.
    pub by_reason: BTreeMap<String, i128>,
    /// The rate by pool; a command over several pools is shared equally.
    pub by_pool: BTreeMap<String, i128>,
}

/// Sums the entries of `[from, until)`.
#[must_use]
pub fn savings(entries: &[LedgerEntry], from: Timestamp, until: Timestamp) -> SavingsReport {
    const HOUR: i128 = 3_600_000_000_000;
    let mut report = SavingsReport::default();
    for entry in entries.iter().filter(|entry| from <= entry.at && entry.at < until) {
        let rate = entry.saved_nanos();
        report.commands += 1;
        report.nodes_removed += entry.nodes.len();
        report.pods_moved += u64::from(entry.pods_moved);
        report.rate_nanos += rate;
        report.total_nanos += rate * until.duration_since(entry.at).as_nanos() / HOUR;
        *report.by_reason.entry(entry.reason.clone()).or_default() += rate;
        let shares = i128::try_from(entry.node_pools.len().max(1)).unwrap_or(1);
        for pool in &entry.node_pools {
            *report.by_pool.entry(pool.clone()).or_default() += rate / shares;
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(minute: i64, before: u64, after: u64, pools: &[&str]) -> LedgerEntry {
        LedgerEntry {
            at: Timestamp::from_second(minute * 60).unwrap(),
            reason: "Underutilized".to_owned(),
            action: "replace".to_owned(),
            nodes: vec!["n".to_owned()],
            node_pools: pools.iter().map(|&pool| pool.to_owned()).collect(),
            before_nanos: Price::from_nanos(before),
            after_nanos: Price::from_nanos(after),
            pods_moved: 3,
        }
    }

    #[test]
    fn what_was_saved_grows_with_time_and_losses_count() {
        let entries = [entry(0, 100, 40, &["a"]), entry(30, 100, 40, &["a", "b"]), entry(60, 10, 30, &["b"]), entry(120, 9, 0, &["c"])];
        let report = savings(&entries, Timestamp::UNIX_EPOCH, Timestamp::from_second(7200).unwrap());
        assert_eq!((report.commands, report.nodes_removed, report.pods_moved), (3, 3, 9));
        assert_eq!(report.rate_nanos, 60 + 60 - 20);
        assert_eq!(report.total_nanos, 120 + 90 - 20);
        assert_eq!(report.by_pool["a"], 90);
        assert_eq!(report.by_pool["b"], 10);
        assert_eq!(report.by_reason["Underutilized"], 100);
    }
}

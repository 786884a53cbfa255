//! The savings ledger: one entry for every executed command.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use whittle_model::disruption::{Command, Move};
use whittle_units::{Price, Timestamp};

/// What an executed command saved, and how many pods it moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// ID of the command; entries written twice have the same one. Empty in records that predate IDs.
    #[serde(default)]
    pub id: String,
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
    /// Expected price of the replacements.
    pub after_nanos: Price,
    pub pods_moved: u32,
}

impl LedgerEntry {
    /// Subject of the ledger's decision records, and the key of the entry in their detail.
    pub const KEY: &'static str = "ledger";

    /// The entry of a command that is being executed.
    #[must_use]
    pub fn of(command: &Command, id: &str, at: Timestamp) -> Self {
        let before = command.price_before();
        let after = i128::from(before.nanos()) - i128::from(command.savings.nanos());
        let mut node_pools: Vec<String> = command.removals.iter().map(|removal| removal.node_pool.clone()).collect();
        node_pools.sort();
        node_pools.dedup();
        Self {
            id: id.to_owned(),
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

    /// Leaves what a command of empty nodes still removes, since some are kept after all: those of its move.
    pub fn narrow_to(&mut self, left: &Move) {
        self.nodes.clone_from(&left.nodes);
        let pools: BTreeSet<&String> = left.removed.iter().map(|node| &node.node_pool).collect();
        self.node_pools = pools.into_iter().cloned().collect();
        self.before_nanos = left.removed.iter().map(|node| node.price).sum();
    }

    /// Billionths of a dollar per hour; negative when it costs more than before.
    #[must_use]
    pub fn saved_nanos(&self) -> i128 {
        i128::from(self.before_nanos.nanos()) - i128::from(self.after_nanos.nanos())
    }
}

impl fmt::Display for LedgerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pools, nodes) = (self.node_pools.join(", "), self.nodes.join(", "));
        write!(f, "{}: {}: nodepools=[{pools}]: [{nodes}] moved {} pods, ", self.reason, self.action, self.pods_moved)?;
        write!(f, "${:.4} to ${:.4} an hour", self.before_nanos.dollars(), self.after_nanos.dollars())
    }
}

/// Sums over a part of the ledger. Amounts are billionths of a dollar and saturate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavingsReport {
    pub commands: usize,
    pub nodes_removed: usize,
    pub pods_moved: u64,
    /// Price per hour of the removed nodes.
    pub before_nanos: i128,
    /// Price per hour of their replacements.
    pub after_nanos: i128,
    /// Savings until the end of the report: each rate times the time since.
    pub total_nanos: i128,
    /// Reduction of the price per hour, by reason.
    pub by_reason: BTreeMap<String, i128>,
    /// The same by pool; a command over several pools is divided equally.
    pub by_pool: BTreeMap<String, i128>,
}

impl SavingsReport {
    /// Adds the commands of another report.
    pub fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.nodes_removed += other.nodes_removed;
        self.pods_moved += other.pods_moved;
        self.before_nanos += other.before_nanos;
        self.after_nanos += other.after_nanos;
        self.total_nanos = self.total_nanos.saturating_add(other.total_nanos);
        for (sums, others) in [(&mut self.by_reason, other.by_reason), (&mut self.by_pool, other.by_pool)] {
            for (name, rate) in others {
                *sums.entry(name).or_default() += rate;
            }
        }
    }

    /// Reduction of the price per hour.
    #[must_use]
    pub fn rate_nanos(&self) -> i128 {
        self.before_nanos.saturating_sub(self.after_nanos)
    }
}

/// The entries in `[from, until)`, each command once.
pub fn within(entries: &[LedgerEntry], from: Timestamp, until: Timestamp) -> impl Iterator<Item = &LedgerEntry> {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let within = entries.iter().filter(move |entry| from <= entry.at && entry.at < until);
    within.filter(move |entry| entry.id.is_empty() || seen.insert(&entry.id))
}

/// Sums the entries in `[from, until)`, each command once.
#[must_use]
pub fn savings(entries: &[LedgerEntry], from: Timestamp, until: Timestamp) -> SavingsReport {
    const HOUR: i128 = 3_600_000_000_000;
    let mut report = SavingsReport::default();
    for entry in within(entries, from, until) {
        let rate = entry.saved_nanos();
        report.commands += 1;
        report.nodes_removed += entry.nodes.len();
        report.pods_moved += u64::from(entry.pods_moved);
        report.before_nanos += i128::from(entry.before_nanos.nanos());
        report.after_nanos += i128::from(entry.after_nanos.nanos());
        let total = rate.saturating_mul(until.duration_since(entry.at).as_nanos()) / HOUR;
        report.total_nanos = report.total_nanos.saturating_add(total);
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
            id: String::new(),
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
    fn savings_accumulate_over_time_and_losses_count() {
        let entries = [entry(0, 100, 40, &["a"]), entry(30, 100, 40, &["a", "b"]), entry(60, 10, 30, &["b"]), entry(120, 9, 0, &["c"])];
        let report = savings(&entries, Timestamp::UNIX_EPOCH, Timestamp::from_second(7200).unwrap());
        assert_eq!((report.commands, report.nodes_removed, report.pods_moved), (3, 3, 9));
        assert_eq!(report.rate_nanos(), 60 + 60 - 20);
        assert_eq!(report.total_nanos, 120 + 90 - 20);
        assert_eq!(report.by_pool["a"], 90);
        assert_eq!(report.by_pool["b"], 10);
        assert_eq!(report.by_reason["Underutilized"], 100);
    }
    #[test]
    fn a_duplicate_entry_counts_once() {
        let twice = LedgerEntry { id: "c1".to_owned(), ..entry(0, 100, 40, &["a"]) };
        let later = LedgerEntry { at: Timestamp::from_second(60).unwrap(), ..twice.clone() };
        let other = LedgerEntry { id: "c2".to_owned(), ..twice.clone() };
        let report = savings(&[twice, later, other], Timestamp::UNIX_EPOCH, Timestamp::from_second(7200).unwrap());
        assert_eq!((report.commands, report.rate_nanos()), (2, 120));
    }

    #[test]
    fn excessive_amounts_saturate() {
        let dear = LedgerEntry { before_nanos: Price::MAX, at: Timestamp::MIN, ..entry(0, 0, 0, &[]) };
        let report = savings(&vec![dear; 3], Timestamp::MIN, Timestamp::MAX);
        assert!(report.total_nanos > 0);
        assert_eq!(report.rate_nanos(), 3 * i128::from(u64::MAX));
    }
}

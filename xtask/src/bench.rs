//! `cargo xtask bench`: measurements that take too long for a test, compared with the limits of SPECIFICATION.md.

mod catalog;
mod consolidation;
mod latency;
mod objectives;
mod scheduling;
mod starts;

use crate::{shell, workspace};
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// The catalog of a region: its size at rest, and the time to read it back
    Catalog,
    /// A full consolidation pass over 1,000 and 5,000 nodes
    Consolidation,
    /// From pending pods to CreateFleet, in simulated time
    Latency,
    /// Price over number of machines by objective, for thirteen workloads
    Objectives,
    /// 100,000 claims, listed page by page through the real SDK
    Paging,
    /// Karpenter's scheduling benchmark, from 500 to 100,000 pods; draws docs/scheduling.svg
    Scheduling(scheduling::Options),
    /// Functions' processes, from their start to their first request for an event; no work of theirs
    Starts(starts::Options),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Catalog => catalog::run(),
        Bench::Consolidation => consolidation::run(),
        Bench::Latency => latency::run(),
        Bench::Objectives => objectives::run(),
        Bench::Paging => paging(),
        Bench::Scheduling(options) => scheduling::run(options),
        Bench::Starts(options) => starts::run(options),
    }
}

/// Runs the paging test with the specified number of claims.
fn paging() -> anyhow::Result<()> {
    let root = workspace::root();
    let test = ["test", "--locked", "-p", "whittle-tests", "--test", "it", "every_claim_of_many_pages_is_listed_once", "--", "--nocapture"];
    let mut command = shell::command(&root, "cargo", &test);
    command.env("WHITTLE_CLAIMS", "100000");
    shell::run(command)
}

//! `cargo xtask bench`: measurements too long for a test, each held to its promise.

mod consolidation;
mod latency;
mod objectives;
mod scheduling;

use crate::{shell, workspace};
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// A full consolidation pass over 1,000 and 5,000 nodes
    Consolidation,
    /// From pods that wait to CreateFleet, in the simulator's time
    Latency,
    /// Price over machines by objective, for thirteen workloads
    Objectives,
    /// 100,000 claims, listed page by page through the real SDK
    Paging,
    /// The reference's own scheduling benchmark, from 500 to 100,000 pods; draws docs/scheduling.svg
    Scheduling(scheduling::Options),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Consolidation => consolidation::run(),
        Bench::Latency => latency::run(),
        Bench::Objectives => objectives::run(),
        Bench::Paging => paging(),
        Bench::Scheduling(options) => scheduling::run(options),
    }
}

/// The test of paging, with as many claims as are promised.
fn paging() -> anyhow::Result<()> {
    let root = workspace::root();
    let test = ["test", "--locked", "-p", "whittle-tests", "--test", "it", "every_claim_of_many_pages_is_listed_once", "--", "--nocapture"];
    let mut command = shell::command(&root, "cargo", &test);
    command.env("WHITTLE_CLAIMS", "100000");
    shell::run(command)
}

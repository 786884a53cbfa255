//! `cargo xtask bench`: measurements too long for a test, each held to its promise.

mod consolidation;
mod scheduling;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// A full consolidation pass over 1,000 and 5,000 nodes
    Consolidation,
    /// The reference's own scheduling benchmark, from 500 to 100,000 pods; draws docs/scheduling.svg
    Scheduling(scheduling::Options),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Consolidation => consolidation::run(),
        Bench::Scheduling(options) => scheduling::run(options),
    }
}

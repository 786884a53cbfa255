//! `cargo xtask bench`: measurements too long for a test, each held to its promise.

mod consolidation;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// A full consolidation pass over 1,000 and 5,000 nodes
    Consolidation,
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Consolidation => consolidation::run(),
    }
}

//! `cargo xtask fuzz`: plans and consolidates thousands of random clusters. Each run of the tests generates a thousand plans, 250
//! plans that are compared with similar ones, and 200 clusters to consolidate.

use crate::workspace;
use anyhow::{Context, ensure};
use clap::Args;
use std::process::Command;

#[derive(Args)]
pub(crate) struct Fuzz {
    /// Number of clusters with pending pods, for each property of plans
    #[arg(long, default_value_t = 20_000)]
    plans: u32,
    /// Number of clusters with nodes to consolidate, for each property of decisions
    #[arg(long, default_value_t = 10_000)]
    consolidations: u32,
    /// Seed, for other clusters than those of CI
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(fuzz: &Fuzz) -> anyhow::Result<()> {
    let plans = ["-p", "whittle-cli", "--lib", "plan::fuzz"];
    let consolidations = ["-p", "whittle-disruption", "--lib", "tests::properties"];
    for (cases, tests) in [(fuzz.plans, plans), (fuzz.consolidations, consolidations)] {
        let status = Command::new("cargo")
            .current_dir(workspace::root())
            .args(["test", "--locked", "--release"])
            .args(tests)
            .env("WHITTLE_FUZZ_CASES", cases.to_string())
            .env("WHITTLE_FUZZ_SEED", fuzz.seed.to_string())
            .status()
            .context("cargo cannot be started")?;
        ensure!(status.success(), "cargo test failed; if a property does not hold, its input is printed above");
    }
    Ok(())
}

//! `cargo xtask sim`: the fault commands of `whittle sim`, on all fault scenarios unless some are named.

use crate::workspace;
use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Passes `crash …` or `storm …` on to the command.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let root = workspace::root();
    let mut whittle = Command::new("cargo");
    whittle.current_dir(&root).args(["run", "--release", "--quiet", "-p", "whittle-cli", "--", "sim"]).args(arguments);
    if !arguments.iter().any(|argument| argument.ends_with(".yaml")) {
        whittle.args(scenarios(&root.join("tests/scenarios/faults"))?);
    }
    let status = whittle.status().context("cargo cannot be started")?;
    ensure!(status.success(), "whittle sim ended with {status}");
    Ok(())
}

fn scenarios(directory: &std::path::Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("{} cannot be read", directory.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    Ok(files)
}

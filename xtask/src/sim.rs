//! `cargo xtask sim`: the commands of `whittle sim`; fault commands run on all fault scenarios unless some are named.

use crate::workspace;
use anyhow::{Context, ensure};
use std::path::PathBuf;
use std::process::Command;

/// The commands of CI: each scenario killed at some 20 to 200 of its await points, spread evenly, and a thousand storms. All await
/// points take half an hour: `cargo xtask sim crash`.
const IN_CI: [&[&str]; 2] = [&["crash", "--every", "31"], &["storm", "--seeds", "1000"]];

/// Runs the commands of CI.
pub(crate) fn check() -> anyhow::Result<()> {
    for arguments in IN_CI {
        run(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Passes `crash …`, `storm …`, `mutants …`, `day …`, `drain …`, `verdicts …` or `burst …` on to the command.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let root = workspace::root();
    let mut whittle = Command::new("cargo");
    whittle.current_dir(&root).args(["run", "--release", "--quiet", "-p", "whittle-cli", "--", "sim"]).args(arguments);
    let plays_scenarios = arguments.first().is_some_and(|command| ["crash", "storm", "mutants"].contains(&command.as_str()));
    if plays_scenarios && !arguments.iter().any(|argument| argument.ends_with(".yaml")) {
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

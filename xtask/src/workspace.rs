//! The repository's root, its files and its packages.

use crate::shell;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The root of this checkout.
pub(crate) fn root() -> PathBuf {
    // Asked when it runs: a target folder shared by two checkouts holds one binary for both.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    xtask.parent().expect("xtask is a folder of the repository").to_path_buf()
}

/// Every file that is or would be committed, relative to the root, in order.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let listed =
        shell::read(shell::command(root, "git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]))?;
    let mut files: Vec<String> = listed.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    files.retain(|name| root.join(name).is_file());
    files.sort();
    Ok(files)
}

/// Cargo's target directory.
pub(crate) fn target(root: &Path) -> Result<PathBuf> {
    let printed = shell::read(shell::command(root, "cargo", &["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&printed)?;
    Ok(metadata["target_directory"].as_str().context("`cargo metadata` names no target directory")?.into())
}

/// The output of `cargo metadata`, as far as the checks need it.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

/// One package of the workspace, or one that it depends on.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Absent for the workspace's own packages.
    pub(crate) source: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) targets: Vec<Target>,
}

/// A build target.
#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) src_path: PathBuf,
}

/// The workspace's own packages.
pub(crate) fn members(root: &Path) -> Result<Metadata> {
    metadata(root, &["metadata", "--format-version", "1", "--no-deps", "--locked"])
}

/// The workspace's packages and all their dependencies.
pub(crate) fn everything(root: &Path) -> Result<Metadata> {
    metadata(root, &["metadata", "--format-version", "1", "--locked"])
}

fn metadata(root: &Path, arguments: &[&str]) -> Result<Metadata> {
    let printed = shell::read(shell::command(root, "cargo", arguments))?;
    serde_json::from_str(&printed).context("the output of `cargo metadata` has an unknown shape")
}

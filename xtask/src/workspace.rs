//! The repository's root, its files and its packages.

use crate::shell;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The root of this checkout.
pub(crate) fn root() -> PathBuf {
    // Read at run time: two checkouts with one target folder share one binary.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    xtask.parent().expect("xtask is a folder of the repository").to_path_buf()
}

/// All files that are or would be committed, relative to the root, sorted.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let listed =
        shell::read(shell::command(root, "git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]))?;
    let mut files: Vec<String> = listed.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    files.retain(|name| root.join(name).is_file());
    files.sort();
    Ok(files)
}

/// Whether a name is the pattern, or begins with what stands before its `*`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Cargo's target directory.
pub(crate) fn target(root: &Path) -> Result<PathBuf> {
    let printed = shell::read(shell::command(root, "cargo", &["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&printed)?;
    Ok(metadata["target_directory"].as_str().context("`cargo metadata` names no target directory")?.into())
}

/// The fields of `cargo metadata` that the checks need.
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

//! Builds the functions' artifacts as SAM does, and checks their sizes against the specification.

use crate::paths::{self, Paths};
use crate::{environment, shell, template, workspace};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The binaries, named after their functions.
pub(crate) const FUNCTIONS: &[&str] =
    &["relay", "schedule", "launch", "register", "consolidate", "interrupt", "terminate", "refresh", "sweep"];
/// Text of the specification's row with the size, like `| S7 … | ≤ 12 MiB | … |`.
const SPECIFIED_ROW: &str = "artifact of one function";
const MIB: f64 = 1024.0 * 1024.0;

/// Makes calls of cargo-lambda hermetic: it finds its compiler, cannot fetch a toolchain, and leaves no path of this machine in a binary.
pub(crate) fn hermetic(command: &mut Command, root: &Path, sam: &Path) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(sam.join("bin")).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(paths)?).env("RUSTUP_DIST_SERVER", "http://127.0.0.1:9");
    command.env(paths::FLAGS, Paths::of(root)?.flags()?.join(" "));
    Ok(())
}

/// Builds all functions for x86-64; their names and binaries.
pub(crate) fn build(root: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let sam = environment::sam(root)?;
    let mut arguments = vec!["lambda", "build", "--release", "--x86-64", "--locked"];
    let packages: Vec<String> = FUNCTIONS.iter().map(|name| format!("whittle-{name}")).collect();
    let features: Vec<String> = packages.iter().map(|package| format!("{package}/lambda")).collect();
    let features = features.join(",");
    for package in &packages {
        arguments.extend(["-p", package]);
    }
    arguments.extend(["--features", &features]);
    let mut build = template::tool(root, &sam, "cargo-lambda", &arguments);
    hermetic(&mut build, root, &sam)?;
    shell::run(build)?;
    let folder = folder(root)?;
    Ok(FUNCTIONS.iter().map(|name| (*name, folder.join(name).join("bootstrap"))).collect())
}

/// Builds all functions for x86-64 and checks their sizes.
pub(crate) fn check(root: &Path) -> Result<()> {
    let built = build(root)?;
    let promise = root.join("SPECIFICATION.md");
    let promised = specified_mib(&std::fs::read_to_string(&promise)?)
        .with_context(|| format!("{} promises no size: one row must name `{SPECIFIED_ROW}`", promise.display()))?;
    let mut too_large = Vec::new();
    println!("\nfunction       bootstrap");
    for (name, path) in &built {
        let bytes = path.metadata().with_context(|| format!("{} was not built", path.display()))?.len();
        let size = to_mib(bytes);
        println!("{name:<12} {size:>7.2} MiB");
        if size > promised {
            too_large.push(*name);
        }
    }
    if !too_large.is_empty() {
        bail!("larger than the promised {promised} MiB: {}", too_large.join(", "));
    }
    println!("promised: at most {promised} MiB each");
    Ok(())
}

/// cargo-lambda's output directory.
pub(crate) fn folder(root: &Path) -> Result<PathBuf> {
    Ok(workspace::target(root)?.join("lambda"))
}

/// Exact, because sizes of binaries are far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn to_mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

/// The number before `MiB` in the row of the specification.
fn specified_mib(specification: &str) -> Option<f64> {
    let row = specification.lines().find(|line| line.contains(SPECIFIED_ROW))?;
    row.split("MiB").next()?.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::specified_mib;

    #[test]
    fn the_specified_size_is_read_from_its_row() {
        let row = "| 1 | speed | 3 s |\n| 2 | artifact of one function | ≤ 12.5 MiB | command |\n";
        assert_eq!(specified_mib(row), Some(12.5));
        assert_eq!(specified_mib("| 1 | speed | 3 MiB |"), None);
    }
}

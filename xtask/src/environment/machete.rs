//! cargo-machete, which finds unused dependencies.

use super::lock;
use crate::shell;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

const VERSION: &str = "0.9.2";

/// The path of the program, which is built from the registry at its first use.
pub(super) fn set_up(root: &Path, cache: &Path) -> Result<PathBuf> {
    let name = format!("machete-{VERSION}");
    let folder = cache.join(&name);
    let program = folder.join("bin/cargo-machete");
    let _lock = lock(cache, &name)?;
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("building cargo-machete {VERSION} into {}", folder.display());
    let (target, installed) = (folder.join("target"), folder.to_string_lossy());
    let mut install = shell::command(root, "cargo", &["install", "--quiet", "--locked", "--version", VERSION, "--root", &installed]);
    shell::run({
        install.arg("--target-dir").arg(&target).arg("cargo-machete");
        install
    })?;
    std::fs::remove_dir_all(&target).with_context(|| format!("{} cannot be removed", target.display()))?;
    Ok(program)
}

//! Private Python environments, one per file of pinned packages in `tests/python`.

use super::{fingerprint, lock};
use crate::shell;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The pinned packages need this version.
const MINOR_MIN: u32 = 10;
/// Written last: an environment without it was interrupted.
const COMPLETE: &str = ".complete";

/// The environment made from `tests/python/<name>.txt`.
pub(super) fn set_up(root: &Path, cache: &Path, name: &str) -> Result<PathBuf> {
    let pins = root.join("tests/python").join(format!("{name}.txt"));
    let text = std::fs::read(&pins).with_context(|| format!("{} cannot be read", pins.display()))?;
    let parent = cache.join("python");
    // Scripts in an environment contain its path, so it is built in place and never moved.
    let folder = parent.join(format!("{name}-{}", fingerprint(&text)));
    if is_complete(&folder) {
        return Ok(folder);
    }
    let _lock = lock(&parent, name)?;
    if is_complete(&folder) {
        return Ok(folder);
    }
    eprintln!("setting up the Python environment `{name}` in {}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be removed", folder.display()))?;
    }
    let venv = folder.to_string_lossy();
    shell::read(shell::command(root, &interpreter(root)?, &["-m", "venv", &venv]))
        .context("Python cannot make an environment: install its venv module (Debian: python3-venv)")?;
    let python = folder.join("bin/python");
    let pins = pins.to_string_lossy();
    let mut install = shell::command(
        root,
        &python.to_string_lossy(),
        &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary", "-r", &pins],
    );
    install.env_remove("PYTHONPATH");
    shell::read(install).with_context(|| format!("the packages of {pins} cannot be installed: is PyPI reachable?"))?;
    std::fs::write(folder.join(COMPLETE), b"")?;
    Ok(folder)
}

/// A Python that is new enough.
fn interpreter(root: &Path) -> Result<String> {
    for program in ["python3", "python3.13", "python3.12", "python3.11", "python3.10"] {
        let ask = shell::command(root, program, &["-c", "import sys; print(sys.version_info.minor)"]);
        if let Ok(printed) = shell::read(ask)
            && printed.trim().parse::<u32>().is_ok_and(|minor| minor >= MINOR_MIN)
        {
            return Ok(program.to_owned());
        }
    }
    bail!("no Python 3.{MINOR_MIN} or later: install python3 with its venv module (Debian: python3 python3-venv)")
}

/// Whether the set-up finished and the interpreter still exists: an upgrade of Python leaves a dangling link.
fn is_complete(folder: &Path) -> bool {
    folder.join(COMPLETE).exists() && folder.join("bin/python").exists()
}

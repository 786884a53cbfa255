//! Compilers for arm64 on x86-64: Debian's rustc, which has the standard library for both, and Debian's C compiler for arm64.

use super::debian;
use anyhow::{Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The programs, as scripts that find their libraries.
pub(crate) struct Arm64 {
    /// The folder of the scripts.
    pub(crate) programs: PathBuf,
    /// Where a program for arm64 finds its loader and libc.
    pub(crate) libraries: PathBuf,
}

impl Arm64 {
    pub(crate) fn rustc(&self) -> PathBuf {
        self.programs.join("rustc")
    }

    pub(crate) fn cc(&self) -> PathBuf {
        self.programs.join("aarch64-linux-gnu-gcc")
    }

    pub(crate) fn ar(&self) -> PathBuf {
        self.programs.join("aarch64-linux-gnu-ar")
    }
}

pub(super) fn set_up(root: &Path, cache: &Path) -> Result<Arm64> {
    let folder = debian::set_up(root, cache, "arm64")?;
    let programs = folder.join("whittle");
    std::fs::create_dir_all(&programs).with_context(|| format!("{} cannot be made", programs.display()))?;
    for (name, program) in
        [("rustc", "rustc"), ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-gcc-12"), ("aarch64-linux-gnu-ar", "aarch64-linux-gnu-ar")]
    {
        let path = programs.join(name);
        let text = script(&folder, program);
        // Cargo looks at the compiler's modification time.
        if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
            continue;
        }
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(Arm64 { programs, libraries: folder.join("usr/aarch64-linux-gnu") })
}

/// A script that starts a program of the folder.
fn script(folder: &Path, program: &str) -> String {
    let quoted = folder.to_string_lossy().replace('\'', r"'\''");
    format!("#!/bin/sh\nLD_LIBRARY_PATH='{quoted}/usr/lib/x86_64-linux-gnu' exec '{quoted}/usr/bin/{program}' \"$@\"\n")
}

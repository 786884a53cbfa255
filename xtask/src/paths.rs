//! Keeps this machine's paths out of binaries, which would be different on another machine otherwise.
//!
//! Everything that is built for Lambda is built with the same flags, so that what CI has compiled is not compiled again for a release.

use crate::workspace;
use anyhow::{Context, Result, anyhow, bail};
use std::path::{Path, PathBuf};

/// Cargo's variable for flags of the compiler. A build for a named target does not give them to build scripts.
pub(crate) const FLAGS: &str = "CARGO_BUILD_RUSTFLAGS";

/// Folders of this machine that a compiler sees, and what binaries call them.
pub(crate) struct Paths {
    /// Where Cargo keeps the sources of dependencies.
    cargo: PathBuf,
    /// Where build scripts write sources.
    target: PathBuf,
    /// This repository, whose sources the compiler is given by relative paths.
    root: PathBuf,
}

impl Paths {
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
        let cargo = std::env::var_os("CARGO_HOME").filter(|value| !value.is_empty()).map(PathBuf::from).or(home);
        let cargo = cargo.ok_or_else(|| anyhow!("neither CARGO_HOME nor HOME is set: name Cargo's folder in CARGO_HOME"))?;
        Ok(Self { cargo, target: workspace::target(root)?, root: root.to_path_buf() })
    }

    /// Flags with which the compiler writes other paths.
    pub(crate) fn flags(&self) -> Result<Vec<String>> {
        [(&self.cargo, "/cargo"), (&self.target, "/target")]
            .into_iter()
            .map(|(from, to)| {
                let from = from.to_str().filter(|path| !path.contains([' ', '"', '\\']));
                let from = from.context("the paths of CARGO_HOME and of the target directory may have no space, quote or backslash")?;
                Ok(format!("--remap-path-prefix={from}={to}"))
            })
            .collect()
    }

    /// Refuses a binary with a path of this machine.
    pub(crate) fn check(&self, binary: &[u8]) -> Result<()> {
        for folder in [&self.cargo, &self.target, &self.root] {
            let path = format!("{}/", folder.display());
            if let Some(at) = memchr::memmem::find(binary, path.as_bytes()) {
                let found = binary[at..].iter().take_while(|byte| byte.is_ascii_graphic()).take(160).copied().collect();
                bail!("it has a path of this machine: {}", String::from_utf8(found).unwrap_or(path));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        Paths { cargo: "/home/me/.cargo".into(), target: "/cache/target".into(), root: "/src/whittle".into() }
    }

    #[test]
    fn a_binary_with_a_path_of_this_machine_is_refused() {
        for path in ["/home/me/.cargo/registry/src/x.rs", "/cache/target/release/build/out/y.rs", "/src/whittle/shared/z.rs"] {
            let error = paths().check(format!("\x7fELF\0{path}\0more").as_bytes()).expect_err(path);
            assert!(error.to_string().ends_with(path), "{error}");
        }
    }

    #[test]
    fn a_binary_with_other_paths_passes() {
        let binary = b"\x7fELF\0/cargo/registry/src/x.rs\0/target/y.rs\0shared/z.rs\0/rustc/lib.rs\0/src/whittle-data\0";
        assert!(paths().check(binary).is_ok());
    }

    #[test]
    fn a_path_that_a_flag_cannot_hold_is_refused() {
        assert_eq!(paths().flags().expect("they are plain")[0], "--remap-path-prefix=/home/me/.cargo=/cargo");
        let spaced = Paths { target: "/my cache/target".into(), ..paths() };
        assert!(spaced.flags().is_err_and(|error| error.to_string().contains("no space")));
    }
}

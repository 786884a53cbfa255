//! Dependencies that a crate declares and does not use.

use crate::{environment, shell};
use anyhow::{Context, Result};
use std::path::Path;

/// One sentence for each unused dependency; exceptions are in `package.metadata.cargo-machete` with their reason.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let program = environment::machete(root)?;
    let mut machete = shell::command(root, &program.to_string_lossy(), &["--with-metadata", "--skip-target-dir"]);
    let output = machete.arg(root).output().with_context(|| format!("{} could not be started", program.display()))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let found = unused(&printed);
    if found.is_empty() && !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("cargo-machete failed: {}\n{}{}", output.status, printed, errors.trim_end());
    }
    Ok(found)
}

/// Parses the report: a line `CRATE -- MANIFEST:`, followed by indented names.
fn unused(printed: &str) -> Vec<String> {
    let (mut package, mut found) = ("", Vec::new());
    for line in printed.lines() {
        if let Some((name, _)) = line.split_once(" -- ").filter(|_| line.ends_with("Cargo.toml:")) {
            package = name;
        } else if let Some(dependency) = line.strip_prefix('\t') {
            found.push(format!("{package}: no file names the dependency {dependency}; remove it from the crate's Cargo.toml"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::unused;

    #[test]
    fn an_unused_dependency_is_reported_with_its_crate() {
        let printed = "Analyzing dependencies of crates in this directory...\n\
            cargo-machete found the following unused dependencies in this directory:\n\
            whittle-ec2 -- ./shared/ec2/Cargo.toml:\n\tbase64\n\
            whittle-runtime -- ./shared/runtime/Cargo.toml:\n\tjiff\n\twhittle-ec2\n\nDone!\n";
        let found = unused(printed);
        assert_eq!(found.len(), 3);
        assert!(found[0].starts_with("whittle-ec2: no file names the dependency base64"), "{found:?}");
        assert!(found[2].starts_with("whittle-runtime: no file names the dependency whittle-ec2"), "{found:?}");
    }

    #[test]
    fn a_clean_report_has_no_findings() {
        assert!(unused("cargo-machete didn't find any unused dependencies in this directory. Good job!\n").is_empty());
    }
}

//! Known vulnerabilities of third-party crates, from a copy of RustSec's database on this machine: nothing is downloaded.

use crate::workspace::Package;
use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Advisories that do not concern us, with the reason.
const IGNORED: &[(&str, &str)] = &[];

/// The part of an advisory that is needed here.
#[derive(Deserialize)]
struct Advisory {
    advisory: Description,
    #[serde(default)]
    versions: Versions,
}

#[derive(Deserialize)]
struct Description {
    id: String,
    package: String,
    /// Set where nothing is vulnerable: `unmaintained`, `unsound` or `notice`.
    informational: Option<String>,
    withdrawn: Option<toml::Value>,
}

/// Versions without the vulnerability; all others have it.
#[derive(Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

impl Versions {
    /// Whether this version is one of them.
    fn cover(&self, version: &Version) -> Result<bool> {
        let ranges = self.patched.iter().chain(&self.unaffected).map(|range| VersionReq::parse(range)).collect::<Result<Vec<_>, _>>()?;
        Ok(ranges.iter().any(|range| range.matches(version)))
    }
}

/// What the database says about these packages.
#[derive(Debug, Default, PartialEq)]
struct Report {
    /// One sentence for each vulnerability.
    vulnerable: Vec<String>,
    /// One sentence for each note.
    notes: Vec<String>,
    advisories: usize,
}

/// Vulnerabilities, one sentence each; notes, and that there is no database, are only printed.
pub(crate) fn check(packages: &[Package]) -> Result<Vec<String>> {
    let Some(database) = database()? else {
        println!("advisories: not looked up; WHITTLE_ADVISORIES names a clone of https://github.com/rustsec/advisory-db");
        return Ok(Vec::new());
    };
    let report = compare(&database, packages)?;
    for note in &report.notes {
        println!("{note}");
    }
    println!("advisories: {} on our crates in {}, {} of them open", report.advisories, database.display(), report.vulnerable.len());
    Ok(report.vulnerable)
}

/// The database that is named, or the one that cargo-audit or cargo-deny keeps.
fn database() -> Result<Option<PathBuf>> {
    if let Some(named) = std::env::var_os("WHITTLE_ADVISORIES").filter(|value| !value.is_empty()).map(PathBuf::from) {
        if !named.join("crates").is_dir() {
            bail!(
                "WHITTLE_ADVISORIES={} is no clone of https://github.com/rustsec/advisory-db: it has no folder `crates`",
                named.display()
            );
        }
        return Ok(Some(named));
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let Some(cargo) = std::env::var_os("CARGO_HOME").filter(|value| !value.is_empty()).map(PathBuf::from).or(home) else {
        return Ok(None);
    };
    let kept = std::fs::read_dir(cargo.join("advisory-dbs")).into_iter().flatten().flatten().map(|entry| entry.path());
    Ok(std::iter::once(cargo.join("advisory-db")).chain(kept).find(|path| path.join("crates").is_dir()))
}

/// Looks up each package of the registry.
fn compare(database: &Path, packages: &[Package]) -> Result<Report> {
    let mut report = Report::default();
    let of_registry = packages.iter().filter(|package| package.source.is_some());
    let names: BTreeSet<(&str, &str)> = of_registry.map(|package| (package.name.as_str(), package.version.as_str())).collect();
    for (name, version) in names {
        let parsed = Version::parse(version).with_context(|| format!("{name} has the version {version}"))?;
        let folder = database.join("crates").join(name);
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
            let Advisory { advisory, versions } = read(file)?;
            report.advisories += 1;
            let is_safe = versions.cover(&parsed).with_context(|| format!("{} has an unknown shape", file.display()))?;
            if is_safe || advisory.withdrawn.is_some() || IGNORED.iter().any(|(id, _)| *id == advisory.id) {
                continue;
            }
            let (id, package) = (advisory.id, advisory.package);
            match advisory.informational {
                Some(kind) => report.notes.push(format!("{package} {version}: {id} ({kind})")),
                None => report.vulnerable.push(format!("{package} {version} is vulnerable: {id}; {}", remedy(&versions.patched))),
            }
        }
    }
    Ok(report)
}

fn remedy(patched: &[String]) -> String {
    if patched.is_empty() { "no version fixes it: find another crate".to_owned() } else { format!("update it to {}", patched.join(" or ")) }
}

/// Reads the block of TOML that an advisory begins with.
fn read(file: &Path) -> Result<Advisory> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let block = text.strip_prefix("```toml").and_then(|rest| rest.split("\n```").next());
    let block = block.with_context(|| format!("{} does not begin with a block of TOML", file.display()))?;
    toml::from_str(block).with_context(|| format!("{} has an unknown shape", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, source: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            source: source.map(str::to_owned),
            license: None,
            targets: Vec::new(),
        }
    }

    fn advisory(folder: &Path, id: &str, more: &str, versions: &str) {
        let text =
            format!("```toml\n[advisory]\nid = \"{id}\"\npackage = \"soft\"\n{more}\n{versions}\n```\n\n# Title\n\n```\ncode\n```\n");
        std::fs::write(folder.join(format!("{id}.md")), text).expect("it can be written");
    }

    #[test]
    fn a_version_that_nothing_mends_is_vulnerable() {
        let database = std::env::temp_dir().join(format!("whittle-advisories-{}", std::process::id()));
        let folder = database.join("crates/soft");
        std::fs::create_dir_all(&folder).expect("it can be made");
        advisory(&folder, "RUSTSEC-1", "", "[versions]\npatched = [\">= 1.2.3\"]\nunaffected = [\"< 1.0.0\"]");
        advisory(&folder, "RUSTSEC-2", "withdrawn = \"2024-01-01\"", "[versions]\npatched = []");
        advisory(&folder, "RUSTSEC-3", "informational = \"unmaintained\"", "[versions]\npatched = []");
        let found = |version: &str| compare(&database, &[package("soft", version, Some("registry"))]).expect("it is read");
        let old = found("1.2.2");
        assert_eq!(old.vulnerable, ["soft 1.2.2 is vulnerable: RUSTSEC-1; update it to >= 1.2.3"]);
        assert_eq!((old.notes, old.advisories), (vec!["soft 1.2.2: RUSTSEC-3 (unmaintained)".to_owned()], 3));
        for version in ["0.9.0", "1.2.3", "2.0.0"] {
            assert_eq!(found(version).vulnerable, Vec::<String>::new(), "{version}");
        }
        assert_eq!(compare(&database, &[package("soft", "1.2.2", None)]).expect("it is read"), Report::default(), "ours, of the same name");
        advisory(&folder, "RUSTSEC-4", "", "");
        assert!(found("9.0.0").vulnerable.iter().any(|line| line.ends_with("no version fixes it: find another crate")));
        std::fs::write(folder.join("RUSTSEC-5.md"), "no block").expect("it can be written");
        let error = compare(&database, &[package("soft", "1.2.2", Some("registry"))]).expect_err("it is none").to_string();
        assert!(error.contains("RUSTSEC-5.md"), "{error}");
        std::fs::remove_dir_all(&database).expect("it is ours");
    }
}

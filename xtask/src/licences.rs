//! Sources, licences and known vulnerabilities of third-party crates.

use crate::advisories;
use crate::workspace::{self, Package};
use anyhow::Result;
use std::path::Path;

/// The only allowed registry.
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences that are compatible with Apache-2.0 and require only notices.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// All findings, one sentence each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let packages = workspace::everything(root)?.packages;
    let mut found: Vec<String> = packages.iter().filter_map(finding).collect();
    found.extend(advisories::check(&packages)?);
    Ok(found)
}

fn finding(package: &Package) -> Option<String> {
    let source = package.source.as_deref()?;
    let (name, version) = (&package.name, &package.version);
    if source != SOURCE {
        return Some(format!("{name} {version} comes from {source}; only crates.io is allowed"));
    }
    let Some(terms) = package.license.as_deref() else {
        return Some(format!("{name} {version} names no licence; find another crate"));
    };
    if allowed(terms) {
        return None;
    }
    Some(format!("{name} {version} is under `{terms}`, which xtask/src/licences.rs does not allow"))
}

/// Evaluates a licence expression: `AND` needs both sides, `OR` (or the old `/`) one of them.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let answer = either(&tokens, &mut at);
    answer && at == tokens.len()
}

fn either(tokens: &[&str], at: &mut usize) -> bool {
    let mut answer = both(tokens, at);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        answer |= both(tokens, at);
    }
    answer
}

fn both(tokens: &[&str], at: &mut usize) -> bool {
    let mut answer = term(tokens, at);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        answer &= term(tokens, at);
    }
    answer
}

fn term(tokens: &[&str], at: &mut usize) -> bool {
    let Some(&token) = tokens.get(*at) else {
        return false;
    };
    *at += 1;
    if token == "(" {
        let answer = either(tokens, at);
        let closed = tokens.get(*at) == Some(&")");
        *at += 1;
        return answer && closed;
    }
    let mut name = token.to_owned();
    if tokens.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", tokens.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    ALLOWED.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_of_or_and_both_sides_of_and_must_be_allowed() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT/GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
            ("GPL-3.0 WITH Classpath-exception-2.0", false),
            ("(MIT", false),
            ("", false),
        ] {
            assert_eq!(allowed(expression), expected, "{expression}");
        }
    }

    #[test]
    fn another_source_is_reported() {
        let package = |source: Option<&str>| Package {
            name: "x".into(),
            version: "1.0.0".into(),
            source: source.map(str::to_owned),
            license: Some("MIT".into()),
            targets: Vec::new(),
        };
        assert_eq!(finding(&package(None)), None);
        assert_eq!(finding(&package(Some(SOURCE))), None);
        assert!(finding(&package(Some("git+https://example.com/x"))).is_some());
    }
}

//! Generates the tables of `docs/metrics.md` from the catalogue of metrics, and checks that the catalogue names the functions that
//! write each metric.

use crate::workspace;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use whittle_ports::metrics::{ALL, Entry, Kind};

/// The page with the metrics.
const PAGE: &str = "docs/metrics.md";
/// Start of the marker above a table; the name of the section and ` -->` follow.
const BEGIN: &str = "<!-- metrics: ";
/// The marker below a table.
const END: &str = "<!-- end of metrics -->";
const HEAD: &str = "| metric | kind, unit | further dimensions | from | what it is |\n|---|---|---|---|---|\n";
/// Folders in which the types of the catalogue are used: the functions and the shared crates.
const USERS: &[&str] = &["functions/", "shared/"];
const CATALOGUE: &str = "shared/ports/src/metrics.rs";

/// Writes the tables of the page.
pub(crate) fn write() -> Result<()> {
    let path = workspace::root().join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| format!("{PAGE} cannot be read"))?;
    std::fs::write(&path, filled(&page, ALL)?).with_context(|| format!("{PAGE} cannot be written"))
}

/// One sentence for each difference between page, catalogue and functions.
pub(crate) fn check(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("{PAGE} cannot be read"))?;
    let mut found = Vec::new();
    if filled(&page, ALL)? != page {
        found.push(format!("{PAGE}: its tables differ from {CATALOGUE}; `cargo xtask metrics` regenerates them"));
    }
    let mut users = Vec::new();
    let is_user = |name: &&String| {
        let test = name.ends_with("tests.rs") || name.contains("/tests/");
        USERS.iter().any(|folder| name.starts_with(folder))
            && !name.starts_with("shared/ports/src/metrics")
            && name.ends_with(".rs")
            && !test
    };
    for name in files.iter().filter(is_user) {
        let text = std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"))?;
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        users.push((name.clone(), code));
    }
    found.extend(wrong_writers(&users, ALL));
    Ok(found)
}

/// The page with regenerated tables; the rest is unchanged.
fn filled(page: &str, entries: &[Entry]) -> Result<String> {
    let mut sections: BTreeMap<&str, String> = BTreeMap::new();
    for entry in entries {
        sections.entry(entry.section).or_insert_with(|| HEAD.to_owned()).push_str(&row(entry));
    }
    let mut parts = page.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (section, rest) = part.split_once(" -->").with_context(|| format!("{PAGE}: a line `{BEGIN}` does not end"))?;
        let (_, rest) = rest.split_once(END).with_context(|| format!("{PAGE}: no line `{END}` follows that of {section}"))?;
        let rows = sections.remove(section).with_context(|| format!("{PAGE}: the catalogue has no section {section}"))?;
        out.push_str(&format!("{BEGIN}{section} -->\n{rows}{END}{rest}"));
    }
    if let Some(section) = sections.keys().next() {
        bail!("{PAGE}: no line `{BEGIN}{section} -->` says where the metrics of that section stand");
    }
    Ok(out)
}

fn row(entry: &Entry) -> String {
    let kind = match entry.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Distribution => "distribution",
    };
    let labels: Vec<String> = entry
        .labels
        .iter()
        .map(|label| match label.values.trim() {
            "" => format!("`{}`", label.name),
            values => format!("`{}` ({values})", label.name),
        })
        .collect();
    let from = if entry.is_of_every_function() {
        "every function".to_owned()
    } else {
        entry.writers.iter().map(|function| function.name()).collect::<Vec<_>>().join(", ")
    };
    format!("| `{}` | {kind}, {} | {} | {from} | {} |\n", entry.name, entry.unit.text(), labels.join(", "), entry.help.trim())
}

/// Findings for entries whose writers differ from those in the catalogue. Shared crates count as every function.
fn wrong_writers(users: &[(String, String)], entries: &[Entry]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in entries {
        let catalogued: BTreeSet<&str> = entry.writers.iter().map(|function| function.name()).collect();
        let mut written: BTreeSet<&str> = BTreeSet::new();
        for (name, code) in users {
            if names(code, entry.type_name) {
                match name.strip_prefix("functions/").and_then(|rest| rest.split('/').next()) {
                    Some(function) => written.extend([function]),
                    None => written.extend(&catalogued),
                }
            }
        }
        if written != catalogued {
            found.push(format!("{CATALOGUE}: {} is said to be written by {catalogued:?}, and is written by {written:?}", entry.type_name));
        }
    }
    found
}

/// Whether the code uses this type of the catalogue.
fn names(code: &str, type_name: &str) -> bool {
    let path = format!("metrics::{type_name}");
    code.match_indices(&path).any(|(at, _)| !code[at + path.len()..].starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(section: &str) -> Vec<Entry> {
        ALL.iter().filter(|entry| entry.section == section).copied().collect()
    }

    #[test]
    fn tables_are_regenerated_and_the_rest_of_the_page_is_unchanged() {
        let page = "# t\n<!-- metrics: interruptions -->\nold\n<!-- end of metrics -->\n\nText.\n";
        let made = filled(page, &of("interruptions")).unwrap();
        let row = "| `karpenter_interruption_received_messages_total` | counter, Count | `message_type` | interrupt |";
        assert!(made.contains(row) && made.starts_with("# t\n<!--") && made.ends_with("-->\n\nText.\n"), "{made}");
        assert!(!made.contains("old"));
        assert_eq!(filled(&made, &of("interruptions")).unwrap(), made);
    }

    #[test]
    fn every_section_has_its_marker_on_the_page() {
        let page = "# t\n<!-- metrics: interruptions -->\n<!-- end of metrics -->\n";
        for (page, section) in [("# t\n", "interruptions"), (page, "pods"), ("# t\n<!-- metrics: pods -->\n", "pods")] {
            assert!(filled(page, &of(section)).is_err(), "{page}");
        }
    }

    #[test]
    fn writers_that_the_catalogue_does_not_name_are_reported() {
        let messages: Vec<Entry> = of("interruptions").into_iter().filter(|entry| entry.type_name == "InterruptionMessages").collect();
        let wrong = |name: &str, code: &str| wrong_writers(&[(name.to_owned(), code.to_owned())], &messages).len();
        assert_eq!(wrong("functions/interrupt/src/lib.rs", "metrics::InterruptionMessages { .. }"), 0);
        assert_eq!(wrong("shared/runtime/src/telemetry.rs", "metrics::InterruptionMessages { .. }"), 0);
        assert_eq!(wrong("functions/sweep/src/lib.rs", "metrics::InterruptionMessages { .. }"), 1);
        assert_eq!(wrong("functions/interrupt/src/lib.rs", "metrics::InterruptionMessagesLate { .. }"), 1);
    }
}

//! Each area's rules end in numbered rows of behaviours, and a map beside the tests accounts for every row: by the tests that hold
//! it, or by a reason after a dash.

use crate::workspace;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The maps, each with the number of rows that its rules have.
const MAPS: &[(&str, usize)] =
    &[("shared/solver/src/tests/map.txt", 364), ("shared/disruption/src/tests/map.txt", 381), ("shared/claims/src/lifecycle_map.txt", 233)];

/// Fewer words are no reason.
const REASON_WORDS_MIN: usize = 4;

/// One sentence for each row that is missing or stated twice, for each test that does not exist, and for each lack of a reason.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut tests = BTreeSet::new();
    for name in workspace::files(root)?.iter().filter(|name| name.ends_with(".rs")) {
        let text = std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"))?;
        tests.extend(tests_in(&text));
    }
    let mut found = Vec::new();
    for (name, rows) in MAPS {
        let map = std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"))?;
        found.extend(faults(&map, *rows, &tests).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    Ok(found)
}

/// The names of the test functions of a file.
fn tests_in(text: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        match line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn ")).and_then(|rest| rest.split_once('(')) {
            Some((test, _)) if is_test => {
                out.insert(test.to_owned());
                is_test = false;
            }
            _ => is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test"),
        }
    }
    out
}

/// What is wrong in a map of `rows` rows.
fn faults(map: &str, rows: usize, tests: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    for line in map.lines().filter(|line| !line.starts_with('#')) {
        let (span, held_by) = line.split_once(' ').unwrap_or((line, ""));
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            found.push(format!("{line:?} does not begin with the number of a row, or of a first and a last one"));
            continue;
        };
        for row in first..=last {
            *times.entry(row).or_default() += 1;
        }
        match held_by.strip_prefix("- ") {
            Some(reason) if reason.split_whitespace().count() < REASON_WORDS_MIN => {
                found.push(format!("rows {span}: {reason:?} is no reason; say why no test holds them"));
            }
            Some(_) => {}
            None if held_by.trim().is_empty() => {
                found.push(format!("rows {span}: name the tests that hold them, or a reason after a dash"))
            }
            None => {
                let missing = held_by.split_whitespace().filter(|name| !tests.contains(*name));
                found.extend(missing.map(|name| format!("rows {span}: there is no test {name}")));
            }
        }
    }
    let wrong = (1..=rows).filter(|row| times.get(row) != Some(&1));
    found.extend(wrong.map(|row| format!("row {row} occurs {} times instead of once", times.get(&row).unwrap_or(&0))));
    found.extend(times.keys().filter(|row| !(1..=rows).contains(*row)).map(|row| format!("there is no row {row}: the rules have {rows}")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[test]\nfn holds() {}\nfn helper() {}\n#[tokio::test(start_paused = true)]\nasync fn waits() {}\n";

    #[track_caller]
    fn check(map: &str, rows: usize, want: &[&str]) {
        assert_eq!(faults(map, rows, &tests_in(SOURCE)), want);
    }

    #[test]
    fn every_row_needs_a_test_or_a_reason() {
        check("# a map\n1-2 holds waits\n3 - nothing here can bind a pod\n", 3, &[]);
        check("1 helper\n", 1, &["rows 1: there is no test helper"]);
        check("1 - because\n", 1, &["rows 1: \"because\" is no reason; say why no test holds them"]);
        check("1\n", 1, &["rows 1: name the tests that hold them, or a reason after a dash"]);
    }

    #[test]
    fn every_row_occurs_once() {
        check("1-2 holds\n2 waits\n", 3, &["row 2 occurs 2 times instead of once", "row 3 occurs 0 times instead of once"]);
        check("1-2 holds\n", 1, &["there is no row 2: the rules have 1"]);
        check("one holds\n1 holds\n", 1, &["\"one holds\" does not begin with the number of a row, or of a first and a last one"]);
    }
}

//! Checks that a map from the test rows of the rules to tests is complete and correct.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Collects the names of all test functions in the repository.
fn tests_in(directory: &Path, out: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && !["target", "golden", ".git"].iter().any(|skipped| name == *skipped) {
            tests_in(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
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
        }
    }
}

/// Every row must appear once, with tests that exist or a reason.
#[track_caller]
pub(crate) fn check(map: &str, rows: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tests = BTreeSet::new();
    for part in ["shared", "functions", "cli", "tests", "xtask"] {
        tests_in(&root.join(part), &mut tests);
    }
    let mut covered: BTreeMap<usize, &str> = BTreeMap::new();
    for line in map.lines().filter(|line| !line.starts_with('#')) {
        let (span, by) = line.split_once(' ').unwrap();
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        for row in first.parse::<usize>().unwrap()..=last.parse().unwrap() {
            assert_eq!(covered.insert(row, by), None, "row {row} stands there twice");
        }
        if let Some(reason) = by.strip_prefix("- ") {
            assert!(reason.split_whitespace().count() >= 4, "{line}: that is no reason");
            continue;
        }
        for test in by.split_whitespace() {
            assert!(tests.contains(test), "rows {span}: there is no test {test}");
        }
    }
    let missing: Vec<usize> = (1..=rows).filter(|row| !covered.contains_key(row)).collect();
    assert!(missing.is_empty() && covered.len() == rows, "rows without an entry: {missing:?}");
}

//! The map from the rows of the lifecycle rules to tests is complete and true.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MAP: &str = include_str!("lifecycle_map.txt");
/// How many rows the rules have.
const ROWS: usize = 233;

/// Adds the names of all tests of a folder.
fn tests_in(folder: &Path, out: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            tests_in(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            // What follows the mark of a test, up to the name's end.
            let marked = ["#[test]", "#[tokio::test"].into_iter().flat_map(|mark| text.split(mark).skip(1));
            let names = marked.filter_map(|rest| rest.split_once("fn ")?.1.split_once('('));
            out.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

#[test]
fn every_row_of_the_lifecycle_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tests = BTreeSet::new();
    for part in ["shared", "functions", "cli", "tests/it"] {
        tests_in(&root.join(part), &mut tests);
    }
    let mut rows: BTreeMap<usize, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in MAP.lines().filter(|line| !line.starts_with('#')) {
        let (range, held_by) = line.split_once(' ').unwrap();
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        for row in first.parse().unwrap()..=last.parse().unwrap() {
            assert_eq!(rows.insert(row, held_by), None, "row {row} stands there twice");
        }
        match held_by.strip_prefix("- ") {
            Some(reason) if reason.split_whitespace().count() < 6 => wrong.push(format!("row {range}: that is no reason")),
            Some(_) => {}
            None => {
                let missing = held_by.split_whitespace().filter(|name| !tests.contains(*name));
                wrong.extend(missing.map(|name| format!("row {range}: there is no test {name}")));
            }
        }
    }
    wrong.extend((1..=ROWS).filter(|row| !rows.contains_key(row)).map(|row| format!("row {row} is missing")));
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(rows.len(), ROWS);
}

//! Checks that every outcome of the walkthroughs is demonstrated by a test that names it.

use crate::tests;
use std::collections::BTreeSet;

/// Outcomes of the five walkthroughs, by their first digit.
const OUTCOMES: [usize; 5] = [19, 28, 15, 21, 13];

fn rows() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(tests().join("walkthroughs.txt")).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| row.split_once(' ').unwrap()).map(|(id, shown)| (id.to_owned(), shown.to_owned())).collect()
}

/// Whether a text contains this id, and not a longer one: `S1.2`, or `s1_2_` in the name of a test.
fn names(text: &str, id: &str) -> bool {
    let in_a_name = format!("fn {}_", id.to_lowercase().replace('.', "_"));
    let whole = |at: usize| !text[at + id.len()..].starts_with(|next: char| next.is_ascii_digit());
    text.contains(&in_a_name) || text.match_indices(id).any(|(at, _)| whole(at))
}

#[test]
fn every_outcome_is_listed_once() {
    let listed: BTreeSet<String> = rows().into_iter().map(|(id, _)| id).collect();
    let all: BTreeSet<String> = (0..5).flat_map(|seed| (1..=OUTCOMES[seed]).map(move |number| format!("S{seed}.{number}"))).collect();
    assert_eq!(listed, all);
    assert_eq!(rows().len(), all.len());
}

#[test]
fn the_listed_test_of_an_outcome_names_it() {
    let root = tests().join("..");
    for (id, shown) in rows().iter().filter(|(_, shown)| !shown.starts_with("pending: ")) {
        let text = std::fs::read_to_string(root.join(shown)).unwrap_or_else(|error| panic!("{id}: {shown}: {error}"));
        assert!(names(&text, id), "{shown} does not name {id}");
    }
}

#[test]
fn no_scenario_demonstrates_a_pending_outcome() {
    let pending: Vec<String> = rows().into_iter().filter(|(_, shown)| shown.starts_with("pending: ")).map(|(id, _)| id).collect();
    for entry in std::fs::read_dir(tests().join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let shown: Vec<&String> = pending.iter().filter(|id| names(&text, id)).collect();
            assert!(shown.is_empty(), "{} shows {shown:?}: say so in tests/walkthroughs.txt", path.display());
        }
    }
}

//! Every call in the life of a machine, with every way in which it fails: nothing is left over, and every claim ends as the rules say.

mod life;
mod rows;

use super::root;
use crate::cases::Case;
use rows::{Asked, Ending, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// The endings of all rows, in their order. Rows share nothing, so that each processor has its own.
fn endings(cases: &BTreeMap<Asked, Case>, rows: &[Row]) -> Vec<Result<Ending, String>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let taken = std::iter::from_fn(|| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            rows.get(number).map(|row| (number, row))
        });
        taken.map(|(number, row)| (number, life::live_and_die(&cases[&row.asked], row))).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, ending)| ending).collect()
}

#[test]
fn whatever_call_fails_nothing_is_left_over_and_every_claim_ends_as_the_rules_say() {
    let case = |asked: Asked| Case::read(&root().join("tests/golden/cloud/launch").join(asked.file())).unwrap();
    let cases: BTreeMap<Asked, Case> = Asked::ALL.iter().map(|asked| (*asked, case(*asked))).collect();
    let rows = rows::all();
    let mut wrong = 0;
    for (row, ending) in rows.iter().zip(endings(&cases, &rows)) {
        println!("{row} | {}", ending.as_ref().map_or_else(|problem| format!("WRONG: {problem}"), ToString::to_string));
        if ending.as_ref() != Ok(&row.ending) {
            println!("  WRONG, the rules say: {}", row.ending);
            wrong += 1;
        }
    }
    let calls: BTreeSet<&str> = rows.iter().map(|row| row.action).collect();
    println!("{} failures of {} calls: {wrong} end wrong", rows.len(), calls.len());
    assert_eq!(wrong, 0);
}

//! Records of earlier releases stay readable, for every kind of record.

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

use crate::{
    BlockEnds, Bucket, ClassDryRun, DecisionRecord, ExpectedPage, FunctionHealth, Lease, MeasuredMemory, NodeClassRecord, PoolHealth,
    Record, Sighting, StockOut, Uninstall, VerdictPage, ZoneShifts,
};
use golden::{STORED, check};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn records_of_every_release_stay_readable() {
    check::<crate::CatalogReads>("catalog-reads", 1);
    check::<Sighting>(Sighting::KIND, Sighting::VERSION);
    check::<PoolHealth>(PoolHealth::KIND, PoolHealth::VERSION);
    check::<MeasuredMemory>(MeasuredMemory::KIND, MeasuredMemory::VERSION);
    check::<FunctionHealth>(FunctionHealth::KIND, FunctionHealth::VERSION);
    check::<ClassDryRun>(ClassDryRun::KIND, ClassDryRun::VERSION);
    check::<Uninstall>(Uninstall::KIND, Uninstall::VERSION);
    check::<BlockEnds>(BlockEnds::KIND, BlockEnds::VERSION);
    check::<VerdictPage>(VerdictPage::KIND, VerdictPage::VERSION);
    check::<ZoneShifts>(ZoneShifts::KIND, ZoneShifts::VERSION);
    check::<NodeClassRecord>(NodeClassRecord::KIND, NodeClassRecord::VERSION);
    let expected = check::<ExpectedPage>(ExpectedPage::KIND, ExpectedPage::VERSION);
    assert_eq!(expected.machines["default-2"].buffer_pods, 3);
    check::<StockOut>("stock-out", 1);
    check::<Bucket>("bucket", 1);
    check::<DecisionRecord>("decision", 1);
    assert_eq!(check::<Lease>("lease", 1).token.0, 7);
}

/// All sources of a folder.
fn sources(folder: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.extend(std::fs::read_to_string(&path));
        }
    }
}

/// The types that are records, by kind.
fn kinds(sources: &[String]) -> BTreeMap<&str, &str> {
    let records = sources.iter().flat_map(|text| text.split("\nimpl Record for ").skip(1));
    records
        .map(|rest| {
            let name = rest.split([' ', '{']).next().unwrap();
            let kind = rest.split_once("const KIND: &'static str = \"").unwrap().1.split('"').next().unwrap();
            (kind, name)
        })
        .collect()
}

#[test]
fn every_kind_of_record_has_a_golden_test_and_is_deleted_with_its_cluster() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    sources(&root.join("shared"), &mut texts);
    sources(&root.join("functions"), &mut texts);
    let found = kinds(&texts);
    assert!(found.len() >= 13, "{found:?}");
    let leaving = std::fs::read_to_string(root.join("functions/sweep/src/uninstall.rs")).unwrap();
    let mut wrong = Vec::new();
    for (kind, name) in found {
        if !STORED.lines().any(|line| line.starts_with(&format!("{{\"kind\":\"{kind}\","))) {
            wrong.push(format!("{kind} has no golden line"));
        }
        if !texts.iter().any(|text| text.contains(&format!("check::<{name}>({name}::KIND, {name}::VERSION)"))) {
            wrong.push(format!("no test reads the golden {kind}"));
        }
        // The record of an uninstallation is kept for a while, and `refresh` deletes the records of classes.
        if ![Uninstall::KIND, NodeClassRecord::KIND].contains(&kind) && !leaving.contains(&format!("\"{kind}\",")) {
            wrong.push(format!("{kind} stays in the table after an uninstallation"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

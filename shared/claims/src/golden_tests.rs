//! What earlier releases stored stays readable, and is written again as it was.

use crate::{Bucket, DecisionRecord, NodeClassRecord, PoolHealth, Record, Sighting, StockOut, Uninstall, VerdictPage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Records as release 0.1.0 wrote them. A later version of a kind gets a line of its own.
const STORED: &str = include_str!("../../../tests/golden/records/records-v1.jsonl");

fn stored(kind: &str) -> Value {
    let lines = STORED.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = lines.into_iter().find(|line| line["kind"] == kind);
    found.unwrap_or_else(|| panic!("there is no golden {kind}"))["value"].clone()
}

/// Fields that were added since may be written besides.
#[track_caller]
fn check<T: Serialize + DeserializeOwned>(kind: &str) {
    let old = stored(kind);
    let read: T = serde_json::from_value(old.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
    let new = serde_json::to_value(&read).unwrap();
    for (field, value) in old.as_object().unwrap() {
        assert_eq!(new.get(field), Some(value), "{kind}.{field}");
    }
}

#[track_caller]
fn check_record<R: Record>() {
    assert_eq!(R::VERSION, 1, "a new version of {} needs a golden line of its own", R::KIND);
    check::<R>(R::KIND);
}

#[test]
fn records_of_every_release_stay_readable() {
    check_record::<Sighting>();
    check_record::<PoolHealth>();
    check_record::<Uninstall>();
    check_record::<VerdictPage>();
    check_record::<NodeClassRecord>();
    check::<StockOut>("stock-out");
    check::<Bucket>("bucket");
    check::<DecisionRecord>("decision");
}

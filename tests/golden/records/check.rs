//! Parses records of earlier releases as current types. Each crate with records includes this file as a test module.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Records of release 0.1.0. A later version of a kind gets a line of its own.
pub(crate) const STORED: &str = include_str!("records-v1.jsonl");

/// Parses a record of that kind as the current type, and checks that its fields are written unchanged. Fields added since may be
/// written as well.
#[track_caller]
pub(crate) fn check<T: Serialize + DeserializeOwned>(kind: &str, version: u32) -> T {
    assert_eq!(version, 1, "a new version of {kind} needs a golden line of its own");
    let lines = STORED.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = lines.into_iter().find(|line| line["kind"] == kind);
    let old = found.unwrap_or_else(|| panic!("there is no golden {kind}"))["value"].clone();
    let read: T = serde_json::from_value(old.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
    let new = serde_json::to_value(&read).unwrap();
    for (field, value) in old.as_object().unwrap() {
        assert_eq!(new.get(field), Some(value), "{kind}.{field}");
    }
    read
}

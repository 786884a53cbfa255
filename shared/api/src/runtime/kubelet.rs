//! The kubelet document of a class (api 9): any JSON at admission, checked here.

use crate::duration::GoDuration;
use crate::field::{FieldError, FieldPath};
use crate::schema;
use crate::words;
use serde_json::{Map, Value};
use whittle_units::Quantity;

const SIGNALS: &[&str] =
    &["memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available"];
const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

/// What a field has entries of.
struct Entries {
    keys: &'static [&'static str],
    is_valid: fn(&str) -> bool,
    /// For the error of a value that is not.
    wanted: &'static str,
}

const THRESHOLDS: Entries =
    Entries { keys: SIGNALS, is_valid: is_threshold, wanted: "a percentage 0% to 100%, or an amount such as 100Mi" };
const PERIODS: Entries = Entries { keys: SIGNALS, is_valid: is_period, wanted: "a time such as 1m30s" };
const AMOUNTS: Entries = Entries { keys: RESERVABLE, is_valid: is_amount, wanted: "an amount that is not negative" };

const ENTRIES: [(&str, Entries); 6] = [
    ("evictionHard", THRESHOLDS),
    ("evictionSoft", THRESHOLDS),
    ("evictionMinimumReclaim", THRESHOLDS),
    ("evictionSoftGracePeriod", PERIODS),
    ("kubeReserved", AMOUNTS),
    ("systemReserved", AMOUNTS),
];

/// Fields that every family maps (aws 13). Others are passed through, and only AL2023 takes them.
const MAPPED: &[&str] = &[
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];

/// All errors of a document. Absent and empty documents are valid.
pub fn violations(document: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = FieldPath::of("spec.kubelet");
    let map = match document {
        None | Some(Value::Null) => return errors,
        Some(Value::Object(map)) => map,
        Some(_) => {
            errors.push(FieldError::new(path, "an object is needed here: fields of the kubelet's configuration file"));
            return errors;
        }
    };
    shape(map, &path, &mut errors);
    if map.contains_key("registerWithTaints") {
        let message = "taints of nodes belong into the pool: move them to spec.template.spec.taints or startupTaints";
        errors.push(FieldError::new(path.key("registerWithTaints"), message));
    }
    for (field, entries) in ENTRIES {
        entries.check(field, map, &path, &mut errors);
    }
    pairs(map, &path, &mut errors);
    numbers(map, &path, &mut errors);
    errors.sort();
    errors.dedup_by(|a, b| a.path == b.path);
    errors
}

/// Whether the document has values that depend on the machine.
pub fn has_expressions(document: Option<&Value>) -> bool {
    let Some(Value::Object(map)) = document else { return false };
    let computed = |field: &str| {
        let values = map.get(field).and_then(Value::as_object).into_iter().flat_map(Map::values);
        values.filter_map(Value::as_str).any(|text| text.parse::<Quantity>().is_err())
    };
    map.get("maxPods").is_some_and(Value::is_string) || computed("kubeReserved") || computed("systemReserved")
}

/// Names of the fields that are only passed through, sorted.
pub fn passthrough_fields(document: &Map<String, Value>) -> Vec<&str> {
    let mut fields: Vec<&str> = document.keys().map(String::as_str).filter(|field| !MAPPED.contains(field)).collect();
    fields.sort_unstable();
    fields
}

/// Checks for unknown fields at any depth and for wrong types. A string for maxPods is valid, because it is an expression.
fn shape(map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut map = map.clone();
    if map.get("maxPods").is_some_and(Value::is_string) {
        map.remove("maxPods");
    }
    let document = Value::Object(map);
    schema::check_fields(Some(schema::kubelet_document()), &document, path, errors);
    schema::check(schema::kubelet_document(), &document, path, errors);
}

impl Entries {
    fn check(&self, field: &str, map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
        for (key, value) in map.get(field).and_then(Value::as_object).into_iter().flatten() {
            let path = path.key(field).key(key);
            if !self.keys.contains(&key.as_str()) {
                let message = format!("{field} has no entry {}: known are {}", words::printable(key), self.keys.join(", "));
                errors.push(FieldError::new(path, message));
            } else if let Some(text) = value.as_str()
                && !(self.is_valid)(text)
            {
                errors.push(FieldError::new(path, format!("{text:?} does not fit: write {}", self.wanted)));
            }
        }
    }
}

fn is_threshold(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
        None => text.parse::<Quantity>().is_ok_and(|amount| Quantity::ZERO <= amount),
    }
}

fn is_period(text: &str) -> bool {
    text.parse::<GoDuration>().is_ok_and(|time| !time.span().is_negative())
}

/// Values that are no quantities are expressions, which are checked when they are evaluated.
fn is_amount(text: &str) -> bool {
    !text.starts_with('-')
}

/// Soft thresholds and their grace periods must be set together.
fn pairs(map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let keys = |field: &str| map.get(field).and_then(Value::as_object).into_iter().flat_map(Map::keys);
    for (field, other) in [("evictionSoft", "evictionSoftGracePeriod"), ("evictionSoftGracePeriod", "evictionSoft")] {
        for key in keys(field).filter(|key| keys(other).all(|there| there != *key)) {
            errors.push(FieldError::new(path.key(field).key(key), format!("{other} has no entry {key}: give both")));
        }
    }
}

fn numbers(map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let number = |field: &str| map.get(field).and_then(Value::as_i64);
    for field in ["maxPods", "podsPerCore", "evictionMaxPodGracePeriod"] {
        if let Some(value) = number(field).filter(|value| *value < 0) {
            errors.push(FieldError::new(path.key(field), format!("{value} is negative: at least 0")));
        }
    }
    let (high, low) = (number("imageGCHighThresholdPercent"), number("imageGCLowThresholdPercent"));
    for (field, value) in [("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)] {
        if let Some(value) = value.filter(|value| !(0..=100).contains(value)) {
            errors.push(FieldError::new(path.key(field), format!("{value} is no percentage: 0 to 100")));
        }
    }
    if let (Some(high), Some(low)) = (high, low)
        && high <= low
    {
        let message = format!("{high} must be above imageGCLowThresholdPercent, which is {low}");
        errors.push(FieldError::new(path.key("imageGCHighThresholdPercent"), message));
    }
}

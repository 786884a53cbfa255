//! What a real API server answers.

use serde_json::Value;
use std::collections::BTreeSet;

/// What became of a request, or what we say would become of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) accepted: bool,
    /// The fields named by errors. `None` if the answer names none, because the object could not be decoded.
    pub(super) fields: Option<BTreeSet<String>>,
    /// The spec as it is stored.
    pub(super) spec: Value,
    pub(super) message: String,
}

/// The verdict of an answer. Only refusals for what the object says count: anything else is a fault of the test.
pub(super) fn outcome(answer: &Value) -> Outcome {
    if answer["kind"] != "Status" {
        return Outcome { accepted: true, fields: Some(BTreeSet::new()), spec: answer["spec"].clone(), message: String::new() };
    }
    let message = answer["message"].as_str().unwrap_or_default().to_owned();
    let fields = if message.contains("strict decoding error") {
        Some(message.split("unknown field \"").skip(1).filter_map(|rest| Some(plain(rest.split('"').next()?))).collect())
    } else if answer["reason"] == "Invalid" {
        let causes = answer["details"]["causes"].as_array().into_iter().flatten();
        Some(causes.filter_map(named_field).collect())
    } else {
        None
    };
    Outcome { accepted: false, fields, spec: Value::Null, message }
}

/// The field of a cause; that of a number beyond 32 bits stands in the message alone.
fn named_field(cause: &Value) -> Option<String> {
    let beyond = cause["message"].as_str().and_then(|message| message.split_once("must be of type integer with format int32 in "));
    let field = beyond.map_or_else(|| cause["field"].as_str().unwrap_or_default(), |(_, field)| field.trim_end_matches('"'));
    (!field.is_empty() && field != "<nil>").then(|| plain(field))
}

/// A manifest as kubectl sends it: it writes whole numbers as such, `1.0` too.
pub(super) fn encoded(manifest: &Value) -> String {
    let mut manifest = manifest.clone();
    write_whole_numbers(&mut manifest);
    manifest.to_string()
}

fn write_whole_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(write_whole_numbers),
        Value::Array(list) => list.iter_mut().for_each(write_whole_numbers),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
            if let Some(whole) = whole {
                *value = (whole as i64).into();
            }
        }
        _ => {}
    }
}

/// A path without the marks in which the server's paths and ours differ.
pub(super) fn plain(path: &str) -> String {
    path.trim_start_matches('.').replace('[', ".").replace(']', "")
}

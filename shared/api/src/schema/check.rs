//! Validation of values against schemas.

use super::{Field, Holds, Schema, Shape};
use crate::field::{FieldError, FieldPath};
use regex_lite::Regex;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The prefix of errors about absent fields.
const MISSING: &str = "missing: ";

/// Text forms of quantities (api 4.5).
pub(super) const QUANTITY: &str =
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Adds all errors of a defaulted value. Null counts as absent, as in the API server.
pub(crate) fn check(schema: &Schema, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    match &schema.shape {
        Shape::Object(fields) => match value {
            Value::Object(map) => object(fields, map, path, errors),
            _ => errors.push(wrong_type(path, "an object", value)),
        },
        Shape::Open if value.is_object() => {}
        Shape::Open => errors.push(wrong_type(path, "an object", value)),
        Shape::Map { values, max } => match value {
            Value::Object(map) => entries(values, *max, map, path, errors),
            _ => errors.push(wrong_type(path, "an object", value)),
        },
        Shape::List { items, min, max, set } => match value {
            Value::Array(list) => elements(items, (*min, *max), *set, list, path, errors),
            _ => errors.push(wrong_type(path, "a list", value)),
        },
        Shape::Text { pattern, min, max, one_of } => match value {
            Value::String(text) => string(text, *pattern, (*min, *max), one_of, path, errors),
            _ => errors.push(wrong_type(path, "text", value)),
        },
        Shape::Time => match value.as_str() {
            Some(text) if text.parse::<jiff::Timestamp>().is_ok() => {}
            _ => errors.push(FieldError::new(path.clone(), format!("{value} is no time: write it as 2026-01-31T10:00:00Z"))),
        },
        Shape::Integer { bits, min, max } => integer(*bits, *min, *max, value, path, errors),
        Shape::Boolean if value.is_boolean() => {}
        Shape::Boolean => errors.push(wrong_type(path, "true or false", value)),
        Shape::Quantity => quantity(value, path, errors),
        Shape::Number if value.is_number() => {}
        Shape::Number => errors.push(wrong_type(path, "a number", value)),
        Shape::IntOrText if value.is_string() || value.is_i64() => {}
        Shape::IntOrText => errors.push(wrong_type(path, "text or a whole number", value)),
    }
    // A value of the wrong shape is one error, not one for each rule as well; if parts are missing, a rule about them
    // would only repeat it.
    let has_wrong_shape = errors[before..].iter().any(|error| error.path == *path);
    let incomplete = errors[before..].iter().any(|error| error.message.starts_with(MISSING));
    for rule in &schema.rules {
        if let Holds::Of(holds) = rule.holds
            && !(has_wrong_shape && is_scalar(schema))
            && !incomplete
            && !holds(value)
        {
            errors.push(FieldError::new(path.clone(), rule.message.clone()));
        }
    }
}

/// Adds the errors of changing an old value to a new one.
pub(crate) fn check_change(schema: &Schema, old: &Value, new: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for rule in &schema.rules {
        if let Holds::Between(holds) = rule.holds
            && !holds(old, new)
        {
            errors.push(FieldError::new(path.clone(), rule.message.clone()));
        }
    }
    if let (Shape::Object(fields), Value::Object(old), Value::Object(new)) = (&schema.shape, old, new) {
        for field in fields {
            if let (Some(old), Some(new)) = (old.get(field.name), new.get(field.name)) {
                check_change(&field.schema, old, new, &path.key(field.name), errors);
            }
        }
    }
}

const fn is_scalar(schema: &Schema) -> bool {
    !matches!(schema.shape, Shape::Object(_) | Shape::List { .. } | Shape::Map { .. })
}

fn object(fields: &[Field], map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for name in map.keys().filter(|name| fields.iter().all(|field| field.name != name.as_str())) {
        errors.push(FieldError::new(path.key(name), unknown_field(name, fields)));
    }
    for field in fields {
        match map.get(field.name).filter(|value| !value.is_null()) {
            Some(value) => check(&field.schema, value, &path.key(field.name), errors),
            None if field.required => {
                let message = format!("{MISSING}{}", if field.schema.about.is_empty() { "it has to be given" } else { field.schema.about });
                errors.push(FieldError::new(path.key(field.name), message));
            }
            None => {}
        }
    }
}

fn unknown_field(name: &str, fields: &[Field]) -> String {
    let near = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name) || distance_is_small(field.name, name));
    match near {
        Some(field) => format!("there is no such field; did you mean {}?", field.name),
        None => {
            let names: Vec<_> = fields.iter().map(|field| field.name).collect();
            format!("there is no such field here: known are {}", names.join(", "))
        }
    }
}

/// Whether one letter was added, omitted or changed, or two were swapped.
fn distance_is_small(known: &str, written: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (known.chars().collect(), written.chars().collect());
    if 1 < a.len().abs_diff(b.len()) || a.len() < 4 {
        return false;
    }
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(|(x, y)| x == y).count();
    a.len().max(b.len()) - head - tail <= 2
}

fn entries(values: &Schema, max: Option<usize>, map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(max) = max.filter(|max| *max < map.len()) {
        errors.push(FieldError::new(path.clone(), format!("{} entries are too many: at most {max}", map.len())));
    }
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        check(values, value, &path.key(key), errors);
    }
}

fn elements(items: &Schema, (min, max): (usize, Option<usize>), set: bool, list: &[Value], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if list.len() < min {
        errors.push(FieldError::new(path.clone(), format!("{} elements are too few: at least {min}", list.len())));
    }
    if let Some(max) = max.filter(|max| *max < list.len()) {
        errors.push(FieldError::new(path.clone(), format!("{} elements are too many: at most {max}", list.len())));
    }
    for (index, value) in list.iter().enumerate() {
        check(items, value, &path.index(index), errors);
        if set && list[..index].contains(value) {
            errors.push(FieldError::new(path.index(index), format!("{value} stands in the list already: leave it out")));
        }
    }
}

fn string(
    text: &str,
    pattern: Option<&'static str>,
    (min, max): (usize, Option<usize>),
    one_of: &[&str],
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let mut fault = |message: String| errors.push(FieldError::new(path.clone(), message));
    let length = text.chars().count();
    if length < min {
        fault(if length == 0 { "may not be empty".to_owned() } else { format!("{text:?} is too short: at least {min} characters") });
    } else if let Some(max) = max.filter(|max| *max < length) {
        fault(format!("{text:?} is too long: {length} characters, at most {max}"));
    } else if let Some(pattern) = pattern.filter(|pattern| !matches(pattern, text)) {
        fault(format!("{text:?} does not have the form {pattern}"));
    }
    if !one_of.is_empty() && !one_of.contains(&text) {
        fault(format!("{text:?} is none of {}", one_of.join(", ")));
    }
}

fn integer(bits: u8, min: Option<i64>, max: Option<i64>, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(number) = value.as_i64() else {
        errors.push(wrong_type(path, "a whole number", value));
        return;
    };
    let mut fault = |message: String| errors.push(FieldError::new(path.clone(), message));
    if bits == 32 && i32::try_from(number).is_err() {
        fault(format!("{number} is beyond 32 bits"));
    } else if let Some(min) = min.filter(|min| number < *min) {
        fault(format!("{number} is too small: at least {min}"));
    } else if let Some(max) = max.filter(|max| *max < number) {
        fault(format!("{number} is too large: at most {max}"));
    }
}

fn quantity(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(text) if matches(QUANTITY, text) => {}
        Value::Number(number) if number.is_i64() || number.is_u64() => {}
        _ => errors.push(FieldError::new(
            path.clone(),
            format!("{value} is no quantity: write a number with a suffix, such as 500m, \"1.5\" or 10Gi"),
        )),
    }
}

fn wrong_type(path: &FieldPath, wanted: &str, value: &Value) -> FieldError {
    let remedy = match value {
        Value::Number(_) | Value::Bool(_) if wanted == "text" => ": put it in quotes",
        Value::String(_) if wanted != "an object" && wanted != "a list" => ": leave the quotes out",
        _ => "",
    };
    let shown = match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => other.to_string(),
    };
    FieldError::new(path.clone(), format!("{wanted} is needed here, not {shown}{remedy}"))
}

/// Whether a text matches a pattern of ours; compiled patterns are cached, there are a few dozen.
pub(crate) fn matches(pattern: &'static str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<BTreeMap<&'static str, Regex>> = const { RefCell::new(BTreeMap::new()) };
    }
    COMPILED.with_borrow_mut(|compiled| {
        compiled.entry(pattern).or_insert_with(|| Regex::new(pattern).expect("the patterns are literals and tested")).is_match(text)
    })
}

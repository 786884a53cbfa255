//! Validation of values against schemas.

use super::{Field, Holds, ListType, Schema, Shape, forms};
use crate::field::{FieldError, FieldPath, Stage};
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
        Shape::Map { values, max, .. } => match value {
            Value::Object(map) => entries(values, *max, map, path, errors),
            _ => errors.push(wrong_type(path, "an object", value)),
        },
        Shape::List { items, min, max, list_type } => match value {
            Value::Array(list) => elements(items, (*min, *max), *list_type == Some(ListType::Set), list, path, errors),
            _ => errors.push(no_list(items, value, path)),
        },
        Shape::Text { pattern, min, max, one_of } => match value {
            Value::String(text) => string(text, *pattern, (*min, *max), one_of, path, errors),
            _ => errors.push(no_text(*pattern, one_of, value, path)),
        },
        Shape::Time => match value {
            Value::String(text) if is_time(text) => {}
            Value::String(_) => {
                let message = format!("{} is no time: write it as 2026-01-31T10:00:00Z", written(value));
                errors.push(FieldError::new(path.clone(), message).at(Stage::Shape));
            }
            // Servers look at the type of a text with a format only where it is no list.
            Value::Array(_) => {}
            _ => errors.push(wrong_type(path, "text", value)),
        },
        Shape::Integer { bits, min, max } => integer(*bits, *min, *max, value, path, errors),
        Shape::Boolean if value.is_boolean() => {}
        Shape::Boolean => errors.push(wrong_type(path, "true or false", value)),
        Shape::Quantity => quantity(value, path, errors),
        Shape::Number if value.is_number() => {}
        Shape::Number => errors.push(wrong_type(path, "a number", value)),
        Shape::IntOrText if value.is_string() || whole(value).is_some() => {}
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
            let message = rule.hint.and_then(|hint| hint(value)).unwrap_or_else(|| rule.message.to_string());
            errors.push(FieldError::new(path.clone(), message).at(Stage::Rule));
        }
    }
}

/// Adds the fields that a schema does not have. A server looks for them without regard to types: a map in the place of a list
/// or a text has none but unknown fields.
pub(crate) fn check_fields(schema: Option<&Schema>, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match (value, schema.map(|schema| &schema.shape)) {
        (_, Some(Shape::Open)) => {}
        (Value::Object(map), Some(Shape::Object(fields))) => {
            for (name, value) in map {
                match fields.iter().find(|field| field.name == name) {
                    Some(field) => check_fields(Some(&field.schema), value, &path.key(name), errors),
                    None => errors.push(FieldError::new(path.key(name), unknown_field(name, fields)).at(Stage::Unknown)),
                }
            }
        }
        (Value::Object(map), Some(Shape::Map { values, .. })) => {
            map.iter().for_each(|(key, value)| check_fields(Some(values), value, &path.key(key), errors));
        }
        (Value::Object(map), _) => {
            let unknown = map.keys().map(|key| FieldError::new(path.key(key), "there is no such field: no object belongs here"));
            errors.extend(unknown.map(|error| error.at(Stage::Unknown)));
        }
        (Value::Array(list), shape) => {
            let items = if let Some(Shape::List { items, .. }) = shape { Some(items.as_ref()) } else { None };
            list.iter().enumerate().for_each(|(index, value)| check_fields(items, value, &path.index(index), errors));
        }
        _ => {}
    }
}

/// Adds the errors of changing an old value to a new one.
pub(crate) fn check_change(schema: &Schema, old: &Value, new: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for rule in &schema.rules {
        if let Holds::Between(holds) = rule.holds
            && !holds(old, new)
        {
            errors.push(FieldError::new(path.clone(), rule.message.clone()).at(Stage::Rule));
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
    for field in fields {
        match map.get(field.name).filter(|value| !value.is_null()) {
            Some(value) => check(&field.schema, value, &path.key(field.name), errors),
            None if field.required => {
                let message = format!("{MISSING}{}", if field.schema.about.is_empty() { "it has to be given" } else { field.schema.about });
                errors.push(FieldError::new(path.key(field.name), message).at(Stage::Shape));
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
    let (a, b) = (known.chars().count(), written.chars().count());
    a.abs_diff(b) <= 1 && 4 <= a && differing_letters(known, written) <= 2
}

/// The length of what differs between two words, without the beginning and the end that they share.
pub(crate) fn differing_letters(known: &str, written: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (known.chars().collect(), written.chars().collect());
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(|(x, y)| x == y).count();
    a.len().max(b.len()) - head - tail
}

fn entries(values: &Schema, max: Option<usize>, map: &Map<String, Value>, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(max) = max.filter(|max| *max < map.len()) {
        let message = format!("{} entries are too many: at most {max}", map.len());
        errors.push(FieldError::new(path.clone(), message).at(Stage::Shape));
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
        let message = format!("{} elements are too many: at most {max}", list.len());
        errors.push(FieldError::new(path.clone(), message).at(Stage::Shape));
    }
    for (index, value) in list.iter().enumerate() {
        check(items, value, &path.index(index), errors);
        // As by a server, each repeated value is one error, however often it stands there.
        if set && list[..index].iter().filter(|earlier| *earlier == value).count() == 1 {
            errors.push(FieldError::new(path.index(index), format!("{} stands in the list already: leave it out", written(value))));
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
    let mut fault = |stage, message: String| errors.push(FieldError::new(path.clone(), message).at(stage));
    let length = text.chars().count();
    if length < min {
        let message = if length == 0 { "may not be empty".to_owned() } else { format!("{text:?} is too short: at least {min} characters") };
        fault(Stage::Value, message);
    } else if let Some(max) = max.filter(|max| *max < length) {
        fault(Stage::Shape, format!("{text:?} is too long: {length} characters, at most {max}"));
    } else if let Some(pattern) = pattern.filter(|pattern| !matches(pattern, text)) {
        let remedy = forms::remedy(pattern, text).map(|remedy| format!(": {remedy}")).unwrap_or_default();
        fault(Stage::Value, format!("{text:?} does not have the form {pattern}{remedy}"));
    }
    if !one_of.is_empty() && !one_of.contains(&text) {
        fault(Stage::Shape, format!("{text:?} is none of {}", one_of.join(", ")));
    }
}

fn integer(bits: u8, min: Option<i64>, max: Option<i64>, value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(number) = whole(value) else {
        errors.push(wrong_type(path, "a whole number", value));
        return;
    };
    let mut fault = |message: String| errors.push(FieldError::new(path.clone(), message));
    if bits == 32 && i32::try_from(number).is_err() {
        let limit = if number < 0 { format!("at least {}", i32::MIN) } else { format!("at most {}", i32::MAX) };
        fault(format!("{number} is beyond 32 bits: {limit}"));
    } else if let Some(min) = min.filter(|min| number < *min) {
        fault(format!("{number} is too small: at least {min}"));
    } else if let Some(max) = max.filter(|max| *max < number) {
        fault(format!("{number} is too large: at most {max}"));
    }
}

/// A value as it is written, in one line that can be printed.
fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"))
}

fn quantity(value: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let stage = match value {
        Value::String(text) if matches(QUANTITY, text) => return,
        Value::Number(_) if whole(value).is_some() => return,
        Value::String(_) => Stage::Value,
        _ => Stage::Type,
    };
    let message = format!("{} is no quantity: write a number with a suffix, such as 500m, \"1.5\" or 10Gi", written(value));
    errors.push(FieldError::new(path.clone(), message).at(stage));
}

/// A whole number, also one that was written as `1.0` or `1e3`; beyond 2^53 a float does not represent a single one.
pub(super) fn whole(value: &Value) -> Option<i64> {
    let float = || value.as_f64().filter(|float| value.is_f64() && float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0);
    value.as_i64().or_else(|| float().map(|float| float as i64))
}

/// A date and a time of day as the format `date-time` of a schema has them; leap seconds are none. As in the server's pattern, any
/// character may stand before the fraction of a second, and an offset may be any four digits: what the server lets pass is not refused.
fn is_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let Some((date, time)) = text.split_once('t') else { return false };
    let clock = r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$";
    is_date(date) && matches(clock, time)
}

/// A day that exists, as 2026-01-31.
pub(crate) fn is_date(text: &str) -> bool {
    matches(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", text) && text.parse::<jiff::civil::Date>().is_ok()
}

/// The error about a value that is no text. Quotes alone help only where what stands in them would do.
fn no_text(pattern: Option<&'static str>, one_of: &[&str], value: &Value, path: &FieldPath) -> FieldError {
    let error = wrong_type(path, "text", value);
    if !value.is_number() && !value.is_boolean() {
        return error;
    }
    let text = value.to_string();
    let remedy = if !one_of.is_empty() && !one_of.contains(&text.as_str()) {
        Some(format!("write one of {}", one_of.join(", ")))
    } else {
        pattern.filter(|pattern| !matches(pattern, &text)).and_then(|pattern| forms::remedy(pattern, &text))
    };
    match remedy {
        Some(remedy) => FieldError::new(path.clone(), format!("text is needed here, not {text}: {remedy}")).at(Stage::Type),
        None => error,
    }
}

/// The longest value that an error writes a second time, as it should be.
const REWRITTEN_MAX: usize = 64;

/// The error about a value that is no list, and how it becomes one if it may be meant as its only element.
fn no_list(items: &Schema, value: &Value, path: &FieldPath) -> FieldError {
    let error = wrong_type(path, "a list", value);
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let remedy = match (&items.shape, value) {
        (Shape::Text { .. }, Value::String(_) | Value::Number(_) | Value::Bool(_)) if text.len() <= REWRITTEN_MAX => {
            format!(": write it in brackets, as [{text:?}]")
        }
        (Shape::Object(_), Value::Object(_)) => ": put a dash before its first field".to_owned(),
        _ => return error,
    };
    FieldError::new(path.clone(), error.message + &remedy).at(Stage::Type)
}

fn wrong_type(path: &FieldPath, wanted: &str, value: &Value) -> FieldError {
    let remedy = match value {
        Value::Number(account) if wanted == "text" && is_short_account(path, account) => {
            ": put it in quotes, with the leading zeros of the account id, which has twelve digits"
        }
        Value::Number(_) | Value::Bool(_) if wanted == "text" => ": put it in quotes",
        Value::String(text) if is_quoted(text) && wanted != "an object" && wanted != "a list" => ": leave the quotes out",
        _ => "",
    };
    let shown = match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        other => other.to_string(),
    };
    FieldError::new(path.clone(), format!("{wanted} is needed here, not {shown}{remedy}")).at(Stage::Type)
}

/// Whether a number is given as the owner of images without being an account id: without quotes a number loses its leading zeros.
fn is_short_account(path: &FieldPath, number: &serde_json::Number) -> bool {
    path.to_string().ends_with(".owner") && number.to_string().len() != 12
}

/// Whether a text would be a number or a truth value without quotes.
fn is_quoted(text: &str) -> bool {
    text.parse::<f64>().is_ok() || matches!(text, "true" | "false")
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

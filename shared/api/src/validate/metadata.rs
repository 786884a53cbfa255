//! What the API server checks in the metadata of every object.

use crate::crd;
use crate::field::{FieldError, FieldPath, Stage};
use crate::runtime::{KEY_FORM, LABEL_VALUE_FORM, is_label_value, is_qualified_name};
use crate::schema::{self, check, check_fields, is_date, matches};
use crate::words;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;

const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const NAME_FORM: &str = "use lower-case letters, digits, - and ., letters or digits at both ends, at most 253";
const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Bytes of all keys and values of annotations together.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Adds the errors of the metadata of a new object of a kind.
pub(super) fn creation(kind: &str, metadata: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("metadata");
    decoding(metadata, &path, errors);
    names(kind, metadata, &path, errors);
    values(metadata, &path, errors);
}

/// Adds the errors of metadata that replaces that of a stored object; name and namespace are those of the stored one.
pub(super) fn change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("metadata");
    decoding(new, &path, errors);
    values(new, &path, errors);
    let (had, has) = (text(old, "uid"), text(new, "uid"));
    if !has.is_empty() && had != has {
        // The server gives each object a uid of its own, so one that the stored object does not show is that of another one.
        let message = "it is not the uid of the object that is replaced, so another object is meant: leave it out";
        errors.push(FieldError::new(path.key("uid"), message));
    }
    let given = |metadata: &Value, field: &str| metadata.get(field).filter(|value| !value.is_null()).cloned();
    let mut deletes = |field: &str| {
        errors.push(FieldError::new(path.key(field), "is set when the object is deleted, not by writing it: leave it out"));
    };
    // Of an object that is being deleted the server keeps the time, whatever a change says, but refuses another grace period.
    if given(old, "deletionTimestamp").is_none() && given(new, "deletionTimestamp").is_some() {
        deletes("deletionTimestamp");
    }
    let grace = given(new, "deletionGracePeriodSeconds");
    if grace.is_some() && grace != given(old, "deletionGracePeriodSeconds") {
        deletes("deletionGracePeriodSeconds");
    }
}

/// Unknown fields and wrong types.
fn decoding(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if metadata.is_null() {
        return;
    }
    check_fields(Some(schema::object_meta()), metadata, path, errors);
    let mut found = Vec::new();
    check(schema::object_meta(), &without_null_items(metadata), path, &mut found);
    let managed = metadata.get("managedFields").and_then(Value::as_array).into_iter().flatten().enumerate();
    let managed = managed.map(|(index, entry)| (path.key("managedFields").index(index).key("time"), entry.get("time")));
    let own = ["creationTimestamp", "deletionTimestamp"].map(|field| (path.key(field), metadata.get(field)));
    for (path, time) in managed.chain(own) {
        if let Some(Value::String(time)) = time
            && !is_time(time)
        {
            found.push(FieldError::new(path, format!("{time:?} is no time: write it as 2026-01-31T10:00:00Z, or leave it out")));
        }
    }
    errors.extend(found.into_iter().map(|error| error.at(Stage::Malformed)));
}

/// RFC 3339, as strictly as the server's decoder of metadata reads it: that takes an hour of one digit, a comma before the fraction of a
/// second and offsets of up to 24 hours as well. What the server lets pass is not refused.
fn is_time(text: &str) -> bool {
    let clock = r"^([01]?[0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.,][0-9]+)?(Z|[+-]([01][0-9]|2[0-4]):[0-5][0-9])$";
    text.split_once('T').is_some_and(|(date, time)| is_date(date) && matches(clock, time))
}

/// The metadata with the zero value for null elements, as the server decodes them.
fn without_null_items(metadata: &Value) -> Cow<'_, Value> {
    let mut metadata = Cow::Borrowed(metadata);
    for field in ["finalizers", "ownerReferences", "managedFields"] {
        let has_null = metadata.get(field).and_then(Value::as_array).is_some_and(|items| items.iter().any(Value::is_null));
        if has_null && let Some(Value::Array(items)) = metadata.to_mut().get_mut(field) {
            let zero = if field == "finalizers" { Value::from("") } else { Value::Object(Map::new()) };
            items.iter_mut().filter(|item| item.is_null()).for_each(|item| *item = zero.clone());
        }
    }
    metadata
}

fn names(kind: &str, metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (name, prefix, namespace) = (text(metadata, "name"), text(metadata, "generateName"), text(metadata, "namespace"));
    let is_name = |name: &str| name.len() <= 253 && matches(NAME, name);
    if !prefix.is_empty() && !is_name(&with_letter_at_end(prefix)) {
        errors.push(FieldError::new(path.key("generateName"), format!("{prefix:?} begins no name: {NAME_FORM}")));
    }
    // The server makes the name of the prefix, however odd, and five letters.
    let made = (!prefix.is_empty()).then(|| prefix.chars().take(58).chain("aaaaa".chars()).collect::<String>());
    let name = if name.is_empty() { made.as_deref().unwrap_or_default() } else { name };
    // Of one that is no text, its type is the error.
    let is_text = metadata.get("name").is_none_or(|name| name.is_null() || name.is_string());
    if name.is_empty() && is_text {
        errors.push(FieldError::new(path.key("name"), "missing: give the object a name").at(Stage::Shape));
    } else if !name.is_empty() && !is_name(name) {
        errors.push(FieldError::new(path.key("name"), format!("{name:?} is no name: {NAME_FORM}")));
    }
    if crd::is_namespaced(kind) && !namespace.is_empty() && !(namespace.len() <= 63 && matches(NAMESPACE, namespace)) {
        let message =
            format!("{namespace:?} is no namespace: use lower-case letters, digits and -, letters or digits at both ends, at most 63");
        errors.push(FieldError::new(path.key("namespace"), message));
    }
}

/// A dash may end the beginning of a name, as letters follow it.
fn with_letter_at_end(prefix: &str) -> String {
    prefix.strip_suffix('-').filter(|rest| !rest.is_empty()).map_or_else(|| prefix.to_owned(), |rest| format!("{rest}a"))
}

/// What is checked at every write.
fn values(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let finalizers = texts(metadata, "finalizers");
    let has = |name: &str| finalizers.contains(&name);
    for name in finalizers.iter().filter(|name| !is_qualified_name(name)) {
        errors.push(FieldError::new(path.key("finalizers"), format!("{name:?} is no finalizer: {KEY_FORM}")));
    }
    if has("orphan") && has("foregroundDeletion") {
        let message = "orphan and foregroundDeletion exclude each other: keep one";
        errors.push(FieldError::new(path.key("finalizers"), message));
    }
    let labels = path.key("labels");
    for (key, value) in entries(metadata, "labels") {
        if !is_qualified_name(key) {
            errors.push(FieldError::new(labels.clone(), format!("{key:?} is no label key: {KEY_FORM}")));
        }
        if !is_label_value(value) {
            errors.push(FieldError::new(
                labels.clone(),
                format!("{value:?} of {} is no label value: {LABEL_VALUE_FORM}", words::printable(key)),
            ));
        }
    }
    let annotations = path.key("annotations");
    let mut size = 0;
    for (key, value) in entries(metadata, "annotations") {
        size += key.len() + value.len();
        // The server does not mind capital letters here.
        if !is_qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::new(annotations.clone(), format!("{key:?} is no annotation key: {KEY_FORM}")));
        }
    }
    if ANNOTATIONS_MAX < size {
        let message = format!("{size} bytes of keys and values are too many: at most {ANNOTATIONS_MAX}");
        errors.push(FieldError::new(annotations, message).at(Stage::Shape));
    }
    owners(metadata, &path.key("ownerReferences"), errors);
}

fn owners(metadata: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    // Of several owners with one uid a server keeps the first, before it looks at any.
    let mut uids = BTreeSet::new();
    let owners = metadata.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let owners: Vec<&Value> = owners.filter(|owner| uids.insert(text(owner, "uid"))).collect();
    for (index, owner) in owners.iter().enumerate() {
        let text = |field: &str| text(owner, field);
        let path = path.index(index);
        for field in ["apiVersion", "kind", "name", "uid"].into_iter().filter(|field| text(field).is_empty()) {
            let message = format!("missing: write the owner's {field}, or leave the owner out");
            errors.push(FieldError::new(path.key(field), message).at(Stage::Shape));
        }
        let has_version = match text("apiVersion").split('/').collect::<Vec<_>>().as_slice() {
            [_] => true,
            [_, version] => !version.is_empty(),
            _ => false,
        };
        if !has_version {
            let message = format!("{:?} is no group with a version: write it as apps/v1, or v1", text("apiVersion"));
            errors.push(FieldError::new(path.key("apiVersion"), message));
        }
        if text("apiVersion") == "v1" && text("kind") == "Event" {
            errors.push(FieldError::new(path, "an Event owns nothing: leave it out"));
        }
    }
    if 1 < owners.iter().filter(|owner| owner.get("controller") == Some(&Value::Bool(true))).count() {
        errors.push(FieldError::new(path.clone(), "several owners are controllers: set controller for one only"));
    }
}

/// A text; empty if it is absent or something else.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The entries of a map of text; null is the empty text.
fn entries<'a>(metadata: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = metadata.get(field).and_then(Value::as_object);
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// The texts of a list; null is the empty text.
fn texts<'a>(metadata: &'a Value, field: &str) -> Vec<&'a str> {
    let list = metadata.get(field).and_then(Value::as_array);
    list.into_iter().flatten().map(|item| item.as_str().unwrap_or_default()).collect()
}

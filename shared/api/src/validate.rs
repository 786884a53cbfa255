//! Admission: the errors of an API server with our CRDs (api 4, 5, 8, 9, 10). Those that only controllers
//! find are in `runtime`.

use crate::field::{FieldError, FieldPath};
use crate::manifest::Object;
use crate::schema::{self, apply_defaults, check, check_change};
use serde_json::Value;

/// Fields that metadata may have.
const META_FIELDS: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// The errors of a typed object; none for kinds without a schema of ours.
pub fn validate(object: &Object) -> Vec<FieldError> {
    let (api_version, kind) = object.type_meta();
    object.to_json().map_or_else(Vec::new, |value| document(api_version, kind, &value))
}

/// All errors of an object as it was written. It is validated after defaulting, as by a server; unknown fields are
/// errors (strict, as kubectl requests), and the status of a new object is ignored.
pub fn document(api_version: &str, kind: &str, value: &Value) -> Vec<FieldError> {
    let Some(known) = schema::find(api_version, kind) else { return Vec::new() };
    let mut errors = Vec::new();
    if let Value::Object(map) = value {
        for key in map.keys().filter(|key| !["apiVersion", "kind", "metadata", "spec", "status"].contains(&key.as_str())) {
            let message = "there is no such field at the top: fields belong into metadata or spec";
            errors.push(FieldError::new(FieldPath::root().key(key), message));
        }
    }
    metadata(value.get("metadata").unwrap_or(&Value::Null), &mut errors);
    let path = FieldPath::of("spec");
    match value.get("spec").filter(|spec| !spec.is_null()) {
        Some(spec) => {
            let mut spec = spec.clone();
            apply_defaults(&known.spec, &mut spec);
            check(&known.spec, &spec, &path, &mut errors);
        }
        None if known.spec_required => errors.push(FieldError::new(path, "missing: an object without a spec says nothing")),
        None => {}
    }
    errors
}

/// The errors of replacing one object by another of the same kind and name: those of the new one, then those of the change.
pub fn update(api_version: &str, kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = document(api_version, kind, new);
    if let (Some(known), Some(old), Some(new)) = (schema::find(api_version, kind), old.get("spec"), new.get("spec")) {
        let (mut old, mut new) = (old.clone(), new.clone());
        apply_defaults(&known.spec, &mut old);
        apply_defaults(&known.spec, &mut new);
        check_change(&known.spec, &old, &new, &FieldPath::of("spec"), &mut errors);
    }
    errors
}

/// The spec as a server would store it; `None` if there is none.
pub fn defaulted(api_version: &str, kind: &str, value: &Value) -> Option<Value> {
    let mut spec = value.get("spec").filter(|spec| !spec.is_null())?.clone();
    if let Some(known) = schema::find(api_version, kind) {
        apply_defaults(&known.spec, &mut spec);
    }
    Some(spec)
}

fn metadata(metadata: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("metadata");
    let Some(map) = metadata.as_object() else {
        errors.push(FieldError::new(path, "missing: give the object a name, metadata: {name: …}"));
        return;
    };
    for key in map.keys().filter(|key| !META_FIELDS.contains(&key.as_str())) {
        errors.push(FieldError::new(path.key(key), "metadata has no such field: a name, labels and annotations are what it usually has"));
    }
    let name = map.get("name").filter(|name| !name.is_null());
    match name {
        None if map.contains_key("generateName") => {}
        None => errors.push(FieldError::new(path.key("name"), "missing: give the object a name")),
        Some(Value::String(name)) if name.len() <= 253 && schema::matches(NAME, name) => {}
        Some(name) => {
            let message =
                format!("{name} is no name: use lower-case letters, digits, - and ., letters or digits at both ends, at most 253");
            errors.push(FieldError::new(path.key("name"), message));
        }
    }
}

#[cfg(test)]
mod tests;

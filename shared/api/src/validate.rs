//! Admission: the errors of an API server with our CRDs (api 4, 5, 8, 9, 10). Those that only controllers
//! find are in `runtime`.

mod metadata;
#[cfg(test)]
mod tests;

use crate::crd;
use crate::field::{FieldError, FieldPath, Stage};
use crate::manifest::{self, Object};
use crate::schema::{self, Kind, apply_defaults, check, check_change, check_fields, explain};
use serde_json::Value;

/// What an API server with our CRDs does with a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// One of our CRDs describes it.
    Here,
    /// A kind of Karpenter from before v1: read, and converted.
    Legacy,
    /// Nobody serves it: a group of ours that has no such kind in this version, or a kind of ours in a group that is misspelt.
    Nowhere,
    /// Another group, which is none of our business.
    Elsewhere,
}

/// What an API server with our CRDs does with a kind.
pub fn served(api_version: &str, kind: &str) -> Served {
    match schema::find(api_version, kind) {
        Some(known) if known.status.is_some() => Served::Here,
        Some(_) => Served::Legacy,
        None if manifest::is_karpenter(api_version) && !OTHERS_IN_OUR_GROUPS.contains(&kind) => Served::Nowhere,
        None if intended(api_version, kind).is_some() => Served::Nowhere,
        None => Served::Elsewhere,
    }
}

/// Kinds that other projects serve in groups of ours.
const OTHERS_IN_OUR_GROUPS: [&str; 2] = ["ProvisioningRequest", "CapacityQuota"];

/// The error of a kind that nobody serves ([`Served::Nowhere`]).
pub fn unserved(api_version: &str, kind: &str) -> FieldError {
    match intended(api_version, kind) {
        Some(intended) => {
            let message = format!("no server has {kind} of {api_version}; did you mean {intended}?");
            FieldError::new(FieldPath::of("apiVersion"), message)
        }
        None => manifest::unknown_karpenter_kind(api_version, kind),
    }
}

/// The version that was meant where a kind of ours stands in no group, or in one that is nearly ours. Groups that merely have a kind of the
/// same name, as other providers' do, mean themselves.
fn intended(api_version: &str, kind: &str) -> Option<&'static str> {
    // Files hold many objects of other kinds.
    if !schema::kinds().iter().any(|known| known.kind == kind) {
        return None;
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if manifest::is_karpenter(api_version) || !(group.is_empty() || schema::kinds().iter().any(|known| is_near(known.group(), group))) {
        return None;
    }
    let named = || schema::kinds().iter().filter(|known| known.kind == kind);
    let same_version = named().find(|known| known.api_version.split_once('/').is_some_and(|(_, known)| known == version));
    same_version.or_else(|| named().next()).map(|known| known.api_version)
}

/// Whether two groups differ in three adjacent letters at most, such as the last part of a domain.
fn is_near(known: &str, written: &str) -> bool {
    schema::differing_letters(known, &written.to_ascii_lowercase()) <= 3
}

/// The errors of a typed object; none for kinds without a schema of ours.
pub fn validate(object: &Object) -> Vec<FieldError> {
    let (api_version, kind) = object.type_meta();
    object.to_json().map_or_else(Vec::new, |value| document(api_version, kind, &value))
}

/// All errors of creating an object as it was written. It is validated after defaulting, as by a server; unknown fields are
/// errors (strict, as kubectl requests), and of the status, which a server does not store, nothing else is.
pub fn document(api_version: &str, kind: &str, value: &Value) -> Vec<FieldError> {
    let Some(known) = schema::find(api_version, kind) else { return Vec::new() };
    let mut errors = Vec::new();
    metadata::creation(kind, value.get("metadata").unwrap_or(&Value::Null), &mut errors);
    body(known, value, &mut errors);
    errors
}

/// The errors of replacing one object by another of the same kind and name: those of the new one, then those of the change.
pub fn update(api_version: &str, kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let Some(known) = schema::find(api_version, kind) else { return Vec::new() };
    let mut errors = Vec::new();
    let meta = |value: &Value| value.get("metadata").cloned().unwrap_or_default();
    metadata::change(&meta(old), &meta(new), &mut errors);
    body(known, new, &mut errors);
    if let (Some(old), Some(new)) = (old.get("spec"), new.get("spec")) {
        let (mut old, mut new) = (old.clone(), new.clone());
        apply_defaults(&known.spec, &mut old);
        apply_defaults(&known.spec, &mut new);
        check_change(&known.spec, &old, &new, &FieldPath::of("spec"), &mut errors);
    }
    errors
}

/// Adds the errors outside of metadata.
fn body(known: &Kind, value: &Value, errors: &mut Vec<FieldError>) {
    if let Value::Object(map) = value {
        let top = ["apiVersion", "kind", "metadata", "spec", "status"];
        for key in map.keys().filter(|key| !top.contains(&key.as_str())) {
            let joined = key.split_once(':').filter(|(field, _)| top.contains(field));
            let message = match joined {
                Some((field, _)) => format!("there is no such field at the top: a line break is missing after \"{field}:\""),
                None => "there is no such field at the top: fields belong into metadata or spec".to_owned(),
            };
            errors.push(FieldError::new(FieldPath::root().key(key), message).at(Stage::Unknown));
        }
    }
    if let (Some(schema), Some(status)) = (&known.status, value.get("status")) {
        check_fields(Some(schema), status, &FieldPath::of("status"), errors);
    }
    let path = FieldPath::of("spec");
    let before = errors.len();
    match value.get("spec").filter(|spec| !spec.is_null()) {
        Some(spec) => {
            check_fields(Some(&known.spec), spec, &path, errors);
            let mut spec = spec.clone();
            apply_defaults(&known.spec, &mut spec);
            check(&known.spec, &spec, &path, errors);
            if !spec.is_object() && crd::is_scalable(known) {
                let message = "the number of replicas is looked for here, and finds no object";
                errors.push(FieldError::new(path.key("replicas"), message));
            }
        }
        None if known.spec_required => {
            errors.push(FieldError::new(path, "missing: an object without a spec says nothing").at(Stage::Shape));
        }
        None => {}
    }
    explain(known, &mut errors[before..]);
}

/// The errors of an object as a server tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What a server answers; empty if it accepts the object.
    pub errors: Vec<FieldError>,
    /// What it answers once those are corrected.
    pub later: Vec<FieldError>,
}

/// Divides all errors of an object by the step at which a server stops: after decoding, then after the schema if rules could not
/// be evaluated.
pub fn answer(errors: Vec<FieldError>) -> Answer {
    let found = |stage| errors.iter().any(|error| error.stage == stage);
    let last = match (found(Stage::Malformed), found(Stage::Unknown), found(Stage::Type) || found(Stage::Shape)) {
        (true, ..) => Stage::Malformed,
        (_, true, _) => Stage::Unknown,
        (.., true) => Stage::Value,
        _ => Stage::Rule,
    };
    let (errors, later) = errors.into_iter().partition(|error| error.stage <= last);
    Answer { errors, later }
}

/// Bytes of a request that a server reads at most.
const REQUEST_MAX: usize = 3 * 1024 * 1024;
/// Bytes of a request that etcd takes at most, unless it is set up otherwise.
const STORED_MAX: usize = 3 * 512 * 1024;

/// What becomes of an object for its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    Fits,
    /// A server reads it, and etcd does not take it as it is commonly set up.
    BeyondEtcd(FieldError),
    /// No server reads it.
    BeyondRequest(FieldError),
}

/// Judges the size of an object as JSON.
pub fn size(value: &Value) -> Size {
    let bytes = value.to_string().len();
    let fault = |max: usize, whose: &str| {
        let message = format!("{bytes} bytes as JSON are too many: {whose} at most {max}; make the object smaller");
        FieldError::new(FieldPath::root(), message).at(Stage::Malformed)
    };
    if REQUEST_MAX < bytes {
        Size::BeyondRequest(fault(REQUEST_MAX, "a server reads"))
    } else if STORED_MAX < bytes {
        Size::BeyondEtcd(fault(STORED_MAX, "etcd stores, by default,"))
    } else {
        Size::Fits
    }
}

/// The spec as a server would store it; `None` if there is none.
pub fn defaulted(api_version: &str, kind: &str, value: &Value) -> Option<Value> {
    let mut spec = value.get("spec").filter(|spec| !spec.is_null())?.clone();
    if let Some(known) = schema::find(api_version, kind) {
        apply_defaults(&known.spec, &mut spec);
    }
    Some(spec)
}

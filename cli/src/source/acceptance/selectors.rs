//! Keys, labels, and what selects by them.

use std::collections::BTreeMap;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::{NodeSelector, NodeSelectorTerm};
use whittle_api::runtime::{KEY_FORM, LABEL_VALUE_FORM, is_label_value, is_qualified_name};
use whittle_api::{LabelSelector, ObjectMeta, SelectorRequirement};

/// The operators of label selectors, and the further ones of node affinity.
const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
const COMPARISONS: [&str; 2] = ["Gt", "Lt"];

/// The error of a field that is needed.
pub(super) fn missing(path: FieldPath, remedy: &str) -> FieldError {
    FieldError::new(path, format!("missing: {remedy}"))
}

/// Labels and annotations.
pub(super) fn metadata(metadata: &ObjectMeta, path: &FieldPath, faults: &mut Vec<FieldError>) {
    labels(&metadata.labels, &path.key("labels"), faults);
    // Capital letters in the domain of an annotation do no harm.
    for key in metadata.annotations.keys().filter(|key| !is_qualified_name(&key.to_lowercase())) {
        faults.push(FieldError::new(path.key("annotations"), format!("{key:?} is no annotation key: write {KEY_FORM}")));
    }
}

/// Labels, or the pairs of a selector.
pub(super) fn labels(labels: &BTreeMap<String, String>, path: &FieldPath, faults: &mut Vec<FieldError>) {
    for (key, value) in labels {
        label_key(key, path, faults);
        if !is_label_value(value) {
            faults.push(FieldError::new(path.key(key), format!("{value:?} is no label value: write {LABEL_VALUE_FORM}")));
        }
    }
}

/// The key of a label.
pub(super) fn label_key(key: &str, path: &FieldPath, faults: &mut Vec<FieldError>) {
    if key.is_empty() {
        faults.push(missing(path.clone(), "write the key of a label, such as topology.kubernetes.io/zone"));
    } else if !is_qualified_name(key) {
        faults.push(FieldError::new(path.clone(), format!("{key:?} is no label key: write {KEY_FORM}")));
    }
}

/// A label selector.
pub(super) fn label_selector(selector: &LabelSelector, path: &FieldPath, faults: &mut Vec<FieldError>) {
    labels(&selector.match_labels, &path.key("matchLabels"), faults);
    for (at, requirement) in selector.match_expressions.iter().enumerate() {
        expression(requirement, &OPERATORS, &path.key("matchExpressions").index(at), faults);
    }
}

/// The terms of a required node affinity, of a pod or of a volume.
pub(super) fn node_selector(selector: &NodeSelector, path: &FieldPath, faults: &mut Vec<FieldError>) {
    let path = path.key("nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        faults.push(missing(path.clone(), "write a term, one of which a node has to match, or leave the affinity out"));
    }
    for (at, term) in selector.node_selector_terms.iter().enumerate() {
        node_selector_term(term, &path.index(at), faults);
    }
}

/// A term of a node affinity.
pub(super) fn node_selector_term(term: &NodeSelectorTerm, path: &FieldPath, faults: &mut Vec<FieldError>) {
    let operators = [&OPERATORS[..], &COMPARISONS].concat();
    for (at, requirement) in term.match_expressions.iter().enumerate() {
        expression(requirement, &operators, &path.key("matchExpressions").index(at), faults);
    }
    for (at, field) in term.match_fields.iter().enumerate() {
        let path = path.key("matchFields").index(at);
        if field.key != "metadata.name" {
            faults.push(FieldError::new(path.key("key"), format!("{:?} is no field that is matched: write metadata.name", field.key)));
        }
        if !["In", "NotIn"].contains(&field.operator.as_str()) {
            faults.push(FieldError::new(path.key("operator"), format!("{:?} matches no field: write In or NotIn", field.operator)));
        } else if field.values.len() != 1 {
            faults.push(FieldError::new(path.key("values"), "a field is matched with one value: write the name of one node"));
        }
    }
}

/// `key operator values`.
fn expression(requirement: &SelectorRequirement, operators: &[&str], path: &FieldPath, faults: &mut Vec<FieldError>) {
    let SelectorRequirement { key, operator, values } = requirement;
    label_key(key, &path.key("key"), faults);
    let mut fault = |field: &str, message: String| faults.push(FieldError::new(path.key(field), message));
    match operator.as_str() {
        other if !operators.contains(&other) => {
            let (last, others) = operators.split_last().unwrap_or((&"", &[]));
            let word = if other.is_empty() { "missing".to_owned() } else { format!("{other:?} is no operator") };
            fault("operator", format!("{word}: write {} or {last}", others.join(", ")));
        }
        "In" | "NotIn" if values.is_empty() => fault("values", format!("{operator} without values means nothing: write them")),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            fault("values", format!("{operator} takes no values: leave them out, or write In or NotIn"));
        }
        "Gt" | "Lt" if values.len() != 1 => fault("values", format!("{operator} compares with one number: write one value")),
        _ => {}
    }
}

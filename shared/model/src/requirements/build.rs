//! Converts labels, selectors and API requirements to [`Requirements`] and back.

use super::Requirements;
use super::allowed::Allowed;
use std::collections::BTreeMap;
use whittle_api::k8s::NodeSelectorTerm;
use whittle_api::karpenter::{Operator as ApiOperator, Requirement};
use whittle_api::runtime::is_label_value;
use whittle_api::{SelectorRequirement, labels};

/// Maps a deprecated label key to its successor.
#[must_use]
pub fn canonical_key(key: &str) -> &str {
    labels::normalized(key)
}

/// `key In [value]` for each label.
#[must_use]
pub fn from_labels(labels: &BTreeMap<String, String>) -> Requirements {
    labels.iter().map(|(key, value)| (canonical_key(key).to_owned(), Allowed::one(value.clone()))).collect()
}

/// The same for a node selector.
#[must_use]
pub fn from_selector(selector: &BTreeMap<String, String>) -> Requirements {
    from_labels(selector)
}

/// Requirements of NodePools, NodeClaims and instance types; several entries for one key are intersected.
#[must_use]
pub fn from_requirements(requirements: &[Requirement]) -> Requirements {
    requirements
        .iter()
        .map(|r| {
            let allowed = allowed(r.operator, &r.values);
            // `Gt` of the largest integer allows nothing, so `minValues` does not apply.
            let unsatisfiable = r.operator == ApiOperator::Gt && allowed.is_empty();
            (canonical_key(&r.key).to_owned(), allowed.with_min_values(if unsatisfiable { None } else { r.min_values }))
        })
        .collect()
}

/// The expressions of one node selector term. An unknown operator allows nothing.
///
/// No API server looks at the values in a pod's preferences, and none lets a node have a label with a value that is no label value: such
/// values are no values here. What requires one of them can be met by no node; it must never become a label of a machine, whose user data
/// and kubelet would read it as they like.
#[must_use]
pub fn term_requirements(term: &NodeSelectorTerm) -> Requirements {
    let of = |e: &SelectorRequirement| Some((canonical_key(&e.key).to_owned(), allowed_labels(e)?));
    term.match_expressions.iter().filter_map(of).collect()
}

/// What an expression allows of the labels that a node can have; `None` if it excludes none of them.
fn allowed_labels(e: &SelectorRequirement) -> Option<Allowed<String>> {
    let Some(operator) = ApiOperator::parse(&e.operator) else { return Some(Allowed::none()) };
    if matches!(operator, ApiOperator::Gt | ApiOperator::Lt | ApiOperator::Gte | ApiOperator::Lte) {
        return Some(bounded_labels(operator, &e.values));
    }
    let is_list = matches!(operator, ApiOperator::In | ApiOperator::NotIn);
    if !is_list || e.values.iter().all(|value| is_label_value(value)) {
        return Some(allowed(operator, &e.values));
    }
    let values: Vec<String> = e.values.iter().filter(|value| is_label_value(value)).cloned().collect();
    let excludes_nothing = operator == ApiOperator::NotIn && values.is_empty();
    (!excludes_nothing).then(|| allowed(operator, &values))
}

/// The numbers within a bound that a label can have: none is below zero, because no label value begins with a sign. A bound that is no
/// integer allows nothing, as for kube-scheduler.
fn bounded_labels(operator: ApiOperator, values: &[String]) -> Allowed<String> {
    let nothing = || Allowed::one_of(std::iter::empty::<String>());
    if values.first().is_none_or(|bound| bound.parse::<i64>().is_err()) {
        return nothing();
    }
    let bounded = allowed(operator, values);
    match bounded.bounds() {
        (Some(low), _) if low < 0 => Allowed::at_least(0),
        (_, Some(high)) if high < 0 => nothing(),
        _ => bounded,
    }
}

/// What an operator allows with its values. A bound that is not an integer counts as 0, since inputs have been
/// validated.
fn allowed(operator: ApiOperator, values: &[String]) -> Allowed<String> {
    let bound = || values.first().and_then(|v| v.parse().ok()).unwrap_or(0);
    match operator {
        ApiOperator::In => Allowed::one_of(values.iter().cloned()),
        ApiOperator::NotIn => Allowed::except(values.iter().cloned()),
        ApiOperator::Exists => Allowed::any(),
        ApiOperator::DoesNotExist => Allowed::none(),
        ApiOperator::Gt => Allowed::above(bound()),
        ApiOperator::Lt => Allowed::below(bound()),
        ApiOperator::Gte => Allowed::at_least(bound()),
        ApiOperator::Lte => Allowed::at_most(bound()),
    }
}

impl Requirements {
    /// Converts to API requirements: sorted by key and value, with bounds as `Gte` and `Lte`.
    #[must_use]
    pub fn to_api(&self) -> Vec<Requirement> {
        let mut out = Vec::new();
        for (key, allowed) in self.iter() {
            let entry = |operator, values| Requirement { key: key.clone(), operator, values, min_values: allowed.min_values() };
            let (gte, lte) = allowed.bounds();
            if let Some(bound) = gte {
                out.push(entry(ApiOperator::Gte, vec![bound.to_string()]));
            }
            if let Some(bound) = lte {
                out.push(entry(ApiOperator::Lte, vec![bound.to_string()]));
            }
            if gte.is_none() && lte.is_none() {
                out.push(entry(
                    match allowed.operator() {
                        super::Operator::In => ApiOperator::In,
                        super::Operator::NotIn => ApiOperator::NotIn,
                        super::Operator::Exists => ApiOperator::Exists,
                        super::Operator::DoesNotExist => ApiOperator::DoesNotExist,
                    },
                    allowed.listed().to_vec(),
                ));
            }
        }
        out
    }
}

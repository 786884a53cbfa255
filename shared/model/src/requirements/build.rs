//! Converts labels, selectors and API requirements to [`Requirements`] and back.

use super::Requirements;
use super::allowed::Allowed;
use std::collections::BTreeMap;
use whittle_api::k8s::NodeSelectorTerm;
use whittle_api::karpenter::{Operator as ApiOperator, Requirement};
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
#[must_use]
pub fn term_requirements(term: &NodeSelectorTerm) -> Requirements {
    expressions(&term.match_expressions)
}

fn expressions(list: &[SelectorRequirement]) -> Requirements {
    list.iter()
        .map(|e| {
            let allowed = ApiOperator::parse(&e.operator).map_or_else(Allowed::none, |operator| allowed(operator, &e.values));
            (canonical_key(&e.key).to_owned(), allowed)
        })
        .collect()
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

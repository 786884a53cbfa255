//! From labels, selectors and written requirements to the algebra.

use super::Requirements;
use super::allowed::Allowed;
use std::collections::BTreeMap;
use whittle_api::SelectorRequirement;
use whittle_api::k8s::NodeSelectorTerm;
use whittle_api::karpenter::{Operator as Word, Requirement};
use whittle_api::labels;

/// The key that `key` stands for today; legacy names are read as their successors.
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

/// Requirements as NodePools, NodeClaims and instance types write them; several entries on a key are narrowed together.
#[must_use]
pub fn from_requirements(requirements: &[Requirement]) -> Requirements {
    requirements
        .iter()
        .map(|r| {
            let allowed = allowed(r.operator, &r.values);
            // Nothing is above the largest integer, and then there is nothing to count either.
            let lost = r.operator == Word::Gt && allowed.is_empty();
            (canonical_key(&r.key).to_owned(), allowed.with_min_values(if lost { None } else { r.min_values }))
        })
        .collect()
}

/// The expressions of one node selector term. An operator that nobody knows allows nothing.
#[must_use]
pub fn term_requirements(term: &NodeSelectorTerm) -> Requirements {
    expressions(&term.match_expressions)
}

fn expressions(list: &[SelectorRequirement]) -> Requirements {
    list.iter()
        .map(|e| {
            let allowed = Word::parse(&e.operator).map_or_else(Allowed::none, |word| allowed(word, &e.values));
            (canonical_key(&e.key).to_owned(), allowed)
        })
        .collect()
}

/// What one operator with its values allows. A bound that is no integer counts as 0: inputs are validated beforehand.
fn allowed(word: Word, values: &[String]) -> Allowed<String> {
    let bound = || values.first().and_then(|v| v.parse().ok()).unwrap_or(0);
    match word {
        Word::In => Allowed::one_of(values.iter().cloned()),
        Word::NotIn => Allowed::except(values.iter().cloned()),
        Word::Exists => Allowed::any(),
        Word::DoesNotExist => Allowed::none(),
        Word::Gt => Allowed::above(bound()),
        Word::Lt => Allowed::below(bound()),
        Word::Gte => Allowed::at_least(bound()),
        Word::Lte => Allowed::at_most(bound()),
    }
}

impl Requirements {
    /// Back to the form in which NodeClaims write requirements: by key, values sorted, bounds as `Gte` and `Lte`.
    #[must_use]
    pub fn to_api(&self) -> Vec<Requirement> {
        let mut out = Vec::new();
        for (key, allowed) in self.iter() {
            let entry = |operator, values| Requirement { key: key.clone(), operator, values, min_values: allowed.min_values() };
            let (gte, lte) = allowed.bounds();
            if let Some(bound) = gte {
                out.push(entry(Word::Gte, vec![bound.to_string()]));
            }
            if let Some(bound) = lte {
                out.push(entry(Word::Lte, vec![bound.to_string()]));
            }
            if gte.is_none() && lte.is_none() {
                out.push(entry(
                    match allowed.operator() {
                        super::Operator::In => Word::In,
                        super::Operator::NotIn => Word::NotIn,
                        super::Operator::Exists => Word::Exists,
                        super::Operator::DoesNotExist => Word::DoesNotExist,
                    },
                    allowed.listed().to_vec(),
                ));
            }
        }
        out
    }
}

//! Selector terms as EC2's filters (spec aws 11.2, 14.1).

use std::collections::BTreeMap;
use whittle_api::karpenter::{AmiSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm};

/// One describe call: filters are ANDed, values of one filter ORed. The answers of several queries are united.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    pub filters: BTreeMap<String, Vec<String>>,
    /// Owners, for images.
    pub owners: Vec<String>,
}

impl Query {
    fn of(name: &str, values: Vec<String>) -> Self {
        Self { filters: BTreeMap::from([(name.to_owned(), values)]), owners: Vec::new() }
    }
    fn of_tags(tags: &BTreeMap<String, String>) -> Self {
        let mut query = Self::default();
        for (key, value) in tags {
            if value == "*" {
                query.filters.entry("tag-key".to_owned()).or_default().push(key.clone());
            } else {
                query.filters.insert(format!("tag:{key}"), vec![value.clone()]);
            }
        }
        query
    }
    /// A filter takes any of its keys, so a second wildcard tag has to be checked on the answer.
    pub fn wildcard_keys(&self) -> &[String] {
        self.filters.get("tag-key").map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether an answer really has all tags that a query names with any value.
pub fn matches_tags(query: &Query, tags: &BTreeMap<String, String>) -> bool {
    query.wildcard_keys().iter().all(|key| tags.contains_key(key))
}

/// Ids in one query, each tag term in its own.
pub fn subnet_queries(terms: &[SubnetSelectorTerm]) -> Vec<Query> {
    let ids: Vec<String> = terms.iter().filter_map(|term| term.id.clone()).collect();
    let tags = terms.iter().filter(|term| term.id.is_none()).filter_map(|term| term.tags.as_ref());
    with_ids("subnet-id", ids).into_iter().chain(tags.map(Query::of_tags)).collect()
}

/// Ids in one query, names in one, each tag term in its own.
pub fn security_group_queries(terms: &[SecurityGroupSelectorTerm]) -> Vec<Query> {
    let ids: Vec<String> = terms.iter().filter_map(|term| term.id.clone()).collect();
    let names: Vec<String> = terms.iter().filter(|term| term.id.is_none()).filter_map(|term| term.name.clone()).collect();
    let tags = terms.iter().filter(|term| term.id.is_none() && term.name.is_none()).filter_map(|term| term.tags.as_ref());
    with_ids("group-id", ids).into_iter().chain(with_ids("group-name", names)).chain(tags.map(Query::of_tags)).collect()
}

/// SSM parameters that terms name outright.
pub fn ssm_parameters(terms: &[AmiSelectorTerm]) -> Vec<&str> {
    terms.iter().filter_map(|term| term.ssm_parameter.as_deref()).collect()
}

/// Queries of image terms; `found` are ids that SSM parameters of terms led to. Aliases are not terms of EC2: see
/// [`super::ssm_images`].
pub fn image_queries(terms: &[AmiSelectorTerm], found: &[String]) -> Vec<Query> {
    let ids: Vec<String> = terms.iter().filter_map(|term| term.id.clone()).chain(found.iter().cloned()).collect();
    let others = terms.iter().filter(|term| term.id.is_none() && term.alias.is_none() && term.ssm_parameter.is_none());
    let other = |term: &AmiSelectorTerm| {
        let mut query = term.tags.as_ref().map(Query::of_tags).unwrap_or_default();
        query.owners = term.owner.iter().cloned().collect();
        if let Some(name) = &term.name {
            query.filters.insert("name".to_owned(), vec![name.clone()]);
            if query.owners.is_empty() {
                // Names are free for all to use: only those whose images can be trusted.
                query.owners = vec!["self".to_owned(), "amazon".to_owned()];
            }
        }
        query
    };
    let others = others.map(other).filter(|query| !query.filters.is_empty() || !query.owners.is_empty());
    with_ids("image-id", ids).into_iter().chain(others).collect()
}

fn with_ids(filter: &str, mut ids: Vec<String>) -> Option<Query> {
    ids.sort();
    ids.dedup();
    (!ids.is_empty()).then(|| Query::of(filter, ids))
}

//! Selector terms as EC2's filters (aws 11.2, 14.1, 15).

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::karpenter::{AmiSelectorTerm, CapacityReservationSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm};

/// One describe call: filters are ANDed, values of one filter ORed. The results of several queries are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    pub filters: BTreeMap<String, Vec<String>>,
    /// Owners, for images.
    pub owners: Vec<String>,
    /// Ids, for capacity reservations: no filter takes them.
    pub ids: Vec<String>,
}

impl Query {
    fn of(name: &str, values: Vec<String>) -> Self {
        Self { filters: BTreeMap::from([(name.to_owned(), values)]), ..Self::default() }
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
    /// Keys of wildcard tags. A filter matches any one of its keys, so the results have to be checked for all.
    fn wildcard_keys(&self) -> &[String] {
        self.filters.get("tag-key").map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether a result really has all tags that a query requires with any value. Keys may have wildcards, too: EC2 takes them in each filter.
pub fn matches_tags(query: &Query, tags: &BTreeMap<String, String>) -> bool {
    query.wildcard_keys().iter().all(|key| tags.contains_key(key) || tags.keys().any(|known| matches_pattern(key, known)))
}

/// A part of a filter's value.
enum Token {
    AnyText,
    AnyLetter,
    Letter(char),
}

/// `*` is any text, `?` any letter, and what follows a backslash stands for itself.
fn tokens(pattern: &str) -> Vec<Token> {
    let mut letters = pattern.chars();
    let mut all = Vec::new();
    while let Some(letter) = letters.next() {
        all.push(match letter {
            '*' => Token::AnyText,
            '?' => Token::AnyLetter,
            '\\' => Token::Letter(letters.next().unwrap_or(letter)),
            _ => Token::Letter(letter),
        });
    }
    all
}

/// Whether a text matches a filter's value, as EC2 reads it. No value takes long: each of its letters looks at the text once.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    // How much of the text the tokens so far may have matched.
    let mut reached = BTreeSet::from([0]);
    for token in tokens(pattern) {
        reached = match token {
            Token::AnyText => reached.first().map(|first| (*first..=text.len()).collect()).unwrap_or_default(),
            Token::AnyLetter => reached.into_iter().filter(|at| *at < text.len()).map(|at| at + 1).collect(),
            Token::Letter(letter) => reached.into_iter().filter(|at| text.get(*at) == Some(&letter)).map(|at| at + 1).collect(),
        };
    }
    reached.contains(&text.len())
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

/// Each id in a query of its own, since one that does not exist fails its whole query; each term with tags or match criteria
/// in another, even with an id. Only active reservations are requested.
pub fn capacity_reservation_queries(terms: &[CapacityReservationSelectorTerm]) -> Vec<Query> {
    let active = |mut query: Query| {
        query.filters.insert("state".to_owned(), vec!["active".to_owned()]);
        query
    };
    let of_term = |term: &CapacityReservationSelectorTerm| {
        let by_id = term.id.as_ref().map(|id| active(Query { ids: vec![id.clone()], ..Query::default() }));
        let selects = term.tags.as_ref().is_some_and(|tags| !tags.is_empty()) || term.instance_match_criteria.is_some();
        let by_what_it_is = selects.then(|| {
            let mut query = active(term.tags.as_ref().map(Query::of_tags).unwrap_or_default());
            let filters = [("owner-id", &term.owner_id), ("instance-match-criteria", &term.instance_match_criteria)];
            query.filters.extend(filters.into_iter().filter_map(|(name, value)| Some((name.to_owned(), vec![value.clone()?]))));
            query
        });
        by_id.into_iter().chain(by_what_it_is)
    };
    terms.iter().flat_map(of_term).collect()
}

/// SSM parameters that terms name directly. That of a term with an id or an alias counts for nothing (api 16).
pub fn ssm_parameters(terms: &[AmiSelectorTerm]) -> Vec<&str> {
    let by_parameter = terms.iter().filter(|term| term.id.is_none() && term.alias.is_none());
    by_parameter.filter_map(|term| term.ssm_parameter.as_deref()).collect()
}

/// Queries of image terms; `found` are ids from SSM parameters of terms. EC2 does not know aliases: see
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
                // Anyone can give an image any name, so the owner must be trusted.
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

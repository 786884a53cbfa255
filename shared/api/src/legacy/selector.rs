//! Selectors were one map whose conditions all had to hold, with comma lists for alternatives; terms are alternatives.

use crate::karpenter::{AmiSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm};
use std::collections::BTreeMap;

type Selector = BTreeMap<String, String>;

/// Both spellings of the key for ids; the later one wins.
const ID_KEYS: [&str; 2] = ["aws-ids", "aws::ids"];
const NAME_KEY: &str = "aws::name";
const OWNERS_KEY: &str = "aws::owners";

pub(super) fn subnets(selector: &Selector) -> Vec<SubnetSelectorTerm> {
    ids_and_tags(selector).into_iter().map(|(id, tags)| SubnetSelectorTerm { tags, id }).collect()
}

pub(super) fn security_groups(selector: &Selector) -> Vec<SecurityGroupSelectorTerm> {
    ids_and_tags(selector).into_iter().map(|(id, tags)| SecurityGroupSelectorTerm { tags, id, name: None }).collect()
}

/// Owners times ids times names times tags, the owners varying slowest.
pub(super) fn images(selector: &Selector) -> Vec<AmiSelectorTerm> {
    let mut terms = Vec::new();
    if selector.is_empty() {
        return terms;
    }
    let names = alternatives(selector.get(NAME_KEY));
    let tag_sets = tag_sets(selector, &[ID_KEYS[0], ID_KEYS[1], NAME_KEY, OWNERS_KEY]);
    for owner in alternatives(selector.get(OWNERS_KEY)) {
        for id in ids(selector) {
            for name in &names {
                for tags in &tag_sets {
                    terms.push(AmiSelectorTerm {
                        tags: tags.clone(),
                        id: id.clone(),
                        name: name.clone(),
                        owner: owner.clone(),
                        ..AmiSelectorTerm::default()
                    });
                }
            }
        }
    }
    terms
}

/// The key for ids of a selector that has other conditions as well, and the first of those. Both had to hold, and no term of v1 has both.
pub(super) fn mixed(selector: &Selector) -> Option<(&'static str, &str)> {
    let ids = ID_KEYS.into_iter().find(|key| selector.contains_key(*key))?;
    let other = selector.keys().map(String::as_str).find(|key| !ID_KEYS.contains(key))?;
    Some((ids, other))
}

fn ids_and_tags(selector: &Selector) -> Vec<(Option<String>, Option<Selector>)> {
    if selector.is_empty() {
        return Vec::new();
    }
    let tag_sets = tag_sets(selector, &ID_KEYS);
    ids(selector).into_iter().flat_map(|id| tag_sets.iter().map(move |tags| (id.clone(), tags.clone()))).collect()
}

fn ids(selector: &Selector) -> Vec<Option<String>> {
    alternatives(ID_KEYS.iter().rev().find_map(|key| selector.get(*key)))
}

/// The elements of a comma-separated list; a single `None` if there is no list. Empty elements are kept, and rejected later.
fn alternatives(list: Option<&String>) -> Vec<Option<String>> {
    match list {
        None => vec![None],
        Some(list) => list.split(',').map(|element| Some(element.trim().to_owned())).collect(),
    }
}

/// One set of tags for each combination of values, the first key varying fastest; a single `None` without tags.
fn tag_sets(selector: &Selector, special: &[&str]) -> Vec<Option<Selector>> {
    let mut sets = vec![Selector::new()];
    for (key, list) in selector.iter().filter(|(key, _)| !special.contains(&key.as_str())) {
        let values: Vec<&str> = list.split(',').map(str::trim).collect();
        sets = values.iter().flat_map(|value| sets.iter().map(|set| with(set, key, value))).collect();
    }
    sets.into_iter().map(|set| (!set.is_empty()).then_some(set)).collect()
}

fn with(set: &Selector, key: &str, value: &str) -> Selector {
    let mut set = set.clone();
    set.insert(key.to_owned(), value.to_owned());
    set
}

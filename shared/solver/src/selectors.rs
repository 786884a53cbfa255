//! Which label sets the selectors of groups select.
//!
//! A cluster has about as many selectors as applications, and at least as many label sets. Matching every selector against
//! every set would take their product; but nearly every selector names a label value that few sets have, so only those are
//! matched.

use super::bits::Bits;
use super::hash::Map;
use super::ids::{IdVec, LabelsId};
use super::meter::{self, Meter};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::rc::Rc;
use whittle_api::LabelSelector;

/// A namespace with the labels of a pod in it.
#[derive(Clone, Debug)]
pub(crate) struct LabelSet {
    pub(crate) namespace: String,
    pub(crate) labels: BTreeMap<String, String>,
}

/// Which namespaces a group looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    /// Shared by groups that look at the same ones: there may be thousands of both.
    Only(Rc<BTreeSet<String>>),
    All,
}

/// Label sets, in the smaller of two representations.
#[derive(Clone, Debug)]
pub(crate) enum Selected {
    /// Ascending.
    Few(Vec<LabelsId>),
    Many(Bits<LabelsId>),
}

impl Selected {
    pub(crate) const NONE: Self = Self::Few(Vec::new());

    /// `members` out of `size` label sets, ascending.
    fn of(members: Vec<LabelsId>, size: usize) -> Self {
        // A member takes half a word.
        if members.len() <= size / 32 {
            return Self::Few(members);
        }
        let mut many = Bits::none(size);
        members.into_iter().for_each(|n| many.insert(n));
        Self::Many(many)
    }

    pub(crate) fn has(&self, labels: LabelsId) -> bool {
        match self {
            Self::Few(list) => list.binary_search(&labels).is_ok(),
            Self::Many(bits) => bits.has(labels),
        }
    }

    pub(crate) fn each(&self, see: impl FnMut(LabelsId)) {
        match self {
            Self::Few(list) => list.iter().copied().for_each(see),
            Self::Many(bits) => bits.iter().for_each(see),
        }
    }
}

/// A namespace; `None`: all namespaces.
type InNamespace<'g> = Option<&'g str>;

/// All label sets, indexed by what selectors name.
pub(crate) struct LabelIndex<'g> {
    sets: &'g IdVec<LabelsId, LabelSet>,
    meter: &'g Meter,
    all: Map<InNamespace<'g>, Vec<LabelsId>>,
    with_key: Map<(InNamespace<'g>, &'g str), Vec<LabelsId>>,
    with_value: Map<(InNamespace<'g>, &'g str, &'g str), Vec<LabelsId>>,
}

impl<'g> LabelIndex<'g> {
    /// Indexes `sets` by the label keys that selectors name.
    pub(crate) fn of(sets: &'g IdVec<LabelsId, LabelSet>, keys: &BTreeSet<&str>, meter: &'g Meter) -> Self {
        let mut out = Self { sets, meter, all: Map::default(), with_key: Map::default(), with_value: Map::default() };
        for (n, LabelSet { namespace, labels }) in sets.enumerate() {
            for place in [None, Some(namespace.as_str())] {
                out.all.entry(place).or_default().push(n);
                for (key, value) in labels.iter().filter(|(key, _)| keys.contains(key.as_str())) {
                    out.with_key.entry((place, key)).or_default().push(n);
                    out.with_value.entry((place, key, value)).or_default().push(n);
                }
            }
        }
        out
    }

    /// The label sets that `selector` selects in `scope`.
    pub(crate) fn selected(&self, selector: Option<&LabelSelector>, scope: &Scope) -> Selected {
        let mut members = Vec::new();
        if let Some(selector) = selector {
            let mut select = |place| {
                let fits = |n: &LabelsId| {
                    self.meter.spend(meter::SELECT);
                    selector.matches(&self.sets[*n].labels)
                };
                members.extend(self.candidates(selector, place).into_iter().flatten().copied().filter(fits));
            };
            match scope {
                Scope::All => select(None),
                Scope::Only(only) => only.iter().for_each(|namespace| select(Some(namespace))),
            }
        }
        members.sort_unstable();
        members.dedup();
        Selected::of(members, self.sets.len())
    }

    /// How many label sets [`LabelIndex::selected`] would match, and how many namespaces it would look at.
    pub(crate) fn matches(&self, selector: Option<&LabelSelector>, scope: &Scope) -> usize {
        let Some(selector) = selector else { return 0 };
        let of = |place: InNamespace<'_>| 1 + self.candidates(selector, place).iter().map(|list| list.len()).sum::<usize>();
        match scope {
            Scope::All => of(None),
            Scope::Only(only) => only.iter().map(|namespace| of(Some(namespace.as_str()))).sum(),
        }
    }

    /// Lists that contain all sets of `place` which the selector may select, from its most selective requirement.
    fn candidates<'i>(&'i self, selector: &'i LabelSelector, place: InNamespace<'i>) -> Vec<&'i [LabelsId]> {
        fn list<'m, K: Eq + Hash>(map: &'m Map<K, Vec<LabelsId>>, key: &K) -> &'m [LabelsId] {
            map.get(key).map(Vec::as_slice).unwrap_or_default()
        }
        let of_value = |key: &'i str, value: &'i str| list(&self.with_value, &(place, key, value));
        let pairs = selector.match_labels.iter().map(|(key, value)| vec![of_value(key, value)]);
        let expressions = selector.match_expressions.iter().filter_map(|asked| match asked.operator.as_str() {
            "In" => Some(asked.values.iter().map(|value| of_value(&asked.key, value)).collect()),
            "Exists" => Some(vec![list(&self.with_key, &(place, asked.key.as_str()))]),
            _ => None,
        });
        let size = |lists: &Vec<&[LabelsId]>| lists.iter().map(|list| list.len()).sum::<usize>();
        pairs.chain(expressions).min_by_key(size).unwrap_or_else(|| vec![list(&self.all, &place)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::ids::Id as _;
    use super::*;
    use whittle_api::SelectorRequirement;

    fn labelled(namespace: &str, labels: &[(&str, &str)]) -> LabelSet {
        LabelSet { namespace: namespace.to_owned(), labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect() }
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> SelectorRequirement {
        SelectorRequirement { key: key.into(), operator: operator.into(), values: values.iter().map(|v| (*v).to_owned()).collect() }
    }

    /// The index only skips sets that the selector would not select: compared with matching all of them.
    #[test]
    fn the_index_selects_what_asking_everyone_would() {
        let values = ["a", "b", "c"];
        let mut sets = IdVec::new();
        for namespace in ["one", "two"] {
            for app in values {
                for tier in values {
                    sets.push(labelled(namespace, &[("app", app), ("tier", tier)]));
                }
                sets.push(labelled(namespace, &[("app", app)]));
            }
            sets.push(labelled(namespace, &[]));
        }
        let parts = [
            expression("app", "In", &["a", "c", "a"]),
            expression("tier", "Exists", &[]),
            expression("tier", "NotIn", &["b"]),
            expression("app", "DoesNotExist", &[]),
            expression("app", "In", &["z"]),
            expression("app", "Near", &["a"]),
        ];
        let keys = BTreeSet::from(["app", "tier"]);
        let meter = Meter::default();
        let index = LabelIndex::of(&sets, &keys, &meter);
        let scans = |selector: &LabelSelector| index.matches(Some(selector), &Scope::All);
        let selector = |part: SelectorRequirement| LabelSelector { match_expressions: vec![part], match_labels: BTreeMap::new() };
        assert_eq!(scans(&selector(expression("tier", "NotIn", &["b"]))), 1 + sets.len(), "no value narrows it");
        assert_eq!(scans(&selector(expression("app", "In", &["a"]))), 1 + 8, "four in each namespace");
        assert_eq!(index.matches(None, &Scope::All), 0);
        let scopes = [Scope::All, Scope::Only(Rc::new(BTreeSet::from(["two".to_owned(), "nowhere".to_owned()])))];
        for chosen in 0..1 << parts.len() {
            let match_expressions = parts.iter().enumerate().filter(|(n, _)| chosen >> n & 1 == 1).map(|(_, part)| part.clone()).collect();
            let selector = LabelSelector { match_expressions, match_labels: BTreeMap::new() };
            for scope in &scopes {
                let found = index.selected(Some(&selector), scope);
                for (id, LabelSet { namespace, labels }) in sets.enumerate() {
                    let seen = matches!(scope, Scope::All) || namespace == "two";
                    let has = found.has(id);
                    assert_eq!(has, seen && selector.matches(labels), "{selector:?} {scope:?} {namespace} {labels:?}");
                }
            }
        }
        assert!(!index.selected(None, &Scope::All).has(LabelsId::at(0)), "no selector selects nothing");
    }
}

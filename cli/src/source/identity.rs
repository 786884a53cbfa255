//! Which object a document is: whether its name can be one, and whether other documents are the same object.

use super::documents::{Document, LegacyDocument, ParsedDocuments};
use std::collections::{BTreeMap, BTreeSet};

/// The group, kind, namespace and name of an object, of which an API server has only one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

impl Identity {
    /// Versions of one group serve the same objects. Nothing is the same as an object without a name.
    pub(crate) fn new(api_version: &str, kind: &str, namespace: &str, name: String) -> Option<Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        // A namespaced object without a namespace is in the default one; the others have none.
        let namespace = if namespace.is_empty() { "default" } else { namespace }.to_owned();
        (!name.is_empty()).then(|| Self { group, kind: kind.to_owned(), namespace, name })
    }

    /// Its name for messages.
    pub(super) fn shown(&self) -> String {
        let Self { kind, namespace, name, .. } = self;
        if namespace == "default" { format!("{kind} {name:?}") } else { format!("{kind} \"{namespace}/{name}\"") }
    }
}

/// The longest name that an API server accepts.
const NAME_MAX: usize = 253;

/// The longest name of a namespace.
const NAMESPACE_MAX: usize = 63;

/// What is wrong with the namespace of an object, and what to do about it; none is that of the context.
pub(crate) fn namespace_fault(namespace: &str) -> Option<String> {
    let right = namespace.len() <= NAMESPACE_MAX && !namespace.contains('.') && (namespace.is_empty() || name_fault(namespace).is_none());
    (!right).then(|| {
        format!(
            "{namespace:?} is no namespace: use lower-case letters, digits and -, letters or digits at both ends, at most {NAMESPACE_MAX}"
        )
    })
}

/// What is wrong with a name, and what to do about it.
pub(crate) fn name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("missing: give the object a name".to_owned());
    }
    let inside = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let ends = |part: &str, at: Option<char>| !part.is_empty() && at.is_some_and(|letter| letter != '-');
    let is_part = |part: &str| part.chars().all(inside) && ends(part, part.chars().next()) && ends(part, part.chars().last());
    (name.len() > NAME_MAX || !name.split('.').all(is_part)).then(|| {
        format!("{name:?} is no name: use lower-case letters, digits, - and ., letters or digits at both ends, at most {NAME_MAX}")
    })
}

/// A document of either form.
#[derive(Clone, Copy)]
enum Item<'a> {
    Plain(&'a Document),
    Legacy(&'a LegacyDocument),
}

impl Item<'_> {
    fn identity(self) -> Option<Identity> {
        match self {
            Item::Plain(document) => document.identity(),
            Item::Legacy(document) => document.identity(),
        }
    }

    fn is_equal(self, other: Item<'_>) -> bool {
        match (self, other) {
            (Item::Plain(one), Item::Plain(other)) => one.is_equal(other),
            (Item::Legacy(one), Item::Legacy(other)) => one.object == other.object,
            _ => false,
        }
    }

    fn place(self) -> String {
        match self {
            Item::Plain(document) => document.place(),
            Item::Legacy(document) => document.place(),
        }
    }
}

/// Leaves one document of each object. Where they differ none is left, so that no order of the files decides which one counts.
/// Returns a note if some were left out because they are equal.
pub(crate) fn tell_apart(found: &mut ParsedDocuments) -> Option<String> {
    let items: Vec<Item<'_>> = found.documents.iter().map(Item::Plain).chain(found.legacy.iter().map(Item::Legacy)).collect();
    let mut first: BTreeMap<Identity, usize> = BTreeMap::new();
    let (mut equal, mut conflicts, mut dropped) = (0, Vec::new(), BTreeSet::new());
    for (at, item) in items.iter().enumerate() {
        let Some(identity) = item.identity() else { continue };
        let before = *first.entry(identity.clone()).or_insert(at);
        if before == at {
            continue;
        }
        dropped.insert(at);
        if items[before].is_equal(*item) {
            equal += 1;
            continue;
        }
        dropped.insert(before);
        conflicts.push(format!(
            "{} is given twice, and differently: in {} and in {}; leave one of them out",
            identity.shown(),
            items[before].place(),
            item.place()
        ));
    }
    let mut kept = (0..items.len()).map(|at| !dropped.contains(&at)).collect::<Vec<_>>().into_iter();
    found.documents.retain(|_| kept.next().unwrap_or(true));
    found.legacy.retain(|_| kept.next().unwrap_or(true));
    found.refused.append(&mut conflicts);
    (0 < equal).then(|| format!("{equal} documents that repeat an object: it is the same, and counts once"))
}

//! Which object a document is: whether its name can be one, and whether other documents are the same object.

use super::documents::{Document, LegacyDocument, ParsedDocuments};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ObjectMeta;
use whittle_api::k8s::{Kind, Namespace, Service};

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

/// The longest name that is one part of others, such as that of a namespace.
const LABEL_MAX: usize = 63;
const LABEL_FORM: &str = "use lower-case letters, digits and -, letters or digits at both ends, at most 63";

/// What is wrong with the namespace of an object, and what to do about it; none is that of the context.
pub(crate) fn namespace_fault(namespace: &str) -> Option<String> {
    (!namespace.is_empty() && !is_label(namespace)).then(|| format!("{namespace:?} is no namespace: {LABEL_FORM}"))
}

/// What is wrong with a name, and what to do about it.
pub(crate) fn name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("missing: give the object a name".to_owned());
    }
    (!is_name(name)).then(|| {
        format!("{name:?} is no name: use lower-case letters, digits, - and ., letters or digits at both ends, at most {NAME_MAX}")
    })
}

/// What is wrong with the metadata by which an object is known: the field, and what to do about it. Two kinds of Kubernetes have names that
/// are parts of the names of hosts.
pub(crate) fn naming_faults<T: Kind>(object: &T) -> Vec<(&'static str, String)> {
    let ObjectMeta { name, generate_name, namespace, .. } = object.meta();
    let is_part = [Namespace::KIND, Service::KIND].contains(&T::KIND) && T::API_VERSION == Namespace::API_VERSION;
    let name_fault = match name.as_str() {
        "" if !generate_name.is_empty() => {
            Some("missing: a server makes one of generateName, which is not known here: give the object a name".to_owned())
        }
        name if is_part && !name.is_empty() => (!is_label(name)).then(|| format!("{name:?} is no name of a {}: {LABEL_FORM}", T::KIND)),
        name => name_fault(name),
    };
    // Letters follow a dash at its end.
    let begun = generate_name.strip_suffix('-').filter(|rest| !rest.is_empty()).map(|rest| format!("{rest}a"));
    let begun = begun.as_ref().unwrap_or(generate_name);
    let begins = begun.is_empty() || if is_part { is_label(begun) } else { is_name(begun) };
    let generated = (!begins).then(|| {
        format!(
            "{generate_name:?} begins no name: use lower-case letters, digits, - and ., a letter or digit at the beginning, or leave it out"
        )
    });
    let found = [("metadata.namespace", namespace_fault(namespace)), ("metadata.name", name_fault), ("metadata.generateName", generated)];
    found.into_iter().filter_map(|(field, fault)| Some((field, fault?))).collect()
}

fn is_name(name: &str) -> bool {
    let inside = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let ends = |part: &str, at: Option<char>| !part.is_empty() && at.is_some_and(|letter| letter != '-');
    let is_part = |part: &str| part.chars().all(inside) && ends(part, part.chars().next()) && ends(part, part.chars().last());
    name.len() <= NAME_MAX && name.split('.').all(is_part)
}

fn is_label(name: &str) -> bool {
    name.len() <= LABEL_MAX && !name.contains('.') && is_name(name)
}

/// A document of either form.
#[derive(Clone, Copy)]
enum Item<'a> {
    Plain(&'a Document),
    Legacy(&'a LegacyDocument),
}

impl<'a> Item<'a> {
    fn identity(self) -> Option<Identity> {
        match self {
            Item::Plain(document) => document.identity(),
            Item::Legacy(document) => document.identity(),
        }
    }

    fn is_equal(self, other: Self) -> bool {
        match (self, other) {
            (Item::Plain(one), Item::Plain(other)) => one.is_equal(other),
            (Item::Legacy(one), Item::Legacy(other)) => one.object == other.object,
            _ => false,
        }
    }

    fn path(self) -> &'a str {
        match self {
            Item::Plain(document) => document.path(),
            Item::Legacy(document) => document.path(),
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
/// Returns a note if some were left out because they are equal. Files of --changed, where `changed`, have no other way to count.
pub(crate) fn tell_apart(found: &mut ParsedDocuments, changed: bool) -> Option<String> {
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
        let before = items[before];
        let what_if = match changed || before.path() == item.path() {
            true => "",
            false => ", or name the file that is to count with --changed instead of -f",
        };
        let places = match (before.place(), item.place()) {
            (one, other) if one == other => format!("two items of the list in {one}"),
            (one, other) => format!("in {one} and in {other}"),
        };
        conflicts.push(format!("{} is given twice, and differently: {places}; leave one of them out{what_if}", identity.shown()));
    }
    let mut kept = (0..items.len()).map(|at| !dropped.contains(&at)).collect::<Vec<_>>().into_iter();
    found.documents.retain(|_| kept.next().unwrap_or(true));
    found.legacy.retain(|_| kept.next().unwrap_or(true));
    found.refused.append(&mut conflicts);
    let repeats = if equal == 1 { "1 document that repeats".to_owned() } else { format!("{equal} documents that repeat") };
    (0 < equal).then(|| format!("{repeats} an object: it is the same, and counts once"))
}

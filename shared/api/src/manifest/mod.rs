//! Reading YAML manifests: each document becomes a typed object, or an error that names file, position, object, field and
//! remedy. A file is read as a whole or not at all, and all its errors are reported at once.

mod document;
mod eksctl;
mod error;
mod indent;
mod misspelt;
mod object;
#[cfg(test)]
mod tests;

use crate::field::{FieldError, FieldPath, Stage, Step};
use crate::legacy::{LegacyObject, version_before};
use crate::validate::{self, Served};
use crate::words;
use crate::yaml::{self, Content, Entry, Mark, Node};
pub use document::{Document, documents};
pub use eksctl::{ClusterConfig, ClusterConfigMeta, FargateProfile, FargateSelector, IdentityMapping, ManagedNodeGroup};
pub use error::ManifestError;
pub use misspelt::{meant_as_type, misspelt};
pub use object::Object;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use whittle_units::fnv1a;

/// A value with its position in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    pub value: T,
    pub file: String,
    /// Number of the document in the file, from 1.
    pub document: usize,
    /// First line of the object, from 1.
    pub line: usize,
    /// A digest of its pod template as it is written, with what no type reads, such as images. `None` without a template whose
    /// containers have images: what was printed from the types has none.
    pub template: Option<u64>,
}

/// Converts JSON to an object of one kind.
type Reader = fn(Value) -> Result<Object, FieldError>;

/// The only document of a text as JSON, by the rules of kubectl: those of YAML 1.1, by which `yes` is a boolean and `010` is eight. Null if
/// there is none. `None` if that is wrong about it which [`read`] tells: it is no YAML, or has a key twice; and if there are several.
#[must_use]
pub fn json_of(text: &str) -> Option<Value> {
    let mut documents = yaml::documents(text).ok()?.into_iter();
    match (documents.next(), documents.next()) {
        (None, _) => Some(Value::Null),
        (Some(only), None) => only.into_json(),
        (Some(_), Some(_)) => None,
    }
}

/// Where the fields of the first document of a text stand.
#[derive(Clone, Debug)]
pub struct Positions(Node);

impl Positions {
    /// `None` if the text is no YAML.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        yaml::documents(text).ok()?.into_iter().next().map(Self)
    }

    /// The position of a field, or of the nearest one around it that is there.
    #[must_use]
    pub fn mark_of(&self, path: &FieldPath) -> Mark {
        position_of(&self.0, path)
    }
}

/// Reads all objects of a text. Empty documents are skipped, lists are expanded. Karpenter's kinds are read as strictly as by
/// kubectl (unknown fields are errors), other kinds only in the fields that we use. Repeated keys are errors in all. One of Karpenter's
/// kinds in a group that is nearly Karpenter's is an error, too.
///
/// # Errors
/// All errors of the text, in its order.
pub fn read(file_name: &str, text: &str) -> Result<Vec<Located<Object>>, Vec<ManifestError>> {
    let documents = match yaml::documents(text) {
        Ok(documents) => documents,
        Err(error) => return Err(vec![indent::explain(file_name, text, &error)]),
    };
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for (position, document) in documents.iter().enumerate() {
        let source = Source { file: file_name, document: position + 1 };
        visit(&source, document, None, &mut |found| match found {
            Ok((node, api_version, kind)) if !unprintable(node, api_version, kind).is_empty() => {
                errors.extend(source.errors(node, unprintable(node, api_version, kind)));
            }
            Ok((node, api_version, kind)) => match read_object(node, api_version, kind) {
                Ok(value) => {
                    let (file, template) = (source.file.to_owned(), template_digest(node));
                    objects.push(Located { value, file, document: source.document, line: node.mark.line, template });
                }
                Err(faults) => {
                    let name = node.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Node::text);
                    let object = name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name:?}"));
                    errors.extend(faults.into_iter().map(|fault| source.error(position_of(node, &fault.path), Some(&object), fault)));
                }
            },
            Err(error) => errors.push(error),
        });
    }
    if errors.is_empty() { Ok(objects) } else { Err(errors) }
}

/// See [`Located::template`].
fn template_digest(node: &Node) -> Option<u64> {
    let template = node.get("spec")?.get("template")?;
    let Content::List(containers) = &template.get("spec")?.get("containers")?.content else { return None };
    containers.iter().all(|one| one.get("image").is_some()).then(|| fnv1a(template.to_json().to_string()))
}

/// Where errors of a document are reported.
struct Source<'a> {
    file: &'a str,
    document: usize,
}

/// Where an object stands in a list.
#[derive(Clone, Copy)]
struct Item<'a> {
    /// Version and kind of the list.
    list: (&'a str, &'a str),
    index: usize,
}

impl<'a> Item<'a> {
    /// Version and kind of elements without their own, if the list is a typed one.
    fn inherited(self) -> Option<(&'a str, &'a str)> {
        let element = self.list.1.strip_suffix("List").filter(|element| !element.is_empty())?;
        Some((self.list.0, element))
    }
}

/// Passes each object of a document with its version and kind, the elements of a list one by one, or what is wrong with it.
fn visit<'a>(
    source: &Source<'_>,
    node: &'a Node,
    item: Option<Item<'a>>,
    take: &mut dyn FnMut(Result<(&'a Node, &'a str, &'a str), ManifestError>),
) {
    if node.is_null() && item.is_none() {
        return;
    }
    let word = |key: &str| node.get(key).and_then(Node::text).filter(|text| !text.is_empty());
    let inherited = item.and_then(Item::inherited);
    let api_version = word("apiVersion").or(inherited.map(|(api_version, _)| api_version));
    let kind = word("kind").or(inherited.map(|(_, kind)| kind));
    let is_map = matches!(node.content, Content::Map(_));
    let (Some(api_version), Some(kind), true) = (api_version, kind, is_map) else {
        take(Err(source.no_object(node, item)));
        return;
    };
    let unprintable = unprintable_words(api_version, kind, |_| "");
    if !unprintable.is_empty() {
        source.errors(node, unprintable).for_each(|error| take(Err(error)));
        return;
    }
    if node.get("items").is_none() && is_list(api_version, kind) {
        let error = FieldError::new(FieldPath::of("items"), ITEMS_MISSING);
        take(Err(source.error(node.mark, Some(kind), error)));
        return;
    }
    if let Some(items) = node.get("items").filter(|_| kind.ends_with("List")) {
        // Of two lists in one document the items of the last one alone would be seen.
        let repeated = if let Content::Map(entries) = &node.content { repeated_beside_items(node.mark, entries) } else { Vec::new() };
        if !repeated.is_empty() {
            let errors = repeated.into_iter().map(|fault| source.error(position_of(node, &fault.path), Some(kind), fault));
            errors.for_each(|error| take(Err(error)));
            return;
        }
        let Content::List(items) = &items.content else {
            if !items.is_null() {
                let error = FieldError::new(FieldPath::of("items"), "items is no list: write each object behind a dash");
                take(Err(source.error(items.mark, Some(kind), error)));
            }
            return;
        };
        for (index, item) in items.iter().enumerate() {
            visit(source, item, Some(Item { list: (api_version, kind), index }), take);
        }
        return;
    }
    take(Ok((node, api_version, kind)));
}

/// What is wrong with an element of a list that is no object, such as null.
#[must_use]
pub fn no_item(shown: &str) -> String {
    format!("{shown} is no object: write a map with apiVersion, kind, metadata and spec, or leave it out")
}

/// Errors about the words of an object by which messages call it, if they cannot be printed in one line as they are. No server has such.
fn unprintable(node: &Node, api_version: &str, kind: &str) -> Vec<FieldError> {
    let metadata = |field: &str| node.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Node::text).unwrap_or_default();
    unprintable_words(api_version, kind, metadata)
}

/// The same of an object's version and kind, and of the texts among its metadata.
pub fn unprintable_words<'a>(api_version: &'a str, kind: &'a str, metadata: impl Fn(&str) -> &'a str) -> Vec<FieldError> {
    let named = ["name", "generateName", "namespace"].map(|field| (FieldPath::of("metadata").key(field), metadata(field)));
    let words = [(FieldPath::of("apiVersion"), api_version), (FieldPath::of("kind"), kind)].into_iter().chain(named);
    let odd = words.filter(|(_, word)| !words::is_printable(word));
    odd.map(|(path, word)| FieldError::new(path, format!("{word:?} has letters that cannot be printed: write letters, digits, - and .")))
        .collect()
}

/// What is wrong with a list without its field `items`. One whose items are null is empty, as it is for kubectl.
pub const ITEMS_MISSING: &str = "missing: write the objects of the list there, each behind a dash";

/// Whether a kind is a list for certain: no kind of Kubernetes or Karpenter is called so, though one of somebody else may be.
pub fn is_list(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_known = || !group.contains('.') || group.ends_with(".k8s.io") || is_karpenter(api_version);
    kind == "List" || (kind.ends_with("List") && is_known())
}

/// What an API server answers to a request that fails, which `kubectl -o json` saves in the place of objects: an error that says why.
/// None of anything else.
pub fn failure<'a>(api_version: &str, kind: &str, field: impl Fn(&str) -> Option<&'a str>) -> Option<FieldError> {
    if (api_version, kind) != ("v1", "Status") || field("status") != Some("Failure") {
        return None;
    }
    let said = words::printable(field("message").filter(|message| !message.is_empty()).unwrap_or("it does not say why"));
    let message =
        format!("this is the answer to a request that failed: {said}: repeat the request until it succeeds, and save that answer");
    Some(FieldError::new(FieldPath::of("message"), message))
}

/// What helps where a map without version or kind is given as a manifest, if its file is one of those that lie beside manifests.
pub fn no_manifest(file: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let is_like_helm_values = !has("apiVersion") && !has("kind") && ["settings", "serviceAccount"].into_iter().any(has);
    match file.rsplit('/').next().unwrap_or_default() {
        _ if is_like_helm_values => Some(HELM_VALUES),
        "kustomization.yaml" | "kustomization.yml" => Some(KUSTOMIZATION),
        "Chart.yaml" | "values.yaml" => Some(HELM_CHART),
        _ => None,
    }
}

/// Of what Karpenter's chart reads.
const HELM_VALUES: &str = "these look like Helm values, and are no manifest: `whittle check --values FILE` shows their settings";

const KUSTOMIZATION: &str = "Kustomize makes manifests of this, and it is none: give what `kubectl kustomize DIRECTORY` prints";

const HELM_CHART: &str = "it is part of a Helm chart, and no manifest: give what `helm template` prints";

const PATCH: &str = "this is a JSON patch (RFC 6902), and no manifest: give what it makes of one, as `kubectl kustomize DIRECTORY` prints";

/// What helps where objects stand in a list alone, as `jq '.items'` prints them.
const LIST: &str = "these objects need a list with a kind around them, as with `jq '{apiVersion: \"v1\", kind: \"List\", items: .}'`";

/// What helps where the document is what kubectl says to people in the place of objects. `begins`: its text, or a key of its
/// map, which has one for each line.
#[must_use]
pub fn said_to_people(begins: &str) -> Option<&'static str> {
    let any = |words: &[&str]| words.iter().any(|word| begins.starts_with(word));
    if any(&["NAME ", "NAMESPACE "]) {
        return Some("this is a table for people, and no manifest: give what `kubectl get -o yaml` prints");
    }
    if any(&["No resources found"]) {
        return Some("kubectl found no object: name other kinds, or other namespaces with -n NAMESPACE or -A, and save that answer");
    }
    (begins == "error" || any(&["Error from server"])).then_some(AN_ERROR)
}

const AN_ERROR: &str = "this is an error of a command, and no manifest: repeat the command until it succeeds, and save that answer";

/// What helps where a document is a list. `has`: whether the first of its elements has a field.
pub fn of_list(has: impl Fn(&str) -> bool) -> &'static str {
    if has("op") && has("path") { PATCH } else { LIST }
}

fn read_object(node: &Node, api_version: &str, kind: &str) -> Result<Object, Vec<FieldError>> {
    if let Some(failure) = failure(api_version, kind, |field| node.get(field).and_then(Node::text)) {
        return Err(vec![failure]);
    }
    let strict = is_karpenter(api_version);
    let mut errors = Vec::new();
    repeated_keys(node, &FieldPath::root(), &mut errors);
    if strict && let Some(lost) = indent::lost(node, &errors) {
        return Err(vec![lost]);
    }
    if legacy_reader(api_version, kind).or_else(|| object::reader(api_version, kind)).is_none() {
        return match validate::served(api_version, kind) {
            Served::Nowhere => Err(vec![validate::unserved(api_version, kind)]),
            _ if !errors.is_empty() => Err(errors),
            _ => Ok(unknown(node, api_version, kind)),
        };
    }
    let value = node.to_json();
    if !strict {
        errors.extend(misspelt(kind, &value));
    }
    if let (Some(before), true) = (version_before(api_version, kind, &value), errors.is_empty()) {
        return read_value(before, kind, value).map_err(|error| vec![error]);
    }
    if strict {
        errors.extend(written_faults(validate::document(api_version, kind, &value)));
    }
    match read_value(api_version, kind, value) {
        Ok(object) if errors.is_empty() => Ok(object),
        Ok(_) => Err(errors),
        Err(error) => {
            // The schema has usually reported the same error, with more detail.
            if errors.is_empty() || !strict {
                errors.push(error);
            }
            Err(errors)
        }
    }
}

/// The errors that matter for an object which may come from a file or from a cluster: the status is that of any version, and what stands
/// in the place of a list is one error, not one for each of its fields as well. A list that is too long hides none of those inside it.
fn written_faults(errors: Vec<FieldError>) -> Vec<FieldError> {
    let misplaced: Vec<FieldPath> = errors.iter().filter(|error| error.stage == Stage::Type).map(|error| error.path.clone()).collect();
    let repeats = |error: &FieldError| misplaced.iter().any(|path| *path != error.path && path.contains(&error.path));
    errors.into_iter().filter(|error| !is_status(&error.path) && !repeats(error)).collect()
}

/// Reads a known kind, with the defaults of its schema.
fn read_value(api_version: &str, kind: &str, mut value: Value) -> Result<Object, FieldError> {
    remove_nulls(&mut value);
    if is_in_no_namespace(api_version, kind) {
        remove_namespace(&mut value);
    }
    let Some(reader) = legacy_reader(api_version, kind).or_else(|| object::reader(api_version, kind)) else {
        return Err(unknown_karpenter_kind(api_version, kind));
    };
    let strict = is_karpenter(api_version);
    if strict && let Some(spec) = validate::defaulted(api_version, kind, &value) {
        value["spec"] = spec;
    }
    // A server ignores the status of an applied object, even a malformed one. (Other kinds may be many, so they are not copied.)
    let copy = (strict && kind != "NodeClaim").then(|| value.clone());
    match (reader(value), copy) {
        (Err(error), Some(copy)) if is_status(&error.path) => reader(without_status(copy)),
        (read, _) => read,
    }
}

/// Removes nulls: an API server treats them as absent. Those of lists stay, as its decoder gives them a place.
pub fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Whether the objects of a kind are in no namespace: all kinds of Karpenter's own groups, and those of Kubernetes that are read. False for
/// others, of which nobody knows it here.
#[must_use]
pub fn is_in_no_namespace(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    matches!(group, "karpenter.sh" | "karpenter.k8s.aws") || object::is_in_no_namespace(api_version, kind)
}

/// Removes the namespace of an object whose kind has none, as an API server does: the object is that of its name alone. Kustomize,
/// and charts that put `namespace` everywhere, write one. What is no text stays, and is refused.
pub fn remove_namespace(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("namespace").is_some_and(Value::is_string)
    {
        metadata.remove("namespace");
    }
}

fn is_status(path: &FieldPath) -> bool {
    matches!(path.steps().first(), Some(Step::Key(key)) if key == "status")
}

fn without_status(mut value: Value) -> Value {
    if let Value::Object(map) = &mut value {
        map.remove("status");
    }
    value
}

/// Whether an API version is one of Karpenter's groups or that of capacity buffers.
pub fn is_karpenter(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    matches!(group, "karpenter.sh" | "karpenter.k8s.aws" | "autoscaling.x-k8s.io")
}

/// The error for a kind that a group of ours does not have, or not in this version.
pub fn unknown_karpenter_kind(api_version: &str, kind: &str) -> FieldError {
    if let Some(known) = crate::schema::kinds().iter().find(|known| known.kind == kind) {
        let message = format!("{kind} is in {}, and not in {api_version}: write that version", known.api_version);
        return FieldError::new(FieldPath::of("apiVersion"), message);
    }
    let message = format!(
        "there is no kind {kind} in {api_version}: NodePool and NodeClaim are in karpenter.sh/v1 (v1beta1), NodeOverlay in \
         karpenter.sh/v1alpha1, EC2NodeClass in karpenter.k8s.aws/v1 (v1beta1), CapacityBuffer in autoscaling.x-k8s.io/v1beta1, Provisioner \
         and Machine in karpenter.sh/v1alpha5, AWSNodeTemplate in karpenter.k8s.aws/v1alpha1"
    );
    FieldError::new(FieldPath::of("kind"), message)
}

fn unknown(node: &Node, api_version: &str, kind: &str) -> Object {
    let word = |key: &str| node.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Node::text).unwrap_or_default().to_owned();
    Object::Unknown { api_version: api_version.to_owned(), kind: kind.to_owned(), namespace: word("namespace"), name: word("name") }
}

fn legacy_reader(api_version: &str, kind: &str) -> Option<Reader> {
    let reader: Reader = match (api_version, kind) {
        ("karpenter.sh/v1alpha5", "Provisioner") => |value| Ok(Object::Legacy(LegacyObject::Provisioner(Box::new(typed(value)?)))),
        ("karpenter.sh/v1alpha5", "Machine") => |value| Ok(Object::Legacy(LegacyObject::Machine(Box::new(typed(value)?)))),
        ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate") => {
            |value| Ok(Object::Legacy(LegacyObject::AwsNodeTemplate(Box::new(typed(value)?))))
        }
        ("karpenter.sh/v1beta1", "NodePool") => |value| Ok(Object::Legacy(LegacyObject::NodePool(Box::new(typed(value)?)))),
        ("karpenter.sh/v1beta1", "NodeClaim") => |value| Ok(Object::Legacy(LegacyObject::NodeClaim(Box::new(typed(value)?)))),
        ("karpenter.k8s.aws/v1beta1", "EC2NodeClass") => |value| Ok(Object::Legacy(LegacyObject::NodeClass(Box::new(typed(value)?)))),
        (ClusterConfig::API_VERSION, ClusterConfig::KIND) => |value| Ok(Object::ClusterConfig(Box::new(typed(value)?))),
        _ => return None,
    };
    Some(reader)
}

/// Reads a typed value; the error names the field.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| FieldError::new(FieldPath::of_error(error.path()), words::plain(&error.inner().to_string())))
}

/// Keys that occur twice in a map.
fn repeated_keys(node: &Node, path: &FieldPath, errors: &mut Vec<FieldError>) {
    match &node.content {
        Content::Scalar(_) => {}
        Content::List(items) => items.iter().enumerate().for_each(|(index, item)| repeated_keys(item, &path.index(index), errors)),
        Content::Map(entries) => {
            errors.extend(repeated_in(node.mark, entries, path));
            entries.iter().for_each(|entry| repeated_keys(&entry.value, &path.key(&entry.key), errors));
        }
    }
}

/// Keys that occur twice in one map, which begins at `begin`, or in their place the one with which another object begins.
fn repeated_in(begin: Mark, entries: &[Entry], path: &FieldPath) -> Vec<FieldError> {
    if path.is_root()
        && let Some(entry) = next_object(begin, entries)
    {
        return vec![FieldError::new(path.key(&entry.key), NEXT_OBJECT).at(Stage::Unknown)];
    }
    let mut errors = Vec::new();
    let mut lines = BTreeMap::new();
    for entry in entries {
        let first = *lines.entry(entry.key.as_str()).or_insert(entry.mark);
        if first != entry.mark {
            let first = first.line;
            let message = format!(
                "the key stands twice in one map, first in line {first}: keep one of them, or indent what belongs to the key before it"
            );
            errors.push(FieldError::new(path.key(&entry.key), message).at(Stage::Unknown));
        }
    }
    errors
}

/// Keys that occur twice in a map of a list, apart from its items, each of which is an object of its own.
fn repeated_beside_items(begin: Mark, entries: &[Entry]) -> Vec<FieldError> {
    let root = FieldPath::root();
    let mut errors = repeated_in(begin, entries, &root);
    for entry in entries.iter().filter(|entry| entry.key != "items") {
        repeated_keys(&entry.value, &root.key(&entry.key), &mut errors);
    }
    errors
}

/// What helps where files were joined as they are.
const NEXT_OBJECT: &str = "another object begins here, in the document of the one before it: put a line `---` between any two objects";

/// The key with which the last object begins, where several follow one another in a document as if they were one: there is a second version
/// and a second kind, each at the beginning of its line. A map in braces, which begins before its first key, is one object.
fn next_object(begin: Mark, entries: &[Entry]) -> Option<&Entry> {
    entries.first().filter(|first| first.mark == begin)?;
    let repeats = |key: &str| 1 < entries.iter().filter(|entry| entry.key == key && entry.mark.column == 1).count();
    if !repeats("apiVersion") || !repeats("kind") {
        return None;
    }
    let mut seen = BTreeSet::new();
    let begins = entries.iter().find(|entry| !seen.insert(entry.key.as_str()))?;
    entries.iter().rev().find(|entry| entry.key == begins.key)
}

/// The position of a field, or of its nearest parent in the text.
fn position_of(node: &Node, path: &FieldPath) -> Mark {
    let (mut mark, mut at) = (node.mark, node);
    for step in path.steps() {
        let next = match step {
            Step::Key(key) => at.key_mark(key).zip(at.get(key)),
            Step::Index(index) => at.item(*index).map(|item| (item.mark, item)),
        };
        let Some((found, below)) = next else { break };
        mark = found;
        at = below;
    }
    mark
}

impl Source<'_> {
    /// The errors of an object's fields, each at its place.
    fn errors(&self, node: &Node, faults: Vec<FieldError>) -> impl Iterator<Item = ManifestError> {
        faults.into_iter().map(|fault| self.error(position_of(node, &fault.path), None, fault))
    }

    /// The error of something that is no object of a document or of a list.
    fn no_object(&self, node: &Node, item: Option<Item<'_>>) -> ManifestError {
        let is_map = matches!(node.content, Content::Map(_));
        let path = item.map_or_else(FieldPath::root, |item| FieldPath::of("items").index(item.index));
        let beside = no_manifest(self.file, |key| node.get(key).is_some()).filter(|_| item.is_none() && is_map);
        let begins = match &node.content {
            Content::Map(entries) if entries.iter().all(|entry| said_to_people(&entry.key).is_some()) => {
                entries.first().map(|entry| entry.key.as_str())
            }
            _ => node.text(),
        };
        let message = match item {
            _ if let Some(beside) = beside => beside.to_owned(),
            None if let Some(said) = begins.and_then(said_to_people) => said.to_owned(),
            _ if let Content::Map(entries) = &node.content => {
                let both = "`apiVersion: karpenter.sh/v1` and `kind: NodePool`";
                let meant = meant_as_type(&entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>());
                format!("apiVersion and kind are needed: every document starts with both, such as {both}{meant}")
            }
            None if let Content::List(items) = &node.content => {
                of_list(|key| items.first().is_some_and(|first| first.get(key).is_some())).to_owned()
            }
            None => "this is no object: every document is a map with apiVersion, kind, metadata and spec".to_owned(),
            Some(_) => no_item(&node.to_json().to_string()),
        };
        self.error(node.mark, item.map(|item| item.list.1), FieldError::new(path, message))
    }

    fn error(&self, mark: Mark, object: Option<&str>, fault: FieldError) -> ManifestError {
        ManifestError {
            file: self.file.to_owned(),
            document: self.document,
            mark: Some(mark),
            object: object.map(ToOwned::to_owned),
            field: fault.path,
            message: fault.message,
        }
    }
}

//! Splits files into documents, and finds the errors of each separately.

use super::acceptance::{Judged, REPLICAS_MAX, faults_of, too_many};
use super::error::ReadError;
use super::identity::Identity;
use crate::threads::joined;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::k8s::{Kind, Pod};
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::labels;
use whittle_api::legacy::{self, ConvertOptions, Purpose};
use whittle_api::manifest::{self, ManifestError, Object, Positions};
use whittle_api::validate::{self, Served};
use whittle_api::words;
use whittle_api::{Mark, ObjectMeta};

/// One object as it was written, with its position.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    path: String,
    number: usize,
    pub(crate) value: Value,
    /// Validation errors that an API server would report for a NodePool.
    pub(crate) faults: Vec<String>,
    /// The pod, if it is a readable one. Dumps hold many pods, so nothing else is kept of them.
    pub(crate) pod: Option<Box<Pod>>,
    /// Whether a cluster has it.
    pub(crate) live: bool,
    /// Whether it is of --changed, over a dump or a cluster.
    pub(crate) changed: bool,
    /// What it was, if it is changed so that machines which were launched from it have drifted.
    pub(crate) before: Option<Box<Value>>,
    /// Its text, for the positions of errors. `None` of an item of a list, of a readable pod and of what no file has.
    written: Option<Arc<Written>>,
}

/// The text of an object that is a document of its own.
#[derive(Debug)]
struct Written {
    /// The number of lines before it in its file.
    lines_before: usize,
    text: String,
    /// Read for the first error: there may be thousands.
    positions: OnceLock<Option<Positions>>,
}

/// An object of an API version before v1, with its position.
#[derive(Clone, Debug)]
pub(crate) struct LegacyDocument {
    pub(crate) object: Object,
    path: String,
    number: usize,
}

impl LegacyDocument {
    /// Which object it is; `None` without a name.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let (api_version, kind) = self.object.type_meta();
        Identity::new(api_version, kind, "", self.object.key())
    }

    /// The file that it is in.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Its place, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{}, document {}", self.path, self.number)
    }
}

/// The documents of all files.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParsedDocuments {
    pub(crate) documents: Vec<Document>,
    /// Objects of API versions before v1.
    pub(crate) legacy: Vec<LegacyDocument>,
    /// Objects that cannot be used, and why.
    pub(crate) refused: Vec<String>,
}

impl ParsedDocuments {
    /// Adds the documents of a text. An error in one of them is recorded, and the others are read.
    pub(crate) fn add_text(&mut self, path: &str, text: &str) {
        let chunks = split_documents(text);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(chunks.len() / DOCUMENTS_PER_THREAD).max(1);
        let parts = chunks.chunks(chunks.len().div_ceil(threads).max(1));
        std::thread::scope(|scope| {
            let read = |part| scope.spawn(move || Self::of_chunks(path, part));
            // The first part is parsed on this thread: a text with few documents needs no other.
            let mut parts = parts.into_iter();
            let first = parts.next();
            let others: Vec<_> = parts.map(read).collect();
            self.append(Self::of_chunks(path, first.unwrap_or_default()));
            for other in others {
                self.append(joined(other));
            }
        });
    }

    fn of_chunks(path: &str, chunks: &[Chunk]) -> Self {
        let mut out = Self::default();
        chunks.iter().for_each(|chunk| out.add_chunk(path, chunk));
        out
    }

    /// Adds the objects of a list of a cluster that runs.
    pub(crate) fn add_live(&mut self, path: &str, list: Value) {
        let (mut values, mut faults) = (Vec::new(), Vec::new());
        flatten_list(list, &mut values, &mut faults);
        self.refused.extend(faults.iter().map(|fault| format!("{path}: {fault}")));
        for mut value in values {
            manifest::remove_nulls(&mut value);
            let path = path.to_owned();
            let (faults, pod, before, written) = (Vec::new(), None, None, None);
            self.add(Document { path, number: 1, value, faults, pod, live: true, changed: false, before, written }, None);
        }
    }

    /// Whether there is nothing, not even something that cannot be used.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.documents.len() + self.legacy.len() + self.refused.len()
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.documents.append(&mut other.documents);
        self.legacy.append(&mut other.legacy);
        self.refused.append(&mut other.refused);
    }

    fn add_chunk(&mut self, path: &str, chunk: &Chunk) {
        let Chunk { number, lines_before, text: chunk } = chunk;
        let (number, lines_before) = (*number, *lines_before);
        // Dumps of whole clusters are large, and JSON parses faster.
        let json = if chunk.trim_start().starts_with('{') { super::unique::json(chunk).ok() } else { None };
        let Some(value) = json.or_else(|| manifest::json_of(chunk)) else {
            return self.refused.extend(yaml_errors(path, number, lines_before, chunk));
        };
        let (mut values, mut faults) = (Vec::new(), Vec::new());
        let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
        flatten_list(value, &mut values, &mut faults);
        self.refused.extend(faults.iter().map(|fault| format!("{path}, document {number}: {fault}")));
        let is_single = values.len() == 1 && faults.is_empty();
        let written = || Arc::new(Written { lines_before, text: chunk.clone(), positions: OnceLock::new() });
        let written = (is_single && !is_list).then(written);
        for mut value in values {
            manifest::remove_nulls(&mut value);
            drop_namespace(&mut value);
            let (path, faults, pod, before, written) = (path.to_owned(), Vec::new(), None, None, written.clone());
            let document = Document { path, number, value, faults, pod, live: false, changed: false, before, written };
            // Line numbers are those of the file, unless the object is an item of a list.
            self.add(document, is_single.then_some((lines_before, chunk)));
        }
    }

    /// Adds an object, with its text and the number of lines before it in its file.
    fn add(&mut self, mut document: Document, text: Option<(usize, &str)>) {
        let (path, number) = (&document.path, document.number);
        if document.version().is_empty() || document.kind().is_empty() {
            let beside = manifest::no_manifest(path, |key| document.value.get(key).is_some());
            let said = match beside {
                Some(beside) => beside.to_owned(),
                None if let Some(items) = document.value.as_array() => {
                    manifest::of_list(|key| items.first().is_some_and(|first| first.get(key).is_some())).to_owned()
                }
                None => no_document(&document.value),
            };
            return self.refused.push(format!("{path}, document {number}: {said}"));
        }
        let metadata = |field: &str| document.value["metadata"][field].as_str().unwrap_or_default();
        let unprintable = manifest::unprintable_words(document.version(), document.kind(), metadata);
        if !unprintable.is_empty() {
            return self.refused.extend(unprintable.iter().map(|fault| format!("{path}, document {number}: {fault}")));
        }
        if (document.version(), document.kind()) == (Pod::API_VERSION, Pod::KIND)
            && let Ok(pod) = document.accepted()
        {
            document = Document { value: Value::Null, pod: Some(Box::new(pod)), written: None, ..document };
            self.documents.push(document);
            return;
        }
        let node_pool = (document.version(), document.kind()) == (NodePool::API_VERSION, NodePool::KIND);
        if !node_pool && !document.is_for_manifest_reader() {
            self.documents.push(document);
            return;
        }
        let has_position = text.is_some();
        let read = match text {
            None => manifest::read(path, &document.value.to_string()),
            // Only errors have line numbers, and the lines before each document are all of the file.
            Some((lines_before, text)) => {
                manifest::read(path, text).or_else(|_| manifest::read(path, &at_original_lines(lines_before, text)))
            }
        };
        let errors = read.as_ref().err().into_iter().flatten().map(|fault| {
            let mut fault = fault.clone();
            fault.document = number;
            fault.mark = fault.mark.filter(|_| has_position);
            fault.to_string()
        });
        // A dump has the pools of v1beta1 as v1.
        let is_legacy = matches!(read.as_deref(), Ok([located]) if matches!(located.value, Object::Legacy(_)));
        if node_pool && !is_legacy {
            document.faults = errors.collect();
            self.documents.push(document);
            return;
        }
        self.refused.extend(errors);
        for object in read.into_iter().flatten().map(|located| located.value) {
            match object {
                Object::Legacy(_) => self.legacy.push(LegacyDocument { object, path: path.clone(), number }),
                _ => self.documents.push(document.clone()),
            }
        }
    }
}

/// Fewer documents than this are not worth a thread.
const DOCUMENTS_PER_THREAD: usize = 500;

/// The text of a document and its position.
struct Chunk {
    number: usize,
    /// The number of lines before it in its file.
    lines_before: usize,
    text: String,
}

/// Splits a text at its separators, so that limits against hostile YAML, and errors, apply to each document separately.
fn split_documents(text: &str) -> Vec<Chunk> {
    let (mut out, mut chunk, mut number, mut lines_before, mut ended) = (Vec::new(), String::new(), 0, 0, false);
    // Lines may end as old systems wrote them, with a carriage return alone.
    let old = text.contains('\r').then(|| text.replace("\r\n", "\n").replace('\r', "\n"));
    let text = old.as_deref().unwrap_or(text);
    for (at, line) in text.lines().chain(["---"]).enumerate() {
        // Of files that were joined each may begin with a byte order mark.
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let first = (ended && !ends(line) && !is_blank(line)).then_some(line);
        if let Some(first) = behind_separator(line).or(first) {
            let blank = is_blank(&chunk);
            // A separator at the top only starts the first document.
            if !blank || number > 0 {
                number += 1;
            }
            if !blank {
                out.push(Chunk { number, lines_before, text: std::mem::take(&mut chunk) });
            }
            chunk.clear();
            (lines_before, ended) = (at, false);
            chunk.push_str(first);
        } else if ends(line) {
            ended = true;
        } else if !ended {
            chunk.push_str(line);
        }
        chunk.push('\n');
    }
    out
}

/// What follows the dashes of a line that separates documents: nothing, a comment, or the first value of the next one.
fn behind_separator(line: &str) -> Option<&str> {
    line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

/// Whether a line ends a document. The next one needs no separator then, and may have directives.
fn ends(line: &str) -> bool {
    let behind = line.strip_prefix("...").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
    behind.is_some_and(|rest| rest.trim_start().is_empty() || rest.trim_start().starts_with('#'))
}

/// The text of a document after as many empty lines as precede it in its file.
fn at_original_lines(lines_before: usize, text: &str) -> String {
    format!("{}{text}", "\n".repeat(lines_before))
}

/// The errors of a chunk that is not YAML, or has a key twice. The manifest reader knows likely causes and their positions.
fn yaml_errors(path: &str, number: usize, lines_before: usize, chunk: &str) -> Vec<String> {
    let mut faults = manifest::read(path, &at_original_lines(lines_before, chunk)).err().unwrap_or_default();
    if faults.is_empty() {
        let message = "this YAML has a key twice in one map: keep one of them, the document does not count until then".to_owned();
        faults.push(ManifestError { file: path.to_owned(), document: number, mark: None, object: None, field: FieldPath::root(), message });
    }
    faults.iter_mut().for_each(|fault| fault.document = number);
    faults.iter().map(ToString::to_string).collect()
}

/// Whether a chunk contains only comments and directives.
fn is_blank(chunk: &str) -> bool {
    chunk.lines().map(str::trim_start).all(|line| line.trim_end().is_empty() || line.starts_with(['#', '%']))
}

/// What is wrong with a map without apiVersion or kind, or with something that is no map.
fn no_object(value: &Value) -> String {
    let keys: Vec<&str> = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    format!("an object needs apiVersion and kind, such as `apiVersion: v1` and `kind: Pod`{}", manifest::meant_as_type(&keys))
}

/// The same of a document, which may also be what kubectl says to people: a text, or a map with a key for each of its lines.
fn no_document(value: &Value) -> String {
    let said = match value {
        Value::Object(fields) if fields.keys().all(|key| manifest::said_to_people(key).is_some()) => {
            fields.keys().next().and_then(|key| manifest::said_to_people(key))
        }
        Value::Object(_) => None,
        _ => value.as_str().and_then(manifest::said_to_people),
    };
    said.map_or_else(|| no_object(value), str::to_owned)
}

/// Flattens lists such as `kubectl get -o yaml` prints; skips null documents. Adds to `faults` what a list has in the place of its items,
/// or among them.
fn flatten_list(mut value: Value, out: &mut Vec<Value>, faults: &mut Vec<String>) {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let Some(element) = kind.strip_suffix("List").map(str::to_owned) else {
        return out.extend(Some(value).filter(|value| !value.is_null()));
    };
    let kind = words::printable(kind).into_owned();
    let items = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(Value::Null) => return,
        None if manifest::is_list(value.get("apiVersion").and_then(Value::as_str).unwrap_or_default(), &kind) => {
            return faults.push(format!("{kind}, items: {}", manifest::ITEMS_MISSING));
        }
        // A kind may be called like a list.
        None => return out.push(value),
        Some(_) => return faults.push(format!("{kind}, items: this is no list: write each object behind a dash")),
    };
    let version = value.get("apiVersion").cloned().unwrap_or_default();
    for (at, mut item) in items.into_iter().enumerate() {
        let Some(fields) = item.as_object_mut() else {
            faults.push(format!("{kind}, items[{at}]: {}", manifest::no_item(&item.to_string())));
            continue;
        };
        if !element.is_empty() {
            fields.entry("apiVersion").or_insert_with(|| version.clone());
            fields.entry("kind").or_insert_with(|| element.clone().into());
        }
        let word = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
        if word("kind").is_empty() || (word("apiVersion").is_empty() && !word("kind").ends_with("List")) {
            faults.push(format!("{kind}, items[{at}]: {}", no_object(&item)));
            continue;
        }
        flatten_list(item, out, faults);
    }
}

/// Pools and classes of API versions before v1, converted to v1 documents.
pub(crate) fn converted(legacy: Vec<LegacyDocument>) -> Result<Vec<Document>, ReadError> {
    let objects = legacy.into_iter().map(|document| document.object).collect();
    let done = legacy::convert(objects, &ConvertOptions::new(Purpose::OnRead));
    if !done.errors.is_empty() {
        return Err(ReadError::Manifest(done.errors.iter().map(ToString::to_string).collect()));
    }
    let objects = done.objects.into_iter().filter_map(|object| match object {
        Object::NodePool(pool) => value_of(&*pool),
        Object::NodeClass(class) => value_of(&*class),
        _ => None,
    });
    let document = |(value, number)| Document {
        path: "converted".to_owned(),
        number,
        value,
        faults: Vec::new(),
        pod: None,
        live: false,
        changed: false,
        before: None,
        written: None,
    };
    Ok(objects.zip(1..).map(document).collect())
}

/// Removes a namespace that a server would not store: a file with one and a cluster without it have the same object.
fn drop_namespace(value: &mut Value) {
    let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    if manifest::is_in_no_namespace(word("apiVersion"), word("kind")) {
        manifest::remove_namespace(value);
    }
}

fn without_namespace(value: &Value) -> Value {
    let mut value = value.clone();
    manifest::remove_namespace(&mut value);
    value
}

fn value_of<T: Kind + serde::Serialize>(object: &T) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = T::API_VERSION.into();
    value["kind"] = T::KIND.into();
    Some(value)
}

impl Document {
    fn text(&self, key: &str) -> &str {
        self.value.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn version(&self) -> &str {
        self.text("apiVersion")
    }

    pub(crate) fn kind(&self) -> &str {
        self.text("kind")
    }

    /// The name as written, even if it is a number.
    pub(crate) fn name(&self) -> String {
        let name = self.value.pointer("/metadata/name").filter(|name| !name.is_null());
        name.map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned)).unwrap_or_default()
    }

    /// The name, or how one begins that a server generates.
    pub(crate) fn shown_name(&self) -> String {
        let generated = || self.value.pointer("/metadata/generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(self.name()).filter(|name| !name.is_empty()).unwrap_or_else(generated)
    }

    /// Which object it is; `None` without a name.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match &self.pod {
            Some(pod) => Identity::new(Pod::API_VERSION, Pod::KIND, &pod.metadata.namespace, pod.metadata.name.clone()),
            None => {
                let namespace = self.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
                let (version, kind) = self.converted_from().unwrap_or((self.version(), self.kind()));
                Identity::new(version, kind, namespace, self.name())
            }
        }
    }

    /// Whether a cluster has it, or had it when it was dumped.
    pub(crate) fn is_of_cluster(&self) -> bool {
        let was_dumped = match &self.pod {
            Some(pod) => !pod.metadata.uid.is_empty() || pod.is_bound() || !pod.status.phase.is_empty(),
            None => [self.value.pointer("/metadata/uid"), self.value.get("status")].iter().any(Option::is_some),
        };
        self.live || was_dumped
    }

    /// Version and kind of the object of a cluster that this one stands for: a Provisioner and a NodePool may have one name.
    fn converted_from(&self) -> Option<(&'static str, &'static str)> {
        let annotation = self.value.pointer("/metadata/annotations")?.get(labels::CONVERTED_FROM)?;
        let version = match (self.kind(), annotation.as_str()?) {
            (NodePool::KIND, "Provisioner") => "karpenter.sh/v1alpha5",
            (Ec2NodeClass::KIND, "AWSNodeTemplate") => "karpenter.k8s.aws/v1alpha1",
            _ => return None,
        };
        Some((version, if self.kind() == NodePool::KIND { "Provisioner" } else { "AWSNodeTemplate" }))
    }

    /// Whether another document of the same object says the same, in whatever order, and with or without the default namespace.
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        match (&self.pod, &other.pod) {
            (Some(one), Some(other)) => {
                let metadata = |pod: &Pod| ObjectMeta { namespace: String::new(), ..pod.metadata.clone() };
                metadata(one) == metadata(other) && one.spec == other.spec && one.status == other.status
            }
            _ => self.pod == other.pod && without_namespace(&self.value) == without_namespace(&other.value),
        }
    }

    /// The file that it is in.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Its place, for messages.
    pub(crate) fn place(&self) -> String {
        format!("{}, document {}", self.path, self.number)
    }

    /// Whether the manifest reader parses it: node classes, all kinds before v1, and kinds of Karpenter's that no server has.
    fn is_for_manifest_reader(&self) -> bool {
        let read_here = matches!((self.version(), self.kind()), ("karpenter.sh/v1", "NodePool" | "NodeClaim"));
        let field = |name: &str| self.value.get(name).and_then(Value::as_str);
        (self.version().starts_with("karpenter.") && !read_here)
            || validate::served(self.version(), self.kind()) == Served::Nowhere
            || manifest::failure(self.version(), self.kind(), field).is_some()
    }

    /// A NodePool of which only `spec.disruption` is unreadable: the pool without it, and the error.
    pub(crate) fn without_unreadable_disruption(&self) -> Option<(Self, String)> {
        if (self.version(), self.kind()) != (NodePool::API_VERSION, NodePool::KIND) {
            return None;
        }
        let why = match self.value.pointer("/spec/disruption")? {
            Value::Object(_) => {
                let error = serde_path_to_error::deserialize::<_, NodePool>(self.value.clone()).err()?;
                format!("{}: {}", FieldPath::of_error(error.path()), words::plain(&error.inner().to_string()))
            }
            _ => "spec.disruption: it is no object".to_owned(),
        };
        let mut value = self.value.clone();
        value.pointer_mut("/spec")?.as_object_mut()?.remove("disruption");
        serde_json::from_value::<NodePool>(value.clone()).ok()?;
        Some((Self { value, ..self.clone() }, why))
    }

    /// Parses the object.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ReadError> {
        serde_path_to_error::deserialize(&self.value).map_err(|error| self.parse_error(&error))
    }

    /// The same, unless an API server would refuse the object; then all that is wrong with it. What a cluster has was accepted.
    pub(crate) fn accepted<T: DeserializeOwned + Judged>(&self) -> Result<T, ReadError> {
        let line = |fault: FieldError| self.fault(&fault.path, fault.message).to_string();
        let misspelt = if self.live { Vec::new() } else { manifest::misspelt(self.kind(), &self.value) };
        let mut lines: Vec<String> = misspelt.into_iter().map(line).collect();
        let object: T = match self.parse() {
            Ok(object) => object,
            Err(error) => {
                lines.extend(error.lines());
                return Err(ReadError::Manifest(lines));
            }
        };
        let faults = if self.live { Vec::from_iter(too_many(&object, REPLICAS_MAX)) } else { faults_of(&object, REPLICAS_MAX) };
        lines.extend(faults.into_iter().map(line));
        if lines.is_empty() { Ok(object) } else { Err(ReadError::Manifest(lines)) }
    }

    fn parse_error(&self, error: &serde_path_to_error::Error<serde_json::Error>) -> ReadError {
        let (path, inner) = (FieldPath::of_error(error.path()), error.inner().to_string());
        let field = path.to_string();
        let said = words::plain(&inner);
        let remedy = if inner.contains("expected a string") {
            "; a name or value that is meant as text needs quotes"
        } else if (field.ends_with("Time") || field.ends_with("Timestamp")) && !said.contains("2026-01-01") {
            "; write a time such as 2026-01-01T00:00:00Z"
        } else {
            ""
        };
        self.fault(&path, format!("{said}{remedy}"))
    }

    /// What is wrong with a field, at its place in the file if that is known.
    pub(crate) fn fault(&self, field: &FieldPath, message: String) -> ReadError {
        let (path, document, object) = (self.path.clone(), self.number, format!("{} {:?}", self.kind(), self.name()));
        let Some(mark) = self.mark_of(field) else {
            return ReadError::Object { path, document, object, field: field.to_string(), message };
        };
        let (mark, object, field) = (Some(mark), Some(object), field.clone());
        ReadError::Manifest(vec![ManifestError { file: path, document, mark, object, field, message }.to_string()])
    }

    /// Where a field stands in the file, or the nearest one around it.
    fn mark_of(&self, field: &FieldPath) -> Option<Mark> {
        let written = self.written.as_deref()?;
        let mark = written.positions.get_or_init(|| Positions::of(&written.text)).as_ref()?.mark_of(field);
        Some(Mark { line: written.lines_before + mark.line, ..mark })
    }
}

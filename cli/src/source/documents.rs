//! From files to documents: what is an object, where it stands, and what is wrong with it on its own.

use super::error::ReadError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;
use std::sync::{Arc, OnceLock};
use whittle_api::Mark;
use whittle_api::field::FieldPath;
use whittle_api::k8s::{Kind, Pod};
use whittle_api::karpenter::NodePool;
use whittle_api::legacy::{self, ConvertOptions, Purpose};
use whittle_api::manifest::{self, ManifestError, Object};

/// One object as it was written, and where.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    path: String,
    number: usize,
    pub(crate) value: Value,
    /// Its text, where the old words for truth occur in it (`y`, `off`, …), and which of the objects in it this is: they are
    /// taken for words first.
    worded: Option<(Arc<Worded>, usize)>,
    /// What an API server would find wrong with a NodePool.
    pub(crate) faults: Vec<String>,
    /// What it is, if it is a pod that can be understood. There are many of them, so nothing else is kept.
    pub(crate) pod: Option<Box<Pod>>,
}

/// What files hold.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) documents: Vec<Document>,
    /// Objects of old kinds.
    pub(crate) legacy: Vec<Object>,
    /// Objects that cannot be used, and why.
    pub(crate) refused: Vec<String>,
}

impl Found {
    /// Adds the documents of a text. Whatever is wrong with one of them is noted, and the others are read.
    pub(crate) fn add_text(&mut self, path: &str, text: &str) {
        let chunks = cut(text);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(chunks.len() / FOR_A_THREAD).max(1);
        let parts = chunks.chunks(chunks.len().div_ceil(threads).max(1));
        std::thread::scope(|scope| {
            let read = |part| scope.spawn(move || Self::of_chunks(path, part));
            // The first part is read here: a text of few documents needs no thread.
            let mut parts = parts.into_iter();
            let first = parts.next();
            let others: Vec<_> = parts.map(read).collect();
            self.append(Self::of_chunks(path, first.unwrap_or_default()));
            for other in others {
                self.append(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
    }

    fn of_chunks(path: &str, chunks: &[Chunk]) -> Self {
        let mut out = Self::default();
        chunks.iter().for_each(|chunk| out.add_chunk(path, chunk));
        out
    }

    fn append(&mut self, mut other: Self) {
        self.documents.append(&mut other.documents);
        self.legacy.append(&mut other.legacy);
        self.refused.append(&mut other.refused);
    }

    fn add_chunk(&mut self, path: &str, chunk: &Chunk) {
        let Chunk { number, begins, text: chunk } = chunk;
        let (number, begins) = (*number, *begins);
        // Dumps of whole clusters are large, and JSON is read faster.
        let json = if chunk.trim_start().starts_with('{') { serde_json::from_str(chunk).ok() } else { None };
        let words = json.is_none() && has_old_booleans(chunk);
        let value = match json.map_or_else(|| yaml(chunk, true), Ok) {
            Ok(value) => value,
            Err(fault) => return self.refused.extend(no_yaml(path, number, begins, chunk, fault)),
        };
        let mut values = Vec::new();
        open(value, &mut values);
        let alone = values.len() == 1;
        let worded = words.then(|| Arc::new(Worded { text: chunk.to_owned(), otherwise: OnceLock::new() }));
        for (at, mut value) in values.into_iter().enumerate() {
            forget_nulls(&mut value);
            let worded = worded.as_ref().map(|worded| (Arc::clone(worded), at));
            let document = Document { path: path.to_owned(), number, value, worded, faults: Vec::new(), pod: None };
            // At the same lines as in the file, where it is not one of a list.
            self.add(document, alone.then_some((begins, chunk)));
        }
    }

    /// Adds an object, with its text and how many lines of its file stand before it.
    fn add(&mut self, mut document: Document, text: Option<(usize, &str)>) {
        let (path, number) = (&document.path, document.number);
        if document.version().is_empty() || document.kind().is_empty() {
            self.refused
                .push(format!("{path}, document {number}: an object needs apiVersion and kind, such as `apiVersion: v1` and `kind: Pod`"));
            return;
        }
        if (document.version(), document.kind()) == (Pod::API_VERSION, Pod::KIND)
            && let Ok(pod) = document.parse()
        {
            document = Document { value: Value::Null, worded: None, pod: Some(Box::new(pod)), ..document };
            self.documents.push(document);
            return;
        }
        let node_pool = (document.version(), document.kind()) == (NodePool::API_VERSION, NodePool::KIND);
        if !node_pool && !document.is_for_karpenters_reader() {
            self.documents.push(document);
            return;
        }
        let placed = text.is_some();
        let text = text.map_or_else(|| document.value.to_string(), |(begins, text)| placed_at(begins, text));
        let read = manifest::read(path, &text);
        let said = read.as_ref().err().into_iter().flatten().map(|fault| {
            let mut fault = fault.clone();
            fault.document = number;
            fault.mark = fault.mark.filter(|_| placed);
            fault.to_string()
        });
        if node_pool {
            document.faults = said.collect();
            self.documents.push(document);
            return;
        }
        self.refused.extend(said);
        for object in read.into_iter().flatten().map(|located| located.value) {
            match object {
                Object::Legacy(_) => self.legacy.push(object),
                _ => self.documents.push(document.clone()),
            }
        }
    }
}

/// Documents that are worth a thread of their own.
const FOR_A_THREAD: usize = 500;

/// The text of a document, and where it stands.
struct Chunk {
    number: usize,
    /// How many lines of its file stand before it.
    begins: usize,
    text: String,
}

/// Cuts a text at its separators, so that limits against hostile YAML, and its faults, are each document's own.
fn cut(text: &str) -> Vec<Chunk> {
    let (mut out, mut chunk, mut number, mut begins) = (Vec::new(), String::new(), 0, 0);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (at, line) in text.lines().chain(["---"]).enumerate() {
        if line == "---" || line.starts_with("--- ") {
            let hollow = is_hollow(&chunk);
            // A separator at the top only begins the first document.
            if !hollow || number > 0 {
                number += 1;
            }
            if !hollow {
                out.push(Chunk { number, begins, text: std::mem::take(&mut chunk) });
            }
            chunk.clear();
            begins = at;
            chunk.push_str(line.strip_prefix("---").unwrap_or_default());
        } else if line != "..." {
            chunk.push_str(line);
        }
        chunk.push('\n');
    }
    out
}

/// Values per document: ten times what the dump of a large cluster has.
const VALUES_MAX: usize = 20_000_000;

/// Why a text is no YAML, and where.
struct NoYaml {
    mark: Option<Mark>,
    message: String,
}

/// A document as JSON. With `words`, only `true` and `false` are truth values.
fn yaml(text: &str, words: bool) -> Result<Value, NoYaml> {
    let options = serde_saphyr::options! {
        strict_booleans: words,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_total_scalar_bytes: text.len().max(1 << 20) * 2,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let mark = error.location().map(|at| Mark { line: place(at.line()), column: place(at.column()) });
        NoYaml { mark, message: error.to_string() }
    })
}

/// The text of a document on the lines that it has in its file.
fn placed_at(begins: usize, text: &str) -> String {
    format!("{}{text}", "\n".repeat(begins))
}

/// What to say of a chunk that is no YAML. The reader of manifests knows likely causes, and where they stand.
fn no_yaml(path: &str, number: usize, begins: usize, chunk: &str, fault: NoYaml) -> Vec<String> {
    let mut faults = manifest::read(path, &placed_at(begins, chunk)).err().unwrap_or_default();
    if faults.is_empty() {
        let mark = fault.mark.map(|mark| Mark { line: begins + mark.line, ..mark });
        let message = format!("this is no YAML: {}: correct this place, the document does not count until then", fault.message);
        faults.push(ManifestError { file: path.to_owned(), document: number, mark, object: None, field: FieldPath::root(), message });
    }
    faults.iter_mut().for_each(|fault| fault.document = number);
    faults.iter().map(ToString::to_string).collect()
}

/// Whether nothing stands in a chunk but comments and directives.
fn is_hollow(chunk: &str) -> bool {
    chunk.lines().map(str::trim_start).all(|line| line.trim_end().is_empty() || line.starts_with(['#', '%']))
}

/// A text in which the old words for truth occur.
#[derive(Debug)]
struct Worded {
    text: String,
    /// Its objects, with these words taken for truth values.
    otherwise: OnceLock<Vec<Value>>,
}

impl Worded {
    fn otherwise(&self, at: usize) -> Option<&Value> {
        let read = || {
            let mut values = Vec::new();
            if let Ok(value) = yaml(&self.text, false) {
                open(value, &mut values);
            }
            values
        };
        self.otherwise.get_or_init(read).get(at)
    }
}

/// The value, or the objects of a list such as `kubectl get -o yaml` prints; nothing for nothing.
fn open(mut value: Value, out: &mut Vec<Value>) {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let (Some(element), Some(Value::Array(items))) =
        (kind.strip_suffix("List").map(str::to_owned), value.get_mut("items").map(Value::take))
    else {
        if !value.is_null() {
            out.push(value);
        }
        return;
    };
    let version = value.get("apiVersion").cloned().unwrap_or_default();
    for mut item in items {
        if let Some(fields) = item.as_object_mut().filter(|_| !element.is_empty()) {
            fields.entry("apiVersion").or_insert_with(|| version.clone());
            fields.entry("kind").or_insert_with(|| element.clone().into());
        }
        open(item, out);
    }
}

/// Takes out what is null: to an API server it is as if it had not been written.
fn forget_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(forget_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(forget_nulls),
        _ => {}
    }
}

/// Whether words stand in the text that older YAML takes for truth values.
fn has_old_booleans(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.into_iter().any(|word| word.len() <= 3 && ["y", "n", "yes", "no", "on", "off"].iter().any(|old| word.eq_ignore_ascii_case(old)))
}

/// Pools and classes of old kinds in today's form, as documents of their own.
pub(crate) fn converted(legacy: Vec<Object>) -> Result<Vec<Document>, ReadError> {
    let done = legacy::convert(legacy, &ConvertOptions::new(Purpose::OnRead));
    if !done.errors.is_empty() {
        return Err(ReadError::Manifest(done.errors.iter().map(ToString::to_string).collect()));
    }
    let objects = done.objects.into_iter().filter_map(|object| match object {
        Object::NodePool(pool) => value_of(&*pool),
        Object::NodeClass(class) => value_of(&*class),
        _ => None,
    });
    let document = |(value, number)| Document { path: "converted".to_owned(), number, value, worded: None, faults: Vec::new(), pod: None };
    Ok(objects.zip(1..).map(document).collect())
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

    /// As it was written, even if it is a number.
    pub(crate) fn name(&self) -> String {
        let name = self.value.pointer("/metadata/name").filter(|name| !name.is_null());
        name.map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned)).unwrap_or_default()
    }

    /// Of Karpenter's, but none of the kinds that a plan reads itself: classes and all old kinds.
    fn is_for_karpenters_reader(&self) -> bool {
        let read_here = matches!((self.version(), self.kind()), ("karpenter.sh/v1", "NodePool" | "NodeClaim"));
        self.version().starts_with("karpenter.") && !read_here
    }

    /// A NodePool of which only `spec.disruption` cannot be read, without it, and what is wrong with it.
    pub(crate) fn without_broken_disruption(&self) -> Option<(Self, String)> {
        if (self.version(), self.kind()) != (NodePool::API_VERSION, NodePool::KIND) {
            return None;
        }
        let why = match self.value.pointer("/spec/disruption")? {
            Value::Object(_) => {
                let error = serde_path_to_error::deserialize::<_, NodePool>(self.value.clone()).err()?;
                format!("{}: {}", error.path(), error.inner())
            }
            _ => "spec.disruption: it is no object".to_owned(),
        };
        let mut value = self.value.clone();
        value.pointer_mut("/spec")?.as_object_mut()?.remove("disruption");
        serde_json::from_value::<NodePool>(value.clone()).ok()?;
        Some((Self { value, ..self.clone() }, why))
    }

    /// The object in it. A word that stands where a truth value must, and that older YAML takes for one, is one.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ReadError> {
        let mut meant: Option<Value> = None;
        loop {
            let error = match serde_path_to_error::deserialize(meant.as_ref().unwrap_or(&self.value)) {
                Ok(object) => return Ok(object),
                Err(error) => error,
            };
            let mut next = meant.unwrap_or_else(|| self.value.clone());
            if !self.means_truth(error.path(), &mut next) {
                return Err(self.fault(&error));
            }
            meant = Some(next);
        }
    }

    /// Puts a truth value in the place of an old word for one; says whether there was such a word.
    fn means_truth(&self, path: &serde_path_to_error::Path, value: &mut Value) -> bool {
        let Some((text, at)) = &self.worded else { return false };
        let (Some(mut truth), mut word) = (text.otherwise(*at), value) else { return false };
        for segment in path {
            let step = match segment {
                Segment::Seq { index } => truth.get(index).zip(word.get_mut(index)),
                Segment::Map { key } => truth.get(key).zip(word.get_mut(key)),
                _ => None,
            };
            let Some(found) = step else { return false };
            (truth, word) = found;
        }
        let is_one = word.is_string() && truth.is_boolean();
        if is_one {
            *word = truth.clone();
        }
        is_one
    }

    fn fault(&self, error: &serde_path_to_error::Error<serde_json::Error>) -> ReadError {
        let (field, inner) = (error.path().to_string(), error.inner().to_string());
        let remedy = if inner.contains("expected a string") {
            "; a name or value that is meant as text needs quotes"
        } else if field.ends_with("Time") || field.ends_with("Timestamp") {
            "; write a time such as 2026-01-01T00:00:00Z"
        } else {
            ""
        };
        ReadError::Object {
            path: self.path.clone(),
            document: self.number,
            object: format!("{} {:?}", self.kind(), self.name()),
            field,
            message: format!("{inner}{remedy}"),
        }
    }
}

//! The judgement of each object of the input.

use super::runtime;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::crd;
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::legacy::{self, ConvertError, ConvertOptions, Converted, Purpose};
use whittle_api::manifest::{self, Document, Object};
use whittle_api::runtime::Findings;
use whittle_api::validate::{self, Served, Size};

/// How several documents of one object are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Each for itself, as if it were created.
    Apart,
    /// The first as created, each other as replacing what was accepted before it.
    Judged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Refused,
    /// The kind is none of ours.
    NotJudged,
}

/// What an API server would do with an object.
#[derive(Debug)]
pub struct Judgement<'a> {
    pub document: &'a Document,
    pub verdict: Verdict,
    /// What the server answers.
    pub errors: Vec<FieldError>,
    /// What it accepts and does not work, and what it answers once the errors are corrected.
    pub warnings: Vec<FieldError>,
    /// How a kind from before v1 was converted: nothing is wrong with it.
    pub notes: Vec<FieldError>,
    /// The spec as it is stored; `None` if the object is refused or has none.
    pub defaulted: Option<Value>,
}

impl Judgement<'_> {
    /// Warnings, then notes.
    pub fn remarks(&self) -> impl Iterator<Item = &FieldError> {
        self.warnings.iter().chain(&self.notes)
    }

    /// Turns warnings into errors.
    pub fn refuse_warnings(&mut self) {
        self.errors.append(&mut self.warnings);
        if !self.errors.is_empty() {
            self.verdict = Verdict::Refused;
            self.defaulted = None;
        }
    }
}

/// Kind, and name with namespace, of an object as it is served.
type Identity<'a> = (&'a str, String);

/// Judges all documents, in their order.
pub fn judge(documents: &[Document], changes: Changes) -> Vec<Judgement<'_>> {
    let conversions = convert(documents);
    let mut stored: BTreeMap<Identity<'_>, Value> = BTreeMap::new();
    documents
        .iter()
        .enumerate()
        .map(|(position, document)| {
            let (api_version, kind) = document.type_meta();
            let written = match validate::served(api_version, kind) {
                Served::Elsewhere => {
                    let failure = manifest::failure(api_version, kind, |field| document.value()[field].as_str());
                    return failure.map_or_else(|| not_judged(document), |failure| refused(document, vec![failure], Vec::new()));
                }
                Served::Nowhere => return refused(document, vec![validate::unserved(api_version, kind)], Vec::new()),
                Served::Here => Written { api_version, kind, value: document.value(), object: None },
                Served::Legacy => match &conversions[position] {
                    Some(Ok(conversion)) => conversion.written(),
                    Some(Err(errors)) => return refused(document, errors.clone(), Vec::new()),
                    None => return invalid_legacy(document),
                },
            };
            let identity = identity(&written);
            let old = identity.as_ref().and_then(|identity| stored.get(identity));
            let mut judgement = written.judge(document, old.filter(|_| changes == Changes::Judged));
            if let Some(Ok(conversion)) = &conversions[position] {
                conversion.explain(&mut judgement);
            }
            if changes == Changes::Apart && old.is_some() {
                let message =
                    "the input has this object already, and each is judged for itself: keep one, or judge the change with --update";
                judgement.warnings.push(FieldError::new(FieldPath::of("metadata.name"), message));
            }
            if let (Some(identity), true) = (identity, judgement.verdict == Verdict::Accepted) {
                stored.insert(identity, written.value.clone());
            }
            judgement
        })
        .collect()
}

/// An object as it is sent to a server.
struct Written<'a> {
    api_version: &'a str,
    kind: &'a str,
    value: &'a Value,
    /// The typed object, if it is there already.
    object: Option<&'a Object>,
}

/// The name under which an object is stored; `None` if the server makes it.
fn identity<'a>(written: &Written<'a>) -> Option<Identity<'a>> {
    let word = |field: &str| written.value["metadata"][field].as_str().filter(|text| !text.is_empty());
    let name = word("name")?;
    // A server overlooks the namespace of an object that belongs to none.
    let namespace = crd::is_namespaced(written.kind).then(|| word("namespace").unwrap_or("default"));
    Some((written.kind, namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))))
}

impl Written<'_> {
    fn judge<'d>(&self, document: &'d Document, old: Option<&Value>) -> Judgement<'d> {
        let mut errors = match old {
            Some(old) => validate::update(self.api_version, self.kind, old, self.value),
            None => validate::document(self.api_version, self.kind, self.value),
        };
        errors.extend(document.repeated_keys());
        let mut large = None;
        match validate::size(self.value) {
            Size::Fits => {}
            Size::BeyondEtcd(warning) => large = Some(warning),
            Size::BeyondRequest(error) => errors.push(error),
        }
        let validate::Answer { errors, mut later } = validate::answer(errors);
        later.extend(large);
        later.extend(self.refused_by_karpenter());
        // The store looks at the version, once the object is valid.
        let version = if old.is_none() { stored_version(self.value) } else { None };
        match version {
            Some(version) if errors.is_empty() => return refused(document, vec![version], later),
            version if !errors.is_empty() => {
                later.extend(version);
                return refused(document, errors, later);
            }
            _ => {}
        }
        let found = match self.object {
            Some(object) => runtime::findings(object),
            None => document.object().map_or_else(unusable, |object| runtime::findings(&object)),
        };
        let defaulted = validate::defaulted(self.api_version, self.kind, self.value);
        let warnings = found.errors.into_iter().chain(found.notes).chain(later).collect();
        Judgement { document, verdict: Verdict::Accepted, errors, warnings, notes: Vec::new(), defaulted }
    }

    /// What our CRDs accept and Karpenter's refuse: a cluster keeps those that Karpenter brought. Its next ones have the default.
    fn refused_by_karpenter(&self) -> Option<FieldError> {
        let disruption = self.value["spec"]["disruption"].as_object()?;
        let lacks = disruption.get("consolidateAfter").is_none_or(Value::is_null);
        ((self.api_version, self.kind) == ("karpenter.sh/v1", "NodePool") && lacks).then(|| {
            let message = "Karpenter's CRDs up to 1.14 require it where spec.disruption is given, and an API server that has them refuses \
                           this object: say consolidateAfter, which is 0s by default with Whittle's";
            FieldError::new(FieldPath::of("spec.disruption.consolidateAfter"), message)
        })
    }
}

/// A new object that names a stored version. The store refuses it; dry runs, which store nothing, accept it.
fn stored_version(value: &Value) -> Option<FieldError> {
    let version = value["metadata"]["resourceVersion"].as_str()?;
    version.parse::<u64>().is_ok_and(|version| version != 0).then(|| {
        let message = "it should not be set on objects to be created, as it is the version of a stored one: leave it out";
        FieldError::new(FieldPath::of("metadata.resourceVersion"), message)
    })
}

fn unusable(error: FieldError) -> Findings {
    Findings { errors: vec![error], notes: Vec::new() }
}

fn not_judged(document: &Document) -> Judgement<'_> {
    Judgement { document, verdict: Verdict::NotJudged, errors: Vec::new(), warnings: Vec::new(), notes: Vec::new(), defaulted: None }
}

fn refused(document: &Document, errors: Vec<FieldError>, warnings: Vec<FieldError>) -> Judgement<'_> {
    Judgement { document, verdict: Verdict::Refused, errors, warnings, notes: Vec::new(), defaulted: None }
}

/// An object from before v1 that its own version refuses.
fn invalid_legacy(document: &Document) -> Judgement<'_> {
    let errors = legacy_errors(document);
    let validate::Answer { errors, later } = validate::answer(errors);
    refused(document, errors, later)
}

fn legacy_errors(document: &Document) -> Vec<FieldError> {
    let (api_version, kind) = document.type_meta();
    let mut errors = validate::document(api_version, kind, document.value());
    errors.extend(document.repeated_keys());
    if errors.is_empty() {
        errors.extend(document.object().err().map(unconvertible));
    }
    errors
}

/// A server accepts it, and nobody can read it: the versions before v1 say of fewer fields what they may hold.
fn unconvertible(error: FieldError) -> FieldError {
    FieldError { message: format!("it cannot be converted to v1: {}", error.message), ..error }
}

/// An object from before v1, as v1.
struct Conversion {
    object: Object,
    value: Value,
    notes: Vec<String>,
}

impl Conversion {
    fn written(&self) -> Written<'_> {
        let (api_version, kind) = self.object.type_meta();
        Written { api_version, kind, value: &self.value, object: Some(&self.object) }
    }

    /// Says that the converted object was judged, and what the conversion noticed.
    fn explain(&self, judgement: &mut Judgement<'_>) {
        let (api_version, kind) = self.object.type_meta();
        for error in judgement.errors.iter_mut().chain(&mut judgement.warnings) {
            error.message = format!("as {kind} of {api_version}, {}", error.message);
        }
        let (old, _) = judgement.document.type_meta();
        let judged = format!("{old} is read as v1: judged as {kind} of {api_version}, which `whittle convert` prints");
        let notes = std::iter::once(judged).chain(self.notes.iter().cloned());
        judgement.notes.extend(notes.map(|note| FieldError::new(FieldPath::root(), note)));
    }
}

/// The conversion of each document from before v1; `None` for others and invalid ones. All are converted together, because the kubelet
/// settings of a pool belong into its class; a further document of one object is converted with the others as they are by then.
fn convert(documents: &[Document]) -> Vec<Option<Result<Conversion, Vec<FieldError>>>> {
    let is_legacy = |document: &Document| {
        let (api_version, kind) = document.type_meta();
        validate::served(api_version, kind) == Served::Legacy
    };
    if !documents.iter().any(is_legacy) {
        return documents.iter().map(|_| None).collect();
    }
    let objects: Vec<Option<Object>> = documents.iter().map(typed).collect();
    let mut seen = BTreeSet::new();
    let together: Vec<bool> = objects.iter().map(|object| object.as_ref().is_some_and(|object| seen.insert(target(object)))).collect();
    let options = ConvertOptions::new(Purpose::Output);
    let set: Vec<Object> =
        objects.iter().zip(&together).filter(|(_, together)| **together).filter_map(|(object, _)| object.clone()).collect();
    let key = |object: &Object| {
        let (kind, name) = target(object);
        (kind.to_owned(), name)
    };
    // A dump has thousands of NodeClaims, and what becomes of another object depends on none of them.
    let mut others: Vec<Object> = set.iter().filter(|object| !is_claim(object)).cloned().collect();
    let places: BTreeMap<(String, String), usize> = others.iter().enumerate().map(|(at, object)| (key(object), at)).collect();
    let converted = legacy::convert(set, &options);
    let outcomes = Outcomes::of(&converted);
    objects
        .into_iter()
        .zip(together)
        .map(|(object, together)| {
            let object = object?;
            if !together && let Some(earlier) = places.get(&key(&object)) {
                others[*earlier] = object.clone();
            }
            match object {
                Object::Legacy(_) if together => Some(outcomes.find(&object)),
                Object::Legacy(_) => {
                    let own = is_claim(&object).then(|| object.clone());
                    let set = others.iter().cloned().chain(own).collect();
                    Some(Outcomes::of(&legacy::convert(set, &options)).find(&object))
                }
                _ => None,
            }
        })
        .collect()
}

fn is_claim(object: &Object) -> bool {
    target(object).0 == "NodeClaim"
}

/// A valid object of Karpenter's.
fn typed(document: &Document) -> Option<Object> {
    let (api_version, kind) = document.type_meta();
    match validate::served(api_version, kind) {
        Served::Here => document.object().ok(),
        Served::Legacy if legacy_errors(document).is_empty() => document.object().ok(),
        _ => None,
    }
}

/// Kind and name of an object as v1; with its namespace only if the kind is in one, as a server overlooks others.
fn target(object: &Object) -> (&str, String) {
    let kind = match object.type_meta().1 {
        "Provisioner" => "NodePool",
        "Machine" => "NodeClaim",
        "AWSNodeTemplate" => "EC2NodeClass",
        kind => kind,
    };
    let key = object.key();
    let name = key.rsplit_once('/').filter(|_| !crd::is_namespaced(kind)).map(|(_, name)| name.to_owned());
    (kind, name.unwrap_or(key))
}

/// A conversion by the names of its objects.
struct Outcomes<'c> {
    /// By kind and name of the old object.
    errors: BTreeMap<&'c str, Vec<&'c ConvertError>>,
    /// By kind and name as v1; of several the first.
    objects: BTreeMap<(&'c str, String), &'c Object>,
    /// Texts, by kind and name as v1.
    notes: BTreeMap<&'c str, Vec<&'c str>>,
}

impl<'c> Outcomes<'c> {
    fn of(converted: &'c Converted) -> Self {
        let mut out = Self { errors: BTreeMap::new(), objects: BTreeMap::new(), notes: BTreeMap::new() };
        for error in &converted.errors {
            out.errors.entry(&error.object).or_default().push(error);
        }
        for object in &converted.objects {
            out.objects.entry(target(object)).or_insert(object);
        }
        for note in &converted.warnings {
            out.notes.entry(&note.object).or_default().push(&note.text);
        }
        out
    }

    /// What became of an old object.
    fn find(&self, old: &Object) -> Result<Conversion, Vec<FieldError>> {
        let (kind, name) = target(old);
        // Conversions speak of objects without their namespaces.
        let old_title = format!("{} {name:?}", old.type_meta().1);
        if let Some(errors) = self.errors.get(old_title.as_str()) {
            let told = |error: &&ConvertError| unconvertible(FieldError::new(FieldPath::of(&error.field), error.message.clone()));
            return Err(errors.iter().map(told).collect());
        }
        let title = format!("{kind} {name:?}");
        let found = self.objects.get(&(kind, name)).copied();
        let Some((object, value)) = found.and_then(|object| Some((object.clone(), object.to_json()?))) else {
            return Err(vec![FieldError::new(FieldPath::root(), "it has no equivalent in v1: `whittle convert` says why")]);
        };
        let notes = self.notes.get(title.as_str()).into_iter().flatten().map(|text| (*text).to_owned()).collect();
        Ok(Conversion { object, value, notes })
    }
}

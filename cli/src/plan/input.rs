//! Reads manifests and fills in what the API server or a controller would have filled in.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use whittle_api::k8s::{Container, Kind, Namespace, Node, Pod, PodCondition};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::legacy::{self, ConvertOptions, Purpose};
use whittle_api::manifest::{self, Object};
use whittle_api::{ClusterObjects, Condition, ConditionStatus, ObjectMeta, conditions, labels};
use whittle_core::schedule::{MinValuesPolicy, PreferencePolicy};
use whittle_units::{SignedDuration, Timestamp};

/// Why input could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {path}: {source}")]
    File { path: String, source: std::io::Error },
    /// All faults of a file, one line each.
    #[error("{}", .0.join("\n"))]
    Manifest(Vec<String>),
    #[error("{path}, document {document}: not readable as YAML: {message}")]
    Yaml { path: String, document: usize, message: String },
    #[error("{path}, document {document}: {kind} {name:?} cannot be read: {message}")]
    Object { path: String, document: usize, kind: String, name: String, message: String },
    #[error("{path}, document {document}: an object needs apiVersion and kind")]
    NoKind { path: String, document: usize },
    #[error("plan-settings: {key} cannot be {value:?}: {remedy}")]
    Setting { key: &'static str, value: String, remedy: &'static str },
    #[error("cannot read the catalog {path}: {message}")]
    Catalog { path: String, message: String },
    #[error(
        "what there is to buy is not known: name a region with --region (one of {}), or a catalog with --instance-types; nodes with \
         the label topology.kubernetes.io/region tell the region too",
        .known.join(", ")
    )]
    NoOffers { known: &'static [&'static str] },
    #[error("there are no tables of region {region}: use --region with one of {}, or a catalog with --instance-types", .known.join(", "))]
    NoTables { region: String, known: &'static [&'static str] },
    #[error("EC2NodeClass {name:?}: {message}")]
    NodeClass { name: String, message: String },
}

/// The ConfigMap `plan-settings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub now: Timestamp,
    pub preferences: PreferencePolicy,
    pub min_values: MinValuesPolicy,
    pub gates: BTreeMap<String, bool>,
}

impl Settings {
    /// Whether a feature gate is on.
    #[must_use]
    pub fn gate(&self, name: &str, default: bool) -> bool {
        self.gates.get(name).copied().unwrap_or(default)
    }
}

/// Manifests with all defaults filled in.
#[derive(Clone, Debug)]
pub struct Manifests {
    pub objects: ClusterObjects,
    pub settings: Settings,
    /// They matter where no catalog says what can be bought.
    pub node_classes: Vec<Ec2NodeClass>,
    /// Objects of kinds that have no effect.
    pub skipped: Vec<String>,
    /// NodePools whose `spec.disruption` cannot be read, and why; it is as if it were not there.
    pub closed: BTreeMap<String, String>,
}

/// One document and where it stands.
struct Document {
    path: String,
    number: usize,
    value: Value,
}

/// When a decision is made.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// Then, whatever the manifests say.
    At(Timestamp),
    /// When `plan-settings` says, or then.
    Otherwise(Timestamp),
}

/// When a case without a time is decided.
pub const ORDINARY_TIME: &str = "2026-01-01T00:00:00Z";

impl When {
    /// What cases of the plan format mean.
    #[must_use]
    pub fn ordinary() -> Self {
        Self::Otherwise(ORDINARY_TIME.parse().expect("a literal time"))
    }
}

/// Reads files, directories and standard input.
///
/// # Errors
/// What cannot be read, with its place.
pub fn read(files: &[PathBuf], when: When) -> Result<Manifests, ReadError> {
    let mut documents = Vec::new();
    let mut legacy = Vec::new();
    for path in files {
        for path in expand(path)? {
            let name = path.display().to_string();
            let text = slurp(&path).map_err(|source| ReadError::File { path: name.clone(), source })?;
            add_text(&name, &text, &mut documents, &mut legacy)?;
        }
    }
    assemble(documents, legacy, when)
}

/// Whether a document is of Karpenter's, but none of the kinds that a plan reads itself: classes and all old kinds.
fn is_of_karpenter(document: &Document) -> bool {
    let version = document.text("apiVersion").unwrap_or_default();
    let read_here = matches!((version, document.text("kind")), ("karpenter.sh/v1", Some("NodePool" | "NodeClaim")));
    version.starts_with("karpenter.") && !read_here
}

/// Adds the documents of a text; objects of old kinds go to `legacy`.
fn add_text(name: &str, text: &str, documents: &mut Vec<Document>, legacy: &mut Vec<Object>) -> Result<(), ReadError> {
    let mut own = Vec::new();
    if let Err(plain) = split(name, text, &mut own) {
        // The reader of manifests knows likely causes of what is no YAML.
        let faults = manifest::read(name, text).err().filter(|faults| !faults.is_empty());
        return Err(faults.map_or(plain, |faults| ReadError::Manifest(faults.iter().map(ToString::to_string).collect())));
    }
    if own.iter().any(is_of_karpenter) {
        let read = manifest::read(name, text).map_err(|faults| ReadError::Manifest(faults.iter().map(ToString::to_string).collect()))?;
        legacy.extend(read.into_iter().map(|located| located.value).filter(|object| matches!(object, Object::Legacy(_))));
        let is_old = |document: &Document| {
            let version = document.text("apiVersion").unwrap_or_default();
            is_of_karpenter(document) && !matches!(version, "karpenter.sh/v1" | "karpenter.k8s.aws/v1")
        };
        own.retain(|document| !is_old(document));
    }
    documents.extend(own);
    Ok(())
}

/// Pools and classes of old kinds in today's form, as documents of their own.
fn converted(legacy: Vec<Object>) -> Result<Vec<Document>, ReadError> {
    let done = legacy::convert(legacy, &ConvertOptions::new(Purpose::OnRead));
    if !done.errors.is_empty() {
        return Err(ReadError::Manifest(done.errors.iter().map(ToString::to_string).collect()));
    }
    let objects = done.objects.into_iter().filter_map(|object| match object {
        Object::NodePool(pool) => document_of(&*pool),
        Object::NodeClass(class) => document_of(&*class),
        _ => None,
    });
    Ok(objects.zip(1..).map(|(value, number)| Document { path: "converted".to_owned(), number, value }).collect())
}

fn document_of<T: Kind + serde::Serialize>(object: &T) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = T::API_VERSION.into();
    value["kind"] = T::KIND.into();
    Some(value)
}

/// Reads manifests from a text.
///
/// # Errors
/// What cannot be read, with its place.
pub fn read_text(name: &str, text: &str) -> Result<Manifests, ReadError> {
    let (mut documents, mut legacy) = (Vec::new(), Vec::new());
    add_text(name, text, &mut documents, &mut legacy)?;
    assemble(documents, legacy, When::ordinary())
}

fn expand(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let fail = |source| ReadError::File { path: path.display().to_string(), source };
    let mut out = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let file = entry.map_err(fail)?.path();
        if file.extension().is_some_and(|e| e == "yaml" || e == "yml") {
            out.push(file);
        }
    }
    out.sort();
    Ok(out)
}

fn slurp(path: &Path) -> std::io::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
}

/// Values per document: ten times what the dump of a large cluster has.
const VALUES_MAX: usize = 20_000_000;

/// A document as JSON. What is JSON already is read as such: dumps of whole clusters are large.
fn value_of(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with('{')
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_total_scalar_bytes: text.len().max(1 << 20) * 2,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

/// Adds a document, or the objects of a list such as `kubectl get -o yaml` prints.
fn open(path: &str, number: usize, mut value: Value, out: &mut Vec<Document>) {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let (Some(element), Some(Value::Array(items))) =
        (kind.strip_suffix("List").map(str::to_owned), value.get_mut("items").map(Value::take))
    else {
        if !value.is_null() {
            out.push(Document { path: path.to_owned(), number, value });
        }
        return;
    };
    let version = value.get("apiVersion").cloned().unwrap_or_default();
    for mut item in items {
        if let Some(fields) = item.as_object_mut().filter(|_| !element.is_empty()) {
            fields.entry("apiVersion").or_insert_with(|| version.clone());
            fields.entry("kind").or_insert_with(|| element.clone().into());
        }
        open(path, number, item, out);
    }
}

/// Documents are cut at their separators first, so that limits against hostile YAML hold per document.
fn split(path: &str, text: &str, out: &mut Vec<Document>) -> Result<(), ReadError> {
    let mut chunk = String::new();
    let mut number = 0;
    for line in text.lines().chain(["---"]) {
        if line == "---" || line.starts_with("--- ") {
            number += 1;
            let empty = chunk.lines().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#'));
            if !empty {
                let fail = |message| ReadError::Yaml { path: path.to_owned(), document: number, message };
                let value = value_of(&chunk).map_err(fail)?;
                open(path, number, value, out);
            }
            chunk.clear();
            chunk.push_str(line.strip_prefix("---").unwrap_or_default());
            chunk.push('\n');
        } else {
            chunk.push_str(line);
            chunk.push('\n');
        }
    }
    Ok(())
}

impl Document {
    fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key)?.as_str()
    }

    fn name(&self) -> &str {
        self.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// A NodePool of which only `spec.disruption` cannot be read, without it, and what is wrong with it.
    fn without_broken_disruption(&self, version: &str, kind: &str) -> Option<(Self, String)> {
        if (version, kind) != (NodePool::API_VERSION, NodePool::KIND) || self.value.pointer("/spec/disruption").is_none() {
            return None;
        }
        let why = serde_json::from_value::<NodePool>(self.value.clone()).err()?.to_string();
        let mut value = self.value.clone();
        value.pointer_mut("/spec")?.as_object_mut()?.remove("disruption");
        serde_json::from_value::<NodePool>(value.clone()).ok()?;
        Some((Self { path: self.path.clone(), number: self.number, value }, why))
    }

    fn parse<T: DeserializeOwned>(&self, kind: &str) -> Result<T, ReadError> {
        serde_json::from_value(self.value.clone()).map_err(|e| ReadError::Object {
            path: self.path.clone(),
            document: self.number,
            kind: kind.to_owned(),
            name: self.name().to_owned(),
            message: e.to_string(),
        })
    }
}

fn assemble(mut documents: Vec<Document>, legacy: Vec<Object>, when: When) -> Result<Manifests, ReadError> {
    if !legacy.is_empty() {
        documents.extend(converted(legacy)?);
    }
    let settings = settings(&documents, when)?;
    let mut objects = ClusterObjects::default();
    let (mut node_classes, mut skipped, mut closed) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (position, document) in documents.iter().enumerate() {
        let (Some(version), Some(kind)) = (document.text("apiVersion"), document.text("kind")) else {
            return Err(ReadError::NoKind { path: document.path.clone(), document: document.number });
        };
        let mut meta = Stamp { now: settings.now, position };
        let repaired = document.without_broken_disruption(version, kind);
        let document = repaired.as_ref().map_or(document, |(repaired, why)| {
            closed.insert(document.name().to_owned(), why.clone());
            repaired
        });
        if (version, kind) == (Ec2NodeClass::API_VERSION, Ec2NodeClass::KIND) {
            node_classes.push(document.parse(kind)?);
        } else if !add(&mut objects, document, version, kind, &mut meta)? {
            skipped.push(format!("{version} {kind} {}", document.name()));
        }
    }
    complete(&mut objects, &settings);
    Ok(Manifests { objects, settings, node_classes, skipped, closed })
}

/// Adds one object; says whether its kind is known.
fn add(objects: &mut ClusterObjects, document: &Document, version: &str, kind: &str, stamp: &mut Stamp) -> Result<bool, ReadError> {
    macro_rules! push {
        ($list:ident, $namespaced:expr) => {{
            let mut object = document.parse(kind)?;
            push_with(&mut objects.$list, &mut object, $namespaced, stamp);
            objects.$list.push(object);
        }};
    }
    fn push_with<T: whittle_api::k8s::Kind>(_: &mut Vec<T>, object: &mut T, namespaced: bool, stamp: &mut Stamp) {
        stamp.fill(object.meta_mut(), namespaced);
    }
    match (version, kind) {
        ("karpenter.sh/v1", "NodePool") => push!(node_pools, false),
        ("karpenter.sh/v1", "NodeClaim") => push!(node_claims, false),
        ("karpenter.sh/v1alpha1", "NodeOverlay") => push!(node_overlays, false),
        ("v1", "Pod") => push!(pods, true),
        ("v1", "Node") => push!(nodes, false),
        ("apps/v1", "DaemonSet") => push!(daemon_sets, true),
        ("v1", "PersistentVolumeClaim") => push!(volume_claims, true),
        ("v1", "PersistentVolume") => push!(volumes, false),
        ("storage.k8s.io/v1", "StorageClass") => push!(storage_classes, false),
        ("storage.k8s.io/v1", "CSINode") => push!(csi_nodes, false),
        ("v1", "Namespace") => push!(namespaces, false),
        ("policy/v1", "PodDisruptionBudget") => push!(disruption_budgets, true),
        ("scheduling.k8s.io/v1", "PriorityClass") => push!(priority_classes, false),
        ("v1", "ConfigMap") => push!(config_maps, true),
        ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet") => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// Fills in metadata that the API server would have set.
struct Stamp {
    now: Timestamp,
    position: usize,
}

impl Stamp {
    fn fill(&self, meta: &mut ObjectMeta, namespaced: bool) {
        if namespaced && meta.namespace.is_empty() {
            meta.namespace = "default".to_owned();
        }
        if meta.uid.is_empty() {
            meta.uid = format!("uid-{:08}", self.position);
        }
        if meta.creation_timestamp.is_none() {
            meta.creation_timestamp = Some(self.now - SignedDuration::from_hours(24));
        }
    }
}

fn settings(documents: &[Document], when: When) -> Result<Settings, ReadError> {
    let (When::At(now) | When::Otherwise(now)) = when;
    let mut out = Settings { now, preferences: PreferencePolicy::Respect, min_values: MinValuesPolicy::Strict, gates: BTreeMap::new() };
    let found = documents.iter().find(|d| d.text("kind") == Some("ConfigMap") && d.name() == "plan-settings");
    let Some(data) = found.and_then(|d| d.value.get("data")).and_then(Value::as_object) else { return Ok(out) };
    let text = |key: &str| data.get(key).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    let wrong = |key, value: String, remedy| ReadError::Setting { key, value, remedy };
    if let Some(now) = text("now").filter(|_| matches!(when, When::Otherwise(_))) {
        out.now = now.parse().map_err(|_| wrong("now", now, "write a time such as 2026-01-01T00:00:00Z"))?;
    }
    if let Some(policy) = text("preferencePolicy") {
        out.preferences = match policy.as_str() {
            "Respect" => PreferencePolicy::Respect,
            "Ignore" => PreferencePolicy::Ignore,
            _ => return Err(wrong("preferencePolicy", policy, "use Respect or Ignore")),
        };
    }
    if let Some(policy) = text("minValuesPolicy") {
        out.min_values = match policy.as_str() {
            "Strict" => MinValuesPolicy::Strict,
            "BestEffort" => MinValuesPolicy::BestEffort,
            _ => return Err(wrong("minValuesPolicy", policy, "use Strict or BestEffort")),
        };
    }
    for gate in text("featureGates").unwrap_or_default().split(',').map(str::trim).filter(|g| !g.is_empty()) {
        let (name, value) = gate.split_once('=').unwrap_or((gate, ""));
        let on = value.trim().parse().map_err(|_| wrong("featureGates", gate.to_owned(), "write Name=true or Name=false"))?;
        out.gates.insert(name.trim().to_owned(), on);
    }
    Ok(out)
}

/// Fills in what depends on other objects.
fn complete(objects: &mut ClusterObjects, settings: &Settings) {
    let priorities: BTreeMap<String, i32> = objects.priority_classes.iter().map(|c| (c.metadata.name.clone(), c.value)).collect();
    let default_priority = objects.priority_classes.iter().find(|c| c.global_default).map(|c| c.value);
    for pod in &mut objects.pods {
        complete_pod(pod);
        if pod.spec.priority.is_none() {
            pod.spec.priority = priorities.get(&pod.spec.priority_class_name).copied().or(default_priority).or(Some(0));
        }
    }
    let given: BTreeSet<String> = objects.namespaces.iter().map(|n| n.metadata.name.clone()).collect();
    let used: BTreeSet<String> = objects.pods.iter().map(|p| p.metadata.namespace.clone()).chain(["default".to_owned()]).collect();
    objects.namespaces.extend(used.difference(&given).map(|name| Namespace { metadata: ObjectMeta::named(name.as_str()) }));
    for namespace in &mut objects.namespaces {
        let name = namespace.metadata.name.clone();
        namespace.metadata.labels.entry(labels::NAMESPACE_NAME.to_owned()).or_insert(name);
    }
    for pool in &mut objects.node_pools {
        complete_pool(pool, settings.now);
    }
    for node in &mut objects.nodes {
        complete_node(node, settings.now);
    }
    let nodes: BTreeMap<String, Node> =
        objects.nodes.iter().filter(|n| !n.spec.provider_id.is_empty()).map(|n| (n.spec.provider_id.clone(), n.clone())).collect();
    for claim in &mut objects.node_claims {
        complete_claim(claim, nodes.get(&claim.status.provider_id.clone()));
    }
    for class in &mut objects.storage_classes {
        if class.volume_binding_mode.is_empty() {
            class.volume_binding_mode = "Immediate".to_owned();
        }
    }
}

fn complete_pod(pod: &mut Pod) {
    let host_network = pod.spec.host_network;
    for container in pod.spec.containers.iter_mut().chain(&mut pod.spec.init_containers) {
        complete_container(container, host_network);
    }
    if let Some(resources) = &mut pod.spec.resources {
        for (name, amount) in &resources.limits.0 {
            resources.requests.0.entry(name.clone()).or_insert(*amount);
        }
    }
    for constraint in &mut pod.spec.topology_spread_constraints {
        if constraint.when_unsatisfiable.is_empty() {
            constraint.when_unsatisfiable = "DoNotSchedule".to_owned();
        }
    }
    let bound = pod.is_bound();
    if pod.status.phase.is_empty() {
        pod.status.phase = if bound { "Running" } else { "Pending" }.to_owned();
    }
    if bound && pod.status.start_time.is_none() {
        // A kubelet takes a pod on as soon as it sees it.
        pod.status.start_time = pod.metadata.creation_timestamp;
    }
    if pod.status.conditions.is_empty() {
        let condition = |type_: &str, status: &str, reason: &str| PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            ..PodCondition::default()
        };
        if bound {
            pod.status.conditions = vec![condition("PodScheduled", "True", ""), condition("Ready", "True", "")];
        } else if pod.status.phase == "Pending" {
            pod.status.conditions = vec![condition("PodScheduled", "False", "Unschedulable")];
        }
    }
}

fn complete_container(container: &mut Container, host_network: bool) {
    if let Some(resources) = &mut container.resources {
        for (name, amount) in &resources.limits.0 {
            resources.requests.0.entry(name.clone()).or_insert(*amount);
        }
    }
    for port in &mut container.ports {
        if port.protocol.is_empty() {
            port.protocol = "TCP".to_owned();
        }
        if host_network && port.host_port == 0 {
            port.host_port = port.container_port;
        }
    }
}

fn is_true(type_: &str, since: Option<Timestamp>) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: ConditionStatus::True,
        reason: type_.to_owned(),
        last_transition_time: since,
        ..Condition::default()
    }
}

fn complete_pool(pool: &mut NodePool, now: Timestamp) {
    if pool.status.conditions.is_empty() {
        pool.status.conditions.push(is_true(conditions::READY, Some(now)));
    }
}

fn complete_node(node: &mut Node, now: Timestamp) {
    if node.status.allocatable.is_empty() {
        node.status.allocatable = node.status.capacity.clone();
    }
    let name = node.metadata.name.clone();
    node.metadata.labels.entry(labels::HOSTNAME.to_owned()).or_insert(name);
    if node.status.conditions.is_empty() {
        node.status.conditions.push(is_true(conditions::READY, Some(now)));
    }
}

fn complete_claim(claim: &mut NodeClaim, node: Option<&Node>) {
    if claim.status.allocatable.is_empty() {
        claim.status.allocatable = claim.status.capacity.clone();
    }
    if let Some(node) = node
        && claim.status.node_name.is_empty()
    {
        claim.status.node_name.clone_from(&node.metadata.name);
    }
    if claim.status.conditions.is_empty() {
        let since = claim.metadata.creation_timestamp;
        claim.status.conditions.push(is_true(conditions::LAUNCHED, since));
        for (label, type_) in [(labels::REGISTERED, conditions::REGISTERED), (labels::INITIALIZED, conditions::INITIALIZED)] {
            if node.is_some_and(|n| n.metadata.label(label) == Some("true")) {
                claim.status.conditions.push(is_true(type_, since));
            }
        }
    }
}

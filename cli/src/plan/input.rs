//! Reads manifests and fills in what the API server or a controller would have filled in.

use super::documents::{self, Document, Found};
use super::workloads::Makers;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use whittle_api::k8s::{Container, Kind, Namespace, Node, Pod, PodCondition, TopologySpreadConstraint};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::objective::{MACHINE_COST, Objective, machine_cost};
use whittle_api::scheduler_config::{SchedulerConfigError, default_spread};
use whittle_api::{ClusterObjects, Condition, ConditionStatus, ObjectMeta, conditions, labels};
use whittle_core::schedule::{MinValuesPolicy, PreferencePolicy};
use whittle_units::{Price, SignedDuration, Timestamp};

/// Why input could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {path}: {source}")]
    File { path: String, source: std::io::Error },
    /// All faults of a file, one line each.
    #[error("{}", .0.join("\n"))]
    Manifest(Vec<String>),
    /// Objects that cannot be read, and without which no node may be given up.
    #[error(
        "nothing is decided, because what cannot be read may protect pods and nodes; mend it or leave it out:\n{}",
        .0.join("\n")
    )]
    Hidden(Vec<String>),
    #[error("{path}, document {document}: {object}, {field}: {message}")]
    Object { path: String, document: usize, object: String, field: String, message: String },
    #[error("plan-settings: schedulerConfig: {0}")]
    SchedulerConfig(#[from] SchedulerConfigError),
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
    /// Which plan is the best of those that place as many pods.
    pub objective: Objective,
    /// What a machine costs besides its price and its volumes, per hour.
    pub machine_cost: Price,
    pub gates: BTreeMap<String, bool>,
    /// Spread constraints of pods that have none of their own.
    pub default_spread: Vec<TopologySpreadConstraint>,
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
    /// What makes pods: Services, workloads and capacity buffers.
    pub workloads: Makers,
    /// Objects of kinds that have no effect.
    pub skipped: Vec<String>,
    /// Objects that cannot be read, and why: it is as if they were not there.
    pub refused: Vec<String>,
    /// Of these, those that may protect others, or tell where pods may be: who is to lose a node has to know them.
    pub hidden: Vec<String>,
    /// What the API server would find wrong with NodePools that can be read all the same.
    pub doubts: Vec<String>,
    /// NodePools whose `spec.disruption` cannot be read, and why; it is as if it were not there.
    pub closed: BTreeMap<String, String>,
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
    /// What golden cases mean.
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
    let mut found = Found::default();
    for path in files {
        for path in documents::expand(path)? {
            let name = path.display().to_string();
            let text = documents::slurp(&path).map_err(|source| ReadError::File { path: name.clone(), source })?;
            found.add_text(&name, &text);
        }
    }
    assemble(found, when)
}

/// Reads manifests from a text.
///
/// # Errors
/// What cannot be read, with its place.
pub fn read_text(name: &str, text: &str) -> Result<Manifests, ReadError> {
    let mut found = Found::default();
    found.add_text(name, text);
    assemble(found, When::ordinary())
}

fn assemble(found: Found, when: When) -> Result<Manifests, ReadError> {
    let Found { mut documents, legacy, mut refused } = found;
    if !legacy.is_empty() {
        documents.extend(documents::converted(legacy)?);
    }
    let settings = settings(&documents, when)?;
    let (mut objects, mut workloads) = (ClusterObjects::default(), Makers::default());
    let (mut skipped, mut doubts, mut closed) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut hidden = refused.clone();
    let mut node_classes = Vec::new();
    let mut read = 0;
    // Each goes as soon as it is understood: twice all of them would be too much.
    for (position, mut document) in documents.into_iter().enumerate() {
        let mut meta = Stamp { now: settings.now, position };
        if let Some(mut pod) = document.pod.take() {
            meta.fill(&mut pod.metadata, true);
            objects.pods.push(*pod);
            read += 1;
            continue;
        }
        let repaired = document.without_broken_disruption();
        let document = repaired.as_ref().map_or(&document, |(repaired, why)| {
            closed.insert(document.name(), why.clone());
            repaired
        });
        let is_class = (document.version(), document.kind()) == (Ec2NodeClass::API_VERSION, Ec2NodeClass::KIND);
        let added = if is_class {
            document.parse().map(|class| {
                node_classes.push(class);
                true
            })
        } else {
            add(&mut objects, &mut workloads, document, &mut meta)
        };
        match added {
            Ok(known) => {
                read += 1;
                doubts.extend_from_slice(&document.faults);
                if !known {
                    skipped.push(format!("{} {} {}", document.version(), document.kind(), document.name()));
                }
            }
            Err(fault) => {
                // Faults say the same, and better.
                let said = if document.faults.is_empty() { vec![fault.to_string()] } else { document.faults.clone() };
                // Without it, its own nodes are no candidates.
                let speaks_for_itself = document.version() == NodePool::API_VERSION && ["NodePool", "NodeClaim"].contains(&document.kind());
                if !speaks_for_itself {
                    hidden.extend_from_slice(&said);
                }
                refused.extend(said);
            }
        }
    }
    if read == 0 && !refused.is_empty() {
        return Err(ReadError::Manifest(refused));
    }
    objects.node_classes.clone_from(&node_classes);
    complete(&mut objects, &settings);
    workloads.own(&mut objects.pods);
    objects.sort();
    Ok(Manifests { objects, settings, node_classes, workloads, skipped, refused, hidden, doubts, closed })
}

/// Adds one object; says whether its kind is known.
fn add(objects: &mut ClusterObjects, workloads: &mut Makers, document: &Document, stamp: &mut Stamp) -> Result<bool, ReadError> {
    macro_rules! push {
        ($list:ident, $namespaced:expr) => {{
            let mut object = document.parse()?;
            push_with(&mut objects.$list, &mut object, $namespaced, stamp);
            objects.$list.push(object);
        }};
    }
    let (version, kind) = (document.version(), document.kind());
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
        _ => return workloads.add(document, stamp),
    }
    Ok(true)
}

/// Fills in metadata that the API server would have set.
pub(super) struct Stamp {
    now: Timestamp,
    position: usize,
}

impl Stamp {
    pub(super) fn fill(&self, meta: &mut ObjectMeta, namespaced: bool) {
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
    let mut out = Settings {
        now,
        preferences: PreferencePolicy::Respect,
        min_values: MinValuesPolicy::Strict,
        objective: Objective::default(),
        machine_cost: MACHINE_COST,
        gates: BTreeMap::new(),
        default_spread: Vec::new(),
    };
    let found = documents.iter().find(|d| d.kind() == "ConfigMap" && d.name() == "plan-settings");
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
    if let Some(word) = text("objective") {
        out.objective = word.parse().map_err(|_| wrong("objective", word, "use cheapest, balanced or fewest"))?;
    }
    if let Some(cost) = text("machineCost") {
        out.machine_cost = machine_cost(&cost).map_err(|_| wrong("machineCost", cost, "write dollars per hour, such as 0.05"))?;
    }
    if let Some(config) = text("schedulerConfig") {
        out.default_spread = default_spread(&config)?;
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
    complete_whole(pod);
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

/// A limit of the whole pod is its request where no container asks for the resource.
fn complete_whole(pod: &mut Pod) {
    let Some(whole) = &mut pod.spec.resources else { return };
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers).filter_map(|c| c.resources.as_ref());
    let asked: BTreeSet<&String> = containers.flat_map(|r| r.requests.0.keys()).collect();
    for (name, amount) in whole.limits.0.iter().filter(|(name, _)| !asked.contains(name)) {
        whole.requests.0.entry(name.clone()).or_insert(*amount);
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

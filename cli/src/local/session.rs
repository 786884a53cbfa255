//! A running simulation and user actions.

use super::kinds;
use super::wiring::Handlers;
use crate::source::files::{self, File, FileError};
use crate::source::{acceptance, immutable, served};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use whittle_api::aws_auth;
use whittle_api::k8s::{ConfigMap, DaemonSet, Deployment};
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_api::legacy::{self, ConvertOptions, Purpose};
use whittle_api::manifest::{self, ClusterConfig, Located, ManifestError, Object};
use whittle_ports::{Batching, Mode, Settings};
use whittle_sim::cluster::{Applied, NodeGroup, Objects};
use whittle_sim::{Functions, LineKind, Simulation, World, WorldOptions};
use whittle_units::InstanceId;

/// The ConfigMap that says which roles' nodes may join.
const AWS_AUTH: &str = "aws-auth";
/// Every simulated year begins on this Monday.
const START: &str = "2026-01-05T09:00:00Z";

/// An impossible user request. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    File(#[from] FileError),
    /// All errors of a file.
    #[error("{}", .0.join("\n"))]
    Manifest(Vec<String>),
    #[error(transparent)]
    Missing(#[from] whittle_sim::cluster::NoSuchObject),
    #[error("{0}")]
    Refused(String),
}

/// What the files of a session can change.
#[derive(Debug)]
pub struct Checkpoint {
    objects: Objects,
    groups: BTreeMap<String, NodeGroup>,
    legacy: BTreeMap<String, Object>,
    templates: BTreeMap<String, (u64, u32)>,
}

/// The world and its user.
pub struct Session {
    pub simulation: Simulation,
    handlers: Arc<Handlers>,
    /// Legacy objects as they were applied: they are converted together, since pools and classes depend on each other.
    legacy: BTreeMap<String, Object>,
    variables: BTreeMap<String, String>,
    /// Of the templates of Deployments as they were written: a digest, and how often what no type reads has changed.
    templates: BTreeMap<String, (u64, u32)>,
}

/// What EC2 can run out of. What is empty is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
}

/// The cluster and region of a session.
#[derive(Clone, Debug)]
pub struct Place {
    pub cluster: String,
    pub region: String,
    pub kubernetes_version: String,
    pub seed: u64,
}

impl Default for Place {
    fn default() -> Self {
        Self { cluster: "demo".to_owned(), region: "us-east-1".to_owned(), kubernetes_version: "1.33".to_owned(), seed: 1 }
    }
}

impl Place {
    /// Applies an eksctl file; fields that it omits stay as they are.
    pub fn describe(&mut self, config: &ClusterConfig) {
        let fill = |field: &mut String, text: &String| {
            if !text.is_empty() {
                field.clone_from(text);
            }
        };
        fill(&mut self.cluster, &config.metadata.name);
        fill(&mut self.region, &config.metadata.region);
        fill(&mut self.kubernetes_version, &config.metadata.version);
    }
}

impl Session {
    /// A new world with Whittle installed and enabled.
    pub fn new(place: &Place) -> Self {
        Self::with_functions(place, |handlers| handlers)
    }

    /// The same with functions that `wrap` makes of the usual ones.
    pub fn with_functions(place: &Place, wrap: impl FnOnce(Arc<Handlers>) -> Arc<dyn Functions>) -> Self {
        let start: Timestamp = START.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let options = WorldOptions {
            seed: place.seed,
            cluster: place.cluster.as_str().into(),
            region: place.region.clone(),
            kubernetes_version: place.kubernetes_version.clone(),
            start,
        };
        let profile = format!("KarpenterNodeInstanceProfile-{}", place.cluster);
        let settings = Settings {
            default_instance_profile: Some(profile),
            relay_secrets: vec!["simulated".to_owned()],
            clusters: vec![place.cluster.as_str().into()],
            batching: Batching::STANDARD,
            ..Settings::default()
        };
        let handlers = Arc::new(Handlers::new(settings));
        let simulation = Simulation::new(World::new(&options), wrap(Arc::clone(&handlers)));
        simulation.world().switch_on();
        let account = "000000000000".to_owned();
        let partition = simulation.world().region.partition().to_owned();
        let variables = [
            ("CLUSTER_NAME", place.cluster.clone()),
            ("AWS_DEFAULT_REGION", place.region.clone()),
            ("AWS_REGION", place.region.clone()),
            ("AWS_ACCOUNT_ID", account),
            ("AWS_PARTITION", partition),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { simulation, handlers, legacy: BTreeMap::new(), variables, templates: BTreeMap::new() }
    }

    /// The settings of the functions.
    pub fn settings(&self) -> Settings {
        self.handlers.settings()
    }
    /// Changes the settings of the functions.
    pub fn set(&self, settings: Settings) {
        self.simulation.world().is_shadow = settings.is_shadow();
        self.handlers.set(settings);
    }

    /// Sets the mode of the whole installation.
    pub fn set_mode(&self, mode: Mode) {
        self.set(Settings { mode, ..self.settings() });
    }

    /// The time of the simulation.
    pub fn now(&self) -> Timestamp {
        self.simulation.world().now()
    }

    /// Applies a file: all of it, or nothing if it has an error.
    pub fn apply_file(&mut self, path: &Path) -> Result<Vec<String>, SessionError> {
        let text = files::text(path)?;
        self.apply_text(&files::shown(path), &text)
    }

    /// Applies several files: all of them, or nothing if one has an error. Every error of every file is reported, also why it could
    /// not be read.
    pub fn apply_files(&mut self, files: &[Result<File, String>]) -> Result<Vec<String>, SessionError> {
        let (mut objects, mut errors) = (Vec::new(), Vec::new());
        for file in files {
            let parsed = file
                .as_ref()
                .map_err(String::clone)
                .and_then(|file| parse(&file.name, &file.text, &self.variables).map_err(|error| error.to_string()));
            match parsed {
                Ok(mut parsed) => objects.append(&mut parsed),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(SessionError::Manifest(errors));
        }
        if objects.is_empty() {
            return Err(SessionError::Refused("no objects passed to apply".to_owned()));
        }
        self.apply_objects(objects)
    }

    /// What files change, to undo it: objects, node groups, and what was applied in old versions.
    pub fn checkpoint(&self) -> Checkpoint {
        let cluster = &self.simulation.world().cluster;
        Checkpoint {
            objects: cluster.objects.clone(),
            groups: cluster.groups.clone(),
            legacy: self.legacy.clone(),
            templates: self.templates.clone(),
        }
    }

    /// Undoes what files changed since.
    pub fn restore(&mut self, checkpoint: Checkpoint) {
        let Checkpoint { objects, groups, legacy, templates } = checkpoint;
        (self.legacy, self.templates) = (legacy, templates);
        let cluster = &mut self.simulation.world().cluster;
        (cluster.objects, cluster.groups) = (objects, groups);
    }

    /// Applies manifests. Returns kubectl's lines.
    pub fn apply_text(&mut self, name: &str, text: &str) -> Result<Vec<String>, SessionError> {
        let objects = parse(name, text, &self.variables)?;
        self.apply_objects(objects)
    }

    fn apply_objects(&mut self, mut located: Vec<Located<Object>>) -> Result<Vec<String>, SessionError> {
        let refused: Vec<String> = located.iter().flat_map(|one| self.refused_change(&one.value)).collect();
        if !refused.is_empty() {
            return Err(SessionError::Manifest(refused));
        }
        located.iter_mut().for_each(|one| self.revise(one));
        let objects = located.into_iter().map(|one| one.value);
        let (old, new): (Vec<Object>, Vec<Object>) = objects.partition(|object| matches!(object, Object::Legacy(_)));
        let mut messages = self.apply_legacy(old)?;
        let mut world = self.simulation.world();
        let now = world.now();
        for object in new {
            let label = label(&object);
            let note = match &object {
                Object::ClusterConfig(config) => another_cluster(&world, config),
                Object::ConfigMap(map) if map.metadata.name == AWS_AUTH => aws_auth_faults(map),
                Object::StatefulSet(_) | Object::ReplicaSet(_) => Some(unsimulated_pods(&object)),
                Object::Unknown { api_version, kind, name, .. } => {
                    served::warning(api_version, kind, name).map(|warning| format!("warning: {warning}"))
                }
                _ => None,
            };
            let applied = world.cluster.apply(object, now);
            messages.push(format!("{label} {}", applied.word()));
            messages.extend(note);
        }
        world.touch_cluster();
        Ok(messages)
    }

    /// Why a server would not change an object to this one: fields that stay as they are.
    fn refused_change(&self, new: &Object) -> Vec<String> {
        let world = self.simulation.world();
        let objects = &world.cluster.objects;
        let key = new.key();
        let old = match new {
            Object::NodePool(_) => objects.node_pools.get(&key).and_then(|old| serde_json::to_value(old).ok()),
            Object::NodeClass(_) => objects.node_classes.get(&key).and_then(|old| serde_json::to_value(old).ok()),
            Object::Deployment(_) => objects.deployments.get(&namespaced(&key)).and_then(|old| serde_json::to_value(old).ok()),
            Object::DaemonSet(_) => objects.daemon_sets.get(&namespaced(&key)).and_then(|old| serde_json::to_value(old).ok()),
            Object::StatefulSet(_) => objects.stateful_sets.get(&namespaced(&key)).and_then(|old| serde_json::to_value(old).ok()),
            _ => None,
        };
        let (Some(old), Some(json)) = (old, new.to_json()) else { return Vec::new() };
        let (api_version, kind) = new.type_meta();
        let of_change = immutable::refused_change(api_version, kind, &old, &json).into_iter();
        of_change.map(|error| format!("{kind} {key:?}, {error}")).collect()
    }

    /// Pods are made of what decisions read of a template. Where the rest has changed, such as an image, an annotation makes it another
    /// one.
    fn revise(&mut self, located: &mut Located<Object>) {
        let Object::Deployment(deployment) = &mut located.value else { return };
        let key = namespaced(&deployment.metadata.key());
        if !self.simulation.world().cluster.objects.deployments.contains_key(&key) {
            self.templates.remove(&key);
        }
        let Some(digest) = located.template.or_else(|| self.templates.get(&key).map(|(digest, _)| *digest)) else { return };
        let (known, revision) = self.templates.entry(key).or_insert((digest, 0));
        *revision += u32::from(*known != digest);
        *known = digest;
        if 0 < *revision {
            deployment.spec.template.metadata.annotations.insert(REVISION.to_owned(), revision.to_string());
        }
    }

    /// Keeps legacy objects as applied, and creates the converted objects in the cluster.
    fn apply_legacy(&mut self, objects: Vec<Object>) -> Result<Vec<String>, SessionError> {
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let mut all = self.legacy.clone();
        let mut messages = Vec::new();
        for object in objects {
            let label = label(&object);
            let applied = match self.legacy.get(&label) {
                None => Applied::Created,
                Some(known) if *known == object => Applied::Unchanged,
                Some(_) => Applied::Configured,
            };
            messages.push(format!("{label} {}", applied.word()));
            all.insert(label, object);
        }
        let options = ConvertOptions {
            default_instance_profile: self.settings().default_instance_profile,
            default_role: self.settings().default_node_role,
            ..ConvertOptions::new(Purpose::OnRead)
        };
        let converted = legacy::convert(all.values().cloned().collect(), &options);
        if !converted.errors.is_empty() {
            return Err(SessionError::Manifest(converted.errors.iter().map(ToString::to_string).collect()));
        }
        self.legacy = all;
        let mut world = self.simulation.world();
        let now = world.now();
        for object in converted.objects {
            world.cluster.apply(object, now);
        }
        world.touch_cluster();
        Ok(messages)
    }

    /// Deletes everything that a file names.
    pub fn delete_file(&mut self, path: &Path) -> Result<Vec<String>, SessionError> {
        let text = files::text(path)?;
        self.delete_text(&files::shown(path), &text)
    }

    /// Deletes everything that a manifest names.
    pub fn delete_text(&mut self, name: &str, text: &str) -> Result<Vec<String>, SessionError> {
        let mut messages = Vec::new();
        for (kind, key) in self.named_in(name, text)? {
            self.delete(&kind, &key)?;
            messages.push(format!("{kind}/{key} deleted"));
        }
        Ok(messages)
    }

    /// Kind and key of everything that a manifest names.
    pub fn named_in(&self, name: &str, text: &str) -> Result<Vec<(String, String)>, SessionError> {
        let objects = parse(name, text, &self.variables)?;
        Ok(objects.iter().map(|object| (object.value.type_meta().1.to_lowercase(), object.value.key())).collect())
    }

    /// Whether an object can be deleted: it is there, and of a kind that can go.
    pub fn can_delete(&self, kind: &str, name: &str) -> Result<(), SessionError> {
        self.remove(kind, name, None)
    }

    /// Deletes one object, in kubectl's notation.
    pub fn delete(&mut self, kind: &str, name: &str) -> Result<(), SessionError> {
        self.remove(kind, name, Some(self.now()))?;
        self.simulation.world().touch_cluster();
        // Or it would be there again with the next object from before v1.
        let label = format!("{}/{name}", kinds::find(kind).map_err(SessionError::Refused)?.singular());
        self.legacy.retain(|known, _| *known != label);
        Ok(())
    }

    fn remove(&self, kind: &str, name: &str, now: Option<Timestamp>) -> Result<(), SessionError> {
        let entry = kinds::find(kind).map_err(SessionError::Refused)?;
        let Some(access) = entry.access else {
            return Err(SessionError::Refused(format!("{} cannot be deleted here: nothing would follow from it", entry.plural)));
        };
        let key = if entry.namespaced { namespaced(name) } else { name.to_owned() };
        Ok((access.remove)(&mut self.simulation.world().cluster, &key, now)?)
    }

    /// Deletes an object as `kubectl delete --cascade=foreground` does: a pool after its last node, a workload after its last pod.
    pub fn delete_in_foreground(&mut self, kind: &str, name: &str) -> Result<(), SessionError> {
        let now = self.now();
        let mut world = self.simulation.world();
        let cluster = &mut world.cluster;
        match kinds::find(kind).map_err(SessionError::Refused)?.kind {
            "NodePool" => cluster.remove_in_foreground::<NodePool>(name, now)?,
            "Provisioner" => cluster.remove_in_foreground::<NodePool>(&format!("Provisioner/{name}"), now)?,
            "Deployment" => cluster.remove_in_foreground::<Deployment>(&namespaced(name), now)?,
            "DaemonSet" => cluster.remove_in_foreground::<DaemonSet>(&namespaced(name), now)?,
            _ => {
                let text = format!(
                    "{kind:?} owns nothing that could go first: name a nodepool, a provisioner, a deployment or a daemonset, or leave out \
                     the cascade"
                );
                return Err(SessionError::Refused(text));
            }
        }
        world.touch_cluster();
        drop(world);
        self.legacy.retain(|label, _| label != &format!("provisioner/{name}") || kind.starts_with("nodepool"));
        Ok(())
    }

    /// Whether a Deployment can have this number of replicas: it is there, and they are not too many.
    pub fn can_scale(&self, deployment: &str, replicas: i32) -> Result<(), SessionError> {
        if let Some(fault) = acceptance::replicas_fault(replicas, acceptance::SIMULATED_MAX) {
            return Err(SessionError::Refused(format!("deployment {deployment:?}: {fault}")));
        }
        Ok(self.simulation.world().cluster.known::<Deployment>(&namespaced(deployment))?)
    }

    /// Changes the replicas of a Deployment.
    pub fn scale(&mut self, deployment: &str, replicas: i32) -> Result<(), SessionError> {
        self.can_scale(deployment, replicas)?;
        let mut world = self.simulation.world();
        world.cluster.scale(&namespaced(deployment), replicas)?;
        world.touch_cluster();
        Ok(())
    }

    /// Sends a spot interruption warning for the machine of a Node.
    pub fn interrupt(&mut self, node: &str) -> Result<InstanceId, SessionError> {
        let id = self.machine_of(node)?;
        let mut world = self.simulation.world();
        let capacity_type = world.region.machines.get(&id).map(|machine| machine.instance.capacity_type.clone()).unwrap_or_default();
        if capacity_type != labels::CAPACITY_SPOT {
            let text = format!("EC2 takes back spot machines only, and node {node} is {capacity_type}: name a node of capacity type spot");
            return Err(SessionError::Refused(text));
        }
        let notice = world.take_back(&id);
        let notice = notice.ok_or_else(|| SessionError::Refused(format!("machine {id} of node {node} does not run any more")))?;
        world.notice(notice);
        Ok(id)
    }

    /// EC2 runs out of a type, or has it again; what happened, as a sentence.
    pub fn set_stock(&mut self, pool: &Pool, available: bool) -> Result<String, SessionError> {
        let Pool { instance_type, zone, capacity_type } = pool;
        let mut world = self.simulation.world();
        let region = &mut world.region;
        let unknown = |what: &str, name: &str| {
            SessionError::Refused(format!("there is no {what} {name:?} in {}: `ec2 show types` lists what EC2 has", region.name()))
        };
        if !instance_type.is_empty() && !region.catalog.offered.contains_key(instance_type) {
            return Err(unknown("instance type", instance_type));
        }
        if !zone.is_empty() && !region.catalog.zones.iter().any(|known| known.name == *zone) {
            return Err(unknown("zone", zone));
        }
        let or = |text: &str, all: &str| if text.is_empty() { all } else { text }.to_owned();
        let capacity = if capacity_type.is_empty() { String::new() } else { format!(" ({capacity_type})") };
        let what = format!("{}{capacity} in {}", or(instance_type, "all types"), or(zone, "all zones"));
        let key = (or(instance_type, "*"), or(zone, "*"), or(capacity_type, "*"));
        if !available {
            region.out_of_stock.insert(key);
        } else if !region.out_of_stock.remove(&key) {
            return Err(SessionError::Refused(format!(
                "EC2 has not run out of {what}: `ec2 show stock-outs` lists what it has run out of"
            )));
        }
        drop(world);
        let text = if available { format!("EC2 has {what} again") } else { format!("EC2 runs out of {what}") };
        self.log(&text);
        Ok(text)
    }

    /// The machine of a Node that EC2 knows, or that has this id.
    pub fn machine_of(&self, node: &str) -> Result<InstanceId, SessionError> {
        let world = self.simulation.world();
        let id = InstanceId::new(node);
        if world.region.machines.contains_key(&id) {
            return Ok(id);
        }
        let found = world.cluster.objects.nodes.get(node);
        let Some(found) = found else {
            let known: Vec<&str> = world.cluster.objects.nodes.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "there is none".to_owned() } else { format!("there are: {}", known.join(", ")) };
            return Err(SessionError::Refused(format!("there is no node {node:?}; {known}")));
        };
        let id = found.spec.provider_id.rsplit('/').next().map(InstanceId::new).unwrap_or_default();
        if world.region.machines.contains_key(&id) {
            return Ok(id);
        }
        Err(SessionError::Refused(format!("node {node} is not Whittle's: the simulated EC2 does not know its machine")))
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: SignedDuration) {
        self.simulation.run_for(span);
    }

    /// Adds a line to the timeline.
    pub fn log(&self, text: &str) {
        self.simulation.log(LineKind::Step, text);
    }
}

/// What is wrong with the map of roles whose nodes may join. Nodes of the simulation join without it.
fn aws_auth_faults(map: &ConfigMap) -> Option<String> {
    let faults = aws_auth::diagnose(map).faults;
    let mut lines: Vec<String> = faults.iter().map(|fault| format!("warning: ConfigMap {:?}, {fault}", map.metadata.key())).collect();
    lines.extend(
        (!faults.is_empty()).then(|| "nodes of the simulation join all the same, as those of a role with an access entry do".to_owned()),
    );
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// That a workload is kept, for buffers that copy its pods, and makes none.
fn unsimulated_pods(object: &Object) -> String {
    let (_, kind) = object.type_meta();
    format!("note: pods of {kind}s are not simulated: `whittle plan -f FILE` plans them, and a Deployment runs them here")
}

/// How often what no decision reads of a template has changed.
const REVISION: &str = "whittle.dev/template-revision";

/// `x` means `default/x`.
fn namespaced(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("default/{name}") }
}

/// A remark about an eksctl file that describes another cluster than this one.
fn another_cluster(world: &World, config: &ClusterConfig) -> Option<String> {
    let mut own = Place::default();
    (own.cluster, own.region) = (world.name().to_string(), world.region.name().to_owned());
    own.kubernetes_version.clone_from(&world.cluster.version);
    let mut described = own.clone();
    described.describe(config);
    let differs =
        (&own.cluster, &own.region, &own.kubernetes_version) != (&described.cluster, &described.region, &described.kubernetes_version);
    let Place { cluster, region, kubernetes_version, .. } = described;
    let own = format!("{} in {} with Kubernetes {}", own.cluster, own.region, own.kubernetes_version);
    let applied =
        if config.managed_node_groups.is_empty() { "it has no managed node groups to apply" } else { "its node groups are applied" };
    differs.then(|| {
        format!(
            "warning: {applied}; the cluster stays {own}: start `whittle local --cluster {cluster} --region {region} \
             --kubernetes-version {kubernetes_version}` for the one that it describes"
        )
    })
}

fn label(object: &Object) -> String {
    let (_, kind) = object.type_meta();
    format!("{}/{}", kind.to_lowercase(), object.key())
}

/// Substitutes the variables of the seeds' shell commands and parses the objects.
pub fn parse(name: &str, text: &str, variables: &BTreeMap<String, String>) -> Result<Vec<Located<Object>>, SessionError> {
    let mut text = text.to_owned();
    for (variable, value) in variables {
        text = text.replace(&format!("${{{variable}}}"), value);
    }
    let refuse = |errors: Vec<ManifestError>| SessionError::Manifest(errors.iter().map(ToString::to_string).collect());
    let objects = manifest::read(name, &text).map_err(refuse)?;
    let errors: Vec<ManifestError> = objects.iter().flat_map(|object| acceptance::faults(object, acceptance::SIMULATED_MAX)).collect();
    if errors.is_empty() { Ok(objects) } else { Err(refuse(errors)) }
}

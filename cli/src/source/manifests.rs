//! Converts documents to the objects of a cluster.

use super::budgets;
use super::complete::complete;
use super::documents::{self, Document, ParsedDocuments};
use super::drift::ChangedTemplates;
use super::ephemeral;
use super::error::ReadError;
use super::expansion::{Added, Replicas, differs};
use super::files;
use super::hooks;
use super::identity::{Identity, tell_apart};
use super::immutable;
use super::limit_ranges::LimitRanges;
use super::remarks::Remark;
use super::replacement::{Layer, replace};
use super::served;
use super::settings::{Settings, When, settings};
use super::stateful::Storage;
use super::workloads::WorkloadManifests;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use whittle_api::k8s::{DaemonSet, Kind, Pod, PodSpec};
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_units::{SignedDuration, Timestamp};

/// Where objects of files are created that name no namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Manifests with all defaults filled in.
#[derive(Clone, Debug)]
pub struct Manifests {
    pub objects: ClusterObjects,
    pub settings: Settings,
    /// Used only without a catalog file.
    pub node_classes: Vec<Ec2NodeClass>,
    /// Services, workloads and capacity buffers.
    pub workloads: WorkloadManifests,
    /// Texts of remarks that are notes: which objects count instead of others, and what became of workloads whose pods are not among the
    /// manifests.
    pub notes: Vec<String>,
    /// Their pods, by namespace and name.
    pub added: Added,
    /// Objects of kinds that have no effect.
    pub skipped: Vec<String>,
    /// Those of them whose kind is misspelt.
    pub misspelt: Vec<String>,
    /// Unreadable objects, with the reason. They are ignored.
    pub refused: Vec<String>,
    /// Those of them that may protect pods or nodes, or constrain where pods run: without them nothing can be disrupted safely.
    pub blocks_disruption: Vec<String>,
    /// Validation errors that the API server would report for NodePools that are still readable.
    pub warnings: Vec<String>,
    /// What was said about the input.
    pub remarks: Vec<Remark>,
    /// NodePools with an unreadable `spec.disruption`, which is ignored, and the reason.
    pub unreadable_disruption: BTreeMap<String, String>,
    /// NodePools that are left out since another controller manages them, and what there is to say of each.
    pub others: BTreeMap<String, String>,
    /// NodeClaims of machines that the built-in tables do not have: EC2 has what runs, so that this is no drift.
    pub unlisted: BTreeSet<String>,
}

/// Whether workloads get the pods that are not among the manifests.
#[derive(Clone, Copy, Debug)]
pub enum Expansion<'a> {
    /// No: the manifests have all pods of a cluster.
    Off,
    /// Yes, with these numbers of replicas instead of their own.
    Missing(&'a [Replicas]),
}

/// Reads files, directories and standard input.
///
/// # Errors
/// Unreadable input, with its position.
pub fn read(files: &[PathBuf], when: When, expansion: Expansion<'_>) -> Result<Manifests, ReadError> {
    read_over(None, files, when, expansion)
}

/// The same, over the objects of a cluster: those of the files count instead of those of the same names.
///
/// # Errors
/// Unreadable input, with its position.
pub(crate) fn read_over(
    cluster: Option<ParsedDocuments>,
    files: &[PathBuf],
    when: When,
    expansion: Expansion<'_>,
) -> Result<Manifests, ReadError> {
    Layers::read(cluster, files, &[])?.assemble(when, expansion)
}

/// Documents of a cluster and of files over it, and changed ones over both.
pub(super) struct Layers {
    all: ParsedDocuments,
    /// Which objects count instead of others.
    notes: Vec<String>,
    /// Those without the changed ones, if any are changed.
    unchanged: Option<ParsedDocuments>,
    /// Whether some of the changed ones are refused.
    change_is_refused: bool,
}

impl Layers {
    /// Reads files; those of `changed` count instead of those of `files` and of the cluster.
    ///
    /// # Errors
    /// Unreadable input, with its position.
    pub(super) fn read(cluster: Option<ParsedDocuments>, files: &[PathBuf], changed: &[PathBuf]) -> Result<Self, ReadError> {
        files::only_one_stdin(files.iter().chain(changed))?;
        let (mut all, mut notes) = parsed(files, cluster.is_some())?;
        if let Some(cluster) = cluster {
            notes.extend(replace(cluster, &mut all, Layer::Files));
        }
        if changed.is_empty() {
            return Ok(Self { all, notes, unchanged: None, change_is_refused: false });
        }
        let (mut over, without) = parsed(changed, false)?;
        notes.extend(without);
        notes.extend(tell_apart(&mut over, true));
        notes.extend(set_aside(&mut over));
        notes.extend(immutable::set_aside(&all, &mut over));
        over.documents.iter_mut().for_each(|document| document.changed = true);
        let (unchanged, change_is_refused) = (Some(all.clone()), !over.refused.is_empty());
        notes.extend(replace(all, &mut over, Layer::Changed));
        Ok(Self { all: over, notes, unchanged, change_is_refused })
    }

    /// Whether objects of --changed are refused, so that what is left of it is another change.
    pub(super) const fn change_is_refused(&self) -> bool {
        self.change_is_refused
    }

    /// The same without the changed objects, if any are.
    pub(super) fn without_changes(&mut self) -> Option<Self> {
        self.unchanged.take().map(|all| Self { all, notes: Vec::new(), unchanged: None, change_is_refused: false })
    }

    /// The objects.
    ///
    /// # Errors
    /// Documents of which none can be used.
    pub(super) fn assemble(self, when: When, expansion: Expansion<'_>) -> Result<Manifests, ReadError> {
        let mut manifests = assemble(self.all, when, expansion)?;
        manifests.notes.splice(0..0, self.notes);
        Ok(manifests)
    }
}

/// Takes away the documents that a server would refuse, or does not serve: applied, they would change nothing. Returns notes.
fn set_aside(found: &mut ParsedDocuments) -> Vec<String> {
    let (mut notes, mut refused) = (Vec::new(), Vec::new());
    found.documents.retain(|document| {
        let alone = ParsedDocuments { documents: vec![document.clone()], ..ParsedDocuments::default() };
        let faults = match assemble(alone, When::golden_default(), Expansion::Off) {
            Ok(read) if !read.misspelt.is_empty() => {
                notes.extend(read.misspelt);
                return false;
            }
            Ok(read) if !read.skipped.is_empty() => {
                notes.extend(read.skipped.iter().map(|skipped| format!("{skipped} of --changed is of a kind that changes nothing here")));
                return false;
            }
            Ok(read) => [read.refused, read.warnings].concat(),
            Err(ReadError::Manifest(faults)) => faults,
            // The error is about settings, and is reported where all of them are read.
            Err(_) => return true,
        };
        if !faults.is_empty() {
            let shown = document.identity().map(|identity| identity.shown()).unwrap_or_default();
            notes.push(format!("{shown} of --changed is refused, and changes nothing"));
        }
        let keeps = faults.is_empty();
        refused.extend(faults);
        keeps
    });
    found.refused.append(&mut refused);
    notes
}

/// The documents of files, a line for each file that has none, and what is said of hooks among them. Where `may_be_none`, no files need be
/// named.
fn parsed(files: &[PathBuf], may_be_none: bool) -> Result<(ParsedDocuments, Vec<String>), ReadError> {
    let (mut found, mut without) = (ParsedDocuments::default(), Vec::new());
    for file in files::read_all(files, &mut std::io::stdin()) {
        let file = file?;
        let before = found.len();
        found.add_text(&file.name, &file.text);
        if found.len() == before {
            without.push(format!("{} has no object: nothing of it is read", file.name));
        }
    }
    if found.is_empty() && !(may_be_none && files.is_empty()) {
        return Err(ReadError::NoObjects(files.iter().map(|path| files::named(path)).collect()));
    }
    without.extend(hooks::set_aside(&mut found));
    Ok((found, without))
}

impl Manifests {
    /// Leaves out the pods that were added for workloads.
    pub(crate) fn remove_added(&mut self) {
        let added = std::mem::take(&mut self.added.missing);
        self.objects.pods.retain(|pod| !added.contains(&pod.metadata.key()));
    }
}

/// Reads manifests from a text.
///
/// # Errors
/// Unreadable input, with its position.
pub fn read_text(name: &str, text: &str) -> Result<Manifests, ReadError> {
    let mut found = ParsedDocuments::default();
    found.add_text(name, text);
    assemble(found, When::golden_default(), Expansion::Off)
}

/// Reads JSON documents as objects that a cluster has: it accepted them, however odd they are.
#[cfg(test)]
pub(crate) fn read_stored(text: &str) -> Result<Manifests, ReadError> {
    let items: Vec<serde_json::Value> =
        text.split("\n---\n").map(|document| serde_json::from_str(document).expect("JSON documents")).collect();
    let mut found = ParsedDocuments::default();
    found.add_live("stored", serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}));
    assemble(found, When::golden_default(), Expansion::Off)
}

fn assemble(mut found: ParsedDocuments, when: When, expansion: Expansion<'_>) -> Result<Manifests, ReadError> {
    let repeated = tell_apart(&mut found, false);
    let ParsedDocuments { mut documents, legacy, refused } = found;
    if !legacy.is_empty() {
        documents.extend(documents::converted(legacy)?);
    }
    let mut manifests = Manifests::without_objects(settings(&documents, when)?, refused);
    manifests.skipped.extend(repeated);
    let consequences = Consequences::of(&documents);
    let mut is_any_read = false;
    // Each document is dropped as soon as it is parsed: holding all of them twice would take too much memory.
    for (position, document) in documents.into_iter().enumerate() {
        let defaults = MetadataDefaults { now: manifests.settings.now, position };
        is_any_read |= manifests.add(document, &defaults, expansion);
    }
    if !is_any_read && !manifests.refused.is_empty() {
        return Err(ReadError::Manifest(manifests.refused));
    }
    manifests.finish(expansion, &consequences)?;
    Ok(manifests)
}

impl Manifests {
    /// Those of no documents yet but such as cannot be used.
    fn without_objects(settings: Settings, refused: Vec<String>) -> Self {
        Self {
            objects: ClusterObjects::default(),
            settings,
            node_classes: Vec::new(),
            workloads: WorkloadManifests::default(),
            notes: Vec::new(),
            added: Added::default(),
            skipped: Vec::new(),
            misspelt: Vec::new(),
            blocks_disruption: refused.clone(),
            refused,
            warnings: Vec::new(),
            remarks: Vec::new(),
            unreadable_disruption: BTreeMap::new(),
            others: BTreeMap::new(),
            unlisted: BTreeSet::new(),
        }
    }

    /// Adds the object of a document, or why it is refused. Returns whether it could be read.
    fn add(&mut self, mut document: Document, defaults: &MetadataDefaults, expansion: Expansion<'_>) -> bool {
        if let Some(pod) = take_pod(&mut document, defaults) {
            self.objects.pods.push(pod);
            return true;
        }
        let repaired = document.without_unreadable_disruption();
        let document = repaired.as_ref().map_or(&document, |(repaired, why)| {
            self.unreadable_disruption.insert(document.name(), why.clone());
            repaired
        });
        match self.add_object(document, defaults) {
            Ok(is_known) => {
                self.warnings.extend_from_slice(&document.faults);
                if !is_known {
                    self.tell_unread(document, expansion);
                }
                true
            }
            Err(error) => {
                self.refuse(document, error);
                false
            }
        }
    }

    /// Adds one object; returns whether its kind is known.
    fn add_object(&mut self, document: &Document, defaults: &MetadataDefaults) -> Result<bool, ReadError> {
        let Self { objects, node_classes, workloads, .. } = self;
        macro_rules! push {
            ($list:ident) => {{
                let mut object = document.accepted()?;
                defaults.fill_object(&mut object);
                objects.$list.push(object);
            }};
        }
        match (document.version(), document.kind()) {
            ("karpenter.k8s.aws/v1", "EC2NodeClass") => node_classes.push(document.parse()?),
            ("karpenter.sh/v1", "NodePool") => push!(node_pools),
            ("karpenter.sh/v1", "NodeClaim") => push!(node_claims),
            ("karpenter.sh/v1alpha1", "NodeOverlay") => push!(node_overlays),
            ("v1", "Pod") => push!(pods),
            ("v1", "Node") => push!(nodes),
            ("apps/v1", "DaemonSet") => push!(daemon_sets),
            ("v1", "PersistentVolumeClaim") => push!(volume_claims),
            ("v1", "PersistentVolume") => push!(volumes),
            ("storage.k8s.io/v1", "StorageClass") => push!(storage_classes),
            ("storage.k8s.io/v1", "CSINode") => push!(csi_nodes),
            ("v1", "Namespace") => push!(namespaces),
            ("policy/v1", "PodDisruptionBudget") => push!(disruption_budgets),
            ("scheduling.k8s.io/v1", "PriorityClass") => push!(priority_classes),
            ("v1", "ConfigMap") => push!(config_maps),
            _ => return workloads.add(document, defaults),
        }
        Ok(true)
    }

    /// Tells that a document is of a kind that is not read, which may be misspelt, or may make pods that a plan lacks.
    fn tell_unread(&mut self, document: &Document, expansion: Expansion<'_>) {
        let (version, kind, name) = (document.version(), document.kind(), document.shown_name());
        match served::warning(version, kind, &name) {
            Some(warning) => self.misspelt.push(warning),
            None if matches!(expansion, Expansion::Missing(_)) && self.workloads.unplanned.add(document) => {}
            None => self.skipped.push(format!("{version} {kind} {name}")),
        }
    }

    /// Tells why a document is refused, and whether that blocks disruption.
    fn refuse(&mut self, document: &Document, error: ReadError) {
        // Validation errors are more precise than the parse error.
        let errors = if document.faults.is_empty() { error.lines() } else { document.faults.clone() };
        if !affects_only_itself(document) {
            self.blocks_disruption.extend_from_slice(&errors);
        }
        self.refused.extend(errors);
    }

    /// Adds what a server and controllers would have added: also what became of the workloads, the names of their pods, and which pods a
    /// server would refuse for what it would add.
    fn finish(&mut self, expansion: Expansion<'_>, consequences: &Consequences) -> Result<(), ReadError> {
        let Self { objects, settings, node_classes, workloads, .. } = self;
        objects.node_classes.clone_from(node_classes);
        let is_new = |pod: &&mut Pod| consequences.new_pods.contains(&pod.metadata.key());
        workloads.limit_ranges.admit(objects.pods.iter_mut().filter(is_new));
        let of_daemons = roll_out_daemons(objects, &consequences.changed_daemons, &workloads.limit_ranges);
        let mut unfit = admit_new_daemons(objects, &consequences.new_daemons, workloads);
        let mut storage = Storage::of(objects);
        let (mut notes, added) = match expansion {
            Expansion::Off => workloads.roll_out(&mut objects.pods, &mut storage, settings.now)?,
            Expansion::Missing(asked) => workloads.expand(&mut objects.pods, asked, &mut storage, settings.now)?,
        };
        objects.volume_claims.append(&mut storage.made);
        unfit.extend(workloads.runtime_classes.admit(&mut objects.pods));
        complete(objects, settings);
        ephemeral::claim(objects, &consequences.live_pods);
        workloads.own(&mut objects.pods);
        whittle_snapshot::rename_provisioners(objects);
        objects.sort();
        budgets::observe(objects, workloads, &consequences.budgets);
        notes.extend(consequences.templates.note(objects, settings.now));
        notes.extend(consequences.templates.volume_costs());
        notes.extend(of_daemons);
        self.notes = notes;
        self.added = added;
        self.warnings.extend(unfit);
        Ok(())
    }
}

/// The pod of a document, if it is one.
fn take_pod(document: &mut Document, defaults: &MetadataDefaults) -> Option<Pod> {
    let mut pod = *document.pod.take()?;
    if document.live {
        // The cluster has added what its class said.
        pod.spec.runtime_class_name.clear();
    }
    defaults.fill_object(&mut pod);
    Some(pod)
}

/// Whether only its own nodes are affected where it is refused: without it they are no candidates. A LimitRange is for pods to come.
fn affects_only_itself(document: &Document) -> bool {
    matches!((document.version(), document.kind()), ("v1", "LimitRange") | (NodePool::API_VERSION, "NodePool" | "NodeClaim"))
}

/// What follows in a cluster from documents that it has not seen.
struct Consequences {
    /// The DaemonSets of --changed.
    changed_daemons: BTreeSet<Identity>,
    /// The DaemonSets that no cluster has had.
    new_daemons: BTreeSet<Identity>,
    /// The pods that a cluster has, which has seen them.
    live_pods: BTreeSet<String>,
    /// The pods that no cluster has had: they are created with what admission gives them.
    new_pods: BTreeSet<String>,
    budgets: BTreeSet<String>,
    templates: ChangedTemplates,
}

impl Consequences {
    fn of(documents: &[Document]) -> Self {
        let changed_daemons = daemons(documents, |document| document.changed);
        let new_daemons = daemons(documents, |document| !document.is_of_cluster());
        let budgets = budgets::without_status(documents);
        let live_pods = documents.iter().filter(|document| document.live).filter_map(|document| document.pod.as_ref());
        let live_pods = live_pods.filter(|pod| !pod.is_bound()).map(|pod| pod.metadata.key()).collect();
        let new_pods = documents.iter().filter(|document| !document.is_of_cluster()).filter_map(|document| document.pod.as_ref());
        let new_pods = new_pods.map(|pod| key_when_created(&pod.metadata)).collect();
        Self { changed_daemons, new_daemons, live_pods, new_pods, budgets, templates: ChangedTemplates::among(documents) }
    }
}

/// Namespace and name of an object of a file once it is created.
fn key_when_created(metadata: &ObjectMeta) -> String {
    if metadata.namespace.is_empty() { format!("{DEFAULT_NAMESPACE}/{}", metadata.name) } else { metadata.key() }
}

/// The DaemonSets of some documents.
fn daemons(documents: &[Document], of: impl Fn(&Document) -> bool) -> BTreeSet<Identity> {
    documents.iter().filter(|document| document.kind() == DaemonSet::KIND && of(document)).filter_map(Document::identity).collect()
}

/// Whether a DaemonSet is one of these.
fn is_among(set: &DaemonSet, identities: &BTreeSet<Identity>) -> bool {
    let ObjectMeta { namespace, name, .. } = &set.metadata;
    let identity = Identity::new(DaemonSet::API_VERSION, DaemonSet::KIND, namespace, name.clone());
    identity.is_some_and(|identity| identities.contains(&identity))
}

/// Gives the templates of DaemonSets that no cluster has had what LimitRanges and RuntimeClasses give to their pods: machines are chosen
/// with room for these. Of a DaemonSet that a cluster has, the newest pod counts; before there is one, the functions count the template as
/// it is, as Karpenter does. Returns of which a server would refuse the pods.
fn admit_new_daemons(objects: &mut ClusterObjects, new: &BTreeSet<Identity>, workloads: &mut WorkloadManifests) -> Vec<String> {
    for set in objects.daemon_sets.iter_mut().filter(|set| is_among(set, new)) {
        workloads.limit_ranges.complete(&set.metadata.namespace, &mut set.spec.template.spec);
    }
    workloads.runtime_classes.admit_templates(objects.daemon_sets.iter_mut().filter(|set| is_among(set, new)))
}

/// Gives the pods of changed DaemonSets the template that these have now, as after their rollout, and what LimitRanges give to new pods.
/// Returns notes.
fn roll_out_daemons(objects: &mut ClusterObjects, changed: &BTreeSet<Identity>, limit_ranges: &LimitRanges) -> Vec<String> {
    let mut notes = Vec::new();
    for set in objects.daemon_sets.iter().filter(|set| is_among(set, changed)) {
        let (template, given) = (&set.spec.template, limit_ranges.given_in(&set.metadata.namespace));
        let is_own = |pod: &&mut Pod| {
            let owner = pod.metadata.owner_references.iter().any(|owner| owner.kind == DaemonSet::KIND && owner.name == set.metadata.name);
            owner && pod.metadata.namespace == set.metadata.namespace && differs(pod, template, &given)
        };
        let mut pods = 0;
        for pod in objects.pods.iter_mut().filter(is_own) {
            pod.spec = PodSpec { node_name: std::mem::take(&mut pod.spec.node_name), ..template.spec.clone() };
            limit_ranges.admit([pod]);
            pods += 1;
        }
        if 0 < pods {
            let pods = if pods == 1 { "1 of its pods has".to_owned() } else { format!("{pods} of its pods have") };
            notes.push(format!("DaemonSet {}: as after its rollout: {pods} its new template", set.metadata.key()));
        }
    }
    notes
}

/// Metadata that the API server would have set.
pub(super) struct MetadataDefaults {
    now: Timestamp,
    position: usize,
}

impl MetadataDefaults {
    fn fill_object<K: Kind>(&self, object: &mut K) {
        if K::NAMESPACED { self.fill_namespaced(object.meta_mut()) } else { self.fill(object.meta_mut()) }
    }

    /// That of an object of a kind with namespaces.
    pub(super) fn fill_namespaced(&self, meta: &mut ObjectMeta) {
        if meta.namespace.is_empty() {
            meta.namespace = DEFAULT_NAMESPACE.to_owned();
        }
        self.fill(meta);
    }

    fn fill(&self, meta: &mut ObjectMeta) {
        if meta.uid.is_empty() {
            meta.uid = format!("uid-{:08}", self.position);
        }
        if meta.creation_timestamp.is_none() {
            meta.creation_timestamp = Some(assumed_creation(self.now));
        }
    }
}

/// When an object was created that does not say it, for decisions at `now`.
pub(crate) fn assumed_creation(now: Timestamp) -> Timestamp {
    now - SignedDuration::from_hours(24)
}

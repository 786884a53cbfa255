//! From documents to the objects of a cluster.

use super::complete::complete;
use super::documents::{self, Document, Found};
use super::error::ReadError;
use super::files;
use super::settings::{Settings, When, settings};
use super::workloads::Makers;
use std::collections::BTreeMap;
use std::path::PathBuf;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{Ec2NodeClass, NodePool};
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_units::{SignedDuration, Timestamp};

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

/// Reads files, directories and standard input.
///
/// # Errors
/// What cannot be read, with its place.
pub fn read(files: &[PathBuf], when: When) -> Result<Manifests, ReadError> {
    let mut found = Found::default();
    for path in files {
        for file in files::read(path, &mut std::io::stdin())? {
            found.add_text(&file.name, &file.text);
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

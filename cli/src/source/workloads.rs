//! Services, workloads, RuntimeClasses and capacity buffers: Services and workloads select the pods that spread together (cluster-default
//! spread, scheduling 22), and capacity buffers take the spec of their pods from workloads and templates.

use super::autoscalers::Autoscalers;
use super::documents::Document;
use super::error::ReadError;
use super::expansion::{Added, PodMaker, Replicas, almost_no_memory, expand, very_many_cpus, without_requests};
use super::limit_ranges::{LimitRange, LimitRanges};
use super::manifests::MetadataDefaults;
use super::runtime_classes::RuntimeClasses;
use super::stateful::{Storage, claim_templates};
use super::unplanned::Unplanned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{
    Deployment, Job, Pod, PodSource, PodSourceKind, PodTemplate, ReplicationController, Service, StoredPodTemplate, Workloads,
};
use whittle_api::karpenter::CapacityBuffer;
use whittle_api::{LabelSelector, ObjectMeta};
use whittle_solver::buffers::{Buffer, Unresolved, limit_pods, resolve, source_of};
use whittle_units::Timestamp;

/// Services, workloads, RuntimeClasses and buffers of some manifests.
#[derive(Clone, Debug, Default)]
pub struct WorkloadManifests {
    /// For cluster-default spread.
    pub selectors: Workloads,
    /// For the pods of files.
    pub(super) runtime_classes: RuntimeClasses,
    buffers: Vec<CapacityBuffer>,
    /// By kind, namespace and name.
    sources: BTreeMap<(PodSourceKind, String, String), PodSource>,
    /// All that create pods.
    makers: Vec<PodMaker>,
    /// How many pods they are to create.
    autoscalers: Autoscalers,
    /// What containers of their pods get.
    pub(super) limit_ranges: LimitRanges,
    /// What creates pods, and is not read.
    pub(super) unplanned: Unplanned,
    /// The uids of possible pod owners, by kind, namespace and name.
    uids: BTreeMap<(String, String, String), String>,
}

impl WorkloadManifests {
    /// Adds one object; returns whether its kind is known.
    pub(super) fn add(&mut self, document: &Document, defaults: &MetadataDefaults) -> Result<bool, ReadError> {
        match (document.version(), document.kind()) {
            ("v1", "Service") => {
                let mut service: Service = document.accepted()?;
                defaults.fill_namespaced(&mut service.metadata);
                if !service.spec.selector.is_empty() {
                    self.selectors.services.push((service.metadata.namespace, service.metadata.name, service.spec.selector));
                }
            }
            ("v1", "ReplicationController") => self.add_replication_controller(document, defaults)?,
            ("apps/v1", "Deployment") => return self.add_workload(PodSourceKind::Deployment, document, defaults),
            ("apps/v1", "ReplicaSet") => return self.add_workload(PodSourceKind::ReplicaSet, document, defaults),
            ("apps/v1", "StatefulSet") => return self.add_workload(PodSourceKind::StatefulSet, document, defaults),
            ("batch/v1", "Job") => {
                let mut job: Job = document.accepted()?;
                defaults.fill_namespaced(&mut job.metadata);
                let replicas = job.pods_at_a_time();
                self.maker(document, "Job", &job.metadata, replicas, job.spec.template, job.spec.selector)?;
            }
            ("v1", "PodTemplate") => {
                let mut template: StoredPodTemplate = document.accepted()?;
                defaults.fill_namespaced(&mut template.metadata);
                let metadata = template.metadata.clone();
                self.source(PodSourceKind::PodTemplate, &metadata, PodSource::of_template(template));
            }
            ("v1", "LimitRange") => {
                let mut range: LimitRange = document.parse()?;
                defaults.fill_namespaced(&mut range.metadata);
                self.limit_ranges.add(range);
            }
            ("node.k8s.io/v1", "RuntimeClass") => self.runtime_classes.add(document.accepted()?),
            (version, "CapacityBuffer") if version.starts_with("autoscaling.x-k8s.io/") => {
                let mut buffer: CapacityBuffer = document.accepted()?;
                defaults.fill_namespaced(&mut buffer.metadata);
                self.buffers.push(buffer);
            }
            _ => return Ok(self.autoscalers.add(document)),
        }
        Ok(true)
    }

    fn add_replication_controller(&mut self, document: &Document, defaults: &MetadataDefaults) -> Result<(), ReadError> {
        let ReplicationController { mut metadata, spec } = document.accepted()?;
        defaults.fill_namespaced(&mut metadata);
        self.maker(
            document,
            "ReplicationController",
            &metadata,
            spec.replicas.unwrap_or(1),
            spec.template.clone(),
            LabelSelector::default(),
        )?;
        let pairs = spec.selector.unwrap_or_else(|| spec.template.metadata.labels.into_inner());
        let selector = LabelSelector { match_labels: pairs, ..LabelSelector::default() };
        self.owner("ReplicationController", &metadata, Some(selector));
        Ok(())
    }

    /// Adds a workload; returns whether pods can come of it.
    fn add_workload(&mut self, source: PodSourceKind, document: &Document, defaults: &MetadataDefaults) -> Result<bool, ReadError> {
        let kind = source.as_str();
        // A ReplicaSet and a StatefulSet have the same fields, as far as they are read.
        if is_owner_alone(document) {
            let Deployment { mut metadata, .. } = document.parse()?;
            defaults.fill_namespaced(&mut metadata);
            self.owner(kind, &metadata, None);
            return Ok(false);
        }
        let Deployment { mut metadata, spec } = document.accepted()?;
        defaults.fill_namespaced(&mut metadata);
        let (replicas, template, selector) = (spec.replicas.unwrap_or(1), spec.template.clone(), spec.selector.clone());
        self.maker(document, kind, &metadata, replicas, template, selector)?;
        self.owner(kind, &metadata, (kind != "Deployment").then(|| spec.selector.clone()));
        self.source(source, &metadata, PodSource::of_workload(&metadata, spec));
        Ok(true)
    }

    /// The workloads that users make, as `deployment/default/web`. ReplicaSets are mostly those of Deployments.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.uids
            .keys()
            .filter(|(kind, ..)| kind != "ReplicaSet")
            .map(|(kind, namespace, name)| format!("{}/{namespace}/{name}", kind.to_lowercase()))
    }

    fn maker(
        &mut self,
        document: &Document,
        kind: &'static str,
        metadata: &ObjectMeta,
        replicas: i32,
        template: PodTemplate,
        selector: LabelSelector,
    ) -> Result<(), ReadError> {
        let volume_claims = if kind == "StatefulSet" { claim_templates(document)? } else { Vec::new() };
        let first = document.value.pointer("/spec/ordinals/start").and_then(Value::as_u64).and_then(|first| u32::try_from(first).ok());
        let first = first.unwrap_or(0);
        let Document { live, changed, .. } = *document;
        let metadata = metadata.clone();
        let (given, autoscaled) = (BTreeSet::new(), false);
        self.makers.push(PodMaker { kind, metadata, replicas, template, selector, first, volume_claims, given, live, autoscaled, changed });
        Ok(())
    }

    /// All that create pods, with what their namespaces give, whose LimitRanges may come after them.
    fn makers_with_given(&self) -> Vec<PodMaker> {
        let with = |maker: &PodMaker| PodMaker { given: self.limit_ranges.given_in(&maker.metadata.namespace), ..maker.clone() };
        self.makers.iter().map(with).collect()
    }

    /// Adds the pods that the workloads lack to `pods`; returns notes about them, and the names of these pods, but for those of changed
    /// workloads, which take the place of others.
    ///
    /// # Errors
    /// A name in `asked` that no workload has, or several.
    pub(super) fn expand(
        &mut self,
        pods: &mut Vec<Pod>,
        asked: &[Replicas],
        storage: &mut Storage,
        now: Timestamp,
    ) -> Result<(Vec<String>, Added), ReadError> {
        // Budgets, too, count with what autoscalers keep.
        let mut notes = self.autoscalers.scale(&mut self.makers, asked);
        let mut expanded = expand(self.makers_with_given(), pods, asked, storage, now)?;
        self.limit_ranges.admit(&mut expanded.pods);
        expanded.notes.extend(without_requests(&expanded.pods));
        expanded.notes.extend(almost_no_memory(&expanded.pods));
        expanded.notes.extend(very_many_cpus(&expanded.pods));
        pods.append(&mut expanded.pods);
        self.selectors.owners.append(&mut expanded.owners);
        notes.append(&mut expanded.notes);
        Ok((notes, expanded.added))
    }

    /// The same of changed workloads alone; of others it is noted if their pods have another template than they have now.
    ///
    /// # Errors
    /// None: no numbers of replicas are asked for.
    pub(super) fn roll_out(
        &mut self,
        pods: &mut Vec<Pod>,
        storage: &mut Storage,
        now: Timestamp,
    ) -> Result<(Vec<String>, Added), ReadError> {
        let mut notes = self.autoscalers.scale_changed(&mut self.makers);
        let (changed, others): (Vec<PodMaker>, Vec<PodMaker>) = self.makers_with_given().into_iter().partition(|maker| maker.changed);
        notes.extend(super::expansion::other_templates(&others, pods));
        let all = std::mem::replace(&mut self.makers, changed);
        let rolled_out = self.expand(pods, &[], storage, now);
        self.makers = all;
        let (rolled_out, added) = rolled_out?;
        notes.extend(rolled_out);
        Ok((notes, added))
    }

    /// The pods of each controller, and how many it is to have.
    pub(super) fn scales<'a>(&self, pods: &'a [Pod]) -> Vec<(i64, Vec<&'a Pod>)> {
        super::expansion::scales(&self.makers, pods)
    }

    /// A pod of each changed workload, as budgets select it.
    pub(super) fn changed_pods(&self) -> impl Iterator<Item = Pod> {
        let changed = self.makers.iter().filter(|maker| maker.changed);
        changed.map(|maker| {
            let labels = maker.template.metadata.labels.clone();
            let metadata = ObjectMeta { namespace: maker.metadata.namespace.clone(), labels, ..ObjectMeta::default() };
            Pod { metadata, ..Pod::default() }
        })
    }

    fn owner(&mut self, kind: &str, metadata: &ObjectMeta, selector: Option<LabelSelector>) {
        self.uids.insert((kind.to_owned(), metadata.namespace.clone(), metadata.name.clone()), metadata.uid.clone());
        if let Some(selector) = selector {
            self.selectors.owners.insert(metadata.uid.clone(), selector);
        }
    }

    fn source(&mut self, kind: PodSourceKind, metadata: &ObjectMeta, source: PodSource) {
        self.sources.insert((kind, metadata.namespace.clone(), metadata.name.clone()), source);
    }

    /// Fills in the uid of owner references that lack it.
    pub(super) fn own(&self, pods: &mut [Pod]) {
        for pod in pods {
            let namespace = &pod.metadata.namespace;
            for owner in pod.metadata.owner_references.iter_mut().filter(|owner| owner.uid.is_empty()) {
                if let Some(uid) = self.uids.get(&(owner.kind.clone(), namespace.clone(), owner.name.clone())) {
                    owner.uid.clone_from(uid);
                }
            }
        }
    }

    /// Buffers with their virtual pods, resolved as in the functions, and messages for those that have none, or fewer than they ask for.
    #[must_use]
    pub fn resolved(&self, now: Timestamp) -> (Vec<Buffer>, Vec<String>) {
        let (mut resolved, mut unresolved) = (Vec::new(), Vec::new());
        let mut buffers: Vec<&CapacityBuffer> = self.buffers.iter().filter(|buffer| !buffer.metadata.is_deleting()).collect();
        buffers.sort_by_key(|buffer| buffer.metadata.key());
        for buffer in buffers {
            let namespace = &buffer.metadata.namespace;
            let source = source_of(buffer).and_then(|(kind, name)| {
                let found = self.sources.get(&(kind, namespace.clone(), name.to_owned()));
                found.ok_or_else(|| Unresolved::missing(kind, name))
            });
            let kept = resolve(buffer, source.as_ref().copied(), now);
            match &source {
                Ok(source) if !kept.pods.is_empty() => unresolved.extend(self.without_defaults(buffer, source)),
                Ok(_) => {}
                Err(why) => unresolved.push(format!("CapacityBuffer {} stands for no pods: {}", buffer.metadata.key(), why.message)),
            }
            resolved.push(kept);
        }
        limit_pods(&mut resolved, now);
        let short = resolved.iter().filter(|buffer| !buffer.shortfall.is_empty());
        unresolved.extend(short.map(|buffer| format!("CapacityBuffer {}: {}", buffer.object.metadata.key(), buffer.shortfall)));
        let understated = resolved.iter().filter(|buffer| !buffer.pods.is_empty() && !buffer.understated.is_empty());
        unresolved.extend(understated.map(|buffer| format!("CapacityBuffer {}: {}", buffer.object.metadata.key(), buffer.understated)));
        let unlimited = resolved.iter().filter(|buffer| !buffer.unlimited.is_empty());
        unresolved.extend(unlimited.map(|buffer| format!("CapacityBuffer {}: {}", buffer.object.metadata.key(), buffer.unlimited)));
        (resolved, unresolved)
    }

    /// That a buffer keeps no room for what LimitRanges give to the pods of its template: no pod is created of which the functions, or
    /// Karpenter, would see it.
    fn without_defaults(&self, buffer: &CapacityBuffer, source: &PodSource) -> Option<String> {
        let ObjectMeta { namespace, .. } = &buffer.metadata;
        let names: Vec<String> = self.limit_ranges.added_to(namespace, &source.template.spec).into_iter().collect();
        (!names.is_empty()).then(|| {
            format!(
                "CapacityBuffer {}: no room is kept for {}, which a LimitRange gives to the pods of its template once they are created: \
                 write it into the template's resources.requests",
                buffer.metadata.key(),
                names.join(", ")
            )
        })
    }
}

/// Whether a workload has nothing of which pods are made, and only stands there as the owner of pods.
fn is_owner_alone(document: &Document) -> bool {
    let mut fields = document.value.as_object().into_iter().flatten();
    let is_known = |key: &str| ["apiVersion", "kind", "metadata", "spec", "status"].contains(&key);
    // A template beside `spec`, or misspelt in it, is reported as an error elsewhere.
    fields.all(|(key, _)| is_known(key))
        && document.value.get("spec").is_none_or(|spec| spec.as_object().is_some_and(serde_json::Map::is_empty))
}

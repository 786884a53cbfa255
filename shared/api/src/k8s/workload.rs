//! Workloads, pod templates, services and namespaces.

use crate::k8s::{PodCondition, PodSpec};
use crate::meta::{LabelSelector, ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    pub metadata: ObjectMeta,
    pub spec: DaemonSetSpec,
}
super::kind!(DaemonSet, "apps/v1", "DaemonSet", "daemonsets", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSetSpec {
    pub selector: LabelSelector,
    pub template: PodTemplate,
}

/// The fields of Deployments, ReplicaSets and StatefulSets that we use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeploymentSpec {
    /// One when absent.
    pub replicas: Option<i32>,
    pub selector: LabelSelector,
    pub template: PodTemplate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deployment {
    pub metadata: ObjectMeta,
    pub spec: DeploymentSpec,
}
super::kind!(Deployment, "apps/v1", "Deployment", "deployments", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    pub metadata: ObjectMeta,
    pub spec: DeploymentSpec,
}
super::kind!(ReplicaSet, "apps/v1", "ReplicaSet", "replicasets", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    pub metadata: ObjectMeta,
    pub spec: DeploymentSpec,
}
super::kind!(StatefulSet, "apps/v1", "StatefulSet", "statefulsets", true);

/// A ReplicationController, whose selector is a plain map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicationController {
    pub metadata: ObjectMeta,
    pub spec: ControllerSpec,
}
super::kind!(ReplicationController, "v1", "ReplicationController", "replicationcontrollers", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControllerSpec {
    /// One when absent.
    pub replicas: Option<i32>,
    /// The labels of the template when absent.
    pub selector: Option<BTreeMap<String, String>>,
    pub template: PodTemplate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    pub metadata: ObjectMeta,
    pub spec: JobSpec,
    pub status: JobStatus,
}
super::kind!(Job, "batch/v1", "Job", "jobs", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSpec {
    pub parallelism: Option<i32>,
    pub completions: Option<i32>,
    #[serde(deserialize_with = "null_as_default")]
    pub suspend: bool,
    #[serde(deserialize_with = "null_as_default")]
    pub selector: LabelSelector,
    pub template: PodTemplate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub succeeded: i32,
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: Vec<PodCondition>,
}

impl Job {
    /// How many pods run at a time until the Job is done.
    pub fn pods_at_a_time(&self) -> i32 {
        let done = |condition: &PodCondition| ["Complete", "Failed"].contains(&condition.type_.as_str()) && condition.status == "True";
        if self.spec.suspend || self.status.conditions.iter().any(done) {
            return 0;
        }
        let parallel = self.spec.parallelism.unwrap_or(1);
        self.spec.completions.map_or(parallel, |all| parallel.min(all.saturating_sub(self.status.succeeded).max(0)))
    }

    /// The field that says so.
    pub fn pods_field(&self) -> &'static str {
        if self.spec.parallelism == Some(self.pods_at_a_time()) { "spec.parallelism" } else { "spec.completions" }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
}
super::kind!(Namespace, "v1", "Namespace", "namespaces", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, String>,
}
super::kind!(ConfigMap, "v1", "ConfigMap", "configmaps", true);

/// A PodTemplate object, which a capacity buffer may refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredPodTemplate {
    pub metadata: ObjectMeta,
    pub template: PodTemplate,
}
super::kind!(StoredPodTemplate, "v1", "PodTemplate", "podtemplates", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub selector: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: ObjectMeta,
    pub spec: ServiceSpec,
}
super::kind!(Service, "v1", "Service", "services", true);

/// Selectors of services and workloads, for cluster-default spread constraints (scheduling 22).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workloads {
    /// Namespace, name and selector pairs of each Service.
    pub services: Vec<(String, String, BTreeMap<String, String>)>,
    /// By uid of a ReplicaSet, StatefulSet or ReplicationController: its selector.
    pub owners: BTreeMap<String, LabelSelector>,
}

/// A kind that a capacity buffer can take its pod template from (disruption 20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodSourceKind {
    PodTemplate,
    Deployment,
    ReplicaSet,
    StatefulSet,
}

impl PodSourceKind {
    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodTemplate => "PodTemplate",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
        }
    }
}

/// The fields of such an object that a capacity buffer uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSource {
    pub template: PodTemplate,
    /// `spec.replicas`; one if it is absent, and for a PodTemplate.
    pub replicas: i32,
    pub generation: Option<i64>,
}

impl PodSource {
    /// Of a workload.
    pub fn of_workload(metadata: &ObjectMeta, spec: DeploymentSpec) -> Self {
        Self { template: spec.template, replicas: spec.replicas.unwrap_or(1), generation: metadata.generation }
    }
    /// Of a PodTemplate.
    pub fn of_template(object: StoredPodTemplate) -> Self {
        Self { template: object.template, replicas: 1, generation: object.metadata.generation }
    }
}

//! What makes pods, and what they live in.

use crate::k8s::PodSpec;
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

/// Deployments, ReplicaSets and StatefulSets share the fields that the simulator needs.
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

//! Disruption budgets and priorities.

use crate::meta::{LabelSelector, ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    pub metadata: ObjectMeta,
    pub spec: PdbSpec,
    pub status: PdbStatus,
}
super::kind!(PodDisruptionBudget, "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PdbSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// IfHealthyBudget when empty, or AlwaysAllow.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub unhealthy_pod_eviction_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PdbStatus {
    pub disruptions_allowed: i32,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    pub expected_pods: i32,
    pub observed_generation: i64,
}

/// A count, or a percentage such as `50%`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged, expecting = "a whole number, or text such as 10%, is needed")]
pub enum IntOrString {
    Int(i64),
    Text(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    pub metadata: ObjectMeta,
    pub value: i32,
    pub global_default: bool,
    #[serde(deserialize_with = "null_as_default")]
    pub preemption_policy: String,
}
super::kind!(PriorityClass, "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false);

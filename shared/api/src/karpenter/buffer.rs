//! CapacityBuffer `autoscaling.x-k8s.io/v1beta1` (api 10).

use crate::meta::{Condition, ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use whittle_units::Resources;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityBuffer {
    pub metadata: ObjectMeta,
    pub spec: CapacityBufferSpec,
    #[serde(default)]
    pub status: CapacityBufferStatus,
}
crate::k8s::kind!(CapacityBuffer, "autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", "capacitybuffers", true);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityBufferSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<BufferReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<BufferReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage: Option<i32>,
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub limits: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BufferReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityBufferStatus {
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<BufferReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

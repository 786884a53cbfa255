//! Container runtimes, as far as their pods are scheduled otherwise.

use crate::k8s::Toleration;
use crate::meta::{ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::Resources;

/// A runtime, and what the API server adds to pods that name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeClass {
    pub metadata: ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<RuntimeOverhead>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<RuntimeScheduling>,
}
super::kind!(RuntimeClass, "node.k8s.io/v1", "RuntimeClass", "runtimeclasses", false);

/// What each pod takes besides its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeOverhead {
    #[serde(deserialize_with = "null_as_default")]
    pub pod_fixed: Resources,
}

/// Where the runtime is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeScheduling {
    #[serde(deserialize_with = "null_as_default")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub tolerations: Vec<Toleration>,
}

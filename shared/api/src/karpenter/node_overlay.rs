//! NodeOverlay `karpenter.sh/v1alpha1` (api 7).

use super::node_pool::Requirement;
use crate::meta::{Condition, ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use whittle_units::Resources;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOverlay {
    pub metadata: ObjectMeta,
    pub spec: NodeOverlaySpec,
    #[serde(default)]
    pub status: NodeOverlayStatus,
}
crate::k8s::kind!(NodeOverlay, "karpenter.sh/v1alpha1", "NodeOverlay", "nodeoverlays", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlaySpec {
    #[serde(deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    /// Absolute price per hour, decimal text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// `+0.1`, `-10%`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    #[serde(skip_serializing_if = "Resources::is_empty", deserialize_with = "null_as_default")]
    pub capacity: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeOverlayStatus {
    pub conditions: Vec<Condition>,
}

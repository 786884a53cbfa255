//! NodeClaim `karpenter.sh/v1` (api 6): in the cluster it mirrors a claim, whose authoritative record is in the table.

use super::node_pool::{NodeClassReference, Requirement, default_expire_after};
use crate::duration::{GoDuration, NillableDuration};
use crate::k8s::Taint;
use crate::meta::{Condition, ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use whittle_units::{Resources, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClaim {
    pub metadata: ObjectMeta,
    pub spec: NodeClaimSpec,
    #[serde(default)]
    pub status: NodeClaimStatus,
}
crate::k8s::kind!(NodeClaim, "karpenter.sh/v1", "NodeClaim", "nodeclaims", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    pub node_class_ref: NodeClassReference,
    #[serde(default, deserialize_with = "null_as_default")]
    pub resources: NodeClaimResources,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub taints: Vec<Taint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub startup_taints: Vec<Taint>,
    #[serde(default = "default_expire_after")]
    pub expire_after: NillableDuration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<GoDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeClaimResources {
    #[serde(deserialize_with = "null_as_default")]
    pub requests: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    #[serde(rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    #[serde(rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capacity: Resources,
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub allocatable: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pod_event_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl NodeClaim {
    /// The NodePool that the claim belongs to; `None` for a standalone one.
    pub fn node_pool(&self) -> Option<&str> {
        self.metadata.label(crate::labels::NODE_POOL)
    }
}

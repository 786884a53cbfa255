//! eksctl's ClusterConfig: the fields that describe the cluster.

use crate::meta::null_as_default;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// ClusterConfig `eksctl.io/v1alpha5`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterConfig {
    pub metadata: ClusterConfigMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub managed_node_groups: Vec<ManagedNodeGroup>,
    #[serde(deserialize_with = "null_as_default")]
    pub fargate_profiles: Vec<FargateProfile>,
    #[serde(deserialize_with = "null_as_default")]
    pub iam_identity_mappings: Vec<IdentityMapping>,
}

impl ClusterConfig {
    pub const API_VERSION: &'static str = "eksctl.io/v1alpha5";
    pub const KIND: &'static str = "ClusterConfig";
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterConfigMeta {
    pub name: String,
    pub region: String,
    /// Kubernetes version, `1.27`; empty for eksctl's default.
    #[serde(deserialize_with = "null_as_default")]
    pub version: String,
    /// Tags of all resources of the cluster, subnets and security groups included.
    #[serde(deserialize_with = "null_as_default")]
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedNodeGroup {
    pub name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub instance_type: String,
    #[serde(deserialize_with = "null_as_default")]
    pub ami_family: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_capacity: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
}

impl ManagedNodeGroup {
    /// Initial number of nodes: desired, else minimum, else eksctl's default of two.
    pub fn initial_size(&self) -> u32 {
        self.desired_capacity.or(self.min_size).unwrap_or(2)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FargateProfile {
    pub name: String,
    #[serde(deserialize_with = "null_as_default")]
    pub selectors: Vec<FargateSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FargateSelector {
    pub namespace: String,
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
}

/// An IAM role, and the user and groups that it maps to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdentityMapping {
    pub arn: String,
    #[serde(deserialize_with = "null_as_default")]
    pub username: String,
    #[serde(deserialize_with = "null_as_default")]
    pub groups: Vec<String>,
}

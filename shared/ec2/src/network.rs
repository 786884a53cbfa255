//! What a node class resolves to: subnets, security groups and images as EC2 describes them, and the cluster they serve.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::{ClusterName, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subnet {
    pub id: String,
    pub zone: String,
    pub zone_id: String,
    pub free_addresses: u32,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub id: String,
    pub name: String,
    pub owner: String,
    /// `x86_64` or `arm64`.
    pub architecture: String,
    pub created_at: Timestamp,
    pub deprecated: bool,
    /// Which machines it was made for; images that no alias led to fit all of their architecture.
    #[serde(default)]
    pub variant: ImageVariant,
    pub tags: BTreeMap<String, String>,
}

/// The machines that an alias's image was made for (aws 11.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ImageVariant {
    #[default]
    Any,
    /// Without accelerators.
    Standard,
    Nvidia,
    Neuron,
    /// Nvidia and Neuron alike.
    Accelerated,
}

/// An EKS cluster, as far as nodes must know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    pub name: ClusterName,
    pub endpoint: String,
    /// PEM in base64, as EKS returns it.
    pub certificate_authority: String,
    /// Kubernetes version, such as `1.33`.
    pub version: String,
    pub service_cidr: String,
    pub ipv6: bool,
}

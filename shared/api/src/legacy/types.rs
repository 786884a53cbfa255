//! Karpenter's kinds before v1.

use crate::duration::{GoDuration, NillableDuration};
use crate::k8s::{IntOrString, Taint, kind};
use crate::karpenter::{BlockDeviceMapping, Budget, Ec2NodeClassSpec, MetadataOptions, NodeClaimResources, Requirement, TemplateMeta};
use crate::meta::{ObjectMeta, null_as_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whittle_units::Resources;

/// Provisioner `karpenter.sh/v1alpha5` (api 13): a node pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provisioner {
    pub metadata: ObjectMeta,
    pub spec: ProvisionerSpec,
}
kind!(Provisioner, "karpenter.sh/v1alpha5", "Provisioner", "provisioners", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisionerSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub taints: Vec<Taint>,
    #[serde(deserialize_with = "null_as_default")]
    pub startup_taints: Vec<Taint>,
    #[serde(deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_configuration: Option<Kubelet>,
    /// AWS settings inline, instead of a reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<AwsNodeTemplateSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<LegacyReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_empty: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_until_expired: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidation: Option<Consolidation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ProvisionerLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Consolidation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProvisionerLimits {
    #[serde(deserialize_with = "null_as_default")]
    pub resources: Resources,
}

/// A reference in the old kinds; a name alone is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LegacyReference {
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub kind: String,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub api_version: String,
}

/// The kubelet settings that pools had, in the order in which the compatibility annotation lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kubelet {
    #[serde(rename = "clusterDNS", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub cluster_dns: Vec<String>,
    /// v1alpha5 only; has no effect any more and is never written.
    #[serde(skip_serializing, deserialize_with = "null_as_default")]
    pub container_runtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_per_core: Option<i32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub system_reserved: BTreeMap<String, IntOrString>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub kube_reserved: BTreeMap<String, IntOrString>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub eviction_hard: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub eviction_soft: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub eviction_soft_grace_period: BTreeMap<String, GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_max_pod_grace_period: Option<i32>,
    #[serde(rename = "imageGCHighThresholdPercent", skip_serializing_if = "Option::is_none")]
    pub image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent", skip_serializing_if = "Option::is_none")]
    pub image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "cpuCFSQuota", skip_serializing_if = "Option::is_none")]
    pub cpu_cfs_quota: Option<bool>,
}

/// AWSNodeTemplate `karpenter.k8s.aws/v1alpha1` (api 14): a node class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AwsNodeTemplate {
    pub metadata: ObjectMeta,
    pub spec: AwsNodeTemplateSpec,
}
kind!(AwsNodeTemplate, "karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate", "awsnodetemplates", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsNodeTemplateSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub subnet_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub security_group_selector: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub ami_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// An unmanaged launch template, which cannot be converted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_device_mappings: Option<Vec<LegacyBlockDeviceMapping>>,
}

/// As in v1, but the volume size may be a number of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LegacyBlockDeviceMapping {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs: Option<LegacyBlockDevice>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LegacyBlockDevice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<IntOrString>,
    /// The fields that did not change.
    #[serde(flatten)]
    pub rest: BTreeMap<String, serde_json::Value>,
}

impl LegacyBlockDeviceMapping {
    /// The mapping with its size as text: whole gibibytes where a number of bytes was given.
    pub(crate) fn to_v1(&self) -> Result<BlockDeviceMapping, serde_json::Error> {
        let ebs = match &self.ebs {
            None => None,
            Some(device) => {
                let mut map: serde_json::Map<_, _> = device.rest.clone().into_iter().collect();
                if let Some(size) = &device.volume_size {
                    map.insert("volumeSize".to_owned(), serde_json::Value::String(volume_size(size)));
                }
                Some(serde_json::from_value(serde_json::Value::Object(map))?)
            }
        };
        Ok(BlockDeviceMapping { device_name: self.device_name.clone(), ebs, root_volume: false })
    }
}

fn volume_size(size: &IntOrString) -> String {
    const GIBIBYTE: i64 = 1 << 30;
    let bytes = match size {
        IntOrString::Int(bytes) => *bytes,
        IntOrString::Text(text) => match text.parse() {
            Ok(bytes) => bytes,
            Err(_) => return text.clone(),
        },
    };
    // Rounded up: a volume is never smaller than requested.
    format!("{}Gi", bytes / GIBIBYTE + i64::from(bytes % GIBIBYTE != 0))
}

/// NodePool `karpenter.sh/v1beta1` (api 12.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BetaNodePool {
    pub metadata: ObjectMeta,
    pub spec: BetaNodePoolSpec,
}
kind!(BetaNodePool, "karpenter.sh/v1beta1", "NodePool", "nodepools", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BetaNodePoolSpec {
    pub template: BetaTemplate,
    #[serde(deserialize_with = "null_as_default")]
    pub disruption: BetaDisruption,
    #[serde(deserialize_with = "null_as_default")]
    pub limits: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BetaTemplate {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: TemplateMeta,
    pub spec: BetaNodeClaimSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BetaDisruption {
    pub consolidation_policy: BetaConsolidationPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidate_after: Option<NillableDuration>,
    pub expire_after: NillableDuration,
    /// Absent: the default of 10%.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
}

impl Default for BetaDisruption {
    fn default() -> Self {
        Self {
            consolidation_policy: BetaConsolidationPolicy::default(),
            consolidate_after: None,
            expire_after: NillableDuration::After("720h".parse().expect("a literal duration")),
            budgets: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BetaConsolidationPolicy {
    WhenEmpty,
    #[default]
    WhenUnderutilized,
}

/// NodeClaim `karpenter.sh/v1beta1` and Machine `karpenter.sh/v1alpha5` (api 12.2, 13).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BetaNodeClaim {
    pub metadata: ObjectMeta,
    pub spec: BetaNodeClaimSpec,
    #[serde(deserialize_with = "null_as_default")]
    pub status: crate::karpenter::NodeClaimStatus,
}
kind!(BetaNodeClaim, "karpenter.sh/v1beta1", "NodeClaim", "nodeclaims", false);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BetaNodeClaimSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    /// `machineTemplateRef` in a Machine.
    #[serde(alias = "machineTemplateRef")]
    pub node_class_ref: LegacyReference,
    #[serde(deserialize_with = "null_as_default")]
    pub taints: Vec<Taint>,
    #[serde(deserialize_with = "null_as_default")]
    pub startup_taints: Vec<Taint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Kubelet>,
    #[serde(deserialize_with = "null_as_default")]
    pub resources: NodeClaimResources,
}

/// EC2NodeClass `karpenter.k8s.aws/v1beta1` (api 12.3): the fields of v1 with other rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BetaNodeClass {
    pub metadata: ObjectMeta,
    pub spec: Ec2NodeClassSpec,
}
kind!(BetaNodeClass, "karpenter.k8s.aws/v1beta1", "EC2NodeClass", "ec2nodeclasses", false);

/// Any object of an old version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LegacyObject {
    Provisioner(Box<Provisioner>),
    AwsNodeTemplate(Box<AwsNodeTemplate>),
    Machine(Box<BetaNodeClaim>),
    NodePool(Box<BetaNodePool>),
    NodeClaim(Box<BetaNodeClaim>),
    NodeClass(Box<BetaNodeClass>),
}

impl LegacyObject {
    /// Version and kind as written.
    pub const fn type_meta(&self) -> (&'static str, &'static str) {
        match self {
            Self::Provisioner(_) => ("karpenter.sh/v1alpha5", "Provisioner"),
            Self::AwsNodeTemplate(_) => ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
            Self::Machine(_) => ("karpenter.sh/v1alpha5", "Machine"),
            Self::NodePool(_) => ("karpenter.sh/v1beta1", "NodePool"),
            Self::NodeClaim(_) => ("karpenter.sh/v1beta1", "NodeClaim"),
            Self::NodeClass(_) => ("karpenter.k8s.aws/v1beta1", "EC2NodeClass"),
        }
    }
    /// Metadata of the object.
    pub const fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Provisioner(object) => &object.metadata,
            Self::AwsNodeTemplate(object) => &object.metadata,
            Self::Machine(object) | Self::NodeClaim(object) => &object.metadata,
            Self::NodePool(object) => &object.metadata,
            Self::NodeClass(object) => &object.metadata,
        }
    }
}

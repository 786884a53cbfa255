//! User data by which a machine joins the cluster (aws 12): one renderer per family, merged with the user's own.

mod bottlerocket;
mod kubelet_args;
mod mime;
mod node_config;
mod shell;

use crate::kubelet::{Kubelet, Resolved};
use crate::network::ClusterInfo;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use std::collections::BTreeMap;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_api::karpenter::AmiFamily;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim};
use whittle_api::labels;
use whittle_api::runtime::{is_label_value, is_qualified_name};

/// The facts of the cluster that nodes need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterAccess {
    pub name: String,
    pub endpoint: String,
    /// Base64 of the certificate; `None` when unknown.
    pub ca_bundle: Option<String>,
    /// `None` when unknown; AL2023 nodes cannot start without it.
    pub service_cidr: Option<String>,
    /// Address of kube-dns; `None` when unknown.
    pub dns_address: Option<String>,
}

impl From<&ClusterInfo> for ClusterAccess {
    fn from(info: &ClusterInfo) -> Self {
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            name: info.name.as_str().to_owned(),
            endpoint: info.endpoint.clone(),
            ca_bundle: known(&info.certificate_authority),
            service_cidr: known(&info.service_cidr),
            dns_address: info.dns_address(),
        }
    }
}

/// Everything that goes into a machine's user data.
#[derive(Clone, Debug)]
pub struct Bootstrap<'a> {
    pub cluster: &'a ClusterAccess,
    pub class: &'a Ec2NodeClass,
    pub kubelet: &'a Kubelet,
    /// Max pods and reserved resources of the machines that share this user data.
    pub resolved: &'a Resolved,
    /// See [`node_labels`].
    pub labels: BTreeMap<String, String>,
    /// See [`node_taints`].
    pub taints: Vec<Taint>,
}

/// Why user data cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    #[error("spec.userData of node class {class} is no MIME archive: {problem}")]
    Mime { class: String, problem: mime::Problem },
    #[error(
        "spec.userData of node class {class} holds YAML that is no NodeConfig of node.eks.aws/v1alpha1, with which no node would start: write \
         one, a script that begins with #!, or a MIME archive (cloud-init's part: text/cloud-config)"
    )]
    NodeConfig { class: String },
    #[error(
        "spec.userData of node class {class} has a tag <powershell> of its own, and nodes would not start with it: leave it out, the \
         commands are put into one"
    )]
    Tag { class: String },
    #[error("spec.userData of node class {class} is no TOML: {problem}")]
    Toml { class: String, problem: String },
    #[error("spec.userData of node class {class} has a setting that its nodes would not start with: {setting}: {problem}: correct it")]
    Setting { class: String, setting: String, problem: String },
    #[error("the certificate authority of the cluster, which nodes of class {class} need, is not in base64 ({problem}): correct it in EKS")]
    CertificateAuthority { class: String, problem: String },
    #[error("the service address range of the cluster is not known yet, and AL2023 nodes of class {class} need it")]
    NoServiceCidr { class: String },
    #[error("the user data of nodes of class {class} have {bytes} bytes, EC2 takes {LARGEST}: shorten spec.userData")]
    TooLarge { class: String, bytes: usize },
    #[error("the node configuration of class {class} cannot be written as YAML: {problem}")]
    Yaml { class: String, problem: String },
}

impl UserDataError {
    /// The reason of the condition of a class that has them.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "UserDataSizeLimitExceeded",
            Self::NoServiceCidr { .. } => "ClusterCIDRResolutionFailed",
            Self::CertificateAuthority { .. } => "ClusterCAInvalid",
            Self::Mime { .. }
            | Self::NodeConfig { .. }
            | Self::Tag { .. }
            | Self::Toml { .. }
            | Self::Setting { .. }
            | Self::Yaml { .. } => "UserDataInvalid",
        }
    }
}

/// EC2's limit of user data before base64.
pub const LARGEST: usize = 16_384;

/// Whether the user data of a class can be rendered at all: without labels and taints, so those of a machine may still be too large.
pub fn check(class: &Ec2NodeClass, kubelet: &Kubelet, cluster: &ClusterAccess) -> Result<(), UserDataError> {
    let resolved = Resolved::default();
    let bootstrap = Bootstrap { cluster, class, kubelet, resolved: &resolved, labels: BTreeMap::new(), taints: Vec::new() };
    render(class.spec.family(), &bootstrap).map(drop)
}

/// The settings in a class's user data that its nodes are not given, by their paths: those of Bottlerocket that are not known.
pub fn dropped(class: &Ec2NodeClass) -> Vec<String> {
    let text = class.spec.user_data.as_deref().filter(|_| class.spec.family() == AmiFamily::Bottlerocket);
    text.map(bottlerocket::dropped).unwrap_or_default()
}

/// The labels that a kubelet sets where there is no room for all of them. The others follow at the registration of the Node, before any pod
/// may run on it.
const NEEDED_LABELS: &[&str] =
    &[labels::NODE_POOL, labels::EC2_NODE_CLASS, labels::PROVISIONER_NAME, labels::CAPACITY_TYPE, labels::DO_NOT_SYNC_TAINTS];

/// The plain text of the user data (EC2 expects base64); may be empty.
///
/// Pods decide about some of the labels: however many they name, their machine starts, and with it the other pods that it is for.
pub fn render(family: AmiFamily, bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let whole = rendered(family, bootstrap);
    let is_needed = |key: &str| NEEDED_LABELS.contains(&key);
    if !matches!(whole, Err(UserDataError::TooLarge { .. })) || bootstrap.labels.keys().all(|key| is_needed(key)) {
        return whole;
    }
    let mut least = bootstrap.clone();
    least.labels.retain(|key, _| is_needed(key));
    rendered(family, &least)
}

/// The same with all labels.
fn rendered(family: AmiFamily, bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    if family != AmiFamily::Custom {
        bootstrap.check_certificate_authority()?;
    }
    let text = match family {
        AmiFamily::Al2 => shell::al2(bootstrap)?,
        AmiFamily::Al2023 => node_config::al2023(bootstrap)?,
        AmiFamily::Bottlerocket => bottlerocket::render(bootstrap)?,
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => shell::windows(bootstrap)?,
        AmiFamily::Custom => bootstrap.class.spec.user_data.clone().unwrap_or_default(),
    };
    if text.len() > LARGEST { Err(UserDataError::TooLarge { class: bootstrap.class_name(), bytes: text.len() }) } else { Ok(text) }
}

/// Labels that the kubelet may set on its Node itself (aws 12.2): those of the claim and its capacity type, without
/// the domains that the API server reserves, and without what no API server takes for a label: shells and kubelets read user data, and
/// a quote or a comma in a label would be more to them than a label.
pub fn node_labels(claim: &NodeClaim, capacity_type: &str, family: AmiFamily) -> BTreeMap<String, String> {
    let mut all = claim.metadata.labels.clone().into_inner();
    all.insert(labels::CAPACITY_TYPE.to_owned(), capacity_type.to_owned());
    if family != AmiFamily::Custom {
        all.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
    }
    all.retain(|key, value| !is_restricted(key) && is_qualified_name(key) && is_label_value(value));
    all
}

/// Domains whose labels a kubelet may not set on its Node.
const RESTRICTED_DOMAINS: &[&str] = &["node-restriction.kubernetes.io", "kubernetes.io", "k8s.io"];

fn is_restricted(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    RESTRICTED_DOMAINS.iter().any(|restricted| domain.strip_suffix(restricted).is_some_and(|head| head.is_empty() || head.ends_with('.')))
}

/// The initial taints of the Node: the claim's, its startup taints, and the one until registration. Each once: an API server takes no Node
/// that has one twice, and kubelets add the cloud provider's to what they are given.
pub fn node_taints(claim: &NodeClaim) -> Vec<Taint> {
    let unregistered = Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute);
    let of_kubelet = Taint::new(labels::CLOUD_PROVIDER_TAINT, TaintEffect::NoSchedule);
    let mut taints: Vec<Taint> = Vec::new();
    for taint in claim.spec.taints.iter().chain(&claim.spec.startup_taints).chain([&unregistered]) {
        if !taint.same(&of_kubelet) && !taints.iter().any(|known| known.same(taint)) {
            taints.push(taint.clone());
        }
    }
    taints
}

impl Bootstrap<'_> {
    /// Name servers for pods: the user's, else the cluster's.
    fn dns_servers(&self) -> Vec<&str> {
        if self.kubelet.cluster_dns.is_empty() {
            self.cluster.dns_address.as_deref().into_iter().collect()
        } else {
            self.kubelet.cluster_dns.iter().map(String::as_str).collect()
        }
    }
    /// The user's own user data; an empty string counts as none.
    fn custom(&self) -> Option<&str> {
        self.class.spec.user_data.as_deref().filter(|text| !text.is_empty())
    }
    /// Whether local disks become one volume for pods.
    fn uses_local_disks(&self) -> bool {
        self.class.spec.instance_store_policy.as_deref() == Some("RAID0")
    }
    fn check_certificate_authority(&self) -> Result<(), UserDataError> {
        let Some(bundle) = &self.cluster.ca_bundle else { return Ok(()) };
        check_base64(bundle).map_err(|problem| UserDataError::CertificateAuthority { class: self.class_name(), problem })
    }
    fn class_name(&self) -> String {
        self.class.metadata.name.clone()
    }
}

fn check_base64(text: &str) -> Result<(), String> {
    from_base64(text).map(drop)
}

/// As lenient as the hosts' decoders: line breaks, missing padding and spare bits are no errors.
fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent).with_decode_allow_trailing_bits(true);
    let joined: String = text.split_ascii_whitespace().collect();
    GeneralPurpose::new(&STANDARD, LENIENT).decode(joined).map_err(|error| error.to_string())
}

#[cfg(test)]
pub(crate) mod tests;

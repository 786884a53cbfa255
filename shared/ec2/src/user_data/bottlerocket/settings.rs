//! The settings of Bottlerocket that we know, by type (aws 12.6). Other keys of these tables are dropped: with one that it does not
//! know, or one of another type, the host would reject all of them.

use crate::kubelet::TextMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use toml::Value;

/// `settings.kubernetes`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Kubernetes {
    pub(super) api_server: Option<String>,
    pub(super) cluster_certificate: Option<String>,
    pub(super) cluster_dns_ip: Option<Addresses>,
    pub(super) cluster_name: Option<String>,
    pub(super) cpu_cfs_quota_enforced: Option<bool>,
    pub(super) eviction_hard: Option<TextMap>,
    pub(super) eviction_max_pod_grace_period: Option<i64>,
    pub(super) eviction_soft: Option<TextMap>,
    pub(super) eviction_soft_grace_period: Option<TextMap>,
    pub(super) image_gc_high_threshold_percent: Option<Percent>,
    pub(super) image_gc_low_threshold_percent: Option<Percent>,
    pub(super) kube_reserved: Option<TextMap>,
    pub(super) max_pods: Option<i64>,
    pub(super) node_labels: TextMap,
    /// The user's are not read: ours take their place.
    #[serde(skip_deserializing)]
    pub(super) node_taints: BTreeMap<String, Vec<String>>,
    pub(super) system_reserved: Option<TextMap>,

    // The user's alone.
    allowed_unsafe_sysctls: Option<Vec<String>>,
    cloud_provider: Option<String>,
    cluster_domain: Option<String>,
    container_log_max_files: Option<i64>,
    container_log_max_size: Option<String>,
    container_log_max_workers: Option<i64>,
    container_log_monitor_interval: Option<String>,
    cpu_manager_policy: Option<String>,
    cpu_manager_policy_options: Option<Vec<String>>,
    cpu_manager_reconcile_period: Option<String>,
    credential_providers: Option<BTreeMap<String, CredentialProvider>>,
    device_ownership_from_security_context: Option<bool>,
    event_burst: Option<i64>,
    event_qps: Option<i64>,
    hostname_override_source: Option<String>,
    ids_per_pod: Option<i64>,
    kube_api_burst: Option<i64>,
    kube_api_qps: Option<i64>,
    log_level: Option<u32>,
    memory_manager_policy: Option<String>,
    memory_manager_reserved_memory: Option<BTreeMap<String, ReservedMemory>>,
    pod_pids_limit: Option<i64>,
    registry_burst: Option<i64>,
    registry_qps: Option<i64>,
    seccomp_default: Option<bool>,
    server_tls_bootstrap: Option<bool>,
    shutdown_grace_period: Option<String>,
    shutdown_grace_period_for_critical_pods: Option<String>,
    single_process_oom_kill: Option<bool>,
    static_pods: Option<BTreeMap<String, StaticPod>>,
    topology_manager_policy: Option<String>,
    topology_manager_policy_options: Option<TopologyPolicyOptions>,
    topology_manager_scope: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct CredentialProvider {
    enabled: Option<bool>,
    cache_duration: Option<String>,
    image_patterns: Option<Vec<String>>,
    environment: Option<TextMap>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct StaticPod {
    enabled: Option<bool>,
    manifest: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ReservedMemory {
    enabled: Option<bool>,
    memory: Option<String>,
    #[serde(rename = "hugepages-2Mi")]
    hugepages_2mi: Option<String>,
    #[serde(rename = "hugepages-1Gi")]
    hugepages_1gi: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct TopologyPolicyOptions {
    prefer_closest_numa_nodes: Option<bool>,
    max_allowable_numa_nodes: Option<i64>,
}

/// An entry of `settings.bootstrap-commands`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct BootstrapCommand {
    pub(super) commands: Option<Vec<Vec<String>>>,
    /// The host's default is `off`.
    pub(super) mode: Option<Mode>,
    pub(super) essential: Option<bool>,
}

/// When a boot command runs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    Always,
    Once,
    Off,
}

/// One address or several.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Addresses {
    One(String),
    Several(Vec<String>),
}

/// A percentage: the host wants a string, users also write an integer.
#[derive(Debug, Serialize)]
pub(super) struct Percent(String);

impl From<i32> for Percent {
    fn from(percent: i32) -> Self {
        Self(percent.to_string())
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Integer(percent) => Ok(Self(percent.to_string())),
            other => Err(serde::de::Error::custom(format_args!("invalid type: {}, expected a string or an integer", other.type_str()))),
        }
    }
}

/// The typed form of the user's table at `path`; else the path of the first setting of another type, and why.
pub(super) fn typed<T: DeserializeOwned>(path: &str, value: Value) -> Result<T, (String, String)> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let whole = if inner == "." { path.to_owned() } else { format!("{path}.{inner}") };
        (whole, error.into_inner().message().to_owned())
    })
}

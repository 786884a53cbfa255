//! Pod admission: defaults, requests from limits, addresses of Windows pods.

use super::Cluster;
use whittle_api::k8s::{ConfigMap, Container, Pod, PodSpec, Toleration};
use whittle_api::labels;
use whittle_units::Quantity;

/// The resource that EKS assigns to Windows pods.
const WINDOWS_ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// Whether this is the VPC CNI's ConfigMap, and switches Windows addresses on.
#[must_use]
pub fn switches_windows_addresses_on(map: &ConfigMap) -> bool {
    (map.metadata.namespace.as_str(), map.metadata.name.as_str()) == ("kube-system", "amazon-vpc-cni")
        && map.data.get("enable-windows-ipam").is_some_and(|value| value == "true")
}

/// Requests an address for a pod that selects Windows, as EKS' webhook does once addresses are switched on.
pub fn request_windows_address(spec: &mut PodSpec) {
    let is_windows = spec.node_selector.get(labels::OS).is_some_and(|os| os == "windows");
    if let Some(first) = spec.containers.first_mut().filter(|_| is_windows) {
        let resources = first.resources.get_or_insert_default();
        resources.requests.set(WINDOWS_ADDRESS, Quantity::from_units(1));
        resources.limits.set(WINDOWS_ADDRESS, Quantity::from_units(1));
    }
}

impl Cluster {
    /// Whether the VPC CNI's ConfigMap switches Windows addresses on.
    fn windows_addresses(&self) -> bool {
        self.objects.config_maps.get("kube-system/amazon-vpc-cni").is_some_and(switches_windows_addresses_on)
    }

    /// A pod after admission.
    pub(super) fn admit(&self, mut pod: Pod) -> Pod {
        let spec = &mut pod.spec;
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut()) {
            limits_become_requests(container);
        }
        if self.windows_addresses() {
            request_windows_address(spec);
        }
        if let Some(class) = self.objects.priority_classes.get(&spec.priority_class_name) {
            spec.priority.get_or_insert(class.value);
        }
        match spec.priority_class_name.as_str() {
            "system-node-critical" => {
                spec.priority.get_or_insert(2_000_001_000);
            }
            "system-cluster-critical" => {
                spec.priority.get_or_insert(2_000_000_000);
            }
            _ => {}
        }
        spec.termination_grace_period_seconds.get_or_insert(30);
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            if !spec.tolerations.iter().any(|toleration| toleration.key == key || toleration.key.is_empty()) {
                spec.tolerations.push(Toleration {
                    key: key.to_owned(),
                    operator: "Exists".to_owned(),
                    effect: "NoExecute".to_owned(),
                    toleration_seconds: Some(300),
                    ..Toleration::default()
                });
            }
        }
        if pod.metadata.namespace.is_empty() {
            "default".clone_into(&mut pod.metadata.namespace);
        }
        "Pending".clone_into(&mut pod.status.phase);
        pod
    }
}

fn limits_become_requests(container: &mut Container) {
    if let Some(resources) = &mut container.resources {
        for (name, amount) in resources.limits.0.clone() {
            resources.requests.0.entry(name).or_insert(amount);
        }
    }
}

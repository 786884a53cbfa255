//! Host ports of pods.

use super::requests::is_sidecar;
use std::fmt;
use whittle_api::k8s::Pod;

/// A host port, on one address or all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// `0.0.0.0` or `::` for all addresses.
    pub ip: String,
    pub port: i32,
    pub protocol: String,
}

impl HostPort {
    /// Whether pods with these ports cannot run on the same machine.
    #[must_use]
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.port == other.port && self.protocol == other.protocol && (self.ip == other.ip || self.is_any() || other.is_any())
    }

    fn is_any(&self) -> bool {
        self.ip == "0.0.0.0" || self.ip == "::"
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IP={} Port={} Proto={}", self.ip, self.port, self.protocol)
    }
}

/// The host ports of a pod's containers and sidecars. Other init containers do not count, as for the scheduler of Kubernetes: they end
/// before the containers begin.
#[must_use]
pub fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let mut out: Vec<HostPort> = Vec::new();
    let sidecars = pod.spec.init_containers.iter().filter(|c| is_sidecar(c));
    for port in pod.spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports).filter(|p| p.host_port != 0) {
        let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
        out.push(HostPort { ip: or(&port.host_ip, "0.0.0.0"), port: port.host_port, protocol: or(&port.protocol, "TCP") });
    }
    out.sort();
    out.dedup();
    out
}

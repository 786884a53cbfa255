//! The resources of a node class: subnets, security groups, images and capacity reservations as EC2 describes them, and the
//! cluster they belong to.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use whittle_units::{ClusterName, Timestamp};

/// A subnet, as DescribeSubnets shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subnet {
    pub id: String,
    /// The account's own name of the zone, such as `eu-west-1a`.
    pub zone: String,
    /// The zone's name in every account, such as `euw1-az1`.
    pub zone_id: String,
    pub free_addresses: u32,
    /// Id of its VPC; empty where EC2 names none.
    #[serde(default)]
    pub vpc: String,
    /// ARN of the Outpost that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outpost: Option<String>,
    pub tags: BTreeMap<String, String>,
}

/// A security group, as DescribeSecurityGroups shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    /// Id of its VPC; empty where EC2 names none.
    #[serde(default)]
    pub vpc: String,
    pub tags: BTreeMap<String, String>,
}

/// A machine image, as DescribeImages shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub id: String,
    pub name: String,
    pub owner: String,
    /// `x86_64` or `arm64`.
    pub architecture: String,
    pub created_at: Timestamp,
    pub deprecated: bool,
    /// The machines it was made for; images without an alias fit all machines of their architecture.
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

/// A capacity reservation, with EC2's own field names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityReservation {
    pub id: String,
    pub zone: String,
    pub instance_type: String,
    /// Account that pays.
    pub owner: String,
    /// `open` or `targeted`.
    pub match_criteria: String,
    /// `default` or `capacity-block`; empty means `default`.
    pub kind: String,
    /// EC2 may interrupt its machines after a warning.
    pub interruptible: bool,
    /// Operating system, such as `Linux/UNIX`, `Windows` or `Red Hat Enterprise Linux`; empty if EC2 did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// `default` or `dedicated`; empty if EC2 did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenancy: String,
    /// ARN of the cluster placement group that it was made in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group: Option<String>,
    /// ARN of the Outpost that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outpost: Option<String>,
    /// `active`, or one of the states in which nothing can be started.
    pub state: String,
    pub ends_at: Option<Timestamp>,
    /// Instances that can still be started in it.
    pub free: u32,
    pub tags: BTreeMap<String, String>,
}

/// A placement group, with EC2's own field names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroup {
    pub id: String,
    pub name: String,
    /// `cluster`, `partition` or `spread`.
    pub strategy: String,
    /// 0 unless the strategy is `partition`.
    pub partition_count: u32,
    /// `available`, or one of the states in which nothing can be started: `pending`, `deleting`, `deleted`.
    pub state: String,
}

/// The facts of an EKS cluster that nodes need.
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
    /// Id of the VPC that its nodes are in; empty while it is unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vpc: String,
    /// Empty in records of older releases.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arn: String,
}

impl ClusterInfo {
    /// Address of the cluster's DNS service: EKS gives it the tenth address of the service range. `None` while the range is
    /// unknown or unreadable; a class of a cluster with another address sets `spec.kubelet.clusterDNS`.
    pub fn dns_address(&self) -> Option<String> {
        let (network, _) = self.service_cidr.split_once('/')?;
        Some(match network.parse::<IpAddr>().ok()? {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).checked_add(DNS_HOST)?).to_string(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).checked_add(u128::from(DNS_HOST))?).to_string(),
        })
    }
}

/// Number of the DNS service's address in the service range.
const DNS_HOST: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dns_service_has_the_tenth_address_of_the_service_range() {
        for (cidr, address) in [
            ("10.100.0.0/16", Some("10.100.0.10")),
            ("172.20.0.0/16", Some("172.20.0.10")),
            ("fd12:3456::/108", Some("fd12:3456::a")),
            ("", None),
            ("10.100.0.0", None),
            ("x/16", None),
        ] {
            let info = ClusterInfo { service_cidr: cidr.to_owned(), ..ClusterInfo::default() };
            assert_eq!(info.dns_address().as_deref(), address, "{cidr}");
        }
    }
}

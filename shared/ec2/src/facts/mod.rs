//! Facts of instance types, and the zones and prices of a region: the input of the catalog.

mod catalog;
#[cfg(any(feature = "offline", test))]
pub mod describe;
#[cfg(any(feature = "offline", test))]
pub mod offline;
pub mod tables;

pub use catalog::{Catalog, CatalogError, Zone};

use serde::{Deserialize, Serialize};

/// One instance type of DescribeInstanceTypes, reduced to the facts that decisions use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceTypeFacts {
    #[serde(rename = "n")]
    pub name: String,
    /// In EC2's spelling and order (`i386`, `x86_64`, `arm64`).
    #[serde(rename = "a")]
    pub architectures: Vec<String>,
    #[serde(rename = "v")]
    pub vcpus: u32,
    #[serde(rename = "m")]
    pub memory_mib: u64,
    #[serde(rename = "cm", skip_serializing_if = "String::is_empty")]
    pub cpu_manufacturer: String,
    /// Sustained clock speed, rounded to MHz.
    #[serde(rename = "cs", skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<u32>,
    #[serde(rename = "cf", skip_serializing_if = "Vec::is_empty")]
    pub cpu_features: Vec<String>,
    /// `nitro`, `xen`, empty for bare metal.
    #[serde(rename = "h", skip_serializing_if = "String::is_empty")]
    pub hypervisor: String,
    /// `on-demand`, `spot`, `capacity-block`.
    #[serde(rename = "u")]
    pub usage_classes: Vec<String>,
    #[serde(rename = "g", skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
    /// Inference accelerators; AWS's own are in `neuron` too.
    #[serde(rename = "ia", skip_serializing_if = "Vec::is_empty")]
    pub accelerators: Vec<Accelerator>,
    #[serde(rename = "ne", skip_serializing_if = "Vec::is_empty")]
    pub neuron: Vec<NeuronDevice>,
    /// Local disks in decimal gigabytes; `None` without local disks.
    #[serde(rename = "sg", skip_serializing_if = "Option::is_none")]
    pub storage_gb: Option<u64>,
    /// `required`, `supported`, `unsupported`.
    #[serde(rename = "sn", skip_serializing_if = "String::is_empty")]
    pub storage_nvme: String,
    #[serde(rename = "nd", skip_serializing_if = "is_zero")]
    pub default_network_card: u32,
    #[serde(rename = "nc")]
    pub network_cards: Vec<NetworkCard>,
    #[serde(rename = "ip")]
    pub ipv4_per_interface: u32,
    #[serde(rename = "ena", skip_serializing_if = "std::ops::Not::not")]
    pub ena: bool,
    #[serde(rename = "efa", skip_serializing_if = "is_zero")]
    pub efa_interfaces: u32,
    #[serde(rename = "enc", skip_serializing_if = "std::ops::Not::not")]
    pub encryption_in_transit: bool,
    /// `default`, `supported`, `unsupported`.
    #[serde(rename = "eo", skip_serializing_if = "String::is_empty")]
    pub ebs_optimized: String,
    #[serde(rename = "eb", skip_serializing_if = "Option::is_none")]
    pub ebs_max_mbps: Option<u32>,
    /// How many EBS volumes can be attached, the root volume included; `None` if EC2 did not say, or an earlier release wrote this.
    #[serde(rename = "ea", skip_serializing_if = "Option::is_none")]
    pub ebs_attachments: Option<u32>,
    /// `shared`: each network interface beyond the first takes the place of a volume; `dedicated`.
    #[serde(rename = "el", skip_serializing_if = "String::is_empty")]
    pub attachment_limit: String,
    #[serde(rename = "nx", skip_serializing_if = "std::ops::Not::not")]
    pub nitro_enclaves: bool,
    /// Placement group strategies: `cluster`, `partition`, `spread`.
    #[serde(rename = "ps")]
    pub placement_strategies: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The GPUs of one model in an instance type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    #[serde(rename = "c")]
    pub count: u32,
    #[serde(rename = "m")]
    pub manufacturer: String,
    #[serde(rename = "n")]
    pub name: String,
    /// Of one device.
    #[serde(rename = "mem")]
    pub memory_mib: u64,
}

/// The inference accelerators of one model in an instance type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    #[serde(rename = "c")]
    pub count: u32,
    #[serde(rename = "m")]
    pub manufacturer: String,
    #[serde(rename = "n")]
    pub name: String,
}

/// The devices of AWS's Neuron of one model in an instance type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeuronDevice {
    #[serde(rename = "c")]
    pub count: u32,
    #[serde(rename = "n")]
    pub name: String,
    /// Cores of one device.
    #[serde(rename = "k")]
    pub cores: u32,
}

/// One network card of an instance type, and how many interfaces it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkCard {
    #[serde(rename = "i")]
    pub index: u32,
    #[serde(rename = "x")]
    pub interfaces: u32,
    /// Told only of types that have EFA interfaces.
    #[serde(rename = "e", default, skip_serializing_if = "takes_any_efa")]
    pub efa: CardEfa,
}

/// The kinds of EFA interfaces that a network card takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CardEfa {
    /// Any; also if EC2 did not say, or an earlier release wrote this.
    #[default]
    Any,
    /// Only those without addresses.
    EfaOnly,
    None,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn takes_any_efa(efa: &CardEfa) -> bool {
    *efa == CardEfa::Any
}

impl CardEfa {
    /// From EC2's names of the types of interfaces that a card takes; no name at all says nothing.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        if names.is_empty() || names.contains(&"efa") {
            Self::Any
        } else if names.contains(&"efa-only") {
            Self::EfaOnly
        } else {
            Self::None
        }
    }
}

impl InstanceTypeFacts {
    /// Interfaces of the default network card: those with the pods' addresses.
    pub fn default_interfaces(&self) -> u32 {
        self.card_interfaces(self.default_network_card).unwrap_or_default()
    }
    /// Interfaces of a network card; `None` when the type has no such card.
    pub fn card_interfaces(&self, index: u32) -> Option<u32> {
        self.card(index).map(|card| card.interfaces)
    }
    /// A network card by its number.
    pub fn card(&self, index: u32) -> Option<&NetworkCard> {
        self.network_cards.iter().find(|card| card.index == index)
    }
    /// Kubernetes' name of the first architecture that it supports; empty if there is none.
    pub fn arch(&self) -> &'static str {
        self.architectures.iter().find_map(|architecture| kubernetes_arch(architecture)).unwrap_or_default()
    }
}

/// Kubernetes' name of an EC2 architecture.
pub fn kubernetes_arch(architecture: &str) -> Option<&'static str> {
    match architecture {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    }
}

/// A clock speed in GHz, as EC2 and the tables write it, rounded to whole MHz.
pub fn clock_mhz(gigahertz: &str) -> Option<u32> {
    let (whole, fraction) = gigahertz.split_once('.').unwrap_or((gigahertz, ""));
    let digits: u32 = format!("{fraction:0<4}").get(..4)?.parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add((digits + 5) / 10)
}

#[cfg(test)]
pub(crate) mod tests;

//! Launch templates: all properties of a machine that a fleet's overrides cannot set (aws 10).

use crate::facts::{CardEfa, InstanceTypeFacts};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use whittle_api::karpenter::AmiFamily;
use whittle_api::karpenter::{BlockDeviceMapping, ConnectionTracking, Ec2NodeClassSpec, MetadataOptions};
use whittle_units::Quantity;

/// A complete launch template: the same options have the same name, so that creation is idempotent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchTemplate {
    pub name: String,
    pub image_id: String,
    /// Not encoded; the adapter encodes it in base64.
    pub user_data: String,
    pub instance_profile: String,
    /// Of every interface; never set on the template itself.
    pub security_group_ids: Vec<String>,
    /// Sizes are quantities; [`volume_gibibytes`] rounds them.
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// `http_protocol_ipv6` is absent in regions that do not support it.
    pub metadata_options: MetadataOptions,
    pub detailed_monitoring: bool,
    pub interfaces: Vec<TemplateInterface>,
    /// `enabled` or `disabled`; EC2's default if absent.
    pub nested_virtualization: Option<String>,
    /// `default` or `dedicated`.
    pub tenancy: String,
    pub placement_group_id: Option<String>,
    pub partition: Option<u32>,
    pub enclave: bool,
    /// `None` omits the specification (gate `ReservedCapacity` off).
    pub reservation: Option<ReservationTarget>,
    /// `capacity-block` or `interruptible-capacity-reservation`.
    pub market_type: Option<String>,
    /// Spot requests are tagged too.
    pub spot: bool,
    /// Of the template, of network interfaces and of spot requests.
    pub tags: BTreeMap<String, String>,
}

/// The capacity reservation specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReservationTarget {
    /// Never uses an open reservation.
    None,
    /// Uses only this reservation.
    Only(String),
}

/// One network interface of a template. Absent fields are omitted from the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInterface {
    pub card_index: Option<u32>,
    pub device_index: u32,
    /// `interface`, `efa`, `efa-only`.
    pub interface_type: Option<String>,
    pub associate_public_ip: Option<bool>,
    pub ipv4_prefix_count: Option<i32>,
    /// EC2 takes no interface with this and `ipv6_address_count`, and no launch of ours asks for it.
    pub ipv6_prefix_count: Option<i32>,
    pub ipv6_address_count: Option<i32>,
    pub primary_ipv6: Option<bool>,
    pub connection_tracking: Option<ConnectionTracking>,
}

impl LaunchTemplate {
    /// The template with a name derived from its content (aws 10.1).
    #[must_use]
    pub fn named(mut self) -> Self {
        self.name.clear();
        let content = serde_json::to_vec(&self).expect("maps have text keys");
        let digest = Sha256::digest(&content);
        let number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        self.name = format!("karpenter.k8s.aws/{number}");
        self
    }
}

/// Size of a volume for EC2: whole gibibytes, rounded up; `None` without a size.
pub fn volume_gibibytes(size: Option<&str>) -> Option<i32> {
    let bytes = size?.parse::<Quantity>().ok()?.units_ceil();
    i32::try_from(bytes.div_euclid(1 << 30) + i64::from(bytes.rem_euclid(1 << 30) != 0)).ok()
}

/// The class's volumes, or its family's.
pub(super) fn volumes(class: &Ec2NodeClassSpec, family: AmiFamily) -> Vec<BlockDeviceMapping> {
    match class.block_device_mappings.as_deref() {
        Some(mappings) if !mappings.is_empty() => mappings.to_vec(),
        _ => family.default_volumes(),
    }
}

/// Regions without IPv6 metadata endpoints.
const WITHOUT_IPV6_METADATA: &[&str] =
    &["us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isob-west-1", "us-isof-south-1", "us-isof-east-1"];

/// Which addresses the nodes and pods of a cluster have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    /// That of the address of a cluster's DNS service, if it is known. A cluster has one family: what EKS says of it, which records of
    /// older releases lack, is the same (`Context::ipv6`).
    pub(super) fn of_dns(address: Option<&str>) -> Self {
        if address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()) { Self::V6 } else { Self::V4 }
    }
}

/// The class's metadata options; if the field is null, Karpenter's defaults for that case (aws 10.2).
pub(super) fn metadata_options(class: &Ec2NodeClassSpec, region: &str, ip_family: IpFamily) -> MetadataOptions {
    let word = |on: bool| Some(if on { "enabled" } else { "disabled" }.to_owned());
    let mut options = class.metadata_options.clone().unwrap_or_else(|| MetadataOptions {
        http_endpoint: word(false),
        http_protocol_ipv6: word(ip_family == IpFamily::V6),
        http_put_response_hop_limit: Some(2),
        http_tokens: Some("required".to_owned()),
    });
    if WITHOUT_IPV6_METADATA.contains(&region) {
        options.http_protocol_ipv6 = None;
    }
    options
}

/// One network interface of a machine for EFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EfaInterface {
    card: u32,
    device: u32,
    interface_type: &'static str,
}

const PLAIN: &str = "interface";
const EFA: &str = "efa";
/// An interface without addresses.
const EFA_ONLY: &str = "efa-only";

/// The interfaces of machines of a type that have `count` EFA interfaces: one on each card that takes any, from the first card on. The
/// machine's primary interface has addresses and is on card 0, whatever that takes: where it is no EFA interface, it is one more.
pub(super) fn efa_interfaces(facts: &InstanceTypeFacts, count: u32) -> Vec<EfaInterface> {
    if count == 0 {
        return Vec::new();
    }
    // A card that EC2 does not tell of is tried.
    let takes = |card: u32| facts.card(card).map_or(CardEfa::Any, |known| known.efa);
    let is_one_more = takes(0) != CardEfa::Any;
    let primary = is_one_more.then_some(EfaInterface { card: 0, device: 0, interface_type: PLAIN });
    let cards = (0_u32..).filter(|card| takes(*card) != CardEfa::None).take(usize::try_from(count).unwrap_or(usize::MAX));
    let efa = cards.map(|card| EfaInterface {
        card,
        device: match (card, facts.card_interfaces(card)) {
            (0, _) => u32::from(is_one_more),
            // It has no second interface.
            (_, Some(1)) => 0,
            _ => 1,
        },
        interface_type: if takes(card) == CardEfa::EfaOnly { EFA_ONLY } else { EFA },
    });
    primary.into_iter().chain(efa).collect()
}

/// The interfaces of machines (aws 10.3). `efa` are those that the claim asks for, if any.
pub(super) fn interfaces(class: &Ec2NodeClassSpec, efa: &[EfaInterface], ip_family: IpFamily) -> Vec<TemplateInterface> {
    let is_ipv6 = ip_family == IpFamily::V6;
    let with_addresses = |card_index: Option<u32>, device_index: u32, interface_type: Option<&str>| TemplateInterface {
        card_index,
        device_index,
        interface_type: interface_type.map(str::to_owned),
        associate_public_ip: class.associate_public_ip_address,
        ipv4_prefix_count: class.ip_prefix_count.filter(|_| !is_ipv6),
        // EC2 takes either addresses or prefixes of an interface, and a primary address is one of the former.
        ipv6_prefix_count: None,
        ipv6_address_count: is_ipv6.then_some(1),
        primary_ipv6: is_ipv6.then_some(true),
        connection_tracking: class.connection_tracking.clone().filter(|tracking| *tracking != ConnectionTracking::default()),
    };
    let on_card = |card: u32, device_index: u32, interface_type: &str| {
        if interface_type == EFA_ONLY {
            // It has no addresses, so address fields must be omitted.
            return TemplateInterface {
                card_index: Some(card),
                device_index,
                interface_type: Some(interface_type.to_owned()),
                ..TemplateInterface::default()
            };
        }
        with_addresses(Some(card), device_index, Some(interface_type).filter(|kind| !kind.is_empty()))
    };
    if let Some(named) = class.network_interfaces.as_deref().filter(|named| !named.is_empty()) {
        let index = |number: i32| u32::try_from(number).unwrap_or_default();
        return named.iter().map(|nic| on_card(index(nic.network_card_index), index(nic.device_index), &nic.interface_type)).collect();
    }
    if efa.is_empty() {
        return vec![with_addresses(None, 0, None)];
    }
    efa.iter().map(|each| on_card(each.card, each.device, each.interface_type)).collect()
}

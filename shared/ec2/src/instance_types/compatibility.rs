//! Types that are incompatible with a node class (aws 3.6): they stay listed as unavailable.

use super::Context;
use crate::facts::{CardEfa, InstanceTypeFacts, NetworkCard};
use whittle_api::karpenter::AmiFamily;
use whittle_api::karpenter::NetworkInterface;

/// Why a type cannot be used with a class; the first reason found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Incompatibility {
    AmiFamily,
    NetworkInterfaces,
    NestedVirtualization,
    PlacementStrategy,
    ConnectionTracking,
    Ipv6,
}

pub(super) fn check(facts: &InstanceTypeFacts, context: &Context<'_>) -> Option<Incompatibility> {
    let class = &context.class.spec;
    if context.family == AmiFamily::Al2023 && facts.name.starts_with("a1.") {
        return Some(Incompatibility::AmiFamily);
    }
    if let Some(interfaces) = class.network_interfaces.as_deref().filter(|interfaces| !interfaces.is_empty())
        && !supports_interfaces(facts, interfaces)
    {
        return Some(Incompatibility::NetworkInterfaces);
    }
    let nested = class.cpu_options.as_ref().and_then(|options| options.nested_virtualization.as_deref()) == Some("enabled");
    if nested && !facts.cpu_features.iter().any(|feature| feature == "nested-virtualization") {
        return Some(Incompatibility::NestedVirtualization);
    }
    if let Some(group) = context.placement_group
        && !facts.placement_strategies.contains(&group.strategy)
    {
        return Some(Incompatibility::PlacementStrategy);
    }
    if class.connection_tracking.is_some() && facts.hypervisor != "nitro" {
        return Some(Incompatibility::ConnectionTracking);
    }
    // The VPC CNI gives pods IPv6 addresses from prefixes, which only the Nitro system has, bare metal included. Types to which EC2 gives
    // no IPv6 address at all are among the others.
    if context.ipv6 && facts.hypervisor == "xen" {
        return Some(Incompatibility::Ipv6);
    }
    None
}

/// Whether the type supports all interfaces of the class.
fn supports_interfaces(facts: &InstanceTypeFacts, interfaces: &[NetworkInterface]) -> bool {
    let is_efa_only = |interface: &NetworkInterface| interface.interface_type == "efa-only";
    let takes = |card: &NetworkCard, interface: &NetworkInterface| {
        let has_slot = u32::try_from(interface.device_index).is_ok_and(|device| device < card.interfaces);
        // Not each card of a type with EFA takes an interface for it: the first of p6-b300.48xlarge does not.
        has_slot && !(is_efa_only(interface) && card.efa == CardEfa::None)
    };
    let fits = |interface: &NetworkInterface| {
        let card = u32::try_from(interface.network_card_index).ok().and_then(|index| facts.card(index));
        card.is_some_and(|card| takes(card, interface))
    };
    let efa_only = interfaces.iter().filter(|interface| is_efa_only(interface)).count();
    facts.ena
        && facts.ipv4_per_interface >= 1
        && interfaces.iter().all(fits)
        && u32::try_from(efa_only).is_ok_and(|count| count <= facts.efa_interfaces)
}

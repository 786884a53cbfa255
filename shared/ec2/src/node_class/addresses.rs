//! Subnets with fewer free addresses than the pods of a machine need (aws 14.1): its node joins, and its pods wait for addresses.

use crate::network::{ClusterInfo, Subnet};
use std::collections::BTreeMap;
use whittle_api::karpenter::Ec2NodeClass;

/// The addresses of a prefix, all of which have to be free. Without prefixes the VPC CNI fetches those of a network interface, which are
/// about as many on common types.
const PREFIX_ADDRESSES: u32 = 16;
/// How many subnets are named: a condition has room for them.
const NAMED_MAX: usize = 5;

/// The zones in which pods may get no address, if any: in each, machines start in the subnet with most free ones. The numbers of free
/// addresses are not told, which would change the status of the class with every pod.
pub(super) fn remark(class: &Ec2NodeClass, subnets: &[Subnet], cluster: &ClusterInfo) -> Option<String> {
    // Pods have addresses of another kind there, of which a subnet has more than enough.
    if cluster.ipv6 {
        return None;
    }
    let mut largest: BTreeMap<&str, &Subnet> = BTreeMap::new();
    for subnet in subnets {
        let known = largest.entry(&subnet.zone).or_insert(subnet);
        if known.free_addresses < subnet.free_addresses {
            *known = subnet;
        }
    }
    let needed = needed(class);
    let mut scarce: Vec<String> = largest
        .values()
        .filter(|subnet| subnet.free_addresses < needed)
        .map(|subnet| format!("{} in {}", subnet.id, subnet.zone))
        .collect();
    if scarce.is_empty() {
        return None;
    }
    let more = match scarce.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    scarce.truncate(NAMED_MAX);
    Some(format!(
        "fewer than the {needed} free addresses that a machine and its pods need: {}{more}; nodes join there, and pods that the VPC CNI \
         gives addresses of the node's subnet may stay ContainerCreating: select a larger subnet of the zone as well in \
         spec.subnetSelectorTerms, free addresses, or leave the zone out",
        scarce.join(", ")
    ))
}

/// How many free addresses a machine of a class needs.
fn needed(class: &Ec2NodeClass) -> u32 {
    let prefixes = class.spec.ip_prefix_count.and_then(|count| u32::try_from(count).ok()).filter(|count| 0 < *count);
    // One is the machine's own.
    prefixes.map_or(PREFIX_ADDRESSES, |count| count.saturating_mul(PREFIX_ADDRESSES).saturating_add(1))
}

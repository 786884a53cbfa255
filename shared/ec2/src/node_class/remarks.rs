//! What a class says and none of its nodes does (aws 18.4).

use crate::network::ClusterInfo;
use crate::user_data;
use whittle_api::karpenter::Ec2NodeClass;

/// How many unknown settings are named: a condition has room for them.
const NAMED_MAX: usize = 10;

/// Settings of a class that have no effect on its nodes, each with its field and a remedy. Nodes are launched nevertheless.
pub fn remarks(class: &Ec2NodeClass) -> Vec<String> {
    local_disks(class).into_iter().chain(unknown_settings(class)).collect()
}

/// The same, of what only some clusters give no effect.
pub(super) fn in_cluster(class: &Ec2NodeClass, cluster: &ClusterInfo) -> Option<String> {
    let count = class.spec.ip_prefix_count.filter(|count| cluster.ipv6 && *count > 0)?;
    Some(format!(
        "spec.ipPrefixCount: {count} does nothing in an IPv6 cluster, where EC2 gives an interface either an address, which a node needs, \
         or prefixes: leave it out; the VPC CNI fetches the prefix of pods itself"
    ))
}

fn local_disks(class: &Ec2NodeClass) -> Option<String> {
    let family = class.spec.family();
    let policy = class.spec.instance_store_policy.as_deref().filter(|_| !family.joins_local_disks())?;
    Some(format!(
        "spec.instanceStorePolicy: {policy} does nothing on nodes of {}, on which pods have the root volume alone: leave it out, and set \
         that volume's size in spec.blockDeviceMappings",
        family.name()
    ))
}

fn unknown_settings(class: &Ec2NodeClass) -> Option<String> {
    let mut dropped = user_data::dropped(class);
    let more = match dropped.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    dropped.truncate(NAMED_MAX);
    let named = format!("{}{more}", dropped.join(", "));
    let text = || {
        format!(
            "spec.userData: {named} {} left out of what nodes are given, as no setting of Bottlerocket that is known: correct the name \
             (all settings are below settings), or remove it",
            if dropped.len() == 1 { "is" } else { "are" }
        )
    };
    (!dropped.is_empty()).then(text)
}

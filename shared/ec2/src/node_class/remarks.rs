//! What a class says and none of its nodes does (aws 18.4).

use whittle_api::karpenter::Ec2NodeClass;

/// What of a class has no effect on its nodes, each with its field and a remedy. Its nodes are launched all the same.
pub fn remarks(class: &Ec2NodeClass) -> Vec<String> {
    local_disks(class).into_iter().collect()
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

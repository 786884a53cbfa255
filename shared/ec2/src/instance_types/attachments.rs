//! How many volumes of pods the EBS CSI driver will attach to a machine: what the type allows, less what the machine has anyway. The driver
//! reports it in the CSINode once it runs there, and kube-scheduler goes by that (scheduling 8.5, ADR 0063).

use super::Context;
use crate::facts::InstanceTypeFacts;

/// The driver never attaches more to machines with this hypervisor, nor counts their interfaces.
const XEN: (&str, u32) = ("xen", 39);
/// The VPC CNI attaches a second interface before pods need it. How many it attaches later depends on their number.
const INTERFACES: usize = 2;

/// The expected limit of pods' volumes; `None` where the catalog does not tell what the type allows.
pub(super) fn of_pods(facts: &InstanceTypeFacts, context: &Context<'_>) -> Option<u32> {
    let allowed = facts.ebs_attachments?;
    let is_xen = facts.hypervisor == XEN.0;
    let most = if is_xen { allowed.min(XEN.1) } else { allowed };
    // EC2 has already subtracted the first interface and the local disks.
    let interfaces = if facts.attachment_limit == "shared" && !is_xen { interfaces(facts, context) - 1 } else { 0 };
    let taken = u32::try_from(interfaces + own_volumes(context)).unwrap_or(u32::MAX);
    // The driver reports no less, since zero would mean any number.
    Some(most.saturating_sub(taken).max(1))
}

/// How many interfaces a node has soon after its start, at least one.
fn interfaces(facts: &InstanceTypeFacts, context: &Context<'_>) -> usize {
    let launched = context.class.spec.network_interfaces.as_ref().map_or(0, Vec::len);
    let soon = usize::try_from(facts.default_interfaces()).unwrap_or(usize::MAX).min(INTERFACES);
    launched.max(soon).max(1)
}

/// How many volumes a machine is launched with, at least its root volume.
fn own_volumes(context: &Context<'_>) -> usize {
    let mappings = context.class.spec.block_device_mappings.as_deref().unwrap_or_default();
    let volumes = if mappings.is_empty() {
        context.family.default_volumes().len()
    } else {
        mappings.iter().filter(|mapping| mapping.ebs.is_some()).count()
    };
    volumes.max(1)
}

//! Hashes for the detection of static drift, identical to those of Karpenter, so that nothing drifts when Whittle
//! takes over (api 11).
//!
//! The structural hash walks over a value the way its Go type is declared: type and field names are Go's, zero values are
//! left out, a pointer to a zero value is not zero. [`Fields`] rebuilds that walk.

use crate::duration::NillableDuration;
use crate::k8s::Taint;
use crate::karpenter::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, Ec2NodeClass, Ec2NodeClassSpec, MetadataOptions, NetworkInterface, NodePool,
    PlacementGroupSelector,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use whittle_units::fnv1;

/// Version of [`node_pool`].
pub const NODE_POOL_VERSION: &str = "v3";
/// Version of [`node_class`].
pub const NODE_CLASS_VERSION: &str = "v6";

/// The hash of a NodePool's template, as in its annotation. Requirements, disruption, limits and weight do not
/// count.
pub fn node_pool(pool: &NodePool) -> String {
    let template = &pool.spec.template;
    let reference = &template.spec.node_class_ref;
    let meta = Fields::new("ObjectMeta")
        .nonzero("Labels", !template.metadata.labels.is_empty(), || text_map(&template.metadata.labels))
        .nonzero("Annotations", !template.metadata.annotations.is_empty(), || text_map(&template.metadata.annotations));
    let class =
        Fields::new("NodeClassReference").text("Kind", &reference.kind).text("Name", &reference.name).text("Group", &reference.group);
    let mut spec = Fields::new("NodeClaimTemplateSpec")
        .nonzero("Taints", !template.spec.taints.is_empty(), || list(template.spec.taints.iter().map(taint)))
        .nonzero("StartupTaints", !template.spec.startup_taints.is_empty(), || list(template.spec.startup_taints.iter().map(taint)))
        .add("NodeClassRef", class.0);
    if let Some(grace) = &template.spec.termination_grace_period {
        spec = spec.add("TerminationGracePeriod", Fields::new("Duration").number("Duration", nanos(grace.span())).0);
    }
    if let NillableDuration::After(expiry) = &template.spec.expire_after {
        // In Go this duration is a pointer, so zero is hashed.
        spec = spec.add("ExpireAfter", Fields::new("NillableDuration").add("Duration", int64(nanos(expiry.span()))).0);
    }
    let has_meta = !template.metadata.labels.is_empty() || !template.metadata.annotations.is_empty();
    Fields::new("NodeClaimTemplate").nonzero("ObjectMeta", has_meta, || meta.0).add("Spec", spec.0).0.to_string()
}

/// The hash of an EC2NodeClass with the CA bundle that its nodes trust (base64; empty if there is none), as in its
/// annotation. Selector terms and the IP prefix count are not hashed.
pub fn node_class(class: &Ec2NodeClass, ca_bundle: &str) -> String {
    let parts =
        [class_spec(&class.spec), text(class.spec.family_name()), text(ca_bundle), text(&kubelet_text(class.spec.kubelet.as_ref()))];
    list(parts.into_iter()).to_string()
}

/// What `hash`, which annotates a class and is of this release's version, becomes when the class is changed. The cluster's certificates
/// stay the same and need not be known.
pub fn changed_node_class(hash: &str, before: &Ec2NodeClass, after: &Ec2NodeClass) -> Option<String> {
    // A list hashes to the exclusive or of its parts.
    let parts = |class| node_class(class, "").parse::<u64>().ok();
    Some((hash.parse::<u64>().ok()? ^ parts(before)? ^ parts(after)?).to_string())
}

fn class_spec(spec: &Ec2NodeClassSpec) -> u64 {
    Fields::new("EC2NodeClassSpec")
        .pointer("PlacementGroupSelector", spec.placement_group_selector.as_ref().map(placement_group))
        .pointer("AssociatePublicIPAddress", spec.associate_public_ip_address.map(boolean))
        .pointer("UserData", spec.user_data.as_deref().map(text))
        .pointer("Role", spec.role.as_deref().filter(|role| !role.is_empty()).map(text))
        .pointer("InstanceProfile", spec.instance_profile.as_deref().map(text))
        .pointer("Tags", spec.tags.as_ref().map(text_map))
        .pointer("BlockDeviceMappings", spec.block_device_mappings.as_ref().map(|all| list(all.iter().map(block_device_mapping))))
        .pointer("InstanceStorePolicy", spec.instance_store_policy.as_deref().map(text))
        .pointer("NetworkInterfaces", spec.network_interfaces.as_ref().map(|all| list(all.iter().map(network_interface))))
        .pointer("DetailedMonitoring", spec.detailed_monitoring.map(boolean))
        .pointer("MetadataOptions", spec.metadata_options.as_ref().map(metadata_options))
        .pointer("ConnectionTracking", spec.connection_tracking.as_ref().map(connection_tracking))
        .pointer("Context", spec.context.as_deref().map(text))
        .pointer(
            "CPUOptions",
            spec.cpu_options.as_ref().map(|options| {
                Fields::new("CPUOptions").pointer("NestedVirtualization", options.nested_virtualization.as_deref().map(text)).0
            }),
        )
        .0
}

fn placement_group(group: &PlacementGroupSelector) -> u64 {
    Fields::new("PlacementGroupSelector")
        .text("Name", group.name.as_deref().unwrap_or_default())
        .text("ID", group.id.as_deref().unwrap_or_default())
        .0
}

fn block_device_mapping(mapping: &BlockDeviceMapping) -> u64 {
    Fields::new("BlockDeviceMapping")
        .pointer("DeviceName", mapping.device_name.as_deref().map(text))
        .pointer("EBS", mapping.ebs.as_ref().map(block_device))
        .nonzero("RootVolume", mapping.root_volume, || boolean(true))
        .0
}

fn block_device(device: &BlockDevice) -> u64 {
    Fields::new("BlockDevice")
        .pointer("DeleteOnTermination", device.delete_on_termination.map(boolean))
        .pointer("Encrypted", device.encrypted.map(boolean))
        .pointer("IOPS", device.iops.map(int64))
        .pointer("KMSKeyID", device.kms_key_id.as_deref().map(text))
        .pointer("SnapshotID", device.snapshot_id.as_deref().map(text))
        .pointer("Throughput", device.throughput.map(int64))
        .pointer("VolumeInitializationRate", device.volume_initialization_rate.map(int32))
        .pointer("VolumeSize", device.volume_size.as_deref().map(|size| text(&canonical_quantity(size))))
        .pointer("VolumeType", device.volume_type.as_deref().map(text))
        .0
}

fn network_interface(interface: &NetworkInterface) -> u64 {
    Fields::new("NetworkInterface")
        .nonzero("NetworkCardIndex", interface.network_card_index != 0, || int32(interface.network_card_index))
        .nonzero("DeviceIndex", interface.device_index != 0, || int32(interface.device_index))
        .text("InterfaceType", &interface.interface_type)
        .0
}

fn metadata_options(options: &MetadataOptions) -> u64 {
    Fields::new("MetadataOptions")
        .pointer("HTTPEndpoint", options.http_endpoint.as_deref().map(text))
        .pointer("HTTPProtocolIPv6", options.http_protocol_ipv6.as_deref().map(text))
        .pointer("HTTPPutResponseHopLimit", options.http_put_response_hop_limit.map(int64))
        .pointer("HTTPTokens", options.http_tokens.as_deref().map(text))
        .0
}

fn connection_tracking(tracking: &ConnectionTracking) -> u64 {
    Fields::new("ConnectionTracking")
        .pointer("TCPEstablishedTimeout", tracking.tcp_established_timeout.map(int32))
        .pointer("UDPStreamTimeout", tracking.udp_stream_timeout.map(int32))
        .pointer("UDPTimeout", tracking.udp_timeout.map(int32))
        .0
}

fn taint(taint: &Taint) -> u64 {
    let added = taint.time_added.map(|time| Fields::new("Time").add("Time", go_time(time)).0);
    Fields::new("Taint")
        .text("Key", &taint.key)
        .text("Value", &taint.value)
        .text("Effect", &taint.effect.to_string())
        .pointer("TimeAdded", added)
        .0
}

/// Go's binary form of a time in UTC.
fn go_time(time: jiff::Timestamp) -> u64 {
    /// Seconds from the beginning of year 1 to 1970.
    const YEAR_ONE: i64 = 62_135_596_800;
    let mut form = vec![1u8];
    form.extend((time.as_second() + YEAR_ONE).to_be_bytes());
    form.extend(time.subsec_nanosecond().to_be_bytes());
    // The zone's offset in minutes.
    form.extend(0i16.to_be_bytes());
    fnv1(&form)
}

fn nanos(span: jiff::SignedDuration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// Compact JSON with sorted keys, escaped as Go escapes it; `null` for no settings.
fn kubelet_text(kubelet: Option<&Value>) -> String {
    let Some(document) = kubelet.filter(|document| document.as_object().is_some_and(|map| !map.is_empty())) else {
        return "null".to_owned();
    };
    let mut out = String::new();
    for letter in document.to_string().chars() {
        if matches!(letter, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') {
            // Writing into a string cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    out
}

/// The canonical text of a volume size: largest suffix that keeps it whole, within the family that was written.
fn canonical_quantity(text: &str) -> String {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (Ok(mut amount), binary) = (number.parse::<u64>(), suffix.ends_with('i')) else { return text.to_owned() };
    let suffixes: &[&str] = if binary { &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] } else { &["", "k", "M", "G", "T", "P", "E"] };
    let step = if binary { 1024 } else { 1000 };
    let Some(mut at) = suffixes.iter().position(|known| *known == suffix) else { return text.to_owned() };
    while amount != 0 && amount % step == 0 && at + 1 < suffixes.len() {
        amount /= step;
        at += 1;
    }
    format!("{amount}{}", suffixes[at])
}

/// A struct whose fields are hashed one after the other.
struct Fields(u64);

impl Fields {
    fn new(type_name: &str) -> Self {
        Self(text(type_name))
    }
    fn add(self, name: &str, value: u64) -> Self {
        Self(close(self.0 ^ pair(text(name), value)))
    }
    fn nonzero(self, name: &str, counts: bool, value: impl FnOnce() -> u64) -> Self {
        if counts { self.add(name, value()) } else { self }
    }
    fn pointer(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.add(name, value),
            None => self,
        }
    }
    fn text(self, name: &str, value: &str) -> Self {
        self.nonzero(name, !value.is_empty(), || text(value))
    }
    fn number(self, name: &str, value: i64) -> Self {
        self.nonzero(name, value != 0, || int64(value))
    }
}

fn text(text: &str) -> u64 {
    fnv1(text)
}
fn boolean(value: bool) -> u64 {
    fnv1([u8::from(value)])
}
fn int64(value: i64) -> u64 {
    fnv1(value.to_le_bytes())
}
fn int32(value: i32) -> u64 {
    fnv1(value.to_le_bytes())
}
fn pair(first: u64, second: u64) -> u64 {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&first.to_le_bytes());
    both[8..].copy_from_slice(&second.to_le_bytes());
    fnv1(both)
}
fn close(hash: u64) -> u64 {
    fnv1(hash.to_le_bytes())
}
/// Independent of the order; equal elements cancel each other out.
fn list(hashes: impl Iterator<Item = u64>) -> u64 {
    hashes.fold(0, |all, hash| all ^ hash)
}
fn text_map(map: &BTreeMap<String, String>) -> u64 {
    close(list(map.iter().map(|(key, value)| pair(text(key), text(value)))))
}

#[cfg(test)]
mod tests;

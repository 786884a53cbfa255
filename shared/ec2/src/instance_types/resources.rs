//! The capacity and overhead of a machine (aws 3.3, 3.4).

use super::{Context, Settings};
use crate::facts::{InstanceTypeFacts, tables};
use crate::kubelet::{Kubelet, Resolved};
use whittle_api::karpenter::AmiFamily;
use whittle_api::karpenter::{BlockDeviceMapping, Ec2NodeClassSpec};
use whittle_units::{Quantity, Resources};

const MEBIBYTE: i64 = 1 << 20;
const GIBIBYTE: i64 = 1 << 30;
/// The number of pods if interfaces do not limit it: Kubernetes' own default.
const DEFAULT_PODS: u32 = 110;
/// Ephemeral storage if the volume size is unknown.
const DEFAULT_VOLUME: i64 = 20 * GIBIBYTE;
/// Graviton firmware reserves this much of EC2's nominal memory.
const ARM_FIRMWARE_MIB: i64 = 64;

/// Capacity and the three parts of the overhead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeResources {
    pub capacity: Resources,
    pub kube_reserved: Resources,
    pub system_reserved: Resources,
    pub eviction_threshold: Resources,
}

impl TypeResources {
    /// The total overhead.
    pub fn overhead(&self) -> Resources {
        let mut sum = self.kube_reserved.clone();
        sum.add(&self.system_reserved);
        sum.add(&self.eviction_threshold);
        sum
    }
}

/// Raises an overhead so that no more than `most` is allocatable of what that names.
pub(super) fn leave_at_most(overhead: &mut Resources, capacity: &Resources, most: &Resources) {
    for (name, amount) in most.iter() {
        let least = capacity.get(name).minus(amount);
        if overhead.get(name) < least {
            overhead.set(name, least);
        }
    }
}

/// Interfaces of the default card that pods may use: less those withheld and those that only carry EFA.
pub fn usable_interfaces(facts: &InstanceTypeFacts, class: &Ec2NodeClassSpec, reserved: u32) -> u32 {
    let efa_only = class.network_interfaces.iter().flatten().filter(|nic| nic.interface_type == "efa-only" && nic.network_card_index == 0);
    facts.default_interfaces().saturating_sub(reserved).saturating_sub(u32::try_from(efa_only.count()).unwrap_or(u32::MAX))
}

/// The number of pods for the addresses of `interfaces`: one address of each is the interface's own, two pods use the
/// host's network.
fn pods_by_interfaces(facts: &InstanceTypeFacts, interfaces: u32) -> u32 {
    if interfaces == 0 { 0 } else { interfaces * facts.ipv4_per_interface.saturating_sub(1) + 2 }
}

/// The number of pods of a family without any kubelet setting.
pub fn default_pods(facts: &InstanceTypeFacts, family: AmiFamily, interfaces: u32) -> u32 {
    if family.limits_pods_by_interfaces() { pods_by_interfaces(facts, interfaces) } else { DEFAULT_PODS }
}

/// Capacity and overhead of a type for a class.
pub(super) fn resources(facts: &InstanceTypeFacts, context: &Context<'_>, kubelet: &Resolved) -> TypeResources {
    let class = &context.class.spec;
    let storage = ephemeral_storage(facts, class, context.family);
    let capacity = capacity(facts, context, kubelet, storage);
    let reserved_by = if context.family.reserves_memory_by_interfaces() {
        pods_by_interfaces(facts, usable_interfaces(facts, class, 0))
    } else {
        kubelet.pods
    };
    let mut kube_reserved = Resources::from([
        ("cpu", Quantity::from_milli(reserved_cpu(i64::from(facts.vcpus) * 1000))),
        ("memory", Quantity::from_mebibytes(11 * i64::from(reserved_by) + 255)),
        ("ephemeral-storage", Quantity::from_units(GIBIBYTE)),
    ]);
    for (name, amount) in quantities(&kubelet.kube_reserved).iter() {
        kube_reserved.set(name, amount);
    }
    // The kubelet takes its share of what the machine has, not of what we expected.
    let memory = capacity.get("memory").units_floor();
    let threshold = |signal: &str, capacity: i64, default: i64| threshold(context.kubelet, signal, capacity).unwrap_or(default);
    let eviction_threshold = Resources::from([
        ("memory", Quantity::from_units(threshold("memory.available", memory, 100 * MEBIBYTE))),
        ("ephemeral-storage", Quantity::from_units(threshold("nodefs.available", storage, percent_of(storage, "10").unwrap_or_default()))),
    ]);
    TypeResources {
        capacity: without_zeros(capacity),
        kube_reserved: without_zeros(kube_reserved),
        system_reserved: without_zeros(quantities(&kubelet.system_reserved)),
        eviction_threshold: without_zeros(eviction_threshold),
    }
}

fn capacity(facts: &InstanceTypeFacts, context: &Context<'_>, kubelet: &Resolved, storage: i64) -> Resources {
    let class = &context.class.spec;
    let units = |count: u32| Quantity::from_units(i64::from(count));
    let gpus = |manufacturer: &str| units(facts.gpus.iter().filter(|gpu| gpu.manufacturer == manufacturer).map(|gpu| gpu.count).sum());
    let limits = tables::interface_limits(&facts.name).unwrap_or_default();
    let efa = match &class.network_interfaces {
        Some(interfaces) if !interfaces.is_empty() => {
            u32::try_from(interfaces.iter().filter(|nic| nic.interface_type == "efa-only").count()).unwrap_or(u32::MAX)
        }
        _ => facts.efa_interfaces,
    };
    let memory = context.measured_memory.get(&facts.name).copied().unwrap_or_else(|| Quantity::from_units(memory(facts, context.settings)));
    let mut capacity = Resources::from([
        ("cpu", units(facts.vcpus)),
        ("memory", memory),
        ("ephemeral-storage", Quantity::from_units(storage)),
        ("pods", units(kubelet.pods)),
        ("vpc.amazonaws.com/pod-eni", units(limits.branch_interfaces)),
        ("nvidia.com/gpu", gpus("NVIDIA")),
        ("amd.com/gpu", gpus("AMD")),
        ("habana.ai/gaudi", gpus("Habana")),
        ("aws.amazon.com/neuron", units(facts.neuron.iter().map(|device| device.count).sum())),
        ("aws.amazon.com/neuroncore", units(facts.neuron.first().map_or(0, |device| device.count * device.cores))),
        ("vpc.amazonaws.com/efa", units(efa)),
    ]);
    // EKS has no Windows images for Arm.
    if context.family.is_windows() && facts.arch() == "amd64" {
        capacity.set("vpc.amazonaws.com/PrivateIPv4Address", units(limits.ipv4_per_interface.saturating_sub(1)));
    }
    capacity
}

/// The expected memory of a node in bytes: the hypervisor's overhead is estimated as a share.
fn memory(facts: &InstanceTypeFacts, settings: &Settings) -> i64 {
    let firmware = if facts.architectures.first().is_some_and(|first| first == "arm64") { ARM_FIRMWARE_MIB } else { 0 };
    let mebibytes = i64::try_from(facts.memory_mib).unwrap_or(i64::MAX >> 20) - firmware;
    let kept = divided_up(i128::from(mebibytes) * i128::from(settings.vm_memory_overhead_ppm), 1_000_000);
    (mebibytes - kept).max(0) * MEBIBYTE
}

/// CPU reserved for kubelet and container runtime, in millicores: a smaller share of each additional core.
fn reserved_cpu(milli: i64) -> i64 {
    const TIERS: &[(i64, i64, i64)] = &[(0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, i64::MAX, 25)];
    TIERS.iter().map(|(from, to, per_ten_thousand)| (milli.min(*to) - from).max(0) * per_ten_thousand / 10_000).sum()
}

/// The size in bytes of the disk with pods' writable layers and logs: the first rule of aws 3.3 that gives one.
fn ephemeral_storage(facts: &InstanceTypeFacts, class: &Ec2NodeClassSpec, family: AmiFamily) -> i64 {
    // What local disks would hold, a node that never joins them has not, and would be launched for again and again.
    if class.instance_store_policy.as_deref() == Some("RAID0")
        && family.joins_local_disks()
        && let Some(gigabytes) = facts.storage_gb
    {
        return i64::try_from(gigabytes).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
    }
    let mappings = class.block_device_mappings.as_deref().unwrap_or_default();
    if let Some(size) = mappings.iter().filter(|mapping| mapping.root_volume).find_map(size_of) {
        return size;
    }
    if mappings.is_empty() {
        let defaults = family.default_volumes();
        return defaults
            .iter()
            .filter(|volume| volume.device_name.as_deref() == family.ephemeral_device())
            .find_map(size_of)
            .unwrap_or(DEFAULT_VOLUME);
    }
    let Some(device) = family.ephemeral_device() else {
        return mappings.last().and_then(size_of).unwrap_or(DEFAULT_VOLUME);
    };
    let named = mappings.iter().filter(|mapping| mapping.device_name.as_deref() == Some(device)).find_map(size_of);
    named
        .or_else(|| family.default_volumes().iter().filter(|volume| volume.device_name.as_deref() == Some(device)).find_map(size_of))
        .unwrap_or(DEFAULT_VOLUME)
}

fn size_of(mapping: &BlockDeviceMapping) -> Option<i64> {
    let size = mapping.ebs.as_ref()?.volume_size.as_deref()?;
    Some(size.parse::<Quantity>().ok()?.units_ceil())
}

/// Bytes of a hard eviction threshold; `None` when the user set none or one that cannot be parsed.
fn threshold(kubelet: &Kubelet, signal: &str, capacity: i64) -> Option<i64> {
    let text = kubelet.eviction_hard.get(signal)?;
    match text.strip_suffix('%') {
        Some(percent) => percent_of(capacity, percent),
        None => text.parse::<Quantity>().ok().map(Quantity::units_ceil),
    }
}

/// A percentage of a capacity, rounded up; 100 % disables the threshold.
fn percent_of(capacity: i64, percent: &str) -> Option<i64> {
    let share: Quantity = percent.parse().ok()?;
    if share == Quantity::from_units(100) {
        return Some(0);
    }
    Some(divided_up(i128::from(capacity) * i128::from(share.milli()), 100_000))
}

fn quantities(map: &crate::kubelet::TextMap) -> Resources {
    map.iter().filter_map(|(name, text)| Some((name.clone(), text.parse().ok()?))).collect()
}

/// Removes zero amounts: to Kubernetes they mean the same as absent ones.
fn without_zeros(mut resources: Resources) -> Resources {
    resources.0.retain(|_, amount| !amount.is_zero());
    resources
}

/// A quotient of non-negative numbers, rounded up.
fn divided_up(number: i128, divisor: i128) -> i64 {
    let quotient = number.div_euclid(divisor) + i128::from(number.rem_euclid(divisor) != 0);
    i64::try_from(quotient).unwrap_or(i64::MAX)
}

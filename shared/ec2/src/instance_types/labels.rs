//! The labels of a type as requirements (aws 3.2).

use super::{Context, zones_of};
use crate::facts::{Catalog, InstanceTypeFacts, kubernetes_arch, tables};
use std::collections::BTreeSet;
use whittle_api::karpenter::{Operator, Requirement, ResolvedCapacityReservation};
use whittle_api::labels;

/// Requirements of a type, in the order of their keys.
pub(super) fn requirements(facts: &InstanceTypeFacts, catalog: &Catalog, context: &Context<'_>) -> Vec<Requirement> {
    let reservations: Vec<_> = context.reservations_of(&facts.name).collect();
    let mut all = shape(facts);
    all.extend(devices(facts));
    all.extend(place(facts, catalog, context));
    all.extend(reserved(&reservations));
    let mut capacity_types: BTreeSet<&str> = facts.usage_classes.iter().filter_map(|class| capacity_type(class)).collect();
    if !reservations.is_empty() {
        capacity_types.insert(labels::CAPACITY_RESERVED);
    }
    all.push(set(labels::CAPACITY_TYPE, capacity_types));
    all.push(one(labels::INSTANCE_TYPE, Some(facts.name.clone())));
    all.push(Requirement::is_in(labels::INSTANCE_TENANCY, ["dedicated", "default"]));
    if let Some(group) = context.placement_group {
        all.push(one(labels::PLACEMENT_GROUP_ID, Some(group.id.clone())));
        if group.partitions() > 0 {
            all.push(set(labels::PLACEMENT_GROUP_PARTITION, (1..=group.partitions()).map(|number| number.to_string())));
        }
    }
    all.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

/// Usage classes that are capacity types of offerings; capacity blocks exist only as reservations.
pub(super) fn capacity_type(usage_class: &str) -> Option<&'static str> {
    match usage_class {
        "on-demand" => Some(labels::CAPACITY_ON_DEMAND),
        "spot" => Some(labels::CAPACITY_SPOT),
        _ => None,
    }
}

pub(super) fn absent(key: &str) -> Requirement {
    Requirement { key: key.to_owned(), operator: Operator::DoesNotExist, ..Requirement::default() }
}

/// `key In values`, in order and without repeats; no value at all means that the label does not exist.
pub(super) fn set<I: IntoIterator<Item = S>, S: Into<String>>(key: &str, values: I) -> Requirement {
    let values: BTreeSet<String> = values.into_iter().map(Into::into).collect();
    if values.is_empty() { absent(key) } else { Requirement::is_in(key, values) }
}

fn one(key: &str, value: Option<String>) -> Requirement {
    set(key, value)
}

fn shape(facts: &InstanceTypeFacts) -> Vec<Requirement> {
    let (family, size) = facts.name.split_once('.').map_or((None, None), |(family, size)| (Some(family), Some(size)));
    let (category, generation) = family.and_then(category_and_generation).map_or((None, None), |(c, g)| (Some(c), Some(g)));
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let ebs = facts.ebs_max_mbps.filter(|_| facts.ebs_optimized == "default");
    vec![
        one(labels::INSTANCE_CPU, Some(facts.vcpus.to_string())),
        one(labels::INSTANCE_CPU_MANUFACTURER, Some(kebab(&facts.cpu_manufacturer)).filter(|name| !name.is_empty())),
        // If EC2 reports no speed, the label is 0.
        one(labels::INSTANCE_CPU_SPEED, Some(facts.clock_mhz.unwrap_or(0).to_string())),
        one(labels::INSTANCE_MEMORY, Some(facts.memory_mib.to_string())),
        one(labels::INSTANCE_EBS_BANDWIDTH, ebs.map(|mbps| mbps.to_string())),
        one(labels::INSTANCE_NETWORK_BANDWIDTH, tables::network_bandwidth(&facts.name).map(|mbps| mbps.to_string())),
        one(labels::INSTANCE_CATEGORY, owned(category)),
        one(labels::INSTANCE_GENERATION, owned(generation)),
        one(labels::INSTANCE_FAMILY, owned(family)),
        one(labels::INSTANCE_SIZE, owned(size)),
        one(labels::INSTANCE_FLEX, Some(family.is_some_and(|family| family.contains("-flex")).to_string())),
        one(labels::INSTANCE_HYPERVISOR, Some(facts.hypervisor.clone())),
        one(labels::INSTANCE_ENCRYPTION, Some(facts.encryption_in_transit.to_string())),
        one(labels::NITRO_SANDBOX, Some(facts.nitro_enclaves.to_string())),
    ]
}

/// `u-12tb1` is category u, generation 1; `m7i-flex` category m, generation 7; `None` for other shapes of names.
fn category_and_generation(family: &str) -> Option<(&str, &str)> {
    let letters = family.find(|c: char| !c.is_ascii_lowercase())?;
    let (category, mut rest) = family.split_at(letters);
    if let Some(tail) = rest.strip_prefix('-') {
        let digits = tail.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
        rest = tail[digits..].strip_prefix("tb")?;
    }
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (!category.is_empty() && digits > 0).then(|| (category, &rest[..digits]))
}

/// GPU and accelerator labels exist only where one kind of device is built in.
fn devices(facts: &InstanceTypeFacts) -> Vec<Requirement> {
    let gpu = match facts.gpus.as_slice() {
        [gpu] => Some(gpu),
        _ => None,
    };
    let accelerator = match (facts.neuron.as_slice(), facts.accelerators.as_slice()) {
        ([device], _) => Some((kebab(&device.name), "aws".to_owned(), device.count)),
        ([], [device]) => Some((kebab(&device.name), kebab(&device.manufacturer), device.count)),
        _ => None,
    };
    let disks = facts.storage_gb.filter(|_| facts.storage_nvme != "unsupported");
    vec![
        one(labels::INSTANCE_GPU_NAME, gpu.map(|gpu| kebab(&gpu.name))),
        one(labels::INSTANCE_GPU_MANUFACTURER, gpu.map(|gpu| kebab(&gpu.manufacturer))),
        one(labels::INSTANCE_GPU_COUNT, gpu.map(|gpu| gpu.count.to_string())),
        one(labels::INSTANCE_GPU_MEMORY, gpu.map(|gpu| gpu.memory_mib.to_string())),
        one(labels::INSTANCE_ACCELERATOR_NAME, accelerator.as_ref().map(|(name, _, _)| name.clone())),
        one(labels::INSTANCE_ACCELERATOR_MANUFACTURER, accelerator.as_ref().map(|(_, manufacturer, _)| manufacturer.clone())),
        one(labels::INSTANCE_ACCELERATOR_COUNT, accelerator.as_ref().map(|(_, _, count)| count.to_string())),
        one(labels::INSTANCE_LOCAL_NVME, disks.map(|gigabytes| gigabytes.to_string())),
    ]
}

fn place(facts: &InstanceTypeFacts, catalog: &Catalog, context: &Context<'_>) -> Vec<Requirement> {
    let zones = zones_of(&facts.name, catalog, context);
    let ids: Vec<String> = zones.iter().filter_map(|zone| context.zone_id(zone)).map(str::to_owned).collect();
    let arch = facts.architectures.iter().find_map(|architecture| kubernetes_arch(architecture));
    let windows = context.family.windows_build();
    let os = match (windows, arch) {
        (None, _) => Some("linux"),
        (Some(_), Some("amd64")) => Some("windows"),
        _ => None,
    };
    let mut all = vec![
        one(labels::ARCH, arch.map(str::to_owned)),
        one(labels::OS, os.map(str::to_owned)),
        one(labels::WINDOWS_BUILD, windows.map(str::to_owned)),
        one(labels::REGION, Some(catalog.region.as_str().to_owned())),
        set(labels::ZONE, zones),
    ];
    if !ids.is_empty() {
        all.push(set(labels::ZONE_ID, ids));
    }
    all
}

fn reserved(reservations: &[&ResolvedCapacityReservation]) -> Vec<Requirement> {
    vec![
        set(labels::RESERVATION_ID, reservations.iter().map(|reservation| reservation.id.clone())),
        set(labels::RESERVATION_TYPE, reservations.iter().map(|reservation| reservation.reservation_type.clone())),
        set(labels::RESERVATION_INTERRUPTIBLE, reservations.iter().map(|reservation| reservation.interruptible.to_string())),
    ]
}

/// Spaces become dashes, letters lower case.
fn kebab(text: &str) -> String {
    text.replace(' ', "-").to_lowercase()
}

//! Reads instance types from the JSON that AWS's command line prints.

use super::{Accelerator, CardEfa, Gpu, InstanceTypeFacts, NetworkCard, NeuronDevice, clock_mhz};
use serde_json::Value;

/// The facts of an entry of `aws ec2 describe-instance-types`. What is missing is zero or empty.
pub fn from_describe(entry: &Value) -> InstanceTypeFacts {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap_or_default()).unwrap_or_default();
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let texts = |value: &Value| items(value).iter().map(text).collect::<Vec<_>>();
    let (cpu, network, storage) = (&entry["ProcessorInfo"], &entry["NetworkInfo"], &entry["InstanceStorageInfo"]);
    let efa_interfaces = number(&network["EfaInfo"]["MaximumEfaInterfaces"]);
    let card = |card: &Value| {
        let types = if efa_interfaces > 0 { texts(&card["InterfaceTypes"]) } else { Vec::new() };
        NetworkCard {
            index: number(&card["NetworkCardIndex"]),
            interfaces: number(&card["MaximumNetworkInterfaces"]),
            efa: CardEfa::of(types.iter().map(String::as_str)),
        }
    };
    InstanceTypeFacts {
        name: text(&entry["InstanceType"]),
        architectures: texts(&cpu["SupportedArchitectures"]),
        vcpus: number(&entry["VCpuInfo"]["DefaultVCpus"]),
        memory_mib: entry["MemoryInfo"]["SizeInMiB"].as_u64().unwrap_or_default(),
        cpu_manufacturer: text(&cpu["Manufacturer"]),
        clock_mhz: cpu["SustainedClockSpeedInGhz"].as_f64().and_then(|clock| clock_mhz(&clock.to_string())),
        cpu_features: texts(&cpu["SupportedFeatures"]),
        hypervisor: text(&entry["Hypervisor"]),
        usage_classes: texts(&entry["SupportedUsageClasses"]),
        gpus: items(&entry["GpuInfo"]["Gpus"])
            .iter()
            .map(|gpu| Gpu {
                count: number(&gpu["Count"]),
                manufacturer: text(&gpu["Manufacturer"]),
                name: text(&gpu["Name"]),
                memory_mib: gpu["MemoryInfo"]["SizeInMiB"].as_u64().unwrap_or_default(),
            })
            .collect(),
        accelerators: items(&entry["InferenceAcceleratorInfo"]["Accelerators"])
            .iter()
            .map(|device| Accelerator {
                count: number(&device["Count"]),
                manufacturer: text(&device["Manufacturer"]),
                name: text(&device["Name"]),
            })
            .collect(),
        neuron: items(&entry["NeuronInfo"]["NeuronDevices"])
            .iter()
            .map(|device| NeuronDevice {
                count: number(&device["Count"]),
                name: text(&device["Name"]),
                cores: number(&device["CoreInfo"]["Count"]),
            })
            .collect(),
        storage_gb: storage["TotalSizeInGB"].as_u64(),
        storage_nvme: text(&storage["NvmeSupport"]),
        default_network_card: number(&network["DefaultNetworkCardIndex"]),
        network_cards: items(&network["NetworkCards"]).iter().map(card).collect(),
        ipv4_per_interface: number(&network["Ipv4AddressesPerInterface"]),
        ena: matches!(network["EnaSupport"].as_str(), Some("required" | "supported")),
        efa_interfaces,
        encryption_in_transit: network["EncryptionInTransitSupported"] == true,
        ebs_optimized: text(&entry["EbsInfo"]["EbsOptimizedSupport"]),
        ebs_max_mbps: entry["EbsInfo"]["EbsOptimizedInfo"]["MaximumBandwidthInMbps"].as_u64().and_then(|mbps| u32::try_from(mbps).ok()),
        ebs_attachments: entry["EbsInfo"]["MaximumEbsAttachments"].as_u64().and_then(|most| u32::try_from(most).ok()),
        attachment_limit: text(&entry["EbsInfo"]["AttachmentLimitType"]),
        nitro_enclaves: entry["NitroEnclavesSupport"] == "supported",
        placement_strategies: texts(&entry["PlacementGroupInfo"]["SupportedStrategies"]),
    }
}

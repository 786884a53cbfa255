//! Converts the response of DescribeInstanceTypes to instance type facts.

use aws_sdk_ec2::types as sdk;
use whittle_ec2::facts::{Accelerator, CardEfa, Gpu, InstanceTypeFacts, NetworkCard, NeuronDevice, clock_mhz};

fn count(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// The facts of one type; `None` for an entry without a name.
pub(crate) fn of(entry: &sdk::InstanceTypeInfo) -> Option<InstanceTypeFacts> {
    let cpu = entry.processor_info();
    let ebs = entry.ebs_info();
    let storage = entry.instance_storage_info();
    let mut facts = InstanceTypeFacts {
        name: entry.instance_type()?.as_str().to_owned(),
        architectures: cpu
            .map(|cpu| cpu.supported_architectures().iter().map(|arch| arch.as_str().to_owned()).collect())
            .unwrap_or_default(),
        vcpus: count(entry.v_cpu_info().and_then(sdk::VCpuInfo::default_v_cpus)),
        memory_mib: entry
            .memory_info()
            .and_then(sdk::MemoryInfo::size_in_mib)
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or_default(),
        cpu_manufacturer: text(cpu.and_then(sdk::ProcessorInfo::manufacturer)),
        clock_mhz: cpu.and_then(sdk::ProcessorInfo::sustained_clock_speed_in_ghz).and_then(|clock| clock_mhz(&clock.to_string())),
        cpu_features: cpu
            .map(|cpu| cpu.supported_features().iter().map(|feature| feature.as_str().to_owned()).collect())
            .unwrap_or_default(),
        hypervisor: text(entry.hypervisor().map(sdk::InstanceTypeHypervisor::as_str)),
        usage_classes: entry.supported_usage_classes().iter().map(|class| class.as_str().to_owned()).collect(),
        storage_gb: storage.and_then(sdk::InstanceStorageInfo::total_size_in_gb).and_then(|size| u64::try_from(size).ok()),
        storage_nvme: text(storage.and_then(sdk::InstanceStorageInfo::nvme_support).map(sdk::EphemeralNvmeSupport::as_str)),
        ebs_optimized: text(ebs.and_then(sdk::EbsInfo::ebs_optimized_support).map(sdk::EbsOptimizedSupport::as_str)),
        ebs_max_mbps: ebs
            .and_then(sdk::EbsInfo::ebs_optimized_info)
            .and_then(sdk::EbsOptimizedInfo::maximum_bandwidth_in_mbps)
            .and_then(|mbps| u32::try_from(mbps).ok()),
        ebs_attachments: ebs.and_then(sdk::EbsInfo::maximum_ebs_attachments).and_then(|most| u32::try_from(most).ok()),
        attachment_limit: text(ebs.and_then(sdk::EbsInfo::attachment_limit_type).map(sdk::AttachmentLimitType::as_str)),
        nitro_enclaves: entry.nitro_enclaves_support() == Some(&sdk::NitroEnclavesSupport::Supported),
        placement_strategies: entry
            .placement_group_info()
            .map(|info| info.supported_strategies().iter().map(|strategy| strategy.as_str().to_owned()).collect())
            .unwrap_or_default(),
        ..InstanceTypeFacts::default()
    };
    network(&mut facts, entry.network_info());
    devices(&mut facts, entry);
    Some(facts)
}

fn network(facts: &mut InstanceTypeFacts, network: Option<&sdk::NetworkInfo>) {
    let Some(network) = network else { return };
    facts.efa_interfaces = count(network.efa_info().and_then(sdk::EfaInfo::maximum_efa_interfaces));
    let has_efa = facts.efa_interfaces > 0;
    let card = |card: &sdk::NetworkCardInfo| NetworkCard {
        index: count(card.network_card_index),
        interfaces: count(card.maximum_network_interfaces),
        efa: CardEfa::of(card.interface_types().iter().filter(|_| has_efa).map(sdk::NetworkCardInterfaceType::as_str)),
    };
    facts.default_network_card = count(network.default_network_card_index);
    facts.network_cards = network.network_cards().iter().map(card).collect();
    facts.ipv4_per_interface = count(network.ipv4_addresses_per_interface);
    facts.ena = matches!(network.ena_support(), Some(sdk::EnaSupport::Required | sdk::EnaSupport::Supported));
    facts.encryption_in_transit = network.encryption_in_transit_supported.unwrap_or(false);
}

fn devices(facts: &mut InstanceTypeFacts, entry: &sdk::InstanceTypeInfo) {
    let gpu = |gpu: &sdk::GpuDeviceInfo| Gpu {
        count: count(gpu.count),
        manufacturer: text(gpu.manufacturer()),
        name: text(gpu.name()),
        memory_mib: u64::from(count(gpu.memory_info().and_then(sdk::GpuDeviceMemoryInfo::size_in_mib))),
    };
    let accelerator = |device: &sdk::InferenceDeviceInfo| Accelerator {
        count: count(device.count),
        manufacturer: text(device.manufacturer()),
        name: text(device.name()),
    };
    let neuron = |device: &sdk::NeuronDeviceInfo| NeuronDevice {
        count: count(device.count),
        name: text(device.name()),
        cores: count(device.core_info().and_then(sdk::NeuronDeviceCoreInfo::count)),
    };
    facts.gpus = entry.gpu_info().map(|info| info.gpus().iter().map(gpu).collect()).unwrap_or_default();
    facts.accelerators =
        entry.inference_accelerator_info().map(|info| info.accelerators().iter().map(accelerator).collect()).unwrap_or_default();
    facts.neuron = entry.neuron_info().map(|info| info.neuron_devices().iter().map(neuron).collect()).unwrap_or_default();
}

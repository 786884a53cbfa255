//! Instance types, their zones and spot prices.

use super::selection::{Filters, page};
use crate::errors::Fault;
use crate::params::Params;
use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_ec2::facts::{Accelerator, CardEfa, Gpu, InstanceTypeFacts, NetworkCard, NeuronDevice};
use whittle_units::Timestamp;

pub(super) fn types(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let names = params.texts("InstanceType")?;
    let known = [
        "instance-type",
        "supported-virtualization-type",
        "processor-info.supported-architecture",
        "hypervisor",
        "bare-metal",
        "supported-usage-class",
    ];
    let filters = Filters::take(params, &known, false)?;
    let catalog = &place.region().catalog;
    if let Some(missing) = names.iter().find(|name| catalog.facts(name).is_none()) {
        return Err(Fault::new("InvalidInstanceType", format!("The following supplied instance types do not exist: [{missing}]")));
    }
    let named = catalog.types.iter().filter(|facts| names.is_empty() || names.contains(&facts.name));
    let matching = named.filter(|facts| {
        filters.match_all(&BTreeMap::new(), |name| match name {
            "instance-type" => vec![facts.name.clone()],
            "processor-info.supported-architecture" => facts.architectures.clone(),
            "hypervisor" => vec![facts.hypervisor.clone()],
            "bare-metal" => vec![facts.hypervisor.is_empty().to_string()],
            "supported-usage-class" => facts.usage_classes.clone(),
            // Our catalogs contain no types that support only paravirtual images.
            _ => vec!["hvm".to_owned()],
        })
    });
    let (found, next) = page(params, matching.collect(), 5..=100)?;
    Ok(json!({"instanceTypeSet": found.into_iter().map(described).collect::<Vec<_>>(), "nextToken": next}))
}

fn described(facts: &InstanceTypeFacts) -> Value {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let has_efa = facts.efa_interfaces > 0;
    let card = |card: &NetworkCard| {
        let types = interface_types(if has_efa { card.efa } else { CardEfa::None });
        json!({"networkCardIndex": card.index, "maximumNetworkInterfaces": card.interfaces, "interfaceTypeSet": types})
    };
    let storage = facts.storage_gb.map(|size| json!({"totalSizeInGB": size, "nvmeSupport": some(&facts.storage_nvme)}));
    json!({
        "instanceType": facts.name,
        "supportedUsageClasses": facts.usage_classes,
        "supportedVirtualizationTypes": ["hvm"],
        "bareMetal": facts.hypervisor.is_empty(),
        "hypervisor": some(&facts.hypervisor),
        "processorInfo": {
            "supportedArchitectures": facts.architectures,
            "sustainedClockSpeedInGhz": facts.clock_mhz.map(|clock| f64::from(clock) / 1000.0),
            "supportedFeatures": facts.cpu_features,
            "manufacturer": some(&facts.cpu_manufacturer),
        },
        "vCpuInfo": {"defaultVCpus": facts.vcpus},
        "memoryInfo": {"sizeInMiB": facts.memory_mib},
        "instanceStorageSupported": facts.storage_gb.is_some(),
        "instanceStorageInfo": storage,
        "ebsInfo": {
            "ebsOptimizedSupport": some(&facts.ebs_optimized),
            "ebsOptimizedInfo": facts.ebs_max_mbps.map(|mbps| json!({"maximumBandwidthInMbps": mbps})),
            "maximumEbsAttachments": facts.ebs_attachments,
            "attachmentLimitType": some(&facts.attachment_limit),
        },
        "networkInfo": {
            "maximumNetworkCards": facts.network_cards.len(),
            "defaultNetworkCardIndex": facts.default_network_card,
            "networkCards": facts.network_cards.iter().map(card).collect::<Vec<_>>(),
            "ipv4AddressesPerInterface": facts.ipv4_per_interface,
            "enaSupport": if facts.ena { "required" } else { "unsupported" },
            "efaSupported": facts.efa_interfaces > 0,
            "efaInfo": (facts.efa_interfaces > 0).then(|| json!({"maximumEfaInterfaces": facts.efa_interfaces})),
            "encryptionInTransitSupported": facts.encryption_in_transit,
        },
        "gpuInfo": devices("gpus", &facts.gpus, gpu),
        "inferenceAcceleratorInfo": devices("accelerators", &facts.accelerators, accelerator).map(|mut info| {
            info["accelerators"] = json!({"member": info["accelerators"].take()});
            info
        }),
        "neuronInfo": devices("neuronDevices", &facts.neuron, neuron),
        "nitroEnclavesSupport": if facts.nitro_enclaves { "supported" } else { "unsupported" },
        "placementGroupInfo": {"supportedStrategies": facts.placement_strategies},
    })
}

fn interface_types(efa: CardEfa) -> &'static [&'static str] {
    match efa {
        CardEfa::Any => &["interface", "efa", "efa-only"],
        CardEfa::EfaOnly => &["efa-only"],
        CardEfa::None => &["interface"],
    }
}

/// The structure of a type's devices, if it has any.
fn devices<T>(name: &str, all: &[T], described: fn(&T) -> Value) -> Option<Value> {
    (!all.is_empty()).then(|| json!({name: all.iter().map(described).collect::<Vec<_>>()}))
}

fn gpu(gpu: &Gpu) -> Value {
    json!({"name": gpu.name, "manufacturer": gpu.manufacturer, "count": gpu.count, "memoryInfo": {"sizeInMiB": gpu.memory_mib}})
}

fn accelerator(device: &Accelerator) -> Value {
    json!({"name": device.name, "manufacturer": device.manufacturer, "count": device.count})
}

fn neuron(device: &NeuronDevice) -> Value {
    json!({"name": device.name, "count": device.count, "coreInfo": {"count": device.cores}})
}

pub(super) fn offerings(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let kind = params.word("LocationType", &["region", "availability-zone", "availability-zone-id", "outpost"])?;
    if kind.as_deref() != Some("availability-zone") {
        return Err(Fault::new("UnsupportedOperation", "only offerings of availability zones are known here"));
    }
    let filters = Filters::take(params, &["instance-type", "location"], false)?;
    let catalog = &place.region().catalog;
    let all = catalog.offered.iter().flat_map(|(name, zones)| zones.iter().map(move |zone| (name, zone)));
    let matching = all.filter(|(name, zone)| {
        filters.match_all(&BTreeMap::new(), |filter| vec![if filter == "location" { (*zone).clone() } else { (*name).clone() }])
    });
    let (found, next) = page(params, matching.collect(), 5..=1000)?;
    let described =
        found.into_iter().map(|(name, zone)| json!({"instanceType": name, "locationType": "availability-zone", "location": zone}));
    Ok(json!({"instanceTypeOfferingSet": described.collect::<Vec<_>>(), "nextToken": next}))
}

pub(super) fn spot_prices(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let (names, products) = (params.texts("InstanceType")?, params.texts("ProductDescription")?);
    let zone = params.text("AvailabilityZone");
    for moment in ["StartTime", "EndTime"] {
        params.parsed::<Timestamp>(moment)?;
    }
    let filters = Filters::take(params, &["instance-type", "availability-zone", "product-description"], false)?;
    let now = place.now();
    let catalog = &place.region().catalog;
    let is_linux = products.is_empty() || products.iter().any(|product| product == "Linux/UNIX");
    let all = catalog.spot.iter().flat_map(|(name, zones)| zones.iter().map(move |(zone, price)| (name, zone, price)));
    let matching = all.filter(|(name, there, _)| {
        let asked = is_linux && (names.is_empty() || names.contains(name)) && zone.as_ref().is_none_or(|zone| zone == *there);
        asked
            && filters.match_all(&BTreeMap::new(), |filter| {
                vec![match filter {
                    "instance-type" => (*name).clone(),
                    "availability-zone" => (*there).clone(),
                    _ => "Linux/UNIX".to_owned(),
                }]
            })
    });
    // The actual pages are smaller than the requested maximum.
    let (found, next) = page(params, matching.collect(), 1..=usize::MAX)?;
    let described = found.into_iter().map(|(name, zone, price)| {
        json!({
            "instanceType": name,
            "productDescription": "Linux/UNIX",
            "spotPrice": format!("{:.9}", price.dollars()),
            "timestamp": now.to_string(),
            "availabilityZone": zone,
        })
    });
    Ok(json!({"spotPriceHistorySet": described.collect::<Vec<_>>(), "nextToken": next}))
}

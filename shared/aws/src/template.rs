//! Launch templates and fleets in the SDK's types (aws 7.4, 7.5, 10.2, 10.3).

use aws_sdk_ec2::types as sdk;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeMap;
use whittle_api::karpenter::BlockDeviceMapping;
use whittle_ec2::fleet::{FleetConfig, FleetOverride, LaunchTemplate, ReservationTarget, TemplateInterface, volume_gibibytes};

pub(crate) fn tags(tags: &BTreeMap<String, String>) -> Vec<sdk::Tag> {
    tags.iter().map(|(key, value)| sdk::Tag::builder().key(key).value(value).build()).collect()
}

pub(crate) fn tag_specification(kind: sdk::ResourceType, of: &BTreeMap<String, String>) -> sdk::TagSpecification {
    sdk::TagSpecification::builder().resource_type(kind).set_tags(Some(tags(of))).build()
}

/// The data of a launch template.
pub(crate) fn data(template: &LaunchTemplate) -> sdk::RequestLaunchTemplateData {
    let user_data = (!template.user_data.is_empty()).then(|| STANDARD.encode(&template.user_data));
    let volumes: Vec<_> = template.block_device_mappings.iter().map(volume).collect();
    let interfaces = template.interfaces.iter().map(|each| interface(each, &template.security_group_ids)).collect();
    let profile = sdk::LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(&template.instance_profile).build();
    let nested = template.nested_virtualization.as_deref().map(|value| {
        let value = sdk::NestedVirtualizationSpecification::from(value);
        sdk::LaunchTemplateCpuOptionsRequest::builder().nested_virtualization(value).build()
    });
    let market = template
        .market_type
        .as_deref()
        .map(|value| sdk::LaunchTemplateInstanceMarketOptionsRequest::builder().market_type(sdk::MarketType::from(value)).build());
    sdk::RequestLaunchTemplateData::builder()
        .image_id(&template.image_id)
        .set_user_data(user_data)
        .iam_instance_profile(profile)
        .set_block_device_mappings((!volumes.is_empty()).then_some(volumes))
        .set_network_interfaces(Some(interfaces))
        .monitoring(sdk::LaunchTemplatesMonitoringRequest::builder().enabled(template.detailed_monitoring).build())
        .metadata_options(metadata(template))
        .placement(placement(template))
        .enclave_options(sdk::LaunchTemplateEnclaveOptionsRequest::builder().enabled(template.enclave).build())
        .set_cpu_options(nested)
        .set_instance_market_options(market)
        .set_capacity_reservation_specification(template.reservation.as_ref().map(reservation))
        .set_tag_specifications(Some(data_tags(template)))
        .build()
}

fn data_tags(template: &LaunchTemplate) -> Vec<sdk::LaunchTemplateTagSpecificationRequest> {
    let of = |kind: sdk::ResourceType| {
        sdk::LaunchTemplateTagSpecificationRequest::builder().resource_type(kind).set_tags(Some(tags(&template.tags))).build()
    };
    let spot = template.spot.then(|| of(sdk::ResourceType::SpotInstancesRequest));
    [of(sdk::ResourceType::NetworkInterface)].into_iter().chain(spot).collect()
}

fn metadata(template: &LaunchTemplate) -> sdk::LaunchTemplateInstanceMetadataOptionsRequest {
    let options = &template.metadata_options;
    sdk::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .set_http_endpoint(options.http_endpoint.as_deref().map(Into::into))
        .set_http_protocol_ipv6(options.http_protocol_ipv6.as_deref().map(Into::into))
        .set_http_put_response_hop_limit(options.http_put_response_hop_limit.and_then(|hops| i32::try_from(hops).ok()))
        .set_http_tokens(options.http_tokens.as_deref().map(Into::into))
        // Pods must not read the instance's tags.
        .instance_metadata_tags(sdk::LaunchTemplateInstanceMetadataTagsState::Disabled)
        .build()
}

fn placement(template: &LaunchTemplate) -> sdk::LaunchTemplatePlacementRequest {
    sdk::LaunchTemplatePlacementRequest::builder()
        .tenancy(sdk::Tenancy::from(template.tenancy.as_str()))
        .set_group_id(template.placement_group_id.clone())
        .set_partition_number(template.partition.and_then(|number| i32::try_from(number).ok()))
        .build()
}

fn reservation(target: &ReservationTarget) -> sdk::LaunchTemplateCapacityReservationSpecificationRequest {
    let specification = sdk::LaunchTemplateCapacityReservationSpecificationRequest::builder();
    match target {
        ReservationTarget::None => specification.capacity_reservation_preference(sdk::CapacityReservationPreference::None),
        ReservationTarget::Only(id) => specification
            .capacity_reservation_preference(sdk::CapacityReservationPreference::CapacityReservationsOnly)
            .capacity_reservation_target(sdk::CapacityReservationTarget::builder().capacity_reservation_id(id).build()),
    }
    .build()
}

fn volume(mapping: &BlockDeviceMapping) -> sdk::LaunchTemplateBlockDeviceMappingRequest {
    let positive = |number: Option<i64>| number.and_then(|number| i32::try_from(number).ok()).filter(|number| *number > 0);
    let ebs = mapping.ebs.as_ref().map(|ebs| {
        sdk::LaunchTemplateEbsBlockDeviceRequest::builder()
            .set_delete_on_termination(ebs.delete_on_termination)
            .set_encrypted(ebs.encrypted)
            .set_volume_type(ebs.volume_type.as_deref().map(Into::into))
            .set_iops(positive(ebs.iops))
            .set_throughput(positive(ebs.throughput))
            .set_kms_key_id(ebs.kms_key_id.clone())
            .set_snapshot_id(ebs.snapshot_id.clone())
            .set_volume_initialization_rate(ebs.volume_initialization_rate)
            .set_volume_size(volume_gibibytes(ebs.volume_size.as_deref()))
            .build()
    });
    sdk::LaunchTemplateBlockDeviceMappingRequest::builder().set_device_name(mapping.device_name.clone()).set_ebs(ebs).build()
}

fn interface(interface: &TemplateInterface, groups: &[String]) -> sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let index = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let tracking = interface.connection_tracking.as_ref().map(|tracking| {
        sdk::ConnectionTrackingSpecificationRequest::builder()
            .set_tcp_established_timeout(tracking.tcp_established_timeout)
            .set_udp_stream_timeout(tracking.udp_stream_timeout)
            .set_udp_timeout(tracking.udp_timeout)
            .build()
    });
    sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .device_index(index(interface.device_index))
        .set_network_card_index(interface.card_index.map(index))
        .set_interface_type(interface.interface_type.clone())
        .set_groups(Some(groups.to_vec()))
        .set_associate_public_ip_address(interface.associate_public_ip)
        .set_ipv4_prefix_count(interface.ipv4_prefix_count)
        .set_ipv6_prefix_count(interface.ipv6_prefix_count)
        .set_ipv6_address_count(interface.ipv6_address_count)
        .set_primary_ipv6(interface.primary_ipv6)
        .set_connection_tracking_specification(tracking)
        .build()
}

/// One launch template of a fleet with its overrides.
pub(crate) fn fleet_config(config: &FleetConfig) -> sdk::FleetLaunchTemplateConfigRequest {
    let template =
        sdk::FleetLaunchTemplateSpecificationRequest::builder().launch_template_name(&config.launch_template).version("$Latest").build();
    sdk::FleetLaunchTemplateConfigRequest::builder()
        .launch_template_specification(template)
        .set_overrides(Some(config.overrides.iter().map(fleet_override).collect()))
        .build()
}

fn fleet_override(entry: &FleetOverride) -> sdk::FleetLaunchTemplateOverridesRequest {
    sdk::FleetLaunchTemplateOverridesRequest::builder()
        .instance_type(sdk::InstanceType::from(entry.instance_type.as_str()))
        .subnet_id(&entry.subnet_id)
        .availability_zone(&entry.zone)
        .image_id(&entry.image_id)
        .priority(entry.price.dollars())
        .build()
}

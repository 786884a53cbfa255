//! Karpenter's launches: its requests to EC2 and the resulting claim, attempt by attempt.

use super::*;
use whittle_api::karpenter::{BlockDeviceMapping, ConnectionTracking};
use whittle_api::labels::PLACEMENT_GROUP_PARTITION;

/// The response of a fleet that starts the cheapest override for which the case has no error.
fn fleet_answer(case: &Case, request: &FleetRequest) -> FleetAnswer {
    let mut all: Vec<&FleetOverride> = request.configs.iter().flat_map(|config| &config.overrides).collect();
    all.sort();
    all.sort_by_key(|entry| (entry.price, entry.instance_type.clone(), entry.zone.clone()));
    let errors = case.facts["fleetErrors"].as_array().cloned().unwrap_or_default();
    let matches = |entry: &FleetOverride, error: &Value| {
        let fits = |key: &str, own: &str| error[key].as_str().is_none_or(|text| text.is_empty() || text == own);
        fits("type", &entry.instance_type) && fits("zone", &entry.zone)
    };
    let mut answer = FleetAnswer::default();
    for entry in all {
        match errors.iter().find(|error| matches(entry, error)) {
            Some(error) => answer.errors.push(FleetPoolError {
                code: error["code"].as_str().unwrap().into(),
                message: error["message"].as_str().unwrap().into(),
                instance_type: entry.instance_type.clone(),
                zone: entry.zone.clone(),
            }),
            None if answer.instances.is_empty() => answer.instances.push(FleetInstance {
                id: "i-00000000000000001".into(),
                instance_type: entry.instance_type.clone(),
                zone: entry.zone.clone(),
                subnet_id: entry.subnet_id.clone(),
                image_id: entry.image_id.clone(),
                capacity_type: request.capacity_type.clone(),
            }),
            None => {}
        }
    }
    answer
}

/// One attempt in the format of the golden file, with templates instead of their names.
fn attempt(case: &mut Case, free: &mut BTreeMap<String, u32>) -> Value {
    let (catalog, cluster) = (case.catalog(false), access(&case.facts));
    let policy =
        if case.facts["settings"]["minValuesPolicy"] == "BestEffort" { MinValuesPolicy::BestEffort } else { MinValuesPolicy::Strict };
    let context = case.context();
    let types = resolve(&catalog, &context).unwrap();
    let claim = case.claim.as_ref().unwrap();
    let input = LaunchInput {
        claim,
        context: &context,
        catalog: &catalog,
        types: &types,
        cluster: &cluster,
        free_addresses: free,
        min_values: policy,
    };
    let launch = match prepare(&input) {
        Ok(launch) => launch,
        Err(error) => return json!({"error": class_of(error.disposition()), "fleets": []}),
    };
    let answer = fleet_answer(case, &launch.request);
    let marks = marks(&launch, &answer, &context);
    let fleets = json!([fleet_json(&launch)]);
    let result = match answer.instances.first() {
        Some(instance) => {
            *free.get_mut(&instance.subnet_id).unwrap() -= launch.addresses_in_flight;
            json!({"claim": claim_json(instance, &launch, claim, &types, &context), "fleets": fleets})
        }
        None => match failure(&answer.errors) {
            FleetFailure::InsufficientCapacity(_) => json!({"error": {"class": "insufficient-capacity"}, "fleets": fleets}),
            FleetFailure::Create { reason, .. } => json!({"error": {"class": "create", "reason": reason.as_str()}, "fleets": fleets}),
        },
    };
    for id in &marks.subnets {
        free.insert(id.clone(), 0);
    }
    case.unavailable.pools.extend(marks.pools);
    case.unavailable.capacity_types.extend(marks.capacity_types);
    case.unavailable.subnets.extend(marks.subnets);
    for id in marks.reservations {
        case.reservations.insert(id, 0);
    }
    result
}

fn class_of(disposition: LaunchDisposition) -> Value {
    match disposition {
        LaunchDisposition::InsufficientCapacity => json!({"class": "insufficient-capacity"}),
        LaunchDisposition::NodeClassNotReady => json!({"class": "node-class-not-ready"}),
        LaunchDisposition::Retry(reason) => json!({"class": "create", "reason": reason.as_str()}),
    }
}

fn claim_json(
    instance: &FleetInstance,
    launch: &Launch,
    claim: &NodeClaim,
    types: &[whittle_api::catalog::InstanceType],
    context: &Context<'_>,
) -> Value {
    let instance_type = types.iter().find(|each| each.name == instance.instance_type).unwrap();
    let purchase = Purchase {
        capacity_type: instance.capacity_type.clone(),
        reservation: launch.reservations.get(&(instance.instance_type.clone(), instance.zone.clone())).cloned(),
        tenancy: launch.tenancy.clone(),
        partition: launch.partition,
        efa: !claim.spec.resources.requests.get("vpc.amazonaws.com/efa").is_zero(),
    };
    let machine = machine_facts(instance_type, &instance.id, &instance.zone, &purchase, context);
    let amount = |name: &str, amount: Quantity| if name == "cpu" { amount.milli() } else { amount.units_ceil() };
    let amounts = |resources: &whittle_units::Resources| {
        resources.iter().map(|(name, value)| (name.to_owned(), json!(amount(name, value)))).collect::<Map<_, _>>()
    };
    let mut labels = machine.labels.clone();
    labels.remove(whittle_api::labels::NITRO_SANDBOX);
    labels.insert(whittle_api::labels::NODE_POOL.into(), claim.node_pool().unwrap().into());
    json!({"allocatable": amounts(&machine.allocatable), "capacity": amounts(&machine.capacity), "imageID": instance.image_id, "labels": labels, "providerID": machine.provider_id.as_str()})
}

fn fleet_json(launch: &Launch) -> Value {
    let request = &launch.request;
    let template = |name: &str| launch.templates.iter().find(|template| template.name == name).unwrap();
    let overrides = |config: &FleetConfig| {
        config.overrides.iter().map(|entry| json!({"AvailabilityZone": entry.zone, "ImageId": entry.image_id, "InstanceType": entry.instance_type, "Priority": entry.price.nanos(), "SubnetId": entry.subnet_id})).collect::<Vec<_>>()
    };
    let mut fleet = json!({
        "Type": "instant",
        "TargetCapacitySpecification": {"DefaultTargetCapacityType": request.target_type(), "TotalTargetCapacity": request.target_capacity},
        "TagSpecifications": [tagged("instance", &request.tags), tagged("volume", &request.tags), tagged("fleet", &request.tags)],
    });
    if let Some(context) = &request.context {
        fleet["Context"] = json!(context);
    }
    if let Some(strategy) = request.spot_strategy() {
        fleet["SpotOptions"] = json!({"AllocationStrategy": strategy});
    }
    if let Some(strategy) = request.on_demand_strategy() {
        fleet["OnDemandOptions"] = json!({"AllocationStrategy": strategy});
    }
    if request.target_type() == "reserved-capacity" {
        fleet["ReservedCapacityOptions"] = json!({"ReservationTypes": ["interruptible-capacity-reservation"]});
    }
    let configs: Vec<Value> = request
        .configs
        .iter()
        .map(|config| json!({"Overrides": overrides(config), "Template": template_json(template(&config.launch_template))}))
        .collect();
    fleet["Configs"] = sorted(configs);
    fleet
}

fn tagged(kind: &str, tags: &BTreeMap<String, String>) -> Value {
    json!({"ResourceType": kind, "Tags": tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect::<Vec<_>>()})
}

fn sorted(mut values: Vec<Value>) -> Value {
    // By position, since prices may differ in the last digit.
    let key = |entry: &Value| format!("{}{}{}", entry["InstanceType"], entry["AvailabilityZone"], entry["ImageId"]);
    values.sort_by_key(|value| value["Overrides"].as_array().unwrap().iter().map(key).collect::<String>());
    Value::Array(values)
}

fn user_data_json(text: &str) -> Value {
    if text.starts_with("MIME-Version") {
        return json!(format!("{:?}", without_layout(text)));
    }
    match text.parse::<toml::Table>() {
        Ok(table) if text.contains("[settings") => json!(format!("{table:?}")),
        _ => json!(text),
    }
}

fn template_json(template: &LaunchTemplate) -> Value {
    let mut data = json!({
        "EnclaveOptions": {"Enabled": template.enclave},
        "IamInstanceProfile": {"Name": template.instance_profile},
        "ImageId": template.image_id,
        "Monitoring": {"Enabled": template.detailed_monitoring},
        "Placement": present(json!({"Tenancy": template.tenancy, "GroupId": template.placement_group_id, "PartitionNumber": template.partition})),
        "UserData": user_data_json(&template.user_data),
        "BlockDeviceMappings": template.block_device_mappings.iter().map(volume_json).collect::<Vec<_>>(),
        "NetworkInterfaces": template.interfaces.iter().map(|interface| interface_json(interface, &template.security_group_ids)).collect::<Vec<_>>(),
        "MetadataOptions": present(json!({
            "HttpEndpoint": template.metadata_options.http_endpoint,
            "HttpProtocolIpv6": template.metadata_options.http_protocol_ipv6,
            "HttpPutResponseHopLimit": template.metadata_options.http_put_response_hop_limit,
            "HttpTokens": template.metadata_options.http_tokens,
            "InstanceMetadataTags": "disabled",
        })),
        "TagSpecifications": [tagged("network-interface", &template.tags)],
    });
    if template.spot {
        data["TagSpecifications"].as_array_mut().unwrap().push(tagged("spot-instances-request", &template.tags));
    }
    match &template.reservation {
        Some(ReservationTarget::None) => data["CapacityReservationSpecification"] = json!({"CapacityReservationPreference": "none"}),
        Some(ReservationTarget::Only(id)) => {
            let target = json!({"CapacityReservationId": id});
            data["CapacityReservationSpecification"] =
                json!({"CapacityReservationPreference": "capacity-reservations-only", "CapacityReservationTarget": target});
        }
        None => {}
    }
    if let Some(market) = &template.market_type {
        data["InstanceMarketOptions"] = json!({"MarketType": market});
    }
    if let Some(nested) = &template.nested_virtualization {
        data["CpuOptions"] = json!({"NestedVirtualization": nested});
    }
    json!({"LaunchTemplateData": without_empty_lists(data), "TagSpecifications": [tagged("launch-template", &template.tags)]})
}

fn without_empty_lists(mut data: Value) -> Value {
    data.as_object_mut().unwrap().retain(|_, value| !value.as_array().is_some_and(Vec::is_empty) && *value != json!(""));
    data
}

fn present(mut value: Value) -> Value {
    value.as_object_mut().unwrap().retain(|_, field| !field.is_null());
    value
}

fn volume_json(mapping: &BlockDeviceMapping) -> Value {
    let ebs = mapping.ebs.clone().unwrap_or_default();
    let ebs = present(json!({
        "DeleteOnTermination": ebs.delete_on_termination,
        "Encrypted": ebs.encrypted,
        "Iops": ebs.iops,
        "KmsKeyId": ebs.kms_key_id,
        "SnapshotId": ebs.snapshot_id,
        "Throughput": ebs.throughput,
        "VolumeInitializationRate": ebs.volume_initialization_rate,
        "VolumeSize": volume_gibibytes(ebs.volume_size.as_deref()),
        "VolumeType": ebs.volume_type,
    }));
    present(json!({"DeviceName": mapping.device_name, "Ebs": ebs}))
}

fn interface_json(interface: &TemplateInterface, groups: &[String]) -> Value {
    let tracking = |tracking: &ConnectionTracking| {
        present(json!({
            "TcpEstablishedTimeout": tracking.tcp_established_timeout,
            "UdpStreamTimeout": tracking.udp_stream_timeout,
            "UdpTimeout": tracking.udp_timeout,
        }))
    };
    present(json!({
        "AssociatePublicIpAddress": interface.associate_public_ip,
        "ConnectionTrackingSpecification": interface.connection_tracking.as_ref().map(tracking),
        "DeviceIndex": interface.device_index,
        "Groups": groups,
        "InterfaceType": interface.interface_type,
        "Ipv4PrefixCount": interface.ipv4_prefix_count,
        "Ipv6AddressCount": interface.ipv6_address_count,
        "Ipv6PrefixCount": interface.ipv6_prefix_count,
        "NetworkCardIndex": interface.card_index,
        "PrimaryIpv6": interface.primary_ipv6,
    }))
}

/// The golden attempt in the same form; templates of earlier attempts are named, not repeated.
fn expected(entry: &Value) -> Value {
    let templates = entry["createLaunchTemplate"].as_array().cloned().unwrap_or_default();
    let fleets: Vec<Value> = entry["createFleet"].as_array().into_iter().flatten().map(|fleet| expected_fleet(fleet, &templates)).collect();
    let mut result = json!({"fleets": fleets});
    if let Some(error) = entry.get("error") {
        result["error"] = error.clone();
    }
    if let Some(claim) = entry.get("claim") {
        result["claim"] = claim.clone();
        result["claim"].as_object_mut().unwrap().remove("annotations");
    }
    result
}

fn expected_fleet(fleet: &Value, templates: &[Value]) -> Value {
    let mut fleet = fleet.clone();
    let configs = fleet.as_object_mut().unwrap().remove("LaunchTemplateConfigs").unwrap();
    let configs = configs.as_array().unwrap().iter().map(|config| {
        let mut config = config.clone();
        let name = config["LaunchTemplateSpecification"]["LaunchTemplateName"].clone();
        config.as_object_mut().unwrap().remove("LaunchTemplateSpecification");
        for entry in config["Overrides"].as_array_mut().unwrap() {
            entry["Priority"] = json!(whittle_units::Price::from_dollars(entry["Priority"].as_f64().unwrap()).nanos());
        }
        config["Template"] =
            templates.iter().find(|template| template["LaunchTemplateName"] == name).cloned().map_or(Value::Null, |mut template| {
                template.as_object_mut().unwrap().remove("LaunchTemplateName");
                // Karpenter asks for both, and EC2 takes one of them (aws 10.3).
                for interface in template["LaunchTemplateData"]["NetworkInterfaces"].as_array_mut().unwrap() {
                    interface.as_object_mut().unwrap().remove("Ipv6PrefixCount");
                }
                if let Some(text) = template["LaunchTemplateData"]["UserData"].as_str() {
                    template["LaunchTemplateData"]["UserData"] = user_data_json(text);
                }
                template
            });
        config
    });
    fleet["Configs"] = sorted(configs.collect());
    fleet
}

#[test]
fn launches_send_the_same_requests_as_karpenter() {
    let mut compared = 0;
    for path in files("launch", ".yaml") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut case = Case::read(&path);
        let attempts: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path.with_extension("json")).unwrap()).unwrap();
        let mut free: BTreeMap<String, u32> = case.class.status.subnets.iter().map(|subnet| (subnet.id.clone(), 1000)).collect();
        for (id, count) in case.facts["freeIPs"].as_object().into_iter().flatten() {
            free.insert(id.clone(), u32::try_from(count.as_u64().unwrap()).unwrap());
        }
        for (number, entry) in attempts.iter().enumerate() {
            let mut ours = attempt(&mut case, &mut free);
            let mut theirs = expected(entry);
            remove_cached_templates(&mut ours, &theirs);
            let allowed = allowed_partitions(&case);
            if allowed.len() > 1 && !theirs["claim"].is_null() {
                // Karpenter labels none of several allowed partitions, or any of them; we label the requested one.
                let labelled = ours["claim"]["labels"].as_object_mut().unwrap().remove(PLACEMENT_GROUP_PARTITION);
                theirs["claim"]["labels"].as_object_mut().unwrap().remove(PLACEMENT_GROUP_PARTITION);
                assert!(
                    labelled.as_ref().and_then(Value::as_str).is_some_and(|one| allowed.iter().any(|known| known == one)),
                    "{labelled:?}"
                );
            }
            assert_same(&ours, &theirs, &format!("{name} attempt {}", number + 1));
            compared += 1;
        }
    }
    assert!(compared > 0);
}

/// The partitions that a case's claim allows; empty if it names none.
fn allowed_partitions(case: &Case) -> Vec<String> {
    let requirements = case.claim.iter().flat_map(|claim| &claim.spec.requirements);
    let of_partitions = requirements.filter(|requirement| requirement.key == PLACEMENT_GROUP_PARTITION);
    of_partitions.flat_map(|requirement| requirement.values.iter().cloned()).collect()
}

/// Removes templates that the golden file only calls "cached", which leaves nothing to compare.
fn remove_cached_templates(ours: &mut Value, theirs: &Value) {
    for (own, other) in ours["fleets"].as_array_mut().unwrap().iter_mut().zip(theirs["fleets"].as_array().unwrap()) {
        for (own, other) in own["Configs"].as_array_mut().unwrap().iter_mut().zip(other["Configs"].as_array().unwrap()) {
            if other["Template"].is_null() {
                own["Template"] = Value::Null;
            }
        }
    }
}

/// Compares piece by piece, so that a failure names the piece.
#[track_caller]
fn assert_same(ours: &Value, theirs: &Value, label: &str) {
    match (ours, theirs) {
        (Value::Object(own), Value::Object(other)) => {
            let keys = |map: &Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(own), keys(other), "{label}");
            for (key, value) in own {
                assert_same(value, &other[key], &format!("{label}.{key}"));
            }
        }
        (Value::Array(own), Value::Array(other)) => {
            assert_eq!(own.len(), other.len(), "{label}: {ours} against {theirs}");
            for (index, (value, expected)) in own.iter().zip(other).enumerate() {
                assert_same(value, expected, &format!("{label}[{index}]"));
            }
        }
        // Our prices are whole billionths.
        _ if label.ends_with(".Priority") => {
            assert!(ours.as_u64().unwrap().abs_diff(theirs.as_u64().unwrap()) <= 1, "{label}: {ours} against {theirs}")
        }
        _ => assert_eq!(ours, theirs, "{label}"),
    }
}

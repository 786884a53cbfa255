//! Instant fleets.

use super::{tag_specifications, templates};
use crate::access::UNAUTHORIZED;
use crate::errors::Fault;
use crate::params::Params;
use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_ec2::fleet::{
    FleetAnswer, FleetConfig, FleetInstance, FleetOverride, FleetPoolError, FleetRequest, ReservationKind, ReservationTarget,
};
use whittle_sim::region::{Allocation, Region};
use whittle_units::Price;

/// The limits of one instant fleet. That of 300 overrides is for the types `request` and `maintain` only.
const CONFIGS_MAX: usize = 50;
const MACHINES_MAX: u32 = 1000;

/// The request as the region's type, with its allocation strategy.
pub(super) fn request(place: &mut dyn Place, params: &mut Params) -> Result<(FleetRequest, Allocation), Fault> {
    if params.word("Type", &["request", "maintain", "instant"])?.as_deref() != Some("instant") {
        return Err(Fault::new("UnsupportedOperation", "only instant fleets are known here"));
    }
    let client_token = params.text("ClientToken").unwrap_or_default();
    if client_token.len() > 64 {
        return Err(Fault::new("InvalidParameterValue", "ClientToken must be at most 64 characters"));
    }
    let Some(mut target) = params.structure("TargetCapacitySpecification") else {
        return Err(Fault::missing("TargetCapacitySpecification"));
    };
    let target_capacity: u32 =
        target.parsed("TotalTargetCapacity")?.ok_or_else(|| Fault::missing("TargetCapacitySpecification.TotalTargetCapacity"))?;
    let kinds = ["spot", "on-demand", "capacity-block", "reserved-capacity"];
    let kind = target.word("DefaultTargetCapacityType", &kinds)?.unwrap_or_else(|| "on-demand".to_owned());
    target.finish()?;
    if !(1..=MACHINES_MAX).contains(&target_capacity) {
        return Err(Fault::new("InvalidTargetCapacitySpecification", format!("Target capacity must be 1 to {MACHINES_MAX}")));
    }
    let allocation = strategies(params, &kind)?;
    let prioritized = allocation.is_prioritized();
    let mut tags = tag_specifications(params, &["fleet", "instance", "volume", "network-interface", "spot-instances-request"])?;
    let region = place.region();
    let mut configs = Vec::new();
    for mut given in params.list("LaunchTemplateConfigs")? {
        configs.push(config(region, &mut given, &kind, prioritized)?);
        given.finish()?;
    }
    if configs.is_empty() || configs.len() > CONFIGS_MAX {
        return Err(Fault::new("InvalidFleetConfig", format!("A fleet has 1 to {CONFIGS_MAX} launch template configs")));
    }
    let reservation = reservation_kind(region, &configs, &kind);
    let request = FleetRequest {
        client_token,
        target_capacity,
        capacity_type: if reservation.is_some() { labels::CAPACITY_RESERVED.to_owned() } else { kind },
        reservation,
        configs,
        tags: tags.remove("instance").unwrap_or_default(),
        prioritized,
        context: params.text("Context"),
    };
    Ok((request, allocation))
}

/// Reads the strategies. That of the target's kind applies.
fn strategies(params: &mut Params, kind: &str) -> Result<Allocation, Fault> {
    let mut allocation = Allocation::default();
    for (name, of, known) in [("SpotOptions", "spot", &Allocation::SPOT[..]), ("OnDemandOptions", "on-demand", &Allocation::ON_DEMAND)] {
        let Some(mut options) = params.structure(name) else { continue };
        let words: Vec<&str> = known.iter().map(|one| one.name()).collect();
        let strategy = options.word("AllocationStrategy", &words)?;
        options.finish()?;
        let chosen = known.iter().find(|one| strategy.as_deref() == Some(one.name()));
        allocation = chosen.copied().filter(|_| of == kind).unwrap_or(allocation);
    }
    if let Some(mut options) = params.structure("ReservedCapacityOptions") {
        for word in options.texts("ReservationType")? {
            if word != "interruptible-capacity-reservation" {
                return Err(Fault::value("ReservedCapacityOptions.ReservationType", &word));
            }
        }
        options.finish()?;
        if kind != "reserved-capacity" {
            return Err(Fault::combination("ReservedCapacityOptions need the target capacity type reserved-capacity"));
        }
    }
    Ok(allocation)
}

fn config(region: &Region, given: &mut Params, kind: &str, prioritized: bool) -> Result<FleetConfig, Fault> {
    let Some(mut specification) = given.structure("LaunchTemplateSpecification") else {
        return Err(Fault::missing("LaunchTemplateConfigs.LaunchTemplateSpecification"));
    };
    let launch_template = specification.required("LaunchTemplateName")?;
    let version = specification.required("Version")?;
    specification.finish()?;
    if !["$Latest", "$Default", "1"].contains(&version.as_str()) {
        return Err(Fault::new("InvalidLaunchTemplateId.VersionNotFound", format!("Could not find the version {version}")));
    }
    let mut overrides = Vec::new();
    for mut each in given.list("Overrides")? {
        let (instance_type, zone) = (each.required("InstanceType")?, each.text("AvailabilityZone").unwrap_or_default());
        let priority = each.parsed::<f64>("Priority")?.map(Price::from_dollars);
        // EC2 uses its own prices; a priority is only an order.
        let market = match kind {
            "spot" => region.catalog.spot_price(&instance_type, &zone),
            _ => region.catalog.on_demand_price(&instance_type),
        };
        overrides.push(FleetOverride {
            subnet_id: each.text("SubnetId").unwrap_or_default(),
            image_id: each.text("ImageId").unwrap_or_default(),
            price: market.filter(|_| !prioritized).or(priority).unwrap_or_default(),
            instance_type,
            zone,
        });
        each.finish()?;
    }
    Ok(FleetConfig { launch_template, overrides })
}

/// The kind of reservation that the fleet uses.
fn reservation_kind(region: &Region, configs: &[FleetConfig], kind: &str) -> Option<ReservationKind> {
    let targeted = |config: &FleetConfig| {
        let template = region.launch_templates.get(&config.launch_template);
        matches!(template.and_then(|template| template.reservation.as_ref()), Some(ReservationTarget::Only(_)))
    };
    match kind {
        "capacity-block" => Some(ReservationKind::CapacityBlock),
        "reserved-capacity" => Some(ReservationKind::Interruptible),
        "on-demand" if configs.iter().any(targeted) => Some(ReservationKind::Ordinary),
        _ => None,
    }
}

pub(super) fn create(place: &mut dyn Place, request: &FleetRequest, allocation: Allocation) -> Result<Value, Fault> {
    let answer = place.create_fleet(request, allocation)?;
    let mut described = outcome(request, &answer);
    described["fleetId"] = json!(answer.fleet_id);
    Ok(described)
}

/// A fleet none of whose pools the caller may launch.
pub(super) fn refused(place: &mut dyn Place, request: &FleetRequest, message: &str) -> Result<Value, Fault> {
    let known = &place.region().launch_templates;
    if let Some(config) = request.configs.iter().find(|config| !known.contains_key(&config.launch_template)) {
        return Err(templates::not_found(&config.launch_template));
    }
    let error = |pool: &FleetOverride| FleetPoolError {
        code: UNAUTHORIZED.to_owned(),
        message: message.to_owned(),
        instance_type: pool.instance_type.clone(),
        zone: pool.zone.clone(),
    };
    let errors = request.configs.iter().flat_map(|config| &config.overrides).map(error).collect();
    let mut described = outcome(request, &FleetAnswer { errors, ..FleetAnswer::default() });
    described["fleetId"] = json!(format!("fleet-{:016x}", whittle_units::fnv1a(request.client_token.as_bytes())));
    Ok(described)
}

/// Instances and errors, as CreateFleet and DescribeFleets return them.
fn outcome(request: &FleetRequest, answer: &FleetAnswer) -> Value {
    let lifecycle = if request.capacity_type == labels::CAPACITY_SPOT { "spot" } else { "on-demand" };
    let mut pools: BTreeMap<(String, String, String), Vec<&FleetInstance>> = BTreeMap::new();
    for instance in &answer.instances {
        pools.entry((instance.instance_type.clone(), instance.zone.clone(), instance.subnet_id.clone())).or_default().push(instance);
    }
    let instances = pools.values().filter_map(|machines| {
        let first = machines.first()?;
        Some(json!({
            "launchTemplateAndOverrides": pool(request, |entry| entry.instance_type == first.instance_type && entry.subnet_id == first.subnet_id),
            "lifecycle": lifecycle,
            "instanceIds": machines.iter().map(|machine| machine.id.as_str()).collect::<Vec<_>>(),
            "instanceType": first.instance_type,
        }))
    });
    let error = |error: &FleetPoolError| {
        json!({
            "launchTemplateAndOverrides": pool(request, |entry| entry.instance_type == error.instance_type && entry.zone == error.zone),
            "lifecycle": lifecycle,
            "errorCode": error.code,
            "errorMessage": error.message,
        })
    };
    json!({"fleetInstanceSet": instances.collect::<Vec<_>>(), "errorSet": answer.errors.iter().map(error).collect::<Vec<_>>()})
}

/// The template and override of a pool, which the response repeats.
fn pool(request: &FleetRequest, wanted: impl Fn(&FleetOverride) -> bool) -> Value {
    let mut pools = request.configs.iter().flat_map(|config| config.overrides.iter().map(move |entry| (config, entry)));
    let Some((config, entry)) = pools.find(|(_, entry)| wanted(entry)) else { return Value::Null };
    json!({
        "launchTemplateSpecification": {
            "launchTemplateId": templates::id_of(&config.launch_template),
            "launchTemplateName": config.launch_template,
            "version": "$Latest",
        },
        "overrides": {
            "instanceType": entry.instance_type,
            "subnetId": entry.subnet_id,
            "availabilityZone": entry.zone,
            "imageId": entry.image_id,
            "priority": entry.price.dollars(),
        },
    })
}

pub(super) fn describe(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let ids = params.texts("FleetId")?;
    let mut fleets = Vec::new();
    // Instant fleets are described by id only.
    for id in &ids {
        let Some(answer) = place.fleet(id) else {
            return Err(Fault::new("InvalidFleetId.NotFound", format!("The fleet ID '{id}' does not exist")));
        };
        let Some(request) = place.region().fleet_request(id).cloned() else { continue };
        let mut fleet = outcome(&request, &answer);
        for (name, value) in [("fleetId", json!(id)), ("type", json!("instant")), ("fleetState", json!("active"))] {
            fleet[name] = value;
        }
        fleet["clientToken"] = json!(request.client_token);
        fleets.push(fleet);
    }
    Ok(json!({"fleetSet": fleets}))
}

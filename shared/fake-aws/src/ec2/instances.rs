//! Instances: described, tagged and terminated.

use super::selection::{Filters, page};
use super::{ACCOUNT, tag_set, tags_of};
use crate::errors::Fault;
use crate::iam;
use crate::params::Params;
use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_ec2::fleet::{LaunchTemplate, ReservationTarget};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_sim::region::{Region, VPC};
use whittle_units::InstanceId;

const FILTERS: &[&str] = &[
    "instance-id",
    "instance-state-name",
    "instance-type",
    "availability-zone",
    "subnet-id",
    "vpc-id",
    "image-id",
    "iam-instance-profile.arn",
    "instance-lifecycle",
    "private-dns-name",
];

/// Name and code of a state.
pub(super) fn state(state: InstanceState) -> (&'static str, u32) {
    let code = match state {
        InstanceState::Pending => 0,
        InstanceState::Running => 16,
        InstanceState::ShuttingDown => 32,
        InstanceState::Terminated => 48,
        InstanceState::Stopping => 64,
        InstanceState::Stopped => 80,
    };
    (state.as_str(), code)
}

/// The ids of a request; malformed ones are rejected.
pub(super) fn ids(params: &mut Params) -> Result<Vec<InstanceId>, Fault> {
    let ids = params.texts("InstanceId")?;
    let formed = |id: &str| {
        let digits = id.strip_prefix("i-").unwrap_or_default();
        matches!(digits.len(), 8 | 17) && digits.chars().all(|digit| digit.is_ascii_hexdigit())
    };
    match ids.iter().find(|id| !formed(id)) {
        Some(id) => Err(Fault::new("InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\""))),
        None => Ok(ids.iter().map(|id| InstanceId::new(id.as_str())).collect()),
    }
}

/// Rejects ids of nonexistent instances.
pub(super) fn all_exist(ids: &[InstanceId], mut exists: impl FnMut(&InstanceId) -> bool) -> Result<(), Fault> {
    let missing: Vec<&str> = ids.iter().filter(|id| !exists(id)).map(InstanceId::as_str).collect();
    match missing.as_slice() {
        [] => Ok(()),
        [one] => Err(Fault::new("InvalidInstanceID.NotFound", format!("The instance ID '{one}' does not exist"))),
        several => Err(Fault::new("InvalidInstanceID.NotFound", format!("The instance IDs '{}' do not exist", several.join(", ")))),
    }
}

pub(super) fn describe(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let ids = ids(params)?;
    if !ids.is_empty() && params.fields().contains_key("MaxResults") {
        return Err(Fault::combination("The parameter instancesSet cannot be used with the parameter maxResults"));
    }
    let filters = Filters::take(params, FILTERS, true)?;
    let seen = place.instances();
    all_exist(&ids, |id| seen.iter().any(|instance| instance.id == *id))?;
    let region = place.region();
    let named = seen.iter().filter(|instance| ids.is_empty() || ids.contains(&instance.id));
    let matching = named.filter(|instance| filters.match_all(&instance.tags, |name| field(region, instance, name).into_iter().collect()));
    let (found, next) = page(params, matching.collect(), 5..=1000)?;
    let reservation = |instance: &&Instance| {
        let id = instance.id.as_str().trim_start_matches("i-");
        json!({"reservationId": format!("r-{id}"), "ownerId": ACCOUNT, "instancesSet": [described(region, instance)]})
    };
    Ok(json!({"reservationSet": found.iter().map(reservation).collect::<Vec<_>>(), "nextToken": next}))
}

fn template<'a>(region: &'a Region, instance: &Instance) -> Option<&'a LaunchTemplate> {
    region.machines.get(&instance.id).map(|machine| &machine.launch_template)
}

fn profile_arn(region: &Region, instance: &Instance) -> Option<String> {
    let profile = template(region, instance).map(|template| template.instance_profile.as_str()).filter(|name| !name.is_empty());
    profile.map(|name| iam::arn(region, name))
}

/// The value that a filter compares.
fn field(region: &Region, instance: &Instance, name: &str) -> Option<String> {
    let of_network = |text: &str| (instance.state != InstanceState::Terminated).then(|| text.to_owned());
    match name {
        "instance-id" => Some(instance.id.to_string()),
        "instance-state-name" => Some(state(instance.state).0.to_owned()),
        "instance-type" => Some(instance.instance_type.clone()),
        "availability-zone" => Some(instance.zone.clone()),
        "subnet-id" => of_network(&instance.subnet_id),
        "vpc-id" => of_network(VPC),
        "private-dns-name" => of_network(&instance.private_dns_name),
        "image-id" => Some(instance.image_id.clone()),
        "iam-instance-profile.arn" => profile_arn(region, instance),
        "instance-lifecycle" => (instance.capacity_type == labels::CAPACITY_SPOT).then(|| "spot".to_owned()),
        _ => None,
    }
}

fn described(region: &Region, instance: &Instance) -> Value {
    let (name, code) = state(instance.state);
    let template = template(region, instance);
    let ended = instance.state == InstanceState::Terminated;
    let is_spot = instance.capacity_type == labels::CAPACITY_SPOT;
    let groups = instance.security_groups.iter().map(|id| json!({"groupId": id, "groupName": id}));
    let preference = match template.and_then(|template| template.reservation.as_ref()) {
        Some(ReservationTarget::None) => "none",
        Some(ReservationTarget::Only(_)) => "capacity-reservations-only",
        None => "open",
    };
    let text = |text: &str| (!ended).then(|| text.to_owned());
    let placement = template.filter(|template| template.placement_group_id.is_some());
    json!({
        "instanceId": instance.id.as_str(),
        "imageId": instance.image_id,
        "instanceState": {"code": code, "name": name},
        "privateDnsName": text(&instance.private_dns_name).unwrap_or_default(),
        "stateReason": instance.state_reason.as_ref().map(|reason| json!({"code": reason.code, "message": reason.message})),
        "instanceType": instance.instance_type,
        "launchTime": instance.launched_at.to_string(),
        "placement": {
            "availabilityZone": instance.zone,
            "tenancy": template.map_or("default", |template| template.tenancy.as_str()),
            "groupId": placement.and_then(|template| template.placement_group_id.clone()),
            "partitionNumber": placement.and_then(|template| template.partition),
        },
        "subnetId": text(&instance.subnet_id),
        "vpcId": text(VPC),
        // A terminated instance has no network any more.
        "groupSet": if ended { Vec::new() } else { groups.collect() },
        "iamInstanceProfile": profile_arn(region, instance).map(|arn| json!({"arn": arn, "id": "AIPA00000000000000000"})),
        "spotInstanceRequestId": is_spot.then(|| format!("sir-{}", instance.id.as_str().trim_start_matches("i-").get(..8).unwrap_or_default())),
        "instanceLifecycle": is_spot.then_some("spot"),
        "capacityReservationId": instance.reservation,
        "capacityReservationSpecification": {"capacityReservationPreference": preference},
        "tagSet": tag_set(&instance.tags),
    })
}

fn states(place: &mut dyn Place) -> BTreeMap<InstanceId, InstanceState> {
    place.region().machines.values().map(|machine| (machine.instance.id.clone(), machine.instance.state)).collect()
}

pub(super) fn terminate(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let ids = ids(params)?;
    if ids.is_empty() {
        return Err(Fault::missing("InstanceId"));
    }
    std::mem::take(params).finish()?;
    // All or nothing.
    all_exist(&ids, |id| place.knows(id))?;
    let before = states(place);
    for id in &ids {
        place.terminate(id)?;
    }
    let after = states(place);
    let word = |of: Option<InstanceState>| {
        let (name, code) = state(of.unwrap_or(InstanceState::Terminated));
        json!({"code": code, "name": name})
    };
    let changes: Vec<Value> = ids
        .iter()
        .map(|id| {
            let (old, new) = (before.get(id).copied(), after.get(id).copied());
            json!({"instanceId": id.as_str(), "previousState": word(old), "currentState": word(new)})
        })
        .collect();
    Ok(json!({"instancesSet": changes}))
}

pub(super) fn tag(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let resources = params.texts("ResourceId")?;
    let tags = tags_of(params)?;
    if resources.is_empty() || tags.is_empty() {
        return Err(Fault::missing(if resources.is_empty() { "resourceIdSet" } else { "tagSet" }));
    }
    std::mem::take(params).finish()?;
    let ids: Vec<InstanceId> = resources.iter().map(|id| InstanceId::new(id.as_str())).collect();
    all_exist(&ids, |id| place.knows(id))?;
    for machine in place.region().machines.values_mut().filter(|machine| ids.contains(&machine.instance.id)) {
        machine.instance.tags.extend(tags.clone());
    }
    Ok(json!({"return": true}))
}

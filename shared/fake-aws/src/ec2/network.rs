//! Subnets, security groups, images and capacity reservations.

use super::selection::{Filters, page};
use super::{ACCOUNT, tag_set};
use crate::errors::Fault;
use crate::params::Params;
use crate::place::Place;
use serde_json::{Value, json};
use whittle_ec2::network::{CapacityReservation, Image};
use whittle_units::SignedDuration;

/// Rejects the first id that does not exist.
fn all_exist<'a>(ids: &[String], known: impl Iterator<Item = &'a str> + Clone, code: &str, what: &str) -> Result<(), Fault> {
    match ids.iter().find(|id| !known.clone().any(|there| there == id.as_str())) {
        Some(id) => Err(Fault::new(code, format!("The {what} '{id}' does not exist"))),
        None => Ok(()),
    }
}

pub(super) fn subnets(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let ids = params.texts("SubnetId")?;
    let known = ["subnet-id", "availability-zone", "availability-zone-id", "vpc-id", "state"];
    let filters = Filters::take(params, &known, true)?;
    let all = &place.region().network.subnets;
    all_exist(&ids, all.iter().map(|subnet| subnet.id.as_str()), "InvalidSubnetID.NotFound", "subnet ID")?;
    let named = all.iter().filter(|subnet| ids.is_empty() || ids.contains(&subnet.id));
    let matching = named.filter(|subnet| {
        filters.match_all(&subnet.tags, |name| {
            vec![match name {
                "subnet-id" => subnet.id.clone(),
                "availability-zone" => subnet.zone.clone(),
                "availability-zone-id" => subnet.zone_id.clone(),
                "vpc-id" => subnet.vpc.clone(),
                _ => "available".to_owned(),
            }]
        })
    });
    let (found, next) = page(params, matching.collect(), 5..=1000)?;
    let described = found.into_iter().map(|subnet| {
        json!({
            "subnetId": subnet.id,
            "state": "available",
            "ownerId": ACCOUNT,
            "vpcId": subnet.vpc,
            "availabilityZone": subnet.zone,
            "availabilityZoneId": subnet.zone_id,
            "availableIpAddressCount": subnet.free_addresses,
            "tagSet": tag_set(&subnet.tags),
        })
    });
    Ok(json!({"subnetSet": described.collect::<Vec<_>>(), "nextToken": next}))
}

pub(super) fn groups(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let ids = params.texts("GroupId")?;
    let filters = Filters::take(params, &["group-id", "group-name", "vpc-id", "owner-id"], true)?;
    let all = &place.region().network.groups;
    all_exist(&ids, all.iter().map(|group| group.id.as_str()), "InvalidGroup.NotFound", "security group")?;
    let named = all.iter().filter(|group| ids.is_empty() || ids.contains(&group.id));
    let matching = named.filter(|group| {
        filters.match_all(&group.tags, |name| {
            vec![match name {
                "group-id" => group.id.clone(),
                "group-name" => group.name.clone(),
                "vpc-id" => group.vpc.clone(),
                _ => ACCOUNT.to_owned(),
            }]
        })
    });
    let (found, next) = page(params, matching.collect(), 5..=1000)?;
    let described = found.into_iter().map(|group| {
        json!({
            "groupId": group.id,
            "groupName": group.name,
            "groupDescription": group.name,
            "ownerId": ACCOUNT,
            "vpcId": group.vpc,
            "tagSet": tag_set(&group.tags),
        })
    });
    Ok(json!({"securityGroupInfo": described.collect::<Vec<_>>(), "nextToken": next}))
}

pub(super) fn images(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let (ids, owners) = (params.texts("ImageId")?, params.texts("Owner")?);
    let with_deprecated = params.parsed::<bool>("IncludeDeprecated")?.unwrap_or(false);
    let known = ["image-id", "name", "architecture", "owner-id", "owner-alias", "state", "image-type", "virtualization-type"];
    let filters = Filters::take(params, &known, true)?;
    let now = place.now();
    let network = &place.region().network;
    all_exist(&ids, network.images.iter().map(|image| image.id.as_str()), "InvalidAMIID.NotFound", "image id")?;
    let alias = |image: &Image| network.is_amazons(image).then(|| "amazon".to_owned());
    let owned = |image: &Image| {
        owners.is_empty()
            || owners.iter().any(|owner| match owner.as_str() {
                "self" => image.owner == ACCOUNT,
                "amazon" => alias(image).is_some(),
                id => id == image.owner,
            })
    };
    let named = network.images.iter().filter(|image| ids.is_empty() || ids.contains(&image.id));
    let visible = named.filter(|image| owned(image) && (with_deprecated || !image.deprecated || image.owner == ACCOUNT));
    let matching = visible.filter(|image| {
        filters.match_all(&image.tags, |name| match name {
            "image-id" => vec![image.id.clone()],
            "name" => vec![image.name.clone()],
            "architecture" => vec![image.architecture.clone()],
            "owner-id" => vec![image.owner.clone()],
            "owner-alias" => alias(image).into_iter().collect(),
            "state" => vec!["available".to_owned()],
            "image-type" => vec!["machine".to_owned()],
            _ => vec!["hvm".to_owned()],
        })
    });
    let (found, next) = page(params, matching.collect(), 1..=1000)?;
    let described = found.into_iter().map(|image| {
        let begins = if image.deprecated { now - SignedDuration::from_hours(1) } else { now + SignedDuration::from_hours(24 * 365) };
        json!({
            "imageId": image.id,
            "name": image.name,
            "imageState": "available",
            "imageOwnerId": image.owner,
            "imageOwnerAlias": alias(image),
            "architecture": image.architecture,
            "creationDate": image.created_at.to_string(),
            "deprecationTime": begins.to_string(),
            "imageType": "machine",
            "virtualizationType": "hvm",
            "isPublic": alias(image).is_some(),
            "tagSet": tag_set(&image.tags),
        })
    });
    Ok(json!({"imagesSet": described.collect::<Vec<_>>(), "nextToken": next}))
}

pub(super) fn reservations(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let ids = params.texts("CapacityReservationId")?;
    if !ids.is_empty() && params.fields().contains_key("MaxResults") {
        return Err(Fault::combination("The parameter capacityReservationIdSet cannot be used with the parameter maxResults"));
    }
    let known = ["state", "owner-id", "instance-match-criteria", "instance-type", "availability-zone", "tenancy"];
    let filters = Filters::take(params, &known, true)?;
    let region = place.region();
    all_exist(&ids, region.reservations.keys().map(String::as_str), "InvalidCapacityReservationId.NotFound", "capacity reservation ID")?;
    let named = region.reservations.values().filter(|known| ids.is_empty() || ids.contains(&known.described.id));
    let matching = named.filter(|known| {
        let described = &known.described;
        filters.match_all(&described.tags, |name| {
            vec![match name {
                "state" => described.state.clone(),
                "owner-id" => described.owner.clone(),
                "instance-match-criteria" => described.match_criteria.clone(),
                "instance-type" => described.instance_type.clone(),
                "availability-zone" => described.zone.clone(),
                _ => or(&described.tenancy, "default").to_owned(),
            }]
        })
    });
    let (found, next) = page(params, matching.collect(), 1..=1000)?;
    let described = found.into_iter().map(|known| reservation(&known.described, known.total, region.free_in(&known.described.id)));
    Ok(json!({"capacityReservationSet": described.collect::<Vec<_>>(), "nextToken": next}))
}

/// The text, or what EC2 says where it is left open.
fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

fn reservation(described: &CapacityReservation, total: u32, free: u32) -> Value {
    json!({
        "capacityReservationId": described.id,
        "ownerId": described.owner,
        "instanceType": described.instance_type,
        "availabilityZone": described.zone,
        "instancePlatform": or(&described.platform, "Linux/UNIX"),
        "tenancy": or(&described.tenancy, "default"),
        "placementGroupArn": described.placement_group,
        "outpostArn": described.outpost,
        "totalInstanceCount": total,
        "availableInstanceCount": free,
        "state": described.state,
        "endDate": described.ends_at.map(|end| end.to_string()),
        "endDateType": if described.ends_at.is_some() { "limited" } else { "unlimited" },
        "instanceMatchCriteria": described.match_criteria,
        "reservationType": or(&described.kind, "default"),
        "interruptible": described.interruptible,
        "tagSet": tag_set(&described.tags),
    })
}

/// EC2 returns these without pages.
pub(super) fn placement_groups(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let (ids, names) = (params.texts("GroupId")?, params.texts("GroupName")?);
    let filters = Filters::take(params, &["group-name", "strategy", "state"], true)?;
    let all = &place.region().placement_groups;
    let unknown_id = ids.iter().find(|id| !all.contains_key(*id));
    let unknown_name = names.iter().find(|name| !all.values().any(|group| group.name == **name));
    if let Some(unknown) = unknown_id.or(unknown_name) {
        return Err(Fault::new("InvalidPlacementGroup.Unknown", format!("The Placement Group '{unknown}' is unknown.")));
    }
    let named =
        all.values().filter(|group| (ids.is_empty() || ids.contains(&group.id)) && (names.is_empty() || names.contains(&group.name)));
    let matching = named.filter(|group| {
        filters.match_all(&std::collections::BTreeMap::new(), |name| {
            vec![match name {
                "group-name" => group.name.clone(),
                "strategy" => group.strategy.clone(),
                _ => group.state.clone(),
            }]
        })
    });
    let described = matching.map(|group| {
        json!({
            "groupId": group.id,
            "groupName": group.name,
            "groupArn": format!("arn:aws:ec2:us-east-1:{ACCOUNT}:placement-group/{}", group.name),
            "strategy": group.strategy,
            "state": group.state,
            "partitionCount": (group.strategy == "partition").then_some(group.partition_count),
        })
    });
    Ok(json!({"placementGroupSet": described.collect::<Vec<_>>()}))
}

//! EC2 in query form: the actions that the adapters call.

mod catalog;
mod fleets;
mod instance_run;
mod instances;
mod network;
mod selection;
mod status;
pub(crate) mod templates;

use crate::errors::Fault;
use crate::params::Params;
use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
pub(crate) use whittle_sim::region::ACCOUNT;

pub(crate) const ACTIONS: &[&str] = &[
    "CreateFleet",
    "CreateLaunchTemplate",
    "CreateTags",
    "DeleteLaunchTemplate",
    "DescribeCapacityReservations",
    "DescribeFleets",
    "DescribeImages",
    "DescribeInstanceStatus",
    "DescribeInstanceTypeOfferings",
    "DescribeInstanceTypes",
    "DescribeInstances",
    "DescribeLaunchTemplates",
    "DescribePlacementGroups",
    "DescribeSecurityGroups",
    "DescribeSpotPriceHistory",
    "DescribeSubnets",
    "RunInstances",
    "TerminateInstances",
];

/// The fields of an action's response.
pub(crate) fn call(place: &mut dyn Place, action: &str, mut params: Params) -> Result<Value, Fault> {
    if params.parsed::<bool>("DryRun")? == Some(true) {
        return dry_run(place, action, params);
    }
    let answer = match action {
        "DescribeInstances" => instances::describe(place, &mut params),
        "DescribeInstanceStatus" => status::describe(place, &mut params),
        "TerminateInstances" => instances::terminate(place, &mut params),
        "CreateTags" => instances::tag(place, &mut params),
        "CreateLaunchTemplate" => templates::create(place, &mut params),
        "DescribeLaunchTemplates" => templates::describe(place, &mut params),
        "DeleteLaunchTemplate" => templates::delete(place, &mut params),
        "CreateFleet" => {
            // A request with unknown parameters must not start anything.
            let (request, allocation) = fleets::request(place, &mut params)?;
            std::mem::take(&mut params).finish()?;
            fleets::create(place, &request, allocation)
        }
        "DescribeFleets" => fleets::describe(place, &mut params),
        "DescribeSubnets" => network::subnets(place, &mut params),
        "DescribeSecurityGroups" => network::groups(place, &mut params),
        "DescribeImages" => network::images(place, &mut params),
        "DescribeCapacityReservations" => network::reservations(place, &mut params),
        "DescribePlacementGroups" => network::placement_groups(place, &mut params),
        "DescribeInstanceTypes" => catalog::types(place, &mut params),
        "DescribeInstanceTypeOfferings" => catalog::offerings(place, &mut params),
        "DescribeSpotPriceHistory" => catalog::spot_prices(place, &mut params),
        "RunInstances" => return Err(Fault::new("UnsupportedOperation", "only dry runs of RunInstances are known here")),
        other => return Err(Fault::new("InvalidAction", format!("The action {other} is not valid for this web service."))),
    }?;
    params.finish()?;
    Ok(answer)
}

/// The answer to a call that is only tried: always an error. Its caller may make it, or it would not have come here.
fn dry_run(place: &mut dyn Place, action: &str, mut params: Params) -> Result<Value, Fault> {
    match action {
        "CreateFleet" => {
            fleets::request(place, &mut params)?;
            params.finish()?;
        }
        "RunInstances" => {
            instance_run::check(place, &mut params)?;
            params.finish()?;
        }
        _ => {}
    }
    let text = "Request would have succeeded, but DryRun flag is set.";
    Err(Fault::new("DryRunOperation", text).with_status(412))
}

/// The answer to a fleet that may be asked for and whose launch is refused.
pub(crate) fn refused_fleet(place: &mut dyn Place, mut params: Params, message: &str) -> Result<Value, Fault> {
    let (request, _) = fleets::request(place, &mut params)?;
    params.finish()?;
    fleets::refused(place, &request, message)
}

fn tag_set(tags: &BTreeMap<String, String>) -> Value {
    tags.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

/// The tags of a structure.
fn tags_of(params: &mut Params) -> Result<BTreeMap<String, String>, Fault> {
    let mut tags = BTreeMap::new();
    for mut tag in params.list("Tag")? {
        let (key, value) = (tag.required("Key")?, tag.text("Value").unwrap_or_default());
        if key.len() > 127 || value.len() > 255 || key.starts_with("aws:") {
            return Err(Fault::new("InvalidParameterValue", format!("Tag key {key} or its value is too long or reserved")));
        }
        if tags.insert(key.clone(), value).is_some() {
            return Err(Fault::new("InvalidParameterValue", format!("Duplicate tag key '{key}' specified.")));
        }
        tag.finish()?;
    }
    match tags.len() {
        0..=50 => Ok(tags),
        _ => Err(Fault::new("TagLimitExceeded", "More than 50 tags specified")),
    }
}

/// The tag specifications of a request, by kind of resource.
fn tag_specifications(params: &mut Params, kinds: &[&str]) -> Result<BTreeMap<String, BTreeMap<String, String>>, Fault> {
    let mut found = BTreeMap::new();
    for mut specification in params.list("TagSpecification")? {
        let kind = specification.required("ResourceType")?;
        if !kinds.contains(&kind.as_str()) {
            return Err(Fault::new("InvalidParameterValue", format!("'{kind}' is not a valid taggable resource type for this operation.")));
        }
        found.insert(kind, tags_of(&mut specification)?);
        specification.finish()?;
    }
    Ok(found)
}

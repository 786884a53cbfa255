//! RunInstances, of which only the dry run is known here.

use super::{tag_specifications, templates};
use crate::errors::Fault;
use crate::params::Params;
use crate::place::Place;

/// What the request names, validated as EC2 does before it answers a dry run.
pub(super) fn check(place: &mut dyn Place, params: &mut Params) -> Result<(), Fault> {
    let region = place.region();
    let Some(mut given) = params.structure("LaunchTemplate") else { return Err(Fault::missing("LaunchTemplate")) };
    let name = given.required("LaunchTemplateName")?;
    let _ = given.word("Version", &["$Latest", "$Default", "1"])?;
    given.finish()?;
    let Some(template) = region.launch_templates.get(&name) else { return Err(templates::not_found(&name)) };
    for (count, most) in [("MinCount", 1), ("MaxCount", 1000)] {
        let number: u32 = params.parsed(count)?.ok_or_else(|| Fault::missing(count))?;
        if !(1..=most).contains(&number) {
            return Err(Fault::value(count, &number.to_string()));
        }
    }
    params.text("ClientToken");
    let instance_type = params.text("InstanceType").unwrap_or_default();
    let Some(zones) = region.catalog.offered.get(&instance_type) else { return Err(Fault::value("instanceType", &instance_type)) };
    tag_specifications(params, &["instance", "volume", "network-interface", "spot-instances-request"])?;
    let mut subnets: Vec<String> = params.text("SubnetId").into_iter().collect();
    let interfaces = params.list("NetworkInterface")?;
    // The template's interfaces count as the request's.
    let has_interfaces = !interfaces.is_empty() || !template.interfaces.is_empty();
    if has_interfaces && !subnets.is_empty() {
        let text = "Network interfaces and an instance-level subnet ID may not be specified on the same request";
        return Err(Fault::combination(text));
    }
    for mut interface in interfaces {
        subnets.extend(interface.text("SubnetId"));
        interface.texts("SecurityGroupId")?;
        templates::interface(&mut interface)?;
        interface.finish()?;
    }
    for id in &subnets {
        let Some(subnet) = region.network.subnets.iter().find(|subnet| subnet.id == *id) else {
            return Err(Fault::new("InvalidSubnetID.NotFound", format!("The subnet ID '{id}' does not exist")));
        };
        if !zones.contains(&subnet.zone) {
            let text = format!(
                "Your requested instance type ({instance_type}) is not supported in your requested Availability Zone ({}).",
                subnet.zone
            );
            return Err(Fault::new("Unsupported", text));
        }
    }
    let profile = &template.instance_profile;
    if !profile.is_empty() && !region.network.profiles.contains_key(profile) {
        let text = format!("Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name");
        return Err(Fault::new("InvalidParameterValue", text));
    }
    Ok(())
}

//! `ec2 describe`: everything that EC2 knows about one machine, and what it was launched with.

use crate::similar;
use serde_json::{Map, Value, json};
use whittle_ec2::fleet::LaunchTemplate;
use whittle_sim::World;
use whittle_sim::region::Machine;

/// The machine of a node or with an id, or a launch template. The beginning of a name is enough if only one begins so.
pub(super) fn describe(world: &World, name: &str) -> Result<String, String> {
    let name = name.strip_prefix("node/").unwrap_or(name);
    let whole = only_beginning(world, name);
    let name = whole.as_deref().unwrap_or(name);
    let node = world.cluster.objects.nodes.get(name);
    let id = node.and_then(|node| node.spec.provider_id.rsplit('/').next()).unwrap_or(name);
    let region = &world.region;
    if let Some(machine) = region.machines.values().find(|machine| machine.instance.id.as_str() == id) {
        return of_machine(machine, region.subject(&machine.instance.id).arn());
    }
    if let Some(template) = region.launch_templates.get(name) {
        return Ok(format!("{name}\n{}{}", yaml(&json!({ "launchTemplate": of_template(template) }))?, user_data(template)));
    }
    if node.is_some() {
        return Err(format!("node {name} is not Whittle's: the simulated EC2 does not know its machine"));
    }
    let near = similar::nearest_name(name, known(world)).map(|near| format!("; did you mean {near}?"));
    let near = near.unwrap_or_else(|| "; `ec2 show instances` and `ec2 show launch-templates` list what there is".to_owned());
    Err(format!("there is no node, instance or launch template {name:?}{near}"))
}

/// The names of nodes, machines and launch templates.
fn known(world: &World) -> impl Iterator<Item = String> {
    let machines = world.region.machines.keys().map(ToString::to_string);
    world.cluster.objects.nodes.keys().cloned().chain(machines).chain(world.region.launch_templates.keys().cloned())
}

/// The only name that begins so.
fn only_beginning(world: &World, beginning: &str) -> Option<String> {
    let mut names = known(world).filter(|name| name.starts_with(beginning));
    let name = names.next()?;
    (names.next().is_none() && !beginning.is_empty()).then_some(name)
}

fn of_machine(machine: &Machine, arn: String) -> Result<String, String> {
    let (instance, template) = (&machine.instance, &machine.launch_template);
    let fields = json!({
        "arn": arn,
        "privateDnsName": instance.private_dns_name,
        "state": instance.state.as_str(),
        "instanceType": instance.instance_type,
        "capacityType": instance.capacity_type,
        "zone": instance.zone,
        "launchTime": instance.launched_at.to_string(),
        "price": machine.price.to_string(),
        "imageId": instance.image_id,
        "subnetId": instance.subnet_id,
        "securityGroups": instance.security_groups,
        "reservation": instance.reservation,
        "placementGroup": instance.placement_group,
        "tags": instance.tags,
        "launchTemplate": of_template(template),
    });
    Ok(format!("{}\n{}{}", instance.id, yaml(&fields)?, user_data(template)))
}

/// What a machine is launched with, in EC2's words.
fn of_template(template: &LaunchTemplate) -> Value {
    json!({
        "name": template.name,
        "imageId": template.image_id,
        "iamInstanceProfile": template.instance_profile,
        "securityGroupIds": template.security_group_ids,
        "metadataOptions": template.metadata_options,
        "blockDeviceMappings": template.block_device_mappings,
        "detailedMonitoring": template.detailed_monitoring,
        "tenancy": template.tenancy,
        "enclave": template.enclave,
        "nestedVirtualization": template.nested_virtualization,
        "placementGroupId": template.placement_group_id,
        "marketType": template.market_type,
        "tags": template.tags,
    })
}

/// The user data as the machine reads it.
fn user_data(template: &LaunchTemplate) -> String {
    if template.user_data.is_empty() {
        return "  userData: none\n".to_owned();
    }
    let lines: String = template.user_data.lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect();
    format!("  userData, decoded:\n{lines}")
}

/// The fields that are not empty, indented.
fn yaml(value: &Value) -> Result<String, String> {
    let text = serde_saphyr::to_string(&without_empty(value)).map_err(|error| error.to_string())?;
    Ok(text.lines().map(|line| format!("  {line}\n")).collect())
}

fn without_empty(value: &Value) -> Value {
    let says = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    };
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(key, value)| (key.clone(), without_empty(value))).filter(|(_, value)| says(value));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

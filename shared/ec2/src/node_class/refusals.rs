//! What EC2 refuses at each launch of a class, and an API server takes (aws 18.4).

use crate::fleet::is_reserved_tag;
use whittle_api::conditions::ConditionValue;
use whittle_api::karpenter::Ec2NodeClass;
use whittle_api::runtime::disk_violations;

/// The tags that EC2 takes of a machine.
const TAGS_MAX: usize = 50;
/// Those that Whittle launches one with. A machine of a Provisioner, whose class was an AWSNodeTemplate, has one more: that one's name.
const OWN_TAGS: usize = 6;
/// EC2's limits of a tag, in letters.
const TAG_KEY_MAX: usize = 128;
const TAG_VALUE_MAX: usize = 256;

/// The first of them; `None` if EC2 takes the class.
pub(super) fn of_ec2(class: &Ec2NodeClass) -> Option<ConditionValue> {
    tags(class).or_else(|| disk(class)).or_else(|| public_address(class))
}

fn disk(class: &Ec2NodeClass) -> Option<ConditionValue> {
    let violations: Vec<String> = disk_violations(class.spec.block_device_mappings.as_deref()).iter().map(ToString::to_string).collect();
    (!violations.is_empty()).then(|| ConditionValue::no("BlockDeviceMappingsInvalid", violations.join("; ")))
}

/// How many interfaces a machine for EFA has is known of each launch alone, which fails with `CreateReason::PublicAddressRefused`.
fn public_address(class: &Ec2NodeClass) -> Option<ConditionValue> {
    let interfaces = class.spec.network_interfaces.as_ref().map_or(0, Vec::len);
    if interfaces < 2 || class.spec.associate_public_ip_address != Some(true) {
        return None;
    }
    let message = format!(
        "spec.associatePublicIPAddress is true and spec.networkInterfaces has {interfaces} interfaces, and EC2 gives a public address only \
         to an instance with a single one: leave spec.associatePublicIPAddress out, or all interfaces but one"
    );
    Some(ConditionValue::no("PublicAddressRefused", message))
}

/// Why EC2 would not take the tags of a class, or Whittle not find its machines.
fn tags(class: &Ec2NodeClass) -> Option<ConditionValue> {
    let tags = class.spec.tags.as_ref()?;
    let own = OWN_TAGS + usize::from(class.is_converted_template());
    let (count, most) = (tags.len(), TAGS_MAX - own);
    let are_too_many = || {
        let remedy = format!("EC2 takes {TAGS_MAX} of a machine, and Whittle launches one with {own} of its own");
        (count > most).then(|| format!("spec.tags has {count} tags, at most {most} are possible: {remedy}"))
    };
    let message = tags.iter().find_map(|(key, value)| tag_problem(key, value)).or_else(are_too_many)?;
    Some(ConditionValue::no("TagValidationFailed", message))
}

fn tag_problem(key: &str, value: &str) -> Option<String> {
    if is_reserved_tag(key) {
        Some(format!("spec.tags may not set {key}: Whittle needs it to find its machines"))
    } else if key.to_ascii_lowercase().starts_with("aws:") {
        Some(format!("spec.tags may not set {key}: EC2 keeps aws: for itself"))
    } else if key.chars().count() > TAG_KEY_MAX {
        Some(format!("spec.tags has a key of more than {TAG_KEY_MAX} letters: {key}"))
    } else if value.chars().count() > TAG_VALUE_MAX {
        Some(format!("spec.tags: the value of {key} has more than {TAG_VALUE_MAX} letters"))
    } else {
        None
    }
}

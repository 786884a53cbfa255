//! Errors that controllers find in objects that the API server accepted (api 5.2, 9), reported in conditions.

mod kubelet;
#[cfg(test)]
mod tests;

use crate::field::{FieldError, FieldPath};
use crate::k8s::Taint;
use crate::karpenter::{BlockDeviceMapping, NodePool, Operator, Requirement};
use crate::labels;
use crate::schema::matches;
use std::collections::BTreeMap;
use whittle_units::Quantity;

pub use kubelet::{has_expressions, passthrough_fields, violations as kubelet_violations};

/// The errors and notes for an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The object must not be used.
    pub errors: Vec<FieldError>,
    /// Only logged; the object is used.
    pub notes: Vec<FieldError>,
}

/// Bytes of the labels, annotations, taints and requirements of a template together. Each claim of the pool has all of them, labels also as
/// requirements, and an item of the table has 400 KB.
const TEMPLATE_MAX: usize = 128 * 1024;

/// Checks a pool's template, for its condition ValidationSucceeded.
pub fn node_pool(pool: &NodePool) -> Findings {
    let mut found = Findings::default();
    let template = FieldPath::of("spec.template");
    found.errors.extend(oversize(pool, &template));
    found.errors.extend(long_names(pool, &template));
    for (key, value) in &pool.spec.template.metadata.labels {
        let path = template.key("metadata").key("labels").key(key);
        if key == labels::NODE_POOL {
            found.errors.push(FieldError::new(path.clone(), "is set by the system: leave it out"));
        } else if let Some(fault) = key_fault(key) {
            found.errors.push(FieldError::new(path.clone(), fault));
        }
        if !is_label_value(value) {
            found.errors.push(FieldError::new(path, format!("{value:?} is no label value: {LABEL_VALUE_FORM}")));
        }
    }
    // The server looks at them only on the NodeClaims and Nodes that get them. Their machines would be started, and never registered.
    let annotations = template.key("metadata").key("annotations");
    for key in pool.spec.template.metadata.annotations.keys().filter(|key| !is_qualified_name(&key.to_lowercase())) {
        found.errors.push(FieldError::new(annotations.key(key), format!("{key:?} is no annotation key: {KEY_FORM}")));
    }
    let spec = template.key("spec");
    taints(&pool.spec.template.spec.taints, &pool.spec.template.spec.startup_taints, &spec, &mut found.errors);
    for (index, requirement) in pool.spec.template.spec.requirements.iter().enumerate() {
        let path = spec.key("requirements").index(index);
        if requirement.key == labels::NODE_POOL {
            found.errors.push(FieldError::new(path.key("key"), "karpenter.sh/nodepool is set by the system: leave it out"));
        }
        check_requirement(requirement, &path, &mut found);
    }
    found
}

/// The names of a pool and its class that are too long for the labels of its nodes. Names of objects may have 253 characters.
fn long_names(pool: &NodePool, template: &FieldPath) -> Vec<FieldError> {
    let class = template.key("spec").key("nodeClassRef").key("name");
    let names = [
        (FieldPath::of("metadata.name"), NodePool::given_name(&pool.metadata.name), labels::NODE_POOL),
        (class, pool.spec.template.spec.node_class_ref.name.as_str(), labels::EC2_NODE_CLASS),
    ];
    let is_long = |(_, name, _): &(FieldPath, &str, &str)| LABEL_VALUE_MAX < name.len();
    let error = |(path, name, label): (FieldPath, &str, &str)| {
        let message = format!("{} characters are too many for the label {label} of its nodes: at most {LABEL_VALUE_MAX}", name.len());
        FieldError::new(path, message)
    };
    names.into_iter().filter(is_long).map(error).collect()
}

/// The error of a template that no claim has room for, at the largest of its fields.
fn oversize(pool: &NodePool, template: &FieldPath) -> Option<FieldError> {
    let of_map = |map: &BTreeMap<String, String>| map.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    let of_taints = |taints: &[Taint]| taints.iter().map(|taint| taint.key.len() + taint.value.len()).sum::<usize>();
    let of_requirement = |one: &Requirement| one.key.len() + one.values.iter().map(String::len).sum::<usize>();
    let (metadata, spec) = (&pool.spec.template.metadata, &pool.spec.template.spec);
    let fields = [
        (template.key("metadata").key("labels"), of_map(&metadata.labels)),
        (template.key("metadata").key("annotations"), of_map(&metadata.annotations)),
        (template.key("spec").key("taints"), of_taints(&spec.taints)),
        (template.key("spec").key("startupTaints"), of_taints(&spec.startup_taints)),
        (template.key("spec").key("requirements"), spec.requirements.iter().map(of_requirement).sum()),
    ];
    let total: usize = fields.iter().map(|(_, size)| size).sum();
    let (path, size) = fields.into_iter().max_by_key(|(_, size)| *size).filter(|_| TEMPLATE_MAX < total)?;
    let message = format!(
        "has {} of {} KiB of labels, annotations, taints and requirements of spec.template; a NodeClaim can have {}: leave some out",
        size.div_ceil(1024),
        total.div_ceil(1024),
        TEMPLATE_MAX / 1024
    );
    Some(FieldError::new(path, message))
}

/// The disks of a class without a name or a volume: EC2 starts no instance with one. Karpenter ends with an error of its own over them. And
/// sizes that are none, such as `Ti`, which the schema takes and Karpenter cannot read: a volume would have another size than was planned.
pub fn disk_violations(mappings: Option<&[BlockDeviceMapping]>) -> Vec<FieldError> {
    let path = FieldPath::of("spec.blockDeviceMappings");
    let mut found = Vec::new();
    for (index, mapping) in mappings.unwrap_or_default().iter().enumerate() {
        let mapping_path = path.index(index);
        if mapping.ebs.is_none() {
            let message =
                "is missing, and EC2 starts no instance with it: give ebs with a volumeSize or a snapshotID, or leave the mapping out";
            found.push(FieldError::new(mapping_path.key("ebs"), message));
        }
        let size = mapping.ebs.as_ref().and_then(|ebs| ebs.volume_size.as_deref());
        if let Some(size) = size.filter(|size| size.parse::<Quantity>().is_err()) {
            let message = format!("{size:?} is no size of a volume: write a number and a unit, such as 20Gi");
            found.push(FieldError::new(mapping_path.key("ebs").key("volumeSize"), message));
        }
        if mapping.device_name.as_deref().is_none_or(str::is_empty) {
            let message = "is missing, and EC2 starts no instance with it: name the device, such as /dev/xvda";
            found.push(FieldError::new(mapping_path.key("deviceName"), message));
        }
    }
    found
}

/// Checks a requirement of a pool or claim.
pub fn check_requirement(requirement: &Requirement, path: &FieldPath, found: &mut Findings) {
    let key = labels::normalized(&requirement.key);
    if let Some(fault) = key_fault(key) {
        found.errors.push(FieldError::new(path.key("key"), fault));
    }
    for (index, value) in requirement.values.iter().enumerate().filter(|(_, value)| !is_label_value(value)) {
        let message = format!("{value:?} is no label value: {LABEL_VALUE_FORM}");
        found.errors.push(FieldError::new(path.key("values").index(index), message));
    }
    let least = requirement.min_values.unwrap_or(0) as usize;
    match requirement.operator {
        Operator::In if requirement.values.is_empty() => {
            found.errors.push(FieldError::new(path.key("values"), "an In requirement without values matches nothing: give values"));
        }
        Operator::In if requirement.values.len() < least => {
            found
                .errors
                .push(FieldError::new(path.key("minValues"), format!("{least} values cannot be reached: the requirement lists fewer")));
        }
        Operator::In => closed_set(key, requirement, least, path, found),
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte if !is_one_number(&requirement.values) => {
            let message = format!("{} compares with exactly one whole number that is not negative", requirement.operator.as_str());
            found.errors.push(FieldError::new(path.key("values"), message));
        }
        _ => {}
    }
}

fn is_one_number(values: &[String]) -> bool {
    matches!(values, [value] if value.parse::<i64>().is_ok_and(|number| 0 <= number))
}

/// Checks the values of a key whose possible values are all known.
fn closed_set(key: &str, requirement: &Requirement, least: usize, path: &FieldPath, found: &mut Findings) {
    let known: &[&str] = match key {
        labels::CAPACITY_TYPE => &[labels::CAPACITY_ON_DEMAND, labels::CAPACITY_SPOT, labels::CAPACITY_RESERVED],
        labels::INSTANCE_TENANCY => &["default", "dedicated"],
        _ => return,
    };
    let (good, odd): (Vec<&String>, Vec<&String>) = requirement.values.iter().partition(|value| known.contains(&value.as_str()));
    let path = path.key("values");
    if good.is_empty() {
        found.errors.push(FieldError::new(path, format!("{:?} are none of {}", requirement.values, known.join(", "))));
    } else if good.len() < least {
        found.errors.push(FieldError::new(path, format!("only {} of the values exist, minValues asks for {least}", good.len())));
    } else if !odd.is_empty() {
        found.notes.push(FieldError::new(path, format!("{odd:?} are none of {}: they are left aside", known.join(", "))));
    }
}

fn taints(taints: &[Taint], startup: &[Taint], spec: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<(&str, String), FieldPath> = BTreeMap::new();
    for (field, list) in [("taints", taints), ("startupTaints", startup)] {
        for (index, taint) in list.iter().enumerate() {
            let path = spec.key(field).index(index);
            errors.extend(taint_faults(taint, &path));
            if let Some(first) = seen.get(&(taint.key.as_str(), taint.effect.to_string())) {
                errors.push(FieldError::new(path, format!("{taint} has the key and effect of {first}: keep one of them")));
            } else {
                seen.insert((&taint.key, taint.effect.to_string()), path);
            }
        }
    }
}

/// Why no Node can have a taint: its kubelet does not start with it, and the API server refuses the Node. The schema, and Karpenter, take
/// values in the form of a key, such as `team/a`: machines are started for them that never join.
pub fn taint_faults(taint: &Taint, path: &FieldPath) -> Vec<FieldError> {
    let mut faults = Vec::new();
    if !is_qualified_name(&taint.key) {
        faults.push(FieldError::new(path.key("key"), format!("{:?} is no key: {KEY_FORM}", taint.key)));
    }
    if !is_label_value(&taint.value) {
        let message = format!("{:?} is no value of a taint, and a Node with it never joins: write {LABEL_VALUE_FORM}", taint.value);
        faults.push(FieldError::new(path.key("value"), message));
    }
    faults
}

/// How a label value is written.
pub const LABEL_VALUE_FORM: &str = "at most 63 letters, digits, -, _ and ., letters or digits at both ends";
/// How the key of a label, a taint or a resource is written.
pub const KEY_FORM: &str = "at most 63 letters, digits, -, _ and ., with an optional DNS domain and a slash in front";

/// The error of a label key of a template or requirement, if any.
fn key_fault(key: &str) -> Option<String> {
    if labels::WELL_KNOWN.contains(&key) {
        return None;
    }
    if !is_qualified_name(key) {
        return Some(format!("{key:?} is no label key: {KEY_FORM}"));
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within = |root: &str| domain == root || domain.strip_suffix(root).is_some_and(|rest| rest.ends_with('.'));
    if key == labels::HOSTNAME || within(labels::KARPENTER_DOMAIN) || within(labels::AWS_DOMAIN) {
        return Some(format!("{key} is restricted: use a well-known key, or a domain of your own"));
    }
    None
}

/// Characters of a label value.
const LABEL_VALUE_MAX: usize = 63;

/// Whether an API server accepts a label value: up to 63 letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit; or
/// none. Each value that a pod names in its node affinity is asked about in each plan.
pub fn is_label_value(value: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= LABEL_VALUE_MAX
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether an API server accepts a key.
pub fn is_qualified_name(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    domain.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Whether it is a DNS subdomain, as the names of Nodes are.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && matches(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", name)
}

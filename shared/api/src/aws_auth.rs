//! The ConfigMap `kube-system/aws-auth`: which IAM roles may join a cluster as nodes, and why one could not.

use crate::k8s::ConfigMap;
use crate::meta::null_as_default;
use crate::{words, yaml};
use serde::Deserialize;

/// The username that node mappings must have.
pub const NODE_USERNAME: &str = "system:node:{{EC2PrivateDNSName}}";
const NODE_GROUPS: [&str; 2] = ["system:bootstrappers", "system:nodes"];

/// One entry of `mapRoles`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RoleMapping {
    pub rolearn: String,
    #[serde(deserialize_with = "null_as_default")]
    pub username: String,
    #[serde(deserialize_with = "null_as_default")]
    pub groups: Vec<String>,
}

/// The mappings of a ConfigMap, and its faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The mappings that can be parsed.
    pub mappings: Vec<RoleMapping>,
    /// Each names the entry, counted from 1, and the remedy.
    pub faults: Vec<String>,
}

impl Diagnosis {
    /// Whether nodes of a role may join. EKS ignores a ConfigMap with a malformed entry as a whole, so then no node may.
    pub fn may_join(&self, role: &str) -> bool {
        let is_node = |mapping: &RoleMapping| {
            mapping.rolearn.rsplit_once(":role/").is_some_and(|(_, name)| name == role)
                && mapping.username == NODE_USERNAME
                && NODE_GROUPS.iter().all(|group| mapping.groups.iter().any(|own| own == group))
        };
        self.is_read() && self.mappings.iter().any(is_node)
    }

    /// Whether EKS reads the list: one malformed entry spoils all.
    pub fn is_read(&self) -> bool {
        !self.faults.iter().any(|fault| fault.contains(BROKEN))
    }
}

const BROKEN: &str = "is not valid YAML";

/// Checks `mapRoles`. Entries are parsed one by one, so that a malformed one does not hide the faults of others.
pub fn diagnose(map: &ConfigMap) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    let Some(text) = map.data.get("mapRoles").filter(|text| !text.trim().is_empty()) else {
        diagnosis
            .faults
            .push(format!("ConfigMap {:?} maps no roles: add an entry to data.mapRoles for the role of the nodes", map.metadata.key()));
        return diagnosis;
    };
    for (position, entry) in entries(text).into_iter().enumerate() {
        let entry_name = format!("mapRoles entry {}", position + 1);
        match read_entry(&entry) {
            Ok(mappings) => {
                for mapping in &mappings {
                    check(&entry_name, mapping, &mut diagnosis.faults);
                }
                diagnosis.mappings.extend(mappings);
            }
            Err(reason) => {
                let consequence = "the whole list is not read then and these nodes would never join";
                diagnosis.faults.push(format!("{entry_name} {BROKEN} ({reason}): {consequence}; indent its lines alike"));
                if let Some(arn) = entry.lines().find_map(|line| line.trim().trim_start_matches("- ").strip_prefix("rolearn:")) {
                    check_arn(&entry_name, arn.trim(), &mut diagnosis.faults);
                }
            }
        }
    }
    diagnosis
}

/// Splits the text before each dash of the outermost list.
fn entries(text: &str) -> Vec<String> {
    let indent = text.lines().find(|line| line.trim_start().starts_with('-')).map_or(0, |line| line.len() - line.trim_start().len());
    let mut entries: Vec<String> = Vec::new();
    for line in text.lines() {
        let starts = line.len() - line.trim_start().len() == indent && line.trim_start().starts_with('-');
        match entries.last_mut() {
            Some(entry) if !starts => {
                entry.push('\n');
                entry.push_str(line);
            }
            _ => entries.push(line.to_owned()),
        }
    }
    entries
}

fn read_entry(text: &str) -> Result<Vec<RoleMapping>, String> {
    let documents = yaml::documents(text).map_err(|error| error.to_string())?;
    let value = documents.first().map(yaml::Node::to_json).unwrap_or_default();
    serde_json::from_value(value).map_err(|error| words::plain(&error.to_string()))
}

fn check(entry: &str, mapping: &RoleMapping, faults: &mut Vec<String>) {
    check_arn(entry, &mapping.rolearn, faults);
    let nodes = mapping.groups.iter().any(|group| group == NODE_GROUPS[1]);
    if nodes && mapping.username != NODE_USERNAME {
        faults.push(format!("{entry}: username {:?} is none of a node: write {NODE_USERNAME}", mapping.username));
    }
    if nodes && mapping.groups.iter().all(|group| group != NODE_GROUPS[0]) {
        faults.push(format!("{entry}: nodes need the group {} too: add it", NODE_GROUPS[0]));
    }
}

fn check_arn(entry: &str, arn: &str, faults: &mut Vec<String>) {
    if let Some((_, name)) = arn.split_once(":instance-profile/") {
        faults.push(format!(
            "{entry}: {arn} is an instance profile, a role is needed: nodes with it would never join; write the ARN of the role inside profile \
             {name}, …:role/<role>"
        ));
    } else if let Some((_, name)) = arn.split_once(":role/") {
        if name.contains('/') {
            faults.push(format!(
                "{entry}: the role in {arn} has a path, which is never matched: write …:role/{}",
                name.rsplit('/').next().unwrap_or(name)
            ));
        }
    } else {
        faults.push(format!("{entry}: {arn:?} is no ARN of a role: write arn:<partition>:iam::<account>:role/<role>"));
    }
}

#[cfg(test)]
mod tests;

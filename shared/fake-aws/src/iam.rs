//! IAM: instance profiles in query form.

use crate::ec2::ACCOUNT;
use crate::errors::Fault;
use crate::params::Params;
use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use whittle_sim::region::Region;
use whittle_units::Timestamp;

/// IAM's default and maximum page sizes.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;
const TAGS_MAX: usize = 50;

pub(crate) const ACTIONS: &[&str] = &[
    "AddRoleToInstanceProfile",
    "CreateInstanceProfile",
    "DeleteInstanceProfile",
    "GetInstanceProfile",
    "ListInstanceProfiles",
    "RemoveRoleFromInstanceProfile",
];

fn none(kind: &str, name: &str) -> Fault {
    Fault::new("NoSuchEntity", format!("{kind} {name} cannot be found.")).with_status(404)
}

pub(crate) fn call(place: &mut dyn Place, action: &str, mut params: Params) -> Result<Value, Fault> {
    if action == "CreateInstanceProfile" {
        let answer = create(place, &mut params)?;
        return params.finish().map(|()| answer);
    }
    let now = place.now();
    let region = place.region();
    let answer = match action {
        "ListInstanceProfiles" => list(region, &mut params, now)?,
        "GetInstanceProfile" => {
            let name = profile_name(&mut params)?;
            existing(region, &name, now)?;
            json!({"InstanceProfile": described(region, &name)})
        }
        "DeleteInstanceProfile" => {
            let name = profile_name(&mut params)?;
            if !existing(region, &name, now)?.is_empty() {
                let text = "Cannot delete entity, must remove roles from instance profile first.";
                return Err(Fault::new("DeleteConflict", text).with_status(409));
            }
            region.network.profiles.remove(&name);
            region.network.profile_origins.remove(&name);
            Value::Null
        }
        "AddRoleToInstanceProfile" => {
            let (name, role) = (profile_name(&mut params)?, params.required("RoleName")?);
            let present = existing(region, &name, now)?;
            if !region.network.has_role(&role) {
                return Err(none("The role with name", &role));
            }
            if !present.is_empty() {
                let text = "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1";
                return Err(Fault::new("LimitExceeded", text).with_status(409));
            }
            region.network.profiles.insert(name, role);
            Value::Null
        }
        "RemoveRoleFromInstanceProfile" => {
            let (name, role) = (profile_name(&mut params)?, params.required("RoleName")?);
            if existing(region, &name, now)? != role {
                return Err(none("The role with name", &role));
            }
            region.network.profiles.insert(name, String::new());
            Value::Null
        }
        other => return Err(Fault::new("InvalidAction", format!("Could not find operation {other} for version 2010-05-08"))),
    };
    params.finish()?;
    Ok(answer)
}

/// The profile name of a request, validated as in IAM.
fn profile_name(params: &mut Params) -> Result<String, Fault> {
    let name = params.required("InstanceProfileName").map_err(|_| invalid("instanceProfileName must not be empty"))?;
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "+=,.@_-".contains(letter);
    if name.len() > 128 || !name.chars().all(allowed) {
        return Err(invalid("The specified value for instanceProfileName is invalid."));
    }
    Ok(name)
}

fn invalid(message: &str) -> Fault {
    Fault::new("ValidationError", message)
}

/// The role of a profile that IAM shows by now; empty if it has none.
fn existing(region: &Region, name: &str, now: Timestamp) -> Result<String, Fault> {
    let role = region.network.profiles.get(name).filter(|_| region.shows_profile(name, now));
    role.cloned().ok_or_else(|| none("Instance Profile", name))
}

fn create(place: &mut dyn Place, params: &mut Params) -> Result<Value, Fault> {
    let name = profile_name(params)?;
    let path = params.text("Path").unwrap_or_else(|| "/".to_owned());
    if path.len() > 512 || !path.starts_with('/') || !path.ends_with('/') {
        return Err(invalid(
            "The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.",
        ));
    }
    let mut tags = BTreeMap::new();
    if let Some(mut given) = params.structure("Tags") {
        for mut tag in given.list("member")? {
            let (key, value) = (tag.required("Key")?, tag.text("Value").unwrap_or_default());
            if tags.keys().any(|known: &String| known.eq_ignore_ascii_case(&key)) {
                let text = "Duplicate tag keys found. Please note that Tag keys are case insensitive.";
                return Err(Fault::new("InvalidInput", text));
            }
            tags.insert(key, value);
            tag.finish()?;
        }
        given.finish()?;
    }
    if tags.len() > TAGS_MAX {
        return Err(Fault::new("LimitExceeded", "Too many tags").with_status(409));
    }
    let created_at = Some(place.now());
    let region = place.region();
    if region.network.profiles.contains_key(&name) {
        return Err(Fault::new("EntityAlreadyExists", format!("Instance Profile {name} already exists.")).with_status(409));
    }
    region.network.profiles.insert(name.clone(), String::new());
    region.network.profile_origins.insert(name.clone(), whittle_sim::region::ProfileOrigin { path, tags, created_at });
    Ok(json!({"InstanceProfile": described(region, &name)}))
}

fn list(region: &Region, params: &mut Params, now: Timestamp) -> Result<Value, Fault> {
    let prefix = params.text("PathPrefix").unwrap_or_else(|| "/".to_owned());
    let size = params.parsed::<usize>("MaxItems")?.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&size) {
        return Err(invalid("MaxItems must be 1 to 1000"));
    }
    let marker = params.text("Marker").unwrap_or_default();
    let under = |name: &&String| region.network.profile_path(name).starts_with(&prefix) && region.shows_profile(name, now);
    let mut rest = region.network.profiles.keys().filter(under).skip_while(|name| !marker.is_empty() && **name <= marker);
    let page: Vec<&String> = rest.by_ref().take(size).collect();
    let truncated = rest.next().is_some();
    let profiles: Vec<Value> = page.iter().map(|name| described(region, name)).collect();
    let marker = page.last().filter(|_| truncated);
    Ok(json!({"InstanceProfiles": profiles, "IsTruncated": truncated, "Marker": marker}))
}

/// The profile's ARN.
pub(crate) fn arn(region: &Region, name: &str) -> String {
    format!("arn:{}:iam::{ACCOUNT}:instance-profile{}{name}", region.partition(), region.network.profile_path(name))
}

fn described(region: &Region, name: &str) -> Value {
    let role = region.network.profiles.get(name).filter(|role| !role.is_empty());
    let id = |prefix: &str, of: &str| format!("{prefix}{:0>17}", of.len());
    let role = role.map(|role| {
        let arn = format!("arn:{}:iam::{ACCOUNT}:role/{role}", region.partition());
        json!({"Path": "/", "RoleName": role, "RoleId": id("AROA", role), "Arn": arn, "CreateDate": "2026-01-01T00:00:00Z"})
    });
    let tags = region.network.profile_origins.get(name).map(|origin| &origin.tags).into_iter().flatten();
    json!({
        "InstanceProfileName": name,
        "InstanceProfileId": id("AIPA", name),
        "Path": region.network.profile_path(name),
        "Arn": arn(region, name),
        "CreateDate": "2026-01-01T00:00:00Z",
        "Roles": role.into_iter().collect::<Vec<_>>(),
        "Tags": tags.map(|(key, value)| json!({"Key": key, "Value": value})).collect::<Vec<_>>(),
    })
}

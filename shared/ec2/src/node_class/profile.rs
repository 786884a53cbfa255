//! Instance profiles for roles (aws 17).

use std::collections::BTreeMap;
use whittle_api::labels;
use whittle_units::fnv1;

/// A desired instance profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceProfile {
    pub name: String,
    pub path: String,
    /// The role's name without its path.
    pub role: String,
    pub tags: BTreeMap<String, String>,
}

/// Why a class has no instance profile; nothing launches without one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("spec.role and spec.instanceProfile are both unset: set one, or the default node role of the installation")]
    NotSet,
    #[error("there is no instance profile {0}, which spec.instanceProfile names: create it, or correct the field")]
    ProfileNotFound(String),
    #[error("there is no IAM role {0}, which spec.role names: create it, or correct the field")]
    RoleNotFound(String),
    /// With IAM's answer.
    #[error("the instance profile for the role {role} cannot be created: {problem}")]
    Refused { role: String, problem: String },
}

impl ProfileError {
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::NotSet => "NodeRoleNotSet",
            Self::ProfileNotFound(_) => "InstanceProfileNotFound",
            Self::RoleNotFound(_) => "NodeRoleNotFound",
            Self::Refused { .. } => "InstanceProfileCreationFailed",
        }
    }
}

impl InstanceProfile {
    /// The profile with a class's own tags. They never replace those by which the profile is found.
    #[must_use]
    pub fn with_tags(mut self, tags: &BTreeMap<String, String>) -> Self {
        for (key, value) in tags {
            self.tags.entry(key.clone()).or_insert_with(|| value.clone());
        }
        self
    }
}

/// The profile of a class for a role.
///
/// Karpenter gives every new profile a random name. Ours is derived from cluster, region, class and role: a function that
/// is interrupted between two calls finds its incomplete profile again, and another role still gets another profile.
pub fn instance_profile(cluster: &str, region: &str, class: &str, role: &str) -> InstanceProfile {
    let role = role.rsplit('/').next().unwrap_or(role);
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    InstanceProfile {
        name: format!("{cluster}_{}", fnv1(format!("{region}{class}{role}"))),
        path: profile_path(cluster, region, class),
        role: role.to_owned(),
        tags: BTreeMap::from([
            (format!("{}{cluster}", labels::TAG_CLUSTER_OWNED_PREFIX), "owned".to_owned()),
            text(labels::TAG_CLUSTER, cluster),
            text(labels::EC2_NODE_CLASS, class),
            text(labels::REGION, region),
        ]),
    }
}

/// The path of all profiles that were made for a class.
pub fn profile_path(cluster: &str, region: &str, class: &str) -> String {
    format!("{}{class}/", cluster_path(cluster, region))
}

/// The path of all profiles that were made for a cluster, by Whittle or by Karpenter.
pub fn cluster_path(cluster: &str, region: &str) -> String {
    format!("/karpenter/{region}/{cluster}/")
}

/// The class that a profile was made for by Whittle: its name is the one that follows from path and role. Karpenter's names are
/// random, and its paths have the class's uid.
pub fn class_of_profile<'a>(cluster: &str, region: &str, name: &str, path: &'a str, role: &str) -> Option<&'a str> {
    let class = path.strip_prefix(&cluster_path(cluster, region))?.strip_suffix('/')?;
    (instance_profile(cluster, region, class, role).name == name).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_profiles_with_a_name_that_follows_from_class_and_role_are_ours() {
        let own = instance_profile("prod", "us-east-1", "default", "node");
        let class = |name: &str, path: &str, role: &str| class_of_profile("prod", "us-east-1", name, path, role).map(str::to_owned);
        assert_eq!(class(&own.name, &own.path, "node").as_deref(), Some("default"));
        assert_eq!(class(&own.name, &own.path, "other"), None, "somebody has put another role into it");
        assert_eq!(class("prod_1234567890", &own.path, "node"), None, "Karpenter's names are random");
        let by_uid = "/karpenter/us-east-1/prod/0b9c6c6e-6f2b-4b0c-9a39-0c0d7c9d2a11/";
        assert_eq!(class(&own.name, by_uid, "node"), None);
        for foreign in ["/karpenter/us-east-1/prod2/default/", "/karpenter/us-west-2/prod/default/", "/"] {
            assert_eq!(class(&own.name, foreign, "node"), None, "{foreign}");
        }
    }
}

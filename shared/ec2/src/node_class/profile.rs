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
    #[error("instance profile {0}, which spec.instanceProfile names, has no role: add one to it, or correct the field")]
    ProfileWithoutRole(String),
    /// With IAM's answer.
    #[error("spec.instanceProfile {name:?} is no name of an instance profile: give the name alone, without ARN or path ({problem})")]
    ProfileNameInvalid { name: String, problem: String },
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
            Self::ProfileNotFound(_) | Self::ProfileNameInvalid { .. } => "InstanceProfileNotFound",
            Self::ProfileWithoutRole(_) => "InstanceProfileWithoutRole",
            Self::RoleNotFound(_) => "NodeRoleNotFound",
            Self::Refused { .. } => "InstanceProfileCreationFailed",
        }
    }
}

impl InstanceProfile {
    /// The profile with a class's own tags. They never replace those by which the profile is found, and those that EC2 accepts and IAM
    /// does not are left out: no machine could be launched for want of a tag.
    #[must_use]
    pub fn with_tags(mut self, tags: &BTreeMap<String, String>) -> Self {
        for (key, value) in tags {
            let is_new = !self.tags.keys().any(|known| known.eq_ignore_ascii_case(key));
            if is_new && self.tags.len() < IAM_TAGS_MAX && is_iam_text(key, 1, 128) && is_iam_text(value, 0, 256) {
                self.tags.insert(key.clone(), value.clone());
            }
        }
        self
    }
}

/// Tags that a profile may have.
const IAM_TAGS_MAX: usize = 50;

/// Whether IAM accepts a text of a tag: letters, digits and spaces of any script, and few signs.
fn is_iam_text(text: &str, min: usize, max: usize) -> bool {
    let length = text.chars().count();
    let allowed = |letter: char| letter.is_alphanumeric() || letter == ' ' || "_.:/=+-@".contains(letter);
    (min..=max).contains(&length) && text.chars().all(allowed)
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
    fn a_profile_has_the_tags_of_its_class_that_iam_accepts() {
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let own = instance_profile("prod", "us-east-1", "default", "node");
        let odd = [text("Team", "b"), text("note", "50% off"), text("", "x"), text("long", &"x".repeat(257)), text("aws*", "y")];
        let known = [text(labels::REGION, "elsewhere"), text("Topology.kubernetes.io/region", "elsewhere"), text("team", "a b/c")];
        let tags = own.clone().with_tags(&odd.into_iter().chain(known).collect()).tags;
        let added: Vec<_> = tags.iter().filter(|(key, _)| !own.tags.contains_key(*key)).collect();
        assert_eq!(added, [(&"Team".to_owned(), &"b".to_owned())], "the first of those that differ in case alone");
        assert!(own.tags.iter().all(|(key, value)| tags[key] == *value), "{tags:?}");
        let many = (0..60).map(|number| text(&format!("k{number:02}"), "v")).collect();
        assert_eq!(own.with_tags(&many).tags.len(), 50);
    }

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

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
    format!("/karpenter/{region}/{cluster}/{class}/")
}

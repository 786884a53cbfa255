//! What a cluster of a deployment may use, so that one cluster's administrators cannot reach another through Whittle.

use crate::Settings;
use std::collections::BTreeMap;
use whittle_claims::{FenceFacts, NodeClassRecord};
use whittle_units::ClusterName;

/// Prefix of clusters' node roles in Karpenter's set-up.
const NODE_ROLE: &str = "KarpenterNodeRole-";

/// Names with `*` and `?`, as in IAM's policies, for each cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePatterns(BTreeMap<ClusterName, Vec<String>>);

/// Why a text is not a list of patterns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamePatternsError {
    #[error("{0:?} is not an entry of the form CLUSTER=NAME,NAME")]
    NoEntry(String),
    #[error("cluster {0} has two entries: merge them")]
    Twice(ClusterName),
}

impl NamePatterns {
    /// Reads `CLUSTER=NAME,NAME;CLUSTER=NAME`. A cluster with an entry and no name may use none. Entries may name clusters that are
    /// not served: a deployment keeps them when a cluster is taken out of it.
    pub fn parse(text: &str) -> Result<Self, NamePatternsError> {
        let mut all = BTreeMap::new();
        for entry in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (cluster, names) = entry.split_once('=').ok_or_else(|| NamePatternsError::NoEntry(entry.to_owned()))?;
            let cluster = ClusterName::new(cluster.trim());
            if all.insert(cluster.clone(), names_of(names)).is_some() {
                return Err(NamePatternsError::Twice(cluster));
            }
        }
        Ok(Self(all))
    }

    /// The patterns of a cluster; `None` if it has no entry.
    pub fn of(&self, cluster: &ClusterName) -> Option<&[String]> {
        self.0.get(cluster).map(Vec::as_slice)
    }

    /// Whether no cluster has an entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Clusters with an entry that are not among those that are served: taken out, or misspelt.
    pub fn unserved<'a>(&'a self, served: &[ClusterName]) -> impl Iterator<Item = &'a ClusterName> {
        self.0.keys().filter(|cluster| !served.contains(cluster))
    }
}

/// A resource of a class that its cluster may not use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassRefusal {
    #[error("{}", role_refused(.role.as_deref(), .profile.as_deref()))]
    Role { role: Option<String>, profile: Option<String> },
    #[error(
        "subnets or security groups are in {other}, and the cluster's nodes are in {own}: narrow spec.subnetSelectorTerms and \
         spec.securityGroupSelectorTerms to the cluster's own"
    )]
    Vpc { other: String, own: String },
}

fn role_refused(role: Option<&str>, profile: Option<&str>) -> String {
    let remedy = "the operator allows roles by the stack's parameters NodeRoles and ClusterNodeRoles";
    match (role, profile) {
        (Some(""), Some(profile)) => format!("instance profile {profile} of spec.instanceProfile does not exist, or contains no role"),
        (Some(role), Some(profile)) => {
            format!(
                "instance profile {profile} of spec.instanceProfile contains role {role}, which nodes of this cluster may not have: {remedy}"
            )
        }
        (Some(role), None) => format!("nodes of this cluster may not have role {role} of spec.role: {remedy}"),
        (None, profile) => {
            let profile = profile.unwrap_or_default();
            format!("the role of instance profile {profile} of spec.instanceProfile is unknown: use spec.role, or {remedy}")
        }
    }
}

/// Names separated by commas.
pub fn names_of(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Whether a pattern covers the name: `*` is any text, `?` one character.
pub fn covers(pattern: &str, name: &str) -> bool {
    // The rest of the pattern after the last star, and how much of the name that star covers so far.
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(one) if *one == '?' || *one == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, covered)) => {
                    star = Some((at, covered + 1));
                    (p, n) = (at + 1, covered + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|rest| *rest == '*')
}

/// The name of a role without its path.
fn bare(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

fn any_covers(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| covers(bare(pattern), name))
}

impl Settings {
    /// Whether nodes of the cluster may use this role (its name, with or without path).
    ///
    /// The operator's own default role is permitted everywhere. Any other must be among `node_roles`, and among the cluster's own
    /// names. A cluster without such names may use `KarpenterNodeRole-CLUSTER`, and if it is alone in its deployment, and no entry is
    /// there that may be a misspelt one of its own, any other role of `node_roles` that is not named after another cluster.
    pub fn permits_node_role(&self, cluster: &ClusterName, role: &str) -> bool {
        let name = bare(role);
        if name.is_empty() {
            return false;
        }
        if self.default_node_role.as_deref().is_some_and(|default| bare(default) == name) {
            return true;
        }
        if !self.node_roles.is_empty() && !any_covers(&self.node_roles, name) {
            return false;
        }
        match self.cluster_node_roles.of(cluster) {
            Some(own) => any_covers(own, name),
            None if name == format!("{NODE_ROLE}{cluster}") => true,
            None => self.is_alone() && !self.may_be_of_another(name),
        }
    }

    /// Whether the deployment serves one cluster and has no entry of another, which might be a misspelt one of this.
    fn is_alone(&self) -> bool {
        self.clusters.len() <= 1 && self.cluster_node_roles.unserved(&self.clusters).next().is_none()
    }

    /// Whether a role has the name of a cluster's node role in Karpenter's set-up. Clusters that other deployments of the account
    /// serve are unknown here: a pattern does not permit such a role, its literal name does.
    fn may_be_of_another(&self, name: &str) -> bool {
        let written_out = self.node_roles.is_empty() || self.node_roles.iter().any(|role| bare(role) == name);
        name.starts_with(NODE_ROLE) && !written_out
    }

    /// Whether an instance profile whose role could not be looked up may be used: the operator's own default, and any if the
    /// deployment serves one cluster and names no roles for it, because then only IAM's rule for `iam:PassRole` applies.
    fn permits_unknown_role(&self, cluster: &ClusterName, profile: &str) -> bool {
        self.is_default_profile(profile) || (self.is_alone() && self.cluster_node_roles.of(cluster).is_none())
    }

    /// Why a class may not be used in its cluster, whose nodes are in `vpc` (empty: unknown).
    pub fn class_refusals(&self, cluster: &ClusterName, vpc: &str, record: &NodeClassRecord) -> Vec<ClassRefusal> {
        let spec = &record.class.spec;
        let named = spec.instance_profile.as_deref();
        let fence = record.fence.clone().unwrap_or_else(|| FenceFacts { role: spec.role.clone(), vpcs: Vec::new() });
        let role = match (&fence.role, named) {
            // A class without role and profile is not refused: it is not ready for another reason.
            (None, None) => true,
            (_, Some(profile)) if self.is_default_profile(profile) => true,
            (None, Some(profile)) => self.permits_unknown_role(cluster, profile),
            (Some(role), _) => self.permits_node_role(cluster, role),
        };
        let role = (!role).then(|| ClassRefusal::Role { role: fence.role.clone(), profile: named.map(str::to_owned) });
        let foreign = fence.vpcs.iter().find(|other| !vpc.is_empty() && !other.is_empty() && *other != vpc);
        let vpc = foreign.map(|other| ClassRefusal::Vpc { other: other.clone(), own: vpc.to_owned() });
        role.into_iter().chain(vpc).collect()
    }

    /// Whether this is the operator's default instance profile.
    fn is_default_profile(&self, profile: &str) -> bool {
        self.default_instance_profile.as_deref() == Some(profile)
    }

    /// Whether a signed caller may send doorbells for a cluster: any, unless callers are configured.
    pub fn permits_caller(&self, cluster: &str, arn: &str) -> bool {
        if self.relay_callers.is_empty() {
            return true;
        }
        let Some(name) = role_of_caller(arn) else { return false };
        self.relay_callers.of(&ClusterName::new(cluster)).is_some_and(|own| any_covers(own, name))
    }
}

/// The role in `arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION`, or the user in `arn:aws:iam::ACCOUNT:user/PATH/USER`.
fn role_of_caller(arn: &str) -> Option<&str> {
    let resource = arn.splitn(6, ':').nth(5)?;
    match resource.split_once('/')? {
        ("assumed-role", rest) => rest.split('/').next(),
        (_, rest) => rest.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_as_in_iam() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "any", true),
            ("Node-*", "Node-", true),
            ("Node-*", "Node", false),
            ("Node-*-x", "Node-a-b-x", true),
            ("Node-*-x", "Node-a-b-y", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "a1b2b3c", true),
            ("é*", "éa", true),
        ] {
            assert_eq!(covers(pattern, name), expected, "{pattern} {name}");
        }
    }

    fn settings(clusters: &[&str], all: &str, own: &str) -> Settings {
        let clusters: Vec<ClusterName> = clusters.iter().map(|&name| name.into()).collect();
        let cluster_node_roles = NamePatterns::parse(own).expect("it is valid");
        Settings { clusters, node_roles: names_of(all), cluster_node_roles, ..Settings::default() }
    }

    #[test]
    fn no_cluster_may_use_the_node_role_of_another() {
        let two = settings(&["prod", "prod-b"], "KarpenterNodeRole-*", "");
        let permits = |cluster: &str, role: &str| two.permits_node_role(&cluster.into(), role);
        assert!(permits("prod", "KarpenterNodeRole-prod") && permits("prod-b", "path/KarpenterNodeRole-prod-b"));
        assert!(!permits("prod", "KarpenterNodeRole-prod-b") && !permits("prod-b", "KarpenterNodeRole-prod"));
        assert!(!permits("prod", "admin") && !permits("prod", ""));
        let named = settings(&["prod", "dev"], "*", "prod=web-*,batch;dev=");
        let permits = |cluster: &str, role: &str| named.permits_node_role(&cluster.into(), role);
        assert!(permits("prod", "web-1") && permits("prod", "batch"));
        assert!(!permits("prod", "KarpenterNodeRole-prod"), "only its own names are permitted");
        assert!(!permits("dev", "web-1") && !permits("dev", "KarpenterNodeRole-dev"));
    }

    #[test]
    fn the_list_of_all_roles_restricts_every_cluster() {
        let one = settings(&["prod"], "KarpenterNodeRole-*, eng/batch", "");
        let permits = |role: &str| one.permits_node_role(&"prod".into(), role);
        assert!(permits("KarpenterNodeRole-prod") && permits("batch"), "a single cluster may use all of them");
        assert!(!permits("admin"));
        let narrow = settings(&["prod"], "KarpenterNodeRole-*", "prod=admin");
        assert!(!narrow.permits_node_role(&"prod".into(), "admin"), "IAM would deny iam:PassRole");
        let default = Settings { default_node_role: Some("path/nodes".to_owned()), ..settings(&["a", "b"], "x", "") };
        assert!(default.permits_node_role(&"a".into(), "nodes"), "the operator configured it");
    }

    #[test]
    fn a_single_cluster_never_uses_the_node_role_of_another_deployments_cluster() {
        let one = settings(&["prod"], "KarpenterNodeRole-*", "");
        assert!(!one.permits_node_role(&"prod".into(), "KarpenterNodeRole-dev"), "by the default of the stack");
        assert!(!one.permits_node_role(&"prod".into(), "path/KarpenterNodeRole-prod-b"));
        let written_out = settings(&["prod"], "KarpenterNodeRole-*,KarpenterNodeRole-shared", "");
        assert!(written_out.permits_node_role(&"prod".into(), "KarpenterNodeRole-shared"));
        let by_entry = settings(&["prod"], "KarpenterNodeRole-*", "prod=KarpenterNodeRole-*");
        assert!(by_entry.permits_node_role(&"prod".into(), "KarpenterNodeRole-dev"), "the operator permits it for this cluster");
        assert!(settings(&["prod"], "", "").permits_node_role(&"prod".into(), "KarpenterNodeRole-dev"), "only IAM restricts it");
    }

    #[test]
    fn an_unknown_role_does_not_bypass_the_restrictions() {
        let one = settings(&["prod"], "", "");
        assert!(one.permits_unknown_role(&"prod".into(), "p"));
        assert!(!settings(&["prod"], "", "prod=web").permits_unknown_role(&"prod".into(), "p"));
        let two = Settings { default_instance_profile: Some("ours".to_owned()), ..settings(&["a", "b"], "", "") };
        assert!(two.permits_unknown_role(&"a".into(), "ours") && !two.permits_unknown_role(&"a".into(), "p"));
    }

    #[test]
    fn a_signed_caller_sends_doorbells_for_its_own_cluster_only() {
        let relay_callers = NamePatterns::parse("prod=relay-prod;dev=relay-dev-*").expect("it is valid");
        let named = Settings { relay_callers, ..Settings::default() };
        let role = "arn:aws:sts::111122223333:assumed-role/relay-prod/relay-dev-1";
        assert!(named.permits_caller("prod", role));
        assert!(!named.permits_caller("dev", role), "the session name is chosen by the caller");
        assert!(!named.permits_caller("dev", "arn:aws:sts::111122223333:assumed-role/other/x") && !named.permits_caller("dev", "odd"));
        assert!(named.permits_caller("dev", "arn:aws:iam::111122223333:user/ops/relay-dev-1"));
        assert!(!named.permits_caller("elsewhere", role));
        assert!(Settings::default().permits_caller("prod", role), "without configured callers a signature is enough");
    }

    #[test]
    fn an_invalid_list_is_rejected_with_its_invalid_entry() {
        assert_eq!(NamePatterns::parse("prod"), Err(NamePatternsError::NoEntry("prod".to_owned())));
        assert_eq!(NamePatterns::parse("prod=a;prod=b"), Err(NamePatternsError::Twice("prod".into())));
        assert!(NamePatterns::parse(" ; ").expect("an empty list is valid").is_empty());
    }

    #[test]
    fn an_entry_of_a_cluster_that_is_not_served_lets_nobody_have_more() {
        let names = |text: &str| NamePatterns::parse(text).expect("it is valid");
        let alone = Settings { clusters: vec!["prod".into()], node_roles: vec!["web".into()], ..Settings::default() };
        let prod = ClusterName::new("prod");
        assert!(alone.permits_node_role(&prod, "web") && alone.permits_unknown_role(&prod, "profile"));
        let misspelt = Settings { cluster_node_roles: names("pord=other"), ..alone.clone() };
        assert!(!misspelt.permits_node_role(&prod, "web") && !misspelt.permits_unknown_role(&prod, "profile"));
        assert!(Settings { cluster_node_roles: names("prod=web;gone=other"), ..alone.clone() }.permits_node_role(&prod, "web"));
        let callers = Settings { relay_callers: names("gone=relay"), ..alone.clone() };
        assert!(!callers.permits_caller("prod", "arn:aws:sts::1:assumed-role/relay/x"), "callers are configured, and none for prod");
        let unserved = names("prod=a;gone=b");
        assert_eq!(unserved.unserved(&alone.clusters).map(ClusterName::as_str).collect::<Vec<_>>(), ["gone"]);
    }
}

//! Which other stacks change things in a cluster: two launch for the same pods, and each adopts the other's machines.

use super::account::Account;
use super::deployment::Stack;

/// What CloudFormation writes between a stack's name and its own letters into the name of the role of `launch`.
const LAUNCH_ROLE: &str = "-LaunchRole-";
/// The output with the ARN of that role.
const LAUNCH_ROLE_ARN: &str = "LaunchRoleArn";

/// The name of a role, without its path.
fn role_name(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or_default()
}

/// The stack of a role of `launch`.
fn stack_of(arn: &str) -> Option<&str> {
    role_name(arn).split_once(LAUNCH_ROLE).map(|(stack, _)| stack).filter(|stack| !stack.is_empty())
}

/// Whether a stack with this role serves a cluster. That its functions may still enter one that it does not serve harms nobody.
fn serves(stack: &Stack, arn: &str, cluster: &str) -> bool {
    stack.output(LAUNCH_ROLE_ARN) == arn && stack.clusters().iter().any(|name| name == cluster)
}

/// Names of other stacks that serve a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// They change things there.
    pub(crate) acting: Vec<String>,
    /// They decide and record, for which they read what is there.
    pub(crate) shadows: Vec<String>,
}

/// The stacks besides `own` that change things in a cluster.
///
/// # Errors
/// What cannot be read.
pub(crate) fn other_stacks(account: Account<'_>, own: &Stack, cluster: &str) -> Result<Vec<String>, String> {
    others(account, own, cluster).map(|others| others.acting)
}

/// The stacks besides `own` that serve a cluster.
///
/// # Errors
/// What cannot be read.
pub(crate) fn others(account: Account<'_>, own: &Stack, cluster: &str) -> Result<Others, String> {
    let principals = match account.principals(cluster) {
        // A cluster in mode CONFIG_MAP has no access entries.
        Err(error) if error.says("authentication mode") => Vec::new(),
        answer => answer.map_err(|error| format!("the access entries cannot be read: {error}"))?,
    };
    let mut found = Others::default();
    for arn in principals.iter().filter(|arn| arn.as_str() != own.output(LAUNCH_ROLE_ARN)) {
        let Some(name) = stack_of(arn).filter(|name| *name != own.name) else { continue };
        let kind = match Stack::find(&account, name)? {
            Ok(stack) if !serves(&stack, arn, cluster) => continue,
            Ok(stack) if stack.is_shadow() => &mut found.shadows,
            Ok(_) => &mut found.acting,
            // It was deleted with its roles; or the role's name has room for the beginning of the stack's only.
            Err(_) if !has_role(account, arn)? => continue,
            Err(_) => &mut found.acting,
        };
        if !kind.iter().any(|known| known == name) {
            kind.push(name.to_owned());
        }
    }
    Ok(found)
}

fn has_role(account: Account<'_>, arn: &str) -> Result<bool, String> {
    account.has_role(role_name(arn)).map_err(|error| format!("the role {arn} cannot be read: {error}"))
}

/// What gives a cluster up in another stack. In another region there may be a stack and a cluster of the same names.
pub(crate) fn remedy(cluster: &str, other: &str, region: &str) -> String {
    format!(
        "a cluster belongs to one stack: whittle uninstall --cluster {cluster} --stack {other} --region {region} --yes until nothing is \
         left, deploy {other} without it in Clusters, whittle cluster remove {cluster} --stack {other} --region {region} \
         (docs/guide/many-clusters.md); or deploy one of both with Mode=shadow"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "arn:aws:iam::1:role/whittle-dev-LaunchRole-1ABC2DEF3GHI";

    #[test]
    fn the_stack_of_a_launch_role_is_in_its_name() {
        assert_eq!(stack_of(ROLE), Some("whittle-dev"));
        assert_eq!(stack_of("arn:aws:iam::1:role/path/of/it/whittle-LaunchRole-1ABC"), Some("whittle"));
        for other in [
            "",
            "arn:aws:iam::1:role/whittle-dev-SweepRole-1ABC2DEF3GHI",
            "arn:aws:iam::1:role/KarpenterNodeRole-shop",
            "arn:aws:iam::1:user/me",
            "arn:aws:iam::1:role/-LaunchRole-1ABC",
            "arn:aws:iam::1:role/MyLaunchRole",
        ] {
            assert_eq!(stack_of(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_stack_that_has_the_role_and_names_the_cluster_serves_it() {
        let stack = |clusters: &str, role: &str| Stack {
            parameters: [("Clusters".to_owned(), clusters.to_owned())].into(),
            outputs: [(LAUNCH_ROLE_ARN.to_owned(), role.to_owned())].into(),
            ..Stack::default()
        };
        assert!(serves(&stack("dev,shop", ROLE), ROLE, "shop"));
        assert!(!serves(&stack("dev,shop-b", ROLE), ROLE, "shop"), "it may still enter, and does not");
        assert!(!serves(&stack("shop", "arn:aws:iam::1:role/new"), ROLE, "shop"), "a role of an earlier stack of that name");
    }

    #[test]
    fn the_template_has_that_role_and_output() {
        let template = include_str!("../../../template.yaml");
        assert!(template.contains("\n  LaunchRole:\n    Type: AWS::IAM::Role\n"));
        assert!(template.contains("\n  LaunchRoleArn:\n"));
    }
}

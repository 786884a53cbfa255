//! What a live deployment and a live cluster say, read by way of `aws` and `kubectl` (ADR 0051): values without a decision in them.

pub(crate) mod account;
pub(crate) mod deployment;
pub(crate) mod kubernetes;
pub(crate) mod serving;

use crate::programs::Program;

/// Where the deployment is.
#[derive(Clone, Debug, clap::Args)]
pub struct DeploymentArgs {
    /// Name of the deployment's stack
    #[arg(long, value_name = "STACK", default_value = "whittle", value_parser = stack_name)]
    pub stack: String,
    /// Region of the deployment and of its clusters, if not the default one of the aws command
    #[arg(long, value_parser = crate::place::region)]
    pub region: Option<String>,
    /// Profile of the aws command
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub profile: Option<String>,
}

/// How the cluster is reached.
#[derive(Clone, Debug, clap::Args)]
pub struct ReachArgs {
    /// Context of kubectl that reaches the cluster, if not the current one
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub context: Option<String>,
    /// Kubeconfig file of kubectl
    #[arg(long, value_name = "FILE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub kubeconfig: Option<String>,
    /// Believe that the context reaches the cluster, though its server is not the cluster's endpoint (a tunnel or a proxy)
    #[arg(long)]
    pub trust_context: bool,
}

/// A cluster of a deployment, and how both are reached.
#[derive(Clone, Debug, clap::Args)]
pub struct TargetArgs {
    /// Name of the EKS cluster
    #[arg(value_name = "NAME", value_parser = cluster_name)]
    pub name: String,
    #[command(flatten)]
    pub deployment: DeploymentArgs,
    #[command(flatten)]
    pub reach: ReachArgs,
    /// IAM role of the nodes; KarpenterNodeRole-NAME if not given
    #[arg(long, value_name = "ROLE", value_parser = role_name)]
    pub node_role: Option<String>,
}

impl TargetArgs {
    /// The node role that is named, or the one that Karpenter's guide and the stack's default expect.
    pub(crate) fn node_role(&self) -> String {
        self.node_role.clone().unwrap_or_else(|| format!("KarpenterNodeRole-{}", self.name))
    }
}

impl DeploymentArgs {
    pub(crate) fn program(&self) -> Program {
        Program::aws(self.region.as_deref(), self.profile.as_deref())
    }
}

impl ReachArgs {
    pub(crate) fn program(&self) -> Program {
        Program::kubectl(self.context.as_deref(), self.kubeconfig.as_deref())
    }
}

/// A cluster's name as EKS has it.
pub(crate) fn cluster_name(name: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let begins = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if begins && name.len() <= 100 && name.chars().all(plain) {
        return Ok(name.to_owned());
    }
    Err("an EKS cluster's name has 1 to 100 letters, digits, hyphens and underscores, and begins with a letter or digit".to_owned())
}

fn role_name(name: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "+=.@_-".contains(letter);
    if (1..=64).contains(&name.len()) && !name.starts_with('-') && name.chars().all(plain) {
        return Ok(name.to_owned());
    }
    Err("it is the name of an IAM role, of 1 to 64 letters, digits and +=.@_-, without path or ARN".to_owned())
}

fn stack_name(name: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if name.starts_with(|letter: char| letter.is_ascii_alphabetic()) && name.len() <= 128 && name.chars().all(plain) {
        return Ok(name.to_owned());
    }
    Err("a stack's name has 1 to 128 letters, digits and hyphens, and begins with a letter".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_eks_and_cloudformation_do_not_have_are_refused() {
        let long = "a".repeat(101);
        for name in ["", "-x", "_x", "a b", "a/b", "a;b", "é", "file://x", &long] {
            assert!(cluster_name(name).is_err(), "{name}");
        }
        for name in ["a", "0", "shop_1-b", &long[..100]] {
            assert_eq!(cluster_name(name).as_deref(), Ok(name));
        }
        assert!(role_name("path/role").is_err() && role_name("arn:aws:iam::1:role/x").is_err() && role_name("").is_err());
        assert_eq!(role_name("KarpenterNodeRole-shop").as_deref(), Ok("KarpenterNodeRole-shop"));
        assert!(stack_name("-x").is_err() && stack_name("1x").is_err() && stack_name("a_b").is_err());
        assert_eq!(stack_name("whittle-2").as_deref(), Ok("whittle-2"));
    }
}

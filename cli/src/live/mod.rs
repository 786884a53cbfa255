//! What a live deployment and a live cluster say, read by way of `aws` and `kubectl` (ADR 0051): values without a decision in them.

pub(crate) mod account;
pub(crate) mod deployment;
pub(crate) mod kubernetes;
pub(crate) mod serving;

use crate::printing::on_one_line;
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

    /// The command that adds this cluster to this deployment, for a shell: by the same options, so that it is no other of its name.
    pub(crate) fn add_line(&self) -> String {
        let role = self.node_role.as_deref().map(|role| ["--node-role", role]);
        let words = self.deployment.options().into_iter().chain(self.reach.options()).chain(role.into_iter().flatten());
        line(&["whittle", "cluster", "add", &self.name], words)
    }
}

/// Words as a command line for a shell.
fn line<'a>(first: &[&'a str], rest: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = first.iter().copied().chain(rest).collect();
    on_one_line(&shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" ")))
}

impl DeploymentArgs {
    pub(crate) fn program(&self) -> Program {
        Program::aws(self.region.as_deref(), self.profile.as_deref())
    }

    /// Its options that are not the defaults.
    fn options(&self) -> Vec<&str> {
        let stack = Some(self.stack.as_str()).filter(|stack| *stack != "whittle");
        let given = [("--stack", stack), ("--region", self.region.as_deref()), ("--profile", self.profile.as_deref())];
        given.into_iter().filter_map(|(option, value)| Some([option, value?])).flatten().collect()
    }

    /// The command that adds a cluster to this deployment, for a shell.
    pub(crate) fn add_line(&self, cluster: &str) -> String {
        line(&["whittle", "cluster", "add", cluster], self.options())
    }
}

impl ReachArgs {
    pub(crate) fn program(&self) -> Program {
        Program::kubectl(self.context.as_deref(), self.kubeconfig.as_deref())
    }

    /// Its options.
    fn options(&self) -> Vec<&str> {
        let given = [("--context", self.context.as_deref()), ("--kubeconfig", self.kubeconfig.as_deref())];
        let trusts = self.trust_context.then_some("--trust-context");
        given.into_iter().filter_map(|(option, value)| Some([option, value?])).flatten().chain(trusts).collect()
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

    /// In another region, or account, there may be a stack and a cluster of the same names.
    #[test]
    fn the_command_that_adds_a_cluster_goes_to_the_same_one() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            of: TargetArgs,
        }
        let of = |words: &str| <Line as clap::Parser>::parse_from(words.split_whitespace()).of;
        for (given, expected) in [
            ("doctor shop", ""),
            ("doctor shop --stack whittle", ""),
            ("doctor --region us-east-1 shop", " --region us-east-1"),
            ("doctor shop --node-role nodes --stack dev --profile a;b", " --stack dev --profile 'a;b' --node-role nodes"),
            ("doctor shop --trust-context --context a --kubeconfig k", " --context a --kubeconfig k --trust-context"),
        ] {
            let args = of(given);
            assert_eq!(args.add_line(), format!("whittle cluster add shop{expected}"), "{given}");
            let again = of(args.add_line().strip_prefix("whittle cluster ").unwrap());
            assert_eq!((again.name, again.node_role, again.deployment.region), (args.name, args.node_role, args.deployment.region));
        }
        let deployment = of("list shop --stack dev --region us-east-1 --context a").deployment;
        assert_eq!(deployment.add_line("web"), "whittle cluster add web --stack dev --region us-east-1");
    }

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

//! What helps node classes that are not ready: arguments of `whittle local` if they are for another cluster, and a command that makes the
//! image that they want.

use std::collections::BTreeSet;
use whittle_api::karpenter::{Ec2NodeClass, NodePool, Requirement};
use whittle_api::labels;
use whittle_sim::World;

/// The tag by which node classes usually find what is the cluster's.
const DISCOVERY: &str = "karpenter.sh/discovery";
/// The last version of Kubernetes with images of AL2.
const LAST_AL2: &str = "1.32";

/// One hint for each cause, in a fixed order.
pub(super) fn of(world: &World) -> BTreeSet<String> {
    let classes = world.cluster.objects.node_classes.values();
    classes.flat_map(|class| [version(world, class), cluster(world, class), image(world, class)]).flatten().collect()
}

fn has(class: &Ec2NodeClass, reasons: &[&str]) -> bool {
    class.status.conditions.iter().any(|condition| reasons.contains(&condition.reason.as_str()))
}

fn version(world: &World, class: &Ec2NodeClass) -> Option<String> {
    let version = &world.cluster.version;
    let of_al2 = class.spec.ami_selector_terms.iter().any(|term| term.alias.as_deref().is_some_and(|alias| alias.starts_with("al2@")));
    (of_al2 && has(class, &["UnsupportedAlias"])).then(|| {
        format!(
            "the simulated cluster has Kubernetes {version}, and AL2 has images up to {LAST_AL2}: start `whittle local \
             --kubernetes-version {LAST_AL2}` for it"
        )
    })
}

/// The command that makes an image of the account's own as the first term wants it.
fn image(world: &World, class: &Ec2NodeClass) -> Option<String> {
    if !has(class, &["AMINotFound"]) {
        return None;
    }
    let term = class.spec.ami_selector_terms.iter().find(|term| term.alias.is_none() && term.ssm_parameter.is_none())?;
    let matched = |pattern: &str| pattern.replace('*', "1");
    let mut words = vec!["ec2".to_owned(), "image".to_owned(), term.id.clone().unwrap_or_else(|| "ami-0123456789abcdef0".to_owned())];
    let is_for_arm = |pool: &&NodePool| {
        let spec = &pool.spec.template.spec;
        let arm = |one: &Requirement| one.key == labels::ARCH && one.values == ["arm64"];
        spec.node_class_ref.name == class.metadata.name && spec.requirements.iter().any(arm)
    };
    if world.cluster.objects.node_pools.values().any(|pool| is_for_arm(&pool)) {
        words.extend(["--architecture", "arm64"].map(str::to_owned));
    }
    words.extend(term.name.iter().flat_map(|name| ["--name".to_owned(), matched(name)]));
    words.extend(term.owner.iter().filter(|owner| *owner != "self").flat_map(|owner| ["--owner".to_owned(), owner.clone()]));
    words.extend(term.tags.iter().flatten().flat_map(|(key, value)| ["--tag".to_owned(), format!("{key}={}", matched(value))]));
    let command = shlex::try_join(words.iter().map(String::as_str)).ok()?;
    Some(format!("the simulated account has no such image: `{command}` makes one"))
}

fn cluster(world: &World, class: &Ec2NodeClass) -> Option<String> {
    let spec = &class.spec;
    let tags =
        spec.subnet_selector_terms.iter().map(|term| &term.tags).chain(spec.security_group_selector_terms.iter().map(|term| &term.tags));
    let own = world.name();
    let wanted =
        tags.filter_map(|tags| tags.as_ref()?.get(DISCOVERY)).find(|value| value.as_str() != own.as_str() && value.as_str() != "*")?;
    has(class, &["SubnetsNotFound", "SecurityGroupsNotFound"]).then(|| {
        format!(
            "subnets and security groups of the simulated cluster {own} have the tag {DISCOVERY}={own}: start \
             `whittle local --cluster {wanted}`, \
             or tag them with `ec2 create-tags`"
        )
    })
}

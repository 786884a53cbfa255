//! What helps node classes that are not ready: arguments of `whittle local` if they are for another cluster, and a command that makes the
//! image, or tags the subnets and security groups, that they want.

use std::collections::{BTreeMap, BTreeSet};
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
    let of_class = |class| {
        let cluster = cluster(world, class);
        // One for another cluster finds neither.
        let network = if cluster.is_none() { [subnets(world, class), groups(world, class)] } else { [None, None] };
        [version(world, class), cluster, image(world, class), release(class)].into_iter().chain(network)
    };
    classes.flat_map(of_class).flatten().collect()
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

/// The alias that has an image here, for one that is pinned to a release that there is not.
fn release(class: &Ec2NodeClass) -> Option<String> {
    let aliases = class.spec.ami_selector_terms.iter().filter_map(|term| term.alias.as_deref());
    let (family, release) = aliases.filter_map(|alias| alias.split_once('@')).find(|(_, release)| *release != "latest")?;
    has(class, &["AMINotFound"]).then(|| {
        format!("the simulated region has no release {release} of {family}: `{family}@latest` in spec.amiSelectorTerms selects the one that it has")
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
    let command = command(words.iter().map(String::as_str))?;
    Some(format!("the simulated account has no such image: `{command}` makes one"))
}

/// What of a class selects no subnet, and the command that makes one match its first term, or what to correct.
fn subnets(world: &World, class: &Ec2NodeClass) -> Option<String> {
    let term = class.spec.subnet_selector_terms.first().filter(|_| has(class, &["SubnetsNotFound"]))?;
    let ids: Vec<&str> = world.region.network.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    let what = format!("no subnet matches spec.subnetSelectorTerms[0] of EC2NodeClass {:?}: ", class.metadata.name);
    Some(what + &remedy(&ids, term.id.as_deref(), term.tags.as_ref(), "subnets")?)
}

/// The same of security groups, which can be made here.
fn groups(world: &World, class: &Ec2NodeClass) -> Option<String> {
    let term = class.spec.security_group_selector_terms.first().filter(|_| has(class, &["SecurityGroupsNotFound"]))?;
    let ids: Vec<&str> = world.region.network.groups.iter().map(|group| group.id.as_str()).collect();
    let what = format!("no security group matches spec.securityGroupSelectorTerms[0] of EC2NodeClass {:?}: ", class.metadata.name);
    let made = |words: &[&str]| Some(format!("`{}` makes one", command(["ec2", "security-group"].iter().chain(words).copied())?));
    let remedy = match (&term.id, &term.name) {
        (Some(id), _) => made(&[id])?,
        (None, Some(name)) => {
            let own = made(&["sg-0123456789abcdef0", "--name", &name.replace('*', "1")])?;
            format!("{own}; `ec2 show security-groups` lists the names of those that there are")
        }
        (None, None) => remedy(&ids, None, term.tags.as_ref(), "security-groups")?,
    };
    Some(what + &remedy)
}

/// A line for the prompt, with quotes where it needs them.
fn command<'a>(words: impl Iterator<Item = &'a str>) -> Option<String> {
    let is_plain =
        |word: &str| !word.is_empty() && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.,:/=@".contains(letter));
    let quoted = |word: &'a str| if is_plain(word) { Ok(word.into()) } else { shlex::try_quote(word) };
    let words: Result<Vec<_>, _> = words.map(quoted).collect();
    Some(words.ok()?.join(" "))
}

/// What makes a term match that names an id, or tags.
fn remedy(ids: &[&str], id: Option<&str>, tags: Option<&BTreeMap<String, String>>, shown: &str) -> Option<String> {
    if id.is_some() {
        return Some(format!("correct its id; there are {}", ids.join(", ")));
    }
    let tag = |(key, value): (&String, &String)| format!("Key={key},Value={}", value.replace('*', "1"));
    let tags: Vec<String> = tags?.iter().map(tag).collect();
    let words = ["ec2", "create-tags", "--resources"].into_iter().chain(ids.iter().copied()).chain(["--tags"]);
    let command = command(words.chain(tags.iter().map(String::as_str)))?;
    Some(format!("`{command}` tags those that there are; `ec2 show {shown}` lists their tags"))
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

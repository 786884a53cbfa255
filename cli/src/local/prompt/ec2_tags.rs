//! `ec2 create-tags` and `ec2 delete-tags`, in the spelling of AWS's own command line.

use crate::local::session::Session;
use clap::Args;
use std::collections::BTreeMap;
use whittle_sim::region::Network;

/// `ec2 create-tags`, `ec2 delete-tags`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ec2 delete-tags --resources subnet-00000000000000001 --tags Key=karpenter.sh/discovery
  aws ec2 create-tags --resources subnet-00000000000000001 --tags Key=karpenter.sh/discovery,Value=demo")]
pub(super) struct TagArgs {
    /// Ids of subnets, security groups and images, as `ec2 show` lists them
    #[arg(long, required = true, num_args = 1.., value_name = "ID")]
    resources: Vec<String>,
    /// Key=KEY,Value=VALUE; to delete a tag, whatever its value, without Value
    #[arg(long, required = true, num_args = 1.., value_name = "TAG")]
    tags: Vec<String>,
}

/// A tag, and its value unless any is meant.
type Tag = (String, Option<String>);

/// Tags all resources, or none if one is not there.
pub(super) fn create(session: &Session, args: &TagArgs) -> Result<String, String> {
    let tags = args.tags.iter().map(|tag| parse(tag)).collect::<Result<Vec<Tag>, _>>()?;
    change(session, args, "tagged", |known| {
        known.extend(tags.iter().map(|(key, value)| (key.clone(), value.clone().unwrap_or_default())));
    })
}

/// Deletes tags; those that are not there, or have another value, are passed over, as AWS does.
pub(super) fn delete(session: &Session, args: &TagArgs) -> Result<String, String> {
    let tags = args.tags.iter().map(|tag| parse(tag)).collect::<Result<Vec<Tag>, _>>()?;
    change(session, args, "untagged", |known| {
        known.retain(|key, value| !tags.iter().any(|(gone, of)| gone == key && of.as_ref().is_none_or(|of| of == value)));
    })
}

fn change(session: &Session, args: &TagArgs, word: &str, apply: impl Fn(&mut BTreeMap<String, String>)) -> Result<String, String> {
    let mut world = session.simulation.world();
    let network = &mut world.region.network;
    for id in &args.resources {
        tags_of(network, id).ok_or_else(|| {
            format!("there is no subnet, security group or image {id:?}: `ec2 show subnets`, `security-groups` and `images` list them")
        })?;
    }
    let mut text = String::new();
    for id in &args.resources {
        let Some(tags) = tags_of(network, id) else { continue };
        let before = tags.clone();
        apply(tags);
        let same = *tags == before;
        text.push_str(&if same { format!("{id} unchanged\n") } else { format!("{id} {word}\n") });
    }
    Ok(text + "node classes are resolved again within five minutes\n")
}

/// The tags of a subnet, a security group or an image.
fn tags_of<'a>(network: &'a mut Network, id: &str) -> Option<&'a mut BTreeMap<String, String>> {
    let subnets = network.subnets.iter_mut().map(|one| (&one.id, &mut one.tags));
    let groups = network.groups.iter_mut().map(|one| (&one.id, &mut one.tags));
    let images = network.images.iter_mut().map(|one| (&one.id, &mut one.tags));
    subnets.chain(groups).chain(images).find(|(known, _)| *known == id).map(|(_, tags)| tags)
}

/// `Key=k,Value=v`, with or without quotes around key and value.
fn parse(text: &str) -> Result<Tag, String> {
    let form = || format!("{text:?} is no tag: write Key=KEY,Value=VALUE");
    let rest = text.strip_prefix("Key=").ok_or_else(form)?;
    let (key, value) = rest.split_once(",Value=").map_or((rest, None), |(key, value)| (key, Some(value)));
    let bare = |text: &str| text.trim_matches('"').to_owned();
    let key = bare(key);
    if key.is_empty() || key.contains(',') {
        return Err(form());
    }
    if key.to_lowercase().starts_with("aws:") {
        return Err(format!("{key:?}: tags that begin with aws: belong to AWS, which refuses them"));
    }
    Ok((key, value.map(bare)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_awss_command_line_reads_them() {
        let tag = |key: &str, value: Option<&str>| Ok((key.to_owned(), value.map(str::to_owned)));
        assert_eq!(parse("Key=karpenter.sh/discovery,Value=demo"), tag("karpenter.sh/discovery", Some("demo")));
        assert_eq!(parse("Key=\"a\",Value=\"b\""), tag("a", Some("b")));
        assert_eq!(parse("Key=a"), tag("a", None));
        assert_eq!(parse("Key=a,Value="), tag("a", Some("")));
        for wrong in ["a=b", "Key=", "Key=a,b", "Value=b", "Key=aws:x,Value=y"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

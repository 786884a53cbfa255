//! `ec2`: what the simulated EC2 has, and what happens to it without Whittle.

use super::ec2_tags::TagArgs;
use super::{ec2_describe, ec2_tags};
use crate::local::session::{Pool, Session};
use crate::table::table;
use clap::{Args, Subcommand, ValueEnum};
use std::collections::BTreeMap;
use whittle_ec2::instance::InstanceState;
use whittle_ec2::network::{Image, ImageVariant, SecurityGroup};
use whittle_sim::region::{ACCOUNT, VPC};
use whittle_sim::{LineKind, World};
use whittle_units::InstanceId;

#[derive(Debug, Subcommand)]
pub(super) enum Ec2 {
    /// What EC2 has: instances, launch-templates, instance-profiles, images, subnets, security-groups, types, stock-outs
    Show {
        /// Which list
        #[arg(value_enum, value_name = "WHAT")]
        what: Shown,
        /// Only those whose id, name or type contains this
        #[arg(value_name = "TEXT")]
        named: Option<String>,
    },
    /// Everything about a node's machine, and what it was launched with: user data, image, metadata options, disks
    Describe {
        /// Name of a node, or id of an instance or a launch template
        #[arg(value_name = "NODE|INSTANCE|LAUNCH-TEMPLATE")]
        name: String,
    },
    /// EC2 runs out of a type: launches fail with InsufficientInstanceCapacity
    StockOut(PoolArgs),
    /// EC2 has it again
    Restock(PoolArgs),
    /// An event about a node's machine that only announces something
    Announce {
        /// What is announced
        #[arg(value_enum)]
        event: Announced,
        /// Name of a node, or id of an instance; of a machine that is gone its id
        #[arg(value_name = "NODE|INSTANCE")]
        node: String,
    },
    /// Somebody else terminates a node's machine
    Terminate {
        /// Name of the node
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Somebody else stops a node's machine, which stays in EC2 until it is terminated
    Stop {
        /// Name of the node
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// An image of the account's own, for amiSelectorTerms with an id, a name or tags
    Image(ImageArgs),
    /// A security group, for securityGroupSelectorTerms
    SecurityGroup(GroupArgs),
    /// Tag subnets, security groups and images, as `aws ec2 create-tags` does
    CreateTags(TagArgs),
    /// Delete their tags, as `aws ec2 delete-tags` does
    DeleteTags(TagArgs),
}

impl Ec2 {
    /// The names of its commands.
    pub(super) fn names() -> Vec<String> {
        Self::augment_subcommands(clap::Command::new("ec2")).get_subcommands().map(|command| command.get_name().to_owned()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Shown {
    Instances,
    LaunchTemplates,
    InstanceProfiles,
    Images,
    Subnets,
    SecurityGroups,
    Types,
    StockOuts,
}

impl Shown {
    /// That there are none.
    const fn absent(self) -> &'static str {
        match self {
            Self::Instances => "there are no instances",
            Self::LaunchTemplates => "there are no launch templates: each is made for the first machine that is launched with it",
            Self::InstanceProfiles => {
                "there are no instance profiles: one is made for each EC2NodeClass that names a role, when it is looked up (not in shadow \
                 mode)"
            }
            Self::Images => "there are no images",
            Self::Subnets => "there are no subnets",
            Self::SecurityGroups => "there are no security groups",
            Self::Types => "there are no instance types",
            Self::StockOuts => "there are no stock-outs: EC2 has every type that it offers",
        }
    }
}

/// A type, a zone and a capacity type; each is any if it is left out.
#[derive(Debug, Args)]
pub(super) struct PoolArgs {
    /// Such as m5.large; all types without one
    #[arg(value_name = "TYPE")]
    instance_type: Option<String>,
    /// Such as us-east-1a; all zones without one
    #[arg(short, long)]
    zone: Option<String>,
    /// All capacity types without one
    #[arg(short, long, value_parser = ["spot", "on-demand", "reserved"])]
    capacity_type: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Announced {
    /// A spot machine is at risk (rebalance recommendation)
    Rebalance,
    /// AWS Health: the machine's host will be retired
    ScheduledChange,
}

#[derive(Debug, Args)]
pub(super) struct ImageArgs {
    /// Such as ami-0123456789abcdef0
    #[arg(value_name = "ID")]
    id: String,
    /// Name, for terms that have one
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// For which machines it is
    #[arg(long, value_parser = ["x86_64", "arm64"], default_value = "x86_64")]
    architecture: String,
    /// The account that owns it; without one it is the simulated one
    #[arg(long, value_name = "ACCOUNT", default_value = ACCOUNT, hide_default_value = true)]
    owner: String,
    /// KEY=VALUE; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// How long ago it was made: of several images the newest is used
    #[arg(long, value_name = "TIME", default_value = "0s", allow_hyphen_values = true)]
    age: String,
    /// It is deregistered instead
    #[arg(long, conflicts_with_all = ["name", "tags"])]
    delete: bool,
}

#[derive(Debug, Args)]
pub(super) struct GroupArgs {
    /// Such as sg-0123456789abcdef0
    #[arg(value_name = "ID")]
    id: String,
    /// Name, for terms that have one
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// KEY=VALUE; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// It is deleted instead
    #[arg(long, conflicts_with_all = ["name", "tags"])]
    delete: bool,
}

/// Carries it out, or shows it.
pub(super) fn run(session: &mut Session, command: &Ec2) -> Result<String, String> {
    match command {
        Ec2::Show { what, named } => Ok(show(&session.simulation.world(), *what, named.as_deref().unwrap_or_default())),
        Ec2::Describe { name } => ec2_describe::describe(&session.simulation.world(), name),
        Ec2::StockOut(pool) => session.set_stock(&pool.pool(), false).map(line).map_err(|error| error.to_string()),
        Ec2::Restock(pool) => session.set_stock(&pool.pool(), true).map(line).map_err(|error| error.to_string()),
        Ec2::Announce { event, node } => announce(session, *event, bare(node)),
        Ec2::Terminate { node } => {
            let node = bare(node);
            let id = session.machine_of(node).map_err(|error| error.to_string())?;
            let state = state_of(session, &id);
            if matches!(state, "shutting-down" | "terminated" | "gone") {
                return Err(format!("machine {id} is {state} already"));
            }
            session.log(&format!("somebody terminates {node} ({id})"));
            session.simulation.world().terminate(&id);
            Ok(format!("EC2 terminates {node} ({id})\n"))
        }
        Ec2::Stop { node } => stop(session, bare(node)),
        Ec2::Image(args) => image(session, args),
        Ec2::SecurityGroup(args) => security_group(session, args),
        Ec2::CreateTags(args) => ec2_tags::create(session, args),
        Ec2::DeleteTags(args) => ec2_tags::delete(session, args),
    }
}

fn line(text: String) -> String {
    text + "\n"
}

fn bare(node: &str) -> &str {
    node.strip_prefix("node/").unwrap_or(node)
}

impl PoolArgs {
    fn pool(&self) -> Pool {
        let any = |text: &Option<String>| text.clone().unwrap_or_default();
        Pool { instance_type: any(&self.instance_type), zone: any(&self.zone), capacity_type: any(&self.capacity_type) }
    }
}

fn stop(session: &Session, node: &str) -> Result<String, String> {
    let id = session.machine_of(node).map_err(|error| error.to_string())?;
    let state = state_of(session, &id);
    if state != InstanceState::Running.as_str() {
        return Err(format!("machine {id} is {state}, and only one that runs can be stopped"));
    }
    session.log(&format!("somebody stops {node} ({id})"));
    session.simulation.world().stop(&id);
    Ok(format!("EC2 stops {node} ({id})\n"))
}

fn state_of(session: &Session, id: &InstanceId) -> &'static str {
    session.simulation.world().region.machines.get(id).map_or("gone", |machine| machine.instance.state.as_str())
}

/// Events about a machine may come late, when its node is gone: by its id.
fn announce(session: &Session, event: Announced, node: &str) -> Result<String, String> {
    let ended = Some(InstanceId::new(node)).filter(|id| node.starts_with("i-") && was_there(session, id));
    let id = ended.map_or_else(|| session.machine_of(node), Ok).map_err(|error| error.to_string())?;
    let what = match event {
        Announced::Rebalance => "a rebalance recommendation",
        Announced::ScheduledChange => "a scheduled change",
    };
    session.log(&format!("EventBridge delivers {what} for {node} ({id})"));
    let mut world = session.simulation.world();
    let now = world.now();
    let subject = world.region.subject(&id);
    let text = match event {
        Announced::Rebalance => subject.rebalance(now),
        Announced::ScheduledChange => subject.scheduled_change(now),
    };
    world.notice(text);
    Ok(format!("EventBridge delivers {what} for {node} ({id})\n"))
}

/// Whether EC2 ever started a machine: it describes one for an hour after its end only.
fn was_there(session: &Session, id: &InstanceId) -> bool {
    let started = format!(" {id}");
    let world = session.simulation.world();
    world
        .story
        .lines()
        .iter()
        .any(|line| line.kind == LineKind::Cloud && line.text.split(':').next().is_some_and(|text| text.ends_with(&started)))
}

fn image(session: &Session, args: &ImageArgs) -> Result<String, String> {
    let tags = pairs(&args.tags)?;
    let age = super::advance::span(&args.age).map_err(|problem| format!("--age: {problem}"))?;
    if !args.id.starts_with("ami-") {
        return Err(format!("{:?} is no id of an image: write one such as ami-0123456789abcdef0", args.id));
    }
    let mut world = session.simulation.world();
    let created_at = world.now().checked_sub(age).map_err(|_| format!("--age {:?} is too long ago", args.age))?;
    let images = &mut world.region.network.images;
    let known = images.len();
    images.retain(|image| image.id != args.id);
    let was_there = images.len() < known;
    if args.delete {
        return if was_there { Ok(format!("{} deregistered\n", args.id)) } else { Err(format!("there is no image {}", args.id)) };
    }
    images.push(Image {
        id: args.id.clone(),
        name: args.name.clone(),
        owner: args.owner.clone(),
        architecture: args.architecture.clone(),
        created_at,
        deprecated: false,
        variant: ImageVariant::Any,
        tags,
    });
    Ok(format!("{} {}; node classes are resolved again within five minutes\n", args.id, if was_there { "replaced" } else { "registered" }))
}

fn security_group(session: &Session, args: &GroupArgs) -> Result<String, String> {
    let tags = pairs(&args.tags)?;
    if !args.id.starts_with("sg-") {
        return Err(format!("{:?} is no id of a security group: write one such as sg-0123456789abcdef0", args.id));
    }
    let mut world = session.simulation.world();
    let groups = &mut world.region.network.groups;
    let known = groups.len();
    groups.retain(|group| group.id != args.id);
    let was_there = groups.len() < known;
    if args.delete {
        return if was_there { Ok(format!("{} deleted\n", args.id)) } else { Err(format!("there is no security group {}", args.id)) };
    }
    groups.push(SecurityGroup { id: args.id.clone(), name: args.name.clone(), vpc: VPC.to_owned(), tags });
    Ok(format!("{} {}; node classes are resolved again within five minutes\n", args.id, if was_there { "replaced" } else { "created" }))
}

fn pairs(tags: &[String]) -> Result<BTreeMap<String, String>, String> {
    let pair = |tag: &String| {
        let (key, value) = tag.split_once('=').ok_or_else(|| format!("--tag {tag:?}: write KEY=VALUE"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    tags.iter().map(pair).collect()
}

/// A table, of those that have the text in one of the first three columns.
fn show(world: &World, what: Shown, named: &str) -> String {
    let region = &world.region;
    let (header, rows): (&[&str], Vec<Vec<String>>) = match what {
        Shown::Instances => instances(world),
        Shown::LaunchTemplates => {
            let row = |(name, template): (&String, &whittle_ec2::fleet::LaunchTemplate)| {
                vec![name.clone(), template.image_id.clone(), template.instance_profile.clone(), tags(&template.tags)]
            };
            (&["NAME", "IMAGE", "INSTANCE-PROFILE", "TAGS"], region.launch_templates.iter().map(row).collect())
        }
        Shown::InstanceProfiles => {
            let row = |(name, role): (&String, &String)| {
                let origin = region.network.profile_origins.get(name);
                vec![name.clone(), role.clone(), origin.map(|origin| tags(&origin.tags)).unwrap_or_default()]
            };
            (&["NAME", "ROLE", "TAGS"], region.network.profiles.iter().map(row).collect())
        }
        Shown::Images => {
            let row = |image: &Image| {
                let owner = if image.owner == ACCOUNT { "self" } else { "amazon" };
                let own = [&image.id, &image.name, &image.architecture].map(Clone::clone);
                [own.to_vec(), vec![owner.to_owned(), image.created_at.to_string(), tags(&image.tags)]].concat()
            };
            (&["ID", "NAME", "ARCHITECTURE", "OWNER", "CREATED", "TAGS"], region.network.images.iter().map(row).collect())
        }
        Shown::Subnets => {
            let subnets = region.network.subnets.iter();
            let row = subnets.map(|one| vec![one.id.clone(), one.zone.clone(), one.free_addresses.to_string(), tags(&one.tags)]);
            (&["ID", "ZONE", "FREE-ADDRESSES", "TAGS"], row.collect())
        }
        Shown::SecurityGroups => {
            let groups = region.network.groups.iter();
            (&["ID", "NAME", "TAGS"], groups.map(|one| vec![one.id.clone(), one.name.clone(), tags(&one.tags)]).collect())
        }
        Shown::Types => types(world),
        Shown::StockOuts => {
            let row = |(instance_type, zone, capacity_type): &(String, String, String)| {
                vec![instance_type.clone(), zone.clone(), capacity_type.clone()]
            };
            (&["TYPE", "ZONE", "CAPACITY"], region.out_of_stock.iter().map(row).collect())
        }
    };
    let all = rows.len();
    let rows: Vec<_> = rows.into_iter().filter(|row| row.iter().take(3).any(|cell| cell.contains(named))).collect();
    match (rows.len(), all) {
        (0, 0) => format!("{}\n", what.absent()),
        (0, all) => format!("none of {all} contains {named:?}\n"),
        (shown, _) => format!("{}{shown} of {all}\n", table(header, rows)),
    }
}

fn instances(world: &World) -> (&'static [&'static str], Vec<Vec<String>>) {
    let row = |machine: &whittle_sim::region::Machine| {
        let instance = &machine.instance;
        let template = &machine.launch_template;
        let own = [&instance.instance_type, &instance.private_dns_name, &instance.zone, &instance.capacity_type].map(Clone::clone);
        let rest = vec![instance.state.as_str().to_owned(), template.image_id.clone(), template.name.clone(), tags(&instance.tags)];
        [vec![instance.id.to_string()], own.to_vec(), rest].concat()
    };
    let header = &["ID", "TYPE", "NAME", "ZONE", "CAPACITY", "STATE", "IMAGE", "LAUNCH-TEMPLATE", "TAGS"];
    (header, world.region.machines.values().map(row).collect())
}

/// The types that the region offers, with the zones.
fn types(world: &World) -> (&'static [&'static str], Vec<Vec<String>>) {
    let offered = world.region.catalog.offered.iter();
    let row = offered.map(|(name, zones)| vec![name.clone(), zones.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")]);
    (&["TYPE", "ZONES"], row.collect())
}

fn tags(tags: &BTreeMap<String, String>) -> String {
    if tags.is_empty() {
        return "-".to_owned();
    }
    tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

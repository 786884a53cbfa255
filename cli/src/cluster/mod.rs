//! `whittle cluster`: gives a deployment access to a cluster, takes it away again, and lists the clusters of a deployment.
//!
//! A plan is made from facts alone (`plan`), from what `aws` and `kubectl` tell (`facts`), and shown before anything is changed.

mod facts;
mod list;
pub(crate) mod manifests;
mod plan;
mod remove;
mod step;
mod watcher;

use crate::live::account::Account;
use crate::live::kubernetes::Kubernetes;
use crate::live::{DeploymentArgs, ReachArgs, TargetArgs};
use crate::local::Output;
use clap::{Subcommand, ValueEnum};
use facts::{Bell, Facts, Sources, Wanted, again, gather};
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use step::{Outcome, State, Step, Tools};

/// Arguments of `whittle cluster`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Give a deployment access to a cluster: access entries, node role, tags, CRDs, roles, webhook
    Add(AddArgs),
    /// Take away what cluster add made, once no machine of the deployment is left in the cluster
    Remove(RemoveArgs),
    /// List the clusters of a deployment, and whether its functions may enter them
    List(list::ListArgs),
}

/// Whether and how a plan is carried out.
#[derive(Clone, Debug, clap::Args)]
pub struct MannerArgs {
    /// Show what would be done, with its commands, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do it without asking
    #[arg(short, long)]
    pub yes: bool,
    /// How to print; json never asks
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// What reports pods without a node to the functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Relay {
    /// A webhook of the cluster's API server
    #[default]
    Webhook,
    /// A watcher in the cluster: two small pods, which need no way from the API server to the relay
    Watcher,
    /// Nothing that this command makes: the tick, once a minute
    None,
}

/// Arguments of `whittle cluster add`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  whittle cluster add shop --dry-run                        what would be done, with the commands
  whittle cluster add shop                                  asks before it does it
  whittle cluster add shop --context shop-admin --yes -o json
  whittle cluster add shop --relay watcher --watcher-image registry.example.com/whittle-watcher@sha256:2c26b46b68ffc68f

What is there already is left as it is, and a second run does only what is still to do; a node role that is not there is made. What it
makes has the tag, or the label, whittle.dev/cluster-add: whittle cluster remove takes exactly that away. It works by the commands aws
and kubectl, with your rights.

Exit code: 0 if all is done or there, 1 if something is blocked, failed or was not done, or the output cannot be written, 2 if it
could not look.")]
pub struct AddArgs {
    #[command(flatten)]
    pub of: TargetArgs,
    /// Subnets of the nodes, comma separated; the cluster's private ones if not given
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = |id: &str| resource_id("subnet-", id))]
    pub subnets: Vec<String>,
    /// Security groups of the nodes, comma separated; the cluster's own if not given
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = |id: &str| resource_id("sg-", id))]
    pub security_groups: Vec<String>,
    /// What rings for pods without a node
    #[arg(long, value_enum, default_value_t)]
    pub relay: Relay,
    /// The watcher's container image, as cargo xtask image makes it and you pushed it, with its digest
    #[arg(long, value_name = "IMAGE", required_if_eq("relay", "watcher"), value_parser = image)]
    pub watcher_image: Option<String>,
    /// Apply no NodePool and no node class, also where there are none
    #[arg(long)]
    pub no_sample: bool,
    #[command(flatten)]
    pub manner: MannerArgs,
}

impl AddArgs {
    fn doorbell(&self) -> Bell {
        match self.relay {
            Relay::Webhook => Bell::Webhook,
            Relay::Watcher => Bell::Watcher { image: self.watcher_image.clone().unwrap_or_default() },
            Relay::None => Bell::None,
        }
    }
}

/// Arguments of `whittle cluster remove`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  whittle cluster remove shop --dry-run       what would go, with the commands
  whittle cluster remove shop

  whittle cluster remove shop --gone          the cluster, or the stack, is deleted already

Only what has the tag, or the label, whittle.dev/cluster-add goes: what was there before cluster add stays, and so do the relay's secret,
the service-linked role of EC2 Spot, NodePools and node classes that you wrote, and CRDs of which you have objects. While the deployment
has machines in the cluster, or still serves it, nothing is done: whittle uninstall drains or keeps them first, and then a deployment
without the cluster in its parameter Clusters. What another stack needs that serves the cluster stays. With --gone, look well at --region
and --stack: what is not found is taken as deleted.

Exit code: 0 if all is gone, 1 if something is blocked, failed or was not done, or the output cannot be written, 2 if it
could not look.")]
pub struct RemoveArgs {
    #[command(flatten)]
    pub of: TargetArgs,
    /// The cluster, or the stack, may be deleted already: take away what is left of the rest
    #[arg(long)]
    pub gone: bool,
    #[command(flatten)]
    pub manner: MannerArgs,
}

/// A reference to an image; nothing in it can be taken for something else in a manifest.
fn image(reference: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    if reference.starts_with(|first: char| first.is_ascii_alphanumeric()) && reference.len() <= 512 && reference.chars().all(plain) {
        return Ok(reference.to_owned());
    }
    Err("it is a reference such as registry.example.com/whittle-watcher@sha256:DIGEST".to_owned())
}

fn resource_id(prefix: &str, id: &str) -> Result<String, String> {
    let digits = id.strip_prefix(prefix).unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(id.to_owned());
    }
    Err(format!("it is an id such as {prefix}0123456789abcdef0"))
}

/// Runs the command. `asked` is who answers questions; without one nothing is done that needs an answer.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(args: &Args, asked: Option<&mut dyn BufRead>, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    match &args.command {
        Command::Add(add) => {
            let mut random = [0; 32];
            if getrandom::fill(&mut random).is_err() {
                writeln!(err, "error: the system has no random numbers, which the relay's secret needs")?;
                return Ok(ExitCode::from(2));
            }
            let wanted = Wanted {
                cluster: add.of.name.clone(),
                node_role: add.of.node_role(),
                subnets: add.subnets.clone(),
                security_groups: add.security_groups.clone(),
                doorbell: add.doorbell(),
                sample: !add.no_sample,
                new_secret: random.iter().map(|byte| format!("{byte:02x}")).collect(),
                ..Wanted::default()
            };
            let job = Job { deployment: &add.of.deployment, reach: &add.of.reach, manner: &add.manner, wanted, plan: plan::add };
            job.run(asked, out, err)
        }
        Command::Remove(remove) => {
            let TargetArgs { name, deployment, reach, .. } = &remove.of;
            let node_role = remove.of.node_role();
            let wanted = Wanted { cluster: name.clone(), node_role, removes: true, gone: remove.gone, ..Wanted::default() };
            Job { deployment, reach, manner: &remove.manner, wanted, plan: remove::remove }.run(asked, out, err)
        }
        Command::List(list) => list::run(list, out, err),
    }
}

/// A plan to make, to show and to carry out.
struct Job<'a> {
    deployment: &'a DeploymentArgs,
    reach: &'a ReachArgs,
    manner: &'a MannerArgs,
    wanted: Wanted,
    plan: fn(&Facts, &Wanted) -> Vec<Step>,
}

impl Job<'_> {
    fn run(&self, asked: Option<&mut dyn BufRead>, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        self.by(Tools { aws: &self.deployment.program(), kubectl: &self.reach.program() }, asked, out, err)
    }

    fn by(&self, tools: Tools<'_>, asked: Option<&mut dyn BufRead>, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let (account, kubernetes) = (Account(tools.aws), Kubernetes(tools.kubectl));
        let sources = Sources { account, kubernetes, trust_context: self.reach.trust_context };
        let facts = match gather(sources, &self.deployment.stack, &self.wanted) {
            Ok(facts) => facts,
            Err(faults) => {
                for fault in faults {
                    writeln!(err, "error: {fault}")?;
                }
                return Ok(ExitCode::from(2));
            }
        };
        let steps = (self.plan)(&facts, &self.wanted);
        self.execute(&facts, steps, sources, asked, out)
    }

    fn execute(
        &self,
        facts: &Facts,
        mut steps: Vec<Step>,
        sources: Sources<'_>,
        asked: Option<&mut dyn BufRead>,
        out: &mut dyn Write,
    ) -> io::Result<ExitCode> {
        let tools = Tools { aws: sources.account.0, kubectl: sources.kubernetes.0 };
        let is_text = self.manner.output == Output::Text;
        if is_text {
            step::text(&steps, tools, self.manner.dry_run, out)?;
        }
        let may = step::is_possible(&steps) && !self.manner.dry_run;
        let needs_yes = !self.manner.dry_run && !self.manner.yes && asked.is_none();
        let mut go = may && (self.manner.yes || (is_text && agreed(asked, out)?));
        if go && self.wanted.removes {
            let now = (self.plan)(&again(sources, facts, &self.wanted), &self.wanted);
            go = now == steps;
            if !go && is_text {
                writeln!(out, "It is not any more as it was:")?;
                step::text(&now, tools, false, out)?;
            }
            steps = now;
        }
        let (steps, to_do) = (steps.as_slice(), step::count(&steps, "to do"));
        let hidden = self.hidden(facts);
        let outcomes = if go {
            step::execute(steps, tools, &hidden, &mut |step, outcome| {
                if is_text { step::print_outcome(step, outcome, out) } else { Ok(()) }
            })?
        } else {
            Vec::new()
        };
        if !is_text {
            writeln!(out, "{:#}", step::as_json(&self.wanted.cluster, steps, tools, &outcomes))?;
        } else if go {
            writeln!(out, "{}", step::summary(&outcomes, steps))?;
        } else if 0 < to_do {
            writeln!(out, "Nothing was changed.{}", if needs_yes { " Add --yes to do it." } else { "" })?;
        }
        let blocked = steps.iter().any(|step| matches!(step.state, State::Blocked { .. }));
        let undone = outcomes.iter().any(|(_, outcome)| *outcome != Outcome::Done) || (0 < to_do && !go && !self.manner.dry_run);
        Ok(if blocked || undone { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }

    /// What no message may contain.
    fn hidden(&self, facts: &Facts) -> Vec<String> {
        let stored = facts.secret.as_ref().map_or(&self.wanted.new_secret, |secret| &secret.0);
        vec![whittle_relay::cluster_secret(stored, &self.wanted.cluster), stored.clone(), self.wanted.new_secret.clone()]
    }
}

/// Whether the user agrees. Whoever cannot be asked has not agreed.
fn agreed(asked: Option<&mut dyn BufRead>, out: &mut dyn Write) -> io::Result<bool> {
    let Some(asked) = asked else { return Ok(false) };
    write!(out, "Do it? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    let read = asked.read_line(&mut answer).is_ok();
    Ok(read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests;

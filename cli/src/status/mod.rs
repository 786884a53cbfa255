//! `whittle status`: a cluster and the deployment that serves it at a glance, and what needs a person.

mod attention;
mod output;
#[cfg(test)]
mod tests;

use crate::live::deployment::{Alarm, Asked, Deployment, StackArgs};
use crate::local::Output;
use crate::look::view::View;
use crate::look::{ClusterArgs, Live, Purpose};
use crate::printing::{self, complain};
use crate::source::{self, Expansion, Manifests, Market, Offers, When};
use crate::threads::joined;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;

/// How many decisions are shown.
const DECISIONS: usize = 10;

/// Arguments of `whittle status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Reads the cluster with kubectl, and with --stack the deployment with aws: its description, alarms and last decisions. Nothing is changed.
Without --stack the decisions are the Events that Whittle wrote in the last hour.

Examples:
  whittle status                                              (the current context)
  whittle status --context prod --stack whittle --region eu-west-1
  whittle status --stack whittle -o json

Exit code: 0 if nothing needs a person; 1 if something does, which the last lines say, or the output cannot be written; 2 if
something cannot be read.")]
pub struct StatusArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub stack: StackArgs,
    /// The region of the stack, and of prices where no node names it
    #[arg(long, value_name = "REGION", value_parser = crate::place::region)]
    pub region: Option<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Something that was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Decided {
    pub(crate) at: Timestamp,
    /// Its object, such as `pod/default/web-0`.
    pub(crate) about: String,
    pub(crate) message: String,
}

/// What is known of a stack.
#[derive(Clone, Debug)]
struct Deployed {
    deployment: Deployment,
    alarms: Vec<Alarm>,
    decisions: Vec<Decided>,
    /// The cluster that is shown, if the deployment does not serve it.
    misses: Option<String>,
}

/// Everything that is shown.
#[derive(Clone, Debug)]
struct Status {
    now: Timestamp,
    view: View,
    deployed: Option<Deployed>,
    decisions: Vec<Decided>,
    /// What needs a person.
    attention: Vec<String>,
}

/// Runs `whittle status`.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn run(args: &StatusArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    match status(args) {
        Ok(status) => {
            match args.output {
                Output::Text => out.write_all(output::text(&status, printing::paints()).as_bytes())?,
                Output::Json => writeln!(out, "{:#}", output::json(&status))?,
            }
            Ok(ExitCode::from(u8::from(!status.attention.is_empty())))
        }
        Err(errors) => {
            for error in errors {
                writeln!(err, "error: {error}")?;
            }
            Ok(ExitCode::from(2))
        }
    }
}

fn status(args: &StatusArgs) -> Result<Status, Vec<String>> {
    let live = args.cluster.current();
    let now = Timestamp::now();
    // The account and the cluster do not wait for each other.
    let (deployed, looked) = std::thread::scope(|threads| {
        let deployed = threads.spawn(|| deployed(args, &live));
        let looked = look(args, &live, now);
        (joined(deployed), looked)
    });
    let (deployed, (read, view, events)) = match (deployed, looked) {
        (Ok(deployed), Ok(looked)) => (deployed, looked),
        (deployed, looked) => return Err([deployed.err(), looked.err()].into_iter().flatten().collect()),
    };
    let decisions = deployed.as_ref().map_or(events, |deployed| deployed.decisions.clone());
    let attention = attention::of(&read, &view, deployed.as_ref(), &args.cluster, now);
    Ok(Status { now, view, deployed, decisions, attention })
}

/// The deployment, if one is asked for.
fn deployed(args: &StatusArgs, live: &Live) -> Result<Option<Deployed>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let Some(deployment) = args.stack.deployment(args.region.as_deref()).map_err(|error| text(&error))? else { return Ok(None) };
    let entry = live.cluster_entry();
    let clusters = deployment.clusters_of(entry.as_deref());
    let misses = deployment.misses(entry.as_deref());
    let (alarms, decisions) = std::thread::scope(|threads| {
        let alarms = threads.spawn(|| deployment.alarms());
        let decisions = deployment.decisions(&clusters, Asked::Last(DECISIONS));
        (joined(alarms), decisions)
    });
    let (decisions, _) = decisions.map_err(|error| text(&error))?;
    let decided = decisions.into_iter().map(|one| Decided { at: one.at, about: one.subject, message: one.message }).collect();
    Ok(Some(Deployed { alarms: alarms.map_err(|error| text(&error))?, decisions: decided, misses, deployment }))
}

/// The cluster, and the Events of the last hour that Whittle wrote.
fn look(args: &StatusArgs, live: &Live, now: Timestamp) -> Result<(Manifests, View, Vec<Decided>), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let cluster = live.read(Purpose::Show).map_err(|error| text(&error))?;
    let read = source::read_over(Some(cluster), &[], When::At(now), Expansion::Off).map_err(|error| text(&error))?;
    let offers = Offers { region: args.region.clone(), instance_types: None };
    let Market { prices, currency, assumptions, .. } = offers.prices(&read, || live.region()).map_err(|error| text(&error))?;
    assumptions.iter().for_each(|told| complain!("note: {told}"));
    let view = View::of(&read, &prices, currency);
    let events = live.events().unwrap_or_else(|error| {
        complain!("warning: Events cannot be read, so that none are shown: {error}");
        Vec::new()
    });
    let mut events: Vec<Decided> = events.iter().filter_map(decided).collect();
    events.sort_by_key(|one| one.at);
    events.drain(..events.len().saturating_sub(DECISIONS));
    Ok((read, view, events))
}

/// An Event as a decision.
pub(crate) fn decided(event: &serde_json::Value) -> Option<Decided> {
    let text = |at: &str| event.pointer(at).and_then(serde_json::Value::as_str).unwrap_or_default();
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/firstTimestamp", "/metadata/creationTimestamp"];
    let at = times.iter().find_map(|at| text(at).parse::<Timestamp>().ok())?;
    let (kind, namespace, name) = (text("/involvedObject/kind"), text("/involvedObject/namespace"), text("/involvedObject/name"));
    // The Events of objects without a namespace are in one nevertheless, which says nothing.
    let key = if kind == "Pod" { format!("{namespace}/{name}") } else { name.to_owned() };
    Some(Decided { at, about: format!("{}/{key}", kind.to_lowercase()), message: format!("{}: {}", text("/reason"), text("/message")) })
}

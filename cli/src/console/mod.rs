//! `whittle console`: the page of a cluster that runs, which is only looked at (ADR 0054).

mod back_end;
mod changes;
mod looks;
mod reasons;
mod state;
#[cfg(test)]
mod tests;

use crate::live::deployment::StackArgs;
use crate::look::ClusterArgs;
use crate::numbers;
use crate::page::{self, Bound};
use crate::printing::{self, complain, say};
use crate::source::Offers;
use back_end::ClusterBackEnd;
use clap::Args;
use looks::{Looks, Served};
use reasons::Reasons;
use state::Place;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use whittle_sim::LineKind;

/// How long what was read for reasons is good enough, at least.
const REASONS_FRESH: Duration = Duration::from_secs(15);

/// Arguments of `whittle console`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
It prints an address for a browser, which has a token: whoever has it sees the cluster, and can change nothing. The cluster is read with
kubectl, and with --stack the deployment with aws, while a page is open: once every few seconds for all pages, and at most half of the
time. Without --stack the timeline has the Events that Whittle wrote in the last hour, and what changes while the console runs.

Examples:
  whittle console                                              (the current context)
  whittle console --context prod --stack whittle --region eu-west-1
  whittle console --context prod --port 8000 --interval 15

Exit code: 1 if the output cannot be written, 2 if the cluster or the deployment cannot be read at first, or
the address cannot be used; otherwise it runs until Ctrl-C.")]
pub struct ConsoleArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub stack: StackArgs,
    #[command(flatten)]
    pub offers: Offers,
    /// How long to wait between two looks while a page is open, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// How long kubectl and aws may take for one answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// Serve the page on this address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = page::address)]
    pub address: IpAddr,
    /// Port of the page; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    #[arg(value_parser = numbers::within::<u16>(0..=65_535), allow_negative_numbers = true)]
    pub port: u16,
    /// Serve the page on an address that other machines reach. It is not encrypted
    #[arg(long)]
    pub allow_remote: bool,
}

/// Runs `whittle console` until it is ended.
pub fn run(args: &ConsoleArgs) -> ExitCode {
    match serve(args) {
        Ok(address) => {
            say!("The page of this cluster: {address}\n");
            if !args.address.is_loopback() {
                complain!("warning: whoever reaches {} and has the address sees the cluster; nothing is encrypted", args.address);
            }
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            printing::errors(&error);
            ExitCode::from(2)
        }
    }
}

/// Looks at the cluster, and serves its page from threads of its own. Returns its address, with the token.
fn serve(args: &ConsoleArgs) -> Result<String, String> {
    if !args.address.is_loopback() && !args.allow_remote {
        return Err(format!(
            "--address {}: other machines may reach this address, and the page is not encrypted: leave it out, or add --allow-remote",
            args.address
        ));
    }
    // A port that is taken is told before a large cluster is read.
    let Bound { listener, guard, address } = page::bind(SocketAddr::new(args.address, args.port), "--address", "--port")?;
    let mut looks = looks_of(args)?;
    let first = looks.look().map_err(|error| error.to_string())?;
    first.view.assumptions.iter().for_each(|told| complain!("note: {told}"));
    let kind = if looks.served.is_some() { LineKind::Decision } else { LineKind::Event };
    // From now on nothing is said on standard error, and nothing is waited for without an end.
    let limit = Duration::from_secs(args.timeout);
    looks.live = looks.live.quiet().within(limit);
    let interval = Duration::from_secs(args.interval);
    let reasons = Reasons::new(looks.live.clone(), looks.offers.clone(), looks.served.clone(), interval.max(REASONS_FRESH));
    let back_end = Arc::new(ClusterBackEnd::new(first, kind, reasons, interval));
    let failed = |error: io::Error| format!("the page cannot be served: {error}");
    page::start(listener, guard, Arc::clone(&back_end)).map_err(failed)?;
    std::thread::Builder::new().name("console-looks".to_owned()).spawn(move || back_end.watch(looks)).map_err(failed)?;
    Ok(address)
}

/// The way to the cluster, and to its deployment.
fn looks_of(args: &ConsoleArgs) -> Result<Looks, String> {
    let live = args.cluster.current();
    let limit = Duration::from_secs(args.timeout);
    let entry = live.cluster_entry();
    let deployment = args.stack.deployment(args.offers.region.as_deref()).map_err(|error| error.to_string())?;
    let served = deployment.map(|deployment| {
        let clusters = deployment.clusters_of(entry.as_deref());
        Served::new(deployment.quiet_within(limit), clusters)
    });
    let named = entry.as_deref().map(|entry| entry.rsplit('/').next().unwrap_or(entry).to_owned());
    let place = Place { cluster: named.unwrap_or_default(), version: live.version(), region: args.offers.region.clone() };
    Ok(Looks { live, offers: args.offers.clone(), place, served })
}

//! `whittle plan`: where pending pods would go, decided from files alone.

pub mod catalog;
mod documents;
#[cfg(test)]
mod fuzz;
pub mod input;
pub mod offers;
pub(crate) mod output;
pub mod source;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub mod workloads;

use clap::{Args, ValueEnum};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use whittle_api::k8s::Pod;
use whittle_core::overlays;
use whittle_core::schedule::{self, Input, Options, Packing, Plan, WishCost};
use whittle_core::state::ClusterState;

/// Plan machines for the pending pods of some manifests.
#[derive(Args, Debug, Clone)]
pub struct PlanArgs {
    #[command(flatten)]
    pub source: source::Source,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// Which packings compete: the cheapest of several, or the reference's own alone.
    #[arg(long, value_enum, default_value_t = PackingArg::Best)]
    pub packing: PackingArg,
}

/// How a decision is printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}

/// `--packing`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackingArg {
    Best,
    Reference,
}

impl PackingArg {
    /// The solver's word for it.
    #[must_use]
    pub fn packing(self) -> Packing {
        match self {
            PackingArg::Best => Packing::Best,
            PackingArg::Reference => Packing::Reference,
        }
    }
}

/// Runs the command. The status is 0 whenever a decision was made, even if it leaves pods out.
#[must_use]
pub fn run(args: &PlanArgs) -> ExitCode {
    match render(args) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("whittle plan: {error}");
            ExitCode::from(2)
        }
    }
}

/// Says what of the input has no effect, and why.
fn tell(command: &str, read: &input::Manifests) {
    let (_, unresolved) = pretend_pods(read);
    let list = |what: &str, lines: &[String]| lines.iter().for_each(|line| eprintln!("whittle {command}: {what}{line}"));
    list("skipped ", &read.skipped);
    list("refused: ", &read.refused);
    list("an API server would refuse: ", &read.doubts);
    list("", &unresolved);
}

/// What capacity buffers stand for; nothing where their feature gate is off.
fn pretend_pods(read: &input::Manifests) -> (Vec<Pod>, Vec<String>) {
    if read.settings.gate("CapacityBuffer", true) { read.workloads.pretend_pods(read.settings.now) } else { Default::default() }
}

/// The output of the command.
///
/// # Errors
/// Input that cannot be read.
pub fn render(args: &PlanArgs) -> Result<String, input::ReadError> {
    let (read, offered) = args.source.read("plan")?;
    let started = Instant::now();
    let Planned { plan, wishes, solve } = decide(&read, offered, args.packing);
    let times = output::Times { elapsed: started.elapsed(), solve };
    Ok(match args.output {
        Format::Json => output::json(&plan, wishes.as_ref(), times),
        Format::Text => text::text(&plan, wishes.as_ref()),
    })
}

/// A plan, what preferences cost in it, and how long it took to find.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) wishes: Option<WishCost>,
    pub(crate) solve: Duration,
}

/// The plan for manifests and what can be bought.
#[must_use]
pub(crate) fn decide(read: &input::Manifests, mut offered: offers::Offered, packing: PackingArg) -> Planned {
    if read.settings.gate("NodeOverlay", false) {
        offered = overlays::apply(&read.objects.node_overlays, &read.objects.node_pools, offered).catalog;
    }
    let state = ClusterState::of(&read.objects);
    let (virtual_pods, _) = pretend_pods(read);
    let input = Input {
        now: read.settings.now,
        objects: &read.objects,
        nodes: &state.nodes,
        catalog: &offered,
        virtual_pods: &virtual_pods,
        workloads: &read.workloads.selectors,
    };
    let options = Options {
        packing: packing.packing(),
        preferences: read.settings.preferences,
        min_values: read.settings.min_values,
        reserved_capacity: read.settings.gate("ReservedCapacity", true),
        default_spread: read.settings.default_spread.clone(),
        ..Options::provisioning()
    };
    let solving = Instant::now();
    let plan = schedule::solve(&input, &options);
    let solve = solving.elapsed();
    let wishes = schedule::price_of_wishes(&input, &options, &plan);
    Planned { plan, wishes, solve }
}

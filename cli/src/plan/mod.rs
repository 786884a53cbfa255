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
use whittle_api::karpenter::NodePool;
use whittle_core::buffers::Buffer;
use whittle_core::overlays;
use whittle_core::schedule::{self, Input, Objective, Options, Packing, Plan, PreferenceCost};
use whittle_core::state::ClusterState;

/// Plan machines for the pending pods of some manifests.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Decides from files alone: nothing is read from or changed in a cluster or an account.

Examples:
  whittle plan -f pods.yaml -f pools.yaml --region eu-west-1
  kubectl get ec2nodeclasses,nodepools,nodeclaims,nodes,daemonsets,pods -A -o yaml | whittle plan -f -")]
pub struct PlanArgs {
    #[command(flatten)]
    pub source: source::Source,
    /// How to print the plan
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// Whether to look for cheaper plans than Karpenter's
    #[arg(long, value_enum, default_value_t = PackingArg::Best)]
    pub packing: PackingArg,
}

/// How a decision is printed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For programs
    Json,
    /// For people
    Text,
}

/// `--packing`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackingArg {
    /// The cheapest of several ways to decide, Karpenter's among them
    Best,
    /// As Karpenter decides
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

/// `--objective`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectiveArg {
    /// The lowest price by the hour
    Cheapest,
    /// The lowest price with what machines cost besides
    Balanced,
    /// The fewest machines, of those the lowest price
    Fewest,
}

impl ObjectiveArg {
    pub(crate) fn objective(self) -> Objective {
        match self {
            ObjectiveArg::Cheapest => Objective::Cheapest,
            ObjectiveArg::Balanced => Objective::Balanced,
            ObjectiveArg::Fewest => Objective::Fewest,
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
    let (_, unresolved) = buffers(read);
    let list = |what: &str, lines: &[String]| lines.iter().for_each(|line| eprintln!("whittle {command}: {what}{line}"));
    list("skipped ", &read.skipped);
    list("refused: ", &read.refused);
    list("an API server would refuse: ", &read.doubts);
    list("", &unresolved);
    list("has no effect: ", &odd_costs(read));
}

/// NodePools that say something of their machines' cost that is no cost.
fn odd_costs(read: &input::Manifests) -> Vec<String> {
    let odd = |pool: &NodePool| Some(format!("NodePool {}: {}", pool.metadata.name, schedule::machine_cost_fault(pool)?));
    read.objects.node_pools.iter().filter_map(odd).collect()
}

/// Capacity buffers and what became of them; none where their feature gate is off.
fn buffers(read: &input::Manifests) -> (Vec<Buffer>, Vec<String>) {
    if read.settings.gate("CapacityBuffer", true) { read.workloads.resolved(read.settings.now) } else { Default::default() }
}

/// The same for a decision, with all their pods.
pub(crate) fn pretend_pods(read: &input::Manifests) -> (Vec<Buffer>, Vec<Pod>) {
    let (buffers, _) = buffers(read);
    let pods = buffers.iter().flat_map(|buffer| buffer.pods.iter().cloned()).collect();
    (buffers, pods)
}

/// What can be bought, as NodeOverlays change it where their feature gate is on.
pub(crate) fn overlaid(read: &input::Manifests, offered: offers::Offered) -> offers::Offered {
    if !read.settings.gate("NodeOverlay", false) {
        return offered;
    }
    overlays::apply(&read.objects.node_overlays, &read.objects.node_pools, offered).catalog
}

/// How pods are planned for, as `plan-settings` say.
pub(crate) fn options(read: &input::Manifests, packing: PackingArg) -> Options {
    Options {
        packing: packing.packing(),
        preferences: read.settings.preferences,
        min_values: read.settings.min_values,
        objective: read.settings.objective,
        machine_cost: read.settings.machine_cost,
        reserved_capacity: read.settings.gate("ReservedCapacity", true),
        default_spread: read.settings.default_spread.clone(),
        ..Options::provisioning()
    }
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
    pub(crate) wishes: Option<PreferenceCost>,
    pub(crate) solve: Duration,
}

/// The plan for manifests and what can be bought.
#[must_use]
pub(crate) fn decide(read: &input::Manifests, offered: offers::Offered, packing: PackingArg) -> Planned {
    let offered = overlaid(read, offered);
    let state = ClusterState::of(&read.objects);
    let (_, virtual_pods) = pretend_pods(read);
    let input = Input {
        now: read.settings.now,
        objects: &read.objects,
        nodes: &state.nodes,
        catalog: &offered,
        virtual_pods: &virtual_pods,
        workloads: &read.workloads.selectors,
    };
    let options = options(read, packing);
    let solving = Instant::now();
    let plan = schedule::solve(&input, &options);
    let solve = solving.elapsed();
    let wishes = schedule::preference_cost(&input, &options, &plan);
    Planned { plan, wishes, solve }
}

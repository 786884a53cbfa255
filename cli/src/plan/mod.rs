//! `whittle plan`: where pending pods would go, from files alone.

#[cfg(test)]
mod fuzz;
pub(crate) mod output;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use crate::source::{self, Format, InstanceTypesByPool, Manifests, PackingArg, ReadError, Source};
use clap::Args;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use whittle_model::scheduling::{Input, Plan};
use whittle_model::state::ClusterState;
use whittle_solver::PreferenceCost;

/// Plan machines for the pending pods of some manifests.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Decides from files alone: nothing is read from or changed in a cluster or an account.

Examples:
  whittle plan -f pods.yaml -f pools.yaml --region eu-west-1
  kubectl get ec2nodeclasses,nodepools,nodeclaims,nodes,daemonsets,pods -A -o yaml | whittle plan -f -")]
pub struct PlanArgs {
    #[command(flatten)]
    pub source: Source,
    /// How to print the plan
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
    /// Whether to search for cheaper plans than Karpenter's
    #[arg(long, value_enum, default_value_t = PackingArg::Best)]
    pub packing: PackingArg,
}

/// Runs the command. The exit code is 0 whenever a plan was made, even if some pods are not placed.
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

/// The output of the command.
///
/// # Errors
/// Input that cannot be read.
pub fn render(args: &PlanArgs) -> Result<String, ReadError> {
    let (read, offered) = args.source.read("plan")?;
    let started = Instant::now();
    let Planned { plan, preference_cost, solve } = decide(&read, offered, args.packing);
    let times = output::Times { elapsed: started.elapsed(), solve };
    Ok(match args.output {
        Format::Json => output::json(&plan, preference_cost.as_ref(), times),
        Format::Text => text::text(&plan, preference_cost.as_ref()),
    })
}

/// A plan, the cost of preferences in it, and its duration.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) preference_cost: Option<PreferenceCost>,
    pub(crate) solve: Duration,
}

/// The plan for manifests and instance types.
#[must_use]
pub(crate) fn decide(read: &Manifests, offered: InstanceTypesByPool, packing: PackingArg) -> Planned {
    let offered = source::with_overlays(read, offered);
    let state = ClusterState::of(&read.objects);
    let (_, virtual_pods) = source::buffers_with_pods(read);
    let input = Input {
        now: read.settings.now,
        objects: &read.objects,
        nodes: &state.nodes,
        catalog: &offered,
        virtual_pods: &virtual_pods,
        workloads: &read.workloads.selectors,
    };
    let options = source::options(read, packing);
    let solving = Instant::now();
    let plan = whittle_solver::solve(&input, &options);
    let solve = solving.elapsed();
    let preference_cost = whittle_solver::preference_cost(&input, &options, &plan);
    Planned { plan, preference_cost, solve }
}

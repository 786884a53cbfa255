//! `whittle plan`: where pending pods would go, from files or a cluster that is only read.

mod daemons;
#[cfg(test)]
mod fuzz;
pub(crate) mod later;
pub(crate) mod output;
mod report;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use crate::money::{Bill, counted};
use crate::printing::{self, complain};
use crate::report::{html, markdown};
use crate::source::{self, Answer, InstanceTypesByPool, Manifests, Market, PackingArg, ReadError, ReportFormat, Source};
use clap::Args;
use later::Later;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use whittle_model::scheduling::{Input, Plan};
use whittle_model::state::ClusterState;
use whittle_solver::PreferenceCost;

/// Plan machines for the pending pods of some manifests.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Decides from files, or from what --context names, which is only read: nothing is changed in a cluster or an account.

Examples:
  whittle plan -f pods.yaml -f pools.yaml --region eu-west-1
  whittle plan -f deployment.yaml -f pools.yaml --region eu-west-1 --replicas web=20
  whittle plan -f deployment.yaml -f pools.yaml --region eu-west-1 -o html > plan.html
  kubectl get -A -o json nodepools,ec2nodeclasses,nodeclaims,nodes,pods,daemonsets,deployments,replicasets,statefulsets,jobs,pvc,pv,storageclasses,csinodes,pdb,priorityclasses,namespaces,limitranges,runtimeclasses > cluster.json
  whittle plan -f cluster.json
  whittle plan -f cluster.json --changed new.yaml     (if objects of that dump were changed, and what that makes)
  whittle plan --context prod                         (for what waits in that cluster now)
  whittle plan --context prod -f new.yaml             (if that was applied there, too)

Pods that a Deployment, StatefulSet, ReplicaSet, ReplicationController or Job of the manifests has, but that are not among them,
are planned as pending; standard error says so. HorizontalPodAutoscalers and KEDA's ScaledObjects of the manifests say how many,
if --replicas does not. For objects of other kinds whose controllers make pods, such as those of operators, none is planned: a warning
names them, and what to add.

The lower bound is a price that no plan for the same pods can undercut. It is computed without such a plan: the cheapest one costs something
between it and the price of this one, so that their difference is the most that a better plan could save, and perhaps nothing. What
machines cost besides their price is their volumes and five cents an hour for each, unless MachineCost or a NodePool sets another sum.

Exit code: 0 if there is a plan, even one that places nothing; 1 if it leaves out or relies on objects that are refused, which
standard error names, or the output cannot be written; 2 if there is none, because nothing, or not all of --changed, can be read. With
--detailed-exitcode: 0 if there is nothing to launch, 1 if something is refused, there is no plan or it cannot be written, 2 if there are
machines to launch; a wrong option is 2 in any case.")]
pub struct PlanArgs {
    #[command(flatten)]
    pub source: Source,
    /// How to print the plan
    #[arg(short = 'o', long, value_enum, default_value_t = ReportFormat::Text)]
    pub output: ReportFormat,
    /// Whether to search for cheaper plans than Karpenter's
    #[arg(long, value_enum, default_value_t = PackingArg::Best)]
    pub packing: PackingArg,
    /// Say with the exit code whether machines would be launched: 0 none, 2 some, 1 an error
    #[arg(long)]
    pub detailed_exitcode: bool,
}

/// Runs the command; [`Answer`] has its exit codes.
#[must_use]
pub fn run(args: &PlanArgs) -> ExitCode {
    match answer(args) {
        Err(error) if args.detailed_exitcode => {
            printing::errors(&error);
            ExitCode::from(1)
        }
        answered => Answer::finish(answered),
    }
}

/// The output of the command.
///
/// # Errors
/// Input that cannot be read.
pub fn render(args: &PlanArgs) -> Result<String, ReadError> {
    answer(args).map(|answer| answer.text)
}

fn answer(args: &PlanArgs) -> Result<Answer, ReadError> {
    let (mut read, market, unchanged) = args.source.read_with_unchanged("plan")?;
    if matches!(unchanged, Some(Err(ReadError::RefusedChange))) {
        // A plan without it would look like one with it that makes no difference.
        return Err(ReadError::RefusedChange);
    }
    let Market { types, prices, currency, .. } = market;
    let started = Instant::now();
    let Planned { plan, preference_cost, solve } = decide(&read, types.clone(), args.packing);
    let times = output::Times { elapsed: started.elapsed(), solve };
    let large = daemons::remarks(&read, &types, &plan);
    large.iter().for_each(|remark| complain!("{remark}"));
    read.remarks.extend(large);
    let later = Later::of(&read, &types, args.packing, &plan);
    let paid = prices.paid(&ClusterState::of(&read.objects));
    let then = paid.staying.plus(plan.claims.len(), plan.price());
    let at_last = later.as_ref().map_or_else(|| then.clone(), |later| later.after(&then));
    let unchanged = unchanged.map(|unchanged| compared(unchanged, &at_last, args.packing));
    let costs = output::Costs { currency, paid, then, later, unchanged };
    let answer = read.answer(match args.output {
        ReportFormat::Json => output::json(&plan, preference_cost.as_ref(), &costs, times, &read.remarks),
        ReportFormat::Text => currency.shown(text::text(&plan, preference_cost.as_ref(), &costs)),
        ReportFormat::Markdown => currency.shown(markdown(&report::report(&plan, preference_cost.as_ref(), &costs, &read.remarks))),
        ReportFormat::Html => currency.shown(html(&report::report(&plan, preference_cost.as_ref(), &costs, &read.remarks))),
    });
    Ok(if args.detailed_exitcode { answer.detailed(!plan.claims.is_empty()) } else { answer })
}

/// The plan without the objects of --changed, beside the bill with them.
fn compared(unchanged: source::Unchanged, with: &Bill, packing: PackingArg) -> output::Unchanged {
    let (read, market) = match unchanged {
        Ok(read) => read,
        Err(error) => return output::Unchanged::Nothing(error.to_string()),
    };
    let plan = decide(&read, market.types.clone(), packing).plan;
    let later = Later::of(&read, &market.types, packing, &plan);
    let paid = market.prices.paid(&ClusterState::of(&read.objects));
    let then = paid.staying.plus(plan.claims.len(), plan.price());
    let launched = counted(plan.claims.len(), "new machine");
    let decided = format!("{} of {} pods placed, {launched}, {}", plan.scheduled(), plan.pods, plan.price());
    let hint = "a plan leaves nodes that run as they are: `whittle consolidate` with the same arguments says which would go or be replaced";
    output::Unchanged::Decided(Box::new(output::Difference {
        decided,
        without: later.map_or_else(|| then.clone(), |later| later.after(&then)),
        with: with.clone(),
        detail: serde_json::json!({"pods": plan.pods, "scheduled": plan.scheduled()}),
        at_first: false,
        hint: (0 < paid.now.nodes).then_some(hint),
    }))
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
    let chosen = whittle_snapshot::with_chosen_nodes(&read.objects);
    let objects = chosen.as_ref().unwrap_or(&read.objects);
    let state = ClusterState::of(objects);
    let (_, virtual_pods) = source::buffers_with_pods(read);
    let input = Input {
        now: read.settings.now,
        objects,
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

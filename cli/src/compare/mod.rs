//! `whittle compare`: what today's nodes cost, and what Whittle would pay for the same pods, from files alone.

mod fresh;
mod output;
mod report;

use crate::report::{html, markdown};
use crate::source::{Answer, PackingArg, ReadError, ReportFormat, Source};
use clap::Args;
use std::process::ExitCode;
use whittle_model::state::ClusterState;

/// Compare what the nodes of a cluster cost with what Whittle would pay for their pods.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Plans all running pods afresh, as if there were no nodes. What may not move keeps its node: Fargate, static NodePools, nodes whose
price is not known, and nodes with pods that no NodePool takes. DaemonSets run on every new node. It says where Whittle would get to,
not how: on the way PodDisruptionBudgets, annotations and the NodePools' budgets hold.

Decides from files, or from what --context names, which is only read: nothing is changed in a cluster or an account. It does not
matter who made the nodes: a node group, Cluster Autoscaler or Karpenter. The new ones need a NodePool, in the cluster or in a file;
without an EC2NodeClass it has all defaults.

Examples:
  whittle compare --context prod -f pools.yaml
  kubectl get -A -o json nodes,pods,daemonsets,deployments,replicasets,statefulsets,jobs,pvc,pv,storageclasses,csinodes,pdb,priorityclasses,namespaces,limitranges,runtimeclasses > cluster.json
  whittle compare -f cluster.json -f pools.yaml
  whittle compare -f cluster.json -f pools.yaml --region eu-west-1 -o json
  whittle compare -f cluster.json -f pools.yaml -o html > compare.html
  # Where there are NodePools already:
  kubectl get -A -o json nodepools,ec2nodeclasses,nodeclaims,nodes,pods,daemonsets,deployments,replicasets,statefulsets,jobs,pvc,pv,storageclasses,csinodes,pdb,priorityclasses,namespaces,limitranges,runtimeclasses > cluster.json
  whittle compare -f cluster.json

Exit code: 0 if there is an answer; 1 if it leaves out or relies on objects that are refused, which standard error names, or the
output cannot be written; 2 if there is none, because something cannot be read, or because there are no nodes, no pods
on them or no NodePools to compare.")]
pub struct CompareArgs {
    #[command(flatten)]
    pub source: Source,
    /// How to print the comparison
    #[arg(short = 'o', long, value_enum, default_value_t = ReportFormat::Text)]
    pub output: ReportFormat,
    /// Whether to search for cheaper plans than Karpenter's
    #[arg(long, value_enum, default_value_t = PackingArg::Best)]
    pub packing: PackingArg,
}

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// Input that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Nothing is paid for today.
    #[error(
        "there are no nodes, so nothing is paid today: name a cluster with --context, or add its dump (`kubectl get -A -o json nodes,pods`) with -f"
    )]
    NoNodes,
    /// What is paid for is not known.
    #[error(
        "no pod that runs on these nodes is among the objects, so that any saving would be all they cost: add the pods \
         (`kubectl get -A -o json nodes,pods`) with -f; a workload alone has none here"
    )]
    NoPods,
    /// Nothing is known of what is paid today.
    #[error(
        "the price of none of these nodes is known: their labels name no type of this region; --region names another, --instance-types takes your prices"
    )]
    NoPrices,
    /// Nothing could be bought.
    #[error("there is no NodePool, so nothing could be bought: add one with -f, even one that is not applied yet")]
    NoPools,
}

/// Runs the command; [`Answer`] has its exit codes.
#[must_use]
pub fn run(args: &CompareArgs) -> ExitCode {
    Answer::finish(answer(args))
}

/// The output of the command.
///
/// # Errors
/// Input that cannot be read, or in which there is nothing to compare.
pub fn render(args: &CompareArgs) -> Result<String, CompareError> {
    answer(args).map(|answer| answer.text)
}

fn answer(args: &CompareArgs) -> Result<Answer, CompareError> {
    let (mut read, market) = args.source.read("compare")?;
    if let Some(objects) = whittle_snapshot::with_chosen_nodes(&read.objects) {
        read.objects = objects;
    }
    if read.objects.nodes.is_empty() {
        return Err(CompareError::NoNodes);
    }
    if read.objects.node_pools.is_empty() {
        return Err(CompareError::NoPools);
    }
    let state = ClusterState::of(&read.objects);
    if state.nodes.iter().all(|node| market.prices.offer_of(node).price.is_none()) {
        return Err(CompareError::NoPrices);
    }
    if !read.objects.pods.iter().any(|pod| pod.is_bound() && !pod.is_terminal()) {
        return Err(CompareError::NoPods);
    }
    let comparison = fresh::compare(&read, &market, args.packing, args.source.offers.instance_types.is_none());
    Ok(read.answer(match args.output {
        ReportFormat::Json => output::json(&comparison, &read.remarks),
        ReportFormat::Text => market.currency.shown(output::text(&comparison)),
        ReportFormat::Markdown => market.currency.shown(markdown(&report::report(&comparison, &read.remarks))),
        ReportFormat::Html => market.currency.shown(html(&report::report(&comparison, &read.remarks))),
    }))
}

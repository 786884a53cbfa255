//! `whittle consolidate`: which nodes would be disrupted now, from files alone.

pub(crate) mod expiry;
#[cfg(test)]
mod invalid_inputs;
pub(crate) mod output;
mod report;
pub(crate) mod surplus;
#[cfg(test)]
mod tests;

use crate::money::{Bill, counted};
use crate::plan::output::{Costs, Difference, Unchanged};
use crate::printing::complain;
use crate::report::{html, markdown};
use crate::source::{
    self, Answer, InstanceTypesByPool, Manifests, Market, PackingArg, Paid, PriceList, ReadError, Remark, ReportFormat, Source,
};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Instant;
use whittle_api::labels;
use whittle_disruption::{Decision, VerdictReason};
use whittle_model::disruption::{self, ClaimFacts, Command, Gate, Memory};
use whittle_model::scheduling::{Input, Options};
use whittle_model::state::ClusterState;
use whittle_solver::buffers::{self, Buffer};

/// One pass of the disruption loop over a cluster given as manifests.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Decides from files, or from what --context names, which is only read: nothing is changed in a cluster or an account. Pods and
PodDisruptionBudgets that are not among the files of a dump protect nothing, so give all of them.

Examples:
  kubectl get -A -o json nodepools,ec2nodeclasses,nodeclaims,nodes,pods,daemonsets,deployments,replicasets,statefulsets,jobs,pvc,pv,storageclasses,csinodes,pdb,priorityclasses,namespaces,limitranges,runtimeclasses > cluster.json
  whittle consolidate -f cluster.json
  whittle consolidate --context prod
  whittle consolidate -f cluster.yaml --region eu-west-1 --now 2026-01-01T09:00:00Z -o json

Exit code: 0 if there is a decision, even to do nothing; 1 if it leaves out or relies on objects that are refused, which
standard error names, or the output cannot be written; 2 if there is none, because something that cannot be read may protect pods or
nodes.")]
pub struct ConsolidateArgs {
    #[command(flatten)]
    pub source: Source,
    /// How to print the decision
    #[arg(short = 'o', long, value_enum, default_value_t = ReportFormat::Text)]
    pub output: ReportFormat,
    /// Whether to search for commands that save more than Karpenter's
    #[arg(long, value_enum, default_value_t = PackingArg::Best)]
    pub packing: PackingArg,
}

/// Runs the command; [`Answer`] has its exit codes.
#[must_use]
pub fn run(args: &ConsolidateArgs) -> ExitCode {
    Answer::finish(answer(args))
}

/// The output of the command.
///
/// # Errors
/// Input that cannot be read.
pub fn render(args: &ConsolidateArgs) -> Result<String, ReadError> {
    answer(args).map(|answer| answer.text)
}

fn answer(args: &ConsolidateArgs) -> Result<Answer, ReadError> {
    let (mut read, market, unchanged) = args.source.read_with_unchanged("consolidate")?;
    let Market { types: offered, prices, currency, .. } = market;
    if !read.blocks_disruption.is_empty() {
        // An unreadable pod or budget might have protected a node.
        return Err(ReadError::BlocksDisruption);
    }
    let mut ending = expiry::remarks(&read);
    ending.extend(surplus::remarks(&read, &offered, args.packing));
    ending.iter().for_each(|remark| complain!("{remark}"));
    read.remarks.extend(ending);
    let started = Instant::now();
    let mut decision = decide(&read, &offered, args.packing);
    let elapsed = started.elapsed();
    price_removals(&mut decision, &read, &prices);
    if args.source.cluster.live().is_none() {
        for remark in [without_nodes(&read), without_claims(&read), without_budgets(&read, &decision)].into_iter().flatten() {
            complain!("{remark}");
            read.remarks.push(remark);
        }
    }
    // What replaces nodes that are being deleted is no command of this pass, so that they count until they are gone.
    let Paid { now, unpriced, .. } = prices.paid(&ClusterState::of(&read.objects));
    let then = output::after(&now, &decision);
    let paid = Paid { staying: now.clone(), now, unpriced };
    let waits = read.objects.pods.iter().any(|pod| !pod.is_bound() && !pod.is_terminal());
    let unchanged = unchanged.map(|unchanged| compared(unchanged, &then, args.packing, waits));
    let costs = Costs { currency, paid, then, later: None, unchanged };
    Ok(read.answer(match args.output {
        ReportFormat::Json => output::json(&decision, &costs, elapsed, &read.remarks),
        ReportFormat::Text => currency.shown(output::text(&decision, &costs)),
        ReportFormat::Markdown => currency.shown(markdown(&report::report(&decision, &costs, &read.remarks))),
        ReportFormat::Html => currency.shown(html(&report::report(&decision, &costs, &read.remarks))),
    }))
}

/// That a dump has no node, so that there is nothing to decide about.
fn without_nodes(read: &Manifests) -> Option<Remark> {
    let text = "there is no Node among the objects, so that nothing is decided: name a cluster with --context, or add its dump with -f \
                (`whittle consolidate --help` has the line of kubectl)";
    read.objects.nodes.is_empty().then(|| Remark::warning(text.to_owned()))
}

/// That a dump has nodes of NodePools and no NodeClaim, without which none of them is decided about.
fn without_claims(read: &Manifests) -> Option<Remark> {
    let nodes = read.objects.nodes.iter().filter(|node| node.metadata.label(labels::NODE_POOL).is_some()).count();
    (0 < nodes && read.objects.node_claims.is_empty()).then(|| {
        Remark::warning(format!(
            "there is no NodeClaim among the objects, so that nothing is decided about the {} of NodePools: add those of the cluster \
             (`kubectl get nodeclaims -o yaml`)",
            counted(nodes, "node")
        ))
    })
}

/// That no budget protects the pods that are moved: a dump may lack what the cluster has.
fn without_budgets(read: &Manifests, decision: &Decision) -> Option<Remark> {
    let moves = decision.commands.iter().flat_map(|command| &command.removals).any(|removal| !removal.pods.is_empty());
    let text = "there is no PodDisruptionBudget among the objects: where the cluster has some, they may keep nodes that are removed here";
    (moves && read.objects.disruption_budgets.is_empty()).then(|| Remark::note(text.to_owned()))
}

/// What is decided without the objects of --changed, beside the bill with them.
fn compared(unchanged: source::Unchanged, with: &Bill, packing: PackingArg, waits: bool) -> Unchanged {
    let (read, market) = match unchanged {
        Ok((read, market)) if read.blocks_disruption.is_empty() => (read, market),
        Ok(_) => return Unchanged::Nothing(ReadError::BlocksDisruption.to_string()),
        Err(error) => return Unchanged::Nothing(error.to_string()),
    };
    let mut decision = decide(&read, &market.types, packing);
    price_removals(&mut decision, &read, &market.prices);
    let paid = market.prices.paid(&ClusterState::of(&read.objects));
    let without = output::after(&paid.now, &decision);
    let commands = counted(decision.commands.len(), "command");
    let decided = format!("{commands}, then {} ({})", without.price, without.of_nodes());
    let detail = serde_json::json!({"commands": decision.commands.len()});
    let hint = match waits {
        true => {
            "only the first commands are compared, and of machines for pods that wait only those that replace nodes: `whittle compare`, with \
                 --changed and without, says what nodes come to, and `whittle plan` what is launched for pods"
        }
        false => {
            "only the first commands are compared, and others may follow: `whittle compare`, with --changed and without, says what they come to"
        }
    };
    Unchanged::Decided(Box::new(Difference { decided, without, with: with.clone(), detail, at_first: true, hint: Some(hint) }))
}

/// Prices the nodes that a decision knows no price of as the bill does: of a type in another zone or region, or bought otherwise.
pub(crate) fn price_removals(decision: &mut Decision, read: &Manifests, prices: &PriceList) {
    let commands = decision.commands.iter().chain(&decision.shadow);
    if commands.into_iter().all(|command| command.known_savings().is_some()) {
        return;
    }
    let state = ClusterState::of(&read.objects);
    let price_of = |name: &str| {
        let node = state.nodes.iter().find(|node| node.name() == name)?;
        prices.offer_of(node).price
    };
    for command in decision.commands.iter_mut().chain(&mut decision.shadow) {
        command.price_removals(price_of);
    }
    for verdict in &mut decision.verdicts {
        let removes = |command: &&Command| command.removals.iter().any(|removal| removal.node == verdict.node);
        if let (VerdictReason::Chosen { savings, .. }, Some(command)) = (&mut verdict.reason, decision.commands.iter().find(removes)) {
            *savings = command.known_savings();
        }
    }
}

/// The decision for manifests and instance types.
#[must_use]
pub fn decide(read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg) -> Decision {
    with_input(read, offered, packing, whittle_disruption::decide)
}

/// What a function of the disruption loop says of manifests and instance types.
fn with_input<T>(read: &Manifests, offered: &InstanceTypesByPool, packing: PackingArg, of: impl FnOnce(disruption::Input<'_>) -> T) -> T {
    let offered = source::with_overlays(read, offered.clone());
    let chosen = whittle_snapshot::with_chosen_nodes(&read.objects);
    let objects = chosen.as_ref().unwrap_or(&read.objects);
    let mut state = ClusterState::of(objects);
    whittle_snapshot::nominate_chosen(&mut state.nodes, &read.objects, read.settings.now);
    let gate = |on| if on { Gate::On } else { Gate::Off };
    let settings = disruption::Settings {
        solve: source::options(read, packing),
        spot_to_spot: gate(read.settings.gate("SpotToSpotConsolidation", false)),
        static_capacity: gate(source::static_pools_apply(read)),
        unreadable_pools: read.unreadable_disruption.clone(),
        ..disruption::Settings::standard()
    };
    let (buffers, virtual_pods) = source::buffers_with_pods(read);
    let cluster = Input {
        now: read.settings.now,
        objects,
        nodes: &state.nodes,
        catalog: &offered,
        virtual_pods: &virtual_pods,
        workloads: &read.workloads.selectors,
    };
    let (facts, memory) = (facts(&cluster, &settings.solve, &buffers, &read.unlisted), Memory::default());
    of(disruption::Input { cluster, facts: &facts, memory: &memory, settings: &settings })
}

/// The number of buffer pods that a scheduling pass would place on each machine: in a cluster, one always precedes. And that the types of
/// `unlisted` NodeClaims were seen, which only the tables do not have.
fn facts(cluster: &Input<'_>, options: &Options, buffers: &[Buffer], unlisted: &BTreeSet<String>) -> BTreeMap<String, ClaimFacts> {
    let seen = ClaimFacts { type_seen_at: Some(cluster.now), ..ClaimFacts::default() };
    let mut facts: BTreeMap<String, ClaimFacts> = unlisted.iter().map(|claim| (claim.clone(), seen.clone())).collect();
    if buffers.iter().all(|buffer| buffer.pods.is_empty()) {
        return facts;
    }
    let plan = whittle_solver::solve(cluster, options);
    let held = buffers::virtual_pods_by_machine(&plan, buffers);
    for (claim, count) in cluster.nodes.iter().filter_map(|node| Some((node.claim.as_ref()?, held.get(node.name())?))) {
        facts.entry(claim.metadata.name.clone()).or_default().buffer_pods = *count;
    }
    facts
}

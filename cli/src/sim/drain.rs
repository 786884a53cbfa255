//! `whittle sim drain`: drains all nodes of a cluster at once, under disruption budgets.

use super::manifests;
use crate::local::session::{Place, Session, SessionError};
use crate::numbers;
use clap::Args;
use jiff::SignedDuration;
use std::collections::BTreeSet;
use whittle_sim::world::Requests;

/// `whittle sim drain`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle sim drain --nodes 100

Exit code: 0 if every limit and invariant held, 1 if one did not or the output cannot be written, 2 if the input is invalid.")]
pub struct DrainArgs {
    /// Nodes that are drained together
    #[arg(long, default_value_t = 200, value_parser = numbers::within::<u32>(1..=100_000), allow_negative_numbers = true)]
    pub nodes: u32,
}

/// Deployments, each with a budget of its own.
const APPS: u32 = 10;
/// Pods of one app on a node of four cores.
const PODS_PER_NODE: u32 = 9;
/// How long machines may take to start, and pods to leave.
const TIMEOUT: SignedDuration = SignedDuration::from_hours(2);

/// The outcome of a drain.
#[derive(Debug, Default)]
pub struct Drain {
    pub nodes: usize,
    pub pods: usize,
    /// From the deletion of all NodeClaims to the termination of the last machine.
    pub span: SignedDuration,
    /// Requests to the eviction API in total, and in the busiest second.
    pub evicted: u32,
    pub refused: u32,
    pub busiest: u32,
    /// Machines that were not terminated, and violated invariants, as text.
    pub violations: Vec<String>,
}

/// The statistics in one line, with the violations.
///
/// # Errors
/// The manifests are refused.
pub fn run(args: &DrainArgs) -> Result<(String, Vec<String>), SessionError> {
    let drain = drain(args.nodes)?;
    let line = format!(
        "drained: {} nodes with {} pods in {:#}, evictions: {} granted and {} refused, at most {} in a second, violations: {}",
        drain.nodes,
        drain.pods,
        drain.span,
        drain.evicted,
        drain.refused,
        drain.busiest,
        drain.violations.len()
    );
    Ok((line, drain.violations))
}

/// Fills a cluster, then deletes all its NodeClaims at once.
///
/// # Errors
/// The manifests are refused.
pub fn drain(nodes: u32) -> Result<Drain, SessionError> {
    let mut session = Session::new(&Place::default());
    session.apply_text(
        "pool.yaml",
        &manifests::pool("on-demand", &REQUIREMENTS, "{consolidationPolicy: WhenEmpty, consolidateAfter: Never}"),
    )?;
    let replicas = (nodes * PODS_PER_NODE).div_ceil(APPS);
    for app in 0..APPS {
        session.apply_text("app.yaml", &manifests::deployment(app, replicas, 400, 256))?;
        session.apply_text("budget.yaml", &budget(app))?;
    }
    let pods = usize::try_from(replicas * APPS).unwrap_or(usize::MAX);
    let limit = session.now().checked_add(TIMEOUT).unwrap_or(jiff::Timestamp::MAX);
    session.simulation.run_while_not(limit, |world| world.cluster.pod_counts(|_| true).running >= pods);
    let old: BTreeSet<String> = session.simulation.world().cluster.objects.node_claims.keys().cloned().collect();
    session.simulation.world().evictions.clear();
    let begun = session.now();
    for claim in &old {
        session.delete("nodeclaim", claim)?;
    }
    let limit = begun.checked_add(TIMEOUT).unwrap_or(jiff::Timestamp::MAX);
    let is_drained = session.simulation.run_while_not(limit, |world| {
        let name = world.name();
        let mut claims = world.store.claims(&name).map(|stored| &stored.value).filter(|claim| old.contains(claim.key.name.as_str()));
        claims.all(|claim| !claim.is_live())
    });
    let span = session.now().duration_since(begun);
    let world = session.simulation.world();
    let sum = |part: fn(&Requests) -> u32| world.evictions.values().map(part).sum();
    let mut violations = world.violations.clone();
    if !is_drained {
        violations.push(format!("not all nodes were drained within {TIMEOUT:#}"));
    }
    Ok(Drain {
        nodes: old.len(),
        pods,
        span,
        evicted: sum(|second| second.granted),
        refused: sum(|second| second.refused),
        busiest: world.evictions.values().map(|second| second.granted + second.refused).max().unwrap_or(0),
        violations,
    })
}

/// Machines of four cores.
const REQUIREMENTS: [&str; 2] = [
    "{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m]}",
    "{key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"4\"]}",
];

fn budget(app: u32) -> String {
    format!(
        "apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: app-{app}}}
spec: {{maxUnavailable: 10%, selector: {{matchLabels: {{app: app-{app}}}}}}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_drained_together_share_the_eviction_rate_and_violate_no_budget() {
        let drain = drain(12).unwrap();
        assert_eq!(drain.violations, Vec::<String>::new());
        let pods = u32::try_from(drain.pods).unwrap();
        assert!(drain.nodes >= 10 && drain.evicted >= pods, "{drain:?}");
        assert!(drain.refused > 0, "budgets held some of them for a while: {drain:?}");
        // The allowance of one second, and the rest of the second before.
        assert!(drain.busiest <= 200, "{drain:?}");
    }
}

//! `whittle sim verdicts`: the age of the oldest verdict on any node of a full cluster without possible savings.

use super::manifests;
use crate::local::session::{Place, Session, SessionError};
use crate::numbers;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use whittle_api::k8s::Node;
use whittle_api::labels;
use whittle_claims::VerdictPage;
use whittle_sim::World;
use whittle_sim::cluster::PodCounts;

/// `whittle sim verdicts`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle sim verdicts --nodes 200

Exit code: 0 if every limit and invariant held, 1 if one did not or the output cannot be written, 2 if the input is invalid.")]
pub struct VerdictsArgs {
    /// Nodes of the cluster
    #[arg(long, default_value_t = 1_000, value_parser = numbers::within::<u32>(1..=100_000), allow_negative_numbers = true)]
    pub nodes: u32,
    /// Pods on each node
    #[arg(long, default_value_t = 30, value_parser = numbers::within::<u32>(1..=1_000), allow_negative_numbers = true)]
    pub pods: u32,
    /// How long verdicts are observed once the cluster has settled
    #[arg(long, default_value_t = 15, value_parser = numbers::within::<u32>(1..=10_000), allow_negative_numbers = true)]
    pub minutes: u32,
}

/// The maximum age of a verdict.
pub(super) const SECONDS_MAX: i64 = 300;
/// How long machines may take to start and pods to be scheduled.
const TIMEOUT: SignedDuration = SignedDuration::from_hours(1);
/// How often this is checked.
const SETTLED_EVERY: SignedDuration = SignedDuration::from_secs(5);
/// Millicores of the large pod on each node of eight cores, so that no two nodes can be merged.
const LARGE: u32 = 5_000;
/// Millicores of the other pods.
const SMALL: u32 = 50;

/// The result.
#[derive(Debug, Default)]
pub struct Watched {
    pub nodes: usize,
    pub pods: usize,
    /// The age of the oldest verdict at the worst time, in seconds.
    pub oldest: i64,
    pub violations: Vec<String>,
}

/// The statistics in one line, with the violations.
///
/// # Errors
/// The manifests are refused.
pub fn run(args: &VerdictsArgs) -> Result<(String, Vec<String>), SessionError> {
    let watched = watch(args)?;
    let mut wrong = watched.violations.clone();
    if watched.oldest > SECONDS_MAX {
        wrong.push(format!("the verdict of a node was {} seconds old", watched.oldest));
    }
    let line = format!("nodes: {}, pods: {}, oldest verdict of a node: {} s", watched.nodes, watched.pods, watched.oldest);
    Ok((line, wrong))
}

/// Fills a cluster and checks its verdicts every ten seconds.
///
/// # Errors
/// The manifests are refused.
pub fn watch(args: &VerdictsArgs) -> Result<Watched, SessionError> {
    let mut session = Session::new(&Place::default());
    let requirements = [
        "{key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}",
        "{key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"8\"]}",
    ];
    let disruption = "{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 30s, budgets: [{nodes: 10%}]}";
    session.apply_text("pool.yaml", &manifests::pool("on-demand", &requirements, disruption))?;
    // The large pods create the nodes; the small ones are then scheduled on them, all at once.
    for (app, replicas, cpu) in [(0, args.nodes, LARGE), (1, args.nodes * args.pods.saturating_sub(1), SMALL)] {
        session.apply_text("app.yaml", &manifests::deployment(app, replicas, cpu, cpu))?;
        let limit = session.now().checked_add(TIMEOUT).unwrap_or(Timestamp::MAX);
        let label = format!("app-{app}");
        // Counting pods at every step of the simulation would take longer than the simulation.
        while session.now() < limit {
            session.advance(SETTLED_EVERY);
            let counts = session.simulation.world().cluster.pod_counts(|pod| pod.metadata.label("app") == Some(&label));
            if counts == PodCounts::all_running(replicas as usize) {
                break;
            }
        }
    }
    let mut out = Watched::default();
    for _ in 0..args.minutes * 6 {
        session.advance(SignedDuration::from_secs(10));
        out.oldest = out.oldest.max(oldest(&session.simulation.world()));
    }
    let world = session.simulation.world();
    out.nodes = world.cluster.objects.nodes.len();
    out.pods = world.cluster.objects.pods.len();
    out.violations.clone_from(&world.violations);
    Ok(out)
}

/// The age in seconds of the oldest verdict on nodes that are not new; for a node without any, the age of the
/// node.
pub(super) fn oldest(world: &World) -> i64 {
    let now = world.now();
    let pages = world.store.read_all::<VerdictPage>(&world.name(), now);
    let at: BTreeMap<&str, Timestamp> =
        pages.iter().flat_map(|page| &page.value.verdicts).map(|(node, verdict)| (node.as_str(), verdict.at)).collect();
    let ours = world.cluster.objects.nodes.values().filter(|node| node.metadata.label(labels::INITIALIZED) == Some("true"));
    let age = |node: &Node| {
        let created = node.metadata.creation_timestamp.unwrap_or(now);
        now.duration_since(at.get(node.metadata.name.as_str()).copied().unwrap_or(created).max(created)).as_secs()
    };
    ours.map(age).max().unwrap_or(0)
}

/// The number of nodes by verdict, most frequent first.
pub(super) fn by_code(world: &World) -> String {
    let pages = world.store.read_all::<VerdictPage>(&world.name(), world.now());
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    let there = pages.iter().flat_map(|page| &page.value.verdicts).filter(|(node, _)| world.cluster.objects.nodes.contains_key(*node));
    for (_, verdict) in there {
        *counted.entry(&verdict.code).or_default() += 1;
    }
    let mut counted: Vec<(&str, usize)> = counted.into_iter().collect();
    counted.sort_by_key(|(code, nodes)| (std::cmp::Reverse(*nodes), *code));
    counted.iter().map(|(code, nodes)| format!("{code} {nodes}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_of_a_quiet_cluster_has_a_verdict_of_the_last_five_minutes() {
        let watched = watch(&VerdictsArgs { nodes: 6, pods: 4, minutes: 7 }).unwrap();
        assert_eq!(watched.violations, Vec::<String>::new());
        assert_eq!((watched.nodes, watched.pods), (6, 24));
        assert!(watched.oldest > 60, "verdicts that hold are not written again at every look: {watched:?}");
        assert!(watched.oldest <= SECONDS_MAX, "{watched:?}");
    }
}

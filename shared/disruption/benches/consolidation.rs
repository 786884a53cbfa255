//! A full consolidation pass with a verdict for every node: `cargo xtask bench consolidation`, or for one size
//! `cargo bench -p whittle-disruption --bench consolidation [NODES PODS]`.
//!
//! Prints one line of JSON: the processor time of the decision and of the whole process (which also builds the cluster),
//! and the peak memory of the process.

mod fleet;

use std::collections::BTreeMap;
use whittle_api::k8s::Workloads;
use whittle_disruption::decide;
use whittle_model::disruption::{Input, Memory, Settings};
use whittle_model::scheduling;
use whittle_model::state::ClusterState;
use whittle_units::Timestamp;

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (nodes, pods) = match arguments[..] {
        [nodes, pods] => (nodes, pods),
        _ => (1_000, 30_000),
    };
    let (objects, catalog) = fleet::cluster(nodes, pods);
    let settings = Settings::standard();
    let (facts, memory) = (BTreeMap::new(), Memory::default());
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a literal time");
    let workloads = Workloads::default();
    let before = processor_seconds();
    let state = ClusterState::of(&objects);
    let input =
        scheduling::Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let decision = decide(Input { cluster: input, facts: &facts, memory: &memory, settings: &settings });
    let seconds = processor_seconds() - before;
    let fresh = decision.verdicts.iter().filter(|verdict| !verdict.reason.is_stale()).count();
    let mut verdicts: BTreeMap<&str, usize> = BTreeMap::new();
    for verdict in &decision.verdicts {
        *verdicts.entry(verdict.reason.code()).or_default() += 1;
    }
    let line = serde_json::json!({
        "nodes": nodes, "pods": objects.pods.len(), "pools": objects.node_pools.len(),
        "decisionSeconds": seconds, "processSeconds": processor_seconds(), "peakMegabytes": peak_megabytes(),
        "freshVerdicts": fresh, "commands": decision.commands.len(), "verdicts": verdicts,
    });
    println!("{line}");
}

/// User and system time of this process so far, in steps of a hundredth; 0 if the system does not report it.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields are counted after the name, which may contain spaces.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// The peak memory of the process; 0 if the system does not report it.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1000
}

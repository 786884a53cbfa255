//! A small version of `cargo xtask bench consolidation`.

#[path = "../../benches/fleet.rs"]
mod fleet;

use crate::decide;
use crate::testing::noon;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Workloads;
use whittle_model::disruption::{Input, Memory, Reason, Settings};
use whittle_model::scheduling;
use whittle_model::state::ClusterState;

#[test]
fn one_pass_over_a_fleet_has_a_verdict_for_every_node() {
    let (objects, catalog) = fleet::cluster(60, 1_800);
    let state = ClusterState::of(&objects);
    let (facts, memory, settings, workloads) = (BTreeMap::new(), Memory::default(), Settings::standard(), Workloads::default());
    let cluster = scheduling::Input {
        now: noon(),
        objects: &objects,
        nodes: &state.nodes,
        catalog: &catalog,
        virtual_pods: &[],
        workloads: &workloads,
    };
    let decision = decide(Input { cluster, facts: &facts, memory: &memory, settings: &settings });
    assert_eq!(decision.verdicts.len(), 60);
    let stale: Vec<&str> =
        decision.verdicts.iter().filter(|verdict| verdict.reason.is_stale()).map(|verdict| verdict.node.as_str()).collect();
    assert!(stale.is_empty(), "no verdict for {stale:?}");
    let codes: BTreeSet<&str> = decision.verdicts.iter().map(|verdict| verdict.reason.code()).collect();
    assert!(codes.is_superset(&["Underutilized", "PodDisruptionBudget", "NotEmpty"].into()), "{codes:?}");
    assert_eq!(decision.commands.len(), 1);
    let command = &decision.commands[0];
    assert_eq!(command.method.reason(), Reason::Underutilized);
    // A tenth of three nodes is one.
    let pools: BTreeSet<&str> = command.removals.iter().map(|removal| removal.node_pool.as_str()).collect();
    assert_eq!(pools.len(), command.removals.len(), "a budget of one node a pool is kept");
}

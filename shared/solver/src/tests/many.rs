//! Many applications that each have groups of their own: the work grows linearly with them, not quadratically.

use super::properties::{mix, odd};
use crate::{assemble, solve};
use whittle_api::k8s::Workloads;
use whittle_model::scheduling::{Input, Options, Packing};
use whittle_model::state::ClusterState;

/// Ticks for building the problem of this many deployments, and work units for solving it.
fn work(deployments: usize, nodes: usize, options: &Options) -> (u64, u64) {
    let (mut objects, catalog) = odd::case("deployments", deployments * 2).expect("a case of this name");
    objects.nodes = mix::machines(nodes);
    // One replica of each runs already, so that machines must be counted in the groups.
    for (n, pod) in objects.pods.iter_mut().step_by(2).enumerate().filter(|_| nodes > 0) {
        pod.spec.node_name = format!("node-{:05}", n % nodes);
        pod.status.phase = "Running".into();
        pod.status.conditions.clear();
    }
    let state = ClusterState::of(&objects);
    let workloads = Workloads::default();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let input = Input { now, objects: &objects, nodes: &state.nodes, catalog: &catalog, virtual_pods: &[], workloads: &workloads };
    let ready = assemble::build(&input, options).meter.ticks();
    let plan = solve(&input, options);
    let waiting = if nodes > 0 { deployments } else { deployments * 2 };
    assert_eq!(plan.scheduled(), waiting);
    assert_eq!(whittle_checker::check(&input, options, &plan), []);
    (ready, plan.work)
}

/// With Karpenter's packing: what the other spends in addition is bounded by a rule of its own.
#[test]
fn four_times_the_applications_are_no_more_than_five_times_the_work() {
    let options = Options { packing: Packing::Reference, ..Options::provisioning() };
    for nodes in [0, 50] {
        let (few, many) = (work(1000, nodes, &options), work(4000, nodes, &options));
        assert!(few.0 > 0, "making the question ready is not measured");
        assert!(many.0 <= few.0 * 5, "{nodes} nodes: {few:?} and {many:?} to make the question ready");
        assert!(many.1 <= few.1 * 5, "{nodes} nodes: {few:?} and {many:?} to answer it");
    }
}

//! Nodes of which a policy refuses the label that initializes them.

use super::over_sim::{owned, run_over, still};
use super::{claim, node, ready};
use futures::executor::block_on;
use whittle_api::conditions::{INITIALIZED, find, is_true};
use whittle_api::k8s::Node;
use whittle_api::{ConditionStatus, labels};
use whittle_claims::Claim;
use whittle_ports::{Report, Settings};
use whittle_testkit::{InterceptedApiServer, NodePolicy, TestWorld};
use whittle_units::{ClusterName, SignedDuration};

/// A run while a policy refuses all changes of Nodes.
fn run_refused(simulation: &TestWorld) -> Report {
    let ports = simulation.ports();
    let refusing = InterceptedApiServer { ports: &ports, interceptor: NodePolicy };
    block_on(crate::handle(refusing.adapters(), &Settings::default(), &ClusterName::new("c"))).unwrap()
}

/// A world with a machine whose registered Node lacks nothing, and its claim.
fn about_to_initialize() -> (TestWorld, Claim) {
    let simulation = still();
    let own = owned(claim(), "a");
    simulation.store(&own);
    simulation.create(ready(node()));
    assert_eq!(run_over(&simulation.ports()).counted("registered"), 1);
    simulation.change::<Node>("n", |node| node.spec.taints.clear());
    (simulation, own)
}

#[test]
fn a_node_whose_initialization_a_policy_refuses_says_so_and_is_initialized_once_it_is_let() {
    let (simulation, own) = about_to_initialize();
    let report = run_refused(&simulation);
    assert_eq!((report.counted("initialized"), report.counted("left_for_later")), (0, 0));
    let shown = simulation.claim(&own.key);
    let initialized = find(&shown.conditions, INITIALIZED).unwrap();
    assert_eq!((initialized.status, initialized.reason.as_str()), (ConditionStatus::Unknown, "NodeRefused"));
    assert!(initialized.message.contains("policy.example.com"), "{}", initialized.message);
    assert_eq!((shown.phase.name(), shown.deletion), ("Registered", None), "its pods run");
    assert_eq!(run_over(&simulation.ports()).counted("initialized"), 1);
    assert!(is_true(&simulation.claim(&own.key).conditions, INITIALIZED));
    assert_eq!(simulation.get::<Node>("n").unwrap().metadata.label(labels::INITIALIZED), Some("true"));
}

/// Each look reads the cluster's Nodes, and the policy may stay for ever. What serves pods is never ended for it.
#[test]
fn a_node_that_a_policy_refuses_for_long_is_looked_at_by_ticks_alone_and_kept() {
    let (mut simulation, own) = about_to_initialize();
    let polls_after = |simulation: &mut TestWorld, span: SignedDuration| {
        simulation.run_for(span);
        let before = simulation.doorbells().len();
        run_refused(simulation);
        simulation.doorbells().len() - before
    };
    assert_eq!(polls_after(&mut simulation, SignedDuration::from_mins(10)), 1);
    assert_eq!(polls_after(&mut simulation, SignedDuration::from_mins(10)), 0);
    let kept = simulation.claim(&own.key);
    assert_eq!((kept.phase.name(), kept.deletion), ("Registered", None));
}

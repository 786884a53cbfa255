//! Nodes that are tainted although they belong to no command.

use super::{after, claim, joined};
use crate::execute::disrupted_taint;
use crate::progress::untaint_strays;
use crate::state::Disruptions;
use futures::executor::block_on;
use std::collections::BTreeMap;
use whittle_api::k8s::Node;
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_claims::{Claim, DeletionReason, Event, step};
use whittle_ports::{Adapters, ClaimStore, Report};
use whittle_sim::Simulation;
use whittle_snapshot::Snapshot;
use whittle_testkit::{TestWorld, at, deletion};

/// Whether a tainted Node is still tainted after a check for strays that had read it before `meanwhile`.
fn is_tainted(meanwhile: impl FnOnce(&Simulation, &Claim)) -> (bool, Report) {
    let serving = after(&claim("a"), &[joined(), vec![Event::NodeReady]].concat());
    let cluster = serving.key.cluster.clone();
    let simulation = TestWorld::still(at(0));
    simulation.store(&serving);
    let ports = simulation.ports();
    let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    node.spec.taints.push(disrupted_taint());
    simulation.create(node);
    let stored = block_on(ports.list(&cluster)).unwrap();
    let nodes = vec![simulation.get::<Node>("n").unwrap()];
    let snapshot = Snapshot::of(at(1), ClusterObjects { nodes, ..ClusterObjects::default() }, stored, Vec::new(), BTreeMap::new());
    meanwhile(&simulation, &serving);
    let adapters = Adapters::all(&ports);
    let mut report = Report::default();
    block_on(untaint_strays(adapters, &snapshot, &Disruptions::default(), &mut report)).unwrap();
    let closed = simulation.get::<Node>("n").unwrap().spec.taints.iter().any(|taint| taint.same(&disrupted_taint()));
    (closed, report)
}

#[test]
fn a_node_of_no_command_is_untainted() {
    let (closed, report) = is_tainted(|_, _| {});
    assert_eq!((closed, report.counted("unmarked")), (false, 1));
}

#[test]
fn a_node_that_is_being_drained_by_now_is_never_untainted() {
    let (closed, report) = is_tainted(|simulation, claim| {
        let deletion = deletion(DeletionReason::SpotInterruption, at(1));
        let ports = simulation.ports();
        let read = block_on(ports.get(&claim.key)).unwrap().unwrap();
        block_on(ports.update(&step(&read.value, &Event::DeletionRequested(deletion), at(1)).unwrap(), read.revision)).unwrap();
    });
    assert_eq!((closed, report.counted("unmarked")), (true, 0));
}

#[test]
fn a_node_changed_since_it_was_read_waits_for_the_next_pass() {
    let (closed, report) = is_tainted(|simulation, _| {
        simulation.world().cluster.objects.change::<Node>("n", |node| {
            node.metadata.labels.insert("changed".into(), "since".into());
        });
    });
    assert_eq!((closed, report.counted("left_for_later")), (true, 1));
}

#[test]
fn a_node_whose_claim_is_unreadable_by_now_is_never_untainted() {
    let (closed, report) = is_tainted(|simulation, claim| simulation.world().store.spoil_claim(&claim.key));
    assert_eq!((closed, report.counted("unmarked")), (true, 0));
}

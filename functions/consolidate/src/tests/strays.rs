//! Nodes that are closed although nothing is to happen to them.

use super::{after, at, claim, joined};
use crate::execute::disrupted_taint;
use crate::progress::untaint_strays;
use crate::state::Disruptions;
use futures::executor::block_on;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::k8s::Node;
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_claims::{Claim, Deletion, DeletionReason, Event, step};
use whittle_ports::{Adapters, ClaimStore, Leases, Report};
use whittle_sim::{Function, Functions, Input, SimPorts, Simulation, WorldOptions};
use whittle_snapshot::Snapshot;
use whittle_units::SignedDuration;

struct Nothing;

impl Functions for Nothing {
    fn call(&self, _: Function, _: SimPorts, _: Input) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A claim whose Node is closed: is it still so after a look for strays that had read it before `meanwhile`?
fn is_closed(meanwhile: impl FnOnce(&Simulation, &Claim)) -> (bool, Report) {
    let serving = after(&claim("a"), &[joined(), vec![Event::NodeReady]].concat());
    let cluster = serving.key.cluster.clone();
    let options =
        WorldOptions { seed: 1, cluster: cluster.clone(), region: "us-west-2".into(), kubernetes_version: "1.33".into(), start: at(0) };
    let simulation = Simulation::new(whittle_sim::World::new(&options), Arc::new(Nothing));
    let ports = simulation.ports();
    block_on(async {
        let lease = ports.acquire(&cluster, "test", at(0), SignedDuration::from_secs(5)).await.unwrap();
        ports.create(&lease, &serving).await.unwrap();
    });
    let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    node.spec.taints.push(disrupted_taint());
    simulation.world().cluster.objects.create(node, at(0));
    let stored = block_on(ports.list(&cluster)).unwrap();
    let nodes = vec![simulation.world().cluster.objects.get::<Node>("n").unwrap().clone()];
    let snapshot = Snapshot::of(at(1), ClusterObjects { nodes, ..ClusterObjects::default() }, stored, Vec::new(), BTreeMap::new());
    meanwhile(&simulation, &serving);
    let adapters = Adapters::all(&ports);
    let mut report = Report::default();
    block_on(untaint_strays(adapters, &snapshot, &Disruptions::default(), &mut report)).unwrap();
    let world = simulation.world();
    let closed = world.cluster.objects.get::<Node>("n").unwrap().spec.taints.iter().any(|taint| taint.same(&disrupted_taint()));
    (closed, report)
}

#[test]
fn a_node_that_no_command_names_is_opened_again() {
    let (closed, report) = is_closed(|_, _| {});
    assert_eq!((closed, report.counted("unmarked")), (false, 1));
}

#[test]
fn a_node_that_is_being_drained_by_now_is_never_opened() {
    let (closed, report) = is_closed(|simulation, claim| {
        let deletion = Deletion { reason: DeletionReason::SpotInterruption, at: at(1), deadline: None, message: String::new() };
        let ports = simulation.ports();
        let read = block_on(ports.get(&claim.key)).unwrap().unwrap();
        block_on(ports.update(&step(&read.value, &Event::DeletionAsked(deletion), at(1)).unwrap(), read.revision)).unwrap();
    });
    assert_eq!((closed, report.counted("unmarked")), (true, 0));
}

#[test]
fn a_node_that_somebody_has_changed_since_it_was_read_waits_for_the_next_look() {
    let (closed, report) = is_closed(|simulation, _| {
        simulation.world().cluster.objects.change::<Node>("n", |node| {
            node.metadata.labels.insert("changed".into(), "since".into());
        });
    });
    assert_eq!((closed, report.counted("left_for_later")), (true, 1));
}

#[test]
fn a_node_whose_claim_cannot_be_read_by_now_is_never_opened() {
    let (closed, report) = is_closed(|simulation, claim| simulation.world().store.spoil_claim(&claim.key));
    assert_eq!((closed, report.counted("unmarked")), (true, 0));
}

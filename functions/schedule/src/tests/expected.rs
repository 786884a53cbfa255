//! What a plan expects of machines that are there: they are not disrupted meanwhile.

use super::{now, pod};
use crate::write;
use std::collections::BTreeMap;
use whittle_api::k8s::{Node, Pod};
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_claims::{Event, Expectation};
use whittle_model::scheduling::{Placement, Plan, PodRef};
use whittle_snapshot::Snapshot;
use whittle_testkit::{after, at, begun, default_spec, joined, machine, planned, stored};
use whittle_units::Timestamp;

/// What is expected after a plan that has these pods on a node, in a cluster with node `n` of claim `serving`.
fn expected(node: &str, pods: &[Pod], change: impl FnOnce(&mut Snapshot)) -> BTreeMap<String, Expectation> {
    let events = [begun("t"), Event::FleetAnswered(machine("i-1")), joined("n"), Event::NodeReady];
    let claim = after(&planned("serving", default_spec()), &events, now());
    let mut own = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    own.metadata.labels.insert(labels::REGISTERED.to_owned(), "true".to_owned());
    own.spec.provider_id = claim.machine().unwrap().provider_id.as_str().to_owned();
    let objects = ClusterObjects { nodes: vec![own], pods: pods.to_vec().into(), ..ClusterObjects::default() };
    let mut snapshot = Snapshot::of(now(), objects, stored([claim]), Vec::new(), BTreeMap::new());
    change(&mut snapshot);
    let placement = Placement { node: node.to_owned(), initialized: true, pods: pods.iter().map(PodRef::of).collect() };
    write::expected(&snapshot, &Plan { placements: vec![placement], ..Plan::default() })
}

fn until(until: Timestamp) -> BTreeMap<String, Expectation> {
    let expectation = Expectation { nominated_until: Some(until), buffer_pods: 0 };
    BTreeMap::from([("serving".to_owned(), expectation)])
}

/// A pod that runs on a node which is being drained: a budget may hold it for a while.
fn bound(name: &str) -> Pod {
    let mut bound = pod(name, 1);
    "drained".clone_into(&mut bound.spec.node_name);
    bound
}

#[test]
fn a_machine_is_kept_for_the_pods_of_a_plan_and_longer_for_those_that_still_run_elsewhere() {
    let unchanged = |_: &mut Snapshot| ();
    assert_eq!(expected("n", &[pod("waits", 1)], unchanged), until(at(20)));
    assert_eq!(expected("n", &[bound("leaves")], unchanged), until(at(75)));
    assert_eq!(expected("n", &[pod("waits", 1), bound("leaves")], unchanged), until(at(75)));
    assert_eq!(expected("gone", &[pod("waits", 1)], unchanged), BTreeMap::new(), "there is no such machine");
    let earlier = |snapshot: &mut Snapshot| snapshot.expected = until(at(60));
    assert_eq!(expected("n", &[pod("waits", 1)], earlier), until(at(60)), "an earlier plan has expected more of it");
}

/// It would never be empty: nothing takes the place of a pod that does not exist.
#[test]
fn no_machine_is_kept_for_the_pods_of_a_buffer_as_for_one_that_is_about_to_be_bound() {
    let buffered = |snapshot: &mut Snapshot| snapshot.buffers.pods = vec![pod("virtual", 1)];
    assert_eq!(expected("n", &[pod("virtual", 1)], buffered), BTreeMap::new());
    assert_eq!(expected("n", &[pod("virtual", 1), pod("waits", 1)], buffered), until(at(20)));
}

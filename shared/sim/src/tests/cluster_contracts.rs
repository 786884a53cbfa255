//! The contracts of the cluster's ports, kept by the simulated one.

use super::{apply, simulation};
use crate::cluster::Tabled;
use crate::{SimPorts, Simulation};
use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::RefCell;
use whittle_api::KarpenterSign;
use whittle_api::k8s::{DaemonSet, Deployment, Kind, Node, Pod, PodDisruptionBudget, ReplicaSet, Service, StatefulSet, StoredPodTemplate};
use whittle_api::karpenter::{CapacityBuffer, Ec2NodeClass, NodeClaim, NodeOverlay, NodePool};
use whittle_ports::ClusterEvent;
use whittle_ports::contracts::{self, ClusterPlace, POOL_AND_CLASS};
use whittle_units::ClusterName;

struct Place {
    simulation: RefCell<Simulation>,
    cluster: ClusterName,
}

impl Place {
    fn new() -> (Self, SimPorts) {
        let simulation = simulation(1);
        apply(&simulation, POOL_AND_CLASS);
        let (cluster, ports) = (simulation.world().name(), simulation.ports());
        (Self { simulation: RefCell::new(simulation), cluster }, ports)
    }

    fn delete_of<T: Tabled>(&self, key: &str) {
        let simulation = self.simulation.borrow();
        let mut world = simulation.world();
        let now = world.now();
        world.cluster.remove::<T>(key, now).expect("it exists");
        world.touch_cluster();
    }

    fn merge_into<T: Tabled + Serialize + DeserializeOwned>(&self, name: &str, change: &Value) {
        let simulation = self.simulation.borrow();
        let mut world = simulation.world();
        let known = world.cluster.objects.change::<T>(name, |object| {
            let mut value = serde_json::to_value(&*object).expect("plain data");
            merge(&mut value, change);
            *object = serde_json::from_value(value).expect("it is still of its kind");
        });
        assert!(known, "there is no {} {name}", T::KIND);
    }
}

/// A merge patch (RFC 7386).
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = Value::Object(serde_json::Map::new());
    }
    let target = into.as_object_mut().expect("it is an object now");
    for (key, value) in fields {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl ClusterPlace for Place {
    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    fn now(&self) -> Timestamp {
        self.simulation.borrow().world().now()
    }

    async fn create(&self, object: Value) {
        apply(&self.simulation.borrow(), &object.to_string());
    }

    async fn delete(&self, kind: &'static str, namespace: &str, name: &str) {
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        match kind {
            "Pod" => self.delete_of::<Pod>(&key),
            Node::KIND => self.delete_of::<Node>(&key),
            Deployment::KIND => self.delete_of::<Deployment>(&key),
            DaemonSet::KIND => self.delete_of::<DaemonSet>(&key),
            ReplicaSet::KIND => self.delete_of::<ReplicaSet>(&key),
            StatefulSet::KIND => self.delete_of::<StatefulSet>(&key),
            Service::KIND => self.delete_of::<Service>(&key),
            StoredPodTemplate::KIND => self.delete_of::<StoredPodTemplate>(&key),
            PodDisruptionBudget::KIND => self.delete_of::<PodDisruptionBudget>(&key),
            Ec2NodeClass::KIND => self.delete_of::<Ec2NodeClass>(&key),
            NodeOverlay::KIND => self.delete_of::<NodeOverlay>(&key),
            CapacityBuffer::KIND => self.delete_of::<CapacityBuffer>(&key),
            other => panic!("no suite deletes a {other}"),
        }
    }

    async fn change_claim(&self, name: &str, change: Value) {
        self.merge_into::<NodeClaim>(name, &change);
    }

    async fn change_status(&self, kind: &'static str, name: &str, status: Value) {
        let change = serde_json::json!({ "status": status });
        match kind {
            NodePool::KIND => self.merge_into::<NodePool>(name, &change),
            NodeClaim::KIND => self.merge_into::<NodeClaim>(name, &change),
            other => panic!("no suite changes the status of a {other}"),
        }
    }

    async fn events(&self, reason: &str) -> Vec<ClusterEvent> {
        let simulation = self.simulation.borrow();
        let world = simulation.world();
        world.cluster.events.iter().map(|kept| kept.event.clone()).filter(|event| event.reason == reason).collect()
    }

    async fn run_karpenter(&self, runs: bool) {
        let object = "lease/karpenter-leader-election in namespace kube-system".to_owned();
        let sign = KarpenterSign { object, renewed_at: Some(self.now()) };
        self.simulation.borrow().world().cluster.karpenter = if runs { vec![sign] } else { Vec::new() };
    }

    async fn pass(&self) {
        self.simulation.borrow_mut().run_for(SignedDuration::from_secs(1));
    }
}

/// Ports outside of any function never wait, so one poll runs a whole suite.
#[track_caller]
fn keeps(suite: impl Future<Output = ()>) {
    assert!(suite.now_or_never().is_some(), "the suite waits");
}

#[test]
fn the_simulated_cluster_is_read_as_a_real_one() {
    let (place, ports) = Place::new();
    keeps(contracts::cluster_reader(&place, &ports, "sim"));
    keeps(contracts::workload_reader(&place, &ports, "sim"));
}

#[test]
fn the_simulated_cluster_takes_mirrors_as_a_real_one() {
    let (place, ports) = Place::new();
    keeps(contracts::mirrors(&place, &ports, "sim"));
}

#[test]
fn the_simulated_cluster_patches_nodes_as_a_real_one() {
    let (place, ports) = Place::new();
    keeps(contracts::nodes(&place, &ports, "sim"));
}

#[test]
fn the_simulated_cluster_evicts_as_a_real_one() {
    let (place, ports) = Place::new();
    keeps(contracts::evictions(&place, &ports, "sim"));
}

#[test]
fn the_simulated_cluster_takes_events_and_statuses_as_a_real_one() {
    let (place, ports) = Place::new();
    keeps(contracts::events(&place, &ports, "sim"));
    keeps(contracts::pool_status(&place, &ports, "sim"));
    keeps(contracts::class_status(&place, &ports));
    keeps(contracts::plan_status(&place, &ports, "sim"));
}

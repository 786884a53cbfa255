//! Workloads in a cluster in which nobody launches machines.

use super::{apply, simulation};
use crate::Simulation;
use jiff::SignedDuration;
use std::collections::BTreeSet;
use whittle_api::k8s::{DaemonSet, Deployment, Pod};

/// A Node of four cores.
const NODE: &str = "apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {kubernetes.io/os: linux}}
spec: {providerID: aws:///us-east-1a/i-1}
status:
  allocatable: {cpu: 4, memory: 8Gi, pods: 110}
  conditions: [{type: Ready, status: \"True\"}]
";

fn workload(kind: &str, replicas: i32) -> String {
    let replicas = if kind == "Deployment" { format!("\n  replicas: {replicas}") } else { String::new() };
    format!(
        "apiVersion: apps/v1
kind: {kind}
metadata: {{name: web}}
spec:{replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: web}}]}}
"
    )
}

/// Four pods on a Node that nobody manages.
fn running(kind: &str) -> Simulation {
    let mut simulation = simulation(1);
    apply(&simulation, NODE);
    apply(&simulation, &workload(kind, 4));
    simulation.world().touch_cluster();
    simulation.run_for(SignedDuration::from_mins(1));
    let pods = if kind == "Deployment" { 4 } else { 1 };
    assert_eq!(pods_of(&simulation).len(), pods);
    simulation
}

/// Names of the pods that run and stay.
fn pods_of(simulation: &Simulation) -> BTreeSet<String> {
    let world = simulation.world();
    let runs = |pod: &&Pod| !pod.metadata.is_deleting() && pod.status.phase == "Running";
    world.cluster.objects.pods.values().filter(runs).map(|pod| pod.metadata.name.clone()).collect()
}

#[test]
fn a_rollout_ends_in_a_cluster_in_which_nothing_else_happens() {
    let mut simulation = running("Deployment");
    let before = pods_of(&simulation);
    simulation.world().cluster.objects.change::<Deployment>("default/web", |deployment| {
        deployment.spec.template.metadata.annotations.insert("restarted".to_owned(), "now".to_owned());
    });
    simulation.world().touch_cluster();
    for _ in 0..60 {
        simulation.run_for(SignedDuration::from_secs(1));
        assert!(pods_of(&simulation).len() >= 3, "at most a quarter is missing");
    }
    let after = pods_of(&simulation);
    assert_eq!((after.len(), after.intersection(&before).count()), (4, 0));
    assert_eq!(simulation.world().cluster.objects.pods.len(), 4, "no pod is left over");
}

#[test]
fn a_workload_that_is_applied_again_does_not_adopt_the_pods_of_the_deleted_one() {
    for kind in ["Deployment", "DaemonSet"] {
        let mut simulation = running(kind);
        let before = pods_of(&simulation);
        let now = simulation.world().now();
        match kind {
            "Deployment" => simulation.world().cluster.remove::<Deployment>("default/web", now).unwrap(),
            _ => simulation.world().cluster.remove::<DaemonSet>("default/web", now).unwrap(),
        }
        assert_eq!(pods_of(&simulation).len(), 0, "they end");
        apply(&simulation, &workload(kind, 4));
        simulation.world().touch_cluster();
        simulation.run_for(SignedDuration::from_mins(2));
        let after = pods_of(&simulation);
        assert_eq!((after.len(), after.intersection(&before).count()), (before.len(), 0), "{kind}");
    }
}

#[test]
fn a_workload_that_is_deleted_in_the_foreground_goes_after_its_last_pod() {
    let mut simulation = running("Deployment");
    let now = simulation.world().now();
    simulation.world().cluster.remove_in_foreground::<Deployment>("default/web", now).unwrap();
    simulation.world().touch_cluster();
    let is_there = |simulation: &Simulation| simulation.world().cluster.objects.deployments.contains_key("default/web");
    assert!(is_there(&simulation), "its pods have not ended");
    simulation.run_for(SignedDuration::from_mins(1));
    assert!(!is_there(&simulation));
    assert_eq!(simulation.world().cluster.objects.pods.len(), 0, "and no other pods were created");
}

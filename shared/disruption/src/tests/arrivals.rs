//! Pods that were bound to nodes after a command about them was decided.

use crate::testing::{Scene, noon, owner};
use crate::{Arrival, without_arrivals, without_nodes};
use whittle_api::k8s::Pod;
use whittle_api::{ConditionStatus, NillableDuration, conditions};
use whittle_model::disruption::{Command, Reason};

/// A command that deletes two empty nodes, or one that replaces two used ones.
fn command(pods: bool) -> (Scene, Command) {
    let mut scene = Scene::new();
    for node in ["n0", "n1"] {
        scene.node(node, "default", 2);
        if pods {
            scene.pod(&format!("on-{node}"), node, "100m");
        }
    }
    let command = scene.decide().commands[0].clone();
    (scene, command)
}

/// A new pod on a node.
fn pods_bound_since(node: &str, change: impl FnOnce(&mut Pod)) -> Vec<Pod> {
    let mut scene = Scene::new();
    change(scene.pod("new", node, "100m"));
    scene.objects.pods.to_vec()
}

fn nodes(command: Option<&Command>) -> Vec<&str> {
    command.iter().flat_map(|command| &command.removals).map(|removal| removal.node.as_str()).collect()
}

#[test]
fn an_empty_node_that_received_a_pod_is_kept_and_the_others_are_deleted() {
    let (_, command) = command(false);
    assert_eq!(nodes(Some(&command)), ["n0", "n1"]);
    let (left, arrivals) = without_arrivals(&command, &pods_bound_since("n0", |_| {}));
    assert_eq!(arrivals, [Arrival { node: "n0".to_owned(), pod: "default/new".to_owned() }]);
    assert_eq!(nodes(left.as_ref()), ["n1"]);
    assert_eq!(left.unwrap().savings.nanos() * 2, command.savings.nanos());
    let both: Vec<Pod> = [pods_bound_since("n0", |_| {}), pods_bound_since("n1", |_| {})].concat();
    let (left, arrivals) = without_arrivals(&command, &both);
    assert_eq!((left, arrivals.len()), (None, 2), "nothing is left to do");
}

#[test]
fn a_command_for_used_nodes_is_dropped_as_a_whole_when_a_pod_arrives() {
    let (scene, command) = command(true);
    assert!(command.removals.iter().any(|removal| !removal.pods.is_empty()), "{command}");
    let known = scene.objects.pods.clone();
    assert_eq!(without_arrivals(&command, &known), (Some(command.clone()), Vec::new()), "its own pods are no arrivals");
    let node = command.removals[0].node.clone();
    assert_eq!(without_arrivals(&command, &pods_bound_since(&node, |_| {})).0, None);
    assert_eq!(without_arrivals(&command, &pods_bound_since("elsewhere", |_| {})).0, Some(command));
}

#[test]
fn daemons_and_terminating_or_finished_pods_are_no_arrivals() {
    let (_, command) = command(false);
    for change in [
        (|pod: &mut Pod| pod.metadata.owner_references = vec![owner("apps/v1", "DaemonSet", "agent")].into()) as fn(&mut Pod),
        |pod| pod.metadata.deletion_timestamp = Some(noon()),
        |pod| "Succeeded".clone_into(&mut pod.status.phase),
    ] {
        assert_eq!(without_arrivals(&command, &pods_bound_since("n0", change)), (Some(command.clone()), Vec::new()));
    }
}

#[test]
fn only_a_command_for_empty_nodes_goes_on_without_some_of_them() {
    let (_, empty) = command(false);
    let left = without_nodes(&empty, &["n1"]).unwrap();
    assert_eq!((nodes(Some(&left)), left.savings.nanos() * 2), (vec!["n0"], empty.savings.nanos()));
    assert_eq!(without_nodes(&empty, &["n0", "n1"]), None);
    let (_, used) = command(true);
    assert_eq!(without_nodes(&used, &[used.removals[0].node.as_str()]), None);
}

#[test]
fn a_drifted_node_is_replaced_despite_arrivals() {
    let mut scene = Scene::new();
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never;
    scene.node("n0", "default", 2);
    scene.pod("on-n0", "n0", "100m");
    let claim = scene.parts("n0").1;
    conditions::set(&mut claim.status.conditions, conditions::DRIFTED, ConditionStatus::True, "AMIDrift", "AMIDrift", noon());
    let command = scene.decide().commands[0].clone();
    assert_eq!(command.method.reason(), Reason::Drifted);
    assert_eq!(without_arrivals(&command, &pods_bound_since("n0", |_| {})).0, Some(command));
}

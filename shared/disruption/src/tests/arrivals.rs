//! Pods that were bound to nodes, or protected there, after a command about them was decided.

use crate::testing::{Scene, noon, owner};
use crate::{Arrival, without_arrivals, without_nodes};
use whittle_api::k8s::Pod;
use whittle_api::{ConditionStatus, NillableDuration, conditions, labels};
use whittle_model::disruption::{Command, Reason};
use whittle_units::SignedDuration;

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
    let (left, arrivals) = without_arrivals(&command, &pods_bound_since("n0", |_| {}), noon());
    assert_eq!(arrivals, [Arrival { node: "n0".to_owned(), pod: "default/new".to_owned(), protected_by: None }]);
    assert_eq!(nodes(left.as_ref()), ["n1"]);
    assert_eq!(left.unwrap().savings.nanos() * 2, command.savings.nanos());
    let both: Vec<Pod> = [pods_bound_since("n0", |_| {}), pods_bound_since("n1", |_| {})].concat();
    let (left, arrivals) = without_arrivals(&command, &both, noon());
    assert_eq!((left, arrivals.len()), (None, 2), "nothing is left to do");
}

#[test]
fn a_command_for_used_nodes_is_dropped_as_a_whole_when_a_pod_arrives() {
    let (scene, command) = command(true);
    assert!(command.removals.iter().any(|removal| !removal.pods.is_empty()), "{command}");
    let known = scene.objects.pods.clone();
    assert_eq!(without_arrivals(&command, &known, noon()), (Some(command.clone()), Vec::new()), "its own pods are no arrivals");
    let node = command.removals[0].node.clone();
    assert_eq!(without_arrivals(&command, &pods_bound_since(&node, |_| {}), noon()).0, None);
    assert_eq!(without_arrivals(&command, &pods_bound_since("elsewhere", |_| {}), noon()).0, Some(command));
}

#[test]
fn daemons_and_terminating_or_finished_pods_are_no_arrivals() {
    let (_, command) = command(false);
    for change in [
        (|pod: &mut Pod| pod.metadata.owner_references = vec![owner("apps/v1", "DaemonSet", "agent")].into()) as fn(&mut Pod),
        |pod| pod.metadata.deletion_timestamp = Some(noon()),
        |pod| "Succeeded".clone_into(&mut pod.status.phase),
    ] {
        assert_eq!(without_arrivals(&command, &pods_bound_since("n0", change), noon()), (Some(command.clone()), Vec::new()));
    }
}

#[test]
fn a_node_is_kept_for_a_pod_that_is_protected_since_whether_it_is_new_or_not() {
    let protect = |pod: &mut Pod, value: &str| {
        pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), value.to_owned());
        pod.status.start_time = Some(noon());
    };
    let a_minute_later = noon().checked_add(SignedDuration::from_mins(1)).unwrap();
    let (scene, used) = command(true);
    let (node, known) = (used.removals[0].node.clone(), used.removals[0].pods[0].clone());
    for (value, is_kept) in [("true", true), ("1h", true), ("false", false), ("30s", false)] {
        let mut pods: Vec<Pod> = scene.objects.pods.to_vec();
        pods.iter_mut().filter(|pod| pod.spec.node_name == node).for_each(|pod| protect(pod, value));
        let (left, arrivals) = without_arrivals(&used, &pods, a_minute_later);
        assert_eq!(left, (!is_kept).then(|| used.clone()), "{value}");
        let told = format!("pod {known} has the annotation karpenter.sh/do-not-disrupt by now");
        assert_eq!(arrivals.iter().map(ToString::to_string).collect::<Vec<_>>(), if is_kept { vec![told] } else { Vec::new() }, "{value}");
    }
    let (_, empty) = command(false);
    let daemon = |value: &str| {
        pods_bound_since("n0", |pod| {
            pod.metadata.owner_references = vec![owner("apps/v1", "DaemonSet", "agent")].into();
            protect(pod, value);
        })
    };
    assert_eq!(nodes(without_arrivals(&empty, &daemon("true"), noon()).0.as_ref()), ["n1"], "daemons protect their node, too");
    assert_eq!(nodes(without_arrivals(&empty, &daemon("false"), noon()).0.as_ref()), ["n0", "n1"]);
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
    assert_eq!(without_arrivals(&command, &pods_bound_since("n0", |_| {}), noon()).0, Some(command));
}

//! More rules of bound pods than can be checked.

use super::{World, pod};
use serde_json::{Value, json};
use whittle_api::k8s::Pod;
use whittle_api::labels;

/// A bound pod that may not be on a host with pods that these selectors select.
fn repelling(name: &str, namespace: &str, selectors: &[Value]) -> Pod {
    let term = |selector: &Value| json!({"labelSelector": selector, "namespaceSelector": {}, "topologyKey": labels::HOSTNAME});
    let terms: Vec<Value> = selectors.iter().map(term).collect();
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let mut pod = pod(name, json!({"nodeName": "n1", "affinity": affinity}));
    pod["metadata"]["namespace"] = json!(namespace);
    serde_json::from_value(pod).unwrap()
}

/// Whether a plan is refused that puts a pod beside one of this namespace that repels it, where another pod has so many terms that look at
/// each of a thousand pods.
fn is_refused(namespace: &str, terms: usize) -> bool {
    let mut world = World::new();
    world.has_pods([pod("old-0", json!({"nodeName": "n1"})), pod("new-0", json!({}))]);
    let plan = world.plan();
    assert_eq!(plan.placements.iter().map(|placement| placement.node.as_str()).collect::<Vec<_>>(), ["n1"], "{plan:?}");
    // Each has a label of its own.
    world.objects.pods.extend((0..1000).map(|n| repelling(&format!("c{n}-0"), "odd", &[])));
    let exists = |n: usize| json!({"matchExpressions": [{"key": format!("k-{n}"), "operator": "Exists"}]});
    let selectors: Vec<Value> = (0..terms).map(exists).collect();
    world.objects.pods.push(repelling("odd-0", "odd", &selectors));
    world.objects.pods.push(repelling("guard-0", namespace, &[json!({"matchLabels": {"app": "new"}})]));
    world.read_nodes();
    world.violated_rules(&plan).contains(&"anti-affinity")
}

/// Whoever may create pods could take the time and the memory of every plan.
#[test]
fn rules_of_bound_pods_beyond_the_share_of_their_namespace_are_left_to_kube_scheduler() {
    assert!(is_refused("odd", 400));
    assert!(!is_refused("odd", 2500));
    assert!(is_refused("default", 2500), "whose namespace has few is not left alone");
}

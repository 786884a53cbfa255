//! Sets of nodes that fill one cheaper machine together, wherever they are in the order of savings ratios.

use crate::testing::{Scene, budget};
use whittle_api::karpenter::Requirement;
use whittle_api::labels;

/// Two full machines with a high savings ratio that cannot be removed, and three small ones whose pods fill a machine
/// of four cores. No two of the small ones do, and another machine costs as much as two of them.
fn fragmented() -> Scene {
    let mut scene = Scene::new().best();
    for (name, cpu, pod) in [("full-a", 8, "7800m"), ("full-b", 8, "7800m"), ("a", 2, "1200m"), ("b", 2, "1300m"), ("c", 2, "1400m")] {
        scene.node(name, "default", cpu);
        scene.pod(&format!("pod-{name}"), name, pod);
    }
    scene
}

#[test]
fn small_machines_that_fill_a_larger_one_are_replaced_together_despite_better_ratios() {
    let mut scene = fragmented();
    scene.expect(&["multi replace [a b c] -> x4"]);
    scene.settings.solve.packing = whittle_model::scheduling::Packing::Reference;
    scene.expect(&[]);
}

#[test]
fn a_set_is_no_larger_than_the_budgets_allow() {
    for (nodes, want) in [("2", [].as_slice()), ("3", &["multi replace [a b c] -> x4"])] {
        let mut scene = fragmented();
        scene.the_pool("default").spec.disruption.budgets = vec![budget(nodes)];
        scene.expect(want);
    }
}

#[test]
fn blocked_nodes_are_in_no_set() {
    let mut scene = fragmented();
    scene.objects.pods.last_mut().unwrap().metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    scene.expect(&[]);
    let mut scene = fragmented();
    scene.parts("b").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    scene.expect(&[]);
}

#[test]
fn a_set_is_never_replaced_by_a_type_that_its_pool_forbids() {
    let mut scene = fragmented();
    let small = Requirement::is_in(labels::INSTANCE_TYPE, ["x1", "x2", "x8"]);
    scene.the_pool("default").spec.template.spec.requirements.push(small);
    scene.expect(&[]);
}

#[test]
fn nodes_of_two_pools_with_different_pods_do_not_share_a_machine() {
    let mut scene = fragmented();
    scene.pool("other");
    scene.parts("c").0.metadata.labels.insert(labels::NODE_POOL.to_owned(), "other".to_owned());
    let pod = scene.objects.pods.last_mut().unwrap();
    pod.spec.node_selector.insert(labels::NODE_POOL.to_owned(), "other".to_owned());
    scene.expect(&[]);
}

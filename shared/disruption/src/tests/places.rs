//! Whether the pods of nodes that are about to go have places.

use crate::testing::Scene;
use crate::without_place;
use std::collections::BTreeSet;
use whittle_api::k8s::{Taint, TaintEffect};
use whittle_api::labels;
use whittle_model::disruption::Input;
use whittle_model::scheduling;

/// A node that is to go with a pod of two cores, and `new` with four cores.
fn replaced() -> Scene {
    let mut scene = Scene::new();
    scene.node("old", "default", 4);
    scene.pod("web", "old", "2");
    scene.node("new", "default", 4);
    scene
}

/// The pods of `nodes` without a place when `going` go.
fn found(scene: &Scene, nodes: &[&str], going: &[&str]) -> Vec<String> {
    let nodes: BTreeSet<&str> = nodes.iter().copied().collect();
    let going: BTreeSet<&str> = going.iter().copied().collect();
    scene.with(|input| without_place(input, &nodes, &going, &BTreeSet::new()))
}

/// The same where only `old` goes, by either packing.
#[track_caller]
fn check(scene: Scene, want: &[&str]) {
    assert_eq!(found(&scene, &["old"], &["old"]), want, "Karpenter's packing");
    assert_eq!(found(&scene.best(), &["old"], &["old"]), want, "the best packing");
}

#[test]
fn a_pod_has_a_place_while_a_node_has_room_for_it() {
    check(replaced(), &[]);
    let mut shared = replaced();
    shared.pod("other", "new", "2");
    check(shared, &[]);
    let mut empty = replaced();
    empty.objects.pods.clear();
    check(empty, &[]);
}

#[test]
fn a_pod_whose_room_others_have_taken_has_no_place_though_a_machine_could_be_launched() {
    let mut taken = replaced();
    taken.pod("other", "new", "3");
    check(taken, &["default/web"]);
    let mut sold_out = replaced();
    sold_out.pod("other", "new", "3");
    sold_out.catalog.clear();
    check(sold_out, &["default/web"]);
    let mut elsewhere = replaced();
    elsewhere.pod("other", "new", "3");
    elsewhere.node("third", "default", 2);
    check(elsewhere, &[]);
}

#[test]
fn a_node_that_takes_no_pods_is_no_place() {
    let mut cordoned = replaced();
    cordoned.parts("new").0.spec.unschedulable = true;
    check(cordoned, &["default/web"]);
    let mut tainted = replaced();
    tainted.parts("new").0.spec.taints.push(Taint::new("team", TaintEffect::NoSchedule));
    check(tainted, &["default/web"]);
    let mut deleted = replaced();
    deleted.marks.insert("new".to_owned(), (true, None));
    check(deleted, &["default/web"]);
    let mut starting = replaced();
    starting.parts("new").0.metadata.labels.remove(labels::INITIALIZED);
    check(starting, &["default/web"]);
}

/// Another command that was begun in the same moment has it marked while it launches: its own pods could wait for a machine, as if it went.
#[test]
fn a_starting_node_is_no_place_for_pods_of_a_node_that_is_marked_already() {
    let mut starting = replaced();
    starting.parts("new").0.metadata.labels.remove(labels::INITIALIZED);
    starting.marks.insert("old".to_owned(), (true, None));
    check(starting, &["default/web"]);
    let mut ready = replaced();
    ready.marks.insert("old".to_owned(), (true, None));
    check(ready, &[]);
}

/// Kube-scheduler binds them before the first pod is evicted.
#[test]
fn pending_pods_take_their_room_first() {
    let mut scene = replaced();
    scene.pod("waits", "", "3");
    check(scene, &["default/web"]);
    let mut scene = replaced();
    scene.pod("waits", "", "1");
    check(scene, &[]);
}

/// They exist only in plans.
#[test]
fn placeholder_pods_of_buffers_take_no_room() {
    let mut scene = replaced();
    scene.pod("placeholder", "", "3");
    let placeholders = vec![scene.objects.pods.pop().unwrap()];
    let old = BTreeSet::from(["old"]);
    for scene in [scene.best(), replaced()] {
        let found = scene.with(|input| {
            let cluster = scheduling::Input { virtual_pods: &placeholders, ..input.cluster };
            without_place(Input { cluster, ..input }, &old, &old, &BTreeSet::new())
        });
        assert_eq!(found, [] as [&str; 0]);
    }
}

#[test]
fn only_pods_that_move_need_a_place() {
    let mut scene = replaced();
    scene.pod("other", "new", "3");
    scene.objects.pods[0].metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    check(scene, &[]);
    let mut scene = replaced();
    scene.pod("waits", "", "16");
    check(scene, &[]);
}

/// Two commands may count on one node.
#[test]
fn the_pods_of_all_nodes_that_go_need_places_at_once() {
    let mut scene = replaced();
    scene.node("too", "default", 4);
    scene.pod("large", "too", "3");
    assert_eq!(found(&scene, &["old"], &["old"]), [] as [&str; 0]);
    assert_eq!(found(&scene, &["too"], &["old", "too"]), [] as [&str; 0], "it is the larger one");
    assert_eq!(found(&scene, &["old"], &["old", "too"]), ["default/web"]);
    assert_eq!(found(&scene, &[], &["old", "too"]), [] as [&str; 0]);
}

/// Their own places are just starting. Larger ones would take the room of each replacement that is ready, which would be made in vain.
#[test]
fn pods_of_nodes_whose_replacements_are_starting_take_no_room() {
    let mut scene = replaced();
    let (node, _) = scene.node("too", "default", 8);
    node.spec.taints.push(Taint::disrupted());
    scene.pod("large", "too", "3");
    scene.marks.insert("too".to_owned(), (true, None));
    let check = |scene: &Scene, staying: &[&str], want: &[&str]| {
        let (old, staying) = (BTreeSet::from(["old"]), staying.iter().copied().collect());
        assert_eq!(scene.with(|input| without_place(input, &old, &old, &staying)), want);
    };
    check(&scene, &[], &["default/web"]);
    check(&scene, &["too"], &[]);
    scene.pod("other", "new", "3");
    check(&scene, &["too"], &["default/web"]);
}

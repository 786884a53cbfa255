//! What the consolidation policies of pools allow, for one node and for several.

use crate::testing::{Scene, instance_type, reason_of};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::IntOrString;
use whittle_api::karpenter::{Budget, ConsolidationPolicy, Requirement};
use whittle_api::labels;

const APPROVED: &str = "ConsolidationApproved";

fn balanced(nodes: &[(&str, i64, &str)]) -> Scene {
    let mut scene = Scene::new();
    scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
    for (node, cpu, pod) in nodes {
        scene.node(node, "default", *cpu);
        scene.pod(&format!("pod-{node}"), node, pod);
    }
    scene
}

fn offer_types(scene: &mut Scene, pool: &str, cpus: &[i64]) {
    let types: Vec<InstanceType> = cpus.iter().map(|cpu| instance_type(*cpu)).collect();
    scene.catalog.insert(pool.to_owned(), Arc::new(types.into()));
}

/// The approval events, by object.
fn approvals(scene: &Scene) -> Vec<(String, String)> {
    let published = scene.decide().events.into_iter().filter(|event| event.reason == APPROVED);
    published.map(|event| (event.object, event.message)).collect()
}

#[test]
fn a_replacement_is_scored_by_the_price_of_allowed_offerings() {
    // Six cores on demand save a quarter of the pool; on spot, which the pool does not allow, three quarters.
    let mut scene = balanced(&[("n", 8, "5")]);
    offer_types(&mut scene, "default", &[6, 8]);
    scene.expect(&[]);
    scene.expect_reason("n", "PoorScore");
    assert_eq!(approvals(&scene), []);
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot"])];
    scene.expect(&["single replace [n] -> x6|x8"]);
}

#[test]
fn the_only_node_of_a_pool_may_be_deleted() {
    let mut scene = balanced(&[("n", 8, "1")]);
    let (node, _) = scene.node("foreign", "default", 4);
    node.metadata.labels.retain(|key, _| key == labels::HOSTNAME || key == labels::ZONE);
    scene.objects.node_claims.pop();
    scene.expect(&["single delete [n]"]);
    let message = "score 1.00 >= threshold 0.50 (k: 2, savings 100.0%, disruption 100.0%)";
    let published = ["node/n", "nodeclaim/claim-n"].map(|object| (object.to_owned(), message.to_owned()));
    assert_eq!(approvals(&scene), published);
}

#[test]
fn several_used_nodes_are_removed_together_and_their_pool_gets_an_event() {
    let mut scene = balanced(&[("a", 4, "1500m"), ("b", 4, "1500m"), ("c", 4, "900m")]);
    scene.expect(&["multi delete [a b]"]);
    let message = "score 1.00 >= threshold 0.50 (k: 2, savings 66.7%, disruption 66.7%)";
    assert_eq!(approvals(&scene), [("nodepool/default".to_owned(), message.to_owned())]);
    // Without scores there are no events.
    scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    scene.expect(&["multi delete [a b]"]);
    assert_eq!(approvals(&scene), []);
}

#[test]
fn a_balanced_pool_does_not_block_other_pools() {
    let mut scene = balanced(&[("weighed", 8, "5")]);
    offer_types(&mut scene, "default", &[6, 8]);
    scene.expect(&[]);
    scene.pool("plain");
    offer_types(&mut scene, "plain", &[6, 8]);
    scene.node("plain", "plain", 8);
    scene.pod("pod-plain", "plain", "5");
    scene.expect(&["single replace [plain] -> x6"]);
    assert_eq!(reason_of(&scene.best().decide(), "weighed").code(), "PoorScore");
}

#[test]
fn the_highest_price_per_disruption_comes_first_under_every_policy() {
    for policy in [ConsolidationPolicy::WhenEmptyOrUnderutilized, ConsolidationPolicy::Balanced] {
        let mut scene = balanced(&[("many", 4, "100m"), ("few", 4, "100m"), ("cheap", 2, "100m")]);
        scene.pod("second", "many", "100m");
        let disruption = &mut scene.the_pool("default").spec.disruption;
        disruption.consolidation_policy = policy;
        disruption.budgets = vec![Budget { nodes: IntOrString::Int(1), ..Budget::default() }];
        scene.expect(&["single delete [few]"]);
        // The more expensive of two with equal disruption.
        scene.objects.pods.retain(|pod| pod.metadata.name != "pod-few");
        let cost = ("controller.kubernetes.io/pod-deletion-cost".to_owned(), "1342177280".to_owned());
        scene.pod("pod-few", "few", "100m").metadata.annotations.extend([cost]);
        scene.expect(&["single delete [many]"]);
    }
}

#[test]
fn the_scores_of_commands_are_counted() {
    let scores = |scene: &Scene| -> Vec<(String, bool, Option<u64>)> {
        scene.decide().scores.into_iter().map(|one| (one.node_pool, one.approved, one.score)).collect()
    };
    let default = || "default".to_owned();
    // One node, rejected; then approved; then by a policy that does not score.
    let mut scene = balanced(&[("n", 8, "5")]);
    offer_types(&mut scene, "default", &[6, 8]);
    assert_eq!(scores(&scene), [(default(), false, Some(250))]);
    offer_types(&mut scene, "default", &[5, 6, 8]);
    scene.the_pool("default").spec.template.spec.requirements = vec![Requirement::is_in(labels::CAPACITY_TYPE, ["on-demand", "spot"])];
    assert_eq!(scores(&scene), [(default(), true, Some(800))]);
    scene.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    assert_eq!(scores(&scene), [(default(), true, None)]);
    // Several at once: the selected set, if any pool scores.
    let mut several = balanced(&[("a", 4, "1500m"), ("b", 4, "1500m"), ("c", 4, "900m")]);
    assert_eq!(scores(&several), [(default(), true, Some(1000))]);
    several.the_pool("default").spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    assert_eq!(scores(&several), []);
}

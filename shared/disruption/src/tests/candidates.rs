//! Which nodes may be disrupted at all.

use crate::testing::{Scene, noon, owner, reason_of};
use crate::{Blocker, VerdictReason};
use jiff::ToSpan as _;
use serde_json::json;
use whittle_api::k8s::{IntOrString, Kind, Pod, PodDisruptionBudget};
use whittle_api::{ConditionStatus, LabelSelector, NillableDuration, Unreadable, conditions, labels};
use whittle_model::disruption::ClaimFacts;

/// An empty node `n` that would be deleted, and a change that blocks it.
#[track_caller]
fn check(change: impl FnOnce(&mut Scene), want: &str) {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    change(&mut scene);
    let decision = scene.expect(&[]);
    assert_eq!(reason_of(&decision, "n").code(), want);
    scene.expect_reason("n", want);
}

#[test]
fn a_node_must_be_managed_initialized_and_neither_deleting_nor_nominated() {
    check(|scene| scene.objects.node_claims.clear(), "NotManaged");
    check(|scene| "other".clone_into(&mut scene.parts("n").1.spec.node_class_ref.kind), "NotManaged");
    check(|scene| drop(scene.parts("n").0.metadata.labels.remove(labels::INITIALIZED)), "NotInitialized");
    check(|scene| scene.parts("n").1.metadata.deletion_timestamp = Some(noon()), "Deleting");
    check(
        |scene| {
            scene.marks.insert("n".to_owned(), (true, None));
        },
        "Deleting",
    );
    check(
        |scene| {
            let claim = scene.parts("n").1;
            conditions::set(&mut claim.status.conditions, conditions::INSTANCE_TERMINATING, ConditionStatus::True, "", "", noon());
        },
        "Deleting",
    );
    check(
        |scene| {
            scene.marks.insert("n".to_owned(), (false, Some(noon() + 1.second())));
        },
        "Nominated",
    );
    check(
        |scene| {
            scene.facts.insert("claim-n".to_owned(), ClaimFacts { in_command: true, ..ClaimFacts::default() });
        },
        "InCommand",
    );
}

#[test]
fn a_node_whose_taint_was_refused_waits_and_the_next_one_has_its_turn() {
    let refused = || ClaimFacts { taint_refused: Some("a policy denied the request".to_owned()), ..ClaimFacts::default() };
    check(|scene| drop(scene.facts.insert("claim-n".to_owned(), refused())), "TaintRefused");
    let mut scene = Scene::new();
    for node in ["n0", "n1"] {
        scene.node(node, "default", 2);
        let claim = scene.parts(node).1;
        conditions::set(&mut claim.status.conditions, conditions::DRIFTED, ConditionStatus::True, "AMIDrift", "AMIDrift", noon());
    }
    scene.the_pool("default").spec.disruption.consolidate_after = NillableDuration::Never;
    scene.expect(&["drift delete [n0]"]);
    scene.facts.insert("claim-n0".to_owned(), refused());
    let decision = scene.expect(&["drift delete [n1]"]);
    let why = "kept: the API server refuses its taint karpenter.sh/disrupted: a policy denied the request";
    assert_eq!(reason_of(&decision, "n0").to_string(), why);
}

#[test]
fn a_nomination_expires() {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    scene.marks.insert("n".to_owned(), (false, Some(noon())));
    scene.expect(&["empty delete [n]"]);
}

#[test]
fn a_node_must_have_a_pool_with_instance_types() {
    check(|scene| drop(scene.parts("n").0.metadata.labels.remove(labels::NODE_POOL)), "NoNodePoolLabel");
    check(|scene| scene.objects.node_pools.clear(), "NodePoolUnknown");
    check(|scene| scene.catalog.clear(), "NodePoolUnknown");
}

#[test]
fn a_pool_without_instance_types_is_not_said_to_be_gone() {
    let why = |change: fn(&mut Scene)| {
        let mut scene = Scene::new();
        scene.node("n", "default", 2);
        change(&mut scene);
        reason_of(&scene.expect(&[]), "n").to_string()
    };
    assert_eq!(why(|scene| scene.objects.node_pools.clear()), "kept: NodePool default does not exist, or cannot be read");
    let empty = "kept: NodePool default has no instance types: its node class may not be ready, see its conditions";
    assert_eq!(why(|scene| scene.catalog.clear()), empty);
    let unready = |scene: &mut Scene| {
        scene.catalog.clear();
        let condition = json!({"type": "NodeClassReady", "status": "False", "reason": "SubnetsNotFound", "message": "no subnet"});
        scene.objects.node_pools[0].status.conditions = vec![serde_json::from_value(condition).unwrap()];
    };
    assert_eq!(
        why(unready),
        "kept: NodePool default has no instance types: EC2NodeClass \"default\" is not ready: SubnetsNotFound: no subnet"
    );
}

/// An unreadable object on node `n`.
fn add_unreadable<K: Kind>(scene: &mut Scene, provider_id: &str) {
    let (meta, node_name) = (whittle_api::ObjectMeta::namespaced("default", "odd"), "n".to_owned());
    let unreadable = Unreadable::refused(K::API_VERSION, K::KIND, meta, "spec", "a newer version wrote it");
    scene.objects.unreadable.push(Unreadable { node_name, provider_id: provider_id.to_owned(), ..unreadable });
}

#[test]
fn a_node_with_an_unreadable_pod_is_neither_empty_nor_disrupted() {
    check(|scene| add_unreadable::<Pod>(scene, ""), "Unreadable");
    let mut elsewhere = Scene::new();
    elsewhere.node("n", "default", 2);
    add_unreadable::<Pod>(&mut elsewhere, "");
    elsewhere.objects.unreadable[0].node_name = "other".to_owned();
    elsewhere.expect(&["empty delete [n]"]);
}

#[test]
fn nothing_is_disrupted_while_overlays_or_daemon_sets_are_unreadable() {
    check(add_unreadable_anywhere::<whittle_api::karpenter::NodeOverlay>, "Unreadable");
    check(add_unreadable_anywhere::<whittle_api::k8s::DaemonSet>, "Unreadable");
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    add_unreadable_anywhere::<whittle_api::k8s::PersistentVolume>(&mut scene);
    scene.expect(&["empty delete [n]"]);
}

/// Whoever may create objects in one namespace can create one that cannot be read: its limits may have `1e1.5`, which the pattern of its
/// definition allows.
#[test]
fn a_buffer_that_cannot_be_read_is_the_matter_of_its_owner_alone() {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    add_unreadable_anywhere::<whittle_api::karpenter::CapacityBuffer>(&mut scene);
    scene.expect(&["empty delete [n]"]);
}

fn add_unreadable_anywhere<K: Kind>(scene: &mut Scene) {
    add_unreadable::<K>(scene, "");
    scene.objects.unreadable[0].node_name.clear();
}

#[test]
fn a_machine_with_an_unreadable_node_keeps_its_pods_and_is_not_disrupted() {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    scene.pod("p", "n", "100m");
    let id = scene.parts("n").1.status.provider_id.clone();
    scene.objects.nodes.clear();
    add_unreadable::<whittle_api::k8s::Node>(&mut scene, &id);
    scene.objects.unreadable[0].metadata.name = "n".to_owned();
    let state = whittle_model::state::ClusterState::of(&scene.objects);
    let [machine] = state.nodes.as_slice() else { panic!("one machine") };
    assert_eq!((machine.pods.len(), machine.unreadable.is_some(), machine.node.is_none()), (1, true, true));
    scene.expect(&[]);
}

#[test]
fn only_true_protects_a_node() {
    for key in [labels::DO_NOT_DISRUPT, labels::DO_NOT_CONSOLIDATE, labels::DO_NOT_EVICT] {
        let annotate = |scene: &mut Scene, value: &str| {
            scene.parts("n").0.metadata.annotations.insert(key.to_owned(), value.to_owned());
        };
        check(|scene| annotate(scene, "true"), "NodeAnnotation");
        let mut scene = Scene::new();
        scene.node("n", "default", 2);
        annotate(&mut scene, "false");
        scene.expect(&["empty delete [n]"]);
        annotate(&mut scene, "1h");
        scene.expect(&["empty delete [n]"]);
    }
}

/// The Node got the annotations of its NodeClaim when it registered: since then its own ones count, and can be removed.
#[test]
fn a_nodeclaims_annotation_protects_a_node_only_until_it_registers() {
    let annotate_claim = |scene: &mut Scene| {
        scene.parts("n").1.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    };
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    annotate_claim(&mut scene);
    scene.expect(&["empty delete [n]"]);
    let unregister = |scene: &mut Scene| drop(scene.parts("n").0.metadata.labels.remove(labels::REGISTERED));
    check(
        |scene| {
            annotate_claim(scene);
            unregister(scene);
        },
        "NodeAnnotation",
    );
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    unregister(&mut scene);
    scene.parts("n").0.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    assert_ne!(reason_of(&scene.decide(), "n").code(), "NodeAnnotation", "its own ones do not count yet");
}

fn protect(scene: &mut Scene, kind: &str, value: &str) {
    let pod = scene.pod("p", "n", "100m");
    pod.metadata.owner_references = vec![if kind == "Node" { owner("v1", "Node", "n") } else { owner("apps/v1", kind, "o") }].into();
    pod.metadata.annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), value.to_owned());
    pod.status.start_time = Some(noon() - 30.minutes());
}

#[test]
fn a_protected_pod_keeps_its_node_whatever_owns_it() {
    for kind in ["DaemonSet", "Node", "ReplicaSet"] {
        check(|scene| protect(scene, kind, "true"), "PodAnnotation");
        check(|scene| protect(scene, kind, "31m"), "PodAnnotation");
    }
}

#[test]
fn the_end_of_a_pods_protection_is_an_event() {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    protect(&mut scene, "ReplicaSet", "45m");
    let decision = scene.expect(&[]);
    let published = decision.events.iter().find(|event| event.reason == "DoNotDisruptUntil").unwrap();
    assert_eq!((published.object.as_str(), published.warning), ("pod/default/p", false));
    assert!(published.message.ends_with("until 2026-01-01T12:15:00Z"), "{}", published.message);
    assert_eq!(reason_of(&decision, "n").code(), "PodAnnotation");
}

#[test]
fn protection_ends_with_its_duration_or_its_pod() {
    let free = |change: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::new();
        scene.node("n", "default", 2);
        change(&mut scene);
        scene.expect(&["empty delete [n]"])
    };
    let decision = free(&|scene| protect(scene, "DaemonSet", "30m"));
    assert!(decision.events.iter().any(|event| event.reason == "DoNotDisruptGracePeriodElapsed" && event.object == "pod/default/p"));
    for value in ["soon", "0s", "-1h", "false"] {
        let decision = free(&|scene| protect(scene, "DaemonSet", value));
        let published: Vec<_> = decision.events.iter().filter(|event| event.object == "pod/default/p").collect();
        assert!(matches!(published[..], [one] if one.warning && one.reason == "InvalidDoNotDisruptAnnotation"), "{value}: {published:?}");
    }
    free(&|scene| {
        protect(scene, "ReplicaSet", "true");
        scene.objects.pods[0].metadata.deletion_timestamp = Some(noon());
    });
    free(&|scene| {
        protect(scene, "ReplicaSet", "true");
        "Succeeded".clone_into(&mut scene.objects.pods[0].status.phase);
    });
}

fn budget(scene: &mut Scene, name: &str, allowed: i32) {
    let mut budget = PodDisruptionBudget::default();
    budget.metadata.namespace = "default".to_owned();
    budget.metadata.name = name.to_owned();
    budget.spec.selector = Some(LabelSelector::default());
    budget.status.disruptions_allowed = allowed;
    scene.objects.disruption_budgets.push(budget);
}

#[test]
fn an_exhausted_disruption_budget_of_a_pod_keeps_its_node() {
    for kind in ["DaemonSet", "ReplicaSet"] {
        check(
            |scene| {
                protect(scene, kind, "30m");
                budget(scene, "web", 0);
            },
            "PodDisruptionBudget",
        );
    }
    check(
        |scene| {
            protect(scene, "DaemonSet", "30m");
            budget(scene, "a", 1);
            budget(scene, "b", 1);
        },
        "PodDisruptionBudget",
    );
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    protect(&mut scene, "Node", "30m");
    budget(&mut scene, "web", 0);
    scene.expect(&["empty delete [n]"]);
}

/// The pods of such a budget are not moved, so that a node with nothing else would seem to be free.
#[test]
fn a_budget_that_was_tightened_a_moment_ago_keeps_the_nodes_of_its_pods() {
    let scene = |most: i64, observed: i64| {
        let mut scene = Scene::new();
        scene.node("n", "default", 4);
        scene.pod("a", "n", "1");
        budget(&mut scene, "web", 1);
        let budget = &mut scene.objects.disruption_budgets[0];
        budget.spec.max_unavailable = Some(IntOrString::Int(most));
        (budget.metadata.generation, budget.status.observed_generation) = (Some(2), observed);
        scene
    };
    for (most, observed) in [(0, 1), (0, 2), (1, 1)] {
        let scene = scene(most, observed);
        scene.expect(&[]);
        scene.expect_reason("n", "PodDisruptionBudget");
    }
    scene(1, 2).expect(&["single replace [n] -> x1|x2"]);
}

#[test]
fn one_pod_that_must_not_be_evicted_keeps_its_node() {
    check(
        |scene| {
            for name in ["a", "b", "c"] {
                scene.pod(name, "n", "100m").metadata.labels.insert("name".to_owned(), name.to_owned());
            }
            budget(scene, "only-b", 0);
            let only = [("name".to_owned(), "b".to_owned())].into();
            scene.objects.disruption_budgets[0].spec.selector = Some(LabelSelector { match_labels: only, ..LabelSelector::default() });
        },
        "PodDisruptionBudget",
    );
}

#[test]
fn labels_that_only_consolidation_needs_block_neither_emptiness_nor_drift() {
    for missing in [labels::CAPACITY_TYPE, labels::ZONE, labels::INSTANCE_TYPE, "none"] {
        let strange = || {
            let mut scene = Scene::new();
            scene.node("n", "default", 2).0.metadata.labels.remove(missing);
            if missing == "none" {
                scene.parts("n").0.metadata.labels.insert(labels::INSTANCE_TYPE.to_owned(), "unheard-of".to_owned());
            }
            scene
        };
        let decision = strange().expect(&["empty delete [n]"]);
        let priced = if missing == "none" { 0 } else { decision.commands[0].savings.nanos() };
        assert_eq!(priced, 0, "{missing}: its price is not known");
        let mut drifted = strange();
        drifted.pod("p", "n", "1500m");
        drifted.expect(&[]);
        let claim = drifted.parts("n").1;
        conditions::set(&mut claim.status.conditions, conditions::DRIFTED, ConditionStatus::True, "AMIDrift", "AMIDrift", noon());
        drifted.expect(&["drift replace [n] -> x2|x4|x8|x16"]);
    }
}

#[test]
fn a_blocked_node_and_its_claim_get_an_event() {
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    protect(&mut scene, "DaemonSet", "true");
    let decision = scene.decide();
    let published: Vec<&str> =
        decision.events.iter().filter(|event| event.reason == "DisruptionBlocked").map(|event| event.object.as_str()).collect();
    assert_eq!(published, ["node/n", "nodeclaim/claim-n"]);
    assert!(matches!(reason_of(&decision, "n"), VerdictReason::Blocked(Blocker::PodAnnotation { .. })));
    let texts: Vec<&str> =
        decision.events.iter().filter(|event| event.reason == "DisruptionBlocked").map(|event| event.message.as_str()).collect();
    assert_eq!(texts, ["Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/p)"; 2]);
    assert_eq!(reason_of(&decision, "n").to_string(), "kept: annotation karpenter.sh/do-not-disrupt of pod default/p protects it");
}

#[test]
fn a_node_in_a_shifted_zone_is_kept() {
    let in_zone = |zone: &'static str, shifted: &'static str| {
        move |scene: &mut Scene| {
            scene.parts("n").0.metadata.labels.insert(labels::ZONE.to_owned(), zone.to_owned());
            scene.settings.shifted_zones.insert(shifted.to_owned());
        }
    };
    check(in_zone("zone-1", "zone-1"), "ZonalShift");
    let mut scene = Scene::new();
    scene.node("n", "default", 2);
    let before = scene.decide().commands;
    in_zone("zone-1", "zone-2")(&mut scene);
    assert_eq!(scene.decide().commands.len(), before.len(), "a shift of another zone changes nothing");
    assert_eq!(before.len(), 1);
}

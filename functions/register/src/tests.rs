mod deletions;
mod devices;
mod given_up;
mod over_sim;
mod refused;
mod requests;
mod silence;
mod too_small;

use crate::decide::{lacks_unregistered_taint, not_initialized, registered, registration};
use crate::index::Index;
use whittle_api::k8s::{Node, Taint, TaintEffect};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, Condition, ConditionStatus, ObjectMeta, OwnerReference, labels};
use whittle_claims::{Claim, ClaimSpec, Event, Machine};
use whittle_testkit::{after, at, machine, planned};
use whittle_units::{ProviderId, Quantity, Resources, Timestamp};

fn now() -> Timestamp {
    at(0)
}

fn claim() -> Claim {
    let spec = ClaimSpec {
        node_pool: "default".into(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        taints: vec![Taint { value: "gpu".into(), ..Taint::new("dedicated", TaintEffect::NoSchedule) }],
        startup_taints: vec![Taint::new("cni", TaintEffect::NoExecute)],
        requests: Resources::from([("cpu", Quantity::from_units(1)), ("gpu", Quantity::from_units(1)), ("none", Quantity::ZERO)]),
        ..ClaimSpec::default()
    };
    let labels = [(labels::INSTANCE_TYPE.to_owned(), "m5.large".to_owned())].into();
    after(&planned("default-1", spec), &[Event::FleetAnswered(Machine { labels, ..machine("i-1") })], now())
}

fn node() -> Node {
    let mut node = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    node.spec.provider_id = "aws:///z/i-1".into();
    node.spec.taints = vec![Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute)];
    node
}

fn ready(mut node: Node) -> Node {
    node.spec.taints.clear();
    node.status.conditions = vec![Condition { type_: "Ready".into(), status: ConditionStatus::True, ..Condition::default() }];
    node.status.allocatable = Resources::from([("cpu", Quantity::from_units(2)), ("gpu", Quantity::from_units(1))]);
    node
}

#[test]
fn nodes_are_matched_by_provider_id_alone() {
    let other = Node { metadata: ObjectMeta::named("n"), ..Node::default() };
    let twin = Node { metadata: ObjectMeta::named("a"), ..node() };
    let objects = ClusterObjects { nodes: vec![other, node(), twin, Node::default()], ..ClusterObjects::default() };
    let names_of = |claim: &Claim| {
        let index = Index::of(&objects);
        index.nodes_of(claim).iter().map(|node| node.metadata.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names_of(&claim()), ["n", "a"], "in the order of the list");
    let planned = Claim::planned(claim().key, "uid".into(), ClaimSpec::default(), now());
    assert!(names_of(&planned).is_empty(), "it has no machine");
    let nowhere = Machine { provider_id: ProviderId::default(), ..machine("i-1") };
    assert!(names_of(&after(&planned, &[Event::FleetAnswered(nowhere)], now())).is_empty(), "an empty provider id matches nothing");
}

#[test]
fn the_nodeclaim_of_a_claim_is_found_by_name_and_a_standalone_one_by_its_uid() {
    let named = |name: &str, uid: &str| {
        let metadata = ObjectMeta { uid: uid.into(), ..ObjectMeta::named(name) };
        NodeClaim { metadata, ..NodeClaim::default() }
    };
    let mut owned = node();
    owned.metadata.owner_references.push(OwnerReference { uid: "first".into(), ..OwnerReference::default() });
    let node_claims = vec![named("another", "another"), named("default-1", "first"), named("default-1", "second")];
    let objects = ClusterObjects { nodes: vec![owned], node_claims, ..ClusterObjects::default() };
    let index = Index::of(&objects);
    let uid_of = |standalone_uid: Option<&str>, name: &str| {
        let mut own = claim();
        (own.key.name, own.spec.standalone_uid) = (name.into(), standalone_uid.map(str::to_owned));
        index.mirror_of(&own).map(|mirror| mirror.metadata.uid.as_str())
    };
    assert_eq!(uid_of(None, "default-1"), Some("first"));
    assert_eq!(uid_of(Some("second"), "default-1"), Some("second"));
    assert_eq!((uid_of(Some("third"), "default-1"), uid_of(None, "default-2")), (None, None));
    assert!(index.owns_node("first") && !index.owns_node("second"));
}

#[test]
fn registration_syncs_everything_at_once() {
    let patch = registration(&claim(), &node(), Some("real-uid")).unwrap();
    assert_eq!(patch.labels["team"], "a");
    assert_eq!(patch.labels[labels::INSTANCE_TYPE], "m5.large");
    assert_eq!(patch.labels[labels::NODE_POOL], "default");
    assert_eq!(patch.labels[labels::REGISTERED], "true");
    assert_eq!(patch.add_taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["dedicated=gpu:NoSchedule", "cni:NoExecute"]);
    assert_eq!(patch.remove_taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["karpenter.sh/unregistered:NoExecute"]);
    assert_eq!(patch.add_finalizer.as_deref(), Some(labels::TERMINATION_FINALIZER));
    let owner = patch.owner.unwrap();
    assert_eq!((owner.uid.as_str(), owner.kind.as_str(), owner.block_owner_deletion), ("real-uid", "NodeClaim", Some(true)));
}

#[test]
fn the_claim_wins_over_labels_and_annotations_of_its_node_and_others_stay() {
    let mut claim = claim();
    claim.spec.annotations = [("note".to_owned(), "claim".to_owned())].into();
    let mut node = node();
    for (key, value) in [("team", "b"), ("theirs", "x")] {
        node.metadata.labels.insert(key.to_owned(), value.to_owned());
    }
    for (key, value) in [("note", "node"), ("theirs", "x")] {
        node.metadata.annotations.insert(key.to_owned(), value.to_owned());
    }
    let patch = registration(&claim, &node, None).unwrap();
    assert_eq!((patch.labels["team"].as_str(), patch.annotations["note"].as_str()), ("a", "claim"));
    assert!(!patch.labels.contains_key("theirs") && !patch.annotations.contains_key("theirs"));
    assert!(patch.remove_labels.is_empty() && patch.remove_annotations.is_empty());
}

#[test]
fn without_a_mirror_no_owner_is_set() {
    // A Node whose owner does not exist is collected by Kubernetes.
    assert_eq!(registration(&claim(), &node(), None).unwrap().owner, None);
}

#[test]
fn an_up_to_date_node_is_not_patched() {
    let patch = registration(&claim(), &node(), Some("real-uid")).unwrap();
    let mut synced = node();
    synced.metadata.labels.extend(patch.labels);
    synced.metadata.annotations.extend(patch.annotations);
    synced.metadata.finalizers.extend(patch.add_finalizer);
    synced.metadata.owner_references.extend(patch.owner);
    synced.spec.taints = patch.add_taints;
    assert_eq!(registration(&claim(), &synced, Some("real-uid")), None);
}

#[test]
fn a_taint_with_the_same_key_and_effect_is_kept() {
    let mut node = node();
    node.spec.taints.push(Taint { value: "mine".into(), ..Taint::new("dedicated", TaintEffect::NoSchedule) });
    let patch = registration(&claim(), &node, None).unwrap();
    assert_eq!(patch.add_taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["cni:NoExecute"]);
}

#[test]
fn taints_are_added_with_the_label_and_never_after_it() {
    let patch = registration(&claim(), &node(), None).unwrap();
    let mut synced = node();
    synced.metadata.labels.extend(patch.labels);
    synced.metadata.annotations.extend(patch.annotations);
    synced.metadata.finalizers.extend(patch.add_finalizer);
    synced.spec.taints.clear();
    assert_eq!(registration(&claim(), &synced, None), None, "whoever they waited for has removed them");
    assert!(registered(&claim(), &synced).spec.taints.is_empty(), "and initialization does not wait for them");
    // A kubelet that sets the label itself has not been registered by it.
    synced.spec.taints = node().spec.taints;
    assert_eq!(registration(&claim(), &synced, None).unwrap().add_taints.len(), 2);
    synced.spec.taints.clear();
    synced.metadata.labels.remove(labels::REGISTERED);
    assert_eq!(registration(&claim(), &synced, None).unwrap().add_taints.len(), 2, "one that joined without the taint");
}

#[track_caller]
fn check_sync(label: &str, added: usize) {
    let mut node = node();
    node.metadata.labels.insert(labels::DO_NOT_SYNC_TAINTS.into(), label.into());
    let patch = registration(&claim(), &node, None).unwrap();
    assert_eq!(patch.add_taints.len(), added, "{label}");
    assert_eq!(patch.remove_taints.len(), 1, "the unregistered taint is always removed");
}

#[test]
fn taint_sync_can_be_disabled_on_the_node() {
    check_sync("true", 0);
    check_sync("false", 2);
}

#[test]
fn a_node_without_the_unregistered_taint_is_detected() {
    assert!(!lacks_unregistered_taint(&node()));
    assert!(lacks_unregistered_taint(&ready(node())));
    let mut registered = ready(node());
    registered.metadata.labels.insert(labels::REGISTERED.into(), "true".into());
    assert!(!lacks_unregistered_taint(&registered));
    let mut other = node();
    other.spec.taints = vec![Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoSchedule)];
    assert!(lacks_unregistered_taint(&other), "it is another taint, and stays after the registration");
}

#[track_caller]
fn check_lacks(change: impl FnOnce(&mut Node), reason: Option<&str>) {
    let mut node = ready(node());
    change(&mut node);
    assert_eq!(not_initialized(&claim(), &node).map(|(reason, _)| reason), reason);
}

#[test]
fn a_node_initializes_when_nothing_is_missing() {
    check_lacks(|_| {}, None);
    check_lacks(|node| node.status.conditions[0].status = ConditionStatus::False, Some("NodeNotReady"));
    check_lacks(|node| node.status.conditions.clear(), Some("NodeNotReady"));
    let taint = |key: &str, effect| Taint { value: "other".into(), ..Taint::new(key, effect) };
    check_lacks(|node| node.spec.taints.push(taint("cni", TaintEffect::NoExecute)), Some("StartupTaintsExist"));
    check_lacks(|node| node.spec.taints.push(taint("cni", TaintEffect::NoSchedule)), None);
    let ephemeral = Some("KnownEphemeralTaintsExist");
    check_lacks(|node| node.spec.taints.push(taint("node.kubernetes.io/not-ready", TaintEffect::NoExecute)), ephemeral);
    check_lacks(|node| node.spec.taints.push(taint("readiness.k8s.io/x", TaintEffect::PreferNoSchedule)), ephemeral);
    check_lacks(|node| node.spec.taints.push(taint("node.kubernetes.io/unreachable", TaintEffect::NoExecute)), None);
    check_lacks(|node| node.status.allocatable.set("gpu", Quantity::ZERO), Some("ResourceNotRegistered"));
    check_lacks(
        |node| {
            node.status.allocatable.0.remove("gpu");
        },
        Some("ResourceNotRegistered"),
    );
}

/// Gives a Node one thing that it lacks.
type Mend = fn(&mut Node);

#[test]
fn of_all_that_a_node_lacks_the_first_in_karpenters_order_is_told() {
    let mut node = ready(node());
    node.status.conditions[0].status = ConditionStatus::Unknown;
    node.spec.taints = vec![Taint::new("node.kubernetes.io/not-ready", TaintEffect::NoExecute), Taint::new("cni", TaintEffect::NoExecute)];
    node.status.allocatable.set("gpu", Quantity::ZERO);
    let steps: [(&str, Mend); 4] = [
        ("NodeNotReady", |node| node.status.conditions[0].status = ConditionStatus::True),
        ("StartupTaintsExist", |node| node.spec.taints.retain(|taint| taint.key != "cni")),
        ("KnownEphemeralTaintsExist", |node| node.spec.taints.clear()),
        ("ResourceNotRegistered", |node| node.status.allocatable.set("gpu", Quantity::from_units(1))),
    ];
    for (reason, mend) in steps {
        assert_eq!(not_initialized(&claim(), &node).map(|(reason, _)| reason), Some(reason));
        mend(&mut node);
    }
    assert_eq!(not_initialized(&claim(), &node), None);
}

#[path = "../../../tests/golden/records/check.rs"]
mod golden;

#[test]
fn stored_next_runs_of_every_release_stay_readable() {
    use crate::poll::NextRun;
    use whittle_claims::Record;
    golden::check::<NextRun>(NextRun::KIND, NextRun::VERSION);
}

#[test]
fn stored_turns_of_every_release_stay_readable() {
    use crate::turn::Turn;
    use whittle_claims::Record;
    golden::check::<Turn>(Turn::KIND, Turn::VERSION);
}

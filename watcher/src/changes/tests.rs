use super::*;
use crate::objects::{Condition, WireNode, WirePod};

fn pod(uid: &str, reason: &str) -> Pod {
    let (type_, status, message) = ("PodScheduled".to_owned(), "False".to_owned(), Some("0/1 nodes are available".to_owned()));
    let condition = Condition { type_, status, reason: Some(reason.to_owned()), message };
    Pod { uid: uid.to_owned(), generation: 1, conditions: vec![condition], ..Pod::default() }
}

#[track_caller]
fn check_pods(changes: &[(Change<Pod>, bool)]) {
    let mut pods = PodChanges::default();
    for (number, (change, rings)) in changes.iter().enumerate() {
        assert_eq!(pods.take(change.clone()), rings.then_some(PostKind::Pods), "change {number}: {change:?}");
    }
}

#[test]
fn a_pod_rings_when_it_becomes_unschedulable_and_not_when_it_is_tried_again_in_vain() {
    let fresh = Pod { uid: "a".to_owned(), generation: 1, ..Pod::default() };
    check_pods(&[
        (Change::Present(fresh), false),
        (Change::Present(pod("a", "SchedulingGated")), false),
        (Change::Present(pod("a", "Unschedulable")), true),
        (Change::Present(pod("a", "Unschedulable")), false),
        (Change::Present(pod("b", "Unschedulable")), true),
        (Change::Gone(pod("a", "Unschedulable")), false),
        (Change::Present(pod("a", "Unschedulable")), true),
    ]);
}

#[test]
fn a_pod_rings_again_when_the_scheduler_found_other_nodes_and_none_for_it() {
    let mut later = pod("a", "Unschedulable");
    later.conditions[0].message = Some("0/2 nodes are available".to_owned());
    let bound = Pod { uid: "a".to_owned(), generation: 1, ..Pod::default() };
    check_pods(&[
        (Change::Present(pod("a", "Unschedulable")), true),
        (Change::Present(later.clone()), true),
        (Change::Present(later.clone()), false),
        (Change::Present(bound), false),
        (Change::Present(later), true),
    ]);
}

#[test]
fn what_was_seen_is_the_newest_pod_that_rang() {
    let mut pods = PodChanges::default();
    assert_eq!(pods.newest(), None);
    for (uid, version, reason, newest) in [
        ("a", "998", "Unschedulable", "998"),
        ("b", "999", "SchedulingGated", "998"),
        ("c", "1000", "Unschedulable", "1000"),
        ("d", "17", "Unschedulable", "1000"),
        ("a", "1001", "Unschedulable", "1000"),
    ] {
        pods.take(Change::Present(Pod { version: version.to_owned(), ..pod(uid, reason) }));
        assert_eq!(pods.newest(), Some(newest), "{uid} {version}");
    }
}

#[test]
fn a_pod_rings_again_when_its_spec_changes() {
    let changed = Pod { generation: 2, ..pod("a", "Unschedulable") };
    check_pods(&[(Change::Present(pod("a", "Unschedulable")), true), (Change::Present(changed), true)]);
}

#[test]
fn a_pod_that_is_being_deleted_rings_nothing() {
    check_pods(&[(Change::Present(Pod { is_deleting: true, ..pod("a", "Unschedulable") }), false)]);
}

#[test]
fn a_list_rings_for_what_it_finds_new_and_forgets_what_it_lacks() {
    check_pods(&[
        (Change::ListBegins, false),
        (Change::Present(pod("a", "Unschedulable")), true),
        (Change::Present(pod("b", "Unschedulable")), true),
        (Change::ListEnds, false),
        (Change::ListBegins, false),
        (Change::Present(pod("b", "Unschedulable")), false),
        (Change::Present(pod("c", "Unschedulable")), true),
        (Change::ListEnds, false),
        (Change::Present(pod("a", "Unschedulable")), true),
    ]);
}

fn node(uid: &str, ready: bool, taints: &[&str]) -> Node {
    let status = if ready { "True" } else { "False" };
    Node {
        uid: uid.to_owned(),
        taints: taints.iter().map(|&key| (key.to_owned(), "NoSchedule".to_owned())).collect(),
        resources: vec!["cpu".to_owned(), "memory".to_owned()],
        conditions: vec![Condition { type_: "Ready".to_owned(), status: status.to_owned(), reason: None, message: None }],
        ..Node::default()
    }
}

#[track_caller]
fn check_nodes(changes: &[(Change<Node>, Option<PostKind>)]) {
    let mut nodes = NodeChanges::default();
    for (number, (change, rings)) in changes.iter().enumerate() {
        assert_eq!(nodes.take(change.clone()), *rings, "change {number}: {change:?}");
    }
}

#[test]
fn a_node_rings_until_it_takes_pods_and_no_longer() {
    let ours = "karpenter.sh/unregistered";
    let with_gpu = Node { resources: vec!["memory".into(), "nvidia.com/gpu".into(), "cpu".into()], ..node("a", true, &[]) };
    let initialized = |ready| Node { is_initialized: true, ..node("a", ready, &[]) };
    check_nodes(&[
        (Change::Present(node("a", false, &[ours, "startup"])), Some(PostKind::Nodes)),
        (Change::Present(node("a", false, &[ours, "startup"])), None),
        (Change::Present(node("a", true, &[ours, "startup"])), Some(PostKind::Nodes)),
        // Whittle's own taint, removed by Whittle.
        (Change::Present(node("a", true, &["startup"])), None),
        (Change::Present(node("a", true, &[])), Some(PostKind::Nodes)),
        (Change::Present(with_gpu), Some(PostKind::Nodes)),
        (Change::Present(initialized(true)), None),
        (Change::Present(initialized(false)), None),
        (Change::Present(initialized(true)), None),
        // Somebody has taken the label away.
        (Change::Present(node("a", true, &[])), Some(PostKind::Nodes)),
    ]);
}

#[test]
fn a_deletion_rings_when_it_is_asked_for_and_when_the_node_is_gone() {
    let deleting = Node { is_deleting: true, ..node("a", true, &[]) };
    check_nodes(&[
        (Change::Present(Node { is_initialized: true, ..node("a", true, &[]) }), Some(PostKind::Nodes)),
        (Change::Present(deleting.clone()), Some(PostKind::Deletions)),
        (Change::Present(Node { taints: vec![], ..deleting.clone() }), None),
        (Change::Gone(deleting.clone()), Some(PostKind::Deletions)),
        (Change::Present(deleting), Some(PostKind::Deletions)),
    ]);
}

#[test]
fn nodes_that_went_while_nobody_watched_ring_when_a_list_lacks_them() {
    check_nodes(&[
        (Change::ListBegins, None),
        (Change::Present(node("a", true, &[])), Some(PostKind::Nodes)),
        (Change::ListEnds, None),
        (Change::ListBegins, None),
        (Change::Present(node("b", true, &[])), Some(PostKind::Nodes)),
        (Change::ListEnds, Some(PostKind::Deletions)),
        (Change::ListEnds, None),
    ]);
}

#[test]
fn objects_on_the_wire_are_read_with_what_is_missing_or_unknown() {
    let pod: WirePod = serde_json::from_str(
        r#"{"metadata": {"uid": "u", "generation": 3, "name": "p"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "odd"}}}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}]}}"#,
    )
    .expect("it is a pod");
    let read = Pod::from(pod);
    assert!(read.uid == "u" && read.generation == 3 && read.state().is_unschedulable);
    for bare in [r#"{"metadata": {"uid": "u"}, "spec": {}}"#, r#"{"metadata": {"uid": "u"}, "spec": {}, "status": {"conditions": null}}"#] {
        assert!(!Pod::from(serde_json::from_str::<WirePod>(bare).expect("it is a pod")).state().is_unschedulable);
        assert_eq!(Node::from(serde_json::from_str::<WireNode>(bare).expect("it is a node")).resources, Vec::<String>::new());
    }
    let node: WireNode = serde_json::from_str(
        r#"{"metadata": {"uid": "n", "labels": {"karpenter.sh/initialized": "true"}, "deletionTimestamp": "2027-01-15T08:00:00Z"},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2027-01-15T08:00:00Z"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}}"#,
    )
    .expect("it is a node");
    let read = Node::from(node);
    assert!(read.is_initialized && read.is_deleting);
    assert_eq!((read.taints.len(), read.resources), (1, vec!["cpu".to_owned(), "memory".to_owned()]));
}

#[test]
fn a_node_claim_rings_once_when_somebody_deletes_it() {
    let claim = |is_deleting| NodeClaim { uid: "a".to_owned(), is_deleting };
    let check = |changes: &[(Change<NodeClaim>, bool)]| {
        let mut claims = NodeClaimChanges::default();
        for (number, (change, rings)) in changes.iter().enumerate() {
            assert_eq!(claims.take(change.clone()), rings.then_some(PostKind::Deletions), "change {number}: {change:?}");
        }
    };
    check(&[
        (Change::Present(claim(false)), false),
        (Change::Present(claim(false)), false),
        (Change::Present(claim(true)), true),
        (Change::Present(claim(true)), false),
        (Change::Gone(claim(true)), false),
    ]);
    // Without a finalizer it is gone at once.
    check(&[(Change::Present(claim(false)), false), (Change::Gone(claim(false)), true)]);
    // Deleted while nobody watched.
    check(&[
        (Change::Present(claim(false)), false),
        (Change::ListBegins, false),
        (Change::ListEnds, true),
        (Change::ListBegins, false),
        (Change::Present(claim(true)), true),
        (Change::ListEnds, false),
        (Change::ListBegins, false),
        (Change::ListEnds, false),
    ]);
}

#[test]
fn a_definition_rings_when_it_is_made_edited_or_deleted_and_not_when_its_status_changes() {
    let definition = |uid: &str, generation| Definition { uid: uid.to_owned(), generation };
    let mut changes = DefinitionChanges::default();
    for (number, (change, rings)) in [
        (Change::ListBegins, false),
        (Change::Present(definition("a", 1)), true),
        (Change::ListEnds, false),
        (Change::Present(definition("a", 1)), false),
        (Change::Present(definition("a", 2)), true),
        (Change::Present(definition("b", 1)), true),
        // A deletion that waits for a finalizer raises the generation.
        (Change::Present(definition("b", 2)), true),
        (Change::Gone(definition("b", 2)), false),
        (Change::ListBegins, false),
        (Change::Present(definition("a", 2)), false),
        (Change::ListEnds, false),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(changes.take(change.clone()), rings.then_some(PostKind::Pools), "change {number}: {change:?}");
    }
}

//! Nodes and NodeClaims that our finalizer holds although nothing of theirs is left.

use super::*;

/// Being deleted, and held by our finalizer.
pub(super) fn held(meta: &mut ObjectMeta) {
    meta.deletion_timestamp = Some(at(50));
    meta.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
}

/// A Node and its NodeClaim that are being deleted, without claim and machine.
fn orphaned() -> Scene {
    change(scene(registered()), |s| {
        s.claims.clear();
        s.instances.clear();
        s.objects.nodes = vec![node(false)];
        held(&mut s.objects.nodes[0].metadata);
        held(&mut s.objects.node_claims[0].metadata);
    })
}

#[test]
fn objects_held_by_our_finalizer_are_released_without_claim_and_machine() {
    let (first, second) = orphaned().twice(30);
    assert!(first.release_mirrors.is_empty() && first.release_nodes.is_empty());
    assert_eq!((second.release_mirrors, second.release_nodes), (vec!["default-1".to_owned()], vec!["n".to_owned()]));
    // A policy may have kept the Node from being released when its claim ended.
    let with_claim = change(orphaned(), |s| s.claims = vec![ended()]).twice(30).1;
    assert_eq!(with_claim.release_nodes, ["n"]);
}

#[test]
fn objects_whose_machine_may_run_or_that_are_not_ours_keep_the_finalizer() {
    type Change = fn(&mut Scene);
    let keeps: [(&str, Change); 3] = [
        ("its machine runs", |s| s.instances = vec![instance("i-1")]),
        ("EC2 may hide machines of a shifted zone", |s| {
            s.shifted.ids.insert("use1-az1".into());
            for meta in [&mut s.objects.nodes[0].metadata, &mut s.objects.node_claims[0].metadata] {
                meta.labels.insert(labels::ZONE_ID.into(), "use1-az1".into());
            }
        }),
        ("another provider's, under the same finalizer", |s| {
            s.objects.node_claims[0].spec.node_class_ref.group = "karpenter.kwok.sh".into();
            s.objects.node_claims[0].status.provider_id = "kwok://n".into();
            s.objects.nodes[0].spec.provider_id = "kwok://n".into();
        }),
    ];
    for (why, keep) in keeps {
        let found = change(orphaned(), keep).twice(30).1;
        assert!(found.release_mirrors.is_empty() && found.release_nodes.is_empty(), "{why}");
    }
    let speaking = change(orphaned(), |s| s.objects.nodes[0].status.conditions[0].status = ConditionStatus::True).twice(30).1;
    assert!(speaking.release_nodes.is_empty(), "its kubelet is alive");
}

/// A claim whose machine has ended, as EC2 has confirmed.
pub(super) fn ended() -> Claim {
    let ends = [deletion_requested(), Event::TerminationSent, Event::MachineGone];
    after(&[&[begun(), Event::FleetAnswered(machine("i-1")), joined("n")][..], &ends].concat())
}

/// As where a policy lets nobody delete Nodes: once its claim has ended nobody else would.
#[test]
fn a_node_that_outlives_its_claim_and_machine_is_let_go() {
    let left = change(scene(ended()), |s| {
        s.instances.clear();
        s.objects.nodes = vec![node(false)];
        s.objects.nodes[0].metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
        s.objects.node_claims.clear();
    });
    let (first, second) = left.twice(30);
    assert_eq!((first.release_nodes, second.release_nodes), (Vec::new(), vec!["n".to_owned()]));
    type Change = fn(&mut Scene);
    let keeps: [(&str, Change); 8] = [
        ("its machine runs", |s| s.instances = vec![instance("i-1")]),
        ("its kubelet is alive", |s| s.objects.nodes[0] = Node { metadata: s.objects.nodes[0].metadata.clone(), ..node(true) }),
        ("it is not ours", |s| s.objects.nodes[0].metadata.finalizers.clear()),
        ("it is of another machine", |s| s.objects.nodes[0].spec.provider_id = "aws:///z/i-2".into()),
        ("nobody has confirmed that its machine ended", |s| s.claims = vec![registered()]),
        ("another controller has it", |s| {
            s.claims[0].annotations.insert(labels::HANDED_OVER.into(), "true".into());
        }),
        ("an uninstallation left its machine to the user", |s| {
            s.claims = vec![after(&[begun(), Event::FleetAnswered(machine("i-1")), joined("n"), Event::LetGo])];
        }),
        ("Whittle is being uninstalled", |s| s.uninstalling = true),
    ];
    for (why, keep) in keeps {
        assert!(change(left.clone(), keep).twice(60).1.release_nodes.is_empty(), "{why}");
    }
}

#[test]
fn a_node_without_a_provider_id_is_left_alone() {
    let stray = change(scene(registered()), |s| {
        let mut node = node(false);
        node.metadata.name = "stray".into();
        node.spec.provider_id.clear();
        node.metadata.finalizers = vec![labels::TERMINATION_FINALIZER.into()];
        node.metadata.labels.clear();
        s.objects.nodes.push(node.clone());
        node.metadata.name = "going".into();
        node.metadata.deletion_timestamp = Some(at(0));
        s.objects.nodes.push(node);
    });
    let (first, second) = stray.twice(60);
    assert_eq!((first, second), (Findings::default(), Findings::default()));
}

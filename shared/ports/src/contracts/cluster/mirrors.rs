//! The contract of [`Mirrors`].

use super::{ClusterPlace, claim_object, launched_claim, owner, read};
use crate::{ClusterError, ClusterReader, Mirrors, Scope};
use serde_json::json;
use whittle_api::k8s::Kind;
use whittle_api::karpenter::{NodeClaim, NodeClaimStatus};
use whittle_api::{NillableDuration, labels};
use whittle_claims::{Claim, ClaimSpec, Phase, mirror};

/// Mirrors, as a function with this port writes them.
///
/// # Panics
///
/// If the adapter violates the contract.
pub async fn mirrors(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Mirrors), tag: &str) {
    a_mirror_follows_its_claim_and_keeps_what_is_of_others(place, cluster, &format!("follows-{tag}")).await;
    the_spec_of_an_existing_object_is_never_written(place, cluster, &format!("spec-{tag}")).await;
    a_mirror_without_a_status_leaves_that_of_the_object(place, cluster, &format!("statusless-{tag}")).await;
    a_finalizer_holds_a_mirror_until_it_is_released(place, cluster, &format!("held-{tag}")).await;
    a_finalizer_is_not_added_to_what_is_being_deleted(place, cluster, &format!("foreign-{tag}")).await;
    the_mirror_of_a_joined_machine_follows_too(place, cluster, &format!("joined-{tag}")).await;
    a_mirror_of_a_users_object_is_updated_and_never_created(place, cluster, &format!("standalone-{tag}")).await;
    a_mirror_that_is_handed_over_is_an_ordinary_claim(place, cluster, &format!("handed-{tag}")).await;
}

async fn applied(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Mirrors), claim: &Claim) -> NodeClaim {
    cluster.apply_mirror(place.cluster(), &mirror(claim)).await.expect("a mirror can be written");
    claim_object(place, cluster, claim.key.name.as_str()).await.expect("it was written")
}

fn observed(object: &NodeClaim) -> Vec<Option<i64>> {
    object.status.conditions.iter().map(|condition| condition.observed_generation).collect()
}

async fn a_mirror_follows_its_claim_and_keeps_what_is_of_others(
    place: &impl ClusterPlace,
    cluster: &(impl ClusterReader + Mirrors),
    name: &str,
) {
    let pools = read(place, cluster, Scope::Nodes).await.node_pools;
    let pool = pools.iter().find(|pool| pool.metadata.name == "default").expect("the place has it");
    let mut claim = launched_claim(place, name);
    let launched = std::mem::replace(&mut claim.phase, Phase::Planned);
    claim.spec.owner = owner("NodePool", "default", &pool.metadata.uid);
    claim.spec.labels.insert("planned".to_owned(), "yes".to_owned());
    claim.annotations.insert("whittle.dev/planned".to_owned(), "yes".to_owned());
    claim.conditions = Claim::planned(claim.key.clone(), String::new(), ClaimSpec::default(), claim.created_at).conditions;
    let created = applied(place, cluster, &claim).await;
    assert_eq!((created.metadata.generation, created.status.provider_id.as_str()), (Some(1), ""));
    assert_eq!(created.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    assert_eq!(created.metadata.annotation(labels::MANAGED), Some("true"));
    let owners: Vec<_> = created.metadata.owner_references.iter().map(|owner| (owner.kind.as_str(), owner.uid.as_str())).collect();
    assert_eq!(owners, [("NodePool", pool.metadata.uid.as_str())]);
    assert!(!created.status.conditions.is_empty() && observed(&created).iter().all(|seen| *seen == Some(1)), "{:?}", created.status);

    let theirs = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "keep"}}});
    place.change_claim(name, theirs).await;
    claim.phase = launched;
    claim.spec.labels.remove("planned");
    claim.annotations.remove("whittle.dev/planned");
    claim.spec.labels.insert("launched".to_owned(), "yes".to_owned());
    let updated = applied(place, cluster, &claim).await;
    assert_eq!(updated.metadata.uid, created.metadata.uid, "it is the same object");
    assert_eq!(updated.status.provider_id, format!("aws:///us-west-2a/i-0{name}"));
    assert_eq!((updated.metadata.label("team"), updated.metadata.annotation("note")), (Some("a"), Some("keep")), "those of others stay");
    assert_eq!((updated.metadata.label("planned"), updated.metadata.label("launched")), (None, Some("yes")), "ours follow the claim");
    assert_eq!(updated.metadata.annotation("whittle.dev/planned"), None);
    assert_eq!(updated.spec, created.spec);

    let again = applied(place, cluster, &claim).await;
    assert_eq!(again.metadata.resource_version, updated.metadata.resource_version, "what is the same is not written");
    let theirs = json!({"lastPodEventTime": "2026-01-01T00:00:00Z", "capacity": {"example.com/theirs": "1"}});
    place.change_status(NodeClaim::KIND, name, theirs).await;
    assert_ne!(claim_object(place, cluster, name).await.expect("it is there").status, updated.status);
    assert_eq!(applied(place, cluster, &claim).await.status, updated.status, "the status is the claim's alone");
    remove(place, cluster, name).await;
}

async fn a_mirror_without_a_status_leaves_that_of_the_object(
    place: &impl ClusterPlace,
    cluster: &(impl ClusterReader + Mirrors),
    name: &str,
) {
    let claim = launched_claim(place, name);
    let planned = NodeClaim { status: NodeClaimStatus::default(), ..mirror(&claim) };
    let apply_planned = async || {
        cluster.apply_mirror(place.cluster(), &planned).await.expect("a mirror can be written");
        claim_object(place, cluster, name).await.expect("it was written")
    };
    let created = apply_planned().await;
    assert_eq!((&created.status, &created.spec), (&NodeClaimStatus::default(), &planned.spec));
    assert_eq!(created.metadata.finalizers, planned.metadata.finalizers);
    let launched = applied(place, cluster, &claim).await;
    assert_eq!(launched.status.provider_id, format!("aws:///us-west-2a/i-0{name}"));
    assert_eq!(apply_planned().await, launched, "what is not said is not removed");
    remove(place, cluster, name).await;
    assert_eq!(apply_planned().await.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    let ended = NodeClaim { metadata: whittle_api::ObjectMeta { finalizers: Vec::new(), ..mirror(&claim).metadata }, ..mirror(&claim) };
    cluster.apply_mirror(place.cluster(), &ended).await.expect("a mirror can be written");
    let left = claim_object(place, cluster, name).await.expect("nobody has deleted it");
    assert!(left.metadata.finalizers.is_empty(), "what came with its creation too");
    remove(place, cluster, name).await;
}

async fn remove(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Mirrors), name: &str) {
    cluster.delete_mirror(place.cluster(), name, "").await.expect("a mirror can be deleted");
    cluster.release_mirror(place.cluster(), name, "").await.expect("a mirror can be released");
    assert_eq!(claim_object(place, cluster, name).await, None);
}

async fn the_spec_of_an_existing_object_is_never_written(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Mirrors), name: &str) {
    let mut claim = launched_claim(place, name);
    let created = applied(place, cluster, &claim).await;
    claim.spec.expire_after = NillableDuration::from_secs(17 * 3600);
    claim.spec.labels.insert("changed".to_owned(), "yes".to_owned());
    let updated = applied(place, cluster, &claim).await;
    assert_eq!(updated.spec, created.spec);
    assert_eq!(updated.metadata.label("changed"), Some("yes"), "its metadata is written all the same");
    remove(place, cluster, name).await;
}

async fn a_finalizer_holds_a_mirror_until_it_is_released(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Mirrors), name: &str) {
    let mut claim = launched_claim(place, name);
    claim.conditions = Claim::planned(claim.key.clone(), String::new(), ClaimSpec::default(), claim.created_at).conditions;
    let created = applied(place, cluster, &claim).await;
    cluster.delete_mirror(place.cluster(), name, "another").await.expect("an object of another uid is left alone");
    assert!(!claim_object(place, cluster, name).await.expect("it is there").metadata.is_deleting());
    cluster.delete_mirror(place.cluster(), name, &created.metadata.uid).await.expect("a mirror can be deleted");
    let marked = applied(place, cluster, &claim).await;
    assert!(marked.metadata.is_deleting(), "the finalizer holds it, and it can still be written");
    assert_eq!(marked.metadata.generation, Some(2), "a deletion is a new generation");
    assert!(observed(&marked).iter().all(|seen| *seen == Some(2)), "{:?}", marked.status);
    cluster.delete_mirror(place.cluster(), name, "").await.expect("a second deletion changes nothing");
    assert_eq!(claim_object(place, cluster, name).await.expect("it is there").metadata.generation, Some(2));
    cluster.release_mirror(place.cluster(), name, "another").await.expect("an object of another uid is left alone");
    assert!(claim_object(place, cluster, name).await.is_some());
    cluster.release_mirror(place.cluster(), name, &created.metadata.uid).await.expect("a mirror can be released");
    assert_eq!(claim_object(place, cluster, name).await, None);
    cluster.delete_mirror(place.cluster(), name, "").await.expect("what is gone is deleted");
    cluster.release_mirror(place.cluster(), name, "").await.expect("what is gone is released");
    let successor = applied(place, cluster, &claim).await;
    assert_ne!(successor.metadata.uid, created.metadata.uid, "its name is free again");
    cluster.delete_mirror(place.cluster(), name, &created.metadata.uid).await.expect("that object is gone");
    assert!(!claim_object(place, cluster, name).await.expect("it is there").metadata.is_deleting());
    remove(place, cluster, name).await;
}

async fn a_finalizer_is_not_added_to_what_is_being_deleted(
    place: &impl ClusterPlace,
    cluster: &(impl ClusterReader + Mirrors),
    name: &str,
) {
    let mut claim = launched_claim(place, name);
    applied(place, cluster, &claim).await;
    let both = json!({"metadata": {"finalizers": [labels::TERMINATION_FINALIZER, "example.com/backup"]}});
    place.change_claim(name, both).await;
    let kept = applied(place, cluster, &claim).await;
    assert_eq!(kept.metadata.finalizers, [labels::TERMINATION_FINALIZER, "example.com/backup"], "that of another stays");
    cluster.delete_mirror(place.cluster(), name, "").await.expect("a mirror can be deleted");
    cluster.release_mirror(place.cluster(), name, "").await.expect("a mirror can be released");
    let held = claim_object(place, cluster, name).await.expect("the other finalizer holds it");
    assert_eq!(held.metadata.finalizers, ["example.com/backup"]);
    claim.spec.labels.insert("late".to_owned(), "yes".to_owned());
    let late = applied(place, cluster, &claim).await;
    assert_eq!((late.metadata.finalizers.as_slice(), late.metadata.label("late")), (&["example.com/backup".to_owned()][..], Some("yes")));
    place.change_claim(name, json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(claim_object(place, cluster, name).await, None);
}

async fn the_mirror_of_a_joined_machine_follows_too(place: &impl ClusterPlace, cluster: &(impl ClusterReader + Mirrors), name: &str) {
    let mut claim = launched_claim(place, name);
    claim.spec.labels.insert("launched".to_owned(), "yes".to_owned());
    claim.conditions = Claim::planned(claim.key.clone(), String::new(), ClaimSpec::default(), claim.created_at).conditions;
    let launched = applied(place, cluster, &claim).await;
    let Phase::Launched { machine } = claim.phase.clone() else { unreachable!("it was made so") };
    claim.phase = Phase::Registered { machine, node_name: format!("node-{name}"), since: claim.created_at };
    let joined = applied(place, cluster, &claim).await;
    assert_eq!((&joined.metadata.labels, &joined.spec), (&launched.metadata.labels, &launched.spec));
    assert_eq!(joined.status.node_name, format!("node-{name}"));
    assert!(observed(&joined).iter().all(|seen| *seen == Some(1)), "{:?}", joined.status);
    assert_eq!(applied(place, cluster, &claim).await.metadata.resource_version, joined.metadata.resource_version);

    place.change_claim(name, json!({"metadata": {"labels": {"launched": "no", "team": "a"}}})).await;
    let restored = applied(place, cluster, &claim).await;
    assert_eq!((restored.metadata.label("launched"), restored.metadata.label("team")), (Some("yes"), Some("a")));
    claim.spec.labels.remove("launched");
    claim.annotations.insert("whittle.dev/late".to_owned(), "yes".to_owned());
    let changed = applied(place, cluster, &claim).await;
    assert_eq!((changed.metadata.label("launched"), changed.metadata.label("team")), (None, Some("a")));
    assert_eq!(changed.metadata.annotation("whittle.dev/late"), Some("yes"));

    cluster.delete_mirror(place.cluster(), name, "").await.expect("a mirror can be deleted");
    let marked = applied(place, cluster, &claim).await;
    assert!(observed(&marked).iter().all(|seen| *seen == Some(2)), "{:?}", marked.status);
    cluster.release_mirror(place.cluster(), name, "").await.expect("a mirror can be released");
    assert_eq!(claim_object(place, cluster, name).await, None);
    let again = applied(place, cluster, &claim).await;
    assert_eq!(
        (&again.status.node_name, &again.metadata.finalizers),
        (&joined.status.node_name, &joined.metadata.finalizers),
        "it is made again"
    );
    remove(place, cluster, name).await;
}

async fn a_mirror_of_a_users_object_is_updated_and_never_created(
    place: &impl ClusterPlace,
    cluster: &(impl ClusterReader + Mirrors),
    name: &str,
) {
    let of_uid = |uid: &str| {
        let mut claim = launched_claim(place, name);
        claim.spec.standalone_uid = Some(uid.to_owned());
        claim
    };
    let absent = cluster.apply_mirror(place.cluster(), &mirror(&of_uid("another-uid"))).await;
    assert!(matches!(absent, Err(ClusterError::NotFound { .. })), "{absent:?}");
    place
        .create(json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {"team": "b"}, "annotations": {"note": "keep"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
            },
        }))
        .await;
    let another = cluster.apply_mirror(place.cluster(), &mirror(&of_uid("another-uid"))).await;
    assert!(matches!(another, Err(ClusterError::NotFound { .. })), "{another:?}");
    let created = claim_object(place, cluster, name).await.expect("it was created");
    assert!(created.metadata.finalizers.is_empty() && created.status.provider_id.is_empty(), "{created:?}");
    let uid = created.metadata.uid.as_str();
    let shown = applied(place, cluster, &of_uid(uid)).await;
    assert_eq!(shown.metadata.finalizers, [labels::TERMINATION_FINALIZER]);
    assert_eq!((shown.metadata.label("team"), shown.metadata.annotation("note")), (Some("b"), Some("keep")));
    assert_eq!(shown.spec, created.spec);
    assert_eq!(shown.status.provider_id, format!("aws:///us-west-2a/i-0{name}"));
    cluster.delete_mirror(place.cluster(), name, uid).await.expect("it can be deleted");
    cluster.release_mirror(place.cluster(), name, uid).await.expect("it can be released");
    assert_eq!(claim_object(place, cluster, name).await, None);
    let gone = cluster.apply_mirror(place.cluster(), &mirror(&of_uid(uid))).await;
    assert!(matches!(gone, Err(ClusterError::NotFound { .. })), "{gone:?}");
}

async fn a_mirror_that_is_handed_over_is_an_ordinary_claim(
    place: &impl ClusterPlace,
    cluster: &(impl ClusterReader + Mirrors),
    name: &str,
) {
    let mut claim = launched_claim(place, name);
    claim.annotations.insert("whittle.dev/note".to_owned(), "stays".to_owned());
    let before = applied(place, cluster, &claim).await;
    for _ in 0..2 {
        cluster.hand_over_mirror(place.cluster(), name).await.expect("it can be handed over, also twice");
        let after = claim_object(place, cluster, name).await.expect("it is there");
        assert_eq!((after.metadata.annotation(labels::MANAGED), after.metadata.annotation("whittle.dev/note")), (None, Some("stays")));
        assert_eq!(after.metadata.finalizers, before.metadata.finalizers);
        assert_eq!((&after.spec, &after.status), (&before.spec, &before.status));
    }
    remove(place, cluster, name).await;
    cluster.hand_over_mirror(place.cluster(), name).await.expect("what is gone is handed over");
}

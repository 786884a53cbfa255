//! Objects that cannot be read, and kinds that are not served, count as existing. Pure.

use crate::compare::{ALL_MISSING_PATIENCE, Missing, owner_of};
use crate::index::Index;
use crate::sightings::SIGHTING_INTERVAL;
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ClusterObjects, ObjectMeta, Unreadable, labels};
use whittle_claims::{Claim, Phase};
use whittle_ec2::instance::Instance;
use whittle_ports::ObjectKind;
use whittle_units::{SignedDuration, Timestamp};

/// The kind of legacy pools.
const PROVISIONER: &str = "Provisioner";

/// By this age a machine without a node has been given up by its controller: registration may take 15 minutes.
const UNNAMED_GRACE: SignedDuration = SignedDuration::from_hours(1);

/// The state of a claim's pool.
pub(crate) enum Pool {
    /// It exists, or may be among the unreadable objects.
    There,
    Deleting,
    Missing(Missing),
}

/// The state of a claim's NodeClaim.
pub(crate) enum MirrorState<'a> {
    There(&'a ObjectMeta),
    /// Its kind is not served, or an object whose name cannot be read may be it.
    Unknown,
    Missing,
}

/// The state of a claim's pool, which may exist although it cannot be read.
pub(crate) fn pool_of(claim: &Claim, objects: &ClusterObjects) -> Pool {
    let owner = &claim.spec.owner;
    if owner.name.is_empty() {
        return Pool::There; // standalone
    }
    if let Some(pool) = owner_of(claim, objects) {
        return if pool.metadata.is_deleting() { Pool::Deleting } else { Pool::There };
    }
    let (kind_name, kind) =
        if owner.kind == PROVISIONER { (PROVISIONER, ObjectKind::Provisioner) } else { (NodePool::KIND, ObjectKind::NodePool) };
    let hidden = objects.unreadable_of(kind_name).find(|odd| odd.metadata.name == owner.name);
    match hidden {
        Some(odd) if odd.metadata.is_deleting() && odd.metadata.uid == owner.uid => Pool::Deleting,
        Some(_) => Pool::There,
        None if objects.lacks_kind(kind_name) || objects.is_unreadable(kind_name, &owner.name) => Pool::There,
        None => Pool::Missing(Missing { kind, name: owner.name.clone(), uid: owner.uid.clone(), provider_id: String::new() }),
    }
}

/// How long a pool has to be missing.
pub(crate) fn patience(objects: &ClusterObjects) -> SignedDuration {
    let hidden = objects.unreadable.iter().any(|odd| [NodePool::KIND, PROVISIONER].contains(&odd.kind.as_str()));
    if objects.node_pools.is_empty() && !hidden { ALL_MISSING_PATIENCE } else { SIGHTING_INTERVAL }
}

/// The state of the NodeClaim of a claim.
pub(crate) fn mirror_of<'a>(claim: &Claim, index: &Index<'a>) -> MirrorState<'a> {
    if let Some(node_claim) = index.mirror_of(claim) {
        return MirrorState::There(&node_claim.metadata);
    }
    let objects = index.objects;
    match objects.unreadable_of(NodeClaim::KIND).find(|odd| claim.is_mirrored_in(&odd.metadata)) {
        Some(odd) => MirrorState::There(&odd.metadata),
        None if objects.lacks_kind(NodeClaim::KIND) || objects.is_unreadable(NodeClaim::KIND, "") => MirrorState::Unknown,
        None => MirrorState::Missing,
    }
}

/// Unreadable Nodes that are, or may be, of a claim's machine.
pub(crate) fn nodes_of<'a>(claim: &'a Claim, objects: &'a ClusterObjects) -> impl Iterator<Item = &'a Unreadable> {
    let id = claim.machine().map(|machine| machine.provider_id.as_str());
    let name = claim.node_name();
    objects.unreadable_of(Node::KIND).filter(move |odd| {
        let nameless = odd.provider_id.is_empty() && (odd.metadata.name.is_empty() || name == Some(odd.metadata.name.as_str()));
        id == Some(odd.provider_id.as_str()) || nameless
    })
}

/// Whether there is no Node of a claim whose Node was registered, not even one that cannot be read. It was deleted, and its finalizer taken
/// off before anybody saw it: the machine runs, takes no pods, and would count as room for them until it expires. A kubelet that is
/// restarted makes such a Node anew, which takes no pods either.
pub(crate) fn lacks_node(claim: &Claim, nodes: &[&Node], objects: &ClusterObjects) -> bool {
    let is_registered = matches!(claim.phase, Phase::Registered { .. } | Phase::Initialized { .. });
    is_registered && nodes.is_empty() && !objects.lacks_kind(Node::KIND) && nodes_of(claim, objects).next().is_none()
}

/// How long a Node has to be missing.
pub(crate) fn node_patience(objects: &ClusterObjects) -> SignedDuration {
    let is_any = !objects.nodes.is_empty() || objects.unreadable_of(Node::KIND).next().is_some();
    if is_any { SIGHTING_INTERVAL } else { ALL_MISSING_PATIENCE }
}

/// Whether a machine may have a Node that cannot be read.
pub(crate) fn may_be_node(provider_id: &str, objects: &ClusterObjects) -> bool {
    objects.unreadable_of(Node::KIND).any(|odd| odd.provider_id.is_empty() || odd.provider_id == provider_id)
}

/// Provider ids that unreadable NodeClaims name.
pub(crate) fn machines(objects: &ClusterObjects) -> impl Iterator<Item = &str> {
    objects.unreadable_of(NodeClaim::KIND).map(|odd| odd.provider_id.as_str()).filter(|id| !id.is_empty())
}

/// Whether any machine may belong to an unreadable NodeClaim.
pub(crate) fn hides_machines(index: &Index<'_>) -> bool {
    hidden(index).next().is_some()
}

/// Unreadable NodeClaims whose provider id is unknown. For mirrors of our own claims the claims know it.
fn hidden<'o>(index: &'o Index<'_>) -> impl Iterator<Item = &'o Unreadable> {
    let is_ours = move |odd: &Unreadable| index.claim_named(&odd.metadata.name).is_some();
    index.objects.unreadable_of(NodeClaim::KIND).filter(move |odd| odd.provider_id.is_empty() && !is_ours(odd))
}

/// Whether this machine may belong to an unreadable NodeClaim: one that names it, that its tag names, or that owns its Node. A
/// machine without any of these may belong to any of them, until its node should have joined long ago.
pub(crate) fn may_be_hidden(instance: &Instance, index: &Index<'_>, now: Timestamp) -> bool {
    let id = instance.provider_id();
    let nodes = index.nodes_at(id.as_str());
    let owns = |odd: &Unreadable| nodes.iter().flat_map(|node| &node.metadata.owner_references).any(|owner| owner.uid == odd.metadata.uid);
    let unnamed = now.duration_since(instance.launched_at) < UNNAMED_GRACE;
    let named = instance.tags.get(labels::TAG_NODE_CLAIM);
    let may_own = |odd: &Unreadable| {
        let name = &odd.metadata.name;
        name.is_empty() || owns(odd) || named.map_or(unnamed, |named| named == name)
    };
    machines(index.objects).any(|named| named == id.as_str()) || hidden(index).any(may_own)
}

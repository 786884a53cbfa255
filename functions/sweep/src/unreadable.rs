//! What objects that cannot be read, and kinds that are not served, stand for: they count as there. Pure.

use crate::judge::{ALL_MISSING, BETWEEN_SIGHTINGS, Missing, owner_of};
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ClusterObjects, ObjectMeta, Unreadable, labels};
use whittle_claims::{Claim, Stored};
use whittle_ec2::instance::Instance;
use whittle_ports::Sought;
use whittle_units::{SignedDuration, Timestamp};

/// The kind of old pools.
const PROVISIONER: &str = "Provisioner";

/// A machine whose node has not joined by then has been given up by whoever started it: registration may take 15 minutes.
const UNNAMED_SPARED: SignedDuration = SignedDuration::from_hours(1);

/// How a claim's pool stands.
pub(crate) enum Pool {
    /// There, or hidden by what cannot be read.
    There,
    Deleting,
    Missing(Missing),
}

/// How the NodeClaim of a claim stands.
pub(crate) enum Shown<'a> {
    There(&'a ObjectMeta),
    /// Its kind is not served, or it may be one whose name cannot be read.
    Unknown,
    Missing,
}

/// A claim's pool, which may be there although nobody can read it.
pub(crate) fn pool_of(claim: &Claim, objects: &ClusterObjects) -> Pool {
    let owner = &claim.spec.owner;
    if owner.name.is_empty() {
        return Pool::There; // standalone
    }
    if let Some(pool) = owner_of(claim, objects) {
        return if pool.metadata.is_deleting() { Pool::Deleting } else { Pool::There };
    }
    let (kind, sought) = if owner.kind == PROVISIONER { (PROVISIONER, Sought::Provisioner) } else { (NodePool::KIND, Sought::NodePool) };
    let hidden = objects.unreadable_of(kind).find(|odd| odd.metadata.name == owner.name);
    match hidden {
        Some(odd) if odd.metadata.is_deleting() && odd.metadata.uid == owner.uid => Pool::Deleting,
        Some(_) => Pool::There,
        None if objects.lacks_kind(kind) || objects.is_unreadable(kind, &owner.name) => Pool::There,
        None => Pool::Missing(Missing { sought, name: owner.name.clone(), uid: owner.uid.clone(), provider_id: String::new() }),
    }
}

/// How long a pool has to be missing.
pub(crate) fn patience(objects: &ClusterObjects) -> SignedDuration {
    let hidden = objects.unreadable.iter().any(|odd| [NodePool::KIND, PROVISIONER].contains(&odd.kind.as_str()));
    if objects.node_pools.is_empty() && !hidden { ALL_MISSING } else { BETWEEN_SIGHTINGS }
}

/// The NodeClaim that shows a claim.
pub(crate) fn shown<'a>(claim: &Claim, objects: &'a ClusterObjects) -> Shown<'a> {
    if let Some(shown) = objects.node_claims.iter().find(|shown| claim.is_shown_by(shown)) {
        return Shown::There(&shown.metadata);
    }
    let name = claim.key.name.as_str();
    let is_its = |odd: &&Unreadable| {
        let uid = claim.spec.made_by_hand.as_ref();
        odd.metadata.name == name && uid.is_none_or(|uid| *uid == odd.metadata.uid)
    };
    match objects.unreadable_of(NodeClaim::KIND).find(is_its) {
        Some(odd) => Shown::There(&odd.metadata),
        None if objects.lacks_kind(NodeClaim::KIND) || objects.is_unreadable(NodeClaim::KIND, "") => Shown::Unknown,
        None => Shown::Missing,
    }
}

/// Nodes of a claim's machine, or that may be, of which no more can be read.
pub(crate) fn nodes_of<'a>(claim: &'a Claim, objects: &'a ClusterObjects) -> impl Iterator<Item = &'a Unreadable> {
    let id = claim.machine().map(|machine| machine.provider_id.as_str());
    let name = claim.node_name();
    objects.unreadable_of(Node::KIND).filter(move |odd| {
        let nameless = odd.provider_id.is_empty() && (odd.metadata.name.is_empty() || name == Some(odd.metadata.name.as_str()));
        id == Some(odd.provider_id.as_str()) || nameless
    })
}

/// Whether a machine may have a Node that cannot be read.
pub(crate) fn may_be_node(provider_id: &str, objects: &ClusterObjects) -> bool {
    objects.unreadable_of(Node::KIND).any(|odd| odd.provider_id.is_empty() || odd.provider_id == provider_id)
}

/// Machines that NodeClaims name which cannot be read.
pub(crate) fn machines(objects: &ClusterObjects) -> impl Iterator<Item = &str> {
    objects.unreadable_of(NodeClaim::KIND).map(|odd| odd.provider_id.as_str()).filter(|id| !id.is_empty())
}

/// Whether any machine may belong to a NodeClaim that nobody can read.
pub(crate) fn hides_machines(claims: &[Stored<Claim>], objects: &ClusterObjects) -> bool {
    hidden(claims, objects).next().is_some()
}

/// NodeClaims of which nobody can read whose machine they name. Of those that show our own claims the claims know more.
fn hidden<'o>(claims: &'o [Stored<Claim>], objects: &'o ClusterObjects) -> impl Iterator<Item = &'o Unreadable> {
    let is_ours = |odd: &Unreadable| claims.iter().any(|claim| claim.value.key.name.as_str() == odd.metadata.name);
    objects.unreadable_of(NodeClaim::KIND).filter(move |odd| odd.provider_id.is_empty() && !is_ours(odd))
}

/// Whether this machine may belong to a NodeClaim that nobody can read: the one that names it, that its tag names, or that owns
/// its Node. One that has none of these may be any's, until it should have joined long ago.
pub(crate) fn may_be_hidden(instance: &Instance, claims: &[Stored<Claim>], objects: &ClusterObjects, now: Timestamp) -> bool {
    let id = instance.provider_id();
    let nodes: Vec<&Node> = objects.nodes.iter().filter(|node| node.spec.provider_id == id.as_str()).collect();
    let owns = |odd: &Unreadable| nodes.iter().flat_map(|node| &node.metadata.owner_references).any(|owner| owner.uid == odd.metadata.uid);
    let unnamed = now.duration_since(instance.launched_at) < UNNAMED_SPARED;
    let named = instance.tags.get(labels::TAG_NODE_CLAIM);
    let may_own = |odd: &Unreadable| {
        let name = &odd.metadata.name;
        name.is_empty() || owns(odd) || named.map_or(unnamed, |named| named == name)
    };
    machines(objects).any(|named| named == id.as_str()) || hidden(claims, objects).any(may_own)
}

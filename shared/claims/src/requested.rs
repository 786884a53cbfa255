//! The deletion of a claim that a user requests by deleting its NodeClaim or its Node. Pure.

use crate::mirror::object_of;
use crate::{Claim, Stored, stated_deadline};
use std::collections::BTreeSet;
use whittle_api::k8s::{Kind, Node};
use whittle_api::{ClusterObjects, ObjectMeta};
use whittle_units::Timestamp;

/// A deletion that a user requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// What was deleted.
    pub message: &'static str,
    /// When; `None` if that is not known.
    pub at: Option<Timestamp>,
    /// The deadline that the NodeClaim states.
    pub deadline: Option<Timestamp>,
}

/// The deletion of a claim that a user requests, if so, by the NodeClaim that shows it and the Nodes of its machine, be they ones that
/// cannot be read.
pub fn requested<'a>(claim: &Claim, node_claim: Option<&ObjectMeta>, nodes: impl IntoIterator<Item = &'a ObjectMeta>) -> Option<Requested> {
    let deadline = node_claim.and_then(stated_deadline);
    if let Some(meta) = node_claim.filter(|meta| meta.is_deleting()) {
        return Some(Requested { message: "the NodeClaim was deleted", at: meta.deletion_timestamp, deadline });
    }
    // Another Node with the same provider id is irrelevant to this claim's own.
    let name = claim.node_name()?;
    let is_deleted = nodes.into_iter().any(|meta| meta.name == name && meta.is_deleting());
    is_deleted.then_some(Requested { message: "the Node was deleted", at: None, deadline })
}

/// Whether a claim's machine serves. The table may be older than the cluster: for a claim without a machine or Node EC2 has to show the
/// machine first, which `sweep` asks.
pub fn serves(claim: &Claim) -> bool {
    claim.is_live() && claim.deletion.is_none() && claim.machine().is_some() && claim.node_name().is_some()
}

/// The claims that serve and whose deletion a user requests. Few objects are being deleted at a time: only their claims are looked at.
pub fn requests<'a>(claims: &'a [Stored<Claim>], objects: &ClusterObjects) -> Vec<(&'a Stored<Claim>, Requested)> {
    let nodes = objects.nodes.iter().map(|node| &node.metadata);
    let node_claims = objects.node_claims.iter().map(|node_claim| &node_claim.metadata);
    let all = nodes.chain(node_claims).chain(objects.unreadable.iter().map(|odd| &odd.metadata));
    let deleting: BTreeSet<&str> = all.filter(|meta| meta.is_deleting()).map(|meta| meta.name.as_str()).collect();
    let is_named =
        |claim: &Claim| deleting.contains(claim.key.name.as_str()) || claim.node_name().is_some_and(|name| deleting.contains(name));
    let request_of = |claim: &Claim| requested(claim, object_of(claim, objects), nodes_of(claim, objects));
    let candidates = claims.iter().filter(|claim| serves(&claim.value) && is_named(&claim.value));
    candidates.filter_map(|claim| Some((claim, request_of(&claim.value)?))).collect()
}

/// The Nodes of a claim's machine, and those that cannot be read and may be its.
fn nodes_of<'a>(claim: &'a Claim, objects: &'a ClusterObjects) -> impl Iterator<Item = &'a ObjectMeta> {
    let id = claim.machine().map(|machine| machine.provider_id.as_str());
    let nodes = objects.nodes.iter().filter(move |node| id.is_some_and(|id| node.spec.provider_id == id)).map(|node| &node.metadata);
    let odd = objects.unreadable_of(Node::KIND).filter(move |odd| odd.provider_id.is_empty() || id == Some(odd.provider_id.as_str()));
    nodes.chain(odd.map(|odd| &odd.metadata))
}

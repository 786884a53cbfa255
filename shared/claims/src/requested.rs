//! The deletion of a claim that a user requests by deleting its NodeClaim or its Node. Pure.

use crate::{Claim, stated_deadline};
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, ObjectMeta, Unreadable};
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

/// The NodeClaim that shows a claim, which may be one that cannot be read.
pub fn object_of<'a>(claim: &Claim, objects: &'a ClusterObjects) -> Option<&'a ObjectMeta> {
    if let Some(node_claim) = objects.node_claims.iter().find(|node_claim| claim.is_mirrored_by(node_claim)) {
        return Some(&node_claim.metadata);
    }
    let name = claim.key.name.as_str();
    let is_its = |odd: &&Unreadable| {
        let uid = claim.spec.standalone_uid.as_ref();
        odd.metadata.name == name && uid.is_none_or(|uid| *uid == odd.metadata.uid)
    };
    objects.unreadable_of(NodeClaim::KIND).find(is_its).map(|odd| &odd.metadata)
}

/// The deletion of a claim that a user requests, if so.
pub fn requested(claim: &Claim, objects: &ClusterObjects) -> Option<Requested> {
    let object = object_of(claim, objects);
    let deadline = object.and_then(stated_deadline);
    if let Some(meta) = object.filter(|meta| meta.is_deleting()) {
        return Some(Requested { message: "the NodeClaim was deleted", at: meta.deletion_timestamp, deadline });
    }
    // Another Node with the same provider id is irrelevant to this claim's own.
    let name = claim.node_name()?;
    let id = claim.machine().map(|machine| machine.provider_id.as_str());
    let nodes = objects.nodes.iter().filter(|node| id.is_some_and(|id| node.spec.provider_id == id)).map(|node| &node.metadata);
    let odd = objects.unreadable_of(Node::KIND).filter(|odd| odd.provider_id.is_empty() || id == Some(odd.provider_id.as_str()));
    let mut own = nodes.chain(odd.map(|odd| &odd.metadata)).filter(|meta| meta.name == name);
    own.any(ObjectMeta::is_deleting).then(|| Requested { message: "the Node was deleted", at: None, deadline })
}

/// The same of a claim whose machine serves. The table may be older than the cluster: one without a machine or Node waits until EC2 shows
/// the machine, which `sweep` asks.
pub fn requested_of_serving(claim: &Claim, objects: &ClusterObjects) -> Option<Requested> {
    let serves = claim.is_live() && claim.deletion.is_none() && claim.machine().is_some() && claim.node_name().is_some();
    if serves { requested(claim, objects) } else { None }
}

//! Nodes and NodeClaims by what claims name them by: thousands of claims may be due at once, and a scan of the lists for each of them would
//! take the time of a run. Pure.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::ClusterObjects;
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_claims::Claim;

/// What a run has read, in its order: where several have one name, the first comes first.
#[derive(Default)]
pub(crate) struct Index<'a> {
    /// By provider id, without those that have none.
    nodes: BTreeMap<&'a str, Vec<&'a Node>>,
    /// Uids of the objects that own a Node.
    owners: BTreeSet<&'a str>,
    /// By name.
    node_claims: BTreeMap<&'a str, Vec<&'a NodeClaim>>,
}

impl<'a> Index<'a> {
    pub(crate) fn of(objects: &'a ClusterObjects) -> Self {
        let mut index = Self::default();
        for node in &objects.nodes {
            if !node.spec.provider_id.is_empty() {
                index.nodes.entry(node.spec.provider_id.as_str()).or_default().push(node);
            }
            index.owners.extend(node.metadata.owner_references.iter().map(|owner| owner.uid.as_str()));
        }
        for node_claim in &objects.node_claims {
            index.node_claims.entry(node_claim.metadata.name.as_str()).or_default().push(node_claim);
        }
        index
    }

    /// The Nodes of a claim's machine.
    pub(crate) fn nodes_of(&self, claim: &Claim) -> &[&'a Node] {
        let nodes = claim.machine().and_then(|machine| self.nodes.get(machine.provider_id.as_str()));
        nodes.map(Vec::as_slice).unwrap_or_default()
    }

    /// The NodeClaim of a claim.
    pub(crate) fn mirror_of(&self, claim: &Claim) -> Option<&'a NodeClaim> {
        let named = self.node_claims.get(claim.key.name.as_str())?;
        named.iter().copied().find(|node_claim| claim.is_mirrored_by(node_claim))
    }

    /// Whether the object with this uid owns a Node.
    pub(crate) fn owns_node(&self, uid: &str) -> bool {
        self.owners.contains(uid)
    }
}

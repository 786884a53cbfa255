//! Claims, instances and objects, by the names and ids that refer to them. With thousands of each, scanning a list for every claim would
//! take seconds. Pure.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{Claim, Stored};
use whittle_ec2::instance::Instance;
use whittle_units::{ClaimName, InstanceId};

/// What a sweep has read, in its order: where several have one name, the first comes first.
pub(crate) struct Index<'a> {
    pub(crate) objects: &'a ClusterObjects,
    /// By provider id; those without one under an empty id.
    nodes: BTreeMap<&'a str, Vec<&'a Node>>,
    /// The first Node that an object owns, by the object's uid.
    owned_nodes: BTreeMap<&'a str, &'a Node>,
    node_claims_by_name: BTreeMap<&'a str, Vec<&'a NodeClaim>>,
    node_claims_by_machine: BTreeMap<&'a str, Vec<&'a NodeClaim>>,
    claims: BTreeMap<&'a str, &'a Stored<Claim>>,
    /// By the provider id of their machine, where that has not ended.
    claims_by_machine: BTreeMap<&'a str, Vec<&'a Stored<Claim>>>,
    /// Machines of claims, also of ended ones.
    claimed: BTreeSet<&'a InstanceId>,
    unreadable: BTreeSet<&'a str>,
    instances: BTreeMap<&'a InstanceId, &'a Instance>,
    /// Provider ids of instances that are alive.
    running: BTreeSet<String>,
    /// Instances that are alive, by the NodeClaim in their tag.
    tagged: BTreeMap<&'a str, Vec<&'a Instance>>,
}

impl<'a> Index<'a> {
    /// `unreadable` are the names of claims that cannot be read.
    pub(crate) fn of(
        claims: &'a [Stored<Claim>],
        unreadable: &'a [String],
        objects: &'a ClusterObjects,
        instances: &'a [Instance],
    ) -> Self {
        let mut index = Self {
            objects,
            nodes: BTreeMap::new(),
            owned_nodes: BTreeMap::new(),
            node_claims_by_name: BTreeMap::new(),
            node_claims_by_machine: BTreeMap::new(),
            claims: BTreeMap::new(),
            claims_by_machine: BTreeMap::new(),
            claimed: claims.iter().filter_map(|claim| claim.value.instance()).collect(),
            unreadable: unreadable.iter().map(String::as_str).collect(),
            instances: BTreeMap::new(),
            running: BTreeSet::new(),
            tagged: BTreeMap::new(),
        };
        for node in &objects.nodes {
            index.nodes.entry(node.spec.provider_id.as_str()).or_default().push(node);
            for owner in &node.metadata.owner_references {
                index.owned_nodes.entry(owner.uid.as_str()).or_insert(node);
            }
        }
        for node_claim in &objects.node_claims {
            index.node_claims_by_name.entry(node_claim.metadata.name.as_str()).or_default().push(node_claim);
            index.node_claims_by_machine.entry(node_claim.status.provider_id.as_str()).or_default().push(node_claim);
        }
        for claim in claims {
            index.claims.entry(claim.value.key.name.as_str()).or_insert(claim);
            if let Some(machine) = claim.value.machine() {
                index.claims_by_machine.entry(machine.provider_id.as_str()).or_default().push(claim);
            }
        }
        for instance in instances {
            index.instances.entry(&instance.id).or_insert(instance);
            if instance.is_alive() {
                index.running.insert(instance.provider_id().as_str().to_owned());
                if let Some(name) = instance.tags.get(labels::TAG_NODE_CLAIM) {
                    index.tagged.entry(name.as_str()).or_default().push(instance);
                }
            }
        }
        index
    }

    /// The Nodes with a provider id.
    pub(crate) fn nodes_at(&self, provider_id: &str) -> &[&'a Node] {
        self.nodes.get(provider_id).map(Vec::as_slice).unwrap_or_default()
    }

    /// The Nodes of a claim's machine.
    pub(crate) fn nodes_of(&self, claim: &Claim) -> &[&'a Node] {
        claim.machine().map(|machine| self.nodes_at(machine.provider_id.as_str())).unwrap_or_default()
    }

    /// The first Node that the object with this uid owns.
    pub(crate) fn node_owned_by(&self, uid: &str) -> Option<&'a Node> {
        self.owned_nodes.get(uid).copied()
    }

    /// The NodeClaim of a claim.
    pub(crate) fn mirror_of(&self, claim: &Claim) -> Option<&'a NodeClaim> {
        let named = self.node_claims_by_name.get(claim.key.name.as_str())?;
        named.iter().copied().find(|node_claim| claim.is_mirrored_by(node_claim))
    }

    /// The NodeClaims whose status names a machine; those that name none for an empty id.
    pub(crate) fn node_claims_at(&self, provider_id: &str) -> &[&'a NodeClaim] {
        self.node_claims_by_machine.get(provider_id).map(Vec::as_slice).unwrap_or_default()
    }

    /// The claim of this name.
    pub(crate) fn claim(&self, name: &ClaimName) -> Option<&'a Stored<Claim>> {
        self.claim_named(name.as_str())
    }

    pub(crate) fn claim_named(&self, name: &str) -> Option<&'a Stored<Claim>> {
        self.claims.get(name).copied()
    }

    /// Whether a claim has this name, be it one that cannot be read.
    pub(crate) fn has_claim(&self, name: &str) -> bool {
        self.claims.contains_key(name) || self.is_unreadable(name)
    }

    /// Whether the claim of this name cannot be read.
    pub(crate) fn is_unreadable(&self, name: &str) -> bool {
        self.unreadable.contains(name)
    }

    /// The claims whose machine has a provider id.
    pub(crate) fn claims_at(&self, provider_id: &str) -> &[&'a Stored<Claim>] {
        self.claims_by_machine.get(provider_id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether an instance is that of a claim, also of an ended one.
    pub(crate) fn is_claimed(&self, id: &InstanceId) -> bool {
        self.claimed.contains(id)
    }

    pub(crate) fn instance(&self, id: &InstanceId) -> Option<&'a Instance> {
        self.instances.get(id).copied()
    }

    /// Whether an instance with this provider id is alive.
    pub(crate) fn runs(&self, provider_id: &str) -> bool {
        self.running.contains(provider_id)
    }

    /// Instances that are alive and tagged as that of the NodeClaim.
    pub(crate) fn tagged(&self, node_claim: &str) -> &[&'a Instance] {
        self.tagged.get(node_claim).map(Vec::as_slice).unwrap_or_default()
    }
}

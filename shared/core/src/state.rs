//! What is known of every machine: Nodes and NodeClaims joined, with the pods that are bound to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::k8s::{Kind, Node, Pod, Taint, TaintEffect};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, Unreadable, conditions, labels};
use whittle_units::{Quantity, Resources, Timestamp};

/// One machine: a Node, a NodeClaim, or both, joined by provider id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateNode {
    pub node: Option<Arc<Node>>,
    pub claim: Option<Arc<NodeClaim>>,
    /// Bound pods, as positions in the pods that the state was made from; terminal ones are left out.
    pub pods: Vec<usize>,
    /// Chosen for removal, or being deleted: no room for new pods, and its own pods move.
    pub marked_for_deletion: bool,
    /// Until when pods are expected on it, so that it is not disrupted meanwhile.
    pub nominated_until: Option<Timestamp>,
    /// What stands for it, or on it, and cannot be read: it is left alone.
    pub unreadable: Option<String>,
}

impl StateNode {
    /// Whether it belongs to a NodeClaim.
    #[must_use]
    pub fn managed(&self) -> bool {
        self.claim.is_some()
    }

    /// Whether the kubelet has joined under its NodeClaim; always true for unmanaged nodes.
    #[must_use]
    pub fn registered(&self) -> bool {
        !self.managed() || self.node_label(labels::REGISTERED) == Some("true")
    }

    /// Whether the node is ready for all pods; always true for unmanaged nodes.
    #[must_use]
    pub fn initialized(&self) -> bool {
        !self.managed() || self.node_label(labels::INITIALIZED) == Some("true")
    }

    fn node_label(&self, key: &str) -> Option<&str> {
        self.node.as_ref().and_then(|n| n.metadata.label(key))
    }

    /// The NodeClaim's name until registered, then the Node's.
    #[must_use]
    pub fn name(&self) -> &str {
        match (&self.node, &self.claim) {
            (Some(node), None) => &node.metadata.name,
            (Some(node), Some(_)) if self.registered() => &node.metadata.name,
            (_, Some(claim)) => &claim.metadata.name,
            (None, None) => "",
        }
    }

    /// The labels that simulation goes by: the NodeClaim's until registered, then the Node's.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        match (&self.node, &self.claim) {
            (Some(node), None) => &node.metadata.labels,
            (Some(node), Some(_)) if self.registered() => &node.metadata.labels,
            (_, Some(claim)) => &claim.metadata.labels,
            (None, None) => &NONE,
        }
    }

    /// The host name: its label, or the name.
    #[must_use]
    pub fn hostname(&self) -> &str {
        self.labels().get(labels::HOSTNAME).map(String::as_str).filter(|h| !h.is_empty()).unwrap_or_else(|| self.name())
    }

    /// The NodePool it belongs to, by its label.
    #[must_use]
    pub fn node_pool(&self) -> Option<&str> {
        self.labels().get(labels::NODE_POOL).map(String::as_str)
    }

    /// Capacity; `nodes: 1` is always part of it.
    #[must_use]
    pub fn capacity(&self) -> Resources {
        let mut out = self.reported(|n| &n.status.capacity, |c| &c.status.capacity);
        out.set("nodes", Quantity::from_units(1));
        out
    }

    /// What pods can use in total.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        self.reported(|n| &n.status.allocatable, |c| &c.status.allocatable)
    }

    /// What the Node reports; before initialization what is zero or missing there comes from the NodeClaim, since a
    /// kubelet starts with empty extended resources.
    fn reported(&self, of_node: impl Fn(&Node) -> &Resources, of_claim: impl Fn(&NodeClaim) -> &Resources) -> Resources {
        let mut out = self.node.as_ref().map(|n| of_node(n).clone()).unwrap_or_default();
        if let Some(claim) = self.claim.as_ref().filter(|_| !self.initialized() || self.node.is_none()) {
            for (name, amount) in of_claim(claim).iter() {
                if out.get(name).is_zero() {
                    out.set(name, amount);
                }
            }
        }
        out
    }

    /// The taints that pods must tolerate to be planned here. Taints that only mark a start-up in progress do not count
    /// before a managed node has initialized.
    #[must_use]
    pub fn simulated_taints(&self) -> Vec<Taint> {
        let Some(claim) = &self.claim else {
            return self.node.as_ref().map(|n| n.spec.taints.clone()).unwrap_or_default();
        };
        let taints = match &self.node {
            Some(node) if self.registered() => node.spec.taints.clone(),
            _ => claim.spec.taints.clone(),
        };
        if self.initialized() && self.node.is_some() {
            return taints;
        }
        taints.into_iter().filter(|t| !is_ephemeral(t) && !claim.spec.startup_taints.iter().any(|s| s.same(t))).collect()
    }
}

/// Taints that come and go while a node starts.
#[must_use]
pub fn is_ephemeral(taint: &Taint) -> bool {
    let known = [
        ("node.kubernetes.io/not-ready", TaintEffect::NoSchedule),
        ("node.kubernetes.io/not-ready", TaintEffect::NoExecute),
        ("node.kubernetes.io/unreachable", TaintEffect::NoSchedule),
        ("node.cloudprovider.kubernetes.io/uninitialized", TaintEffect::NoSchedule),
        (labels::UNREGISTERED_TAINT, TaintEffect::NoExecute),
    ];
    taint.key.starts_with("readiness.k8s.io/") || known.iter().any(|(key, effect)| taint.key == *key && taint.effect == *effect)
}

/// All machines of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterState {
    /// By name.
    pub nodes: Vec<StateNode>,
    /// NodeClaims that were asked for but have no provider id yet: their size is not known, so a pass must wait for them
    /// or treat their pods as planned for.
    pub unlaunched: Vec<Arc<NodeClaim>>,
}

impl ClusterState {
    /// Joins the objects of a cluster. `pods` are looked up by the positions in [`StateNode::pods`].
    #[must_use]
    pub fn of(objects: &ClusterObjects) -> Self {
        let mut by_id: BTreeMap<String, StateNode> = BTreeMap::new();
        let mut unlaunched = Vec::new();
        for claim in &objects.node_claims {
            if claim.status.provider_id.is_empty() {
                unlaunched.push(Arc::new(claim.clone()));
            } else {
                by_id.entry(claim.status.provider_id.clone()).or_default().claim = Some(Arc::new(claim.clone()));
            }
        }
        for node in &objects.nodes {
            let id = if !node.spec.provider_id.is_empty() {
                node.spec.provider_id.clone()
            } else if node.metadata.label(labels::NODE_POOL).is_some() {
                continue;
            } else {
                format!("node/{}", node.metadata.name)
            };
            by_id.entry(id).or_default().node = Some(Arc::new(node.clone()));
        }
        let mut nodes: Vec<StateNode> = by_id.into_values().filter_map(taken_in).collect();
        for node in &mut nodes {
            node.marked_for_deletion = being_deleted(node);
        }
        nodes.sort_by(|a, b| a.name().cmp(b.name()));
        let mut out = Self { nodes, unlaunched };
        out.mark_unreadable(objects);
        out.bind(objects);
        out
    }

    /// Notes which machines have something that cannot be read.
    fn mark_unreadable(&mut self, objects: &ClusterObjects) {
        for odd in &objects.unreadable {
            for node in self.nodes.iter_mut().filter(|node| node.unreadable.is_none()) {
                if concerns(odd, node) {
                    node.unreadable = Some(format!("{} {}", odd.kind, odd.metadata.key()));
                }
            }
        }
    }

    /// Notes which pod is on which machine.
    fn bind(&mut self, objects: &ClusterObjects) {
        let mut at: BTreeMap<String, usize> =
            self.nodes.iter().enumerate().filter_map(|(n, s)| Some((s.node.as_ref()?.metadata.name.clone(), n))).collect();
        // The room of a machine whose Node cannot be read is taken by its pods all the same.
        for odd in objects.unreadable_of(Node::KIND) {
            if let Some(n) = self.nodes.iter().position(|state| is_node_of(odd, state)) {
                at.entry(odd.metadata.name.clone()).or_insert(n);
            }
        }
        for (p, pod) in objects.pods.iter().enumerate() {
            if let (false, Some(&n)) = (pod.is_terminal(), at.get(&pod.spec.node_name)) {
                self.nodes[n].pods.push(p);
            }
        }
    }

    /// The names of the Nodes (not NodeClaims) by state node.
    #[must_use]
    pub fn node_names(&self) -> BTreeSet<&str> {
        self.nodes.iter().filter_map(|n| n.node.as_ref().map(|n| n.metadata.name.as_str())).collect()
    }
}

/// Whether an object that cannot be read is the Node of a machine.
fn is_node_of(odd: &Unreadable, state: &StateNode) -> bool {
    let Some(claim) = state.claim.as_ref().filter(|_| odd.kind == Node::KIND) else { return false };
    let named = !odd.node_name.is_empty() && claim.status.node_name == odd.node_name;
    claim.status.provider_id == odd.provider_id || named
}

/// Whether an object that cannot be read is the Node of a machine, or a pod on it.
fn concerns(odd: &Unreadable, state: &StateNode) -> bool {
    let on_it = |name: &str| {
        state.node.as_ref().is_some_and(|node| node.metadata.name == name)
            || state.claim.as_ref().is_some_and(|claim| claim.status.node_name == name)
    };
    match odd.kind.as_str() {
        Node::KIND => is_node_of(odd, state),
        Pod::KIND => !odd.node_name.is_empty() && on_it(&odd.node_name),
        _ => false,
    }
}

/// A Node of ours that has not initialized and does not say its type yet is not looked at; its claim stands for it.
fn taken_in(mut state: StateNode) -> Option<StateNode> {
    let early = |node: &Arc<Node>| {
        let said = |key: &str| node.metadata.label(key).is_some();
        said(labels::NODE_POOL) && !said(labels::INITIALIZED) && !said(labels::INSTANCE_TYPE)
    };
    if state.node.as_ref().is_some_and(early) {
        state.node = None;
    }
    (state.node.is_some() || state.claim.is_some()).then_some(state)
}

fn being_deleted(node: &StateNode) -> bool {
    match (&node.claim, &node.node) {
        (Some(claim), _) => claim.metadata.is_deleting() || conditions::is_true(&claim.status.conditions, conditions::INSTANCE_TERMINATING),
        (None, Some(node)) => node.metadata.is_deleting(),
        (None, None) => false,
    }
}

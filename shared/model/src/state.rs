//! The state of every machine: Nodes and NodeClaims joined, with their bound pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::k8s::{Kind, Node, Pod, Taint, TaintEffect};
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ClusterObjects, ObjectMeta, Unreadable, conditions, labels};
use whittle_units::{Quantity, Resources, Timestamp};

/// Labels or annotations of nothing.
static NONE: BTreeMap<String, String> = BTreeMap::new();

/// What a machine has whatever is set up on it: its Node is not believed that it has much more or less of it (ADR 0083). How many pods and
/// devices a machine has, and how much storage, is a matter of settings.
const OF_HARDWARE: [&str; 2] = ["cpu", "memory"];

/// What counts of the capacity that a Node reports of a resource. A kubelet writes it itself: an amount that the machine cannot have would
/// use up its NodePool's limits, and none would have machines launched beyond them. Instead what was expected of the machine counts;
/// zero if nothing is known.
#[must_use]
pub fn counted_capacity(resource: &str, reported: Quantity, expected: Quantity) -> Quantity {
    let is_checked = OF_HARDWARE.contains(&resource) && !expected.is_zero();
    if is_checked && !reported.is_about(expected) { expected } else { reported }
}

/// One machine: a Node, a NodeClaim, or both, joined by provider ID.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateNode {
    pub node: Option<Arc<Node>>,
    pub claim: Option<Arc<NodeClaim>>,
    /// Bound pods, as positions in the pods that the state was built from, without terminal ones.
    pub pods: Vec<usize>,
    /// Being deleted or chosen for removal: it accepts no pods, and its own pods are rescheduled.
    pub marked_for_deletion: bool,
    /// Until when it is nominated for pods, which protects it from disruption.
    pub nominated_until: Option<Timestamp>,
    /// Its Node, or a pod on it, that cannot be read; such a machine is not disrupted.
    pub unreadable: Option<String>,
}

impl StateNode {
    /// Whether it has a NodeClaim.
    #[must_use]
    pub fn managed(&self) -> bool {
        self.claim.is_some()
    }

    /// Whether the Node has been registered for its NodeClaim; always true for unmanaged nodes.
    #[must_use]
    pub fn registered(&self) -> bool {
        !self.managed() || self.node_label(labels::REGISTERED) == Some("true")
    }

    /// Whether the node has initialized; always true for unmanaged nodes.
    #[must_use]
    pub fn initialized(&self) -> bool {
        !self.managed() || self.node_label(labels::INITIALIZED) == Some("true")
    }

    /// Whether it has not initialized yet. What has done so once does not start again, whatever becomes of the labels of its Node: a
    /// kubelet may take them off, and a Node that is made anew lacks them (ADR 0079).
    #[must_use]
    pub fn is_starting(&self) -> bool {
        let has_initialized = |claim: &Arc<NodeClaim>| conditions::is_true(&claim.status.conditions, conditions::INITIALIZED);
        !self.initialized() && !self.claim.as_ref().is_some_and(has_initialized)
    }

    fn node_label(&self, key: &str) -> Option<&str> {
        self.node.as_ref().and_then(|n| n.metadata.label(key))
    }

    /// The NodeClaim's name until registered, then the Node's.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata().map_or("", |metadata| metadata.name.as_str())
    }

    /// The labels that simulations use: the NodeClaim's until registered, then the Node's.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        self.metadata().map_or(&NONE, |metadata| &metadata.labels)
    }

    /// The annotations that count, by the same rule: one that the Node got from the NodeClaim can be removed from it.
    #[must_use]
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        self.metadata().map_or(&NONE, |metadata| &metadata.annotations)
    }

    /// The NodeClaim's until registered, then the Node's.
    fn metadata(&self) -> Option<&ObjectMeta> {
        match (&self.node, &self.claim) {
            (Some(node), None) => Some(&node.metadata),
            (Some(node), Some(_)) if self.registered() => Some(&node.metadata),
            (_, Some(claim)) => Some(&claim.metadata),
            (None, None) => None,
        }
    }

    /// The hostname label, or else the name.
    #[must_use]
    pub fn hostname(&self) -> &str {
        self.labels().get(labels::HOSTNAME).map(String::as_str).filter(|h| !h.is_empty()).unwrap_or_else(|| self.name())
    }

    /// The time by which its pods must have ended, whatever holds them, once it is being deleted with such a deadline.
    #[must_use]
    pub fn forced_at(&self) -> Option<Timestamp> {
        self.claim.as_ref()?.metadata.annotation(labels::TERMINATION_TIMESTAMP)?.parse().ok()
    }

    /// The NodePool, from the label.
    #[must_use]
    pub fn node_pool(&self) -> Option<&str> {
        self.labels().get(labels::NODE_POOL).map(String::as_str)
    }

    /// The NodePool whose limits it uses up: that of its NodeClaim, since a kubelet may change the label of its Node (ADR 0083).
    #[must_use]
    pub fn limited_by(&self) -> Option<&str> {
        let of_claim = self.claim.as_ref().and_then(|claim| claim.metadata.label(labels::NODE_POOL));
        of_claim.or_else(|| self.node_pool())
    }

    /// Capacity, with `nodes: 1` added.
    #[must_use]
    pub fn capacity(&self) -> Resources {
        let mut out = self.reported(|n| &n.status.capacity, |c| &c.status.capacity);
        for resource in OF_HARDWARE {
            let reported = out.get(resource);
            let counted = counted_capacity(resource, reported, self.expected(resource));
            if counted != reported {
                out.set(resource, counted);
            }
        }
        out.set("nodes", Quantity::from_units(1));
        out
    }

    /// What pods can use in total. Of more than twice of what the machine has nothing is believed: the pods of all other nodes would seem
    /// to fit there.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        let mut out = self.reported(|n| &n.status.allocatable, |c| &c.status.allocatable);
        if let (Some(_), Some(claim)) = (&self.node, &self.claim) {
            for resource in OF_HARDWARE {
                let expected = self.expected(resource);
                if !expected.is_zero() && out.get(resource) > expected.times(2) {
                    out.set(resource, claim.status.allocatable.get(resource));
                }
            }
        }
        out
    }

    /// The capacity that the machine was launched for; zero where that is not known.
    fn expected(&self, resource: &str) -> Quantity {
        self.claim.as_ref().map_or(Quantity::ZERO, |claim| claim.status.capacity.get(resource))
    }

    /// What the Node reports. Until initialization, zero or missing amounts come from the NodeClaim, since a kubelet
    /// starts without extended resources.
    fn reported(&self, of_node: impl Fn(&Node) -> &Resources, of_claim: impl Fn(&NodeClaim) -> &Resources) -> Resources {
        let mut out = self.node.as_ref().map(|n| of_node(n).clone()).unwrap_or_default();
        if let Some(claim) = self.claim.as_ref().filter(|_| self.is_starting() || self.node.is_none()) {
            for (name, amount) in of_claim(claim).iter() {
                if out.get(name).is_zero() {
                    out.set(name, amount);
                }
            }
        }
        out
    }

    /// The taints that pods must tolerate. Ephemeral and startup taints are ignored while a managed node starts. A cordoned node has the
    /// taint that the node controller gives it, even before it does.
    #[must_use]
    pub fn simulated_taints(&self) -> Vec<Taint> {
        let mut taints = self.simulated_own_taints();
        let cordon = Taint::new(labels::UNSCHEDULABLE_TAINT, TaintEffect::NoSchedule);
        let is_cordoned = self.node.as_ref().is_some_and(|node| node.spec.unschedulable);
        if is_cordoned && !taints.iter().any(|taint| taint.same(&cordon)) {
            taints.push(cordon);
        }
        taints
    }

    fn simulated_own_taints(&self) -> Vec<Taint> {
        let Some(claim) = &self.claim else {
            return self.node.as_ref().map(|n| n.spec.taints.clone()).unwrap_or_default();
        };
        let taints = match &self.node {
            Some(node) if self.registered() || !self.is_starting() => node.spec.taints.clone(),
            _ => claim.spec.taints.clone(),
        };
        if !self.is_starting() && self.node.is_some() {
            return taints;
        }
        taints.into_iter().filter(|t| !is_ephemeral(t) && !claim.spec.startup_taints.iter().any(|s| s.same(t))).collect()
    }
}

/// Taints that are removed while a node starts.
#[must_use]
pub fn is_ephemeral(taint: &Taint) -> bool {
    let known = [
        ("node.kubernetes.io/not-ready", TaintEffect::NoSchedule),
        ("node.kubernetes.io/not-ready", TaintEffect::NoExecute),
        ("node.kubernetes.io/unreachable", TaintEffect::NoSchedule),
        (labels::CLOUD_PROVIDER_TAINT, TaintEffect::NoSchedule),
        (labels::UNREGISTERED_TAINT, TaintEffect::NoExecute),
    ];
    taint.key.starts_with("readiness.k8s.io/") || known.iter().any(|(key, effect)| taint.key == *key && taint.effect == *effect)
}

/// The machines of a cluster, each with its Node and NodeClaim joined by their provider id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterState {
    /// Sorted by name.
    pub nodes: Vec<StateNode>,
    /// NodeClaims without a provider ID: their size is not known yet, so a pass must wait for them or treat their pods
    /// as planned.
    pub unlaunched: Vec<Arc<NodeClaim>>,
}

impl ClusterState {
    /// Joins the objects of a cluster. The positions in [`StateNode::pods`] refer to `objects.pods`.
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
        let mut nodes: Vec<StateNode> = by_id.into_values().filter_map(without_early_node).collect();
        for node in &mut nodes {
            node.marked_for_deletion = being_deleted(node);
        }
        nodes.sort_by(|a, b| a.name().cmp(b.name()));
        let mut out = Self { nodes, unlaunched };
        out.mark_unreadable(objects);
        out.bind(objects);
        out
    }

    /// Marks machines whose Node or pods cannot be read.
    fn mark_unreadable(&mut self, objects: &ClusterObjects) {
        for object in &objects.unreadable {
            for node in self.nodes.iter_mut().filter(|node| node.unreadable.is_none()) {
                if concerns(object, node) {
                    node.unreadable = Some(format!("{} {}", object.kind, object.metadata.key()));
                }
            }
        }
    }

    /// Assigns bound pods to their machines.
    fn bind(&mut self, objects: &ClusterObjects) {
        let mut at: BTreeMap<String, usize> =
            self.nodes.iter().enumerate().filter_map(|(n, s)| Some((s.node.as_ref()?.metadata.name.clone(), n))).collect();
        // A machine to come has no Node: the pods that are planned for it are bound to its provider id.
        let to_come = self.nodes.iter().enumerate().filter(|(_, state)| state.node.is_none());
        let to_come: BTreeMap<String, usize> =
            to_come.filter_map(|(n, state)| Some((state.claim.as_ref()?.status.provider_id.clone(), n))).collect();
        // A machine that starts may have a Node that `self.nodes` leaves out: pods bound to it still use its resources.
        for node in objects.nodes.iter().filter(|_| !to_come.is_empty()) {
            if let Some(&n) = to_come.get(&node.spec.provider_id) {
                at.entry(node.metadata.name.clone()).or_insert(n);
            }
        }
        at.extend(to_come);
        // Pods also use resources of a machine whose Node cannot be read.
        for object in objects.unreadable_of(Node::KIND) {
            if let Some(n) = self.nodes.iter().position(|state| is_node_of(object, state)) {
                at.entry(object.metadata.name.clone()).or_insert(n);
            }
        }
        for (p, pod) in objects.pods.iter().enumerate() {
            if let (false, Some(&n)) = (pod.is_terminal(), at.get(&pod.spec.node_name)) {
                self.nodes[n].pods.push(p);
            }
        }
    }

    /// Names of all Nodes, without NodeClaims.
    #[must_use]
    pub fn node_names(&self) -> BTreeSet<&str> {
        self.nodes.iter().filter_map(|n| n.node.as_ref().map(|n| n.metadata.name.as_str())).collect()
    }
}

/// Whether an unreadable object is the Node of a machine.
fn is_node_of(object: &Unreadable, state: &StateNode) -> bool {
    let Some(claim) = state.claim.as_ref().filter(|_| object.kind == Node::KIND) else { return false };
    let named = !object.node_name.is_empty() && claim.status.node_name == object.node_name;
    claim.status.provider_id == object.provider_id || named
}

/// Whether an unreadable object is the Node of a machine, or a pod on it.
fn concerns(object: &Unreadable, state: &StateNode) -> bool {
    let is_node = |name: &str| {
        state.node.as_ref().is_some_and(|node| node.metadata.name == name)
            || state.claim.as_ref().is_some_and(|claim| claim.status.node_name == name)
    };
    match object.kind.as_str() {
        Node::KIND => is_node_of(object, state),
        Pod::KIND => !object.node_name.is_empty() && is_node(&object.node_name),
        _ => false,
    }
}

/// Drops a Node that has not initialized and has no instance type label yet; its NodeClaim represents the machine. One whose machine has
/// initialized stays without that label, which its kubelet may take off: its taints and what it reports would not count any more.
fn without_early_node(mut state: StateNode) -> Option<StateNode> {
    let is_early = |node: &Arc<Node>| {
        let has_label = |key: &str| node.metadata.label(key).is_some();
        has_label(labels::NODE_POOL) && !has_label(labels::INITIALIZED) && !has_label(labels::INSTANCE_TYPE)
    };
    if state.node.as_ref().is_some_and(is_early) && (state.claim.is_none() || state.is_starting()) {
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

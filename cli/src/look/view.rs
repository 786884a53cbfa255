//! A cluster as people look at it: machines with their state, use and price, and pods that wait.

use crate::money::{Bill, Currency};
use crate::printing::{in_line, shortened};
use crate::source::{Manifests, PriceList, assumed_creation};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use whittle_api::k8s::{Node, Pod};
use whittle_api::karpenter::{NodeClaim, NodePool};
use whittle_api::{ObjectMeta, labels};
use whittle_model::pods::effective_requests;
use whittle_model::state::StateNode;
use whittle_units::{Price, Resources};

/// Where a machine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// A NodeClaim whose instance is not started yet.
    Launching,
    /// An instance that is no node yet.
    Joining,
    /// A node that has not been ready for pods yet.
    Starting,
    Ready,
    NotReady,
    /// Closed to new pods by somebody.
    Cordoned,
    /// Chosen to go: closed to new pods by an autoscaler.
    Disrupting,
    /// Its NodeClaim or Node is deleted, and its pods are moved.
    Deleting,
}

impl State {
    /// In a word or two.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Launching => "launching",
            Self::Joining => "joining",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::NotReady => "not ready",
            Self::Cordoned => "cordoned",
            Self::Disrupting => "disrupting",
            Self::Deleting => "deleting",
        }
    }
}

/// One machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Machine {
    /// The name of its Node; as long as there is none, that of its NodeClaim.
    pub(crate) name: String,
    /// The name of its NodeClaim, if it has one.
    pub(crate) claim: String,
    pub(crate) pool: String,
    pub(crate) instance_type: String,
    pub(crate) capacity_type: String,
    pub(crate) zone: String,
    pub(crate) state: State,
    pub(crate) created: Option<Timestamp>,
    /// `None` if it is not known.
    pub(crate) price: Option<Price>,
    /// Pods on it, without those that have ended.
    pub(crate) pods: usize,
    pub(crate) requested: Resources,
    pub(crate) allocatable: Resources,
}

/// Pods of one owner that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// One of them, with its namespace.
    pub(crate) pod: String,
    pub(crate) owner: String,
    pub(crate) count: usize,
    /// Since when the first of them waits.
    pub(crate) since: Option<Timestamp>,
    /// What the scheduler says.
    pub(crate) reason: String,
}

/// A cluster at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    /// By name.
    pub(crate) machines: Vec<Machine>,
    /// The most pods first.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) currency: Currency,
    pub(crate) bill: Bill,
    /// Per hour, of nodes that run on spot capacity.
    pub(crate) spot: Price,
    pub(crate) requested: Resources,
    pub(crate) allocatable: Resources,
    pub(crate) pods: usize,
    /// Objects that cannot be read, and why.
    pub(crate) refused: Vec<String>,
    /// What stands for prices that are not known.
    pub(crate) assumptions: Vec<String>,
}

impl View {
    /// Of the objects of a cluster, at list prices.
    pub(crate) fn of(read: &Manifests, prices: &PriceList, currency: Currency) -> Self {
        let mut machines = machines(read, prices);
        // No age is invented for what does not say it.
        let assumed = Some(assumed_creation(read.settings.now));
        machines.iter_mut().filter(|machine| machine.created == assumed).for_each(|machine| machine.created = None);
        let mut view = Self { currency, refused: read.refused.clone(), ..Self::default() };
        machines.sort_by(|one, other| one.name.cmp(&other.name));
        for machine in &machines {
            // An instance that is not started yet costs nothing.
            if machine.state != State::Launching {
                view.bill = view.bill.with(machine.price);
            }
            if machine.capacity_type == labels::CAPACITY_SPOT {
                view.spot += machine.price.unwrap_or_default();
            }
            view.requested.add(&machine.requested);
            view.allocatable.add(&machine.allocatable);
            view.pods += machine.pods;
        }
        view.machines = machines;
        view.waiting = waiting(&read.objects.pods);
        view.waiting.iter_mut().filter(|group| group.since == assumed).for_each(|group| group.since = None);
        view
    }

    /// How many pods wait.
    pub(crate) fn pending(&self) -> usize {
        self.waiting.iter().map(|group| group.count).sum()
    }
}

/// Nodes with their NodeClaims, and NodeClaims without a Node.
fn machines(read: &Manifests, prices: &PriceList) -> Vec<Machine> {
    let objects = &read.objects;
    let by_id: BTreeMap<&str, &NodeClaim> = objects
        .node_claims
        .iter()
        .filter(|claim| !claim.status.provider_id.is_empty())
        .map(|claim| (claim.status.provider_id.as_str(), claim))
        .collect();
    let by_node: BTreeMap<&str, &NodeClaim> =
        objects.node_claims.iter().map(|claim| (claim.status.node_name.as_str(), claim)).filter(|(name, _)| !name.is_empty()).collect();
    let mut pods: BTreeMap<&str, (usize, Resources)> = BTreeMap::new();
    for pod in objects.pods.iter().filter(|pod| pod.is_bound() && !pod.is_terminal()) {
        let (count, requested) = pods.entry(&pod.spec.node_name).or_default();
        *count += 1;
        requested.add(&effective_requests(pod));
    }
    let mut out = Vec::new();
    let mut joined: Vec<&str> = Vec::new();
    for node in &objects.nodes {
        let claim = by_id.get(node.spec.provider_id.as_str()).or_else(|| by_node.get(node.metadata.name.as_str())).copied();
        joined.extend(claim.map(|claim| claim.metadata.name.as_str()));
        let (count, requested) = pods.get(node.metadata.name.as_str()).cloned().unwrap_or_default();
        out.push(Machine { pods: count, requested, ..machine(Some(node), claim, prices) });
    }
    joined.sort_unstable();
    let alone = objects.node_claims.iter().filter(|claim| joined.binary_search(&claim.metadata.name.as_str()).is_err());
    out.extend(alone.map(|claim| machine(None, Some(claim), prices)));
    out
}

/// A machine without its pods.
fn machine(node: Option<&Node>, claim: Option<&NodeClaim>, prices: &PriceList) -> Machine {
    let none = ObjectMeta::default();
    let of_claim = claim.map_or(&none, |claim| &claim.metadata);
    let metadata = node.map_or(of_claim, |node| &node.metadata);
    let label = |key: &str| metadata.label(key).or_else(|| of_claim.label(key)).unwrap_or_default().to_owned();
    // Its labels say what it is, so that it needs no NodeClaim here.
    let joined = StateNode {
        node: node.cloned().map(Arc::new),
        claim: claim.filter(|_| node.is_none()).cloned().map(Arc::new),
        ..StateNode::default()
    };
    let offer = prices.offer_of(&joined);
    let (capacity, said) = (label(labels::CAPACITY_TYPE), PriceList::says_how_it_is_bought(&joined));
    let pool = metadata.label(labels::PROVISIONER_NAME).map(str::to_owned).unwrap_or_else(|| label(labels::NODE_POOL));
    let allocatable = node.map(|node| &node.status.allocatable).or_else(|| claim.map(|claim| &claim.status.allocatable));
    Machine {
        name: metadata.name.clone(),
        claim: of_claim.name.clone(),
        pool: NodePool::given_name(&pool).to_owned(),
        instance_type: label(labels::INSTANCE_TYPE),
        capacity_type: if capacity.is_empty() && said { offer.capacity_type.to_owned() } else { capacity },
        zone: label(labels::ZONE),
        state: state(node, claim),
        created: metadata.creation_timestamp,
        price: offer.price,
        pods: 0,
        requested: Resources::new(),
        allocatable: allocatable.cloned().unwrap_or_default(),
    }
}

fn state(node: Option<&Node>, claim: Option<&NodeClaim>) -> State {
    if node.is_some_and(|node| node.metadata.is_deleting()) || claim.is_some_and(|claim| claim.metadata.is_deleting()) {
        return State::Deleting;
    }
    let Some(node) = node else {
        let launched = claim.is_some_and(|claim| !claim.status.provider_id.is_empty());
        return if launched { State::Joining } else { State::Launching };
    };
    let is_ready = node.is_ready();
    let initialized = claim.is_none() || node.metadata.label(labels::INITIALIZED) == Some("true");
    if node.has_disrupted_taint() {
        State::Disrupting
    } else if !initialized {
        State::Starting
    } else if !is_ready {
        State::NotReady
    } else if node.spec.unschedulable {
        State::Cordoned
    } else {
        State::Ready
    }
}

/// Pods without a node, by owner and reason.
fn waiting(pods: &[Pod]) -> Vec<Waiting> {
    let mut groups: BTreeMap<(String, String), Waiting> = BTreeMap::new();
    let waits = |pod: &&Pod| !pod.is_bound() && !pod.is_terminal() && !pod.metadata.is_deleting();
    for pod in pods.iter().filter(waits) {
        let (owner, reason) = (owner_of(pod), reason_of(pod));
        let since = pod.metadata.creation_timestamp;
        let new = || Waiting { pod: pod.metadata.key(), owner: owner.clone(), count: 0, since, reason: reason.clone() };
        let group = groups.entry((owner.clone(), reason.clone())).or_insert_with(new);
        group.count += 1;
        group.since = group.since.min(since).or(group.since);
    }
    let mut groups: Vec<Waiting> = groups.into_values().collect();
    groups.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.owner.cmp(&other.owner)));
    groups
}

/// What owns a pod: a Deployment by the name that its ReplicaSet begins with. An API server takes any text of any length as the kind and
/// the name of an owner: it is shown in one line, and what no object can be called is cut.
pub(crate) fn owner_of(pod: &Pod) -> String {
    let namespace = &pod.metadata.namespace;
    let Some(owner) = pod.metadata.controller() else { return format!("Pod {}", pod.metadata.key()) };
    let hash = pod.metadata.label("pod-template-hash").filter(|_| owner.kind == "ReplicaSet");
    let text = match hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-')) {
        Some(deployment) => format!("Deployment {namespace}/{deployment}"),
        None => format!("{} {namespace}/{}", owner.kind, owner.name),
    };
    shortened(&in_line(&text)).into_owned()
}

fn reason_of(pod: &Pod) -> String {
    let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False");
    let said = condition.map(|condition| if condition.message.is_empty() { &condition.reason } else { &condition.message });
    match said.map(String::as_str) {
        None | Some("") => "the scheduler has not looked at it yet".to_owned(),
        Some("SchedulingGated") => "it has scheduling gates".to_owned(),
        Some(said) => said.to_owned(),
    }
}

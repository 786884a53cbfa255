//! The pods of a cluster on nodes that are chosen anew.

use crate::money::{Bill, Currency, counted};
use crate::plan;
use crate::source::{Manifests, Market, PackingArg, PriceList};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use whittle_api::k8s::{Pod, PodCondition};
use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, labels};
use whittle_model::pods::{self, Protection};
use whittle_model::scheduling::{LeftOut, NewClaim};
use whittle_model::state::{ClusterState, StateNode};
use whittle_units::{Price, Quantity, Resources};

/// How often nodes are kept for pods that found no place, before the rest is left out.
const ROUNDS: usize = 8;
/// The label of Fargate's nodes.
const FARGATE: &str = "eks.amazonaws.com/compute-type";

/// Why a node is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Fargate,
    Static,
    NoPrice,
    /// A pod of it that no NodePool takes, and the reason.
    Pod {
        pod: String,
        reason: String,
    },
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fargate => f.write_str("Fargate runs its pod"),
            Self::Static => f.write_str("its NodePool has a fixed number of replicas"),
            Self::NoPrice => f.write_str("its price is not known, so it counts on neither side"),
            Self::Pod { pod, reason } => write!(f, "no NodePool takes {pod}: {reason}"),
        }
    }
}

/// One side of a row: nodes and what they cost, now and then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) now: Bill,
    pub(super) then: Bill,
}

/// How well nodes are used, and what is bought.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Use {
    requested: Resources,
    allocatable: Resources,
    spot: Price,
    all: Price,
}

impl Use {
    /// The share of a resource that is requested, in per cent; `None` if there is none.
    pub(super) fn share(&self, resource: &str) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "output")]
        let amount = |resources: &Resources| resources.get(resource).milli() as f64;
        let all = amount(&self.allocatable);
        (all > 0.0).then(|| amount(&self.requested) / all * 100.0)
    }

    /// The share of spot in what is paid, in per cent; `None` if nothing is paid.
    pub(super) fn spot_share(&self) -> Option<f64> {
        (self.all > Price::ZERO).then(|| self.spot.dollars() / self.all.dollars() * 100.0)
    }

    fn add(&mut self, requested: &Resources, allocatable: &Resources, capacity_type: &str, price: Price) {
        self.requested.add(requested);
        self.allocatable.add(allocatable);
        self.all += price;
        if capacity_type == labels::CAPACITY_SPOT {
            self.spot += price;
        }
    }
}

/// What is paid now, and what would be paid then.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    pub(super) currency: Currency,
    pub(super) total: Row,
    pub(super) by_pool: BTreeMap<String, Row>,
    /// By type and capacity type.
    pub(super) by_type: BTreeMap<(String, String), Row>,
    pub(super) kept: BTreeMap<String, Kept>,
    pub(super) pods_moved: usize,
    /// Pods of changed workloads, planned besides.
    pub(super) pods_of_change: usize,
    /// Of the nodes that are not kept, and of those that would be there instead.
    pub(super) used: (Use, Use),
    /// Architectures of the new nodes.
    architectures: BTreeSet<String>,
    /// What is not known, or not counted.
    pub(super) caveats: Vec<String>,
}

/// Plans the running pods afresh. `tables`: whether prices come from a region's tables.
pub(super) fn compare(read: &Manifests, market: &Market, packing: PackingArg, tables: bool) -> Comparison {
    let state = ClusterState::of(&read.objects);
    let mut kept = kept_from_the_start(read, market, &state);
    let mut rounds = 0;
    let plan = loop {
        let mut fresh = read.clone();
        fresh.objects = without_nodes(read, &state, &kept);
        let plan = plan::decide(&fresh, market.types.clone(), packing).plan;
        let homes = homes(read, &state, &plan.left_out, &kept);
        rounds += 1;
        let ends = homes.is_empty() || rounds == ROUNDS;
        // Also after the last round: a node that has to stay is paid for then, too.
        kept.extend(homes);
        if ends {
            break plan;
        }
    };
    let mut out = Comparison { currency: market.currency, kept, ..Comparison::default() };
    today(&mut out, read, market, &state);
    out.pods_of_change = read.added.of_change.len();
    plan.claims.iter().for_each(|claim| out.launch(claim, market));
    out.caveats = caveats(read, &out, tables);
    let placeholders = crate::source::buffers_with_pods(read).1.len();
    if placeholders > 0 {
        out.caveats.push(format!("{} of capacity buffers counted among those planned afresh", counted(placeholders, "placeholder pod")));
    }
    let unplaced = plan.left_out.iter().filter(|left| read.added.of_change.contains(&left.pod.key())).count();
    if unplaced > 0 {
        out.caveats.push(format!(
            "{} of the change without a place, counted on neither side: `whittle plan --changed` says why",
            counted(unplaced, "pod")
        ));
    }
    out.caveats.extend(of_nodes(read, &state));
    out
}

/// Nodes that are kept whatever their pods are.
fn kept_from_the_start(read: &Manifests, market: &Market, state: &ClusterState) -> BTreeMap<String, Kept> {
    let is_static = |name: &str| read.objects.node_pools.iter().any(|pool| pool.metadata.name == name && pool.is_static());
    let why = |node: &StateNode| {
        if node.labels().get(FARGATE).is_some_and(|value| value == "fargate") {
            return Some(Kept::Fargate);
        }
        if market.prices.offer_of(node).price.is_none() {
            return Some(Kept::NoPrice);
        }
        node.node_pool().is_some_and(is_static).then_some(Kept::Static)
    };
    state.nodes.iter().filter_map(|node| Some((node.name().to_owned(), why(node)?))).collect()
}

/// The cluster without the nodes that are not kept, with their pods as pending ones; what is pending today is left out, but not what a
/// change makes.
fn without_nodes(read: &Manifests, state: &ClusterState, kept: &BTreeMap<String, Kept>) -> ClusterObjects {
    let mut out = read.objects.clone();
    let is_kept = |name: &str| kept.contains_key(name);
    let claims: BTreeSet<&str> = state
        .nodes
        .iter()
        .filter(|node| is_kept(node.name()))
        .filter_map(|node| Some(node.claim.as_ref()?.metadata.name.as_str()))
        .collect();
    out.nodes.retain(|node| is_kept(&node.metadata.name));
    // What Fargate and nodes without a price have free would be taken for nothing.
    let is_full = |name: &str| matches!(kept.get(name), Some(Kept::Fargate | Kept::NoPrice));
    for node in out.nodes.iter_mut().filter(|node| is_full(&node.metadata.name)) {
        node.status.allocatable.0.values_mut().for_each(|amount| *amount = Quantity::ZERO);
    }
    out.csi_nodes.retain(|node| is_kept(&node.metadata.name));
    out.node_claims.retain(|claim| claims.contains(claim.metadata.name.as_str()));
    let known = state.node_names();
    let is_moved = |pod: &Pod| known.contains(pod.spec.node_name.as_str()) && (is_kept(&pod.spec.node_name) || pods::is_reschedulable(pod));
    out.pods.retain(|pod| is_moved(pod) || read.added.of_change.contains(&pod.metadata.key()));
    for pod in out.pods.iter_mut().filter(|pod| pod.is_bound() && !is_kept(&pod.spec.node_name)) {
        unbind(pod);
    }
    out
}

/// Makes a running pod a pending one.
fn unbind(pod: &mut Pod) {
    pod.spec.node_name.clear();
    pod.status.nominated_node_name.clear();
    pod.status.phase = "Pending".to_owned();
    pod.status.conditions = vec![PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: "Unschedulable".to_owned(),
        ..PodCondition::default()
    }];
}

/// The nodes of the pods that found no place.
fn homes(read: &Manifests, state: &ClusterState, left: &[LeftOut], kept: &BTreeMap<String, Kept>) -> BTreeMap<String, Kept> {
    let by_uid: BTreeMap<&str, &str> =
        read.objects.pods.iter().map(|pod| (pod.metadata.uid.as_str(), pod.spec.node_name.as_str())).collect();
    let names = state.node_names();
    let mut out = BTreeMap::new();
    for left in left {
        let Some(node) = by_uid.get(left.pod.uid.as_str()).filter(|node| names.contains(**node) && !kept.contains_key(**node)) else {
            continue;
        };
        let why = || Kept::Pod { pod: left.pod.key(), reason: left.reason.to_string() };
        out.entry((*node).to_owned()).or_insert_with(why);
    }
    out
}

/// Adds the nodes of today; those that are kept are there then, too.
fn today(out: &mut Comparison, read: &Manifests, market: &Market, state: &ClusterState) {
    for node in &state.nodes {
        let offer = market.prices.offer_of(node);
        let kept = out.kept.contains_key(node.name());
        let (now, price) = (Bill::default().with(offer.price), offer.price.unwrap_or_default());
        let row = Row { then: if kept { now.clone() } else { Bill::default() }, now };
        out.add(owner(node), (offer.instance_type, offer.capacity_type), &row);
        if kept {
            continue;
        }
        let mut requested = Resources::default();
        let pods = node.pods.iter().filter_map(|&at| read.objects.pods.get(at));
        for pod in pods {
            requested.add(&pods::effective_requests(pod));
            out.pods_moved += usize::from(pods::is_reschedulable(pod));
        }
        out.used.0.add(&requested, &node.allocatable(), offer.capacity_type, price);
    }
}

/// Who has made a node.
fn owner(node: &StateNode) -> String {
    let group = || node.labels().get("eks.amazonaws.com/nodegroup").map(|name| format!("node group {name}"));
    let pool = node.node_pool().map(|name| NodePool::given_name(name).to_owned());
    pool.or_else(group).unwrap_or_else(|| "(no NodePool)".to_owned())
}

impl Comparison {
    fn add(&mut self, owner: String, (instance_type, capacity_type): (&str, &str), more: &Row) {
        let rows = [
            &mut self.total,
            self.by_pool.entry(owner).or_default(),
            self.by_type.entry((instance_type.to_owned(), capacity_type.to_owned())).or_default(),
        ];
        for row in rows {
            row.now.add(&more.now);
            row.then.add(&more.then);
        }
    }

    /// Adds a machine that would be launched.
    fn launch(&mut self, claim: &NewClaim, market: &Market) {
        let offer = claim.why.cheapest.as_ref();
        let (instance_type, capacity_type) = offer.map_or(("", ""), |offer| (&offer.instance_type, &offer.capacity_type));
        let row = Row { now: Bill::default(), then: Bill::default().plus(1, claim.cheapest_price) };
        self.add(NodePool::given_name(&claim.node_pool).to_owned(), (instance_type, capacity_type), &row);
        let types = market.types.get(&claim.node_pool);
        let found = types.and_then(|types| types.iter().find(|one| one.name == instance_type));
        self.architectures.extend(found.and_then(|one| one.label(labels::ARCH)).map(str::to_owned));
        let allocatable = found.map(whittle_api::catalog::InstanceType::allocatable).unwrap_or_default();
        self.used.1.add(&claim.requests, &allocatable, capacity_type, claim.cheapest_price);
    }
}

/// What is not known, or not counted.
fn caveats(read: &Manifests, out: &Comparison, tables: bool) -> Vec<String> {
    let objects = &read.objects;
    let mut lines = Vec::new();
    if tables && [&out.used.0, &out.used.1].iter().any(|used| used.spot > Price::ZERO) {
        lines.push("spot prices are made up, between 25 % and 60 % of those on demand; --instance-types takes yours".to_owned());
    }
    lines.push("prices are those of the list: savings plans, reserved instances, discounts and volumes are not counted".to_owned());
    let is_left_out = |pod: &&Pod| pods::is_provisionable(pod) && !read.added.of_change.contains(&pod.metadata.key());
    let pending = objects.pods.iter().filter(is_left_out).count();
    if pending > 0 {
        lines.push(format!("{} left out on both sides: `whittle plan` places them", counted(pending, "pending pod")));
    }
    let known: BTreeSet<(&str, &str)> =
        objects.daemon_sets.iter().map(|set| (set.metadata.namespace.as_str(), set.metadata.name.as_str())).collect();
    let owner = |pod: &'_ Pod| pod.metadata.controller().map(|owner| (pod.metadata.namespace.clone(), owner.name.clone()));
    let daemons: BTreeSet<(String, String)> = objects.pods.iter().filter(|pod| pods::is_daemon_owned(pod)).filter_map(owner).collect();
    let missing: Vec<&str> =
        daemons.iter().filter(|(namespace, name)| !known.contains(&(namespace, name))).map(|(_, name)| name.as_str()).collect();
    if !missing.is_empty() {
        lines.push(format!("new nodes have no room for the DaemonSets that are not among the objects: {}; add them", missing.join(", ")));
    }
    let runs = |architecture: &&String| objects.nodes.iter().any(|node| node.metadata.label(labels::ARCH) == Some(architecture));
    let strange: Vec<&str> = out.architectures.iter().filter(|one| !runs(one)).map(String::as_str).collect();
    if !strange.is_empty() {
        lines.push(format!(
            "some new nodes are {}, as no node is today: unless all images are built for it, require {} in the NodePool",
            strange.join(" and "),
            labels::ARCH
        ));
    }
    if objects.disruption_budgets.is_empty() {
        lines.push("there is no PodDisruptionBudget; where there are some, they decide how fast nodes can be replaced".to_owned());
    }
    let held = objects.pods.iter().filter(|pod| pods::do_not_disrupt(pod, read.settings.now) == Protection::Active).count();
    if held > 0 {
        lines.push(format!("{} must not be disrupted: their nodes stay until they end", counted(held, "pod")));
    }
    lines
}

/// What the labels of today's nodes do not say about their bill.
fn of_nodes(read: &Manifests, state: &ClusterState) -> Vec<String> {
    let mut lines = Vec::new();
    let is_fargate = |node: &&StateNode| node.labels().get(FARGATE).is_some_and(|value| value == "fargate");
    let unlabelled = state.nodes.iter().filter(|node| !is_fargate(node) && !PriceList::says_how_it_is_bought(node)).count();
    if unlabelled > 0 {
        lines.push(format!("{} without a label of the capacity type, taken for on demand", counted(unlabelled, "node")));
    }
    let windows = read.objects.nodes.iter().filter(|node| node.metadata.label(labels::OS) == Some("windows")).count();
    if windows > 0 {
        lines.push(format!("the licences of {}, on neither side", counted(windows, "Windows node")));
    }
    if state.nodes.iter().any(|node| is_fargate(&node)) {
        lines.push("what Fargate costs, on neither side".to_owned());
    }
    lines
}

//! What the page shows of a cluster that runs.

use crate::look::view::{self, Machine, View};
use crate::page::view::{NodeState, NodeView, PodState, PodView, Pool, State, WAITING_MAX, Waiting, Workload};
use crate::source::Manifests;
use crate::status::Decided;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::Pod;
use whittle_api::karpenter::NodePool;
use whittle_api::labels;
use whittle_model::pods::effective_requests;
use whittle_units::{Price, Resources};

/// Which cluster it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// Its name in the kubeconfig.
    pub(super) cluster: String,
    /// The version of its API server.
    pub(super) version: String,
    /// The region that was asked for; without it the nodes tell.
    pub(super) region: Option<String>,
}

/// What is shown of the objects of a cluster. `decided` is what was decided last, the oldest first.
pub(super) fn state_of(place: &Place, read: &Manifests, view: &View, decided: &[Decided]) -> State {
    let owners: Vec<String> = read.objects.pods.iter().map(view::owner_of).collect();
    let pods: Vec<(&Pod, &str)> =
        read.objects.pods.iter().zip(owners.iter().map(String::as_str)).filter(|(pod, _)| !pod.is_terminal()).collect();
    let workloads = workloads(&pods);
    let positions: BTreeMap<&str, usize> = workloads.keys().copied().enumerate().map(|(position, owner)| (owner, position)).collect();
    let of_nodes = read.objects.nodes.iter().find_map(|node| node.metadata.label(labels::REGION).map(str::to_owned));
    State {
        cluster: place.cluster.clone(),
        region: place.region.clone().or(of_nodes).unwrap_or_default(),
        version: place.version.clone(),
        nodes: nodes(read, view, &pods, &positions),
        waiting: waiting(view, &answers(&pods, decided), &positions),
        workloads: workloads.into_values().collect(),
        pools: read.objects.node_pools.iter().map(pool).collect(),
        out_of_stock: BTreeSet::new(),
    }
}

/// A NodePool, by the name that its nodes have.
fn pool(pool: &NodePool) -> Pool {
    Pool { name: NodePool::given_name(&pool.metadata.name).to_owned(), ..Pool::of(pool) }
}

/// The owners of pods, by `Deployment default/web`.
fn workloads<'a>(pods: &[(&Pod, &'a str)]) -> BTreeMap<&'a str, Workload> {
    let mut all: BTreeMap<&str, Workload> = BTreeMap::new();
    for (pod, owner) in pods {
        let known = all.entry(owner).or_insert_with(|| {
            let (kind, key) = owner.split_once(' ').unwrap_or(("", owner));
            let (namespace, name) = key.split_once('/').unwrap_or(("", key));
            let requests = effective_requests(pod);
            Workload {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                wanted: None,
                running: 0,
                waiting: 0,
                cpu: requests.get("cpu").milli(),
                memory: requests.get("memory").milli(),
            }
        });
        *(if pod.is_bound() { &mut known.running } else { &mut known.waiting }) += 1;
    }
    all
}

/// The machines, those of a pool together.
fn nodes(read: &Manifests, view: &View, pods: &[(&Pod, &str)], positions: &BTreeMap<&str, usize>) -> Vec<NodeView> {
    let names: BTreeSet<&str> = read.objects.nodes.iter().map(|node| node.metadata.name.as_str()).collect();
    let mut on: BTreeMap<&str, Vec<PodView>> = BTreeMap::new();
    for (pod, owner) in pods.iter().filter(|(pod, _)| pod.is_bound()) {
        let position = positions.get(owner).copied().unwrap_or_default();
        on.entry(&pod.spec.node_name).or_default().push(PodView(pod.metadata.key(), position, PodState::of(pod)));
    }
    let mut all: Vec<NodeView> = view.machines.iter().map(|machine| node(machine, &names, &mut on)).collect();
    all.sort_by(|a, b| (&a.pool, &a.claim, &a.name).cmp(&(&b.pool, &b.claim, &b.name)));
    all
}

fn node(machine: &Machine, names: &BTreeSet<&str>, on: &mut BTreeMap<&str, Vec<PodView>>) -> NodeView {
    let is_node = names.contains(machine.name.as_str());
    let mut pods = on.remove(machine.name.as_str()).filter(|_| is_node).unwrap_or_default();
    pods.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    let pair = |of: fn(&Resources) -> i64| [of(&machine.requested), of(&machine.allocatable)];
    NodeView {
        name: if is_node { machine.name.clone() } else { String::new() },
        claim: machine.claim.clone(),
        pool: machine.pool.clone(),
        instance_type: machine.instance_type.clone(),
        capacity: machine.capacity_type.clone(),
        zone: machine.zone.clone(),
        state: state(machine.state),
        // As in the bill: an instance that is not started yet costs nothing.
        price: machine.price.filter(|_| machine.state != view::State::Launching).map_or(0, Price::nanos),
        since: machine.created.map_or(0, Timestamp::as_millisecond),
        cpu: pair(|resources| resources.get("cpu").milli()),
        memory: pair(|resources| resources.get("memory").milli()),
        pods,
    }
}

const fn state(state: view::State) -> NodeState {
    match state {
        view::State::Launching => NodeState::Launching,
        view::State::Joining => NodeState::Joining,
        view::State::Starting => NodeState::Starting,
        view::State::Ready => NodeState::Ready,
        view::State::NotReady => NodeState::NotReady,
        view::State::Cordoned => NodeState::Cordoned,
        view::State::Disrupting => NodeState::Disrupting,
        view::State::Deleting => NodeState::Draining,
    }
}

/// What was decided last about any waiting pod of each owner.
fn answers<'a>(pods: &[(&Pod, &'a str)], decided: &[Decided]) -> BTreeMap<&'a str, String> {
    let waits: BTreeMap<String, &str> =
        pods.iter().filter(|(pod, _)| !pod.is_bound()).map(|(pod, owner)| (format!("pod/{}", pod.metadata.key()), *owner)).collect();
    decided.iter().filter_map(|one| Some((*waits.get(&one.about)?, one.message.clone()))).collect()
}

fn waiting(view: &View, answers: &BTreeMap<&str, String>, positions: &BTreeMap<&str, usize>) -> Vec<Waiting> {
    let group = |group: &view::Waiting| Waiting {
        workload: positions.get(group.owner.as_str()).copied().unwrap_or_default(),
        count: group.count,
        pod: group.pod.clone(),
        since: group.since.map(Timestamp::as_millisecond),
        reason: group.reason.clone(),
        answer: answers.get(group.owner.as_str()).cloned().unwrap_or_default(),
    };
    view.waiting.iter().take(WAITING_MAX).map(group).collect()
}

//! What the page shows of a session.

use crate::local::rows::pool_of;
use crate::page::view::{NodeState, NodeView, PodState, PodView, Pool, State, WAITING_MAX, Waiting, Workload};
use jiff::Timestamp;
use std::collections::BTreeMap;
use whittle_api::k8s::{Kind as _, Node, Pod};
use whittle_api::labels;
use whittle_claims::{Claim, DecisionKind, Phase};
use whittle_model::pods::effective_requests;
use whittle_sim::World;
use whittle_units::{InstanceId, Resources};

/// How many decisions and Events are looked through for answers about waiting pods.
const RECENT: usize = 50_000;

/// Kind, namespace and name of what owns a pod.
type Owner = (String, String, String);

fn owner_of(world: &World, pod: &Pod) -> Owner {
    let namespace = pod.metadata.namespace.clone();
    if let Some(deployment) = world.cluster.deployment_of(pod) {
        return ("Deployment".to_owned(), namespace, deployment.metadata.name.clone());
    }
    match pod.metadata.controller() {
        Some(owner) => (owner.kind.clone(), namespace, owner.name.clone()),
        None => (Pod::KIND.to_owned(), namespace, pod.metadata.name.clone()),
    }
}

/// The workloads by their owners, those without pods too.
fn workloads(world: &World) -> BTreeMap<Owner, Workload> {
    let mut all = BTreeMap::new();
    let workload = |(kind, namespace, name): &Owner, wanted| {
        let (kind, namespace, name) = (kind.clone(), namespace.clone(), name.clone());
        Workload { kind, namespace, name, wanted, running: 0, waiting: 0, cpu: 0, memory: 0 }
    };
    for deployment in world.cluster.objects.deployments.values() {
        let meta = &deployment.metadata;
        let owner = ("Deployment".to_owned(), meta.namespace.clone(), meta.name.clone());
        all.insert(owner.clone(), workload(&owner, Some(deployment.spec.replicas.unwrap_or(1))));
    }
    for pod in world.cluster.objects.pods.values().filter(|pod| !pod.is_terminal()) {
        let owner = owner_of(world, pod);
        let known = all.entry(owner.clone()).or_insert_with(|| workload(&owner, None));
        let count = if pod.is_bound() { &mut known.running } else { &mut known.waiting };
        *count += 1;
        if known.cpu == 0 && known.memory == 0 {
            let requests = effective_requests(pod);
            (known.cpu, known.memory) = (requests.get("cpu").milli(), requests.get("memory").milli());
        }
    }
    all
}

fn node_state(node: Option<&Node>, claim: Option<&Claim>) -> NodeState {
    match claim.map(|claim| &claim.phase) {
        Some(Phase::Terminating { .. }) => return NodeState::Terminating,
        Some(Phase::Draining { .. }) => return NodeState::Draining,
        _ => {}
    }
    let Some(node) = node else { return NodeState::Launching };
    if node.metadata.is_deleting() || claim.is_some_and(Claim::is_ending) {
        NodeState::Draining
    } else if matches!(claim.map(|claim| &claim.phase), Some(Phase::Launched { .. } | Phase::Registered { .. })) {
        NodeState::Starting
    } else if node.has_disrupted_taint() {
        NodeState::Disrupting
    } else if node.is_ready() {
        NodeState::Ready
    } else {
        NodeState::NotReady
    }
}

fn pair(of: impl Fn(&Resources) -> i64, used: &Resources, allocatable: &Resources) -> [i64; 2] {
    [of(used), of(allocatable)]
}

/// One node with the pods on it.
fn node_view(world: &World, node: &Node, claim: Option<&Claim>, pods: Option<&Vec<&Pod>>, positions: &BTreeMap<Owner, usize>) -> NodeView {
    let label = |key: &str| node.metadata.label(key).unwrap_or_default().to_owned();
    let id = node.spec.provider_id.rsplit('/').next().map(InstanceId::new).unwrap_or_default();
    let mut used = Resources::new();
    let mut shown = Vec::new();
    for pod in pods.into_iter().flatten() {
        used.add(&effective_requests(pod));
        let position = positions.get(&owner_of(world, pod)).copied().unwrap_or_default();
        shown.push(PodView(pod.metadata.key(), position, PodState::of(pod)));
    }
    shown.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    let allocatable = &node.status.allocatable;
    NodeView {
        name: node.metadata.name.clone(),
        claim: claim.map(|claim| claim.key.name.to_string()).unwrap_or_default(),
        pool: if node.metadata.label(labels::NODE_POOL).is_some() { pool_of(node) } else { String::new() },
        instance_type: label(labels::INSTANCE_TYPE),
        capacity: label(labels::CAPACITY_TYPE),
        zone: label(labels::ZONE),
        state: node_state(Some(node), claim),
        price: world.region.machines.get(&id).map_or(0, |machine| machine.price.nanos()),
        since: node.metadata.creation_timestamp.map_or(0, Timestamp::as_millisecond),
        cpu: pair(|resources| resources.get("cpu").milli(), &used, allocatable),
        memory: pair(|resources| resources.get("memory").milli(), &used, allocatable),
        pods: shown,
    }
}

/// A machine that is no node of the cluster: it is on its way, or its Node is gone already.
fn machine_view(claim: &Claim) -> NodeView {
    let machine = claim.machine();
    let of = |field: fn(&whittle_claims::Machine) -> String| machine.map(field).unwrap_or_default();
    let allocatable = |name: &str| machine.map_or(0, |machine| machine.allocatable.get(name).milli());
    NodeView {
        name: String::new(),
        claim: claim.key.name.to_string(),
        pool: claim.spec.node_pool.clone(),
        instance_type: of(|machine| machine.instance_type.clone()),
        capacity: of(|machine| machine.capacity_type.clone()),
        zone: of(|machine| machine.zone.clone()),
        state: node_state(None, Some(claim)),
        price: machine.map_or(0, |machine| machine.price.nanos()),
        since: claim.created_at.as_millisecond(),
        cpu: [0, allocatable("cpu")],
        memory: [0, allocatable("memory")],
        pods: Vec::new(),
    }
}

fn nodes(world: &World, positions: &BTreeMap<Owner, usize>) -> Vec<NodeView> {
    let cluster = world.name();
    let objects = &world.cluster.objects;
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in objects.pods.values().filter(|pod| pod.is_bound() && !pod.is_terminal()) {
        by_node.entry(&pod.spec.node_name).or_default().push(pod);
    }
    let live: Vec<&Claim> = world.store.claims(&cluster).map(|stored| &stored.value).filter(|claim| claim.is_live()).collect();
    // A Node is known by its machine before the claim names it.
    let mut claims: BTreeMap<&str, &Claim> = live.iter().filter_map(|claim| Some((claim.instance()?.as_str(), *claim))).collect();
    let mut all = Vec::new();
    for node in objects.nodes.values() {
        let claim = claims.remove(node.spec.provider_id.rsplit('/').next().unwrap_or_default());
        all.push(node_view(world, node, claim, by_node.get(node.metadata.name.as_str()), positions));
    }
    let without = live.iter().filter(|claim| claim.instance().is_none_or(|id| claims.contains_key(id.as_str())));
    all.extend(without.map(|claim| machine_view(claim)));
    all.sort_by(|a, b| (&a.pool, &a.claim, &a.name).cmp(&(&b.pool, &b.claim, &b.name)));
    all
}

/// Waiting pods, in groups with a workload and a reason in common.
fn waiting(world: &World, positions: &BTreeMap<Owner, usize>) -> Vec<Waiting> {
    let mut groups: BTreeMap<(usize, &str), Waiting> = BTreeMap::new();
    let mut group_of: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for pod in world.cluster.objects.pods.values().filter(|pod| !pod.is_bound() && !pod.is_terminal()) {
        let workload = positions.get(&owner_of(world, pod)).copied().unwrap_or_default();
        let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False");
        let reason = condition.map_or("", |condition| condition.message.as_str());
        let since = pod.metadata.creation_timestamp.map(Timestamp::as_millisecond);
        group_of.insert(pod.metadata.key(), (workload, reason));
        let group = groups.entry((workload, reason)).or_insert_with(|| {
            let (pod, reason) = (pod.metadata.key(), reason.to_owned());
            Waiting { workload, count: 0, pod, since, reason, answer: String::new() }
        });
        group.count += 1;
        group.since = group.since.min(since);
    }
    for (place, answer) in answers(world, &group_of) {
        if let Some(group) = groups.get_mut(&place) {
            group.answer = answer;
        }
    }
    groups.into_values().take(WAITING_MAX).collect()
}

/// What Whittle said last about any pod of each group: why it has no place, or which machine it gets.
fn answers<'a>(world: &World, group_of: &BTreeMap<String, (usize, &'a str)>) -> BTreeMap<(usize, &'a str), String> {
    let mut last: BTreeMap<(usize, &str), (Timestamp, String)> = BTreeMap::new();
    let mut hear = |pod: &str, at: Timestamp, text: &dyn Fn() -> String| {
        let Some(place) = group_of.get(pod) else { return };
        if last.get(place).is_none_or(|(known, _)| *known <= at) {
            last.insert(*place, (at, text()));
        }
    };
    if group_of.is_empty() {
        return BTreeMap::new();
    }
    let decisions = world.store.decisions(&world.name());
    for decision in &decisions[decisions.len().saturating_sub(RECENT)..] {
        if let (DecisionKind::Unschedulable, Some(pod)) = (decision.kind, decision.subject.strip_prefix("pod/")) {
            hear(pod, decision.at, &|| decision.message.clone());
        }
    }
    let events = &world.cluster.events;
    for kept in &events[events.len().saturating_sub(RECENT)..] {
        let event = &kept.event;
        if event.kind == Pod::KIND && event.reason == "Nominated" {
            hear(&format!("{}/{}", event.namespace, event.name), kept.at, &|| event.message.clone());
        }
    }
    last.into_iter().map(|(place, (_, text))| (place, text)).collect()
}

/// What is shown of a world.
pub(super) fn state_of(world: &World) -> State {
    let workloads = workloads(world);
    let positions = workloads.keys().cloned().enumerate().map(|(position, owner)| (owner, position)).collect();
    State {
        cluster: world.name().to_string(),
        region: world.region.name().to_owned(),
        version: world.cluster.version.clone(),
        nodes: nodes(world, &positions),
        waiting: waiting(world, &positions),
        workloads: workloads.into_values().collect(),
        pools: world.cluster.objects.node_pools.values().map(Pool::of).collect(),
        out_of_stock: world.region.out_of_stock.clone(),
    }
}

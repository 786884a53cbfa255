//! Earlier decisions in a snapshot: claims as capacity, and the pods that they were planned for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{Kind, Node, PdbSpec, PdbStatus, Pod, PodDisruptionBudget};
use whittle_api::karpenter::{NodeClaim, Operator, Requirement};
use whittle_api::{ClusterObjects, ConditionStatus, LabelSelector, ObjectMeta, Unreadable, conditions, labels};
use whittle_claims::{Claim, ClaimSpec, NOMINATION, Phase, PodKey, Stored, mirror};
use whittle_model::pods;
use whittle_model::requirements::from_requirements;
use whittle_model::scheduling::InstanceTypes;
use whittle_model::state::{ClusterState, StateNode};
use whittle_units::{ClaimName, Resources, Timestamp};

/// The objects for a decision. NodeClaims are made from the claims, which are authoritative. Pods of unfinished launches count as running
/// on the machine that is being launched for them: they are not planned again, and topology constraints of other pods count them.
///
/// A claim without a machine counts as a node with the capacity that was planned. Its pods take all of it while they wait. When one of
/// them is deleted (evicted from a node that is being drained, say), there is room for another pod, and also when it is bound elsewhere:
/// kube-scheduler puts a pod on whichever machine is there first, and the pod that this machine was planned for then takes the free room
/// here. The claim of a static pool is planned for no pods: it has the capacity of the smallest machine that it may get. What a user
/// deletes counts as deleting at once, whether or not `sweep` has recorded it on the claim.
///
/// A pod that kube-scheduler has chosen a node for counts as running there, whatever was planned for it. One whose node is gone is planned
/// for like any other (scheduling 4.1).
pub(crate) fn decision_view(
    objects: &ClusterObjects,
    claims: &[Stored<Claim>],
    deleting: &BTreeSet<ClaimName>,
    types: &BTreeMap<&str, &InstanceType>,
) -> ClusterObjects {
    let deleted = Deleted::of(objects);
    let chosen = chosen_nodes(objects);
    let lost = without_chosen_node(objects);
    let mut objects = objects.clone();
    forget_chosen_nodes(&mut objects, &lost);
    // By the uid of a pod, the name of the node that stands for its machine.
    let mut promised: BTreeMap<&str, String> = BTreeMap::new();
    let mut mirrors = Vec::new();
    let mut allocatable = LeastAllocatable { types, known: Vec::new() };
    let deleting_nodes = deleting_nodes(claims, deleting, &deleted);
    // A pod that has been evicted or killed leaves what was planned for it to its successor, which is there before it is gone.
    let is_moving = |pod: &Pod| deleting_nodes.contains(pod.spec.node_name.as_str()) && pods::is_reschedulable(pod);
    let is_placed = |pod: &Pod| pod.is_bound() && !is_moving(pod);
    for claim in claims.iter().map(|stored| &stored.value).filter(|claim| claim.is_live()) {
        if matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) {
            if claim.deletion.is_some() || deleted.requested_at(claim).is_some() {
                continue; // its pods are planned again; its machine, if one is launched, is drained
            }
            mirrors.push(unlaunched(claim, &mut allocatable));
            promised.extend(claim.spec.pods.iter().map(|pod| (pod.uid.as_str(), planned_provider_id(claim))));
        } else {
            mirrors.push(deleted.mirror_of(claim));
        }
    }
    let machine_of = |pod: &Pod| {
        let uid = pod.metadata.uid.as_str();
        let by_scheduler = chosen.get(uid).copied().filter(|node| !deleting_nodes.contains(*node));
        by_scheduler.or_else(|| promised.get(uid).map(String::as_str).filter(|_| !is_placed(pod)))
    };
    // Mostly none has one, and then the pods stay shared with what was read.
    if objects.pods.iter().any(|pod| machine_of(pod).is_some()) {
        for pod in objects.pods.iter_mut() {
            if let Some(machine) = machine_of(pod) {
                machine.clone_into(&mut pod.spec.node_name);
            }
        }
    }
    objects.node_claims = mirrors;
    add_placeholders(&mut objects, &deleting_nodes);
    objects
}

/// Pods, by uid, that kube-scheduler has chosen a node for and not bound yet, with the node, if it is there: it waits for their volumes
/// to be made, or for pods that it has evicted (`status.nominatedNodeName`).
fn chosen_nodes(read: &ClusterObjects) -> BTreeMap<&str, &str> {
    let waits = |pod: &&Pod| !pod.status.nominated_node_name.is_empty() && !pod.is_bound() && pods::is_active(pod);
    let waiting = read.pods.iter().filter(waits);
    let mut chosen: BTreeMap<&str, &str> =
        waiting.map(|pod| (pod.metadata.uid.as_str(), pod.status.nominated_node_name.as_str())).collect();
    if !chosen.is_empty() {
        let known: BTreeSet<&str> = read.nodes.iter().map(|node| node.metadata.name.as_str()).collect();
        chosen.retain(|_, node| known.contains(*node));
    }
    chosen
}

/// Pods, by uid, whose `status.nominatedNodeName` is the name of no Node. Kube-scheduler takes it back only where it sees it fail: a
/// scheduler that starts after that leaves it as it is on a pod that may not preempt others.
fn without_chosen_node(read: &ClusterObjects) -> BTreeSet<&str> {
    let waiting: Vec<&Pod> = read.pods.iter().filter(|pod| !pod.status.nominated_node_name.is_empty()).collect();
    if waiting.is_empty() {
        return BTreeSet::new();
    }
    let known: BTreeSet<&str> = read.nodes.iter().map(|node| node.metadata.name.as_str()).collect();
    let is_gone = |name: &str| !known.contains(name) && !read.is_unreadable(Node::KIND, name);
    waiting.into_iter().filter(|pod| is_gone(&pod.status.nominated_node_name)).map(|pod| pod.metadata.uid.as_str()).collect()
}

/// Makes the pods with these uids ones that no node was chosen for.
fn forget_chosen_nodes(objects: &mut ClusterObjects, pods: &BTreeSet<&str>) {
    if pods.is_empty() {
        return; // the pods stay shared with what was read
    }
    for pod in objects.pods.iter_mut().filter(|pod| pods.contains(pod.metadata.uid.as_str())) {
        pod.status.nominated_node_name.clear();
    }
}

/// The objects of a cluster, in which pods that kube-scheduler has chosen a node for are on that node, unless it is being deleted, and no
/// longer have a choice where there is no such node; `None` if there are no such pods. For callers that have objects but no claims;
/// [`decision_view`] does the same. Objects that are read from files may be without Nodes, which says nothing about them.
#[must_use]
pub fn with_chosen_nodes(read: &ClusterObjects) -> Option<ClusterObjects> {
    let mut chosen = chosen_nodes(read);
    let lost = if read.nodes.is_empty() { BTreeSet::new() } else { without_chosen_node(read) };
    if chosen.is_empty() && lost.is_empty() {
        return None;
    }
    let state = ClusterState::of(read);
    let marked = state.nodes.iter().filter(|node| node.marked_for_deletion).map(StateNode::name);
    let deleted = read.nodes.iter().map(|node| &node.metadata).filter(|meta| meta.is_deleting()).map(|meta| meta.name.as_str());
    let going: BTreeSet<&str> = marked.chain(deleted).collect();
    chosen.retain(|_, node| !going.contains(*node));
    let mut objects = read.clone();
    forget_chosen_nodes(&mut objects, &lost);
    for pod in objects.pods.iter_mut() {
        if let Some(node) = chosen.get(pod.metadata.uid.as_str()) {
            (*node).clone_into(&mut pod.spec.node_name);
        }
    }
    Some(objects)
}

/// Nominates the machines that kube-scheduler has chosen for pods that it has not bound yet. Such a machine looks empty, perhaps for
/// minutes, until the pod's volume is made. If it were removed as empty, the pod would have to start over on another one.
pub fn nominate_chosen(nodes: &mut [StateNode], read: &ClusterObjects, now: Timestamp) {
    let chosen: BTreeSet<&str> = chosen_nodes(read).into_values().collect();
    let until = now.checked_add(NOMINATION).ok();
    for node in nodes {
        if node.node.as_ref().is_some_and(|node| chosen.contains(node.metadata.name.as_str())) {
            node.nominated_until = node.nominated_until.max(until);
        }
    }
}

/// Adds placeholders for unreadable objects: a pod uses the resources of its node, and a budget forbids every eviction in its
/// namespace. Unreadable pods on deleting nodes are not rescheduled, because their requests are not known.
fn add_placeholders(objects: &mut ClusterObjects, deleting_nodes: &BTreeSet<&str>) {
    let stays = |pod: &&Pod| pod.is_bound() && !deleting_nodes.contains(pod.spec.node_name.as_str());
    let pods: Vec<Pod> = objects.unreadable_pods().filter(stays).cloned().collect();
    let budget = |unreadable: &Unreadable| PodDisruptionBudget {
        metadata: unreadable.metadata.clone(),
        spec: PdbSpec { selector: Some(LabelSelector::default()), ..PdbSpec::default() },
        status: PdbStatus::default(),
    };
    let budgets: Vec<PodDisruptionBudget> = objects.unreadable_of(PodDisruptionBudget::KIND).map(budget).collect();
    if !pods.is_empty() {
        objects.pods.extend(pods);
    }
    objects.disruption_budgets.extend(budgets);
}

/// Objects that are being deleted.
pub(crate) struct Deleted<'o> {
    /// By name: they are looked for once for each claim, and all of them may be deleted.
    node_claims: BTreeMap<&'o str, Vec<&'o NodeClaim>>,
    nodes: BTreeMap<&'o str, &'o ObjectMeta>,
    /// NodeClaims that cannot be read.
    unreadable: Vec<&'o ObjectMeta>,
}

impl<'o> Deleted<'o> {
    /// The deleted objects among those that were read.
    pub(crate) fn of(read: &'o ClusterObjects) -> Self {
        let unreadable = |kind| read.unreadable.iter().filter(move |object| object.kind == kind).map(|object| &object.metadata);
        let mut node_claims: BTreeMap<&str, Vec<&NodeClaim>> = BTreeMap::new();
        for object in read.node_claims.iter().filter(|object| object.metadata.is_deleting()) {
            node_claims.entry(object.metadata.name.as_str()).or_default().push(object);
        }
        let nodes = read.nodes.iter().map(|node| &node.metadata).chain(unreadable(Node::KIND)).filter(|meta| meta.is_deleting());
        let nodes = nodes.map(|meta| (meta.name.as_str(), meta)).collect();
        Self { node_claims, nodes, unreadable: unreadable(NodeClaim::KIND).filter(|meta| meta.is_deleting()).collect() }
    }
    /// When the deletion of a claim's NodeClaim or Node was requested.
    pub(crate) fn requested_at(&self, claim: &Claim) -> Option<Timestamp> {
        let named = self.node_claims.get(claim.key.name.as_str()).into_iter().flatten().copied();
        let object = named.filter(|object| claim.is_mirrored_by(object)).map(|object| &object.metadata).next();
        let is_mirror = |meta: &&&ObjectMeta| {
            let uid = claim.object_uid();
            meta.name == claim.key.name.as_str() && (uid.is_empty() || uid == meta.uid)
        };
        let own = || claim.node_name().and_then(|name| self.nodes.get(name));
        object.or_else(|| self.unreadable.iter().find(is_mirror).or_else(own).copied())?.deletion_timestamp
    }
    /// The NodeClaim of a claim, which counts as deleting when its object or Node is.
    pub(crate) fn mirror_of(&self, claim: &Claim) -> NodeClaim {
        let mut out = mirror(claim);
        if out.metadata.deletion_timestamp.is_none() {
            out.metadata.deletion_timestamp = self.requested_at(claim);
        }
        out
    }
}

/// Nodes whose pods have to be rescheduled, including those without a claim.
fn deleting_nodes<'c>(claims: &'c [Stored<Claim>], deleting: &BTreeSet<ClaimName>, deleted: &Deleted<'c>) -> BTreeSet<&'c str> {
    let is_requested = |claim: &Claim| claim.deletion.is_some() || deleted.requested_at(claim).is_some();
    let is_deleting = |claim: &&Stored<Claim>| deleting.contains(&claim.value.key.name) || is_requested(&claim.value);
    let of_claims = claims.iter().filter(is_deleting).filter_map(|claim| claim.value.node_name());
    of_claims.chain(deleted.nodes.keys().copied()).collect()
}

/// Claims that a disruption command deletes once its pending replacements are initialized. Their pods count as rescheduled
/// already: otherwise the replacements would look empty, and other pods would be placed there.
///
/// A command marks its claims with the time at which it makes its replacements. One whose mark has the time of no pending replacement is of
/// another command: its replacements are ready, and it waits for a pod that is protected since, perhaps for ten minutes and perhaps in
/// vain; or that command has ended, and its mark could not be taken away yet. Its pods may not go, and no machine is launched for them.
pub(crate) fn being_replaced(claims: &[Stored<Claim>]) -> BTreeSet<ClaimName> {
    let claims = || claims.iter().map(|stored| &stored.value).filter(|claim| claim.is_live());
    let is_pending =
        |claim: &&Claim| !claim.is_ending() && claim.spec.replaces.is_some() && !matches!(claim.phase, Phase::Initialized { .. });
    let pending: BTreeSet<Timestamp> = claims().filter(is_pending).map(|claim| claim.created_at).collect();
    if pending.is_empty() {
        return BTreeSet::new();
    }
    let is_replaced = |claim: &&Claim| {
        let marked = conditions::find(&claim.conditions, conditions::DISRUPTION_REASON);
        let marked = marked.filter(|marked| marked.status == ConditionStatus::True);
        marked.is_some_and(|marked| marked.last_transition_time.is_none_or(|at| pending.contains(&at)))
    };
    claims().filter(is_replaced).map(|claim| claim.key.name.clone()).collect()
}

/// Pods, by uid, that wait for a machine that is launched and not yet initialized, with the name of its (youngest) claim. Before
/// the launch its pods are omitted altogether; a pod that still waits after initialization does not fit there.
pub(crate) fn promises(claims: &[Stored<Claim>]) -> BTreeMap<String, String> {
    let is_pending = |claim: &&Claim| claim.deletion.is_none() && matches!(claim.phase, Phase::Launched { .. } | Phase::Registered { .. });
    let mut pending: Vec<&Claim> = claims.iter().map(|stored| &stored.value).filter(is_pending).collect();
    pending.sort_by_key(|claim| claim.created_at);
    let of = |claim: &&Claim, pod: &PodKey| (pod.uid.clone(), claim.key.name.to_string());
    pending.iter().flat_map(|claim| claim.spec.pods.iter().map(move |pod| of(claim, pod))).collect()
}

/// Subtracts the requests of virtual pods, which exist only in a claim's plan, from the allocatable resources of unlaunched
/// claims.
pub(crate) fn reserve_planned(objects: &mut ClusterObjects, claims: &[Stored<Claim>], waiting: &[&Pod]) {
    let by_uid: BTreeMap<&str, &Pod> = waiting.iter().map(|pod| (pod.metadata.uid.as_str(), *pod)).collect();
    for claim in claims.iter().map(|stored| &stored.value) {
        let planned: Vec<&Pod> = claim.spec.pods.iter().filter_map(|pod| by_uid.get(pod.uid.as_str()).copied()).collect();
        if planned.is_empty() {
            continue;
        }
        let unlaunched = |mirror: &&mut NodeClaim| {
            mirror.metadata.name == claim.key.name.as_str() && mirror.status.provider_id == planned_provider_id(claim)
        };
        let Some(mirror) = objects.node_claims.iter_mut().find(unlaunched) else { continue };
        let mut free = mirror.status.allocatable.clone();
        free.subtract(&pods::total_requests(planned));
        mirror.status.allocatable = clamp_to_zero(&free);
    }
}

/// Has the claims without a machine list what their types leave open: what a claim does not state, as the zone, its launch decides.
pub(crate) fn list_open(objects: &mut ClusterObjects, claims: &[Stored<Claim>], catalog: &BTreeMap<String, Arc<InstanceTypes>>) {
    let is_unlaunched = |claim: &&Claim| matches!(claim.phase, Phase::Planned | Phase::Launching { .. });
    let unlaunched = claims.iter().map(|stored| &stored.value).filter(is_unlaunched);
    let specs: BTreeMap<String, &ClaimSpec> = unlaunched.map(|claim| (planned_provider_id(claim), &claim.spec)).collect();
    // Many claims of a plan are alike.
    let mut known: Vec<(&ClaimSpec, Vec<Requirement>)> = Vec::new();
    for mirror in &mut objects.node_claims {
        let Some(&spec) = specs.get(&mirror.status.provider_id) else { continue };
        let is_alike = |other: &ClaimSpec| {
            (&other.node_pool, &other.instance_types, &other.requirements) == (&spec.node_pool, &spec.instance_types, &spec.requirements)
        };
        let found = known.iter().find(|(other, _)| is_alike(other)).map(|(_, open)| open.clone());
        mirror.spec.requirements = found.unwrap_or_else(|| {
            let open = open_requirements(spec, catalog);
            known.push((spec, open.clone()));
            open
        });
    }
}

/// The requirements of a claim, and the values that its types have of each label of which it lists none. If one of the types is not known,
/// the requirements alone.
fn open_requirements(spec: &ClaimSpec, catalog: &BTreeMap<String, Arc<InstanceTypes>>) -> Vec<Requirement> {
    let (stated, names) = (&spec.requirements, &spec.instance_types);
    let Some(all) = catalog.get(&spec.node_pool) else { return stated.clone() };
    let wanted = from_requirements(stated);
    let types: Option<Vec<&InstanceType>> = if names.is_empty() {
        Some(all.iter().filter(|each| wanted.intersects(&from_requirements(&each.requirements)).is_ok()).collect())
    } else {
        names.iter().map(|name| all.find(name)).collect()
    };
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for required in types.iter().flatten().flat_map(|each| &each.requirements).filter(|each| each.operator == Operator::In) {
        let key = labels::normalized(&required.key);
        let allowed = wanted.get(key);
        if allowed.is_none_or(|allowed| allowed.members().is_none()) {
            let possible = required.values.iter().filter(|value| allowed.is_none_or(|allowed| allowed.has(*value)));
            values.entry(key).or_default().extend(possible.map(String::as_str));
        }
    }
    values.retain(|_, values| !values.is_empty());
    let is_kept = |required: &&Requirement| !values.contains_key(labels::normalized(&required.key));
    let mut open: Vec<Requirement> = stated.iter().filter(is_kept).cloned().collect();
    open.extend(values.iter().map(|(key, values)| Requirement::is_in(key, values.iter().copied())));
    open
}

fn clamp_to_zero(resources: &Resources) -> Resources {
    resources.iter().map(|(name, amount)| (name.to_owned(), amount.max(whittle_units::Quantity::ZERO))).collect()
}

/// Uses the NodeClaims in the cluster for claims that cannot be read. One without a machine has no allocatable resources: its pods
/// are not known, and it cannot be launched.
pub(crate) fn include_unreadable(objects: &mut ClusterObjects, read: &ClusterObjects, hidden: &[String]) {
    for mirror in read.node_claims.iter().filter(|mirror| hidden.contains(&mirror.metadata.name)) {
        let mut mirror = mirror.clone();
        if mirror.status.provider_id.is_empty() {
            mirror.status.provider_id = format!("planned:///{}", mirror.metadata.name);
            mirror.status.allocatable = Resources::new();
        }
        objects.node_claims.push(mirror);
    }
}

/// Marks the machines of claims that cannot be read; those with the disruption taint count as deleting.
pub(crate) fn mark_unreadable(nodes: &mut [StateNode], hidden: &[String]) {
    for node in nodes {
        let Some(claim) = node.claim.as_ref().filter(|claim| hidden.contains(&claim.metadata.name)) else { continue };
        node.unreadable.get_or_insert_with(|| format!("the claim {}", claim.metadata.name));
        node.marked_for_deletion |= node.node.as_ref().is_some_and(|node| node.has_disrupted_taint());
    }
}

/// Marks Nodes whose machine has ended with its claim, as where a policy lets nobody delete them: they serve nobody, and a static pool
/// that counted them would have a machine too few. One that is ready shows that its machine runs.
pub(crate) fn mark_ended(nodes: &mut [StateNode], claims: &[Stored<Claim>]) {
    let ended = claims.iter().filter_map(|claim| claim.value.ended_machine());
    let ended: BTreeSet<&str> = ended.map(|machine| machine.provider_id.as_str()).collect();
    for state in nodes.iter_mut().filter(|state| state.claim.is_none()) {
        let is_left = |node: &Arc<Node>| ended.contains(node.spec.provider_id.as_str()) && !node.is_ready();
        state.marked_for_deletion |= state.node.as_ref().is_some_and(is_left);
    }
}

/// A provider id for a claim without a machine, so that it counts as one; it is the node of its pods as well.
fn planned_provider_id(claim: &Claim) -> String {
    format!("planned:///{}", claim.key.name)
}

/// The least allocatable resources of machines that are still to be launched.
struct LeastAllocatable<'t> {
    types: &'t BTreeMap<&'t str, &'t InstanceType>,
    /// By requirements, which the claims of a pool share.
    known: Vec<(Vec<Requirement>, Resources)>,
}

impl LeastAllocatable<'_> {
    /// The least amount of each resource over all instance types that a claim without listed types allows.
    fn of(&mut self, claim: &Claim) -> Resources {
        let wanted = &claim.spec.requirements;
        if let Some((_, resources)) = self.known.iter().find(|(known, _)| known == wanted) {
            return resources.clone();
        }
        let requirements = from_requirements(wanted);
        let allowed = self.types.values().filter(|each| requirements.intersects(&from_requirements(&each.requirements)).is_ok());
        let least =
            |least: Resources, next: Resources| least.iter().map(|(name, amount)| (name.to_owned(), amount.min(next.get(name)))).collect();
        let resources: Resources = allowed.map(|each| each.allocatable()).reduce(least).unwrap_or_default();
        self.known.push((wanted.clone(), resources.clone()));
        resources
    }
}

/// The NodeClaim of a claim without a machine.
fn unlaunched(claim: &Claim, allocatable: &mut LeastAllocatable<'_>) -> NodeClaim {
    let mut out = mirror(claim);
    out.status.provider_id = planned_provider_id(claim);
    for requirement in &claim.spec.requirements {
        if let (Operator::In, [only]) = (requirement.operator, requirement.values.as_slice()) {
            out.metadata.labels.entry(requirement.key.clone()).or_insert_with(|| only.clone());
        }
    }
    let of_static_pool = claim.spec.instance_types.is_empty() && claim.spec.pods.is_empty();
    out.status.allocatable = if of_static_pool { allocatable.of(claim) } else { claim.spec.requests.clone() };
    // Limits count the largest machine that may be launched.
    let mut capacity = Resources::new();
    for instance_type in claim.spec.instance_types.iter().filter_map(|name| allocatable.types.get(name.as_str())) {
        capacity.raise_to(&instance_type.capacity);
        claim.spec.extra_of(&instance_type.name).into_iter().for_each(|extra| capacity.raise_to(extra));
    }
    if let [only] = claim.spec.instance_types.as_slice() {
        out.metadata.labels.insert(labels::INSTANCE_TYPE.to_owned(), only.clone());
    }
    out.status.capacity = if capacity.is_empty() { claim.spec.requests.clone() } else { capacity };
    out
}

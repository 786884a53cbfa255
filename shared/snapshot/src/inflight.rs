//! What earlier decisions already promise: claims as capacity, and the pods that they were made for.

use std::collections::{BTreeMap, BTreeSet};
use whittle_api::catalog::InstanceType;
use whittle_api::k8s::{Kind, Node, PdbSpec, PdbStatus, Pod, PodDisruptionBudget};
use whittle_api::karpenter::{NodeClaim, Operator, Requirement};
use whittle_api::{ClusterObjects, LabelSelector, ObjectMeta, Unreadable, conditions, labels};
use whittle_claims::{Claim, Phase, PodKey, Stored, mirror};
use whittle_core::pods;
use whittle_core::requirements::from_requirements;
use whittle_core::state::StateNode;
use whittle_units::{ClaimName, Resources, Timestamp};

/// The objects as a decision has to see them: the mirrors come from the claims, which are the truth, and pods that an
/// unfinished launch was planned for are left out, because their place is on its way.
///
/// A claim without a machine counts as a node that has exactly the room its planned pods leave: nothing while they wait,
/// and room for their successors once they are gone (evicted from a node that is being emptied, say). A static pool's claim
/// is planned for no pods and takes what fits any machine that it may get. What somebody deletes by hand is going from then
/// on, whether or not `sweep` has put it on the claim.
pub(crate) fn decision_view(
    objects: &ClusterObjects,
    claims: &[Stored<Claim>],
    going: &BTreeSet<ClaimName>,
    types: &BTreeMap<&str, &InstanceType>,
) -> ClusterObjects {
    let deleted = Deleted::of(objects);
    let mut objects = objects.clone();
    let mut promised: BTreeSet<String> = BTreeSet::new();
    let mut mirrors = Vec::new();
    let mut rooms = Rooms { types, known: Vec::new() };
    for claim in claims.iter().map(|stored| &stored.value).filter(|claim| claim.is_live()) {
        if matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) {
            if claim.deletion.is_some() || deleted.requested_at(claim).is_some() {
                continue; // its pods are planned anew; its machine, should one come, is drained
            }
            mirrors.push(unlaunched(claim, &objects, &mut rooms));
            promised.extend(claim.spec.pods.iter().map(|pod| pod.uid.clone()));
        } else {
            mirrors.push(deleted.shown(claim));
        }
    }
    let leaving = deleting_nodes(claims, going, &deleted);
    objects.pods.retain(|pod| !promised.contains(&pod.metadata.uid) || pod.is_bound() && !leaving.contains(pod.spec.node_name.as_str()));
    objects.node_claims = mirrors;
    add_placeholders(&mut objects, &leaving);
    objects
}

/// Something stands in for what cannot be read: pods take their room where they are, and a budget forbids every eviction in
/// its namespace. Pods on nodes that are going are not planned for: what they need nobody knows.
fn add_placeholders(objects: &mut ClusterObjects, leaving: &BTreeSet<&str>) {
    let takes_room = |pod: &&Pod| pod.is_bound() && !leaving.contains(pod.spec.node_name.as_str());
    let pods: Vec<Pod> = objects.unreadable_pods().filter(takes_room).cloned().collect();
    let budget = |odd: &Unreadable| PodDisruptionBudget {
        metadata: odd.metadata.clone(),
        spec: PdbSpec { selector: Some(LabelSelector::default()), ..PdbSpec::default() },
        status: PdbStatus::default(),
    };
    let budgets: Vec<PodDisruptionBudget> = objects.unreadable_of(PodDisruptionBudget::KIND).map(budget).collect();
    objects.pods.extend(pods);
    objects.disruption_budgets.extend(budgets);
}

/// Objects that are being deleted: few of many.
pub(crate) struct Deleted<'o> {
    node_claims: Vec<&'o NodeClaim>,
    nodes: Vec<&'o ObjectMeta>,
    /// NodeClaims that cannot be read.
    hidden: Vec<&'o ObjectMeta>,
}

impl<'o> Deleted<'o> {
    /// Of a cluster as it was read.
    pub(crate) fn of(read: &'o ClusterObjects) -> Self {
        let hidden = |kind| read.unreadable.iter().filter(move |odd| odd.kind == kind).map(|odd| &odd.metadata);
        Self {
            node_claims: read.node_claims.iter().filter(|shown| shown.metadata.is_deleting()).collect(),
            nodes: read.nodes.iter().map(|node| &node.metadata).chain(hidden(Node::KIND)).filter(|meta| meta.is_deleting()).collect(),
            hidden: hidden(NodeClaim::KIND).filter(|meta| meta.is_deleting()).collect(),
        }
    }
    /// When somebody asked for the end of a claim's object or of its Node.
    pub(crate) fn requested_at(&self, claim: &Claim) -> Option<Timestamp> {
        let object = self.node_claims.iter().find(|shown| claim.is_shown_by(shown)).map(|shown| &shown.metadata);
        let shows = |meta: &&&ObjectMeta| {
            let uid = claim.object_uid();
            meta.name == claim.key.name.as_str() && (uid.is_empty() || uid == meta.uid)
        };
        let own = |node: &&&ObjectMeta| claim.node_name() == Some(node.name.as_str());
        object.or_else(|| self.hidden.iter().find(shows).or_else(|| self.nodes.iter().find(own)).copied())?.deletion_timestamp
    }
    /// The mirror of a claim, which goes when somebody deleted what it shows.
    pub(crate) fn shown(&self, claim: &Claim) -> NodeClaim {
        let mut out = mirror(claim);
        if out.metadata.deletion_timestamp.is_none() {
            out.metadata.deletion_timestamp = self.requested_at(claim);
        }
        out
    }
}

/// Nodes whose pods have to move, also those of which the table knows no claim.
fn deleting_nodes<'c>(claims: &'c [Stored<Claim>], going: &BTreeSet<ClaimName>, deleted: &Deleted<'c>) -> BTreeSet<&'c str> {
    let asked = |claim: &Claim| claim.deletion.is_some() || deleted.requested_at(claim).is_some();
    let leaves = |claim: &&Stored<Claim>| going.contains(&claim.value.key.name) || asked(&claim.value);
    let of_claims = claims.iter().filter(leaves).filter_map(|claim| claim.value.node_name());
    of_claims.chain(deleted.nodes.iter().map(|node| node.name.as_str())).collect()
}

/// Claims that a command takes away as soon as the replacements that are under way are there. Their pods count as moving
/// already: or what comes for them would look free, and others would be sent there.
pub(crate) fn being_replaced(claims: &[Stored<Claim>]) -> BTreeSet<ClaimName> {
    let on_its_way = |claim: &Stored<Claim>| {
        let claim = &claim.value;
        claim.is_live() && !claim.is_ending() && claim.spec.replaces.is_some() && !matches!(claim.phase, Phase::Initialized { .. })
    };
    if !claims.iter().any(on_its_way) {
        return BTreeSet::new();
    }
    let marked = |claim: &&Claim| claim.is_live() && conditions::is_true(&claim.conditions, conditions::DISRUPTION_REASON);
    claims.iter().map(|stored| &stored.value).filter(marked).map(|claim| claim.key.name.clone()).collect()
}

/// By uid: pods that wait for a machine which has been launched and has not initialized, and the name of its claim; of several
/// that of the youngest. Until it is launched its pods are left out altogether, and once it has initialized whoever still waits
/// has found no room there.
pub(crate) fn promises(claims: &[Stored<Claim>]) -> BTreeMap<String, String> {
    let is_coming = |claim: &&Claim| claim.deletion.is_none() && matches!(claim.phase, Phase::Launched { .. } | Phase::Registered { .. });
    let mut coming: Vec<&Claim> = claims.iter().map(|stored| &stored.value).filter(is_coming).collect();
    coming.sort_by_key(|claim| claim.created_at);
    let of = |claim: &&Claim, pod: &PodKey| (pod.uid.clone(), claim.key.name.to_string());
    coming.iter().flat_map(|claim| claim.spec.pods.iter().map(move |pod| of(claim, pod))).collect()
}

/// Takes the room of pods that are nowhere but in a claim's plan (those that buffers stand for) off what unlaunched claims
/// have left.
pub(crate) fn reserve_planned(objects: &mut ClusterObjects, claims: &[Stored<Claim>], waiting: &[&Pod]) {
    let by_uid: BTreeMap<&str, &Pod> = waiting.iter().map(|pod| (pod.metadata.uid.as_str(), *pod)).collect();
    for claim in claims.iter().map(|stored| &stored.value) {
        let held: Vec<&Pod> = claim.spec.pods.iter().filter_map(|pod| by_uid.get(pod.uid.as_str()).copied()).collect();
        if held.is_empty() {
            continue;
        }
        let unlaunched =
            |mirror: &&mut NodeClaim| mirror.metadata.name == claim.key.name.as_str() && mirror.status.provider_id == id_of(claim);
        let Some(mirror) = objects.node_claims.iter_mut().find(unlaunched) else { continue };
        let mut room = mirror.status.allocatable.clone();
        room.subtract(&pods::total_requests(held));
        mirror.status.allocatable = clamp_to_zero(&room);
    }
}

fn clamp_to_zero(room: &Resources) -> Resources {
    room.iter().map(|(name, amount)| (name.to_owned(), amount.max(whittle_units::Quantity::ZERO))).collect()
}

/// The mirrors in the cluster stand for claims that cannot be read. One without a machine has no room for anybody: for which pods
/// it is meant nobody knows, and nobody can launch it.
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

/// Machines of claims that cannot be read stay as they are; those that are closed to new pods count as going.
pub(crate) fn mark_unreadable(nodes: &mut [StateNode], hidden: &[String]) {
    let is_closed = |node: &Node| node.spec.taints.iter().any(|taint| taint.key == labels::DISRUPTED_TAINT);
    for node in nodes {
        let Some(claim) = node.claim.as_ref().filter(|claim| hidden.contains(&claim.metadata.name)) else { continue };
        node.unreadable.get_or_insert_with(|| format!("the claim {}", claim.metadata.name));
        node.marked_for_deletion |= node.node.as_ref().is_some_and(|node| is_closed(node));
    }
}

/// A provider id of its own, so that a claim without a machine counts as one.
fn id_of(claim: &Claim) -> String {
    format!("planned:///{}", claim.key.name)
}

/// What machines may have that are still to come.
struct Rooms<'t> {
    types: &'t BTreeMap<&'t str, &'t InstanceType>,
    /// By requirements: the claims of a pool have the same.
    known: Vec<(Vec<Requirement>, Resources)>,
}

impl Rooms<'_> {
    /// What the machine of a claim that names no types has at least: the least of each resource over all that it allows.
    fn at_least(&mut self, claim: &Claim) -> Resources {
        let wanted = &claim.spec.requirements;
        if let Some((_, room)) = self.known.iter().find(|(known, _)| known == wanted) {
            return room.clone();
        }
        let asked = from_requirements(wanted);
        let allowed = self.types.values().filter(|each| asked.intersects(&from_requirements(&each.requirements)).is_ok());
        let least =
            |room: Resources, next: Resources| room.iter().map(|(name, amount)| (name.to_owned(), amount.min(next.get(name)))).collect();
        let room: Resources = allowed.map(|each| each.allocatable()).reduce(least).unwrap_or_default();
        self.known.push((wanted.clone(), room.clone()));
        room
    }
}

/// The mirror of a claim that has no machine yet.
fn unlaunched(claim: &Claim, objects: &ClusterObjects, rooms: &mut Rooms<'_>) -> NodeClaim {
    let mut out = mirror(claim);
    out.status.provider_id = id_of(claim);
    for requirement in &claim.spec.requirements {
        if let (Operator::In, [only]) = (requirement.operator, requirement.values.as_slice()) {
            out.metadata.labels.entry(requirement.key.clone()).or_insert_with(|| only.clone());
        }
    }
    let planned: BTreeSet<&str> = claim.spec.pods.iter().map(|pod| pod.uid.as_str()).collect();
    let waiting = objects.pods.iter().filter(|pod| planned.contains(pod.metadata.uid.as_str()) && !pod.is_terminal());
    let of_static_pool = claim.spec.instance_types.is_empty() && claim.spec.pods.is_empty();
    let mut room = if of_static_pool { rooms.at_least(claim) } else { claim.spec.requests.clone() };
    room.subtract(&pods::total_requests(waiting));
    out.status.allocatable = clamp_to_zero(&room);
    // Limits are held against the largest machine that may come.
    let mut capacity = Resources::new();
    for instance_type in claim.spec.instance_types.iter().filter_map(|name| rooms.types.get(name.as_str())) {
        capacity.raise_to(&instance_type.capacity);
        claim.spec.extra_of(&instance_type.name).into_iter().for_each(|extra| capacity.raise_to(extra));
    }
    if let [only] = claim.spec.instance_types.as_slice() {
        out.metadata.labels.insert(labels::INSTANCE_TYPE.to_owned(), only.clone());
    }
    out.status.capacity = if capacity.is_empty() { claim.spec.requests.clone() } else { capacity };
    out
}

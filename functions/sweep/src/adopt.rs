//! Machines and NodeClaims of Whittle that the table does not know, because it was lost, recreated or restored to an earlier time
//! (ADR 0025). A serving machine's claim is restored from what is observed; a NodeClaim without a machine is released. Nothing is launched
//! or evicted for that.

use crate::compare::{ALL_MISSING_PATIENCE, Findings, SweepInput};
use crate::index::Index;
use crate::reports::{self, REMIND_INTERVAL, Reports};
use crate::sightings::{SIGHTING_INTERVAL, Sightings};
use crate::{hand_over, standalone, unreadable};
use std::collections::BTreeMap;
use whittle_api::k8s::{Kind, Node, Taint};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodeClassReference, NodePool, Requirement};
use whittle_api::{ClusterObjects, NillableDuration, ObjectMeta, OwnerReference, labels};
use whittle_claims::{Claim, ClaimKey, ClaimSpec, Event, IllegalStep, Machine, Phase, Sighting, step};
use whittle_ec2::facts::Catalog;
use whittle_ec2::instance::Instance;
use whittle_model::state::is_ephemeral;
use whittle_ports::{ClusterEvent, Involved, Safeguard, machine_to_terminate};
use whittle_units::{ClaimName, Price, SignedDuration, Timestamp};

/// By then a launch that was in progress when the table was lost has completed.
const ABANDONED_AFTER: SignedDuration = SignedDuration::from_mins(3);
/// Labels that only Nodes carry.
const NODE_LABELS: &[&str] = &[labels::REGISTERED, labels::INITIALIZED, labels::HOSTNAME, labels::EXCLUDE_BALANCERS];

/// Annotations of an object that do not belong to its claim.
const DROPPED_ANNOTATIONS: &[&str] = &[standalone::LAST_APPLIED, labels::MANAGED, labels::ADOPT, labels::TERMINATION_TIMESTAMP];
/// Expiry of the record since when a NodeClaim has no claim: longer than any of them should exist.
const UNCLAIMED_EXPIRY: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A machine of ours without a claim, with its objects in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adoptable {
    pub(crate) instance: Instance,
    pub(crate) object: Option<NodeClaim>,
    pub(crate) node: Option<Node>,
}

/// Whether an object is the mirror of a claim. Karpenter's NodeClaims carry the same labels and finalizer.
pub(crate) fn is_marked(node_claim: &NodeClaim) -> bool {
    node_claim.metadata.annotation(labels::MANAGED) == Some("true")
}

/// Whether Whittle started an instance: Karpenter sets the other tags as well. An empty launch tag says that it was handed over, whatever
/// its NodeClaim says: a write that began before that may have marked it once more.
pub(crate) fn is_ours(instance: &Instance, index: &Index<'_>) -> bool {
    let is_named = || index.node_claims_at(instance.provider_id().as_str()).iter().any(|node_claim| is_marked(node_claim));
    instance.tags.get(labels::TAG_LAUNCH).map_or_else(is_named, |batch| !batch.is_empty())
}

/// Whether the user hands over a machine of Karpenter: by its NodePool, or by its NodeClaim alone.
fn is_handed_over(instance: &Instance, index: &Index<'_>) -> bool {
    let asks = |meta: &ObjectMeta| meta.annotation(labels::ADOPT) == Some("true");
    let (id, name) = (instance.provider_id(), instance.tags.get(labels::NODE_POOL));
    let pool = index.objects.node_pools.iter().find(|pool| name.is_some_and(|name| *name == pool.metadata.name));
    pool.is_some_and(|pool| asks(&pool.metadata)) || index.node_claims_at(id.as_str()).iter().any(|node_claim| asks(&node_claim.metadata))
}

/// A machine that Karpenter started in a cluster where it no longer runs: it gets a claim if the user asks for that, otherwise it
/// is left alone and an Event says how to continue.
pub(crate) fn check_karpenter_instance(instance: &Instance, input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    let Some(found) = find_adoptable(instance, &input.index) else { return };
    if is_handed_over(instance, &input.index) {
        confirm(found, input.objects, sightings, out);
    } else if let Some(object) = found.object
        && sightings.is_due(format!("nodeclaim/{} is not adopted", object.metadata.name), REMIND_INTERVAL)
    {
        let message = format!(
            "instance {} was started by Karpenter and is left as it is; annotate its NodePool or this NodeClaim with {}=true to have \
             Whittle take it over",
            instance.id,
            labels::ADOPT
        );
        out.events.push(ClusterEvent::warning(Involved::object(&object), "NotAdopted", message));
    }
}

/// The objects that show that a machine serves, or is about to: a NodeClaim that names it, or a registered Node.
pub(crate) fn find_adoptable(instance: &Instance, index: &Index<'_>) -> Option<Adoptable> {
    let node = match index.nodes_at(instance.provider_id().as_str()) {
        [only] => Some(*only),
        _ => None,
    };
    let object = object_of(instance, node, index);
    let joined = node.is_some_and(|node| node.metadata.label(labels::REGISTERED) == Some("true"));
    let found = Adoptable { instance: instance.clone(), object: object.cloned(), node: node.cloned() };
    (object.is_some() || joined).then_some(found)
}

fn object_of<'o>(instance: &Instance, node: Option<&Node>, index: &Index<'o>) -> Option<&'o NodeClaim> {
    let id = instance.provider_id();
    let owned = |node_claim: &&NodeClaim| {
        let owners = node.into_iter().flat_map(|node| &node.metadata.owner_references);
        let tag = instance.tags.get(labels::TAG_NODE_CLAIM);
        tag == Some(&node_claim.metadata.name) || owners.into_iter().any(|owner| owner.uid == node_claim.metadata.uid)
    };
    let node_claim = index.node_claims_at(id.as_str()).first().copied();
    node_claim
        .or_else(|| index.node_claims_at("").iter().copied().find(owned))
        .filter(|node_claim| has_finalizer(&node_claim.metadata) && is_of_aws(node_claim))
}

pub(crate) fn has_finalizer(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER)
}

/// Whether a NodeClaim is of this provider. The controllers of others share the finalizer's name.
pub(crate) fn is_of_aws(node_claim: &NodeClaim) -> bool {
    let group = node_claim.spec.node_class_ref.group.as_str();
    group.is_empty() || group == labels::AWS_DOMAIN
}

/// Managed NodeClaims without claim and machine: nothing will advance them. A standalone one gets a new claim.
pub(crate) fn abandoned(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    // A claim that cannot be read may name the machine, or a NodeClaim that cannot be read may have it.
    let is_whole = input.unreadable.is_empty() && !unreadable::hides_machines(&input.index);
    // The NodeClaim of a failed launch has no finalizer any more.
    let stays = |node_claim: &&NodeClaim| is_marked(node_claim) && !node_claim.metadata.is_deleting();
    let mut reports = Reports::of("abandoned");
    for node_claim in input.objects.node_claims.iter().filter(stays) {
        let name = &node_claim.metadata.name;
        if input.index.has_claim(name) {
            continue;
        }
        // Plans wait until what is recorded here is old: it is recorded as well while nothing can be done about it.
        sightings.is_due(Sighting::unclaimed(name), UNCLAIMED_EXPIRY);
        // A late write marked it again. Plans wait for it until that is undone.
        if is_whole && hand_over::is_machine_handed_over(node_claim, &input.index) {
            if sightings.is_confirmed(format!("nodeclaim/{name} of a machine that was handed over"), SIGHTING_INTERVAL) {
                out.handed_over.push(name.clone());
            }
            continue;
        }
        // EC2 not showing a machine of a shifted zone proves nothing.
        if !is_whole || has_machine(node_claim, input) || input.shifted.are_of(&node_claim.metadata.labels) {
            continue;
        }
        if !sightings.is_confirmed(format!("nodeclaim/{name} without claim and machine"), ABANDONED_AFTER) {
            continue;
        }
        let is_standalone = node_claim.node_pool().is_none() && node_claim.metadata.owner_references.is_empty();
        if !is_standalone || !node_claim.status.provider_id.is_empty() || input.uninstalling {
            sightings.retain_denial(&format!("nodeclaim/{name}"));
            out.abandoned.push(name.clone());
            if reports.are_due(node_claim, sightings) {
                out.events.push(reports::abandonment(node_claim));
            }
        } else if standalone::is_class_known(&node_claim.spec.node_class_ref.name, input) {
            out.answer.push(node_claim.clone());
        } else {
            out.refresh = true;
        }
    }
}

pub(crate) fn has_machine(node_claim: &NodeClaim, input: &SweepInput<'_>) -> bool {
    let (id, name) = (node_claim.status.provider_id.as_str(), &node_claim.metadata.name);
    let speaks = || !id.is_empty() && input.index.nodes_at(id).iter().any(|node| input.speaks(node));
    input.index.runs(id) || !input.index.tagged(name).is_empty() || speaks()
}

/// Whether the cluster shows a machine for a claim that has none: the table is older than the cluster. One that belongs to
/// another claim does not count.
pub(crate) fn is_older_than_machine(claim: &Claim, input: &SweepInput<'_>) -> bool {
    if claim.instance().is_some() {
        return false;
    }
    let index = &input.index;
    let id = index.mirror_of(claim).map_or("", |node_claim| provider_id_of(node_claim, index));
    !id.is_empty() && index.runs(id) && index.claims_at(id).is_empty()
}

/// The provider id of a NodeClaim's machine. While its status lacks that, because it could not be written, it is that of the Node that it
/// owns.
fn provider_id_of<'o>(node_claim: &'o NodeClaim, index: &Index<'o>) -> &'o str {
    let (uid, known) = (node_claim.metadata.uid.as_str(), node_claim.status.provider_id.as_str());
    let owned = || index.node_owned_by(uid).filter(|_| !uid.is_empty());
    if known.is_empty() { owned().map_or("", |node| node.spec.provider_id.as_str()) } else { known }
}

/// The Node that the NodeClaim of a claim with a machine, but without a Node, names: the table is older than the cluster. Terminated
/// without it, its pods would not be evicted. A listed Node may show that the name is wrong: anybody who may write the status can set it.
pub(crate) fn node_of_mirror(claim: &Claim, input: &SweepInput<'_>) -> Option<String> {
    let machine = claim.machine().filter(|_| claim.is_live() && claim.node_name().is_none())?;
    let node_claim = input.index.mirror_of(claim)?;
    let (name, id) = (&node_claim.status.node_name, machine.provider_id.as_str());
    let of_machine = node_claim.status.provider_id == id && !name.is_empty();
    let contradicts = |node: &Node| (node.metadata.name == *name) != (node.spec.provider_id == id);
    (of_machine && !input.objects.nodes.iter().any(contradicts)).then(|| name.clone())
}

/// A machine's claim is restored at the second sighting. While no list shows any NodeClaim, the one with its name may
/// reappear: another name would leave two for one machine.
pub(crate) fn confirm(found: Adoptable, objects: &ClusterObjects, sightings: &mut Sightings<'_>, out: &mut Findings) {
    let nameless = found.name() == found.own_name() && objects.node_claims.is_empty();
    let patience = if nameless { ALL_MISSING_PATIENCE } else { SIGHTING_INTERVAL };
    let seen_twice = sightings.is_confirmed(format!("instance/{} to adopt", found.instance.id), patience);
    if Safeguard::AdoptedAtSecondSight.permits(seen_twice) {
        out.adopt.push(found);
    }
}

/// Where the claim of a machine is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a claim that waits for it.
    Waiting,
    /// In place of a claim of the same name that ended without a machine, or because its machine was handed over.
    Ended,
    /// Under a new name.
    New,
}

impl Adoptable {
    /// The name of the machine's claim in the cluster.
    pub(crate) fn name(&self) -> ClaimName {
        let owner = self.node.iter().flat_map(|node| &node.metadata.owner_references).find(|owner| owner.kind == NodeClaim::KIND);
        let named = self.object.as_ref().map(|object| &object.metadata.name).or(owner.map(|owner| &owner.name));
        named.map_or_else(|| self.own_name(), |name| ClaimName::new(name.as_str()))
    }

    /// A name that is unique to the instance.
    pub(crate) fn own_name(&self) -> ClaimName {
        ClaimName::new(format!("adopted-{}", self.instance.id))
    }

    /// Where its claim is stored, given the claim of the same name.
    pub(crate) fn place(&self, named: Option<&Claim>) -> Place {
        match named {
            Some(claim) if claim.deletion.is_none() && matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) => Place::Waiting,
            Some(claim) if !claim.is_live() && (claim.instance().is_none() || hand_over::is_ended_by_it(claim)) => Place::Ended,
            _ => Place::New,
        }
    }

    /// A claim for the machine, built from all that is observed of it.
    pub(crate) fn claim(
        &self,
        key: ClaimKey,
        uid: String,
        objects: &ClusterObjects,
        prices: Option<&Catalog>,
        now: Timestamp,
    ) -> Result<Claim, IllegalStep> {
        let standalone_uid = self.pool().is_empty().then(|| self.object.as_ref().map(|object| object.metadata.uid.clone())).flatten();
        let uid = standalone_uid.clone().unwrap_or(uid);
        let mut claim = Claim::planned(key, uid, ClaimSpec { standalone_uid, ..self.spec(objects) }, now);
        let made = self.object.as_ref().and_then(|object| object.metadata.creation_timestamp);
        claim.created_at = made.unwrap_or(self.instance.launched_at);
        claim.last_pod_event_at = self.object.as_ref().and_then(|object| object.status.last_pod_event_time);
        self.join(&claim, prices, now)
    }

    /// The claim with the machine, in the phase that the machine has reached.
    pub(crate) fn join(&self, claim: &Claim, prices: Option<&Catalog>, now: Timestamp) -> Result<Claim, IllegalStep> {
        let mut next = step(claim, &Event::FleetAnswered(self.machine(prices)), now)?;
        for (key, value) in self.annotations() {
            if !next.spec.annotations.contains_key(&key) {
                next.annotations.entry(key).or_insert(value);
            }
        }
        next.look_again_at = None;
        let says = |label| self.node.as_ref().filter(|node| node.metadata.label(label) == Some("true"));
        if let Some(node) = says(labels::REGISTERED) {
            next = step(&next, &Event::NodeJoined { node_name: node.metadata.name.clone() }, now)?;
            if says(labels::INITIALIZED).is_some() {
                next = step(&next, &Event::NodeReady, now)?;
            }
        } else if let Some(node_claim) =
            self.object.as_ref().filter(|node_claim| self.node.is_none() && !node_claim.status.node_name.is_empty())
            && node_claim.status.provider_id == self.instance.provider_id().as_str()
        {
            // The list lacks its Node.
            next = step(&next, &Event::NodeJoined { node_name: node_claim.status.node_name.clone() }, now)?;
        }
        Ok(next)
    }

    /// The metadata of the object, which mirrors the claim; otherwise that of the Node.
    fn meta(&self) -> Option<&ObjectMeta> {
        self.object.as_ref().map(|object| &object.metadata).or(self.node.as_ref().map(|node| &node.metadata))
    }

    fn pool(&self) -> &str {
        self.meta().and_then(|meta| meta.label(labels::NODE_POOL)).unwrap_or_default()
    }

    fn spec(&self, objects: &ClusterObjects) -> ClaimSpec {
        let known = self.labels();
        let pool = objects.node_pools.iter().find(|pool| NodePool::given_name(&pool.metadata.name) == self.pool());
        let shared = ClaimSpec {
            node_pool: self.pool().to_owned(),
            owner: self.owner(pool),
            labels: known.iter().filter(|(key, _)| !is_of_machine(key) && !is_of_pool(key)).map(cloned).collect(),
            instance_types: vec![self.instance.instance_type.clone()],
            ..ClaimSpec::default()
        };
        if let Some(object) = &self.object {
            let ClaimSpec { node_pool, owner, labels, instance_types, .. } = shared;
            return ClaimSpec { node_pool, owner, labels, instance_types, ..ClaimSpec::of_object(&object.spec) };
        }
        let class = self.instance.tags.get(labels::EC2_NODE_CLASS).cloned().unwrap_or_default();
        let template = pool.map(|pool| &pool.spec.template.spec);
        let lasting =
            |taint: &&Taint| !is_ephemeral(taint) && taint.key != labels::DISRUPTED_TAINT && taint.key != labels::UNREGISTERED_TAINT;
        ClaimSpec {
            node_class: NodeClassReference { group: labels::AWS_DOMAIN.to_owned(), kind: Ec2NodeClass::KIND.to_owned(), name: class },
            requirements: known.iter().filter(|(key, _)| is_of_machine(key)).map(|(key, value)| Requirement::is_in(key, [value])).collect(),
            taints: self.node.iter().flat_map(|node| &node.spec.taints).filter(lasting).cloned().collect(),
            expire_after: template.map_or(NillableDuration::Never, |template| template.expire_after.clone()),
            termination_grace_period: template.and_then(|template| template.termination_grace_period.clone()),
            ..shared
        }
    }

    /// The owner of the object, otherwise the pool of its name. If the pool was deleted, the next sweeps delete the claim.
    fn owner(&self, pool: Option<&NodePool>) -> OwnerReference {
        let owners = self.object.iter().flat_map(|object| &object.metadata.owner_references);
        let mut owners = owners.filter(|owner| matches!(owner.kind.as_str(), "NodePool" | "Provisioner"));
        if let Some(owner) = owners.next() {
            return owner.clone();
        }
        if self.pool().is_empty() {
            return OwnerReference::default(); // standalone
        }
        let provisioner = self.labels().contains_key(labels::PROVISIONER_NAME);
        let (api_version, kind) =
            if provisioner { ("karpenter.sh/v1alpha5", "Provisioner") } else { (NodePool::API_VERSION, NodePool::KIND) };
        OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: self.pool().to_owned(),
            uid: pool.map(|pool| pool.metadata.uid.clone()).unwrap_or_default(),
            controller: None,
            block_owner_deletion: Some(true),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut all = self.meta().map(|meta| meta.labels.clone().into_inner()).unwrap_or_default();
        all.retain(|key, _| !NODE_LABELS.contains(&key.as_str()));
        all
    }

    /// Most important are the hashes: without them drift since the launch could not be detected.
    fn annotations(&self) -> BTreeMap<String, String> {
        let mut all = self.meta().map(|meta| meta.annotations.clone().into_inner()).unwrap_or_default();
        let of_node = self.object.is_none();
        let domain = |key: &str| key.split('/').next().map(str::to_owned).unwrap_or_default();
        let of_claims = |key: &str| domain(key).ends_with(labels::KARPENTER_DOMAIN) || domain(key).ends_with(labels::AWS_DOMAIN);
        all.retain(|key, _| !DROPPED_ANNOTATIONS.contains(&key.as_str()) && (!of_node || of_claims(key)));
        all
    }

    fn machine(&self, prices: Option<&Catalog>) -> Machine {
        let mut machine = machine_to_terminate(&self.instance);
        let status = self.object.as_ref().map(|object| &object.status).filter(|status| !status.capacity.is_empty());
        let of_node = self.node.as_ref().map(|node| (&node.status.capacity, &node.status.allocatable));
        if let Some((capacity, allocatable)) = status.map(|status| (&status.capacity, &status.allocatable)).or(of_node) {
            machine.capacity.clone_from(capacity);
            machine.allocatable.clone_from(allocatable);
        }
        machine.labels = self.labels().iter().filter(|(key, _)| is_of_machine(key)).map(cloned).collect();
        let own = [(labels::INSTANCE_TYPE, &self.instance.instance_type), (labels::ZONE, &self.instance.zone)];
        for (key, value) in own.into_iter().chain([(labels::CAPACITY_TYPE, &self.instance.capacity_type)]) {
            machine.labels.entry(key.to_owned()).or_insert_with(|| value.clone());
        }
        let partition = self.instance.partition.map(|number| number.to_string());
        let placed = [(labels::PLACEMENT_GROUP_ID, self.instance.placement_group.clone()), (labels::PLACEMENT_GROUP_PARTITION, partition)];
        for (key, value) in placed.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            machine.labels.entry(key.to_owned()).or_insert(value);
        }
        machine.price = prices.map_or(Price::ZERO, |catalog| price(catalog, &self.instance));
        machine
    }
}

fn cloned((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

/// Labels that follow from the machine, and change if it leaves its reservation.
fn is_of_machine(key: &str) -> bool {
    key != labels::NODE_POOL && labels::WELL_KNOWN.contains(&labels::normalized(key))
}

/// Labels that a claim gets from its pool and class.
fn is_of_pool(key: &str) -> bool {
    [labels::NODE_POOL, labels::EC2_NODE_CLASS, labels::PROVISIONER_NAME].contains(&key)
}

/// The current price of such a machine; zero if unknown.
fn price(catalog: &Catalog, instance: &Instance) -> Price {
    let name = &instance.instance_type;
    let price = if instance.capacity_type == labels::CAPACITY_SPOT {
        catalog.spot.get(name).and_then(|zones| zones.get(&instance.zone)).copied()
    } else {
        catalog.on_demand_price(name)
    };
    price.unwrap_or(Price::ZERO)
}

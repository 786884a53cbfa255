//! Machines and NodeClaims that are Whittle's and that the table does not know, because it was lost, made anew or restored to
//! an earlier time (ADR 0025). What serves in the cluster gets its claim back, as it is seen; what only stands for a machine
//! that never came is let go. Nothing is bought or evicted by that.

use crate::by_hand;
use crate::collect;
use crate::judge::{ALL_MISSING, BETWEEN_SIGHTINGS, Findings, Seen, Sights, is_ready};
use std::collections::BTreeMap;
use whittle_api::k8s::{Kind, Node, Taint};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodeClassReference, NodePool, Requirement};
use whittle_api::{ClusterObjects, NillableDuration, ObjectMeta, OwnerReference, labels};
use whittle_claims::{Claim, ClaimKey, ClaimSpec, Event, IllegalStep, Machine, Phase, Sighting, step};
use whittle_core::state::is_ephemeral;
use whittle_ec2::facts::Catalog;
use whittle_ec2::instance::Instance;
use whittle_ports::{ClusterEvent, Involved, Safeguard};
use whittle_units::{ClaimName, Price, SignedDuration, Timestamp};

/// A launch that was under way when the table was lost has brought by then what it will bring.
const FORSAKEN_AFTER: SignedDuration = SignedDuration::from_mins(3);
/// What only Nodes say of themselves.
const OF_NODES: &[&str] = &[labels::REGISTERED, labels::INITIALIZED, labels::HOSTNAME, labels::EXCLUDE_BALANCERS];

/// Annotations of an object that say nothing of its claim.
const NOT_KEPT: &[&str] = &[by_hand::LAST_APPLIED, labels::MANAGED, labels::ADOPT, labels::TERMINATION_TIMESTAMP];
/// How long it is remembered since when a NodeClaim has no claim: longer than any of them should.
const UNCLAIMED_LASTS: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How often people are told of a machine that is left alone.
const REMIND_EVERY: SignedDuration = SignedDuration::from_hours(6);

/// A machine of ours without a claim, with what stands for it in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) instance: Instance,
    pub(crate) object: Option<NodeClaim>,
    pub(crate) node: Option<Node>,
}

/// Whether an object is one that Whittle keeps in step with a claim. Karpenter's carry the same labels and finalizer.
pub(crate) fn is_marked(shown: &NodeClaim) -> bool {
    shown.metadata.annotation(labels::MANAGED) == Some("true")
}

/// Whether Whittle started an instance: Karpenter sets the other tags as well.
pub(crate) fn is_ours(instance: &Instance, objects: &ClusterObjects) -> bool {
    let launched = instance.tags.get(labels::TAG_LAUNCH).is_some_and(|batch| !batch.is_empty());
    let id = instance.provider_id();
    launched || objects.node_claims.iter().any(|shown| shown.status.provider_id == id.as_str() && is_marked(shown))
}

/// Whether the user hands a machine of Karpenter's over: by its NodePool, or by its NodeClaim alone.
fn is_handed_over(instance: &Instance, objects: &ClusterObjects) -> bool {
    let asks = |meta: &ObjectMeta| meta.annotation(labels::ADOPT) == Some("true");
    let (id, name) = (instance.provider_id(), instance.tags.get(labels::NODE_POOL));
    let pool = objects.node_pools.iter().find(|pool| name.is_some_and(|name| *name == pool.metadata.name));
    pool.is_some_and(|pool| asks(&pool.metadata))
        || objects.node_claims.iter().any(|shown| shown.status.provider_id == id.as_str() && asks(&shown.metadata))
}

/// A machine that Karpenter started, and that has no Karpenter any more: it gets a claim if the user wants that, else it is left
/// as it is, and people are told how to go on.
pub(crate) fn of_karpenter(instance: &Instance, seen: &Seen<'_>, sights: &mut Sights<'_>, out: &mut Findings) {
    let Some(found) = found(instance, seen.objects) else { return };
    if is_handed_over(instance, seen.objects) {
        confirm(found, seen.objects, sights, out);
    } else if let Some(object) = found.object
        && sights.reminds(format!("nodeclaim/{} is not adopted", object.metadata.name), REMIND_EVERY)
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

/// What shows that a machine serves, or is about to: a NodeClaim that names it, or a Node that was registered.
pub(crate) fn found(instance: &Instance, objects: &ClusterObjects) -> Option<Found> {
    let id = instance.provider_id();
    let mut nodes = objects.nodes.iter().filter(|node| node.spec.provider_id == id.as_str());
    let node = nodes.next().filter(|_| nodes.next().is_none());
    let object = object_of(instance, node, objects);
    let joined = node.is_some_and(|node| node.metadata.label(labels::REGISTERED) == Some("true"));
    let found = Found { instance: instance.clone(), object: object.cloned(), node: node.cloned() };
    (object.is_some() || joined).then_some(found)
}

fn object_of<'o>(instance: &Instance, node: Option<&Node>, objects: &'o ClusterObjects) -> Option<&'o NodeClaim> {
    let id = instance.provider_id();
    let owned = |shown: &&NodeClaim| {
        let owners = node.into_iter().flat_map(|node| &node.metadata.owner_references);
        let tag = instance.tags.get(labels::TAG_NODE_CLAIM);
        shown.status.provider_id.is_empty()
            && (tag == Some(&shown.metadata.name) || owners.into_iter().any(|owner| owner.uid == shown.metadata.uid))
    };
    let shown = objects.node_claims.iter().find(|shown| shown.status.provider_id == id.as_str());
    shown.or_else(|| objects.node_claims.iter().find(owned)).filter(|shown| is_held(&shown.metadata) && is_of_aws(shown))
}

fn is_held(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER)
}

fn is_of_aws(shown: &NodeClaim) -> bool {
    let group = shown.spec.node_class_ref.group.as_str();
    group.is_empty() || group == labels::AWS_DOMAIN
}

/// NodeClaims that we made or took in hand, without claim and without machine: nobody will move them on. One that a user
/// made is answered once more.
pub(crate) fn forsaken(seen: &Seen<'_>, sights: &mut Sights<'_>, out: &mut Findings) {
    // That of a claim whose launch failed has no finalizer any more.
    let stays = |shown: &&NodeClaim| is_marked(shown) && !shown.metadata.is_deleting();
    for shown in seen.objects.node_claims.iter().filter(stays) {
        let name = &shown.metadata.name;
        if seen.claims.iter().any(|claim| claim.value.key.name.as_str() == name) {
            continue;
        }
        // Plans wait for what is noted here, and stop waiting when it has stood for long.
        sights.reminds(Sighting::unclaimed(name), UNCLAIMED_LASTS);
        if has_machine(shown, seen) {
            continue;
        }
        if !sights.confirmed(format!("nodeclaim/{name} without claim and machine"), FORSAKEN_AFTER) {
            continue;
        }
        let by_hand = shown.node_pool().is_none() && shown.metadata.owner_references.is_empty();
        if !by_hand || !shown.status.provider_id.is_empty() || seen.leaves {
            sights.keep_denial(&format!("nodeclaim/{name}"));
            out.forsaken.push(name.clone());
        } else if by_hand::is_known(&shown.spec.node_class_ref.name, seen) {
            out.answer.push(shown.clone());
        } else {
            out.refresh = true;
        }
    }
}

pub(crate) fn has_machine(shown: &NodeClaim, seen: &Seen<'_>) -> bool {
    let (id, name) = (shown.status.provider_id.as_str(), &shown.metadata.name);
    let runs = |instance: &&Instance| {
        instance.provider_id().as_str() == id || instance.tags.get(labels::TAG_NODE_CLAIM).is_some_and(|tag| tag == name)
    };
    let speaks = |node: &&Node| !id.is_empty() && node.spec.provider_id == id && is_ready(node);
    seen.instances.iter().filter(|instance| instance.is_alive()).any(|instance| runs(&instance))
        || seen.objects.nodes.iter().any(|node| speaks(&node))
}

/// Whether the cluster shows a machine for a claim that knows of none: the table is older than the cluster. One that another
/// claim was given instead is that claim's.
pub(crate) fn is_behind(claim: &Claim, seen: &Seen<'_>) -> bool {
    let shown = seen.objects.node_claims.iter().find(|shown| claim.is_shown_by(shown));
    let id = shown.map_or("", |shown| shown.status.provider_id.as_str());
    let runs = || seen.instances.iter().any(|one| one.is_alive() && one.provider_id().as_str() == id);
    let anothers = || seen.claims.iter().filter_map(|other| other.value.machine()).any(|machine| machine.provider_id.as_str() == id);
    claim.instance().is_none() && !id.is_empty() && runs() && !anothers()
}

/// The Node that the cluster shows for a claim whose machine has joined, and that knows of none: the table is older than the
/// cluster. Ended without it, its pods would be nobody's to evict.
pub(crate) fn shown_node(claim: &Claim, seen: &Seen<'_>) -> Option<String> {
    let machine = claim.machine().filter(|_| claim.is_live() && claim.node_name().is_none())?;
    let shown = seen.objects.node_claims.iter().find(|shown| claim.is_shown_by(shown))?;
    let of_machine = shown.status.provider_id == machine.provider_id.as_str() && !shown.status.node_name.is_empty();
    of_machine.then(|| shown.status.node_name.clone())
}

/// At its second sight a machine gets its claim back. Where no list shows any NodeClaim, the one that knows its name may come back:
/// another name would leave two for one machine.
pub(crate) fn confirm(found: Found, objects: &ClusterObjects, sights: &mut Sights<'_>, out: &mut Findings) {
    let nameless = found.name() == found.own_name() && objects.node_claims.is_empty();
    let patience = if nameless { ALL_MISSING } else { BETWEEN_SIGHTINGS };
    let seen_twice = sights.confirmed(format!("instance/{} to adopt", found.instance.id), patience);
    if Safeguard::AdoptedAtSecondSight.permits(seen_twice) {
        out.adopt.push(found);
    }
}

/// Where the claim of a machine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To a claim that waits for it.
    Waiting,
    /// In the place of a claim of its name that ended without a machine.
    Ended,
    /// Under a name of its own.
    New,
}

impl Found {
    /// The name that the cluster knows the machine's claim by.
    pub(crate) fn name(&self) -> ClaimName {
        let owner = self.node.iter().flat_map(|node| &node.metadata.owner_references).find(|owner| owner.kind == NodeClaim::KIND);
        let named = self.object.as_ref().map(|object| &object.metadata.name).or(owner.map(|owner| &owner.name));
        named.map_or_else(|| self.own_name(), |name| ClaimName::new(name.as_str()))
    }

    /// A name that no other claim has.
    pub(crate) fn own_name(&self) -> ClaimName {
        ClaimName::new(format!("adopted-{}", self.instance.id))
    }

    /// Where its claim goes, beside the one that has its name.
    pub(crate) fn place(&self, named: Option<&Claim>) -> Place {
        match named {
            Some(claim) if claim.deletion.is_none() && matches!(claim.phase, Phase::Planned | Phase::Launching { .. }) => Place::Waiting,
            Some(claim) if !claim.is_live() && claim.instance().is_none() => Place::Ended,
            _ => Place::New,
        }
    }

    /// A claim for the machine, made from all that is seen of it.
    pub(crate) fn claim(
        &self,
        key: ClaimKey,
        uid: String,
        objects: &ClusterObjects,
        prices: Option<&Catalog>,
        now: Timestamp,
    ) -> Result<Claim, IllegalStep> {
        let by_hand = self.pool().is_empty().then(|| self.object.as_ref().map(|object| object.metadata.uid.clone())).flatten();
        let uid = by_hand.clone().unwrap_or(uid);
        let mut claim = Claim::planned(key, uid, ClaimSpec { made_by_hand: by_hand, ..self.spec(objects) }, now);
        let made = self.object.as_ref().and_then(|object| object.metadata.creation_timestamp);
        claim.created_at = made.unwrap_or(self.instance.launched_at);
        claim.last_pod_event_at = self.object.as_ref().and_then(|object| object.status.last_pod_event_time);
        self.join(&claim, prices, now)
    }

    /// A claim with the machine, as far as the machine has come.
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
        } else if let Some(shown) = self.object.as_ref().filter(|shown| self.node.is_none() && !shown.status.node_name.is_empty())
            && shown.status.provider_id == self.instance.provider_id().as_str()
        {
            // A Node that the list lacks.
            next = step(&next, &Event::NodeJoined { node_name: shown.status.node_name.clone() }, now)?;
        }
        Ok(next)
    }

    /// The object's, which shows a claim as it is; else the Node's.
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
            let spec = &object.spec;
            return ClaimSpec {
                node_class: spec.node_class_ref.clone(),
                requirements: spec.requirements.clone(),
                taints: spec.taints.clone(),
                startup_taints: spec.startup_taints.clone(),
                requests: spec.resources.requests.clone(),
                expire_after: spec.expire_after.clone(),
                termination_grace_period: spec.termination_grace_period.clone(),
                ..shared
            };
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

    /// As the object says, else the pool of its name. A pool that is gone ends the claim with the next sweeps.
    fn owner(&self, pool: Option<&NodePool>) -> OwnerReference {
        let owners = self.object.iter().flat_map(|object| &object.metadata.owner_references);
        let mut owners = owners.filter(|owner| matches!(owner.kind.as_str(), "NodePool" | "Provisioner"));
        if let Some(owner) = owners.next() {
            return owner.clone();
        }
        if self.pool().is_empty() {
            return OwnerReference::default(); // made by hand
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
        let mut all = self.meta().map(|meta| meta.labels.clone()).unwrap_or_default();
        all.retain(|key, _| !OF_NODES.contains(&key.as_str()));
        all
    }

    /// The hashes above all: without them nobody could tell whether the machine has drifted since it was made.
    fn annotations(&self) -> BTreeMap<String, String> {
        let mut all = self.meta().map(|meta| meta.annotations.clone()).unwrap_or_default();
        let of_node = self.object.is_none();
        let domain = |key: &str| key.split('/').next().map(str::to_owned).unwrap_or_default();
        let of_claims = |key: &str| domain(key).ends_with(labels::KARPENTER_DOMAIN) || domain(key).ends_with(labels::AWS_DOMAIN);
        all.retain(|key, _| !NOT_KEPT.contains(&key.as_str()) && (!of_node || of_claims(key)));
        all
    }

    fn machine(&self, prices: Option<&Catalog>) -> Machine {
        let mut machine = collect::machine(&self.instance);
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
        machine.price = prices.map_or(Price::ZERO, |catalog| price(catalog, &self.instance));
        machine
    }
}

fn cloned((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

/// Labels that follow from the machine, and change with it where it leaves its reservation.
fn is_of_machine(key: &str) -> bool {
    key != labels::NODE_POOL && labels::WELL_KNOWN.contains(&labels::normalized(key))
}

/// Labels that a claim has from its pool and class, whatever else it has.
fn is_of_pool(key: &str) -> bool {
    [labels::NODE_POOL, labels::EC2_NODE_CLASS, labels::PROVISIONER_NAME].contains(&key)
}

/// What such a machine costs today; nothing where the region does not say.
fn price(catalog: &Catalog, instance: &Instance) -> Price {
    let name = &instance.instance_type;
    let price = if instance.capacity_type == labels::CAPACITY_SPOT {
        catalog.spot.get(name).and_then(|zones| zones.get(&instance.zone)).copied()
    } else {
        catalog.on_demand_price(name)
    };
    price.unwrap_or(Price::ZERO)
}

//! Claims, instances and objects compared: what is due, what was lost, what belongs to nobody. Pure.

use crate::adopt::{self, Found};
use crate::by_hand;
use crate::health::{self, Consistency};
use crate::reservations;
use crate::templates::InUse;
use crate::unreadable::{self, Pool, Shown};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Kind, Node};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodePool};
use whittle_api::{ClusterObjects, ConditionStatus, ObjectMeta, conditions, labels};
use whittle_claims::{Claim, DeletionReason, NodeClassRecord, Phase, Sighting, Stored, mirror};
use whittle_ec2::instance::Instance;
use whittle_ports::{ClusterEvent, Involved, Safeguard, Sought};
use whittle_units::{ClaimName, InstanceId, SignedDuration, Timestamp};

/// A contradiction is acted on when it is seen again at least this long after it was first seen.
pub(crate) const BETWEEN_SIGHTINGS: SignedDuration = SignedDuration::from_secs(30);
/// A contradiction that was not seen again for this long starts anew.
const SIGHTING_LASTS: SignedDuration = SignedDuration::from_mins(10);
/// Where not one pool, or not one NodeClaim, is left while claims live, the answer is doubted for so long: a cluster without
/// any is rarer than an API server that has lost sight of them.
pub(crate) const ALL_MISSING: SignedDuration = SignedDuration::from_mins(15);
/// What cannot be read is told again after this.
const UNREADABLE_EVERY: SignedDuration = SignedDuration::from_mins(15);
/// Launch templates are cheap to keep and to make again; those that nothing uses for this long go.
const TEMPLATE_IDLE: SignedDuration = SignedDuration::from_mins(10);
/// How long after it was due a doorbell counts as lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// An instance so young may not have been named yet.
const INSTANCE_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Everything that is compared, read at about the same time.
pub(crate) struct Seen<'a> {
    pub(crate) claims: &'a [Stored<Claim>],
    /// Names of claims that cannot be read.
    pub(crate) unreadable: &'a [String],
    pub(crate) objects: &'a ClusterObjects,
    pub(crate) instances: &'a [Instance],
    pub(crate) templates: &'a [String],
    /// Those of calls that are under way.
    pub(crate) in_use: &'a InUse,
    pub(crate) sightings: &'a [Sighting],
    /// What node classes resolved to at their last look.
    pub(crate) classes: &'a [NodeClassRecord],
    /// Whether broken nodes are replaced.
    pub(crate) repair: bool,
    /// Whittle leaves the cluster: nothing new is launched for it.
    pub(crate) leaves: bool,
    pub(crate) now: Timestamp,
}

/// A claim that is to end, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) claim: ClaimName,
    pub(crate) reason: DeletionReason,
    pub(crate) message: String,
    /// The Node's condition that is to blame.
    pub(crate) condition: Option<&'static str>,
    /// When somebody else asked for it, and the deadline that they stated.
    pub(crate) asked_at: Option<Timestamp>,
    pub(crate) stated: Option<Timestamp>,
    /// What has to be gone by its own answer: that lists do not show it is not enough.
    pub(crate) gone: Option<Missing>,
}

impl Ending {
    pub(crate) fn new(claim: &Claim, reason: DeletionReason, message: impl Into<String>) -> Self {
        let claim = claim.key.name.clone();
        Self { claim, reason, message: message.into(), condition: None, asked_at: None, stated: None, gone: None }
    }
}

/// An object that lists do not show any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Missing {
    pub(crate) sought: Sought,
    pub(crate) name: String,
    /// Empty where it is not known: then whatever has the name counts.
    pub(crate) uid: String,
    /// Of a Node: its machine's. Names are used again.
    pub(crate) provider_id: String,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) end: Vec<Ending>,
    /// Confirmed: NodeClaims that somebody made by hand and nobody has launched.
    pub(crate) answer: Vec<NodeClaim>,
    /// Claims whose doorbell was lost.
    pub(crate) launch: Vec<ClaimName>,
    pub(crate) terminate: Vec<ClaimName>,
    /// Claims whose mirror is missing or shows something else.
    pub(crate) mirrors: Vec<ClaimName>,
    /// Confirmed: instances that belong to no claim.
    pub(crate) orphans: Vec<Instance>,
    /// Confirmed: machines that serve and that no claim knows.
    pub(crate) adopt: Vec<Found>,
    /// Claims that the cluster knows the Node of and that do not know it any more themselves, with its name.
    pub(crate) join: Vec<(ClaimName, String)>,
    /// Confirmed: NodeClaims of ours for which there is neither claim nor machine.
    pub(crate) forsaken: Vec<String>,
    /// Confirmed: mirrors and Nodes that are being deleted, whose claim and machine are gone.
    pub(crate) release_mirrors: Vec<String>,
    pub(crate) release_nodes: Vec<String>,
    pub(crate) delete_templates: Vec<String>,
    /// Claims whose node turned out to be other, or again to be, what its machine should be.
    pub(crate) consistency: Vec<Consistency>,
    /// Claims whose machine has left its reservation, and Nodes that do not say so yet.
    pub(crate) demote: Vec<ClaimName>,
    pub(crate) demote_nodes: Vec<String>,
    /// Nodes that lack the label of their class, with its name.
    pub(crate) hydrate: Vec<(String, String)>,
    /// A class is on its way out and nothing uses it any more, or its reservations have to be looked at.
    pub(crate) refresh: bool,
    /// How many claims have lost their pool, by its name.
    pub(crate) without_pool: BTreeMap<String, u64>,
    /// What people have to be told.
    pub(crate) events: Vec<ClusterEvent>,
    /// Contradictions seen now for the first time.
    pub(crate) note: Vec<Sighting>,
    /// Contradictions that have resolved themselves.
    pub(crate) forget: Vec<String>,
}

impl Findings {
    /// What concerns objects alone behind which no machine is: the rest is not judged where machines are about to be nobody's.
    pub(crate) fn of_objects(self) -> Self {
        let Self { forsaken, release_mirrors, release_nodes, note, forget, .. } = self;
        Self { forsaken, release_mirrors, release_nodes, note, forget, ..Self::default() }
    }
}

/// Sightings of this run against those of earlier ones.
pub(crate) struct Sights<'a> {
    known: BTreeMap<&'a str, &'a Sighting>,
    seen: BTreeSet<String>,
    note: Vec<Sighting>,
    now: Timestamp,
}

impl Sights<'_> {
    /// Notes a contradiction; true when it was seen before and long enough ago.
    pub(crate) fn confirmed(&mut self, subject: String, after: SignedDuration) -> bool {
        let first = self.known.get(subject.as_str()).map(|known| known.first_seen_at);
        if first.is_none() {
            let expires_at = self.now.checked_add(after.max(SIGHTING_LASTS) + SIGHTING_LASTS).unwrap_or(Timestamp::MAX);
            self.note.push(Sighting { subject: subject.clone(), first_seen_at: self.now, expires_at });
        }
        self.seen.insert(subject);
        first.is_some_and(|first| self.now.duration_since(first) >= after)
    }
    /// What this run has no say in is not forgotten by it.
    pub(crate) fn keep(&mut self, subject: String) {
        self.seen.insert(subject);
    }
    /// True when this was not said within `every`.
    pub(crate) fn reminds(&mut self, subject: String, every: SignedDuration) -> bool {
        let fresh = !self.known.contains_key(subject.as_str());
        if fresh {
            let expires_at = self.now.checked_add(every).unwrap_or(Timestamp::MAX);
            self.note.push(Sighting { subject: subject.clone(), first_seen_at: self.now, expires_at });
        }
        self.seen.insert(subject);
        fresh
    }
}

/// Compares everything with everything.
pub(crate) fn judge(seen: &Seen<'_>) -> Findings {
    let mut out = Findings::default();
    let known = seen.sightings.iter().filter(|known| known.expires_at > seen.now).map(|known| (known.subject.as_str(), known)).collect();
    let mut sights = Sights { known, seen: BTreeSet::new(), note: Vec::new(), now: seen.now };
    for claim in seen.claims.iter().map(|stored| &stored.value) {
        // What the cluster shows of a machine is all that is known of it until its claim has it back: ended without it, the claim
        // would let the NodeClaim go and leave the machine behind.
        let unjoined = adopt::shown_node(claim, seen).map(|node| (claim.key.name.clone(), node));
        let behind = Safeguard::BehindAwaited.stops(adopt::is_behind(claim, seen) || unjoined.is_some());
        out.join.extend(unjoined);
        if claim.deletion.is_none() && claim.is_live() && !behind {
            out.end.extend(ending(claim, seen, &mut sights));
            lost_pool(claim, seen, &mut sights, &mut out);
        }
        lost(claim, seen, &mut out);
        if !behind {
            mirrored(claim, seen.objects, &mut out);
        }
    }
    // Nobody knows whether the pool of a claim came back that cannot be read meanwhile.
    seen.unreadable.iter().for_each(|name| sights.keep(without_pool(name)));
    if !seen.leaves {
        by_hand::unanswered(seen, &mut sights, &mut out);
    }
    let class_goes = seen.objects.node_classes.iter().any(|class| is_to_go(&class.metadata, seen.claims));
    let class_came = !seen.leaves && seen.objects.node_classes.iter().any(|class| is_unseen(class, seen.classes));
    out.refresh |= class_goes || class_came || reservations::are_due(seen);
    reservations::left(seen, &mut out);
    health::repair(seen, &mut sights, &mut out);
    health::consistency(seen, &mut out);
    health::hydration(seen, &mut out);
    orphans(seen, &mut sights, &mut out);
    left_objects(seen, &mut sights, &mut out);
    if seen.unreadable.is_empty() && !unreadable::hides_machines(seen.claims, seen.objects) {
        adopt::forsaken(seen, &mut sights, &mut out);
    }
    tell_unreadable(seen, &mut sights, &mut out);
    for name in seen.templates.iter().filter(|name| !seen.in_use.names.contains(*name)) {
        // What may be needed by a call that is not known keeps its clock, and stays.
        if sights.confirmed(format!("launch template {name} unused"), TEMPLATE_IDLE) && seen.in_use.is_whole {
            out.delete_templates.push(name.clone());
        }
    }
    out.note = std::mem::take(&mut sights.note);
    out.forget = seen.sightings.iter().map(|known| known.subject.clone()).filter(|subject| !sights.seen.contains(subject)).collect();
    out
}

/// A class that `refresh` has not looked at: its doorbell was lost or its run failed, and no pod gets a machine of it till then.
fn is_unseen(class: &Ec2NodeClass, records: &[NodeClassRecord]) -> bool {
    let name = NodeClassRecord::name_of(class);
    // What is left of an earlier one of its name is marked as deleted.
    // Nor is one whose spec was changed since.
    let generation = class.metadata.generation;
    let is_current = |record: &NodeClassRecord| generation.is_none() || record.class.metadata.generation >= generation;
    let looked_at = |record: &NodeClassRecord| {
        NodeClassRecord::name_of(&record.class) == name && !record.class.metadata.is_deleting() && is_current(record)
    };
    !class.metadata.is_deleting() && !records.iter().any(looked_at)
}

/// A class that only our finalizer holds: `refresh` lets it go.
fn is_to_go(class: &whittle_api::ObjectMeta, claims: &[Stored<Claim>]) -> bool {
    let held = class.is_deleting() && class.finalizers.iter().any(|finalizer| finalizer == labels::NODE_CLASS_FINALIZER);
    held && !claims.iter().any(|claim| claim.value.is_live() && claim.value.spec.node_class.name == class.name)
}

/// What is noted of a claim whose pool no list shows.
fn without_pool(claim: &str) -> String {
    format!("claim/{claim} without NodePool")
}

/// Why a claim that serves has to end now, if it has to.
fn ending(claim: &Claim, seen: &Seen<'_>, sights: &mut Sights<'_>) -> Option<Ending> {
    let end = |reason, message: &str| Some(Ending::new(claim, reason, message));
    let name = claim.key.name.as_str();
    let requested = |meta: &ObjectMeta, message| {
        let stated = meta.annotation(labels::TERMINATION_TIMESTAMP).and_then(|text| text.parse().ok());
        Some(Ending { asked_at: meta.deletion_timestamp, stated, ..Ending::new(claim, DeletionReason::Requested, message) })
    };
    match unreadable::shown(claim, seen.objects) {
        Shown::There(meta) if meta.is_deleting() => return requested(meta, "the NodeClaim was deleted"),
        Shown::There(_) | Shown::Unknown => {}
        Shown::Missing => {
            // One look is enough: the API server is asked for it by name.
            if let Some(uid) = claim.spec.made_by_hand.clone() {
                let gone = Missing { sought: Sought::NodeClaim, name: name.to_owned(), uid, provider_id: String::new() };
                let message = "the NodeClaim that was made by hand does not exist any more";
                return Some(Ending { gone: Some(gone), ..Ending::new(claim, DeletionReason::Requested, message) });
            }
        }
    }
    let nodes = nodes_of(claim, seen.objects);
    // Another Node with the same provider id says nothing about this claim's own.
    let is_own = |node: &&&Node| claim.node_name() == Some(node.metadata.name.as_str());
    let hidden = unreadable::nodes_of(claim, seen.objects).filter(|odd| claim.node_name() == Some(odd.metadata.name.as_str()));
    let mut own = nodes.iter().filter(is_own).map(|node| &node.metadata).chain(hidden.map(|odd| &odd.metadata));
    if own.any(ObjectMeta::is_deleting) {
        return end(DeletionReason::Requested, "the Node was deleted");
    }
    match unreadable::pool_of(claim, seen.objects) {
        Pool::There => {}
        Pool::Deleting => return end(DeletionReason::NodePoolDeleted, "its NodePool is being deleted"),
        Pool::Missing(gone) => {
            if sights.confirmed(without_pool(name), unreadable::patience(seen.objects)) {
                let ending = Ending::new(claim, DeletionReason::NodePoolDeleted, "its NodePool does not exist any more");
                return Some(Ending { gone: Some(gone), ..ending });
            }
        }
    }
    if vanished(claim, &nodes, seen)
        && Safeguard::LossSeenTwice.permits(sights.confirmed(format!("claim/{name} without instance"), BETWEEN_SIGHTINGS))
    {
        // A Node that the list lacks may be there, and speak.
        let unlisted = claim.node_name().filter(|_| nodes.is_empty());
        let provider_id = || claim.machine().map(|machine| machine.provider_id.as_str().to_owned()).unwrap_or_default();
        let of_node = |node: &str| Missing { sought: Sought::Node, name: node.to_owned(), uid: String::new(), provider_id: provider_id() };
        let gone = unlisted.map(of_node);
        let message = "its instance has ended and its Node is not ready";
        return Some(Ending { gone, ..Ending::new(claim, DeletionReason::InstanceGone, message) });
    }
    if let Some(at) = reservations::block_to_leave(claim, seen) {
        return end(DeletionReason::Requested, &format!("its capacity block ends at {at}"));
    }
    let expired = claim.expires_at().is_some_and(|at| at <= seen.now);
    if expired { end(DeletionReason::Expired, "its expireAfter has passed") } else { None }
}

/// A claim's pool by name and kind and, where both are known, by uid: one of the same name that was made later is another.
pub(crate) fn owner_of<'a>(claim: &Claim, objects: &'a ClusterObjects) -> Option<&'a NodePool> {
    let owner = &claim.spec.owner;
    let from_provisioner = owner.kind == "Provisioner";
    objects.node_pools.iter().find(|pool| {
        pool.metadata.name == owner.name
            && pool.is_converted_provisioner() == from_provisioner
            && (owner.uid.is_empty() || pool.metadata.uid.is_empty() || pool.metadata.uid == owner.uid)
    })
}

/// Counts a claim whose pool is not there, and says so before anything ends for it.
fn lost_pool(claim: &Claim, seen: &Seen<'_>, sights: &mut Sights<'_>, out: &mut Findings) {
    let Pool::Missing(pool) = unreadable::pool_of(claim, seen.objects) else { return };
    *out.without_pool.entry(pool.name.clone()).or_default() += 1;
    if sights.reminds(format!("nodepool/{} missing", pool.name), UNREADABLE_EVERY) {
        let (name, patience) = (&pool.name, unreadable::patience(seen.objects));
        let message = format!("NodePool {name} is not there: its nodes are drained unless it comes back within {patience:#}");
        out.events.push(ClusterEvent::warning(Involved::claim(claim), "NodePoolNotFound", message));
    }
}

/// What is there and cannot be read says so itself.
fn tell_unreadable(seen: &Seen<'_>, sights: &mut Sights<'_>, out: &mut Findings) {
    for odd in &seen.objects.unreadable {
        if sights.reminds(format!("{}/{} cannot be read", odd.kind, odd.metadata.key()), UNREADABLE_EVERY) {
            out.events.push(ClusterEvent::unreadable(odd));
        }
    }
}

pub(crate) fn nodes_of<'a>(claim: &Claim, objects: &'a ClusterObjects) -> Vec<&'a Node> {
    let Some(machine) = claim.machine() else { return Vec::new() };
    objects.nodes.iter().filter(|node| node.spec.provider_id == machine.provider_id.as_str()).collect()
}

pub(crate) fn is_ready(node: &Node) -> bool {
    conditions::find(&node.status.conditions, conditions::READY).is_some_and(|ready| ready.status == ConditionStatus::True)
}

/// EC2 does not list the machine of a registered claim, and no kubelet speaks for it. Claims that have not registered are
/// left to their timeout.
fn vanished(claim: &Claim, nodes: &[&Node], seen: &Seen<'_>) -> bool {
    let registered = matches!(claim.phase, Phase::Registered { .. } | Phase::Initialized { .. });
    let Some(machine) = claim.machine().filter(|_| registered) else { return false };
    let listed = seen.instances.iter().any(|instance| instance.id == machine.instance_id && instance.is_alive());
    // What a Node says that cannot be read nobody knows.
    let speaks = matches!(nodes, [node] if is_ready(node)) || unreadable::nodes_of(claim, seen.objects).next().is_some();
    !listed && !Safeguard::SilenceNeeded.stops(speaks)
}

/// Doorbells that were lost are rung again.
fn lost(claim: &Claim, seen: &Seen<'_>, out: &mut Findings) {
    let overdue = |since: Timestamp| seen.now.duration_since(claim.look_again_at.unwrap_or(since)) >= LOST_AFTER;
    let name = claim.key.name.clone();
    match (&claim.phase, &claim.deletion) {
        (Phase::Failed { .. } | Phase::Gone { .. }, _) => {}
        (_, Some(deletion)) if overdue(deletion.at) => out.terminate.push(name),
        (Phase::Planned, None) if !by_hand::is_guarded(claim, &seen.objects.node_claims) || adopt::is_behind(claim, seen) => {}
        (Phase::Planned, None) if overdue(claim.created_at) => out.launch.push(name),
        (Phase::Launching { since, .. }, None) if overdue(*since) => out.launch.push(name),
        _ => {}
    }
}

/// Mirrors follow their claims; that of an ended claim has to go.
fn mirrored(claim: &Claim, objects: &ClusterObjects, out: &mut Findings) {
    let shown = objects.node_claims.iter().find(|shown| claim.is_shown_by(shown));
    let name = claim.key.name.clone();
    match shown {
        // Somebody gave a NodeClaim of his own the name of a claim that has ended.
        Some(shown) if !claim.is_live() && claim.spec.made_by_hand.is_none() && by_hand::waits(shown) => {}
        Some(_) if !claim.is_live() => out.terminate.push(name),
        None if claim.spec.made_by_hand.is_some() => {}
        None if matches!(unreadable::shown(claim, objects), Shown::There(_) | Shown::Unknown) => {}
        None if claim.is_live() && claim.deletion.is_none() => out.mirrors.push(name),
        Some(shown) if claim.is_live() && differs(shown, &mirror(claim)) => out.mirrors.push(name),
        _ => {}
    }
}

/// Only what we write is compared; others may add labels and annotations.
fn differs(shown: &NodeClaim, wanted: &NodeClaim) -> bool {
    let has =
        |there: &BTreeMap<String, String>, ours: &BTreeMap<String, String>| ours.iter().all(|(key, value)| there.get(key) == Some(value));
    let mut status = wanted.status.clone();
    conditions::observe(&mut status.conditions, shown.metadata.generation);
    shown.status != status
        || !has(&shown.metadata.labels, &wanted.metadata.labels)
        || !has(&shown.metadata.annotations, &wanted.metadata.annotations)
}

/// Instances that Whittle started and that no claim accounts for. What Karpenter started carries the same tags but one, and is
/// Karpenter's to end.
fn orphans(seen: &Seen<'_>, sights: &mut Sights<'_>, out: &mut Findings) {
    // Any instance might belong to a claim that cannot be read, or to another controller's NodeClaim.
    let unshown = seen.objects.lacks_kind(NodeClaim::KIND);
    if Safeguard::UnreadableClaimsHold.stops(!seen.unreadable.is_empty()) || unshown {
        return;
    }
    let named: BTreeSet<&str> =
        seen.claims.iter().filter_map(|claim| claim.value.machine()).map(|machine| machine.instance_id.as_str()).collect();
    let launching: BTreeSet<&str> = seen
        .claims
        .iter()
        .filter_map(|claim| match &claim.value.phase {
            Phase::Launching { client_token, .. } => Some(client_token.as_str()),
            _ => None,
        })
        .collect();
    let mut shown: BTreeSet<&str> = seen.objects.node_claims.iter().map(|claim| claim.status.provider_id.as_str()).collect();
    shown.extend(unreadable::machines(seen.objects));
    let ended: BTreeSet<&str> = seen.claims.iter().filter_map(|claim| claim.value.instance()).map(InstanceId::as_str).collect();
    for instance in seen.instances {
        let tagged = [labels::NODE_POOL, labels::EC2_NODE_CLASS].iter().all(|key| instance.tags.contains_key(*key));
        let tagged = tagged && !is_shared(instance) && !crate::uninstall::was_let_go(instance);
        let young = seen.now.duration_since(instance.launched_at) < INSTANCE_GRACE;
        let under_way = instance.tags.get(labels::TAG_LAUNCH).is_some_and(|batch| launching.contains(batch.as_str()));
        let under_way = Safeguard::LaunchUnderWay.stops(under_way);
        if !tagged || young || under_way || named.contains(instance.id.as_str()) || !instance.is_alive() {
            continue;
        }
        if unreadable::may_be_hidden(instance, seen.claims, seen.objects, seen.now) {
            continue; // nor may it be taken over
        }
        if Safeguard::KarpenterSpared.stops(!adopt::is_ours(instance, seen.objects)) {
            adopt::of_karpenter(instance, seen, sights, out);
            continue;
        }
        if unreadable::may_be_node(instance.provider_id().as_str(), seen.objects) {
            continue; // nobody knows what runs there
        }
        // A machine that ended under its claim and runs all the same is not taken back.
        match adopt::found(instance, seen.objects).filter(|_| !ended.contains(instance.id.as_str())) {
            Some(found) => adopt::confirm(found, seen.objects, sights, out),
            None if shown.contains(instance.provider_id().as_str()) => {}
            None if sights.confirmed(format!("instance/{} without claim", instance.id), BETWEEN_SIGHTINGS) => {
                out.orphans.push(instance.clone());
            }
            None => {}
        }
    }
}

/// Tagged as ours and as another cluster's at once: whose it is, a person has to say.
fn is_shared(instance: &Instance) -> bool {
    let cluster = instance.tags.get(labels::TAG_CLUSTER).map_or("", String::as_str);
    instance.tags.keys().filter_map(|key| key.strip_prefix("kubernetes.io/cluster/")).any(|other| other != cluster)
}

/// Objects that are being deleted and that only our finalizer holds, although claim and machine are gone.
fn left_objects(seen: &Seen<'_>, sights: &mut Sights<'_>, out: &mut Findings) {
    if !seen.unreadable.is_empty() || unreadable::hides_machines(seen.claims, seen.objects) {
        return;
    }
    let claims: BTreeSet<&str> = seen.claims.iter().map(|claim| claim.value.key.name.as_str()).collect();
    let named = seen.claims.iter().filter_map(|claim| claim.value.machine()).map(|machine| machine.provider_id.as_str());
    let machines: BTreeSet<&str> = named.chain(unreadable::machines(seen.objects)).collect();
    let running: BTreeSet<String> = seen.instances.iter().map(|instance| instance.provider_id().as_str().to_owned()).collect();
    let held = |meta: &whittle_api::ObjectMeta| meta.is_deleting() && meta.finalizers.iter().any(|f| f == labels::TERMINATION_FINALIZER);
    // Other providers' controllers share the finalizer's name.
    let may_be_ours = |shown: &&NodeClaim| {
        let group = shown.spec.node_class_ref.group.as_str();
        group.is_empty() || group == labels::AWS_DOMAIN
    };
    for shown in seen.objects.node_claims.iter().filter(may_be_ours).filter(|shown| held(&shown.metadata)) {
        let name = &shown.metadata.name;
        let has_machine = running.contains(&shown.status.provider_id) || adopt::has_machine(shown, seen);
        if !claims.contains(name.as_str()) && !has_machine && sights.confirmed(format!("nodeclaim/{name} without claim"), BETWEEN_SIGHTINGS)
        {
            sights.keep_denial(&format!("nodeclaim/{name}"));
            out.release_mirrors.push(name.clone());
        }
    }
    for node in seen.objects.nodes.iter().filter(|node| held(&node.metadata)) {
        let (name, id) = (&node.metadata.name, node.spec.provider_id.as_str());
        let accounted = !id.starts_with("aws:///") || machines.contains(id) || running.contains(id) || is_ready(node);
        if !accounted && sights.confirmed(format!("node/{name} without machine"), BETWEEN_SIGHTINGS) {
            sights.keep_denial(&format!("node/{name}"));
            out.release_nodes.push(name.clone());
        }
    }
}

//! Compares claims, instances and objects: what is due, what was lost, what has no owner. Pure.

use crate::Freshness;
use crate::adopt::{self, Adoptable};
use crate::health::{self, Consistency};
use crate::index::Index;
use crate::orphans;
use crate::reports;
use crate::reservations;
use crate::sightings::{SIGHTING_INTERVAL, Sightings};
use crate::standalone;
use crate::templates::{self, InUse};
use crate::uninstall::has_lasting_node;
use crate::unreadable::{self, MirrorState, Pool};
use std::collections::BTreeMap;
use whittle_api::k8s::Node;
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim, NodeClaimStatus, NodePool};
use whittle_api::{ClusterObjects, ConditionStatus, conditions, labels};
use whittle_claims::{
    BlockEnds, Claim, DeletionReason, LeftNodes, NodeClassRecord, Phase, Requested, ShiftedZones, Sighting, Stored, mirror, stated_deadline,
};
use whittle_ec2::instance::Instance;
use whittle_ec2::interruption::InstanceStatus;
use whittle_ports::{ClusterEvent, Involved, ObjectKind, Safeguard};
use whittle_units::{ClaimName, SignedDuration, Timestamp};

/// If all pools, or all NodeClaims, are missing while claims are live, the response is doubted for this long: a cluster without
/// any is rarer than an API server with incomplete data.
pub(crate) const ALL_MISSING_PATIENCE: SignedDuration = SignedDuration::from_mins(15);
/// A Node that a NodeClaim names is looked up in each sweep. If none finds it for this long, the claim is treated as one without a Node.
const UNFOUND_NODE_PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// Events about unreadable objects are repeated after this.
const REPEAT_EVENT_AFTER: SignedDuration = SignedDuration::from_mins(15);
/// Launch templates are cheap to keep and to recreate; those that are unused for this long are deleted.
const TEMPLATE_IDLE_FOR: SignedDuration = SignedDuration::from_mins(10);
/// A doorbell counts as lost this long after it was due.
const DOORBELL_LOST_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// EC2 lists an instance this long after its start at the latest.
const LISTED_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// Everything that is compared, read at about the same time.
pub(crate) struct SweepInput<'a> {
    pub(crate) claims: &'a [Stored<Claim>],
    /// Names of claims that cannot be read.
    pub(crate) unreadable: &'a [String],
    pub(crate) objects: &'a ClusterObjects,
    /// Whether the Nodes among them are new: old ones may have stopped.
    pub(crate) nodes: Freshness,
    pub(crate) instances: &'a [Instance],
    /// All of these by their names.
    pub(crate) index: Index<'a>,
    /// Results of EC2's status checks of instances in the region.
    pub(crate) statuses: &'a [InstanceStatus],
    pub(crate) templates: &'a [String],
    /// Launch templates of calls in progress.
    pub(crate) in_use: &'a InUse,
    pub(crate) sightings: &'a [Sighting],
    /// Node classes as of their last refresh.
    pub(crate) classes: &'a [NodeClassRecord],
    /// Ends of the capacity blocks that claims run in, if any may run in one and `refresh` has looked.
    pub(crate) blocks: Option<&'a BlockEnds>,
    /// Zones under a zonal shift: EC2 not showing a machine there proves nothing, and none is replaced for its age.
    pub(crate) shifted: &'a ShiftedZones,
    /// Whether unhealthy nodes are replaced.
    pub(crate) repair: bool,
    /// Whittle is being uninstalled from the cluster: nothing new is launched for it.
    pub(crate) uninstalling: bool,
    pub(crate) now: Timestamp,
}

impl SweepInput<'_> {
    /// Whether a Node shows that its machine runs, whatever EC2 says. An old one does not: it is read again.
    pub(crate) fn speaks(&self, node: &Node) -> bool {
        self.nodes == Freshness::Newest && node.is_ready()
    }
}

/// A claim to be deleted, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) claim: ClaimName,
    pub(crate) reason: DeletionReason,
    pub(crate) message: String,
    /// The Node condition that caused it.
    pub(crate) condition: Option<&'static str>,
    /// EC2's check that caused it.
    pub(crate) check: Option<&'static str>,
    /// When a user requested it, and the deadline that they set.
    pub(crate) requested_at: Option<Timestamp>,
    pub(crate) stated: Option<Timestamp>,
    /// An object whose absence has to be confirmed by name: its absence from lists is not enough.
    pub(crate) gone: Option<Missing>,
}

impl Ending {
    pub(crate) fn new(claim: &Claim, reason: DeletionReason, message: impl Into<String>) -> Self {
        let claim = claim.key.name.clone();
        Self { claim, reason, message: message.into(), condition: None, check: None, requested_at: None, stated: None, gone: None }
    }
}

/// An object that lists do not contain any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Missing {
    pub(crate) kind: ObjectKind,
    pub(crate) name: String,
    /// Empty if unknown: then any object of the name counts.
    pub(crate) uid: String,
    /// For a Node, that of its machine: names are reused.
    pub(crate) provider_id: String,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) end: Vec<Ending>,
    /// Confirmed: standalone NodeClaims without a claim.
    pub(crate) answer: Vec<NodeClaim>,
    /// Claims whose doorbell was lost.
    pub(crate) launch: Vec<ClaimName>,
    pub(crate) terminate: Vec<ClaimName>,
    /// Claims whose mirror is missing or out of date.
    pub(crate) mirrors: Vec<ClaimName>,
    /// Confirmed: instances without a claim.
    pub(crate) orphans: Vec<Instance>,
    /// Confirmed: serving machines without a claim.
    pub(crate) adopt: Vec<Adoptable>,
    /// Claims that lack the Node that the cluster shows for them, with its name.
    pub(crate) join: Vec<(ClaimName, String)>,
    /// Confirmed: managed NodeClaims with neither claim nor machine.
    pub(crate) abandoned: Vec<String>,
    /// Confirmed: NodeClaims without a claim that are marked although their machine was handed over.
    pub(crate) handed_over: Vec<String>,
    /// Confirmed: mirrors and Nodes whose claim and machine are gone. They are being deleted, or nobody could delete the Node yet.
    pub(crate) release_mirrors: Vec<String>,
    pub(crate) release_nodes: Vec<String>,
    pub(crate) delete_templates: Vec<String>,
    /// Claims whose consistency with their machine changed.
    pub(crate) consistency: Vec<Consistency>,
    /// Claims whose machine has left its reservation, and Nodes whose labels do not reflect it yet.
    pub(crate) demote: Vec<ClaimName>,
    pub(crate) demote_nodes: Vec<String>,
    /// Nodes that lack the label of their class, with its name.
    pub(crate) hydrate: Vec<(String, String)>,
    /// Whether a class is being deleted and unused, or new, or its reservations have to be refreshed.
    pub(crate) refresh: bool,
    /// The number of claims whose pool is missing, by its name.
    pub(crate) missing_pool: BTreeMap<String, u64>,
    /// Events to publish.
    pub(crate) events: Vec<ClusterEvent>,
    /// Contradictions seen now for the first time.
    pub(crate) note: Vec<Sighting>,
    /// Contradictions that have resolved themselves.
    pub(crate) forget: Vec<String>,
}

impl Findings {
    /// Only the findings about objects without machines, and about machines without a claim that are not released because they never
    /// registered or their Node is being deleted: the rest does not apply while machines are being released.
    pub(crate) fn while_leaving(self, nodes: LeftNodes, objects: &ClusterObjects) -> Self {
        let Self { abandoned, release_mirrors, release_nodes, note, forget, mut orphans, mut adopt, .. } = self;
        let is_owned_by_nobody = |instance: &Instance| nodes == LeftNodes::Keep && !has_lasting_node(instance, objects);
        orphans.retain(&is_owned_by_nobody);
        adopt.retain(|found| is_owned_by_nobody(&found.instance));
        Self { abandoned, release_mirrors, release_nodes, note, forget, orphans, adopt, ..Self::default() }
    }
}

/// Compares everything with everything.
pub(crate) fn compare(input: &SweepInput<'_>) -> Findings {
    let mut out = Findings::default();
    let mut sightings = Sightings::of(input.sightings, input.now);
    for claim in input.claims.iter().map(|stored| &stored.value) {
        // The cluster's objects are all that is known of a machine until its claim is restored: a claim that ends without it
        // would release the NodeClaim and leak the machine.
        let unjoined = adopt::node_of_mirror(claim, input)
            .filter(|_| !sightings.is_confirmed(format!("claim/{} with a Node that is not found", claim.key.name), UNFOUND_NODE_PATIENCE))
            .map(|node| (claim.key.name.clone(), node));
        let behind = Safeguard::BehindAwaited.stops(adopt::is_older_than_machine(claim, input) || unjoined.is_some());
        out.join.extend(unjoined);
        if claim.deletion.is_none() && claim.is_live() && !behind {
            let ending = deletion_of(claim, input, &mut sightings);
            out.end.extend(ending.map(|ending| with_stated_deadline(ending, claim, &input.index)));
            report_missing_pool(claim, input, &mut sightings, &mut out);
        }
        find_lost_doorbells(claim, input, &mut out);
        if behind {
            continue;
        }
        match earlier_deadline(claim, input) {
            // Its mirror is written with the new deadline.
            Some(ending) => out.end.push(ending),
            None => check_mirror(claim, input, &mut out),
        }
    }
    // Whether the pool of an unreadable claim has reappeared is unknown.
    input.unreadable.iter().for_each(|name| sightings.retain(missing_pool(name)));
    if !input.uninstalling {
        standalone::find_unclaimed(input, &mut sightings, &mut out);
        reports::find_unlaunched(input, &mut sightings, &mut out);
        reports::find_left(input, &mut sightings, &mut out);
    }
    let class_goes = input.objects.node_classes.iter().any(|class| awaits_release(&class.metadata, input.claims));
    let class_is_new = !input.uninstalling && input.objects.node_classes.iter().any(|class| needs_refresh(class, input.classes));
    out.refresh |= class_goes || class_is_new || reservations::is_refresh_due(input);
    reservations::find_left(input, &mut out);
    health::checks(input, &mut sightings, &mut out);
    health::repair(input, &mut sightings, &mut out);
    health::consistency(input, &mut out);
    health::hydration(input, &mut out);
    orphans::find_orphans(input, &mut sightings, &mut out);
    orphans::find_releasable(input, &mut sightings, &mut out);
    adopt::abandoned(input, &mut sightings, &mut out);
    report_unreadable(input, &mut sightings, &mut out);
    for name in input.templates.iter().filter(|name| !input.in_use.names.contains(*name)) {
        // A template that an unknown call may need is kept.
        if sightings.is_confirmed(templates::unused(name), TEMPLATE_IDLE_FOR) && input.in_use.is_whole {
            out.delete_templates.push(name.clone());
        }
    }
    (out.note, out.forget) = sightings.into_changes();
    out
}

/// A class that `refresh` has not resolved: its doorbell was lost, or its run or one of its calls failed, and no machine is launched with
/// it until then.
fn needs_refresh(class: &Ec2NodeClass, records: &[NodeClassRecord]) -> bool {
    let name = NodeClassRecord::name_of(class);
    // The record of an earlier class of the same name is marked as deleted, and one whose spec has changed since is outdated.
    let generation = class.metadata.generation;
    let is_current = |record: &NodeClassRecord| generation.is_none() || record.class.metadata.generation >= generation;
    let unanswered = [conditions::LOOKUP_FAILED, conditions::LOOKUP_REFUSED];
    let is_whole =
        |record: &NodeClassRecord| !record.class.status.conditions.iter().any(|condition| unanswered.contains(&condition.reason.as_str()));
    let looked_at = |record: &NodeClassRecord| {
        NodeClassRecord::name_of(&record.class) == name && !record.class.metadata.is_deleting() && is_current(record) && is_whole(record)
    };
    !class.metadata.is_deleting() && !records.iter().any(looked_at)
}

/// A deleted class that only our finalizer holds: `refresh` releases it.
fn awaits_release(class: &whittle_api::ObjectMeta, claims: &[Stored<Claim>]) -> bool {
    let held = class.is_deleting() && class.finalizers.iter().any(|finalizer| finalizer == labels::NODE_CLASS_FINALIZER);
    held && !claims.iter().any(|claim| claim.value.is_live() && claim.value.spec.node_class.name == class.name)
}

/// The sighting of a claim whose pool is missing.
fn missing_pool(claim: &str) -> String {
    format!("claim/{claim} without NodePool")
}

/// An ending with the deadline that the NodeClaim states before it is deleted: it is kept, be it later than that of its
/// `terminationGracePeriod`.
pub(crate) fn with_stated_deadline(ending: Ending, claim: &Claim, index: &Index<'_>) -> Ending {
    let MirrorState::There(meta) = unreadable::mirror_of(claim, index) else { return ending };
    Ending { stated: ending.stated.or_else(|| stated_deadline(meta)), ..ending }
}

/// The repeated deletion of a claim whose deadline a user has brought forward, on its NodeClaim, since its deletion began.
fn earlier_deadline(claim: &Claim, input: &SweepInput<'_>) -> Option<Ending> {
    let waits = matches!(claim.phase, Phase::Launching { .. } | Phase::Draining { .. });
    let deletion = claim.deletion.as_ref().filter(|_| waits)?;
    let MirrorState::There(meta) = unreadable::mirror_of(claim, &input.index) else { return None };
    let stated = stated_deadline(meta).filter(|_| meta.is_deleting())?;
    // The annotation that we write has whole seconds.
    let is_earlier = deletion.deadline.is_none_or(|known| stated.as_second() < known.as_second());
    let brought_forward = || {
        let message = format!("its deadline was brought forward to {stated}");
        Ending { stated: Some(stated), ..Ending::new(claim, DeletionReason::Requested, message) }
    };
    is_earlier.then(brought_forward)
}

/// The deletion of a claim that a user requests by deleting its NodeClaim or its Node.
pub(crate) fn requested(claim: &Claim, index: &Index<'_>) -> Option<Ending> {
    let object = match unreadable::mirror_of(claim, index) {
        MirrorState::There(meta) => Some(meta),
        MirrorState::Unknown | MirrorState::Missing => None,
    };
    let nodes = index.nodes_of(claim).iter().map(|node| &node.metadata);
    let nodes = nodes.chain(unreadable::nodes_of(claim, index.objects).map(|odd| &odd.metadata));
    let Requested { message, at, deadline } = whittle_claims::requested(claim, object, nodes)?;
    Some(Ending { requested_at: at, stated: deadline, ..Ending::new(claim, DeletionReason::Requested, message) })
}

/// Why a live claim has to be deleted now, if so.
fn deletion_of(claim: &Claim, input: &SweepInput<'_>, sightings: &mut Sightings<'_>) -> Option<Ending> {
    let end = |reason, message: &str| Some(Ending::new(claim, reason, message));
    let name = claim.key.name.as_str();
    if let Some(ending) = requested(claim, &input.index) {
        return Some(ending);
    }
    // One sighting is enough: it is then requested from the API server by name.
    if matches!(unreadable::mirror_of(claim, &input.index), MirrorState::Missing)
        && let Some(uid) = claim.spec.standalone_uid.clone()
    {
        let gone = Missing { kind: ObjectKind::NodeClaim, name: name.to_owned(), uid, provider_id: String::new() };
        let message = "the standalone NodeClaim does not exist any more";
        return Some(Ending { gone: Some(gone), ..Ending::new(claim, DeletionReason::Requested, message) });
    }
    let nodes = input.index.nodes_of(claim);
    if has_rejoined(claim, nodes) && sightings.is_confirmed(format!("claim/{name} with a new Node"), SIGHTING_INTERVAL) {
        return end(DeletionReason::Requested, "the Node was deleted, and its kubelet has made it anew");
    }
    match unreadable::pool_of(claim, input.objects) {
        Pool::There => {}
        Pool::Deleting => return end(DeletionReason::NodePoolDeleted, "its NodePool is being deleted"),
        Pool::Missing(gone) => {
            if sightings.is_confirmed(missing_pool(name), unreadable::patience(input.objects)) {
                let ending = Ending::new(claim, DeletionReason::NodePoolDeleted, "its NodePool does not exist any more");
                return Some(Ending { gone: Some(gone), ..ending });
            }
        }
    }
    if is_instance_gone(claim, nodes, input)
        && Safeguard::LossSeenTwice.permits(sightings.is_confirmed(format!("claim/{name} without instance"), SIGHTING_INTERVAL))
    {
        // A Node that the list lacks may exist and be ready.
        let gone = own_node(claim).filter(|_| nodes.is_empty());
        let message = match claim.phase {
            Phase::Launched { .. } => "its instance has ended before its Node joined",
            _ => "its instance has ended and its Node is not ready",
        };
        return Some(Ending { gone, ..Ending::new(claim, DeletionReason::InstanceGone, message) });
    }
    if let Some(gone) = own_node(claim).filter(|_| unreadable::lacks_node(claim, nodes, input.objects))
        && sightings.is_confirmed(format!("claim/{name} without Node"), unreadable::node_patience(input.objects))
    {
        return Some(Ending { gone: Some(gone), ..Ending::new(claim, DeletionReason::Requested, "the Node was deleted") });
    }
    if let Some(at) = reservations::ending_block(claim, input) {
        return end(DeletionReason::Requested, &format!("its capacity block ends at {at}"));
    }
    let expired = claim.expires_at().is_some_and(|at| at <= input.now) && !is_shifted(claim, input);
    if expired { end(DeletionReason::Expired, "its expireAfter has passed") } else { None }
}

/// The Node of a claim, as an object whose absence has to be confirmed by name.
fn own_node(claim: &Claim) -> Option<Missing> {
    let (name, machine) = (claim.node_name()?, claim.machine()?);
    let provider_id = machine.provider_id.as_str().to_owned();
    Some(Missing { kind: ObjectKind::Node, name: name.to_owned(), uid: String::new(), provider_id })
}

/// A claim's pool by name and kind and, if both are known, by uid: a later pool of the same name is another one.
pub(crate) fn owner_of<'a>(claim: &Claim, objects: &'a ClusterObjects) -> Option<&'a NodePool> {
    let owner = &claim.spec.owner;
    let from_provisioner = owner.kind == "Provisioner";
    objects.node_pools.iter().find(|pool| {
        pool.metadata.name == owner.name
            && pool.is_converted_provisioner() == from_provisioner
            && (owner.uid.is_empty() || pool.metadata.uid.is_empty() || pool.metadata.uid == owner.uid)
    })
}

/// Counts a claim whose pool is missing, and publishes an Event before anything is deleted for it.
fn report_missing_pool(claim: &Claim, input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    let Pool::Missing(pool) = unreadable::pool_of(claim, input.objects) else { return };
    *out.missing_pool.entry(pool.name.clone()).or_default() += 1;
    if sightings.is_due(format!("nodepool/{} missing", pool.name), REPEAT_EVENT_AFTER) {
        let (name, patience) = (&pool.name, unreadable::patience(input.objects));
        let message = format!(
            "NodePool {name} is missing: nodes whose NodeClaims do not go with it are drained after {patience:#} if the API server \
             confirms that it is deleted; a pool that is created again under this name does not keep them"
        );
        out.events.push(ClusterEvent::warning(Involved::claim(claim), "NodePoolNotFound", message));
    }
}

/// Publishes Events on objects that cannot be read.
fn report_unreadable(input: &SweepInput<'_>, sightings: &mut Sightings<'_>, out: &mut Findings) {
    for odd in &input.objects.unreadable {
        if sightings.is_due(format!("{}/{} cannot be read", odd.kind, odd.metadata.key()), REPEAT_EVENT_AFTER) {
            out.events.push(ClusterEvent::unreadable(odd));
        }
    }
}

/// Whether EC2 does not list the instance of a claim, and its Node is not ready. An instance without a Node may have ended before its
/// launch was stored, so that no notice matched it: its claim ends only if EC2 confirms that by id, and is otherwise left to its timeout.
fn is_instance_gone(claim: &Claim, nodes: &[&Node], input: &SweepInput<'_>) -> bool {
    let Some(machine) = claim.machine() else { return false };
    let shown = input.index.instance(&machine.instance_id);
    // Of a machine that has just joined neither that EC2 does not list it yet nor a kubelet that is not ready for a moment proves anything.
    let is_due = match &claim.phase {
        Phase::Registered { .. } | Phase::Initialized { .. } if shown.is_some() => true,
        Phase::Launched { .. } | Phase::Registered { .. } | Phase::Initialized { .. } => {
            input.now.duration_since(machine.launched_at) >= LISTED_AFTER
        }
        _ => false,
    };
    if !is_due {
        return false;
    }
    let listed = shown.is_some_and(Instance::is_alive);
    // The readiness of an unreadable Node is unknown.
    let speaks = matches!(nodes, [node] if input.speaks(node)) || unreadable::nodes_of(claim, input.objects).next().is_some();
    !listed && !is_shifted(claim, input) && !Safeguard::SilenceNeeded.stops(speaks)
}

/// Whether the Node of a registered claim is another object than the one that registered: that was deleted and its finalizer taken off
/// before anybody saw it, and the kubelet made it anew when it was restarted. It has neither labels nor taints of its claim, takes no pods,
/// and is never registered again.
fn has_rejoined(claim: &Claim, nodes: &[&Node]) -> bool {
    let [node] = nodes else { return false };
    let registered = conditions::find(&claim.conditions, conditions::REGISTERED).filter(|known| known.status == ConditionStatus::True);
    let since = registered.and_then(|registered| registered.last_transition_time);
    let is_newer = since.zip(node.metadata.creation_timestamp).is_some_and(|(since, made)| since < made);
    // A kubelet sets it only where it makes the Node.
    is_newer && node.spec.taints.iter().any(|taint| taint.key == labels::UNREGISTERED_TAINT)
}

/// Whether the claim's machine is in a zone under a zonal shift.
fn is_shifted(claim: &Claim, input: &SweepInput<'_>) -> bool {
    claim.machine().is_some_and(|machine| input.shifted.have(machine))
}

/// Whether a step of a termination has been due for so long that its doorbell was lost.
pub(crate) fn is_termination_overdue(claim: &Claim, now: Timestamp) -> bool {
    let due_at = claim.deletion.as_ref().map(|deletion| claim.look_again_at.unwrap_or(deletion.at));
    claim.is_live() && due_at.is_some_and(|at| now.duration_since(at) >= DOORBELL_LOST_AFTER)
}

/// Finds doorbells that were lost and have to be sent again.
fn find_lost_doorbells(claim: &Claim, input: &SweepInput<'_>, out: &mut Findings) {
    let overdue = |since: Timestamp| input.now.duration_since(claim.look_again_at.unwrap_or(since)) >= DOORBELL_LOST_AFTER;
    let name = claim.key.name.clone();
    match (&claim.phase, &claim.deletion) {
        (Phase::Failed { .. } | Phase::Gone { .. }, _) => {}
        (_, Some(_)) if is_termination_overdue(claim, input.now) => out.terminate.push(name),
        (Phase::Planned, None)
            if !standalone::may_launch(claim, &input.objects.node_claims) || adopt::is_older_than_machine(claim, input) => {}
        (Phase::Planned, None) if overdue(claim.created_at) => out.launch.push(name),
        (Phase::Launching { since, .. }, None) if overdue(*since) => out.launch.push(name),
        _ => {}
    }
}

/// Finds mirrors that differ from their claims; that of an ended claim has to be released.
fn check_mirror(claim: &Claim, input: &SweepInput<'_>, out: &mut Findings) {
    let name = claim.key.name.clone();
    match input.index.mirror_of(claim) {
        // A user gave a standalone NodeClaim the name of a claim that has ended.
        Some(node_claim) if !claim.is_live() && claim.spec.standalone_uid.is_none() && standalone::awaits_claim(node_claim) => {}
        Some(_) if !claim.is_live() => out.terminate.push(name),
        None if claim.spec.standalone_uid.is_some() => {}
        None if matches!(unreadable::mirror_of(claim, &input.index), MirrorState::There(_) | MirrorState::Unknown) => {}
        None if claim.is_live() && claim.deletion.is_none() => out.mirrors.push(name),
        Some(node_claim) if awaits_launch(claim, node_claim, input.now) => {}
        Some(node_claim) if claim.is_live() && differs(node_claim, &mirror(claim)) => out.mirrors.push(name),
        _ => {}
    }
}

/// Whether a mirror has no conditions yet because its claim was just planned: the launch writes them.
fn awaits_launch(claim: &Claim, node_claim: &NodeClaim, now: Timestamp) -> bool {
    matches!(claim.phase, Phase::Planned | Phase::Launching { .. })
        && node_claim.status == NodeClaimStatus::default()
        && now.duration_since(claim.created_at) < DOORBELL_LOST_AFTER
}

/// Compares only what we write; others may add labels and annotations, and a server that merges conditions orders them.
fn differs(node_claim: &NodeClaim, wanted: &NodeClaim) -> bool {
    let has =
        |there: &BTreeMap<String, String>, ours: &BTreeMap<String, String>| ours.iter().all(|(key, value)| there.get(key) == Some(value));
    let mut status = wanted.status.clone();
    conditions::observe(&mut status.conditions, node_claim.metadata.generation);
    let ordered = |status: &NodeClaimStatus| {
        let mut ordered = status.clone();
        ordered.conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
        ordered
    };
    (node_claim.status != status && ordered(&node_claim.status) != ordered(&status))
        || !has(&node_claim.metadata.labels, &wanted.metadata.labels)
        || !has(&node_claim.metadata.annotations, &wanted.metadata.annotations)
}

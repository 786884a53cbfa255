//! Uninstalls Whittle from a cluster: machines are drained or released, objects released, created resources deleted.
//!
//! Requested once, stored in a record, and continued at every tick until nothing is remaining. While the record exists decisions see
//! no NodePools, so that nothing new is launched. Machines that go on running are let go one by one, each when its Node has registered,
//! and none before the decisions that began earlier have ended; `consolidate` disrupts none of them any more.

use crate::Rights;
use crate::collect::CLAIM_LEASE;
use crate::execute::TIME_PER_STEP;
use crate::index::Index;
use crate::{adopt, hand_over};
use std::collections::BTreeMap;
use whittle_api::conditions::{INSTANCE_TERMINATING, is_true};
use whittle_api::k8s::{Kind as _, Node, Taint};
use whittle_api::karpenter::{Ec2NodeClass, NodeClaim};
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_claims::{
    Claim, DecisionKind, DeletionReason, Doorbell, Event, LeftNodes, Machine, Phase, Revision, ShiftedZones, Stored, Uninstall,
    UninstallRequest, stated_deadline_of, step,
};
use whittle_ec2::instance::Instance;
use whittle_ports::{
    ClaimStore, Clock, CloudErrorKind, ClusterError, ClusterReader, Erase, HandleError, InstanceTags, Instances, LaunchTemplateCleanup,
    Leases, Listing, Mirrors, NodePatch, Nodes, Queues, RecordReader, Records, Report, Safeguard, Scope, Settings, StoreError,
    release_lease, save, unless_outdated,
};
use whittle_snapshot::shifted_zones;
use whittle_units::{ClaimName, ClusterName, InstanceId, ProviderId, SignedDuration, Timestamp};

/// A launch without an instance after this time launches nothing more.
const LAUNCH_SETTLED_AFTER: SignedDuration = SignedDuration::from_mins(15);
/// A run that began to decide for the cluster before the uninstallation was stored has ended by then: no lease lasts longer.
const DECISIONS_END_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// Records of a cluster, by kind, that are deleted last.
const RECORD_KINDS: &[&str] = &[
    "sighting",
    "function-health",
    "zone-shifts",
    "measured-memory",
    "pool-health",
    "verdict",
    "disruption",
    "register-poll",
    "register-turn",
    "launch",
    "launch-again",
    "subnet-use",
    "unplaced",
    "planning-round",
    "burst",
    "shadow-plan",
    "expected",
    "class-missed",
    "class-dry-run",
    "unused-profiles",
    "block-ends",
    "catalog-look",
    "nodeclass",
    "cluster",
];

/// What remains in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remaining {
    pub(crate) claims: Vec<Stored<Claim>>,
    /// Machines that carry our tags and have not been released.
    pub(crate) machines: Vec<Instance>,
    pub(crate) templates: Vec<String>,
    /// Classes that our finalizer holds.
    pub(crate) classes: Vec<String>,
    /// Claims that cannot be read: their machines cannot be distinguished from others.
    pub(crate) unreadable: Vec<String>,
    /// NodeClaims that are marked as Whittle's and that have no claim any more, and what became of their machines.
    pub(crate) objects: Vec<(String, OfMachine)>,
    /// Machines whose claims ended because they were handed over, with the names of their NodeClaims, which are still marked.
    pub(crate) half_handed_over: Vec<(String, InstanceId)>,
    /// Nodes that are being deleted and that our finalizer holds: their sightings are kept until they are gone.
    pub(crate) nodes: Vec<String>,
}

/// What became of the machine of a NodeClaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfMachine {
    /// Nothing yet, or it is not known to EC2.
    Unreleased,
    /// It runs on unmanaged.
    Released,
    /// It is Karpenter's.
    HandedOver,
}

impl Remaining {
    /// Whether nothing runs any more that we would have to terminate or release.
    fn is_quiet(&self) -> bool {
        let none_claimed = self.claims.is_empty() && self.unreadable.is_empty() && self.half_handed_over.is_empty();
        none_claimed && self.machines.is_empty() && self.objects.is_empty()
    }
    fn is_nothing(&self) -> bool {
        self.is_quiet() && self.templates.is_empty() && self.classes.is_empty() && self.nodes.is_empty()
    }
    /// A summary for the decision log.
    fn summary(&self) -> String {
        let Remaining { claims, machines, templates, classes, unreadable, objects, half_handed_over, nodes } = self;
        format!(
            "still there: {} claims, {} machines, {} NodeClaims without a claim, {} Nodes being deleted, {} launch templates, {} node classes, \
             {} unreadable claims",
            claims.len(),
            machines.len(),
            objects.len() + half_handed_over.len(),
            nodes.len(),
            templates.len(),
            classes.len(),
            unreadable.len()
        )
    }
}

/// Whether an earlier run began to release the instance, by its tag.
pub(crate) fn is_tagged_released(instance: &Instance) -> bool {
    instance.tags.contains_key(labels::TAG_LET_GO)
}

/// Whether an earlier run released the instance. Its tag is set before its Nodes are released: one that our finalizer still holds was not,
/// because that run ended there or the Node was being deleted. Its claim is drained or released then; without one it is a machine of ours.
pub(crate) fn is_released(instance: &Instance, index: &Index<'_>) -> bool {
    is_tagged_released(instance) && !holds_node(&instance.provider_id(), index)
}

/// Whether our finalizer holds a Node of a machine.
fn holds_node(provider_id: &ProviderId, index: &Index<'_>) -> bool {
    let id = provider_id.as_str();
    let hidden = index.objects.unreadable_of(Node::KIND).filter(|odd| odd.provider_id.as_str() == id).map(|odd| &odd.metadata);
    index.nodes_at(id).iter().map(|node| &node.metadata).chain(hidden).any(adopt::has_finalizer)
}

/// Begins an uninstallation, or only reports what it would do.
pub async fn uninstall<P: Rights>(ports: P, settings: &Settings, request: &UninstallRequest) -> Result<Report, HandleError> {
    let cluster = &request.cluster;
    let now = ports.clock().now();
    if request.dry_run || settings.is_shadow() {
        let (remaining, _) = read_remaining(ports, cluster, request.nodes).await?;
        let mut report = Report::default();
        for line in plan(&remaining, request.nodes) {
            report.decide(now, DecisionKind::Kept, format!("cluster/{cluster}"), line);
        }
        return Ok(report);
    }
    let known = ports.store().read::<Uninstall>(cluster, Uninstall::NAME).await?;
    let wanted = Uninstall { asked_at: known.as_ref().map_or(now, |known| known.value.asked_at), nodes: request.nodes };
    if known.as_ref().is_none_or(|known| known.value != wanted) {
        ports.store().write(cluster, &wanted, known.map_or(Revision::ABSENT, |known| known.revision)).await?;
    }
    continue_uninstall(ports, cluster, &wanted, &shifted_zones(ports, settings, cluster).await?).await
}

/// One line for each step of an uninstallation.
fn plan(remaining: &Remaining, nodes: LeftNodes) -> Vec<String> {
    let mut lines = Vec::new();
    for claim in &remaining.claims {
        let (name, node) = (&claim.value.key.name, claim.value.node_name().unwrap_or("no node yet"));
        lines.push(match nodes {
            LeftNodes::Drain => format!("would drain and end NodeClaim {name} ({node})"),
            LeftNodes::Keep if claim.value.deletion.is_some() => format!("would end NodeClaim {name} ({node}), which is being deleted"),
            LeftNodes::Keep if matches!(claim.value.phase, Phase::Planned) => format!("would end NodeClaim {name}, which has no instance"),
            LeftNodes::Keep if claim.value.node_name().is_none() => format!("would release NodeClaim {name} once its node has joined"),
            LeftNodes::Keep => format!("would release NodeClaim {name} ({node}), its instance keeps running"),
            LeftNodes::HandOver => format!("would leave NodeClaim {name} ({node}) to Karpenter, its instance keeps running"),
        });
    }
    let what = if nodes == LeftNodes::HandOver { "leave to Karpenter" } else { "release" };
    lines.extend(remaining.objects.iter().map(|(name, _)| format!("would {what} NodeClaim {name}, which has no claim")));
    lines.extend(remaining.templates.iter().map(|name| format!("would delete launch template {name}")));
    lines
        .extend(remaining.classes.iter().map(|name| format!("would delete the resources of EC2NodeClass {name} and remove its finalizer")));
    lines.extend(remaining.unreadable.iter().map(|name| format!("cannot read claim {name}: uninstall with the release that wrote it")));
    if lines.is_empty() {
        lines.push("nothing is left".to_owned());
    }
    lines
}

async fn read_remaining<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    nodes_left: LeftNodes,
) -> Result<(Remaining, ClusterObjects), HandleError> {
    let machines = ports.cloud().of_cluster(cluster).await?;
    let templates = ports.cloud().launch_templates(cluster).await?;
    let Listing { mut claims, unreadable } = ports.store().listing(cluster).await?;
    let objects = ports.cluster().read(cluster, Scope::Nodes, None).await?;
    let half_handed_over = hand_over::unfinished(&claims, &objects);
    claims.retain(|claim| claim.value.is_live());
    let index = Index::of(&claims, &unreadable, &objects, &[]);
    let ours = |instance: &Instance| {
        let tagged = [labels::NODE_POOL, labels::EC2_NODE_CLASS].iter().all(|key| instance.tags.contains_key(*key));
        tagged && adopt::is_ours(instance, &index) && instance.is_alive() && !is_released(instance, &index)
    };
    let is_named_by_other = |instance: &Instance| {
        let id = instance.provider_id();
        index.node_claims_at(id.as_str()).iter().any(|claim| !adopt::is_marked(claim))
    };
    let claimed = |instance: &Instance| index.is_claimed(&instance.id);
    let of_machine =
        |node_claim: &NodeClaim| match machines.iter().find(|instance| instance.provider_id().as_str() == node_claim.status.provider_id) {
            Some(instance) if hand_over::is_handed_over(instance) => OfMachine::HandedOver,
            Some(instance) if is_released(instance, &index) => OfMachine::Released,
            _ => OfMachine::Unreleased,
        };
    let has_claim = |name: &str| index.has_claim(name) || half_handed_over.iter().any(|(known, _)| known == name);
    let unclaimed = objects.node_claims.iter().filter(|node_claim| adopt::is_marked(node_claim) && !has_claim(&node_claim.metadata.name));
    let unclaimed = unclaimed.map(|node_claim| (node_claim.metadata.name.clone(), of_machine(node_claim))).collect();
    // Machines of another controller's NodeClaims are that controller's.
    let machines = machines.into_iter().filter(|instance| ours(instance) && (claimed(instance) || !is_named_by_other(instance))).collect();
    // Karpenter has finalizers of the same names, and templates with the same tag: what it gets or uses is left.
    let is_ours = nodes_left != LeftNodes::HandOver && objects.running_karpenter(ports.clock().now()).is_none();
    let templates = if objects.running_karpenter(ports.clock().now()).is_none() { templates } else { Vec::new() };
    let held = |class: &&Ec2NodeClass| is_ours && class.metadata.finalizers.iter().any(|held| held == labels::NODE_CLASS_FINALIZER);
    let classes = objects.node_classes.iter().filter(held).map(|class| class.metadata.name.clone()).collect();
    let held = |meta: &&ObjectMeta| is_ours && meta.is_deleting() && adopt::has_finalizer(meta);
    let hidden = objects.unreadable_of(Node::KIND).map(|odd| &odd.metadata);
    let nodes = objects.nodes.iter().map(|node| &node.metadata).chain(hidden).filter(held).map(|meta| meta.name.clone()).collect();
    Ok((Remaining { claims, machines, templates, classes, unreadable, objects: unclaimed, half_handed_over, nodes }, objects))
}

/// Does the next steps.
pub(crate) async fn continue_uninstall<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    uninstallation: &Uninstall,
    shifted: &ShiftedZones,
) -> Result<Report, HandleError> {
    let mut report = Report::default();
    let now = ports.clock().now();
    let awaited = uninstallation.nodes.keep_running() && is_being_decided(ports, cluster, uninstallation).await?;
    let (remaining, objects) = read_remaining(ports, cluster, uninstallation.nodes).await?;
    if awaited {
        report.count("decisions_awaited");
        report.decide(now, DecisionKind::Kept, format!("cluster/{cluster}"), remaining.summary());
        return Ok(report);
    }
    let leaving = Leaving { ports, cluster, nodes: uninstallation.nodes, remaining: &remaining, objects: &objects, shifted };
    let of_claims = leaving.end_claims(&mut report).await;
    let of_others = leaving.release_unclaimed().await;
    if remaining.is_quiet() {
        for template in &remaining.templates {
            ports.cloud().delete_launch_template(template).await?;
            report.count("templates_deleted");
        }
        if !remaining.classes.is_empty() {
            ports.queues().send_now(Doorbell::Refresh { cluster: cluster.clone() }).await?;
        }
    }
    let line = if remaining.is_nothing() {
        ports.store().erase(cluster, RECORD_KINDS).await?;
        "nothing is left: remove the cluster from the stack's parameter Clusters, or delete the stack".to_owned()
    } else {
        remaining.summary()
    };
    report.decide(now, DecisionKind::Kept, format!("cluster/{cluster}"), line);
    of_claims.and(of_others).map(|()| report)
}

/// Whether a run that does not know of the uninstallation may still plan machines, close Nodes or delete claims: one that began before the
/// record was stored, and has its lease. Whoever gets the lease later sees the record.
async fn is_being_decided<P: Rights>(ports: P, cluster: &ClusterName, uninstallation: &Uninstall) -> Result<bool, HandleError> {
    let (store, now) = (ports.store(), ports.clock().now());
    if now.duration_since(uninstallation.asked_at) >= DECISIONS_END_AFTER {
        return Ok(false);
    }
    match store.acquire(cluster, &ports.clock().unique(), now, CLAIM_LEASE).await {
        Ok(lease) => {
            release_lease(store, &lease).await;
            Ok(false)
        }
        Err(StoreError::Held { .. }) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// One run of an uninstallation.
struct Leaving<'a, P> {
    ports: P,
    cluster: &'a ClusterName,
    nodes: LeftNodes,
    remaining: &'a Remaining,
    objects: &'a ClusterObjects,
    shifted: &'a ShiftedZones,
}

impl<P: Rights> Leaving<'_, P> {
    /// Drains or releases what has a claim. A failure does not block the others; the first one is returned.
    async fn end_claims(&self, report: &mut Report) -> Result<(), HandleError> {
        let mut outcome = Ok(());
        for claim in self.remaining.claims.iter().take_while(|_| self.ports.clock().has_time_for(TIME_PER_STEP)) {
            // After a lost race the next tick retries.
            if let Err(error) = unless_outdated(self.end_claim(claim, report).await) {
                tracing::warn!(%error, claim = %claim.value.key, "left for the next tick");
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }

    async fn end_claim(&self, claim: &Stored<Claim>, report: &mut Report) -> Result<(), HandleError> {
        let (ports, cluster, now) = (self.ports, self.cluster, self.ports.clock().now());
        match &claim.value.phase {
            _ if !self.nodes.keep_running() => delete_claim(ports, claim, self.objects, report).await,
            // A launch in progress is awaited: its machine is released when it is known. Nothing else sends its doorbell any more.
            Phase::Launching { .. } if Safeguard::LeavingAwaitsLaunches.stops(may_launch(&claim.value, now)) => {
                let claims = vec![claim.value.key.name.clone()];
                send(ports, Doorbell::Launch { cluster: cluster.clone(), claims }).await
            }
            Phase::Terminating { .. } => send(ports, terminate_doorbell(cluster, &claim.value.key.name)).await,
            // A Node that is being deleted would vanish with its finalizer, while its machine runs on: it is drained.
            phase if phase.machine().is_none() || is_node_deleting(&claim.value, self.objects) => {
                delete_claim(ports, claim, self.objects, report).await
            }
            // `terminate` may be about to delete its Node, or the machine never joined and nobody would own it.
            _ if claim.value.deletion.is_some() => delete_claim(ports, claim, self.objects, report).await,
            // Its Node would stay closed by the taint that `register` removes. `register` looks at every tick, and gives up a machine
            // that does not join in time.
            Phase::Launched { .. } if self.nodes == LeftNodes::Keep => Ok(()),
            _ if self.nodes == LeftNodes::HandOver => hand_over::hand_over(ports, claim, report).await,
            _ => release_machine(ports, claim, (self.objects, self.shifted), report).await,
        }
    }

    /// Releases NodeClaims and machines without a claim.
    async fn release_unclaimed(&self) -> Result<(), HandleError> {
        let (ports, cluster) = (self.ports, self.cluster);
        let mut outcome = Ok(());
        for (name, id) in self.remaining.half_handed_over.iter().take_while(|_| ports.clock().has_time_for(TIME_PER_STEP)) {
            outcome = outcome.and(hand_over::finish(ports, cluster, name, id).await);
        }
        if self.nodes.keep_running() && self.remaining.claims.is_empty() && self.remaining.unreadable.is_empty() {
            // Machines without a claim belong to an earlier table.
            for instance in self.remaining.machines.iter().take_while(|_| ports.clock().has_time_for(TIME_PER_STEP)) {
                outcome = outcome.and(match self.nodes {
                    LeftNodes::HandOver => hand_over::unmark(ports, &instance.id).await,
                    // The sweep restores its claim, with which it can register or be drained, or collects it.
                    LeftNodes::Keep if !has_lasting_node(instance, self.objects) => Ok(()),
                    LeftNodes::Keep | LeftNodes::Drain => self.release_unclaimed_machine(instance).await,
                });
            }
        }
        for (name, machine) in self.remaining.objects.iter().take_while(|_| ports.clock().has_time_for(TIME_PER_STEP)) {
            outcome = outcome.and(match (machine, self.nodes) {
                (OfMachine::HandedOver, _) | (OfMachine::Released, LeftNodes::HandOver) => {
                    ports.cluster().hand_over_mirror(cluster, name).await.map_err(HandleError::from)
                }
                (_, LeftNodes::Drain) => Ok(()),
                (OfMachine::Released, LeftNodes::Keep) => release(ports, cluster, name, "").await,
                (OfMachine::Unreleased, _) => send(ports, terminate_doorbell(cluster, &name.as_str().into())).await,
            });
        }
        outcome
    }

    /// Releases a machine that has no claim. Its tag comes last: until then it counts as ours, whatever lists show.
    async fn release_unclaimed_machine(&self, instance: &Instance) -> Result<(), HandleError> {
        let nodes = nodes_of(&instance.provider_id(), self.objects);
        if release_nodes(self.ports, self.cluster, &nodes).await? { tag_released(self.ports, &instance.id).await } else { Ok(()) }
    }
}

/// Whether a launch in progress may still produce a machine.
fn may_launch(claim: &Claim, now: Timestamp) -> bool {
    claim.deletion.is_none() && now.duration_since(claim.created_at) < LAUNCH_SETTLED_AFTER
}

/// Whether a machine has a Node that goes on to serve: one that never registered stays closed, one that is being deleted would vanish
/// with its finalizer, and nobody would end their machines.
pub(crate) fn has_lasting_node(instance: &Instance, objects: &ClusterObjects) -> bool {
    let id = instance.provider_id();
    let mut nodes = objects.nodes.iter().filter(|node| node.spec.provider_id == id.as_str());
    nodes.any(|node| {
        let leaving = Safeguard::LeavingNodesDrained.stops(node.metadata.is_deleting());
        node.metadata.label(labels::REGISTERED) == Some("true") && !leaving
    })
}

/// Whether the Node of a claim is being deleted.
fn is_node_deleting(claim: &Claim, objects: &ClusterObjects) -> bool {
    let id = claim.machine().map_or("", |machine| machine.provider_id.as_str());
    let hidden = objects.unreadable_of(Node::KIND).map(|odd| (odd.provider_id.as_str(), &odd.metadata));
    let nodes = objects.nodes.iter().map(|node| (node.spec.provider_id.as_str(), &node.metadata)).chain(hidden);
    let leaving = nodes.filter(|(of, _)| !id.is_empty() && *of == id).any(|(_, meta)| meta.is_deleting());
    Safeguard::LeavingNodesDrained.stops(leaving)
}

/// Requests the deletion of a claim, as deleting its object would, which may state a deadline.
async fn delete_claim<P: Rights>(
    ports: P,
    claim: &Stored<Claim>,
    objects: &ClusterObjects,
    report: &mut Report,
) -> Result<(), HandleError> {
    let key = claim.value.key.clone();
    if claim.value.deletion.is_none() {
        let now = ports.clock().now();
        let deletion = claim.value.deletion_for(DeletionReason::Requested, "Whittle is being uninstalled", now);
        let deletion = deletion.with_stated_deadline(stated_deadline_of(&claim.value, objects));
        save(ports.store(), claim, step(&claim.value, &Event::DeletionRequested(deletion), now)?).await?;
        report.count("ended");
    }
    send(ports, terminate_doorbell(&key.cluster, &key.name)).await
}

fn terminate_doorbell(cluster: &ClusterName, claim: &ClaimName) -> Doorbell {
    Doorbell::Terminate { cluster: cluster.clone(), claim: claim.clone() }
}

async fn send<P: Rights>(ports: P, doorbell: Doorbell) -> Result<(), HandleError> {
    Ok(ports.queues().send_now(doorbell).await?)
}

/// Tags a machine as released, so that no sweep takes it for an orphan.
async fn tag_released<P: Rights>(ports: P, id: &InstanceId) -> Result<(), HandleError> {
    if Safeguard::LetGoMarked.stops(true) {
        ports.cloud().tag(id, &[(labels::TAG_LET_GO.to_owned(), ports.clock().now().to_string())]).await?;
    }
    Ok(())
}

/// Ensures that the Nodes of a machine stay and take pods: a command of `consolidate` that was rolled back may have closed them, and nobody
/// opens the Node of an ended claim. False if one of them is being deleted, which the list may not have shown: without its finalizer it
/// would vanish, while its machine runs on. The same if its name is another Node's by now, which is left as it is.
async fn release_nodes<P: Rights>(ports: P, cluster: &ClusterName, nodes: &BTreeMap<&str, &str>) -> Result<bool, HandleError> {
    for (node, uid) in nodes {
        let patch = NodePatch {
            uid: (*uid).to_owned(),
            unless_deleting: Safeguard::LeavingNodesDrained.stops(true),
            remove_taints: vec![Taint::disrupted()],
            remove_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()),
            disown: true,
            ..NodePatch::default()
        };
        match ports.cluster().patch_node(cluster, node, "", &patch).await {
            Ok(()) | Err(ClusterError::NotFound { .. }) => {}
            Err(ClusterError::Conflict { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// The names of a machine's Nodes, each with its uid.
fn nodes_of<'o>(provider_id: &ProviderId, objects: &'o ClusterObjects) -> BTreeMap<&'o str, &'o str> {
    let nodes = objects.nodes.iter().filter(|node| node.spec.provider_id == provider_id.as_str());
    nodes.map(|node| (node.metadata.name.as_str(), node.metadata.uid.as_str())).collect()
}

/// The same, with the Node of which the claim knows: a list may lack it, and its uid with it, and a Node may have no provider id yet. One
/// with another's is another machine's.
fn nodes_to_release<'o>(claim: &'o Claim, machine: &Machine, objects: &'o ClusterObjects) -> BTreeMap<&'o str, &'o str> {
    let mut nodes = nodes_of(&machine.provider_id, objects);
    if let Some(name) = claim.node_name() {
        match objects.nodes.iter().find(|node| node.metadata.name == name) {
            None => _ = nodes.insert(name, ""),
            Some(node) if node.spec.provider_id.is_empty() => _ = nodes.insert(name, &node.metadata.uid),
            Some(_) => {}
        }
    }
    nodes
}

/// Deletes the NodeClaim of a released machine. The machine and its Node stay.
async fn release<P: Rights>(ports: P, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), HandleError> {
    ports.cluster().delete_mirror(cluster, name, uid).await?;
    Ok(ports.cluster().release_mirror(cluster, name, uid).await?)
}

/// Releases a machine: it becomes unmanaged, and its Node stays when its NodeClaim is deleted.
async fn release_machine<P: Rights>(
    ports: P,
    claim: &Stored<Claim>,
    (objects, shifted): (&ClusterObjects, &ShiftedZones),
    report: &mut Report,
) -> Result<(), HandleError> {
    let key = &claim.value.key;
    let Some(machine) = claim.value.machine() else { return Ok(()) };
    if is_true(&claim.value.conditions, INSTANCE_TERMINATING) {
        return Ok(()); // it is terminating already
    }
    let now = ports.clock().now();
    let nodes = nodes_to_release(&claim.value, machine, objects);
    match tag_released(ports, &machine.instance_id).await {
        // During a zonal shift EC2 may not show it although it runs: left for the next tick.
        Err(HandleError::Cloud(error)) if error.kind == CloudErrorKind::NotFound && shifted.have(machine) => return Ok(()),
        // EC2 would show an instance of this age: this one has terminated.
        Err(HandleError::Cloud(error))
            if error.kind == CloudErrorKind::NotFound && now.duration_since(machine.launched_at) >= LAUNCH_SETTLED_AFTER =>
        {
            return delete_claim(ports, claim, objects, report).await;
        }
        marked => marked?,
    }
    if !release_nodes(ports, &key.cluster, &nodes).await? {
        report.count("nodes_leaving");
        return Ok(()); // the next tick drains a Node that is being deleted, and sees one that came in its place
    }
    let released = save(ports.store(), claim, step(&claim.value, &Event::LetGo, now)?).await?;
    hand_over::show(ports, &released.value).await?;
    release(ports, &key.cluster, key.name.as_str(), claim.value.object_uid()).await?;
    report.count("let_go");
    report.decide(
        now,
        DecisionKind::Kept,
        format!("nodeclaim/{}", key.name),
        format!("instance {} keeps running, unmanaged", machine.instance_id),
    );
    Ok(())
}

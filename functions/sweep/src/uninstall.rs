//! Whittle leaves a cluster: machines drained or let go, objects released, what was made for them deleted.
//!
//! Asked for once, remembered in a record, and gone on with at every tick until nothing is left. While the record is there
//! decisions see no NodePools, so that nothing new comes.

use crate::Rights;
use crate::adopt;
use std::collections::BTreeSet;
use whittle_api::conditions::{INSTANCE_TERMINATING, is_true};
use whittle_api::k8s::{Kind as _, Node};
use whittle_api::{ClusterObjects, ObjectMeta, labels};
use whittle_claims::{
    Claim, DecisionKind, DeletionReason, Doorbell, Event, LeftNodes, Phase, Revision, Stored, Uninstall, UninstallRequest, mirror, step,
};
use whittle_ec2::instance::Instance;
use whittle_ports::{
    ClaimStore, Clock, CloudErrorKind, ClusterError, ClusterReader, Erase, HandleError, InstanceTags, Instances, LaunchTemplateCleanup,
    Listing, Mirrors, NodePatch, Nodes, Queues, Records, Report, Safeguard, Scope, Settings, StoreError, save,
};
use whittle_units::{ClaimName, ClusterName, InstanceId, ProviderId, SignedDuration, Timestamp};

/// A piece of work is only begun with this much time left; the next tick goes on.
const PIECE: SignedDuration = SignedDuration::from_secs(2);
/// A launch that has brought nothing for so long brings nothing more.
const LAUNCHED_WITHIN: SignedDuration = SignedDuration::from_mins(15);
/// Records of a cluster, by kind, that go when all else has gone.
const KINDS: &[&str] = &[
    "sighting",
    "pool-health",
    "verdict",
    "disruption",
    "register-poll",
    "launch",
    "launch-again",
    "subnet-use",
    "unplaced",
    "planning-round",
    "expected",
    "class-missed",
    "catalog-look",
    "cluster",
];

/// What is still there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) claims: Vec<Stored<Claim>>,
    /// Machines that carry our tags and have not been let go.
    pub(crate) machines: Vec<Instance>,
    pub(crate) templates: Vec<String>,
    /// Classes that our finalizer holds.
    pub(crate) classes: Vec<String>,
    /// Claims that cannot be read: their machines cannot be told from others.
    pub(crate) unreadable: Vec<String>,
    /// NodeClaims that Whittle made and that no claim stands behind any more, and whether their machines were let go.
    pub(crate) objects: Vec<(String, bool)>,
    /// Nodes that are being deleted and that our finalizer holds: what was seen of them is not forgotten before they are gone.
    pub(crate) nodes: Vec<String>,
}

impl Left {
    /// Nothing runs any more that we would have to end or let go.
    fn is_quiet(&self) -> bool {
        self.claims.is_empty() && self.machines.is_empty() && self.unreadable.is_empty() && self.objects.is_empty()
    }
    fn is_nothing(&self) -> bool {
        self.is_quiet() && self.templates.is_empty() && self.classes.is_empty() && self.nodes.is_empty()
    }
    /// How much of everything, in words.
    fn told(&self) -> String {
        let Left { claims, machines, templates, classes, unreadable, objects, nodes } = self;
        format!(
            "still there: {} claims, {} machines, {} NodeClaims without a claim, {} Nodes being deleted, {} launch templates, {} node classes, \
             {} unreadable claims",
            claims.len(),
            machines.len(),
            objects.len(),
            nodes.len(),
            templates.len(),
            classes.len(),
            unreadable.len()
        )
    }
}

/// One that was let go by an earlier run carries a tag that says so.
pub(crate) fn was_let_go(instance: &Instance) -> bool {
    instance.tags.contains_key(labels::TAG_LET_GO)
}

/// Begins to leave a cluster, or only says what that would do.
pub async fn uninstall<P: Rights>(ports: P, settings: &Settings, request: &UninstallRequest) -> Result<Report, HandleError> {
    let cluster = &request.cluster;
    let now = ports.clock().now();
    if request.dry_run || settings.shadow {
        let (left, _) = look(ports, cluster).await?;
        let mut report = Report::default();
        for line in plan(&left, request.nodes) {
            report.decide(now, DecisionKind::Kept, format!("cluster/{cluster}"), line);
        }
        return Ok(report);
    }
    let known = ports.store().read::<Uninstall>(cluster, Uninstall::NAME).await?;
    let wanted = Uninstall { asked_at: known.as_ref().map_or(now, |known| known.value.asked_at), nodes: request.nodes };
    if known.as_ref().is_none_or(|known| known.value != wanted) {
        ports.store().write(cluster, &wanted, known.map_or(Revision::ABSENT, |known| known.revision)).await?;
    }
    go_on(ports, cluster, &wanted).await
}

/// One line for each thing that an uninstallation would do.
fn plan(left: &Left, nodes: LeftNodes) -> Vec<String> {
    let mut lines = Vec::new();
    for claim in &left.claims {
        let (name, node) = (&claim.value.key.name, claim.value.node_name().unwrap_or("no node yet"));
        lines.push(match nodes {
            LeftNodes::Drain => format!("would drain and end NodeClaim {name} ({node})"),
            LeftNodes::Keep => format!("would let go of NodeClaim {name} ({node}), its machine runs on"),
        });
    }
    lines.extend(left.objects.iter().map(|(name, _)| format!("would release NodeClaim {name}, which no claim stands behind")));
    lines.extend(left.templates.iter().map(|name| format!("would delete launch template {name}")));
    lines.extend(left.classes.iter().map(|name| format!("would delete what was made for EC2NodeClass {name} and take its finalizer off")));
    lines.extend(left.unreadable.iter().map(|name| format!("cannot read claim {name}: uninstall with the release that wrote it")));
    if lines.is_empty() {
        lines.push("nothing is left".to_owned());
    }
    lines
}

async fn look<P: Rights>(ports: P, cluster: &ClusterName) -> Result<(Left, ClusterObjects), HandleError> {
    let machines = ports.cloud().of_cluster(cluster).await?;
    let templates = ports.cloud().launch_templates(cluster).await?;
    let Listing { mut claims, unreadable } = ports.store().listing(cluster).await?;
    claims.retain(|claim| claim.value.is_live());
    let objects = ports.cluster().read(cluster, Scope::Nodes, None).await?;
    let ours = |instance: &Instance| {
        let tagged = [labels::NODE_POOL, labels::EC2_NODE_CLASS].iter().all(|key| instance.tags.contains_key(*key));
        tagged && adopt::is_ours(instance, &objects) && instance.is_alive() && !was_let_go(instance)
    };
    let shown = |instance: &Instance| {
        let id = instance.provider_id();
        objects.node_claims.iter().any(|claim| claim.status.provider_id == id.as_str() && !adopt::is_marked(claim))
    };
    let claimed =
        |instance: &Instance| claims.iter().any(|claim| claim.value.machine().is_some_and(|machine| machine.instance_id == instance.id));
    let let_go: BTreeSet<String> =
        machines.iter().filter(|one| was_let_go(one)).map(|instance| instance.provider_id().as_str().to_owned()).collect();
    let has_claim = |name: &str| {
        let readable = claims.iter().any(|claim| claim.value.key.name.as_str() == name);
        readable || unreadable.iter().any(|known| known == name)
    };
    let left = objects.node_claims.iter().filter(|shown| adopt::is_marked(shown) && !has_claim(&shown.metadata.name));
    let left = left.map(|shown| (shown.metadata.name.clone(), let_go.contains(&shown.status.provider_id))).collect();
    // Machines that another controller's claims name are that controller's.
    let machines = machines.into_iter().filter(|instance| ours(instance) && (claimed(instance) || !shown(instance))).collect();
    let held =
        objects.node_classes.iter().filter(|class| class.metadata.finalizers.iter().any(|held| held == labels::NODE_CLASS_FINALIZER));
    let classes = held.map(|class| class.metadata.name.clone()).collect();
    let held = |meta: &&ObjectMeta| meta.is_deleting() && meta.finalizers.iter().any(|held| held == labels::TERMINATION_FINALIZER);
    let hidden = objects.unreadable_of(Node::KIND).map(|odd| &odd.metadata);
    let nodes = objects.nodes.iter().map(|node| &node.metadata).chain(hidden).filter(held).map(|meta| meta.name.clone()).collect();
    Ok((Left { claims, machines, templates, classes, unreadable, objects: left, nodes }, objects))
}

/// Does what can be done now.
pub(crate) async fn go_on<P: Rights>(ports: P, cluster: &ClusterName, asked: &Uninstall) -> Result<Report, HandleError> {
    let mut report = Report::default();
    let now = ports.clock().now();
    let (left, objects) = look(ports, cluster).await?;
    let mut failure = None;
    for claim in &left.claims {
        if !ports.clock().deadline().has(ports.clock().now(), PIECE) {
            break;
        }
        let outcome = match (asked.nodes, &claim.value.phase) {
            // A launch under way is waited for: its machine is let go when it is known. Nobody else rings for it any more.
            (LeftNodes::Keep, Phase::Launching { .. }) if Safeguard::LeavingAwaitsLaunches.stops(may_come(&claim.value, now)) => {
                let claims = vec![claim.value.key.name.clone()];
                ring(ports, Doorbell::Launch { cluster: cluster.clone(), claims }).await
            }
            (LeftNodes::Keep, Phase::Terminating { .. }) => ring(ports, terminate(cluster, &claim.value.key.name)).await,
            // A Node that is being deleted goes with its finalizer: its machine would run on without it.
            (LeftNodes::Keep, phase) if phase.machine().is_some() && !is_leaving(&claim.value, &objects) => {
                let_go(ports, claim, &objects, &mut report).await
            }
            _ => end(ports, claim, &mut report).await,
        };
        match outcome {
            // Somebody else moved it: the next tick looks again.
            Ok(()) | Err(HandleError::Store(StoreError::Conflict { .. }) | HandleError::Illegal(_)) => {}
            Err(error) => {
                tracing::warn!(%error, claim = %claim.value.key, "left for the next tick");
                failure.get_or_insert(error);
            }
        }
    }
    if asked.nodes == LeftNodes::Keep && left.claims.is_empty() && left.unreadable.is_empty() {
        // What no claim knows was another table's.
        for instance in left.machines.iter().take_while(|_| ports.clock().deadline().has(ports.clock().now(), PIECE)) {
            let outcome = mark_let_go(ports, cluster, &instance.id, &instance.provider_id(), &objects).await;
            failure = failure.or(outcome.err());
        }
    }
    let kept = left.objects.iter().filter(|_| asked.nodes == LeftNodes::Keep);
    for (name, was_let_go) in kept.take_while(|_| ports.clock().deadline().has(ports.clock().now(), PIECE)) {
        let outcome = match was_let_go {
            true => release(ports, cluster, name, "").await,
            false => ring(ports, terminate(cluster, &name.as_str().into())).await,
        };
        failure = failure.or(outcome.err());
    }
    if left.is_quiet() {
        for template in &left.templates {
            ports.cloud().delete_launch_template(template).await?;
            report.count("templates_deleted");
        }
        if !left.classes.is_empty() {
            ports.queues().ring(Doorbell::Refresh { cluster: cluster.clone() }, SignedDuration::ZERO).await?;
        }
    }
    let line = if left.is_nothing() {
        ports.store().erase(cluster, KINDS).await?;
        "nothing is left: take the cluster out of the stack's Clusters, or delete the stack".to_owned()
    } else {
        left.told()
    };
    report.decide(now, DecisionKind::Kept, format!("cluster/{cluster}"), line);
    failure.map_or(Ok(report), Err)
}

/// Whether a machine may come of a launch that is under way.
fn may_come(claim: &Claim, now: Timestamp) -> bool {
    claim.deletion.is_none() && now.duration_since(claim.created_at) < LAUNCHED_WITHIN
}

/// Whether the Node of a claim is being deleted.
fn is_leaving(claim: &Claim, objects: &ClusterObjects) -> bool {
    let id = claim.machine().map_or("", |machine| machine.provider_id.as_str());
    let hidden = objects.unreadable_of(Node::KIND).map(|odd| (odd.provider_id.as_str(), &odd.metadata));
    let nodes = objects.nodes.iter().map(|node| (node.spec.provider_id.as_str(), &node.metadata)).chain(hidden);
    let leaving = nodes.filter(|(of, _)| !id.is_empty() && *of == id).any(|(_, meta)| meta.is_deleting());
    Safeguard::LeavingNodesDrained.stops(leaving)
}

/// Asks for the end of a claim, as deleting its object would.
async fn end<P: Rights>(ports: P, claim: &Stored<Claim>, report: &mut Report) -> Result<(), HandleError> {
    let key = claim.value.key.clone();
    if claim.value.deletion.is_none() {
        let now = ports.clock().now();
        let deletion = claim.value.deletion_for(DeletionReason::Requested, "Whittle is being uninstalled", now);
        save(ports.store(), claim, step(&claim.value, &Event::DeletionAsked(deletion), now)?).await?;
        report.count("ended");
    }
    ring(ports, terminate(&key.cluster, &key.name)).await
}

fn terminate(cluster: &ClusterName, claim: &ClaimName) -> Doorbell {
    Doorbell::Terminate { cluster: cluster.clone(), claim: claim.clone() }
}

async fn ring<P: Rights>(ports: P, bell: Doorbell) -> Result<(), HandleError> {
    Ok(ports.queues().ring(bell, SignedDuration::ZERO).await?)
}

/// Marks a machine as nobody's, so that no sweep takes it for an orphan, and sees to it that its Node stays.
async fn mark_let_go<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    id: &InstanceId,
    provider_id: &ProviderId,
    objects: &ClusterObjects,
) -> Result<(), HandleError> {
    if Safeguard::LetGoMarked.stops(true) {
        ports.cloud().tag(id, &[(labels::TAG_LET_GO.to_owned(), ports.clock().now().to_string())]).await?;
    }
    for node in objects.nodes.iter().filter(|node| node.spec.provider_id == provider_id.as_str()) {
        let patch = NodePatch { remove_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()), disown: true, ..NodePatch::default() };
        ports.cluster().patch_node(cluster, &node.metadata.name, "", &patch).await?;
    }
    Ok(())
}

/// Takes the NodeClaim of a machine that was let go away. The machine and its Node stay.
async fn release<P: Rights>(ports: P, cluster: &ClusterName, name: &str, uid: &str) -> Result<(), HandleError> {
    ports.cluster().delete_mirror(cluster, name, uid).await?;
    Ok(ports.cluster().release_mirror(cluster, name, uid).await?)
}

/// Lets a machine go: nobody's any more, and its Node stays when its NodeClaim goes.
async fn let_go<P: Rights>(ports: P, claim: &Stored<Claim>, objects: &ClusterObjects, report: &mut Report) -> Result<(), HandleError> {
    let key = &claim.value.key;
    let Some(machine) = claim.value.machine() else { return Ok(()) };
    if is_true(&claim.value.conditions, INSTANCE_TERMINATING) {
        return Ok(()); // it ends already
    }
    let now = ports.clock().now();
    match mark_let_go(ports, &key.cluster, &machine.instance_id, &machine.provider_id, objects).await {
        // EC2 shows what it has started long before: this one has ended.
        Err(HandleError::Cloud(error))
            if error.kind == CloudErrorKind::NotFound && now.duration_since(machine.launched_at) >= LAUNCHED_WITHIN =>
        {
            return end(ports, claim, report).await;
        }
        marked => marked?,
    }
    let released = save(ports.store(), claim, step(&claim.value, &Event::LetGo, now)?).await?;
    match ports.cluster().apply_mirror(&key.cluster, &mirror(&released.value)).await {
        // One that was made by hand may be gone already.
        Ok(()) | Err(ClusterError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    release(ports, &key.cluster, key.name.as_str(), claim.value.object_uid()).await?;
    report.count("let_go");
    report.decide(
        now,
        DecisionKind::Kept,
        format!("nodeclaim/{}", key.name),
        format!("instance {} runs on unmanaged", machine.instance_id),
    );
    Ok(())
}

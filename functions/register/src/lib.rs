//! Registers and initializes Nodes that joined: labels, taints, finalizer, then readiness; late claims are given up.

mod decide; // what a Node needs to be registered, and lacks to be initialized
mod turn; // one run at a time for a cluster
mod poll; // one doorbell while a Node is joining
mod silence; // machines that could not join while the API server did not answer
mod deletions; // what users delete is drained

// What is recorded when a Node joins.
mod measured; // the memory that it reports, and of what it has too little
mod pool_health; // whether the launches of its pool succeed
mod tags; // its name, on the instance

#[cfg(test)]
mod tests;

pub use deletions::deletions;

use crate::silence::{Looked, Silence};
use crate::turn::{Ended, Turn};
use futures::join;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::conditions::{INITIALIZED, REGISTERED};
use whittle_api::k8s::Node;
use whittle_api::{ClusterObjects, ConditionStatus, OwnerReference, labels};
use whittle_claims::{
    Claim, ClaimKey, DecisionKind, DeletionReason, Doorbell, Event, LaunchOutcome, Liveness, Measurement, Phase, REGISTRATION_TIMEOUT,
    SHARDS, Shortfall, Stored, step,
};
use whittle_ports::{
    CONCURRENT_REQUESTS, ClaimStore, Clock, ClusterError, ClusterEvent, ClusterReader, DecisionLog, HandleError, InstanceTags, Instances,
    Involved, Mirrors, NodePatch, Nodes, Queues, Records, Report, Safeguard, Scope, Settings, StatusWriter, TokenBuckets, WriteError,
    advance, concurrently, is_owned, metrics, publish_event, publish_events, readable, record_decisions, rights, save, write_mirror,
};
use whittle_units::{ClaimName, ClusterName, SignedDuration, Timestamp};

rights! {
    /// What `register` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + Records + TokenBuckets + DecisionLog,
    Cloud: Instances + InstanceTags,
    Cluster: ClusterReader + Mirrors + Nodes + StatusWriter,
    Queues: Queues,
}

/// Upper bound of the time for claims that are handled at once.
const TIME_PER_BATCH: SignedDuration = SignedDuration::from_secs(1);
/// How often a run looks at what changes while it works: in the second in which a machine joins, its kubelet and the cluster's
/// controllers write its Node several times, and the next run may be five seconds away.
const ROUNDS_MAX: u32 = 4;
/// How often a run looks because somebody rang while it worked; a doorbell takes it from there.
const LOOKS_MAX: u32 = 8;
/// How long a device plugin may take before the pods on a Node are asked for what the Node lacks.
const DEVICE_PLUGIN_TIME: SignedDuration = SignedDuration::from_mins(2);
/// Claims that are read one by one: as many requests as a list of all takes.
const NAMED_MAX: usize = SHARDS as usize;

/// One run for a cluster: its ports, and the objects that it read.
pub(crate) struct Run<'a, P> {
    ports: P,
    cluster: &'a ClusterName,
    objects: &'a ClusterObjects,
    /// The time in which the API server did not answer before.
    silence: Option<Silence>,
}

/// Handles every claim that waits for its Node, and every Node that waits to be initialized. One run at a time does so for a cluster: a
/// doorbell that comes while another works is left to that one, which looks again before it ends.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let mut report = Report::default();
    if settings.is_shadow() {
        return Ok(report);
    }
    if Turn::is_left_to_another(ports, cluster).await {
        report.count("left_to_another_run");
        return Ok(report);
    }
    let due = claims_due(ports, cluster).await?;
    if due.is_empty() {
        return Ok(report);
    }
    let Some(turn) = Turn::take(ports, cluster).await else {
        report.count("left_to_another_run");
        return Ok(report);
    };
    let mut work = Work::default();
    let looked = look_while_rung(ports, cluster, &turn, due, &mut report, &mut work).await;
    if let Err(error) = &looked {
        // The message comes again before the turn would end by itself, and nobody works for it then.
        let looked = match error {
            HandleError::Cluster(_) => Looked::Unanswered,
            // The table or EC2 failed after that.
            _ if work.answered => Looked::Answered,
            _ => Looked::Unknown,
        };
        turn.give_back(ports, cluster, looked).await;
    }
    // What was done is stored whatever came then: claims that went on do not go on again.
    let finished = finish(ports, cluster, work, report).await;
    looked.and(finished)
}

/// Handles claims, and again as long as somebody rings meanwhile.
async fn look_while_rung<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    turn: &Turn,
    mut due: Vec<Stored<Claim>>,
    report: &mut Report,
    work: &mut Work,
) -> Result<(), HandleError> {
    if turn.is_taken_over() {
        // Whoever rang for the run before has changed what was listed.
        due = claims_due(ports, cluster).await?;
    }
    for look in 1.. {
        reconcile_changing(ports, cluster, turn.silence(), due, report, work).await?;
        if turn.end(ports, cluster).await? == Ended::Quiet {
            break;
        }
        if look == LOOKS_MAX || !ports.clock().has_time_for(TIME_PER_BATCH) {
            turn.give_back(ports, cluster, Looked::Answered).await;
            ports.queues().send_now(Doorbell::Register { cluster: cluster.clone(), is_tick: false }).await?;
            break;
        }
        due = claims_due(ports, cluster).await?;
    }
    Ok(())
}

/// The claims of a cluster that may need work.
async fn claims_due<P: Rights>(ports: P, cluster: &ClusterName) -> Result<Vec<Stored<Claim>>, HandleError> {
    let mut claims = ports.store().list(cluster).await?;
    claims.retain(|claim| may_need_work(&claim.value));
    Ok(claims)
}

/// Those of these claims that may need work. As a rule few of many have changed.
async fn claims_named<P: Rights>(ports: P, cluster: &ClusterName, names: &BTreeSet<ClaimName>) -> Result<Vec<Stored<Claim>>, HandleError> {
    if names.len() > NAMED_MAX {
        let mut claims = claims_due(ports, cluster).await?;
        claims.retain(|claim| names.contains(&claim.value.key.name));
        return Ok(claims);
    }
    let keys: Vec<ClaimKey> = names.iter().map(|name| ClaimKey { cluster: cluster.clone(), name: name.clone() }).collect();
    let mut claims = Vec::with_capacity(keys.len());
    for claim in concurrently(keys.iter().map(|key| ports.store().get(key))).await {
        claims.extend(readable(claim)?);
    }
    claims.retain(|claim| may_need_work(&claim.value));
    Ok(claims)
}

/// Handles claims, and those again that changed meanwhile.
async fn reconcile_changing<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    silence: Option<Silence>,
    mut due: Vec<Stored<Claim>>,
    report: &mut Report,
    work: &mut Work,
) -> Result<(), HandleError> {
    for round in 1.. {
        let objects = ports.cluster().read(cluster, Scope::NodesAndClaims, None).await?;
        work.answered = true;
        let changed = Run { ports, cluster, objects: &objects, silence }.reconcile_all(&due, report, work).await?;
        if changed.is_empty() {
            break;
        }
        if round == ROUNDS_MAX || !ports.clock().has_time_for(TIME_PER_BATCH) {
            tracing::info!(claims = ?changed, "Nodes or claims changed meanwhile: retrying in the next run");
            changed.iter().for_each(|_| report.count("left_for_later"));
            work.waiting = true;
            break;
        }
        due = claims_named(ports, cluster, &changed).await?;
    }
    Ok(())
}

/// Stores what a run found out, and what nobody waits for.
async fn finish<P: Rights>(ports: P, cluster: &ClusterName, work: Work, mut report: Report) -> Result<Report, HandleError> {
    let objects = ClusterObjects::default();
    let run = Run { ports, cluster, objects: &objects, silence: None };
    let (mut of_pools, mut of_events) = (Report::default(), Report::default());
    // First: whether nodes that are too small confirm each other is told with them.
    let measured = run.store_measurements(&work.measurements, &work.shortfalls, &mut report).await;
    let known = measured.as_deref().unwrap_or_default();
    let events = measured::events_of(&work.shortfalls, known, ports.clock().now(), &mut report);
    let (recorded, told, ()) = join!(
        record_decisions(ports.store(), cluster, &report.decisions),
        pool_health::store_outcomes(ports, cluster, &work.outcomes, &mut of_pools),
        publish_events(ports, cluster, &events, &mut of_events),
    );
    report.absorb(of_pools);
    report.absorb(of_events);
    recorded.count_failure(&mut report, "decisions_unrecorded");
    told.and(measured)?;
    if work.waiting {
        run.requeue().await?;
    }
    // Last: tags may take what is left of the time, and nobody waits for them.
    let untagged = work.untagged.into_values().collect();
    if run.tag_instances(untagged, &mut report).await {
        run.requeue().await?;
    }
    Ok(report)
}

/// What a run finds out for its end.
#[derive(Default)]
struct Work {
    /// Whether the API server has answered a look of this run.
    answered: bool,
    /// Whether another run should come soon.
    waiting: bool,
    untagged: BTreeMap<ClaimName, Stored<Claim>>,
    /// By the NodePool of their claim.
    outcomes: Vec<(OwnerReference, LaunchOutcome)>,
    measurements: Vec<Measurement>,
    shortfalls: Vec<(Claim, Shortfall)>,
}

/// Whether a claim, or the Node that was read, has changed meanwhile: what is read again is right.
fn is_race(error: &HandleError) -> bool {
    error.is_conflict() || matches!(error, HandleError::Cluster(ClusterError::Conflict { .. }) | HandleError::Illegal(_))
}

/// The cluster or EC2 does not answer: the next run handles it.
fn is_retried(error: &HandleError) -> bool {
    matches!(error, HandleError::Cluster(_) | HandleError::Cloud(_))
}

/// Claims that a timeout or a Node can advance.
fn may_need_work(claim: &Claim) -> bool {
    match &claim.phase {
        Phase::Planned | Phase::Launching { .. } | Phase::Launched { .. } | Phase::Registered { .. } => true,
        Phase::Initialized { .. } => wants_tags(claim),
        Phase::Draining { node_name, .. } => node_name.is_none(),
        Phase::Terminating { .. } | Phase::Failed { .. } | Phase::Gone { .. } => false,
    }
}

/// Claims that are worth polling. One whose startup taint is never removed waits for ticks after a while.
fn is_waiting(claim: &Claim, now: Timestamp) -> bool {
    match &claim.phase {
        Phase::Launched { .. } => true,
        Phase::Registered { since, .. } => now.duration_since(*since) < REGISTRATION_TIMEOUT,
        _ => false,
    }
}

/// Whether this look reads the pods on a Node that lacks a resource: about once a minute while the claim is polled, because those of a job
/// may be gone before that ends.
fn looks_for_devices(claim: &Claim, now: Timestamp) -> bool {
    let Phase::Registered { since, .. } = &claim.phase else { return false };
    let waited = now.duration_since(*since);
    let is_its_turn = waited.as_secs() % 60 < poll::POLL_INTERVAL.as_secs();
    !is_waiting(claim, now) || waited >= DEVICE_PLUGIN_TIME && is_its_turn
}

fn wants_tags(claim: &Claim) -> bool {
    claim.node_name().is_some() && claim.deletion.is_none() && !claim.annotations.contains_key(labels::INSTANCE_TAGGED)
}

impl<P: Rights> Run<'_, P> {
    /// Handles claims, many at once. The names of those that were changed meanwhile.
    async fn reconcile_all(&self, due: &[Stored<Claim>], report: &mut Report, work: &mut Work) -> Result<BTreeSet<ClaimName>, HandleError> {
        let clock = self.ports.clock();
        let mut changed = BTreeSet::new();
        for some in due.chunks(CONCURRENT_REQUESTS) {
            if !clock.has_time_for(TIME_PER_BATCH) {
                // The next run begins with the remaining ones.
                report.hand_over();
                work.waiting = true;
                break;
            }
            let reconciled = concurrently(some.iter().map(|claim| self.reconcile_reporting(claim.clone()))).await;
            for (Stored { value: before, .. }, (outcome, part)) in some.iter().zip(reconciled) {
                report.absorb(part);
                match outcome {
                    Ok(claim) => {
                        let outcome = pool_health::outcome(before, &claim.value);
                        work.outcomes.extend(outcome.map(|outcome| (before.spec.owner.clone(), outcome)));
                        work.measurements.extend(measured::measurement(before, &claim.value, &self.objects.nodes));
                        let short = measured::shortfall(before, &claim.value, &self.objects.nodes);
                        work.shortfalls.extend(short.map(|short| (claim.value.clone(), short)));
                        work.waiting |= is_waiting(&claim.value, clock.now());
                        if wants_tags(&claim.value) {
                            work.untagged.insert(claim.value.key.name.clone(), claim);
                        }
                    }
                    Err(error) if is_race(&error) => {
                        changed.insert(before.key.name.clone());
                    }
                    Err(error) if is_retried(&error) => {
                        tracing::info!(claim = %before.key, error = %error, "retrying in the next run");
                        report.count("left_for_later");
                        work.waiting = true;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(changed)
    }

    /// Handles a claim, with a report of its own.
    async fn reconcile_reporting(&self, claim: Stored<Claim>) -> (Result<Stored<Claim>, HandleError>, Report) {
        let mut report = Report::default();
        (self.reconcile(claim, &mut report).await, report)
    }

    async fn reconcile(&self, claim: Stored<Claim>, report: &mut Report) -> Result<Stored<Claim>, HandleError> {
        let now = self.ports.clock().now();
        let before = claim.clone();
        let nodes = decide::nodes_of(&claim.value, &self.objects.nodes);
        let registered: Vec<Node> = match nodes[..] {
            [node] if matches!(claim.value.phase, Phase::Launched { .. }) => vec![decide::registered(&claim.value, node)],
            _ => nodes.iter().map(|node| (*node).clone()).collect(),
        };
        let mut claim = match (&claim.value.phase, nodes.as_slice()) {
            // With several Nodes it is not clear which one is the machine's: none is drained.
            (Phase::Draining { .. }, [node]) => {
                let joined = Event::NodeJoined { node_name: node.metadata.name.clone() };
                advance(self.ports.store(), &claim, &joined, now).await?
            }
            // At the timeout only the Nodes that still exist count.
            (Phase::Launched { .. }, [node]) if !has_ambiguous_nodes(&claim.value) || is_overdue(&claim.value, now) => {
                match self.register(claim.clone(), node, report).await {
                    Err(HandleError::Cluster(ClusterError::Invalid { message, .. })) => self.record_refused(claim, &message, now).await?,
                    outcome => outcome?,
                }
            }
            (Phase::Launched { .. }, nodes) => self.record_missing(claim, nodes.len(), now).await?,
            _ => claim,
        };
        if let Phase::Registered { .. } = claim.value.phase {
            claim = self.initialize(claim, &registered, report).await?;
        }
        if let Liveness::Overdue(reason) = claim.value.liveness(now)
            && !decide::may_have_joined(&claim.value, self.objects)
            && !self.silence.is_some_and(|silence| silence.excuses(&claim.value, now))
            && !self.has_instance(&claim.value).await?
        {
            let message = decide::timeout_message(&claim.value);
            let deletion = claim.value.deletion_for(reason, message.clone(), now);
            claim = advance(self.ports.store(), &claim, &Event::DeletionRequested(deletion), now).await?;
            let (name, cluster) = (claim.value.key.name.clone(), claim.value.key.cluster.clone());
            report.decide(now, DecisionKind::LaunchFailed, format!("nodeclaim/{name}"), message);
            count_disruption(report, &claim.value);
            report.count("given_up");
            self.ports.queues().send_now(Doorbell::Terminate { cluster, claim: name }).await?;
        }
        if claim.value != before.value {
            write_mirror(self.ports.cluster(), &claim.value).await.count_failure(report, "mirrors_failed");
        }
        Ok(claim)
    }

    /// Whether an instance exists for a claim without a machine: the table may be older than the cluster. `launch` or `sweep`
    /// assigns it.
    async fn has_instance(&self, claim: &Claim) -> Result<bool, HandleError> {
        if claim.machine().is_some() {
            return Ok(false);
        }
        let mirror = self.objects.node_claims.iter().find(|mirror| claim.is_mirrored_by(mirror));
        let owned =
            |node: &Node| mirror.is_some_and(|mirror| node.metadata.owner_references.iter().any(|owner| owner.uid == mirror.metadata.uid));
        if mirror.is_some_and(|mirror| !mirror.status.provider_id.is_empty()) || self.objects.nodes.iter().any(owned) {
            return Ok(true);
        }
        let Phase::Launching { client_token, .. } = &claim.phase else { return Ok(false) };
        for instance in self.ports.cloud().tagged(labels::TAG_LAUNCH, client_token).await? {
            if instance.is_alive() && !is_owned(self.ports.store(), &instance.id).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn record_missing(&self, claim: Stored<Claim>, nodes: usize, now: Timestamp) -> Result<Stored<Claim>, HandleError> {
        if has_ambiguous_nodes(&claim.value) {
            return Ok(claim);
        }
        let mut next = claim.value.clone();
        if nodes == 0 {
            next.note_missing_node(now);
        } else {
            next.note(REGISTERED, ConditionStatus::False, "MultipleNodesFound", "several Nodes carry the machine's provider id", now);
        }
        save(self.ports.store(), &claim, next).await
    }

    /// Shows that the API server refuses the changes of a Node, as a policy may. It may never take them, so that the timeout goes on: pods
    /// would wait for this machine for ever.
    async fn record_refused(&self, claim: Stored<Claim>, message: &str, now: Timestamp) -> Result<Stored<Claim>, HandleError> {
        tracing::warn!(claim = %claim.value.key, refusal = message, "the API server refuses the registration of a Node");
        let mut next = claim.value.clone();
        next.note(REGISTERED, ConditionStatus::Unknown, "NodeRefused", message, now);
        save(self.ports.store(), &claim, next).await
    }

    /// Labels the machine with the partition that EC2 chose for it, if EC2 reports it (aws 7.8).
    async fn set_partition(&self, claim: Stored<Claim>) -> Result<Stored<Claim>, HandleError> {
        let Some(id) = claim.value.machine().map(|machine| machine.instance_id.clone()) else { return Ok(claim) };
        let partition = self.ports.cloud().instance(&id).await?.and_then(|instance| instance.partition);
        let mut next = claim.value.clone();
        match partition {
            Some(partition) => next.set_partition(partition),
            None => {
                let message = "EC2 has not reported the partition of the instance yet";
                let now = self.ports.clock().now();
                next.note(REGISTERED, ConditionStatus::Unknown, "PlacementGroupPartitionUnknown", message, now);
            }
        }
        save(self.ports.store(), &claim, next).await
    }

    /// Registers the Node of a machine, and stores with that what it lacks to be initialized. One that lacks nothing is initialized with
    /// the same patch.
    async fn register(&self, claim: Stored<Claim>, node: &Node, report: &mut Report) -> Result<Stored<Claim>, HandleError> {
        // The Node gets all of its labels at once: pods select by them.
        let claim = if claim.value.awaits_partition() { self.set_partition(claim).await? } else { claim };
        if claim.value.awaits_partition() {
            return Ok(claim);
        }
        let key = &claim.value.key;
        let name = &node.metadata.name;
        let mirror_uid =
            self.objects.node_claims.iter().find(|mirror| claim.value.is_mirrored_by(mirror)).map(|mirror| mirror.metadata.uid.as_str());
        if decide::lacks_unregistered_taint(node) {
            let message = format!(
                "Node {name} joined without taint {}: pods may have been bound before its labels were set",
                labels::UNREGISTERED_TAINT
            );
            let event = ClusterEvent::warning(Involved::claim(&claim.value), "UnregisteredTaintMissing", message);
            publish_event(self.ports.cluster(), &key.cluster, &event).await;
        }
        let lacking = lacking(&claim.value, &[decide::registered(&claim.value, node)]);
        let mut patch = decide::registration(&claim.value, node, mirror_uid).unwrap_or_default();
        patch.labels.extend(initialized(node).filter(|_| lacking.is_none()));
        if patch != NodePatch::default() {
            self.patch_node(node, patch).await?;
        }
        let now = self.ports.clock().now();
        let mut next = step(&claim.value, &Event::NodeJoined { node_name: name.clone() }, now)?;
        match &lacking {
            None => next = step(&next, &Event::NodeReady, now)?,
            Some((reason, message)) => {
                next.note(INITIALIZED, ConditionStatus::Unknown, reason, message, now);
            }
        }
        let joined = save(self.ports.store(), &claim, next).await?;
        report.decide(now, DecisionKind::Registered, format!("nodeclaim/{}", key.name), format!("node {name} joined"));
        report.count("registered");
        let zone = claim.value.machine().map_or("", |machine| machine.zone.as_str());
        report.metric(metrics::NodesCreated { nodepool: &claim.value.spec.node_pool, zone });
        if lacking.is_none() {
            report_initialized(&joined.value, name, now, report);
        }
        Ok(joined)
    }

    /// Patches the Node as it is now, and no other of its name: while it joins, others write it several times a second. Only taints are not
    /// added to a Node that has changed: another run may have added them, and whoever they waited for may have removed them since.
    async fn patch_node(&self, node: &Node, patch: NodePatch) -> Result<(), ClusterError> {
        let meta = &node.metadata;
        let version = if patch.add_taints.is_empty() { "" } else { &meta.resource_version };
        let patch = NodePatch { uid: meta.uid.clone(), ..patch };
        self.ports.cluster().patch_node(self.cluster, &meta.name, version, &patch).await
    }

    /// Why the registered Nodes of a claim are not initialized yet. For a resource that has not come for a while, the pods that run there
    /// tell whether a DRA driver has it.
    async fn lacking_for_long(
        &self,
        claim: &Claim,
        nodes: &[Node],
        now: Timestamp,
    ) -> Result<Option<(&'static str, String)>, ClusterError> {
        let found = lacking(claim, nodes);
        let is_resource = found.as_ref().is_some_and(|(reason, _)| *reason == decide::RESOURCE_NOT_REGISTERED);
        let [node] = nodes else { return Ok(found) };
        if !is_resource || !looks_for_devices(claim, now) {
            return Ok(found);
        }
        let there = self.ports.cluster().read(self.cluster, Scope::Pods, Some(&node.metadata.name)).await?;
        Ok(lacking(claim, &[decide::with_claimed_resources(node, &there.pods)]))
    }

    async fn initialize(&self, claim: Stored<Claim>, nodes: &[Node], report: &mut Report) -> Result<Stored<Claim>, HandleError> {
        let now = self.ports.clock().now();
        if let Some((reason, message)) = self.lacking_for_long(&claim.value, nodes, now).await? {
            let mut next = claim.value.clone();
            next.note(INITIALIZED, ConditionStatus::Unknown, reason, &message, now);
            return save(self.ports.store(), &claim, next).await;
        }
        let node = &nodes[0];
        let labels: BTreeMap<String, String> = initialized(node).into_iter().collect();
        if !labels.is_empty() {
            self.patch_node(node, NodePatch { labels, ..NodePatch::default() }).await?;
        }
        let ready = advance(self.ports.store(), &claim, &Event::NodeReady, now).await?;
        report_initialized(&ready.value, &node.metadata.name, now, report);
        Ok(ready)
    }
}

/// Why the registered Nodes of a claim are not initialized yet: reason and message of its condition.
fn lacking(claim: &Claim, nodes: &[Node]) -> Option<(&'static str, String)> {
    match nodes {
        [node] => decide::not_initialized(claim, node).filter(|_| Safeguard::InitializedWhenReady.stops(true)),
        _ => Some(("NodeNotFound", "Node not registered with cluster".to_owned())),
    }
}

/// The label of an initialized Node, if it lacks it.
fn initialized(node: &Node) -> Option<(String, String)> {
    (node.metadata.label(labels::INITIALIZED) != Some("true")).then(|| (labels::INITIALIZED.to_owned(), "true".to_owned()))
}

fn report_initialized(claim: &Claim, node_name: &str, now: Timestamp, report: &mut Report) {
    let message = format!("node {node_name} is ready for pods");
    report.decide(now, DecisionKind::Initialized, format!("nodeclaim/{}", claim.key.name), message);
    report.count("initialized");
}

/// Whether two Nodes have had this machine's provider id: registration is not retried, the timeout decides.
fn has_ambiguous_nodes(claim: &Claim) -> bool {
    whittle_api::conditions::find(&claim.conditions, REGISTERED).is_some_and(|condition| condition.status == ConditionStatus::False)
}

fn is_overdue(claim: &Claim, now: Timestamp) -> bool {
    matches!(claim.liveness(now), Liveness::Overdue(_))
}

/// Counts the disruption of a claim that never became ready.
fn count_disruption(report: &mut Report, claim: &Claim) {
    if claim.deletion.as_ref().is_some_and(|deletion| deletion.reason == DeletionReason::RegistrationTimeout) {
        report.metric(metrics::NeverJoined { nodepool: &claim.spec.node_pool });
    }
    if let Some(reason) = claim.deletion.as_ref().and_then(|deletion| deletion.reason.metric_reason()) {
        report.metric(metrics::NodeClaimsDisrupted::of(claim, reason));
    }
}

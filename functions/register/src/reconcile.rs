//! What one claim is due: its Node registered, then initialized; given up when it comes too late.

use crate::poll::POLL_INTERVAL;
use crate::{Rights, Run, decide, is_waiting};
use std::collections::BTreeMap;
use whittle_api::conditions::{INITIALIZED, REGISTERED};
use whittle_api::k8s::Node;
use whittle_api::karpenter::NodeClaim;
use whittle_api::{ConditionStatus, labels};
use whittle_claims::{Claim, DecisionKind, DeletionReason, Doorbell, Event, Liveness, Phase, Stored, step};
use whittle_ports::{
    Clock, ClusterError, ClusterEvent, ClusterReader, HandleError, Instances, Involved, NodePatch, Nodes, Queues, Report, Safeguard, Scope,
    advance, is_owned, metrics, publish_event, save, write_mirror,
};
use whittle_units::{SignedDuration, Timestamp};

/// How long a device plugin may take before the pods on a Node are asked for what the Node lacks.
const DEVICE_PLUGIN_TIME: SignedDuration = SignedDuration::from_mins(2);
/// The reason for which a Node is neither registered nor initialized that the API server lets nobody change.
const NODE_REFUSED: &str = "NodeRefused";

impl<P: Rights> Run<'_, P> {
    /// Handles a claim, with a report of its own.
    pub(crate) async fn reconcile_reporting(&self, claim: Stored<Claim>) -> (Result<Stored<Claim>, HandleError>, Report) {
        let mut report = Report::default();
        (self.reconcile(claim, &mut report).await, report)
    }

    async fn reconcile(&self, claim: Stored<Claim>, report: &mut Report) -> Result<Stored<Claim>, HandleError> {
        let now = self.ports.clock().now();
        let before = claim.clone();
        let nodes = self.index.nodes_of(&claim.value);
        let registered: Vec<Node> = match nodes {
            [node] if matches!(claim.value.phase, Phase::Launched { .. }) => vec![decide::registered(&claim.value, node)],
            _ => nodes.iter().map(|node| (*node).clone()).collect(),
        };
        let mut claim = match (&claim.value.phase, nodes) {
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
        let has_machine = |mirror: &NodeClaim| !mirror.status.provider_id.is_empty() || self.index.owns_node(&mirror.metadata.uid);
        if self.index.mirror_of(claim).is_some_and(has_machine) {
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
        next.note(REGISTERED, ConditionStatus::Unknown, NODE_REFUSED, message, now);
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
        let mirror_uid = self.index.mirror_of(&claim.value).map(|mirror| mirror.metadata.uid.as_str());
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

    /// Shows why a registered Node is not initialized.
    async fn record_lacking(
        &self,
        claim: &Stored<Claim>,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> Result<Stored<Claim>, HandleError> {
        let mut next = claim.value.clone();
        next.note(INITIALIZED, ConditionStatus::Unknown, reason, message, now);
        save(self.ports.store(), claim, next).await
    }

    async fn initialize(&self, claim: Stored<Claim>, nodes: &[Node], report: &mut Report) -> Result<Stored<Claim>, HandleError> {
        let now = self.ports.clock().now();
        if let Some((reason, message)) = self.lacking_for_long(&claim.value, nodes, now).await? {
            return self.record_lacking(&claim, reason, &message, now).await;
        }
        let node = &nodes[0];
        let labels: BTreeMap<String, String> = initialized(node).into_iter().collect();
        if !labels.is_empty() {
            match self.patch_node(node, NodePatch { labels, ..NodePatch::default() }).await {
                // A policy may never take the label: the claim shows that, and waits like one that lacks something.
                Err(ClusterError::Invalid { message, .. }) => {
                    let refusal = message.as_str();
                    tracing::warn!(claim = %claim.value.key, refusal, "the API server refuses the initialization of a Node");
                    return self.record_lacking(&claim, NODE_REFUSED, &message, now).await;
                }
                outcome => outcome?,
            }
        }
        let ready = advance(self.ports.store(), &claim, &Event::NodeReady, now).await?;
        report_initialized(&ready.value, &node.metadata.name, now, report);
        Ok(ready)
    }
}

/// Whether this look reads the pods on a Node that lacks a resource: about once a minute while the claim is polled, because those of a job
/// may be gone before that ends.
fn looks_for_devices(claim: &Claim, now: Timestamp) -> bool {
    let Phase::Registered { since, .. } = &claim.phase else { return false };
    let waited = now.duration_since(*since);
    let is_its_turn = waited.as_secs() % 60 < POLL_INTERVAL.as_secs();
    !is_waiting(claim, now) || waited >= DEVICE_PLUGIN_TIME && is_its_turn
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
pub(crate) fn count_disruption(report: &mut Report, claim: &Claim) {
    if claim.deletion.as_ref().is_some_and(|deletion| deletion.reason == DeletionReason::RegistrationTimeout) {
        report.metric(metrics::NeverJoined { nodepool: &claim.spec.node_pool });
    }
    if let Some(reason) = claim.deletion.as_ref().and_then(|deletion| deletion.reason.metric_reason()) {
        report.metric(metrics::NodeClaimsDisrupted::of(claim, reason));
    }
}

//! Terminates an instance, then releases its objects in the cluster.

use crate::steps::is_overdue;
use crate::{Next, POLL_DELAY, SHORT_DELAY};
use crate::{Rights, Run};
use whittle_api::conditions::{INSTANCE_TERMINATING, find};
use whittle_api::k8s::Node;
use whittle_api::{ConditionStatus, labels};
use whittle_claims::{Bucket, BucketName, Claim, DecisionKind, Event, Machine, Phase, step};
use whittle_ec2::instance::InstanceState;
use whittle_ports::metrics::GaugeMetric;
use whittle_ports::{
    ClaimStore, Clock, ClusterError, ClusterReader, HandleError, Instances, Mirrors, NodePatch, Nodes, ObjectKind, Presence, Report,
    Safeguard, Scope, Terminator, TokenBuckets, advance, is_owned, machine_to_terminate, metrics, save, write_mirror,
};
use whittle_units::{InstanceId, ProviderId, SignedDuration, Timestamp};

/// EC2's limit of instances that an account may terminate in a region: 20 a second, after a thousand at once. The clusters of a deployment
/// share it.
const BUCKET: &str = "TerminateInstances";
const BUCKET_SIZE: u32 = 1000;
const BUCKET_RATE: u32 = 20;
/// Longer than any launch invocation: after this, an unfinished fleet call launches nothing more.
const LAUNCH_SETTLED_AFTER: SignedDuration = SignedDuration::from_mins(2);
/// EC2 shows terminated instances for an hour. One that it does not show at all has to be missing for this long: its responses
/// may be stale.
const CONFIRM_MISSING_FOR: SignedDuration = SignedDuration::from_secs(30);
/// Nothing is known of the time between two responses that are further apart: the first one counts no more.
const MISSING_EXPIRES_AFTER: SignedDuration = SignedDuration::from_secs(90);
/// How long the Node of a machine that has ended is tried to be let go while the API server, or a webhook of it, fails: it may be over in a
/// moment, and most machines end within a minute.
const NODE_AWAITED_FOR: SignedDuration = SignedDuration::from_mins(5);
/// A machine that EC2 is ending is looked up again after one of so many parts of the time that it has taken, and after half a minute at the
/// latest: every five seconds in the first minute, in which most end. Others, as those of bare metal, take ten, and a thousand that end
/// together would use up what EC2 allows the account.
const ENDING_SHARE: i64 = 12;
const ENDING_DELAY_MAX: SignedDuration = SignedDuration::from_secs(30);
/// Poll interval of a claim whose launch was in progress.
const LAUNCH_POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(15);

impl<P: Rights> Run<'_, P> {
    /// Asks EC2 to terminate the instance, then waits for its confirmation.
    pub(crate) async fn end_machine(&mut self) -> Result<Next, HandleError> {
        let Some(machine) = self.claim.value.machine().cloned() else { return Ok(Next::Done) };
        if let Some(delay) = self.shift_delay(&machine).await? {
            return Ok(Next::RequeueAfter(delay));
        }
        if !self.send_termination(&machine).await? {
            return Ok(Next::RequeueAfter(POLL_DELAY));
        }
        let now = self.ports.clock().now();
        let mut next = step(&self.claim.value, &Event::TerminationSent, now)?;
        next.note(INSTANCE_TERMINATING, ConditionStatus::True, INSTANCE_TERMINATING, "", now);
        next.instance_missing_since = None;
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        self.report.count("termination_sent");
        write_mirror(self.ports.cluster(), &self.claim.value).await;
        Ok(Next::RequeueAfter(POLL_DELAY))
    }

    /// Asks EC2 to terminate the instance; false if the account's limit is used up.
    async fn send_termination(&mut self, machine: &Machine) -> Result<bool, HandleError> {
        if !self.may_terminate().await {
            self.report.count("termination_postponed");
            return Ok(false);
        }
        let sent = self.ports.cloud().terminate(&machine.instance_id).await;
        if sent.is_err() {
            let zone_id = machine.labels.get(labels::ZONE_ID).map_or("", String::as_str);
            self.report.metric(metrics::InstanceTerminationFailures { zone: &machine.zone, zone_id });
        }
        sent?;
        Ok(true)
    }

    /// Whether EC2's limit allows to terminate one more instance now. Where the table is in trouble, nothing waits: an instance that
    /// nobody needs costs money, and a call that EC2 throttles is repeated.
    async fn may_terminate(&self) -> bool {
        let now = self.ports.clock().now();
        let full = Bucket::full(BUCKET_SIZE, BUCKET_RATE, now);
        self.ports.store().take_tokens(&BucketName(BUCKET.to_owned()), &full, 1, now).await.unwrap_or(true)
    }

    /// Checks whether the instance has terminated. Only then are the finalizers removed, the Node's first.
    pub(crate) async fn confirm(&mut self, node: Option<&str>) -> Result<Next, HandleError> {
        let Some(machine) = self.claim.value.machine().cloned() else { return Ok(Next::Done) };
        if let Some(delay) = self.shift_delay(&machine).await? {
            return Ok(Next::RequeueAfter(delay));
        }
        let instance = self.ports.cloud().instance(&machine.instance_id).await?;
        if instance.is_none() && may_be_too_young(&machine, self.ports.clock().now()) {
            self.send_termination(&machine).await?;
            return Ok(Next::RequeueAfter(POLL_DELAY));
        }
        let missing_for = missing_for(&self.claim.value, self.ports.clock().now());
        if instance.is_none() && Safeguard::EndSeenTwice.stops(missing_for.is_none_or(|span| span < CONFIRM_MISSING_FOR)) {
            if missing_for.is_none() {
                self.set_instance_missing_since(Some(self.ports.clock().now())).await?;
            }
            return Ok(Next::RequeueAfter(POLL_DELAY));
        }
        if instance.is_some() && self.claim.value.instance_missing_since.is_some() {
            self.set_instance_missing_since(None).await?;
        }
        if let Some(instance) = instance.as_ref().filter(|instance| instance.state != InstanceState::Terminated) {
            if instance.state == InstanceState::ShuttingDown {
                return Ok(Next::RequeueAfter(ending_delay(&self.claim.value, self.ports.clock().now())));
            }
            // The first request may have been lost.
            self.send_termination(&machine).await?;
            return Ok(Next::RequeueAfter(POLL_DELAY));
        }
        let now = self.ports.clock().now();
        if let Some(name) = node {
            self.let_node_go(name, &machine, now).await?;
        }
        let ended = advance(self.ports.store(), &self.claim, &Event::MachineGone, now).await?;
        let pool = self.claim.value.spec.node_pool.clone();
        self.claim = ended;
        let cause = instance.and_then(|instance| instance.state_reason).filter(|cause| !cause.is_requested());
        let because = cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        let message = format!("instance {} has terminated{because}", machine.instance_id);
        self.report.decide(now, DecisionKind::Terminated, format!("nodeclaim/{}", self.claim.value.key.name), message);
        self.report.count("terminated");
        let (nodepool, zone) = (pool.as_str(), machine.zone.as_str());
        self.report.metric(metrics::NodeClaimsTerminated { nodepool, capacity_type: &machine.capacity_type, zone });
        let asked_at = self.claim.value.deletion.as_ref().map(|deletion| deletion.at);
        emit_duration(&mut self.report, metrics::NodeClaimsTerminationDuration { nodepool }, asked_at, now);
        let sent_at = find(&self.claim.value.conditions, INSTANCE_TERMINATING).and_then(|sent| sent.last_transition_time);
        emit_duration(&mut self.report, metrics::NodeClaimsInstanceTerminationDuration { nodepool }, sent_at, now);
        if let Some(cause) = &cause {
            self.report_early_end(&machine, cause).await;
            self.store_stock_out(&machine, cause).await;
        }
        // The claim has ended in any case; `sweep` removes the finalizer of an object that could not be reached now.
        self.release_mirror().await
    }

    /// Records since when EC2 has not shown the instance, and says so in the condition; `None`: it shows it.
    async fn set_instance_missing_since(&mut self, since: Option<Timestamp>) -> Result<(), HandleError> {
        let mut next = Claim { instance_missing_since: since, ..self.claim.value.clone() };
        let message = since.map(|since| format!("EC2 has not shown the instance since {since}")).unwrap_or_default();
        next.note(INSTANCE_TERMINATING, ConditionStatus::True, INSTANCE_TERMINATING, &message, self.ports.clock().now());
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        Ok(())
    }

    /// Releases the Node of a machine that has ended. A policy may refuse it for long, and a webhook that does not work may fail it for as
    /// long: the claim ends nevertheless, or it would count as being disrupted for ever, and `sweep` tries it again.
    async fn let_node_go(&mut self, name: &str, machine: &Machine, now: Timestamp) -> Result<(), HandleError> {
        match self.release_node(name).await {
            Ok(Some(node)) => count_node(&mut self.report, &self.claim.value, machine, &node, now),
            Ok(None) => {}
            Err(HandleError::Cluster(error @ ClusterError::Invalid { .. })) => self.report_kept_node(name, machine, &error).await,
            Err(HandleError::Cluster(error @ (ClusterError::Unavailable { .. } | ClusterError::Throttled { .. })))
                if has_waited_for_node(&self.claim.value, now) =>
            {
                self.report_kept_node(name, machine, &error).await;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes our finalizer from the Node, if it is still this machine's. Returns the Node if it existed.
    async fn release_node(&self, name: &str) -> Result<Option<Node>, HandleError> {
        let claim = &self.claim.value;
        let cluster = &claim.key.cluster;
        let objects = self.ports.cluster().read(cluster, Scope::Drain, Some(name)).await?;
        let found = objects.nodes.iter().find(|node| node.metadata.name == name);
        let Some(node) = found.filter(|node| crate::is_ours(claim, node)) else { return Ok(None) };
        // Another machine's Node may have the name by now: it is deleted neither, nor let go while its machine runs.
        let uid = node.metadata.uid.clone();
        if !node.metadata.is_deleting() {
            self.ports.cluster().delete_node(cluster, name, &uid).await?;
        }
        let patch = NodePatch { uid, remove_finalizer: Some(labels::TERMINATION_FINALIZER.to_owned()), ..NodePatch::default() };
        match self.ports.cluster().patch_node(cluster, name, "", &patch).await {
            Ok(()) => Ok(Some(node.clone())),
            Err(ClusterError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases the mirror of an ended claim, unless it names an instance that the claim does not know: then the table is older
    /// than the cluster, and `sweep` restores the claim of that instance.
    pub(crate) async fn release_mirror(&self) -> Result<Next, HandleError> {
        let claim = &self.claim.value;
        if claim.annotations.get(labels::HANDED_OVER).is_some_and(|told| told == "true") {
            return Ok(Next::Done);
        }
        if Safeguard::ShownMachinesKept.stops(claim.instance().is_none())
            && let Some(next) = self.instance_of_mirror().await?
        {
            return Ok(next);
        }
        let (cluster, name) = (&claim.key.cluster, claim.key.name.as_str());
        self.ports.cluster().delete_mirror(cluster, name, claim.object_uid()).await?;
        self.ports.cluster().release_mirror(cluster, name, claim.object_uid()).await?;
        Ok(Next::Done)
    }

    /// What to do about the instance in the mirror of a claim that never had one; `None` if there is none.
    async fn instance_of_mirror(&self) -> Result<Option<Next>, HandleError> {
        let claim = &self.claim.value;
        let (cluster, name) = (&claim.key.cluster, claim.key.name.as_str());
        let Presence::Exists { uid, provider_id, .. } = self.ports.cluster().look_up(cluster, ObjectKind::NodeClaim, name).await? else {
            return Ok(None);
        };
        let wanted = claim.object_uid();
        let Ok(id) = ProviderId::new(provider_id).instance_id() else { return Ok(None) };
        if !wanted.is_empty() && wanted != uid {
            return Ok(None);
        }
        let ended_at = match &claim.phase {
            Phase::Failed { since, .. } | Phase::Gone { since, .. } => *since,
            _ => self.ports.clock().now(),
        };
        match self.ports.cloud().instance(&id).await? {
            Some(instance) if instance.is_alive() => {
                tracing::warn!(claim = %claim.key, instance = %id, "the NodeClaim names an instance that its claim does not know: not released");
                Ok(Some(Next::Done))
            }
            // The NodeClaim is only deleted after its instance has terminated.
            Some(instance) if instance.state == InstanceState::ShuttingDown => Ok(Some(Next::RequeueAfter(POLL_DELAY))),
            // EC2 may not show it yet.
            None if self.ports.clock().now().duration_since(ended_at) < LAUNCH_SETTLED_AFTER => {
                Ok(Some(Next::RequeueAfter(LAUNCH_POLL_INTERVAL)))
            }
            _ => Ok(None),
        }
    }

    /// A claim that is deleted while its launch is in progress: once the launch must have settled, its instance is drained, and
    /// if there is none the claim ends.
    pub(crate) async fn abandon_launch(&mut self, token: &str, since: Timestamp) -> Result<Next, HandleError> {
        let now = self.ports.clock().now();
        let asked_at = self.claim.value.deletion.as_ref().map_or(since, |deletion| deletion.at);
        if Safeguard::LaunchSettles.stops(now.duration_since(since.max(asked_at)) < LAUNCH_SETTLED_AFTER) {
            return Ok(Next::RequeueAfter(LAUNCH_POLL_INTERVAL));
        }
        for instance in self.ports.cloud().tagged(labels::TAG_LAUNCH, token).await? {
            let is_free = instance.is_alive() && !instance.tags.contains_key(labels::TAG_LET_GO);
            if is_free && !is_owned(self.ports.store(), &instance.id).await? && !self.was_let_go(&instance.id).await? {
                self.claim = advance(self.ports.store(), &self.claim, &Event::FleetAnswered(machine_to_terminate(&instance)), now).await?;
                self.report.count("late_machines");
                return Ok(Next::RequeueAfter(SHORT_DELAY));
            }
        }
        self.claim = advance(self.ports.store(), &self.claim, &Event::LaunchAbandoned, now).await?;
        self.report.count("abandoned");
        self.release_mirror().await
    }

    /// Whether a claim has ended and its instance was to go on: with an uninstallation it is the user's, or Karpenter's, before its tags
    /// say so.
    async fn was_let_go(&self, id: &InstanceId) -> Result<bool, HandleError> {
        let claims = self.ports.store().list(&self.claim.value.key.cluster).await?;
        let has = |claim: &Claim| !claim.is_live() && claim.instance() == Some(id);
        Ok(claims.iter().any(|claim| has(&claim.value)))
    }
}

/// Whether a Node that the API server fails to let go is waited for no more: the claim's deadline has passed, or its machine was sent away
/// long ago.
fn has_waited_for_node(claim: &Claim, now: Timestamp) -> bool {
    let sent_at = if let Phase::Terminating { since, .. } = &claim.phase { Some(*since) } else { None };
    is_overdue(claim, now) || sent_at.is_some_and(|sent_at| now.duration_since(sent_at) >= NODE_AWAITED_FOR)
}

/// When to look again at a machine that EC2 is ending.
fn ending_delay(claim: &Claim, now: Timestamp) -> SignedDuration {
    let Phase::Terminating { since, .. } = &claim.phase else { return POLL_DELAY };
    SignedDuration::from_secs(now.duration_since(*since).as_secs() / ENDING_SHARE).clamp(POLL_DELAY, ENDING_DELAY_MAX)
}

/// EC2 may not yet show an instance that it has just started: its absence proves nothing.
fn may_be_too_young(machine: &Machine, now: Timestamp) -> bool {
    Safeguard::YoungMachineAwaited.stops(now.duration_since(machine.launched_at) < LAUNCH_SETTLED_AFTER)
}

/// For how long EC2 has not shown the instance; `None` if it has shown it, or was not asked for too long.
fn missing_for(claim: &Claim, now: Timestamp) -> Option<SignedDuration> {
    let span = claim.instance_missing_since.map(|since| now.duration_since(since));
    span.filter(|span| *span <= MISSING_EXPIRES_AFTER)
}

/// Emits the duration since a known start.
fn emit_duration<M: GaugeMetric<Value = SignedDuration>>(report: &mut Report, metric: M, since: Option<Timestamp>, now: Timestamp) {
    if let Some(since) = since {
        report.gauge(metric, now.duration_since(since));
    }
}

fn count_node(report: &mut Report, claim: &Claim, machine: &Machine, node: &Node, now: Timestamp) {
    let nodepool = claim.spec.node_pool.as_str();
    report.metric(metrics::NodesTerminated { nodepool, zone: &machine.zone });
    emit_duration(report, metrics::NodesTerminationDuration { nodepool }, node.metadata.deletion_timestamp, now);
    emit_duration(report, metrics::NodesLifetimeDuration { nodepool }, node.metadata.creation_timestamp, now);
}

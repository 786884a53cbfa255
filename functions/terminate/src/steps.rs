//! One step of a node's drain.

use crate::drain::{self, Deadline, Drain};
use crate::hold::{self, Stage};
use crate::pace::{Moved, detachment_delay, draining_since, last_moved_at, next_delay};
use crate::refused::report_cluster_error;
use crate::{Next, Rights, Run};
use std::collections::BTreeMap;
use whittle_api::conditions::{DRAINED, VOLUMES_DETACHED, find};
use whittle_api::k8s::{Kind, Node, Pod, Taint};
use whittle_api::{ClusterObjects, ConditionStatus, conditions, labels};
use whittle_claims::{Bucket, BucketName, Claim, DecisionKind, DeletionReason, PodKey};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_model::pods::is_reschedulable;
use whittle_ports::{
    CONCURRENT_REQUESTS, ClaimStore, Clock, CloudError, ClusterError, ClusterEvent, ClusterReader, Evictions, HandleError, Instances,
    Involved, Mirrors, NodePatch, Nodes, Safeguard, Scope, StoreError, TokenBuckets, concurrently, metrics, publish_event, publish_events,
    save, write_mirror,
};
use whittle_units::{SignedDuration, Timestamp};

/// Evictions of one run: the API server has other clients, and the next run is a second away.
const EVICTIONS_PER_RUN: usize = 50;
/// The time after which a run begins no further eviction: an admission webhook may hang at each. Others are the first of the next run.
const TIME_FOR_EVICTIONS: SignedDuration = SignedDuration::from_secs(10);
/// Evictions of a cluster per second, and the burst: its nodes share them, however many are drained together.
const EVICTIONS_PER_SECOND: u32 = 100;
/// Events of one run about objects that cannot be read.
const UNREADABLE_MAX: usize = 5;
/// An eviction is begun only if this much time is left: most are answered much sooner.
const TIME_PER_EVICTION: SignedDuration = SignedDuration::from_secs(1);
/// The same for a deletion: it is tried as an eviction first, for two seconds.
const TIME_PER_DELETION: SignedDuration = SignedDuration::from_secs(3);
/// How long it is enough to know which machines of a cluster are starting: whoever waits for one asks every two seconds.
const CLAIMS_VALID_FOR: SignedDuration = SignedDuration::from_secs(1);
/// A kubelet that has been silent this long, of an instance that EC2 does not show, is taken for dead.
const KUBELET_DEAD_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// A pod may have been bound just before the taint took effect, so an empty node is watched for this long.
const DRAIN_AT_LEAST: SignedDuration = SignedDuration::from_secs(5);

impl<P: Rights> Run<'_, P> {
    pub(crate) async fn drain(&mut self, node: &Node, objects: &ClusterObjects) -> Result<Next, HandleError> {
        if self.is_machine_lost(node).await && !self.waits_for_shift().await? {
            return self.end_machine().await;
        }
        let mut takes_pods = false;
        match self.taint_and_delete_objects(node).await {
            Err(HandleError::Cluster(error @ ClusterError::Invalid { .. })) => {
                // A policy may never take the changes of a Node, and the next machine for its pods would fare no better.
                if takes_no_pods(&self.claim.value, node) {
                    self.report.count("never_registered");
                    return self.end_machine().await;
                }
                self.report_refused_changes(node, &error).await;
                if !is_overdue(&self.claim.value, self.ports.clock().now()) {
                    return Err(error.into());
                }
                // Past its deadline the machine goes. Pods that are bound to it meanwhile are deleted as well, and not waited for.
                report_cluster_error(&self.claim.value, &error, &mut self.report);
                takes_pods = true;
            }
            outcome => outcome?,
        }
        let now = self.ports.clock().now();
        let deadline = Deadline::of(&self.claim.value);
        self.begin_drain(&node.metadata.name, &objects.pods, now).await?;
        let mut plan = drain::plan(&objects.pods, &node.metadata.name, deadline, now);
        if takes_pods {
            plan.evict.clear(); // their successors could come back
            plan.waiting = drain::older_than_deadline(&objects.pods, &node.metadata.name, deadline, now);
        }
        if let Some(deadline) = deadline {
            self.announce_deadline(node, deadline).await;
        }
        if plan.waiting > 0 {
            return self.move_waiting(node, objects, &mut plan, now).await;
        }
        let watched = now.duration_since(draining_since(&self.claim.value).unwrap_or(now));
        if !conditions::is_true(&self.claim.value.conditions, DRAINED) && Safeguard::EmptyNodeWatched.stops(watched < DRAIN_AT_LEAST) {
            return Ok(Next::RequeueAfter(DRAIN_AT_LEAST - watched));
        }
        // Of a Node that could not be closed: nothing else tells their owners before the machine ends.
        self.delete_pods(&plan.force).await;
        if self.set_condition(DRAINED, ConditionStatus::True, DRAINED, now).await? {
            self.report.decide(now, DecisionKind::Drained, format!("node/{}", node.metadata.name), "all drainable pods are gone");
            self.report.metric(metrics::NodesDrained { nodepool: &self.claim.value.spec.node_pool });
            self.report.count("drained");
        }
        self.end_when_detached(node, &objects.pods, now).await
    }

    /// Says on Node and NodeClaim by when all pods are deleted.
    async fn announce_deadline(&self, node: &Node, deadline: Deadline) {
        let message = format!("All pods will be deleted by {}", deadline.at);
        for about in [Involved::object(node), Involved::claim(&self.claim.value)] {
            self.publish(ClusterEvent::warning(about, "TerminationGracePeriodExpiring", message.clone())).await;
        }
    }

    /// Moves the pods that are waited for: while they wait for a plan or a machine, only those that have to be deleted by now. Returns when
    /// to go on.
    async fn move_waiting(&mut self, node: &Node, objects: &ClusterObjects, plan: &mut Drain, now: Timestamp) -> Result<Next, HandleError> {
        if let Some(delay) = self.hold_delay(node, objects, now).await?.filter(|_| Safeguard::HeldForPlan.stops(true)) {
            self.report.count("held_for_replacement");
            plan.evict.clear();
            if plan.force.is_empty() {
                return Ok(Next::RequeueAfter(delay));
            }
        }
        let moved = self.move_pods(node, &objects.pods, plan).await?;
        if moved.any || plan.leaving.is_some() {
            self.moved_at = Some(now);
        }
        let still_for = now.duration_since(self.moved_at.unwrap_or_else(|| last_moved_at(&self.claim.value, now)));
        Ok(Next::RequeueAfter(next_delay(plan, moved, still_for, now)))
    }

    /// Records that the drain has begun, and counts the pods that have to move, once, where no command has counted them.
    async fn begin_drain(&mut self, node: &str, pods: &[Pod], now: Timestamp) -> Result<(), HandleError> {
        let has_begun = !self.set_condition(DRAINED, ConditionStatus::Unknown, "Draining", now).await?;
        let claim = &self.claim.value;
        let is_counted = |reason: &DeletionReason| matches!(reason, DeletionReason::Expired | DeletionReason::Unhealthy);
        let reason = claim.deletion.as_ref().map(|deletion| deletion.reason).filter(is_counted).and_then(DeletionReason::metric_reason);
        let Some(reason) = reason.filter(|_| !has_begun) else { return Ok(()) };
        let moving = pods.iter().filter(|pod| pod.spec.node_name == node && is_reschedulable(pod)).count();
        if moving == 0 {
            return Ok(());
        }
        let initiated = metrics::PodsDisruptionInitiated {
            reason,
            nodepool: &claim.spec.node_pool,
            capacity_type: claim.machine().map_or("", |machine| machine.capacity_type.as_str()),
            consolidation_policy: "",
            termination_mode: claim.termination_mode(),
        };
        self.report.metric_by(initiated, u64::try_from(moving).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Says on Node and NodeClaim that the drain does not begin because a policy refuses the changes of the Node.
    async fn report_refused_changes(&self, node: &Node, error: &ClusterError) {
        let message = format!("Failed to drain node, the API server refuses its changes: {error}");
        for about in [Involved::object(node), Involved::claim(&self.claim.value)] {
            self.publish(ClusterEvent::warning(about, "FailedDraining", message.clone())).await;
        }
    }

    /// Ends the machine once its volumes are detached, or its deadline has passed. Only now are attachments looked at: the first look of an
    /// execution environment lists those of the whole cluster (ADR 0049).
    async fn end_when_detached(&mut self, node: &Node, pods: &[Pod], now: Timestamp) -> Result<Next, HandleError> {
        let name = node.metadata.name.as_str();
        let volumes = self.ports.cluster().read(&self.claim.value.key.cluster, Scope::Volumes, Some(name)).await?;
        let attached = drain::attached(pods, &volumes, name, now);
        let overdue = is_overdue(&self.claim.value, now);
        if Safeguard::VolumesDetached.stops(!attached.is_empty()) && !overdue {
            self.set_condition(VOLUMES_DETACHED, ConditionStatus::Unknown, "AwaitingVolumeDetachment", now).await?;
            let waits = ClusterEvent::normal(Involved::object(node), "AwaitingVolumeDetachment", awaiting(&attached));
            self.publish(waits).await;
            return Ok(Next::RequeueAfter(detachment_delay(&self.claim.value, now)));
        }
        let (status, reason) = if attached.is_empty() {
            (ConditionStatus::True, VOLUMES_DETACHED)
        } else {
            (ConditionStatus::False, "TerminationGracePeriodElapsed")
        };
        self.set_condition(VOLUMES_DETACHED, status, reason, now).await?;
        self.end_machine().await
    }

    /// Pods that cannot be read are drained like all others, by the eviction API or their grace period; each gets an Event.
    pub(crate) async fn include_unreadable_pods(&mut self, objects: &mut ClusterObjects) {
        let pods: Vec<_> = objects.unreadable_pods().cloned().collect();
        objects.pods.extend(pods);
        for odd in objects.unreadable.iter().filter(|odd| [Pod::KIND, Node::KIND].contains(&odd.kind.as_str())).take(UNREADABLE_MAX) {
            self.report.count("unreadable");
            self.publish(ClusterEvent::unreadable(odd)).await;
        }
    }

    /// When to check again while the pods wait for a plan, or for a machine that is launching for them; see [`hold`].
    async fn hold_delay(&self, node: &Node, objects: &ClusterObjects, now: Timestamp) -> Result<Option<SignedDuration>, HandleError> {
        let claim = &self.claim.value;
        let Some(deletion) = claim.deletion.as_ref() else { return Ok(None) };
        match hold::stage(deletion, hold::stored_at(claim, deletion), &objects.pods, &node.metadata.name, now) {
            Stage::Drain => Ok(None),
            Stage::AwaitingSpotPlan(delay) => Ok(Some(delay)),
            stage @ (Stage::AwaitingPlan(delay) | Stage::AwaitingMachine(delay)) => {
                let is_awaited = matches!(stage, Stage::AwaitingMachine(_));
                let since = if is_awaited { hold::awaited_since(claim, deletion) } else { deletion.at };
                let coming = self.is_machine_coming(since, is_awaited).await?;
                Ok((coming == is_awaited).then_some(delay))
            }
        }
    }

    /// Whether a machine that was planned since then is starting. What was read a moment ago suffices, but not for the end of the wait for
    /// one that `is_awaited`: it may have been planned since.
    async fn is_machine_coming(&self, since: Timestamp, is_awaited: bool) -> Result<bool, HandleError> {
        let now = self.ports.clock().now();
        let is_new = |planned: Option<Timestamp>| planned.is_some_and(|at| since <= at);
        let coming = is_new(self.read_last_planned(now.checked_sub(CLAIMS_VALID_FOR).unwrap_or(now)).await?);
        if coming || !is_awaited { Ok(coming) } else { Ok(is_new(self.read_last_planned(now).await?)) }
    }

    /// When the last of the cluster's starting machines was planned, by its claims as they were read at `read_since` or later.
    async fn read_last_planned(&self, read_since: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let (cluster, store) = (&self.claim.value.key.cluster, self.ports.store());
        let read = async {
            let claims = store.list(cluster).await?;
            Ok::<_, StoreError>(hold::last_planned(claims.iter().map(|stored| &stored.value)))
        };
        self.last_planned.get_or_read(cluster, read_since, self.ports.clock(), read).await
    }

    /// The response has pods of a Node that it lacks. The pod garbage collector deletes pods of deleted Nodes, so such a response
    /// proves nothing: only the deadline, or an instance that EC2 reports as not running, confirms it.
    pub(crate) async fn pods_contradict(&self, node: &str, objects: &ClusterObjects) -> bool {
        let now = self.ports.clock().now();
        let deadline = Deadline::of(&self.claim.value);
        if drain::plan(&objects.pods, node, deadline, now).waiting == 0 || deadline.is_some_and(|deadline| now > deadline.at) {
            return false;
        }
        let Some(machine) = self.claim.value.machine() else { return false };
        match self.ports.cloud().instance(&machine.instance_id).await {
            // An instance that EC2 does not show has not necessarily terminated.
            Ok(instance) => Safeguard::PodsContradict.stops(instance.is_none_or(|instance| instance.is_alive())),
            Err(error) => runs_without_answer(&error),
        }
    }

    /// The kubelet is silent, and EC2 reports that the instance does not run or has not shown it for [`KUBELET_DEAD_AFTER`]: there is
    /// nothing left to drain. Either one alone proves nothing.
    async fn is_machine_lost(&self, node: &Node) -> bool {
        let ready_condition = find(&node.status.conditions, conditions::READY);
        let ready = ready_condition.is_some_and(|ready| ready.status == ConditionStatus::True);
        let silent_since = ready_condition.map_or(node.metadata.creation_timestamp, |ready| ready.last_transition_time);
        let Some(machine) = self.claim.value.machine().filter(|_| Safeguard::KubeletAsked.permits(!ready)) else { return false };
        let runs = |instance: Instance| matches!(instance.state, InstanceState::Pending | InstanceState::Running);
        match self.ports.cloud().instance(&machine.instance_id).await {
            Ok(Some(instance)) => !Safeguard::Ec2Asked.stops(runs(instance)),
            // EC2 shows terminated instances for an hour: one that it does not show at all may only be missing from this
            // response.
            Ok(None) => !Safeguard::Ec2Asked
                .stops(silent_since.is_none_or(|since| self.ports.clock().now().duration_since(since) < KUBELET_DEAD_AFTER)),
            Err(error) => !runs_without_answer(&error),
        }
    }

    /// Whether the machine must not be terminated yet, for a zonal shift: then its Node is drained first, even if it seems to be lost.
    async fn waits_for_shift(&self) -> Result<bool, HandleError> {
        match self.claim.value.machine() {
            Some(machine) => self.is_held_by_shift(machine).await,
            None => Ok(false),
        }
    }

    /// Taints the Node, and deletes Node and mirror: each part only if it is missing.
    async fn taint_and_delete_objects(&self, node: &Node) -> Result<(), HandleError> {
        let claim = &self.claim.value;
        let (cluster, meta) = (&claim.key.cluster, &node.metadata);
        let taint = Taint::disrupted();
        let other_effects = node.spec.taints.iter().filter(|there| there.key == taint.key && !there.same(&taint)).cloned().collect();
        let guarded = meta.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER);
        let excluded = meta.label(labels::EXCLUDE_BALANCERS) == Some("karpenter");
        let open = Safeguard::ClosedBeforeDrain.stops(!node.spec.taints.iter().any(|there| there.same(&taint)));
        let patch = NodePatch {
            add_taints: if open { vec![taint] } else { Vec::new() },
            remove_taints: other_effects,
            labels: if excluded {
                BTreeMap::new()
            } else {
                BTreeMap::from([(labels::EXCLUDE_BALANCERS.to_owned(), "karpenter".to_owned())])
            },
            // Without the finalizer the Node would vanish with its pods when it is deleted below.
            add_finalizer: (!guarded && !meta.is_deleting()).then(|| labels::TERMINATION_FINALIZER.to_owned()),
            ..NodePatch::default()
        };
        if patch != NodePatch::default() {
            self.ports.cluster().patch_node(cluster, &meta.name, &meta.resource_version, &patch).await?;
        }
        if !meta.is_deleting() {
            self.ports.cluster().delete_node(cluster, &meta.name, &meta.uid).await?;
        }
        // Of a Node that a user deleted, the NodeClaim is not deleted yet when its drain begins.
        if !meta.is_deleting() || find(&claim.conditions, DRAINED).is_none() {
            self.ports.cluster().delete_mirror(cluster, claim.key.name.as_str(), claim.object_uid()).await?;
        }
        Ok(())
    }

    /// Evicts and deletes pods. A failed call blocks no other pod: it is retried by the next run.
    async fn move_pods(&mut self, node: &Node, pods: &[Pod], plan: &Drain) -> Result<Moved, HandleError> {
        let (deleted, mut failed) = self.delete_pods(&plan.force).await;
        let mut moved = Moved { any: deleted > 0, are_more_allowed_soon: false };
        if !has_time(self.ports.clock()) {
            return Ok(moved);
        }
        let cluster = &self.claim.value.key.cluster;
        let reason = self.eviction_reason();
        let wanted = plan.evict.len().min(EVICTIONS_PER_RUN);
        let allowed = self.may_evict(wanted).await?;
        if allowed < wanted {
            // There is more to do than the rate limit allows: no reason to run less often.
            moved.are_more_allowed_soon = true;
            self.report.count("evictions_shared");
        }
        let mut held = Vec::new();
        let begun = self.ports.clock().now();
        // A pod that has to be deleted by now is deleted by the next run.
        let is_late = |now: Timestamp| now.duration_since(begun) >= TIME_FOR_EVICTIONS || plan.next_force_at.is_some_and(|at| at < now);
        for pod in drain::in_turn(&plan.evict, begun).take(allowed) {
            if is_late(self.ports.clock().now()) || !has_time(self.ports.clock()) {
                break;
            }
            match self.ports.cluster().evict(cluster, pod).await {
                Ok(()) => {
                    moved.any = true;
                    self.report.count("evicted");
                    self.report.metric(metrics::PodsEvictionRequests { code: "200" });
                    self.report.metric(metrics::PodsDrained { reason });
                    self.publish(ClusterEvent::normal(Involved::pod(pod), "Evicted", format!("Evicted pod: {reason}"))).await;
                }
                Err(ClusterError::EvictionForbidden { message, .. }) => {
                    self.report.count("held_by_budget");
                    self.report.metric(metrics::PodsEvictionRequests { code: drain::code_of_refusal(&message) });
                    held.push(drain::held_by_budget(pods, pod, &message));
                }
                Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => {}
                // The others have to wait as well.
                Err(ClusterError::Throttled { .. }) => break,
                // The API server is unavailable for all other calls, too.
                Err(error @ (ClusterError::Unavailable { .. } | ClusterError::NoAccess { .. })) => return Err(error.into()),
                Err(error) => failed.push(error),
            }
        }
        // The same pod in each run's Event, whichever is tried first.
        held.sort();
        self.report_kept(node, plan, held.into_iter().map(|(_, cause)| cause).collect(), &failed).await;
        Ok(moved)
    }

    /// Deletes pods that would not end in time otherwise, many at once: each loses of its grace period what it waits for others. Returns
    /// how many were deleted, and the calls that failed.
    async fn delete_pods(&mut self, force: &[(PodKey, i64)]) -> (usize, Vec<ClusterError>) {
        let (ports, cluster, reason) = (self.ports, self.claim.value.key.cluster.clone(), self.eviction_reason());
        let (mut events, mut failed) = (Vec::new(), Vec::new());
        for some in force.chunks(CONCURRENT_REQUESTS) {
            if !ports.clock().has_time_for(TIME_PER_DELETION) {
                break;
            }
            let answers = concurrently(some.iter().map(|(pod, grace)| ports.cluster().delete_pod(&cluster, pod, *grace))).await;
            for ((pod, grace), answer) in some.iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        self.report.count("forced");
                        self.report.metric(metrics::PodsDrained { reason });
                        events.push(forced(pod, *grace));
                    }
                    Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => {}
                    Err(error) => failed.push(error),
                }
            }
        }
        publish_events(ports, &cluster, &events, &mut self.report).await;
        (events.len(), failed)
    }

    /// Why pods are evicted, as users are told.
    fn eviction_reason(&self) -> &'static str {
        self.claim.value.deletion.as_ref().map_or("", |deletion| deletion.reason.eviction_reason())
    }

    /// Says what keeps pods on the node: budgets and failed calls come before annotations, which are mostly known to their owners.
    async fn report_kept(&mut self, node: &Node, plan: &Drain, mut held: Vec<String>, failed: &[ClusterError]) {
        if let Some(error) = failed.first() {
            tracing::warn!(%error, failed = failed.len(), "pods could not be evicted or deleted");
            held.extend(failed.iter().map(ToString::to_string));
            self.report.count("evictions_failed");
        }
        held.extend(drain::kept_by_owners(&plan.protected));
        let cause = held.into_iter().next().unwrap_or_else(|| format!("{} pods are waiting to be evicted", plan.waiting));
        let failed = ClusterEvent::warning(Involved::object(node), "FailedDraining", format!("Failed to drain node, {cause}"));
        self.publish(failed).await;
    }

    /// How many pods this run may evict: all, or a share if other nodes of the cluster are drained too.
    async fn may_evict(&self, wanted: usize) -> Result<usize, HandleError> {
        let cluster = &self.claim.value.key.cluster;
        if !Safeguard::EvictionsShared.stops(true) {
            return Ok(wanted);
        }
        let name = BucketName(format!("Evictions/{cluster}"));
        let mut count = u32::try_from(wanted).unwrap_or(u32::MAX);
        while count > 0 {
            let now = self.ports.clock().now();
            let full = Bucket::full(EVICTIONS_PER_SECOND, EVICTIONS_PER_SECOND, now);
            match self.ports.store().take_tokens(&name, &full, count, now).await {
                Ok(true) => break,
                Ok(false) => count /= 4,
                // Lost the race for tokens.
                Err(StoreError::Conflict { .. } | StoreError::Throttled { .. }) => count = 0,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(usize::try_from(count).unwrap_or(wanted))
    }

    /// Stores a condition on the claim if it changes anything; never resets `Drained`.
    async fn set_condition(&mut self, type_: &str, status: ConditionStatus, reason: &str, now: Timestamp) -> Result<bool, HandleError> {
        if status == ConditionStatus::Unknown && conditions::is_true(&self.claim.value.conditions, type_) {
            return Ok(false);
        }
        let mut next = self.claim.value.clone();
        if !next.note(type_, status, reason, "", now) {
            return Ok(false);
        }
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        write_mirror(self.ports.cluster(), &self.claim.value).await;
        Ok(true)
    }

    /// Publishes an Event. Best effort.
    async fn publish(&self, event: ClusterEvent) {
        let cluster = &self.claim.value.key.cluster;
        publish_event(self.ports.cluster(), cluster, &event).await;
    }
}

/// The Event of a pod that is deleted with this grace period.
fn forced(pod: &PodKey, grace: i64) -> ClusterEvent {
    let message = format!("Deleted the pod to meet the termination deadline of its node, with a grace period of {grace} s");
    ClusterEvent::normal(Involved::pod(pod), "Disrupted", message)
}

/// Whether a Node has never registered, and so keeps all pods away but those that tolerate everything. The Node as it was read may be older
/// than the claim.
fn takes_no_pods(claim: &Claim, node: &Node) -> bool {
    let registered = conditions::is_true(&claim.conditions, conditions::REGISTERED) || node.metadata.label(labels::REGISTERED).is_some();
    !registered && node.spec.taints.iter().any(|taint| taint.key == labels::UNREGISTERED_TAINT)
}

/// Whether the deadline that the user set has passed.
pub(crate) fn is_overdue(claim: &Claim, now: Timestamp) -> bool {
    claim.deletion.as_ref().and_then(|deletion| deletion.deadline).is_some_and(|deadline| now > deadline)
}

/// An instance without a response from EC2 counts as running: its drain continues, as in an outage.
fn runs_without_answer(error: &CloudError) -> bool {
    tracing::warn!(%error, "EC2 did not report whether an instance runs");
    true
}

/// The next call is begun only if it can complete within the invocation.
fn has_time(clock: &impl Clock) -> bool {
    clock.has_time_for(TIME_PER_EVICTION)
}

pub(crate) fn awaiting(attached: &[String]) -> String {
    format!("Awaiting deletion of VolumeAttachments {}", drain::listed(attached))
}

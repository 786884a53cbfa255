//! One pass over a node that is being emptied.

use crate::drain::{self, Drain};
use crate::hold::{self, Stage};
use crate::{LATER, Next, SOON};
use crate::{Rights, Run};
use std::collections::BTreeMap;
use whittle_api::conditions::{DRAINED, VOLUMES_DETACHED, find};
use whittle_api::k8s::{Kind, Node, Pod};
use whittle_api::{ClusterObjects, ConditionStatus, conditions, labels};
use whittle_claims::{Bucket, BucketName, Claim, DecisionKind, mirror};
use whittle_ec2::instance::{Instance, InstanceState};
use whittle_ports::{
    ClaimStore, Clock, CloudError, ClusterError, ClusterEvent, Evictions, HandleError, Instances, Involved, Mirrors, NodePatch, Nodes,
    RegionStore, Safeguard, StatusWriter, StoreError, metrics, save,
};
use whittle_units::{SignedDuration, Timestamp};

/// Evictions of one run: an API server has other users, and the next run is a second away.
const EVICTIONS_PER_RUN: usize = 50;
/// Evictions of a cluster in a second, and at once after a pause: its nodes share them, however many are drained together.
const EVICTIONS_PER_SECOND: u32 = 100;
/// Events of one look about objects that cannot be read.
const UNREADABLE_MAX: usize = 5;
/// What an eviction takes at most when the API server answers at all.
const ONE_CALL: SignedDuration = SignedDuration::from_secs(1);
/// A kubelet that was silent for so long, of a machine that EC2 does not show, will not speak again.
const LONG_SILENT: SignedDuration = SignedDuration::from_mins(5);
/// A pod may have been bound just before the taint was seen, so that an empty node is watched for this long.
const DRAIN_AT_LEAST: SignedDuration = SignedDuration::from_secs(5);

impl<P: Rights> Run<P> {
    pub(crate) async fn drain(&mut self, node: &Node, objects: &ClusterObjects) -> Result<Next, HandleError> {
        if self.machine_is_lost(node).await {
            return self.end_machine().await;
        }
        self.close_to_pods(node).await?;
        let now = self.ports.clock().now();
        let deadline = self.claim.value.deletion.as_ref().and_then(|deletion| deletion.deadline);
        self.note(DRAINED, ConditionStatus::Unknown, "Draining", now).await?;
        let mut plan = drain::plan(&objects.pods, &node.metadata.name, deadline, now);
        if let Some(deadline) = deadline {
            let message = format!("All pods will be deleted by {deadline}");
            for about in [Involved::object(node), Involved::claim(&self.claim.value)] {
                let expiring = ClusterEvent::warning(about, "TerminationGracePeriodExpiring", message.clone());
                self.publish(expiring).await;
            }
        }
        if plan.waiting > 0 {
            if let Some(delay) = self.held(node, objects, now).await?.filter(|_| Safeguard::HeldForPlan.stops(true)) {
                self.report.count("held_for_replacement");
                plan.evict.clear();
                if plan.force.is_empty() {
                    return Ok(Next::Again(delay));
                }
            }
            let moved = self.move_pods(node, &plan).await?;
            return Ok(Next::Again(until_next(&plan, moved, now)));
        }
        let since = find(&self.claim.value.conditions, DRAINED).and_then(|drained| drained.last_transition_time).unwrap_or(now);
        let watched = now.duration_since(since);
        if !conditions::is_true(&self.claim.value.conditions, DRAINED) && Safeguard::EmptyNodeWatched.stops(watched < DRAIN_AT_LEAST) {
            return Ok(Next::Again(DRAIN_AT_LEAST - watched));
        }
        if self.note(DRAINED, ConditionStatus::True, DRAINED, now).await? {
            self.report.decide(now, DecisionKind::Drained, format!("node/{}", node.metadata.name), "no pod is left that has to go");
            self.report.metric(metrics::NodesDrained { nodepool: &self.claim.value.spec.node_pool });
            self.report.count("drained");
        }
        let attached = drain::attached(objects, &node.metadata.name, now);
        let overdue = is_overdue(&self.claim.value, now);
        if Safeguard::VolumesDetached.stops(!attached.is_empty()) && !overdue {
            self.note(VOLUMES_DETACHED, ConditionStatus::Unknown, "AwaitingVolumeDetachment", now).await?;
            let waits = ClusterEvent::normal(Involved::object(node), "AwaitingVolumeDetachment", awaiting(&attached));
            self.publish(waits).await;
            return Ok(Next::Again(SOON));
        }
        let (status, reason) = if attached.is_empty() {
            (ConditionStatus::True, VOLUMES_DETACHED)
        } else {
            (ConditionStatus::False, "TerminationGracePeriodElapsed")
        };
        self.note(VOLUMES_DETACHED, status, reason, now).await?;
        self.end_machine().await
    }

    /// Pods that cannot be read leave like all others, by the eviction API or their grace period; they say so themselves.
    pub(crate) async fn take_in_unreadable(&mut self, objects: &mut ClusterObjects) {
        let pods: Vec<_> = objects.unreadable_pods().cloned().collect();
        objects.pods.extend(pods);
        for odd in objects.unreadable.iter().filter(|odd| [Pod::KIND, Node::KIND].contains(&odd.kind.as_str())).take(UNREADABLE_MAX) {
            self.report.count("unreadable");
            self.publish(ClusterEvent::unreadable(odd)).await;
        }
    }

    /// When to look again while the pods wait for a plan, or for a machine that is coming for them; see [`hold`].
    async fn held(&self, node: &Node, objects: &ClusterObjects, now: Timestamp) -> Result<Option<SignedDuration>, HandleError> {
        let claim = &self.claim.value;
        let Some(deletion) = claim.deletion.as_ref() else { return Ok(None) };
        match hold::stage(deletion, &objects.pods, &node.metadata.name, now) {
            Stage::Move => Ok(None),
            Stage::Planning(delay) => Ok(Some(delay)),
            stage @ (Stage::Asking(delay) | Stage::Launching(delay)) => {
                let claims = self.ports.store().list(&claim.key.cluster).await?;
                let coming = claims.iter().any(|other| hold::is_awaited(&other.value, deletion.at));
                Ok((coming == matches!(stage, Stage::Launching(_))).then_some(delay))
            }
        }
    }

    /// The answer has pods of a Node that it does not have. The collector takes pods away whose Node is gone, so such an answer
    /// proves nothing: only the deadline, or a machine of which EC2 says that it does not run, makes it true.
    pub(crate) async fn pods_contradict(&self, node: &str, objects: &ClusterObjects) -> bool {
        let now = self.ports.clock().now();
        let deadline = self.claim.value.deletion.as_ref().and_then(|deletion| deletion.deadline);
        if drain::plan(&objects.pods, node, deadline, now).waiting == 0 || deadline.is_some_and(|deadline| now > deadline) {
            return false;
        }
        let Some(machine) = self.claim.value.machine() else { return false };
        match self.ports.cloud().instance(&machine.instance_id).await {
            // One that EC2 does not show has not ended for that.
            Ok(instance) => Safeguard::PodsContradict.stops(instance.is_none_or(|instance| instance.is_alive())),
            Err(error) => unanswered(&error),
        }
    }

    /// The kubelet is silent, and EC2 says that the machine does not run or has not shown it for [`LONG_SILENT`]: there is nothing left
    /// to drain. One of the two alone proves nothing.
    async fn machine_is_lost(&self, node: &Node) -> bool {
        let said = find(&node.status.conditions, conditions::READY);
        let ready = said.is_some_and(|ready| ready.status == ConditionStatus::True);
        let silent_since = said.map_or(node.metadata.creation_timestamp, |said| said.last_transition_time);
        let Some(machine) = self.claim.value.machine().filter(|_| Safeguard::KubeletAsked.permits(!ready)) else { return false };
        let runs = |instance: Instance| matches!(instance.state, InstanceState::Pending | InstanceState::Running);
        match self.ports.cloud().instance(&machine.instance_id).await {
            Ok(Some(instance)) => !Safeguard::Ec2Asked.stops(runs(instance)),
            // EC2 shows for an hour what has ended: what it does not show at all it may only not show now.
            Ok(None) => {
                !Safeguard::Ec2Asked.stops(silent_since.is_none_or(|since| self.ports.clock().now().duration_since(since) < LONG_SILENT))
            }
            Err(error) => !unanswered(&error),
        }
    }

    /// Node and mirror show that they are going, and no new pod comes: each part only if it is missing.
    async fn close_to_pods(&self, node: &Node) -> Result<(), HandleError> {
        let claim = &self.claim.value;
        let (cluster, meta) = (&claim.key.cluster, &node.metadata);
        let taint = drain::disrupted();
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
            // A Node without the finalizer would vanish with its pods when it is deleted below.
            add_finalizer: (!guarded && !meta.is_deleting()).then(|| labels::TERMINATION_FINALIZER.to_owned()),
            ..NodePatch::default()
        };
        if patch != NodePatch::default() {
            self.ports.cluster().patch_node(cluster, &meta.name, &meta.resource_version, &patch).await?;
        }
        if !meta.is_deleting() {
            self.ports.cluster().delete_node(cluster, &meta.name).await?;
            self.ports.cluster().delete_mirror(cluster, claim.key.name.as_str(), claim.object_uid()).await?;
        }
        Ok(())
    }

    /// Evicts and forces. A pod whose call fails keeps no other from moving: it is tried again with the next look. Returns
    /// whether any pod moved.
    async fn move_pods(&mut self, node: &Node, plan: &Drain) -> Result<bool, HandleError> {
        let cluster = &self.claim.value.key.cluster;
        let reason = self.claim.value.deletion.as_ref().map_or("", |deletion| deletion.reason.eviction_reason());
        let mut moved = false;
        let mut failed = Vec::new();
        for (pod, grace) in &plan.force {
            if !has_time(self.ports.clock()) {
                return Ok(moved);
            }
            match self.ports.cluster().delete_pod(cluster, pod, *grace).await {
                Ok(()) => {
                    moved = true;
                    self.report.count("forced");
                    self.report.metric(metrics::PodsDrained { reason });
                    let message = format!("Deleted the pod to meet the termination deadline of its node, {grace} s granted");
                    self.publish(ClusterEvent::normal(Involved::pod(pod), "Disrupted", message)).await;
                }
                Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => {}
                Err(error) => failed.push(error),
            }
        }
        let wanted = plan.evict.len().min(EVICTIONS_PER_RUN);
        let allowed = self.may_evict(wanted).await?;
        if allowed < wanted {
            // There is more to do than the bucket lets: not a reason to look less often.
            moved = true;
            self.report.count("evictions_shared");
        }
        let mut held = Vec::new();
        for pod in plan.evict.iter().take(allowed) {
            if !has_time(self.ports.clock()) {
                break;
            }
            match self.ports.cluster().evict(cluster, pod).await {
                Ok(()) => {
                    moved = true;
                    self.report.count("evicted");
                    self.report.metric(metrics::PodsEvictionRequests { code: "200" });
                    self.report.metric(metrics::PodsDrained { reason });
                    self.publish(ClusterEvent::normal(Involved::pod(pod), "Evicted", format!("Evicted pod: {reason}"))).await;
                }
                Err(ClusterError::EvictionForbidden { message, .. }) => {
                    self.report.count("held_by_budget");
                    self.report.metric(metrics::PodsEvictionRequests { code: "429" });
                    held.push(format!("evicting pod {}/{} violates a PDB ({message})", pod.namespace, pod.name));
                }
                Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => {}
                // The rest has to wait as well.
                Err(ClusterError::Throttled { .. }) => break,
                // So is everything else when nobody answers.
                Err(error @ (ClusterError::Unavailable { .. } | ClusterError::NoAccess { .. })) => return Err(error.into()),
                Err(error) => failed.push(error),
            }
        }
        if let Some(error) = failed.first() {
            tracing::warn!(%error, failed = failed.len(), "pods that could not be moved");
            held.extend(failed.iter().map(ToString::to_string));
            self.report.count("evictions_failed");
        }
        let cause = held.first().cloned().unwrap_or_else(|| format!("{} pods are waiting to be evicted", plan.waiting));
        let failed = ClusterEvent::warning(Involved::object(node), "FailedDraining", format!("Failed to drain node, {cause}"));
        self.publish(failed).await;
        Ok(moved)
    }

    /// How many pods this run may evict: all, or a part where other nodes of the cluster are drained too.
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
                // Others took theirs at the same moment.
                Err(StoreError::Conflict { .. } | StoreError::Throttled { .. }) => count = 0,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(usize::try_from(count).unwrap_or(wanted))
    }

    /// Stores a condition on the claim if it changes anything; never turns `Drained` back.
    async fn note(&mut self, type_: &str, status: ConditionStatus, reason: &str, now: Timestamp) -> Result<bool, HandleError> {
        if status == ConditionStatus::Unknown && conditions::is_true(&self.claim.value.conditions, type_) {
            return Ok(false);
        }
        let mut next = self.claim.value.clone();
        if !next.note(type_, status, reason, "", now) {
            return Ok(false);
        }
        self.claim = save(self.ports.store(), &self.claim, next).await?;
        // The mirror is for people; the claim is the truth.
        let _ = self.ports.cluster().apply_mirror(&self.claim.value.key.cluster, &mirror(&self.claim.value)).await;
        Ok(true)
    }

    /// Tells it; that nobody can be told stops nothing.
    async fn publish(&self, event: ClusterEvent) {
        let cluster = &self.claim.value.key.cluster;
        let _ = self.ports.cluster().publish(cluster, &event).await;
    }
}

/// Whether the deadline that the user set has passed.
pub(crate) fn is_overdue(claim: &Claim, now: Timestamp) -> bool {
    claim.deletion.as_ref().and_then(|deletion| deletion.deadline).is_some_and(|deadline| now > deadline)
}

/// A machine that EC2 said nothing about counts as running: its drain goes on without the answer, as it does in an outage.
fn unanswered(error: &CloudError) -> bool {
    tracing::warn!(%error, "EC2 did not say whether a machine runs");
    true
}

/// The next call is begun only if it can end within the invocation.
fn has_time(clock: &impl Clock) -> bool {
    clock.deadline().has(clock.now(), ONE_CALL)
}

/// A second while pods move; less often while all that are left are held, but never past the moment to force one.
fn until_next(plan: &Drain, moved: bool, now: Timestamp) -> SignedDuration {
    let leaving = plan.waiting > plan.evict.len() + plan.force.len();
    let delay = if moved || leaving { SOON } else { LATER };
    let to_force = plan.next_force_at.map(|at| (at.duration_since(now) + SOON).max(SOON));
    to_force.map_or(delay, |at| at.min(delay))
}

pub(crate) fn awaiting(attached: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = attached.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match attached.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        Some(more) => format!("Awaiting deletion of VolumeAttachments {shown} and {more} other(s)"),
        None => format!("Awaiting deletion of VolumeAttachments {shown}"),
    }
}

//! Handles interruption notices of EC2: records them, replans the pods, and sends the claim to `terminate`.
//!
//! The only message whose content matters: it is stored on the claim before anything else happens. Unknown instances, repeats and
//! late notices are harmless.

#[cfg(test)]
mod tests;

use whittle_api::karpenter::NodePool;
use whittle_api::{ClusterObjects, labels};
use whittle_claims::{Claim, DecisionKind, Deletion, DeletionReason, Doorbell, Event, OfferingKey, Phase, StockOut, Stored};
use whittle_ec2::interruption::{self, InterruptionKind};
use whittle_ports::{
    ClaimStore, Clock, ClusterError, ClusterEvent, ClusterReader, DecisionLog, Disposition, HandleError, Involved, Mirrors, Once, Queues,
    RegionStore, Report, Safeguard, Scope, Settings, StatusWriter, WriteError, advance, concurrently, metrics, publish_event,
    record_decisions, rights, write_mirror,
};
use whittle_units::{InstanceId, SignedDuration, Timestamp};

rights! {
    /// What `interrupt` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + RegionStore + DecisionLog,
    Cluster: ClusterReader + Mirrors + StatusWriter,
    Queues: Queues,
}

/// How often a notice is handled again because its claim was written concurrently, which is rare. After that the notice is retried.
const ATTEMPTS_MAX: u32 = 5;
/// How long a notice of an unknown instance, or one that need not be acted on, is tried again: by then a call whose response was lost has
/// been repeated, and Lambda, whose last repetition is later, does not move it to the dead-letter queue.
const REDELIVER_FOR: SignedDuration = SignedDuration::from_secs(90);

/// One run for a notice: its ports and settings, and what the notice says.
struct Run<'a, P> {
    ports: P,
    settings: &'a Settings,
    /// Whether any claim waits for its instance. Notices of one try share what was read: all of them were sent before it began,
    /// and a claim is stored as launching before its instance starts.
    has_launches: &'a Once<bool>,
    kind: InterruptionKind,
    sent_at: Option<Timestamp>,
}

/// Handles one event of EventBridge. Text that is not an event is an `Unreadable` error, to be dropped. `has_launches` is that of the try.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, has_launches: &Once<bool>, body: &str) -> Result<Report, HandleError> {
    let mut report = Report::default();
    let notice = interruption::parse(body)
        .map_err(|error| HandleError::Unreadable { what: "the interruption notice".to_owned(), reason: error.to_string() })?;
    let Some(notice) = notice else { return Ok(report) };
    report.metric(metrics::InterruptionMessages { message_type: notice.kind.as_str() });
    if let Some(sent_at) = notice.time {
        report.observe(metrics::InterruptionQueueDuration, ports.clock().now().duration_since(sent_at).max(SignedDuration::ZERO));
    }
    let run = Run { ports, settings, has_launches, kind: notice.kind, sent_at: notice.time };
    let mut failure = None;
    for instance in notice.instances.iter().filter(|instance| !instance.as_str().is_empty()) {
        match run.handle_instance(instance, &mut report).await {
            Ok(()) => {}
            Err(error) if run.is_left_to_others(&error) => {
                tracing::warn!(%instance, %error, "a notice is dropped: what it tells of is seen otherwise, too");
                report.count("left_to_others");
            }
            // A failed instance blocks no other of the same notice; the notice is tried again.
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    if failure.is_none() {
        report.metric(metrics::InterruptionMessagesDeleted);
    }
    failure.map_or(Ok(report), Err)
}

impl<P: Rights> Run<'_, P> {
    /// Handles a notice for one instance, by the newest state of its claim: EC2 does not repeat it, so a concurrent writer of the
    /// claim must not cause its loss.
    async fn handle_instance(&self, instance: &InstanceId, report: &mut Report) -> Result<(), HandleError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(claim) = self.find_claim(instance).await? else {
                report.count("unknown_instances");
                return Ok(());
            };
            let named = claim.value.machine().is_some_and(|machine| machine.instance_id == *instance);
            if !named {
                report.count("late");
                return Ok(());
            }
            match self.apply(&claim, report).await {
                Err(error) if error.is_conflict() && Safeguard::NoticeTriedAgain.stops(true) => report.count("contended"),
                outcome => return outcome,
            }
        }
        Err(HandleError::Contended { what: format!("the claim of {instance}"), tries: ATTEMPTS_MAX })
    }

    /// The claim of an instance, `None` for one that is not ours. `NotYet` while a launch may have started it.
    async fn find_claim(&self, instance: &InstanceId) -> Result<Option<Stored<Claim>>, HandleError> {
        let store = self.ports.store();
        let found = store.by_instance(instance).await?;
        let waits = is_told_once(self.kind) && !self.settings.is_shadow() && is_redelivered(self.sent_at, self.ports.clock().now());
        if found.is_some() || !waits {
            return Ok(found);
        }
        if self.has_launches.get_or_read(self.find_launches()).await? {
            return Err(HandleError::NotYet { what: format!("the claim of {instance}") });
        }
        // Its launch may have been answered in between: then its claim was not found above, and is not launching any more.
        Ok(store.by_instance(instance).await?)
    }

    /// Whether a failure that may pass does not matter, because others tell what the notice does, and it has been delivered again for long
    /// enough. While the table does not answer nobody knows whose instance it is, and the dead-letter queue would fill with other people's.
    /// While a cluster does not answer, nothing could be drained there for a recommendation, whose dead letter raises an alarm that stays.
    fn is_left_to_others(&self, error: &HandleError) -> bool {
        let may_pass = error.disposition() == Disposition::RetryLater;
        may_pass && !is_told_once(self.kind) && !is_redelivered(self.sent_at, self.ports.clock().now())
    }

    /// Whether any claim waits for its instance. Most notices of unknown instances are not ours: they are dropped at once. All clusters are
    /// asked together, and for claims without an instance alone: those of 30 clusters with thousands of machines each could not be read
    /// within the invocation, in which notices of our own machines wait.
    async fn find_launches(&self) -> Result<bool, HandleError> {
        let store = self.ports.store();
        let is_launching = |claim: &Stored<Claim>| matches!(claim.value.phase, Phase::Launching { .. });
        let mut outcome: Result<bool, HandleError> = Ok(false);
        for read in concurrently(self.settings.clusters.iter().map(|cluster| store.without_instance(cluster))).await {
            match read {
                Ok(claims) if claims.iter().any(is_launching) => return Ok(true),
                Ok(_) => {}
                Err(error) => outcome = outcome.and(Err(error.into())),
            }
        }
        outcome
    }

    /// Applies a notice to a claim as it was read. `Conflict` if it was written meanwhile: then nothing was done.
    async fn apply(&self, claim: &Stored<Claim>, report: &mut Report) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        if claim.value.deletion.is_some() && !Safeguard::DeadlineTightened.stops(tightens(&claim.value, self.kind, self.noticed_at(now))) {
            report.count("repeats");
            if self.kind.ends_claim() && claim.value.is_live() && !self.settings.is_shadow() {
                self.repeat_doorbells(&claim.value, now).await?;
            }
            return self.store_stock_out(&claim.value, now).await;
        }
        let ends = self.kind.ends_claim()
            || self.kind == InterruptionKind::RebalanceRecommendation && self.acts_on_rebalance(&claim.value).await?;
        let instance = claim.value.machine().map_or("", |machine| machine.instance_id.as_str());
        let message = format!("{} for {instance}", self.kind.text());
        let subject = format!("nodeclaim/{}", claim.value.key.name);
        let cluster = &claim.value.key.cluster;
        let mut applied = Report::default();
        let ended = if ends && !self.settings.is_shadow() {
            let ended = self.delete_claim(claim, &message, now).await?;
            applied.count("ended");
            // One that was being deleted has been counted, and only has less time now.
            if claim.value.deletion.is_none() {
                applied.metric(metrics::NodeClaimsDisrupted::of(&claim.value, self.kind.as_str()));
            }
            Some(ended)
        } else {
            None
        };
        let remembered = self.store_stock_out(&claim.value, now).await;
        // If a doorbell cannot be sent, the notice is retried, but then changes nothing: its effects have to be reported now.
        let rung = match &ended {
            Some(ended) => {
                let rung = self.send_doorbells(&ended.value).await;
                write_mirror(self.ports.cluster(), &ended.value).await;
                rung
            }
            None => Ok(()),
        };
        applied.decide(now, DecisionKind::Interrupted, subject, message.clone());
        applied.count("noted");
        let recorded = record_decisions(self.ports.store(), cluster, &applied.decisions).await;
        recorded.count_failure(&mut applied, "decisions_unrecorded");
        report.absorb(applied);
        if !self.settings.is_shadow() {
            self.publish(&claim.value, &message).await;
            if ends {
                for event in ClusterEvent::of_interruption(&claim.value) {
                    publish_event(self.ports.cluster(), cluster, &event).await;
                }
            }
        }
        rung.and(remembered)
    }

    /// Whether a rebalance recommendation deletes a claim: by its pool's annotation, or else the deployment's setting. Read only
    /// for recommendations, which are few.
    async fn acts_on_rebalance(&self, claim: &Claim) -> Result<bool, HandleError> {
        let read = self.ports.cluster().read(&claim.key.cluster, Scope::Karpenter, None).await;
        Ok(rebalance_setting_in(read, claim, self.settings.act_on_rebalance)?)
    }

    /// Requests the deletion of the claim. It is stored before anything else happens.
    async fn delete_claim(&self, claim: &Stored<Claim>, message: &str, now: Timestamp) -> Result<Stored<Claim>, HandleError> {
        let deletion = claim.value.deletion_for(reason(self.kind), message, self.noticed_at(now));
        advance(self.ports.store(), claim, &Event::DeletionRequested(deletion), now).await
    }

    /// The notice counts from when AWS sent it, not from when it was received; a clock that runs ahead changes nothing.
    fn noticed_at(&self, now: Timestamp) -> Timestamp {
        self.sent_at.map_or(now, |sent| sent.min(now))
    }

    /// Pods are rescheduled while their old machine still runs. That goes in two minutes, so that neither queue waits for the other.
    async fn send_doorbells(&self, ended: &Claim) -> Result<(), HandleError> {
        let key = ended.key.clone();
        let planned = self.ports.queues().send_now(Doorbell::Schedule { cluster: key.cluster.clone() }).await;
        self.ports.queues().send_now(Doorbell::Terminate { cluster: key.cluster, claim: key.name }).await?;
        planned?;
        Ok(())
    }

    /// Sends the doorbells that may be missing: the run that stored the deletion may have died before it sent them, or a queue took none. A
    /// termination that has begun rings for itself. For the plan nobody does before the tick, so that the notice which asked for the
    /// deletion rings again: it is tried again because something was not done.
    async fn repeat_doorbells(&self, ended: &Claim, now: Timestamp) -> Result<(), HandleError> {
        if ended.look_again_at.is_none() {
            return self.send_doorbells(ended).await;
        }
        if self.has_asked_for(ended, now) {
            self.ports.queues().send_now(Doorbell::Schedule { cluster: ended.key.cluster.clone() }).await?;
        }
        Ok(())
    }

    /// Whether the deletion of a claim, or its deadline, is of this notice.
    fn has_asked_for(&self, ended: &Claim, now: Timestamp) -> bool {
        let own = ended.deletion_for(reason(self.kind), "", self.noticed_at(now));
        let is_own = |known: &Deletion| known.at == own.at || known.deadline.is_some() && known.deadline == own.deadline;
        ended.deletion.as_ref().is_some_and(is_own)
    }

    async fn store_stock_out(&self, claim: &Claim, now: Timestamp) -> Result<(), HandleError> {
        let Some(offering) = lacking_offering(claim, self.kind) else { return Ok(()) };
        let code = if self.kind == InterruptionKind::SpotInterrupted { "SpotInterruption" } else { "CapacityReservationInterruption" };
        let known = self.ports.store().stock_outs(now).await?;
        let old = known.iter().find(|out| out.offering == offering);
        self.ports.store().put_stock_outs(&[StockOut::after_failure(old, offering, code, now)]).await?;
        Ok(())
    }

    /// Publishes the notice as an Event on claim and Node, a warning if it ends the claim. Best effort.
    async fn publish(&self, claim: &Claim, message: &str) {
        let event = |about| {
            let normal = ClusterEvent::normal(about, self.kind.event_reason(), message);
            ClusterEvent { warning: self.kind.ends_claim(), ..normal }
        };
        let cluster = &claim.key.cluster;
        publish_event(self.ports.cluster(), cluster, &event(Involved::claim(claim))).await;
        if let Some(node) = claim.node_name() {
            publish_event(self.ports.cluster(), cluster, &event(Involved::node(node))).await;
        }
    }
}

/// Whether nothing but this notice says that the claim has to be deleted. `sweep` also sees that a machine is gone, and most of those
/// notices are about machines that are not ours. A recommendation is followed by a notice if EC2 takes the machine.
const fn is_told_once(kind: InterruptionKind) -> bool {
    kind.ends_claim() && !matches!(kind, InterruptionKind::InstanceTerminated)
}

/// Whether a notice is young enough to be delivered again, for what may pass: a launch that does not know its instance yet, or a cluster
/// that does not answer.
fn is_redelivered(sent_at: Option<Timestamp>, now: Timestamp) -> bool {
    sent_at.is_some_and(|sent| now.duration_since(sent) < REDELIVER_FOR)
}

/// Whether a claim's pool acts on rebalance recommendations, by what was read of its cluster. One without access does not: nothing could be
/// drained there, and a recommendation that is tried until it is given up would raise an alarm that names no cluster (ADR 0069). Pure.
fn rebalance_setting_in(read: Result<ClusterObjects, ClusterError>, claim: &Claim, otherwise: bool) -> Result<bool, ClusterError> {
    let objects = match read {
        Err(ClusterError::NoAccess { .. } | ClusterError::Invalid { .. }) => return Ok(false),
        read => read?,
    };
    let converted = claim.spec.owner.kind == "Provisioner";
    let of_claim = |pool: &&NodePool| pool.metadata.name == claim.spec.node_pool && pool.is_converted_provisioner() == converted;
    Ok(rebalance_setting(objects.node_pools.iter().find(of_claim), otherwise))
}

/// Whether a pool acts on rebalance recommendations. An unknown value, a pool in shadow mode and a missing pool do not. Pure.
fn rebalance_setting(pool: Option<&NodePool>, otherwise: bool) -> bool {
    let Some(pool) = pool.filter(|pool| pool.metadata.annotation(labels::SHADOW) != Some("true")) else { return false };
    match pool.metadata.annotation(labels::ACT_ON_REBALANCE) {
        Some(value) => value == "true",
        None => otherwise,
    }
}

const fn reason(kind: InterruptionKind) -> DeletionReason {
    match kind {
        InterruptionKind::SpotInterrupted => DeletionReason::SpotInterruption,
        InterruptionKind::RebalanceRecommendation => DeletionReason::Rebalance,
        InterruptionKind::InstanceStopped => DeletionReason::InstanceStopped,
        InterruptionKind::InstanceTerminated => DeletionReason::InstanceGone,
        InterruptionKind::CapacityReservationInterrupted => DeletionReason::SpotInterruption,
        InterruptionKind::ScheduledChange | InterruptionKind::EventStatus => DeletionReason::ScheduledChange,
        InterruptionKind::InstanceStatus | InterruptionKind::SystemStatus => DeletionReason::Unhealthy,
    }
}

/// Whether a notice leaves a claim that is already being deleted less time.
fn tightens(claim: &Claim, kind: InterruptionKind, noticed_at: Timestamp) -> bool {
    let deadline = claim.deletion_for(reason(kind), "", noticed_at).deadline;
    let known = claim.deletion.as_ref().and_then(|deletion| deletion.deadline);
    match (known, deadline) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(known), Some(deadline)) => deadline < known,
    }
}

/// The offering that EC2 lacks capacity of, if it interrupts the instance for that: it counts as unavailable for a while.
fn lacking_offering(claim: &Claim, kind: InterruptionKind) -> Option<OfferingKey> {
    let machine = claim.machine()?;
    match kind {
        InterruptionKind::SpotInterrupted => Some(OfferingKey {
            instance_type: machine.instance_type.clone(),
            zone: machine.zone.clone(),
            capacity_type: labels::CAPACITY_SPOT.to_owned(),
            ..OfferingKey::default()
        }),
        InterruptionKind::CapacityReservationInterrupted => {
            machine.labels.get(labels::RESERVATION_ID).map(|id| OfferingKey::of_reservation(id))
        }
        _ => None,
    }
}

//! Drains what users delete. `sweep` does so as well, but with one cluster nobody reads its queue, and its ticks may look at Nodes that
//! were read before (ADR 0059, 0071): the relay rings here instead.

use crate::reconcile::count_disruption;
use crate::{Rights, TIME_PER_BATCH};
use whittle_claims::{Claim, DecisionKind, DeletionReason, Doorbell, Event, Requested, Stored, Uninstall, requests, step};
use whittle_ports::{
    CONCURRENT_REQUESTS, ClaimStore, Clock, ClusterReader, HandleError, Queues, RecordReader, Report, Scope, Settings, concurrently,
    record_decisions, save, unless_conflict, write_mirror,
};
use whittle_units::{ClusterName, SignedDuration};

/// How soon a look follows for what one has left: whoever goes on changing a claim does not keep the function busy.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(1);

/// Drains the machines of a cluster whose Node or NodeClaim a user has deleted. While the cluster is uninstalled, or Karpenter runs there,
/// that is for `sweep` to decide.
pub async fn deletions<P: Rights>(ports: P, settings: &Settings, cluster: &ClusterName) -> Result<Report, HandleError> {
    let mut report = Report::default();
    if settings.is_shadow() || ports.store().read::<Uninstall>(cluster, Uninstall::NAME).await?.is_some() {
        return Ok(report);
    }
    let claims = ports.store().list(cluster).await?;
    if claims.is_empty() {
        return Ok(report);
    }
    let objects = ports.cluster().read(cluster, Scope::Nodes, None).await?;
    if objects.running_karpenter(ports.clock().now()).is_some() {
        return Ok(report);
    }
    let found = requests(&claims, &objects);
    let (mut outcome, mut is_left) = (Ok(()), false);
    for (number, some) in found.chunks(CONCURRENT_REQUESTS).enumerate() {
        if !ports.clock().has_time_for(TIME_PER_BATCH) {
            report.hand_over();
            // Where reading takes all the time, another look would come no further.
            is_left |= number > 0;
            break;
        }
        for ended in concurrently(some.iter().map(|(claim, request)| end(ports, claim, request))).await {
            match ended {
                Ok(Some(part)) => report.absorb(part),
                Ok(None) => is_left = true,
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
    }
    let recorded = record_decisions(ports.store(), cluster, &report.decisions).await;
    recorded.count_failure(&mut report, "decisions_unrecorded");
    if !report.decisions.is_empty() {
        // Their pods need places elsewhere.
        ports.queues().send_now(Doorbell::Schedule { cluster: cluster.clone() }).await?;
    }
    if is_left {
        // A tick of `sweep` may look at Nodes that were read long before.
        ports.queues().send(Doorbell::Deletions { cluster: cluster.clone() }, AGAIN_AFTER).await?;
    }
    outcome.map(|()| report)
}

/// Requests the deletion of a claim. `None` for one that was changed meanwhile, which is left to the next look.
async fn end<P: Rights>(ports: P, claim: &Stored<Claim>, request: &Requested) -> Result<Option<Report>, HandleError> {
    let (now, mut report) = (ports.clock().now(), Report::default());
    let at = request.at.map_or(now, |at| at.min(now));
    let deletion = claim.value.deletion_for(DeletionReason::Requested, request.message, at).with_stated_deadline(request.deadline);
    let next = step(&claim.value, &Event::DeletionRequested(deletion), now)?;
    let Some(ended) = unless_conflict(save(ports.store(), claim, next).await)? else { return Ok(None) };
    let key = ended.value.key.clone();
    report.decide(now, DecisionKind::Disrupted, format!("nodeclaim/{}", key.name), request.message);
    report.count("ended");
    count_disruption(&mut report, &ended.value);
    ports.queues().send_now(Doorbell::Terminate { cluster: key.cluster, claim: key.name }).await?;
    write_mirror(ports.cluster(), &ended.value).await.count_failure(&mut report, "mirrors_failed");
    Ok(Some(report))
}

//! Effects that several functions share, each over the one port that it needs.
//!
//! Their order is the handlers' own: what a killed run leaves behind depends on it.

use crate::{Clock, ClusterEvent, DecisionLog, HandleError, Mirrors, Ports, RecordReader, Records, Report, StatusWriter, WriteError};
use futures::stream::{self, StreamExt};
use std::collections::BTreeMap;
use whittle_api::karpenter::{NodeClaim, NodeClaimStatus, NodePool};
use whittle_claims::{Claim, DecisionRecord, Function, FunctionHealth, Machine, Record, Revision, mirror};
use whittle_ec2::instance::Instance;
use whittle_units::{ClusterName, Price, Resources, SignedDuration, Timestamp};

/// The outcome of a call on which nothing depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BestEffort {
    Done,
    Failed,
}

impl BestEffort {
    fn of<V, E>(outcome: &Result<V, E>) -> Self {
        if outcome.is_ok() { Self::Done } else { Self::Failed }
    }
    /// Counts a failure.
    pub fn count_failure(self, report: &mut Report, word: &'static str) {
        if self == Self::Failed {
            report.count(word);
        }
    }
}

/// How many requests of a handler run at once: enough that an API server's delay does not add up, too few to fill the share of
/// requests that its flow control gives to a function.
pub const CONCURRENT_REQUESTS: usize = 16;

/// Runs requests, [`CONCURRENT_REQUESTS`] at once. Returns their answers in the order of the requests.
pub async fn concurrently<F: Future>(requests: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let requests: Vec<F> = requests.into_iter().collect();
    stream::iter(requests).buffered(CONCURRENT_REQUESTS).collect().await
}

/// Writes the mirror of a claim. `sweep` writes one that failed here; the claim is authoritative.
pub async fn write_mirror<K: Mirrors>(api: &K, claim: &Claim) -> BestEffort {
    BestEffort::of(&api.apply_mirror(&claim.key.cluster, &mirror(claim)).await)
}

/// Creates the mirror of a claim that was just planned, in one request: its conditions come with what the launch finds, a moment later,
/// and with `sweep` if there is no launch.
pub async fn write_planned_mirror<K: Mirrors>(api: &K, claim: &Claim) -> BestEffort {
    let planned = NodeClaim { status: NodeClaimStatus::default(), ..mirror(claim) };
    BestEffort::of(&api.apply_mirror(&claim.key.cluster, &planned).await)
}

/// Records the decisions of a run. They have been executed, and nothing reads them to decide: a run that failed for them would be made
/// again, minutes later, and not record them either.
pub async fn record_decisions<S: DecisionLog>(log: &S, cluster: &ClusterName, decisions: &[DecisionRecord]) -> BestEffort {
    if decisions.is_empty() {
        return BestEffort::Done;
    }
    BestEffort::of(&log.append(cluster, decisions).await)
}

/// Publishes an Event. Its content is also in the decision log, on an object or in a metric.
pub async fn publish_event<K: StatusWriter>(api: &K, cluster: &ClusterName, event: &ClusterEvent) -> BestEffort {
    BestEffort::of(&api.publish(cluster, event).await)
}

/// An Event is only published with this much time left: what else a handler writes comes first.
const TIME_FOR_EVENTS: SignedDuration = SignedDuration::from_secs(2);

/// Publishes Events, [`CONCURRENT_REQUESTS`] at once, while there is time. Their content is also on the object.
pub async fn publish_events<P: Ports<Cluster: StatusWriter>>(
    ports: P,
    cluster: &ClusterName,
    events: &[ClusterEvent],
    report: &mut Report,
) {
    for some in events.chunks(CONCURRENT_REQUESTS) {
        if !ports.clock().has_time_for(TIME_FOR_EVENTS) {
            report.count("events_failed");
            return;
        }
        for published in concurrently(some.iter().map(|event| publish_event(ports.cluster(), cluster, event))).await {
            published.count_failure(report, "events_failed");
        }
    }
}

/// Statuses are only written with this much time left: what a handler records comes after them.
const TIME_FOR_STATUSES: SignedDuration = SignedDuration::from_secs(2);

/// Writes statuses of NodePools that changed, each beside its pool as it was read, and publishes the Events of their conditions. As many at
/// once as [`CONCURRENT_REQUESTS`], while there is time: a cluster may have a thousand. Returns those that were written; a failed write,
/// and what there is no time for, is left to a later run.
pub async fn write_pool_statuses<'a, P: Ports<Cluster: StatusWriter>>(
    ports: P,
    cluster: &ClusterName,
    changed: &[(&'a NodePool, &'a NodePool)],
    report: &mut Report,
) -> Vec<(&'a NodePool, &'a NodePool)> {
    let (mut written, mut events) = (Vec::new(), Vec::new());
    for some in changed.chunks(CONCURRENT_REQUESTS) {
        if !ports.clock().has_time_for(TIME_FOR_STATUSES) {
            report.hand_over();
            break;
        }
        let answers = concurrently(some.iter().map(|(wanted, _)| write_pool_status(ports.cluster(), cluster, wanted))).await;
        for ((wanted, pool), answer) in some.iter().copied().zip(answers) {
            report.count(if answer == BestEffort::Done { "pool_statuses" } else { "pool_statuses_failed" });
            if answer == BestEffort::Done {
                events.extend(ClusterEvent::of_change(pool, wanted, |pool| pool.status.conditions.as_slice()));
                written.push((wanted, pool));
            }
        }
    }
    publish_events(ports, cluster, &events, report).await;
    written
}

async fn write_pool_status<K: StatusWriter>(api: &K, cluster: &ClusterName, wanted: &NodePool) -> BestEffort {
    BestEffort::of(&api.write_node_pool_status(cluster, wanted).await)
}

/// The machine of a claim that is created only to drain its instance: its capacity no longer matters. Pure.
#[must_use]
pub fn machine_to_terminate(instance: &Instance) -> Machine {
    Machine {
        instance_id: instance.id.clone(),
        provider_id: instance.provider_id(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        capacity_type: instance.capacity_type.clone(),
        image_id: instance.image_id.clone(),
        price: Price::ZERO,
        capacity: Resources::new(),
        allocatable: Resources::new(),
        labels: BTreeMap::new(),
        launched_at: instance.launched_at,
    }
}

/// The outcome of a record's update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update<R> {
    Written(R),
    /// There was nothing to write.
    Unchanged,
    /// Another write came first at each attempt.
    Lost,
}

/// Replaces a record with the result of `next` for the stored one (`None`: there is none) and the time before it was read, by
/// compare-and-swap; after a conflict it retries with the new record, up to `attempts` times in all. Nothing is written
/// if `next` returns `None`.
///
/// # Errors The store failed for another reason than a conflict.
pub async fn update_record<R: Record, P: Ports<Store: Records>>(
    ports: P,
    cluster: &ClusterName,
    name: &str,
    attempts: usize,
    mut next: impl FnMut(Option<R>, Timestamp) -> Option<R> + Send,
) -> Result<Update<R>, HandleError> {
    for _ in 0..attempts {
        let now = ports.clock().now();
        let known = ports.store().read::<R>(cluster, name).await?;
        let expected = known.as_ref().map_or(Revision::ABSENT, |known| known.revision);
        let Some(record) = next(known.map(|known| known.value), now) else { return Ok(Update::Unchanged) };
        match ports.store().write(cluster, &record, expected).await {
            Ok(_) => return Ok(Update::Written(record)),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Update::Lost)
}

/// Records how well a function serves a cluster, if `next` returns a changed record. Only what users are shown depends on it, no decision.
pub async fn note_health<P: Ports<Store: Records>>(
    ports: P,
    cluster: &ClusterName,
    function: Function,
    next: impl Fn(Option<&FunctionHealth>, Timestamp) -> Option<FunctionHealth> + Send,
) -> BestEffort {
    let next = move |known: Option<FunctionHealth>, now| next(known.as_ref(), now);
    BestEffort::of(&update_record(ports, cluster, function.name(), 1, next).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;
    use futures::FutureExt;
    use whittle_claims::DecisionKind;

    /// A log that takes nothing.
    struct Refusing;

    impl DecisionLog for Refusing {
        async fn append(&self, _: &ClusterName, _: &[DecisionRecord]) -> Result<(), StoreError> {
            Err(StoreError::Throttled { what: "the decision log".to_owned() })
        }
        async fn recent(&self, _: &ClusterName, _: Option<&str>, _: usize) -> Result<Vec<DecisionRecord>, StoreError> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn decisions_that_cannot_be_recorded_are_counted_and_fail_nothing() {
        let mut report = Report::default();
        let record = |report: &Report| record_decisions(&Refusing, &"c".into(), &report.decisions).now_or_never();
        assert_eq!(record(&report), Some(BestEffort::Done), "there are none");
        report.decide(Timestamp::UNIX_EPOCH, DecisionKind::Kept, "node/n", "it is kept");
        let recorded = record(&report);
        assert_eq!(recorded, Some(BestEffort::Failed));
        recorded.unwrap().count_failure(&mut report, "decisions_unrecorded");
        assert_eq!(report.counted("decisions_unrecorded"), 1);
    }
}

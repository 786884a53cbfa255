//! Terminates a deleted claim: taint, drain in order, wait for volumes, terminate the instance, confirm it, release the objects.
//!
//! The only function that evicts pods and terminates instances. Each run does what can be done now and requeues the rest.

mod find_node; // the Node of the machine, which has to be drained
mod hold; // how long its pods may stay
mod shifted; // terminations that wait for the end of a zonal shift
mod steps; // one step at a time: taint, drain, wait
mod drain; // which pods go next
mod pace; // when to look at them again
mod finish; // terminates the instance, then releases its objects
mod refused; // errors that last until somebody acts

#[cfg(test)]
mod tests;

use whittle_api::k8s::{Kind, Node};
use whittle_claims::{Claim, ClaimKey, Doorbell, Phase, Stored};
use whittle_ports::{
    Cached, ClaimStore, Clock, CloudError, CloudErrorKind, ClusterError, ClusterReader, DecisionLog, Evictions, HandleError, Instances,
    Mirrors, Nodes, Queues, RecordReader, RegionStore, Report, Safeguard, Scope, Settings, StatusWriter, Terminator, TokenBuckets,
    WriteError, record_decisions, rights, save, unless_conflict,
};
use whittle_units::{SignedDuration, Timestamp};

rights! {
    /// What `terminate` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + RecordReader + RegionStore + TokenBuckets + DecisionLog,
    Cloud: Instances + Terminator,
    Cluster: ClusterReader + Nodes + Evictions + Mirrors + StatusWriter,
    Queues: Queues,
}

/// Requeue delay while pods terminate, unless they take long, or right after a deletion.
const SHORT_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// Requeue delay while EC2 terminates the instance, or every remaining pod is blocked by a budget or its owner; the longest while pods take
/// long to end, unless they have more than ten minutes left.
const POLL_DELAY: SignedDuration = SignedDuration::from_secs(5);
/// Requeue delay while EC2 refuses to terminate the instance, or the cluster lets nobody in.
const REFUSED_DELAY: SignedDuration = SignedDuration::from_secs(30);
/// The longest requeue delay while the API server refuses to let the NodeClaim of an ended claim go.
const RELEASE_DELAY_MAX: SignedDuration = SignedDuration::from_mins(1);
/// Requeue delay while a zonal shift holds the termination of the instance.
const SHIFTED_DELAY: SignedDuration = SignedDuration::from_secs(30);
/// Attempts to store the next run's time against concurrent writers; after that the doorbell is sent without it.
const WRITE_ATTEMPTS_MAX: u32 = 3;

/// What is left to do after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing, ever.
    Done,
    /// Run again after this delay.
    RequeueAfter(SignedDuration),
}

/// One run for a claim: its ports, the claim as last stored, and the report.
pub(crate) struct Run<'a, P> {
    ports: P,
    last_planned: &'a LastPlanned,
    /// Whether zonal shifts hold terminations.
    zonal_shift: bool,
    claim: Stored<Claim>,
    /// The time of this run, if it told pods to leave, or saw some do so.
    moved_at: Option<Timestamp>,
    report: Report,
}

/// When the latest of a cluster's starting machines was planned. All claims that an execution environment terminates share it, because it
/// takes a read of all claims of the cluster: a thousand claims that are terminated together would each read them every two seconds.
pub type LastPlanned = Cached<Option<Timestamp>>;

/// Advances the termination of one claim. A claim that is not being deleted is left alone. `last_planned` is that of the execution
/// environment.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, last_planned: &LastPlanned, claim: &ClaimKey) -> Result<Report, HandleError> {
    let Some(stored) = ports.store().get(claim).await? else { return Ok(Report::default()) };
    if settings.is_shadow() || stored.value.deletion.is_none() && stored.value.is_live() {
        return Ok(Report::default());
    }
    let (zonal_shift, report) = (settings.zonal_shift, Report::default());
    let mut run = Run { ports, last_planned, zonal_shift, claim: stored, moved_at: None, report };
    let outcome = run.step().await;
    let recorded = record_decisions(ports.store(), &claim.cluster, &run.report.decisions).await;
    recorded.count_failure(&mut run.report, "decisions_unrecorded");
    let next = match outcome {
        Ok(next) => next,
        // The claim or the Node was changed concurrently: the next run reads the change.
        Err(error) if error.is_conflict() || matches!(error, HandleError::Cluster(_) | HandleError::Illegal(_)) => {
            run.report.count("left_for_later");
            if let HandleError::Cluster(error) = &error {
                refused::report_cluster_error(&run.claim.value, error, &mut run.report);
                run.report_kept_mirror(error).await;
            }
            Next::RequeueAfter(delay_after(&error, &run.claim.value, ports.clock().now()))
        }
        // Nothing is lost by retrying later; failures would soon cost minutes, and finally move the message to the dead-letter queue.
        Err(HandleError::Cloud(error)) if !is_refused(&error) => {
            tracing::warn!(%error, claim = %claim, "EC2 did not respond: retrying in the next run");
            run.report.count("cloud_unanswered");
            Next::RequeueAfter(POLL_DELAY)
        }
        // Termination protection or a missing permission: every attempt fails until it is fixed.
        Err(HandleError::Cloud(error)) => {
            run.report_refusal(&error).await;
            Next::RequeueAfter(REFUSED_DELAY)
        }
        Err(error) => return Err(error),
    };
    if let Next::RequeueAfter(delay) = next {
        requeue(ports, run.claim, run.moved_at, delay).await?;
    }
    Ok(run.report)
}

/// When to try again after an error of the cluster or a conflict. One that lets nobody in does so until a person has changed that, and
/// each attempt asks EKS again and takes time that drains of other clusters need. A policy that keeps the NodeClaim of an ended claim may
/// do so as long: it is asked again after as long as the claim has ended for, up to a minute.
fn delay_after(error: &HandleError, claim: &Claim, now: Timestamp) -> SignedDuration {
    match (error, &claim.phase) {
        (HandleError::Cluster(ClusterError::NoAccess { .. }), _) => REFUSED_DELAY,
        (HandleError::Cluster(ClusterError::Invalid { .. }), Phase::Failed { since, .. } | Phase::Gone { since, .. }) => {
            now.duration_since(*since).clamp(POLL_DELAY, RELEASE_DELAY_MAX)
        }
        _ => POLL_DELAY,
    }
}

/// Whether a call will fail until its cause is fixed; every other failure may be transient.
fn is_refused(error: &CloudError) -> bool {
    matches!(error.kind, CloudErrorKind::Unauthorized | CloudErrorKind::Invalid)
}

/// Sends a doorbell after `delay`, unless one is due by then anyway: repeated doorbells must not multiply. The time at which pods moved is
/// stored with that of the next run, which has to be written as well.
async fn requeue<P: Rights>(ports: P, claim: Stored<Claim>, moved_at: Option<Timestamp>, delay: SignedDuration) -> Result<(), HandleError> {
    let now = ports.clock().now();
    let due = now.checked_add(delay).unwrap_or(Timestamp::MAX);
    let key = claim.value.key.clone();
    let mut claim = claim;
    for _ in 0..WRITE_ATTEMPTS_MAX {
        if Safeguard::EndingRungOnce.stops(claim.value.look_again_at.is_some_and(|known| known > now && known <= due)) {
            return Ok(());
        }
        let drain_moved_at = moved_at.or(claim.value.drain_moved_at);
        let next = Claim { look_again_at: Some(due), drain_moved_at, ..claim.value.clone() };
        if unless_conflict(save(ports.store(), &claim, next).await)?.is_some() {
            break;
        }
        // Another run of the same doorbell was faster, and may have sent one already.
        match ports.store().get(&key).await? {
            Some(current) => claim = current,
            None => return Ok(()),
        }
    }
    ports.queues().send(Doorbell::Terminate { cluster: key.cluster, claim: key.name }, delay).await?;
    Ok(())
}

impl<P: Rights> Run<'_, P> {
    async fn step(&mut self) -> Result<Next, HandleError> {
        match self.claim.value.phase.clone() {
            Phase::Failed { .. } | Phase::Gone { .. } => self.release_mirror().await,
            Phase::Launching { client_token, since, .. } => self.abandon_launch(&client_token, since).await,
            Phase::Draining { node_name: Some(node), .. } => self.drain_node(&node).await,
            Phase::Draining { node_name: None, .. } => self.drain_unnamed().await,
            Phase::Terminating { node_name, .. } => self.confirm(node_name.as_deref()).await,
            // Not being deleted: `handle` lets only ending claims through.
            Phase::Planned | Phase::Launched { .. } | Phase::Registered { .. } | Phase::Initialized { .. } => Ok(Next::Done),
        }
    }

    async fn drain_node(&mut self, node: &str) -> Result<Next, HandleError> {
        let mut objects = self.ports.cluster().read(&self.claim.value.key.cluster, Scope::Drain, Some(node)).await?;
        self.include_unreadable_pods(&mut objects).await;
        if objects.is_unreadable(Node::KIND, node) && !steps::is_overdue(&self.claim.value, self.ports.clock().now()) {
            return Ok(Next::RequeueAfter(POLL_DELAY)); // it can be neither tainted nor distinguished from another machine's
        }
        let Some(found) = objects.nodes.iter().find(|found| found.metadata.name == node) else {
            // One response without it proves nothing; a Node that exists but cannot be read was waited for until the deadline.
            let named = objects.is_unreadable(Node::KIND, node);
            if !named && !self.is_node_missing().await? || self.pods_contradict(node, &objects).await {
                self.report.count("node_not_seen");
                return Ok(Next::RequeueAfter(POLL_DELAY));
            }
            // The Node was deleted: its pods are lost, but the instance must not leak.
            return self.end_machine().await;
        };
        self.record_node_found().await?;
        if is_ours(&self.claim.value, found) { self.drain(found, &objects).await } else { self.end_machine().await }
    }
}

/// Whether a Node is this machine's: it may have been replaced by one of the same name, which is not touched.
fn is_ours(claim: &Claim, node: &Node) -> bool {
    claim.machine().is_some_and(|machine| node.spec.provider_id == machine.provider_id.as_str())
}

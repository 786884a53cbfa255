//! A claim that is to end: taint, drain in order, wait for volumes, end the machine, confirm it, let go of the objects.
//!
//! The only function that evicts and that ends instances. Each run does what can be done now and rings for the rest.

mod drain;
mod finish;
mod hold;
mod refused;
mod seek;
mod steps;
#[cfg(test)]
mod tests;

use whittle_api::k8s::{Kind, Node};
use whittle_claims::{Claim, ClaimKey, Doorbell, Phase, Stored};
use whittle_ports::{
    ClaimStore, Clock, CloudError, CloudErrorKind, ClusterReader, DecisionLog, Evictions, HandleError, Instances, Mirrors, Nodes, Queues,
    RegionStore, Report, Safeguard, Scope, Settings, StatusWriter, StoreError, Terminator, rights, save,
};
use whittle_units::{SignedDuration, Timestamp};

rights! {
    /// What `terminate` may do; its role in `template.yaml` allows the same.
    Store: ClaimStore + RegionStore + DecisionLog,
    Cloud: Instances + Terminator,
    Cluster: ClusterReader + Nodes + Evictions + Mirrors + StatusWriter,
    Queues: Queues,
}

/// While pods leave, or a claim has only just been asked to end.
const SOON: SignedDuration = SignedDuration::from_secs(1);
/// While EC2 ends the machine, or every pod left is held by a budget or its owner.
const LATER: SignedDuration = SignedDuration::from_secs(5);
/// While EC2 refuses to end the machine.
const REFUSED: SignedDuration = SignedDuration::from_secs(30);
/// How often the next look is written down against others who write; then it is rung all the same.
const LOOKS_TRIED_MAX: u32 = 3;

/// What is left to do after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing, ever.
    Done,
    /// Look again in this time.
    Again(SignedDuration),
}

/// One run for a claim: its ports, the claim as last stored, and what the run has done.
pub(crate) struct Run<P> {
    ports: P,
    claim: Stored<Claim>,
    report: Report,
}

/// Moves one claim a step further toward its end. A claim that is not to end is left alone, whatever rang.
pub async fn handle<P: Rights>(ports: P, settings: &Settings, claim: &ClaimKey) -> Result<Report, HandleError> {
    let Some(stored) = ports.store().get(claim).await? else { return Ok(Report::default()) };
    if settings.shadow || stored.value.deletion.is_none() && stored.value.is_live() {
        return Ok(Report::default());
    }
    let mut run = Run { ports, claim: stored, report: Report::default() };
    let outcome = run.step().await;
    if !run.report.decisions.is_empty() {
        ports.store().append(&claim.cluster, &run.report.decisions).await?;
    }
    let next = match outcome {
        Ok(next) => next,
        // Somebody else moved the claim or the Node: the next look sees what they did.
        Err(error @ (HandleError::Store(StoreError::Conflict { .. }) | HandleError::Cluster(_) | HandleError::Illegal(_))) => {
            run.report.count("left_for_later");
            if let HandleError::Cluster(error) = &error {
                refused::by_cluster(&run.claim.value, error, &mut run.report);
            }
            Next::Again(LATER)
        }
        // Nothing is lost by asking later; to fail would cost minutes, and park the message in the end.
        Err(HandleError::Cloud(error)) if !is_refused(&error) => {
            tracing::warn!(%error, claim = %claim, "EC2 did not answer: asked again with the next look");
            run.report.count("cloud_unanswered");
            Next::Again(LATER)
        }
        // Termination protection, or a right that is missing: every try would be refused until somebody mends it.
        Err(HandleError::Cloud(error)) => {
            run.tell(&error).await;
            Next::Again(REFUSED)
        }
        Err(error) => return Err(error),
    };
    if let Next::Again(delay) = next {
        look_again(ports, run.claim, delay).await?;
    }
    Ok(run.report)
}

/// Whether a call will fail until a person has mended what it was refused for; every other failure may pass by itself.
fn is_refused(error: &CloudError) -> bool {
    matches!(error.kind, CloudErrorKind::Unauthorized | CloudErrorKind::Invalid)
}

/// Rings again after `delay`, unless a doorbell is due by then anyway: repeated doorbells must not multiply.
async fn look_again<P: Rights>(ports: P, claim: Stored<Claim>, delay: SignedDuration) -> Result<(), HandleError> {
    let now = ports.clock().now();
    let due = now.checked_add(delay).unwrap_or(Timestamp::MAX);
    let key = claim.value.key.clone();
    let mut claim = claim;
    for _ in 0..LOOKS_TRIED_MAX {
        if Safeguard::EndingRungOnce.stops(claim.value.look_again_at.is_some_and(|known| known > now && known <= due)) {
            return Ok(());
        }
        let next = Claim { look_again_at: Some(due), ..claim.value.clone() };
        match save(ports.store(), &claim, next).await {
            Ok(_) => break,
            // Another run of the same doorbell was quicker, and may have rung already.
            Err(HandleError::Store(StoreError::Conflict { .. })) => match ports.store().get(&key).await? {
                Some(current) => claim = current,
                None => return Ok(()),
            },
            Err(error) => return Err(error),
        }
    }
    ports.queues().ring(Doorbell::Terminate { cluster: key.cluster, claim: key.name }, delay).await?;
    Ok(())
}

impl<P: Rights> Run<P> {
    async fn step(&mut self) -> Result<Next, HandleError> {
        match self.claim.value.phase.clone() {
            Phase::Failed { .. } | Phase::Gone { .. } => self.let_go().await,
            Phase::Launching { client_token, since, .. } => self.abandon_launch(&client_token, since).await,
            Phase::Draining { node_name: Some(node), .. } => self.drain_node(&node).await,
            Phase::Draining { node_name: None, .. } => self.drain_unnamed().await,
            Phase::Terminating { node_name, .. } => self.confirm(node_name.as_deref()).await,
            // Not to end: `handle` let only ending claims through.
            Phase::Planned | Phase::Launched { .. } | Phase::Registered { .. } | Phase::Initialized { .. } => Ok(Next::Done),
        }
    }

    async fn drain_node(&mut self, node: &str) -> Result<Next, HandleError> {
        let mut objects = self.ports.cluster().read(&self.claim.value.key.cluster, Scope::Drain, Some(node)).await?;
        self.take_in_unreadable(&mut objects).await;
        if objects.is_unreadable(Node::KIND, node) && !steps::is_overdue(&self.claim.value, self.ports.clock().now()) {
            return Ok(Next::Again(LATER)); // it can be neither closed nor told from another machine's
        }
        let Some(found) = objects.nodes.iter().find(|found| found.metadata.name == node) else {
            // One answer without it proves nothing; one that names it has been waited for until the deadline.
            let named = objects.is_unreadable(Node::KIND, node);
            if !named && !self.is_gone().await? || self.pods_contradict(node, &objects).await {
                self.report.count("node_not_seen");
                return Ok(Next::Again(LATER));
            }
            // Somebody took the Node away by hand: what ran there is lost, the machine must not be.
            return self.end_machine().await;
        };
        self.seen().await?;
        if is_ours(&self.claim.value, found) { self.drain(found, &objects).await } else { self.end_machine().await }
    }
}

/// A Node may have been replaced by another machine's of the same name; that one is not touched.
fn is_ours(claim: &Claim, node: &Node) -> bool {
    claim.machine().is_some_and(|machine| node.spec.provider_id == machine.provider_id.as_str())
}

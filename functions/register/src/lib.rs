//! Registers and initializes Nodes that joined: labels, taints, finalizer, then readiness; late claims are given up.

mod reconcile; // one claim: its Node is registered and initialized, or it is given up
mod decide; // what a Node needs to be registered, and lacks to be initialized
mod index; // Nodes and NodeClaims by what claims name them by
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

use crate::index::Index;
use crate::silence::{Looked, Silence};
use crate::turn::{Ended, Turn};
use futures::join;
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::{ClusterObjects, OwnerReference, labels};
use whittle_claims::{Claim, ClaimKey, Doorbell, LaunchOutcome, Measurement, Phase, REGISTRATION_TIMEOUT, SHARDS, Shortfall, Stored};
use whittle_ports::{
    CONCURRENT_REQUESTS, ClaimStore, Clock, ClusterError, ClusterReader, DecisionLog, HandleError, InstanceTags, Instances, Mirrors, Nodes,
    Queues, Records, Report, Scope, Settings, StatusWriter, TokenBuckets, WriteError, concurrently, publish_events, readable,
    record_decisions, rights,
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
/// Claims that are read one by one: as many requests as a list of all takes.
const NAMED_MAX: usize = SHARDS as usize;

/// One run for a cluster: its ports, and the objects that it read.
pub(crate) struct Run<'a, P> {
    ports: P,
    cluster: &'a ClusterName,
    objects: &'a ClusterObjects,
    /// The same, to look up what belongs to a claim.
    index: Index<'a>,
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
        let run = Run { ports, cluster, objects: &objects, index: Index::of(&objects), silence };
        let changed = run.reconcile_all(&due, report, work).await?;
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
    let run = Run { ports, cluster, objects: &objects, index: Index::default(), silence: None };
    let (mut of_pools, mut of_events) = (Report::default(), Report::default());
    // First, because the events about nodes that are too small say whether another node confirms them.
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
                        let nodes = self.index.nodes_of(&claim.value);
                        work.measurements.extend(measured::measurement(before, &claim.value, nodes));
                        let short = measured::shortfall(before, &claim.value, nodes);
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
}

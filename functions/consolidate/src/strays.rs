//! Nodes and claims that still have what a command gave them, though no command has them any more.

use crate::observe::Step;
use crate::state::Disruptions;
use crate::{Rights, time_left};
use std::collections::{BTreeMap, BTreeSet};
use whittle_api::k8s::{Node, Taint};
use whittle_api::{conditions, labels};
use whittle_claims::{Claim, ClaimKey, DecisionKind, Function, Stored};
use whittle_ports::metrics::FailedRuns;
use whittle_ports::{
    CONCURRENT_REQUESTS, ClaimStore, Clock, ClusterError, HandleError, NodePatch, Nodes, Report, concurrently, readable, save,
    unless_conflict, write_mirror,
};
use whittle_snapshot::Snapshot;

/// A claim of no command that still has what a command gave it.
struct Stray<'a> {
    claim: &'a Stored<Claim>,
    /// Its Node, if that is tainted.
    tainted: Option<&'a Node>,
}

/// Claims that a partial rollback left with a tainted Node or a disruption reason. Pure.
fn strays<'a>(snapshot: &'a Snapshot, known: &Disruptions) -> Vec<Stray<'a>> {
    let removals = known.running.iter().flat_map(|running| &running.removals);
    let in_commands: BTreeSet<&str> = removals.map(|deleting| deleting.claim.as_str()).collect();
    let is_tainted = |node: &&Node| node.spec.taints.iter().any(|taint| taint.same(&Taint::disrupted()));
    let tainted = snapshot.read.nodes.iter().filter(|node| !node.metadata.is_deleting()).filter(is_tainted);
    let tainted: BTreeMap<&str, &Node> = tainted.map(|node| (node.metadata.name.as_str(), node)).collect();
    let kept = snapshot.claims.iter().filter(|claim| !claim.value.is_ending() && !in_commands.contains(claim.value.key.name.as_str()));
    let stray = |claim: &'a Stored<Claim>| {
        let tainted = tainted.get(claim.value.node_name()?).copied();
        (tainted.is_some() || has_reason(&claim.value)).then_some(Stray { claim, tainted })
    };
    kept.filter_map(stray).collect()
}

/// Whether a rollback is to be completed: no tick rests meanwhile, though nothing else has changed. Pure.
pub(crate) fn has_strays(snapshot: &Snapshot, known: &Disruptions) -> bool {
    !strays(snapshot, known).is_empty()
}

/// Removes the taint from our nodes that belong to no command, and the reason from their claims: those of a partial rollback. Many at
/// once, while there is time: the next pass finds the others.
pub(crate) async fn untaint_strays<P: Rights>(
    ports: P,
    snapshot: &Snapshot,
    known: &Disruptions,
    report: &mut Report,
) -> Result<Step, HandleError> {
    for some in strays(snapshot, known).chunks(CONCURRENT_REQUESTS) {
        if time_left(ports.clock()).is_zero() {
            report.hand_over();
            return Ok(Step::HandedOver);
        }
        let mut outcome = Ok(());
        for (cleared, part) in concurrently(some.iter().map(|stray| clear_reporting(ports, stray))).await {
            report.absorb(part);
            outcome = outcome.and(cleared);
        }
        outcome?;
    }
    Ok(Step::Done)
}

/// Clears a stray, with a report of its own.
async fn clear_reporting<P: Rights>(ports: P, stray: &Stray<'_>) -> (Result<(), HandleError>, Report) {
    let mut report = Report::default();
    (clear_stray(ports, stray, &mut report).await, report)
}

async fn clear_stray<P: Rights>(ports: P, stray: &Stray<'_>, report: &mut Report) -> Result<(), HandleError> {
    if let Some(node) = stray.tainted {
        untaint_stray(ports, &stray.claim.value.key, node, report).await?;
    }
    clear_disruption_reason(ports, stray.claim).await
}

/// Removes the taint from a Node at the version that was read. One that was changed since, or whose claim is being deleted by now
/// or cannot be read, may have been tainted again: the next pass checks it.
async fn untaint_stray<P: Rights>(ports: P, claim: &ClaimKey, node: &Node, report: &mut Report) -> Result<(), HandleError> {
    if readable(ports.store().get(claim).await)?.is_none_or(|known| known.value.is_ending()) {
        return Ok(());
    }
    let patch = NodePatch { remove_taints: vec![Taint::disrupted()], ..NodePatch::default() };
    match ports.cluster().patch_node(&claim.cluster, &node.metadata.name, &node.metadata.resource_version, &patch).await {
        Ok(()) => report.count("unmarked"),
        Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => report.count("left_for_later"),
        // As a policy may. It holds up nothing else, and the alarm of failed runs is raised if it lasts.
        Err(ClusterError::Invalid { message, .. }) => {
            report.count("untaints_refused");
            report.metric(FailedRuns { function: Function::Consolidate.name() });
            let message = format!("The API server refuses to remove the taint {}: {message}", labels::DISRUPTED_TAINT);
            report.decide(ports.clock().now(), DecisionKind::Kept, format!("node/{}", node.metadata.name), message);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn has_reason(claim: &Claim) -> bool {
    conditions::find(&claim.conditions, conditions::DISRUPTION_REASON).is_some()
}

/// A claim that is kept has no disruption reason, nor has its mirror, unless time is short: then `sweep` writes that.
pub(crate) async fn clear_disruption_reason<P: Rights>(ports: P, claim: &Stored<Claim>) -> Result<(), HandleError> {
    if !claim.value.is_ending() && has_reason(&claim.value) {
        let mut next = claim.value.clone();
        conditions::clear(&mut next.conditions, conditions::DISRUPTION_REASON);
        let saved = unless_conflict(save(ports.store(), claim, next).await)?;
        if let Some(saved) = saved.filter(|_| !time_left(ports.clock()).is_zero()) {
            write_mirror(ports.cluster(), &saved.value).await;
        }
    }
    Ok(())
}

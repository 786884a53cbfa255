//! What a pass records on claims: pod events, and the conditions that follow.

use crate::Rights;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use whittle_api::k8s::Pod;
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::{Claim, Stored};
use whittle_disruption::Decision;
use whittle_ports::{Clock, HandleError, Report, save, unless_conflict, write_mirror};
use whittle_snapshot::Snapshot;
use whittle_units::{Fnv1a, SignedDuration, Timestamp};

/// A hash of the set of workload pods on a node: bound, neither terminal nor terminating, no daemons.
pub(crate) fn pods_fingerprint<'a>(pods: impl Iterator<Item = &'a Pod>) -> u64 {
    let mut uids: Vec<&str> = pods.filter(|pod| is_workload(pod)).map(|pod| pod.metadata.uid.as_str()).collect();
    uids.sort_unstable();
    let mut hasher = Fnv1a::default();
    uids.hash(&mut hasher);
    hasher.finish()
}

fn is_workload(pod: &Pod) -> bool {
    !pod.is_daemon() && !pod.is_static() && !pod.is_terminal() && !pod.metadata.is_deleting()
}

/// Pod events within this time count as one.
const POD_EVENT_WINDOW: SignedDuration = SignedDuration::from_secs(10);

/// The time of the last pod event, after one at `now`. Pure.
pub(crate) fn last_pod_event(last: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let fresh = last.is_none_or(|last| now.duration_since(last) >= POD_EVENT_WINDOW || now < last);
    if fresh { Some(now) } else { last }
}

/// How far a step got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    Done,
    /// Time ran out: the rest is left to the next pass.
    HandedOver,
}

/// The claims whose node's pods differ from those of the last pass, with their new fingerprints. Pure.
pub(crate) fn changed_pods(snapshot: &Snapshot) -> Vec<(usize, u64)> {
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    // An unreadable pod counts as unchanged.
    for pod in snapshot.read.pods.iter().chain(snapshot.read.unreadable_pods()).filter(|pod| pod.is_bound()) {
        by_node.entry(pod.spec.node_name.as_str()).or_default().push(pod);
    }
    let none = pods_fingerprint(std::iter::empty());
    let mut changed = Vec::new();
    for (at, claim) in snapshot.claims.iter().enumerate() {
        let Some(node) = claim.value.node_name().filter(|_| !claim.value.is_ending()) else { continue };
        let now = by_node.get(node).map_or(none, |pods| pods_fingerprint(pods.iter().copied()));
        if claim.value.pods_fingerprint.unwrap_or(none) != now || claim.value.pods_fingerprint.is_none() {
            changed.push((at, now));
        }
    }
    changed
}

/// Records pod events on claims whose node's pods changed since the last pass (disruption 12), in the store and in the snapshot.
pub(crate) async fn record_pod_events<P: Rights>(ports: P, snapshot: &mut Snapshot, report: &mut Report) -> Result<Step, HandleError> {
    let none = pods_fingerprint(std::iter::empty());
    for (at, fingerprint) in changed_pods(snapshot) {
        if !has_time(ports.clock()) {
            report.hand_over();
            return Ok(Step::HandedOver);
        }
        let old = &snapshot.claims[at];
        // A node that has never had a pod has no pod event: `consolidateAfter` counts from its initialization.
        let event = old.value.pods_fingerprint.unwrap_or(none) != fingerprint;
        let last_pod_event_at = if event { last_pod_event(old.value.last_pod_event_at, snapshot.now) } else { old.value.last_pod_event_at };
        let next = Claim { pods_fingerprint: Some(fingerprint), last_pod_event_at, ..old.value.clone() };
        if let Some(saved) = unless_conflict(save(ports.store(), old, next).await)? {
            report.count("pod_events");
            snapshot.show(&saved.value);
            snapshot.claims[at] = saved;
        }
    }
    Ok(Step::Done)
}

/// Writes the conditions Consolidatable and Drifted where they differ.
pub(crate) async fn write_conditions<P: Rights>(
    ports: P,
    snapshot: &Snapshot,
    decision: &Decision,
    report: &mut Report,
) -> Result<Step, HandleError> {
    let by_name: BTreeMap<&str, &Stored<Claim>> = snapshot.claims.iter().map(|claim| (claim.value.key.name.as_str(), claim)).collect();
    for wanted in decision.conditions.iter().filter(|wanted| wanted.changed) {
        let Some(claim) = by_name.get(wanted.node_claim.as_str()) else { continue };
        if !has_time(ports.clock()) {
            report.hand_over();
            return Ok(Step::HandedOver);
        }
        let mut next = claim.value.clone();
        let list = &mut next.conditions;
        if wanted.consolidatable {
            conditions::set(list, conditions::CONSOLIDATABLE, ConditionStatus::True, conditions::CONSOLIDATABLE, "", snapshot.now);
        } else {
            conditions::clear(list, conditions::CONSOLIDATABLE);
        }
        match &wanted.drifted {
            Some(reason) => conditions::set(list, conditions::DRIFTED, ConditionStatus::True, reason, reason, snapshot.now),
            None => conditions::clear(list, conditions::DRIFTED),
        };
        if let Some(saved) = unless_conflict(save(ports.store(), claim, next).await)? {
            report.count("conditions");
            write_mirror(ports.cluster(), &saved.value).await;
        }
    }
    Ok(Step::Done)
}

/// Claims are only written while this much time remains beyond the reserve for handing over: commands matter more. The next pass
/// writes the others.
const CLAIM_WRITE_RESERVE: SignedDuration = SignedDuration::from_secs(10);

fn has_time(clock: &impl Clock) -> bool {
    crate::time_left(clock) >= CLAIM_WRITE_RESERVE
}

//! What a pass notes on claims: that pods came or went, and the conditions that follow.

use crate::Rights;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use whittle_api::k8s::Pod;
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::{Claim, Stored, mirror};
use whittle_core::disruption::Decision;
use whittle_ports::{ClaimStore, Clock, HandleError, Mirrors, Report, StoreError, save};
use whittle_snapshot::Snapshot;
use whittle_units::{Fnv1a, SignedDuration, Timestamp};

/// Names the set of workload pods on a node: bound, neither ended nor ending, no daemons.
pub(crate) fn fingerprint<'a>(pods: impl Iterator<Item = &'a Pod>) -> u64 {
    let mut uids: Vec<&str> = pods.filter(|pod| counts(pod)).map(|pod| pod.metadata.uid.as_str()).collect();
    uids.sort_unstable();
    let mut hasher = Fnv1a::default();
    uids.hash(&mut hasher);
    hasher.finish()
}

fn counts(pod: &Pod) -> bool {
    !pod.is_daemon() && !pod.is_static() && !pod.is_terminal() && !pod.metadata.is_deleting()
}

/// Pod events so soon after another are the same to whoever waits for quiet.
const ONE_EVENT: SignedDuration = SignedDuration::from_secs(10);

/// When the last pod event was, after one at `now`. Pure.
pub(crate) fn stamp(last: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let fresh = last.is_none_or(|last| now.duration_since(last) >= ONE_EVENT || now < last);
    if fresh { Some(now) } else { last }
}

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    Done,
    /// The time was over: the rest is left to the next pass.
    HandedOver,
}

/// Stamps claims whose node's pods changed since the last look (disruption 12), in the store and in the snapshot.
pub(crate) async fn pod_events<P: Rights>(ports: P, seen: &mut Snapshot, report: &mut Report) -> Result<Step, HandleError> {
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    // One that cannot be read has neither come nor gone for that.
    for pod in seen.read.pods.iter().chain(seen.read.unreadable_pods()).filter(|pod| pod.is_bound()) {
        by_node.entry(pod.spec.node_name.as_str()).or_default().push(pod);
    }
    let none = fingerprint(std::iter::empty());
    let mut stamped = Vec::new();
    for (at, claim) in seen.claims.iter().enumerate() {
        let Some(node) = claim.value.node_name().filter(|_| !claim.value.is_ending()) else { continue };
        let now = by_node.get(node).map_or(none, |pods| fingerprint(pods.iter().copied()));
        if claim.value.pods_fingerprint.unwrap_or(none) != now || claim.value.pods_fingerprint.is_none() {
            stamped.push((at, now));
        }
    }
    for (at, fingerprint) in stamped {
        if !has_time(ports.clock()) {
            report.count("handed_over");
            return Ok(Step::HandedOver);
        }
        let old = &seen.claims[at];
        // A node that has never had a pod has no pod event: its quiet starts with its initialization.
        let event = old.value.pods_fingerprint.unwrap_or(none) != fingerprint;
        let last_pod_event_at = if event { stamp(old.value.last_pod_event_at, seen.now) } else { old.value.last_pod_event_at };
        let next = Claim { pods_fingerprint: Some(fingerprint), last_pod_event_at, ..old.value.clone() };
        if let Some(saved) = keep(ports.store(), old, next).await? {
            report.count("pod_events");
            seen.show(&saved.value);
            seen.claims[at] = saved;
        }
    }
    Ok(Step::Done)
}

/// Writes Consolidatable and Drifted where they differ.
pub(crate) async fn conditions<P: Rights>(
    ports: P,
    seen: &Snapshot,
    decision: &Decision,
    report: &mut Report,
) -> Result<Step, HandleError> {
    let by_name: BTreeMap<&str, &Stored<Claim>> = seen.claims.iter().map(|claim| (claim.value.key.name.as_str(), claim)).collect();
    for wanted in decision.conditions.iter().filter(|wanted| wanted.changed) {
        let Some(claim) = by_name.get(wanted.node_claim.as_str()) else { continue };
        if !has_time(ports.clock()) {
            report.count("handed_over");
            return Ok(Step::HandedOver);
        }
        let mut next = claim.value.clone();
        let list = &mut next.conditions;
        if wanted.consolidatable {
            conditions::set(list, conditions::CONSOLIDATABLE, ConditionStatus::True, conditions::CONSOLIDATABLE, "", seen.now);
        } else {
            conditions::clear(list, conditions::CONSOLIDATABLE);
        }
        match &wanted.drifted {
            Some(reason) => conditions::set(list, conditions::DRIFTED, ConditionStatus::True, reason, reason, seen.now),
            None => conditions::clear(list, conditions::DRIFTED),
        };
        if let Some(saved) = keep(ports.store(), claim, next).await? {
            report.count("conditions");
            // `sweep` shows what could not be shown now.
            let _ = ports.cluster().apply_mirror(&saved.value.key.cluster, &mirror(&saved.value)).await;
        }
    }
    Ok(Step::Done)
}

/// Notes are only begun while this is left beyond what handing over takes: commands matter more. The next look writes
/// the others.
const NOTING: SignedDuration = SignedDuration::from_secs(10);

fn has_time(clock: &impl Clock) -> bool {
    crate::time_left(clock) >= NOTING
}

/// Stores a claim; `None` when somebody else was first, whose change then counts.
pub(crate) async fn keep<S: ClaimStore>(store: &S, old: &Stored<Claim>, next: Claim) -> Result<Option<Stored<Claim>>, HandleError> {
    match save(store, old, next).await {
        Ok(saved) => Ok(Some(saved)),
        Err(HandleError::Store(StoreError::Conflict { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

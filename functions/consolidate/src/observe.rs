//! What a pass records on claims: pod events, and the conditions that follow.

use crate::Rights;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use whittle_api::k8s::Pod;
use whittle_api::{ConditionStatus, conditions};
use whittle_claims::{Claim, Stored};
use whittle_disruption::{ClaimConditions, Decision};
use whittle_ports::{CONCURRENT_REQUESTS, Clock, ClusterReader, HandleError, Report, concurrently, save, unless_conflict, write_mirror};
use whittle_snapshot::Snapshot;
use whittle_units::{ClusterName, Fnv1a, SignedDuration, Timestamp};

/// A hash of the set of workload pods on a node: bound, neither terminal nor terminating, no daemons.
pub(crate) fn pods_fingerprint<'a>(pods: impl Iterator<Item = &'a Pod>) -> u64 {
    let mut uids: Vec<&str> = pods.filter(|pod| is_workload(pod)).map(|pod| pod.metadata.uid.as_str()).collect();
    uids.sort_unstable();
    let mut hasher = Fnv1a::default();
    uids.hash(&mut hasher);
    hasher.finish()
}

fn is_workload(pod: &Pod) -> bool {
    tells_events(pod) && !pod.is_terminal() && !pod.metadata.is_deleting()
}

/// Whether what happens to a pod is a pod event of its node: daemons come and go with the node.
fn tells_events(pod: &Pod) -> bool {
    !pod.is_daemon() && !pod.is_static()
}

/// Pod events within this time count as one.
const POD_EVENT_WINDOW: SignedDuration = SignedDuration::from_secs(10);

/// The time of the last pod event, after one at `now`. Pure.
pub(crate) fn last_pod_event(last: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let fresh = last.is_none_or(|last| now.duration_since(last) >= POD_EVENT_WINDOW || now < last);
    if fresh { Some(now) } else { last }
}

/// The time of the last pod event, where pods themselves tell of one at `told`, which may be long ago. Pure.
pub(crate) fn later_pod_event(last: Option<Timestamp>, told: Option<Timestamp>) -> Option<Timestamp> {
    match (last, told) {
        (Some(last), Some(told)) if told.duration_since(last) < POD_EVENT_WINDOW => Some(last),
        (last, told) => told.or(last),
    }
}

/// How far a step got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    Done,
    /// Time ran out: the rest is left to the next pass.
    HandedOver,
}

/// What is new about the pods on a claim's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodNews {
    /// The place of the claim in the snapshot.
    claim: usize,
    fingerprint: u64,
    pub(crate) last_pod_event_at: Option<Timestamp>,
}

/// Claims whose node has other pods than in the last pass, or pods that changed since the last pod event. For pods that came and went
/// between two passes the time is in their own status, or in `departures` once they are gone. Pure.
pub(crate) fn changed_pods(snapshot: &Snapshot, departures: &BTreeMap<String, Timestamp>) -> Vec<PodNews> {
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    // An unreadable pod counts as unchanged.
    for pod in snapshot.read.pods.iter().chain(snapshot.read.unreadable_pods()).filter(|pod| pod.is_bound()) {
        by_node.entry(pod.spec.node_name.as_str()).or_default().push(pod);
    }
    let none = pods_fingerprint(std::iter::empty());
    let mut changed = Vec::new();
    for (at, claim) in snapshot.claims.iter().enumerate() {
        let claim = &claim.value;
        let Some(node) = claim.node_name().filter(|_| !claim.is_ending()) else { continue };
        let pods = by_node.get(node).map(Vec::as_slice).unwrap_or_default();
        let fingerprint = pods_fingerprint(pods.iter().copied());
        // A node that has never had a pod has no pod event: `consolidateAfter` counts from its initialization.
        let has_others = claim.pods_fingerprint.unwrap_or(none) != fingerprint;
        let last = claim.last_pod_event_at;
        let last = if has_others { last_pod_event(last, snapshot.now) } else { last };
        let told = pods.iter().filter(|pod| tells_events(pod)).filter_map(|pod| pod.last_event());
        let told = told.chain(departures.get(node).copied()).filter(|told| is_pod_event_of(claim, *told, snapshot.now)).max();
        let last_pod_event_at = later_pod_event(last, told);
        if claim.pods_fingerprint != Some(fingerprint) || claim.last_pod_event_at != last_pod_event_at {
            changed.push(PodNews { claim: at, fingerprint, last_pod_event_at });
        }
    }
    changed
}

/// Whether a change of a pod at the time `told` counts as a pod event of the claim. Not before the node was initialized, when its name may
/// have been another machine's, and not in the future, where a kubelet's clock is ahead. Pure.
fn is_pod_event_of(claim: &Claim, told: Timestamp, now: Timestamp) -> bool {
    let initialized = conditions::find(&claim.conditions, conditions::INITIALIZED).filter(|is| is.status == ConditionStatus::True);
    initialized.and_then(|is| is.last_transition_time).is_some_and(|since| since < told) && told <= now
}

/// Records pod events on claims whose node's pods changed since the last pass (disruption 12), in the store and in the snapshot.
pub(crate) async fn record_pod_events<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    snapshot: &mut Snapshot,
    report: &mut Report,
) -> Result<Step, HandleError> {
    let departures = ports.cluster().departures(cluster).await;
    let (mut saved, mut outcome) = (Vec::new(), Ok(Step::Done));
    for some in changed_pods(snapshot, &departures).chunks(CONCURRENT_REQUESTS) {
        if !has_time(ports.clock()) {
            report.hand_over();
            outcome = Ok(Step::HandedOver);
            break;
        }
        let writes = some.iter().map(|news| {
            let old = &snapshot.claims[news.claim];
            let (pods_fingerprint, last_pod_event_at) = (Some(news.fingerprint), news.last_pod_event_at);
            save(ports.store(), old, Claim { pods_fingerprint, last_pod_event_at, ..old.value.clone() })
        });
        for (news, written) in some.iter().zip(concurrently(writes).await) {
            match unless_conflict(written) {
                Ok(claim) => saved.extend(claim.map(|claim| (news.claim, claim))),
                Err(error) => outcome = Err(error),
            }
        }
        if outcome.is_err() {
            break;
        }
    }
    saved.iter().for_each(|_| report.count("pod_events"));
    snapshot.show(saved.iter().map(|(_, claim)| &claim.value));
    for (at, claim) in saved {
        snapshot.claims[at] = claim;
    }
    outcome
}

/// Writes the conditions Consolidatable and Drifted where they differ.
pub(crate) async fn write_conditions<P: Rights>(
    ports: P,
    snapshot: &Snapshot,
    decision: &Decision,
    report: &mut Report,
) -> Result<Step, HandleError> {
    let by_name: BTreeMap<&str, &Stored<Claim>> = snapshot.claims.iter().map(|claim| (claim.value.key.name.as_str(), claim)).collect();
    let of_claim = |wanted: &ClaimConditions| by_name.get(wanted.node_claim.as_str()).copied();
    let changed = decision.conditions.iter().filter(|wanted| wanted.changed);
    let changed: Vec<_> = changed.filter_map(|wanted| Some((of_claim(wanted)?, wanted))).collect();
    for some in changed.chunks(CONCURRENT_REQUESTS) {
        if !has_time(ports.clock()) {
            report.hand_over();
            return Ok(Step::HandedOver);
        }
        let writes = some.iter().map(|(claim, wanted)| write_conditions_of(ports, claim, wanted, snapshot.now));
        for is_written in concurrently(writes).await {
            if is_written? {
                report.count("conditions");
            }
        }
    }
    Ok(Step::Done)
}

/// The same of one claim. False if it was changed meanwhile.
async fn write_conditions_of<P: Rights>(
    ports: P,
    claim: &Stored<Claim>,
    wanted: &ClaimConditions,
    now: Timestamp,
) -> Result<bool, HandleError> {
    let mut next = claim.value.clone();
    let list = &mut next.conditions;
    if wanted.consolidatable {
        conditions::set(list, conditions::CONSOLIDATABLE, ConditionStatus::True, conditions::CONSOLIDATABLE, "", now);
    } else {
        conditions::clear(list, conditions::CONSOLIDATABLE);
    }
    match &wanted.drifted {
        Some(reason) => conditions::set(list, conditions::DRIFTED, ConditionStatus::True, reason, reason, now),
        None => conditions::clear(list, conditions::DRIFTED),
    };
    let Some(saved) = unless_conflict(save(ports.store(), claim, next).await)? else { return Ok(false) };
    write_mirror(ports.cluster(), &saved.value).await;
    Ok(true)
}

/// Claims are only written while this much time remains beyond the reserve for handing over: commands matter more. The next pass
/// writes the others.
const CLAIM_WRITE_RESERVE: SignedDuration = SignedDuration::from_secs(10);

fn has_time(clock: &impl Clock) -> bool {
    crate::time_left(clock) >= CLAIM_WRITE_RESERVE
}

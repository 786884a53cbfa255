//! Claims whose launch pods without a place wait for: it decides where these may go.

use crate::{RESERVE_FOR_MEMORY, Rights, Run};
use std::collections::BTreeSet;
use whittle_api::karpenter::Operator;
use whittle_api::labels;
use whittle_claims::{Claim, ClaimSpec, Doorbell, Phase, Stored};
use whittle_model::scheduling::{Cause, Plan, Reason};
use whittle_ports::{ClaimStore, Clock, HandleError, Queues, concurrently, readable, save, unless_conflict};
use whittle_snapshot::Snapshot;
use whittle_units::ClaimName;

/// Claims of earlier plans that one run marks, each with a write. The launch of any one of a call rings.
const MARKED_MAX: usize = 50;
/// Attempts to mark a claim that `launch` writes meanwhile: it begins the call, and stores what came of it.
const ATTEMPTS_MAX: usize = 3;
/// Labels that a launch decides, whether or not the claim states them.
const OF_LAUNCHES: [&str; 3] = [labels::ZONE, labels::ZONE_ID, labels::CAPACITY_TYPE];

/// The labels of other machines on which it depends whether the pods of a plan that have no place can have one.
pub(crate) fn awaited_labels(plan: &Plan) -> BTreeSet<&str> {
    let mut out = BTreeSet::new();
    for left in &plan.left_out {
        if let Reason::Pools(rejections) = &left.reason {
            out.extend(rejections.iter().filter_map(|rejection| topology_key(&rejection.cause)));
        }
        // The checker considers every zone in which the machine of another pod may be launched (ADR 0019).
        if matches!(left.reason, Reason::RejectedByChecker(_)) {
            out.insert(labels::ZONE);
        }
    }
    // Every machine has a host of its own.
    out.remove(labels::HOSTNAME);
    out
}

fn topology_key(cause: &Cause) -> Option<&str> {
    if let Cause::Volumes(inner) = cause {
        return topology_key(inner);
    }
    if let Cause::Topology { key, .. } = cause { Some(key.as_str()) } else { None }
}

/// Whether the launch of a claim decides one of these labels.
pub(crate) fn decides(spec: &ClaimSpec, keys: &BTreeSet<&str>) -> bool {
    keys.iter().any(|key| {
        let stated = || spec.requirements.iter().filter(|stated| labels::normalized(&stated.key) == *key);
        let is_fixed = stated().any(|stated| stated.operator == Operator::In && stated.values.len() == 1);
        let is_decided = OF_LAUNCHES.contains(key) || stated().next().is_some();
        is_decided && !is_fixed && !spec.labels.contains_key(*key)
    })
}

/// Whether a claim may still get its machine.
fn is_to_come(claim: &Claim) -> bool {
    claim.deletion.is_none() && matches!(claim.phase, Phase::Planned | Phase::Launching { .. })
}

/// What became of a claim that was to be marked.
enum Outcome {
    /// It is marked. A run of `launch` that has read it before loses it.
    Unbegun(ClaimName),
    /// It is marked, and its launch has begun, or is left to `sweep`.
    Left,
    /// It got its machine first.
    Launched,
    /// It gets none, or cannot be marked.
    Over,
}

impl<P: Rights> Run<'_, P> {
    /// Marks the claims of earlier plans that are still to be launched and that pods of this one wait for. Those of this plan were stored
    /// with the mark. Nothing depends on it: the next tick plans for the same pods.
    pub(crate) async fn mark_awaited(&self, snapshot: &Snapshot, plan: &Plan) {
        let keys = awaited_labels(plan);
        if keys.is_empty() || !self.ports.clock().has_time_for(RESERVE_FOR_MEMORY) {
            return;
        }
        let is_awaited =
            |claim: &&Stored<Claim>| is_to_come(&claim.value) && !claim.value.spec.is_awaited && decides(&claim.value.spec, &keys);
        let awaited: Vec<&Stored<Claim>> = snapshot.claims.iter().filter(is_awaited).take(MARKED_MAX).collect();
        let (mut unbegun, mut is_launched) = (Vec::new(), false);
        for outcome in concurrently(awaited.into_iter().map(|claim| self.mark(claim))).await {
            match outcome {
                Ok(Outcome::Unbegun(name)) => unbegun.push(name),
                Ok(Outcome::Launched) => is_launched = true,
                Ok(Outcome::Left | Outcome::Over) => {}
                Err(error) => tracing::warn!(%error, "a claim could not be marked for pods that wait for its launch"),
            }
        }
        let mut bells = Vec::new();
        if !unbegun.is_empty() {
            bells.push(Doorbell::Launch { cluster: self.cluster.clone(), claims: unbegun });
        }
        if is_launched {
            bells.push(Doorbell::Schedule { cluster: self.cluster.clone() });
        }
        for bell in bells {
            if let Err(error) = self.ports.queues().send_now(bell).await {
                tracing::warn!(%error, "nobody could be rung for pods that wait for a launch");
            }
        }
    }

    async fn mark(&self, read: &Stored<Claim>) -> Result<Outcome, HandleError> {
        let mut known = read.clone();
        for _ in 0..ATTEMPTS_MAX {
            if !is_to_come(&known.value) {
                return Ok(if known.value.machine().is_some() { Outcome::Launched } else { Outcome::Over });
            }
            let mut next = known.value.clone();
            next.spec.is_awaited = true;
            if let Some(marked) = unless_conflict(save(self.ports.store(), &known, next).await)? {
                let is_begun = !matches!(marked.value.phase, Phase::Planned);
                // The object that a user made may lack our finalizer: `sweep` rings for its launch (ADR 0016).
                let is_left = is_begun || marked.value.spec.standalone_uid.is_some();
                return Ok(if is_left { Outcome::Left } else { Outcome::Unbegun(marked.value.key.name) });
            }
            let Some(changed) = readable(self.ports.store().get(&read.value.key).await)? else { break };
            known = changed;
        }
        Ok(Outcome::Over)
    }
}

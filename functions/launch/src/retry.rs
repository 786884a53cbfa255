//! Retries. A doorbell that is delivered twice, or whose run died after it had sent the next one, must not cause two more: while nothing
//! can be launched, their number would double each time.

use crate::{CONCURRENCY, Rights, Run, plan};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use whittle_claims::{Claim, Doorbell, Event, Record, Stored, step};
use whittle_ec2::errors::CreateReason;
use whittle_ports::{Clock, HandleError, Queues, Safeguard, Update, save, unless_outdated, update_record};
use whittle_units::{ClaimName, ClusterName, SignedDuration, Timestamp};

/// Delay before the next try of claims that a run could not get to. The rate limit permits five calls a second, so that few wait for
/// more.
const NEXT_TRY_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// Attempts to write the record against concurrent runs; after that the doorbell is sent without it.
const WRITE_ATTEMPTS_MAX: usize = 5;

/// The pending doorbell that `launch` sent to itself. Written by `launch` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextTry {
    pub(crate) due_at: Timestamp,
    /// The claims that it names.
    pub(crate) claims: BTreeSet<ClaimName>,
}

impl Record for NextTry {
    const KIND: &'static str = "launch-again";
    fn name(&self) -> String {
        NAME.to_owned()
    }
}

const NAME: &str = "next";

/// Sends a delayed doorbell for these claims, unless a pending one names them. `sweep` resends one that was lost. To be called
/// once per run with all claims that are left: every call with new names sends a doorbell for all that wait.
pub(crate) async fn requeue_once<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    claims: impl IntoIterator<Item = ClaimName>,
) -> Result<(), HandleError> {
    let mut claims: BTreeSet<ClaimName> = claims.into_iter().collect();
    let next = |known: Option<NextTry>, now: Timestamp| {
        if let Some(pending) = known.filter(|known| known.due_at > now) {
            if Safeguard::TryRungOnce.stops(claims.is_subset(&pending.claims)) {
                return None;
            }
            // This doorbell names them all, so the record needs to hold no other.
            claims.extend(pending.claims);
        }
        Some(NextTry { due_at: now.checked_add(NEXT_TRY_DELAY).unwrap_or(Timestamp::MAX), claims: claims.clone() })
    };
    if let Update::Unchanged = update_record(ports, cluster, NAME, WRITE_ATTEMPTS_MAX, next).await? {
        return Ok(());
    }
    let claims = claims.into_iter().collect();
    Ok(ports.queues().send(Doorbell::Launch { cluster: cluster.clone(), claims }, NEXT_TRY_DELAY).await?)
}

impl<P: Rights> Run<'_, P> {
    /// These claims keep waiting for the same call, which is retried after `delay`. One that is deleted by now is left as it is: when it is
    /// looked at again, and rung for, is up to `terminate`.
    pub(crate) async fn keep_waiting(
        &self,
        waiting: Vec<Stored<Claim>>,
        reason: CreateReason,
        message: &str,
        delay: SignedDuration,
    ) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let erred = Event::LaunchErred { reason: reason.as_str().to_owned(), message: message.to_owned() };
        let mut changed = Vec::new();
        for claim in waiting.into_iter().filter(|claim| claim.value.deletion.is_none()) {
            let mut next = step(&claim.value, &erred, now)?;
            next.look_again_at = now.checked_add(delay).ok();
            changed.push((claim, next));
        }
        let again = self.save_all(changed).await?;
        if again.is_empty() { Ok(()) } else { self.requeue(again, delay).await }
    }

    /// Stores changed claims and returns those that had not been changed since they were read.
    async fn save_all(&self, changed: Vec<(Stored<Claim>, Claim)>) -> Result<Vec<ClaimName>, HandleError> {
        let mut saved = Vec::new();
        for some in changed.chunks(CONCURRENCY) {
            let writes = some.iter().map(|(read, next)| async move { unless_outdated(save(self.ports.store(), read, next.clone()).await) });
            let written = try_join_all(writes).await?;
            saved.extend(written.into_iter().flatten().map(|claim| claim.value.key.name));
        }
        Ok(saved)
    }

    /// Sends a delayed doorbell for claims that this run has moved on, so that a concurrent run sends none for them, or that wait
    /// for user action: then rarely, and not beyond the launch timeout.
    pub(crate) async fn requeue(&self, claims: Vec<ClaimName>, delay: SignedDuration) -> Result<(), HandleError> {
        Ok(self.ports.queues().send(Doorbell::Launch { cluster: self.cluster.clone(), claims }, delay).await?)
    }

    /// Moves claims to one new batch: the call of their current one can launch nothing more for them.
    pub(crate) async fn replace_token(
        &self,
        claims: Vec<Stored<Claim>>,
        old: &str,
        why: Option<&Event>,
        delay: SignedDuration,
    ) -> Result<(), HandleError> {
        // The old token is part of the new one, so that no two attempts of a claim are ever the same call.
        let mut names: Vec<ClaimName> = claims.iter().map(|claim| claim.value.key.name.clone()).collect();
        names.push(ClaimName::new(old));
        let replaced = Event::TokenReplaced { from: old.to_owned(), to: plan::id_of(self.cluster, &names) };
        let now = self.ports.clock().now();
        let mut changed = Vec::new();
        for claim in claims {
            let erred = why.map_or_else(|| Ok(claim.value.clone()), |why| step(&claim.value, why, now));
            // A claim that moved on meanwhile needs no new token.
            let Ok(mut next) = erred.and_then(|claim| step(&claim, &replaced, now)) else { continue };
            next.look_again_at = now.checked_add(delay).ok();
            changed.push((claim, next));
        }
        let again = self.save_all(changed).await?;
        if again.is_empty() { Ok(()) } else { self.requeue(again, delay).await }
    }
}

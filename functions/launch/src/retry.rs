//! Retries. A doorbell that is delivered twice, or whose run died after it had sent the next one, must not cause two more: while nothing
//! can be launched, their number would double each time.

use crate::Rights;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use whittle_claims::{Doorbell, Record};
use whittle_ports::{HandleError, Queues, Safeguard, Update, update_record};
use whittle_units::{ClaimName, ClusterName, SignedDuration, Timestamp};

/// Delay before the next try of claims that a run could not get to. The rate limit permits two calls a second, so that most wait for no
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

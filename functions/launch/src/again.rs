//! Trying again soon. A doorbell that comes twice, or whose run died after it rang, must not ring twice: each of these would
//! ring twice again for as long as nothing can be launched.

use crate::Rights;
use crate::SOON;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use whittle_claims::{Doorbell, Record, Revision};
use whittle_ports::{Clock, HandleError, Queues, Records, Safeguard, StoreError};
use whittle_units::{ClaimName, ClusterName, Timestamp};

/// Runs that note their claims at the same moment; after so many the doorbell rings all the same.
const TRIED_MAX: usize = 5;

/// The next doorbell that `launch` rang for itself. Written by `launch` alone.
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

/// Rings for these claims in a moment, unless a doorbell that names them comes by then. One that got lost is overdue for
/// `sweep`. To be called once for all claims that a run leaves: each call that names others rings for all that wait.
pub(crate) async fn ring<P: Rights>(
    ports: P,
    cluster: &ClusterName,
    claims: impl IntoIterator<Item = ClaimName>,
) -> Result<(), HandleError> {
    let mut claims: BTreeSet<ClaimName> = claims.into_iter().collect();
    for _ in 0..TRIED_MAX {
        let now = ports.clock().now();
        let known = ports.store().read::<NextTry>(cluster, NAME).await?;
        let expected = known.as_ref().map_or(Revision::ABSENT, |known| known.revision);
        if let Some(pending) = known.map(|known| known.value).filter(|known| known.due_at > now) {
            if Safeguard::TryRungOnce.stops(claims.is_subset(&pending.claims)) {
                return Ok(());
            }
            // This doorbell names them all: the record tells of no other.
            claims.extend(pending.claims);
        }
        let due_at = now.checked_add(SOON).unwrap_or(Timestamp::MAX);
        match ports.store().write(cluster, &NextTry { due_at, claims: claims.clone() }, expected).await {
            Ok(_) => break,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let claims = claims.into_iter().collect();
    Ok(ports.queues().ring(Doorbell::Launch { cluster: cluster.clone(), claims }, SOON).await?)
}

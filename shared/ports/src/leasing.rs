//! The lease of a cluster around the decisions of a run.

use crate::{Clock, HandleError, Leases, Ports, Queues, Report, StoreError};
use whittle_claims::{Doorbell, Lease};
use whittle_units::SignedDuration;

/// Acquires the lease of the doorbell's cluster for `duration`. `None` while another run holds it: the doorbell is sent again
/// after `retry`. That is no error: a failed message would block its whole group until it is delivered again.
pub async fn acquire_lease<P: Ports<Store: Leases, Queues: Queues>>(
    ports: P,
    doorbell: Doorbell,
    duration: SignedDuration,
    retry: SignedDuration,
) -> Result<Option<Lease>, HandleError> {
    match ports.store().acquire(doorbell.cluster(), &ports.clock().unique(), ports.clock().now(), duration).await {
        Ok(lease) => Ok(Some(lease)),
        Err(StoreError::Held { .. }) => {
            ports.queues().send(doorbell, retry).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Releases the lease after a run. One that cannot be released expires by itself.
pub async fn release_lease<S: Leases>(store: &S, lease: &Lease) {
    let _ = store.release(lease).await;
}

/// The report of a run that found the lease held by another one.
#[must_use]
pub fn lease_held_report() -> Report {
    let mut report = Report::default();
    report.count("lease_held");
    report
}

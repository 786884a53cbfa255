//! Whose turn it is to decide for a cluster.

use crate::{Clock, HandleError, Leases, Ports, Queues, Report, StoreError};
use whittle_claims::{Doorbell, Lease};
use whittle_units::SignedDuration;

/// Takes the lease of the cluster that `bell` names for `span`. `None` while another run decides: the bell rings again after
/// `again`. That is no error: a message that failed would hold back its whole group until its visibility timeout ends.
pub async fn take_turn<P: Ports<Store: Leases, Queues: Queues>>(
    ports: P,
    bell: Doorbell,
    span: SignedDuration,
    again: SignedDuration,
) -> Result<Option<Lease>, HandleError> {
    match ports.store().acquire(bell.cluster(), &ports.clock().unique(), ports.clock().now(), span).await {
        Ok(lease) => Ok(Some(lease)),
        Err(StoreError::Held { .. }) => {
            ports.queues().ring(bell, again).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends a turn. A lease that cannot be given back runs out by itself.
pub async fn end_turn<S: Leases>(store: &S, lease: &Lease) {
    let _ = store.release(lease).await;
}

/// What a run reports whose turn it was not.
#[must_use]
pub fn not_my_turn() -> Report {
    let mut report = Report::default();
    report.count("lease_held");
    report
}

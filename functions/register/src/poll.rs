//! Polls while a Node is joining, without one loop of doorbells per tick.

use crate::{Rights, Run};
use serde::{Deserialize, Serialize};
use whittle_claims::{Doorbell, Record, Revision};
use whittle_ports::{Clock, HandleError, Queues, RecordReader, Records, Safeguard};
use whittle_units::{SignedDuration, Timestamp};

/// Node events trigger a run at once; this is for clusters without a webhook.
pub(crate) const POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

/// When the next delayed doorbell of `register` is due. Written by `register` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextRun {
    pub(crate) due_at: Timestamp,
}

impl Record for NextRun {
    const KIND: &'static str = "register-poll";
    fn name(&self) -> String {
        "next".to_owned()
    }
}

impl<P: Rights> Run<'_, P> {
    /// Sends a delayed doorbell, unless one is pending. A lost one is overdue at the next tick, and sent again.
    pub(crate) async fn requeue(&self) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let known = self.ports.store().read::<NextRun>(self.cluster, "next").await?;
        if Safeguard::LookRungOnce.stops(known.as_ref().is_some_and(|known| known.value.due_at > now)) {
            return Ok(());
        }
        let due_at = now.checked_add(POLL_INTERVAL).unwrap_or(now);
        let expected = known.map_or(Revision::ABSENT, |known| known.revision);
        if self.ports.store().write(self.cluster, &NextRun { due_at }, expected).await.is_ok() {
            self.ports.queues().send(Doorbell::Register { cluster: self.cluster.clone(), is_tick: false }, POLL_INTERVAL).await?;
        }
        Ok(())
    }
}

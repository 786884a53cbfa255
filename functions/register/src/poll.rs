//! Looking again soon while a node is on its way, without one loop of doorbells per tick.

use crate::{Rights, Run};
use serde::{Deserialize, Serialize};
use whittle_claims::{Doorbell, Record, Revision};
use whittle_ports::{Clock, HandleError, Queues, Records, Safeguard};
use whittle_units::{SignedDuration, Timestamp};

/// Node events ring at once; this is for clusters that have nobody to send them.
const EVERY: SignedDuration = SignedDuration::from_secs(5);

/// When the next delayed doorbell of `register` is due. Written by `register` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextLook {
    pub(crate) due_at: Timestamp,
}

impl Record for NextLook {
    const KIND: &'static str = "register-poll";
    fn name(&self) -> String {
        "next".to_owned()
    }
}

impl<P: Rights> Run<'_, P> {
    /// Rings in a while, unless somebody did already. A doorbell that got lost is overdue at the next tick, and rung again.
    pub(crate) async fn look_again(&self) -> Result<(), HandleError> {
        let now = self.ports.clock().now();
        let known = self.ports.store().read::<NextLook>(self.cluster, "next").await?;
        if Safeguard::LookRungOnce.stops(known.as_ref().is_some_and(|known| known.value.due_at > now)) {
            return Ok(());
        }
        let due_at = now.checked_add(EVERY).unwrap_or(now);
        let expected = known.map_or(Revision::ABSENT, |known| known.revision);
        if self.ports.store().write(self.cluster, &NextLook { due_at }, expected).await.is_ok() {
            self.ports.queues().ring(Doorbell::Register { cluster: self.cluster.clone() }, EVERY).await?;
        }
        Ok(())
    }
}

//! Classes that an answer of the cluster does not name: one such answer proves nothing, so it is looked again.

use crate::{Rights, Run};
use serde::{Deserialize, Serialize};
use whittle_claims::{Record, Revision};
use whittle_ports::{Clock, HandleError, RecordRemoval, Records, StoreError};
use whittle_units::{SignedDuration, Timestamp};

/// How far apart two answers have to be that do not name a class.
pub(crate) const APART: SignedDuration = SignedDuration::from_secs(10);
/// A class that was missed once and is not looked for again within this was not missed.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(15);

/// A class that was missing from an answer. Written by `refresh` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missed {
    /// Name of the class's record.
    class: String,
    at: Timestamp,
}

impl Record for Missed {
    const KIND: &'static str = "class-missed";
    fn name(&self) -> String {
        self.class.clone()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        self.at.checked_add(REMEMBERED).ok()
    }
}

impl<P: Rights> Run<'_, P> {
    /// Whether the class was missed before, long enough ago; notes the first time.
    pub(crate) async fn is_missed_again(&self, class: &str) -> Result<bool, HandleError> {
        let now = self.ports.clock().now();
        let known = self.ports.store().read::<Missed>(self.cluster, class).await?;
        if let Some(known) = &known {
            let since = now.duration_since(known.value.at);
            if since < REMEMBERED {
                return Ok(since >= APART);
            }
        }
        let revision = known.map_or(Revision::ABSENT, |known| known.revision);
        match self.ports.store().write(self.cluster, &Missed { class: class.to_owned(), at: now }, revision).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets that classes were missed which are there.
    pub(crate) async fn forget_missed(&self, is_there: impl Fn(&str) -> bool) -> Result<(), HandleError> {
        for known in self.ports.store().read_all::<Missed>(self.cluster).await?.into_iter().filter(|known| is_there(&known.value.class)) {
            match self.ports.store().remove::<Missed>(self.cluster, &known.value.class, known.revision).await {
                Ok(()) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

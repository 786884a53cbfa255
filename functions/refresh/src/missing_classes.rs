//! Classes that are missing from a response of the API server. One response proves nothing: a second one has to confirm it.

use crate::{Rights, Run};
use serde::{Deserialize, Serialize};
use whittle_claims::{Record, Revision};
use whittle_ports::{Clock, HandleError, RecordReader, RecordRemoval, Records, unless_conflict};
use whittle_units::{SignedDuration, Timestamp};

/// Minimum time between two responses that lack a class.
pub(crate) const CONFIRM_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// A missing class that is not confirmed within this time starts over.
const EXPIRY: SignedDuration = SignedDuration::from_mins(15);

/// A class that was missing from a response. Written by `refresh` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingClass {
    /// Name of the class's record.
    class: String,
    at: Timestamp,
}

impl Record for MissingClass {
    const KIND: &'static str = "class-missed";
    fn name(&self) -> String {
        self.class.clone()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        self.at.checked_add(EXPIRY).ok()
    }
}

impl<P: Rights> Run<'_, P> {
    /// Whether the class was already missing, long enough ago; records the first time.
    pub(crate) async fn is_missing_twice(&self, class: &str) -> Result<bool, HandleError> {
        let now = self.ports.clock().now();
        let known = self.ports.store().read::<MissingClass>(self.cluster, class).await?;
        if let Some(known) = &known {
            let since = now.duration_since(known.value.at);
            if since < EXPIRY {
                return Ok(since >= CONFIRM_AFTER);
            }
        }
        let revision = known.map_or(Revision::ABSENT, |known| known.revision);
        unless_conflict(self.ports.store().write(self.cluster, &MissingClass { class: class.to_owned(), at: now }, revision).await)?;
        Ok(false)
    }

    /// Removes the records of classes that exist.
    pub(crate) async fn remove_found(&self, is_there: impl Fn(&str) -> bool) -> Result<(), HandleError> {
        for known in
            self.ports.store().read_all::<MissingClass>(self.cluster).await?.into_iter().filter(|known| is_there(&known.value.class))
        {
            unless_conflict(self.ports.store().remove::<MissingClass>(self.cluster, &known.value.class, known.revision).await)?;
        }
        Ok(())
    }
}

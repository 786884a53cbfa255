//! Stores the transitions of claims.

use crate::{ClaimStore, HandleError};
use whittle_claims::{Claim, Event, Stored, step};
use whittle_units::Timestamp;

/// Applies an event to a claim and stores the result; an unchanged claim is not written.
pub async fn advance<S: ClaimStore>(store: &S, claim: &Stored<Claim>, event: &Event, now: Timestamp) -> Result<Stored<Claim>, HandleError> {
    let next = step(&claim.value, event, now)?;
    save(store, claim, next).await
}

/// Replaces the claim that was read; an equal one is not written.
pub async fn save<S: ClaimStore>(store: &S, read: &Stored<Claim>, next: Claim) -> Result<Stored<Claim>, HandleError> {
    if next == read.value {
        return Ok(read.clone());
    }
    let revision = store.update(&next, read.revision).await?;
    Ok(Stored { value: next, revision })
}

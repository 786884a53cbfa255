//! Lost races: another write came first, which is a normal outcome of compare-and-swap.

use crate::{HandleError, StoreError};

/// An error of a write to the store.
pub trait WriteError {
    /// Whether another write came first, so that nothing was written.
    fn is_conflict(&self) -> bool;
}

impl WriteError for StoreError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

impl WriteError for HandleError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_conflict())
    }
}

/// The result of a write; `None` if another write came first.
///
/// # Errors Every error but a conflict.
pub fn unless_conflict<V, E: WriteError>(outcome: Result<V, E>) -> Result<Option<V>, E> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_conflict() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The result of a transition; `None` if another write came first, or the claim has changed so that the event does not apply.
///
/// # Errors Every error but a conflict and an illegal step.
pub fn unless_outdated<V>(outcome: Result<V, HandleError>) -> Result<Option<V>, HandleError> {
    match outcome {
        Err(HandleError::Illegal(_)) => Ok(None),
        outcome => unless_conflict(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_claims::{ClaimKey, IllegalStep};

    #[test]
    fn only_a_conflict_is_a_normal_outcome() {
        let conflict = || StoreError::Conflict { what: "claim a".into() };
        let throttled = || StoreError::Throttled { what: "claim a".into() };
        assert_eq!(unless_conflict(Ok::<_, StoreError>(1)), Ok(Some(1)));
        assert_eq!(unless_conflict(Err::<u8, _>(conflict())), Ok(None));
        assert_eq!(unless_conflict(Err::<u8, _>(HandleError::Store(conflict()))), Ok(None));
        assert_eq!(unless_conflict(Err::<u8, _>(throttled())), Err(throttled()));
        assert_eq!(unless_outdated(Err::<u8, _>(HandleError::Store(throttled()))), Err(HandleError::Store(throttled())));
    }

    /// A run that went on would decide beside the one that has the lease.
    #[test]
    fn a_lease_that_has_passed_to_another_run_is_never_taken_for_a_lost_race() {
        let fenced = || StoreError::Fenced { cluster: "c".into() };
        assert_eq!(unless_conflict(Err::<u8, _>(fenced())), Err(fenced()));
        assert_eq!(unless_outdated(Err::<u8, _>(HandleError::Store(fenced()))), Err(HandleError::Store(fenced())));
    }

    #[test]
    fn only_a_transition_may_be_outdated() {
        let key = ClaimKey { cluster: "c".into(), name: "a".into() };
        let illegal = || HandleError::Illegal(IllegalStep { claim: key.clone(), phase: "Gone", event: "LaunchBegun", why: "it has ended" });
        assert_eq!(unless_outdated(Err::<u8, _>(illegal())), Ok(None));
        assert_eq!(unless_conflict(Err::<u8, _>(illegal())), Err(illegal()));
    }
}

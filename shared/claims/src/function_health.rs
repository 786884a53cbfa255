//! How a function serves a cluster, as far as none of its own metrics tells: that it does not end well at all, or has not for long.

use crate::function::Function;
use crate::record::Record;
use serde::{Deserialize, Serialize};
use whittle_units::{SignedDuration, Timestamp};

/// How often a function that ends well writes that down again.
const RENEWED_EVERY: SignedDuration = SignedDuration::from_mins(3);
/// A function with a tick each minute that has not ended well for this long does not work.
const SILENT_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// A function that is called every few minutes, and has failed each time for this long, needs somebody.
const FAILING_AFTER: SignedDuration = SignedDuration::from_mins(30);
/// How long what nobody writes again is kept.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Whether a function goes on serving a cluster. Written by the function that it names; the first one of
/// `schedule` by `sweep`, which tells of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionHealth {
    /// The function's name.
    pub function: String,
    /// When a run last ended well: of `schedule` to within some minutes, of `refresh` when this was last written.
    pub well_at: Timestamp,
    /// When the first run failed after which none has ended well. Only of `refresh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
}

impl Record for FunctionHealth {
    const KIND: &'static str = "function-health";
    fn name(&self) -> String {
        self.function.clone()
    }
    /// A record that a function is well expires when its cluster is gone and no run renews it. A record of a failure stays.
    fn expires_at(&self) -> Option<Timestamp> {
        if self.failing_since.is_some() { None } else { self.well_at.checked_add(KEPT_FOR).ok() }
    }
}

impl FunctionHealth {
    /// That of a function which is well at `now`.
    #[must_use]
    pub fn well(function: Function, now: Timestamp) -> Self {
        Self { function: function.name().to_owned(), well_at: now, failing_since: None }
    }

    /// What is stored after a run that ended well, of a function that is waited for; `None` if that is known. A time in the future comes
    /// from a wrong clock.
    #[must_use]
    pub fn renewed(known: Option<&Self>, function: Function, now: Timestamp) -> Option<Self> {
        let is_recent = |known: &Self| (SignedDuration::ZERO..RENEWED_EVERY).contains(&now.duration_since(known.well_at));
        (!known.is_some_and(is_recent)).then(|| Self::well(function, now))
    }

    /// What is stored after a run of a function whose failures are counted; `None` if nothing has changed.
    #[must_use]
    pub fn after_run(known: Option<&Self>, function: Function, ended_well: bool, now: Timestamp) -> Option<Self> {
        let was_failing = known.is_some_and(|known| known.failing_since.is_some());
        match (ended_well, was_failing) {
            (true, true) => Some(Self::well(function, now)),
            (false, false) => {
                let well_at = known.map_or(now, |known| known.well_at);
                Some(Self { well_at, failing_since: Some(now), ..Self::well(function, now) })
            }
            _ => None,
        }
    }

    /// Whether a function that is waited for has not ended well for too long.
    #[must_use]
    pub fn is_silent(&self, now: Timestamp) -> bool {
        now.duration_since(self.well_at) >= SILENT_AFTER
    }

    /// Whether a function whose failures are counted has failed for too long.
    #[must_use]
    pub fn has_failed_for_long(&self, now: Timestamp) -> bool {
        self.failing_since.is_some_and(|since| now.duration_since(since) >= FAILING_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    #[test]
    fn a_function_that_is_waited_for_is_silent_once_no_run_ends_well() {
        let schedule = |known: Option<&FunctionHealth>, now| FunctionHealth::renewed(known, Function::Schedule, at(now));
        let first = schedule(None, 0).unwrap();
        assert_eq!((first.name().as_str(), first.well_at), ("schedule", at(0)));
        assert_eq!(schedule(Some(&first), 179), None);
        assert_eq!(schedule(Some(&first), 180), Some(FunctionHealth::well(Function::Schedule, at(180))));
        assert!(schedule(Some(&first), -1).is_some(), "a clock was wrong");
        assert_eq!((first.is_silent(at(599)), first.is_silent(at(600))), (false, true));
    }

    #[test]
    fn failures_count_from_the_first_one_after_the_last_run_that_ended_well() {
        let refresh = |known: Option<&FunctionHealth>, well, now| FunctionHealth::after_run(known, Function::Refresh, well, at(now));
        assert_eq!(refresh(None, true, 0), None, "nothing is written while all is well");
        let failing = refresh(None, false, 300).unwrap();
        assert_eq!(refresh(Some(&failing), false, 600), None);
        assert_eq!((failing.has_failed_for_long(at(2_099)), failing.has_failed_for_long(at(2_100))), (false, true));
        let well = refresh(Some(&failing), true, 2_400).unwrap();
        assert_eq!((well.failing_since, well.has_failed_for_long(at(90_000))), (None, false));
        assert_eq!(refresh(Some(&well), true, 2_700), None);
        let again = refresh(Some(&well), false, 3_000).unwrap();
        assert_eq!((again.failing_since, again.well_at), (Some(at(3_000)), at(2_400)));
        assert_eq!((again.expires_at(), well.expires_at()), (None, Some(at(2_400 + 7 * 86_400))));
    }
}

//! How a function serves a cluster, as far as none of its own metrics tells: that it does not end well at all, or has not for long.

use crate::function::Function;
use crate::record::Record;
use serde::{Deserialize, Serialize};
use whittle_units::{SignedDuration, Timestamp};

/// How often a function that ends well writes that down again.
const RENEWED_EVERY: SignedDuration = SignedDuration::from_mins(3);
/// A function with a tick each minute that has not ended well for this long does not work.
const SILENT_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// After this the next record of a function with a tick each minute is overdue.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// How long `sweep` has to see that, look after look, before it tells of it: several ticks of the function, and the time that a stack takes
/// to update all of its functions.
const WATCHED_FOR: SignedDuration = SignedDuration::from_mins(4);
/// Looks that are further apart do not follow one another: meanwhile the schedules were off, an earlier release worked, or the cluster was
/// not served.
const LOOKS_APART: SignedDuration = SignedDuration::from_mins(3);
/// Looks that are closer together are not written down.
const LOOK_NOTED_EVERY: SignedDuration = SignedDuration::from_secs(30);
/// A function that is called every few minutes, and has failed each time for this long, needs somebody.
const FAILING_AFTER: SignedDuration = SignedDuration::from_mins(30);
/// How long what nobody writes again is kept.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);

/// That a record is overdue, as `sweep` sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overdue {
    /// The first of the looks that all saw it.
    pub since: Timestamp,
    /// The latest of them.
    pub seen_at: Timestamp,
}

impl Overdue {
    /// Whether a look at `now` follows the latest one. A time in the future comes from a wrong clock.
    fn goes_on(&self, now: Timestamp) -> bool {
        (SignedDuration::ZERO..LOOKS_APART).contains(&now.duration_since(self.seen_at))
    }
}

/// Whether a function still serves a cluster. The record is written by the function that it names, except that `sweep` creates that of
/// `schedule` and notes in it when `schedule` is overdue. `sweep` reports on both functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionHealth {
    /// The function's name.
    pub function: String,
    /// When a run last succeeded: for `schedule` accurate to some minutes, for `refresh` as of the last write of this record.
    pub well_at: Timestamp,
    /// When the first of the latest runs failed, if none has succeeded since. Only for `refresh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Only of `schedule`, whose next record has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<Overdue>,
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
        Self { function: function.name().to_owned(), well_at: now, failing_since: None, overdue: None }
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

    /// What `sweep` stores when it sees the record of a function that is waited for; `None` if it has nothing new to say.
    #[must_use]
    pub fn seen(&self, now: Timestamp) -> Option<Self> {
        if now.duration_since(self.well_at) < OVERDUE_AFTER {
            return None;
        }
        let known = self.overdue.as_ref().filter(|overdue| overdue.goes_on(now));
        if known.is_some_and(|overdue| now.duration_since(overdue.seen_at) < LOOK_NOTED_EVERY) {
            return None;
        }
        let since = known.map_or(now, |overdue| overdue.since);
        Some(Self { overdue: Some(Overdue { since, seen_at: now }), ..self.clone() })
    }

    /// Whether a function that is waited for has not ended well for too long. One reading cannot show that: if nobody had
    /// called the function before, its first run may be about to end well.
    #[must_use]
    pub fn is_silent(&self, now: Timestamp) -> bool {
        let was_watched = |overdue: &Overdue| overdue.goes_on(now) && now.duration_since(overdue.since) >= WATCHED_FOR;
        now.duration_since(self.well_at) >= SILENT_AFTER && self.overdue.as_ref().is_some_and(was_watched)
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
    use std::ops::RangeInclusive;

    #[test]
    fn a_function_that_is_waited_for_is_silent_once_no_run_ends_well() {
        let schedule = |known: Option<&FunctionHealth>, now| FunctionHealth::renewed(known, Function::Schedule, at(now));
        let first = schedule(None, 0).unwrap();
        assert_eq!((first.name().as_str(), first.well_at), ("schedule", at(0)));
        assert_eq!(schedule(Some(&first), 179), None);
        assert_eq!(schedule(Some(&first), 180), Some(FunctionHealth::well(Function::Schedule, at(180))));
        assert!(schedule(Some(&first), -1).is_some(), "a clock was wrong");
        assert_eq!(silent_from(first, 0..=900, 60), Some(600));
    }

    /// At which second the first of the looks at a record sees that its function is silent.
    fn silent_from(mut known: FunctionHealth, looks: RangeInclusive<i64>, every: usize) -> Option<i64> {
        looks.step_by(every).find(|second| {
            if let Some(next) = known.seen(at(*second)) {
                known = next;
            }
            known.is_silent(at(*second))
        })
    }

    #[test]
    fn a_function_that_nobody_watched_is_silent_only_if_looks_that_follow_one_another_see_it() {
        let first = FunctionHealth::well(Function::Schedule, at(0));
        assert!(!first.is_silent(at(86_400)), "nobody has looked");
        assert_eq!(silent_from(first.clone(), 3_600..=7_200, 60), Some(3_840), "schedules were off for an hour");
        assert_eq!(silent_from(first.clone(), 3_600..=7_200, 10), Some(3_840), "of many looks some are written down");
        assert_eq!(silent_from(first.clone(), 0..=7_200, 300), None, "looks that are far apart");
        // Watched until just before it would be told, and then not for a while.
        let mut watched = first.clone();
        for second in (300..600).step_by(60) {
            watched = watched.seen(at(second)).unwrap();
        }
        assert!(watched.is_silent(at(600)) && !watched.is_silent(at(1_200)));
        assert_eq!(silent_from(watched.clone(), 1_200..=1_800, 60), Some(1_440));
        assert!(!watched.is_silent(at(500)), "it is early, or a clock was wrong");
        // A run that ends well is the end of it.
        let well = FunctionHealth::renewed(Some(&watched), Function::Schedule, at(601)).unwrap();
        assert_eq!(well, FunctionHealth::well(Function::Schedule, at(601)));
        assert_eq!((first.seen(at(299)), well.seen(at(700))), (None, None), "nothing is written while all is well");
        let known = watched.overdue.clone();
        assert_eq!(serde_json::from_value::<FunctionHealth>(serde_json::to_value(&watched).unwrap()).unwrap().overdue, known);
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

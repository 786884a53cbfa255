//! Launch templates that this execution environment has lately created or found, so that it does not ask EC2 for them again: a template's
//! name identifies its contents.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use whittle_units::{SignedDuration, Timestamp};

/// How long a template is assumed to exist after it was created. `sweep` deletes none that is younger than ten minutes. If one is deleted
/// with its node class, or by somebody else, the next CreateFleet fails and says so.
const NEW_KNOWN_FOR: SignedDuration = SignedDuration::from_mins(5);
/// The same for a template that existed already. `sweep` reads once a minute which templates are in use, misses most launches, and may
/// therefore be about to delete it; the launches that follow then make a call that fails.
const FOUND_KNOWN_FOR: SignedDuration = SignedDuration::from_secs(30);

/// A template that was made, or found to be there.
#[derive(Clone, Copy, Debug)]
struct Known {
    at: Timestamp,
    is_new: bool,
}

impl Known {
    /// A time in the future comes from a clock that was wrong, and does not count.
    fn holds(self, now: Timestamp) -> bool {
        let known_for = if self.is_new { NEW_KNOWN_FOR } else { FOUND_KNOWN_FOR };
        (SignedDuration::ZERO..known_for).contains(&now.duration_since(self.at))
    }
}

/// Launch templates by name. To ask EC2 whether one exists costs as much as creating it: both count against five calls a second for the
/// account, and take a third of a second of each launch.
#[derive(Debug, Default)]
pub struct MadeTemplates(Mutex<BTreeMap<String, Known>>);

impl MadeTemplates {
    /// Whether the template is assumed to exist.
    pub(crate) fn has(&self, name: &str, now: Timestamp) -> bool {
        self.known().get(name).is_some_and(|known| known.holds(now))
    }

    /// Remembers one that was made now.
    pub(crate) fn remember_new(&self, name: &str, now: Timestamp) {
        self.remember(name, Known { at: now, is_new: true });
    }

    /// Remembers one that was there before. If it was made lately, it is as new as it was.
    pub(crate) fn remember_found(&self, name: &str, now: Timestamp) {
        if !self.has(name, now) {
            self.remember(name, Known { at: now, is_new: false });
        }
    }

    fn remember(&self, name: &str, template: Known) {
        let mut known = self.known();
        known.retain(|_, known| known.holds(template.at));
        known.insert(name.to_owned(), template);
    }

    /// Forgets all: one of them may be gone.
    pub(crate) fn forget(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("in range")
    }

    #[test]
    fn a_template_is_known_for_some_time_or_until_all_are_forgotten() {
        type Remember = fn(&MadeTemplates, &str, Timestamp);
        let ways: [(Remember, i64); 2] = [(MadeTemplates::remember_new, 309), (MadeTemplates::remember_found, 39)];
        for (remember, last) in ways {
            let made = MadeTemplates::default();
            remember(&made, "one", at(10));
            assert!(!made.has("two", at(10)));
            for (second, known) in [(9, false), (10, true), (last, true), (last + 1, false)] {
                assert_eq!(made.has("one", at(second)), known, "at {second}");
            }
            remember(&made, "two", at(320));
            assert_eq!(made.known().keys().collect::<Vec<_>>(), ["two"], "what is too old is dropped");
            made.forget();
            assert!(!made.has("two", at(320)));
        }
    }

    #[test]
    fn what_was_made_lately_stays_known_when_it_is_found_and_no_longer_than_that() {
        let made = MadeTemplates::default();
        made.remember_new("one", at(0));
        made.remember_found("one", at(100));
        assert!(made.has("one", at(299)) && !made.has("one", at(300)));
        made.remember_found("one", at(310));
        assert!(made.has("one", at(339)) && !made.has("one", at(340)));
    }
}

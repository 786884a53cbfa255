//! Launch templates that an execution environment has made lately: their names say what is in them, so that they are not made again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use whittle_units::{SignedDuration, Timestamp};

/// For how long a template is taken to be there. `sweep` deletes those that no launch has used for ten minutes; of one that somebody else
/// deletes, the next CreateFleet says so.
const KNOWN_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Names of launch templates, and when each was made, or found to be there. A call that asks EC2 for a template that is there costs as
/// much as one that makes it: five a second, in all of the account, and a third of a second of each launch.
#[derive(Debug, Default)]
pub struct MadeTemplates(Mutex<BTreeMap<String, Timestamp>>);

impl MadeTemplates {
    /// Whether it was made not long ago. What was made in the future, by a clock that was wrong, does not count.
    pub(crate) fn has(&self, name: &str, now: Timestamp) -> bool {
        self.known().get(name).is_some_and(|at| is_recent(*at, now))
    }

    pub(crate) fn remember(&self, name: &str, now: Timestamp) {
        let mut known = self.known();
        known.retain(|_, at| is_recent(*at, now));
        known.insert(name.to_owned(), now);
    }

    /// Forgets all: one of them may be gone.
    pub(crate) fn forget(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    (SignedDuration::ZERO..KNOWN_FOR).contains(&now.duration_since(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_known_for_five_minutes_or_until_all_are_forgotten() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).expect("in range");
        let made = MadeTemplates::default();
        made.remember("one", at(10));
        assert!(!made.has("two", at(10)));
        for (second, known) in [(9, false), (10, true), (309, true), (310, false)] {
            assert_eq!(made.has("one", at(second)), known, "at {second}");
        }
        made.remember("two", at(320));
        assert_eq!(made.known().keys().collect::<Vec<_>>(), ["two"], "what is too old is dropped");
        made.forget();
        assert!(!made.has("two", at(320)));
    }
}

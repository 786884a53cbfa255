//! Contradictions that were seen, in this sweep and in earlier ones. Pure.

use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::Sighting;
use whittle_units::{SignedDuration, Timestamp};

/// A contradiction is acted on when it is seen again at least this long after the first sighting.
pub(crate) const SIGHTING_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// A contradiction that is not seen again within this time starts over.
const SIGHTING_EXPIRY: SignedDuration = SignedDuration::from_mins(10);

/// The sightings of this run and of earlier ones.
pub(crate) struct Sightings<'a> {
    /// Of earlier runs, those that have expired included.
    stored: &'a [Sighting],
    known: BTreeMap<&'a str, &'a Sighting>,
    current: BTreeSet<String>,
    note: Vec<Sighting>,
    now: Timestamp,
}

impl<'a> Sightings<'a> {
    /// `stored` are those of earlier runs.
    pub(crate) fn of(stored: &'a [Sighting], now: Timestamp) -> Self {
        let known = stored.iter().filter(|known| known.expires_at > now).map(|known| (known.subject.as_str(), known)).collect();
        Self { stored, known, current: BTreeSet::new(), note: Vec::new(), now }
    }

    /// What was seen now for the first time, and the subjects of contradictions that have resolved themselves.
    pub(crate) fn into_changes(self) -> (Vec<Sighting>, Vec<String>) {
        let Self { stored, current, note, .. } = self;
        let resolved = stored.iter().map(|known| known.subject.clone()).filter(|subject| !current.contains(subject)).collect();
        (note, resolved)
    }

    /// Records a contradiction; true if it was first seen long enough ago.
    pub(crate) fn is_confirmed(&mut self, subject: String, after: SignedDuration) -> bool {
        let first = self.known.get(subject.as_str()).map(|known| known.first_seen_at);
        if first.is_none() {
            let expires_at = self.now.checked_add(after.max(SIGHTING_EXPIRY) + SIGHTING_EXPIRY).unwrap_or(Timestamp::MAX);
            self.note.push(Sighting { subject: subject.clone(), first_seen_at: self.now, expires_at });
        }
        self.current.insert(subject);
        first.is_some_and(|first| self.now.duration_since(first) >= after)
    }

    /// Whether an earlier run recorded this.
    pub(crate) fn is_known(&self, subject: &str) -> bool {
        self.known.contains_key(subject)
    }

    /// Keeps a sighting that this run cannot judge.
    pub(crate) fn retain(&mut self, subject: String) {
        self.current.insert(subject);
    }

    /// True if this was not reported within `every`.
    pub(crate) fn is_due(&mut self, subject: String, every: SignedDuration) -> bool {
        let fresh = !self.known.contains_key(subject.as_str());
        if fresh {
            let expires_at = self.now.checked_add(every).unwrap_or(Timestamp::MAX);
            self.note.push(Sighting { subject: subject.clone(), first_seen_at: self.now, expires_at });
        }
        self.current.insert(subject);
        fresh
    }
}

//! Which doorbells of Nodes and NodeClaims this execution environment sent last: while machines join, their Nodes are written many times
//! a second, and whoever deletes a NodePool deletes its NodeClaims all at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use whittle_claims::Doorbell;
use whittle_units::{SignedDuration, Timestamp};

/// An environment sends at most one doorbell of a cluster for a function to be delivered in this time, and what is left out is told by one
/// that is delivered at most this much later.
const EVERY: SignedDuration = SignedDuration::from_secs(1);

/// When the last doorbell of each kind and cluster is delivered. An environment that forgets only sends more of them.
#[derive(Debug, Default)]
pub struct Recent(Mutex<BTreeMap<Doorbell, Timestamp>>);

impl Recent {
    /// Nothing was sent yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// How long a doorbell is to be delayed beyond `due`, when it can tell of what happens now; `None` if one that was sent before is
    /// delivered after that.
    pub(crate) fn delay(&self, doorbell: &Doorbell, due: Timestamp) -> Option<SignedDuration> {
        let sent = self.lock().get(doorbell).copied();
        match sent {
            // A clock that was set back by more says nothing; by less, the tick finds what seemed to be covered.
            Some(delivered) if delivered > due && delivered <= due + EVERY => None,
            Some(delivered) if delivered > due - EVERY && delivered <= due => Some(EVERY),
            _ => Some(SignedDuration::ZERO),
        }
    }

    /// A doorbell was sent, and is delivered then.
    pub(crate) fn sent(&self, doorbell: &Doorbell, delivered: Timestamp) {
        self.lock().insert(doorbell.clone(), delivered);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Doorbell, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of changes at these times in milliseconds: when each doorbell that is sent is delivered.
    fn delivered(changes: &[i64]) -> Vec<i64> {
        let (recent, doorbell) = (Recent::new(), Doorbell::sweep("demo".into()));
        let at = |milliseconds: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_millis(milliseconds);
        let ring = |change: &i64| {
            let delay = recent.delay(&doorbell, at(*change))?;
            recent.sent(&doorbell, at(*change) + delay);
            Some(change + i64::try_from(delay.as_millis()).unwrap())
        };
        changes.iter().filter_map(ring).collect()
    }

    #[test]
    fn many_changes_are_a_doorbell_a_second_and_a_lone_one_is_told_at_once() {
        assert_eq!(delivered(&[5_000]), [5_000]);
        assert_eq!(delivered(&[0, 100, 200, 900, 1_050]), [0, 1_100]);
        assert_eq!(delivered(&[0, 100, 1_100, 1_101, 1_500]), [0, 1_100, 2_100], "what is told at that moment may have been read already");
        assert_eq!(delivered(&[0, 1_000, 2_000, 3_000]), [0, 1_000, 2_000, 3_000]);
        let storm: Vec<i64> = (0..10_000).collect();
        assert!(delivered(&storm).len() <= 11);
        assert_eq!(delivered(&[60_000, 0, 100]), [60_000, 0, 1_100], "the clock was set back");
    }

    #[test]
    fn every_change_is_told_within_a_second() {
        let changes: Vec<i64> =
            (0..400).map(|number| number * number % 7_919).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        let told = delivered(&changes);
        for change in &changes {
            assert!(told.iter().any(|at| (*change..=change + 1_000).contains(at)), "{change}: {told:?}");
        }
    }

    #[test]
    fn neither_clusters_nor_functions_nor_what_they_are_rung_for_hide_each_other() {
        let (recent, now) = (Recent::new(), Timestamp::UNIX_EPOCH);
        recent.sent(&Doorbell::sweep("a".into()), now + EVERY);
        assert_eq!(recent.delay(&Doorbell::sweep("a".into()), now), None);
        for other in [Doorbell::sweep("b".into()), Doorbell::register("a".into())] {
            assert_eq!(recent.delay(&other, now), Some(SignedDuration::ZERO));
        }
        recent.sent(&Doorbell::register("a".into()), now + EVERY);
        let deletions = Doorbell::Deletions { cluster: "a".into() };
        assert_eq!(recent.delay(&deletions, now), Some(SignedDuration::ZERO), "a run for Nodes that join looks for no deletions");
    }
}

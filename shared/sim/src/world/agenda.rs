//! Virtual time: the event queue, in a total order.

use jiff::Timestamp;
use std::collections::BTreeMap;

/// Events by time, then by the order in which they were set.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    now: Timestamp,
    sequence: u64,
    events: BTreeMap<(Timestamp, u64), E>,
}

impl<E> Agenda<E> {
    /// An empty agenda that starts at `now`.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { now, sequence: 0, events: BTreeMap::new() }
    }
    /// The virtual time.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }
    /// Sets an event; one in the past happens next.
    pub(super) fn at(&mut self, time: Timestamp, event: E) {
        self.sequence += 1;
        self.events.insert((time.max(self.now), self.sequence), event);
    }
    /// Moves to the next event, unless it lies after `limit`.
    pub(super) fn pop(&mut self, limit: Timestamp) -> Option<E> {
        let key = *self.events.keys().next()?;
        if key.0 > limit {
            return None;
        }
        self.now = key.0;
        self.events.remove(&key)
    }
    /// Advances time without an event; never backwards.
    pub(super) fn idle_until(&mut self, time: Timestamp) {
        self.now = self.now.max(time);
    }
}

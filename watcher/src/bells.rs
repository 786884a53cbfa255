//! When the relay is told what: coalescing, the rate, and what happens after a failure.
//!
//! A kind is due from the moment it is rung until a post that began later has been answered. It is posted at once, and then at most once in
//! each second. Two watchers of a cluster know nothing of each other; their repeated posts begin at the same moments of the wall clock, so
//! that the queue takes both for one message.

use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::PostKind;
use whittle_units::{SignedDuration, Timestamp};

/// The time between two posts of a kind, less what the first was late.
pub const INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Repeated posts begin this long after a full second: the plan queue drops a repetition within the same half of a second, and the rest
/// of that half is for the post's way, which differs between two watchers.
const SLOT: SignedDuration = SignedDuration::from_millis(100);
/// A timer fires this long after its slot at the most, on a machine that does other things; the next slot is then due all the same.
const LATE_MAX: SignedDuration = SignedDuration::from_millis(50);
/// The wait after the first failure; it doubles with each further one.
const BACKOFF_MIN: SignedDuration = SignedDuration::from_secs(1);
/// The longest wait, well below the minute after which the tick finds everything.
const BACKOFF_MAX: SignedDuration = SignedDuration::from_secs(16);

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Post these kinds.
    Post(BTreeSet<PostKind>),
    /// Ask again at this time, or after the next bell.
    Wait(Timestamp),
    /// Ask again after the next bell, or after the answer to the post that is under way.
    Idle,
}

/// Why a post failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The relay was not reached, had no room, or could not send.
    Unavailable,
    /// The relay refused it: it will, until somebody has changed a setting.
    Refused,
}

/// The part of a wait that chance decides, in thousandths: two watchers must not return at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(u32);

impl Jitter {
    /// From any random number.
    pub const fn new(random: u32) -> Self {
        Self(random % 1001)
    }
}

/// The wait after a failure.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    since: Timestamp,
    wait: SignedDuration,
}

/// What is due, and what is under way.
#[derive(Clone, Debug, Default)]
pub struct Bells {
    due: BTreeSet<PostKind>,
    under_way: BTreeSet<PostKind>,
    /// When the last post of each kind began.
    posted: BTreeMap<PostKind, Timestamp>,
    failures: u32,
    backoff: Option<Backoff>,
}

impl Bells {
    /// Something of this kind has changed.
    pub fn ring(&mut self, kind: PostKind) {
        self.due.insert(kind);
    }

    /// Whether everything that was rung has been told.
    pub fn is_quiet(&self) -> bool {
        self.due.is_empty() && self.under_way.is_empty()
    }

    /// How many posts have failed since the last that did not.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// What to do at `now`.
    pub fn next(&self, now: Timestamp) -> Next {
        if !self.under_way.is_empty() {
            return Next::Idle;
        }
        let (ready, later): (Vec<_>, Vec<_>) =
            self.due.iter().map(|kind| (self.ready_at(*kind, now), *kind)).partition(|(at, _)| *at <= now);
        match later.iter().map(|(at, _)| *at).min() {
            _ if !ready.is_empty() => Next::Post(ready.into_iter().map(|(_, kind)| kind).collect()),
            Some(at) => Next::Wait(at),
            None => Next::Idle,
        }
    }

    /// Everything that is due, however soon after the last post: for the end of the process.
    pub fn last(&self) -> BTreeSet<PostKind> {
        self.due.clone()
    }

    /// A post of these kinds begins. What is rung from now on is due again afterwards.
    pub fn begin(&mut self, kinds: BTreeSet<PostKind>, now: Timestamp) {
        for kind in &kinds {
            self.due.remove(kind);
            self.posted.insert(*kind, now);
        }
        self.under_way = kinds;
    }

    /// The post succeeded.
    pub fn delivered(&mut self) {
        self.under_way.clear();
        self.failures = 0;
        self.backoff = None;
    }

    /// The post failed: its kinds stay due.
    pub fn failed(&mut self, failure: Failure, now: Timestamp, jitter: Jitter) {
        self.due.append(&mut self.under_way);
        self.failures = self.failures.saturating_add(1);
        let full = match failure {
            Failure::Unavailable => (BACKOFF_MIN * (1 << (self.failures - 1).min(10))).min(BACKOFF_MAX),
            Failure::Refused => BACKOFF_MAX,
        };
        // From one half to the whole.
        let millis = full.as_millis() / 2 * (1000 + i128::from(jitter.0)) / 1000;
        self.backoff = Some(Backoff { since: now, wait: SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)) });
    }

    /// When a due kind may be posted. A time in the future that only a clock set back explains counts as past, or nothing would be
    /// posted until the clock is there again.
    fn ready_at(&self, kind: PostKind, now: Timestamp) -> Timestamp {
        let posted = self.posted.get(&kind).filter(|posted| **posted <= now).map(|posted| slot_after(*posted));
        let retry = self.backoff.filter(|backoff| backoff.since <= now).map(|backoff| backoff.since + backoff.wait);
        posted.into_iter().chain(retry).max().unwrap_or(now)
    }
}

/// The first slot that is an interval after a post, which may have begun somewhat after its own slot.
fn slot_after(posted: Timestamp) -> Timestamp {
    let (interval, slot) = (INTERVAL.as_millis(), SLOT.as_millis());
    let least = i128::from(posted.as_millisecond()) + interval - LATE_MAX.as_millis();
    let past = (least - slot).rem_euclid(interval);
    let at = if past == 0 { least } else { least + interval - past };
    i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok()).unwrap_or(posted)
}

#[cfg(test)]
mod tests;

//! The system clock, with the deadline of an invocation.

use crate::Function;
use whittle_ports::{Clock, Deadline};
use whittle_units::{SignedDuration, Timestamp};

/// The part of the remaining time that is reserved for the response: a tenth, within these bounds.
const RESERVE_PART: i32 = 10;
const RESERVE_MIN: SignedDuration = SignedDuration::from_millis(100);
const RESERVE_MAX: SignedDuration = SignedDuration::from_secs(2);

/// The longest that a try of a notice waits for API servers. What it writes there is best effort; a server that hangs would hold each of
/// its cluster's notices for the whole try, while those of other clusters wait, which leave two minutes.
const NOTICE_WAIT_MAX: SignedDuration = SignedDuration::from_secs(4);

/// The clock of one invocation.
#[derive(Clone, Copy, Debug)]
pub struct InvocationClock {
    deadline: Deadline,
}

impl InvocationClock {
    /// The clock of an invocation that Lambda ends at `ends_ms`, milliseconds since 1970, and that starts at `now`.
    pub fn until(ends_ms: u64, now: Timestamp) -> Self {
        Self::between(now, i64::try_from(ends_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(now))
    }

    fn between(now: Timestamp, ends: Timestamp) -> Self {
        let left = ends.duration_since(now).max(SignedDuration::ZERO);
        let reserve = (left / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
        Self { deadline: Deadline(ends.checked_sub(reserve).unwrap_or(ends)) }
    }

    /// The clock of a run that begins at `now`: as long as one of `function` may take, and no longer than the invocation.
    pub(crate) fn for_run(self, function: Function, now: Timestamp) -> Self {
        let run = Self::between(now, now.checked_add(function.run_time()).unwrap_or(Timestamp::MAX));
        Self { deadline: self.deadline.min(run.deadline) }
    }

    /// The clock for what `function`, invoked at `now`, asks of clusters.
    pub(crate) fn for_clusters(self, function: Function, now: Timestamp) -> Self {
        if function != Function::Interrupt {
            return self;
        }
        let latest = Deadline(now.checked_add(NOTICE_WAIT_MAX).unwrap_or(Timestamp::MAX));
        Self { deadline: self.deadline.min(latest) }
    }
}

impl Clock for InvocationClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn deadline(&self) -> Deadline {
        self.deadline
    }

    fn unique(&self) -> String {
        uuid::Uuid::new_v4().simple().to_string()
    }
}

/// The clock for what invocations share (a cluster's endpoint, a token): each call may take a few seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedClock;

/// The longest that such a call may take.
const SHARED_CALL_MAX: SignedDuration = SignedDuration::from_secs(5);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn deadline(&self) -> Deadline {
        Deadline(Timestamp::now().checked_add(SHARED_CALL_MAX).unwrap_or(Timestamp::MAX))
    }

    fn unique(&self) -> String {
        uuid::Uuid::new_v4().simple().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(left_ms: i64, usable_ms: i64) {
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        let ends = u64::try_from(now.as_millisecond() + left_ms).expect("after 1970");
        let clock = InvocationClock::until(ends, now);
        assert_eq!(clock.deadline().left(now), SignedDuration::from_millis(usable_ms));
    }

    #[test]
    fn a_tenth_of_the_remaining_time_is_reserved_for_the_response() {
        check(5_000, 4_500);
        check(30_000, 28_000);
        check(900_000, 898_000);
        check(500, 400);
        check(50, 0);
        check(-1, 0);
    }

    /// Each try of a notice has as long as an invocation had when each was one try, and the last ends with the invocation.
    #[test]
    fn a_try_of_a_notice_has_ten_seconds_of_its_invocation() {
        let at = |ms: i64| Timestamp::from_millisecond(1_800_000_000_000 + ms).expect("in range");
        let clock = |function: Function, of_ms: i64| {
            let ends = u64::try_from(at(function.limits().timeout.as_secs() * 1_000).as_millisecond()).expect("after 1970");
            InvocationClock::until(ends, at(0)).for_run(function, at(of_ms)).deadline().left(at(of_ms)).as_millis()
        };
        for (begins, usable) in [(0, 9_000), (15_000, 9_000), (40_000, 9_000), (53_000, 5_000), (58_000, 0), (70_000, 0)] {
            assert_eq!(clock(Function::Interrupt, begins), usable, "after {begins} ms");
        }
        assert_eq!(clock(Function::Schedule, 0), 28_000, "its invocation is one run");
    }

    #[test]
    fn notices_wait_for_a_cluster_only_briefly() {
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        let left = |function, left_ms| {
            let ends = u64::try_from(now.as_millisecond() + left_ms).expect("after 1970");
            InvocationClock::until(ends, now).for_clusters(function, now).deadline().left(now).as_millis()
        };
        for function in Function::ALL {
            let expected = if function == Function::Interrupt { 4_000 } else { 9_000 };
            assert_eq!(left(function, 10_000), expected, "{function}");
            assert_eq!(left(function, 2_000), 1_800, "{function}: never longer than the invocation");
        }
    }
}

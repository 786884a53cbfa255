//! The Lambda functions, and their settings in the stack's template.

use std::fmt;
use whittle_units::SignedDuration;

/// How often a schedule of the template rings for every cluster.
const TICK_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// How long Lambda waits before it repeats an invocation by an event that failed: after the first failure, and the second.
const INVOKED_AGAIN: [SignedDuration; 2] = [SignedDuration::from_mins(1), SignedDuration::from_mins(2)];
/// The longest that a try of a notice may take; its invocation has several (ADR 0070).
const NOTICE_TRY: SignedDuration = SignedDuration::from_secs(10);

/// One of the Lambda functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    Relay,
    Schedule,
    Launch,
    Register,
    Consolidate,
    Interrupt,
    Terminate,
    Refresh,
    Sweep,
}

impl Function {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Relay,
        Self::Schedule,
        Self::Launch,
        Self::Register,
        Self::Consolidate,
        Self::Interrupt,
        Self::Terminate,
        Self::Refresh,
        Self::Sweep,
    ];

    /// The function's timeout, and its queue's visibility timeout and maximum receives, as in the stack's template. Without a queue these
    /// say how soon an event comes again at the earliest whose invocation failed, and how often the function is invoked for it.
    pub const fn limits(self) -> Limits {
        let (timeout, visibility, receives) = match self {
            // It has no queue: the webhook retries.
            Self::Relay => (5, 30, 3),
            Self::Schedule => (30, 45, 5),
            Self::Launch | Self::Register => (30, 180, 5),
            Self::Terminate => (30, 180, 7),
            Self::Consolidate => (60, 90, 5),
            Self::Sweep => (60, 360, 5),
            // It has no queue: EventBridge invokes it, and Lambda repeats that.
            Self::Interrupt => (60, 60, 3),
            Self::Refresh => (300, 1800, 5),
        };
        Limits { timeout: SignedDuration::from_secs(timeout), visibility: SignedDuration::from_secs(visibility), receives }
    }

    /// Whether a queue wakes it, which delivers messages again whose run failed.
    pub const fn has_queue(self) -> bool {
        !matches!(self, Self::Relay | Self::Interrupt)
    }

    /// Whether EventBridge invokes it with events, which no queue delivers again: it tries them again itself, and then Lambda does.
    pub const fn is_invoked_by_events(self) -> bool {
        matches!(self, Self::Interrupt)
    }

    /// The longest that one run may take: a notice has several tries in an invocation.
    pub const fn run_time(self) -> SignedDuration {
        match self {
            Self::Interrupt => NOTICE_TRY,
            _ => self.limits().timeout,
        }
    }

    /// How long Lambda waits before it invokes the function again for an event for which it has failed this often; `None` once the event
    /// is given up, and for functions that a queue or a caller wakes.
    pub const fn invoked_again(self, failures: u32) -> Option<SignedDuration> {
        match (self, failures) {
            (Self::Interrupt, 1) => Some(INVOKED_AGAIN[0]),
            (Self::Interrupt, 2) => Some(INVOKED_AGAIN[1]),
            _ => None,
        }
    }

    /// How soon a message is delivered again whose run failed so that another may succeed, by how often it was received; `None` for the
    /// queue's visibility timeout, which outlasts the longest run: most failures are over much sooner. A notice, which no queue delivers,
    /// is tried again as soon in the same invocation, by how often it was tried there; `None` for Lambda's own repetition.
    pub const fn retry_delay(self, receives: u32) -> Option<SignedDuration> {
        let (first, second) = match self {
            Self::Relay => return None,
            Self::Schedule | Self::Launch | Self::Register | Self::Terminate | Self::Consolidate | Self::Interrupt => (5, 15),
            // Nobody waits for seconds for what they do, and each of their runs reads much.
            Self::Refresh | Self::Sweep => (30, 120),
        };
        match receives {
            1 => Some(SignedDuration::from_secs(first)),
            2 => Some(SignedDuration::from_secs(second)),
            _ => None,
        }
    }

    /// The same for a message that a tick sent, and that a tick sends again each minute: `None` where that comes first. The message is then
    /// deleted, and the next one does its work (ADR 0069).
    pub const fn tick_retry_delay(self, receives: u32) -> Option<SignedDuration> {
        match self.retry_delay(receives) {
            Some(delay) if delay.as_secs() < TICK_EVERY.as_secs() => Some(delay),
            _ => None,
        }
    }

    /// Whether the queue that wakes it is a FIFO queue, of which a message in flight holds back the others of its cluster.
    pub const fn has_fifo_queue(self) -> bool {
        matches!(self, Self::Schedule | Self::Consolidate)
    }

    /// Whether the template reserves concurrency for it by default.
    pub const fn is_reserved(self) -> bool {
        matches!(self, Self::Relay | Self::Interrupt)
    }
    /// The name of its binary, in logs and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Schedule => "schedule",
            Self::Launch => "launch",
            Self::Register => "register",
            Self::Consolidate => "consolidate",
            Self::Interrupt => "interrupt",
            Self::Terminate => "terminate",
            Self::Refresh => "refresh",
            Self::Sweep => "sweep",
        }
    }
}

/// Settings of a function and its queue in the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The invocation timeout.
    pub timeout: SignedDuration,
    /// The visibility timeout: after this a received message is delivered again. Without a queue, the first wait of Lambda.
    pub visibility: SignedDuration,
    /// How often a message is received before it moves to the dead-letter queue. Two of these are for deliveries that come early
    /// ([`Function::retry_delay`]): a message is not given up earlier for them. Without a queue, how often the function is invoked for an
    /// event before it goes there.
    pub receives: u32,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds from the first delivery to the last, if each run fails at once.
    fn last_delivery(function: Function) -> i64 {
        let limits = function.limits();
        (1..limits.receives).map(|receives| function.retry_delay(receives).unwrap_or(limits.visibility).as_secs()).sum()
    }

    /// How long an outage may last that fills no dead-letter queue: not less than without early repetitions.
    #[test]
    fn early_repetitions_do_not_give_a_message_up_sooner() {
        for (function, expected, without_early_ones) in [
            (Function::Schedule, 110, 90),
            (Function::Consolidate, 200, 180),
            (Function::Launch, 380, 360),
            (Function::Register, 380, 360),
            (Function::Terminate, 740, 720),
            (Function::Refresh, 3750, 3600),
            (Function::Sweep, 870, 720),
        ] {
            assert_eq!(last_delivery(function), expected, "{function}");
            assert!(expected > without_early_ones, "{function}");
        }
    }

    /// A notice is given up no sooner than when a queue delivered it five times, the last time after 140 s; and as often as tries of ten
    /// seconds fit into an invocation, with the waits between them and the two seconds that are reserved for the response.
    #[test]
    fn a_notice_is_tried_three_times_in_each_of_three_invocations() {
        let function = Function::Interrupt;
        assert!(function.is_invoked_by_events() && !function.has_queue());
        let waits: Vec<i64> = (1..9).map_while(|tries| function.retry_delay(tries)).map(|delay| delay.as_secs()).collect();
        assert_eq!(waits, [5, 15]);
        let again: Vec<i64> = (1..9).map_while(|failures| function.invoked_again(failures)).map(|delay| delay.as_secs()).collect();
        assert_eq!(again, [60, 120]);
        assert_eq!(function.limits().receives, 3, "the first and two repetitions");
        let last_try = again.iter().sum::<i64>() + 3 * waits.iter().sum::<i64>();
        assert_eq!(last_try, 240, "if each fails at once");
        let longest = 3 * function.run_time().as_secs() + waits.iter().sum::<i64>();
        assert_eq!(longest, 50);
        assert!(longest + 2 < function.limits().timeout.as_secs());
        for function in Function::ALL.into_iter().filter(|function| *function != Function::Interrupt) {
            assert_eq!((function.invoked_again(1), function.run_time()), (None, function.limits().timeout), "{function}");
            assert_eq!((function.has_queue(), function.is_invoked_by_events()), (function != Function::Relay, false), "{function}");
        }
    }

    #[test]
    fn a_ticks_message_that_fails_comes_again_only_before_the_next_tick() {
        let of = |receives| Function::Sweep.tick_retry_delay(receives).map(|delay| delay.as_secs());
        assert_eq!([0, 1, 2, 3, 9].map(of), [None, Some(30), None, None, None]);
        for (function, receives) in Function::ALL.into_iter().flat_map(|function| (0..8).map(move |receives| (function, receives))) {
            let (tick, usual) = (function.tick_retry_delay(receives), function.retry_delay(receives));
            assert!(tick.is_none_or(|delay| Some(delay) == usual && delay < TICK_EVERY), "{function} {receives}");
        }
    }

    #[test]
    fn a_message_that_fails_again_comes_again_later_and_then_by_the_visibility_timeout() {
        for function in Function::ALL {
            let delays: Vec<i64> = (0..8).filter_map(|receives| function.retry_delay(receives)).map(|delay| delay.as_secs()).collect();
            let expected: &[i64] = match function {
                Function::Relay => &[],
                Function::Refresh | Function::Sweep => &[30, 120],
                _ => &[5, 15],
            };
            assert_eq!(delays, expected, "{function}");
            assert_eq!(function.retry_delay(0), None, "{function}: of an unknown count");
            assert_eq!(function.retry_delay(3), None, "{function}");
            assert!(delays.iter().all(|delay| *delay < function.limits().visibility.as_secs()), "{function}: never later than before");
        }
    }
}

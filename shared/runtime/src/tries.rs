//! Retries of an event within the invocation that it started. No queue delivers an event again within seconds, and Lambda retries a failed
//! invocation only after a minute, which is half of the time that a spot notice leaves (ADR 0070).

use crate::Function;
use whittle_ports::Clock;
use whittle_units::SignedDuration;

/// Makes `attempt` until its outcome is final: it succeeded, or failed in a way that another attempt will not change. `may_pass` says of an
/// outcome whether it is not final. There are as many attempts as a queue makes with short delays, and one is followed by another only if
/// the invocation had time for both at their full length when it began. The argument of `attempt` is whether another one may follow.
/// Returns the last outcome.
pub(crate) async fn until_it_ends<T>(
    function: Function,
    invocation: &impl Clock,
    attempt: impl AsyncFn(bool) -> T,
    may_pass: impl Fn(&T) -> bool,
    pause: impl AsyncFn(SignedDuration),
) -> T {
    let mut tries = 1;
    loop {
        let wait = wait_after(function, invocation, tries);
        let outcome = attempt(wait.is_some()).await;
        let Some(wait) = wait.filter(|_| may_pass(&outcome)) else { return outcome };
        pause(wait).await;
        tries += 1;
    }
}

/// How long to wait after attempt number `tries`, which begins now, if it fails; `None` if it is the last.
fn wait_after(function: Function, invocation: &impl Clock, tries: u32) -> Option<SignedDuration> {
    let wait = function.retry_delay(tries)?;
    let both = function.run_time().saturating_mul(2).saturating_add(wait);
    invocation.has_time_for(both).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use std::sync::Mutex;
    use whittle_ports::Deadline;
    use whittle_units::Timestamp;

    /// Seconds since the invocation began, which last until the deadline.
    struct Invocation {
        now: Mutex<i64>,
        deadline: i64,
    }

    impl Invocation {
        fn lasting(deadline: i64) -> Self {
            Self { now: Mutex::default(), deadline }
        }
        fn passed(&self) -> i64 {
            *self.now.lock().expect("the lock is not poisoned")
        }
        fn pass(&self, seconds: i64) {
            *self.now.lock().expect("the lock is not poisoned") += seconds;
        }
    }

    impl Clock for Invocation {
        fn now(&self) -> Timestamp {
            Timestamp::from_second(self.passed()).expect("in range")
        }
        fn deadline(&self) -> Deadline {
            Deadline(Timestamp::from_second(self.deadline).expect("in range"))
        }
        fn unique(&self) -> String {
            "unique".to_owned()
        }
    }

    /// The outcome of an attempt.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Ends {
        Well,
        MayPass,
        NeedsAPerson,
    }
    use Ends::{MayPass, NeedsAPerson, Well};

    /// When tries begin that take so many seconds and end like this, each with whether another may follow; and the last outcome.
    fn tries(invocation: &Invocation, takes: i64, ends: &[Ends]) -> (Vec<(i64, bool)>, Ends) {
        let begun = Mutex::new(Vec::new());
        let attempt = async |follows: bool| {
            let mut begun = begun.lock().expect("the lock is not poisoned");
            begun.push((invocation.passed(), follows));
            invocation.pass(takes);
            ends[begun.len() - 1]
        };
        let pause = async |wait: SignedDuration| invocation.pass(wait.as_secs());
        let last = block_on(until_it_ends(Function::Interrupt, invocation, attempt, |end| *end == MayPass, pause));
        (begun.into_inner().expect("the lock is not poisoned"), last)
    }

    /// As long as an invocation of `interrupt` has, less the reserve for its response.
    fn usable() -> i64 {
        Function::Interrupt.limits().timeout.as_secs() - 2
    }

    #[test]
    fn what_may_pass_is_tried_again_after_5_and_15_seconds_until_it_ends_well() {
        for (ends, expected) in [
            (&[Well][..], &[(0, true)][..]),
            (&[MayPass, Well][..], &[(0, true), (5, true)][..]),
            (&[MayPass, MayPass, Well][..], &[(0, true), (5, true), (20, false)][..]),
            (&[MayPass, MayPass, MayPass][..], &[(0, true), (5, true), (20, false)][..]),
        ] {
            let (begun, last) = tries(&Invocation::lasting(usable()), 0, ends);
            assert_eq!((begun.as_slice(), Some(&last)), (expected, ends.last()), "{ends:?}");
        }
    }

    #[test]
    fn what_needs_a_person_is_never_tried_again() {
        assert_eq!(tries(&Invocation::lasting(usable()), 1, &[NeedsAPerson]), (vec![(0, true)], NeedsAPerson));
        let (begun, last) = tries(&Invocation::lasting(usable()), 1, &[MayPass, NeedsAPerson]);
        assert_eq!((begun, last), (vec![(0, true), (6, true)], NeedsAPerson));
    }

    #[test]
    fn all_tries_end_within_the_invocation_however_long_they_take() {
        let longest = Function::Interrupt.run_time().as_secs();
        let invocation = Invocation::lasting(usable());
        let (begun, _) = tries(&invocation, longest, &[MayPass; 3]);
        assert_eq!(begun, [(0, true), (15, true), (40, false)]);
        assert!(invocation.passed() <= usable(), "{} s", invocation.passed());
    }

    #[test]
    fn no_try_begins_that_the_invocation_may_cut_off() {
        for deadline in 0..=usable() {
            for takes in 0..=Function::Interrupt.run_time().as_secs() {
                let invocation = Invocation::lasting(deadline);
                let (begun, _) = tries(&invocation, takes, &[MayPass; 3]);
                let late = begun[1..].iter().filter(|(at, _)| at + Function::Interrupt.run_time().as_secs() > deadline).count();
                assert_eq!(late, 0, "until {deadline} s, {takes} s each: {begun:?}");
                let (told, (_, last)) = (&begun[..begun.len() - 1], begun[begun.len() - 1]);
                assert!(told.iter().all(|(_, follows)| *follows) && !last, "each knows whether it is the last: {begun:?}");
            }
        }
        assert_eq!(tries(&Invocation::lasting(24), 0, &[MayPass]), (vec![(0, false)], MayPass), "a shorter timeout leaves it to Lambda");
    }

    /// The messages of a queue come again by that queue.
    #[test]
    fn of_other_functions_one_try_is_all_that_an_invocation_can_hold() {
        for function in Function::ALL.into_iter().filter(|function| *function != Function::Interrupt) {
            let invocation = Invocation::lasting(function.limits().timeout.as_secs());
            assert_eq!(wait_after(function, &invocation, 1), None, "{function}");
        }
    }
}

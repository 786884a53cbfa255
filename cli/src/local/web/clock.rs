//! The clock of a page: time passes at a speed, or up to a moment, in slices between which others use the session.

use crate::local::prompt::{Prompt, hold};
use jiff::{SignedDuration, Timestamp};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a slice keeps others from the session.
const SLICE: Duration = Duration::from_millis(40);
/// How often time passes at a speed, and the most real time that is caught up with after a slow slice.
const BEAT: Duration = Duration::from_millis(100);
const CATCH_UP: Duration = Duration::from_millis(500);
/// Others that wait for the session get it between two slices.
const PAUSE: Duration = Duration::from_millis(2);

/// How time is to pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passing {
    /// Simulated seconds in a second; 0 stands still.
    pub(super) speed: u32,
    /// As fast as can be, up to this moment.
    pub(super) until: Option<Timestamp>,
}

/// The clock, which the page sets.
#[derive(Debug, Default)]
pub(super) struct Clock {
    passing: Mutex<Passing>,
    changed: Condvar,
}

impl Clock {
    fn lock(&self) -> MutexGuard<'_, Passing> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn passing(&self) -> Passing {
        *self.lock()
    }

    pub(super) fn set_speed(&self, speed: u32) {
        self.lock().speed = speed;
        self.changed.notify_all();
    }

    /// Lets time pass after what it passes up to already. Returns up to when.
    pub(super) fn advance(&self, now: Timestamp, span: SignedDuration) -> Result<Timestamp, String> {
        let mut passing = self.lock();
        let from = passing.until.unwrap_or(now).max(now);
        let until = from.checked_add(span).map_err(|_| "the clock of the simulation ends in the year 9999".to_owned())?;
        passing.until = Some(until);
        self.changed.notify_all();
        Ok(until)
    }

    /// Time stands still.
    pub(super) fn stop(&self) {
        *self.lock() = Passing::default();
    }

    fn reached(&self, until: Timestamp) {
        let mut passing = self.lock();
        if passing.until == Some(until) {
            passing.until = None;
        }
    }

    /// Lets time pass for as long as the process runs.
    pub(super) fn run(&self, prompt: &Mutex<Prompt>) {
        let mut last = Instant::now();
        loop {
            let mut passing = self.lock();
            while *passing == Passing::default() {
                passing = self.changed.wait(passing).unwrap_or_else(PoisonError::into_inner);
                last = Instant::now();
            }
            let Passing { speed, until } = *passing;
            drop(passing);
            let elapsed = last.elapsed().min(CATCH_UP);
            last = Instant::now();
            slice(&mut hold(prompt), until, elapsed.saturating_mul(speed), self);
            std::thread::sleep(if until.is_some() { PAUSE } else { BEAT });
        }
    }
}

/// Lets time pass for as long as a slice may take.
fn slice(prompt: &mut Prompt, until: Option<Timestamp>, span: Duration, clock: &Clock) {
    let limit = until.or_else(|| prompt.session.now().checked_add(span).ok()).unwrap_or(Timestamp::MAX);
    let started = Instant::now();
    let mut over = false;
    prompt.session.simulation.run_while_not(limit, |_| {
        over = SLICE <= started.elapsed();
        over
    });
    prompt.changes += 1;
    if let (Some(until), false) = (until, over) {
        clock.reached(until);
    }
}

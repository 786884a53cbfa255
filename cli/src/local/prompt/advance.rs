//! `advance`: time passes, visibly, until it is over or the user stops it.

use super::{Prompt, hints};
use crate::local::report;
use crate::printing;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use whittle_api::GoDuration;
use whittle_sim::World;
use whittle_units::Price;

/// The longest time that may pass at once.
const LONGEST: SignedDuration = SignedDuration::from_hours(366 * 24);
/// After this time a terminal shows how far it has come, and so often.
const PATIENCE: Duration = Duration::from_secs(1);
const REDRAWN: Duration = Duration::from_millis(200);

/// A span as in `1h30m` or `1d`, or what is wrong with it.
pub(in crate::local) fn span(text: &str) -> Result<SignedDuration, String> {
    let days = |text: &str| text.parse::<Span>().ok()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok();
    let read = text.parse::<GoDuration>().map(|duration| duration.span()).ok().or_else(|| days(text));
    let too_long = || format!("{text:?} is too long: at most 366d pass at once");
    match read {
        Some(span) if span.is_negative() => Err(format!("{text:?} would go back, and time only goes forward: write 10m")),
        Some(span) if LONGEST < span => Err(too_long()),
        Some(span) => Ok(span),
        None => {
            let (first, last) = (text.chars().next(), text.chars().last());
            let has_form = text.chars().all(|character| character.is_ascii_digit() || "smhdw.".contains(character));
            if has_form && first.is_some_and(|first| first.is_ascii_digit()) && last.is_some_and(char::is_alphabetic) {
                return Err(too_long());
            }
            Err(format!("{text:?} is no time: write numbers with units, such as 30s, 10m, 1h30m or 1d"))
        }
    }
}

/// Watches time pass: draws how far it has come, and sees that the user stops it.
pub(super) struct Passing {
    stop: Arc<AtomicBool>,
    begun: Timestamp,
    limit: Timestamp,
    started: Instant,
    /// When it was last drawn; none on what is no terminal.
    drawn: Option<Instant>,
    shows: bool,
}

impl Passing {
    fn new(stop: Arc<AtomicBool>, begun: Timestamp, limit: Timestamp) -> Self {
        let shows = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        Self { stop, begun, limit, started: Instant::now(), drawn: None, shows }
    }

    /// Whether to stop here.
    pub(super) fn stops_at(&mut self, now: Timestamp) -> bool {
        let is_due = self.drawn.map_or(PATIENCE <= self.started.elapsed(), |drawn| REDRAWN <= drawn.elapsed());
        if self.shows && is_due {
            self.drawn = Some(Instant::now());
            let (passed, all) = (now.duration_since(self.begun).as_secs(), self.limit.duration_since(self.begun).as_secs());
            let of = |at: Timestamp| report::clock(self.begun, at);
            printing::draw(&format!("{} of {} ({} %), Ctrl-C stops", of(now), of(self.limit), passed * 100 / all.max(1)));
        }
        self.stop.load(Ordering::Relaxed)
    }

    /// Removes what was drawn.
    fn erase(&self) {
        if self.drawn.is_some() {
            printing::draw("");
        }
    }
}

impl Prompt {
    /// Lets time pass up to `limit` or until `holds`, or the user stops it. Whether it holds, and whether it was stopped.
    pub(super) fn pass(&mut self, limit: Timestamp, mut holds: impl FnMut(&World) -> bool) -> (bool, bool) {
        let mut passing = Passing::new(Arc::clone(&self.stop), self.session.now(), limit);
        let (mut held, mut stopped) = (false, false);
        let mut glance = self.glance.as_mut();
        self.session.simulation.run_while_not(limit, |world| {
            if let Some(glance) = &mut glance {
                glance(world);
            }
            held = holds(world);
            stopped = passing.stops_at(world.now());
            held || stopped
        });
        passing.erase();
        (held, stopped)
    }

    pub(super) fn advance(&mut self, text: &str) -> Result<String, String> {
        let span = span(text)?;
        let begun = self.session.now();
        let limit = begun.checked_add(span).map_err(|_| "the clock of the simulation ends in the year 9999".to_owned())?;
        let (_, stopped) = self.pass(limit, |_| false);
        let mut text = self.news();
        if stopped {
            let of = |at: Timestamp| report::clock(begun, at);
            text.push_str(&format!("stopped after {} of {}\n", of(self.session.now()), of(limit)));
        }
        Ok(text)
    }

    /// The lines of the timeline that were not printed yet.
    pub(super) fn news(&mut self) -> String {
        let world = self.session.simulation.world();
        let lines = world.story.lines();
        let begun = lines.first().map_or(world.now(), |line| line.at);
        let cost = self.printed_lines.checked_sub(1).and_then(|last| lines.get(last)).map_or(Price::ZERO, |line| line.cost);
        let mut text = report::timeline(&lines[self.printed_lines..], begun, cost, self.paints);
        self.printed_lines = lines.len();
        let new: Vec<String> = hints::of(&world).into_iter().filter(|hint| !self.hinted.contains(hint)).collect();
        text.extend(new.iter().map(|hint| format!("hint: {hint}\n")));
        self.hinted.extend(new);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<i64, &str>) {
        match (span(text), expected) {
            (Ok(span), Ok(seconds)) => assert_eq!(span.as_secs(), seconds, "{text}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (read, _) => panic!("{text}: {read:?}"),
        }
    }

    #[test]
    fn times_are_written_with_units_up_to_weeks() {
        check("90s", Ok(90));
        check("1h30m", Ok(5_400));
        check("1d", Ok(86_400));
        check("1d12h", Ok(129_600));
        check("2w", Ok(1_209_600));
        check("366d", Ok(366 * 86_400));
    }

    #[test]
    fn what_is_no_time_says_why() {
        check("-5m", Err("time only goes forward"));
        check("99999999h", Err("too long"));
        check("9999999999999999999999h", Err("too long"));
        check("400d", Err("at most 366d"));
        check("10", Err("with units"));
        check("soon", Err("with units"));
    }
}

//! The screen of `whittle top --watch`.

use super::screen::{Parts, Screen, age};
use super::terminal::{Key, Terminal};
use super::{Looking, Sort};
use crate::look::view::View;
use crate::printing;
use jiff::Timestamp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How often what is shown is drawn again though nothing happens: it gets older.
const REDRAWN: Duration = Duration::from_secs(1);
/// A look that takes longer than this is said to be under way.
const LOOK_SHORT: Duration = Duration::from_secs(2);

/// What happens while the screen is shown.
enum Happening {
    Key(Key),
    Resized,
    Ended,
    /// A look that began then has ended.
    Looked(Timestamp, Result<Box<View>, String>),
}

/// The screen and what it shows.
struct Watch {
    terminal: Terminal,
    sort: Sort,
    every: Duration,
    /// The first row that is shown.
    first: usize,
    /// The last look, and when it began.
    seen: Option<(Box<View>, Timestamp)>,
    /// Since when the cluster is being looked at.
    looking: Option<Instant>,
    /// Why the look after it failed.
    failure: Option<String>,
}

/// Shows the cluster until a key or a signal ends it.
pub(super) fn run(looking: &Looking, sort: Sort, every: Duration) -> ExitCode {
    if !io::stdout().is_terminal() {
        printing::errors(&"--watch needs a terminal: leave it out to print the cluster once");
        return ExitCode::from(2);
    }
    // The first look comes before the screen, so that its errors stay in sight.
    let begun = Timestamp::now();
    let first = match looking.look() {
        Ok(view) => (Box::new(view), begun),
        Err(error) => {
            printing::errors(&error);
            return ExitCode::from(2);
        }
    };
    match watch(looking.quiet(), first, sort, every) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            printing::errors(&format!("the terminal cannot be used: {error}; leave out --watch to print the cluster once"));
            ExitCode::from(2)
        }
    }
}

fn watch(looking: Looking, first: (Box<View>, Timestamp), sort: Sort, every: Duration) -> io::Result<()> {
    let (sender, happenings) = mpsc::channel();
    let terminal = Terminal::take()?;
    let (keys, of_keys) = (terminal.keys()?, sender.clone());
    // These threads wait for what may never come; they end with the process.
    std::thread::spawn(move || keys.map(Happening::Key).chain([Happening::Ended]).try_for_each(|one| of_keys.send(one)));
    on_signals(&[SIGTERM, SIGHUP, SIGINT, SIGQUIT], sender.clone(), || Happening::Ended)?;
    on_signals(&[SIGWINCH], sender.clone(), || Happening::Resized)?;
    let (asking, asked) = mpsc::channel();
    std::thread::spawn(move || look_when_asked(&looking, &asked, &sender));
    Watch { terminal, sort, every, first: 0, seen: Some(first), looking: None, failure: None }.until_ended(&happenings, &asking)
}

/// Sends what signals mean, from a thread: a handler may do next to nothing itself.
fn on_signals(signals: &[i32], sender: Sender<Happening>, meaning: fn() -> Happening) -> io::Result<()> {
    let (mut reader, writer) = UnixStream::pair()?;
    for signal in signals {
        pipe::register(*signal, writer.try_clone()?)?;
    }
    std::thread::spawn(move || while reader.read_exact(&mut [0]).is_ok() && sender.send(meaning()).is_ok() {});
    Ok(())
}

fn look_when_asked(looking: &Looking, asked: &Receiver<()>, sender: &Sender<Happening>) {
    while asked.recv().is_ok() {
        let begun = Timestamp::now();
        let looked = looking.look().map(Box::new).map_err(|error| error.to_string());
        if sender.send(Happening::Looked(begun, looked)).is_err() {
            return;
        }
    }
}

impl Watch {
    fn until_ended(mut self, happenings: &Receiver<Happening>, asking: &Sender<()>) -> io::Result<()> {
        let mut due = Some(Instant::now() + self.every);
        loop {
            self.draw()?;
            let mut ask = false;
            match happenings.recv_timeout(until_drawn(due, Instant::now())) {
                Ok(Happening::Key(Key::Quit) | Happening::Ended) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Happening::Key(Key::Read)) => ask = true,
                Ok(Happening::Key(key)) => self.press(key),
                Ok(Happening::Resized) => {}
                Ok(Happening::Looked(begun, looked)) => {
                    due = Some(Instant::now() + self.every);
                    self.keep(begun, looked);
                }
                Err(RecvTimeoutError::Timeout) => ask = due.is_some_and(|due| due <= Instant::now()),
            }
            // While a look is under way nothing is due.
            if ask && due.take().is_some() {
                self.looking = Some(Instant::now());
                if asking.send(()).is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn keep(&mut self, begun: Timestamp, looked: Result<Box<View>, String>) {
        self.looking = None;
        match looked {
            Ok(view) => (self.seen, self.failure) = (Some((view, begun)), None),
            Err(why) => self.failure = Some(why),
        }
    }

    fn press(&mut self, key: Key) {
        let (_, rows) = self.terminal.size();
        let by = match key {
            Key::Sort => {
                self.sort = self.sort.next();
                return;
            }
            Key::Scroll(by) => by,
            Key::Page(by) => by.saturating_mul(isize::try_from(rows / 2).unwrap_or(1).max(1)),
            _ => 0,
        };
        self.first = self.first.saturating_add_signed(by);
    }

    fn draw(&mut self) -> io::Result<()> {
        let Some((view, at)) = &self.seen else { return Ok(()) };
        let (columns, rows) = self.terminal.size();
        let screen = Screen { paint: printing::paints(), columns: Some(columns), now: Timestamp::now() };
        let parts = screen.parts(view, self.sort);
        let as_of = as_of(*at, screen.now, self.looking.map(|since| since.elapsed()));
        let status = match &self.failure {
            Some(why) => format!("{as_of}; since then: {}", why.replace('\n', " ")),
            None => format!("{as_of}; q ends, s sorts (by {}), arrows scroll", self.sort.as_str()),
        };
        let lines = fitted(parts, &mut self.first, rows, screen.line(&status));
        self.terminal.show(&lines)
    }
}

/// How long nothing has to happen until it is drawn again, or looked.
fn until_drawn(due: Option<Instant>, now: Instant) -> Duration {
    due.map_or(REDRAWN, |due| due.saturating_duration_since(now).min(REDRAWN))
}

/// How old what is shown is, where the next look takes long: its cluster may have stopped to answer.
fn as_of(at: Timestamp, now: Timestamp, looking: Option<Duration>) -> String {
    match looking.filter(|looking| LOOK_SHORT < *looking) {
        Some(looking) => format!("as of {at:.0}, {} ago, is being read for {} s", age(at, now), looking.as_secs()),
        None => format!("as of {at:.0}"),
    }
}

/// As many lines as a terminal has rows: what waits and the status stay in sight, nodes scroll between.
fn fitted(parts: Parts, first: &mut usize, rows: usize, status: String) -> Vec<String> {
    let Parts { mut head, rows: mut nodes, mut waiting } = parts;
    waiting.truncate(rows / 3);
    let room = rows.saturating_sub(head.len() + waiting.len() + 1).max(1);
    *first = (*first).min(nodes.len().saturating_sub(room));
    let hidden = nodes.len().saturating_sub(*first + room);
    if hidden > 0 {
        nodes.truncate(*first + room.saturating_sub(1));
        nodes.push(format!("… {} more", hidden + 1));
    }
    head.extend(nodes.into_iter().skip(*first));
    head.extend(waiting);
    head.truncate(rows.saturating_sub(1));
    head.push(status);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(name: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{name}{number}")).collect()
    }

    #[test]
    fn a_look_without_an_end_is_seen_to_be_one() {
        let [at, now]: [Timestamp; 2] = ["2026-01-03T00:00:00Z", "2026-01-03T00:01:35Z"].map(|time| time.parse().unwrap());
        assert_eq!(as_of(at, now, None), "as of 2026-01-03T00:00:00Z");
        assert_eq!(as_of(at, now, Some(LOOK_SHORT)), "as of 2026-01-03T00:00:00Z");
        let late = as_of(at, now, Some(Duration::from_secs(90)));
        assert_eq!(late, "as of 2026-01-03T00:00:00Z, 95s ago, is being read for 90 s");
        let now = Instant::now();
        assert_eq!(until_drawn(None, now), REDRAWN, "while it lasts its age is drawn");
        assert_eq!(until_drawn(Some(now + Duration::from_secs(60)), now), REDRAWN);
        assert_eq!(until_drawn(Some(now + Duration::from_millis(20)), now), Duration::from_millis(20));
        assert_eq!(until_drawn(Some(now), now + Duration::from_secs(9)), Duration::ZERO);
    }

    #[test]
    fn what_does_not_fit_scrolls_and_the_rest_stays() {
        let parts = || Parts { head: lines("h", 4), rows: lines("n", 100), waiting: lines("w", 2) };
        let mut first = 0;
        let shown = fitted(parts(), &mut first, 12, "status".to_owned());
        assert_eq!(shown, ["h0", "h1", "h2", "h3", "n0", "n1", "n2", "n3", "… 96 more", "w0", "w1", "status"]);
        first = 1000;
        let shown = fitted(parts(), &mut first, 12, "status".to_owned());
        assert_eq!((first, &*shown[4], &*shown[8]), (95, "n95", "n99"));
        for rows in 1..8 {
            assert!(fitted(parts(), &mut first, rows, "status".to_owned()).len() <= rows.max(1), "{rows}");
        }
        let few = Parts { head: lines("h", 1), rows: lines("n", 2), waiting: Vec::new() };
        assert_eq!(fitted(few, &mut first, 24, "status".to_owned()), ["h0", "n0", "n1", "status"]);
    }
}

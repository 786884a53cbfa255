//! Runs several reads at once, and shows on a terminal how many have finished.

use crate::printing;
use crate::threads::joined;
use std::io::IsTerminal as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long reads run before their progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks all questions, each on a thread of its own. On a terminal it says after a second how many are answered to `what`.
pub(crate) fn at_once<Q: Sync, A: Send>(what: Option<&str>, questions: &[Q], ask: impl Fn(&Q) -> A + Sync) -> Vec<A> {
    let what = what.filter(|_| std::io::stderr().is_terminal());
    let started = Instant::now();
    let (sender, answers) = mpsc::channel();
    let mut drawn = false;
    let done = std::thread::scope(|threads| {
        let asking = questions.iter().map(|question| {
            let (ask, sender) = (&ask, sender.clone());
            threads.spawn(move || {
                let answer = ask(question);
                // The receiver lives until all threads have ended, so that this cannot fail.
                let _ = sender.send(());
                answer
            })
        });
        let asking: Vec<_> = asking.collect();
        let mut answered = 0;
        while answered < questions.len() {
            match answers.recv_timeout(PATIENCE) {
                Ok(()) => answered += 1,
                Err(RecvTimeoutError::Timeout) if asking.iter().all(std::thread::ScopedJoinHandle::is_finished) => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(what) = what.filter(|_| started.elapsed() >= PATIENCE) {
                printing::draw(&format!("{what}: {answered} of {} lists, {} s", questions.len(), started.elapsed().as_secs()));
                drawn = true;
            }
        }
        asking.into_iter().map(joined).collect()
    });
    if drawn {
        printing::draw("");
    }
    done
}

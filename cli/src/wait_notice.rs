//! Notices on a terminal about what the command is waiting for, so that nobody takes it for hung.

use crate::printing;
use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a wait lasts before it is announced.
const SILENCE: Duration = Duration::from_secs(3);

/// Notices already printed by this process: several programs of one name may run at once, and one notice is enough for all.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Announces a wait that lasts, unless this value is dropped before.
pub(crate) struct WaitNotice {
    _until: Option<Sender<()>>,
}

impl WaitNotice {
    /// Prints `what` on standard error, if that is a terminal and the value still lives after three seconds.
    pub(crate) fn with(what: String) -> Self {
        let until = std::io::stderr().is_terminal().then(|| after(SILENCE, move || say(&what)));
        Self { _until: until }
    }

    /// Never prints anything.
    pub(crate) const fn silent() -> Self {
        Self { _until: None }
    }
}

fn say(what: &str) {
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned()) {
        printing::print_error(format_args!("{what} …"));
    }
}

/// Calls `say` after `silence`, unless the returned sender is dropped before.
fn after(silence: Duration, say: impl FnOnce() + Send + 'static) -> Sender<()> {
    let (until, dropped) = mpsc::channel();
    thread::spawn(move || {
        if dropped.recv_timeout(silence) == Err(RecvTimeoutError::Timeout) {
            say();
        }
    });
    until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_said() {
        let (sender, said) = mpsc::channel();
        let short = sender.clone();
        drop(after(Duration::from_secs(60), move || short.send("short").unwrap()));
        let lasting = after(Duration::from_millis(1), move || sender.send("lasting").unwrap());
        // The channel ends with the last of both, so that nothing is waited for.
        assert_eq!(said.iter().collect::<Vec<_>>(), ["lasting"]);
        drop(lasting);
    }
}

//! The back end of the page of `whittle console`: it reads the cluster in the background while a page is open, once for all pages.

use super::changes::Known;
use super::looks::{Look, Looks};
use super::reasons::Reasons;
use crate::page::picture::{Picture, Seen};
use crate::page::{Actions, BackEnd, Document, Refusal};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use whittle_sim::{Line, LineKind};

/// The state of a cluster, shared by all pages.
pub(super) struct ClusterBackEnd {
    seen: Mutex<Watched>,
    /// A page has asked since the last look began.
    wanted: Mutex<bool>,
    asked: Condvar,
    reasons: Reasons,
    /// What decisions are: those of a deployment, or Events.
    kind: LineKind,
    /// Between two looks, if a look takes less.
    interval: Duration,
}

/// What was seen up to now.
struct Watched {
    picture: Picture,
    begun: Timestamp,
    /// When the cluster was last read as a whole.
    as_of: Timestamp,
    /// Since when it is being read.
    looking: Option<Instant>,
    /// Why it could not be read after that, or what of it could not.
    failure: Option<String>,
    known: Known,
    /// What was decided as the last look had it, so that it is told once.
    told: BTreeSet<(String, String)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    fn keep(&mut self, look: Look, kind: LineKind) {
        let Look { at, state, view, decided, complaint } = look;
        let picture = &mut self.picture;
        (picture.cost, picture.currency) = (view.bill.price, view.currency);
        picture.costs.add(at, view.bill.price);
        let mut told = BTreeSet::new();
        for one in decided {
            let key = (one.about, one.message);
            if !self.told.contains(&key) && !told.contains(&key) {
                let text = format!("{}: {}", key.0, key.1);
                picture.lines.push(Line { at: one.at, kind, text, cost: view.bill.price });
            }
            told.insert(key);
        }
        // If they could not be read this time, they are told once nevertheless.
        if !told.is_empty() {
            self.told = told;
        }
        for text in self.known.changes(&view) {
            picture.lines.push(Line { at, kind: LineKind::Cluster, text, cost: view.bill.price });
        }
        picture.forget_old_lines();
        picture.show(&state);
        (self.as_of, self.failure) = (at, complaint);
    }
}

impl ClusterBackEnd {
    /// What the first look saw.
    pub(super) fn new(first: Look, kind: LineKind, reasons: Reasons, interval: Duration) -> Self {
        let mut seen = Watched {
            picture: Picture::default(),
            begun: first.at,
            as_of: first.at,
            looking: None,
            failure: None,
            known: Known::default(),
            told: BTreeSet::new(),
        };
        seen.keep(first, kind);
        Self { seen: Mutex::new(seen), wanted: Mutex::default(), asked: Condvar::new(), reasons, kind, interval }
    }

    /// Looks while pages ask, for as long as the process runs.
    pub(super) fn watch(&self, mut looks: Looks) {
        let mut pause = self.interval;
        loop {
            std::thread::sleep(pause);
            self.until_asked();
            let begun = Instant::now();
            lock(&self.seen).looking = Some(begun);
            let looked = looks.look();
            let mut seen = lock(&self.seen);
            seen.looking = None;
            match looked {
                Ok(look) => seen.keep(look, self.kind),
                Err(error) => seen.failure = Some(error.to_string()),
            }
            drop(seen);
            // A cluster that takes long to list is not listed more than half of the time.
            pause = self.interval.saturating_sub(begun.elapsed()).max(begun.elapsed());
        }
    }

    fn until_asked(&self) {
        let mut wanted = lock(&self.wanted);
        while !*wanted {
            wanted = self.asked.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
        *wanted = false;
    }
}

impl BackEnd for ClusterBackEnd {
    fn command(&self) -> &'static str {
        "`whittle console`"
    }

    fn document(&self) -> Document {
        Document::of("console", ("/console.js", include_str!("console.js")))
    }

    fn news(&self, seen: &Seen) -> Option<String> {
        *lock(&self.wanted) = true;
        self.asked.notify_all();
        let mut watched = lock(&self.seen);
        watched.picture.now = Timestamp::now().max(watched.as_of);
        let looking = watched.looking.map(|since| since.elapsed().as_secs());
        // Every second there is at least another age.
        let clock = format!("{}.{}", watched.as_of.as_millisecond(), watched.picture.now.as_second());
        let more = json!({
            "asOf": watched.as_of.as_millisecond(),
            "looking": looking,
            "failure": watched.failure,
            "interval": self.interval.as_secs(),
            "kind": self.kind,
        });
        watched.picture.news(seen, &clock, watched.begun, more)
    }

    fn explain(&self, name: &str) -> Result<String, Refusal> {
        self.reasons.explain(name)
    }

    fn actions(&self) -> Option<&dyn Actions> {
        None
    }
}

//! The back end of the page of `whittle local`: shows the session, and runs the page's actions in it.

use super::actions::{self, Action};
use super::clock::Clock;
use super::state::state_of;
use crate::local::prompt::{self, Prompt, explain};
use crate::money::Currency;
use crate::page::picture::{Picture, Seen};
use crate::page::{Actions, BackEnd, Document, Refusal};
use jiff::Timestamp;
use serde_json::json;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use whittle_sim::World;

/// How long a request for the state of the session waits while something else uses it, and how long an action waits.
const LOOK_PATIENCE: Duration = Duration::from_millis(150);
const ACTION_PATIENCE: Duration = Duration::from_secs(3);

/// A session, and what was last shown of it.
pub(super) struct SessionBackEnd {
    prompt: Arc<Mutex<Prompt>>,
    /// Ends the running command of the prompt.
    stops: Arc<AtomicBool>,
    clock: Clock,
    sight: Arc<Sight>,
}

/// What was last seen of the session.
#[derive(Default)]
pub(super) struct Sight {
    view: Mutex<View>,
    /// A page waits for a look while a command runs.
    wanted: AtomicBool,
}

impl Sight {
    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the world of a running command, if a page waits for it.
    pub(super) fn glance(&self, world: &World) {
        if self.wanted.swap(false, Ordering::Relaxed) {
            self.lock().bring_up_to_date(world, None);
        }
    }
}

#[derive(Default)]
struct View {
    /// What it was made of: changes of the session, its time, the length of its timeline.
    made_of: Option<(u64, Timestamp, usize)>,
    picture: Picture,
}

impl View {
    /// Looks at the world again if anything may have changed.
    fn bring_up_to_date(&mut self, world: &World, changes: Option<u64>) {
        let lines = world.story.lines();
        let made_of = changes.map(|changes| (changes, world.now(), lines.len()));
        if made_of.is_some() && self.made_of == made_of {
            return;
        }
        self.made_of = made_of;
        let picture = &mut self.picture;
        (picture.now, picture.cost) = (world.now(), world.region.cost());
        picture.currency = Currency::of_region(world.region.name());
        picture.lines.extend_from_slice(lines.get(picture.lines.len()..).unwrap_or_default());
        picture.costs.read(lines);
        picture.show(&state_of(world));
    }
}

impl SessionBackEnd {
    pub(super) fn new(prompt: Arc<Mutex<Prompt>>) -> Self {
        let sight = Arc::new(Sight::default());
        let mut held = prompt::hold(&prompt);
        let stops = Arc::clone(&held.stop);
        let glances = Arc::clone(&sight);
        held.glance = Some(Box::new(move |world| glances.glance(world)));
        drop(held);
        Self { prompt, stops, clock: Clock::default(), sight }
    }

    /// Lets the clock of the page run, in a thread that ends with the process.
    pub(super) fn let_time_pass(self: Arc<Self>) -> io::Result<()> {
        std::thread::Builder::new().name("page-clock".to_owned()).spawn(move || self.clock.run(&self.prompt))?;
        Ok(())
    }

    /// The session, or `None` if something else uses it for longer than `patience`.
    fn hold(&self, patience: Duration) -> Option<MutexGuard<'_, Prompt>> {
        let begun = Instant::now();
        loop {
            match self.prompt.try_lock() {
                Ok(prompt) => return Some(prompt),
                Err(TryLockError::Poisoned(prompt)) => return Some(prompt.into_inner()),
                Err(TryLockError::WouldBlock) if patience <= begun.elapsed() => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// The same, with the refusal that the page shows if the session is in use.
    fn held(&self, patience: Duration) -> Result<MutexGuard<'_, Prompt>, Refusal> {
        self.hold(patience).ok_or_else(|| Refusal::Busy("another command is running: wait for it, or stop it".to_owned()))
    }
}

impl BackEnd for SessionBackEnd {
    fn command(&self) -> &'static str {
        "`whittle local`"
    }

    fn document(&self) -> Document {
        Document::of("session", ("/session.js", include_str!("session.js")))
    }

    /// While a command of the prompt lets time pass, it shows on demand what happens.
    fn news(&self, seen: &Seen) -> Option<String> {
        let held = self.hold(LOOK_PATIENCE);
        let busy = held.is_none();
        match held {
            Some(prompt) => self.sight.lock().bring_up_to_date(&prompt.session.simulation.world(), Some(prompt.changes)),
            None => self.sight.wanted.store(true, Ordering::Relaxed),
        }
        let view = self.sight.lock();
        let picture = &view.picture;
        let passing = self.clock.passing();
        let until = passing.until.map(Timestamp::as_millisecond);
        let clock = format!("{}.{}.{}.{busy}", picture.now.as_millisecond(), passing.speed, until.unwrap_or(0));
        let begun = picture.lines.first().map_or(picture.now, |line| line.at);
        picture.news(seen, &clock, begun, json!({"busy": busy, "speed": passing.speed, "until": until}))
    }

    fn explain(&self, name: &str) -> Result<String, Refusal> {
        let prompt = self.held(LOOK_PATIENCE)?;
        let text = explain::explain(&prompt.session.simulation.world(), name).map_err(Refusal::Failed)?;
        Ok(prompt.currency().shown(text))
    }

    fn actions(&self) -> Option<&dyn Actions> {
        Some(self)
    }
}

impl Actions for SessionBackEnd {
    fn act(&self, body: &[u8]) -> Result<String, Refusal> {
        let action: Action = serde_json::from_slice(body).map_err(|error| Refusal::Wrong(format!("the request is no action: {error}")))?;
        if action.stops() {
            actions::stop(&self.stops, &self.clock);
        }
        let mut prompt = self.held(ACTION_PATIENCE)?;
        self.stops.store(false, Ordering::Relaxed);
        let text = action.run(&mut prompt, &self.clock).map_err(Refusal::Failed)?;
        Ok(prompt.currency().shown(text))
    }
}

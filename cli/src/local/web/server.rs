//! The server of the page: fixed files, the state of the session, and actions.

use super::actions::{self, Action};
use super::clock::Clock;
use super::guard::Guard;
use super::state::{Costs, State, told};
use crate::local::prompt::{self, Prompt};
use jiff::Timestamp;
use serde_json::json;
use std::io::{self, Cursor, Read as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tiny_http::{Header, Method, Request, Response, Server};
use whittle_sim::{Line, World};
use whittle_units::Price;

/// Requests that are answered at once.
const WORKERS: usize = 6;
/// The largest body of an action: manifests are pasted.
const BODY_MAX: u64 = 4 << 20;
/// How long a look at the session, and an action, wait for what uses it.
const LOOK_PATIENCE: Duration = Duration::from_millis(150);
const ACTION_PATIENCE: Duration = Duration::from_secs(3);

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// Path, type and content of what is the same for everybody.
const FILES: [(&str, &str, &str); 7] = [
    ("/", HTML, include_str!("page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("/page.js", SCRIPT, include_str!("page.js")),
    ("/grid.js", SCRIPT, include_str!("grid.js")),
    ("/texts.js", SCRIPT, include_str!("texts.js")),
    ("/chart.js", SCRIPT, include_str!("chart.js")),
    ("/icon.svg", "image/svg+xml", include_str!("icon.svg")),
];

/// Nothing but the files above is loaded, nothing is framed, and no text can become markup or code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(&str, &str); 6] = [
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

type Answer = Response<Cursor<Vec<u8>>>;

/// The session and what a page knows of it.
pub(super) struct Desk {
    prompt: Arc<Mutex<Prompt>>,
    /// Ends the running command of the prompt.
    stops: Arc<AtomicBool>,
    clock: Clock,
    guard: Guard,
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
    body: String,
    version: u64,
    now: Timestamp,
    cost: Price,
    lines: Vec<Line>,
    costs: Costs,
}

/// What a page has already.
#[derive(Default)]
struct Seen {
    version: u64,
    lines: usize,
    costs: usize,
    clock: String,
}

impl Seen {
    fn of(query: &str) -> Self {
        let mut seen = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "version" => seen.version = value.parse().unwrap_or(0),
                "lines" => seen.lines = value.parse().unwrap_or(0),
                "costs" => seen.costs = value.parse().unwrap_or(0),
                "clock" => value.clone_into(&mut seen.clock),
                _ => {}
            }
        }
        seen
    }
}

/// Answers requests and lets time pass, in threads that end with the process.
pub(super) fn start(listener: TcpListener, desk: &Arc<Desk>) -> io::Result<()> {
    let server = Arc::new(Server::from_listener(listener, None).map_err(io::Error::other)?);
    for worker in 0..WORKERS {
        let (server, desk) = (Arc::clone(&server), Arc::clone(desk));
        std::thread::Builder::new().name(format!("page-{worker}")).spawn(move || {
            while let Ok(mut request) = server.recv() {
                let answer = desk.answer(&mut request);
                // A browser that has gone needs no answer.
                let _ = request.respond(answer);
            }
        })?;
    }
    let desk = Arc::clone(desk);
    std::thread::Builder::new().name("page-clock".to_owned()).spawn(move || desk.clock.run(&desk.prompt))?;
    Ok(())
}

/// The only header of a name.
fn header<'a>(request: &'a Request, name: &'static str) -> Option<&'a str> {
    let mut all = request.headers().iter().filter(|header| header.field.equiv(name));
    let only = all.next()?;
    all.next().is_none().then(|| only.value.as_str())
}

fn answer(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Answer {
    let fields = HEADERS.iter().copied().chain([("Content-Type", kind)]);
    let headers = fields.filter_map(|(name, value)| Header::from_bytes(name, value).ok());
    headers.fold(Response::from_data(body).with_status_code(status), Response::with_header)
}

fn refused(status: u16, error: &str) -> Answer {
    answer(status, JSON, json!({ "error": error }).to_string())
}

impl Desk {
    pub(super) fn new(prompt: Arc<Mutex<Prompt>>, guard: Guard) -> Self {
        let sight = Arc::new(Sight::default());
        let mut held = prompt::hold(&prompt);
        let stops = Arc::clone(&held.stop);
        let glances = Arc::clone(&sight);
        held.glance = Some(Box::new(move |world| glances.glance(world)));
        drop(held);
        Self { prompt, stops, clock: Clock::default(), guard, sight }
    }

    fn answer(&self, request: &mut Request) -> Answer {
        if !self.guard.is_ours(header(request, "Host")) {
            return refused(421, "this server is not the one that the request names: open the address that `whittle local` printed");
        }
        let url = request.url().to_owned();
        let (path, query) = url.split_once('?').unwrap_or((&url, ""));
        let method = request.method().clone();
        let file = FILES.iter().find(|(name, ..)| *name == path);
        let is_read = matches!(method, Method::Get | Method::Head);
        match (path, file) {
            (_, Some((_, kind, text))) if is_read => answer(200, kind, *text),
            ("/state", _) if is_read => self.known(request, |desk, _| desk.state(&Seen::of(query))),
            ("/act", _) if method == Method::Post => self.known(request, Self::act),
            ("/state" | "/act", _) | (_, Some(_)) => {
                let allowed = if path == "/act" { "POST" } else { "GET, HEAD" };
                let allow = Header::from_bytes("Allow", allowed).ok();
                allow.into_iter().fold(refused(405, &format!("{path} takes {allowed}")), Response::with_header)
            }
            _ => refused(404, "there is no such page"),
        }
    }

    /// Answers a request that knows the token.
    fn known(&self, request: &mut Request, answer: impl FnOnce(&Self, &mut Request) -> Answer) -> Answer {
        if self.guard.is_foreign(header(request, "Origin")) {
            return refused(403, "another page sent this request");
        }
        if !self.guard.knows(header(request, "X-Whittle-Token")) {
            return refused(403, "the token of this session is missing or wrong: open the address that `whittle local` printed");
        }
        answer(self, request)
    }

    /// The session, if nothing else uses it for longer than that.
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

    /// What the page does not have yet; nothing if it has everything. While a command of the prompt lets time pass, it shows on demand
    /// what happens.
    fn state(&self, seen: &Seen) -> Answer {
        let held = self.hold(LOOK_PATIENCE);
        let busy = held.is_none();
        match held {
            Some(prompt) => self.sight.lock().bring_up_to_date(&prompt.session.simulation.world(), Some(prompt.changes)),
            None => self.sight.wanted.store(true, Ordering::Relaxed),
        }
        let view = self.sight.lock();
        let passing = self.clock.passing();
        let until = passing.until.map(Timestamp::as_millisecond);
        let clock = format!("{}.{}.{}.{busy}", view.now.as_millisecond(), passing.speed, until.unwrap_or(0));
        let has_all = seen.version == view.version && seen.lines == view.lines.len() && seen.costs == view.costs.steps.len();
        if has_all && seen.clock == clock {
            return answer(204, JSON, Vec::new());
        }
        let news = json!({
            "clock": clock,
            "busy": busy,
            "now": view.now.as_millisecond(),
            "begun": view.lines.first().map_or(view.now, |line| line.at).as_millisecond(),
            "speed": passing.speed,
            "until": until,
            "cost": view.cost.nanos(),
            "spent": view.costs.spent(view.now),
            "version": view.version,
            "told": told(&view.lines, seen.lines),
            "lines": view.lines.len(),
            "steps": view.costs.steps.get(seen.costs..).unwrap_or_default(),
            "costs": view.costs.steps.len(),
        });
        let mut text = news.to_string();
        if seen.version != view.version {
            text.pop();
            text.push_str(r#","state":"#);
            text.push_str(&view.body);
            text.push('}');
        }
        answer(200, JSON, text)
    }

    fn act(&self, request: &mut Request) -> Answer {
        let mut body = Vec::new();
        let too_large =
            || refused(413, &format!("the request is larger than {} MiB: `apply -f FILE` takes larger manifests", BODY_MAX >> 20));
        if request.body_length().is_some_and(|length| BODY_MAX < length as u64) {
            return too_large();
        }
        match request.as_reader().take(BODY_MAX + 1).read_to_end(&mut body) {
            Ok(length) if BODY_MAX < length as u64 => return too_large(),
            Ok(_) => {}
            Err(error) => return refused(400, &format!("the request cannot be read: {error}")),
        }
        let action: Action = match serde_json::from_slice(&body) {
            Ok(action) => action,
            Err(error) => return refused(400, &format!("the request is no action: {error}")),
        };
        if action.stops() {
            actions::stop(&self.stops, &self.clock);
        }
        let patience = if action.looks() { LOOK_PATIENCE } else { ACTION_PATIENCE };
        let Some(mut prompt) = self.hold(patience) else {
            return refused(409, "another command is running: wait for it, or stop it");
        };
        self.stops.store(false, Ordering::Relaxed);
        match action.run(&mut prompt, &self.clock) {
            Ok(text) => answer(200, JSON, json!({ "text": text }).to_string()),
            Err(error) => refused(422, &error),
        }
    }
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
        (self.now, self.cost) = (world.now(), world.region.cost());
        self.lines.extend_from_slice(lines.get(self.lines.len()..).unwrap_or_default());
        self.costs.read(lines);
        let body = serde_json::to_string(&State::of(world)).unwrap_or_default();
        if body != self.body {
            self.body = body;
            self.version += 1;
        }
    }
}

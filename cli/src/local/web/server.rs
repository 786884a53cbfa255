//! The server of the page: fixed files, the state of the session, and actions.

use super::actions::{self, Action};
use super::clock::Clock;
use super::guard::Guard;
use super::state::{Costs, State, told};
use crate::local::prompt::{self, Prompt};
use crate::money::Currency;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use serde_json::json;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use whittle_sim::{Line, World};
use whittle_units::Price;

/// Looks at the session, and actions, that are answered at once.
const WORKERS: usize = 6;
/// Connections at once; a browser opens six.
const CONNECTIONS_MAX: usize = 64;
/// The largest head of a request.
const HEAD_MAX: usize = 16 << 10;
/// The largest body of an action: manifests are pasted.
const BODY_MAX: usize = 4 << 20;
/// How long the head of a request, and its body, may take. Connections that are silent for longer are closed.
const READ_MAX: Duration = Duration::from_secs(10);
const TOKEN: HeaderName = HeaderName::from_static("x-whittle-token");
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
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

type Answer = Response<Full<Bytes>>;

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
    currency: Currency,
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
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS).build()?;
    let (served, timed) = (Arc::clone(desk), Arc::clone(desk));
    std::thread::Builder::new().name("page".to_owned()).spawn(move || runtime.block_on(accept(listener, served)))?;
    std::thread::Builder::new().name("page-clock".to_owned()).spawn(move || timed.clock.run(&timed.prompt))?;
    Ok(())
}

/// Takes connections for ever.
async fn accept(listener: TcpListener, desk: Arc<Desk>) -> io::Result<()> {
    let (listener, room) = (tokio::net::TcpListener::from_std(listener)?, Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        // A connection that ended before it was taken is nobody's loss; without file descriptors the next one waits.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(LOOK_PATIENCE).await;
            continue;
        };
        let desk = Arc::clone(&desk);
        tokio::spawn(async move {
            serve(stream, desk).await;
            drop(place);
        });
    }
}

/// Answers the requests of a connection. A browser that has gone needs no answer.
async fn serve(stream: TcpStream, desk: Arc<Desk>) {
    let answers = service_fn(move |request| {
        let desk = Arc::clone(&desk);
        async move { Ok::<_, Infallible>(answer_request(desk, request).await) }
    });
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(READ_MAX).max_buf_size(HEAD_MAX);
    let _ = connection.serve_connection(TokioIo::new(stream), answers).await;
}

/// The only header of a name.
fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    let only = all.next()?;
    all.next().is_none().then(|| only.to_str().ok()).flatten()
}

fn answer(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in HEADERS {
        answer.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn refused(status: u16, error: &str) -> Answer {
    answer(status, JSON, json!({ "error": error }).to_string())
}

/// What a request asks for.
enum Asked {
    Look(Seen),
    Act(Vec<u8>),
}

/// Answers a request. What uses the session runs beside, so that it keeps no other request waiting; only who has the token gets there.
async fn answer_request(desk: Arc<Desk>, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    if head.uri.authority().is_some() {
        return refused(404, "this server is no proxy");
    }
    let asked = match desk.asked(&head.method, head.uri.path(), head.uri.query().unwrap_or_default(), &head.headers) {
        Ok(None) => match read(body).await {
            Ok(body) => Asked::Act(body),
            Err(refusal) => return refusal,
        },
        Ok(Some(seen)) => Asked::Look(seen),
        Err(answer) => return *answer,
    };
    let answered = tokio::task::spawn_blocking(move || match asked {
        Asked::Look(seen) => desk.state(&seen),
        Asked::Act(body) => desk.act(&body),
    });
    answered.await.unwrap_or_else(|_| refused(500, "this request failed, which is a defect of this program"))
}

/// The body of an action.
async fn read(body: Incoming) -> Result<Vec<u8>, Answer> {
    let too_large = || refused(413, &format!("the request is larger than {} MiB: `apply -f FILE` takes larger manifests", BODY_MAX >> 20));
    if usize::try_from(body.size_hint().lower()).map_or(true, |length| BODY_MAX < length) {
        return Err(too_large());
    }
    match tokio::time::timeout(READ_MAX, Limited::new(body, BODY_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(refused(400, &format!("the request cannot be read: {error}"))),
        Err(_) => Err(refused(408, "the request did not arrive in time")),
    }
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

    /// Whether a request may look at the session (what it has seen), or change it (`None`); otherwise its answer.
    fn asked(&self, method: &Method, path: &str, query: &str, headers: &HeaderMap) -> Result<Option<Seen>, Box<Answer>> {
        if !self.guard.is_ours(header(headers, HOST)) {
            let text = "this server is not the one that the request names: open the address that `whittle local` printed";
            return Err(Box::new(refused(421, text)));
        }
        let file = FILES.iter().find(|(name, ..)| *name == path);
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        match (path, file) {
            (_, Some((_, kind, text))) if is_read => Err(Box::new(answer(200, kind, *text))),
            ("/state", _) if is_read => self.known(headers).map(|()| Some(Seen::of(query))),
            ("/act", _) if *method == Method::POST => self.known(headers).map(|()| None),
            ("/state" | "/act", _) | (_, Some(_)) => {
                let allowed = if path == "/act" { "POST" } else { "GET, HEAD" };
                let mut answer = refused(405, &format!("{path} takes {allowed}"));
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
                Err(Box::new(answer))
            }
            _ => Err(Box::new(refused(404, "there is no such page"))),
        }
    }

    /// Whether a request knows the token, and is of the page itself.
    fn known(&self, headers: &HeaderMap) -> Result<(), Box<Answer>> {
        if Guard::is_foreign(header(headers, ORIGIN), header(headers, HOST)) {
            return Err(Box::new(refused(403, "another page sent this request")));
        }
        if !self.guard.knows(header(headers, TOKEN)) {
            let text = "the token of this session is missing or wrong: open the address that `whittle local` printed";
            return Err(Box::new(refused(403, text)));
        }
        Ok(())
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
            "sign": view.currency.sign(),
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
        let mut text = view.currency.shown(news.to_string());
        if seen.version != view.version {
            text.pop();
            text.push_str(r#","state":"#);
            text.push_str(&view.body);
            text.push('}');
        }
        answer(200, JSON, text)
    }

    fn act(&self, body: &[u8]) -> Answer {
        let action: Action = match serde_json::from_slice(body) {
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
            Ok(text) => answer(200, JSON, json!({ "text": prompt.currency().shown(text) }).to_string()),
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
        self.currency = Currency::of_region(world.region.name());
        self.lines.extend_from_slice(lines.get(self.lines.len()..).unwrap_or_default());
        self.costs.read(lines);
        let body = self.currency.shown(serde_json::to_string(&State::of(world)).unwrap_or_default());
        if body != self.body {
            self.body = body;
            self.version += 1;
        }
    }
}

//! The server of a page: fixed files, what is known of the cluster, reasons, and what its back end can do.

use super::picture::Seen;
use super::{BackEnd, Document, Guard, Refusal};
use crate::printing::shortened;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use whittle_api::words;

/// Questions to the back end, and actions, that are answered at once.
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
/// How long a server without file descriptors waits for one.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(150);

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// Path, type and content of what is the same for everybody.
const FILES: [(&str, &str, &str); 6] = [
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

/// The server of one page: its back end, its fixed files, and the guard that checks requests.
struct PageServer<B> {
    back: Arc<B>,
    document: Document,
    guard: Guard,
}

/// Answers requests, in threads that end with the process.
pub(crate) fn start<B: BackEnd>(listener: TcpListener, guard: Guard, back: Arc<B>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let server = Arc::new(PageServer { document: back.document(), back, guard });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS).build()?;
    std::thread::Builder::new().name("page".to_owned()).spawn(move || runtime.block_on(accept(listener, server)))?;
    Ok(())
}

/// Takes connections for ever.
async fn accept<B: BackEnd>(listener: TcpListener, server: Arc<PageServer<B>>) -> io::Result<()> {
    let (listener, room) = (tokio::net::TcpListener::from_std(listener)?, Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        // A connection that ended before it was taken is nobody's loss; without file descriptors the next one waits.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(DESCRIPTOR_PAUSE).await;
            continue;
        };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            serve(stream, server).await;
            drop(place);
        });
    }
}

/// Answers the requests of a connection. A browser that has gone needs no answer.
async fn serve<B: BackEnd>(stream: TcpStream, server: Arc<PageServer<B>>) {
    let answers = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(answer_request(server, request).await) }
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

/// JSON whose texts have no letters that are not seen or change the direction of writing: a page shows them as a terminal does, written
/// out. They may be in messages and in names of owners, which anybody in the cluster writes.
fn plainly(json: String) -> String {
    if !json.contains(words::is_unseen) {
        return json;
    }
    let mut plain = String::with_capacity(json.len());
    for letter in json.chars() {
        if words::is_unseen(letter) {
            // A backslash of the text, and not of JSON.
            plain.push_str(&format!("\\\\u{:04x}", u32::from(letter)));
        } else {
            plain.push(letter);
        }
    }
    plain
}

fn refused(status: u16, error: &str) -> Answer {
    answer(status, JSON, plainly(json!({ "error": shortened(error) }).to_string()))
}

/// The answer to what was done, or was not.
fn answered(result: Result<String, Refusal>) -> Answer {
    match result {
        Ok(text) => answer(200, JSON, plainly(json!({ "text": text }).to_string())),
        Err(Refusal::Wrong(error)) => refused(400, &error),
        Err(Refusal::Busy(error)) => refused(409, &error),
        Err(Refusal::Failed(error)) => refused(422, &error),
    }
}

/// What a request asks for.
enum Asked {
    News(Seen),
    Reason(String),
    Act,
}

/// What is asked of a back end, with the body of the request.
enum Question {
    News(Seen),
    Reason(String),
    Act(Vec<u8>),
}

/// Answers a request. The back end is asked beside, so that it keeps no other request waiting; only who has the token gets there.
async fn answer_request<B: BackEnd>(server: Arc<PageServer<B>>, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    if head.uri.authority().is_some() {
        return refused(404, "this server is no proxy");
    }
    let question = match server.asked(&head.method, head.uri.path(), head.uri.query().unwrap_or_default(), &head.headers) {
        Ok(Asked::Act) => match read(body).await {
            Ok(body) => Question::Act(body),
            Err(refusal) => return refusal,
        },
        Ok(Asked::News(seen)) => Question::News(seen),
        Ok(Asked::Reason(name)) => Question::Reason(name),
        Err(answer) => return *answer,
    };
    let answer = tokio::task::spawn_blocking(move || server.answer(question));
    answer.await.unwrap_or_else(|_| refused(500, "this request failed, which is a defect of this program"))
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

/// The value of a query's only parameter, `name`.
fn name_of(query: &str) -> Option<String> {
    let value = query.strip_prefix("name=").filter(|value| !value.contains('&'))?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

impl<B: BackEnd> PageServer<B> {
    /// What a request asks of the back end; otherwise its answer.
    fn asked(&self, method: &Method, path: &str, query: &str, headers: &HeaderMap) -> Result<Asked, Box<Answer>> {
        if !self.guard.is_ours(header(headers, HOST)) {
            let text = format!("this server is not the one that the request names: open the address that {} printed", self.back.command());
            return Err(Box::new(refused(421, &text)));
        }
        let allowed = match path {
            "/act" if self.back.actions().is_some() => "POST",
            "/state" | "/explain" => "GET, HEAD",
            _ => return Err(Box::new(self.file(method, path))),
        };
        if allowed.split(", ").all(|allowed| method.as_str() != allowed) {
            return Err(Box::new(not_allowed(path, allowed)));
        }
        self.known(headers)?;
        match path {
            "/act" => Ok(Asked::Act),
            "/state" => Ok(Asked::News(Seen::of(query))),
            _ => match name_of(query) {
                Some(name) => Ok(Asked::Reason(name)),
                None => Err(Box::new(refused(400, "the request names no object: /explain?name=NAME"))),
            },
        }
    }

    /// What is the same for everybody who opens this page.
    fn file(&self, method: &Method, path: &str) -> Answer {
        let (script, text) = self.document.script;
        let own = [("/", HTML, self.document.html.as_str()), (script, SCRIPT, text)];
        let Some((_, kind, text)) = own.into_iter().chain(FILES).find(|(name, ..)| *name == path) else {
            return refused(404, "there is no such page");
        };
        if matches!(*method, Method::GET | Method::HEAD) { answer(200, kind, text.to_owned()) } else { not_allowed(path, "GET, HEAD") }
    }

    /// Whether a request knows the token, and is of the page itself.
    fn known(&self, headers: &HeaderMap) -> Result<(), Box<Answer>> {
        if Guard::is_foreign(header(headers, ORIGIN), header(headers, HOST)) {
            return Err(Box::new(refused(403, "another page sent this request")));
        }
        if !self.guard.knows(header(headers, TOKEN)) {
            let text = format!("the token of this session is missing or wrong: open the address that {} printed", self.back.command());
            return Err(Box::new(refused(403, &text)));
        }
        Ok(())
    }

    fn answer(&self, question: Question) -> Answer {
        match question {
            Question::News(seen) => match self.back.news(&seen) {
                Some(news) => answer(200, JSON, plainly(news)),
                None => answer(204, JSON, Vec::new()),
            },
            Question::Reason(name) => answered(self.back.explain(&name)),
            Question::Act(body) => match self.back.actions() {
                Some(actions) => answered(actions.act(&body)),
                None => refused(404, "there is no such page"),
            },
        }
    }
}

fn not_allowed(path: &str, allowed: &'static str) -> Answer {
    let mut answer = refused(405, &format!("{path} takes {allowed}"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_turn_a_text_around_are_written_out() {
        let hostile = json!({"waiting": [{"owner": "we\u{202e}b\u{200b}", "answer": "a\\\u{2066}\"b\""}]});
        let shown: serde_json::Value = serde_json::from_str(&plainly(hostile.to_string())).unwrap();
        assert_eq!(shown, json!({"waiting": [{"owner": "we\\u202eb\\u200b", "answer": "a\\\\u2066\"b\""}]}));
        let plain = json!({"text": "a line\nß → █ <img>\\"}).to_string();
        assert_eq!(plainly(plain.clone()), plain);
    }

    #[test]
    fn a_name_is_decoded_or_none() {
        assert_eq!(name_of("name=pod%2Fdefault%2Fweb-0").as_deref(), Some("pod/default/web-0"));
        assert_eq!(name_of("name=%3Cimg%20src%3Dx%3E%C3%A9").as_deref(), Some("<img src=x>é"));
        for wrong in ["", "name", "named=a", "name=%", "name=%2", "name=%zz", "name=%ff", "name=a&b=c"] {
            assert_eq!(name_of(wrong), None, "{wrong}");
        }
    }
}

//! A page for a browser of a cluster: what `whittle local --web` and `whittle console` serve, each with what it knows ([`BackEnd`]).
//!
//! The server answers requests that know the token of the page and name an address of this machine. It asks its back end for what has
//! changed and for reasons; only a back end that has [`Actions`] has a route by which anything is done.

mod guard;
pub(crate) mod picture;
mod server;
#[cfg(test)]
mod tests;
pub(crate) mod view;

pub(crate) use guard::Guard;
pub(crate) use server::start;

use picture::Seen;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

/// What a page is of.
pub(crate) trait BackEnd: Send + Sync + 'static {
    /// The command that serves it, for messages.
    fn command(&self) -> &'static str;

    /// The page itself, and its script.
    fn document(&self) -> Document;

    /// What a page does not have yet, as JSON; nothing if it has everything.
    fn news(&self, seen: &Seen) -> Option<String>;

    /// Why an object is as it is.
    ///
    /// # Errors
    /// It is not known, or cannot be said now.
    fn explain(&self, name: &str) -> Result<String, Refusal>;

    /// What the page can do, if it can do anything.
    fn actions(&self) -> Option<&dyn Actions>;
}

/// What a page does to its cluster.
pub(crate) trait Actions {
    /// Carries out what a page sent; the answer is what the prompt would print.
    ///
    /// # Errors
    /// It is no action, cannot be done, or cannot be done now.
    fn act(&self, body: &[u8]) -> Result<String, Refusal>;
}

/// The files of a page that are not those of every page.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// The HTML that is served for `/`.
    pub(crate) html: String,
    /// The path of the script that it begins with, and the script.
    pub(crate) script: (&'static str, &'static str),
}

impl Document {
    /// The document with the parts for `kind` and for every page.
    pub(crate) fn of(kind: &str, script: (&'static str, &'static str)) -> Self {
        Self { html: parts_for(include_str!("page.html"), kind), script }
    }
}

/// Leaves out what `<!--only OTHER-->…<!--end-->` encloses.
fn parts_for(text: &str, kind: &str) -> String {
    let mut parts = text.split("<!--only ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("-->").unwrap_or_default();
        let (inside, after) = rest.split_once("<!--end-->").unwrap_or((rest, ""));
        if name == kind {
            out.push_str(inside);
        }
        out.push_str(after);
    }
    out
}

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is none.
    Wrong(String),
    /// Something else is under way; the page asks again.
    Busy(String),
    /// It cannot be done.
    Failed(String),
}

/// An address of the command line.
pub(crate) fn address(text: &str) -> Result<IpAddr, String> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    text.parse().map_err(|_| "write an IP address such as 127.0.0.1 or ::1; the port is an option of its own".to_owned())
}

/// A port that is taken for a page, and what its requests must know.
pub(crate) struct Bound {
    pub(crate) listener: TcpListener,
    pub(crate) guard: Guard,
    /// The address of the page, with the token.
    pub(crate) address: String,
}

/// Takes a port. `option` and `port` are the words of the command line for the address and for the port.
pub(crate) fn bind(wanted: SocketAddr, option: &str, port: &str) -> Result<Bound, String> {
    let unusable = |error: std::io::Error| format!("{option}: {wanted} cannot be used: {error}; {port} 0 takes a free port");
    let listener = TcpListener::bind(wanted).map_err(unusable)?;
    let bound = listener.local_addr().map_err(unusable)?;
    let token = token().map_err(|error| format!("{option}: this system has no random numbers for the token of the page: {error}"))?;
    Ok(Bound { listener, address: format!("http://{bound}/#{token}"), guard: Guard { bound, token } })
}

/// 128 random bits that nobody else on this machine knows. The page gets them behind `#`, which a browser sends to nobody.
fn token() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

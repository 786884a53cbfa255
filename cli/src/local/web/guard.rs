//! Which requests are answered.

use std::net::{IpAddr, SocketAddr};

/// What a request must know and name.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) bound: SocketAddr,
    pub(super) token: String,
}

impl Guard {
    /// Whether a request means this server. A name that an attacker lets point here is none of ours: an address, or `localhost`, cannot
    /// be pointed elsewhere.
    pub(super) fn is_ours(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return false };
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse::<u16>().ok()),
            _ => (host, Some(80)),
        };
        if port != Some(self.bound.port()) {
            return false;
        }
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip == self.bound.ip() || ip.is_loopback() || self.bound.ip().is_unspecified(),
            Err(_) => false,
        }
    }

    /// Whether a page of another origin sent it. Browsers name the origin of what changes something.
    pub(super) fn is_foreign(&self, origin: Option<&str>) -> bool {
        origin.is_some_and(|origin| !origin.strip_prefix("http://").is_some_and(|host| self.is_ours(Some(host))))
    }

    /// Whether a request has the token. The time that this takes says nothing about how much of it is right.
    pub(super) fn knows(&self, token: Option<&str>) -> bool {
        let (ours, theirs) = (self.token.as_bytes(), token.unwrap_or_default().as_bytes());
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

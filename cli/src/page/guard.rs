//! Which requests are answered.

use std::net::{IpAddr, SocketAddr};

/// What a request must know and name.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) bound: SocketAddr,
    pub(crate) token: String,
}

impl Guard {
    /// Whether a request means this server. A name that an attacker lets point here is none of ours: an address, or `localhost`, cannot
    /// be pointed elsewhere. Its port may be another one: that of a tunnel.
    pub(crate) fn is_ours(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return false };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') && port.parse::<u16>().is_ok() => name,
            _ => host,
        };
        if name.eq_ignore_ascii_case("localhost") {
            return true;
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip == self.bound.ip() || ip.is_loopback() || self.bound.ip().is_unspecified(),
            Err(_) => false,
        }
    }

    /// Whether a page of another origin sent it. Browsers name the origin of what changes something: it is the host that they asked.
    pub(crate) fn is_foreign(origin: Option<&str>, host: Option<&str>) -> bool {
        origin.is_some_and(|origin| origin.strip_prefix("http://").is_none_or(|of| Some(of) != host))
    }

    /// Whether a request has the token. The time that this takes says nothing about how much of it is right.
    pub(crate) fn knows(&self, token: Option<&str>) -> bool {
        let (ours, theirs) = (self.token.as_bytes(), token.unwrap_or_default().as_bytes());
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

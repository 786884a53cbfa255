//! The secret of a cluster's webhook. Every cluster has its own, derived from the stored one: whoever can read one cluster's
//! webhook can trigger runs for that cluster alone.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use whittle_ports::Settings;

/// The secret part of a cluster's path: HMAC-SHA-256 of the cluster's name under the stored secret, in hexadecimal.
/// `infra/README.md` describes how to compute one.
pub fn cluster_secret(stored: &str, cluster: &str) -> String {
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(stored.as_bytes()) else { return String::new() };
    mac.update(cluster.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether `given` authenticates the cluster: by the newest secret, or by one that is still accepted.
pub(crate) fn authenticates(settings: &Settings, given: &str, cluster: &str) -> bool {
    let stored = settings.relay_secrets.iter().filter(|stored| !stored.is_empty());
    stored.fold(false, |seen, stored| seen | same_secret(given, &cluster_secret(stored, cluster)))
}

/// Whether `given` is a stored secret itself, as paths of earlier releases had it.
pub(crate) fn is_stored(settings: &Settings, given: &str) -> bool {
    let stored = settings.relay_secrets.iter().filter(|stored| !stored.is_empty());
    stored.fold(false, |seen, stored| seen | same_secret(given, stored))
}

/// Compares in a time that depends on the lengths alone, so that a guesser learns nothing from the answer's speed.
fn same_secret(given: &str, secret: &str) -> bool {
    let differing = given.bytes().zip(secret.bytes()).fold(0u8, |seen, (left, right)| seen | (left ^ right));
    given.len() == secret.len() && differing == 0
}

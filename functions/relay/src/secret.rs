//! What lets a cluster's webhook in. Every cluster has a secret of its own, which follows from the stored one: who can read
//! one cluster's webhook rings for that cluster alone.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use whittle_ports::Settings;

/// The secret part of a cluster's path: HMAC-SHA-256 of the cluster's name under the stored secret, in hexadecimal.
/// `infra/README.md` says how to make one by hand.
pub fn cluster_secret(stored: &str, cluster: &str) -> String {
    // No key is too long or too short for it.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(stored.as_bytes()) else { return String::new() };
    mac.update(cluster.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether `given` opens the way for the cluster: by the newest secret, or by one that is still accepted.
pub(crate) fn opens(settings: &Settings, given: &str, cluster: &str) -> bool {
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

//! The relay's stored secret: read again from time to time, so that a rotation takes effect in running execution environments.

use crate::clock::SharedClock;
use aws_config::SdkConfig;
use std::sync::{Mutex, PoisonError};
use whittle_aws::{SecretVersion, read_secret};
use whittle_ports::CloudError;
use whittle_units::{SignedDuration, Timestamp};

/// The secret is read again at this age.
pub(crate) const MAX_AGE: SignedDuration = SignedDuration::from_mins(5);
/// A refused caller may know a newer value: the secret is then read again at this age, so that callers cannot force more reads.
pub(crate) const MAX_AGE_WHEN_REFUSED: SignedDuration = SignedDuration::from_mins(1);
/// How long the value before the newest one is accepted: time to reconfigure the webhooks.
const GRACE: SignedDuration = SignedDuration::from_hours(1);

/// The versions that were read.
#[derive(Clone, Debug)]
struct CachedSecret {
    newest: SecretVersion,
    previous: Option<SecretVersion>,
    read_at: Timestamp,
}

impl CachedSecret {
    /// The accepted values, newest first.
    fn accepted(&self, now: Timestamp) -> Vec<String> {
        let previous = self.previous.iter().filter(|_| is_in_grace(&self.newest, now));
        std::iter::once(&self.newest).chain(previous).map(|secret| secret.value.clone()).filter(|value| !value.is_empty()).collect()
    }

    fn is_due(&self, now: Timestamp, max_age: SignedDuration) -> bool {
        now.duration_since(self.read_at) >= max_age
    }
}

/// Whether the version before this one is still accepted.
fn is_in_grace(newest: &SecretVersion, now: Timestamp) -> bool {
    newest.version > 1 && newest.since.is_some_and(|since| now.duration_since(since) < GRACE)
}

/// The secret of a relay whose URL accepts unsigned requests.
pub(crate) struct RelaySecrets {
    config: SdkConfig,
    parameter: String,
    cached: Mutex<CachedSecret>,
}

impl RelaySecrets {
    /// Reads it for the first time.
    pub(crate) async fn open(config: SdkConfig, parameter: String) -> Result<Self, CloudError> {
        let cached = read(&config, &parameter).await?;
        if cached.newest.value.is_empty() {
            tracing::error!(%parameter, "the parameter is empty: no webhook is accepted");
        }
        Ok(Self { config, parameter, cached: Mutex::new(cached) })
    }

    /// The values that are accepted now, of a secret that was read at most `max_age` ago. When reading fails, the cached secret stays in
    /// use, and is not read again at once.
    pub(crate) async fn accepted(&self, max_age: SignedDuration) -> Vec<String> {
        let now = Timestamp::now();
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if cached.is_due(now, max_age) {
            match read(&self.config, &self.parameter).await {
                Ok(read) => cached = read,
                Err(error) => {
                    tracing::error!(%error, parameter = %self.parameter, "the secret cannot be read again");
                    cached.read_at = now;
                }
            }
            *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = cached.clone();
        }
        cached.accepted(now)
    }
}

async fn read(config: &SdkConfig, parameter: &str) -> Result<CachedSecret, CloudError> {
    let now = Timestamp::now();
    let newest = read_secret(config, &SharedClock, parameter, None).await?;
    let previous = if is_in_grace(&newest, now) {
        // SSM deletes old versions, and the function's role may not be allowed to decrypt one of another key.
        read_secret(config, &SharedClock, parameter, Some(newest.version - 1)).await.ok()
    } else {
        None
    };
    Ok(CachedSecret { newest, previous, read_at: now })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    fn secret(value: &str, version: i64, since: i64) -> SecretVersion {
        SecretVersion { value: value.to_owned(), version, since: Some(at(since)) }
    }

    #[test]
    fn after_a_rotation_the_previous_secret_is_accepted_for_an_hour() {
        let cached = CachedSecret { newest: secret("new", 2, 10), previous: Some(secret("old", 1, 0)), read_at: at(10) };
        assert_eq!(cached.accepted(at(10)), ["new", "old"]);
        assert_eq!(cached.accepted(at(69)), ["new", "old"]);
        assert_eq!(cached.accepted(at(70)), ["new"]);
    }

    #[test]
    fn a_previous_secret_is_accepted_only_where_it_is_known_when_it_was_replaced() {
        let accepted = |newest: SecretVersion| {
            let cached = CachedSecret { newest, previous: Some(secret("old", 1, 0)), read_at: at(10) };
            cached.accepted(at(10))
        };
        assert_eq!(accepted(secret("new", 2, 10)), ["new", "old"]);
        assert_eq!(accepted(SecretVersion { since: None, ..secret("new", 2, 10) }), ["new"]);
        assert_eq!(accepted(secret("new", 1, 10)), ["new"], "before the first version there was none");
    }

    #[test]
    fn an_empty_secret_authenticates_no_caller() {
        let cached = CachedSecret { newest: secret("", 2, 0), previous: Some(secret("", 1, 0)), read_at: at(0) };
        assert_eq!(cached.accepted(at(0)), Vec::<String>::new());
    }

    #[test]
    fn the_secret_is_read_every_five_minutes_and_after_a_refusal_at_most_once_a_minute() {
        let cached = CachedSecret { newest: secret("s", 1, 0), previous: None, read_at: at(0) };
        let seconds = |seconds| at(0) + SignedDuration::from_secs(seconds);
        for (after, max_age, expected) in [
            (59, MAX_AGE_WHEN_REFUSED, false),
            (60, MAX_AGE_WHEN_REFUSED, true),
            (60, MAX_AGE, false),
            (299, MAX_AGE, false),
            (300, MAX_AGE, true),
        ] {
            assert_eq!(cached.is_due(seconds(after), max_age), expected, "{after} {max_age}");
        }
    }

    #[test]
    fn debug_output_omits_the_secret() {
        let cached = CachedSecret { newest: secret("s3cret", 1, 0), previous: Some(secret("s3cret", 1, 0)), read_at: at(0) };
        assert!(!format!("{cached:?}").contains("s3cret"));
    }
}

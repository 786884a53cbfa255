//! When the region's catalog was last read.

use serde::{Deserialize, Serialize};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// When the last successful reads of the region's catalog began; shared by the clusters of the region. Losing one costs a further
/// read. Written by `refresh` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CatalogReads {
    /// Of types, zones and on-demand prices.
    pub types: Option<Timestamp>,
    /// Of spot prices.
    pub spot_prices: Option<Timestamp>,
    /// Why on-demand prices, or some of them, could not be read with the types: others stand in. Absent once they could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices_failed: Option<String>,
    /// What other runs need not begin again. Only deployments of several clusters have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<CatalogAttempt>,
}

/// A read of the catalog that is under way, or that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogAttempt {
    /// When another run may begin one.
    pub until: Timestamp,
    /// Why it failed; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// For which cluster it was begun; absent where an earlier release began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ClusterName>,
}

impl CatalogAttempt {
    /// How long a read may take, which is usually less than a minute. If its run died, others wait no longer than this.
    pub const LONGEST: SignedDuration = SignedDuration::from_mins(2);
    /// How long no read is started after one has failed. Then the message of the failed run comes again.
    pub const PAUSE: SignedDuration = SignedDuration::from_secs(25);

    /// Whether it holds back a run for `cluster` at `now`. One that is under way does not hold back its own cluster: the run that began it
    /// was cut short or could not store what it read, and would count as done if its repetition left the read to it. A time that is further
    /// away than any run writes comes from a wrong clock.
    #[must_use]
    pub fn holds_back(&self, cluster: &ClusterName, now: Timestamp) -> bool {
        let left = self.until.duration_since(now);
        let is_own = self.failed.is_none() && self.by.as_ref() == Some(cluster);
        left > SignedDuration::ZERO && left <= Self::LONGEST && !is_own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(seconds: i64, failed: Option<&str>, by: Option<&str>) -> (CatalogAttempt, Timestamp) {
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        let until = now.checked_add(SignedDuration::from_secs(seconds)).expect("in range");
        (CatalogAttempt { until, failed: failed.map(str::to_owned), by: by.map(ClusterName::new) }, now)
    }

    #[test]
    fn an_attempt_holds_others_back_until_its_time_and_no_longer_than_one_may_take() {
        for (seconds, expected) in [(-1, false), (0, false), (1, true), (120, true), (121, false), (86_400, false)] {
            let (attempt, now) = attempt(seconds, None, Some("first"));
            assert_eq!(attempt.holds_back(&"second".into(), now), expected, "{seconds} s");
        }
    }

    #[test]
    fn the_run_that_repeats_a_read_does_not_wait_for_itself_but_for_its_pause() {
        for (failed, by, expected) in
            [(None, Some("first"), false), (None, None, true), (Some("throttled"), Some("first"), true), (Some("throttled"), None, true)]
        {
            let (attempt, now) = attempt(20, failed, by);
            assert_eq!(attempt.holds_back(&"first".into(), now), expected, "{failed:?} {by:?}");
        }
        let earlier: CatalogAttempt = serde_json::from_str(r#"{"until":"2027-01-15T08:00:20Z"}"#).expect("an earlier release wrote it");
        assert_eq!(earlier, attempt(20, None, None).0);
    }
}

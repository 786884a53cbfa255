//! When the region's catalog was last read.

use serde::{Deserialize, Serialize};
use whittle_units::{SignedDuration, Timestamp};

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
}

impl CatalogAttempt {
    /// How long a read may take: as a rule a minute at most. One whose run died holds others back no longer.
    pub const LONGEST: SignedDuration = SignedDuration::from_mins(2);
    /// How long nobody begins one after another has failed: by then the message of the run that failed comes again.
    pub const PAUSE: SignedDuration = SignedDuration::from_secs(25);

    /// Whether it holds others back at `now`. A time that is further away than any run writes comes from a wrong clock.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        let left = self.until.duration_since(now);
        left > SignedDuration::ZERO && left <= Self::LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_holds_others_back_until_its_time_and_no_longer_than_one_may_take() {
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        for (seconds, expected) in [(-1, false), (0, false), (1, true), (120, true), (121, false), (86_400, false)] {
            let until = now.checked_add(SignedDuration::from_secs(seconds)).expect("in range");
            assert_eq!(CatalogAttempt { until, failed: None }.holds(now), expected, "{seconds} s");
        }
    }
}

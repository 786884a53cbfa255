//! A time in which the API server did not answer: no kubelet could join then, and each does so within seconds of its end.

use serde::{Deserialize, Serialize};
use whittle_claims::{Claim, Liveness, Phase, REGISTRATION_TIMEOUT};
use whittle_units::{SignedDuration, Timestamp};

/// How long machines that are overdue are waited for once the API server answers again.
const GRACE: SignedDuration = SignedDuration::from_mins(2);
/// A machine that had this long before would have joined by then, if it could.
const JOINS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// How a look at the cluster went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// The API server answered.
    Answered,
    /// It did not.
    Unanswered,
    /// It was not asked, or it is not known.
    Unknown,
}

/// The last time in which the API server did not answer, for as long as machines are waited for because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Silence {
    /// When the first look failed.
    since: Timestamp,
    /// When the first one after that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
}

impl Silence {
    /// What is known after a look. One that fails while machines are waited for does not prolong that: an API server that answers now and
    /// then would keep for ever those that never join.
    pub(crate) fn after(known: Option<Self>, looked: Looked, now: Timestamp) -> Option<Self> {
        let current = known.filter(|silence| !silence.is_over(now));
        match looked {
            Looked::Answered => current.map(|silence| Self { ended_at: silence.ended_at.or(Some(now)), ..silence }),
            Looked::Unanswered => Some(current.unwrap_or(Self { since: now, ended_at: None })),
            Looked::Unknown => current,
        }
    }

    fn is_over(self, now: Timestamp) -> bool {
        self.ended_at.is_some_and(|ended| now.duration_since(ended) >= GRACE)
    }

    /// Whether a claim whose Node is overdue is waited for: only one whose machine had hardly any time to join before.
    pub(crate) fn excuses(self, claim: &Claim, now: Timestamp) -> bool {
        let is_joining = matches!(claim.phase, Phase::Launched { .. });
        let had_no_time = || matches!(claim.liveness(self.since), Liveness::Waiting(left) if left > REGISTRATION_TIMEOUT - JOINS_WITHIN);
        is_joining && !self.is_over(now) && had_no_time()
    }
}

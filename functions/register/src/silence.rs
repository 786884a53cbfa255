//! A time in which the API server did not answer. No kubelet could join then, so that timeouts of claims are extended: kubelets join within
//! seconds once it answers again.

use serde::{Deserialize, Serialize};
use whittle_claims::{Claim, Liveness, Phase, REGISTRATION_TIMEOUT};
use whittle_units::{SignedDuration, Timestamp};

/// How much time overdue machines get once the API server answers again.
const GRACE: SignedDuration = SignedDuration::from_mins(2);
/// A machine that had this much time before the silence would have joined by then if it could: it gets no more.
const JOINS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// Whether the API server answered when the cluster was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// The API server answered.
    Answered,
    /// It did not.
    Unanswered,
    /// It was not asked, or it is not known.
    Unknown,
}

/// The latest time in which the API server did not answer. It is kept while machines get more time because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Silence {
    /// When the first read failed.
    since: Timestamp,
    /// When the first read after that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
}

impl Silence {
    /// The state after a read. A failure while machines already get more time does not extend that time: otherwise, with an API server that
    /// answers now and then, machines that never join would be kept for ever.
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

    /// Whether an overdue claim gets more time: only if its machine had little time to join before the silence.
    pub(crate) fn excuses(self, claim: &Claim, now: Timestamp) -> bool {
        let is_joining = matches!(claim.phase, Phase::Launched { .. });
        let had_no_time = || matches!(claim.liveness(self.since), Liveness::Waiting(left) if left > REGISTRATION_TIMEOUT - JOINS_WITHIN);
        is_joining && !self.is_over(now) && had_no_time()
    }
}

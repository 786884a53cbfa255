//! Dry runs of node classes (aws 18.4): what was requested, and what came of it. Pure.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use whittle_api::karpenter::Requirement;
use whittle_units::{SignedDuration, Timestamp};

/// How long a class that passed needs no other dry run.
const PASSED_FOR: SignedDuration = SignedDuration::from_mins(30);
/// The same for one that failed: permissions are corrected outside of the cluster, without a trace in it.
const FAILED_FOR: SignedDuration = SignedDuration::from_mins(5);
/// How soon a class is tried again whose failure may pass by itself, while it has failed for less than the first of each: EC2 mostly knows
/// within seconds what is new in IAM.
const TRIED_AGAIN: [(SignedDuration, SignedDuration); 2] =
    [(SignedDuration::from_secs(15), SignedDuration::from_secs(15)), (SignedDuration::from_mins(2), SignedDuration::from_mins(1))];
/// How long the record of a class is kept that no longer asks for dry runs.
const RETENTION: SignedDuration = SignedDuration::from_hours(6);

/// The dry run of a node class. `refresh` requests it; `launch` makes it, because it is about its role's permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassDryRun {
    /// Name of the class's record.
    pub class: String,
    /// Digest of everything the result depends on. A result for another digest says nothing about the class.
    pub subject: String,
    /// The pools of the class: the dry run launches what one of them may launch. Without any, it launches any type.
    pub pools: Vec<DryRunPool>,
    pub requested_at: Timestamp,
    /// `None` until the first result for this subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<DryRunResult>,
}

/// A NodePool, reduced to what a dry run depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRunPool {
    pub name: String,
    pub requirements: Vec<Requirement>,
}

/// What EC2 answered to a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRunResult {
    pub at: Timestamp,
    /// `None` if EC2 would have launched the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DryRunFailure>,
    /// Since when every result has been a failure that may pass; `None` for any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passing_since: Option<Timestamp>,
}

/// Why nothing can be launched with the class, as its condition `ValidationSucceeded` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRunFailure {
    pub reason: String,
    pub message: String,
    /// Whether it may pass although nobody does anything: what the class names may be too new for EC2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_pass: bool,
}

impl DryRunResult {
    /// How soon the class is tried again, if its failure may pass soon.
    #[must_use]
    pub fn again_after(&self) -> Option<SignedDuration> {
        let failing_for = self.at.duration_since(self.passing_since?);
        TRIED_AGAIN.iter().find(|(less_than, _)| failing_for < *less_than).map(|(_, after)| *after)
    }
    /// How long the result counts.
    fn valid_for(&self) -> SignedDuration {
        if self.failure.is_some() { self.again_after().unwrap_or(FAILED_FOR) } else { PASSED_FOR }
    }
}

impl ClassDryRun {
    /// Whether it was requested and not made yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.result.as_ref().is_none_or(|result| result.at < self.requested_at)
    }
    /// Why nothing can be launched with the class, by its latest dry run.
    #[must_use]
    pub fn failure(&self) -> Option<&DryRunFailure> {
        self.result.as_ref()?.failure.as_ref()
    }
    /// The record after a dry run of `subject` has been found due; `None` if the known one is still valid or pending.
    #[must_use]
    pub fn requested(known: Option<&Self>, class: &str, subject: &str, pools: &[DryRunPool], now: Timestamp) -> Option<Self> {
        let same = known.filter(|known| known.subject == subject);
        let is_old = |result: &DryRunResult| now.duration_since(result.at) >= result.valid_for();
        let is_due = same.is_none_or(|known| !known.is_pending() && known.result.as_ref().is_some_and(is_old));
        is_due.then(|| Self {
            class: class.to_owned(),
            subject: subject.to_owned(),
            pools: pools.to_vec(),
            requested_at: now,
            // Until there is a new result, the class is what it was.
            result: same.and_then(|known| known.result.clone()),
        })
    }
    /// The record with a result.
    #[must_use]
    pub fn made(&self, failure: Option<DryRunFailure>, now: Timestamp) -> Self {
        let at = now.max(self.requested_at);
        let before = self.result.as_ref().and_then(|before| before.passing_since);
        let passing_since = failure.as_ref().filter(|failure| failure.may_pass).map(|_| before.unwrap_or(at));
        Self { result: Some(DryRunResult { at, failure, passing_since }), ..self.clone() }
    }
}

impl Record for ClassDryRun {
    const KIND: &'static str = "class-dry-run";
    fn name(&self) -> String {
        self.class.clone()
    }
    fn expires_at(&self) -> Option<Timestamp> {
        self.requested_at.checked_add(RETENTION).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    fn refused() -> Option<DryRunFailure> {
        Some(DryRunFailure { reason: "CreateFleetAuthCheckFailed".into(), message: "no".into(), may_pass: false })
    }

    fn too_new() -> Option<DryRunFailure> {
        Some(DryRunFailure { reason: "InstanceProfileNotFound".into(), message: "no".into(), may_pass: true })
    }

    fn requested(known: Option<&ClassDryRun>, subject: &str, seconds: i64) -> Option<ClassDryRun> {
        ClassDryRun::requested(known, "default", subject, &[], at(seconds))
    }

    #[test]
    fn a_dry_run_is_requested_once_and_again_when_its_result_is_old() {
        let first = requested(None, "a", 0).expect("nothing is known");
        assert!(first.is_pending());
        assert_eq!(requested(Some(&first), "a", 10_000), None, "it is still pending");
        let passed = first.made(None, at(2));
        assert!(!passed.is_pending());
        assert_eq!(requested(Some(&passed), "a", 1801), None);
        let again = requested(Some(&passed), "a", 1802).expect("30 minutes have passed");
        assert!(again.is_pending());
        let failed = first.made(refused(), at(2));
        assert_eq!(requested(Some(&failed), "a", 301), None);
        let again = requested(Some(&failed), "a", 302).expect("5 minutes have passed");
        assert_eq!(again.failure(), refused().as_ref(), "a class that failed does not become ready by being asked about again");
    }

    /// The dry runs of a class that fails each time with what `failure` says at that second, each made when it is due: their seconds.
    fn tried_at(failure: impl Fn(i64) -> Option<DryRunFailure>) -> [i64; 6] {
        let (mut known, mut due) = (requested(None, "a", 0).expect("nothing is known"), 0);
        [(); 6].map(|()| {
            let begun = due;
            let made = known.made(failure(begun), at(begun));
            due = (begun..).find(|&second| requested(Some(&made), "a", second).is_some()).expect("no result counts for ever");
            known = requested(Some(&made), "a", due).expect("it is due");
            begun
        })
    }

    #[test]
    fn what_may_be_too_new_for_ec2_is_tried_again_after_seconds_then_minutes() {
        assert_eq!(tried_at(|_| too_new()), [0, 15, 75, 135, 435, 735]);
    }

    #[test]
    fn a_refusal_of_rights_counts_for_five_minutes_whatever_failed_before() {
        assert_eq!(tried_at(|_| refused()), [0, 300, 600, 900, 1200, 1500]);
        assert_eq!(tried_at(|second| if second < 15 { too_new() } else { refused() }), [0, 15, 315, 615, 915, 1215]);
        // It begins anew after another answer.
        assert_eq!(tried_at(|second| if second == 15 { refused() } else { too_new() }), [0, 15, 315, 330, 390, 450]);
    }

    #[test]
    fn a_changed_class_is_not_judged_by_what_it_was() {
        let failed = requested(None, "a", 0).unwrap().made(refused(), at(2));
        let changed = requested(Some(&failed), "b", 3).expect("another subject");
        assert_eq!((changed.is_pending(), changed.failure()), (true, None));
    }

    #[test]
    fn a_result_by_a_slow_clock_ends_the_request() {
        let first = requested(None, "a", 10).unwrap();
        assert!(!first.made(None, at(4)).is_pending());
    }
}

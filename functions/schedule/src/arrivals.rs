//! Whether pods of a burst are still arriving. Then the plan waits for the others: one plan is cheaper than many parts of it, and its
//! machines are there sooner.

use crate::{Rights, Run, state, write};
use serde::{Deserialize, Serialize};
use whittle_api::k8s::Pod;
use whittle_claims::{Doorbell, Record};
use whittle_model::pods::is_active;
use whittle_ports::{Batching, Clock, HandleError, Queues, Records, Report};
use whittle_units::{SignedDuration, Timestamp};

/// EKS labels the pods with it that Fargate runs: its scheduler takes a minute for one.
const FARGATE: &str = "eks.amazonaws.com/fargate-profile";

/// Since when pods have been arriving without a pause. Losing it delays a plan by the longest wait at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Burst {
    since: Timestamp,
    /// When a run last waited for it.
    seen_at: Timestamp,
}

impl Record for Burst {
    const KIND: &'static str = "burst";
    fn name(&self) -> String {
        state::NAME.to_owned()
    }
}

/// What a run does about pods that arrive.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Pods are not batched: the plan is made at once.
    Plan,
    /// The burst has lasted as long as one plan may wait: this plan takes what is there, and the next begins to wait anew.
    PlanAndBeginAnew(Burst),
    Wait(Burst),
}

impl<P: Rights> Run<'_, P> {
    /// Whether the plan waits, because pods are still arriving. If so, the doorbell for the next run has been sent.
    pub(crate) async fn waits_for_more(&self, unbound: &[Pod], report: &mut Report) -> Result<bool, HandleError> {
        let (batching, now) = (self.settings.batching, self.ports.clock().now());
        if !is_arriving(unbound, batching, now) {
            return Ok(false);
        }
        let store = self.ports.store();
        let known = state::read::<Burst>(store, self.cluster).await;
        let (waits, burst) = match judge(&known.value, batching, now) {
            Verdict::Plan => return Ok(false),
            Verdict::PlanAndBeginAnew(burst) => (false, burst),
            Verdict::Wait(burst) => (true, burst),
        };
        // If the beginning of the burst is not stored, every run takes itself for the first, and none ever plans.
        if store.write(self.cluster, &burst, known.revision).await.is_err() {
            report.count("memory_not_kept");
            return Ok(false);
        }
        if waits {
            self.ports.queues().send_now(Doorbell::Schedule { cluster: self.cluster.clone() }).await?;
            report.count("pods_arriving");
        }
        Ok(waits)
    }
}

/// Whether kube-scheduler has marked a pod as unschedulable within the idle time, or has not tried to schedule one yet. Timestamps of an
/// API server are whole seconds, rounded down; one from the future is of a clock that differs, and does not count. A pod that has not been
/// tried for longer than a plan may wait is another scheduler's, or has gates. Pods of Fargate need no machine, and deleted pods are never
/// bound. Pure.
fn is_arriving(unbound: &[Pod], batching: Batching, now: Timestamp) -> bool {
    let is_within = |since: Option<Timestamp>, span| {
        let age = since.map(|since| now.duration_since(since));
        age.is_some_and(|age| age >= SignedDuration::ZERO && age < span)
    };
    let waits = |pod: &&Pod| is_active(pod) && !pod.is_bound() && !pod.metadata.labels.contains_key(FARGATE);
    unbound.iter().filter(waits).any(|pod| match pod.condition(write::POD_SCHEDULED) {
        Some(_) => pod.is_marked_unschedulable() && is_within(write::waiting_since(pod), batching.idle),
        None => batching.idle > SignedDuration::ZERO && is_within(pod.metadata.creation_timestamp, batching.max),
    })
}

/// What to do while pods arrive. `known` is what the last run that waited has stored of the burst. Pure.
fn judge(known: &Burst, batching: Batching, now: Timestamp) -> Verdict {
    let begun = Burst { since: now, seen_at: now };
    if batching.max <= batching.idle {
        return Verdict::Plan;
    }
    let since_seen = now.duration_since(known.seen_at);
    // A burst is over when no run has waited for it for as long as a plan may wait. With a shorter limit, runs that come late would begin
    // a new burst each time. A clock that was set back begins a new one, too.
    if since_seen < SignedDuration::ZERO || since_seen > batching.max {
        return Verdict::Wait(begun);
    }
    if now.duration_since(known.since) >= batching.max {
        return Verdict::PlanAndBeginAnew(begun);
    }
    Verdict::Wait(Burst { since: known.since, seen_at: now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::pod;
    use whittle_testkit::at;

    const BATCHING: Batching = Batching { idle: SignedDuration::from_secs(1), max: SignedDuration::from_secs(10) };

    fn marked(seconds: i64) -> Pod {
        let mut out = pod("p", 1);
        out.status.conditions[0].last_transition_time = Some(at(seconds));
        out
    }

    fn created(seconds: i64) -> Pod {
        let mut out = pod("p", 1);
        out.status.conditions.clear();
        out.metadata.creation_timestamp = Some(at(seconds));
        out
    }

    fn arrives(pods: &[Pod], now: i64) -> bool {
        is_arriving(pods, BATCHING, at(now))
    }

    #[test]
    fn pods_arrive_while_the_scheduler_has_just_failed_on_one() {
        assert!(arrives(&[marked(0), marked(100)], 100));
        assert!(!arrives(&[marked(0), marked(99)], 100));
        assert!(!arrives(&[], 100));
        assert!(!arrives(&[marked(105)], 100), "the API server's clock is ahead");
        assert!(arrives(&[created(100)], 100) && arrives(&[created(91)], 100), "the scheduler has not looked at it yet");
        assert!(!arrives(&[created(90)], 100), "nobody looks at it");
        let mut fargate = created(100);
        fargate.metadata.labels.insert(FARGATE.to_owned(), "system".to_owned());
        assert!(!arrives(&[fargate], 100), "it needs no machine");
        let mut gated = marked(100);
        gated.status.conditions[0].reason = "SchedulingGated".into();
        assert!(!arrives(&[gated], 100));
        let mut bound = marked(100);
        bound.spec.node_name = "n".into();
        let mut failed = marked(100);
        failed.status.phase = "Failed".into();
        let mut deleted = marked(100);
        deleted.metadata.deletion_timestamp = Some(at(100));
        assert!(!arrives(&[bound, failed, deleted], 100));
        assert!(!is_arriving(&[marked(100), created(100)], Batching::default(), at(100)), "plans at once");
    }

    /// When plans are made if runs come at these times and pods arrive all the time.
    fn plans(runs: impl Iterator<Item = i64>) -> Vec<i64> {
        let mut known = Burst::default();
        let plans_at = |second: i64| match judge(&known, BATCHING, at(second)) {
            Verdict::Plan => Some(second),
            Verdict::PlanAndBeginAnew(burst) => {
                known = burst;
                Some(second)
            }
            Verdict::Wait(burst) => {
                known = burst;
                None
            }
        };
        runs.filter_map(plans_at).collect()
    }

    #[test]
    fn no_plan_waits_for_longer_than_the_longest_wait() {
        assert_eq!(plans(100..140), [110, 120, 130]);
        assert_eq!(plans((100..105).chain(200..212)), [210], "a burst that ended is forgotten");
        assert_eq!(plans((100..110).chain(50..62)), [60], "the clock was set back");
        assert_eq!(plans([100, 109, 118, 127, 136].into_iter()), [118, 136], "runs that come late do not begin a new burst");
    }

    #[test]
    fn where_the_longest_wait_is_no_longer_than_the_idle_time_nothing_waits() {
        for max in [0, 1] {
            let batching = Batching { max: SignedDuration::from_secs(max), ..BATCHING };
            assert_eq!(judge(&Burst::default(), batching, at(100)), Verdict::Plan);
        }
    }
}

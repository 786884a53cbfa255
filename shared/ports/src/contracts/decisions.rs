//! The contract of [`DecisionLog`].

use crate::DecisionLog;
use whittle_claims::{DecisionKind, DecisionRecord};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// Runs the whole suite for one cluster, whose name must be unused.
///
/// # Panics
///
/// If the log violates the contract.
pub async fn decision_log(log: &impl DecisionLog, cluster: &ClusterName, now: Timestamp) {
    assert_eq!(log.recent(cluster, None, 10).await, Ok(vec![]), "the log is fresh");
    log.append(cluster, &[]).await.expect("nothing to write is no error");

    // Sixty: more than an adapter may write at once.
    let decision = |number: i64| DecisionRecord {
        at: now.checked_add(SignedDuration::from_millis(number)).expect("a test's time is far from the end of time"),
        kind: if number % 2 == 0 { DecisionKind::Planned } else { DecisionKind::Unschedulable },
        subject: format!("pod/default/web-{}", number % 3),
        message: format!("decision {number}"),
        detail: serde_json::json!({ "number": number }),
    };
    let decisions: Vec<DecisionRecord> = (0..60).map(decision).collect();
    let (early, late) = decisions.split_at(35);
    log.append(cluster, early).await.expect("the log responds");
    log.append(cluster, late).await.expect("the log responds");

    let newest_first: Vec<DecisionRecord> = decisions.iter().rev().cloned().collect();
    assert_eq!(recent(log, cluster, None, 100).await, newest_first);
    assert_eq!(recent(log, cluster, None, 7).await, newest_first[..7]);
    let of_one: Vec<DecisionRecord> = newest_first.iter().filter(|decision| decision.subject.ends_with("web-1")).cloned().collect();
    assert_eq!(recent(log, cluster, Some("pod/default/web-1"), 100).await, of_one);
    assert_eq!(recent(log, cluster, Some("pod/default/web-1"), 2).await, of_one[..2]);
    assert_eq!(recent(log, cluster, Some("pod/default/web"), 2).await, [], "a subject is not a prefix");
    assert_eq!(recent(log, &ClusterName::new(format!("{cluster}-other")), None, 2).await, [], "clusters do not share logs");

    two_decisions_of_the_same_time_are_both_kept(log, cluster, decision(1000)).await;
}

async fn two_decisions_of_the_same_time_are_both_kept(log: &impl DecisionLog, cluster: &ClusterName, decision: DecisionRecord) {
    let other = DecisionRecord { message: "another".to_owned(), ..decision.clone() };
    log.append(cluster, &[decision.clone(), other.clone()]).await.expect("the log responds");
    let mut messages: Vec<String> = recent(log, cluster, None, 2).await.into_iter().map(|decision| decision.message).collect();
    messages.sort();
    assert_eq!(messages, [other.message, decision.message]);
}

async fn recent(log: &impl DecisionLog, cluster: &ClusterName, subject: Option<&str>, limit: usize) -> Vec<DecisionRecord> {
    log.recent(cluster, subject, limit).await.expect("the log responds")
}

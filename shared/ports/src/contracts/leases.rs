//! The contract of [`Leases`].

use crate::{Leases, StoreError};
use futures::future::join_all;
use whittle_units::{ClusterName, SignedDuration, Timestamp};

const TTL: SignedDuration = SignedDuration::from_mins(1);

/// Runs the whole suite for one cluster, whose name must be unused.
///
/// # Panics
///
/// If the store violates the contract.
pub async fn leases(store: &impl Leases, cluster: &ClusterName, now: Timestamp) {
    let end = now.checked_add(TTL).expect("a test's time is far from the end of time");
    let first = store.acquire(cluster, "a", now, TTL).await.expect("a fresh lease is free");
    assert_eq!((first.owner.as_str(), first.expires_at), ("a", end));

    let refused = store.acquire(cluster, "b", now, TTL).await;
    assert_eq!(refused, Err(StoreError::Held { cluster: cluster.clone(), until: end }), "one invocation holds it");
    let just_before = end.checked_sub(SignedDuration::from_millis(1)).expect("a test's time is far from 1970");
    assert!(store.acquire(cluster, "b", just_before, TTL).await.is_err(), "until its last moment");

    let second = store.acquire(cluster, "b", end, TTL).await.expect("an ended lease is free");
    assert!(second.token > first.token, "each lease has a newer token");
    store.release(&first).await.expect("releasing a superseded lease is no error");
    assert!(store.acquire(cluster, "c", end, TTL).await.is_err(), "and does not affect the new holder");

    store.release(&second).await.expect("the holder may release it");
    let third = store.acquire(cluster, "c", end, TTL).await.expect("a released lease is free");
    assert!(third.token > second.token, "a released lease never repeats a token");
    let again = store.acquire(cluster, "c", end, TTL).await.expect("a repeated invocation gets its own lease");
    assert!(again.token > third.token, "and a newer token with it");
    store.release(&again).await.expect("the holder may release it");

    one_of_concurrent_callers_wins(store, cluster, end).await;
    let other = ClusterName::new(format!("{cluster}-other"));
    store.acquire(&other, "a", end, TTL).await.expect("clusters do not share leases");
}

async fn one_of_concurrent_callers_wins(store: &impl Leases, cluster: &ClusterName, now: Timestamp) {
    let owners: Vec<String> = (0..8).map(|number| format!("racer-{number}")).collect();
    let answers = join_all(owners.iter().map(|owner| store.acquire(cluster, owner, now, TTL))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "exactly one wins: {answers:?}");
    for answer in answers {
        match answer {
            Ok(lease) => store.release(&lease).await.expect("the holder may release it"),
            Err(error) => assert!(matches!(error, StoreError::Held { .. }), "the others get `Held`: {error:?}"),
        }
    }
}

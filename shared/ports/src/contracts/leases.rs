//! The contract of [`Leases`].

use crate::{Leases, StoreError};
use futures::future::join_all;
use whittle_units::{ClusterName, SignedDuration, Timestamp};

const TTL: SignedDuration = SignedDuration::from_mins(1);

/// Runs all of it for one cluster, whose name nothing else uses.
///
/// # Panics
///
/// Where the store breaks the contract.
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
    store.release(&first).await.expect("giving back what has passed on is no error");
    assert!(store.acquire(cluster, "c", end, TTL).await.is_err(), "and takes nothing from its new holder");

    store.release(&second).await.expect("the holder may give it back");
    let third = store.acquire(cluster, "c", end, TTL).await.expect("a lease that was given back is free");
    assert!(third.token > second.token, "a lease that was given back never repeats a token");
    let again = store.acquire(cluster, "c", end, TTL).await.expect("a repeated invocation gets its own lease");
    assert!(again.token > third.token, "and a newer token with it");
    store.release(&again).await.expect("the holder may give it back");

    of_racing_askers_one_wins(store, cluster, end).await;
    let other = ClusterName::new(format!("{cluster}-other"));
    store.acquire(&other, "a", end, TTL).await.expect("clusters do not share leases");
}

async fn of_racing_askers_one_wins(store: &impl Leases, cluster: &ClusterName, now: Timestamp) {
    let owners: Vec<String> = (0..8).map(|number| format!("racer-{number}")).collect();
    let answers = join_all(owners.iter().map(|owner| store.acquire(cluster, owner, now, TTL))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "exactly one wins: {answers:?}");
    for answer in answers {
        match answer {
            Ok(lease) => store.release(&lease).await.expect("the holder may give it back"),
            Err(error) => assert!(matches!(error, StoreError::Held { .. }), "losing says who holds it: {error:?}"),
        }
    }
}

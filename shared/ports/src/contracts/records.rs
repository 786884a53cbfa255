//! The contract of [`Records`].

use crate::{RecordRemoval, Records, StoreError};
use whittle_claims::{Record, Revision, Sighting, Stored};
use whittle_units::{ClusterName, SignedDuration, Timestamp};

/// Runs the whole suite for one cluster, whose name must be unused.
///
/// # Panics
///
/// If the store violates the contract.
pub async fn records(store: &(impl Records + RecordRemoval), cluster: &ClusterName, now: Timestamp) {
    let later = now.checked_add(SignedDuration::from_mins(5)).expect("a test's time is far from the end of time");
    let sighting = |subject: &str, expires_at| Sighting { subject: subject.to_owned(), first_seen_at: now, expires_at };
    let seen = sighting("instance/i-1 without claim", later);
    let name = seen.name();

    assert_eq!(read(store, cluster, &name).await, None, "a claim that was never written is absent");
    let first = store.write(cluster, &seen, Revision::ABSENT).await.expect("a free name can be written");
    assert_eq!(read(store, cluster, &name).await, Some(Stored { value: seen.clone(), revision: first }));

    for wrong in [Revision::ABSENT, first.next()] {
        let answer = store.write(cluster, &seen, wrong).await;
        assert!(matches!(answer, Err(StoreError::Conflict { .. })), "revision {wrong:?} is not the stored one: {answer:?}");
    }
    let newer = Sighting { first_seen_at: later, ..seen.clone() };
    let second = store.write(cluster, &newer, first).await.expect("the holder of the revision may write");
    assert!(first < second, "revisions grow");

    store.write(cluster, &sighting("another", later), Revision::ABSENT).await.expect("a free name can be written");
    let mut all: Vec<String> = read_all(store, cluster).await.into_iter().map(|stored| stored.value.name()).collect();
    all.sort();
    assert_eq!(all, ["another", name.as_str()]);
    assert_eq!(read_all(store, &ClusterName::new(format!("{cluster}-other"))).await, [], "clusters do not share records");

    let answer = store.remove::<Sighting>(cluster, &name, first).await;
    assert!(matches!(answer, Err(StoreError::Conflict { .. })), "a changed record is not removed: {answer:?}");
    store.remove::<Sighting>(cluster, &name, second).await.expect("the holder of the revision may remove");
    assert_eq!(read(store, cluster, &name).await, None);
    store.remove::<Sighting>(cluster, &name, second).await.expect("removing a missing record succeeds");

    a_record_expires(store, cluster, now).await;
}

async fn a_record_expires(store: &impl Records, cluster: &ClusterName, now: Timestamp) {
    let past = now.checked_sub(SignedDuration::from_mins(1)).expect("a test's time is far from 1970");
    let old = Sighting { subject: "old".to_owned(), first_seen_at: past, expires_at: past };
    store.write(cluster, &old, Revision::ABSENT).await.expect("a free name can be written");
    assert_eq!(read(store, cluster, "old").await, None, "an expired sighting is absent");
    assert!(!read_all(store, cluster).await.iter().any(|stored| stored.value.name() == "old"));
    store.write(cluster, &old, Revision::ABSENT).await.expect("the name of an expired record is free");
}

async fn read(store: &impl Records, cluster: &ClusterName, name: &str) -> Option<Stored<Sighting>> {
    store.read(cluster, name).await.expect("the store responds")
}

async fn read_all(store: &impl Records, cluster: &ClusterName) -> Vec<Stored<Sighting>> {
    store.read_all(cluster).await.expect("the store responds")
}

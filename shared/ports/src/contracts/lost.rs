//! What a lost reply comes to, call by call: the effect is there once, and a caller that asks again finds it.

use super::faults::{Fault, Faulty};
use super::steady::Steady;
use super::{claim_store, decision_log, erase, leases, machine_launched_at, planned_claim, records, region_store_unheard};
use crate::{CatalogWriter, ClaimStore, DecisionLog, Erase, Leases, RecordRemoval, Records, RegionStore, StoreError};
use std::collections::BTreeMap;
use whittle_claims::{Bucket, BucketName, Phase, Revision, Sighting};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

const TTL: SignedDuration = SignedDuration::from_mins(1);

/// Runs every suite while half of the calls fail, for a caller that goes on. Returns how often each fault struck.
///
/// # Panics
///
/// Where an outcome differs from that of a store whose calls all succeed.
pub async fn suites_under_faults(
    store: &(impl ClaimStore + Leases + Records + RecordRemoval + DecisionLog + Erase + RegionStore + CatalogWriter),
    prefix: &str,
    now: Timestamp,
    seed: u64,
) -> BTreeMap<Fault, u32> {
    let store = Steady(Faulty::random(store, seed));
    let cluster = |suite: &str| ClusterName::new(format!("{prefix}-{suite}"));
    claim_store(&store, &cluster("claims"), now).await;
    leases(&store, &cluster("leases"), now).await;
    records(&store, &cluster("records"), now).await;
    decision_log(&store, &cluster("decisions"), now).await;
    erase(&store, &cluster("erased"), now).await;
    region_store_unheard(&store, now).await;
    store.0.counts()
}

/// Loses the reply of one call at a time.
///
/// # Panics
///
/// Where an effect is missing or there twice.
pub async fn lost_replies(
    store: &(impl ClaimStore + Leases + Records + RecordRemoval + RegionStore),
    cluster: &ClusterName,
    now: Timestamp,
) {
    of_a_lease(store, &ClusterName::new(format!("{cluster}-lease")), now).await;
    of_a_claim(store, cluster, now).await;
    of_a_record(store, cluster, now).await;
    of_a_bucket(store, cluster, now).await;
}

fn is_unanswered<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable { .. }))
}

fn is_conflict<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Conflict { .. }))
}

/// Who was not told that it has the lease asks again and gets it; what it may have begun with the first is fenced.
async fn of_a_lease(store: &(impl ClaimStore + Leases), cluster: &ClusterName, now: Timestamp) {
    let first = store.acquire(cluster, "a", now, TTL).await.expect("a fresh lease is free");
    let faulty = Faulty::scripted(store, [Some(Fault::LostReply)]);
    assert!(is_unanswered(&faulty.acquire(cluster, "a", now, TTL).await));
    assert!(matches!(faulty.acquire(cluster, "b", now, TTL).await, Err(StoreError::Held { .. })), "it has an owner");
    let second = faulty.acquire(cluster, "a", now, TTL).await.expect("a repeated invocation gets its own lease");
    assert_eq!(second.token.0, first.token.0 + 2, "the unheard lease had a token of its own");
    let claim = planned_claim(cluster, "fenced", now);
    assert_eq!(store.create(&first, &claim).await, Err(StoreError::Fenced { cluster: cluster.clone() }));
    assert_eq!(store.get(&claim.key).await, Ok(None));
    store.create(&second, &claim).await.expect("the newest lease may create");
    let faulty = Faulty::scripted(store, [Some(Fault::LostReply)]);
    assert!(is_unanswered(&faulty.release(&second).await));
    faulty.release(&second).await.expect("giving back twice is no error");
    store.acquire(cluster, "b", now, TTL).await.expect("it is free");
}

/// A write is there once; a repeated one is a conflict, also where it names a machine; a throttled one never happened.
async fn of_a_claim(store: &(impl ClaimStore + Leases), cluster: &ClusterName, now: Timestamp) {
    let lease = store.acquire(cluster, "lost", now, TTL).await.expect("nobody else uses the cluster");
    let mut claim = planned_claim(cluster, "unheard", now);
    let faulty = Faulty::scripted(store, [Some(Fault::Throttle), Some(Fault::LostReply)]);
    assert!(matches!(faulty.create(&lease, &claim).await, Err(StoreError::Throttled { .. })));
    assert_eq!(store.get(&claim.key).await, Ok(None), "a throttled write never happened");
    assert!(is_unanswered(&faulty.create(&lease, &claim).await));
    assert!(is_conflict(&faulty.create(&lease, &claim).await), "it is there already");
    let created = store.get(&claim.key).await.expect("the store answers").expect("it was created");
    assert_eq!((&created.value, created.revision), (&claim, Revision::ABSENT.next()), "once");

    let id = InstanceId::new(format!("i-{cluster}-unheard"));
    claim.phase = Phase::Launched { machine: machine_launched_at(&id, now) };
    let faulty = Faulty::scripted(store, [Some(Fault::LostRace), Some(Fault::LostReply)]);
    assert!(is_conflict(&faulty.update(&claim, created.revision).await));
    assert_eq!(store.by_instance(&id).await, Ok(None), "a lost race changes nothing");
    assert!(is_unanswered(&faulty.update(&claim, created.revision).await));
    assert!(is_conflict(&faulty.update(&claim, created.revision).await), "the revision has moved on");
    let launched = store.by_instance(&id).await.expect("the store answers").expect("its machine leads to it");
    assert_eq!((&launched.value, launched.revision), (&claim, created.revision.next()), "once");
    let all = store.list(cluster).await.expect("the store answers");
    assert_eq!(all.len(), 1, "nothing else was made: {all:?}");
    store.release(&lease).await.expect("the holder may give it back");
}

async fn of_a_record(store: &(impl Records + RecordRemoval), cluster: &ClusterName, now: Timestamp) {
    let expires_at = now.checked_add(TTL).expect("a test's time is far from the end of time");
    let seen = Sighting { subject: "unheard".to_owned(), first_seen_at: now, expires_at };
    let faulty = Faulty::scripted(store, [Some(Fault::LostReply), None, Some(Fault::LostReply)]);
    assert!(is_unanswered(&faulty.write(cluster, &seen, Revision::ABSENT).await));
    assert!(is_conflict(&faulty.write(cluster, &seen, Revision::ABSENT).await), "it is there already");
    assert!(is_unanswered(&faulty.remove::<Sighting>(cluster, "unheard", Revision::ABSENT.next()).await));
    faulty.remove::<Sighting>(cluster, "unheard", Revision::ABSENT.next()).await.expect("what is gone already is gone");
    assert_eq!(store.read::<Sighting>(cluster, "unheard").await, Ok(None));
}

/// Tokens that nobody heard of are lost: a bucket gives too few rather than too many.
async fn of_a_bucket(store: &impl RegionStore, cluster: &ClusterName, now: Timestamp) {
    let name = BucketName(format!("{cluster}-unheard"));
    let full = Bucket::full(3, 1, now);
    let faulty = Faulty::scripted(store, [Some(Fault::LostReply), Some(Fault::Throttle)]);
    assert!(is_unanswered(&faulty.take_tokens(&name, &full, 1, now).await));
    assert!(faulty.take_tokens(&name, &full, 1, now).await.is_err(), "a throttled call takes none");
    assert_eq!(faulty.take_tokens(&name, &full, 2, now).await, Ok(true));
    assert_eq!(faulty.take_tokens(&name, &full, 1, now).await, Ok(false), "the unheard one is not given again");
}

//! Lost responses, call by call: the effect exists once, and a caller that retries finds it.

use super::faults::{Fault, Faulty};
use super::steady::Steady;
use super::{claim_store, decision_log, erase, leases, machine_launched_at, planned_claim, records, region_store_with_lost_responses};
use crate::{CatalogWriter, ClaimStore, DecisionLog, Erase, Leases, RecordRemoval, Records, RegionStore, StoreError, TokenBuckets};
use std::collections::BTreeMap;
use whittle_claims::{Bucket, BucketName, Phase, Revision, Sighting};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

const TTL: SignedDuration = SignedDuration::from_mins(1);

/// Runs every suite while half of the calls fail, for a caller that retries. Returns how often each fault occurred.
///
/// # Panics
///
/// If an outcome differs from that of a store whose calls all succeed.
pub async fn suites_under_faults(
    store: &(impl ClaimStore + Leases + Records + RecordRemoval + DecisionLog + Erase + RegionStore + TokenBuckets + CatalogWriter),
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
    region_store_with_lost_responses(&store, now).await;
    store.0.counts()
}

/// Loses the response of one call at a time.
///
/// # Panics
///
/// If an effect is missing or duplicated.
pub async fn lost_replies(
    store: &(impl ClaimStore + Leases + Records + RecordRemoval + RegionStore + TokenBuckets),
    cluster: &ClusterName,
    now: Timestamp,
) {
    of_a_lease(store, &ClusterName::new(format!("{cluster}-lease")), now).await;
    of_a_claim(store, cluster, now).await;
    of_a_record(store, cluster, now).await;
    of_a_bucket(store, cluster, now).await;
}

fn is_response_lost<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable { .. }))
}

fn is_conflict<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Conflict { .. }))
}

/// A caller whose acquisition was not confirmed retries and gets a newer lease; work under the first is fenced.
async fn of_a_lease(store: &(impl ClaimStore + Leases), cluster: &ClusterName, now: Timestamp) {
    let first = store.acquire(cluster, "a", now, TTL).await.expect("a fresh lease is free");
    let faulty = Faulty::scripted(store, [Some(Fault::LostReply)]);
    assert!(is_response_lost(&faulty.acquire(cluster, "a", now, TTL).await));
    assert!(matches!(faulty.acquire(cluster, "b", now, TTL).await, Err(StoreError::Held { .. })), "it has an owner");
    let second = faulty.acquire(cluster, "a", now, TTL).await.expect("a repeated invocation gets its own lease");
    assert_eq!(second.token.0, first.token.0 + 2, "the unconfirmed lease had its own token");
    let claim = planned_claim(cluster, "fenced", now);
    assert_eq!(store.create(&first, &claim).await, Err(StoreError::Fenced { cluster: cluster.clone() }));
    assert_eq!(store.get(&claim.key).await, Ok(None));
    store.create(&second, &claim).await.expect("the newest lease may create");
    let faulty = Faulty::scripted(store, [Some(Fault::LostReply)]);
    assert!(is_response_lost(&faulty.release(&second).await));
    faulty.release(&second).await.expect("releasing twice is no error");
    store.acquire(cluster, "b", now, TTL).await.expect("it is free");
}

/// A write happens once; a repeated one is a conflict, even if it names a machine; a throttled one never happened.
async fn of_a_claim(store: &(impl ClaimStore + Leases), cluster: &ClusterName, now: Timestamp) {
    let lease = store.acquire(cluster, "lost", now, TTL).await.expect("the cluster name is unused");
    let mut claim = planned_claim(cluster, "lost", now);
    let faulty = Faulty::scripted(store, [Some(Fault::Throttle), Some(Fault::LostReply)]);
    assert!(matches!(faulty.create(&lease, &claim).await, Err(StoreError::Throttled { .. })));
    assert_eq!(store.get(&claim.key).await, Ok(None), "a throttled write never happened");
    assert!(is_response_lost(&faulty.create(&lease, &claim).await));
    assert!(is_conflict(&faulty.create(&lease, &claim).await), "it exists already");
    let created = store.get(&claim.key).await.expect("the store responds").expect("it was created");
    assert_eq!((&created.value, created.revision), (&claim, Revision::ABSENT.next()), "once");

    let id = InstanceId::new(format!("i-{cluster}-lost"));
    claim.phase = Phase::Launched { machine: machine_launched_at(&id, now) };
    let faulty = Faulty::scripted(store, [Some(Fault::LostRace), Some(Fault::LostReply)]);
    assert!(is_conflict(&faulty.update(&claim, created.revision).await));
    assert_eq!(store.by_instance(&id).await, Ok(None), "a lost race changes nothing");
    assert!(is_response_lost(&faulty.update(&claim, created.revision).await));
    assert!(is_conflict(&faulty.update(&claim, created.revision).await), "the revision has changed");
    let launched = store.by_instance(&id).await.expect("the store responds").expect("it is found by its instance");
    assert_eq!((&launched.value, launched.revision), (&claim, created.revision.next()), "once");
    let all = store.list(cluster).await.expect("the store responds");
    assert_eq!(all.len(), 1, "nothing else was created: {all:?}");
    store.release(&lease).await.expect("the holder may release it");
}

async fn of_a_record(store: &(impl Records + RecordRemoval), cluster: &ClusterName, now: Timestamp) {
    let expires_at = now.checked_add(TTL).expect("a test's time is far from the end of time");
    let seen = Sighting { subject: "lost".to_owned(), first_seen_at: now, expires_at };
    let faulty = Faulty::scripted(store, [Some(Fault::LostReply), None, Some(Fault::LostReply)]);
    assert!(is_response_lost(&faulty.write(cluster, &seen, Revision::ABSENT).await));
    assert!(is_conflict(&faulty.write(cluster, &seen, Revision::ABSENT).await), "it exists already");
    assert!(is_response_lost(&faulty.remove::<Sighting>(cluster, "lost", Revision::ABSENT.next()).await));
    faulty.remove::<Sighting>(cluster, "lost", Revision::ABSENT.next()).await.expect("removing a missing record succeeds");
    assert_eq!(store.read::<Sighting>(cluster, "lost").await, Ok(None));
}

/// Tokens of lost responses are gone: a bucket gives too few rather than too many.
async fn of_a_bucket(store: &impl TokenBuckets, cluster: &ClusterName, now: Timestamp) {
    let name = BucketName(format!("{cluster}-lost"));
    let full = Bucket::full(3, 1, now);
    let faulty = Faulty::scripted(store, [Some(Fault::LostReply), Some(Fault::Throttle)]);
    assert!(is_response_lost(&faulty.take_tokens(&name, &full, 1, now).await));
    assert!(faulty.take_tokens(&name, &full, 1, now).await.is_err(), "a throttled call takes none");
    assert_eq!(faulty.take_tokens(&name, &full, 2, now).await, Ok(true));
    assert_eq!(faulty.take_tokens(&name, &full, 1, now).await, Ok(false), "the token of a lost response is not given again");
}

//! The contract of [`Erase`].

use super::{machine_launched_at, planned_claim};
use crate::{ClaimStore, DecisionLog, Erase, Leases, Records};
use whittle_claims::{DecisionKind, DecisionRecord, Phase, Record, Sighting};
use whittle_units::{ClusterName, InstanceId, SignedDuration, Timestamp};

/// Runs the whole suite for one cluster, whose name must be unused.
///
/// # Panics
///
/// If the store violates the contract.
pub async fn erase(store: &(impl ClaimStore + Leases + Records + DecisionLog + Erase), cluster: &ClusterName, now: Timestamp) {
    let other = ClusterName::new(format!("{cluster}-other"));
    for of in [cluster, &other] {
        fill(store, of, now).await;
    }
    store.erase(cluster, &[Sighting::KIND]).await.expect("the store responds");
    let names = |claims: Vec<whittle_claims::Stored<whittle_claims::Claim>>| {
        claims.into_iter().map(|claim| claim.value.key.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(store.list(cluster).await.expect("the store responds")), ["lives"], "claims that may have a machine are kept");
    assert_eq!(store.read_all::<Sighting>(cluster).await.expect("the store responds"), []);
    assert_eq!(store.recent(cluster, None, 9).await.expect("the store responds"), []);
    assert_eq!(names(store.list(&other).await.expect("the store responds")), ["ended", "lives"], "other clusters keep theirs");
    assert_eq!(store.read_all::<Sighting>(&other).await.expect("the store responds").len(), 1);
    assert_eq!(store.recent(&other, None, 9).await.expect("the store responds").len(), 1);
    store.erase(cluster, &[Sighting::KIND]).await.expect("nothing to erase is no error");
    let again = store.acquire(cluster, "after", now, SignedDuration::from_secs(1)).await.expect("it is free");
    assert!(again.token.0 > 1, "tokens keep growing");
}

async fn fill(store: &(impl ClaimStore + Leases + Records + DecisionLog), cluster: &ClusterName, now: Timestamp) {
    let lease = store.acquire(cluster, "contract", now, SignedDuration::from_secs(10)).await.expect("the cluster name is unused");
    let (mut ended, lives) = (planned_claim(cluster, "ended", now), planned_claim(cluster, "lives", now));
    let revision = store.create(&lease, &ended).await.expect("a free name can be created under the lease");
    store.create(&lease, &lives).await.expect("a free name can be created under the lease");
    ended.phase = Phase::Gone { machine: Some(machine_launched_at(&InstanceId::new(format!("i-{cluster}-ended")), now)), since: now };
    store.update(&ended, revision).await.expect("the holder of the revision may write");
    store.release(&lease).await.expect("the holder may release it");
    let expires_at = now.checked_add(SignedDuration::from_mins(5)).expect("a test's time is far from the end of time");
    let seen = Sighting { subject: "x".to_owned(), first_seen_at: now, expires_at };
    store.write(cluster, &seen, whittle_claims::Revision::ABSENT).await.expect("a free name can be written");
    let decided = DecisionRecord {
        at: now,
        kind: DecisionKind::Kept,
        subject: "node/n".to_owned(),
        message: "why".to_owned(),
        detail: serde_json::Value::Null,
    };
    store.append(cluster, &[decided]).await.expect("the store responds");
}

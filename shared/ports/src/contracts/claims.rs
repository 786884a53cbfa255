//! The contract of [`ClaimStore`].

use super::{machine_launched_at, planned_claim};
use crate::{ClaimStore, Leases, StoreError};
use futures::future::join_all;
use whittle_claims::{Claim, ClaimKey, Deletion, DeletionReason, Lease, Phase, Revision, SHARDS, Stored, shard_of};
use whittle_units::{ClaimName, ClusterName, InstanceId, SignedDuration, Timestamp};

const TTL: SignedDuration = SignedDuration::from_mins(1);

/// Runs the whole suite for one cluster, whose name must be unused.
///
/// # Panics
///
/// If the store violates the contract.
pub async fn claim_store(store: &(impl ClaimStore + Leases), cluster: &ClusterName, now: Timestamp) {
    let lease = store.acquire(cluster, "contract", now, TTL).await.expect("the cluster name is unused");
    a_written_claim_can_be_read(store, &lease, now).await;
    one_of_concurrent_creations_wins(store, &lease, now).await;
    claims_are_created_together_up_to_the_first_that_is_refused(store, &lease, now).await;
    one_of_concurrent_updates_wins(store, &lease, now).await;
    an_update_needs_the_stored_revision(store, &lease, now).await;
    an_update_of_a_claim_with_a_machine_needs_it_too(store, &lease, now).await;
    the_first_writer_of_an_instance_is_found_by_it(store, &lease, now).await;
    an_instance_belongs_to_one_claim(store, &lease, now).await;
    an_instance_may_be_assigned_to_a_draining_claim(store, &lease, now).await;
    a_claim_that_is_created_with_a_machine_owns_it(store, &lease, now).await;
    the_instance_of_an_ended_claim_may_get_a_new_one(store, &lease, now).await;
    lists_are_sorted_and_of_one_cluster(store, &lease, now).await;
    a_single_claim_is_found_wherever_it_is_stored(store, cluster, now).await;
    a_superseded_lease_creates_nothing(store, &lease, now).await;
}

/// Creates `count` claims and reads them back in one list.
///
/// # Panics
///
/// If one is missing, duplicated or out of order.
pub async fn many_claims(store: &(impl ClaimStore + Leases), cluster: &ClusterName, now: Timestamp, count: usize) {
    let lease = store.acquire(cluster, "many", now, TTL).await.expect("the cluster name is unused");
    let mut names: Vec<String> = (0..count).map(|number| format!("pool-{:05}", (number * 7919) % count.max(1))).collect();
    for chunk in names.chunks(8) {
        let claims: Vec<Claim> = chunk.iter().map(|name| planned_claim(cluster, name, now)).collect();
        for answer in join_all(claims.iter().map(|claim| store.create(&lease, claim))).await {
            answer.expect("a free name can be created under the lease");
        }
    }
    names.sort();
    names.dedup();
    let listed: Vec<String> = list(store, cluster).await.iter().map(|stored| stored.value.key.name.to_string()).collect();
    assert_eq!(listed, names, "every claim is listed once, in the order of names");
}

async fn create(store: &impl ClaimStore, lease: &Lease, claim: &Claim) -> Revision {
    store.create(lease, claim).await.expect("a free name can be created under the lease")
}

async fn get(store: &impl ClaimStore, key: &ClaimKey) -> Stored<Claim> {
    store.get(key).await.expect("the store responds").expect("the claim exists")
}

async fn list(store: &impl ClaimStore, cluster: &ClusterName) -> Vec<Stored<Claim>> {
    store.list(cluster).await.expect("the store responds")
}

fn is_conflict<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Conflict { .. }))
}

async fn a_written_claim_can_be_read(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let mut claim = planned_claim(&lease.cluster, "read", now);
    assert_eq!(store.get(&claim.key).await, Ok(None), "a claim that was never written is absent");
    let first = create(store, lease, &claim).await;
    assert_eq!(get(store, &claim.key).await, Stored { value: claim.clone(), revision: first });

    claim.phase = Phase::Launching { client_token: "token".to_owned(), since: now, attempts: 1 };
    let second = store.update(&claim, first).await.expect("the holder of the revision may write");
    assert!(first < second, "revisions grow");
    assert_eq!(get(store, &claim.key).await, Stored { value: claim, revision: second });
}

async fn one_of_concurrent_creations_wins(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let claims: Vec<Claim> =
        (0..6).map(|writer| Claim { uid: format!("writer-{writer}"), ..planned_claim(&lease.cluster, "created", now) }).collect();
    let answers = join_all(claims.iter().map(|claim| store.create(lease, claim))).await;
    let winners: Vec<usize> = (0..answers.len()).filter(|&writer| answers[writer].is_ok()).collect();
    let [winner] = winners.as_slice() else { panic!("exactly one creation wins: {answers:?}") };
    assert_eq!(get(store, &claims[0].key).await.value.uid, claims[*winner].uid, "the winner's value is stored");
    let late = store.create(lease, &claims[0]).await;
    assert!(is_conflict(&late), "a taken name is a conflict: {late:?}");
}

async fn claims_are_created_together_up_to_the_first_that_is_refused(store: &(impl ClaimStore + Leases), lease: &Lease, now: Timestamp) {
    // More than one request can store.
    let claims: Vec<Claim> = (0..120).map(|n| planned_claim(&lease.cluster, &format!("together-{n:03}"), now)).collect();
    store.create_all(lease, &[]).await.expect("nothing to store");
    store.create_all(lease, &claims).await.expect("free names can be created under the lease");
    for claim in &claims {
        assert_eq!(get(store, &claim.key).await, Stored { value: claim.clone(), revision: Revision::ABSENT.next() });
    }

    let mut again: Vec<Claim> = (0..120).map(|n| planned_claim(&lease.cluster, &format!("again-{n:03}"), now)).collect();
    again[70] = Claim { uid: "another".to_owned(), ..claims[7].clone() };
    let taken = store.create_all(lease, &again).await;
    let Err(StoreError::Conflict { what }) = &taken else { panic!("a taken name is a conflict: {taken:?}") };
    assert!(what.contains("together-007"), "the taken name is named: {what}");
    assert_eq!(get(store, &claims[7].key).await.value.uid, claims[7].uid, "the older claim stays");
    let mut stored = 0;
    for (at, claim) in again.iter().enumerate().filter(|(at, _)| *at != 70) {
        let found = store.get(&claim.key).await.expect("the store responds").is_some();
        assert!(!found || stored == at, "what is stored comes before the refusal: {at}");
        stored += usize::from(found);
    }
    assert!(stored <= 70, "nothing is stored after the refusal");
}

async fn one_of_concurrent_updates_wins(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let claim = planned_claim(&lease.cluster, "raced", now);
    let mut revision = create(store, lease, &claim).await;
    for round in 0..5 {
        let writers: Vec<Claim> = (0..6).map(|writer| Claim { uid: format!("{round}-{writer}"), ..claim.clone() }).collect();
        let answers = join_all(writers.iter().map(|claim| store.update(claim, revision))).await;
        let winners: Vec<usize> = (0..answers.len()).filter(|&writer| answers[writer].is_ok()).collect();
        let [winner] = winners.as_slice() else { panic!("exactly one update wins: {answers:?}") };
        assert!(answers.iter().all(|answer| answer.is_ok() || is_conflict(answer)), "losing is a conflict: {answers:?}");
        let stored = get(store, &claim.key).await;
        assert_eq!(stored.value.uid, writers[*winner].uid, "the winner's value is stored");
        revision = stored.revision;
    }
}

async fn an_update_needs_the_stored_revision(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let claim = planned_claim(&lease.cluster, "stale", now);
    let unborn = store.update(&claim, Revision::ABSENT).await;
    assert!(is_conflict(&unborn), "an update never creates: {unborn:?}");
    let unborn = store.update(&claim, Revision(1)).await;
    assert!(is_conflict(&unborn), "an update never creates: {unborn:?}");
    let first = create(store, lease, &claim).await;
    let second = store.update(&claim, first).await.expect("the holder of the revision may write");
    for wrong in [Revision::ABSENT, first, second.next()] {
        let answer = store.update(&claim, wrong).await;
        assert!(is_conflict(&answer), "revision {wrong:?} is not the stored one: {answer:?}");
    }
    assert_eq!(get(store, &claim.key).await.revision, second, "a lost race changes nothing");
}

/// Adapters write such claims with conditions of their own: the instance is part of them, or its pointer.
async fn an_update_of_a_claim_with_a_machine_needs_it_too(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let machine = machine_launched_at(&InstanceId::new(format!("i-{}-stale", lease.cluster)), now);
    let mut claim = planned_claim(&lease.cluster, "stale-machine", now);
    let planned = create(store, lease, &claim).await;
    claim.phase = Phase::Launched { machine: machine.clone() };
    let launched = store.update(&claim, planned).await.expect("the holder of the revision may write");
    claim.phase = Phase::Registered { machine: machine.clone(), node_name: "n1".to_owned(), since: now };
    let registered = store.update(&claim, launched).await.expect("the holder of the revision may write");
    let late = [
        Phase::Launched { machine: machine.clone() },
        Phase::Draining { machine: machine.clone(), node_name: None, since: now },
        Phase::Gone { machine: Some(machine), since: now },
    ];
    for phase in late {
        for wrong in [Revision::ABSENT, planned, launched, registered.next()] {
            let answer = store.update(&Claim { phase: phase.clone(), ..claim.clone() }, wrong).await;
            assert!(is_conflict(&answer), "{} over revision {wrong:?}: {answer:?}", phase.name());
        }
    }
    assert_eq!(get(store, &claim.key).await, Stored { value: claim, revision: registered }, "a lost race changes nothing");
}

async fn the_first_writer_of_an_instance_is_found_by_it(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let id = InstanceId::new(format!("i-{}-first", lease.cluster));
    let mut claim = planned_claim(&lease.cluster, "machine", now);
    let planned = create(store, lease, &claim).await;
    assert_eq!(store.by_instance(&id).await, Ok(None), "no claim names the instance yet");
    let machine = machine_launched_at(&id, now);
    claim.phase = Phase::Launched { machine: machine.clone() };
    let launched = store.update(&claim, planned).await.expect("the holder of the revision may write");
    let found = store.by_instance(&id).await.expect("the store responds");
    assert_eq!(found, Some(Stored { value: claim.clone(), revision: launched }));

    claim.phase = Phase::Registered { machine: machine.clone(), node_name: "n1".to_owned(), since: now };
    let registered = store.update(&claim, launched).await.expect("the holder of the revision may write");
    let found = store.by_instance(&id).await.expect("the store responds");
    assert_eq!(found, Some(Stored { value: claim.clone(), revision: registered }), "later phases are found as well");

    claim.phase = Phase::Gone { machine: Some(machine), since: now };
    store.update(&claim, registered).await.expect("the holder of the revision may write");
    assert_eq!(store.by_instance(&id).await, Ok(None), "an ended claim has no machine");
}

async fn an_instance_belongs_to_one_claim(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let id = InstanceId::new(format!("i-{}-shared", lease.cluster));
    let mut owner = planned_claim(&lease.cluster, "owner", now);
    let mut thief = planned_claim(&lease.cluster, "thief", now);
    let (owner_revision, thief_revision) = (create(store, lease, &owner).await, create(store, lease, &thief).await);
    owner.phase = Phase::Launched { machine: machine_launched_at(&id, now) };
    thief.phase = owner.phase.clone();
    store.update(&owner, owner_revision).await.expect("the holder of the revision may write");
    let answer = store.update(&thief, thief_revision).await;
    assert!(is_conflict(&answer), "a second claim may not name the instance: {answer:?}");
    assert_eq!(get(store, &thief.key).await.value.phase, Phase::Planned, "neither part of the write happened");
    let found = store.by_instance(&id).await.expect("the store responds").expect("the owner is found");
    assert_eq!(found.value.key, owner.key);
}

async fn an_instance_may_be_assigned_to_a_draining_claim(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let id = InstanceId::new(format!("i-{}-late", lease.cluster));
    let mut claim = planned_claim(&lease.cluster, "late", now);
    let planned = create(store, lease, &claim).await;
    claim.phase = Phase::Draining { machine: machine_launched_at(&id, now), node_name: None, since: now };
    let draining = store.update(&claim, planned).await.expect("the holder of the revision may write");
    let found = store.by_instance(&id).await.expect("the store responds");
    assert_eq!(found, Some(Stored { value: claim, revision: draining }), "a late machine is found");
}

/// A claim for a machine that was found running.
fn found(cluster: &ClusterName, name: &str, id: &InstanceId, now: Timestamp) -> Claim {
    let deletion = Deletion::without_deadline(DeletionReason::RolledBack, now, "");
    let phase = Phase::Draining { machine: machine_launched_at(id, now), node_name: None, since: now };
    Claim { phase, deletion: Some(deletion), ..planned_claim(cluster, name, now) }
}

async fn a_claim_that_is_created_with_a_machine_owns_it(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let id = InstanceId::new(format!("i-{}-found", lease.cluster));
    let owner = found(&lease.cluster, "found", &id, now);
    let revision = create(store, lease, &owner).await;
    let by_instance = store.by_instance(&id).await.expect("the store responds");
    assert_eq!(by_instance, Some(Stored { value: owner.clone(), revision }), "it is found by its instance");

    let second = found(&lease.cluster, "found-again", &id, now);
    let answer = store.create(lease, &second).await;
    assert!(is_conflict(&answer), "a second claim may not be created with the instance: {answer:?}");
    assert_eq!(store.get(&second.key).await, Ok(None), "neither part of the write happened");
    let mut thief = planned_claim(&lease.cluster, "found-thief", now);
    let planned = create(store, lease, &thief).await;
    thief.phase = Phase::Launched { machine: machine_launched_at(&id, now) };
    let answer = store.update(&thief, planned).await;
    assert!(is_conflict(&answer), "nor may one be launched with it: {answer:?}");

    let ended = Claim { phase: Phase::Gone { machine: Some(machine_launched_at(&id, now)), since: now }, ..owner };
    store.update(&ended, revision).await.expect("the owner may end");
    assert_eq!(store.by_instance(&id).await, Ok(None), "an ended claim has no machine");
}

/// A machine of an ended claim that still runs gets a new claim that terminates it. For a launched claim it remains a
/// conflict, until the ended claim is deleted.
async fn the_instance_of_an_ended_claim_may_get_a_new_one(store: &impl ClaimStore, lease: &Lease, now: Timestamp) {
    let id = InstanceId::new(format!("i-{}-ended", lease.cluster));
    let mut first = planned_claim(&lease.cluster, "ended-first", now);
    let planned = create(store, lease, &first).await;
    first.phase = Phase::Gone { machine: Some(machine_launched_at(&id, now)), since: now };
    let gone = store.update(&first, planned).await.expect("the holder of the revision may write");
    let mut launched = planned_claim(&lease.cluster, "ended-launched", now);
    let planned = create(store, lease, &launched).await;
    launched.phase = Phase::Launched { machine: machine_launched_at(&id, now) };
    let answer = store.update(&launched, planned).await;
    assert!(is_conflict(&answer), "an ended machine cannot be launched again: {answer:?}");
    let owner = found(&lease.cluster, "ended-found", &id, now);
    create(store, lease, &owner).await;
    let by_instance = store.by_instance(&id).await.expect("the store responds").expect("it is found by its instance");
    assert_eq!(by_instance.value.key, owner.key);

    let id = InstanceId::new(format!("i-{}-forgotten", lease.cluster));
    let long_ago = now.checked_sub(SignedDuration::from_hours(25)).expect("a test's time is far from the beginning of time");
    first.phase = Phase::Gone { machine: Some(machine_launched_at(&id, now)), since: long_ago };
    // After a lost response there is nothing to compare with: the claim is absent from then on.
    let _ = store.update(&first, gone).await;
    assert_eq!(store.get(&first.key).await, Ok(None), "an expired claim is absent, deleted or not");
    launched.phase = Phase::Launched { machine: machine_launched_at(&id, now) };
    store.update(&launched, planned).await.expect("the ended claim has expired");
    let by_instance = store.by_instance(&id).await.expect("the store responds").expect("it is found by its instance");
    assert_eq!(by_instance.value.key, launched.key);
}

async fn lists_are_sorted_and_of_one_cluster(store: &(impl ClaimStore + Leases), lease: &Lease, now: Timestamp) {
    let other = ClusterName::new(format!("{}-other", lease.cluster));
    let other_lease = store.acquire(&other, "contract", now, TTL).await.expect("the cluster name is unused");
    create(store, &other_lease, &planned_claim(&other, "elsewhere", now)).await;
    let names: Vec<ClaimName> = list(store, &lease.cluster).await.into_iter().map(|stored| stored.value.key.name).collect();
    assert!(names.is_sorted(), "in the order of names: {names:?}");
    assert!(!names.contains(&ClaimName::new("elsewhere")), "of this cluster alone");
    assert!(names.contains(&ClaimName::new("machine")), "ended claims are listed until they expire");
    let all = list(store, &lease.cluster).await;
    let without = store.without_instance(&lease.cluster).await.expect("the store responds");
    let (launching, machine) = (ClaimName::new("read"), ClaimName::new("machine"));
    assert!(without.iter().any(|stored| stored.value.key.name == launching), "one that is launching has no instance yet");
    assert!(!without.iter().any(|stored| stored.value.key.name == machine), "an ended claim still names its instance");
    assert!(without.iter().eq(all.iter().filter(|stored| stored.value.instance().is_none())), "and all of them are listed, in order");
    assert_eq!(list(store, &other).await.len(), 1);
    let listing = store.listing(&lease.cluster).await.expect("the store responds");
    assert_eq!(listing.unreadable, Vec::<String>::new(), "all of them can be read");
}

async fn a_single_claim_is_found_wherever_it_is_stored(store: &(impl ClaimStore + Leases), cluster: &ClusterName, now: Timestamp) {
    for shard in 0..SHARDS {
        let cluster = ClusterName::new(format!("{cluster}-shard-{shard}"));
        let lease = store.acquire(&cluster, "contract", now, TTL).await.expect("the cluster name is unused");
        assert_eq!(store.has_claims(&cluster).await, Ok(false), "a cluster without claims, beside others that have some");
        let mut names = (0..1000).map(|number| format!("claim-{number}"));
        let name = names.find(|name| shard_of(name) == shard).expect("names are in every shard");
        let revision = create(store, &lease, &planned_claim(&cluster, &name, now)).await;
        assert_eq!(store.has_claims(&cluster).await, Ok(true), "shard {shard}");
        let failed = Phase::Failed { reason: "LaunchTimeout".to_owned(), message: String::new(), since: now };
        let ended = Claim { phase: failed, ..planned_claim(&cluster, &name, now) };
        store.update(&ended, revision).await.expect("the holder of the revision may write");
        assert_eq!(store.has_claims(&cluster).await, Ok(true), "an ended claim is one until it expires");
    }
}

async fn a_superseded_lease_creates_nothing(store: &(impl ClaimStore + Leases), lease: &Lease, now: Timestamp) {
    let later = now.checked_add(TTL).expect("a test's time is far from the end of time");
    let newer = store.acquire(&lease.cluster, "successor", later, TTL).await.expect("the old lease ended");
    assert!(newer.token > lease.token, "tokens grow");
    let claim = planned_claim(&lease.cluster, "fenced", now);
    assert_eq!(store.create(lease, &claim).await, Err(StoreError::Fenced { cluster: lease.cluster.clone() }));
    let others = ["fenced", "fenced-too"].map(|name| planned_claim(&lease.cluster, name, now));
    assert_eq!(store.create_all(lease, &others).await, Err(StoreError::Fenced { cluster: lease.cluster.clone() }));
    for fenced in &others {
        assert_eq!(store.get(&fenced.key).await, Ok(None), "a fenced creation writes nothing");
    }
    create(store, &newer, &claim).await;
    store.release(&newer).await.expect("the holder may release it");
}

//! The contracts of [`RegionStore`] and [`TokenBuckets`].

use crate::{CatalogWriter, RegionStore, StoreError, TokenBuckets};
use futures::future::join_all;
use whittle_claims::{Bucket, BucketName, CatalogAttempt, CatalogReads, OfferingKey, Revision, StockOut, Stored};
use whittle_units::{SignedDuration, Timestamp};

/// Runs the whole suite on an unused region.
///
/// # Panics
///
/// If the store violates the contract.
pub async fn region_store(store: &(impl RegionStore + TokenBuckets + CatalogWriter), now: Timestamp) {
    region_store_with_lost_responses(store, now).await;
    a_bucket_never_gives_more_than_its_tokens(store, now).await;
    let given = tokens_given_to_racing_takers(store, "raced", now).await;
    assert_eq!(given, 3, "no token is lost, none is given twice");
}

/// The part that holds even if responses are lost: a token may be lost, but none is given twice.
///
/// # Panics
///
/// As [`region_store`].
pub async fn region_store_with_lost_responses(store: &(impl RegionStore + TokenBuckets + CatalogWriter), now: Timestamp) {
    the_longer_stock_out_wins(store, now).await;
    a_catalog_of_any_size_is_read_back_complete(store).await;
    the_times_of_the_catalog_are_those_of_the_last_write(store, now).await;
    let given = tokens_given_to_racing_takers(store, "raced with lost responses", now).await;
    assert!(given <= 3, "three tokens, {given} takers won");
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).expect("a test's time is far from the end of time")
}

async fn the_longer_stock_out_wins(store: &impl RegionStore, now: Timestamp) {
    let stock_out = |zone: &str, seconds, strikes| StockOut {
        offering: OfferingKey {
            instance_type: "m5.large".to_owned(),
            zone: zone.to_owned(),
            capacity_type: "spot".to_owned(),
            ..OfferingKey::default()
        },
        code: "InsufficientInstanceCapacity".to_owned(),
        until: after(now, seconds),
        strikes,
    };
    let read = async |at| {
        let mut found = store.stock_outs(at).await.expect("the store responds");
        found.sort_by(|a, b| a.offering.cmp(&b.offering));
        found
    };
    assert_eq!(read(now).await, [], "the region is fresh");
    let (a, b) = (stock_out("us-west-2a", 180, 1), stock_out("us-west-2b", 360, 2));
    store.put_stock_outs(&[a.clone(), b.clone()]).await.expect("the store responds");
    store.put_stock_outs(&[]).await.expect("nothing to write is no error");
    assert_eq!(read(now).await, [a.clone(), b.clone()]);
    store.put_stock_outs(&[stock_out("us-west-2b", 60, 9)]).await.expect("a shorter one is no error");
    assert_eq!(read(now).await, [a, b.clone()], "and changes nothing");
    let longer = stock_out("us-west-2a", 900, 3);
    store.put_stock_outs(std::slice::from_ref(&longer)).await.expect("the store responds");
    let held = async |at| read(at).await.into_iter().filter(|out| out.holds(at)).collect::<Vec<_>>();
    assert_eq!(held(after(now, 200)).await, [longer.clone(), b.clone()]);
    assert_eq!(held(after(now, 600)).await, std::slice::from_ref(&longer));
    assert_eq!(read(after(now, 600)).await, [longer.clone(), b], "an ended one is kept for further failures");
    assert_eq!(read(after(now, 360 + 3600)).await, [longer], "for an hour");
}

async fn a_bucket_never_gives_more_than_its_tokens(store: &impl TokenBuckets, now: Timestamp) {
    let name = BucketName("CreateFleet".to_owned());
    let full = Bucket::full(5, 2, now);
    let take = async |count, at| store.take_tokens(&name, &full, count, at).await.expect("the store responds");
    assert!(take(3, now).await);
    assert!(!take(3, now).await, "two are left");
    assert!(take(2, now).await, "and a refusal takes none");
    assert!(!take(1, now).await);
    assert!(take(2, after(now, 1)).await, "two are refilled per second");
    assert!(!take(1, now).await, "a clock that runs backwards refills none");
    assert!(!take(6, after(now, 3600)).await, "it never exceeds its capacity");
    assert!(take(5, after(now, 3600)).await);
    let other = BucketName("TerminateInstances".to_owned());
    assert_eq!(store.take_tokens(&other, &full, 5, now).await, Ok(true), "buckets are independent");
    let shared = BucketName("CreateTags".to_owned());
    let leaving = full.clone().leaving(1);
    for (bucket, count, expected) in [(&leaving, 5, false), (&leaving, 4, true), (&leaving, 1, false), (&full, 1, true), (&full, 1, false)]
    {
        assert_eq!(store.take_tokens(&shared, bucket, count, now).await, Ok(expected), "{count}, leaving {}", bucket.reserve);
    }
}

/// How many tokens of a bucket of three are given: to eight concurrent takers, then to one until it is empty.
async fn tokens_given_to_racing_takers(store: &impl TokenBuckets, name: &str, now: Timestamp) -> usize {
    let name = BucketName(name.to_owned());
    let full = Bucket::full(3, 1, now);
    let answers = join_all((0..8).map(|_| store.take_tokens(&name, &full, 1, now))).await;
    let won = answers.iter().filter(|answer| **answer == Ok(true)).count();
    // None if the replies to all that took a token were lost.
    assert!(won <= 3, "three tokens, {won} takers won: {answers:?}");
    let unexpected = |answer: &Result<bool, StoreError>| !matches!(answer, Ok(_) | Err(StoreError::Throttled { .. }));
    assert!(!answers.iter().any(unexpected), "a taker wins, loses, or is throttled: {answers:?}");
    let mut left = 0;
    while store.take_tokens(&name, &full, 1, now).await.expect("there is no concurrent taker") {
        left += 1;
    }
    won + left
}

async fn the_times_of_the_catalog_are_those_of_the_last_write(store: &impl CatalogWriter, now: Timestamp) {
    assert_eq!(store.catalog_reads().await, Ok(None), "the region is fresh");
    for reads in [
        CatalogReads { types: Some(now), ..CatalogReads::default() },
        CatalogReads {
            types: Some(now),
            spot_prices: Some(after(now, 300)),
            prices_failed: Some("denied".to_owned()),
            attempt: Some(CatalogAttempt { until: after(now, 60), failed: Some("throttled".to_owned()), by: Some("prod".into()) }),
        },
        CatalogReads::default(),
    ] {
        store.put_catalog_reads(&reads).await.expect("the store responds");
        assert_eq!(store.catalog_reads().await, Ok(Some(reads)));
    }
}

async fn a_catalog_of_any_size_is_read_back_complete(store: &(impl RegionStore + CatalogWriter)) {
    assert_eq!(store.catalog().await, Ok(None), "the region is fresh");
    // Above the size that one item of the table can hold.
    let blob = |size: u32| (0..size).map(|position| u8::try_from(position * 31 % 251).expect("below 251")).collect::<Vec<u8>>();
    let (small, large) = (blob(10), blob(400 * 1024));
    let first = store.put_catalog(&small, Revision::ABSENT).await.expect("the first catalog replaces nothing");
    assert_eq!(store.catalog().await, Ok(Some(Stored { value: small.clone(), revision: first })));
    let second = store.put_catalog(&large, first).await.expect("the holder of the revision may write");
    let late = store.put_catalog(&small, first).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
    assert_eq!(store.catalog().await, Ok(Some(Stored { value: large, revision: second })));
    // Of several streams those that changed may be all that is written.
    let stream = |content: u8| [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255][..], &[content; 50][..]].concat();
    let mut revision = second;
    for contents in [&[1, 2][..], &[1, 3], &[1, 3], &[1, 3, 4], &[5, 4], &[4, 5], &[1, 1], &[1]] {
        let blob: Vec<u8> = contents.iter().flat_map(|content| stream(*content)).collect();
        let late = store.put_catalog(&blob, first).await;
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        revision = store.put_catalog(&blob, revision).await.expect("the holder of the revision may write");
        assert_eq!(store.catalog().await, Ok(Some(Stored { value: blob, revision })), "{contents:?}");
    }
}

//! The store ports on DynamoDB: the same contracts as the in-memory adapter's, and behaviour that needs a real table.

use aws_sdk_dynamodb::types::AttributeValue;
use std::sync::Arc;
use whittle_claims::{Claim, DeletionReason, Revision, Sighting, Stored};
use whittle_dynamo::{DynamoStore, encode_claim};
use whittle_ports::{CatalogWriter, ClaimStore, Leases, Records, RegionStore, StoreError, contracts};
use whittle_tests::clock::FixedClock;
use whittle_tests::dynamo::{TABLE, client, create_table, store};
use whittle_tests::ministack::Ministack;
use whittle_units::{ClusterName, SignedDuration};

#[tokio::test]
async fn the_claim_store_meets_its_contract() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let store = store(&ministack, clock).await;
    contracts::claim_store(&store, &ClusterName::new("prod"), clock.now).await;
    contracts::many_claims(&store, &ClusterName::new("many"), clock.now, 200).await;
}

#[tokio::test]
async fn leases_records_and_decisions_meet_their_contracts() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let store = store(&ministack, clock).await;
    contracts::leases(&store, &ClusterName::new("prod"), clock.now).await;
    contracts::records(&store, &ClusterName::new("prod"), clock.now).await;
    contracts::decision_log(&store, &ClusterName::new("prod"), clock.now).await;
    contracts::erase(&store, &ClusterName::new("erased"), clock.now).await;
}

#[tokio::test]
async fn the_region_store_meets_its_contract() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    contracts::region_store(&store(&ministack, clock).await, clock.now).await;
}

/// A catalog of two parts, of which the first is always the same.
fn catalog(prices: u8) -> Vec<u8> {
    let stream = |content: u8| [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255][..], &[content; 50][..]].concat();
    [stream(1), stream(prices)].concat()
}

/// A backup that was made while parts were replaced may lack one of them, and so may a table from which somebody deleted items.
async fn remove_first_part(client: &aws_sdk_dynamodb::Client) {
    let items = client.scan().table_name(TABLE).send().await.expect("MiniStack answers").items.expect("the table has items");
    let is_it = |sk: &String| sk.starts_with("PART#") && sk.ends_with("#0000");
    let part = items.iter().find(|item| item["sk"].as_s().is_ok_and(is_it)).expect("it has parts");
    let delete = client.delete_item().table_name(TABLE).key("pk", part["pk"].clone()).key("sk", part["sk"].clone());
    delete.send().await.expect("MiniStack answers");
}

#[tokio::test]
async fn a_part_of_the_catalog_that_vanishes_is_missed_within_an_hour_where_it_is_known() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let store = store(&ministack, clock).await;
    let first = store.put_catalog(&catalog(2), Revision::ABSENT).await.expect("the first catalog replaces nothing");
    assert_eq!(store.catalog().await, Ok(Some(Stored { value: catalog(2), revision: first })));
    remove_first_part(&client(&ministack)).await;
    let later = FixedClock { now: clock.now + SignedDuration::from_hours(1), ..clock };
    let later = DynamoStore::new(client(&ministack), TABLE, Arc::new(later));
    assert_eq!(later.catalog().await, Ok(Some(Stored { value: Vec::new(), revision: first })));
    // Nor is it named again by whoever knew it.
    let second = later.put_catalog(&catalog(3), first).await.expect("the holder of the revision may write");
    assert_eq!(later.catalog().await, Ok(Some(Stored { value: catalog(3), revision: second })));
}

#[tokio::test]
async fn a_catalog_that_lacks_a_part_is_replaced_by_whoever_reads_it_anew() {
    let Some(ministack) = Ministack::start() else { return };
    let store = store(&ministack, FixedClock::new()).await;
    let first = store.put_catalog(&catalog(2), Revision::ABSENT).await.expect("the first catalog replaces nothing");
    remove_first_part(&client(&ministack)).await;
    assert_eq!(store.catalog().await, Ok(Some(Stored { value: Vec::new(), revision: first })), "its revision is known all the same");
    let second = store.put_catalog(&catalog(3), first).await.expect("the holder of the revision may write");
    assert_eq!(store.catalog().await, Ok(Some(Stored { value: catalog(3), revision: second })));
}

#[tokio::test]
async fn an_unreadable_claim_is_reported_and_never_overwritten() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let store = store(&ministack, clock).await;
    let client = client(&ministack);
    let cluster = ClusterName::new("prod");
    let lease = store.acquire(&cluster, "test", clock.now, SignedDuration::from_mins(1)).await.expect("free");
    let claims = ["fine", "newer", "torn"].map(|name| contracts::planned_claim(&cluster, name, clock.now));
    for claim in &claims {
        store.create(&lease, claim).await.expect("free");
    }
    change(&client, &claims[1], "v", AttributeValue::N("2".to_owned())).await;
    change(&client, &claims[2], "data", AttributeValue::S("{\"key\":".to_owned())).await;

    let listed = store.list(&cluster).await.expect("the others are listed");
    assert_eq!(listed.iter().map(|stored| stored.value.key.name.as_str()).collect::<Vec<_>>(), ["fine"]);
    let listing = store.listing(&cluster).await.expect("the store answers");
    assert_eq!(listing.unreadable, ["newer", "torn"]);
    let other = ClusterName::new("torn");
    let lease_of_other = store.acquire(&other, "test", clock.now, SignedDuration::from_mins(1)).await.expect("free");
    let only = contracts::planned_claim(&other, "only", clock.now);
    store.create(&lease_of_other, &only).await.expect("free");
    change(&client, &only, "data", AttributeValue::S("{".to_owned())).await;
    assert_eq!(store.has_claims(&other).await, Ok(true), "one that cannot be read is one");
    let newer = store.get(&claims[1].key).await.expect_err("a newer version is never parsed");
    assert!(newer.to_string().contains("deploy the newer release"), "{newer}");
    assert!(matches!(store.get(&claims[2].key).await, Err(StoreError::Unreadable { .. })));
    let taken = store.create(&lease, &claims[1]).await;
    assert!(matches!(taken, Err(StoreError::Conflict { .. })), "its name is taken: {taken:?}");
}

/// Overwrites one attribute of a stored claim, wherever its shard is.
async fn change(client: &aws_sdk_dynamodb::Client, claim: &Claim, attribute: &str, value: AttributeValue) {
    let items = client.scan().table_name(TABLE).send().await.expect("MiniStack answers").items.expect("the table has items");
    let is_it = |item: &&std::collections::HashMap<String, AttributeValue>| {
        item["sk"] == AttributeValue::S(claim.key.name.to_string()) && item["pk"].as_s().is_ok_and(|pk| pk.starts_with("CLAIM#"))
    };
    let mut item = items.iter().find(is_it).expect("the claim is stored").clone();
    item.insert(attribute.to_owned(), value);
    client.put_item().table_name(TABLE).set_item(Some(item)).send().await.expect("MiniStack answers");
}

#[tokio::test]
async fn an_ended_claim_expires_after_a_day() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let store = store(&ministack, clock).await;
    let cluster = ClusterName::new("prod");
    let lease = store.acquire(&cluster, "test", clock.now, SignedDuration::from_mins(1)).await.expect("free");
    let mut claim = contracts::planned_claim(&cluster, "ended", clock.now);
    let created = store.create(&lease, &claim).await.expect("free");
    claim.phase = whittle_claims::Phase::Failed { reason: "LaunchTimeout".to_owned(), message: String::new(), since: clock.now };
    store.update(&claim, created).await.expect("ours");
    assert_eq!(store.list(&cluster).await.expect("the store answers").len(), 1);
    // The table may delete it days later: until then it counts as deleted.
    let later = FixedClock { now: clock.now + SignedDuration::from_hours(24), ..clock };
    let store = DynamoStore::new(client(&ministack), TABLE, Arc::new(later));
    assert_eq!(store.list(&cluster).await, Ok(vec![]));
    assert_eq!(store.get(&claim.key).await, Ok(None));
    assert_eq!(store.has_claims(&cluster).await, Ok(false));
}

#[tokio::test]
async fn lists_read_all_pages() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let store = store(&ministack, clock).await;
    let cluster = ClusterName::new("prod");
    let lease = store.acquire(&cluster, "test", clock.now, SignedDuration::from_mins(1)).await.expect("free");
    // 96 claims of 200 KB are 2.4 MB in each of 8 partitions; a page is 1 MB.
    let padding = "x".repeat(200 * 1024);
    let names: Vec<String> = (0..96).map(|number| format!("large-{number:03}")).collect();
    for name in &names {
        let mut claim = contracts::planned_claim(&cluster, name, clock.now);
        claim.annotations.insert("padding".to_owned(), padding.clone());
        store.create(&lease, &claim).await.expect("free");
    }
    let listed = store.list(&cluster).await.expect("the store answers");
    assert_eq!(listed.into_iter().map(|stored| stored.value.key.name.to_string()).collect::<Vec<_>>(), names);
}

#[tokio::test]
async fn errors_name_the_object_and_the_remedy() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = FixedClock::new();
    let store = DynamoStore::new(client(&ministack), TABLE, Arc::new(clock));
    let key = contracts::planned_claim(&ClusterName::new("prod"), "c", clock.now).key;
    let missing = store.get(&key).await.expect_err("the table was not created");
    assert!(missing.to_string().contains("claim prod/c") && missing.to_string().contains("WHITTLE_TABLE"), "{missing}");

    create_table(&client(&ministack)).await;
    let late = FixedClock { left: SignedDuration::ZERO, ..clock };
    let late = DynamoStore::new(client(&ministack), TABLE, Arc::new(late)).get(&key).await.expect_err("no call is started");
    assert!(late.to_string().contains("no time left"), "{late}");
}

#[tokio::test]
async fn a_call_that_gets_no_response_times_out_before_the_deadline() {
    // A listening socket whose connections the kernel accepts and nothing answers.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
        .endpoint_url(format!("http://{}", silent.local_addr().expect("a bound listener has an address")))
        .region(aws_sdk_dynamodb::config::Region::new(Ministack::REGION))
        .credentials_provider(aws_sdk_dynamodb::config::Credentials::new("testing", "testing", None, None, "tests"))
        .build();
    let clock = FixedClock { left: SignedDuration::from_millis(300), ..FixedClock::new() };
    let store = DynamoStore::new(aws_sdk_dynamodb::Client::from_conf(config), TABLE, Arc::new(clock));
    let start = std::time::Instant::now();
    let record = Sighting { subject: "s".to_owned(), first_seen_at: clock.now, expires_at: clock.now };
    let answer = store.write(&ClusterName::new("prod"), &record, Revision::ABSENT).await;
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    assert!(start.elapsed() < std::time::Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn claims_of_every_release_remain_readable() {
    // One record per phase, as release 0.1.0 wrote them. A later version gets a file of its own beside this one.
    let stored = include_str!("../golden/records/claim-v1.jsonl");
    let claims: Vec<Claim> = stored.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let seen: Vec<String> = claims.iter().map(|claim| format!("{} {}", claim.key, claim.phase.name())).collect();
    let phases = ["Planned", "Launching", "Launched", "Registered", "Initialized", "Draining", "Terminating", "Failed", "Gone"];
    assert_eq!(seen, phases.map(|phase| format!("prod/{} {phase}", phase.to_lowercase())));
    let draining = &claims[5];
    assert_eq!(draining.machine().map(|machine| machine.instance_id.as_str()), Some("i-0123456789abcdef0"));
    assert_eq!(draining.deletion.as_ref().map(|deletion| deletion.reason), Some(DeletionReason::SpotInterruption));
    assert!(draining.deletion.as_ref().is_some_and(|deletion| deletion.is_due_by_notice()), "without a field that says so");
    let (version, written) = encode_claim(draining);
    assert_eq!(version, 1, "a new version needs its own golden file");
    assert_eq!(serde_json::from_str::<Claim>(&written).expect("what is written can be read"), *draining);
}

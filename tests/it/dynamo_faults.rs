//! The store on DynamoDB while calls fail: on the wire, below the SDK, and above it, as functions see it.

use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use whittle_dynamo::DynamoStore;
use whittle_ports::{ClaimStore, contracts};
use whittle_tests::clock::StandingClock;
use whittle_tests::dynamo::{TABLE, client, client_over, create_table, store};
use whittle_tests::ministack::Ministack;
use whittle_tests::wire::{Request, Wire};
use whittle_units::{ClusterName, SignedDuration};

#[tokio::test]
async fn the_table_keeps_its_contracts_while_most_first_tries_fail_and_never_reads_an_old_value() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = StandingClock::new();
    create_table(&client(&ministack)).await;
    let wire = Wire::failing();
    let store = DynamoStore::new(client_over(&ministack, wire.clone()), TABLE, Arc::new(clock));
    let cluster = |name: &str| ClusterName::new(name);
    contracts::claim_store(&store, &cluster("claims"), clock.now).await;
    contracts::many_claims(&store, &cluster("many"), clock.now, 40).await;
    contracts::leases(&store, &cluster("leases"), clock.now).await;
    contracts::records(&store, &cluster("records"), clock.now).await;
    contracts::decision_log(&store, &cluster("decisions"), clock.now).await;
    contracts::erase(&store, &cluster("erased"), clock.now).await;
    contracts::region_store_unheard(&store, clock.now).await;
    contracts::lost_replies(&store, &cluster("lost"), clock.now).await;
    let struck = wire.struck();
    assert!(struck.len() == 4 && struck.values().all(|count| *count >= 20), "{struck:?}");
    println!("struck: {struck:?} in {} requests", wire.requests().len());
    reads_are_consistent(&wire.requests());
}

/// Every port was used, so that these are all the requests that there are.
fn reads_are_consistent(requests: &[Request]) {
    let operations: BTreeSet<&str> = requests.iter().map(|request| request.operation.as_str()).collect();
    let expected = ["DeleteItem", "GetItem", "PutItem", "Query", "TransactWriteItems"];
    assert_eq!(operations.into_iter().collect::<Vec<_>>(), expected, "a new kind of request needs a look here");
    for Request { operation, body } in requests {
        if ["GetItem", "Query"].contains(&operation.as_str()) {
            assert_eq!(body["ConsistentRead"], Value::Bool(true), "{operation} may answer with an old value: {body}");
            assert_eq!(body["IndexName"], Value::Null, "an index is always behind its table: {body}");
        }
    }
}

/// `cargo xtask bench paging` runs it with 100,000.
#[tokio::test]
async fn as_many_claims_as_asked_for_are_listed_once() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = StandingClock { left: SignedDuration::from_hours(1), ..StandingClock::new() };
    create_table(&client(&ministack)).await;
    let wire = Wire::listening();
    let store = DynamoStore::new(client_over(&ministack, wire.clone()), TABLE, Arc::new(clock));
    let count: usize = std::env::var("WHITTLE_CLAIMS").map_or(500, |count| count.parse().expect("WHITTLE_CLAIMS is a number"));
    let cluster = ClusterName::new("many");
    contracts::many_claims(&store, &cluster, clock.now, count).await;
    let before = wire.requests().len();
    let start = Instant::now();
    assert_eq!(store.list(&cluster).await.expect("the table answers").len(), count);
    println!("{count} claims: {} pages in {:.1} s", wire.requests().len() - before, start.elapsed().as_secs_f64());
}

#[tokio::test]
async fn a_caller_that_goes_on_sees_the_same_outcomes_whatever_fails() {
    let Some(ministack) = Ministack::start() else { return };
    let clock = StandingClock::new();
    let store = store(&ministack, clock).await;
    let struck = contracts::suites_under_faults(&store, "faulty", clock.now, 1).await;
    assert_eq!(struck.len(), 4, "every kind of fault struck: {struck:?}");
    contracts::lost_replies(&store, &ClusterName::new("lost"), clock.now).await;
}

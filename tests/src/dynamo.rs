//! The DynamoDB store on a table in MiniStack, through the real SDK.

use crate::clock::FixedClock;
use crate::ministack::Ministack;
use crate::wire::Wire;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::{RetryPartition, TokenBucket};
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, HttpClient, Region};
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use std::sync::Arc;
use whittle_dynamo::DynamoStore;

/// The table of all tests.
pub const TABLE: &str = "whittle";

/// A client of MiniStack's DynamoDB.
#[must_use]
pub fn client(ministack: &Ministack) -> Client {
    client_over(ministack, Wire::recording())
}

/// A client whose requests go through this HTTP client.
///
/// The SDK would give all clients of a service and region one quota of retries, which faults of one test use up for those beside it, and
/// which concurrent retries of one client do not give back. How often a call is tried is up to the store alone.
#[must_use]
pub fn client_over(ministack: &Ministack, http: impl HttpClient + 'static) -> Client {
    let config = Config::builder()
        .http_client(http)
        .retry_partition(RetryPartition::custom("tests").token_bucket(TokenBucket::unlimited()).build())
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(ministack.endpoint())
        .region(Region::new(Ministack::REGION))
        .credentials_provider(Credentials::new("testing", "testing", None, None, "tests"))
        .build();
    Client::from_conf(config)
}

/// Creates the table with the keys that the template gives it.
///
/// # Panics
///
/// When MiniStack refuses.
pub async fn create_table(client: &Client) {
    let key = |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("name and kind are set");
    let text = |name| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().expect("name and type are set")
    };
    client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key("pk", KeyType::Hash))
        .key_schema(key("sk", KeyType::Range))
        .attribute_definitions(text("pk"))
        .attribute_definitions(text("sk"))
        .send()
        .await
        .expect("MiniStack creates the table");
}

/// The store on a fresh table, at the time of `clock`.
pub async fn store(ministack: &Ministack, clock: FixedClock) -> DynamoStore {
    let client = client(ministack);
    create_table(&client).await;
    DynamoStore::new(client, TABLE, Arc::new(clock))
}

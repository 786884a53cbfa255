//! Doorbells in an emulator's queues, configured as in the template.

use crate::{QueueUrls, SqsQueues};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use std::sync::Arc;
use whittle_backends::ministack::Ministack;
use whittle_claims::{Doorbell, Function};
use whittle_ports::Queues;
use whittle_units::SignedDuration;

use super::{Later, clock, credentials};

fn client(ministack: &Ministack) -> Client {
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(Ministack::REGION))
        .endpoint_url(ministack.endpoint())
        .credentials_provider(SharedCredentialsProvider::new(credentials()))
        .build();
    Client::new(&config)
}

/// Creates a queue and returns its URL.
async fn queue(sqs: &Client, name: &str, attributes: &[(QueueAttributeName, &str)]) -> String {
    let request = attributes
        .iter()
        .fold(sqs.create_queue().queue_name(name), |request, (attribute, value)| request.attributes(attribute.clone(), *value));
    request.send().await.unwrap().queue_url.unwrap()
}

/// A FIFO queue whose received messages stay in flight for the whole test.
async fn fifo(sqs: &Client, name: &str) -> String {
    let attributes = [(QueueAttributeName::FifoQueue, "true"), (QueueAttributeName::VisibilityTimeout, "180")];
    queue(sqs, name, &attributes).await
}

/// All messages that can be received now.
async fn receive(sqs: &Client, url: &str) -> Vec<Message> {
    let request = sqs.receive_message().queue_url(url).max_number_of_messages(10);
    let answer = request.message_system_attribute_names(MessageSystemAttributeName::All).send().await.unwrap();
    answer.messages.unwrap_or_default()
}

async fn count(sqs: &Client, url: &str, attribute: QueueAttributeName) -> String {
    let answer = sqs.get_queue_attributes().queue_url(url).attribute_names(attribute.clone()).send().await.unwrap();
    answer.attributes.unwrap().remove(&attribute).unwrap()
}

fn doorbell(message: &Message) -> Doorbell {
    serde_json::from_str(message.body().unwrap()).unwrap()
}

fn group(message: &Message) -> &str {
    &message.attributes().unwrap()[&MessageSystemAttributeName::MessageGroupId]
}

fn schedule(cluster: &str) -> Doorbell {
    Doorbell::Schedule { cluster: cluster.into() }
}

#[tokio::test]
async fn doorbells_of_one_cluster_are_processed_one_at_a_time_and_clusters_concurrently() {
    let Some(ministack) = Ministack::start() else { return };
    let sqs = client(&ministack);
    let plan = fifo(&sqs, "plan.fifo").await;
    let plan_delay = SignedDuration::from_secs(1);
    let urls = QueueUrls { plan: plan.clone(), plan_delay, ..QueueUrls::default() };
    let at = |second: i64| SqsQueues::new(sqs.clone(), urls.clone(), Arc::new(Later(SignedDuration::from_secs(second))));
    for second in [0, 0, 1] {
        at(second).send(schedule("prod"), SignedDuration::ZERO).await.unwrap();
    }
    at(0).send(schedule("test"), SignedDuration::ZERO).await.unwrap();
    assert_eq!(
        count(&sqs, &plan, QueueAttributeName::ApproximateNumberOfMessages).await,
        "3",
        "two doorbells within the same second are merged"
    );

    let first =
        sqs.receive_message().queue_url(&plan).message_system_attribute_names(MessageSystemAttributeName::All).send().await.unwrap();
    let first = &first.messages()[0];
    assert_eq!((doorbell(first), group(first)), (schedule("prod"), "prod"));
    let meanwhile = receive(&sqs, &plan).await;
    assert_eq!(meanwhile.iter().map(group).collect::<Vec<_>>(), ["test"], "the group prod is in flight");

    sqs.delete_message().queue_url(&plan).receipt_handle(first.receipt_handle().unwrap()).send().await.unwrap();
    let next = receive(&sqs, &plan).await;
    assert_eq!(next.iter().map(doorbell).collect::<Vec<_>>(), [schedule("prod")]);
}

#[tokio::test]
async fn a_message_that_is_deleted_or_delayed_again_holds_its_cluster_back_no_longer() {
    let Some(ministack) = Ministack::start() else { return };
    let sqs = client(&ministack);
    let plan = fifo(&sqs, "plan.fifo").await;
    let urls = QueueUrls { plan: plan.clone(), plan_delay: SignedDuration::from_secs(1), ..QueueUrls::default() };
    let at = |second: i64| SqsQueues::new(sqs.clone(), urls.clone(), Arc::new(Later(SignedDuration::from_secs(second))));
    for (cluster, second) in [("prod", 0), ("test", 0), ("prod", 2), ("test", 2)] {
        at(second).send(schedule(cluster), SignedDuration::ZERO).await.unwrap();
    }
    let one = async || {
        let request = sqs.receive_message().queue_url(&plan).max_number_of_messages(1);
        let answer = request.message_system_attribute_names(MessageSystemAttributeName::All).send().await.unwrap();
        answer.messages.unwrap_or_default().pop()
    };
    let (first, second) = (one().await.unwrap(), one().await.unwrap());
    assert_eq!((group(&first), group(&second)), ("prod", "test"));
    assert!(one().await.is_none(), "both groups are in flight");

    let receipt = |message: &Message| message.receipt_handle().unwrap().to_owned();
    at(3).delete(Function::Schedule, &receipt(&first)).await.unwrap();
    let next = one().await.unwrap();
    assert_eq!((group(&next), next.message_id() == first.message_id()), ("prod", false), "the next of its cluster");
    assert!(one().await.is_none(), "the other cluster's is in flight");

    at(3).delay_again(Function::Schedule, &[receipt(&second).as_str()], SignedDuration::ZERO).await.unwrap();
    let again = one().await.unwrap();
    assert_eq!(again.message_id(), second.message_id(), "it is the first of its cluster still");
    at(3).delete(Function::Launch, "of a queue that is not known here").await.unwrap();
}

#[tokio::test]
async fn messages_that_failed_come_again_together_and_one_that_cannot_be_changed_stays_as_it_was() {
    let Some(ministack) = Ministack::start() else { return };
    let sqs = client(&ministack);
    let launch = queue(&sqs, "launch", &[(QueueAttributeName::VisibilityTimeout, "180")]).await;
    let queues = SqsQueues::new(sqs.clone(), QueueUrls { launch: launch.clone(), ..QueueUrls::default() }, clock());
    for claim in ["c-1", "c-2", "c-3"] {
        queues.send(Doorbell::Launch { cluster: "prod".into(), claims: vec![claim.into()] }, SignedDuration::ZERO).await.unwrap();
    }
    let received = receive(&sqs, &launch).await;
    assert_eq!(received.len(), 3);
    assert!(receive(&sqs, &launch).await.is_empty(), "all are in flight");

    let receipts: Vec<&str> = received.iter().take(2).map(|message| message.receipt_handle().unwrap()).collect();
    let refused = queues.delay_again(Function::Launch, &[receipts[0], "of nobody", receipts[1]], SignedDuration::ZERO).await.unwrap_err();
    assert!(refused.reason.contains("1 of 3 messages"), "{refused}");
    let mut again: Vec<_> = receive(&sqs, &launch).await.into_iter().filter_map(|message| message.message_id).collect();
    let mut expected: Vec<_> = received.into_iter().take(2).filter_map(|message| message.message_id).collect();
    again.sort_unstable();
    expected.sort_unstable();
    assert_eq!(again, expected, "the third is in flight still");
}

#[tokio::test]
async fn messages_of_a_cluster_in_a_standard_queue_do_not_hold_each_other_back() {
    let Some(ministack) = Ministack::start() else { return };
    let sqs = client(&ministack);
    let launch = queue(&sqs, "launch", &[(QueueAttributeName::VisibilityTimeout, "180")]).await;
    let queues = SqsQueues::new(sqs.clone(), QueueUrls { launch: launch.clone(), ..QueueUrls::default() }, clock()).shared_by(2);
    let doorbell = |claim: &str| Doorbell::Launch { cluster: "prod".into(), claims: vec![claim.into()] };
    // Equal ones are two messages: nothing is deduplicated.
    for claim in ["c-1", "c-2", "c-1"] {
        queues.send(doorbell(claim), SignedDuration::ZERO).await.unwrap();
    }
    let one = async || {
        let request = sqs.receive_message().queue_url(&launch).max_number_of_messages(1);
        let answer = request.message_system_attribute_names(MessageSystemAttributeName::All).send().await.unwrap();
        answer.messages.unwrap_or_default().pop().unwrap()
    };
    for _ in 0..3 {
        assert_eq!(group(&one().await), "prod", "while the ones before it are in flight");
    }
}

#[tokio::test]
async fn a_delayed_doorbell_is_not_received_before_it_is_due() {
    let Some(ministack) = Ministack::start() else { return };
    let sqs = client(&ministack);
    let terminate = queue(&sqs, "terminate", &[]).await;
    let queues = SqsQueues::new(sqs.clone(), QueueUrls { terminate: terminate.clone(), ..QueueUrls::default() }, clock());
    let terminate_doorbell = |claim: &str| Doorbell::Terminate { cluster: "prod".into(), claim: claim.into() };
    queues.send(terminate_doorbell("later"), SignedDuration::from_mins(5)).await.unwrap();
    queues.send(terminate_doorbell("now"), SignedDuration::ZERO).await.unwrap();
    assert_eq!(receive(&sqs, &terminate).await.iter().map(doorbell).collect::<Vec<_>>(), [terminate_doorbell("now")]);
    assert_eq!(count(&sqs, &terminate, QueueAttributeName::ApproximateNumberOfMessagesDelayed).await, "1");
}

#[tokio::test]
async fn a_message_that_always_fails_goes_to_the_dead_letter_queue_and_can_be_redriven() {
    let Some(ministack) = Ministack::start() else { return };
    let sqs = client(&ministack);
    let dead = queue(&sqs, "launch-dead-letters", &[]).await;
    let arn = count(&sqs, &dead, QueueAttributeName::QueueArn).await;
    let redrive = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"2"}}"#);
    let attributes = [(QueueAttributeName::VisibilityTimeout, "0"), (QueueAttributeName::RedrivePolicy, redrive.as_str())];
    let launch = queue(&sqs, "launch", &attributes).await;
    let queues = SqsQueues::new(sqs.clone(), QueueUrls { launch: launch.clone(), ..QueueUrls::default() }, clock());
    let launch_doorbell = Doorbell::Launch { cluster: "prod".into(), claims: vec!["c-1".into()] };
    queues.send(launch_doorbell.clone(), SignedDuration::ZERO).await.unwrap();

    for _ in 0..2 {
        assert_eq!(receive(&sqs, &launch).await.iter().map(doorbell).collect::<Vec<_>>(), std::slice::from_ref(&launch_doorbell));
    }
    assert!(receive(&sqs, &launch).await.is_empty(), "it is delivered twice at most");
    assert_eq!(count(&sqs, &dead, QueueAttributeName::ApproximateNumberOfMessages).await, "1", "it is in the dead-letter queue");

    // The emulator has no message move tasks, so the test does what one does.
    let dead_letters = receive(&sqs, &dead).await;
    queues.send(doorbell(&dead_letters[0]), SignedDuration::ZERO).await.unwrap();
    assert_eq!(receive(&sqs, &launch).await.iter().map(doorbell).collect::<Vec<_>>(), [launch_doorbell]);
}

//! Messages while an invocation holds them: SQS delivers them to nobody else, and of a FIFO queue no other message of their group, which is
//! their cluster. Messages of a standard queue may name their cluster too, and hold nothing back (ADR 0067).

use crate::Function;
use aws_lambda_events::sqs::SqsMessage;
use std::collections::BTreeMap;
use whittle_aws::SqsQueues;
use whittle_ports::{QueueError, error_chain};
use whittle_units::SignedDuration;

/// What a function does with messages of its own queue.
pub(crate) trait OwnQueue {
    /// Deletes a message.
    async fn remove(&self, function: Function, receipt: &str) -> Result<(), QueueError>;
    /// Has messages delivered again after some time.
    async fn redeliver(&self, function: Function, receipts: &[&str], delay: SignedDuration) -> Result<(), QueueError>;
}

impl OwnQueue for SqsQueues {
    async fn remove(&self, function: Function, receipt: &str) -> Result<(), QueueError> {
        self.delete(function, receipt).await
    }

    async fn redeliver(&self, function: Function, receipts: &[&str], delay: SignedDuration) -> Result<(), QueueError> {
        self.delay_again(function, receipts, delay).await
    }
}

/// The messages of a batch, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight(BTreeMap<String, Receipt>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Receipt {
    handle: String,
    /// How often it was received, this time included; 0 if that is not known.
    receives: u32,
    /// Its group, if it holds back other messages of that.
    group: Option<String>,
}

impl InFlight {
    /// Takes note of a message of the queue that wakes `function`.
    pub(crate) fn add(&mut self, function: Function, id: &str, message: &SqsMessage) {
        let Some(handle) = message.receipt_handle.clone() else { return };
        let attribute = |name: &str| message.attributes.get(name);
        let receives = attribute("ApproximateReceiveCount").and_then(|count| count.parse().ok()).unwrap_or_default();
        let group = attribute("MessageGroupId").filter(|_| function.has_fifo_queue()).cloned();
        self.0.insert(id.to_owned(), Receipt { handle, receives, group });
    }

    /// How often a message was received, this time included; 0 if that is not known.
    pub(crate) fn receives(&self, id: &str) -> u32 {
        self.0.get(id).map_or(0, |receipt| receipt.receives)
    }

    /// Deletes messages whose work another invocation does, so that their groups need not wait for this one. What cannot be deleted, Lambda
    /// deletes in the end.
    pub(crate) async fn release(&self, function: Function, queue: &impl OwnQueue, ids: &[String]) {
        for receipt in ids.iter().filter_map(|id| self.0.get(id)).filter(|receipt| receipt.group.is_some()) {
            if let Err(error) = queue.remove(function, &receipt.handle).await {
                tracing::warn!(reason = %error_chain(&error), "a message whose doorbell was sent on could not be deleted");
            }
        }
    }

    /// Has messages that failed delivered again sooner than by the queue's visibility timeout, where they have not failed too often. What
    /// cannot be changed comes by the visibility timeout, as do the messages of a run that died.
    pub(crate) async fn retry_soon(&self, function: Function, queue: &impl OwnQueue, ids: &[String]) {
        for (delay, handles) in self.retries(function, ids) {
            if let Err(error) = queue.redeliver(function, &handles, delay).await {
                tracing::warn!(reason = %error_chain(&error), "messages that failed wait for their queue's visibility timeout");
            }
        }
    }

    /// Those of a tick's messages that come again, if work of theirs failed that may succeed later: before the next tick does the same.
    pub(crate) fn before_next_tick(&self, function: Function, ids: Vec<String>) -> Vec<String> {
        let comes = |id: &String| self.0.get(id).is_some_and(|receipt| function.tick_retry_delay(receipt.receives).is_some());
        ids.into_iter().filter(comes).collect()
    }

    /// The handles of messages that come again early, by when. Those of one group do so together, by the one that was received most often:
    /// each of them holds the others back.
    fn retries(&self, function: Function, ids: &[String]) -> BTreeMap<SignedDuration, Vec<&str>> {
        let receipts: Vec<&Receipt> = ids.iter().filter_map(|id| self.0.get(id)).collect();
        let mut retries = BTreeMap::<SignedDuration, Vec<&str>>::new();
        for receipt in &receipts {
            let with_it = receipts.iter().filter(|other| receipt.group.is_some() && other.group == receipt.group);
            let receives = with_it.map(|other| other.receives).max().unwrap_or(receipt.receives);
            if let Some(delay) = function.retry_delay(receives) {
                retries.entry(delay).or_default().push(receipt.handle.as_str());
            }
        }
        retries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use serde::Deserialize;
    use serde_json::{Value, json};
    use std::sync::Mutex;

    /// Messages of a function's queue by id, with their attributes; the handle of `x` is `of-x`.
    fn in_flight(function: Function, messages: &[(&str, Value)]) -> InFlight {
        let mut in_flight = InFlight::default();
        for (id, attributes) in messages {
            let message = json!({ "messageId": id, "receiptHandle": format!("of-{id}"), "attributes": attributes });
            in_flight.add(function, id, &SqsMessage::deserialize(&message).expect("it is a message"));
        }
        in_flight
    }

    fn grouped(group: &str, receives: u32) -> Value {
        json!({ "MessageGroupId": group, "ApproximateReceiveCount": receives.to_string() })
    }

    fn single(receives: u32) -> Value {
        json!({ "ApproximateReceiveCount": receives.to_string() })
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// When messages come again that fail: seconds and handles.
    fn retries(function: Function, messages: &[(&str, Value)]) -> Vec<(i64, Vec<String>)> {
        let failed: Vec<String> = messages.iter().map(|(id, _)| (*id).to_owned()).collect();
        let in_flight = in_flight(function, messages);
        in_flight.retries(function, &failed).into_iter().map(|(delay, handles)| (delay.as_secs(), owned(&handles))).collect()
    }

    #[test]
    fn a_message_is_noted_with_its_group_and_how_often_it_was_received() {
        let messages = [
            ("again", grouped("prod", 2)),
            ("single", single(1)),
            ("uncounted", json!({})),
            ("odd", json!({ "ApproximateReceiveCount": "many" })),
        ];
        let receipt = |id: &str, receives, group: Option<&str>| {
            (id.to_owned(), Receipt { handle: format!("of-{id}"), receives, group: group.map(str::to_owned) })
        };
        let expected =
            [receipt("again", 2, Some("prod")), receipt("odd", 0, None), receipt("single", 1, None), receipt("uncounted", 0, None)];
        assert_eq!(in_flight(Function::Schedule, &messages).0, expected.into());
        let of_standard = in_flight(Function::Launch, &messages);
        assert!(of_standard.0.values().all(|receipt| receipt.group.is_none()), "there it names only whose message it is: {of_standard:?}");
        let mut none = InFlight::default();
        none.add(Function::Schedule, "x", &SqsMessage::deserialize(&json!({ "messageId": "x" })).expect("it is a message"));
        assert_eq!(none, InFlight::default(), "nothing can be done with a message that has no handle");
    }

    #[test]
    fn the_delay_grows_with_the_deliveries_until_it_is_the_queues_own() {
        let messages = [("m1", single(1)), ("m2", single(2)), ("m3", single(3)), ("m4", single(1)), ("unknown", json!({}))];
        assert_eq!(retries(Function::Launch, &messages), [(5, owned(&["of-m1", "of-m4"])), (15, owned(&["of-m2"]))]);
        assert_eq!(retries(Function::Refresh, &messages), [(30, owned(&["of-m1", "of-m4"])), (120, owned(&["of-m2"]))]);
        assert!(retries(Function::Relay, &messages).is_empty());
    }

    #[test]
    fn of_a_ticks_messages_only_what_comes_before_the_next_one_comes_again() {
        let noted = in_flight(Function::Sweep, &[("m1", single(1)), ("m2", single(2)), ("m3", single(5)), ("unknown", json!({}))]);
        let left = noted.before_next_tick(Function::Sweep, owned(&["m1", "m2", "m3", "unknown", "of no batch"]));
        assert_eq!(left, ["m1"]);
    }

    #[test]
    fn the_messages_of_a_group_come_again_together() {
        let messages = [("a1", grouped("a", 2)), ("b1", grouped("b", 1)), ("a2", grouped("a", 1)), ("b2", grouped("b", 1))];
        assert_eq!(retries(Function::Schedule, &messages), [(5, owned(&["of-b1", "of-b2"])), (15, owned(&["of-a1", "of-a2"]))]);
        let last = [("a1", grouped("a", 3)), ("a2", grouped("a", 1))];
        assert!(retries(Function::Schedule, &last).is_empty(), "what is first in the group holds the second back");
    }

    #[test]
    fn messages_of_a_cluster_in_a_standard_queue_come_again_each_by_its_own_count() {
        let messages = [("a1", grouped("a", 3)), ("a2", grouped("a", 1)), ("a3", grouped("a", 2)), ("b1", grouped("b", 1))];
        for function in [Function::Launch, Function::Register, Function::Terminate, Function::Interrupt] {
            assert_eq!(retries(function, &messages), [(5, owned(&["of-a2", "of-b1"])), (15, owned(&["of-a3"]))], "{function}");
        }
    }

    /// Notes what is asked of it, and refuses it if it is told to.
    #[derive(Default)]
    struct FakeQueue {
        refuses: bool,
        asked: Mutex<Vec<String>>,
    }

    impl FakeQueue {
        fn note(&self, asked: String) -> Result<(), QueueError> {
            self.asked.lock().expect("the lock is not poisoned").push(asked);
            if self.refuses { Err(QueueError { cluster: "a".to_owned(), reason: "throttled".to_owned() }) } else { Ok(()) }
        }
        fn asked(self) -> Vec<String> {
            self.asked.into_inner().expect("the lock is not poisoned")
        }
    }

    impl OwnQueue for FakeQueue {
        async fn remove(&self, _: Function, receipt: &str) -> Result<(), QueueError> {
            self.note(format!("remove {receipt}"))
        }
        async fn redeliver(&self, _: Function, receipts: &[&str], delay: SignedDuration) -> Result<(), QueueError> {
            self.note(format!("redeliver {} after {} s", receipts.join(" "), delay.as_secs()))
        }
    }

    #[test]
    fn only_messages_that_failed_come_again_early_and_a_refusal_stops_nothing() {
        let noted = in_flight(Function::Launch, &[("m1", single(1)), ("m2", single(2)), ("done", single(1)), ("m3", single(3))]);
        for refuses in [false, true] {
            let queue = FakeQueue { refuses, ..FakeQueue::default() };
            block_on(noted.retry_soon(Function::Launch, &queue, &owned(&["m1", "m2", "m3", "of no batch"])));
            assert_eq!(queue.asked(), ["redeliver of-m1 after 5 s", "redeliver of-m2 after 15 s"], "refuses: {refuses}");
        }
        let queue = FakeQueue::default();
        block_on(noted.retry_soon(Function::Launch, &queue, &owned(&["m3"])));
        assert!(queue.asked().is_empty(), "it comes by the visibility timeout");
    }

    #[test]
    fn only_messages_that_hold_others_back_are_deleted_early() {
        let messages = [("a1", grouped("a", 1)), ("a2", grouped("a", 1)), ("single", single(1))];
        for refuses in [false, true] {
            let queue = FakeQueue { refuses, ..FakeQueue::default() };
            block_on(in_flight(Function::Schedule, &messages).release(Function::Schedule, &queue, &owned(&["a1", "a2", "single"])));
            assert_eq!(queue.asked(), ["remove of-a1", "remove of-a2"]);
        }
        let queue = FakeQueue::default();
        block_on(in_flight(Function::Register, &messages).release(Function::Register, &queue, &owned(&["a1", "a2", "single"])));
        assert!(queue.asked().is_empty(), "in a standard queue no message holds another back");
    }
}

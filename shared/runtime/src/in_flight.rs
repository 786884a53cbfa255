//! Messages of FIFO queues while an invocation holds them: SQS delivers no other message of their group, which is their cluster.

use crate::Function;
use aws_lambda_events::sqs::SqsMessage;
use std::collections::BTreeMap;
use whittle_aws::SqsQueues;
use whittle_ports::error_chain;
use whittle_units::SignedDuration;

/// When a message is delivered again that failed for the first time. Most outages that outlive the retries of a call are short; a
/// message that fails again waits for the queue's visibility timeout, so that the dead-letter queue gets none of a longer one at once.
const RETRY_SOON: SignedDuration = SignedDuration::from_secs(5);

/// The messages of a batch that belong to a group, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight(BTreeMap<String, Receipt>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Receipt {
    handle: String,
    /// It was not received before.
    is_first: bool,
}

impl InFlight {
    /// Takes note of a message, if it belongs to a group.
    pub(crate) fn add(&mut self, id: &str, message: &SqsMessage) {
        let attribute = |name: &str| message.attributes.get(name).map(String::as_str);
        let Some(handle) = message.receipt_handle.clone().filter(|_| attribute("MessageGroupId").is_some()) else { return };
        self.0.insert(id.to_owned(), Receipt { handle, is_first: attribute("ApproximateReceiveCount") == Some("1") });
    }

    /// Deletes messages whose work another invocation does, so that it need not wait for this one. What cannot be deleted, Lambda deletes
    /// in the end.
    pub(crate) async fn release(&self, function: Function, queues: &SqsQueues, ids: &[String]) {
        for receipt in ids.iter().filter_map(|id| self.0.get(id)) {
            if let Err(error) = queues.delete(function, &receipt.handle).await {
                tracing::warn!(reason = %error_chain(&error), "a message whose doorbell was sent on could not be deleted");
            }
        }
    }

    /// Has messages delivered again soon that have failed for the first time.
    pub(crate) async fn retry_soon(&self, function: Function, queues: &SqsQueues, ids: &[String]) {
        for receipt in ids.iter().filter_map(|id| self.0.get(id)).filter(|receipt| receipt.is_first) {
            if let Err(error) = queues.delay_again(function, &receipt.handle, RETRY_SOON).await {
                tracing::warn!(reason = %error_chain(&error), "a message that failed waits for its queue's visibility timeout");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[test]
    fn only_messages_of_a_group_are_noted_and_whether_they_were_received_before() {
        let mut in_flight = InFlight::default();
        for (id, attributes) in [
            ("first", json!({ "MessageGroupId": "prod", "ApproximateReceiveCount": "1" })),
            ("again", json!({ "MessageGroupId": "prod", "ApproximateReceiveCount": "2" })),
            ("standard", json!({ "ApproximateReceiveCount": "1" })),
        ] {
            let message = json!({ "messageId": id, "receiptHandle": format!("of-{id}"), "attributes": attributes });
            in_flight.add(id, &SqsMessage::deserialize(&message).expect("it is a message"));
        }
        let receipt = |id: &str, is_first| (id.to_owned(), Receipt { handle: format!("of-{id}"), is_first });
        assert_eq!(in_flight.0, [receipt("again", false), receipt("first", true)].into());
    }
}

//! Doorbells through SQS.

use aws_sdk_sqs::config::Builder;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;
use aws_sdk_sqs::types::ChangeMessageVisibilityBatchRequestEntry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use whittle_claims::{CONSOLIDATE_DELAY, Doorbell, Function, Sending};
use whittle_ports::{Clock, QueueError, Queues};
use whittle_units::{ClusterName, SignedDuration};

/// The queue of each kind of doorbell; empty where the role may not send to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueUrls {
    /// FIFO, one group per cluster.
    pub plan: String,
    /// FIFO, one group per cluster.
    pub consolidate: String,
    pub launch: String,
    pub terminate: String,
    pub nodes: String,
    pub refresh: String,
    pub sweep: String,
    /// The delivery delay of the `plan` queue.
    pub plan_delay: SignedDuration,
}

impl QueueUrls {
    fn of(&self, doorbell: &Doorbell) -> &str {
        match doorbell {
            Doorbell::Schedule { .. } => &self.plan,
            Doorbell::Consolidate { .. } => &self.consolidate,
            Doorbell::Launch { .. } => &self.launch,
            Doorbell::Register { .. } | Doorbell::Deletions { .. } => &self.nodes,
            Doorbell::Terminate { .. } => &self.terminate,
            Doorbell::Refresh { .. } => &self.refresh,
            Doorbell::Sweep { .. } => &self.sweep,
        }
    }

    /// The queue that wakes a function.
    fn that_wakes(&self, function: Function) -> Option<&str> {
        let url = match function {
            Function::Schedule => &self.plan,
            Function::Consolidate => &self.consolidate,
            Function::Launch => &self.launch,
            Function::Terminate => &self.terminate,
            Function::Register => &self.nodes,
            Function::Refresh => &self.refresh,
            Function::Sweep => &self.sweep,
            Function::Interrupt | Function::Relay => return None,
        };
        Some(url.as_str()).filter(|url| !url.is_empty())
    }

    /// The delivery delay of a doorbell's FIFO queue.
    const fn delay_of(&self, doorbell: &Doorbell) -> SignedDuration {
        match doorbell {
            Doorbell::Consolidate { .. } => CONSOLIDATE_DELAY,
            _ => self.plan_delay,
        }
    }
}

/// The deduplication id that each FIFO queue accepted last, by URL and cluster. What has it once more, the queue would drop, so that it
/// need not be sent: a burst of pods is a burst of doorbells. An environment that forgets only sends more of them.
#[derive(Debug, Default)]
pub struct Accepted(Mutex<BTreeMap<(String, String), String>>);

impl Accepted {
    fn has(&self, place: &(String, String), id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(place).is_some_and(|last| last == id)
    }

    fn remember(&self, place: (String, String), id: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(place, id);
    }
}

/// Sends doorbells as SQS messages.
#[derive(Clone)]
pub struct SqsQueues {
    sqs: aws_sdk_sqs::Client,
    urls: QueueUrls,
    accepted: Arc<Accepted>,
    clock: Arc<dyn Clock + Send>,
    /// Whether messages of standard queues name their cluster.
    has_tenants: bool,
}

/// The longest delay of an SQS message, in seconds.
const DELAY_MAX: i64 = 900;
/// The most messages of one request.
const BATCH_MAX: usize = 10;
/// The longest group id of a message, in characters.
const GROUP_MAX: usize = 128;

/// A cluster's name as the group of messages in a standard queue, if SQS accepts it as one: without a group they are delivered as well.
/// The names that EKS allows are accepted: letters, digits, hyphens and underscores, a hundred of them at most.
fn tenant(cluster: &ClusterName) -> Option<&str> {
    Some(cluster.as_str()).filter(|name| (1..=GROUP_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Whether SQS refuses a parameter of a message, as it did the group of one in a standard queue before July 2025, and still may where fair
/// queues are not known yet: a partition of its own gets what is new years later. Without the group such a message is delivered as well.
fn is_of_parameter(error: &impl ProvideErrorMetadata) -> bool {
    error.code().is_some_and(|code| code.contains("InvalidParameter") || code.contains("UnsupportedOperation"))
}

impl SqsQueues {
    /// The client may be shared by all invocations; the clock belongs to one.
    pub fn new(sqs: aws_sdk_sqs::Client, urls: QueueUrls, clock: Arc<dyn Clock + Send>) -> Self {
        Self { sqs, urls, accepted: Arc::default(), clock, has_tenants: false }
    }

    /// The same with what earlier invocations of the execution environment have sent.
    #[must_use]
    pub fn remembering(self, accepted: Arc<Accepted>) -> Self {
        Self { accepted, ..self }
    }

    /// The same for a deployment that serves `clusters` clusters. With several, messages in standard queues have their cluster as message
    /// group too: while one cluster keeps the receivers busy, SQS delivers messages of the others first (fair queues). With one cluster
    /// that would cost something and change nothing.
    #[must_use]
    pub fn shared_by(self, clusters: usize) -> Self {
        Self { has_tenants: clusters > 1, ..self }
    }
}

impl SqsQueues {
    async fn send_message(&self, doorbell: Doorbell, delay: SignedDuration, seen: Option<&str>) -> Result<(), QueueError> {
        let failed = |reason: String| QueueError { cluster: doorbell.cluster().to_string(), reason };
        let url = self.urls.of(&doorbell);
        if url.is_empty() {
            return Err(failed("this function has no queue for it".to_owned()));
        }
        let body = serde_json::to_string(&doorbell).map_err(|error| failed(error.to_string()))?;
        let request = self.sqs.send_message().queue_url(url).message_body(body);
        let (mut merged, mut has_tenant) = (None, false);
        let request = match doorbell.sending(delay) {
            Sending::SkipUntilTick => return Ok(()),
            Sending::InTurn => {
                let (queue_delay, now) = (self.urls.delay_of(&doorbell), self.clock.now());
                let id = match seen {
                    Some(seen) => doorbell.deduplication_id_of(seen, queue_delay, now),
                    None => doorbell.deduplication_id(queue_delay, now, || self.clock.unique()),
                };
                let place = (url.to_owned(), doorbell.cluster().to_string());
                if self.accepted.has(&place, &id) {
                    return Ok(());
                }
                // Without a delay an id says what was seen, and is valid for minutes: that is for SQS to remember.
                merged = (queue_delay > SignedDuration::ZERO).then(|| (place, id.clone()));
                request.message_group_id(doorbell.cluster().as_str()).message_deduplication_id(id)
            }
            Sending::Delayed(delay) => {
                let group = tenant(doorbell.cluster()).filter(|_| self.has_tenants).map(str::to_owned);
                let seconds = i32::try_from(delay.as_secs().clamp(0, DELAY_MAX)).unwrap_or_default();
                has_tenant = group.is_some();
                request.delay_seconds(seconds).set_message_group_id(group)
            }
        };
        let limits = crate::budget::message_limits(&*self.clock, "SendMessage").map_err(|error| failed(error.to_string()))?;
        let send =
            |request: SendMessageFluentBuilder| request.customize().config_override(Builder::new().timeout_config(limits.clone())).send();
        let mut sent = send(request.clone()).await;
        if has_tenant && sent.as_ref().is_err_and(is_of_parameter) {
            sent = send(request.set_message_group_id(None)).await;
        }
        sent.map_err(|error| failed(DisplayErrorContext(&error).to_string()))?;
        if let Some((place, id)) = merged {
            self.accepted.remember(place, id);
        }
        Ok(())
    }
}

impl SqsQueues {
    /// Deletes a received message of the queue that wakes `function`: the next one of its group may be received.
    ///
    /// # Errors
    /// SQS did not do it.
    pub async fn delete(&self, function: Function, receipt: &str) -> Result<(), QueueError> {
        let Some((url, limits)) = self.for_received(function, "DeleteMessage")? else { return Ok(()) };
        let request = self.sqs.delete_message().queue_url(url).receipt_handle(receipt).customize().config_override(limits);
        request.send().await.map(drop).map_err(|error| of_received(DisplayErrorContext(&error).to_string()))
    }

    /// Has received messages of the queue that wakes `function` delivered again after `delay`, instead of after the rest of the queue's
    /// visibility timeout.
    ///
    /// # Errors
    /// SQS did not do it for all of them. The others come by the queue's visibility timeout.
    pub async fn delay_again(&self, function: Function, receipts: &[&str], delay: SignedDuration) -> Result<(), QueueError> {
        let seconds = i32::try_from(delay.as_secs()).unwrap_or_default();
        for receipts in receipts.chunks(BATCH_MAX) {
            let Some((url, limits)) = self.for_received(function, "ChangeMessageVisibilityBatch")? else { return Ok(()) };
            let mut request = self.sqs.change_message_visibility_batch().queue_url(url);
            for (number, receipt) in receipts.iter().enumerate() {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(number.to_string()).receipt_handle(*receipt);
                let entry = entry.visibility_timeout(seconds).build().map_err(|error| of_received(error.to_string()))?;
                request = request.entries(entry);
            }
            let changed = request.customize().config_override(limits).send().await;
            let changed = changed.map_err(|error| of_received(DisplayErrorContext(&error).to_string()))?;
            if let Some(refused) = changed.failed().first() {
                let (code, message) = (refused.code(), refused.message().unwrap_or_default());
                return Err(of_received(format!("{} of {} messages: {code}: {message}", changed.failed().len(), receipts.len())));
            }
        }
        Ok(())
    }

    /// The queue of a received message, and how long a call about it may take, briefly: Lambda or SQS does the same later. `None` for a
    /// function that no queue wakes, or that does not know which.
    fn for_received(&self, function: Function, call: &'static str) -> Result<Option<(&str, Builder)>, QueueError> {
        let Some(url) = self.urls.that_wakes(function) else { return Ok(None) };
        let limits = crate::budget::brief_limits(&*self.clock, call).map_err(|error| of_received(error.to_string()))?;
        Ok(Some((url, Builder::new().timeout_config(limits))))
    }
}

/// The error of a call about a message that was received.
fn of_received(reason: String) -> QueueError {
    QueueError { cluster: "a received message".to_owned(), reason }
}

impl Queues for SqsQueues {
    async fn send(&self, doorbell: Doorbell, delay: SignedDuration) -> Result<(), QueueError> {
        self.send_message(doorbell.bounded(), delay, None).await
    }

    async fn send_seen(&self, doorbell: Doorbell, seen: &str) -> Result<(), QueueError> {
        self.send_message(doorbell, SignedDuration::ZERO, Some(seen)).await
    }
}

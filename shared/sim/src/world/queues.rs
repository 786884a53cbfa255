//! SQS queues in memory.

use crate::{Function, Input, TaskId};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use whittle_claims::{Doorbell, PLAN_DELAY, Sending};
use whittle_units::InstanceId;

/// How long SQS remembers a deduplication id.
const DEDUPLICATION: SignedDuration = SignedDuration::from_mins(5);

/// How often each function ran in the calls that led to a message.
pub type Chain = BTreeMap<Function, u32>;

/// A message that waits or is being worked on.
#[derive(Clone, Debug)]
pub struct Message {
    pub function: Function,
    pub input: Input,
    /// Messages of one group are delivered one at a time, in order; `None` for standard queues.
    pub group: Option<String>,
    pub visible_at: Timestamp,
    pub receives: u32,
    pub reader: Option<TaskId>,
    /// Why its last reader failed.
    pub reason: Option<String>,
    pub chain: Chain,
}

/// All queues; each function reads from its own.
#[derive(Debug)]
pub struct MessageQueues {
    sequence: u64,
    messages: BTreeMap<u64, Message>,
    deduplication: BTreeMap<String, Timestamp>,
    /// The dead-letter queue.
    pub parked: Vec<Message>,
    /// A notice of EC2 is deleted as soon as it is received: a mutant that the checkers must catch.
    pub acknowledge_early: bool,
    /// The delay of the plan queue: the template's `PlanDelaySeconds`.
    pub plan_delay: SignedDuration,
}

impl Default for MessageQueues {
    fn default() -> Self {
        Self {
            sequence: 0,
            messages: BTreeMap::new(),
            deduplication: BTreeMap::new(),
            parked: Vec::new(),
            acknowledge_early: false,
            plan_delay: PLAN_DELAY,
        }
    }
}

impl MessageQueues {
    /// Sends a doorbell as SQS does: a FIFO queue delays all its messages alike and drops duplicate ids. Returns when
    /// it becomes visible, or `None` if it was not sent or was dropped.
    /// Ids are made from the sender's clock.
    pub fn send_doorbell(&mut self, doorbell: Doorbell, delay: SignedDuration, now: Timestamp, sent_at: Timestamp) -> Option<Timestamp> {
        let function = doorbell.function();
        let span = match doorbell.sending(delay) {
            Sending::SkipUntilTick => return None,
            Sending::Delayed(delay) => delay,
            Sending::InTurn => self.delay_of(&doorbell),
        };
        // Each function has its own queue: groups of two queues do not wait for each other.
        let group = doorbell.queue_delay().map(|_| format!("{}/{}", function, doorbell.cluster()));
        if let Some(group) = &group {
            self.deduplication.retain(|_, since| now.duration_since(*since) < DEDUPLICATION);
            let own = doorbell.deduplication_id(span, sent_at, || self.sequence.to_string());
            let id = format!("{group}/{own}");
            if self.deduplication.contains_key(&id) {
                return None;
            }
            self.deduplication.insert(id, now);
        }
        let at = now.checked_add(span).unwrap_or(now);
        self.put(function, Input::Doorbell(doorbell), group, at);
        Some(at)
    }

    /// Puts a message on the queue of a function.
    pub fn send(&mut self, function: Function, input: Input, visible_at: Timestamp) {
        self.put(function, input, None, visible_at);
    }

    /// The delay of a doorbell's FIFO queue.
    fn delay_of(&self, doorbell: &Doorbell) -> SignedDuration {
        match doorbell {
            Doorbell::Schedule { .. } => self.plan_delay,
            _ => doorbell.queue_delay().unwrap_or_default(),
        }
    }

    /// Delays the last message, and with it all behind it in its group.
    pub fn delay_last(&mut self, by: SignedDuration) {
        if let Some(mut last) = self.messages.last_entry() {
            let late = last.get().visible_at.checked_add(by);
            last.get_mut().visible_at = late.unwrap_or(Timestamp::MAX);
        }
    }

    /// Sets the chain of calls that led to the last message.
    pub(crate) fn chain_last(&mut self, chain: &Chain) {
        if let Some(mut last) = self.messages.last_entry() {
            last.get_mut().chain.clone_from(chain);
        }
    }

    fn put(&mut self, function: Function, input: Input, group: Option<String>, visible_at: Timestamp) {
        self.sequence += 1;
        let message = Message { function, input, group, visible_at, receives: 0, reader: None, reason: None, chain: Chain::new() };
        self.messages.insert(self.sequence, message);
    }

    /// Messages to be delivered now, in order. FIFO groups give at most one, and none while one is in flight.
    pub fn due(&mut self, now: Timestamp) -> Vec<u64> {
        let mut blocked: BTreeSet<&String> = BTreeSet::new();
        let mut due = Vec::new();
        for (number, message) in &self.messages {
            let free = message.reader.is_none() && message.visible_at <= now;
            match &message.group {
                Some(group) => {
                    // A message in flight blocks those behind it.
                    let first = blocked.insert(group);
                    if first && free {
                        due.push(*number);
                    }
                }
                None if free => due.push(*number),
                None => {}
            }
        }
        due
    }

    /// When the next message becomes visible, after `now`.
    pub fn next_visible(&self, now: Timestamp) -> Option<Timestamp> {
        self.messages.values().filter(|message| message.reader.is_none()).map(|message| message.visible_at).filter(|at| *at > now).min()
    }

    /// Hands a message to a reader. `None` if it was received too often: it goes to the dead-letter queue.
    pub fn receive(&mut self, number: u64, reader: TaskId, now: Timestamp) -> Option<Message> {
        let message = self.messages.get_mut(&number)?;
        let limits = message.function.limits();
        if message.receives >= limits.receives {
            self.parked.extend(self.messages.remove(&number));
            return None;
        }
        message.receives += 1;
        message.reader = Some(reader);
        message.visible_at = now.checked_add(limits.visibility).unwrap_or(now);
        let received = message.clone();
        if self.acknowledge_early && received.function == Function::Interrupt {
            self.messages.remove(&number);
        }
        Some(received)
    }

    /// The reader has finished: the message is deleted.
    pub fn done(&mut self, reader: TaskId) {
        self.messages.retain(|_, message| message.reader != Some(reader));
    }

    /// The reader failed or died: its message comes back when its visibility timeout ends.
    pub fn return_to_queue(&mut self, reader: TaskId, reason: &str) {
        for message in self.messages.values_mut().filter(|message| message.reader == Some(reader)) {
            message.reader = None;
            message.reason = Some(reason.to_owned());
        }
    }

    /// Redrives the dead-letter queue, as new messages; returns how many.
    pub fn redrive(&mut self, now: Timestamp) -> usize {
        let parked = std::mem::take(&mut self.parked);
        let count = parked.len();
        for message in parked {
            self.put(message.function, message.input, message.group, now);
        }
        count
    }

    /// Messages that wait or are being worked on.
    pub fn waiting(&self) -> impl Iterator<Item = &Message> {
        self.messages.values()
    }

    /// Whether a spot notice of a machine waits, is being worked on, or was parked.
    pub(crate) fn holds_notice_of(&self, id: &InstanceId) -> bool {
        let is_notice = |message: &Message| match &message.input {
            Input::Notice(text) => text.contains(id.as_str()) && text.contains("Spot Instance Interruption Warning"),
            _ => false,
        };
        self.messages.values().chain(&self.parked).any(is_notice)
    }

    /// Drops waiting messages, as a fault.
    pub fn lose(&mut self, mut chosen: impl FnMut(&Message) -> bool) -> usize {
        let before = self.messages.len();
        self.messages.retain(|_, message| message.reader.is_some() || !chosen(message));
        before - self.messages.len()
    }
}

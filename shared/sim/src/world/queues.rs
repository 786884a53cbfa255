//! SQS queues in memory, and Lambda's own queue of the events that EventBridge invokes a function with.

use crate::{Function, Input, TaskId};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
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
    /// How often it was delivered; of an event, how often its function was invoked with it.
    pub receives: u32,
    /// How often an event was tried in this invocation, once it has begun.
    tries: u32,
    /// Whether another try of the same invocation follows.
    tried_again: bool,
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
    /// The messages without reader, by when they become visible.
    unread: BTreeSet<(Timestamp, u64)>,
    /// The message of each reader.
    read: BTreeMap<TaskId, u64>,
    /// The messages of each group.
    groups: BTreeMap<String, BTreeSet<u64>>,
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
            unread: BTreeSet::new(),
            read: BTreeMap::new(),
            groups: BTreeMap::new(),
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
        let Some((number, last)) = self.messages.last_key_value() else { return };
        let (number, late) = (*number, last.visible_at.checked_add(by).unwrap_or(Timestamp::MAX));
        self.change(number, |message| message.visible_at = late);
    }

    /// Sets the chain of calls that led to the last message.
    pub(crate) fn chain_last(&mut self, chain: &Chain) {
        if let Some(mut last) = self.messages.last_entry() {
            last.get_mut().chain.clone_from(chain);
        }
    }

    fn put(&mut self, function: Function, input: Input, group: Option<String>, visible_at: Timestamp) {
        self.sequence += 1;
        let (receives, tries, chain) = (0, 0, Chain::new());
        let message =
            Message { function, input, group, visible_at, receives, tries, tried_again: false, reader: None, reason: None, chain };
        self.add(self.sequence, message);
    }

    fn add(&mut self, number: u64, message: Message) {
        match message.reader {
            Some(reader) => drop(self.read.insert(reader, number)),
            None => drop(self.unread.insert((message.visible_at, number))),
        }
        if let Some(group) = &message.group {
            self.groups.entry(group.clone()).or_default().insert(number);
        }
        self.messages.insert(number, message);
    }

    fn take(&mut self, number: u64) -> Option<Message> {
        let message = self.messages.remove(&number)?;
        self.unread.remove(&(message.visible_at, number));
        if let Some(reader) = message.reader {
            self.read.remove(&reader);
        }
        if let Some(group) = &message.group
            && let Some(numbers) = self.groups.get_mut(group)
        {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.groups.remove(group);
            }
        }
        Some(message)
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Message)) {
        if let Some(mut message) = self.take(number) {
            change(&mut message);
            self.add(number, message);
        }
    }

    /// Messages to be delivered now, in order. FIFO groups give at most one, and none while one is in flight.
    pub fn due(&self, now: Timestamp) -> Vec<u64> {
        let visible = self.unread.range(..=(now, u64::MAX)).map(|(_, number)| *number);
        let mut due: Vec<u64> = visible.filter(|number| self.is_first(*number)).collect();
        due.sort_unstable();
        due
    }

    /// Whether no message of the same group is before this one: one that is late or in flight holds up those behind it.
    fn is_first(&self, number: u64) -> bool {
        let group = self.messages.get(&number).and_then(|message| self.groups.get(message.group.as_ref()?));
        group.is_none_or(|numbers| numbers.first() == Some(&number))
    }

    /// When the next message becomes visible, after `now`.
    pub fn next_visible(&self, now: Timestamp) -> Option<Timestamp> {
        self.unread.range((Bound::Excluded((now, u64::MAX)), Bound::Unbounded)).next().map(|(at, _)| *at)
    }

    /// Hands a message to a reader. `None` if it was received too often: it goes to the dead-letter queue.
    pub fn receive(&mut self, number: u64, reader: TaskId, now: Timestamp) -> Option<Message> {
        let waiting = self.messages.get(&number)?;
        let (limits, is_delivery) = (waiting.function.limits(), !waiting.tried_again);
        if is_delivery && limits.receives <= waiting.receives {
            let parked = self.take(number);
            self.parked.extend(parked);
            return None;
        }
        self.change(number, |message| {
            message.receives += u32::from(is_delivery);
            message.tries = if is_delivery { 1 } else { message.tries + 1 };
            message.tried_again = false;
            message.reader = Some(reader);
            message.visible_at = now.checked_add(limits.visibility).unwrap_or(now);
        });
        let received = self.messages.get(&number)?.clone();
        if self.acknowledge_early && received.function == Function::Interrupt {
            self.take(number);
        }
        Some(received)
    }

    /// The reader has finished: the message is deleted.
    pub fn done(&mut self, reader: TaskId) {
        if let Some(number) = self.read.get(&reader) {
            self.take(*number);
        }
    }

    /// The reader failed and may succeed later: its message's visibility timeout ends sooner, or another try follows in the invocation, as
    /// the runtime has it, unless it has failed too often.
    pub fn retry_soon(&mut self, reader: TaskId, now: Timestamp) {
        if let Some(number) = self.read.get(&reader) {
            self.change(*number, |message| {
                let is_event = message.function.is_invoked_by_events();
                if let Some(delay) = message.function.retry_delay(if is_event { message.tries } else { message.receives }) {
                    message.visible_at = now.checked_add(delay).unwrap_or(now);
                    message.tried_again = is_event;
                }
            });
        }
    }

    /// The reader failed: a tick's message that would come again only after the next tick is deleted, as the runtime has it.
    pub fn leave_to_next_tick(&mut self, reader: TaskId, may_pass: bool) {
        let Some(message) = self.read.get(&reader).and_then(|number| self.messages.get(number)) else { return };
        let is_tick = matches!(&message.input, Input::Doorbell(doorbell) if doorbell.is_tick());
        if is_tick && !(may_pass && message.function.tick_retry_delay(message.receives).is_some()) {
            self.done(reader);
        }
    }

    /// The reader failed or died: its message comes back when its visibility timeout ends. An event comes when Lambda repeats the
    /// invocation, unless that tries it again itself, or goes to the dead-letter queue.
    pub fn return_to_queue(&mut self, reader: TaskId, now: Timestamp, reason: &str) {
        if let Some(number) = self.read.get(&reader) {
            self.change(*number, |message| {
                message.reader = None;
                message.reason = Some(reason.to_owned());
                if message.function.is_invoked_by_events() && !message.tried_again {
                    let wait = message.function.invoked_again(message.receives).unwrap_or_default();
                    message.visible_at = now.checked_add(wait).unwrap_or(now);
                }
            });
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
        let waiting = self.messages.iter().filter(|(_, message)| message.reader.is_none());
        let lost: Vec<u64> = waiting.filter(|(_, message)| chosen(message)).map(|(number, _)| *number).collect();
        lost.iter().filter(|number| self.take(**number).is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whittle_claims::fixtures::at;

    /// Messages in these groups, visible at these times; their numbers count from one.
    fn queues(messages: &[(Option<&str>, i64)]) -> MessageQueues {
        let mut queues = MessageQueues::default();
        for (group, visible) in messages {
            queues.put(Function::Relay, Input::Review(String::new()), group.map(str::to_owned), at(*visible));
        }
        queues
    }

    #[test]
    fn what_is_first_in_its_group_holds_up_the_rest_of_it_and_nothing_else() {
        let mut queues = queues(&[(Some("a"), 5), (Some("a"), 1), (None, 1), (Some("b"), 2), (None, 9)]);
        assert_eq!((queues.due(at(0)), queues.next_visible(at(0))), (vec![], Some(at(1))));
        assert_eq!((queues.due(at(2)), queues.next_visible(at(2))), (vec![3, 4], Some(at(5))));
        assert_eq!(queues.due(at(5)), [1, 3, 4]);
        // In flight it still does, and when it comes back.
        assert_eq!(queues.receive(1, TaskId(1), at(5)).map(|message| message.receives), Some(1));
        assert_eq!(queues.due(at(6)), [3, 4]);
        queues.return_to_queue(TaskId(1), at(6), "failed");
        assert_eq!(queues.due(at(6)), [3, 4], "its visibility timeout has not ended");
        let again = queues.next_visible(at(9)).unwrap();
        assert_eq!(queues.due(again), [1, 3, 4, 5]);
        assert_eq!(queues.receive(1, TaskId(2), again).map(|message| message.receives), Some(2));
        queues.done(TaskId(2));
        assert_eq!(queues.due(again), [2, 3, 4, 5], "the next of the group");
        assert_eq!(queues.waiting().count(), 4);
    }

    #[test]
    fn a_message_whose_run_failed_comes_again_early_twice_and_that_of_a_run_that_died_never() {
        let mut queues = MessageQueues::default();
        let visibility = Function::Schedule.limits().visibility;
        for group in ["a", "a", "b"] {
            queues.put(Function::Schedule, Input::Review(String::new()), Some(group.to_owned()), at(0));
        }
        let mut now = at(0);
        for (task, delay) in [5, 15, visibility.as_secs(), visibility.as_secs()].into_iter().enumerate() {
            let reader = TaskId(u64::try_from(task).unwrap());
            queues.receive(1, reader, now);
            let failed_at = now.checked_add(SignedDuration::from_secs(2)).unwrap();
            queues.retry_soon(reader, failed_at);
            queues.return_to_queue(reader, failed_at, "failed");
            assert_eq!(queues.due(failed_at), [3], "it holds its group back, and no other");
            let since = if task < 2 { failed_at } else { now };
            let again = since.checked_add(SignedDuration::from_secs(delay)).unwrap();
            assert_eq!(queues.next_visible(failed_at), Some(again), "after {task} more failures");
            now = again;
        }
        queues.receive(3, TaskId(9), at(0));
        queues.return_to_queue(TaskId(9), at(1), "crashed");
        assert_eq!(queues.next_visible(at(1)), at(0).checked_add(visibility).ok());
    }

    /// What becomes of a notice each of whose runs takes two seconds and ends in the same way: when they begin, and when it is given up.
    fn runs_of_notice(fail: impl Fn(&mut MessageQueues, TaskId, Timestamp)) -> (Vec<i64>, Timestamp) {
        let mut queues = MessageQueues::default();
        queues.send(Function::Interrupt, Input::Notice("{}".to_owned()), at(0));
        let (mut begun, mut now) = (Vec::new(), at(0));
        loop {
            let reader = TaskId(u64::try_from(begun.len()).unwrap());
            if queues.receive(1, reader, now).is_none() {
                assert_eq!((queues.parked.len(), queues.waiting().count()), (1, 0), "it is kept for a person");
                return (begun, now);
            }
            begun.push(now.duration_since(at(0)).as_secs());
            let ends = now.checked_add(SignedDuration::from_secs(2)).unwrap();
            fail(&mut queues, reader, ends);
            queues.return_to_queue(reader, ends, "failed");
            now = queues.next_visible(now).unwrap();
        }
    }

    #[test]
    fn a_notice_is_tried_three_times_in_each_of_three_invocations_and_then_given_up() {
        let (begun, given_up) = runs_of_notice(MessageQueues::retry_soon);
        assert_eq!(begun, [0, 7, 24, 86, 93, 110, 232, 239, 256]);
        assert_eq!(given_up, at(258), "as its last invocation ends");
    }

    #[test]
    fn a_notice_whose_run_died_or_that_needs_a_person_comes_again_as_lambda_repeats_it() {
        let (begun, given_up) = runs_of_notice(|_, _, _| ());
        assert_eq!((begun, given_up), (vec![0, 62, 184], at(186)));
        let mut queues = MessageQueues::default();
        queues.send(Function::Interrupt, Input::Notice("{}".to_owned()), at(0));
        queues.receive(1, TaskId(1), at(0));
        queues.retry_soon(TaskId(1), at(1));
        queues.return_to_queue(TaskId(1), at(1), "failed");
        queues.receive(1, TaskId(2), at(6));
        queues.return_to_queue(TaskId(2), at(7), "crashed");
        assert_eq!(queues.next_visible(at(7)), Some(at(67)), "the whole invocation died");
        queues.receive(1, TaskId(3), at(67));
        queues.done(TaskId(3));
        assert_eq!((queues.waiting().count(), queues.parked.len()), (0, 0), "it is never given up once it was handled");
    }

    #[test]
    fn a_ticks_message_whose_run_failed_comes_again_once_and_that_of_a_run_that_died_as_any_other() {
        let sweep = |is_tick| Input::Doorbell(Doorbell::Sweep { cluster: "demo".into(), is_tick });
        let fail = |queues: &mut MessageQueues, number, may_pass| {
            queues.receive(number, TaskId(number), at(0));
            queues.leave_to_next_tick(TaskId(number), may_pass);
            queues.return_to_queue(TaskId(number), at(0), "failed");
            queues.waiting().count()
        };
        let mut queues = MessageQueues::default();
        for is_tick in [true, true, false] {
            queues.put(Function::Sweep, sweep(is_tick), None, at(0));
        }
        assert_eq!(fail(&mut queues, 1, true), 3, "before the next tick");
        assert_eq!(fail(&mut queues, 1, true), 2, "the next tick does the same");
        assert_eq!(fail(&mut queues, 2, false), 1, "nothing is better in half a minute");
        assert_eq!(fail(&mut queues, 3, false), 1, "nobody else may ring for it");
        queues.put(Function::Sweep, sweep(true), None, at(0));
        queues.receive(4, TaskId(4), at(0));
        queues.return_to_queue(TaskId(4), at(0), "crashed");
        assert_eq!(queues.waiting().count(), 2, "its run could decide nothing");
        let register = Input::Doorbell(Doorbell::Register { cluster: "demo".into(), is_tick: true });
        queues.put(Function::Register, register, None, at(0));
        let left = [(); 3].map(|()| fail(&mut queues, 5, true));
        assert_eq!(left, [3, 3, 2], "twice before the next tick");
    }

    #[test]
    fn a_message_that_is_lost_or_late_is_so_for_all_that_is_asked() {
        let mut queues = queues(&[(Some("a"), 1), (Some("a"), 1), (None, 1)]);
        queues.delay_last(SignedDuration::from_secs(3));
        assert_eq!((queues.due(at(1)), queues.next_visible(at(1))), (vec![1], Some(at(4))));
        queues.receive(1, TaskId(1), at(1));
        assert_eq!(queues.lose(|_| true), 2, "all that no one reads");
        assert_eq!((queues.due(at(4)), queues.next_visible(at(1)), queues.waiting().count()), (vec![], None, 1));
        queues.done(TaskId(9));
        queues.done(TaskId(1));
        assert_eq!(queues.waiting().count(), 0);
    }
}

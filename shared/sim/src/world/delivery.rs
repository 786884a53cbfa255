//! Message delivery: late, duplicated or lost.

use super::{Due, Event, Start, TICK, World};
use crate::dice::Stream;
use crate::meter::Meter;
use crate::story::LineKind;
use crate::{Function, Input, TaskId};
use jiff::{SignedDuration, Timestamp};
use whittle_claims::Doorbell;

/// Batched messages arrive at multiples of this many milliseconds.
const TOGETHER_MS: i64 = 2_000;

impl World {
    /// EventBridge invokes `interrupt` with an event.
    pub fn notice(&mut self, json: String) {
        self.send(Function::Interrupt, Input::Notice(json));
    }

    /// The relay is told that somebody has deleted Nodes or NodeClaims, and rings. One doorbell tells of all that go at once.
    pub fn ring_for_deletions(&mut self) {
        if !self.is_on() {
            return;
        }
        self.metered(Meter::relayed);
        let cluster = self.name();
        // Where one cluster is served, nobody reads the queue of `sweep` (ADR 0071).
        let doorbell = if self.faults.ticks_work { Doorbell::Deletions { cluster } } else { Doorbell::sweep(cluster) };
        self.send_doorbell(doorbell, SignedDuration::ZERO);
    }

    /// Rings a doorbell, unless a fault loses it.
    pub fn send_doorbell(&mut self, doorbell: Doorbell, delay: SignedDuration) {
        if self.tick > TICK && !delay.is_zero() && matches!(doorbell, Doorbell::Consolidate { .. }) {
            return;
        }
        if !self.fault_occurs(self.faults.lost_messages) {
            self.post(doorbell, delay);
        }
    }

    /// Sends a doorbell to its queue.
    pub(crate) fn post(&mut self, doorbell: Doorbell, delay: SignedDuration) {
        let now = self.now();
        self.metered(|meter| meter.sent(doorbell.function()));
        let Some(chain) = self.chain_on(doorbell.function()) else {
            self.counts.faults += 1;
            return;
        };
        // A FIFO queue deduplicates its messages.
        let copies = if doorbell.queue_delay().is_none() { self.copies() } else { 1 };
        for _ in 0..copies {
            let late = self.lateness();
            if let Some(at) = self.queues.send_doorbell(doorbell.clone(), delay, now, self.sent_at()) {
                self.queues.chain_last(&chain);
                self.queues.delay_last(late);
                self.plan_delivery(at.checked_add(late).unwrap_or(at));
            }
        }
    }

    /// A schedule invokes a function, which does its work or rings its own doorbell. Returns the runs, of which there may be two: a
    /// schedule invokes once at least.
    pub(super) fn invoke_by_schedule(&mut self, doorbell: Doorbell) -> Vec<Start> {
        if !self.faults.ticks_work {
            self.send_tick(doorbell);
            return Vec::new();
        }
        let function = doorbell.function();
        if self.fault_occurs(self.faults.lost_ticks) || self.is_throttled(function) {
            self.log(LineKind::Fault, format!("a tick did not reach {function}"));
            return Vec::new();
        }
        let times = if self.fault_occurs(self.faults.doubled_runs) { 2 } else { 1 };
        (0..times).map(|_| self.begin_tick(doorbell.clone())).collect()
    }

    /// A schedule rings a function's doorbell. Where every doorbell is lost this one
    /// is not, because it compensates for the others; a queue that refuses it makes the tick fail.
    fn send_tick(&mut self, doorbell: Doorbell) {
        self.metered(|meter| meter.ticked(doorbell.function()));
        self.ring_by_schedule(doorbell);
    }

    /// Sends a doorbell of an invocation by a schedule.
    pub(super) fn ring_by_schedule(&mut self, doorbell: Doorbell) {
        if self.fault_occurs(self.faults.throttles) || self.fault_occurs(self.faults.lost_ticks) {
            self.log(LineKind::Fault, format!("a tick of {} could not send its doorbell", doorbell.function()));
        } else {
            self.post(doorbell, SignedDuration::ZERO);
        }
    }

    /// How often a message is delivered.
    pub(super) fn copies(&mut self) -> usize {
        if self.fault_occurs(self.faults.repeated_messages) { 2 } else { 1 }
    }

    /// A message's delay, which may put it behind others that were sent after it.
    pub(super) fn lateness(&mut self) -> SignedDuration {
        if self.fault_occurs(self.faults.batched_messages) {
            // Until the next even second: several arrive at once.
            let into = self.now().as_millisecond().rem_euclid(TOGETHER_MS);
            return SignedDuration::from_millis(TOGETHER_MS - into);
        }
        if !self.fault_occurs(self.faults.late_messages) {
            return SignedDuration::ZERO;
        }
        SignedDuration::from_millis(i64::try_from(self.dice.below(Stream::Faults, 30_000)).unwrap_or(0))
    }

    pub(super) fn send(&mut self, function: Function, input: Input) {
        if function.has_queue() {
            self.metered(|meter| meter.sent(function));
        }
        for _ in 0..self.copies() {
            let late = self.lateness();
            let at = self.now().checked_add(late).unwrap_or(Timestamp::MAX);
            self.queues.send(function, input.clone(), at);
            self.plan_delivery(at);
        }
    }

    /// Schedules a delivery for `at`, unless an earlier one is scheduled: with an event for each message they would never end,
    /// as each delivery schedules the next.
    pub(crate) fn plan_delivery(&mut self, at: Timestamp) {
        if self.timers.delivery.is_none_or(|planned| at < planned) {
            self.timers.delivery = Some(at);
            self.agenda.at(at, Event::Deliver);
        }
    }

    pub(super) fn deliver(&mut self) -> Due {
        let now = self.now();
        self.timers.delivery = self.timers.delivery.filter(|planned| *planned > now);
        let mut starts = Vec::new();
        self.batches += 1;
        let batched = self.fault_occurs(self.faults.batched_messages);
        for number in self.queues.due(now) {
            self.task_sequence += 1;
            let task = TaskId(self.task_sequence);
            let Some(message) = self.queues.receive(number, task, now) else {
                self.log(LineKind::Fault, "a message was moved to the dead-letter queue");
                continue;
            };
            if self.is_throttled(message.function) {
                self.queues.return_to_queue(task, now, "throttled");
                continue;
            }
            if self.fault_occurs(self.faults.doubled_runs) {
                // A second worker that is unaware of the first; the message is acknowledged by the first.
                self.task_sequence += 1;
                let twin = TaskId(self.task_sequence);
                starts.push(self.begin(twin, message.clone(), false));
            }
            starts.push(self.begin(task, message, batched));
        }
        if let Some(at) = self.queues.next_visible(now) {
            self.plan_delivery(at);
        }
        Due::Start(starts)
    }

    /// Redrives parked messages, as an operator does after fixing the cause. Returns how many.
    pub fn redrive(&mut self) -> usize {
        let now = self.now();
        let count = self.queues.redrive(now);
        self.plan_delivery(now);
        count
    }

    pub(super) fn deliver_soon(&mut self) {
        let now = self.now();
        if !self.queues.due(now).is_empty() {
            self.plan_delivery(now);
        }
        if let Some(at) = self.queues.next_visible(now) {
            self.plan_delivery(at);
        }
    }
}

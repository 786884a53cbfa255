//! Runs of functions: how they begin, pass their await points and end.

use super::queues::{Chain, Message};
use super::{Event, RESERVE, Start, World};
use crate::dice::Stream;
use crate::story::LineKind;
use crate::{Function, Input, RunFailure, TaskId};
use jiff::{SignedDuration, Timestamp};
use std::task::Waker;
use whittle_claims::Doorbell;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) function: Function,
    /// How often each function ran in the chain of calls that led here.
    pub(super) chain: Chain,
    /// The batch of messages in the same invocation.
    pub(super) batch: Option<u64>,
    /// What repeats the work if it fails, where a schedule requested it and no message; that of `sweep` is left to the next tick.
    pub(super) tick: Option<Doorbell>,
}

impl World {
    pub(super) fn begin(&mut self, task: TaskId, message: Message, batched: bool) -> Start {
        let Message { function, input, chain, group, .. } = message;
        // Messages of a group are delivered one at a time, and an event is an invocation.
        let batch = (batched && group.is_none() && !function.is_invoked_by_events()).then_some(self.batches);
        let now = self.now();
        self.metered(|meter| meter.began(task, function, now));
        self.begin_run(task, input, Running { function, chain, batch, tick: None })
    }

    /// A schedule invokes a function, which does its work.
    pub(super) fn begin_tick(&mut self, doorbell: Doorbell) -> Start {
        let function = doorbell.function();
        self.task_sequence += 1;
        let (task, now) = (TaskId(self.task_sequence), self.now());
        self.metered(|meter| meter.ticked_to_work(task, function, now));
        let running = Running { function, chain: Chain::new(), batch: None, tick: Some(doorbell.clone()) };
        self.begin_run(task, Input::Doorbell(doorbell), running)
    }

    fn begin_run(&mut self, task: TaskId, input: Input, mut running: Running) -> Start {
        let function = running.function;
        let ran = running.chain.entry(function).or_default();
        *ran += 1;
        self.counts.longest_chain = self.counts.longest_chain.max(u64::from(*ran));
        self.counts.invocations += 1;
        let timeout = self.time_of(function);
        let end = self.now().checked_add(timeout).unwrap_or(Timestamp::MAX);
        self.agenda.at(end, Event::Expire { task });
        self.running.insert(task, running);
        let skew = self.skew();
        Start { task, function, input, deadline: end.checked_sub(RESERVE.min(timeout / 10)).unwrap_or(end), skew }
    }

    pub(crate) fn finished(&mut self, task: TaskId, outcome: Result<(), RunFailure>) {
        let Some(running) = self.running.remove(&task) else { return };
        let now = self.now();
        self.metered(|meter| meter.ended(task, now));
        match outcome {
            Ok(()) => self.queues.done(task),
            Err(RunFailure { reason, may_pass }) => {
                self.counts.failures += 1;
                self.queues.leave_to_next_tick(task, may_pass);
                if may_pass {
                    self.queues.retry_soon(task, now);
                }
                self.queues.return_to_queue(task, now, &reason);
                self.log(LineKind::Fault, format!("{} failed: {reason}", running.function));
                // Nobody reads the queue of `sweep` where a tick is the run: the next tick does the same.
                let repeated = running.tick.filter(|_| may_pass && running.function != Function::Sweep);
                if let Some(doorbell) = repeated {
                    self.ring_by_schedule(doorbell);
                }
            }
        }
        self.deliver_soon();
    }

    /// A run has died. Returns the runs that die with it, because their messages were in the same invocation.
    pub(crate) fn died(&mut self, task: TaskId, why: &str) -> Vec<TaskId> {
        let Some(running) = self.running.remove(&task) else { return Vec::new() };
        let now = self.now();
        self.queues.return_to_queue(task, now, why);
        self.died_at = Some(now);
        self.counts.faults += 1;
        self.log(LineKind::Fault, format!("{} {why}", running.function));
        self.deliver_soon();
        let same = |other: &Running| other.function == running.function && other.batch.is_some() && other.batch == running.batch;
        self.running.iter().filter(|(_, other)| same(other)).map(|(task, _)| *task).collect()
    }

    /// A task reached an await point that lasts until the returned time. May doom the task.
    pub(crate) fn gate(&mut self, task: TaskId, low_ms: u64, high_ms: u64, waker: Waker) -> Timestamp {
        self.counts.gates += 1;
        if let (Some(gates), Some(running)) = (&mut self.gates, self.running.get(&task)) {
            gates.push(running.function);
        }
        if self.faults.crash_at_gate == Some(self.counts.gates) || self.dice.happens(self.faults.crashes) {
            self.doomed.insert(task);
        }
        let millis = self.dice.between(Stream::Latency, low_ms, high_ms);
        let until = self.now().checked_add(SignedDuration::from_millis(i64::try_from(millis).unwrap_or(0))).unwrap_or(Timestamp::MAX);
        self.agenda.at(until, Event::Wake { task, waker });
        until
    }

    /// How often each function ran in the chain that a doorbell continues; `None` if the chain is stopped.
    pub(super) fn chain_on(&self, next: Function) -> Option<Chain> {
        let chain = self.sender.and_then(|task| self.running.get(&task)).map(|running| running.chain.clone()).unwrap_or_default();
        let cut = self.faults.loop_stop > 0 && chain.get(&next).is_some_and(|ran| *ran >= self.faults.loop_stop);
        (!cut).then_some(chain)
    }

    /// The time by the clock of the sending run.
    pub(super) fn sent_at(&self) -> Timestamp {
        self.now().checked_add(self.sender_skew).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn function_of(&self, task: TaskId) -> Option<Function> {
        self.running.get(&task).map(|running| running.function)
    }

    /// The number of running invocations of a function.
    pub(crate) fn runs_of(&self, function: Function) -> usize {
        self.running.values().filter(|running| running.function == function).count()
    }

    /// The number of invocations that share the account's concurrency.
    pub(super) fn runs_without_reserve(&self) -> usize {
        self.running.values().filter(|running| !running.function.is_reserved()).count()
    }

    pub(crate) fn take_crash(&mut self, task: TaskId) -> bool {
        self.doomed.remove(&task)
    }
}

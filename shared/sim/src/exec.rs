//! The executor: runs of functions as futures, polled one at a time when they are due.

use crate::LineKind;
use crate::function::{Functions, RunFailure, TaskId};
use crate::ports::SimPorts;
use crate::world::{Due, Start, World};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// A world and the functions that run in it.
pub struct Simulation {
    world: Arc<Mutex<World>>,
    functions: Arc<dyn Functions>,
    tasks: BTreeMap<TaskId, BoxFuture<'static, Result<(), RunFailure>>>,
}

/// The one place that locks a world. Nothing panics while holding it, and a poisoned one is still consistent enough to
/// report from.
pub(crate) fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Simulation {
    /// A simulation of a fresh world.
    pub fn new(world: World, functions: Arc<dyn Functions>) -> Self {
        Self { world: Arc::new(Mutex::new(world)), functions, tasks: BTreeMap::new() }
    }

    /// The world, to be inspected or changed between events.
    pub fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// Ports as a function would get them, for callers outside of a function.
    pub fn ports(&self) -> SimPorts {
        SimPorts::idle(Arc::clone(&self.world))
    }

    /// Processes the next event if it is due by `limit`. False if there is none.
    pub fn step(&mut self, limit: Timestamp) -> bool {
        let Some(due) = self.world().step(limit) else { return false };
        match due {
            Due::Nothing => {}
            Due::Start(starts) => starts.into_iter().for_each(|start| self.start(start)),
            Due::Wake(task, waker) => {
                waker.wake();
                self.poll(task);
            }
            Due::Kill(task, why) => self.kill(task, why),
        }
        true
    }

    /// Runs until a time, which is the current time afterwards.
    pub fn run_until(&mut self, limit: Timestamp) {
        while self.step(limit) {}
        self.world().idle_until(limit);
    }

    /// Runs for some time.
    pub fn run_for(&mut self, span: SignedDuration) {
        let until = self.world().now().checked_add(span).unwrap_or(Timestamp::MAX);
        self.run_until(until);
    }

    /// Runs until a condition holds or `limit` has passed; returns whether it holds.
    pub fn run_while_not(&mut self, limit: Timestamp, mut holds: impl FnMut(&World) -> bool) -> bool {
        loop {
            if holds(&self.world()) {
                return true;
            }
            if !self.step(limit) {
                self.world().idle_until(limit);
                return holds(&self.world());
            }
        }
    }

    fn start(&mut self, start: Start) {
        let ports = SimPorts::of_task(Arc::clone(&self.world), &start);
        let future = self.functions.call(start.function, ports, start.input);
        self.tasks.insert(start.task, future);
        self.poll(start.task);
    }

    fn poll(&mut self, task: TaskId) {
        let Some(mut future) = self.tasks.remove(&task) else { return };
        // The agenda wakes tasks itself; wakers only tell combinators which futures to poll.
        let since = Instant::now();
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.world().metered(|meter| meter.worked(task, since.elapsed()));
        let doomed = self.world().take_crash(task);
        match polled {
            _ if doomed => {
                drop(future);
                self.kill(task, "crashed");
            }
            Poll::Pending => {
                self.tasks.insert(task, future);
            }
            Poll::Ready(outcome) => self.world().finished(task, outcome),
        }
    }

    fn kill(&mut self, task: TaskId, why: &str) {
        self.tasks.remove(&task);
        let mates = self.world().died(task, why);
        for mate in mates {
            self.tasks.remove(&mate);
            self.world().died(mate, "died with another message of its batch");
        }
    }

    /// Adds a line to the timeline.
    pub fn log(&self, kind: LineKind, text: &str) {
        self.world().log(kind, text);
    }
}

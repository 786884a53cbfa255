//! The ports over the simulated world: every call waits before and after its effect, and may be refused or lose its reply.

mod cloud;
mod cluster;
mod store;

use crate::exec::lock;
use crate::world::{Start, World};
use crate::{Function, TaskId};
use jiff::{SignedDuration, Timestamp};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use whittle_claims::Doorbell;
use whittle_ports::{Clock, CloudError, CloudErrorKind, ClusterError, Deadline, QueueError, Queues, StoreError};
use whittle_units::ClusterName;

/// All ports as one run of a function gets them.
#[derive(Clone)]
pub struct SimPorts {
    world: Arc<Mutex<World>>,
    /// `None` for callers outside of any function: their calls never fail, and take no time but `cost`.
    task: Option<TaskId>,
    cost: SignedDuration,
    deadline: Timestamp,
    /// The clock skew of this run.
    skew: SignedDuration,
}

/// How long half of a call takes, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace(u64, u64);

pub(crate) const TABLE: Pace = Pace(2, 6);
pub(crate) const API_SERVER: Pace = Pace(5, 20);
pub(crate) const EC2: Pace = Pace(50, 200);
pub(crate) const QUEUE: Pace = Pace(3, 8);
/// The duration of a slow reply.
const SLOW: Pace = Pace(1_000, 10_000);

/// An error that can be injected.
pub(crate) trait Injected {
    /// The call had no effect.
    fn throttled(what: &str) -> Self;
    /// It is unknown whether the call had an effect.
    fn unanswered(what: &str) -> Self;
    /// The conflict with another writer, if the port has such an error.
    fn lost_race(what: &str) -> Option<Self>
    where
        Self: Sized;
    /// Whether this port is unavailable for this call now.
    fn is_cut(world: &World, what: &str) -> bool;
}

impl Injected for StoreError {
    fn throttled(what: &str) -> Self {
        Self::Throttled { what: what.to_owned() }
    }
    fn unanswered(what: &str) -> Self {
        Self::Unavailable { what: what.to_owned(), reason: "the reply was lost".to_owned() }
    }
    fn lost_race(what: &str) -> Option<Self> {
        Some(Self::Conflict { what: what.to_owned() })
    }
    fn is_cut(world: &World, _: &str) -> bool {
        world.faults.table_throttled_until.is_some_and(|until| world.now() < until)
    }
}

impl Injected for ClusterError {
    fn throttled(what: &str) -> Self {
        Self::Throttled { what: what.to_owned() }
    }
    fn unanswered(what: &str) -> Self {
        Self::Unavailable { cluster: "simulated".into(), what: what.to_owned(), message: "the reply was lost".to_owned() }
    }
    fn lost_race(what: &str) -> Option<Self> {
        Some(Self::Conflict { what: what.to_owned() })
    }
    fn is_cut(world: &World, _: &str) -> bool {
        world.faults.api_server_down_until.is_some_and(|until| world.now() < until)
    }
}

impl Injected for CloudError {
    fn throttled(what: &str) -> Self {
        let message = format!("Request limit exceeded for {what}.");
        Self { kind: CloudErrorKind::Throttled, call: "EC2", code: "RequestLimitExceeded".to_owned(), message }
    }
    fn unanswered(what: &str) -> Self {
        let message = format!("the reply of {what} was lost");
        Self { kind: CloudErrorKind::Unknown, call: "EC2", code: "RequestTimeout".to_owned(), message }
    }
    fn lost_race(_: &str) -> Option<Self> {
        None
    }
    fn is_cut(world: &World, what: &str) -> bool {
        what == "CreateFleet" && world.faults.fleets_throttled_until.is_some_and(|until| world.now() < until)
    }
}

impl Injected for QueueError {
    fn throttled(what: &str) -> Self {
        Self { cluster: what.to_owned(), reason: "the queue throttles".to_owned() }
    }
    fn unanswered(what: &str) -> Self {
        Self { cluster: what.to_owned(), reason: "the reply was lost".to_owned() }
    }
    fn lost_race(_: &str) -> Option<Self> {
        None
    }
    fn is_cut(_: &World, _: &str) -> bool {
        false
    }
}

/// An await point.
struct Gate<'a> {
    ports: &'a SimPorts,
    task: TaskId,
    pace: Pace,
    until: Option<Timestamp>,
}

impl Future for Gate<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut world = lock(&self.ports.world);
        match self.until {
            Some(until) if world.now() >= until => Poll::Ready(()),
            Some(_) => Poll::Pending,
            None => {
                let until = world.gate(self.task, self.pace.0, self.pace.1, context.waker().clone());
                drop(world);
                self.until = Some(until);
                Poll::Pending
            }
        }
    }
}

impl SimPorts {
    pub(crate) fn of_task(world: Arc<Mutex<World>>, start: &Start) -> Self {
        Self { world, task: Some(start.task), cost: SignedDuration::ZERO, deadline: start.deadline, skew: start.skew }
    }
    pub(crate) fn idle(world: Arc<Mutex<World>>) -> Self {
        Self { world, task: None, cost: SignedDuration::ZERO, deadline: Timestamp::MAX, skew: SignedDuration::ZERO }
    }

    /// The ports of an invocation with `left` until its deadline, of which every call takes `cost`.
    #[must_use]
    pub fn with_time_left(&self, cost: SignedDuration, left: SignedDuration) -> Self {
        let deadline = lock(&self.world).now().checked_add(left).unwrap_or(Timestamp::MAX);
        Self { cost, deadline, ..self.clone() }
    }

    /// Whether the invocation is still within its deadline, except for the time reserved for handing over.
    pub fn is_in_time(&self) -> bool {
        self.now().duration_since(self.deadline) <= crate::world::RESERVE
    }

    /// The calling function, by which mutants select calls.
    fn caller(&self, world: &World) -> Option<Function> {
        self.task.and_then(|task| world.function_of(task))
    }

    /// The name of the simulated cluster.
    pub fn cluster(&self) -> ClusterName {
        lock(&self.world).name()
    }

    /// Reads or changes the world, instantly and without faults.
    pub fn inspect<R>(&self, look: impl FnOnce(&mut World) -> R) -> R {
        look(&mut lock(&self.world))
    }

    async fn gate(&self, pace: Pace) {
        if let Some(task) = self.task {
            Gate { ports: self, task, pace, until: None }.await;
        }
    }

    /// One call: wait, take effect or be refused, wait, reply or lose the reply.
    async fn call<R, E: Injected>(&self, pace: Pace, what: &str, effect: impl FnOnce(&mut World) -> Result<R, E>) -> Result<R, E> {
        self.gate(pace).await;
        let answer = {
            let mut world = lock(&self.world);
            let throttles = world.faults.throttles;
            if self.task.is_none() {
                let after = world.now().checked_add(self.cost).unwrap_or(Timestamp::MAX);
                world.idle_until(after);
                return effect(&mut world);
            }
            if E::is_cut(&world, what) {
                world.counts.faults += 1;
                Err(E::throttled(what))
            } else if world.fault_occurs(throttles) || !world.grants_call(what) {
                Err(E::throttled(what))
            } else if world.is_disconnected() {
                Err(E::unanswered(what))
            } else {
                effect(&mut world)
            }
        };
        let slow = {
            let mut world = lock(&self.world);
            let slow = world.faults.slow_replies;
            world.fault_occurs(slow)
        };
        self.gate(if slow { SLOW } else { pace }).await;
        let mut world = lock(&self.world);
        let lost = world.faults.lost_replies.max(if what == "CreateFleet" { world.faults.lost_fleets } else { 0 });
        if answer.is_ok() && world.fault_occurs(lost) {
            return Err(E::unanswered(what));
        }
        answer
    }

    /// A call that replaces what its caller has read: it may conflict with another writer.
    async fn race<R, E: Injected>(&self, pace: Pace, what: &str, effect: impl FnOnce(&mut World) -> Result<R, E>) -> Result<R, E> {
        let may_lose = self.task.is_some();
        self.call(pace, what, |world| {
            let conflicts = world.faults.conflicts;
            match E::lost_race(what).filter(|_| may_lose && conflicts > 0) {
                Some(lost) if world.fault_occurs(conflicts) => Err(lost),
                _ => effect(world),
            }
        })
        .await
    }
}

impl Clock for SimPorts {
    fn now(&self) -> Timestamp {
        lock(&self.world).now() + self.skew
    }
    fn deadline(&self) -> Deadline {
        Deadline(self.deadline)
    }
    fn unique(&self) -> String {
        lock(&self.world).unique()
    }
}

impl Queues for SimPorts {
    async fn send(&self, doorbell: Doorbell, delay: SignedDuration) -> Result<(), QueueError> {
        let cluster = doorbell.cluster().to_string();
        self.call(QUEUE, &cluster, |world| {
            // Even if every doorbell is lost, those that a sweep repeats are not: they recover the rest.
            (world.sender, world.sender_skew) = (self.task, self.skew);
            // The relay rings a doorbell for each pending pod; the queue deduplicates them.
            let caller = self.caller(world);
            if caller != Some(Function::Relay) {
                world.observe_doorbell(&doorbell, caller);
            }
            let repeats = world.faults.lost_messages >= 1000 && self.caller(world) == Some(Function::Sweep);
            if repeats {
                world.post(doorbell, delay)
            } else {
                world.send_doorbell(doorbell, delay)
            }
            (world.sender, world.sender_skew) = (None, SignedDuration::ZERO);
            Ok(())
        })
        .await
    }
}

//! How the simulator calls the functions, and their inputs.

use crate::ports::SimPorts;
use futures::future::BoxFuture;
use whittle_claims::{Doorbell, Function};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Doorbell(Doorbell),
    /// An EventBridge event, as JSON text.
    Notice(String),
    /// The body of an admission review about an Event.
    Review(String),
}

/// One run of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// Why a run failed; its message is delivered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    pub reason: String,
    /// Whether another run may succeed: then its message comes again soon.
    pub may_pass: bool,
}

impl RunFailure {
    /// A failure that may be over soon.
    pub fn passing(reason: impl ToString) -> Self {
        Self { reason: reason.to_string(), may_pass: true }
    }
}

/// The real handlers, supplied by the creator of the simulation: this crate depends on none of them.
pub trait Functions: Send + Sync {
    /// Starts a function. An error makes its message be delivered again.
    fn call(&self, function: Function, ports: SimPorts, input: Input) -> BoxFuture<'static, Result<(), RunFailure>>;
}

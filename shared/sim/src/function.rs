//! How the simulator calls the functions, and what wakes them.

use crate::ports::SimPorts;
use futures::future::BoxFuture;
use whittle_claims::{Doorbell, Function};

/// What wakes a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Bell(Doorbell),
    /// An EventBridge event, as JSON text.
    Notice(String),
    /// The body of an admission review about an Event.
    Review(String),
}

/// One run of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// The real handlers, given by whoever builds the simulation: this crate knows none of them.
pub trait Functions: Send + Sync {
    /// Starts a function. An error text makes its message come again.
    fn call(&self, function: Function, ports: SimPorts, input: Input) -> BoxFuture<'static, Result<(), String>>;
}

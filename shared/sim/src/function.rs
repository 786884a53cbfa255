//! The functions as the simulator knows them: names, what wakes them, and how they are called.

use crate::ports::SimPorts;
use futures::future::BoxFuture;
use std::fmt;
use whittle_claims::Doorbell;

/// One of the Lambda functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Function {
    Relay,
    Schedule,
    Launch,
    Register,
    Consolidate,
    Interrupt,
    Terminate,
    Refresh,
    Sweep,
}

impl Function {
    /// The function that a doorbell wakes.
    pub const fn of(bell: &Doorbell) -> Self {
        match bell {
            Doorbell::Schedule { .. } => Self::Schedule,
            Doorbell::Consolidate { .. } => Self::Consolidate,
            Doorbell::Launch { .. } => Self::Launch,
            Doorbell::Register { .. } => Self::Register,
            Doorbell::Terminate { .. } => Self::Terminate,
            Doorbell::Refresh { .. } => Self::Refresh,
            Doorbell::Sweep { .. } => Self::Sweep,
        }
    }
    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Schedule => "schedule",
            Self::Launch => "launch",
            Self::Register => "register",
            Self::Consolidate => "consolidate",
            Self::Interrupt => "interrupt",
            Self::Terminate => "terminate",
            Self::Refresh => "refresh",
            Self::Sweep => "sweep",
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

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

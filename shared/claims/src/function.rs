//! The Lambda functions, and their settings in the stack's template.

use std::fmt;
use whittle_units::SignedDuration;

/// One of the Lambda functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Relay,
        Self::Schedule,
        Self::Launch,
        Self::Register,
        Self::Consolidate,
        Self::Interrupt,
        Self::Terminate,
        Self::Refresh,
        Self::Sweep,
    ];

    /// The function's timeout, and its queue's visibility timeout and maximum receives, as in the stack's template.
    pub const fn limits(self) -> Limits {
        let (timeout, visibility, receives) = match self {
            // It has no queue: the webhook retries.
            Self::Relay => (5, 30, 3),
            Self::Schedule => (30, 45, 3),
            Self::Launch | Self::Register => (30, 180, 3),
            Self::Terminate => (30, 180, 5),
            Self::Consolidate => (60, 90, 3),
            Self::Sweep => (60, 360, 3),
            Self::Interrupt => (10, 60, 3),
            Self::Refresh => (300, 1800, 3),
        };
        Limits { timeout: SignedDuration::from_secs(timeout), visibility: SignedDuration::from_secs(visibility), receives }
    }
    /// Whether the template reserves concurrency for it by default.
    pub const fn is_reserved(self) -> bool {
        matches!(self, Self::Relay | Self::Interrupt)
    }
    /// The name of its binary, in logs and in metrics.
    pub const fn name(self) -> &'static str {
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

/// Settings of a function and its queue in the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The invocation timeout.
    pub timeout: SignedDuration,
    /// The visibility timeout: after this a received message is delivered again.
    pub visibility: SignedDuration,
    /// How often a message is received before it moves to the dead-letter queue.
    pub receives: u32,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

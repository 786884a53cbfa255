//! Input of a disruption decision, and the commands that it returns.

mod cloud_drift;
mod command;
mod input;

pub use cloud_drift::CloudDrift;
pub use command::{Action, Command, Method, Proposal, Reason, Removal, Savings, VALIDATION_WAIT};
pub use input::{
    ClaimFacts, Gate, Input, Memory, Move, NOT_INITIALIZED, PassFingerprint, RemovedNode, ReplacementRefused, Settings, TAKES_NO_PODS,
};

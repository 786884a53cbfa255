//! What a disruption decision is given, and the commands that it answers.

mod cloud_drift;
mod command;
mod input;

pub use cloud_drift::CloudDrift;
pub use command::{Action, Command, Method, Proposal, Reason, Removal, Savings, VALIDATION_WAIT};
pub use input::{ClaimFacts, Gate, Input, Memory, Move, PassFingerprint, RemovedNode, Settings};

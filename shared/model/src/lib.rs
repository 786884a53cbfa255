//! The values that decisions share: requirements, pods, the state of nodes, and the input and result of each decision.
//!
//! The solver, disruption and the checker have only these values in common: what one of them alone needs is in its own crate.

pub mod disruption;
pub mod pods;
pub mod requirements;
pub mod scheduling;
pub mod state;

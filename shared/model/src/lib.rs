//! What decisions are made of: requirements, pods, the state of nodes, and what a decision is given and answers, as values.
//!
//! The solver, disruption and the checker share these values and nothing else: what one of them only needs for itself is there.

pub mod disruption;
pub mod pods;
pub mod requirements;
pub mod scheduling;
pub mod state;

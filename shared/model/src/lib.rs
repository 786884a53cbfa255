//! The values that decisions share: requirements, pods, the state of nodes, and the input and result of each decision.
//!
//! The solver, disruption and the checker have only these values in common: what one of them alone needs is in its own crate.

pub mod requirements; // which values a label may have
pub mod pods; // what a pod asks for
pub mod state; // every machine, with its pods
pub mod scheduling; // input and result of a plan
pub mod disruption; // input and commands of a disruption
